"""A run as one file, out of a store and into another. Export only reads; import checks the whole file before it writes.

What is imported keeps its run id, sequence, operations and hashes, so the state and the head are the same on both
sides. An import that was interrupted goes on when it is repeated. A log that differs is refused, never merged.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO

import msgspec

from holdfast.core import exchange
from holdfast.core.errors import (
    BadFile,
    BadRecord,
    HoldfastError,
    LogDamaged,
    NotFound,
    OperationReused,
    SequenceConflict,
)
from holdfast.core.exchange import ARTIFACT_START, MAX_ARTIFACT_LINE, MAX_LINE, Artifact, End, Header, Reader
from holdfast.core.mentions import mentioned_as_kept, named
from holdfast.core.named import NamedTuple
from holdfast.core.state import projection
from holdfast.core.wire import EXTENSION_PREFIX, GENESIS, place
from holdfast.engine.log import TTL, Finding, World, chained
from holdfast.engine.whole_file import file_errors, whole_file
from holdfast.ports import Lease, Record, Store

Tick = Callable[[int], object]
UNKNOWN_ARTIFACT = "unknown_artifact"  # what a run's own words name is no damage: it may be kept elsewhere
_decode_object = msgspec.json.Decoder(dict[str, object]).decode


def no_tick(seq: int) -> None:
    return None


class Exported(NamedTuple):
    run_id: str
    events: int
    artifacts: int
    head: str


class Imported(NamedTuple):
    """What became of an import. `outcome`: new, extended, identical, or older (the store has more of the same log)."""

    run_id: str
    outcome: str
    events: int
    appended: int
    artifacts: int


# --- export


def export_run(store: Store, run_id: str, out: BinaryIO, tick: Tick = no_tick) -> Exported:
    """Write the run as it stands now. Refuses a log whose chain or artifacts are damaged. Writes nothing in the store."""
    head = store.head(run_id)
    if head is None:
        raise NotFound("run", run_id)
    out.write(exchange.header_line(Header(run_id, head.seq, head.hash.hex())))
    referred: dict[str, bool] = {}
    last, seq = GENESIS, 0
    for record in chained(store.read(run_id, limit=head.seq)):
        last, seq = record.hash, record.seq
        out.write(exchange.event_line(record))
        for digest in mentioned_as_kept(record):
            referred.setdefault(digest, False)
        if (needed := reference(record)) and _is_needed(record):
            referred[needed] = True
        tick(seq)
    if (seq, last) != (head.seq, head.hash):
        raise LogDamaged(f"The head of run {run_id} says event {head.seq}, but its log ends at event {seq}.")
    count = _export_artifacts(store, referred, out)
    out.write(exchange.end_line(End(head.seq, count, head.hash.hex())))
    return Exported(run_id, head.seq, count, head.hash.hex())


def _export_artifacts(store: Store, referred: dict[str, bool], out: BinaryIO) -> int:
    count = 0
    for digest, needed in referred.items():
        try:
            data = store.get_artifact(digest)
        except NotFound:
            if needed:
                raise
            continue
        out.write(exchange.artifact_line(digest, data))
        count += 1
    return count


def reference(record: Record) -> str | None:
    """The artifact that a stored event refers to."""
    if b'"artifact"' not in record.body:
        return None
    try:
        return exchange.reference(_decode_object(record.body))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise BadRecord(place(record), str(problem).rstrip(".")) from None


def _is_needed(record: Record) -> bool:
    """What an extension names may be something else than an artifact, so it need not be there."""
    return not record.kind.startswith(EXTENSION_PREFIX)


def export_file(store: Store, run_id: str, path: str, force: bool = False, tick: Tick = no_tick) -> Exported:
    """Export into a file that appears whole or not at all, readable by its owner alone."""
    with whole_file(path, force) as file:
        return export_run(store, run_id, file, tick)


# --- import


@contextmanager
def open_source(path: str) -> Iterator[BinaryIO]:
    """A regular file to import. Anything that could block, or cannot be read twice, is refused."""
    with _read_errors(path):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise BadFile(path, None, "it is not a regular file", advice="Pass - and pipe the content in instead.")
            with open(fd, "rb", closefd=False) as file:
                yield file
        finally:
            os.close(fd)


@contextmanager
def open_stream(stream: BinaryIO) -> Iterator[BinaryIO]:
    """Standard input, kept in a nameless file because an import reads its source more than once."""
    with tempfile.TemporaryFile() as file:
        with file_errors(tempfile.gettempdir()):
            shutil.copyfileobj(stream, file)
            file.flush()
        yield file


@contextmanager
def _read_errors(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        missing = NotFound("file", path)
        missing.advice = "Name the file that `holdfast export` wrote."
        raise missing from None
    except OSError as error:
        raise BadFile(path, None, f"it cannot be read ({error.strerror or error})") from error


class Survey(NamedTuple):
    """What a whole, proven file holds, and how much of it a store has already."""

    header: Header
    stored: int
    more_stored: bool
    head: bytes
    artifacts_at: int
    missing: frozenset[str]
    stamp: tuple[int, int]

    @property
    def imported(self) -> Imported:
        run_id, events, _ = self.header
        return Imported(run_id, self._outcome(), events, events - self.stored, len(self.missing))

    @property
    def complete(self) -> bool:
        """The store lacks nothing of it."""
        return self.stored == self.header.events and not self.missing

    def _outcome(self) -> str:
        if self.more_stored:
            return "older"
        if self.stored == 0:
            return "new"
        return "identical" if self.stored == self.header.events else "extended"


def import_run(
    store: Store,
    file: BinaryIO,
    path: str,
    world: World,
    found: Survey | None = None,
    ttl: float = TTL,
    tick: Tick = no_tick,
) -> Imported:
    """Bring a run into the store. Raises, with the line, before anything is written; then appends what is missing."""
    found = survey(store, file, path) if found is None else found
    if not found.complete:
        if _stamp(file) != found.stamp:
            raise BadFile(path, None, "the file changed while it was read")
        _write(store, file, path, found, world, ttl, tick)
    return found.imported


def _stamp(file: BinaryIO) -> tuple[int, int]:
    found = os.fstat(file.fileno())
    return found.st_size, found.st_mtime_ns


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Lines no longer than their kind may be: the reader sees one byte too many and refuses."""
    while line := file.readline(MAX_LINE + 2):
        if len(line) > MAX_LINE + 1 and line.startswith(ARTIFACT_START):
            line += file.readline(MAX_ARTIFACT_LINE + 2 - len(line))
        yield line


def survey(store: Store | None, file: BinaryIO, path: str, tick: Tick = no_tick) -> Survey:
    """Prove the whole file and compare it with what the store has, if there is one. Writes nothing."""
    stamp = _stamp(file)
    file.seek(0)
    reader, artifacts_at, missing = Reader(path), 0, set()
    stored: Iterator[Record] = iter(())
    same, head, op = 0, GENESIS, ""
    for line in _lines(file):
        item = reader.take(line)
        match item:
            case Header():
                stored = chained(store.read(item.run_id)) if store is not None else stored
            case Record():
                mine = next(stored, None)
                _compare(mine, item, reader, op)
                tick(item.seq)
                if mine is not None:
                    same, head, op = mine.seq, mine.hash, mine.op
            case Artifact():
                artifacts_at = artifacts_at or file.tell() - len(line)
                if _lacks(store, item.digest):
                    missing.add(item.digest)
    reader.finish()
    assert reader.header is not None
    more = next(stored, None) is not None
    return Survey(reader.header, same, more, head, artifacts_at, frozenset(missing), stamp)


def _compare(mine: Record | None, theirs: Record, reader: Reader, last_op: str) -> None:
    if mine is None and theirs.op == last_op:
        raise exchange.placed(OperationReused(last_op), reader.path, reader.line)
    if mine is not None and mine != theirs:
        problem = f"event {theirs.seq} is not event {mine.seq} of run {mine.run_id} in this store; the two logs differ from here"
        advice = f"Nothing was written. `holdfast log {mine.run_id}` shows what is here."
        raise BadFile(reader.path, reader.line, problem, advice=advice)


def _lacks(store: Store | None, digest: str) -> bool:
    if store is None:
        return True
    try:
        store.get_artifact(digest)
    except NotFound:
        return True
    return False


def _write(store: Store, file: BinaryIO, path: str, found: Survey, world: World, ttl: float, tick: Tick) -> None:
    """Artifacts first, so that no event ever refers to bytes that are not there."""
    if found.stored == found.header.events:
        _write_artifacts(store, file, found, lambda: None)
        return
    lease = store.take(found.header.run_id, world.owner, ttl)
    try:
        _check_head(store, found)
        _write_artifacts(store, file, found, lambda: store.renew(lease))
        _write_events(store, lease, file, path, found.stored, tick)
    finally:
        store.release(lease)


def _check_head(store: Store, found: Survey) -> None:
    head = store.head(found.header.run_id)
    there = (head.seq, head.hash) if head is not None else (0, GENESIS)
    if there != (found.stored, found.head):
        raise SequenceConflict(found.header.run_id, found.stored, there[0])


def _write_artifacts(store: Store, file: BinaryIO, found: Survey, renew: Callable[[], None]) -> None:
    if not found.missing:
        return
    file.seek(found.artifacts_at)
    for line in _lines(file):
        if not line.startswith(ARTIFACT_START):
            return
        artifact = exchange.read_artifact(line)
        if artifact.digest in found.missing:
            store.put_artifact(artifact.data)
            renew()


def _write_events(store: Store, lease: Lease, file: BinaryIO, path: str, stored: int, tick: Tick) -> None:
    """All that is missing in one append: a killed import leaves nothing that could be taken for the whole."""
    file.seek(0)
    reader = Reader(path)
    batch: list[Record] = []
    for line in _lines(file):
        item = reader.take(line)
        if isinstance(item, Record):
            batch += [item] if item.seq > stored else []
        elif not isinstance(item, Header):
            break
    if batch:
        store.append(lease, batch, projection(reader.state))
        tick(batch[-1].seq)


# --- verify


def check_artifacts(store: Store, run_id: str) -> tuple[Finding, ...]:
    """Are the bytes that the events of a run refer to there, with their hash? Writes nothing."""
    head = store.head(run_id)
    mission_id = head.projection.mission_id if head is not None else ""
    places: dict[str, tuple[int, bool]] = {}
    for record in store.read(run_id):
        for digest, is_sure in _wanted(record, mission_id):
            if digest not in places or (is_sure and not places[digest][1]):
                places[digest] = record.seq, is_sure
    return tuple(found for digest, place in places.items() for found in _damage(store, run_id, *place, digest))


def _wanted(record: Record, mission_id: str) -> Iterator[tuple[str, bool]]:
    """The artifacts that an event names, and whether they surely were kept here."""
    try:
        digest = reference(record) if _is_needed(record) else None
    except BadRecord:
        return  # the walk along the chain names it
    if digest is not None:
        yield digest, True
    yield from named(record, mission_id)


def _damage(store: Store, run_id: str, seq: int, is_sure: bool, digest: str) -> list[Finding]:
    try:
        store.get_artifact(digest)
    except NotFound:
        if is_sure:
            return [Finding(run_id, seq, f"Artifact {digest} is missing.", LogDamaged.reason)]
        told = f"It names artifact {digest}, which is not here; whether it ever was, nobody can tell."
        return [Finding(run_id, seq, told, UNKNOWN_ARTIFACT)]
    except HoldfastError as error:
        return [Finding(run_id, seq, str(error), error.reason)]
    return []

"""The embedded store: one SQLite file, one writer at a time, durable before acknowledged. Reads never write.

Threads of one process share commits: whoever gets the turn commits everything that waits. The lease epoch, the expected
sequence and the previous hash are checked by the statement that moves the head, so a fenced writer cannot append.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from _queue import Empty, SimpleQueue
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import apsw

from holdfast.core.errors import (
    HoldfastError,
    LeaseHeld,
    LeaseLost,
    NotFound,
    OperationReused,
    SequenceConflict,
    StoreBroken,
    StoreBusy,
    StoreClosed,
    StoreReadOnly,
    StoreReplaced,
    StoreUnreadable,
    TailLost,
)
from holdfast.core.ids import check_digest, check_id
from holdfast.ports import Append, Head, Lease, Owner, Projection, Record
from holdfast.stores import blobs, sqlite_file
from holdfast.stores.locks import LifeLocks
from holdfast.stores.sqlite_file import SQL, translate
from holdfast.stores.witness import GROUPS, Witness, sightings

_SHIFT = 32
_PAGE = 512
_LOOK_EVERY = 50_000_000  # ns between looks at whether the file is still the one we opened
_POLL = 0.05  # s between looks of a waiting thread, should the one that was to wake it be gone
_SYNC_EVERY = 1_000_000_000  # ns that the witness on disk may lag behind
_LAST = "\uffff"
_SEQ = 0xFFFFFFFF
_COLUMNS = 11
_MARKS = "(" + ", ".join("?" * _COLUMNS) + ")"
_APPEND, _APPEND_MORE = SQL["append"], SQL["append_more"]


class _Holding:
    """What this store remembers of a lease it was given: enough to leave the run's row alone at most appends."""

    __slots__ = ("base", "last", "number", "op", "shown", "until")

    def __init__(self, number: int, last: int, until: int) -> None:
        self.number = number
        self.base = number << _SHIFT
        self.last = last
        self.op = ""
        self.until = until
        self.shown: tuple[object, ...] = ()


class _Request:
    """One append on its way: what it wants, and what became of it."""

    done = False
    place = 0
    until = 0
    woken: SimpleQueue[None] | None = None
    error: Exception | None = None

    def __init__(self, lease: Lease, records: Sequence[Record], projection: Projection) -> None:
        self.lease = lease
        self.records = records
        self.projection = projection


class SqliteStore:
    """A store in one file. `witness="strict"` waits for the witness too; `read_only` never changes a byte."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        boot_id: str = "",
        witness: str = "lagging",
        read_only: bool = False,
        patience: float = 30.0,
        now: str = "1970-01-01T00:00:00.000000Z",
    ) -> None:
        self.path = sqlite_file.plain_path(path)
        self.read_only = read_only
        self.witness_state = "lagging"
        self._strict = witness == "strict"
        self._boot_id = boot_id
        self._patience = patience
        self._turn = threading.RLock()
        self._queue: deque[_Request] = deque()
        self._readers: list[apsw.Connection] = []
        self._holdings: dict[str, _Holding] = {}
        self._locks = LifeLocks(self.path + "-lock")
        self._witness = Witness(self.path + "-witness")
        self._writer: apsw.Connection | None = None
        self._copy: str | None = None
        self._closed = self._broken = self._ready = self._forked = False
        self._looked = self._synced = 0
        self._identity: tuple[int, int] = (0, 0)
        self.store_id = ""
        _STORES.add(self)
        with self._door():
            self._open_reading() if read_only else self._open_writing(now)

    # --- opening and closing

    def _open_writing(self, now: str) -> None:
        folder = os.path.dirname(self.path)
        sqlite_file.prepare_folder(folder)
        if os.path.exists(self.path):
            sqlite_file.look_first(self.path, self._patience)
        else:
            sqlite_file.create(self.path, os.urandom(16).hex(), now)
        known = os.path.exists(self.path + "-wal")
        self._connect()
        told = self._witness.open()
        if not (known and told):
            # SQLite goes on when this fails, and then a power cut can take the whole log file with it
            sqlite_file.sync_folder(folder)
        if not told:
            self.rebuild_witness()

    def _connect(self) -> None:
        writer = sqlite_file.open_for_writing(self.path, self._patience)
        try:
            self._check_witness(writer)
            stat = os.stat(self.path)
        except BaseException:
            writer.close()
            raise
        self._identity = (stat.st_dev, stat.st_ino)
        self._writer = writer

    def _open_reading(self) -> None:
        path = self.path
        if not os.path.exists(path):
            raise NotFound("store", path)
        if sqlite_file.needs_copy(path):
            self._copy, path = sqlite_file.copy_aside(self.path)
        reader = sqlite_file.open_for_reading(path, self._patience, beside_writer=self._copy is not None)
        self._readers.append(reader)
        self._check_witness(reader)

    def _check_witness(self, connection: apsw.Connection) -> None:
        """Every head the witness saw must be in the log, with its hash."""
        rows = list(connection.execute(SQL["store"]))
        if not rows:
            raise StoreUnreadable(self.path, "it does not say which store it is")
        self.store_id = str(rows[0][0])
        self._witness.serve(self.store_id)
        seen = sightings(self.path + "-witness")
        if seen is None:
            self.witness_state = "missing"
            return
        for sighting in seen:
            if sighting.store_id != self.store_id:
                raise TailLost(self.path, "its witness belongs to another store")
            row = connection.execute(SQL["event"], (sighting.place,)).fetchone()
            if row is None or row[1] != sighting.hash:
                state = "is missing" if row is None else "is another one"
                raise TailLost(self.path, f"event {sighting.place & _SEQ} of run number {sighting.place >> _SHIFT} {state}")

    def rebuild_witness(self) -> None:
        """Let the witness say what the log says now. For a new or lost witness, or by a person's decision."""
        heads = self._writing().execute(SQL["recent_heads"], (GROUPS,)).fetchall()
        self.witness_state = "made again" if heads else "lagging"
        self._witness.clear()
        for place, head in heads:
            self._witness.write(place, head)
        self._witness.sync()

    def close(self) -> None:
        if self._closed:
            return
        if not self._forked:
            self._leave()
        self._closed, self._ready = True, False

    def _leave(self) -> None:
        with self._turn:
            for reader in self._readers:
                reader.close()
            if self._writer is not None:
                self._writer.close()
                self._sync_witness()
            self._witness.close()
            self._locks.close()
            if self._copy is not None:
                sqlite_file.remove_copy(self._copy)

    def _sync_witness(self, now: int = 0) -> None:
        try:
            self._witness.sync()
            self._synced = now
        except OSError as error:
            self.witness_state = f"degraded: {error.strerror}"
            if self._strict:
                raise

    def __enter__(self) -> SqliteStore:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    # --- the one door for errors

    @contextmanager
    def _door(self) -> Iterator[None]:
        self._check_usable()
        try:
            yield
        except (apsw.Error, OSError) as error:
            raise self._named(error) from error
        except UnicodeDecodeError as error:
            raise StoreUnreadable(self.path, "it holds text that is not UTF-8, so it was damaged") from error

    def _named(self, error: Exception) -> HoldfastError:
        named = translate(error, self.path)
        if isinstance(named, StoreBroken):
            self._broken, self._ready = True, False
        return named

    def _check_usable(self) -> None:
        if self._closed:
            raise StoreClosed(self.path, "the store was closed")
        if self._forked:
            raise StoreClosed(self.path, "the store was opened by another process before a fork")

    def _in_child(self) -> None:
        self._forked, self._ready, self._turn = True, False, threading.RLock()
        self._queue.clear()

    def _writing(self) -> apsw.Connection:
        self._check_usable()
        if self.read_only:
            raise StoreReadOnly(self.path, "it was opened for reading")
        if self._broken:
            self._mend()
        if self._writer is None:
            self._connect()
        assert self._writer is not None
        _roll_back(self._writer)
        self._ready = True
        return self._writer

    def _mend(self) -> None:
        """After a failed write or sync nothing in memory is trusted: reopen, write every page anew, look again."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._connect()
        assert self._writer is not None
        busy = self._writer.execute("pragma wal_checkpoint(truncate)").fetchone()
        if busy is not None and busy[0]:
            raise apsw.BusyError("the log could not be written anew while others read it")
        self._broken = False

    @contextmanager
    def _transaction(self) -> Iterator[apsw.Connection]:
        with self._door(), self._turn:
            writer = self._writing()
            self._check_identity()
            with _immediate(writer):
                yield writer

    def _check_identity(self) -> None:
        try:
            stat = os.stat(self.path)
        except FileNotFoundError:
            raise StoreReplaced(self.path, "the file was deleted while in use") from None
        if (stat.st_dev, stat.st_ino) != self._identity:
            raise StoreReplaced(self.path, "another file was put in its place while in use")

    # --- leases

    def take(self, run_id: str, owner: Owner, ttl: float) -> Lease:
        check_id(run_id, "The run id")
        with self._transaction() as writer:
            row = writer.execute(SQL["lease_row"], (run_id,)).fetchone()
            if row is None:
                writer.execute(SQL["new_run"], (run_id,))
                row = writer.execute(SQL["lease_row"], (run_id,)).fetchone()
            number, epoch = int(row[0]), int(row[1]) + 1
            if row[4] is not None and self._alive(number, row[1], row[3], row[6]):
                raise LeaseHeld(run_id, Owner(*row[2:6]))
            self._locks.hold(number, epoch)
            last = row[7] or number << _SHIFT
            if last & _SEQ < row[8]:
                raise TailLost(self.path, f"run {run_id} was at event {row[8]} and now ends at {last & _SEQ}")
            until = time.monotonic_ns() + int(ttl * 1e9)
            writer.execute(SQL["lease"], (epoch, *owner, until, number))
        lease = Lease(run_id, epoch, ttl)
        self._holdings[run_id] = _Holding(number, last, until)
        return lease

    def renew(self, lease: Lease) -> None:
        holding = self._holding(lease)
        with self._transaction() as writer:
            holding.until = time.monotonic_ns() + int(lease.ttl * 1e9)
            writer.execute(SQL["renew"], (holding.until, holding.number, lease.epoch))
            if writer.changes() == 0:
                raise LeaseLost(lease.run_id, lease.epoch)

    def release(self, lease: Lease) -> None:
        holding = self._holdings.get(lease.run_id)
        if holding is None:
            return
        with self._transaction() as writer:
            writer.execute(SQL["keep_head"], (holding.number, lease.epoch))
            writer.execute(SQL["release"], (holding.number, lease.epoch))
        self._locks.drop(holding.number, lease.epoch)

    def _holding(self, lease: Lease) -> _Holding:
        holding = self._holdings.get(lease.run_id)
        if holding is None:
            raise LeaseLost(lease.run_id, lease.epoch)
        return holding

    def _alive(self, number: int, epoch: int, boot: str | None, until: int) -> bool:
        """By the machine's uptime, never its calendar; a reboot ends every lease, a death ends its own at once."""
        return boot == self._boot_id and until > time.monotonic_ns() and self._locks.held(number, epoch)

    # --- appending

    def append(self, lease: Lease, records: Sequence[Record], projection: Projection) -> None:
        request = _Request(lease, records, projection)
        if not self._lead(request, [request]):
            self._wait(request)
        if request.error is not None:
            raise request.error

    def append_all(self, appends: Sequence[Append]) -> list[Exception | None]:
        requests = [_Request(*append) for append in appends]
        self._queue.extend(requests)
        try:
            for request in requests:
                if not request.done and not self._lead(request, []):
                    self._wait(request)
        finally:
            for request in requests:
                self._forget(request)
        return [request.error for request in requests]

    def _wait(self, request: _Request) -> None:
        """Another thread is committing: it takes ours along, or wakes us to lead the next group."""
        request.woken = SimpleQueue()
        if request not in self._queue:
            self._queue.append(request)
        end = time.monotonic() + self._patience
        try:
            while not request.done and not self._lead(request, []):
                if time.monotonic() > end:
                    raise StoreBusy(self.path, "another thread of this process kept the turn to write")
                _doze(request.woken)
        finally:
            self._forget(request)

    def _forget(self, request: _Request) -> None:
        """A caller that gave up must not be written later, behind its back."""
        if not request.done:
            with suppress(ValueError):
                self._queue.remove(request)

    def _lead(self, own: _Request, group: list[_Request]) -> bool:
        """Commit everything that waits, our own request among it; False if another thread has the turn."""
        if not self._turn.acquire(blocking=False):
            return False
        try:
            if not own.done:
                while self._queue:
                    group.append(self._queue.popleft())
                self._commit(group)
        except BaseException as error:
            self._ready = False
            self._part(group, own, error)
        finally:
            self._turn.release()
        if len(group) > 1 or self._queue:
            self._wake(group)
        return True

    def _wake(self, group: list[_Request]) -> None:
        """Tell the others of the group, and whoever waits first, who leads the next one."""
        for request in (*group, *list(self._queue)[:1]):
            if request.woken is not None:
                request.woken.put(None)

    def _part(self, group: list[_Request], own: _Request, error: BaseException) -> None:
        """An error is shared out; an interruption is ours alone: the others go again, their operation ids keep it once."""
        if isinstance(error, Exception):
            self._divide(group, error)
            if own.done:
                return
        waiting = [request for request in (*group, *self._queue) if not request.done and request is not own]
        self._queue.clear()
        self._queue.extend(waiting)
        raise error

    def _divide(self, group: list[_Request], error: Exception) -> None:
        """One request must not spoil the others: each goes alone, unless the disk itself has failed."""
        shared = isinstance(error, (apsw.IOError, apsw.FullError, OSError, HoldfastError))
        if len(group) == 1 or shared:
            named = self._named(error) if isinstance(error, (apsw.Error, OSError)) else error
            for request in group:
                request.error, request.done = named, True
            return
        for request in group:
            try:
                self._commit([request])
            except Exception as problem:
                self._ready = False
                self._divide([request], problem)

    def _commit(self, group: list[_Request]) -> None:
        writer = self._writer if self._ready and self._writer is not None else self._writing()
        now = time.monotonic_ns()
        if now - self._looked > _LOOK_EVERY:
            self._check_identity()
            self._looked = now
        if not self._write_at_once(writer, group, now):
            self._write_together(writer, group, now)
        for request in group:
            if request.place:
                self._remember(request)
            request.done = True
        if self._strict or now - self._synced > _SYNC_EVERY:
            self._sync_witness(now)

    def _write_at_once(self, writer: apsw.Connection, group: list[_Request], now: int) -> bool:
        """The usual append, one event that changes nothing else of its run: one statement, its own transaction.

        False if there is more to write, or something did not go in: then nothing of that has happened yet.
        """
        values: list[Any] = []
        for request in group:
            lease, records, shown = request.lease, request.records, request.projection
            holding = self._holdings.get(lease.run_id)
            soon = now + int(lease.ttl * 0.75e9)
            if len(records) > 1 or holding is None or holding.shown != shown[:4] or holding.until < soon:
                return False
            _, seq, kind, version, at, body, digest, op = records[0]
            place = holding.last + 1
            if place != holding.base | seq or op == holding.op or place in values:
                return False
            values += (place, kind, version, at, bytes.fromhex(op), digest, *shown[4:], body.decode(), lease.epoch)
        if len(group) == 1:
            writer.execute(_APPEND, values)
            if writer.changes():
                group[0].place = values[0]
            return group[0].place != 0
        written = writer.execute(_append_group(len(group)), values).fetchall()
        for request, place in zip(group, values[::_COLUMNS], strict=True):
            request.place = place if (place,) in written else 0
        return len(written) == len(group)

    def _write_together(self, writer: apsw.Connection, group: list[_Request], now: int) -> None:
        try:
            writer.execute("begin immediate")
            for request in group:
                if not request.place:
                    request.error = self._write(writer, request, now)
            writer.execute("commit")
        except BaseException:
            _roll_back(writer)
            raise

    def _write(self, writer: apsw.Connection, request: _Request, now: int) -> Exception | None:
        """Insert the events behind the last one; a refusal has changed nothing."""
        lease, records, shown = request.lease, request.records, request.projection
        holding = self._holdings.get(lease.run_id)
        if holding is None:
            return LeaseLost(lease.run_id, lease.epoch)
        first, counts = records[0], shown[4:]
        place = holding.base | first.seq
        if place != holding.last + 1:
            # an earlier append may have got in though its answer was lost
            holding.last = writer.execute(SQL["last"], (holding.number,)).fetchone()[0] or holding.base
        if place != holding.last + 1 or first.op == holding.op:
            return self._why_not(writer, request, place)
        writer.execute(_APPEND, (*_row(place, first, counts), lease.epoch))
        if writer.changes() == 0:
            return self._why_not(writer, request, place)
        for record in records[1:]:
            place = holding.base | record.seq
            writer.execute(_APPEND_MORE, _row(place, record, counts))
        if holding.shown != shown[:4]:
            writer.execute(SQL["show"], (*shown[:4], first.at, holding.number))
            writer.execute(SQL["keep_head"], (holding.number, lease.epoch))
        length = int(lease.ttl * 1e9)
        if now + length - holding.until > length >> 2:
            request.until = now + length
            writer.execute(SQL["renew"], (request.until, holding.number, lease.epoch))
        request.place = place
        return None

    def _why_not(self, writer: apsw.Connection, request: _Request, place: int) -> Exception | None:
        """Nothing went in: this very append is already there, or somebody else was."""
        lease, first = request.lease, request.records[0]
        op = bytes.fromhex(first.op)
        there = writer.execute(SQL["event"], (place,)).fetchone()
        if there == (op, first.hash):
            return None
        epoch, held, last = writer.execute(SQL["standing"], (place >> _SHIFT,)).fetchone()
        if epoch != lease.epoch or not held:
            return LeaseLost(lease.run_id, lease.epoch)
        before = writer.execute(SQL["event"], (place - 1,)).fetchone()
        if before is not None and before[0] == op or there is not None and there[0] == op:
            return OperationReused(first.op)
        return SequenceConflict(lease.run_id, first.seq - 1, last & _SEQ if last else 0)

    def _remember(self, request: _Request) -> None:
        """Know where the run ends now, and tell the witness."""
        holding, last = self._holdings[request.lease.run_id], request.records[-1]
        holding.last, holding.op, holding.shown = request.place, last.op, request.projection[:4]
        if request.until:
            holding.until = request.until
        self._witness.write(request.place, last.hash)

    # --- reading

    @contextmanager
    def _reading(self) -> Iterator[apsw.Connection]:
        with self._door():
            reader = self._readers.pop() if self._readers else self._new_reader()
            try:
                yield reader
            finally:
                self._readers.append(reader)

    def _new_reader(self) -> apsw.Connection:
        path = self.path if self._copy is None else os.path.join(self._copy, "copy.db")
        return sqlite_file.open_for_reading(path, self._patience, beside_writer=self._copy is not None or not self.read_only)

    def head(self, run_id: str) -> Head | None:
        with self._reading() as reader:
            row = reader.execute(SQL["run"], (run_id,)).fetchone()
            return None if row is None else self._head(row)

    def heads(self, limit: int | None = None, after: str | None = None, unfinished: bool = False) -> Iterator[Head]:
        last, left = after or _LAST, limit if limit is not None else -1
        while left:
            with self._reading() as reader:
                size = _PAGE if left < 0 else min(left, _PAGE)
                rows = reader.execute(SQL["runs"], (last, int(unfinished), size)).fetchall()
                found = [self._head(row) for row in rows]
            yield from found
            if len(found) < size:
                return
            last, left = found[-1].run_id, left - len(found) if left > 0 else left

    def read(self, run_id: str, after: int = 0, limit: int | None = None) -> Iterator[Record]:
        left = limit if limit is not None else -1
        while left:
            size = _PAGE if left < 0 else min(left, _PAGE)
            with self._reading() as reader:
                row = reader.execute(SQL["run_no"], (run_id,)).fetchone()
                base = int(row[0]) << _SHIFT if row else 0
                rows = reader.execute(SQL["events"], (base | after, base | 0xFFFFFFFF, size)).fetchall() if row else []
            for row in rows:
                after = row[0] - base
                yield self._record(run_id, after, row)
            if len(rows) < size:
                return
            left = left - len(rows) if left > 0 else left

    def _record(self, run_id: str, seq: int, row: tuple[Any, ...]) -> Record:
        _, kind, version, at, op, digest, body = row
        if not _typed(row[1:], (str, int, str, bytes, bytes, str)):
            raise StoreUnreadable(self.path, f"event {seq} of run {run_id} has columns of a wrong type")
        return Record(run_id, seq, kind, version, at, body.encode(), digest, op.hex())

    def _head(self, row: tuple[Any, ...]) -> Head:
        number, run_id, place, digest = row[:4]
        epoch, host, boot, pid, started, until, kept_seq, kept_hash = row[13:]
        if not _typed((digest, *row[8:11], epoch, until, kept_seq), (bytes, int, int, int, int, int, int)):
            raise StoreUnreadable(self.path, f"the row of run {run_id} has columns of a wrong type")
        owner = None if pid is None else Owner(host, boot, pid, started)
        held = owner is not None and self._alive(number, epoch, boot, until)
        seq = place & _SEQ
        if kept_seq > seq:
            seq, digest = kept_seq, kept_hash  # what the run once was: verify will not find it in the log
        return Head(run_id, seq, digest, Projection(*row[4:11]), row[11], row[12], epoch, owner, held)

    # --- artifacts and snapshots

    def put_artifact(self, data: bytes) -> str:
        digest = blobs.digest_of(data)
        with self._door():
            encoding, packed = blobs.pack(data)
        with self._transaction() as writer:
            writer.execute(SQL["put_artifact"], (bytes.fromhex(digest), len(data), encoding, packed))
        return digest

    def get_artifact(self, digest: str) -> bytes:
        with self._reading() as reader:
            row = reader.execute(SQL["get_artifact"], (bytes.fromhex(check_digest(digest)),)).fetchone()
        if row is None:
            raise NotFound("artifact", digest)
        return blobs.unpack(digest, *row)

    def save_snapshot(self, run_id: str, seq: int, data: bytes) -> None:
        with self._transaction() as writer:
            row = writer.execute(SQL["run_no"], (run_id,)).fetchone()
            if row is None:
                raise NotFound("run", run_id)
            writer.execute(SQL["save_snapshot"], (row[0], seq, data))

    def load_snapshot(self, run_id: str) -> tuple[int, bytes] | None:
        with self._reading() as reader:
            row = reader.execute(SQL["run_no"], (run_id,)).fetchone()
            found = reader.execute(SQL["load_snapshot"], row).fetchone() if row else None
        return None if found is None else (found[0], found[1])

    def facts(self) -> dict[str, object]:
        with self._reading() as reader:
            runs, events, artifacts = reader.execute(SQL["counts"]).fetchone()
        return {
            "engine": "sqlite",
            "engine_version": apsw.sqlite_lib_version(),
            "place": self.path,
            "schema_version": sqlite_file.SCHEMA_VERSION,
            "store_id": self.store_id,
            "runs": runs,
            "events": events,
            "artifacts": artifacts,
            "bytes": sum(_size(self.path + end) for end in ("", "-wal")),
            "witness": self.witness_state,
        }


_STORES: weakref.WeakSet[SqliteStore] = weakref.WeakSet()


def _after_fork() -> None:
    for store in list(_STORES):
        store._in_child()


os.register_at_fork(after_in_child=_after_fork)


def _doze(woken: SimpleQueue[None]) -> None:
    with suppress(Empty):
        woken.get(timeout=_POLL)


@cache
def _append_group(size: int) -> str:
    return SQL["append_group"].replace("{rows}", ", ".join([_MARKS] * size))


def _row(place: int, record: Record, counts: tuple[object, ...]) -> tuple[Any, ...]:
    _, _, kind, version, at, body, digest, op = record
    return (place, kind, version, at, bytes.fromhex(op), digest, *counts, body.decode())


def _typed(values: Sequence[object], types: Sequence[type]) -> bool:
    return all(type(value) is wanted for value, wanted in zip(values, types, strict=True))


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        return 0


@contextmanager
def _immediate(writer: apsw.Connection) -> Iterator[None]:
    try:
        writer.execute("begin immediate")
        yield
        writer.execute("commit")
    except BaseException:
        _roll_back(writer)
        raise


def _roll_back(writer: apsw.Connection) -> None:
    if writer.in_transaction:
        writer.execute("rollback")

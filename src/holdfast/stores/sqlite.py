"""The embedded store: one SQLite file, one writer at a time, durable before acknowledged. Reads never write."""

from __future__ import annotations

import os
import time
from _weakrefset import WeakSet  # what weakref hands on, without the rest of it: a hook pays for every module
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any, Self, TypeVar

import apsw

from holdfast.core.errors import LeaseHeld, LeaseLost, NotFound, StoreBusy, StoreUnreadable, TailLost
from holdfast.core.ids import check_digest, check_id, is_id
from holdfast.core.values import Head, Lease, Message, Owner, Projection, Record
from holdfast.stores import blobs, sqlite_copy, sqlite_file
from holdfast.stores import sqlite_looks as looks
from holdfast.stores.grouping import UNLISTED, check_message
from holdfast.stores.locks import LifeLocks
from holdfast.stores.sqlite_commit import Committer, Holding
from holdfast.stores.sqlite_file import Outdated, Reader
from holdfast.stores.sqlite_sql import Lender
from holdfast.stores.sqlite_tables import SQL, TABLES
from holdfast.stores.sqlite_writer import SEQ, SHIFT, Writer, check_gone, check_witness, every, on_each, one

_PAGE, _EVENTS = 512, 128  # runs and events at once: an event is used while the processor still has it at hand
_LOOKS, _MOMENT = 20, 0.002  # seconds, more with each look
_LAST = "\uffff"
_MOST = (1 << 63) - 1
Found = TypeVar("Found")
_tuple = tuple.__new__  # what a NamedTuple does in the end, without its frame


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
        self._boot_id = boot_id
        self._patience = patience
        self._readers: list[Reader] = []
        self._copy: str | None = None
        self._locks = LifeLocks(self.path + "-lock")
        self._writer = Writer(self.path, patience, witness == "strict", read_only)
        self._committer = Committer(self._writer)
        self.append = self._committer.append
        self.append_all = self._committer.append_all
        self.transact = Lender(self._committer).transact
        self._closed = False
        _STORES.add(self)
        try:
            with self._writer.door():
                self._open_reading() if read_only else self._writer.open(now)
        except BaseException:
            self._leave()
            self._writer.abandon()
            raise

    # --- opening and closing

    def _open_reading(self) -> None:
        path = self.path
        if not os.path.exists(path):
            check_gone(path)
            raise NotFound("store", path)
        try:
            self._meet()
        except TailLost:
            # a writer may have begun since: then the witness is ahead of a view that does not move
            self._leave()
            self._copy = None
            self._meet()

    def _meet(self) -> None:
        self._writer.store_id, self._writer.witness_state = self._ask(
            lambda reader: check_witness(reader.connection, reader.tables, self.path)
        )

    def shortened(self) -> list[tuple[str, int, int]]:
        """Runs that once stood further than their log goes: run, events it had, events it has."""
        return [(run_id, had, has) for _, run_id, had, has in self._of_all("shortened")]

    def strays(self) -> list[tuple[str, int, str]]:
        numbers = self._of_all("strays")
        short = self.shortened()
        gone = [(run_id, 0, f"it was at event {had}, and has no events now") for run_id, had, has in short if not has]
        return [(f"number {number}", last, UNLISTED) for number, last in numbers] + gone

    def _of_all(self, query: str) -> list[Any]:
        """What a query finds in all tables of events, in the order of the numbers of the runs."""
        return sorted(self._ask(lambda reader: on_each(reader.connection, reader.tables, query)))

    def accept_loss(self, run_id: str, seq: int, projection: Projection) -> None:
        """A person's decision: a run that was cut off is as long as its log now."""
        with self._writer.transaction() as writer:
            writer.execute(SQL["accept_loss"], (seq, run_id))
            writer.execute(SQL["drop_snapshot"], (seq, run_id))
            writer.execute(SQL["show"], (*projection[:4], None, one(writer, "run_no", (run_id,))[0]))

    def close(self) -> None:
        """Leases held through this store end with it: their locked bytes are let go."""
        if self._closed:
            return
        with self._writer.turn:
            self._writer.check_not_lent()
        self._closed = True
        with ExitStack() as closing:
            closing.callback(self._leave)
            closing.callback(self._locks.close)
            closing.callback(self._writer.close)

    def _leave(self) -> None:
        while self._readers:
            self._readers.pop().connection.close()
        if self._copy is not None:
            sqlite_copy.remove_copy(self._copy)

    def in_child(self) -> None:
        """After a fork: the child must not touch what belongs to its parent."""
        self._closed = True
        self._locks.close()
        self._writer.in_child()
        self._committer.in_child()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    # --- leases

    def take(self, run_id: str, owner: Owner, ttl: float) -> Lease:
        check_id(run_id, "The run id")
        held: list[tuple[int, int]] = []
        try:
            with self._writer.transaction() as writer:
                number, epoch, last = self._next_epoch(writer, run_id)
                self._hold(run_id, number, epoch)
                held.append((number, epoch))
                until = time.monotonic_ns() + int(ttl * 1e9)
                writer.execute(SQL["lease"], (epoch, *owner, until, number))
        except BaseException:
            for taken in held:
                self._locks.drop(*taken)
            raise
        self._committer.holdings[run_id] = Holding(number, last, until, ttl)
        return Lease(run_id, epoch, ttl)

    def _next_epoch(self, writer: apsw.Connection, run_id: str) -> tuple[int, int, int]:
        """Number, next epoch and last place of a run that nobody holds; a new run is entered. Raises LeaseHeld, TailLost."""
        row = one(writer, "lease_row", (run_id,))
        if row is None:
            highest = max(number for (number,) in on_each(writer, TABLES, "highest"))
            writer.execute(SQL["new_run"], (highest, run_id))
            row = one(writer, "lease_row", (run_id,))
        number, epoch, host, boot, pid, started, until, kept = row
        if pid is not None and self._alive(number, epoch, boot, until):
            raise LeaseHeld(run_id, Owner(host, boot, pid, started))
        last = one(writer, "last", (number,), number)[0] or number << SHIFT
        if last & SEQ < kept:
            raise TailLost(self.path, f"run {run_id} was at event {kept} and now ends at {last & SEQ}")
        return number, epoch + 1, last

    def _hold(self, run_id: str, number: int, epoch: int) -> None:
        try:
            self._locks.hold(number, epoch)
        except BlockingIOError:
            raise LeaseHeld(run_id, "a process that is taking it just now") from None

    def renew(self, lease: Lease) -> None:
        """Also sync what the witness saw last: whoever waits long between two events renews meanwhile."""
        holding, now = self._holding(lease), time.monotonic_ns()
        until = now + int(lease.ttl * 1e9)
        with self._writer.door(), self._writer.turn:
            with self._writer.transaction() as writer:
                writer.execute(SQL["renew"], (until, holding.number, lease.epoch))
                if writer.changes() == 0:
                    raise LeaseLost(lease.run_id, lease.epoch)
            self._writer.sync_witness(now)
        holding.extend(until, lease.ttl)

    def release(self, lease: Lease) -> None:
        holding = self._committer.holdings.get(lease.run_id)
        if holding is None:
            return
        with self._writer.transaction() as writer:
            writer.execute(TABLES.of_run(holding.number, "keep_head"), (holding.number, lease.epoch))
            writer.execute(SQL["release"], (holding.number, lease.epoch))
        self._locks.drop(holding.number, lease.epoch)

    def _holding(self, lease: Lease) -> Holding:
        holding = self._committer.holdings.get(lease.run_id)
        if holding is None:
            raise LeaseLost(lease.run_id, lease.epoch)
        return holding

    def _alive(self, number: int, epoch: int, boot: str | None, until: int) -> bool:
        """By the machine's uptime, never its calendar; a reboot ends every lease, a death ends its own at once."""
        if boot != self._boot_id or until <= time.monotonic_ns():
            return False
        with self._writer.door():
            return self._locks.held(number, epoch)

    # --- reading

    def _ask(self, look: Callable[[Reader], Found]) -> Found:
        """What a look finds. If the store was at rest and was written meanwhile, it is opened anew and looked at again."""
        for number in range(_LOOKS):
            with suppress(Outdated), self._reading(number + 1 == _LOOKS) as reader:
                return look(reader)
            time.sleep(number * _MOMENT)
        raise StoreBusy(self.path, "it was written again and again while it was read")

    @contextmanager
    def _reading(self, is_last: bool = False) -> Iterator[Reader]:
        with self._writer.door():
            try:
                reader = self._readers.pop()
            except IndexError:
                reader = self._new_reader(is_last)
            try:
                yield reader
            except BaseException as error:
                if self._is_kept(reader) or not isinstance(error, Exception):
                    raise
                raise Outdated from error
            if not self._is_kept(reader):
                raise Outdated

    def _is_kept(self, reader: Reader) -> bool:
        """Whether it can be used again; else it is closed."""
        if reader.is_outdated():
            reader.connection.close()
            return False
        self._readers.append(reader)
        return True

    def _new_reader(self, is_last: bool) -> Reader:
        if self.read_only and self._copy is None:
            self._copy = sqlite_copy.copy_if_needed(self.path, self._patience, is_last and self._is_alone())
        path = self.path if self._copy is None else os.path.join(self._copy, "copy.db")
        return sqlite_file.open_for_reading(
            path, self._patience, beside_writer=self._copy is not None or not self.read_only
        )

    def _is_alone(self) -> bool:
        """Whether no other store of this process may have a connection open here. Others may be opened meanwhile."""
        others = [one() for one in list(_STORES.data)]  # type: ignore[attr-defined]  # at once: the set must not grow
        return not any(one._is_at(self.path) for one in others if one not in (None, self))

    def _is_at(self, path: str) -> bool:
        return self.path == path and self._copy is None and not self._closed

    def head(self, run_id: str) -> Head | None:
        found = self._ask(partial(looks.standings, "run", (run_id,)))
        return self._head(*found[0]) if found and found[0][1] else None

    def heads(self, limit: int | None = None, after: str | None = None, unfinished: bool = False) -> Iterator[Head]:
        last, left = after or _LAST, limit if limit is not None else -1
        query = "unfinished_runs" if unfinished else "runs"
        while left:
            size = _PAGE if left < 0 else min(left, _PAGE)
            found = self._ask(partial(looks.standings, query, (last, size)))
            for run, stand in found:
                last = run[1]
                if stand:
                    yield self._head(run, stand)
                    left -= left > 0
            if len(found) < size:
                return

    def read(self, run_id: str, after: int = 0, limit: int | None = None) -> Iterator[Record]:
        left = limit if limit is not None else -1
        after = max(after, 0)
        while left and after < SEQ:
            size = _EVENTS if left < 0 else min(left, _EVENTS)
            base, rows = self._ask(partial(looks.page, run_id, after, size))
            columns = looks.sound(rows, base + after)
            sound = len(columns[0]) if columns else 0
            yield from looks.records(run_id, base, columns)
            after = rows[sound - 1][0] - base if sound else after
            if sound < len(rows):
                raise StoreUnreadable(self.path, looks.problem(run_id, rows[sound], after))
            if len(rows) < size:
                return
            left = left - len(rows) if left > 0 else left

    def _head(self, run: tuple[Any, ...], stand: tuple[Any, ...]) -> Head:
        number, run_id, *shown, started_at, epoch, host, boot, pid, started, until, kept_seq, kept_hash = run
        place, digest, *counts, at = stand
        if not is_id(run_id):
            raise StoreUnreadable(self.path, "a run has an id outside the grammar, so the store was changed or damaged")
        cells = (digest, *counts, started_at, at, epoch, until, kept_seq)
        if not looks.typed(cells, (bytes, int, int, int, str, str, int, int, int)) or len(digest) != 32:
            raise StoreUnreadable(self.path, f"the row of run {run_id} has columns of a wrong type")
        owner = None if pid is None else Owner(host, boot, pid, started)
        held = owner is not None and self._alive(number, epoch, boot, until)
        seq = place & SEQ
        if kept_seq > seq:
            if not looks.typed((kept_hash,), (bytes,)):
                raise StoreUnreadable(self.path, f"the row of run {run_id} has columns of a wrong type")
            seq, digest = kept_seq, kept_hash  # what the run once was: verify will not find it in the log
        return Head(run_id, seq, digest, Projection(*shown, *counts), started_at, at, epoch, owner, held)

    # --- messages

    def post(self, run_id: str, kind: str, body: str) -> int:
        check_message(kind, body)
        if not is_id(run_id):
            raise NotFound("run", run_id)
        with self._writer.transaction() as writer:
            row = one(writer, "run_no", (run_id,))
            if row is None:
                raise NotFound("run", run_id)
            ((number,),) = every(writer, "next_message", ())
            writer.execute(SQL["post"], (number, row[0], kind, body))
        return int(number)

    def messages(self, run_id: str, after: int = 0) -> list[Message]:
        if not is_id(run_id):
            return []
        rows = self._ask(lambda reader: every(reader.connection, "messages", (run_id, min(after, _MOST))))
        if not all(looks.typed(row, (int, str, str)) for row in rows):
            raise StoreUnreadable(self.path, f"a message of run {run_id} has columns of a wrong type")
        return [Message(*row) for row in rows]

    def drop_messages(self, lease: Lease, upto: int) -> None:
        holding = self._holding(lease)
        with self._writer.transaction() as writer:
            if one(writer, "stands", (holding.number, lease.epoch)) is None:
                raise LeaseLost(lease.run_id, lease.epoch)
            writer.execute(SQL["drop_messages"], (holding.number, min(upto, _MOST)))

    # --- artifacts and snapshots

    def put_artifact(self, data: bytes) -> str:
        digest = blobs.digest_of(data)
        with self._writer.door():
            encoding, packed = blobs.pack(data)
        with self._writer.transaction() as writer:
            writer.execute(SQL["put_artifact"], (bytes.fromhex(digest), len(data), encoding, packed))
        return digest

    def get_artifact(self, digest: str) -> bytes:
        key = bytes.fromhex(check_digest(digest))
        row = self._ask(lambda reader: one(reader.connection, "get_artifact", (key,)))
        if row is None:
            raise NotFound("artifact", digest)
        return blobs.unpack(digest, *row)

    def save_snapshot(self, run_id: str, seq: int, data: bytes) -> None:
        with self._writer.transaction() as writer:
            row = one(writer, "run_no", (run_id,))
            if row is None:
                raise NotFound("run", run_id)
            writer.execute(SQL["save_snapshot"], (row[0], seq, data))

    def load_snapshot(self, run_id: str) -> tuple[int, bytes] | None:
        found = self._ask(lambda reader: one(reader.connection, "load_snapshot", (run_id,)))
        return None if found is None else (found[0], found[1])

    def facts(self) -> dict[str, object]:
        version, runs, events, artifacts = self._ask(looks.counts)
        return {
            "engine": "sqlite",
            "engine_version": apsw.sqlite_lib_version(),
            "place": self.path,
            "schema_version": version,
            "store_id": self._writer.store_id,
            "runs": runs,
            "events": events,
            "artifacts": artifacts,
            "bytes": sum(looks.size(self.path + end) for end in ("", "-wal")),
            "witness": self._writer.witness_state,
        }


_STORES: WeakSet[SqliteStore] = WeakSet()


def _after_fork() -> None:
    for store in list(_STORES):
        store.in_child()


os.register_at_fork(after_in_child=_after_fork)

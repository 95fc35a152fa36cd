"""Turns the appends of many threads into few commits: whoever has the turn commits everything that waits.

The lease epoch is checked by the statement that inserts, so a fenced writer cannot append. While an epoch stands nobody else
has appended to its run, so the place of the next event is known without asking. A refused request has changed nothing.
"""

from __future__ import annotations

import time
from _queue import Empty, SimpleQueue
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import apsw

from holdfast.core.errors import (
    HoldfastError,
    LeaseLost,
    OperationReused,
    SequenceConflict,
    StoreBusy,
)
from holdfast.ports import Append, Lease, Projection, Record
from holdfast.stores.sqlite_file import SQL
from holdfast.stores.sqlite_writer import SEQ, SHIFT, Writer, one, roll_back

_LOOK_EVERY = 50_000_000  # ns between looks at whether the file is still the one we opened
_SYNC_EVERY = 1_000_000_000  # ns that the witness on disk may lag behind
_POLL = 0.05  # s between looks of a waiting thread, should the one that was to wake it be gone
_COLUMNS = 11
_MARKS = "(" + ", ".join("?" * _COLUMNS) + ")"
_APPEND, _APPEND_MORE = SQL["append"], SQL["append_more"]


class Holding:
    """What is remembered of a lease that was given: enough to leave the run's row alone at most appends."""

    __slots__ = ("base", "last", "number", "op", "shown", "until")

    def __init__(self, number: int, last: int, until: int) -> None:
        self.number = number
        self.base = number << SHIFT
        self.last = last
        self.op = ""
        self.until = until
        self.shown: tuple[object, ...] = ()


class Request:
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


class Committer:
    """The appends of one store. The turn to write is the writer's own."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.holdings: dict[str, Holding] = {}
        self.queue: deque[Request] = deque()
        self._looked = 0

    def append(self, lease: Lease, records: Sequence[Record], projection: Projection) -> None:
        request = Request(lease, records, projection)
        if not self._lead(request, [request]):
            self._wait(request)
        if request.error is not None:
            raise request.error

    def append_all(self, appends: Sequence[Append]) -> list[Exception | None]:
        requests = [Request(*append) for append in appends]
        self.queue.extend(requests)
        try:
            for request in requests:
                if not request.done and not self._lead(request, []):
                    self._wait(request)
        finally:
            for request in requests:
                self._forget(request)
        return [request.error for request in requests]

    def _wait(self, request: Request) -> None:
        """Another thread is committing: it takes ours along, or wakes us to lead the next group."""
        request.woken = SimpleQueue()
        if request not in self.queue:
            self.queue.append(request)
        end = time.monotonic() + self.writer.patience
        try:
            while not request.done and not self._lead(request, []):
                if time.monotonic() > end:
                    raise StoreBusy(self.writer.path, "another thread of this process kept the turn to write")
                _doze(request.woken)
        finally:
            self._forget(request)

    def _forget(self, request: Request) -> None:
        """A caller that gave up must not be written later, behind its back."""
        if not request.done:
            with suppress(ValueError):
                self.queue.remove(request)

    def _lead(self, own: Request, group: list[Request]) -> bool:
        """Commit everything that waits, our own request among it; False if another thread has the turn."""
        if not self.writer.turn.acquire(blocking=False):
            return False
        try:
            if not own.done:
                while self.queue:
                    group.append(self.queue.popleft())
                self._commit(group)
        except BaseException as error:  # noqa: BLE001 - shared out, or raised again
            self.writer.ready = None
            self._part(group, own, error)
        finally:
            self.writer.turn.release()
        if len(group) > 1 or self.queue:
            self._wake(group)
        return True

    def _wake(self, group: list[Request]) -> None:
        """Tell the others of the group, and whoever waits first, who leads the next one."""
        for request in (*group, *list(self.queue)[:1]):
            if request.woken is not None:
                request.woken.put(None)

    def _part(self, group: list[Request], own: Request, error: BaseException) -> None:
        """An error is shared out; an interruption is ours alone: the others go again, their operation ids keep it once."""
        if isinstance(error, Exception):
            self._divide(group, error)
            if own.done:
                return
        waiting = [request for request in (*group, *self.queue) if not request.done and request is not own]
        self.queue.clear()
        self.queue.extend(waiting)
        raise error

    def _divide(self, group: list[Request], error: Exception) -> None:
        """One request must not spoil the others: each goes alone, unless the disk itself has failed."""
        shared = isinstance(error, (apsw.IOError, apsw.FullError, OSError, HoldfastError))
        if len(group) == 1 or shared:
            named = self.writer.named(error) if isinstance(error, (apsw.Error, OSError)) else error
            for request in group:
                request.error, request.done = named, True
            return
        for request in group:
            try:
                self._commit([request])
            except Exception as problem:  # noqa: BLE001 - it becomes the outcome of this request
                self.writer.ready = None
                self._divide([request], problem)

    def _commit(self, group: list[Request]) -> None:
        writer = self.writer.ready or self.writer.connection()
        now = time.monotonic_ns()
        if now - self._looked > _LOOK_EVERY:
            self.writer.check_identity()
            self._looked = now
        if not self._write_at_once(writer, group, now):
            self._write_together(writer, group, now)
        for request in group:
            if request.place:
                self._remember(request, self.holdings[request.lease.run_id])
            request.done = True
        if self.writer.strict or now - self.writer.synced > _SYNC_EVERY:
            self.writer.sync_witness(now)

    def _write_at_once(self, writer: apsw.Connection, group: list[Request], now: int) -> bool:
        """The usual append, one event that changes nothing else of its run: one statement, its own transaction.

        False if there is more to write, or something did not go in: then nothing of that has happened yet.
        """
        values: list[Any] = []
        for request in group:
            lease, records, shown = request.lease, request.records, request.projection
            holding = self.holdings.get(lease.run_id)
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

    def _write_together(self, writer: apsw.Connection, group: list[Request], now: int) -> None:
        try:
            writer.execute("begin immediate")
            for request in group:
                if not request.place:
                    request.error = self._write(writer, request, now)
            writer.execute("commit")
        except BaseException:
            roll_back(writer)
            raise

    def _write(self, writer: apsw.Connection, request: Request, now: int) -> Exception | None:
        """Insert the events behind the last one; a refusal has changed nothing."""
        lease, records, shown = request.lease, request.records, request.projection
        holding = self.holdings.get(lease.run_id)
        if holding is None:
            return LeaseLost(lease.run_id, lease.epoch)
        first, counts = records[0], shown[4:]
        place = holding.base | first.seq
        if place != holding.last + 1:
            # an earlier append may have got in though its answer was lost
            holding.last = one(writer, "last", (holding.number,))[0] or holding.base
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

    def _why_not(self, writer: apsw.Connection, request: Request, place: int) -> Exception | None:
        """Nothing went in: this very append is already there, or somebody else was."""
        lease, first = request.lease, request.records[0]
        op = bytes.fromhex(first.op)
        there = one(writer, "event", (place,))
        if there == (op, first.hash):
            return None
        epoch, held, last = one(writer, "standing", (place >> SHIFT,))
        if epoch != lease.epoch or not held:
            return LeaseLost(lease.run_id, lease.epoch)
        before = one(writer, "event", (place - 1,))
        if (before is not None and before[0] == op) or (there is not None and there[0] == op):
            return OperationReused(first.op)
        return SequenceConflict(lease.run_id, first.seq - 1, last & SEQ if last else 0)

    def _remember(self, request: Request, holding: Holding) -> None:
        """Know where the run ends now, and tell the witness."""
        last = request.records[-1]
        holding.last, holding.op, holding.shown = request.place, last.op, request.projection[:4]
        if request.until:
            holding.until = request.until
        self.writer.witness.write(request.place, last.hash)


def _doze(woken: SimpleQueue[None]) -> None:
    with suppress(Empty):
        woken.get(timeout=_POLL)


@cache
def _append_group(size: int) -> str:
    return SQL["append_group"].replace("{rows}", ", ".join([_MARKS] * size))


def _row(place: int, record: Record, counts: tuple[object, ...]) -> tuple[Any, ...]:
    _, _, kind, version, at, body, digest, op = record
    return (place, kind, version, at, bytes.fromhex(op), digest, *counts, body.decode())

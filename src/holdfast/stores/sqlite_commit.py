"""Turns the appends of many threads into few commits: whoever has the turn commits everything that waits.

The lease epoch is checked by the statement that inserts, so a fenced writer cannot append. While an epoch stands nobody else
has appended to its run, so the place of the next event is known without asking. A request stays in the queue until it is
done, and is done only after its commit: an interruption at any point leaves it to be asked again, and its operation id
keeps it once.
"""

from __future__ import annotations

from _thread import allocate_lock, get_ident
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from itertools import islice
from time import monotonic_ns
from typing import Any

import apsw

from holdfast.core.errors import BadRecord, HoldfastError, LeaseLost, OperationReused, SequenceConflict
from holdfast.core.values import Append, Lease, Projection, Record
from holdfast.stores.sqlite_tables import SQL, TABLES
from holdfast.stores.sqlite_writer import SEQ, SHIFT, Writer, one, roll_back

_LOOK_EVERY = 50_000_000  # ns between looks at whether the file is still the one we opened
_SYNC_EVERY = 1_000_000_000  # ns that the witness on disk may lag behind
_FRESH = 0.75e9  # ns for each second of a lease: with less than that left, it is renewed with the next append
_MOST = 64  # requests in one commit
_MOMENT = 0.02  # seconds that somebody sleeps who was not woken
_SHARED = (apsw.IOError, apsw.FullError, apsw.BusyError, apsw.LockedError, apsw.ReadOnlyError, OSError)
_MALFORMED = (ValueError, OverflowError, TypeError, IndexError)


class Holding:
    """What is remembered of a lease that was given: enough to leave the run's row alone at most appends."""

    __slots__ = ("append", "base", "fresh", "last", "number", "op", "shown", "ttl", "until")

    def __init__(self, number: int, last: int, until: int, ttl: float) -> None:
        self.number = number
        self.base = number << SHIFT
        self.append = TABLES.of_run(number, "append")
        self.last = last
        self.op = ""
        self.extend(until, ttl)
        self.shown: tuple[object, ...] = ()

    def extend(self, until: int, ttl: float) -> None:
        """The lease ends then. Until it is a quarter used up it is `fresh`: an append need not renew it."""
        self.until, self.ttl = until, ttl
        self.fresh = until - int(ttl * _FRESH)


class Request:
    """One append on its way: what it wants, and what became of it."""

    done = False
    error: Exception | None = None

    def __init__(self, append: Append) -> None:
        self.append = append
        self.lease, self.records, self.projection = append
        self._sleep = allocate_lock()
        self._sleep.acquire()

    def wait(self) -> None:
        """Until it is done or worth another look. A wake-up that is lost costs a moment, nothing else."""
        self._sleep.acquire(timeout=_MOMENT)

    def wake(self) -> None:
        with suppress(RuntimeError):  # somebody else was quicker
            self._sleep.release()


# What a request comes to if the transaction it is in commits: its last place, the new end of its lease, or why not.
Outcome = tuple[int, int, Exception | None]


class Committer:
    """The appends of one store. The turn to write is the writer's own."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.holdings: dict[str, Holding] = {}
        self.queue: deque[Request] = deque()
        self._leader = 0  # the thread that has the turn to commit, and will wake those who wait
        self._look_at = 0

    def in_child(self) -> None:
        self.queue.clear()
        self._leader = 0

    def append(self, lease: Lease, records: Sequence[Record], projection: Projection) -> None:
        """The usual append, one event that changes nothing else of its run, while nobody else writes: one statement.

        Whatever is not usual, or does not go in, goes through the queue, which finds out why. Nothing is called here that
        need not be: after each sync the processor has forgotten this code, and every function more costs a microsecond.
        """
        writer = self.writer
        if len(records) != 1 or self.queue or writer.strict or not writer.turn.acquire(False):
            return self._append_in_turn(lease, records, projection)
        try:
            self._leader = get_ident()
            connection, now = writer.ready, monotonic_ns()
            holding = self.holdings.get(lease.run_id)
            row = _usual(holding, lease, records[0], projection, now) if now <= self._look_at else None
            if connection is not None and holding is not None and row is not None:
                writer.ready = None  # until it has gone well
                writer.cursor.execute(holding.append, row)
                writer.ready = connection
                if connection.changes():
                    return self._remember([(holding, records[0], row[0])])
        except Exception as error:
            raise self._named(error, lease.run_id) from error
        finally:
            self._leader = 0
            writer.turn.release()
            if self.queue:
                self._wake_next()
        return self._append_in_turn(lease, records, projection)

    def _append_in_turn(self, lease: Lease, records: Sequence[Record], projection: Projection) -> None:
        request = Request(Append(lease, records, projection))
        self.queue.append(request)
        try:
            self._see_to(request)
        finally:
            if not request.done:
                self._forget(request)
        if request.error is not None:
            raise request.error

    def _see_to(self, last: Request) -> None:
        """Commit what waits until this one is done, and with it all before it; or sleep while somebody else does."""
        while not last.done:
            if self._leader in (0, get_ident()):
                self._lead(last)
            else:
                last.wait()

    def _lead(self, last: Request) -> None:
        with self.writer.turn:
            try:
                self._leader = get_ident()
                while not last.done:
                    self._commit_queue()
            finally:
                self._leader = 0
        self._wake_next()

    def _wake_next(self) -> None:
        """The turn is free: let the first one who waits take it, for all of them."""
        with suppress(IndexError):
            self.queue[0].wake()

    def append_all(self, appends: Sequence[Append]) -> list[Exception | None]:
        return self._append_at_once(appends) or self._append_all_in_turn(appends)

    def _append_at_once(self, appends: Sequence[Append]) -> list[Exception | None]:
        """Several usual appends while nobody else writes. Empty: the queue finds out why they did not all go in."""
        writer = self.writer
        if len(appends) > _MOST or self.queue or writer.strict or not writer.turn.acquire(False):
            return []
        try:
            connection, now = writer.ready, monotonic_ns()
            if connection is None or now > self._look_at:
                return []
            places = self._write_at_once(connection, appends, now)
            each = zip(appends, places, strict=bool(places))
            self._remember([(self.holdings[lease.run_id], record, place) for (lease, (record,), _), place in each])
            return [None] * len(places)
        except (*_SHARED, HoldfastError) as error:
            return [self._named(error, append.lease.run_id) for append in appends]
        except (apsw.Error, *_MALFORMED):
            return []  # one of them is at fault, and only that one is to hear of it
        finally:
            writer.turn.release()

    def _append_all_in_turn(self, appends: Sequence[Append]) -> list[Exception | None]:
        requests = [Request(append) for append in appends]
        self.queue.extend(requests)
        try:
            for request in requests[-1:]:
                self._see_to(request)
        finally:
            for request in requests:
                if not request.done:
                    self._forget(request)
        return [request.error for request in requests]

    def _forget(self, request: Request) -> None:
        """Done with it; or its caller gave up, and it must not be written later behind their back."""
        try:
            self.queue.remove(request)
        except ValueError:
            return  # somebody else had the turn, and has seen to it

    def _commit_queue(self) -> None:
        """Commit what waits, in its order. Each becomes done, by itself or by an error that is all of theirs."""
        self.writer.check_not_lent()
        group = list(islice(self.queue, _MOST))
        try:
            self._commit(group)
        except Exception as error:  # noqa: BLE001 - it becomes the outcome of its requests
            self._share(group, error)
        finally:
            for request in group:
                if request.done:
                    self._forget(request)
                    request.wake()

    def _share(self, group: list[Request], error: Exception) -> None:
        """One request must not spoil the others: each goes alone, unless it is the disk that failed."""
        if len(group) == 1 or isinstance(error, (*_SHARED, HoldfastError)):
            for request in group:
                if not request.done:
                    request.error, request.done = self._named(error, request.lease.run_id), True
            return
        for request in group:
            try:
                self._commit([request])
            except Exception as own:  # noqa: BLE001 - it becomes the outcome of this request
                self._share([request], own)

    def _named(self, error: Exception, run_id: str) -> Exception:
        if isinstance(error, (apsw.Error, OSError)):
            return self.writer.named(error)
        if isinstance(error, _MALFORMED):
            return BadRecord(f"An append to run {run_id:.80}", f"{type(error).__name__}: {error}")
        return error

    def _commit(self, group: list[Request]) -> None:
        """Write in one transaction; only what has been committed is remembered and reported."""
        connection = self.writer.ready or self.writer.connection()
        now = monotonic_ns()
        if now > self._look_at:
            self.writer.check_identity()
            self._look_at = now + _LOOK_EVERY
        try:
            places = self._write_at_once(connection, [request.append for request in group], now)
            at_once: list[Outcome] = [(place, 0, None) for place in places]
            outcomes = at_once or self._write_together(connection, group, now)
        except BaseException:
            self.writer.ready = None
            raise
        self._acknowledge(group, outcomes, now)

    def conclude(self, connection: apsw.Connection, append: Append) -> None:
        """End the transaction that is open with this append: commit both, or raise. A repeat is undone: it is there already."""
        request, now = Request(append), monotonic_ns()
        try:
            outcome = self._write(connection, request, now)
            connection.execute("commit" if outcome[0] else "rollback")
            self._acknowledge([request], [outcome], now)
        except (apsw.Error, OSError, *_MALFORMED) as error:
            raise self._named(error, append.lease.run_id) from error
        if request.error is not None:
            raise request.error

    def _acknowledge(self, group: list[Request], outcomes: list[Outcome], now: int) -> None:
        """They are committed: remember where their runs end, tell the witness, and only then say so."""
        ends: list[tuple[Holding, Record, int]] = []
        for request, (place, until, error) in zip(group, outcomes, strict=True):
            request.error = error
            if place:
                holding = self.holdings[request.lease.run_id]
                holding.shown = request.projection[:4]
                if until:
                    holding.extend(until, request.lease.ttl)
                ends.append((holding, request.records[-1], place))
        self._remember(ends)
        if self.writer.strict or now - self.writer.synced > _SYNC_EVERY:
            self.writer.sync_witness(now)
        for request in group:
            request.done = True

    def _write_at_once(self, connection: apsw.Connection, appends: Sequence[Append], now: int) -> list[int]:
        """Several usual appends, each one event that changes nothing else of its run.

        Their places; empty if there is more to write, or if one of them did not go in: then none did.
        """
        rows: dict[int, tuple[str, tuple[Any, ...]]] = {}
        for lease, records, projection in appends:
            holding = self.holdings.get(lease.run_id)
            row = _usual(holding, lease, records[0], projection, now) if len(records) == 1 else None
            if holding is None or row is None:
                return []
            rows[row[0]] = holding.append, row
        if len(rows) < len(appends) or not rows:
            return []
        self.writer.ready = None  # until it has gone well
        all_in = _insert(connection, self.writer.cursor.execute, rows.values())
        self.writer.ready = connection
        return list(rows) if all_in else []

    def _write_together(self, connection: apsw.Connection, group: list[Request], now: int) -> list[Outcome]:
        try:
            connection.execute("begin immediate")
            outcomes = [self._write(connection, request, now) for request in group]
            connection.execute("commit")
        except BaseException:
            roll_back(connection)
            raise
        return outcomes

    def _write(self, connection: apsw.Connection, request: Request, now: int) -> Outcome:
        """Insert the events behind the last one; a refusal has changed nothing."""
        lease, records, shown = request.lease, request.records, request.projection
        holding = self.holdings.get(lease.run_id)
        if holding is None:
            return 0, 0, LeaseLost(lease.run_id, lease.epoch)
        place = holding.base | records[0].seq
        if place != holding.last + 1:
            # an earlier append may have got in though its answer was lost
            holding.last = one(connection, "last", (holding.number,), holding.number)[0] or holding.base
        if place != holding.last + 1 or records[0].op == holding.op:
            return 0, 0, self._why_not(connection, request, holding)
        connection.execute(holding.append, (*_row(place, records[0], shown), lease.epoch))
        if connection.changes() == 0:
            return 0, 0, self._why_not(connection, request, holding)
        for record in records[1:]:
            place += 1
            connection.execute(TABLES.of_run(holding.number, "append_more"), _row(place, record, shown))
        if holding.shown != shown[:4]:
            connection.execute(SQL["show"], (*shown[:4], records[0].at, holding.number))
            connection.execute(TABLES.of_run(holding.number, "keep_head"), (holding.number, lease.epoch))
        return place, self._extend(connection, lease, holding, now), None

    def _extend(self, connection: apsw.Connection, lease: Lease, holding: Holding, now: int) -> int:
        length = int(lease.ttl * 1e9)
        if now + length - holding.until <= length >> 2:
            return 0
        connection.execute(SQL["renew"], (now + length, holding.number, lease.epoch))
        return now + length

    def _why_not(self, connection: apsw.Connection, request: Request, holding: Holding) -> Exception | None:
        """Nothing went in: this very append is already there, or somebody else was."""
        lease, first, last = request.lease, request.records[0], request.records[-1]
        there, end = (one(connection, "event", (holding.base | of.seq,), holding.number) for of in (first, last))
        if there == _mark(first) and end == _mark(last):
            if holding.last == holding.base | last.seq:  # the first try may have ended before the witness had it
                self._remember([(holding, last, holding.last)])
            return None
        epoch, held, reached = one(connection, "standing", (holding.number,), holding.number) or (0, False, 0)
        if epoch != lease.epoch or not held:
            return LeaseLost(lease.run_id, lease.epoch)
        before = one(connection, "event", (holding.base | first.seq - 1,), holding.number)
        if bytes.fromhex(first.op) in (there and there[0], before and before[0]):
            return OperationReused(first.op)
        return SequenceConflict(lease.run_id, first.seq - 1, reached & SEQ if reached else 0)

    def _remember(self, ends: Sequence[tuple[Holding, Record, int]]) -> None:
        """Know where runs end now, by their last record and its place, and tell the witness."""
        for holding, last, place in ends:
            holding.last, holding.op = place, last.op
        try:
            self.writer.witness.write(sorted((place, last.hash) for _, last, place in ends))
        except OSError as error:
            self.writer.witness_failed(error)


def _mark(record: Record) -> tuple[bytes, bytes]:
    return bytes.fromhex(record.op), record.hash


def _usual(
    holding: Holding | None, lease: Lease, record: Record, shown: Projection, now: int
) -> tuple[Any, ...] | None:
    """The row of an event that is the next one, a new one, and all that changes of its run. None: there is more to it."""
    _, epoch, ttl = lease
    if holding is None or now > holding.fresh or ttl != holding.ttl or holding.shown != shown[:4]:
        return None
    _, seq, kind, version, at, body, digest, op = record
    place = holding.last + 1
    if place != holding.base | seq or op == holding.op:
        return None
    return place, kind, version, at, bytes.fromhex(op), digest, *shown[4:], body.decode(), epoch


def _insert(
    connection: apsw.Connection, execute: Callable[..., object], rows: Collection[tuple[str, tuple[Any, ...]]]
) -> bool:
    """All of these rows in one transaction, or none of them: then it is False."""
    try:
        execute("begin immediate")
        before = connection.total_changes()
        for append, row in rows:
            execute(append, row)
        if connection.total_changes() - before < len(rows):
            return False
        execute("commit")
        return True
    finally:
        roll_back(connection)


def _row(place: int, record: Record, shown: Projection) -> tuple[Any, ...]:
    _, _, kind, version, at, body, digest, op = record
    return (place, kind, version, at, bytes.fromhex(op), digest, shown[4], shown[5], shown[6], body.decode())

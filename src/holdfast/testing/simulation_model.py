"""What a store must answer, worked out beside it. The simulation asks here first and compares; nothing here is random."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from holdfast.core.errors import HoldfastError, LeaseHeld, LeaseLost, SequenceConflict
from holdfast.core.state import RunState, evolve, projection, snapshot, unseal
from holdfast.core.wire import GENESIS, check_chain, decode
from holdfast.ports import Lease, Owner, Projection, Record, Store

EPOCH = datetime(2026, 1, 2, tzinfo=UTC)
DONE = "done"


class Violation(Exception):
    """A promise was broken."""


def must(holds: bool, otherwise: str, *parts: object) -> None:
    if not holds:
        raise Violation(otherwise.format(*parts))


class Clocks:
    """`steady` is time as a store must take it; `wall` is what people see, and it jumps."""

    def __init__(self) -> None:
        self.time = 0.0
        self.skew = 0.0

    def steady(self) -> float:
        return self.time

    def wall(self) -> float:
        return self.time + self.skew

    def text(self) -> str:
        return (EPOCH + timedelta(seconds=self.wall())).isoformat(timespec="microseconds")[:26] + "Z"


class RunModel:
    """What a run must look like, kept beside the store."""

    def __init__(self, run_id: str) -> None:
        self.log: list[Record] = []
        self.hash = GENESIS
        self.state = RunState(run_id=run_id)
        self.history = [snapshot(self.state)]
        self.epoch = 0
        self.leased = False
        self.until = 0.0


class Model:
    """Says beforehand what the store must answer, and compares. Every call of every worker and every late packet passes here."""

    def __init__(self, store: Store, clocks: Clocks, runs: Sequence[str]) -> None:
        self.store = store
        self.clocks = clocks
        self.runs = {run_id: RunModel(run_id) for run_id in runs}
        self.ops: dict[str, Record] = {}
        self.facts: Counter[str] = Counter()

    def take(self, run_id: str, owner: Owner, ttl: float) -> Lease:
        run, held = self.runs[run_id], self._held(run_id)
        try:
            lease = self.store.take(run_id, owner, ttl)
        except LeaseHeld:
            must(held, "{} was refused as held though its lease had run out", run_id)
            raise
        must(not held, "{} was taken over while its lease was in force", run_id)
        must(lease.epoch > run.epoch, "{} got epoch {} after {}", run_id, lease.epoch, run.epoch)
        self.facts["take-overs"] += run.leased
        run.epoch, run.leased, run.until = lease.epoch, True, self.clocks.time + ttl
        self._audit(run_id)
        return lease

    def _held(self, run_id: str) -> bool:
        run = self.runs[run_id]
        return run.leased and self.clocks.time < run.until

    def renew(self, lease: Lease) -> None:
        self._judged("renewal", lease, self._right(lease, DONE), lambda: self.store.renew(lease))
        self.runs[lease.run_id].until = self.clocks.time + lease.ttl

    def release(self, lease: Lease) -> None:
        self.store.release(lease)
        run = self.runs[lease.run_id]
        run.leased = run.leased and run.epoch != lease.epoch

    def append(self, lease: Lease, records: Sequence[Record], shown: Projection) -> None:
        run, first = self.runs[lease.run_id], records[0]
        repeated, in_order = self.ops.get(first.op) == first, first.seq == len(run.log) + 1
        expected = (DONE,) if repeated else self._right(lease, DONE if in_order else SequenceConflict.__name__)
        try:
            self._judged("append", lease, expected, lambda: self.store.append(lease, records, shown))
        except HoldfastError:
            self._audit(lease.run_id)
            raise
        self.facts["repeats ignored"] += repeated
        if not repeated:
            run.until = self.clocks.time + lease.ttl
            self._absorb(lease.run_id, records)
        self._audit(lease.run_id)

    def acknowledged(self, records: Sequence[Record]) -> None:
        """The answer is about to reach the worker: from now on these events may never be missed."""
        self.facts["events acknowledged"] += len(records)
        for record in records:
            there = self.runs[record.run_id].log[record.seq - 1 : record.seq]
            must(there == [record], "event {0.seq} of {0.run_id} was acknowledged and is not in the log", record)

    def _right(self, lease: Lease, allowed: str) -> tuple[str, ...]:
        """A lease that was taken over or given back is lost. One that merely ran out may be honoured or refused."""
        run = self.runs[lease.run_id]
        if not run.leased or run.epoch != lease.epoch:
            return (LeaseLost.__name__,)
        return (allowed,) if self.clocks.time < run.until else (allowed, LeaseLost.__name__)

    def _judged(self, call: str, lease: Lease, expected: tuple[str, ...], act: Callable[[], None]) -> None:
        wrong, right = "the {} on {} with epoch {} ended as {}, not as {}", " or ".join(expected)
        try:
            act()
        except HoldfastError as error:
            name = type(error).__name__
            must(name in expected, wrong, call, lease.run_id, lease.epoch, name, right)
            self.facts["writers fenced out" if name == LeaseLost.__name__ else "conflicts refused"] += 1
            raise
        must(DONE in expected, wrong, call, lease.run_id, lease.epoch, DONE, right)

    def _absorb(self, run_id: str, records: Sequence[Record]) -> None:
        run = self.runs[run_id]
        new = list(self.store.read(run_id, after=len(run.log)))
        must(new == list(records), "{} holds other events after an append than were appended", run_id)
        must(new[0].op not in self.ops, "{} repeats operation {}", run_id, new[0].op)
        self.ops[new[0].op] = new[0]
        for record in new:
            run.hash = check_chain(record, run.hash, len(run.log) + 1)
            evolve(run.state, decode(record))
            run.log.append(record)
            run.history.append(snapshot(run.state))

    def _audit(self, run_id: str) -> None:
        run, head = self.runs[run_id], self.store.head(run_id)
        if head is None:
            return must(not run.log, "{} is gone", run_id)
        must(head.seq == len(run.log), "{} ends at event {}, and should end at {}", run_id, head.seq, len(run.log))
        must(head.hash == run.hash, "{} ends with another event than was written", run_id)
        must(head.projection == projection(run.state), "{} is listed as something else than its log says", run_id)
        must(head.held == self._held(run_id), "{} is listed as {} held", run_id, "" if head.held else "not")
        return None

    def look(self, run_id: str, state: RunState) -> RunState:
        """What a writer believes may be old; it may never be something that was not so."""
        history = self.runs[run_id].history
        believed = history[state.seq] if state.seq < len(history) else None
        must(
            snapshot(state) == believed, "the writer of {} believes in an event {} that is not there", run_id, state.seq
        )
        return state

    def recorded(self, run_id: str, state: RunState) -> None:
        same = snapshot(state) == self.runs[run_id].history[-1]
        must(same, "the state of {} after an append is not the fold of its log", run_id)

    def finish(self) -> None:
        for run_id, run in self.runs.items():
            self._audit(run_id)
            must(list(self.store.read(run_id)) == run.log, "{} is not the log that was written", run_id)
            seq, kept = self.store.load_snapshot(run_id) or (0, b"")
            same = not kept or run.history[seq] == snapshot(unseal(kept, run.log[seq - 1].hash))
            must(same, "the snapshot of {} is not the fold of its log", run_id)
            notes = [record.body for record in run.log if record.kind == "note_recorded"]
            must(len(notes) == len(set(notes)), "{} holds a note twice that was left once", run_id)
            self.facts["events"] += len(run.log)

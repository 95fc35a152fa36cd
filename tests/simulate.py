"""`python -m tests.simulate`: many seeds of the simulation over the memory store and the real log writer, as a table.

`--bug NAME` puts a planted bug under test instead. Exit code 1 says that a seed broke a promise.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from holdfast.core.errors import StoreUnavailable
from holdfast.core.events import Event
from holdfast.core.state import RunState
from holdfast.core.wire import chain_hash
from holdfast.engine.log import RunLog, World
from holdfast.ports import Lease, Owner, Projection, Record, Store
from holdfast.stores.memory import MemoryStore
from holdfast.testing.simulation import Hands, Outcome, Subject, simulate
from holdfast.testing.simulation_link import FAULTS
from holdfast.testing.simulation_model import Clocks


class NoFence(MemoryStore):
    """Whoever once had a lease may go on writing."""

    def _leased(self, lease: Lease):
        return self._runs[lease.run_id]


class NoMemoryOfOperations(MemoryStore):
    """A repeated append is an append."""

    def append(self, lease: Lease, records: Sequence[Record], projection: Projection) -> None:
        self._ops.clear()
        super().append(lease, records, projection)

    def _has(self, records: Sequence[Record]) -> bool:
        return False


class Doubles(NoMemoryOfOperations):
    """A repeated append is made to fit, and written once more."""

    def append(self, lease: Lease, records: Sequence[Record], projection: Projection) -> None:
        there = self._runs[lease.run_id].records
        if any(record.op == records[0].op for record in there):
            records = [self._refit(record, there[-1]) for record in records[:1]]
        super().append(lease, records, projection)

    def _refit(self, record: Record, last: Record) -> Record:
        seq, (run_id, _, kind, version, at, body, _, op) = last.seq + 1, record
        return record._replace(seq=seq, hash=chain_hash(last.hash, run_id, seq, kind, version, at, op, body))


class AckBeforeWrite(MemoryStore):
    """The newest append of a holder is only in its memory: readers see it, and it dies with the holder."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self._unwritten: dict[str, tuple[int, Projection]] = {}

    def append(self, lease: Lease, records: Sequence[Record], projection: Projection) -> None:
        run = self._runs[lease.run_id]
        before = len(run.records), run.projection
        super().append(lease, records, projection)
        self._unwritten[lease.run_id] = before

    def release(self, lease: Lease) -> None:
        self._unwritten.pop(lease.run_id, None)
        super().release(lease)

    def take(self, run_id: str, owner: Owner, ttl: float) -> Lease:
        lease = super().take(run_id, owner, ttl)
        if run_id in self._unwritten:
            run = self._runs[run_id]
            count, run.projection = self._unwritten.pop(run_id)
            del run.records[count:]
        return lease


class NoSequenceCheck(MemoryStore):
    """An append lands wherever the log happens to end."""

    def append(self, lease: Lease, records: Sequence[Record], projection: Projection) -> None:
        if records[0].op not in self._ops:
            run, first = self._leased(lease), records[0]
            run.records.extend(records)
            run.projection, run.until = projection, self._clock() + lease.ttl
            self._ops[first.op] = (first.run_id, first.seq, first.hash)


class SameEpochAgain(MemoryStore):
    """A run that was given back is taken with the epoch it had, so its last holder passes as the new one."""

    def release(self, lease: Lease) -> None:
        super().release(lease)
        run = self._runs[lease.run_id]
        run.epoch -= run.owner is None


class HalfAppends(MemoryStore):
    """Events of one append are written one by one, and the last may be missing."""

    def append(self, lease: Lease, records: Sequence[Record], projection: Projection) -> None:
        super().append(lease, records[:2], projection)


class ShowsTheUnwritten(RunLog):
    """Its state keeps an event whose append failed."""

    @property
    def state(self) -> RunState:
        return self._state


class RetriesAnew(RunLog):
    """A failed append is tried again under a new operation id."""

    def record(self, *events: Event) -> RunState:
        try:
            return super().record(*events)
        except StoreUnavailable:
            return super().record(*events)


def make_log(kind: type[RunLog]) -> Callable[[Store, str, Hands], RunLog]:
    def open_log(store: Store, run_id: str, hands: Hands) -> RunLog:
        return kind(store, run_id, World(hands.now, hands.new_op, hands.owner), ttl=hands.ttl)

    return open_log


def make_store(kind: Callable[[Callable[[], float]], Store]) -> Callable[[Clocks], Store]:
    return lambda clocks: kind(clocks.steady)


REAL = Subject(make_store(MemoryStore), make_log(RunLog))

BUGS = {
    "no-fence": REAL._replace(make_store=make_store(NoFence)),
    "no-memory-of-operations": REAL._replace(make_store=make_store(NoMemoryOfOperations)),
    "doubles": REAL._replace(make_store=make_store(Doubles)),
    "ack-before-write": REAL._replace(make_store=make_store(AckBeforeWrite)),
    "no-sequence-check": REAL._replace(make_store=make_store(NoSequenceCheck)),
    "wall-clock-leases": REAL._replace(make_store=lambda clocks: MemoryStore(clocks.wall)),
    "same-epoch-again": REAL._replace(make_store=make_store(SameEpochAgain)),
    "half-appends": REAL._replace(make_store=make_store(HalfAppends)),
    "shows-the-unwritten": REAL._replace(open_log=make_log(ShowsTheUnwritten)),
    "retries-anew": REAL._replace(open_log=make_log(RetriesAnew)),
    "acts-without-looking": REAL._replace(careful=False),
}


class Tally(NamedTuple):
    """What a stretch of seeds came to."""

    seeds: int
    faults: Counter[str]
    facts: Counter[str]
    failed: list[Outcome]


def tally(seeds: Iterable[int], subject: Subject) -> Tally:
    count, faults, facts, failed = 0, Counter[str](), Counter[str](), []
    for seed in seeds:
        outcome = simulate(seed, subject)
        count += 1
        faults.update(outcome.faults)
        facts.update(outcome.facts)
        if outcome.violation is not None:
            failed.append(outcome)
    return Tally(count, faults, facts, failed)


def first_failure(subject: Subject, within: int) -> Outcome | None:
    outcomes = (simulate(seed, subject) for seed in range(within))
    return next((outcome for outcome in outcomes if outcome.violation is not None), None)


def replay(outcome: Outcome, bug: str | None = None) -> str:
    """The one line that a failing seed prints."""
    which = f" --bug {bug}" if bug else ""
    return f"seed {outcome.seed}: {outcome.violation}. Replay: python -m tests.simulate --seed {outcome.seed}{which}"


def table(result: Tally, seconds: float) -> str:
    rows = [("fault injected", "times"), *((kind, result.faults[kind]) for kind in itertools.chain(*FAULTS.values()))]
    rows += [("all faults", result.faults.total()), ("", ""), ("what happened", "times"), *sorted(result.facts.items())]
    rows += [("seeds", result.seeds), ("violations", len(result.failed))]
    lines = [
        f"{name:<26}{count if isinstance(count, str) else format(count, ','):>12}".rstrip() for name, count in rows
    ]
    return "\n".join([*lines, f"{'seeds per second':<26}{result.seeds / seconds:>12,.0f}"])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5000, help="how many seeds to run")
    parser.add_argument("--start", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="run this one alone and print its trace")
    parser.add_argument("--bug", choices=sorted(BUGS), help="put a planted bug under test")
    parser.add_argument("--bugs", action="store_true", help="say for each planted bug which seed finds it")
    chosen = parser.parse_args(arguments)
    if chosen.bugs:
        return show_bugs(chosen.seeds)
    subject = BUGS[chosen.bug] if chosen.bug else REAL
    if chosen.seed is not None:
        return show_one(simulate(chosen.seed, subject), chosen.bug)
    return show_many(range(chosen.start, chosen.start + chosen.seeds), subject, chosen.bug)


def show_many(seeds: range, subject: Subject, bug: str | None) -> int:
    began = time.perf_counter()
    result = tally(seeds, subject)
    print(table(result, time.perf_counter() - began))
    for outcome in result.failed[:10]:
        print(replay(outcome, bug))
    return 1 if result.failed else 0


def show_one(outcome: Outcome, bug: str | None) -> int:
    for moment, *words in outcome.trace:
        print(f"{moment:9.3f}", *(word for word in words if word is not None))
    print(f"trace {outcome.digest}")
    print(f"seed {outcome.seed}: every promise held" if outcome.violation is None else replay(outcome, bug))
    return 0 if outcome.violation is None else 1


def show_bugs(within: int) -> int:
    found = {bug: first_failure(subject, within) for bug, subject in BUGS.items()}
    for bug, outcome in found.items():
        print(f"{bug:<26}{replay(outcome, bug) if outcome else f'not found in {within} seeds'}")
    return 0 if all(found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

"""The campaign: which technique breaks which workload, how often in `make test`, and how often in `make crash`.

Every entry returns a laboratory report. Sizes add up to the goals in docs/reference/crash-laboratory.md.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import apsw

import holdfast
from holdfast.testing import crashlab
from holdfast.testing.crashlab import blockdev, bytecode, flips, limits, memory
from holdfast.testing.crashlab.workload import Available, Report
from tests.crash import live_postgres
from tests.crash.live_points import at_moments
from tests.crash.live_work import Hasty, LiveWork
from tests.crash.workloads import Crowd, Insistent, LogWork, Lone, Stubborn

SOURCES = [str(Path(holdfast.__file__).parent / name) for name in ("stores", "engine", "core")]
STORE_FILES = ("holdfast.db", "holdfast.db-wal", "holdfast.db-witness")
YES = Available(True, "")


class Entry(NamedTuple):
    """One line of the campaign: `run(points, seed)` gives its report."""

    name: str
    points: int
    full: int
    run: Callable[[int, int], Report]
    available: Callable[[], Available] = lambda: YES


def kill(work: LogWork | LiveWork) -> Callable[[int, int], Report]:
    return lambda points, seed: crashlab.kill_everywhere(work, limit=points, seed=seed)


def kill_in_recovery(points: int, seed: int) -> Report:
    return crashlab.kill_everywhere(LogWork(), limit=points, seed=seed, faults_during_recovery=True)


def errno(work: LogWork | LiveWork, during_recovery: bool = False) -> Callable[[int, int], Report]:
    return lambda points, seed: crashlab.errno_everywhere(
        work, limit=points, seed=seed, faults_during_recovery=during_recovery
    )


def power(work: LogWork) -> Callable[[int, int], Report]:
    return lambda points, seed: crashlab.power_loss(work, images=points, seed=seed)


def failed_sync(work: LogWork) -> Callable[[int, int], Report]:
    return lambda points, seed: crashlab.power_loss_after_failed_sync(work, images=points, seed=seed)


def at_bytecodes(way: str, work: LogWork | LiveWork) -> Callable[[int, int], Report]:
    return lambda points, seed: bytecode.bytecode_points(work, SOURCES, way, limit=points, seed=seed)


def of_one_append(way: str) -> Callable[[int, int], Report]:
    """Every bytecode of one append of one event (there are less than 1,000), or a seeded choice of them."""
    work = Lone(5)

    def run(points: int, seed: int) -> Report:
        with bytecode.bench(work) as place, place.copy() as folder:
            *_, before, after, _, _ = bytecode.count_at_acks(work, folder, SOURCES, threads=way == "kill")
        chosen = [before + number for number in bytecode.sample(after - before, points, seed)]
        report = bytecode.bytecode_points(work, SOURCES, way, points=chosen, seed=seed)
        report.note(f"{after - before} bytecodes in one append")
        return report

    return run


def at_the_moments_of(work: LiveWork) -> Callable[[int, int], Report]:
    return lambda points, seed: at_moments(work, points, seed)


def of_coroutines_on_a_server(points: int, seed: int) -> Report:
    return live_postgres.at_moments(points, seed, coroutines=True)


def damage(after: int, ways: tuple[str, ...]) -> Callable[[int, int], Report]:
    """Flip bits and cut files of a store whose writer was killed after an acknowledgement."""

    def run(points: int, seed: int) -> Report:
        with tempfile.TemporaryDirectory(prefix="crash-") as folder:
            acked = flips.crashed_store(LogWork(after), Path(folder), after)
            return flips.flips(LogWork(), Path(folder), acked, STORE_FILES, limit=points, ways=ways, seed=seed)

    return run


def damage_merged(points: int, seed: int) -> Report:
    """Flip bits of a store whose log was brought home into the database file."""
    with tempfile.TemporaryDirectory(prefix="crash-") as folder:
        acked = flips.finished_store(LogWork(60), Path(folder))
        connection = apsw.Connection(str(Path(folder) / ".holdfast" / "holdfast.db"))
        connection.execute("pragma wal_checkpoint(truncate)").fetchall()
        connection.close()
        return flips.flips(
            LogWork(), Path(folder), acked, ["holdfast.db"], limit=points, ways=("flip", "zero"), seed=seed
        )


def by_strace(points: int, seed: int) -> Report:
    return crashlab.strace_everywhere(LogWork(40), limit=points, seed=seed)


def on_ext4(points: int, seed: int) -> Report:
    return blockdev.ext4_power_loss(LogWork(40), images=points, seed=seed)


def no_memory(points: int, seed: int) -> Report:
    """Each of the allocations of one run (there are about this many), or a seeded choice of them."""
    return memory.memory_points(LogWork(3), points=bytecode.sample(6600, points, seed), seed=seed)


def all_limits(points: int, seed: int) -> Report:
    report = Report("limits", "log", seed)
    for part in limits.all_limits(LogWork(20)):
        report.points += part.points
        report.violations += part.violations
        for kind, count in part.counts.items():
            report.counts[kind] += count
    return report.done()


CAMPAIGN = (
    Entry("kill at calls", 500, 3000, kill(LogWork(40)), crashlab.available),
    Entry("kill at calls, strict witness", 400, 2000, kill(LogWork(20, "strict")), crashlab.available),
    Entry("kill at calls, new store", 250, 1000, kill(LogWork(4, open_in_work=False)), crashlab.available),
    Entry("kill at calls, again in recovery", 50, 4000, kill_in_recovery, crashlab.available),
    Entry("kill by strace", 300, 3000, by_strace, crashlab.strace_available),
    Entry("errno at calls", 900, 12000, errno(LogWork(16)), crashlab.available),
    Entry("errno at calls, new store", 400, 8000, errno(LogWork(3, open_in_work=False)), crashlab.available),
    Entry("errno at calls, again in recovery", 60, 10000, errno(LogWork(), True), crashlab.available),
    Entry("power loss", 10000, 80000, power(LogWork(150)), crashlab.available),
    Entry("power loss, strict witness", 7000, 60000, power(LogWork(150, "strict")), crashlab.available),
    Entry("power loss, new store", 4000, 30000, power(LogWork(100, open_in_work=False)), crashlab.available),
    Entry("power loss, many at once", 5000, 20000, power(Crowd(80)), crashlab.available),
    Entry("power loss, many at once, strict witness", 1000, 20000, power(Crowd(80, "strict")), crashlab.available),
    Entry("power loss after a failed sync", 2000, 20000, failed_sync(LogWork(16)), crashlab.available),
    Entry("power loss after a failed sync, asked again", 2000, 20000, failed_sync(Stubborn(16)), crashlab.available),
    Entry("power loss after a failed sync, strict witness", 900, 9000, failed_sync(Insistent(16, "strict")), crashlab.available),
    Entry("power loss on a real ext4", 60, 2000, on_ext4, blockdev.available),
    Entry("SIGKILL at bytecodes", 1300, 20000, at_bytecodes("kill", LogWork(3))),
    Entry("SIGKILL at bytecodes, new store", 800, 10000, at_bytecodes("kill", LogWork(3, open_in_work=False))),
    Entry("KeyboardInterrupt at bytecodes", 1300, 20000, at_bytecodes("interrupt", LogWork(3))),
    Entry("KeyboardInterrupt at bytecodes, new store", 800, 10000, at_bytecodes("interrupt", LogWork(3, open_in_work=False))),
    Entry("KeyboardInterrupt at bytecodes, many at once", 800, 20000, at_bytecodes("interrupt", Crowd(2))),
    Entry("SIGKILL at every bytecode of one append", 1000, 1000, of_one_append("kill")),
    Entry("KeyboardInterrupt at every bytecode of one append", 1000, 1000, of_one_append("interrupt")),
    Entry("kill at calls, many at once", 100, 1000, kill(Crowd(8)), crashlab.available),
    Entry("allocation failures", 1500, 20000, no_memory, memory.available),
    Entry("bit flips and cuts", 1700, 150000, damage(24, ("flip", "cut"))),
    Entry("bit flips in a merged database", 1000, 50000, damage_merged),
    Entry("zeroed sectors", 800, 50000, damage(7, ("flip", "zero"))),
    Entry("disk full, read-only, limits", 50, 50, all_limits, limits.available),
    Entry("live run: kill at moments", 60, 4000, at_the_moments_of(LiveWork())),
    Entry("live run: kill at moments, coroutines", 30, 4000, at_the_moments_of(LiveWork(coroutines=True))),
    Entry("live run: kill at moments, announced steps", 40, 4000, at_the_moments_of(Hasty())),
    Entry("live run: kill at calls", 80, 4000, kill(LiveWork()), crashlab.available),
    Entry("live run: errno at calls", 40, 8000, errno(LiveWork()), crashlab.available),
    Entry("live run: SIGKILL at bytecodes", 20, 4000, at_bytecodes("kill", LiveWork())),
    Entry("live run: KeyboardInterrupt at bytecodes", 30, 8000, at_bytecodes("interrupt", LiveWork())),
    Entry("live run on PostgreSQL: kill at moments", 25, 2000, live_postgres.at_moments, live_postgres.available),
    Entry("live run on PostgreSQL: kill at moments, coroutines", 8, 2000, of_coroutines_on_a_server, live_postgres.available),
    Entry("live run on PostgreSQL: kill at calls", 8, 1000, live_postgres.at_calls, live_postgres.available_with_shim),
    Entry("live run on PostgreSQL: wire cut", 20, 3000, live_postgres.at_cuts, live_postgres.available),
)  # fmt: skip

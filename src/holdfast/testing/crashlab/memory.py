"""Every single allocation of the interpreter fails once while a workload works. It refuses where `_testcapi` is missing."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

from holdfast.testing.crashlab.bytecode import (
    OURS,
    WHOLE,
    Bench,
    Fault,
    Tell,
    Typed,
    bench,
    judge,
    sample,
    suffer,
)
from holdfast.testing.crashlab.workload import Available, Report, Workload

FOREVER = 0
MOST = 1 << 24


def available() -> Available:
    """Whether this interpreter can be told to fail an allocation."""
    if importlib.util.find_spec("_testcapi") is None:
        return Available(False, "this Python has no _testcapi module, so allocations cannot be made to fail")
    return Available(True, "")


def _hooks() -> tuple[Callable[[int, int], None], Callable[[], None]]:
    module = import_module("_testcapi")
    return module.set_nomemory, module.remove_mem_hooks


def _fault(first: int, stop: int) -> Fault:
    set_nomemory, remove = _hooks()
    armed = False

    def arm(tell: Tell) -> None:
        nonlocal armed
        armed = True
        set_nomemory(first, stop)

    def lift() -> None:
        if armed:
            remove()

    # CPython itself turns some failed allocations into other errors (an unreadable path, a lost attribute)
    return Fault(arm, lift, (Exception,))


def _enough(place: Bench, allocations: int) -> bool:
    """Whether the work comes to its end when every allocation after the first `allocations` fails."""
    with place.copy() as folder:
        ending = suffer(place.workload, folder, _fault(allocations, FOREVER), (), 30.0)
    return ending.last("work") == "done"


def count_allocations(place: Bench) -> int:
    """The fewest allocations with which one `work` comes to its end, found by halving."""
    high = 1024
    while not _enough(place, high):
        high *= 2
        if high > MOST:
            raise RuntimeError(f"{place.workload.name} needs more than {MOST} allocations: give it less to do")
    low = high // 2 if high > 1024 else 0
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _enough(place, middle) else (middle + 1, high)
    return high


def memory_points(
    workload: Workload,
    *,
    points: Sequence[int] | None = None,
    limit: int | None = None,
    seed: int = 0,
    typed: Typed = OURS,
    allowed: frozenset[str] = WHOLE,
    scratch: Path | None = None,
    timeout: float = 30.0,
) -> Report:
    """Fail allocation n alone, for each n (or a seeded choice of `limit`, or exactly at `points`), then check.

    The work may end in any exception, and a child that the interpreter itself brings down counts as killed; a workload that
    has `again` must then be able to append once more with the same objects, or refuse with one of `typed`.
    """
    report = Report("no memory", workload.name, seed)
    if not (usable := available()):
        report.note(usable.why)
        return report.done()
    with bench(workload, scratch) as place:
        for point in points or _chosen(place, limit, seed, report):
            with place.copy() as folder:
                ending = suffer(workload, folder, _fault(point - 1, point), typed, timeout)
                verdict = judge(workload, folder, ending, allowed, timeout)
            report.add(verdict, point, f"memory_points(workload, points=[{point}])")
    return report.done()


def _chosen(place: Bench, limit: int | None, seed: int, report: Report) -> list[int]:
    total = count_allocations(place)
    report.note(f"{total} allocations in one run")
    return sample(total, limit, seed)

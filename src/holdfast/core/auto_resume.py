"""Whether a run that stopped may be tried again without a person, and in how many seconds. Knows no reason of its own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from holdfast.core.named import NamedTuple
from holdfast.core.stops import Limits, auto_resume, lookup


class Halt(NamedTuple):
    """One stop: why, when, and where the run stood. The same place twice means no progress. `due`: when a limit resets."""

    reason: str
    at: str
    place: str = ""
    due: str | None = None


class Wait(NamedTuple):
    """Try again in so many seconds."""

    seconds: float
    why: str


class No(NamedTuple):
    """Do not try again: `skipped`, `exhausted` or `loop_detected`."""

    outcome: str
    why: str


def next_try(halts: Sequence[Halt], limits: Limits, now: str) -> Wait | No:
    """Decide about the last of the stops a run has had since a person last let it go on. Time that has passed is not waited."""
    last, earlier = halts[-1], halts[:-1]
    history = [(halt.reason, _mark(halt)) for halt in earlier]
    since = _seconds(last.at, now)
    decided = auto_resume(last.reason, _mark(last), history, limits, since + _own_wait(halts, limits, now))
    if not decided.resume:
        return No(decided.outcome, decided.why)
    return Wait(max(0.0, decided.delay - since), decided.why)


def _mark(halt: Halt) -> str:
    """Every wait is one of its own, wherever the run stands: a limit that was met again is no loop."""
    return f"{halt.place} {halt.at}" if _waits(halt) else halt.place


def _waits(halt: Halt) -> bool:
    return lookup(halt.reason).family == "waiting"


def _own_wait(halts: Sequence[Halt], limits: Limits, now: str) -> float:
    """Seconds from now until the last stop is due. A wait whose end is not known, or was over before, takes longer each time."""
    last = halts[-1]
    if last.due is not None and _seconds(last.at, last.due) > 0:
        return _seconds(now, last.due)
    if not _waits(last) or not limits.delays:
        return 0.0
    row = next((number for number, halt in enumerate(reversed(halts)) if not _waits(halt)), len(halts))
    return max(0.0, limits.delays[min(row, len(limits.delays)) - 1] - _seconds(last.at, now))


def _seconds(earlier: str, later: str) -> float:
    """Between two recorded times; none if the clock went back."""
    return max(0.0, (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds())

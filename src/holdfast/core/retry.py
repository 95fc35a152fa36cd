"""How often to try again and how long to wait: values and arithmetic, no clock. Time comes in and goes out as text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from holdfast.core.errors import UsageError


class Retry(NamedTuple):
    """At most `attempts` in all; before the n-th repetition `wait * factor ** n` seconds, at most `longest`."""

    attempts: int = 3
    wait: float = 1.0
    factor: float = 2.0
    longest: float = 300.0

    def pause(self, attempt: int) -> float:
        """Seconds to wait after this attempt has failed."""
        return min(self.wait * self.factor ** min(attempt - 1, 60), self.longest)

    def left(self, attempt: int) -> bool:
        return attempt < self.attempts


ONCE = Retry(attempts=1)


def as_retry(value: Retry | int | None) -> Retry:
    retry = ONCE if value is None else Retry(attempts=value) if isinstance(value, int) else value
    if retry.attempts < 1 or min(retry.wait, retry.factor, retry.longest) < 0:
        raise UsageError(f"{retry} cannot be followed: at least one attempt, and no negative waits.")
    return retry


class Budget(NamedTuple):
    """What a run may use up over all its restarts; None: as much as it likes. `seconds` counts only while it runs."""

    attempts: int | None = None
    seconds: float | None = None
    tokens: int | None = None
    money: float | None = None


def later(at: str, seconds: float) -> str:
    return text_of(time_of(at) + timedelta(seconds=seconds))


def seconds_until(now: str, then: str) -> float:
    return (time_of(then) - time_of(now)).total_seconds()


def time_of(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def text_of(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

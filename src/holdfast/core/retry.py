"""How often to try again and how long to wait: values and arithmetic, no clock. Time comes in and goes out as text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.core.errors import BadInput, UsageError, shown
from holdfast.core.named import NamedTuple


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
    retry: object = ONCE if value is None else Retry(attempts=value) if isinstance(value, int) else value
    if not isinstance(retry, Retry) or not _can_be_followed(retry):
        raise UsageError(
            f"{retry!r:.160} cannot be followed: at least one attempt, and no negative waits.",
            advice="`retry` is a number of attempts, or a Retry.",
        )
    return retry


def _can_be_followed(retry: Retry) -> bool:
    attempts, *waits = tuple[Any, ...](retry)
    return (
        isinstance(attempts, int) and attempts >= 1 and all(isinstance(one, (int, float)) and one >= 0 for one in waits)
    )


class Budget(NamedTuple):
    """What a run may use up over all its restarts; None: as much as it likes. `seconds` counts only while it runs."""

    attempts: int | None = None
    seconds: float | None = None
    tokens: int | None = None
    money: float | None = None


def check_budget(budget: Budget) -> None:
    if not isinstance(budget, Budget):
        raise UsageError(f"{shown(budget, 40)} is no budget.", advice="Say of what, as in holdfast.Budget(attempts=5).")
    for what, limit in zip(Budget._fields, tuple[Any, ...](budget), strict=True):
        if limit is not None and not (isinstance(limit, (int, float)) and limit >= 0):
            raise UsageError(
                f"{limit!r:.40} is no limit for {what}.", advice="A limit is a number, or None for as much as it likes."
            )


def later(at: str, seconds: float) -> str:
    now = time_of(at)
    try:
        return text_of(now + timedelta(seconds=seconds))
    except (TypeError, ValueError, OverflowError):
        raise UsageError(
            f"No time is {seconds!r:.40} seconds from now.",
            advice="Give a number of seconds that ends before the year 9999.",
        ) from None


def seconds_until(now: str, then: str) -> float:
    return (time_of(then) - time_of(now)).total_seconds()


def time_of(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadInput(
            f"{shown(text, 80)} is no time.",
            advice="If it stands in the log of a run, `holdfast fork RUN --at EVENT` goes on before the event that holds it.",
        ) from None


def text_of(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

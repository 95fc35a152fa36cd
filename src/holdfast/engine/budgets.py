"""Budgets, counted from the log over all restarts: attempts, tokens, money, and the time a run was really running."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from holdfast.core.errors import UsageError, shown
from holdfast.core.events import BudgetSpent
from holdfast.core.plain import check_text
from holdfast.core.retry import Budget, time_of
from holdfast.core.shapes import RUNNING
from holdfast.core.values import Record
from holdfast.engine.book import Book, Part
from holdfast.engine.retelling import Retelling

_MOST = 2**53  # a whole number that JSON keeps
_BEGINS = frozenset({"run_started", "run_resumed"})
_SLEEPS = {"sleep_started": 1, "sleep_ended": -1}
_MARKS = 20  # of how many parts of the time that is allowed a process that is killed loses one at most
_SOONEST, _LATEST = 1.0, 60.0  # seconds from mark to mark


class Budgets:
    """What one run may still use up."""

    def __init__(self, book: Book, retelling: Retelling) -> None:
        self._book = book
        self._retelling = retelling
        self._limits: Budget = book.options.budget
        self._ran_before = 0.0
        self._began = time.monotonic()
        self._heard = (0, self._began)  # up to which event the log was seen to come, and when
        self._beginning: dict[str, int] = {}  # attempts that are being written down
        self.limited = any(limit is not None for limit in self._limits)

    def begin(self) -> None:
        """Count the time that went by in earlier processes. Reads the log again only if time is limited."""
        if self._limits.seconds is not None:
            log = self._book.log
            self._ran_before = seconds_run(log.store.read(log.run_id))
        self._began = time.monotonic()

    def spend(self, tokens: int, money: float, step_id: str | None) -> Part:
        if step_id is not None:
            check_text("The step that something was spent for", step_id)
        step_id = step_id or self._book.executed()
        event = BudgetSpent(tokens=_whole(tokens), money=_amount(money), step_id=step_id)
        if not self._retelling.is_known(event):
            yield partial(self._book.record, event)
        yield from self.check()

    def check(self, attempts: int = 0) -> Part:
        """Stop the run if something is used up; `attempts` are about to be made."""
        limits, spent = self._limits, self._book.state.spent
        used = (
            ("attempts", limits.attempts, spent.attempts + attempts),
            ("tokens", limits.tokens, spent.tokens),
            ("money", limits.money, round(spent.money, 9)),  # a sum of fractions is a little off
        )
        for what, limit, amount in used:
            if limit is not None and amount > limit:
                raise (yield from self._book.stop("budget_exhausted", f"all {limit:g} {what} are used up"))
        if limits.seconds is not None and self.seconds() > limits.seconds:
            raise (yield from self._book.stop("timeout", f"{self.seconds():.1f} of {limits.seconds:g} seconds"))

    def begin_attempt(self, name: str, attempt: int, announce: Callable[[], Any]) -> Part:
        """Write down that it begins, if one is left: those of others that are on their way to the log are used up, too."""
        with self._book.lock:
            steps, beginning = self._book.state.steps, self._beginning
            others = sum(one not in steps or steps[one].attempt < at for one, at in beginning.items())
            yield from self.check(attempts=1 + others)
            beginning[name] = attempt
        try:
            yield announce
        finally:
            with self._book.lock:
                beginning.pop(name, None)

    def mark(self) -> Part:
        """Beside long work: that the run is still running, if its time is limited, for nobody would know it after a kill."""
        book, limit = self._book, self._limits.seconds
        if limit is None:
            return
        with book.lock:
            state, (seq, at), now = book.state, self._heard, time.monotonic()
            is_quiet = state.seq == seq and state.status == RUNNING and not book.is_sleeping
            if is_quiet and now - at < min(max(limit / _MARKS, _SOONEST), _LATEST):
                return
            self._heard = (state.seq, now)
            if is_quiet:
                yield partial(book.record, BudgetSpent())

    def seconds(self) -> float:
        """How long the run has been running, over all its processes. What it slept does not count."""
        return self._ran_before + time.monotonic() - self._began - self._book.slept


def _whole(tokens: int) -> int:
    if type(tokens) is not int or abs(tokens) > _MOST:
        raise UsageError(f"{shown(tokens, 40)} is no number of tokens.", advice="Tokens are counted in whole numbers.")
    return tokens


def _amount(money: float) -> float:
    try:
        return float(money)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"{shown(money, 40)} is no amount of money.", advice="Give a number.") from None


def seconds_run(records: Iterable[Record]) -> float:
    """From event to event, but not from an end to the next beginning, and not while the run slept.

    A clock that went back counts as no time.
    """
    total, last, asleep = 0.0, None, 0
    for record in records:
        at = time_of(record.at)
        if record.kind in _BEGINS:
            asleep = 0
        elif last is not None and asleep == 0:
            total += max(0.0, (at - last).total_seconds())
        asleep = max(0, asleep + _SLEEPS.get(record.kind, 0))
        last = at
    return total

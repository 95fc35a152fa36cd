"""Budgets, counted from the log over all restarts: attempts, tokens, money, and the time a run was really running."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial

from holdfast.core.events import BudgetSpent
from holdfast.core.retry import Budget, time_of
from holdfast.core.values import Record
from holdfast.engine.book import Book, Part

_BEGINS = frozenset({"run_started", "run_resumed"})


class Budgets:
    """What one run may still use up."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._limits: Budget = book.options.budget
        self._ran_before = 0.0
        self._began = time.monotonic()
        self.limited = any(limit is not None for limit in self._limits)

    def begin(self) -> None:
        """Count the time that went by in earlier processes. Reads the log again only if time is limited."""
        if self._limits.seconds is not None:
            log = self._book.log
            self._ran_before = seconds_run(log.store.read(log.run_id))
        self._began = time.monotonic()

    def spend(self, tokens: int, money: float, step_id: str | None) -> Part:
        yield partial(self._book.record, BudgetSpent(tokens=tokens, money=float(money), step_id=step_id))
        yield from self.check()

    def check(self, attempts: int = 0) -> Part:
        """Stop the run if something is used up; `attempts` are about to be made."""
        limits, spent = self._limits, self._book.state.spent
        used = (
            ("attempts", limits.attempts, spent.attempts + attempts),
            ("tokens", limits.tokens, spent.tokens),
            ("money", limits.money, spent.money),
        )
        for what, limit, amount in used:
            if limit is not None and amount > limit:
                raise (yield from self._book.stop("budget_exhausted", f"all {limit:g} {what} are used up"))
        if limits.seconds is not None and self.seconds() > limits.seconds:
            raise (yield from self._book.stop("timeout", f"{self.seconds():.1f} of {limits.seconds:g} seconds"))

    def seconds(self) -> float:
        """How long the run has been running, over all its processes."""
        return self._ran_before + time.monotonic() - self._began


def seconds_run(records: Iterable[Record]) -> float:
    """From each beginning to the last event before the next one. A clock that went back counts as no time."""
    total, since, last = 0.0, None, None
    for record in records:
        at = time_of(record.at)
        if record.kind in _BEGINS:
            total += max(0.0, (last - since).total_seconds()) if since and last else 0.0
            since = at
        last = at
    return total + (max(0.0, (last - since).total_seconds()) if since and last else 0.0)

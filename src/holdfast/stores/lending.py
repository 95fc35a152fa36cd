"""A transaction lent to the user's statements: to one thread, until its work returns. The first failure ends it for good."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import BadInput, HoldfastError, UsageError, shown
from holdfast.core.values import Append, Lease

if TYPE_CHECKING:
    from holdfast.ports import Sql


class Lent(ABC):
    """The `Sql` that work gets. A store says how a statement runs and what its errors are called."""

    def __init__(self) -> None:
        self._thread: int | None = threading.get_ident()
        self._failure: HoldfastError | None = None

    def execute(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        if threading.get_ident() != self._thread:
            raise UsageError(
                "A lent transaction was used after its work had returned, or by another thread.",
                advice="Call `execute` only in the function given to `transact`, in its own thread.",
            )
        if self._failure is not None:
            raise self._failure
        try:
            return self._run(sql, values)
        except Exception as error:
            self._failure = self._named(error, sql)
            raise self._failure from error

    def spend(self, lease: Lease, work: Callable[[Sql], Append]) -> Append:
        """Let the work use it, once, and see what it gives back."""
        try:
            given: object = work(self)
        finally:
            self._thread = None
        if self._failure is not None:
            raise self._failure
        if not isinstance(given, Append) or given.lease[:2] != lease[:2]:
            raise UsageError(
                f"The work of a transaction gave back {shown(given)}.",
                advice="Return an `Append` under the lease that `transact` was given.",
            )
        return given

    @abstractmethod
    def _run(self, sql: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        """Run one statement in the open transaction."""

    @abstractmethod
    def _named(self, error: Exception, sql: str) -> HoldfastError:
        """What an error of a statement is called: a fault of the statement or of the store."""


def refused(sql: object, problem: object, advice: str = "") -> BadInput:
    """The database refuses a statement of the user's, and says why."""
    sentence = f"The statement {shown(sql)} was refused by the database: {str(problem).rstrip('.')}."
    return BadInput(sentence, advice=advice or "Nothing was written. Correct the statement or its values.")


def nested() -> UsageError:
    return UsageError(
        "The store was asked to write inside of a transaction that it had lent.",
        advice="Write before or after `transact`; inside of its work use the Sql that it was given.",
    )

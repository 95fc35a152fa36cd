"""What was found out about the last few texts, so that nothing is found out twice about the same characters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

T = TypeVar("T")
_MEMORIES: list[Memory[Any]] = []
_KEPT = 12  # texts: the files of a spec, and one of them while it is changed step by step


class Memory(Generic[T]):
    """A function of a text. It is also given what is known of other texts, the newest first, to go on from there.

    Several threads may use it: each replaces the whole, and what one of them forgets of another is found out once more.
    """

    def __init__(self, make: Callable[[str, Sequence[tuple[str, T]]], T]) -> None:
        self._make = make
        _MEMORIES.append(self)
        self._known: tuple[tuple[str, T], ...] = ()

    def __call__(self, text: str) -> T:
        known = self._known
        pair = next((one for one in known if one[0] == text), None) or (text, self._make(text, known))
        self._known = (pair, *(one for one in known if one is not pair))[:_KEPT]
        return pair[1]

    def forget(self) -> None:
        self._known = ()


def forget() -> None:
    """Everything, so that the next text is as if it were the first."""
    for memory in _MEMORIES:
        memory.forget()

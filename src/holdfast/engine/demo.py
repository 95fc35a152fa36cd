"""The scripted run of the demo: a plan of steps, most of them with an effect on a real file. Kills nothing, counts nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

from holdfast.core.values import Answer
from holdfast.engine.runner import Effect, Step

MISSION = "demo"
PURE_EVERY = 5  # every fifth step only computes
CUES_OF_EFFECT, CUES_OF_PURE = 5, 3  # lines a child says per step: what it acknowledged, and how far it came


class Sight(Protocol):
    """What a look found."""

    @property
    def found(self) -> Literal["done", "not_done", "unknown"]: ...
    @property
    def evidence(self) -> str: ...
    @property
    def receipt(self) -> dict[str, int] | None: ...


class Book(Protocol):
    """The file that the effects write to."""

    def append(self, key: str) -> dict[str, int]:
        """Write one line for the key."""

    def look(self, key: str) -> Sight:
        """Say whether it is there."""


def plan_of(count: int) -> tuple[str, ...]:
    return tuple(f"step-{number:03d}" for number in range(1, count + 1))


def is_pure(step_id: str) -> bool:
    return int(step_id.rpartition("-")[2]) % PURE_EVERY == 0


def key_of(step_id: str) -> str:
    return f"line-of-{step_id}"


def keys_of(count: int) -> tuple[str, ...]:
    """The key of every effect that the plan asks for."""
    return tuple(key_of(step_id) for step_id in plan_of(count) if not is_pure(step_id))


def cues_of(count: int) -> int:
    """How many lines a run that nobody kills says, at the least."""
    return sum(CUES_OF_PURE if is_pure(step_id) else CUES_OF_EFFECT for step_id in plan_of(count))


def script(
    count: int, book: Book, executed: Callable[[str], None], moment: Callable[[str], None], lying: bool = False
) -> dict[str, Step]:
    """The steps. `executed` is told of every real execution; `lying` plants a probe that always says not done."""

    def effect(step_id: str) -> Effect:
        def act(key: str) -> dict[str, int]:
            executed(step_id)
            return book.append(key)

        def probe(key: str) -> Answer:
            sight = book.look(key)
            return Answer("not_done", "a lie") if lying else Answer(sight.found, sight.evidence, sight.receipt)

        return Effect(key_of(step_id), act, "probed", probe)

    def pure(step_id: str) -> Callable[[], str]:
        def work() -> str:
            executed(step_id)
            moment("computing")
            return step_id.upper()

        return work

    return {step_id: pure(step_id) if is_pure(step_id) else effect(step_id) for step_id in plan_of(count)}

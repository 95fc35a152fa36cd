"""How much a gate lets pass, and who decides it. Every run has one, so this loads nothing else."""

from __future__ import annotations

from enum import StrEnum

from holdfast.core.errors import UsageError, shown


class Strictness(StrEnum):
    """How much a gate lets pass: everything, what does not matter, nothing."""

    OFF = "off"
    MEDIUM = "medium"
    MAX = "max"


def effective_strictness(
    call: str | None = None, step: str | None = None, mission: str | None = None, config: str | None = None
) -> Strictness:
    """The nearest one that is given: of the call, the step, the mission, the configuration; else medium."""
    for level, value in (("call", call), ("step", step), ("mission", mission), ("config", config)):
        if value is not None:
            return _of_level(level, value)
    return Strictness.MEDIUM


def _of_level(level: str, value: str) -> Strictness:
    try:
        return Strictness(value)
    except ValueError:
        raise UsageError(f"The strictness of the {level} {must_be(value)}.") from None


def must_be(value: object) -> str:
    return f"must be off, medium or max, not {shown(value, 40)}"

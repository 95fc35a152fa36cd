"""The facts a log can hold. Each class is one event; its wire tag is its name in snake_case. No rules here, only shapes.

An event is for ever: a change of its fields is a new `version`, and `core/wire.py` lifts the old ones.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import holdfast.core.lean  # noqa: F401 - before msgspec, so that it loads without what it does not need

import msgspec  # isort: skip

SettledAs = Literal["done", "not_done", "unknown", "abandoned"]
Policy = Literal["pure", "read", "idempotent", "keyed", "transactional", "probed", "once"]


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """A fact, past tense, appended once."""

    version: ClassVar[int] = 1
    data_fields: ClassVar[tuple[str, ...]] = ()


class RunStarted(Event, frozen=True):
    mission_id: str
    title: str = ""
    plan: tuple[str, ...] = ()
    input_hash: str | None = None


class RunResumed(Event, frozen=True):
    source: str = "log"
    epoch: int = 0
    was: str = ""


class RunStopped(Event, frozen=True):
    reason: str
    diagnosis: str = ""
    evidence: tuple[str, ...] = ()


class RunFinished(Event, frozen=True):
    outcome: str = "complete"


class StepStarted(Event, frozen=True):
    step_id: str
    attempt: int = 1
    phase: str | None = None
    input_hash: str | None = None


class StepFinished(Event, frozen=True):
    data_fields: ClassVar[tuple[str, ...]] = ("output",)

    step_id: str
    attempt: int = 1
    output: Any = None
    artifact: str | None = None


class StepFailed(Event, frozen=True):
    step_id: str
    attempt: int = 1
    error: str = ""


class EffectStarted(Event, frozen=True):
    effect_key: str
    step_id: str
    policy: Policy = "once"
    arguments_hash: str = ""


class EffectFinished(Event, frozen=True):
    data_fields: ClassVar[tuple[str, ...]] = ("receipt",)

    effect_key: str
    receipt: Any = None


class EffectFailed(Event, frozen=True):
    effect_key: str
    error: str = ""


class EffectSettled(Event, frozen=True):
    effect_key: str
    settled_as: SettledAs
    evidence: str = ""
    by: str = "probe"


class CheckpointComplete(Event, frozen=True):
    """Up to here everything is recorded. `sidecar_written` came with version 2; before that it is unknown."""

    version: ClassVar[int] = 2

    checkpoint_id: str
    step_id: str | None = None
    cursor: str | None = None
    sidecar_written: bool | None = None


class NoteRecorded(Event, frozen=True):
    text: str
    author: str = ""


class Extension(Event, frozen=True):
    """An event of a kind that begins with `x_`: kept, shown, exported, and without meaning for the state."""

    data_fields: ClassVar[tuple[str, ...]] = ("data",)

    kind: str
    data: dict[str, Any]
    tagged: int = 1


def snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


EVENTS: tuple[type[Event], ...] = (
    RunStarted,
    RunResumed,
    RunStopped,
    RunFinished,
    StepStarted,
    StepFinished,
    StepFailed,
    EffectStarted,
    EffectFinished,
    EffectFailed,
    EffectSettled,
    CheckpointComplete,
    NoteRecorded,
)
KINDS: dict[str, type[Event]] = {snake(event.__name__): event for event in EVENTS}
KIND_OF: dict[type[Event], str] = {event: kind for kind, event in KINDS.items()}

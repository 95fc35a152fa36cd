"""What a log means. `evolve` applies one event, `fold` applies them all. Refuses an event that cannot follow.

`evolve` decides before it changes anything, so a refused event leaves the state as it was. It changes the state it is
given and returns it: a run of 100,000 events must not copy 100,000 steps at each one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from holdfast.core.errors import BadFile, IllegalEvent, NewerSchema
from holdfast.core.events import KIND_OF, Event
from holdfast.core.rules import LEGAL, RULES
from holdfast.core.sha import hexdigest
from holdfast.core.shapes import (
    FINISHED,
    FREE,
    LEGACY,
    OPEN,
    READY,
    RUNNING,
    SCHEMA_VERSION,
    STATUSES,
    STOPPED,
    EffectState,
    RunState,
    StepState,
)
from holdfast.core.values import Projection

__all__ = [
    "FINISHED",
    "FREE",
    "LEGACY",
    "LEGAL",
    "OPEN",
    "READY",
    "RUNNING",
    "SCHEMA_VERSION",
    "STATUSES",
    "STOPPED",
    "EffectState",
    "RunState",
    "StepState",
    "evolve",
    "fold",
    "projection",
    "read_snapshot",
    "seal",
    "snapshot",
    "unseal",
]


def fold(events: Iterable[Event], state: RunState | None = None) -> RunState:
    state = RunState() if state is None else state
    for event in events:
        evolve(state, event)
    return state


def evolve(state: RunState, event: Event) -> RunState:
    """Apply one event, or raise IllegalEvent and leave the state alone."""
    kind = type(event)
    legal, apply = RULES[kind]
    after = legal.get(state.status, READY)
    if after is READY:
        raise IllegalEvent(KIND_OF.get(kind, kind.__name__), f"the run is {state.status}")
    apply(state, event)
    if after is not None:
        state.status = after
    state.seq += 1
    return state


_tuple = tuple.__new__  # what a NamedTuple does in the end, without its frame


def projection(state: RunState) -> Projection:
    shown = (state.mission_id, state.title, state.status, state.stop_reason)
    return _tuple(Projection, (*shown, state.steps_done, len(state.steps_open), len(state.effects_open)))


def snapshot(state: RunState) -> bytes:
    return msgspec.json.encode(state)


def seal(state: RunState, head: bytes) -> bytes:
    """A snapshot bound to the event it stands at: a line with its hash, then the JSON."""
    data = snapshot(state)
    return _seal_of(data, head) + b"\n" + data


def unseal(sealed: bytes, head: bytes) -> RunState:
    """The state of a sealed snapshot. Refuses one that was changed or belongs to another event."""
    line, _, data = sealed.partition(b"\n")
    if line != _seal_of(data, head):
        raise BadFile("The snapshot", None, "its seal does not hold: it was changed, or belongs to another log")
    return read_snapshot(data)


def _seal_of(data: bytes, head: bytes) -> bytes:
    return hexdigest(b"holdfast/snapshot/1\n" + head + data).encode()


def read_snapshot(data: bytes, path: str = "The snapshot") -> RunState:
    """A state from its JSON. No version means legacy; a newer major version is refused, a newer minor one is read."""
    try:
        raw = msgspec.json.decode(data, type=dict[str, Any])
        version = raw.setdefault("schema_version", LEGACY)
        major = int(str(version).split(".")[0])
        if major > int(SCHEMA_VERSION.split(".")[0]):
            raise NewerSchema(path, str(version), SCHEMA_VERSION)
        state = msgspec.convert(raw, RunState)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as problem:
        raise BadFile(path, None, f"it is no run state: {problem}") from None
    if not (state.steps_open.keys() <= state.steps.keys() and state.effects_open.keys() <= state.effects.keys()):
        raise BadFile(path, None, "it is no run state: it calls a step or an effect open that it does not know")
    return state

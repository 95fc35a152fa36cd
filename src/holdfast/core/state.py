"""What a log means. `evolve` applies one event, `fold` applies them all. Refuses an event that cannot follow.

`evolve` decides before it changes anything, so a refused event leaves the state as it was. It changes the state it is
given and returns it: a run of 100,000 events must not copy 100,000 steps at each one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from holdfast.core.errors import BadFile, IllegalEvent, NewerSchema
from holdfast.core.events import (
    KIND_OF,
    CheckpointComplete,
    EffectFailed,
    EffectFinished,
    EffectSettled,
    EffectStarted,
    Event,
    Extension,
    NoteRecorded,
    Policy,
    RunFinished,
    RunResumed,
    RunStarted,
    RunStopped,
    StepFailed,
    StepFinished,
    StepStarted,
)
from holdfast.core.values import Projection

SCHEMA_VERSION = "1.0.0"
LEGACY = "0.0.0"

READY, RUNNING, STOPPED, FINISHED = "ready", "running", "stopped", "finished"
STATUSES = (READY, RUNNING, STOPPED, FINISHED)

# Which events may follow in which status, and the status after it (None: as it was).
LEGAL: dict[type[Event], dict[str, str | None]] = {
    RunStarted: {READY: RUNNING},
    RunResumed: {RUNNING: None, STOPPED: RUNNING},
    RunStopped: {RUNNING: STOPPED},
    RunFinished: {RUNNING: FINISHED},
    StepStarted: {RUNNING: None},
    StepFinished: {RUNNING: None},
    StepFailed: {RUNNING: None},
    EffectStarted: {RUNNING: None},
    EffectFinished: {RUNNING: None},
    EffectFailed: {RUNNING: None},
    EffectSettled: {RUNNING: None, STOPPED: None},
    CheckpointComplete: {RUNNING: None},
    NoteRecorded: {RUNNING: None, STOPPED: None, FINISHED: None},
    Extension: {RUNNING: None, STOPPED: None, FINISHED: None},
}

# Effect states that leave the key free to be started again, and those that are still open.
FREE = frozenset({"failed", "not_done"})
OPEN = frozenset({"started", "unknown"})


class StepState(msgspec.Struct, gc=False):
    status: str = "started"
    attempt: int = 1
    phase: str | None = None
    input_hash: str | None = None
    output: Any = None
    artifact: str | None = None
    error: str | None = None


class EffectState(msgspec.Struct, gc=False):
    status: str
    step_id: str
    policy: Policy = "once"
    arguments_hash: str = ""
    receipt: Any = None
    evidence: str = ""


class RunState(msgspec.Struct, omit_defaults=False):
    """The fold of one log. Also its snapshot, as JSON; a snapshot without a version is legacy and readable."""

    schema_version: str = SCHEMA_VERSION
    run_id: str = ""
    mission_id: str = ""
    title: str = ""
    status: str = READY
    seq: int = 0
    plan: tuple[str, ...] = ()
    input_hash: str | None = None
    steps: dict[str, StepState] = {}
    steps_done: int = 0
    steps_open: dict[str, int] = {}
    effects: dict[str, EffectState] = {}
    effects_open: dict[str, str] = {}
    checkpoint_id: str | None = None
    cursor: str | None = None
    stop_reason: str | None = None
    diagnosis: str = ""
    resumes: int = 0
    notes: int = 0


def fold(events: Iterable[Event], state: RunState | None = None) -> RunState:
    state = RunState() if state is None else state
    for event in events:
        evolve(state, event)
    return state


def evolve(state: RunState, event: Event) -> RunState:
    """Apply one event, or raise IllegalEvent and leave the state alone."""
    kind = type(event)
    after = LEGAL[kind].get(state.status, READY)
    if after is READY:
        raise IllegalEvent(KIND_OF.get(kind, kind.__name__), f"the run is {state.status}")
    _APPLY[kind](state, event)
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
    return hashlib.sha256(b"holdfast/snapshot/1\n" + head + data).hexdigest().encode()


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


def _refuse(event: Event, problem: str) -> IllegalEvent:
    return IllegalEvent(KIND_OF[type(event)], problem)


def _run_started(state: RunState, event: RunStarted) -> None:
    state.mission_id = event.mission_id
    state.title = event.title
    state.plan = event.plan
    state.input_hash = event.input_hash


def _run_resumed(state: RunState, event: RunResumed) -> None:
    state.resumes += 1
    state.stop_reason = None
    state.diagnosis = ""


def _run_stopped(state: RunState, event: RunStopped) -> None:
    state.stop_reason = event.reason
    state.diagnosis = event.diagnosis


def _run_finished(state: RunState, event: RunFinished) -> None:
    if state.steps_open or state.effects_open:
        still = ", ".join([*state.steps_open, *state.effects_open][:5])
        raise _refuse(event, f"these are still open: {still}")


def _step_started(state: RunState, event: StepStarted) -> None:
    step = state.steps.get(event.step_id)
    if step is not None and step.status == "finished":
        raise _refuse(event, f"step {event.step_id} is already finished")
    expected = 1 if step is None else step.attempt + 1
    if event.attempt != expected:
        raise _refuse(event, f"step {event.step_id} comes to attempt {expected}, not {event.attempt}")
    state.steps[event.step_id] = StepState("started", event.attempt, event.phase, event.input_hash)
    state.steps_open[event.step_id] = event.attempt


def _open_step(state: RunState, event: StepFinished | StepFailed) -> StepState:
    if state.steps_open.get(event.step_id) != event.attempt:
        raise _refuse(event, f"attempt {event.attempt} of step {event.step_id} is not open")
    return state.steps[event.step_id]


def _step_finished(state: RunState, event: StepFinished) -> None:
    step = _open_step(state, event)
    step.status, step.output, step.artifact = "finished", event.output, event.artifact
    del state.steps_open[event.step_id]
    state.steps_done += 1


def _step_failed(state: RunState, event: StepFailed) -> None:
    step = _open_step(state, event)
    step.status, step.error = "failed", event.error
    del state.steps_open[event.step_id]


def _effect_started(state: RunState, event: EffectStarted) -> None:
    effect = state.effects.get(event.effect_key)
    if effect is not None:
        if effect.arguments_hash != event.arguments_hash:
            raise _refuse(event, f"key {event.effect_key} was used with other arguments")
        if effect.status not in FREE:
            raise _refuse(event, f"effect {event.effect_key} is {effect.status}")
    state.effects[event.effect_key] = EffectState("started", event.step_id, event.policy, event.arguments_hash)
    state.effects_open[event.effect_key] = "started"


def _open_effect(state: RunState, event: EffectFinished | EffectFailed | EffectSettled) -> EffectState:
    if event.effect_key not in state.effects_open:
        raise _refuse(event, f"effect {event.effect_key} is not open")
    return state.effects[event.effect_key]


def _effect_finished(state: RunState, event: EffectFinished) -> None:
    effect = _open_effect(state, event)
    effect.status, effect.receipt = "done", event.receipt
    del state.effects_open[event.effect_key]


def _effect_failed(state: RunState, event: EffectFailed) -> None:
    effect = _open_effect(state, event)
    effect.status, effect.evidence = "failed", event.error
    del state.effects_open[event.effect_key]


def _effect_settled(state: RunState, event: EffectSettled) -> None:
    effect = _open_effect(state, event)
    effect.status, effect.evidence = event.settled_as, event.evidence
    if event.settled_as in OPEN:
        state.effects_open[event.effect_key] = event.settled_as
    else:
        del state.effects_open[event.effect_key]


def _checkpoint_complete(state: RunState, event: CheckpointComplete) -> None:
    state.checkpoint_id = event.checkpoint_id
    state.cursor = event.cursor


def _note_recorded(state: RunState, event: NoteRecorded) -> None:
    state.notes += 1


def _extension(state: RunState, event: Extension) -> None:
    return None


_APPLY: dict[type[Event], Callable[[RunState, Any], None]] = {
    RunStarted: _run_started,
    RunResumed: _run_resumed,
    RunStopped: _run_stopped,
    RunFinished: _run_finished,
    StepStarted: _step_started,
    StepFinished: _step_finished,
    StepFailed: _step_failed,
    EffectStarted: _effect_started,
    EffectFinished: _effect_finished,
    EffectFailed: _effect_failed,
    EffectSettled: _effect_settled,
    CheckpointComplete: _checkpoint_complete,
    NoteRecorded: _note_recorded,
    Extension: _extension,
}

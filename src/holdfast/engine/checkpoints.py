"""Checkpoints of steps: recorded at a gate, under 1 KB, and found by sequence. Refuses to skip one it cannot use.

The inputs are redacted, hashed and kept as an artifact; the hash is its name. A gate that blocks a resumed step keeps the
token it was given. If no checkpoint can be written the gate stays closed all the same, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from holdfast.core.canonical import canonical, digest
from holdfast.core.checkpoint import (
    MAX_BODY_BYTES,
    PRE_GENERATION_GATE,
    Conflict,
    ScopeRef,
    StepCheckpoint,
    blocks,
    from_event,
    is_small,
    read_time,
    to_event,
)
from holdfast.core.errors import HoldfastError, LeaseError, UsageError, shown
from holdfast.core.events import Event, GateBlocked, StepCheckpointed
from holdfast.core.inputs import canonical_inputs, utc_text
from holdfast.core.named import NamedTuple
from holdfast.core.state import RunState
from holdfast.core.stops import snippet
from holdfast.core.strictness import Strictness
from holdfast.core.wire import Redact, decode, encode_body
from holdfast.engine.log import RunLog, read_head
from holdfast.ports import Store

SHOWN_CONFLICTS = 5


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """What the stages of a pipeline hand on. `cursor` is the stage at work; `data` belongs to the stages."""

    mission_id: str
    step_id: str
    inputs: Any
    strictness: Strictness = Strictness.MEDIUM
    scope_refs: tuple[ScopeRef, ...] = ()
    cursor: str | None = None
    retry_token: str | None = None
    resumed_from_checkpoint: bool = False
    data: Any = None


class CursorUnknown(HoldfastError):
    reason = "cursor_unknown"
    advice = "Use the version of the pipeline that knows this cursor, or run the step without a token."

    def __init__(self, cursor: str, known: Collection[str]) -> None:
        super().__init__(f"The checkpoint stands at {cursor}, which is none of: {', '.join(known)}.")
        self.cursor = cursor


class BlockedByConflict(HoldfastError):
    """The gate is closed. `checkpoint` and `retry_token` are None, and `problem` says why, when it cannot be resumed."""

    reason = "awaiting_answer"

    def __init__(
        self, conflicts: Sequence[Conflict], checkpoint: StepCheckpoint | None, problem: HoldfastError | None = None
    ) -> None:
        super().__init__(closed_by(conflicts))
        self.conflicts = tuple(conflicts)
        self.checkpoint = checkpoint
        self.problem = problem
        self.resumable = checkpoint is not None
        self.retry_token = checkpoint.retry_token if checkpoint else None
        self.advice = f"Deal with the conflicts, then resume with the retry token {self.retry_token}."
        if problem is not None:
            self.reason = "checkpoint_unwritable"
            self.args = (
                f"{closed_by(conflicts)} Resume will not be possible, as no checkpoint was written: {problem}",
            )
            self.advice = f"Deal with the conflicts, then run the step again. {problem.advice}".rstrip()


def closed_by(conflicts: Sequence[Conflict]) -> str:
    named = ", ".join(snippet(conflict.name) for conflict in conflicts[:SHOWN_CONFLICTS])
    more = f" and {len(conflicts) - SHOWN_CONFLICTS} more" if len(conflicts) > SHOWN_CONFLICTS else ""
    return f"The gate is closed by {len(conflicts)} conflict(s): {named}{more}."


# --- recording


class _Draft(NamedTuple):
    """A checkpoint whose artifacts are kept and whose event is ready."""

    checkpoint: StepCheckpoint
    event: StepCheckpointed


def checkpoint(
    log: RunLog,
    *,
    step_id: str,
    cursor: str,
    inputs: Any,
    new_token: Callable[[], str],
    strictness: Strictness = Strictness.MEDIUM,
    scope_refs: Sequence[ScopeRef] = (),
    now: Callable[[], str] | None = None,
    lifetime: float | None = None,
    token: str | None = None,
) -> StepCheckpoint:
    """Record where a step stands. The redacted inputs are kept beside it; `lifetime` is seconds until its token expires.

    `token` is the one to keep: that of the checkpoint this one takes the place of.
    """
    context = Context(
        mission_id=log.state.mission_id,
        step_id=step_id,
        inputs=inputs,
        strictness=strictness,
        scope_refs=tuple(scope_refs),
        retry_token=token,
    )
    draft = _draft(log, context, cursor, new_token, now, lifetime)
    log.record(draft.event)
    return draft.checkpoint


def _draft(
    log: RunLog,
    context: Context,
    cursor: str,
    new_token: Callable[[], str],
    now: Callable[[], str] | None,
    lifetime: float | None,
) -> _Draft:
    body = redacted_inputs(log, context.inputs)
    made = StepCheckpoint(
        mission_id=context.mission_id,
        run_id=log.run_id,
        step_id=context.step_id,
        strictness=context.strictness,
        scope_refs=context.scope_refs,
        input_hash=digest(body),
        cursor=cursor,
        retry_token=context.retry_token or new_token(),
        timestamp=time_of(log, now),
    )
    expires_at = None if lifetime is None else _after(made.timestamp, lifetime)
    event = to_event(made, new_id(log, made.retry_token), made.input_hash, expires_at)
    return _Draft(made, _keep(log, event, body))


def _keep(log: RunLog, event: StepCheckpointed, body: bytes) -> StepCheckpointed:
    """The event, small enough, with its artifacts in the store. The hash of the inputs is the name of their artifact."""
    refs = canonical([list(ref) for ref in event.scope_refs])
    bare = msgspec.structs.replace(event, scope_refs=())
    check_survives(log.redact, encode_body(bare), refs)
    log.store.put_artifact(body)
    if len(refs) < MAX_BODY_BYTES and is_small(event):
        return event
    return msgspec.structs.replace(bare, refs=log.store.put_artifact(refs))


def redacted_inputs(log: RunLog, inputs: Any) -> bytes:
    """What is hashed and kept of inputs: their canonical form, without secrets."""
    return log.redact.body(canonical_inputs(inputs))


def check_survives(redact: Redact, *bodies: bytes) -> None:
    """A checkpoint that redaction would change could not be found again."""
    if any(redact.body(body) != body for body in bodies):
        raise UsageError(
            "The name of the mission or step, or the version of a scope, holds a secret.", advice="Use another name."
        )


def new_id(log: RunLog, token: str) -> str:
    """Its own, though a token may be kept from one checkpoint to the next."""
    return digest(f"{log.run_id}\n{log.state.seq}\n{token}".encode())[:32]


def time_of(log: RunLog, now: Callable[[], str] | None) -> datetime:
    return read_time((now or log.world.now)(), "timestamp")


def _after(time: datetime, lifetime: float) -> str:
    try:
        until = time + timedelta(seconds=lifetime)
    except (OverflowError, TypeError, ValueError):
        until = time
    if until <= time:
        raise UsageError(f"A token cannot live for {shown(lifetime, 40)} seconds.", advice="Give a number above 0.")
    return utc_text(until)


# --- the gate


def gate(
    log: RunLog,
    conflicts: Sequence[Conflict],
    context: Context,
    *,
    new_token: Callable[[], str],
    now: Callable[[], str] | None = None,
    lifetime: float | None = None,
) -> None:
    """Let the step pass, or record where it stands and raise BlockedByConflict.

    The checkpoint and the block are one append, in this order. If it fails the gate stays closed and cannot be resumed.
    """
    check_mission(log.state, context)
    for conflict in conflicts:
        if not isinstance(conflict, Conflict):
            raise UsageError(
                f"A conflict at a gate is a holdfast.Conflict, not {shown(conflict)}.",
                advice="Write Conflict(name, severity).",
            )
    if not blocks(context.strictness, [conflict.severity for conflict in conflicts]):
        return
    draft: _Draft | None = None
    try:
        draft = _draft(log, context, context.cursor or PRE_GENERATION_GATE, new_token, now, lifetime)
        log.record(draft.event, _blocked(context, conflicts, draft.event.checkpoint_id))
    except LeaseError:
        raise
    except HoldfastError as problem:
        if draft is None or not _is_written(log, draft.event):
            _record_if_possible(log, _blocked(context, conflicts, None))
            raise BlockedByConflict(conflicts, None, problem) from problem
    raise BlockedByConflict(conflicts, draft.checkpoint)


def check_mission(state: RunState, context: Context) -> None:
    if context.mission_id != state.mission_id:
        told = f"Run {state.run_id} belongs to mission {state.mission_id!r:.80}, not {context.mission_id!r:.80}."
        raise UsageError(told)


def _blocked(context: Context, conflicts: Sequence[Conflict], checkpoint_id: str | None) -> GateBlocked:
    return GateBlocked(
        step_id=context.step_id,
        strictness=str(context.strictness),
        conflicts=len(conflicts),
        checkpoint_id=checkpoint_id,
        resumable=checkpoint_id is not None,
    )


def _is_written(log: RunLog, event: StepCheckpointed) -> bool:
    """An append whose answer was lost may have been done: the log says."""
    try:
        known = log.state.checkpoints.get(event.step_id)
    except HoldfastError:
        return False
    return known is not None and known.checkpoint_id == event.checkpoint_id


def _record_if_possible(log: RunLog, event: Event) -> None:
    """The block is raised in any case, and says what went wrong; a record of it is a bonus."""
    try:
        log.record(event)
    except HoldfastError:
        return


# --- loading


def load_latest(
    store: Store, run_id: str, mission_id: str, step_id: str, *, cursors: Collection[str] | None = None
) -> StepCheckpoint | None:
    """The last checkpoint of this step in this run of this mission, by sequence. One we cannot use is refused, not skipped.

    With `cursors`, a cursor that is none of them raises CursorUnknown.
    """
    state, _, _ = read_head(store, run_id)
    event = event_of(store, state, step_id)
    if event is None or {event.mission_id, state.mission_id} != {mission_id}:
        return None
    if cursors is not None and event.cursor not in cursors:
        raise CursorUnknown(event.cursor, cursors)
    return loaded(store, run_id, event)


def event_of(store: Store, state: RunState, step_id: str) -> StepCheckpointed | None:
    known = state.checkpoints.get(step_id)
    record = next(store.read(state.run_id, after=known.seq - 1, limit=1), None) if known else None
    event = decode(record) if record else None
    return event if isinstance(event, StepCheckpointed) else None


def is_expired(log: RunLog, event: StepCheckpointed, now: Callable[[], str] | None = None) -> bool:
    """Whether its token counts no more. A clock decides that, and nothing else."""
    return event.expires_at is not None and time_of(log, now) >= read_time(event.expires_at, "expires_at")


def loaded(store: Store, run_id: str, event: StepCheckpointed) -> StepCheckpoint:
    refs = event.scope_refs if event.refs is None else msgspec.json.decode(store.get_artifact(event.refs))
    return from_event(event, run_id, refs)

"""Resumes a pipeline from the cursor of a checkpoint, for whoever has its retry token. Refuses to guess or to do it twice.

A token is used up when the work it resumed has come to its end, not when it begins: a crash in between loses nothing.
Until then the lease decides which process may use it, and within that process it is in use by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from weakref import WeakKeyDictionary

import msgspec

from holdfast.core.canonical import digest
from holdfast.core.checkpoint import is_token
from holdfast.core.errors import HoldfastError, NotFound, UsageError, shown
from holdfast.core.events import CheckpointResumed, RunResumed, StepCheckpointed
from holdfast.core.ids import is_kind
from holdfast.core.inputs import Difference, compute_input_diff, short_hash, utc_text
from holdfast.core.state import FINISHED, READY, RUNNING, STOPPED, RunState
from holdfast.core.stops import is_resumable
from holdfast.core.wire import decode, encode_body
from holdfast.engine.checkpoints import (
    BlockedByConflict,
    Context,
    CursorUnknown,
    check_mission,
    checkpoint,
    event_of,
    gate,
    is_expired,
    load_latest,
    loaded,
    new_id,
    redacted_inputs,
    time_of,
)
from holdfast.engine.log import RunLog

__all__ = [
    "BlockedByConflict",
    "Context",
    "CursorUnknown",
    "InputChanged",
    "NotResumable",
    "ResumeMiddleware",
    "TokenRefused",
    "checkpoint",
    "gate",
    "load_latest",
]

SHOWN_CHANGES = 5
_IN_USE: WeakKeyDictionary[RunLog, list[str]] = WeakKeyDictionary()
_TURN = Lock()

Stage = Callable[[Context], Context]
Confirm = Callable[[Difference], bool]


class TokenRefused(HoldfastError):
    """`why` is a key of REFUSALS."""

    reason = "token_refused"
    advice = "Use the token of the latest block of this step, or run the step without a token."

    def __init__(self, token: object, why: str) -> None:
        advice = "Wait for its end: the work is done by that." if why == "in_use" else None
        super().__init__(f"The retry token {shown(token, 50)} {REFUSALS[why]}.", advice=advice)
        self.why = why


REFUSALS = {
    "shape": "is none: a token is 36 characters of the shape 8-4-4-4-12, in hex",
    "mission": "was given for another mission than that of this run",
    "run": "was not issued by this run",
    "step": "belongs to another step of this run",
    "superseded": "counts no more: this step has a newer checkpoint",
    "finished": "is of no use: its step is finished",
    "used": "was used before",
    "in_use": "is in use: the work that it resumes is going on in this process",
    "expired": "has expired",
    "secret": "is also the value of something that is kept secret here, so its use could not be recorded",
}


class InputChanged(HoldfastError):
    reason = "input_changed"
    advice = "Put the inputs back, or accept the change. Nothing was written."

    def __init__(self, difference: Difference) -> None:
        hashes = f"{difference.old_hash} -> {difference.new_hash}"
        told = "; ".join(difference.lines(SHOWN_CHANGES))
        super().__init__(f"The inputs are not those of the checkpoint ({hashes}): {told}.")
        self.difference = difference


class NotResumable(HoldfastError):
    reason = "not_resumable"


def decline(difference: Difference) -> bool:
    """Nobody is there to ask: No."""
    return False


class ResumeMiddleware:
    """Runs the stages of a pipeline in order; with a retry token, from the checkpoint's cursor on.

    The name of a stage is the cursor that stands before it. `confirm` is asked when the inputs have changed.
    """

    def __init__(
        self,
        log: RunLog,
        stages: Mapping[str, Stage],
        confirm: Confirm = decline,
        *,
        now: Callable[[], str] | None = None,
    ) -> None:
        check_stages(stages)
        self.log = log
        self.stages = stages
        self._confirm = confirm
        self._now = now

    def run(self, context: Context, token: str | None = None) -> Context:
        """The context after the last stage. No token, or an empty one, is a fresh run."""
        check_open(self.log.state)
        if not token:
            check_mission(self.log.state, context)
            self._wake()
            fresh = msgspec.structs.replace(context, cursor=None, retry_token=None, resumed_from_checkpoint=False)
            return self._run_stages(tuple(self.stages), fresh)
        with _in_use(self.log, token):
            return self._resume(context, token)

    def _resume(self, context: Context, token: str) -> Context:
        event = self._find(context, token)
        difference = self._compare(event, context)
        if difference is not None and self._confirm(difference) is not True:
            raise InputChanged(difference)
        restored = self._restored(event, context)
        self._wake()
        if difference is not None:
            self._accept(event, context)
        names = tuple(self.stages)
        result = self._run_stages(names[names.index(event.cursor) :], restored)
        self._use_up(context.step_id, token, accepted=difference is not None)
        return result

    # --- before anything is written

    def _find(self, context: Context, token: str) -> StepCheckpointed:
        """The checkpoint that the token asks for, or the reason why not."""
        why = refusal(self.log.state, context, token)
        if why == "run" and self._was_issued(context.step_id, token):
            why = "superseded"
        event = None if why else event_of(self.log.store, self.log.state, context.step_id)
        why = self._refusal_now(event) if event else why or "run"
        if why is not None or event is None:
            raise TokenRefused(token, why or "run")
        if event.cursor not in self.stages:
            raise CursorUnknown(event.cursor, tuple(self.stages))
        return event

    def _refusal_now(self, event: StepCheckpointed) -> str | None:
        if is_expired(self.log, event, self._now):
            return "expired"
        body = encode_body(CheckpointResumed(checkpoint_id=event.checkpoint_id, retry_token=event.retry_token))
        return None if self.log.redact.body(body) == body else "secret"

    def _was_issued(self, step_id: str, token: str) -> bool:
        events = map(decode, self.log.store.read(self.log.run_id))
        issued = (event for event in events if isinstance(event, StepCheckpointed) and event.step_id == step_id)
        return any(event.retry_token == token for event in issued)

    def _compare(self, event: StepCheckpointed, context: Context) -> Difference | None:
        body = redacted_inputs(self.log, context.inputs)
        new_hash = digest(body)
        if new_hash == event.input_hash:
            return None
        old = self._old_inputs(event)
        changes = None if old is None else compute_input_diff(msgspec.json.decode(old), msgspec.json.decode(body))
        return Difference(short_hash(event.input_hash), short_hash(new_hash), changes)

    def _old_inputs(self, event: StepCheckpointed) -> bytes | None:
        try:
            return None if event.inputs is None else self.log.store.get_artifact(event.inputs)
        except NotFound:
            return None

    # --- then

    def _wake(self) -> None:
        state = self.log.state
        if state.status == STOPPED:
            self.log.record(RunResumed(epoch=self.log.lease.epoch, was=state.stop_reason or state.status))

    def _accept(self, event: StepCheckpointed, context: Context) -> None:
        """The inputs that were accepted are on record before anything is done with them; place and token stay."""
        body = redacted_inputs(self.log, context.inputs)
        accepted = msgspec.structs.replace(
            event,
            checkpoint_id=new_id(self.log, event.retry_token),
            input_hash=digest(body),
            inputs=self.log.store.put_artifact(body),
            timestamp=utc_text(time_of(self.log, self._now)),
        )
        self.log.record(accepted)

    def _restored(self, event: StepCheckpointed, context: Context) -> Context:
        found = loaded(self.log.store, self.log.run_id, event)
        return msgspec.structs.replace(
            context,
            strictness=found.strictness,
            scope_refs=found.scope_refs,
            cursor=found.cursor,
            retry_token=found.retry_token,
            resumed_from_checkpoint=True,
        )

    def _run_stages(self, names: Sequence[str], context: Context) -> Context:
        for name in names:
            self.log.renew()  # a process that lost the run must not begin another stage
            after = self.stages[name](msgspec.structs.replace(context, cursor=name))
            if not isinstance(after, Context):
                raise UsageError(f"The stage {name} returned a {type(after).__name__}, not the context.")
            context = after
        return context

    def _use_up(self, step_id: str, token: str, *, accepted: bool) -> None:
        """Unless a stage has put another checkpoint, with a token of its own, in the place of this one."""
        state = self.log.state
        known = state.checkpoints.get(step_id)
        if state.status == RUNNING and known is not None and known.retry_token == token and not known.used:
            used = CheckpointResumed(checkpoint_id=known.checkpoint_id, retry_token=token, accepted=accepted)
            self.log.record(used)


@contextmanager
def _in_use(log: RunLog, token: str) -> Iterator[None]:
    """While a token resumes its work, no other thread resumes the same with it."""
    with _TURN:
        tokens = _IN_USE.setdefault(log, [])
        if token in tokens:
            raise TokenRefused(token, "in_use")
        tokens.append(token)
    try:
        yield
    finally:
        with _TURN:
            tokens.remove(token)


def check_stages(stages: Mapping[str, Stage]) -> None:
    """A stage whose name is no cursor could be blocked, but never resumed."""
    for name in stages:
        if not is_kind(name):
            raise UsageError(
                f"The stage {shown(name, 80)} has a name that no cursor can have.",
                advice="Use a-z, 0-9 and _, at most 64 characters, with a letter first.",
            )


def check_open(state: RunState) -> None:
    if state.status == READY:
        raise UsageError(f"Run {state.run_id} has not been started.")
    if state.status == FINISHED:
        raise NotResumable(f"Run {state.run_id} is finished; there is nothing to resume.")
    if state.status == STOPPED and not is_resumable(state.stop_reason or ""):
        raise NotResumable(
            f"Run {state.run_id} stopped for {state.stop_reason}, which is for good.",
            advice=f"`holdfast fork {state.run_id}` makes a new run of what it had done.",
        )


def refusal(state: RunState, context: Context, token: str) -> str | None:
    """Why the log refuses a token, as a key of REFUSALS, or None. Bound to the mission, the run and the step."""
    if not is_token(token):
        return "shape"
    if context.mission_id != state.mission_id:
        return "mission"
    known = state.checkpoints.get(context.step_id)
    if known is None or known.retry_token != token:
        return "step" if any(one.retry_token == token for one in state.checkpoints.values()) else "run"
    step = state.steps.get(context.step_id)
    if step is not None and step.status == "finished":
        return "finished"
    return "used" if known.used else None

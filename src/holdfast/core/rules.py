"""What each event does to a state, one function an event, and where it may stand. Decides before it changes anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.core import repo_rules
from holdfast.core.errors import IllegalEvent
from holdfast.core.events import (
    KIND_OF,
    BudgetSpent,
    CancelRequested,
    CheckpointResumed,
    DriftFound,
    EffectFailed,
    EffectFinished,
    EffectSettled,
    EffectStarted,
    Event,
    Extension,
    GateBlocked,
    NoteRecorded,
    QuestionAnswered,
    QuestionAsked,
    QuestionExpired,
    RunFinished,
    RunResumed,
    RunStarted,
    RunStopped,
    SleepEnded,
    SleepStarted,
    StepCheckpointed,
    StepFailed,
    StepFinished,
    StepStarted,
)
from holdfast.core.shapes import (
    FINISHED,
    FREE,
    OPEN,
    READY,
    RUNNING,
    STOPPED,
    CheckpointState,
    EffectState,
    QuestionState,
    RunState,
    StepState,
)

PERSON = "person"
MOST = 2**53 - 1  # beyond that JSON readers round whole numbers


def _refuse(event: Event, problem: str) -> IllegalEvent:
    return IllegalEvent(KIND_OF[type(event)], problem)


def _run_started(state: RunState, event: RunStarted) -> None:
    state.mission_id = event.mission_id
    state.title = event.title
    state.plan = event.plan
    state.input_hash = event.input_hash
    state.inputs = event.inputs
    state.strictness = event.strictness
    state.forked_from = event.forked_from


def _run_resumed(state: RunState, event: RunResumed) -> None:
    state.resumes += 1
    state.stop_reason = None
    state.diagnosis = ""


def _run_stopped(state: RunState, event: RunStopped) -> None:
    state.stop_reason = event.reason
    state.diagnosis = event.diagnosis


def _run_finished(state: RunState, event: RunFinished) -> None:
    open_checkpoint = [state.checkpoint_open] if state.checkpoint_open else []
    if state.steps_open or state.effects_open or open_checkpoint:
        still = ", ".join([*state.steps_open, *state.effects_open, *open_checkpoint][:5])
        raise _refuse(event, f"these are still open: {still}")


def _next_attempt(state: RunState, event: StepStarted | StepFinished) -> None:
    step = state.steps.get(event.step_id)
    if step is not None and step.status == "finished":
        raise _refuse(event, f"step {event.step_id} is already finished")
    expected = 1 if step is None else step.attempt + 1
    if event.attempt != expected:
        raise _refuse(event, f"step {event.step_id} comes to attempt {expected}, not {event.attempt}")


def _step_started(state: RunState, event: StepStarted) -> None:
    _next_attempt(state, event)
    state.steps[event.step_id] = StepState(
        "started",
        event.attempt,
        event.phase,
        event.input_hash,
        code_hash=event.code_hash,
        seq=state.seq + 1,
        since=event.since or state.seq,
    )
    state.steps_open[event.step_id] = event.attempt
    state.spent.attempts += 1


def _open_step(state: RunState, event: StepFinished | StepFailed) -> StepState:
    if state.steps_open.get(event.step_id) != event.attempt:
        raise _refuse(event, f"attempt {event.attempt} of step {event.step_id} is not open")
    return state.steps[event.step_id]


def _step_finished(state: RunState, event: StepFinished) -> None:
    """Most steps were not announced: their end is all that the log has of them."""
    step_id, attempt, given = event.step_id, event.attempt, event.input_hash
    if given is None or (state.steps_open and state.steps_open.get(step_id) == attempt):
        _step_ended(state, event)
        return
    if attempt != 1 or step_id in state.steps:
        _next_attempt(state, event)
    seq, output, artifact = state.seq + 1, event.output, event.artifact
    state.steps[step_id] = StepState(
        "finished", attempt, None, given, output, artifact, None, event.code_hash, None, seq, event.since, seq
    )
    if state.steps_open:
        state.steps_open.pop(step_id, None)  # an earlier attempt was announced, and its process has died
    state.steps_done += 1
    state.spent.attempts += 1


def _step_ended(state: RunState, event: StepFinished) -> None:
    step = _open_step(state, event)
    step.status, step.output, step.artifact = "finished", event.output, event.artifact
    step.since, step.ended = min(step.since, event.since or step.since), state.seq + 1
    del state.steps_open[event.step_id]
    state.steps_done += 1


def _step_failed(state: RunState, event: StepFailed) -> None:
    step = _open_step(state, event)
    step.status, step.error, step.retry_at = "failed", event.error, event.retry_at
    del state.steps_open[event.step_id]


def _effect_started(state: RunState, event: EffectStarted) -> None:
    effect = state.effects.get(event.effect_key)
    if effect is not None:
        if effect.arguments_hash != event.arguments_hash:
            raise _refuse(event, f"key {event.effect_key} was used with other arguments")
        if effect.status not in FREE:
            raise _refuse(event, f"effect {event.effect_key} is {effect.status}")
    state.effects[event.effect_key] = EffectState(
        "started", event.step_id, event.policy, event.arguments_hash, code_hash=event.code_hash, seq=state.seq + 1
    )
    state.effects_open[event.effect_key] = "started"


def _open_effect(state: RunState, event: EffectFinished | EffectFailed | EffectSettled) -> EffectState:
    if event.effect_key not in state.effects_open:
        raise _refuse(event, f"effect {event.effect_key} is not open")
    return state.effects[event.effect_key]


def _effect_finished(state: RunState, event: EffectFinished) -> None:
    effect = _open_effect(state, event)
    effect.status, effect.receipt, effect.artifact = "done", event.receipt, event.artifact
    del state.effects_open[event.effect_key]


def _effect_failed(state: RunState, event: EffectFailed) -> None:
    effect = _open_effect(state, event)
    effect.status, effect.evidence = "failed", event.error
    del state.effects_open[event.effect_key]


def _effect_settled(state: RunState, event: EffectSettled) -> None:
    """What a person says of an effect that is done puts another receipt in the place of the one on record."""
    effect = state.effects.get(event.effect_key)
    if effect is None or (effect.status, event.settled_as, event.by) != ("done", "done", PERSON):
        effect = _open_effect(state, event)
    effect.status, effect.evidence, effect.receipt = event.settled_as, event.evidence, event.receipt
    effect.artifact = None
    if event.settled_as in OPEN:
        state.effects_open[event.effect_key] = event.settled_as
    else:
        state.effects_open.pop(event.effect_key, None)


def _step_checkpointed(state: RunState, event: StepCheckpointed) -> None:
    state.checkpoints[event.step_id] = CheckpointState(
        event.checkpoint_id, event.cursor, event.input_hash, event.retry_token, event.strictness, state.seq + 1
    )
    state.checkpoint_id, state.cursor = event.checkpoint_id, event.cursor


def _checkpoint_resumed(state: RunState, event: CheckpointResumed) -> None:
    known = next((one for one in state.checkpoints.values() if one.checkpoint_id == event.checkpoint_id), None)
    if known is None or known.retry_token != event.retry_token:
        raise _refuse(event, "its retry token belongs to no checkpoint of this run that still counts")
    if known.used:
        raise _refuse(event, "its retry token was used before")
    known.used = True


def _drift_found(state: RunState, event: DriftFound) -> None:
    if event.verdict == "go" and event.drift == "arguments":
        _arguments_accepted(state, event)
    if event.verdict == "go" and event.drift == "inputs":
        state.input_hash = state.inputs = event.now


def _arguments_accepted(state: RunState, event: DriftFound) -> None:
    """They open a step again: what it gave before was for others. The answer to a question stands for what is asked now."""
    step, question = state.steps.get(event.subject), state.questions.get(event.subject)
    if step is not None and step.status == "finished":
        step.status = "reopened"
        state.steps_done -= 1
    if question is not None:
        question.accepted = event.now


def _question_asked(state: RunState, event: QuestionAsked) -> None:
    if event.question_id in state.questions:
        raise _refuse(event, f"question {event.question_id} was asked before")
    state.questions[event.question_id] = QuestionState(event.text, event.choices, event.deadline)


def _open_question(state: RunState, event: QuestionAnswered | QuestionExpired) -> QuestionState:
    question = state.questions.get(event.question_id)
    if question is None:
        raise _refuse(event, f"question {event.question_id} was never asked")
    if question.answer is not None or question.expired:
        raise _refuse(event, f"question {event.question_id} is already answered or has expired")
    return question


def _question_answered(state: RunState, event: QuestionAnswered) -> None:
    question = _open_question(state, event)
    if question.choices and event.answer not in question.choices:
        raise _refuse(event, f"the answer must be one of {', '.join(question.choices)}")
    question.answer = event.answer
    state.heard = max(state.heard, event.message_id)


def _question_expired(state: RunState, event: QuestionExpired) -> None:
    _open_question(state, event).expired = True


def _sleep_started(state: RunState, event: SleepStarted) -> None:
    if event.sleep_id in state.sleeps:
        raise _refuse(event, f"sleep {event.sleep_id} was begun before")
    state.sleeps[event.sleep_id] = event.until


def _sleep_ended(state: RunState, event: SleepEnded) -> None:
    if state.sleeps.get(event.sleep_id) is None:
        raise _refuse(event, f"sleep {event.sleep_id} is not going on")
    state.sleeps[event.sleep_id] = None


def _cancel_requested(state: RunState, event: CancelRequested) -> None:
    state.cancelling = True
    state.heard = max(state.heard, event.message_id)


def _budget_spent(state: RunState, event: BudgetSpent) -> None:
    if event.tokens < 0 or event.money < 0:
        raise _refuse(event, "what was spent cannot be less than nothing")
    tokens, money = state.spent.tokens + event.tokens, state.spent.money + event.money
    if not (tokens <= MOST and money <= MOST):
        raise _refuse(event, "what was spent is no number that a log can hold")
    state.spent.tokens, state.spent.money = tokens, money


def _nothing_more(state: RunState, event: Event) -> None:
    return None


def _note_recorded(state: RunState, event: NoteRecorded) -> None:
    state.notes += 1


APPLY: dict[type[Event], Callable[[RunState, Any], None]] = {
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
    NoteRecorded: _note_recorded,
    Extension: _nothing_more,
    StepCheckpointed: _step_checkpointed,
    GateBlocked: _nothing_more,
    CheckpointResumed: _checkpoint_resumed,
    DriftFound: _drift_found,
    QuestionAsked: _question_asked,
    QuestionAnswered: _question_answered,
    QuestionExpired: _question_expired,
    SleepStarted: _sleep_started,
    SleepEnded: _sleep_ended,
    CancelRequested: _cancel_requested,
    BudgetSpent: _budget_spent,
    **repo_rules.APPLY,
}

# Which events may follow in which status, and the status after it (None: as it was). Of what goes on in another thread
# while a run stops, the outcome is still written down.
LEGAL: dict[type[Event], dict[str, str | None]] = {
    RunStarted: {READY: RUNNING},
    RunResumed: {RUNNING: None, STOPPED: RUNNING},
    RunStopped: {RUNNING: STOPPED},
    RunFinished: {RUNNING: FINISHED},
    StepStarted: {RUNNING: None},
    StepFinished: {RUNNING: None, STOPPED: None},
    StepFailed: {RUNNING: None, STOPPED: None},
    EffectStarted: {RUNNING: None},
    EffectFinished: {RUNNING: None, STOPPED: None},
    EffectFailed: {RUNNING: None, STOPPED: None},
    EffectSettled: {RUNNING: None, STOPPED: None},
    StepCheckpointed: {RUNNING: None},
    GateBlocked: {RUNNING: None},
    CheckpointResumed: {RUNNING: None},
    DriftFound: {RUNNING: None},
    QuestionAsked: {RUNNING: None},
    QuestionAnswered: {RUNNING: None, STOPPED: None},
    QuestionExpired: {RUNNING: None},
    SleepStarted: {RUNNING: None},
    SleepEnded: {RUNNING: None},
    CancelRequested: {RUNNING: None},
    BudgetSpent: {RUNNING: None},
    NoteRecorded: {RUNNING: None, STOPPED: None, FINISHED: None},
    Extension: {RUNNING: None, STOPPED: None, FINISHED: None},
    **repo_rules.LEGAL,
}
RULES = {kind: (after, APPLY[kind]) for kind, after in LEGAL.items()}

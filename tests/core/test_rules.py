"""What each event leaves in the state, field by field, and the very words of each refusal."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.core.errors import IllegalEvent
from holdfast.core.events import (
    BudgetSpent,
    CancelRequested,
    CheckpointComplete,
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
from holdfast.core.rules import APPLY
from holdfast.core.shapes import CheckpointState, EffectState, QuestionState, RunState, Spent, StepState
from holdfast.core.state import LEGAL, evolve, fold

LATER = "2026-01-02T03:04:05Z"
START = RunStarted(
    mission_id="m", title="t", plan=("a",), input_hash="h", inputs="i", strictness="max", forked_from="f", forked_at=3
)
STEP = StepStarted(step_id="a", phase="test", input_hash="in", code_hash="co", arguments={"n": 1})
EFFECT = EffectStarted(
    effect_key="k", step_id="a", policy="keyed", arguments_hash="ah", code_hash="co", arguments={"n": 1}
)
MARK = StepCheckpointed(
    checkpoint_id="c", mission_id="m", step_id="a", strictness="max", cursor="cu", input_hash="in", retry_token="tok",
    timestamp=LATER,
)  # fmt: skip
ASKED = QuestionAsked(question_id="q", text="Well?", choices=("yes", "no"), deadline=LATER)


def after(*events: Event) -> RunState:
    return fold(events, RunState(run_id="r"))


def begun(**changed) -> RunState:
    """The state of a run that began and nothing else, with these differences."""
    state = RunState(
        run_id="r", mission_id="m", title="t", status="running", plan=("a",), input_hash="h", inputs="i",
        strictness="max", forked_from="f", seq=1,
    )  # fmt: skip
    return msgspec.structs.replace(state, **changed)


STEPPED = StepState("started", 1, "test", "in", code_hash="co", seq=2, since=1)
DONE = EffectState("started", "a", "keyed", "ah", code_hash="co", seq=2)
LEFT: dict[str, tuple[tuple[Event, ...], RunState]] = {
    "a start": ((), begun()),
    "a resume of a stopped run": (
        (RunStopped(reason="interrupted", diagnosis="d"), RunResumed()), begun(resumes=1, seq=3)),
    "two resumes": ((RunResumed(), RunResumed()), begun(resumes=2, seq=3)),
    "a stop": (
        (RunStopped(reason="interrupted", diagnosis="d"),),
        begun(status="stopped", stop_reason="interrupted", diagnosis="d", seq=2)),
    "an end": ((RunFinished(),), begun(status="finished", seq=2)),
    "a step": (
        (STEP,), begun(steps={"a": STEPPED}, steps_open={"a": 1}, spent=Spent(attempts=1), seq=2)),
    "a step that ends": (
        (STEP, StepFinished(step_id="a", output=[1], artifact="art")),
        begun(
            steps={"a": msgspec.structs.replace(STEPPED, status="finished", output=[1], artifact="art", ended=3)},
            steps_done=1, spent=Spent(attempts=1), seq=3)),
    "a step that fails": (
        (STEP, StepFailed(step_id="a", error="e", retry_at=LATER)),
        begun(
            steps={"a": msgspec.structs.replace(STEPPED, status="failed", error="e", retry_at=LATER)},
            spent=Spent(attempts=1), seq=3)),
    "a step that fails and begins again": (
        (STEP, StepFailed(step_id="a", error="e"), StepStarted(step_id="a", attempt=2)),
        begun(
            steps={"a": StepState("started", 2, seq=4, since=3)}, steps_open={"a": 2}, spent=Spent(attempts=2), seq=4)),
    "two steps that were not announced": (
        (
            StepFinished(step_id="a", output=[1], artifact="art", input_hash="in", code_hash="co"),
            StepFinished(step_id="b", input_hash="in", since=1),
        ),
        begun(
            steps={
                "a": StepState("finished", 1, None, "in", [1], "art", None, "co", None, 2, 0, 2),
                "b": StepState("finished", 1, None, "in", seq=3, since=1, ended=3),
            },
            steps_done=2, spent=Spent(attempts=2), seq=3)),
    "an announced step whose end says what it was given": (
        (STEP, StepFinished(step_id="a", input_hash="other")),
        begun(
            steps={"a": msgspec.structs.replace(STEPPED, status="finished", ended=3)},
            steps_done=1, spent=Spent(attempts=1), seq=3)),
    "a step that began before others came between": (
        (StepStarted(step_id="b"), StepStarted(step_id="a", since=1)),
        begun(
            steps={"b": StepState(seq=2, since=1), "a": StepState(seq=3, since=1)},
            steps_open={"b": 1, "a": 1}, spent=Spent(attempts=2), seq=3)),
    "a step that was not announced, while another goes on": (
        (StepStarted(step_id="b"), StepFinished(step_id="a", input_hash="in")),
        begun(
            steps={"b": StepState(seq=2, since=1), "a": StepState("finished", 1, None, "in", seq=3, ended=3)},
            steps_open={"b": 1}, steps_done=1, spent=Spent(attempts=2), seq=3)),
    "as much spent as a log holds": (
        (BudgetSpent(tokens=1, money=1.0), BudgetSpent(tokens=2**53 - 2, money=2.0**53 - 2)),
        begun(spent=Spent(tokens=2**53 - 1, money=2.0**53 - 1), seq=3)),
    "two announced steps that end": (
        (StepStarted(step_id="a"), StepStarted(step_id="b"), StepFinished(step_id="a"), StepFinished(step_id="b")),
        begun(
            steps={"a": StepState("finished", seq=2, since=1, ended=4), "b": StepState("finished", seq=3, since=2, ended=5)},
            steps_done=2, spent=Spent(attempts=2), seq=5)),
    "an attempt that ends unannounced after an announced one was cut off": (
        (STEP, RunResumed(), StepFinished(step_id="a", attempt=2, input_hash="in")),
        begun(
            steps={"a": StepState("finished", 2, None, "in", seq=4, ended=4)},
            steps_done=1, spent=Spent(attempts=2), resumes=1, seq=4)),
    "an announced step that began before others came between": (
        (StepStarted(step_id="b"), StepStarted(step_id="a"), StepFinished(step_id="a", since=1)),
        begun(
            steps={"b": StepState(seq=2, since=1), "a": StepState("finished", seq=3, since=1, ended=4)},
            steps_open={"b": 1}, steps_done=1, spent=Spent(attempts=2), seq=4)),
    "an effect": ((EFFECT,), begun(effects={"k": DONE}, effects_open={"k": "started"}, seq=2)),
    "an effect that ends": (
        (EFFECT, EffectFinished(effect_key="k", receipt=[1], artifact="art")),
        begun(effects={"k": msgspec.structs.replace(DONE, status="done", receipt=[1], artifact="art")}, seq=3)),
    "an effect that fails": (
        (EFFECT, EffectFailed(effect_key="k", error="e")),
        begun(effects={"k": msgspec.structs.replace(DONE, status="failed", evidence="e")}, seq=3)),
    "an effect that is settled": (
        (EFFECT, EffectSettled(effect_key="k", settled_as="done", evidence="seen", receipt=[1])),
        begun(effects={"k": msgspec.structs.replace(DONE, status="done", evidence="seen", receipt=[1])}, seq=3)),
    "an effect of which nothing is known": (
        (EFFECT, EffectSettled(effect_key="k", settled_as="unknown", evidence="no answer")),
        begun(
            effects={"k": msgspec.structs.replace(DONE, status="unknown", evidence="no answer")},
            effects_open={"k": "unknown"}, seq=3)),
    "a checkpoint": ((CheckpointComplete(checkpoint_id="c", cursor="cu"),), begun(checkpoint_id="c", cursor="cu", seq=2)),
    "a checkpoint of a step": (
        (MARK,),
        begun(
            checkpoints={"a": CheckpointState("c", "cu", "in", "tok", "max", 2)}, checkpoint_id="c", cursor="cu", seq=2)),
    "a checkpoint that is used": (
        (MARK, CheckpointResumed(checkpoint_id="c", retry_token="tok")),
        begun(
            checkpoints={"a": CheckpointState("c", "cu", "in", "tok", "max", 2, True)},
            checkpoint_id="c", cursor="cu", seq=3)),
    "a gate that blocked": ((GateBlocked(step_id="a", strictness="max", conflicts=1),), begun(seq=2)),
    "a note": ((NoteRecorded(text="n"), NoteRecorded(text="n")), begun(notes=2, seq=3)),
    "an extension": ((Extension(kind="x_a", data={"a": 1}),), begun(seq=2)),
    "other inputs that were accepted": (
        (DriftFound(drift="inputs", subject="the run", verdict="go", now="n"),), begun(input_hash="n", inputs="n", seq=2)),
    "other inputs that were refused": (
        (DriftFound(drift="inputs", subject="the run", verdict="refuse", now="n"),), begun(seq=2)),
    "other code that was accepted": ((DriftFound(drift="code", subject="the run", verdict="go", now="n"),), begun(seq=2)),
    "a question": ((ASKED,), begun(questions={"q": QuestionState("Well?", ("yes", "no"), LATER)}, seq=2)),
    "a question that is answered": (
        (ASKED, QuestionAnswered(question_id="q", answer="no", message_id=7)),
        begun(questions={"q": QuestionState("Well?", ("yes", "no"), LATER, "no")}, heard=7, seq=3)),
    "an answer in free words": (
        (QuestionAsked(question_id="q", text="Well?"), QuestionAnswered(question_id="q", answer="maybe")),
        begun(questions={"q": QuestionState("Well?", answer="maybe")}, seq=3)),
    "a question that expired": (
        (ASKED, QuestionExpired(question_id="q")),
        begun(questions={"q": QuestionState("Well?", ("yes", "no"), LATER, None, True)}, seq=3)),
    "a sleep": ((SleepStarted(sleep_id="z", until=LATER),), begun(sleeps={"z": LATER}, seq=2)),
    "a sleep that ended": (
        (SleepStarted(sleep_id="z", until=LATER), SleepEnded(sleep_id="z")), begun(sleeps={"z": None}, seq=3)),
    "a wish to cancel": ((CancelRequested(message_id=9),), begun(cancelling=True, heard=9, seq=2)),
    "a message that is older than the last one heard": (
        (ASKED, CancelRequested(message_id=9), QuestionAnswered(question_id="q", answer="no", message_id=7),
         CancelRequested(message_id=8)),
        begun(
            questions={"q": QuestionState("Well?", ("yes", "no"), LATER, "no")}, cancelling=True, heard=9, seq=5)),
    "what was spent": (
        (BudgetSpent(tokens=5, money=0.5), BudgetSpent(tokens=1, money=0.25), BudgetSpent()),
        begun(spent=Spent(tokens=6, money=0.75), seq=4)),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_a_log_leaves_exactly_this(name):
    events, expected = LEFT[name]
    assert after(START, *events) == expected


def test_every_event_of_the_table_of_statuses_has_a_rule():
    assert APPLY.keys() == LEGAL.keys()


def test_accepted_arguments_open_only_a_step_that_is_finished():
    accepted = DriftFound(drift="arguments", subject="a", verdict="go", now="n")
    done = after(
        START, StepFinished(step_id="b", input_hash="in"), StepFinished(step_id="a", input_hash="in"), accepted
    )
    assert (done.steps["a"].status, done.steps_done, done.input_hash, done.inputs) == ("reopened", 1, "h", "i")
    going = after(START, STEP, accepted)
    assert (going.steps["a"].status, going.steps_done) == ("started", 0)
    assert after(START, accepted) == begun(seq=2)


def test_a_checkpoint_is_found_among_those_of_other_steps():
    other = msgspec.structs.replace(MARK, step_id="b", checkpoint_id="d", retry_token="kot")
    state = after(START, MARK, other, CheckpointResumed(checkpoint_id="d", retry_token="kot"))
    assert {name: one.used for name, one in state.checkpoints.items()} == {"a": False, "b": True}


MANY = tuple(StepStarted(step_id=name) for name in "bcdefgh")
SAID: dict[str, tuple[tuple[Event, ...], Event, str, str]] = {
    "open work": ((STEP, *MANY, EFFECT), RunFinished(), "run_finished", "these are still open: a, b, c, d, e"),
    "a finished step": (
        (STEP, StepFinished(step_id="a")), StepStarted(step_id="a", attempt=2), "step_started", "step a is already finished"),
    "a finished step, finished at once": (
        (STEP, StepFinished(step_id="a")), StepFinished(step_id="a", input_hash="in"), "step_finished",
        "step a is already finished"),
    "a first attempt at once, after the first": (
        (STEP, StepFailed(step_id="a", error="e")), StepFinished(step_id="a", input_hash="in"), "step_finished",
        "step a comes to attempt 2, not 1"),
    "a second attempt at once, without a first": (
        (), StepFinished(step_id="a", attempt=2, input_hash="in"), "step_finished", "step a comes to attempt 1, not 2"),
    "an attempt": ((STEP,), StepStarted(step_id="a", attempt=3), "step_started", "step a comes to attempt 2, not 3"),
    "an end that is not open": ((), StepFinished(step_id="a"), "step_finished", "attempt 1 of step a is not open"),
    "a failure that is not open": (
        (), StepFailed(step_id="a", attempt=2), "step_failed", "attempt 2 of step a is not open"),
    "other arguments": (
        (EFFECT,), msgspec.structs.replace(EFFECT, arguments_hash="x"), "effect_started",
        "key k was used with other arguments"),
    "an effect that goes on": ((EFFECT,), EFFECT, "effect_started", "effect k is started"),
    "an effect that is not open": ((), EffectFinished(effect_key="k"), "effect_finished", "effect k is not open"),
    "a foreign token": (
        (MARK,), CheckpointResumed(checkpoint_id="c", retry_token="x"), "checkpoint_resumed",
        "its retry token belongs to no checkpoint of this run that still counts"),
    "a used token": (
        (MARK, CheckpointResumed(checkpoint_id="c", retry_token="tok")),
        CheckpointResumed(checkpoint_id="c", retry_token="tok"), "checkpoint_resumed", "its retry token was used before"),
    "a question": ((ASKED,), ASKED, "question_asked", "question q was asked before"),
    "an answer to nothing": (
        (), QuestionAnswered(question_id="q", answer="yes"), "question_answered", "question q was never asked"),
    "a late answer": (
        (ASKED, QuestionExpired(question_id="q")), QuestionAnswered(question_id="q", answer="yes"), "question_answered",
        "question q is already answered or has expired"),
    "a question that expires after its answer": (
        (ASKED, QuestionAnswered(question_id="q", answer="yes")), QuestionExpired(question_id="q"), "question_expired",
        "question q is already answered or has expired"),
    "another answer": (
        (ASKED,), QuestionAnswered(question_id="q", answer="maybe"), "question_answered",
        "the answer must be one of yes, no"),
    "a sleep": (
        (SleepStarted(sleep_id="z", until=LATER),), SleepStarted(sleep_id="z", until=LATER), "sleep_started",
        "sleep z was begun before"),
    "a sleep that ended, again": (
        (SleepStarted(sleep_id="z", until=LATER), SleepEnded(sleep_id="z")), SleepStarted(sleep_id="z", until=LATER),
        "sleep_started", "sleep z was begun before"),
    "the end of no sleep": ((), SleepEnded(sleep_id="z"), "sleep_ended", "sleep z is not going on"),
    "less than nothing": ((), BudgetSpent(tokens=-1), "budget_spent", "what was spent cannot be less than nothing"),
    "less than no money": ((), BudgetSpent(money=-0.01), "budget_spent", "what was spent cannot be less than nothing"),
    "more tokens than a log holds": (
        (BudgetSpent(tokens=1),), BudgetSpent(tokens=2**53 - 1), "budget_spent",
        "what was spent is no number that a log can hold"),
    "more money than a log holds": (
        (BudgetSpent(money=2.0),), BudgetSpent(money=2.0**53 - 2), "budget_spent",
        "what was spent is no number that a log can hold"),
}  # fmt: skip


@pytest.mark.parametrize("name", SAID)
def test_a_refusal_says_which_event_and_why(name):
    before, event, kind, problem = SAID[name]
    state = after(START, *before)
    with pytest.raises(IllegalEvent) as refused:
        evolve(state, event)
    assert (refused.value.kind, refused.value.problem) == (kind, problem)
    assert state == after(START, *before)

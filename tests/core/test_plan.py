"""The plan of a resume: what becomes of every step, effect, question and sleep is decided by the state alone."""

from __future__ import annotations

import shlex
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import events as e
from holdfast.core import gates
from holdfast.core.plan import (
    Row,
    RowMove,
    answer_commands,
    command_name,
    next_command,
    plan_id,
    replace_command,
    resume_plan,
    settle_commands,
)
from holdfast.core.shapes import QuestionState, RunState, WorkspaceState
from holdfast.core.state import fold, snapshot
from holdfast.core.stops import all_stops

START = e.RunStarted(mission_id="m")
A, A_DONE = e.StepStarted(step_id="a"), e.StepFinished(step_id="a")
FAILED = e.StepFailed(step_id="a", error="TypeError: no\nway")
AGAIN = e.StepFailed(step_id="a", error="busy", retry_at="2026-01-02T03:04:05.000000Z")
ASKED = e.QuestionAsked(question_id="colour", text="Which colour?", choices=("red", "blue"))
SETTLE_K = "`holdfast settle r --done k`, `holdfast settle r --not-done k` or `holdfast settle r --abandon k`"


def effect(policy, key="k"):
    return e.EffectStarted(effect_key=key, step_id="a", policy=policy)


def settled(how):
    return e.EffectSettled(effect_key="k", settled_as=how)


def state_of(*events, run_id="r"):
    state = fold(events)
    state.run_id = run_id
    return state


TABLE: list[tuple[str, tuple[e.Event, ...], tuple[Row, ...]]] = [
    ("a finished step is replayed", (A, A_DONE), (Row("step", "a", "replay", "attempt 1 finished it"),)),
    ("a step without an end is run", (A,), (Row("step", "a", "run", "attempt 2: attempt 1 has no end"),)),
    (
        "a failed step is run, and its error is one line",
        (A, FAILED),
        (Row("step", "a", "run", "attempt 2: attempt 1 failed: TypeError: no way"),),
    ),
    (
        "a failed step with a time for its next attempt waits",
        (A, AGAIN),
        (Row("step", "a", "wait", f"attempt 2 not before {AGAIN.retry_at}: attempt 1 failed: busy"),),
    ),
    (
        "a step that was opened again is run",
        (A, A_DONE, e.DriftFound(drift="arguments", subject="a", verdict="go")),
        (Row("step", "a", "run", "attempt 2: it is given something else now, which was accepted"),),
    ),
    ("a done effect is replayed", (effect("once"), e.EffectFinished(effect_key="k")), (
        Row("effect", "k", "replay", "of step a: it is done"),
    )),
    ("an effect that was given up is not done", (effect("once"), settled("abandoned")), (
        Row("effect", "k", "replay", "of step a: it was given up, and is not done"),
    )),
    ("a failed effect is done", (effect("once"), e.EffectFailed(effect_key="k")), (
        Row("effect", "k", "run", "of step a: it failed, and is done again, with the same key and arguments"),
    )),
    ("an effect that was not done is done", (effect("once"), settled("not_done")), (
        Row("effect", "k", "run", "of step a: it was never done, and is done now, with the same key and arguments"),
    )),
    ("an open effect with a probe is settled", (effect("probed"),), (
        Row("effect", "k", "settle", "of step a: its probe decides"),
    )),
    ("an effect done once without an outcome blocks", (effect("once"),), (
        Row("effect", "k", "blocked", f"of step a: nobody knows what became of it; say it: {SETTLE_K}"),
    )),
    ("an effect whose probe could not say is asked again", (effect("probed"), settled("unknown")), (
        Row(
            "effect", "k", "settle",
            f"of step a: its probe could not say, and is asked again; else say it: {SETTLE_K}",
        ),
    )),
    ("a question is asked", (ASKED,), (
        Row("question", "colour", "ask", "Which colour? (red / blue); answer it: "
            "`holdfast answer r --question=colour red` or `holdfast answer r --question=colour blue`"),
    )),
    (
        "a question with a deadline says so",
        (e.QuestionAsked(question_id="q", text="Go?", deadline="T"),),
        (Row("question", "q", "ask", "Go?, until T; answer it: `holdfast answer r --question=q`"),),
    ),
    ("an answer is replayed", (ASKED, e.QuestionAnswered(question_id="colour", answer="red")), (
        Row("question", "colour", "replay", "it is answered"),
    )),
    ("so is a silence", (ASKED, e.QuestionExpired(question_id="colour")), (
        Row("question", "colour", "replay", "nobody answered it in time"),
    )),
    ("what failed in a run that is finished is not done again", (A, FAILED, e.RunFinished()), (
        Row("step", "a", "left", "it stays as it is: the run has ended"),
    )),
    ("a sleep goes on", (e.SleepStarted(sleep_id="nap", until="T"),), (Row("sleep", "nap", "wait", "until T"),)),
    ("a sleep that is over is over", (e.SleepStarted(sleep_id="nap", until="T"), e.SleepEnded(sleep_id="nap")), (
        Row("sleep", "nap", "replay", "it is over"),
    )),
]  # fmt: skip


@pytest.mark.parametrize(("events", "rows"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_the_rows(events, rows):
    assert resume_plan(state_of(START, *events)).rows == rows


def test_what_is_done_and_was_refused_with_other_arguments_is_not_said_to_be_replayed():
    """`--approve` accepts the drift that the plan shows, and then it is done anew."""
    other = e.EffectStarted(effect_key="k 2", step_id="pay", policy="once")
    done = (A, A_DONE, effect("once"), e.EffectFinished(effect_key="k"), other, e.EffectFinished(effect_key="k 2"))
    drift = [e.DriftFound(drift="arguments", subject=name, verdict="refuse") for name in ("a", "pay", "elsewhere")]
    rest = e.RunStopped(reason="input_changed")
    plan = resume_plan(state_of(START, *done, rest), drift)
    anew = "given something else now, it is done anew if that is accepted"
    assert plan.rows == (
        Row("step", "a", "ask", f"attempt 1 finished it; {anew}"),
        Row("effect", "k", "ask", f"of step a: it is done; {anew}"),
        Row("effect", "k 2", "ask", f"of step pay: it is done; {anew}"),
    )
    assert (plan.verdict, plan.why) == ("ask", "a person is needed for step a, effect k, effect k 2")


@pytest.mark.parametrize(("kind", "verdict"), [("arguments", "go"), ("code", "refuse"), ("vanished", "refuse")])
def test_other_drift_leaves_what_is_done_as_it_is(kind, verdict):
    drift = [e.DriftFound(drift=kind, subject="a", verdict=verdict)]
    assert [row.move for row in resume_plan(state_of(START, A, A_DONE), drift).rows] == ["replay"]


def test_of_the_effects_of_one_name_only_the_last_is_compared():
    again = e.EffectStarted(effect_key="k 2", step_id="a", policy="once")
    done = (effect("once"), e.EffectFinished(effect_key="k"), again, e.EffectFinished(effect_key="k 2"))
    drift = [e.DriftFound(drift="arguments", subject="a", verdict="refuse")]
    assert [row.move for row in resume_plan(state_of(START, *done), drift).rows] == ["replay", "ask"]


def test_the_table_has_every_move():
    assert {row.move for _, _, rows in TABLE for row in rows} == set(get_args(RowMove))


@pytest.mark.parametrize(
    ("ended", "rows"),
    [
        ([e.EffectFinished(effect_key="k", receipt={"exit_code": 0})], []),
        ([], []),
        (
            [e.EffectFinished(effect_key="k", receipt={"exit_code": 3})],
            [("command (2)", "run", "the attempt before it ended with exit code 3: the command runs again")],
        ),
        (
            [
                e.EffectSettled(effect_key="k", settled_as="unknown"),
                e.EffectSettled(effect_key="k", settled_as="abandoned"),
            ],
            [("command (2)", "run", "the attempt before it was given up: the command runs again")],
        ),
        ([e.EffectSettled(effect_key="k", settled_as="done")], []),
    ],
)
def test_a_command_that_failed_is_planned_to_run_again(ended, rows):
    begun = e.EffectStarted(effect_key="k", step_id="command", policy="once")
    state = state_of(e.RunStarted(mission_id="command.1a"), begun, *ended, e.RunStopped(reason="step_failed"))
    assert [row[1:] for row in resume_plan(state).rows if row.name != "k"] == rows
    assert {row.kind for row in resume_plan(state).rows} == {"effect"}


@pytest.mark.parametrize(
    "events",
    [
        (
            e.EffectStarted(effect_key="command (2)", step_id="command", policy="once"),
            e.EffectFinished(effect_key="command (2)", receipt={"exit_code": 3}),
            e.RunStopped(reason="step_failed"),
        ),
        (settled("abandoned"), e.RunFinished()),
    ],
    ids=["an attempt before the last one has no outcome", "the run is finished"],
)
def test_no_other_attempt_of_a_command_is_planned_while_one_is_open_or_after_the_end(events):
    begun = e.EffectStarted(effect_key="k", step_id="command", policy="once")
    state = state_of(e.RunStarted(mission_id="command.1a"), begun, settled("unknown"), *events)
    assert {row.name for row in resume_plan(state).rows} == set(state.effects)


def test_the_first_attempt_of_a_command_has_no_number():
    assert [command_name(attempt) for attempt in (1, 2, 3)] == ["command", "command (2)", "command (3)"]


@pytest.mark.parametrize("policy", ["pure", "read", "idempotent", "keyed"])
@pytest.mark.parametrize("more", [(), (settled("unknown"),)])
def test_what_may_be_repeated_is_done_again_with_its_key(policy, more):
    (row,) = resume_plan(state_of(START, effect(policy), *more)).rows
    assert row == Row("effect", "k", "run", f"of step a: it is {policy}, so it is done again with the same key")


def test_what_would_be_done_again_names_the_commands_once_the_run_rests_because_of_an_effect():
    (row,) = resume_plan(state_of(START, effect("keyed"), e.RunStopped(reason="effect_unknown"))).rows
    again = "it is keyed, so it is done again with the same key"
    assert row == Row("effect", "k", "run", f"of step a: {again}; if the code no longer does it, say it: {SETTLE_K}")


def test_what_is_done_again_needs_no_other_word_while_the_run_rests_for_another_reason():
    (row,) = resume_plan(state_of(START, effect("keyed"), e.RunStopped(reason="step_failed"))).rows
    assert row.reason == "of step a: it is keyed, so it is done again with the same key"


@pytest.mark.parametrize("policy", ["once", "transactional"])
@pytest.mark.parametrize("more", [(), (settled("unknown"),)])
def test_what_may_not_be_repeated_blocks_with_the_commands_that_settle_it(policy, more):
    plan = resume_plan(state_of(START, effect(policy), *more))
    assert plan.rows == (
        Row("effect", "k", "blocked", f"of step a: nobody knows what became of it; say it: {SETTLE_K}"),
    )
    assert (plan.verdict, plan.why) == ("ask", "a person is needed for effect k")


def test_a_planned_step_that_has_not_begun_is_run_after_those_that_have():
    plan = resume_plan(state_of(e.RunStarted(mission_id="m", plan=("a", "b")), A, A_DONE))
    assert [(row.name, row.move) for row in plan.rows] == [("a", "replay"), ("b", "run")]


# --- the verdict


def test_a_run_that_nothing_hinders_goes():
    plan = resume_plan(state_of(START, A))
    assert (plan.verdict, plan.why, plan.stop_reason) == ("go", "nothing stands in its way", "interrupted")
    assert "killed" in plan.diagnosis
    assert next_command(plan) == "holdfast resume r -- COMMAND"


def test_a_run_that_waits_goes_and_says_for_what():
    plan = resume_plan(state_of(START, A, AGAIN))
    assert (plan.verdict, plan.why) == ("go", "step a has to wait")


def test_a_question_needs_a_person():
    plan = resume_plan(state_of(START, ASKED, e.RunStopped(reason="awaiting_answer", diagnosis="Which colour?")))
    assert (plan.verdict, plan.why) == ("ask", "a person is needed for question colour")
    assert (plan.stop_reason, plan.diagnosis) == ("awaiting_answer", "Which colour?")
    assert next_command(plan) == "holdfast resume r"


def test_many_needs_are_counted():
    asked = [e.QuestionAsked(question_id=f"q{number}", text="?") for number in range(5)]
    why = resume_plan(state_of(START, *asked)).why
    assert why == "a person is needed for question q0, question q1, question q2 and 2 more"


def test_a_finished_run_is_refused():
    plan = resume_plan(state_of(START, e.RunFinished()))
    assert (plan.verdict, plan.why, plan.stop_reason) == ("refuse", "it is finished", "complete")
    assert next_command(plan) == "holdfast fork r"


SHUT = e.GateBlocked(step_id="b", strictness="max", conflicts=1)
UNDONE = (A, FAILED, effect("keyed"), e.EffectFailed(effect_key="k"), ASKED, e.SleepStarted(sleep_id="nap", until="T"))


@pytest.mark.parametrize("end", [e.RunFinished(), e.RunStopped(reason="cancelled")])
def test_nothing_is_done_any_more_in_a_run_that_has_ended(end):
    state = state_of(e.RunStarted(mission_id="m", plan=("a", "later")), *UNDONE, end)
    rows = resume_plan(state, (), [gates.Gate(SHUT), gates.Gate(SHUT, is_closed=False)]).rows
    assert {row.name for row in rows} == {"a", "later", "k", "colour", "nap", "b"}
    assert {row[2:] for row in rows} == {("left", "it stays as it is: the run has ended")}


def test_what_was_finished_is_still_told_of_a_run_that_has_ended():
    plan = resume_plan(state_of(START, A, A_DONE, e.RunFinished()))
    assert plan.rows == (Row("step", "a", "replay", "attempt 1 finished it"),)


def test_what_became_of_an_effect_can_be_said_of_a_run_that_was_cancelled():
    (row,) = resume_plan(state_of(START, effect("once"), e.RunStopped(reason="cancelled"))).rows
    assert row.move == "blocked" and SETTLE_K in row.reason


def test_a_run_that_has_not_begun_is_refused():
    plan = resume_plan(state_of())
    assert (plan.verdict, plan.why, plan.stop_reason, plan.diagnosis) == ("refuse", "it has not begun", "", "")


@pytest.mark.parametrize("stop", all_stops(), ids=lambda stop: stop.code)
def test_the_registry_decides_what_can_go_on(stop):
    plan = resume_plan(state_of(START, e.RunStopped(reason=stop.code)))
    expected = "refuse" if not stop.resumable else "ask" if stop.family == "drift" else "go"
    assert plan.verdict == expected
    assert (stop.code in plan.why) == (not stop.resumable)


def test_a_reason_that_nobody_knows_is_refused():
    assert resume_plan(state_of(START, e.RunStopped(reason="from_the_future"))).verdict == "refuse"


def test_a_resumed_run_no_longer_rests_at_its_stop():
    plan = resume_plan(state_of(START, e.RunStopped(reason="cancelled"), e.RunResumed()))
    assert (plan.verdict, plan.stop_reason) == ("go", "interrupted")


def test_drift_is_handed_through():
    found = e.DriftFound(drift="code", subject="a", verdict="go")
    assert resume_plan(state_of(START), [found]).drift == (found,)


def test_planning_changes_nothing():
    state = state_of(START, A, effect("once"), ASKED)
    before = snapshot(state)
    assert resume_plan(state) == resume_plan(state)
    assert plan_id(state, b"h") == plan_id(state, b"h")
    assert snapshot(state) == before


# --- the id


def test_the_same_plan_has_the_same_id():
    first, second = (plan_id(state_of(START, A, effect("once")), bytes(32)) for _ in range(2))
    assert first == second
    assert len(first) == 16 and set(first) <= set("0123456789abcdef")


def test_another_run_head_or_row_has_another_id():
    ids = [
        plan_id(state_of(START, A), bytes(32)),
        plan_id(state_of(START, A, run_id="r2"), bytes(32)),
        plan_id(state_of(START, A), bytes(31) + b"x"),
        plan_id(state_of(START, A_DONE_ALONE), bytes(32)),
        plan_id(state_of(START, e.NoteRecorded(text="x"), A), bytes(32)),
    ]
    assert len(set(ids)) == len(ids)


A_DONE_ALONE = e.StepFinished(step_id="a", input_hash="h")


@given(st.lists(st.sampled_from(["x", "y", "z"]), min_size=1, max_size=6))
def test_any_new_event_gives_another_id(texts):
    """Even one that changes no row: it moves the sequence and the head."""
    events: list[e.Event] = [START]
    seen = {plan_id(state_of(*events), b"0")}
    for number, text in enumerate(texts, 1):
        events.append(e.NoteRecorded(text=text))
        seen.add(plan_id(state_of(*events), str(number).encode()))
    assert len(seen) == len(texts) + 1


# --- commands


@pytest.mark.parametrize("key", ["k", "-k", "--done", "a b", "it's", "$(id)", "`id`", "ключ", "a;b", '"'])
def test_a_command_that_settles_can_be_typed_whatever_the_key(key):
    for line, flag in zip(settle_commands("r", key), ("--done", "--not-done", "--abandon"), strict=True):
        words = shlex.split(line)
        assert words[:4] == ["holdfast", "settle", "r", flag]
        assert words[4:] == (["--", key] if key.startswith("-") else [key])


def test_a_name_that_no_terminal_shows_is_not_typed():
    assert settle_commands("r", "k\x1b[2J")[0] == "holdfast settle r --done EFFECT"
    assert answer_commands("r", "q\n", QuestionState("?")) == ("holdfast answer r",)
    assert shlex.split(answer_commands("r", "-q 1", QuestionState("?"))[0])[-1] == "--question=-q 1"
    assert answer_commands("r", "q", QuestionState("?", ("yes", "\x1b"))) == ("holdfast answer r --question=q",)


def test_a_question_with_choices_has_a_command_for_each():
    lines = answer_commands("r", "q", QuestionState("?", ("yes", "-1", "not yet")))
    asked = ["holdfast", "answer", "r", "--question=q"]
    assert [shlex.split(line) for line in lines] == [[*asked, "yes"], [*asked, "--", "-1"], [*asked, "not yet"]]
    assert answer_commands("r", "q", QuestionState("?", ("yes",))) == ("holdfast answer r --question=q yes",)
    assert answer_commands("r", "q", QuestionState("?", tuple("abcd"))) == ("holdfast answer r --question=q",)


def test_a_checkpoint_that_was_begun_is_settled_and_a_complete_one_is_kept():
    made = WorkspaceState("/r", 2, "parser", complete=True)
    begun = WorkspaceState("/r", None, "by hand")
    rows = resume_plan(RunState(run_id="r", status="running", workspaces={"a": made, "b": begun})).rows
    assert rows == (
        Row("checkpoint", "a", "replay", "milestone 2, parser: it is complete"),
        Row("checkpoint", "b", "settle", "a snapshot, by hand: it was begun; what was made of it decides"),
    )


def test_a_spec_goes_on_without_a_command_of_yours():
    for mission, end in (("spec.house", ""), ("pipeline", " -- COMMAND")):
        plan = resume_plan(RunState(run_id="r1", mission_id=mission, status="running", seq=1))
        assert next_command(plan) == f"holdfast resume r1{end}"


def test_the_command_that_replaces_a_receipt_can_be_typed():
    assert replace_command("r", "k 1") == "holdfast settle r --done --receipt JSON 'k 1'"
    assert replace_command("r", "-k") == "holdfast settle r --done --receipt JSON -- -k"
    assert replace_command("r", "k\x1b") == "holdfast settle r --done --receipt JSON EFFECT"


# --- gates ---

MARKED = e.StepCheckpointed(
    checkpoint_id="c",
    mission_id="m",
    step_id="g",
    strictness="medium",
    cursor="post_gate",
    input_hash="0" * 64,
    retry_token="t",
    timestamp="2026-01-02T03:04:05.000000Z",
)
BLOCKED = e.GateBlocked(step_id="g", strictness="medium", conflicts=2, checkpoint_id="c")
UNMARKED = e.GateBlocked(step_id="g", strictness="max", conflicts=1, resumable=False)
USED = e.CheckpointResumed(checkpoint_id="c", retry_token="t")
STOPPED = e.RunStopped(reason="awaiting_answer")
CLOSED = "closed by 2 conflicts, at strictness medium"
AGAIN_DECIDES = Row("gate", "g", "run", f"it was {CLOSED}; it decides again")

GATES: dict[str, tuple[tuple[e.Event, ...], tuple[Row, ...]]] = {
    "a gate that blocks": (
        (MARKED, BLOCKED, STOPPED),
        (Row("gate", "g", "blocked", f"it is {CLOSED}; deal with them, then it decides again"),),
    ),
    "a gate without a checkpoint": (
        (UNMARKED,),
        (
            Row(
                "gate",
                "g",
                "blocked",
                "it is closed by 1 conflict, at strictness max; deal with them, then it decides again; "
                "no checkpoint was written, so its step begins anew",
            ),
        ),
    ),
    "the run has gone on": ((MARKED, BLOCKED, STOPPED, e.RunResumed()), (AGAIN_DECIDES,)),
    "changed inputs were accepted": ((MARKED, BLOCKED, MARKED), (AGAIN_DECIDES,)),
    "its token was used": ((MARKED, BLOCKED, USED), ()),
}


def plan_of(*events):
    known: dict[str, gates.Gate] = {}
    for event in events:
        gates.see(known, event)
    return resume_plan(state_of(*events), (), known.values())


@pytest.mark.parametrize(("events", "rows"), GATES.values(), ids=GATES)
def test_a_gate_is_in_the_plan_as_it_last_decided(events, rows):
    assert plan_of(START, *events).rows == rows


def test_a_gate_that_blocks_needs_a_person():
    plan = plan_of(START, MARKED, BLOCKED, STOPPED)
    assert (plan.verdict, plan.why) == ("ask", "a person is needed for gate g")


def test_a_gate_before_a_step_that_was_finished_behind_it_is_passed():
    done = e.StepFinished(step_id="g", input_hash="0" * 64)
    assert [row.kind for row in plan_of(START, MARKED, BLOCKED, done).rows] == ["step"]

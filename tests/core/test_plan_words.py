"""The very words and the name of a plan of resume, where a person or another program relies on them."""

from __future__ import annotations

import hashlib

import msgspec
import pytest

from holdfast.core.events import (
    QuestionAsked,
    RunStarted,
    RunStopped,
    SleepStarted,
    StepFailed,
    StepFinished,
    StepStarted,
)
from holdfast.core.plan import Row, plan_id, resume_plan
from holdfast.core.state import RunState, fold

START = RunStarted(mission_id="m", plan=("a", "b"))
LATER = "2026-01-02T03:04:05Z"


def state_of(*events):
    return fold(events, RunState(run_id="r"))


def test_a_plan_says_of_which_run_mission_and_event_it_is():
    plan = resume_plan(state_of(START, StepStarted(step_id="a")))
    assert (plan.run_id, plan.mission_id, plan.seq) == ("r", "m", 2)


def test_a_step_of_the_plan_that_has_not_begun_is_run():
    plan = resume_plan(state_of(START, StepFinished(step_id="a", input_hash="h")))
    assert plan.rows == (
        Row("step", "a", "replay", "attempt 1 finished it"),
        Row("step", "b", "run", "attempt 1: it has not begun"),
    )


def test_a_failure_without_a_word_is_called_so():
    failed = (StepStarted(step_id="a"), StepFailed(step_id="a"))
    assert resume_plan(state_of(START, *failed)).rows[0] == Row(
        "step", "a", "run", "attempt 2: attempt 1 failed: no reason is known"
    )


def test_a_run_that_stopped_for_a_changed_world_asks():
    plan = resume_plan(state_of(START, RunStopped(reason="input_changed")))
    assert (plan.verdict, plan.why) == ("ask", "the world had changed, and is compared again")


@pytest.mark.parametrize(
    ("count", "why"),
    [
        (1, "sleep z0 has to wait"),
        (3, "sleep z0 has to wait, sleep z1 has to wait, sleep z2 has to wait"),
        (4, "sleep z0 has to wait, sleep z1 has to wait, sleep z2 has to wait and 1 more"),
        (5, "sleep z0 has to wait, sleep z1 has to wait, sleep z2 has to wait and 2 more"),
    ],
)
def test_three_reasons_are_named_and_the_rest_is_counted(count, why):
    sleeps = [SleepStarted(sleep_id=f"z{number}", until=LATER) for number in range(count)]
    assert resume_plan(state_of(START, *sleeps)).why == why


def test_what_needs_a_person_is_listed_before_what_has_to_wait():
    plan = resume_plan(
        state_of(START, SleepStarted(sleep_id="z", until=LATER), QuestionAsked(question_id="q", text="?"))
    )
    assert (plan.verdict, plan.why) == ("ask", "a person is needed for question q")


def test_the_name_of_a_plan_is_made_from_run_event_and_rows_and_stays_the_same_over_releases():
    state, head = state_of(START, StepStarted(step_id="a")), bytes(range(32))
    content = msgspec.json.encode(("r", 2, head.hex(), resume_plan(state).rows))
    assert plan_id(state, head) == hashlib.sha256(b"holdfast/plan/1\n" + content).hexdigest()[:16]

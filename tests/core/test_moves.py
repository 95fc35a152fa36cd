"""The moves, as a table: what is done next is decided by the state alone."""

from __future__ import annotations

from typing import get_args

import pytest

from holdfast.core.events import (
    EffectFinished,
    EffectSettled,
    EffectStarted,
    Event,
    Policy,
    RunFinished,
    RunResumed,
    RunStarted,
    RunStopped,
    StepFailed,
    StepFinished,
    StepStarted,
)
from holdfast.core.moves import AT_REST, REMEDIES, Begin, Finish, Move, Rest, Settle, next_move, remedy
from holdfast.core.state import STATUSES, fold

START = RunStarted(mission_id="m", plan=("a", "b"))
A, A2 = StepStarted(step_id="a"), StepStarted(step_id="a", attempt=2)
A_DONE = StepFinished(step_id="a")
K = EffectStarted(effect_key="k", step_id="a", policy="probed")
STOP = RunStopped(reason="step_failed")

TABLE: list[tuple[str, tuple[Event, ...], Move]] = [
    ("a run that has not begun rests", (), Rest()),
    ("a new run begins its first step", (START,), Begin("a", 1, 0)),
    ("an interrupted step is begun again, as its next attempt", (START, A), Begin("a", 2, 0)),
    ("a step interrupted twice comes to its third attempt", (START, A, A2), Begin("a", 3, 0)),
    ("an open effect is settled first", (START, A, K), Settle("k")),
    (
        "an unknown effect is still to be settled",
        (START, A, K, EffectSettled(effect_key="k", settled_as="unknown")),
        Settle("k"),
    ),
    (
        "an effect that was not done sends its step back",
        (START, A, K, EffectSettled(effect_key="k", settled_as="not_done")),
        Begin("a", 2, 0),
    ),
    (
        "a done effect does not finish its step by itself",
        (START, A, K, EffectFinished(effect_key="k")),
        Begin("a", 2, 0),
    ),
    ("a finished step is never begun again", (START, A, A_DONE), Begin("b", 1, 1)),
    ("a stopped run rests, whatever is open", (START, A, K, STOP), Rest()),
    ("a resumed run goes on where it stood", (START, A, STOP, RunResumed()), Begin("a", 2, 0)),
    (
        "a failed step is tried again once the run is resumed",
        (START, A, StepFailed(step_id="a"), STOP, RunResumed()),
        Begin("a", 2, 0),
    ),
    ("a done plan is finished", (START, A, A_DONE, StepStarted(step_id="b"), StepFinished(step_id="b")), Finish()),
    ("a run without a plan is finished at once", (RunStarted(mission_id="m"),), Finish()),
    ("a finished run rests", (RunStarted(mission_id="m"), RunFinished()), Rest()),
]


@pytest.mark.parametrize(("events", "move"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_the_next_move(events, move):
    assert next_move(fold(events)) == move


def test_asking_changes_nothing():
    state = fold((START, A, K))
    assert [next_move(state), next_move(state)] == [Settle("k"), Settle("k")]
    assert state == fold((START, A, K))


def test_a_place_in_the_plan_saves_looking_at_what_is_before_it():
    state = fold((START, A, A_DONE))
    assert next_move(state, since=1) == next_move(state) == Begin("b", 1, 1)
    assert next_move(fold((START,)), since=1) == Begin("b", 1, 1), "the caller knows that what is before is finished"
    assert next_move(fold((START,)), since=2) == Finish()


def test_only_a_running_run_moves():
    assert set(STATUSES) - {"running"} == AT_REST


def test_every_policy_has_a_remedy():
    assert set(REMEDIES) == set(get_args(Policy))


@pytest.mark.parametrize("policy", ["once", "probed", "transactional"])
def test_what_may_not_be_repeated_is_asked_about_or_blocked(policy):
    assert remedy(policy, policy, has_probe=True) == "ask"
    assert remedy(policy, policy, has_probe=False) == "block"


@pytest.mark.parametrize("policy", ["pure", "read", "idempotent", "keyed"])
@pytest.mark.parametrize("has_probe", [True, False])
def test_what_may_be_repeated_is_done_again(policy, has_probe):
    assert remedy(policy, policy, has_probe) == "again"


@pytest.mark.parametrize(("recorded", "present"), [("keyed", "once"), ("once", "keyed"), ("pure", "idempotent")])
def test_a_policy_that_changed_meanwhile_permits_nothing(recorded, present):
    assert remedy(recorded, present, has_probe=False) == "block"

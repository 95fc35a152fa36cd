"""What a difference leads to: by the caller's own policy, else by strictness. Every kind of drift has its row everywhere."""

from __future__ import annotations

import typing

import pytest

from holdfast.core import stops
from holdfast.core.drift import DEFAULTS, DRIFTS, POLICIES, STOP, VERDICTS, Policy, policy_for
from holdfast.core.events import Drift, Verdict
from holdfast.core.strictness import Strictness


def test_every_kind_of_drift_has_a_policy_for_every_strictness_and_a_stop():
    assert typing.get_args(Drift) == DRIFTS
    assert typing.get_args(Policy) == POLICIES
    assert set(DEFAULTS) == set(Strictness)
    for row in DEFAULTS.values():
        assert set(row) == set(DRIFTS) and set(row.values()) <= set(POLICIES)
    assert set(STOP) == set(DRIFTS) and set(VERDICTS) == set(POLICIES)
    assert set(VERDICTS.values()) == set(typing.get_args(Verdict))


@pytest.mark.parametrize("drift", DRIFTS)
def test_a_run_stops_for_drift_with_a_reason_that_can_be_resumed(drift):
    assert stops.is_known(STOP[drift])
    assert stops.is_resumable(STOP[drift]) and not stops.is_auto_resumable(STOP[drift])


def test_off_never_blocks_and_max_refuses_any_drift():
    for drift in DRIFTS:
        assert VERDICTS[policy_for(drift, Strictness.OFF)] == "go"
        assert policy_for(drift, Strictness.OFF) == "warn"
        assert policy_for(drift, Strictness.MAX) == "refuse"


def test_medium_asks_where_a_result_would_be_for_something_else_and_warns_for_the_rest():
    told = {drift: policy_for(drift, Strictness.MEDIUM) for drift in DRIFTS}
    asked = {drift for drift, policy in told.items() if policy == "ask"}
    assert asked == {"inputs", "arguments", "plan", "commit", "branch", "tree"}
    assert all(policy == "warn" for drift, policy in told.items() if drift not in asked)


@pytest.mark.parametrize("own", POLICIES)
def test_the_policy_of_the_caller_comes_before_the_strictness(own):
    for strictness in Strictness:
        assert policy_for("code", strictness, {"code": own}) == own
        assert policy_for("inputs", strictness, {"code": own}) == DEFAULTS[strictness]["inputs"]
        assert policy_for("inputs", strictness, {}) == DEFAULTS[strictness]["inputs"]

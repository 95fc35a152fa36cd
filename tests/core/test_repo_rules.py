"""What events about a repository leave in the state, and what is refused."""

from __future__ import annotations

import pytest

from holdfast.core.errors import IllegalEvent
from holdfast.core.events import (
    BudgetSpent,
    CheckpointAbandoned,
    CheckpointComplete,
    CheckpointStarted,
    EnvironmentSeen,
    Event,
    RunFinished,
    RunStarted,
    ScopeDeclared,
    SnapshotKept,
    SnapshotSettled,
)
from holdfast.core.shapes import RepositoryState, RunState, WorkspaceState
from holdfast.core.state import evolve, fold, read_snapshot, snapshot

START = RunStarted(mission_id="m")
BEGUN = CheckpointStarted(
    checkpoint_id="w", repo="/r", index=0, title="first", branch="refs/heads/main", parent="p", base="b",
    created_at="2026-01-02T03:04:05Z", tier="full", verification_commands=("make test",), body="why",
)  # fmt: skip
COMPLETE = CheckpointComplete(
    checkpoint_id="w", snapshot="s", commit="c", tree="t", patch_id="i", sidecar_written=True, left_out=("x: large",)
)


def after(*events: Event) -> RunState:
    return fold([START, *events])


def test_a_checkpoint_that_was_begun_is_open_and_knows_what_it_will_be():
    state = after(BEGUN)
    assert state.checkpoint_open == "w" and state.checkpoint_id is None
    assert state.workspaces["w"] == WorkspaceState(
        "/r", 0, "first", "refs/heads/main", "p", "b", seq=2,
        created_at="2026-01-02T03:04:05Z", tier="full", verification_commands=("make test",), body="why",
    )  # fmt: skip


def test_a_complete_checkpoint_knows_what_was_made_and_is_the_last_one():
    state = after(BEGUN, COMPLETE)
    assert (state.checkpoint_open, state.checkpoint_id) == (None, "w")
    made = state.workspaces["w"]
    assert (made.snapshot, made.commit, made.tree, made.patch_id) == ("s", "c", "t", "i")
    assert made.complete and made.sidecar_written is True and made.seq == 3
    assert read_snapshot(snapshot(state)) == state


def test_one_that_was_given_up_leaves_no_trace_in_the_state():
    state = after(BEGUN, CheckpointAbandoned(checkpoint_id="w", why="gone"))
    assert (state.checkpoint_open, state.workspaces) == (None, {})


SEEN = EnvironmentSeen(artifact="e", repo="/r", head="h", branch="refs/heads/main")


def test_a_repository_is_known_as_it_was_first_found_and_its_surroundings_as_they_were_last_seen():
    state = after(SEEN, EnvironmentSeen(artifact="f", repo="/r", head="later", branch="refs/heads/other"))
    assert state.repositories == {"/r": RepositoryState("f", "h", "refs/heads/main")}


def test_a_repository_that_was_moved_takes_its_milestones_and_what_was_given_up_along():
    given_up = CheckpointStarted(checkpoint_id="v", repo="/r")
    elsewhere = CheckpointStarted(checkpoint_id="u", repo="/else")
    begun = (SEEN, BEGUN, COMPLETE, given_up, CheckpointAbandoned(checkpoint_id="v", why="gone"), elsewhere)
    state = after(*begun, EnvironmentSeen(artifact="f", repo="/new", formerly="/r"))
    assert state.repositories == {"/new": RepositoryState("f", "h", "refs/heads/main")}
    assert {name: made.repo for name, made in state.workspaces.items()} == {"w": "/new", "u": "/else"}
    assert state.given_up == {"v": "/new"}


def test_what_was_given_up_in_another_repository_stays_there():
    given_up = (CheckpointStarted(checkpoint_id="v", repo="/else"), CheckpointAbandoned(checkpoint_id="v", why="gone"))
    state = after(SEEN, *given_up, EnvironmentSeen(artifact="f", repo="/new", formerly="/r"))
    assert state.given_up == {"v": "/else"}


def test_the_last_scope_is_the_one_that_counts():
    first = ScopeDeclared(repo="/r", allow=("src/**",), before="b", since="s")
    known = after(SEEN, first, ScopeDeclared(repo="/r", deny=("docs/**",), before="c", since="t")).repositories["/r"]
    assert (known.allow, known.deny, known.touched_before, known.scope_since) == ((), ("docs/**",), "c", "t")


REFUSED: dict[str, tuple[tuple[Event, ...], Event, str]] = {
    "a second one meanwhile": ((BEGUN,), CheckpointStarted(checkpoint_id="v", repo="/r"), "w is still being made"),
    "the same one again": ((BEGUN, COMPLETE), BEGUN, "w was made before"),
    "the end of one that has ended": ((BEGUN, COMPLETE), COMPLETE, "w is not being made"),
    "giving up what is complete": ((BEGUN, COMPLETE), CheckpointAbandoned(checkpoint_id="w"), "w is not being made"),
    "giving up what was never begun": ((), CheckpointAbandoned(checkpoint_id="w"), "w is not being made"),
    "an end while one is being made": ((BEGUN,), RunFinished(), "still open: w"),
    "settling what was never kept": ((), SnapshotSettled(checkpoint_id="k", settled_as="dropped"), "not kept aside"),
    "a scope where the run never was": ((SEEN,), ScopeDeclared(repo="/x"), "scope_declared .* never in /x"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_follow_is_refused(case):
    before, event, why = REFUSED[case]
    with pytest.raises(IllegalEvent, match=why):
        after(*before, event)


def test_work_that_is_kept_aside_is_pending_until_it_is_settled():
    kept = SnapshotKept(checkpoint_id="k", snapshot="s", repo="/r", paths=3)
    assert after(kept).kept_aside == {"k": "s"}
    settled = after(kept, SnapshotSettled(checkpoint_id="k", settled_as="restored"))
    assert (settled.kept_aside, settled.given_up) == ({}, {"k": ""})
    assert after(kept, RunFinished(), SnapshotSettled(checkpoint_id="k", settled_as="dropped")).kept_aside == {}


def test_a_checkpoint_without_a_repository_is_complete_at_once():
    state = after(CheckpointComplete(checkpoint_id="c", cursor="review"))
    assert (state.checkpoint_id, state.cursor, state.workspaces) == ("c", "review", {})


@pytest.mark.parametrize(
    "spent", [{"money": float("nan")}, {"money": float("inf")}, {"tokens": 2**53}, {"money": 1e300}]
)
def test_a_sum_that_no_log_can_hold_is_refused_and_leaves_the_state_alone(spent):
    state = after(BudgetSpent(tokens=1, money=0.5))
    with pytest.raises(IllegalEvent, match="no number that a log can hold"):
        evolve(state, BudgetSpent(**spent))
    assert (state.spent.tokens, state.spent.money) == (1, 0.5)

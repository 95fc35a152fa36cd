"""How a repository differs from what the log knew: each kind alone, nothing where nothing differs, and never a guess."""

from __future__ import annotations

import pytest

from holdfast.core.position import Position, nowhere
from holdfast.core.repo_drift import (
    LISTED,
    Seen,
    already,
    corrected,
    drifts,
    landmarks,
    last_of,
    milestones,
    next_index,
    records,
    seen_id,
)
from holdfast.core.shapes import RepositoryState, RunState, WorkspaceState

TOP, MAIN = "/r", "refs/heads/main"
A, B = "a" * 40, "b" * 40
NOWHERE = nowhere("no milestone of it is recorded", ())


def made(index=0, commit=A, **more):
    known = {"branch": MAIN, "parent": "p", "base": "p", "tree": "t", "snapshot": "s", "complete": True}
    whole = {**known, "seq": (index or 0) + 2, **more}
    return WorkspaceState(TOP, index, f"part {index}", commit=commit, **whole)


def state(*workspaces, **more):
    return RunState(run_id="r", status="running", workspaces={f"c{n}": one for n, one in enumerate(workspaces)}, **more)


def at(index=0, sha=A, confidence="certain", source="log", was=None):
    return Position(source, confidence, sha, index, f"c{index}", was, "because", ())


def seen(**changed):
    whole = Seen(A, MAIN, True, (), at(), {"python": "3.11"})
    return whole._replace(**changed)


def kinds(*arguments):
    return [found.drift for found in drifts(*arguments)]


def test_nothing_differs_where_everything_is_as_it_was():
    assert drifts(state(made()), TOP, seen(), {"python": "3.11"}) == []
    fresh = seen(changed=("added: x",), as_kept=False, branch=None, position=NOWHERE)
    assert drifts(state(), TOP, fresh, None) == []


def test_a_milestone_of_a_run_whose_log_has_none_is_named_but_not_for_a_run_of_runr():
    for position in (
        at(source="git_log_run_specific", confidence="strong"),
        at(source="sidecar"),
        at(confidence="weak"),
    ):
        (found,) = drifts(state(), TOP, seen(position=position), None)
        assert found.drift == "commit" and "milestone 0 is in this repository, and the log has none" in found.lines[0]
    begun = state(made(complete=False))
    assert drifts(begun, TOP, seen(), None) == []
    assert drifts(state(given_up={"c0": TOP}), TOP, seen(), None) == []
    assert drifts(state(), TOP, seen(position=at()._replace(checkpoint_id=None)), None) == []
    runr = RunState(run_id="runr-1", mission_id="runr-1", status="running")
    assert drifts(runr, TOP, seen(), None) == []


def test_another_branch_is_named_on_both_sides():
    (found,) = drifts(state(made()), TOP, seen(branch=None), None)
    assert (found.drift, found.was, found.now) == ("branch", "main", "no branch")
    assert found.lines[0] == "main was checked out, and now no branch"
    assert "`git switch main`" in found.lines[1] and "--yes" in found.lines[1]


def test_from_no_branch_there_is_none_to_go_back_to():
    (found,) = drifts(state(made(branch=None)), TOP, seen(branch="refs/heads/main"), None)
    assert found.lines[1] == "--yes goes on here"


def test_uncommitted_work_is_listed_up_to_a_bound_unless_the_last_snapshot_holds_it():
    paths = tuple(f"added: {n}" for n in range(LISTED + 3))
    assert kinds(state(made()), TOP, seen(changed=paths), None) == []
    (found,) = drifts(state(made()), TOP, seen(changed=paths, as_kept=False), None)
    assert found.drift == "tree" and found.lines == (*paths[:LISTED], "and 3 more")
    (few,) = drifts(state(made()), TOP, seen(changed=paths[:LISTED], as_kept=False), None)
    assert few.lines == paths[:LISTED]


@pytest.mark.parametrize(("position", "lines"), [
    (at(sha=None, index=None)._replace(choices=("look there",)), ("because", "look there")),
    (at(confidence="weak", sha=B, was=A), ("because",)),
])  # fmt: skip
def test_a_milestone_that_is_not_found_for_sure_is_drift(position, lines):
    (found,) = drifts(state(made()), TOP, seen(position=position), None)
    assert (found.drift, found.lines) == ("commit", lines)
    assert kinds(state(made(index=None, commit=None)), TOP, seen(position=position), None) == []


def test_a_lower_milestone_than_the_last_is_drift_although_it_is_sure():
    (found,) = drifts(state(made(0), made(1, commit=B)), TOP, seen(position=at(0)), None)
    assert (found.drift, found.was, found.now) == ("commit", B, A)
    assert "milestone 1 (part 1) is in the log, and not in this history; the last one here is 0" in found.lines


def test_one_that_moved_and_is_surely_the_same_is_no_drift():
    assert kinds(state(made()), TOP, seen(position=at(sha=B, was=A, confidence="strong")), None) == []


def test_what_the_base_branch_changed_too_is_named():
    (found,) = drifts(state(made()), TOP, seen(overlap=("x.py",), base="refs/heads/main"), None)
    assert (found.drift, found.subject, found.lines) == ("base", "refs/heads/main", ("x.py was changed there too",))


def test_each_difference_of_the_environment_is_named_and_the_base_is_none_of_them():
    before = {"python": "3.11", "lockfile:uv.lock": "1", "base:refs/heads/main": A}
    (found,) = drifts(state(made()), TOP, seen(environment={"python": "3.12", "lockfile:uv.lock": "1"}), before)
    assert found.drift == "environment" and len(found.lines) == 1 and "python" in found.lines[0]
    assert kinds(state(made()), TOP, seen(), None) == []


def test_milestones_come_by_their_index_and_snapshots_are_none():
    whole = state(made(1, B), made(None, None), made(0, A), WorkspaceState(TOP, 5, "begun"))
    assert [name for name, _ in milestones(whole)] == ["c2", "c0"]
    assert next_index(whole) == 2 and next_index(state()) == 0
    assert [(one.checkpoint_id, one.index, one.sha, one.source) for one in records(whole)] == [
        ("c2", 0, A, "log"),
        ("c0", 1, B, "log"),
    ]
    assert records(state(made(0, None))) == []


def test_a_repository_is_recognised_by_where_the_run_began_and_by_its_newest_milestones():
    many = [made(number, commit=f"{number:040}") for number in range(LISTED + 2)]
    newest = [one.commit for one in reversed(many)][:LISTED]
    assert landmarks(state(*many), TOP) == newest and landmarks(state(*many), "/other") == []
    known = {TOP: RepositoryState("artifact", A, MAIN)}
    assert landmarks(state(*many, repositories=known), TOP) == [A, *newest]
    assert landmarks(state(repositories={TOP: RepositoryState("artifact", None, None)}), TOP) == []


def test_the_last_checkpoint_of_a_repository_is_that_with_the_last_event():
    first, second = made(0, A, seq=9), made(1, B, seq=4)
    assert last_of(state(first, second), TOP) is first
    assert last_of(state(first, second), "/other") is None
    assert last_of(state(WorkspaceState(TOP, 0, "begun", seq=12)), TOP) is None


@pytest.mark.parametrize(
    ("found", "reason", "to"), [(3, "state_behind_checkpoint", 4), (0, "state_ahead_of_checkpoint", 1)]
)
def test_the_repository_says_which_milestone_was_the_last(found, reason, to):
    fixed = corrected(state(made(0), made(1)), TOP, at(found, B))
    assert (fixed.previous, fixed.corrected_to, fixed.reason) == (2, to, reason)
    assert (fixed.sha, fixed.source, fixed.checkpoint_id) == (B, "log", f"c{found}")


def test_a_checkpoint_that_was_begun_and_is_there_was_already_taken():
    said = already("c1", WorkspaceState(TOP, 1, "begun"), B)
    assert (said.previous, said.corrected_to, said.reason) == (1, 2, "already_checkpointed")
    assert (said.checkpoint_id, said.sha) == ("c1", B)


@pytest.mark.parametrize("position", [at(1), at(5, confidence="weak"), at(None, None)])
def test_what_agrees_or_is_not_sure_corrects_nothing(position):
    assert corrected(state(made(0), made(1)), TOP, position) is None


def test_the_name_of_a_look_changes_with_everything_that_was_seen():
    whole = state(made())
    looks = [
        seen(),
        seen(head=B),
        seen(branch=None),
        seen(changed=("added: \udcff",), as_kept=False),
        seen(position=at(0, B)),
    ]
    names = {seen_id(drifts(whole, TOP, one, None), one) for one in looks}
    assert len(names) == len(looks) and all(len(name) == 8 for name in names)
    assert seen_id([], seen()) == seen_id([], seen())


def test_a_fingerprint_that_looked_for_less_is_not_held_against_one_that_looks_for_more():
    now = seen(
        environment={"fingerprint": "2", "lockfile:x.lock": "1", "tool:new": "1", "python": "3"}, position=NOWHERE
    )
    (found,) = drifts(state(), TOP, now, {"python": "3"})
    assert found.lines == ("tool:new was added: 1",)
    assert drifts(state(), TOP, now, {**now.environment, "lockfile:x.lock": "2"})[0].drift == "environment"

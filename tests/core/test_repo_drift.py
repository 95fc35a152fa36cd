"""How a repository differs from what the log knew: each kind alone, nothing where nothing differs, and never a guess."""

from __future__ import annotations

import pytest

from holdfast.core.events import MilestoneIndexCorrected
from holdfast.core.position import Known, Position, nowhere
from holdfast.core.repo_drift import (
    LISTED,
    Found,
    Seen,
    already,
    corrected,
    drifts,
    is_unlogged,
    landmarks,
    last_of,
    milestones,
    next_index,
    records,
    seen_id,
    uncommitted,
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
        (found,) = drifts(state(), TOP, seen(position=position._replace(choices=("look there",))), None)
        assert found == Found("commit", "the last milestone", "", A, (
            "milestone 0 is in this repository, and the log has none: "
            "the log is older than the repository, or somebody else wrote it", "because", "look there",
        ))  # fmt: skip
    begun = state(made(complete=False))
    assert drifts(begun, TOP, seen(), None) == []
    assert drifts(state(given_up={"c0": TOP}), TOP, seen(), None) == []
    assert drifts(state(), TOP, seen(position=at()._replace(checkpoint_id=None)), None) == []
    runr = RunState(run_id="runr-1", mission_id="runr-1", status="running")
    assert drifts(runr, TOP, seen(), None) == []
    assert not is_unlogged(state(), TOP, NOWHERE) and not is_unlogged(state(made()), TOP, at(5))
    assert is_unlogged(state(made()), "/other", at(5))


def test_another_branch_is_named_on_both_sides():
    (found,) = drifts(state(made()), TOP, seen(branch=None), None)
    ways = "`git switch main` goes back to it, --yes goes on here"
    lines = ("main was checked out, and now no branch", ways)
    assert found == Found("branch", "the branch", "main", "no branch", lines)


def test_before_the_first_checkpoint_the_branch_is_that_on_which_the_run_came():
    came = state(repositories={TOP: RepositoryState("artifact", A, "refs/heads/a b")})
    (found,) = drifts(came, TOP, seen(position=NOWHERE), None)
    assert (found.was, found.now) == ("a b", "main") and found.lines[1].startswith("`git switch 'a b'` goes")
    assert drifts(came, "/other", seen(position=NOWHERE), None) == []


def test_from_no_branch_there_is_none_to_go_back_to():
    (found,) = drifts(state(made(branch=None)), TOP, seen(branch="refs/heads/main"), None)
    assert found.lines[1] == "--yes goes on here"


def test_uncommitted_work_is_listed_up_to_a_bound_unless_the_last_snapshot_holds_it():
    paths = tuple(f"added: {n}" for n in range(LISTED + 3))
    assert kinds(state(made()), TOP, seen(changed=paths), None) == []
    (found,) = drifts(state(made()), TOP, seen(changed=paths, as_kept=False), None)
    assert found == Found("tree", "the work tree", "t", "", (*paths[:LISTED], "and 3 more"))
    (few,) = drifts(state(made()), TOP, seen(changed=paths[:LISTED], as_kept=False), None)
    assert few.lines == paths[:LISTED]


def test_before_the_first_checkpoint_only_what_was_not_there_when_the_run_came_is_named():
    now = seen(changed=("added: x", "added: y"), as_kept=False, position=NOWHERE)
    came = {"tree": uncommitted(["added: x", "added: z"]), "python": "3.11"}
    assert drifts(state(), TOP, now, came) == [Found("tree", "the work tree", "", "", ("added: y",))]
    assert drifts(state(), TOP, now, {"python": "3.11"}) == []
    taken_over = state(made(snapshot=None))
    assert kinds(taken_over, TOP, seen(changed=("added: x",), as_kept=False), came) == ["tree"]
    only_kept = state(made(index=None, commit=None))
    assert kinds(only_kept, TOP, now, came) == ["tree"]
    assert kinds(only_kept, TOP, now._replace(as_kept=True), came) == []


@pytest.mark.parametrize(("position", "lines"), [
    (at(sha=None, index=None)._replace(choices=("look there",)), ("", "", ("because", "look there"))),
    (at(confidence="weak", sha=B, was=A), (A, B, ("because",))),
    (at(confidence="weak", sha=B), ("", B, ("because",))),
    (at()._replace(beyond=((2, "w"), (3, "x"), (4, None)), choices=("look there",)), (A, "", (
        "milestone 4 is in this repository, and not in the log: "
        "the log is older than the repository, or somebody else wrote it", "look there"))),
])  # fmt: skip
def test_a_milestone_that_is_not_found_for_sure_is_drift(position, lines):
    (found,) = drifts(state(made()), TOP, seen(position=position), None)
    assert found == ("commit", "the last milestone", *lines)
    assert kinds(state(made(index=None, commit=None)), TOP, seen(position=position), None) == []


def test_a_lower_milestone_than_the_last_is_drift_although_it_is_sure():
    (found,) = drifts(state(made(0), made(1, commit=B)), TOP, seen(position=at(0)), None)
    lost = "milestone 1 (part 1) is in the log, and not in this history; the last one here is 0"
    assert found == Found("commit", "the last milestone", B, A, (lost,))
    nameless = state(made(0), made(1, commit=B), made(2, commit=None))
    assert drifts(nameless, TOP, seen(position=at(0)), None) == [found], "the last one that has a commit"


def test_one_that_moved_and_is_surely_the_same_is_no_drift():
    assert kinds(state(made()), TOP, seen(position=at(sha=B, was=A, confidence="strong")), None) == []


def test_milestones_of_another_repository_say_nothing_of_this_one():
    elsewhere = WorkspaceState("/other", 4, "part 4", MAIN, commit=B, snapshot="s", complete=True, seq=9)
    both = state(made(), elsewhere)
    assert (next_index(both, TOP), next_index(both, "/other"), next_index(both)) == (1, 5, 5)
    assert corrected(both, TOP, at()) is None and drifts(both, TOP, seen(), None) == []
    assert "the log has none" in drifts(state(elsewhere), TOP, seen(position=at(7)), None)[0].lines[0]


def test_what_the_base_branch_changed_too_is_named():
    (found,) = drifts(state(made()), TOP, seen(overlap=("x.py",), base="refs/heads/main"), None)
    assert found == Found("base", "refs/heads/main", "", "", ("x.py was changed there too",))
    many = seen(overlap=tuple(str(number) for number in range(LISTED + 1)))
    (found,) = drifts(state(made()), TOP, many, None)
    assert found.subject == "the base branch"
    assert found.lines == (*(f"{number} was changed there too" for number in range(LISTED)), "and 1 more")


def test_each_difference_of_the_environment_is_named_and_the_base_is_none_of_them():
    before = {"python": "3.11", "lockfile:uv.lock": "1", "base:refs/heads/main": A, "tree": ""}
    (found,) = drifts(state(made()), TOP, seen(environment={"python": "3.12", "lockfile:uv.lock": "1"}), before)
    lines = ("python changed from 3.11 to 3.12",)
    assert found == Found("environment", "the environment", "", "", lines)
    assert kinds(state(made()), TOP, seen(), None) == []


def test_milestones_come_by_their_index_and_snapshots_are_none():
    whole = state(made(1, B), made(None, None), made(0, A), WorkspaceState(TOP, 5, "begun"))
    assert [name for name, _ in milestones(whole)] == ["c2", "c0"]
    assert [name for name, _ in milestones(state(made(1, seq=4), made(0, seq=9), made(1, seq=3)))] == ["c1", "c2", "c0"]
    assert milestones(whole, TOP) == milestones(whole) and milestones(whole, "/other") == []
    assert (next_index(whole), next_index(state(made(0))), next_index(state())) == (2, 1, 0)
    least = {"run_id": "r", "tree": "t", "patch_id": "i", "parent": "p", "branch": MAIN, "base": "b", "source": "log"}
    assert records(state(made(1, B, base="b", patch_id="i"), made(0, A, base="b", patch_id="i"))) == [
        Known(checkpoint_id="c1", index=0, title="part 0", sha=A, **least),
        Known(checkpoint_id="c0", index=1, title="part 1", sha=B, **least),
    ]
    assert records(whole, "/other") == []
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
    assert last_of(state(first, made(2, B, snapshot=None), made(3, B, complete=False)), TOP) is first


@pytest.mark.parametrize(
    ("found", "reason", "to"), [(3, "state_behind_checkpoint", 4), (0, "state_ahead_of_checkpoint", 1)]
)
def test_the_repository_says_which_milestone_was_the_last(found, reason, to):
    fixed = corrected(state(made(0), made(1)), TOP, at(found, B))
    assert (fixed.previous, fixed.corrected_to, fixed.reason) == (2, to, reason)
    assert (fixed.sha, fixed.source, fixed.checkpoint_id) == (B, "log", f"c{found}")


def test_a_checkpoint_that_was_begun_and_is_there_was_already_taken():
    least = {"reason": "already_checkpointed", "checkpoint_id": "c1", "sha": B, "source": "git_log_run_specific"}
    begun = WorkspaceState(TOP, 1, "begun")
    assert already("c1", begun, B) == MilestoneIndexCorrected(previous=1, corrected_to=2, **least)
    first = WorkspaceState(TOP, 0, "begun")
    assert already("c1", first, B) == MilestoneIndexCorrected(previous=0, corrected_to=1, **least)


@pytest.mark.parametrize("position", [at(1), at(5, confidence="weak"), at(None, None), at(5, None), at(None, B)])
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
    assert seen_id([], seen(position=at(1))) != seen_id([], seen())
    assert seen_id([], seen()) == "bd70e486", "it is typed in one process and compared in another"


def test_a_fingerprint_that_looked_for_less_is_not_held_against_one_that_looks_for_more():
    now = seen(
        environment={"fingerprint": "2", "lockfile:x.lock": "1", "tool:new": "1", "python": "3"}, position=NOWHERE
    )
    (found,) = drifts(state(), TOP, now, {"python": "3"})
    assert found.lines == ("tool:new was added: 1",)
    assert drifts(state(), TOP, now, {**now.environment, "lockfile:x.lock": "2"})[0].drift == "environment"

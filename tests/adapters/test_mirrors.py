"""A run without a log is found by its mirrors as it would be with one; what they do not tell is unknown, never invented."""

from __future__ import annotations

import pytest

from holdfast.adapters.git.repo import GitWorkspace
from tests.adapters.test_history import RUN, drop, repo, three
from tests.adapters.test_history_matrix import mirror

__all__ = ["repo", "three"]  # fixtures


def alone(repo, run_id=RUN):
    """What `holdfast resume` knows of a run that has no log."""
    (one,) = GitWorkspace(str(repo.folder), repo.environ).only_mirrored(only=run_id)
    return one


def places(one):
    return [(known.index, known.title, known.sha) for known in one.known]


@pytest.fixture
def mirrored(three):
    (three.folder / ".git" / "info" / "exclude").write_text(".holdfast/\n")
    mirror(three)
    return three


# --- with sidecars


def test_milestones_that_were_fixed_up_are_all_in_the_one_commit(mirrored):
    mirrored("reset", "-q", "--soft", "HEAD~2")
    mirrored("commit", "-q", "-m", "feature (#12)")
    one = alone(mirrored)
    assert one.is_sure and one.position[:4] == ("squash", "strong", mirrored.sha(), 2)
    first = mirrored.records[0].sha
    assert places(one) == [(0, "milestone 0", first), *((n, f"milestone {n}", mirrored.sha()) for n in (1, 2))]


def test_a_milestone_that_was_moved_is_taken_over_as_it_is_now(mirrored):
    mirrored.move_main()
    mirrored("rebase", "-q", "main")
    one = alone(mirrored)
    assert [known.sha for known in one.known] == [mirrored.sha(f"HEAD~{n}") for n in (2, 1, 0)]
    assert [known.parent for known in one.known] == [mirrored.sha(f"HEAD~{n}") for n in (3, 2, 1)]
    assert one.known[2].tree == mirrored.sha("HEAD^{tree}")


def test_a_last_milestone_that_was_dropped_is_missed(mirrored):
    drop(mirrored, "milestone 2")
    one = alone(mirrored)
    assert one.position.index == 1 and not one.is_sure
    assert "milestone 2" in one.position.why and "was not found" in one.position.why


def test_a_lower_milestone_that_was_dropped_is_named(mirrored):
    drop(mirrored, "milestone 1")
    one = alone(mirrored)
    assert one.position.index == 2 and one.is_sure
    assert f"milestone 1 ({mirrored.records[1].sha[:12]}) was not found" in one.position.why


def test_a_run_whose_milestones_are_elsewhere_is_unknown_with_choices(mirrored):
    mirrored("checkout", "-q", "main")
    one = alone(mirrored)
    assert one.position.sha is None and not one.is_sure and one.known == []
    assert "which is on work" in one.position.choices[0]


# --- with messages only


def test_a_message_without_a_number_tells_none(three):
    script = "exec sed '/^Holdfast-Milestone/d'"
    three("filter-branch", "-f", "--msg-filter", script, "main..HEAD", FILTER_BRANCH_SQUELCH_WARNING="1")
    one = alone(three)
    assert one.position.sha is None and one.known == []
    assert "not for sure which milestone" in one.position.why and one.position.choices


def test_a_message_that_joins_several_has_no_title_for_the_last(three):
    three("rebase", "-q", "-i", "main", GIT_SEQUENCE_EDITOR="sed -i -e '2,$s/^pick/squash/'")
    assert three("log", "-1", "--format=%s") == "Reach milestone 0"
    one = alone(three)
    assert one.position.sha is None and one.known == [] and "which title is whose" in one.position.why


def test_a_squash_that_still_names_the_run_is_told(three):
    three("checkout", "-q", "main")
    three("merge", "-q", "--squash", "work")
    three("commit", "-q", "-F", ".git/SQUASH_MSG")
    one = alone(three)
    assert one.position.sha is None and "not for sure which milestone" in one.position.why and one.position.choices


def test_two_numbers_for_one_checkpoint_are_none(three):
    message = three("log", "-1", "--format=%B").replace("Holdfast-Milestone: 2", "Holdfast-Milestone: 40")
    three.commit(message, more="1\n")
    one = alone(three)
    assert one.position.index == 1 and 40 not in [known.index for known in one.known]
    assert not one.is_sure and "name 1 more checkpoint of this run" in one.position.why


def test_a_message_that_names_no_run_is_no_runs(repo):
    repo.commit("Something\n\nHoldfast-Checkpoint: cp-1\nHoldfast-Milestone: 0\n", a="1\n")
    assert GitWorkspace(str(repo.folder), repo.environ).only_mirrored() == []


def test_a_milestone_that_lost_its_name_makes_the_answer_unsure(three):
    three("commit", "-q", "--amend", "-m", "Reworded")
    one = alone(three)
    assert one.position[:2] == ("git_log_run_specific", "weak") and one.position.index == 1 and not one.is_sure

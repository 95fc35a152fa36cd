"""Milestones that are equal to each other, to another run's, or on one commit are told apart, or are only offered."""

from __future__ import annotations

from tests.adapters.test_history import RUN, Repo, as_sidecars, at, drop, repo, three

__all__ = ["repo", "three"]  # fixtures


def equal(repo, *texts, trailers=True, run_id=RUN):
    """Milestones that set one file to these texts: two with the same text on the same ground change the same."""
    return [repo.milestone(index, trailers, run_id, base=text) for index, text in enumerate(texts)]


def in_one_second(repo):
    """From now on everything has the same author and time."""
    times = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), "@1800000000 +0000")
    return lambda *argv, **more: Repo.__call__(repo, *argv, **{**times, **more})


def reword(repo, *lines):
    """Rewrite every commit since main without its trailers; `lines` are scripts for the list of commits."""
    script = " ".join(f"-e '{one}'" for one in (*lines, "s/^pick/reword/"))
    repo(
        *("rebase", "-q", "-i", "main"), GIT_SEQUENCE_EDITOR=f"sed -i {script}", GIT_EDITOR="sed -i '/^Holdfast/d'",
    )  # fmt: skip


# --- on one commit


def test_milestones_on_one_commit_stay_together_where_a_sidecar_knows_of_one_of_them(repo):
    sha = repo.milestone(0)
    repo.record(1, sha)
    repo.move_main()
    repo("rebase", "-q", "main")
    linked = repo.record(0, repo.sha(), source="sidecar")
    assert at(repo.find()) == ("patch_id", "strong", repo.sha(), 1)
    assert repo.find(checkpoint_id="cp-run-1-1").sha == linked.sha
    repo.strip_trailers()
    assert at(repo.find()) == ("patch_id", "strong", repo.sha(), 1)


# --- equal to each other


def test_the_one_that_is_left_of_two_equal_milestones_is_told_by_author_and_time(repo):
    equal(repo, "1\n", "base\n", "1\n")
    reword(repo, "1,2d")
    assert at(repo.find()) == ("patch_id", "strong", repo.sha(), 2)
    assert repo.find(checkpoint_id="cp-run-1-0").source == "none"
    assert f"milestone 0 ({repo.records[0].sha[:12]}) was not found" in repo.find().why


def test_of_two_equal_milestones_of_one_second_the_one_that_is_left_is_only_offered(tmp_path):
    class Quick(Repo):
        def __call__(self, *argv, **more):
            return in_one_second(self)(*argv, **more)

    repo = Quick(tmp_path / "repo")
    equal(repo, "1\n", "base\n", "1\n")
    reword(repo, "3d")
    position = repo.find()
    assert at(position) == ("patch_id", "strong", repo.sha(), 1)
    assert f"milestone 2 ({repo.records[2].sha[:12]}) was not found" in position.why
    assert any("may be milestone 2" in choice for choice in position.choices)
    assert repo.find(checkpoint_id="cp-run-1-0").confidence == "weak"


def test_a_commit_that_names_one_milestone_is_not_taken_for_an_equal_one(repo):
    equal(repo, "1\n", "base\n", "1\n")
    drop(repo, "milestone 0", "milestone 1")
    assert repo.records[0].patch_id == repo.records[2].patch_id
    position = repo.find()
    assert at(position) == ("git_log_run_specific", "strong", repo.sha(), 2)
    assert f"milestone 0 ({repo.records[0].sha[:12]}) was not found" in position.why
    assert repo.find(checkpoint_id="cp-run-1-0").source == "none"


def test_files_that_two_milestones_had_do_not_make_the_first_the_last(repo):
    equal(repo, "1\n", "2\n", "1\n")
    repo("reset", "-q", "--hard", "HEAD~2")
    repo("commit", "-q", "--amend", "--no-edit")
    position = repo.find()
    assert at(position) == ("git_log_run_specific", "strong", repo.sha(), 0)


# --- a squash of some


def test_a_squash_without_a_lower_milestone_says_so(three):
    gone = three.records[0].sha
    three("rebase", "-q", "-i", "main", GIT_SEQUENCE_EDITOR="sed -i -e 1d -e '3s/pick/fixup/'")
    position = three.find()
    assert at(position) == ("squash", "strong", three.sha(), 2)
    assert f"milestone 0 ({gone[:12]}) was not found in this history" in position.why
    assert "milestone 1" not in position.why


# --- equal to another run's


def rivals(repo, kept):
    """Two runs that made the same, one after the other, and lost their names; `kept`: also the first one's commit."""
    (a,) = equal(repo, "1\n", run_id="run-a")
    repo("revert", "--no-edit", "HEAD")
    (b,) = equal(repo, "1\n", run_id="run-b")
    reword(repo, *(() if kept else ("1,2d",)))
    return a, b


def test_the_equal_commit_that_another_run_knows_is_not_taken(repo):
    _, b = rivals(repo, kept=False)
    assert at(repo.find(run_id="run-b")) == ("patch_id", "strong", repo.sha(), 0)
    for records in (repo.records, as_sidecars(repo.records)):
        assert repo.find(records, run_id="run-a").confidence == "weak"
        assert repo.find(records, run_id="run-a", rewrites=[(b, repo.sha())]).source == "none"


def test_each_of_two_runs_with_equal_work_is_found_at_its_own_commit(repo):
    rivals(repo, kept=True)
    assert at(repo.find(run_id="run-a")) == ("patch_id", "strong", repo.sha("HEAD~2"), 0)
    assert at(repo.find(run_id="run-b")) == ("patch_id", "strong", repo.sha(), 0)


def test_a_commit_that_only_another_run_made_is_no_squash_of_ours(repo):
    """All that was changed up to our milestone is just what the other run's changed."""
    equal(repo, "1\n", run_id="run-b")
    repo.commit("Extra", extra="1\n")
    repo("rm", "-q", "extra")
    repo.milestone(0, run_id="run-a", base="1\n")
    reword(repo, "2,3d")
    assert at(repo.find(run_id="run-b")) == ("patch_id", "strong", repo.sha(), 0)
    assert repo.find(run_id="run-a").confidence in ("none", "weak")


# --- the choices


def test_the_branch_of_each_milestone_is_told(three):
    three("checkout", "-q", "main")
    choices = three.find().choices
    assert [choice.partition(",")[2][:17] for choice in choices[:3]] == [" which is on work"] * 3


# --- a sidecar against the log


def test_a_sidecar_that_names_another_commit_than_the_log_is_weak_unless_it_was_linked_again(three):
    three("commit", "-q", "--amend", "-m", "No trailers", "--date", "@1 +0000")
    linked = three.record(2, three.sha(), source="sidecar")
    assert at(three.find()) == ("sidecar", "certain", three.sha(), 2)
    three.records[-1] = linked._replace(tree=None)
    assert at(three.find()) == ("patch_id", "strong", three.sha(), 2)
    three.records[-1] = linked._replace(sha=three.sha("main"), tree=three.sha("main^{tree}"))
    assert at(three.find()) == ("patch_id", "strong", three.sha(), 2)
    assert at(three.find(as_sidecars(three.records[-1:])))[2:] == (three.sha("main"), 2), (
        "there is no log to hold it against"
    )

"""Everything people do to a history, times everything that may be left to find a milestone by: right, or unknown, never wrong.

The summary of the tests shows the table.
"""

from __future__ import annotations

import shutil

import pytest

from holdfast.adapters.git.history import find
from holdfast.adapters.git.repo import GitWorkspace
from holdfast.adapters.git.sidecars import write
from holdfast.core.position import nowhere
from holdfast.core.sidecar import Sidecar
from tests.adapters.test_history import RUN, Repo, forget

LAST = 2  # the milestones are 0, 1 and 2
LEFT = ("log present", "only sidecars", "only git")
TRAILER, PATCH, SQUASH = "git_log_run_specific", "patch_id", "squash"


def clone(repo, *options):
    """Another repository made from this one, without its .holdfast folder."""
    folder = repo.folder.with_name("clone")
    repo("clone", "-q", *options, f"file://{repo.folder}", str(folder))
    copy = Repo(folder, make=False)
    copy.records = repo.records
    return copy


# --- what is done to the history. Each returns the repository to look in, and the commit that now is milestone 2.


def rebased(repo):
    repo.move_main()
    repo("rebase", "-q", "main")
    return repo, repo.sha()


def rebased_without_trailers(repo):
    rebased(repo)
    repo.strip_trailers()
    return repo, repo.sha()


def rebased_with_the_hook(repo):
    """As the post-rewrite hook would have recorded it."""
    return rebased(repo)


def reworded(repo):
    script = "sed -i 's/^pick/reword/'"
    editor = "sed -i '1s/.*/Another title/'"
    repo("rebase", "-q", "-i", "main", GIT_SEQUENCE_EDITOR=script, GIT_EDITOR=editor)
    assert repo("log", "-1", "--format=%s") == "Another title"
    return repo, repo.sha()


def reworded_without_trailers(repo):
    repo.strip_trailers()
    return repo, repo.sha()


def squashed(repo, *message):
    repo.move_main()
    repo("checkout", "-q", "main")
    repo("merge", "-q", "--squash", "work")
    repo("commit", "-q", *message)
    return repo, repo.sha()


def squashed_with_bullets(repo):
    found = squashed(repo, "-F", ".git/SQUASH_MSG")
    assert "Holdfast-Checkpoint: cp-run-1-2" in repo("log", "-1", "--format=%B")
    return found


def squashed_with_a_title(repo):
    return squashed(repo, "-m", "All of the work (#12)")


def fixed_up(repo):
    """Everything, in one commit that keeps only a title of its own."""
    repo("reset", "-q", "--soft", "HEAD~3")
    repo("commit", "-q", "--amend", "-m", "All of the work")
    return repo, repo.sha()


def fixed_up_in_part_and_rebased(repo):
    """Milestones 1 and 2 in one commit, on top of a milestone 0 that kept its trailers."""
    repo("reset", "-q", "--soft", "HEAD~2")
    repo("commit", "-q", "-m", "The rest of the work")
    return rebased(repo)


def picked(repo):
    repo("checkout", "-q", "-b", "other", repo.move_main())
    repo("cherry-pick", "-x", "main..work")
    return repo, repo.sha()


def amended(repo):
    (repo.folder / "file2").write_text("".join(f"line {number} of 2\n" for number in range(11)))
    repo("commit", "-q", "-a", "--amend", "--no-edit")
    return repo, repo.sha()


def amended_without_trailers(repo):
    (repo.folder / "file2").write_text("".join(f"line {number} of 2\n" for number in range(11)))
    repo("commit", "-q", "-a", "--amend", "-m", "Reworded, and one more line")
    return repo, repo.sha()


def merged_fast_forward(repo):
    sha = repo.sha()
    repo("checkout", "-q", "main")
    repo("merge", "-q", "--ff-only", "work")
    repo("branch", "-q", "-d", "work")
    return repo, sha


def merged(repo):
    sha = repo.sha()
    repo.move_main()
    repo("checkout", "-q", "main")
    repo("merge", "-q", "--no-ff", "--no-edit", "work")
    return repo, sha


def squashed_then_deleted(repo):
    """Nothing of the old commits is left; main had not moved, so the files are the same."""
    repo("checkout", "-q", "main")
    repo("merge", "-q", "--squash", "work")
    repo("commit", "-q", "-m", "All of the work")
    repo("branch", "-q", "-D", "work")
    forget(repo)
    return repo, repo.sha()


def squashed_elsewhere_then_deleted(repo):
    """Nothing of the old commits is left, and main had moved: nothing can be compared."""
    squashed(repo, "-m", "All of the work")
    repo("branch", "-q", "-D", "work")
    forget(repo)
    return repo, repo.sha()


def squashed_then_deleted_with_snapshot(repo):
    """The same, but the snapshot of the workspace that every checkpoint has keeps the files of the milestone."""
    snapshot = repo("commit-tree", repo.records[LAST].tree, "-p", repo.records[LAST].parent, "-m", "Snapshot")
    repo("update-ref", "refs/holdfast/checkpoints/cp-run-1-2", snapshot)
    repo, sha = squashed_elsewhere_then_deleted(repo)
    assert repo("cat-file", "-e", repo.records[LAST].sha, check=False) == ""
    return repo, sha


def deleted(repo):
    repo("checkout", "-q", "main")
    repo("branch", "-q", "-D", "work")
    forget(repo)
    return repo, None


def cloned_shallow(repo):
    sha = repo.sha()
    return clone(repo, "--depth", "1", "--branch", "work"), sha


def cloned_shallow_too_short(repo):
    repo.commit("Something later", later="1")
    return clone(repo, "--depth", "1", "--branch", "work"), repo.records[LAST].sha


def cloned(repo):
    sha = repo.sha()
    return clone(repo, "--branch", "work"), sha


def equal_work_of_another_run(repo):
    """Another run came to the same changes on a branch of its own, and that one is checked out."""
    repo("checkout", "-q", "-b", "other", "main")
    repo.milestone(0, run_id="run-2")
    repo.commit("A person's own commit", person="1\n")
    repo.milestone(1, run_id="run-2")
    repo.milestone(2, run_id="run-2")
    return repo, None


MATRIX = {
    # what was done:                              the source by which milestone 2 is found, with each of LEFT
    rebased: (TRAILER, TRAILER, TRAILER),
    rebased_with_the_hook: ("post_rewrite", "post_rewrite", TRAILER),
    rebased_without_trailers: (PATCH, PATCH, "none"),
    reworded: (TRAILER, TRAILER, TRAILER),
    reworded_without_trailers: (PATCH, PATCH, "none"),
    squashed_with_bullets: (SQUASH, SQUASH, "none"),
    squashed_with_a_title: (SQUASH, SQUASH, "none"),
    fixed_up: (SQUASH, SQUASH, "none"),
    fixed_up_in_part_and_rebased: (SQUASH, SQUASH, "lower"),
    picked: (TRAILER, TRAILER, TRAILER),
    amended: (TRAILER, TRAILER, TRAILER),
    amended_without_trailers: ("range_diff", "range_diff", "lower"),
    merged_fast_forward: ("log", "sidecar", TRAILER),
    merged: ("log", "sidecar", TRAILER),
    squashed_then_deleted: (SQUASH, SQUASH, "none"),
    squashed_elsewhere_then_deleted: ("none", "none", "none"),
    squashed_then_deleted_with_snapshot: (SQUASH, SQUASH, "none"),
    deleted: ("none", "none", "none"),
    cloned_shallow: ("log", "sidecar", TRAILER),
    cloned_shallow_too_short: ("none", "none", "none"),
    cloned: ("log", TRAILER, TRAILER),  # the sidecars did not come with the clone
    equal_work_of_another_run: ("none", "none", "none"),
}


def mirror(repo):
    folder = str(repo.folder / ".holdfast" / "checkpoints")
    for one in repo.records:
        write(folder, Sidecar(
            schema_version=1, checkpoint_id=one.checkpoint_id, sha=one.sha, run_id=one.run_id, milestone_index=one.index,
            milestone_title=one.title, created_at="2026", tree=one.tree, patch_id=one.patch_id, branch=one.branch,
            parent=one.parent, base=one.base, seq=one.index,
        ))  # fmt: skip


def prepare(folder):
    """A repository in which a run reached three milestones, with a commit of a person between them."""
    repo = Repo(folder)
    (repo.folder / ".git" / "info" / "exclude").write_text(".holdfast/\n")
    repo.milestone(0)
    repo.commit("A person's own commit", person="1\n")
    repo.milestone(1)
    repo.milestone(2)
    mirror(repo)
    return repo


def rewrites_of(repo):
    """Old and new, as git tells the post-rewrite hook."""
    old = [record.sha for record in repo.records]
    new = [repo.sha("HEAD~3"), repo.sha("HEAD~1"), repo.sha("HEAD")]
    return list(zip(old, new, strict=True))


def look(change, folder):
    """Do it, and look with everything, with the sidecars, and with nothing. Returns the right commit and three positions.

    Without a log there are no records but those of mirrors, so these are found as `holdfast resume` finds them.
    """
    repo, sha = change(prepare(folder / "repo"))
    rewrites = rewrites_of(repo) if change is rebased_with_the_hook else []
    if change is cloned_shallow or change is cloned_shallow_too_short:
        mirror(repo)  # carried over by hand
    if rewrites:
        (repo.folder / ".git" / "holdfast").mkdir()
        (repo.folder / ".git" / "holdfast" / "rewrites").write_text("".join(f"{old} {new}\n" for old, new in rewrites))
    found = [find(repo.git(), RUN, repo.records, rewrites=rewrites), without_log(repo)]
    for gone in (".holdfast", ".git/holdfast"):
        shutil.rmtree(repo.folder / gone, ignore_errors=True)
    return repo, sha, [*found, without_log(repo)]


def without_log(repo):
    for one in GitWorkspace(str(repo.folder), repo.environ).only_mirrored(only=RUN):
        return one.position
    return nowhere("Nothing here names the run.", ["Bring its log or its sidecars."])


def cell(position):
    if position.sha is None:
        return f"unknown, {len(position.choices)} choices"
    return f"{position.index} by {position.source}, {position.confidence}"


@pytest.mark.parametrize("change", MATRIX, ids=lambda change: change.__name__)
def test_a_milestone_is_found_where_it_is_or_its_position_is_unknown(tmp_path, change, record_property):
    repo, sha, positions = look(change, tmp_path)
    record_property("matrix", [list(MATRIX).index(change), change.__name__.replace("_", " "), *map(cell, positions)])
    for left, wanted, position in zip(LEFT, MATRIX[change], positions, strict=True):
        if wanted == "none":
            assert position[:4] == ("none", "none", None, None), left
            assert position.choices and position.why, left
        elif wanted == "lower":
            # nothing says that there ever was a milestone 2: what is found is true, and that it may not be the last is said
            assert (position.source, position.confidence) == (TRAILER, "weak") and position.index < LAST, left
            assert "no milestone, and no log tells" in position.why and position.choices, left
            message = repo("log", "-1", "--format=%B", position.sha)
            assert message.endswith(
                f"Holdfast-Checkpoint: cp-run-1-{position.index}\nHoldfast-Milestone: {position.index}"
            )
        else:
            assert (position.source, position.sha, position.index) == (wanted, sha, LAST), (left, position)
            assert position.confidence in ("certain", "strong")
            assert position.checkpoint_id == "cp-run-1-2"
            repo("merge-base", "--is-ancestor", position.sha, "HEAD")
        if position.was is not None:
            assert position.was == repo.records[LAST].sha and position.was[:12] in position.why
            assert position.sha[:12] in position.why, "old and new are both named"

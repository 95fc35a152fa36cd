"""A milestone is found where it is now, by evidence that is named, or is said to be unknown; another run's is never taken."""

from __future__ import annotations

import os
import shutil
import subprocess
from itertools import pairwise

import pytest

from holdfast.adapters.git import history_log, history_patches
from holdfast.adapters.git.history import facts_of, find, patch_id_of
from holdfast.adapters.git.sidecars import read_all, write
from holdfast.adapters.probes.git_place import find_repository
from holdfast.adapters.probes.git_runner import Git
from holdfast.core.position import Known
from holdfast.core.sidecar import Sidecar
from holdfast.core.subjects import with_trailers

RUN = "run-1"


class Repo:
    """A real repository with a clock of its own, and plain git to do to it what people do."""

    def __init__(self, folder, make=True):
        self.folder, self.now, self.records = folder, 1_800_000_000, []
        home = folder.parent / "home"
        home.mkdir(parents=True, exist_ok=True)
        (home / ".gitconfig").write_text("[user]\n\tname = Somebody\n\temail = somebody@example.invalid\n")
        self.environ = {"HOME": str(home), "PATH": os.environ["PATH"], "LC_ALL": "C", "GIT_CONFIG_NOSYSTEM": "1"}
        if make:
            folder.mkdir()
            self("init", "-q", "-b", "main")
            self.commit("Begin", base="base\n")
            self("checkout", "-q", "-b", "work")

    def __call__(self, *argv, check=True, stdin=None, **more):
        self.now += 60
        times = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), f"{self.now} +0000")
        done = subprocess.run(
            ["git", *argv], cwd=self.folder, env={**self.environ, **times, "GIT_EDITOR": "true", **more},
            capture_output=True, text=True, input=stdin, check=False,
        )  # fmt: skip
        assert done.returncode == 0 or not check, (argv, done.stderr)
        return done.stdout.rstrip("\n")

    def commit(self, message, **files):
        for name, text in files.items():
            (self.folder / name).write_text(text)
        self("add", "-A")
        self("commit", "-q", "--allow-empty", "-F", "-", stdin=message)
        return self.sha()

    def sha(self, name="HEAD"):
        return self("rev-parse", "--verify", name)

    def git(self):
        return Git(find_repository(str(self.folder)), self.environ)

    def record(self, index, sha, checkpoint_id=None, run_id=RUN, **more):
        parent = self("rev-parse", "--verify", "--quiet", f"{sha}~", check=False) or None
        known = Known(
            checkpoint_id=checkpoint_id or f"cp-{run_id}-{index}",
            run_id=run_id,
            index=index,
            title=f"milestone {index}",
            sha=sha,
            tree=self.sha(f"{sha}^{{tree}}"),
            patch_id=patch_id_of(self.git(), sha),
            parent=parent,
            branch="refs/heads/work",
            base=self.sha("main"),
            source="log",
        )._replace(**more)
        self.records.append(known)
        return known

    def milestone(self, index, trailers=True, run_id=RUN, title=None, **files):
        """A commit that changes a few lines, as a milestone does; recorded."""
        message = f"{title or f'Reach milestone {index}'}\n"
        if trailers:
            message = with_trailers(message, run_id, f"cp-{run_id}-{index}", index)
        files = files or {f"file{index}": "".join(f"line {number} of {index}\n" for number in range(10))}
        sha = self.commit(message, **files)
        self.record(index, sha, run_id=run_id)
        return sha

    def find(self, records=None, run_id=RUN, **more):
        return find(self.git(), run_id, self.records if records is None else records, **more)

    def move_main(self):
        """Somebody else commits on main."""
        self("checkout", "-q", "main")
        sha = self.commit("Somebody else's work", other="other\n")
        self("checkout", "-q", "work")
        return sha

    def strip_trailers(self, since="main"):
        """Rewrite the messages so that they name nothing any more."""
        script = 'exec sed "/^Holdfast-/d"'
        self("filter-branch", "-f", "--msg-filter", script, f"{since}..HEAD", FILTER_BRANCH_SQUELCH_WARNING="1")
        self("update-ref", "-d", "refs/original/refs/heads/work", check=False)


def as_sidecars(records):
    return [record._replace(source="sidecar") for record in records]


@pytest.fixture
def repo(tmp_path):
    return Repo(tmp_path / "repo")


@pytest.fixture
def three(repo):
    for index in range(3):
        repo.milestone(index)
    return repo


def at(position):
    return position.source, position.confidence, position.sha, position.index


# --- the chain


def test_a_record_of_the_log_goes_before_everything_else(three):
    position = three.find([*as_sidecars(three.records), *three.records])
    assert at(position) == ("log", "certain", three.sha(), 2)
    assert position.checkpoint_id == "cp-run-1-2" and position.was is None and position.choices == ()


def test_a_sidecar_is_next(three):
    assert at(three.find(as_sidecars(three.records))) == ("sidecar", "certain", three.sha(), 2)


def test_then_come_the_commits_that_name_the_run(three):
    assert at(three.find([])) == ("git_log_run_specific", "strong", three.sha(), 2)


def test_then_subjects_without_a_run_and_they_must_be_confirmed(repo):
    repo.commit("chore(agent): checkpoint milestone 0", a="1")
    sha = repo.commit("chore(agent): checkpoint milestone 1", a="2")
    repo.commit("Something else", a="3")
    position = repo.find()
    assert at(position) == ("git_log_legacy", "weak", sha, 1)
    assert "confirm" in position.choices[0] and position.checkpoint_id is None
    assert repo.find(allow_legacy=False).source == "none"


def test_and_then_nothing_with_choices(repo):
    position = repo.find()
    assert at(position) == ("none", "none", None, None)
    assert position.choices and "unknown" in position.why


def test_runrs_subjects_are_found_by_their_run(repo):
    repo.commit("chore(runr): checkpoint 20260104035601 milestone 0", a="1")
    sha = repo.commit("chore(runr): checkpoint 20260104035601 milestone 0", a="2")
    repo.commit("chore(runr): checkpoint 20260104999999 milestone 7", a="3")
    position = repo.find(run_id="20260104035601")
    assert at(position) == ("git_log_run_specific", "strong", sha, 0)
    assert position.checkpoint_id == "runr-20260104035601-0"
    assert "1 older commit" in position.why


# --- which milestone


def test_the_highest_milestone_wins_and_not_the_newest_commit(repo):
    high = repo.milestone(5)
    repo.milestone(1)
    assert repo.find()[2:4] == (high, 5)
    assert repo.find([])[2:4] == (high, 5)


def test_two_milestones_on_one_commit_are_both_known_and_the_higher_is_taken(repo):
    sha = repo.milestone(0)
    repo.record(1, sha)
    assert at(repo.find()) == ("log", "certain", sha, 1)
    repo.move_main()
    repo("rebase", "-q", "main")
    position = repo.find()
    assert at(position) == ("patch_id", "strong", repo.sha(), 1), "the message names only the first of the two"
    assert position.was == sha and position.checkpoint_id == "cp-run-1-1"


def test_a_higher_milestone_is_looked_for_although_a_lower_one_is_certain(three):
    old = three.sha()
    three("commit", "-q", "--amend", "-m", "Another title, and no trailers")
    position = three.find()
    assert at(position) == ("patch_id", "strong", three.sha(), 2)
    assert position.was == old


def test_what_was_taken_back_is_not_found_and_that_is_said(three):
    gone = three.sha()
    three("reset", "-q", "--hard", "HEAD~1")
    position = three.find()
    assert at(position) == ("log", "certain", three.sha(), 1)
    assert f"milestone 2 ({gone[:12]}) was not found" in position.why


def test_a_commit_without_any_change_in_history_is_no_milestone(repo):
    """The files are back to what they were: that alone does not make the first commit the last milestone."""
    first = repo.milestone(0, a="1\n")
    repo.milestone(1, a="2\n")
    repo.milestone(2, a="1\n")
    repo("reset", "-q", "--hard", first)
    repo("commit", "-q", "--allow-empty", "-m", "Nothing")
    assert repo.find()[2:4] == (first, 0)


def test_one_commit_is_never_taken_for_two_milestones_that_change_the_same(repo):
    first = repo.milestone(0, trailers=False, base="1\n")
    repo.milestone(1, trailers=False, base="base\n")
    repo.milestone(2, trailers=False, base="1\n")
    assert repo.records[0].patch_id == repo.records[2].patch_id
    repo.move_main()
    repo("rebase", "-q", "main")
    assert at(repo.find()) == ("patch_id", "strong", repo.sha(), 2)
    repo("reset", "-q", "--hard", "HEAD~2")
    assert repo.sha() != first
    position = repo.find()
    assert at(position) == ("patch_id", "strong", repo.sha(), 0)


def test_a_milestone_that_stayed_does_not_stand_in_the_way_of_an_equal_one_that_moved(repo):
    for index, text in enumerate(("1\n", "base\n", "1\n")):
        repo.milestone(index, trailers=False, base=text)
    assert repo.records[0].patch_id == repo.records[2].patch_id
    repo("commit", "-q", "--amend", "-m", "Reworded", "--date", "@1 +0000")
    assert at(repo.find()) == ("patch_id", "strong", repo.sha(), 2)


# --- sha and index from one record


def test_sha_and_index_are_always_of_one_record(three):
    wrong = [three.records[0]._replace(index=7, checkpoint_id="cp-run-1-7")]
    position = three.find([*three.records, *wrong])
    assert (position.sha, position.index, position.checkpoint_id) == (three.records[0].sha, 7, "cp-run-1-7")


def test_a_squash_with_the_old_messages_as_bullets_is_not_the_last_of_them(three):
    three("checkout", "-q", "main")
    three("merge", "-q", "--squash", "work")
    three("commit", "-q", "-F", ".git/SQUASH_MSG")
    assert "Holdfast-Checkpoint: cp-run-1-2" in three("log", "-1", "--format=%B")
    position = three.find([])
    assert at(position) == ("none", "none", None, None)
    assert position.choices


def test_a_body_that_quotes_a_checkpoint_is_not_one(repo):
    repo.commit("Fix\n\nchore(runr): checkpoint 20260104035601 milestone 4\n", a="1")
    repo.commit(f"Fix\n\n{with_trailers('x', RUN, 'cp', 3)}\nand so on\n", a="2")
    assert repo.find([], run_id="20260104035601").source == "none"
    assert repo.find([]).source == "none"


# --- other runs


def test_another_runs_checkpoint_is_never_taken(repo):
    repo.milestone(9, run_id="run-2")
    ours = repo.milestone(0)
    repo.milestone(9, run_id="run-3")
    assert repo.find()[2:4] == (ours, 0)
    assert repo.find(as_sidecars(repo.records))[2:4] == (ours, 0)
    assert repo.find([])[2:4] == (ours, 0)
    assert repo.find(run_id="run-4").source == "none"


@pytest.fixture
def rivals(repo):
    """Two runs that came to the same changes, each on a branch of its own; the second one's is checked out."""
    for run_id, branch in (("run-a", "wa"), ("run-b", "wb")):
        repo("checkout", "-q", "-b", branch, "main")
        repo.milestone(0, run_id=run_id, f="hello\n")
        repo.milestone(1, run_id=run_id, g="world\n")
    return repo


def test_the_equal_work_of_another_run_is_never_taken(rivals):
    position = rivals.find(run_id="run-a")
    assert at(position) == ("none", "none", None, None)
    assert any("which is on wa" in choice for choice in position.choices)
    assert at(rivals.find(run_id="run-b")) == ("log", "certain", rivals.sha(), 1)
    assert rivals.find(run_id="run-a", checkpoint_id="cp-run-a-0").source == "none"


@pytest.mark.parametrize("how", ["--squash", "soft", "title"])
def test_a_squash_of_another_runs_equal_work_is_never_taken(rivals, how):
    """Whichever way a message names the runs that were squashed in it: indented, in paragraphs, or by a subject alone."""
    rivals("checkout", "-q", "-b", "squashed", "main")
    rivals("merge", "-q", "--squash", "wb")
    both = "".join(
        f"* part {index}\n\n{with_trailers('x', 'run-b', f'cp-run-b-{index}', index)[3:]}\n" for index in (0, 1)
    )
    titles = "\n\nchore(runr): checkpoint run-b milestone 0\n\nchore(runr): checkpoint run-b milestone 1\n"
    message = {"soft": f"All of it\n\n{both}", "title": f"All of it{titles}"}
    more = ("-F", ".git/SQUASH_MSG") if how == "--squash" else ("-m", message[how])
    rivals("commit", "-q", *more)
    assert rivals.find(run_id="run-a").source == "none"
    rivals("commit", "-q", "--amend", "-m", "All of it")
    assert rivals.find(run_id="run-a").source == "squash", "that names nobody"


@pytest.mark.parametrize("order", [("run-a", "run-b"), ("run-b", "run-a")])
def test_a_squash_that_names_several_runs_is_found_for_each_whose_work_it_holds(rivals, order):
    rivals("checkout", "-q", "-b", "squashed", "main")
    rivals("merge", "-q", "--squash", "wb")
    parts = (with_trailers(f"* part of {run_id}", run_id, f"cp-{run_id}-1", 1) for run_id in order)
    rivals("commit", "-q", "-F", "-", stdin="All of it\n\n" + "\n".join(parts))
    for run_id in order:
        position = rivals.find(run_id=run_id)
        assert (position.confidence, position.sha, position.index) == ("strong", rivals.sha(), 1)


def test_a_milestone_without_a_change_of_its_own_is_found_on_the_other_runs_commit_it_stood_on(repo):
    """It names the commit it stands on, which may bear the name of another run; and so does that commit after a rebase."""
    sha = repo.milestone(0, run_id="run-b")
    repo.record(0, sha, run_id="run-a", patch_id=None)
    repo.move_main()
    repo("rebase", "-q", "main")
    assert at(repo.find(run_id="run-a")) == ("patch_id", "strong", repo.sha(), 0)


@pytest.mark.parametrize(
    ("before", "why"),
    [
        (["chore(runr): checkpoint 20260104035601 milestone 0"], "another run"),
        (["chore(agent): checkpoint milestone 0", "chore(agent): checkpoint milestone 3"], "more than one run"),
        (["chore(agent): checkpoint milestone 2"], "more than one run"),
    ],
)
def test_subjects_without_a_run_are_not_taken_where_they_can_be_another_runs(repo, before, why):
    for subject in before:
        repo.commit(subject, a=subject)
    repo.commit("chore(agent): checkpoint milestone 2", a="2")
    position = repo.find()
    assert position.source == "none"
    assert any(why in choice for choice in position.choices)


def test_subjects_without_a_run_are_not_taken_for_a_run_that_has_records(three):
    three("checkout", "-q", "main")
    three.commit("chore(agent): checkpoint milestone 2", a="2")
    position = three.find()
    assert position.source == "none"
    assert any("records of its own" in choice for choice in position.choices)


# --- forged


def test_a_trailer_with_another_runs_id_counts_for_neither(three):
    three.commit(with_trailers("Forged", "run-2", "cp-run-1-2", 2), a="1")
    assert three.find()[2:4] == (three.records[2].sha, 2)
    assert three.find(run_id="run-2", records=[])[2:4] == (three.sha(), 2), (
        "only git: what a message says is all there is"
    )
    assert three.find([], run_id="run-1")[2:4] == (three.records[2].sha, 2)


def test_a_name_on_a_commit_that_is_nothing_like_the_milestone_is_weak(three):
    """The log knows what the milestone changed, and by whom and when: a forged trailer has nothing of it."""
    gone = three.records[2].sha
    three("reset", "-q", "--hard", "HEAD~1")
    sha = three.commit(with_trailers("Forged", RUN, "cp-run-1-2", 2), evil="evil\n")
    position = three.find()
    assert at(position) == ("log", "certain", three.records[1].sha, 1)
    assert any(sha[:12] in choice and "neither its changes" in choice for choice in position.choices)
    position = three.find([three.records[2]])
    assert at(position) == ("git_log_run_specific", "weak", sha, 2) and position.was == gone
    assert "neither its changes nor its files nor its author" in position.why
    assert three.find(as_sidecars(three.records)).confidence == "strong", (
        "where there is no log, the name is all there is"
    )


def test_the_true_commit_is_found_although_a_forged_one_bears_its_name_nearer_to_the_tip(three):
    three.move_main()
    three("rebase", "-q", "main")
    true = three.sha()
    three.commit(with_trailers("Forged", RUN, "cp-run-1-2", 2), evil="evil\n")
    assert at(three.find()) == ("patch_id", "strong", true, 2)


@pytest.mark.parametrize("kept", ["changes", "files", "author and time", "nothing to compare"])
def test_a_name_is_strong_if_anything_of_the_milestone_is_kept(three, kept):
    more = {"changes": ("--date", "@1 +0000"), "files": ("--date", "@1 +0000"), "author and time": ()}
    if kept == "changes":
        three.move_main()
        three("rebase", "-q", "main")
    if kept in ("author and time", "nothing to compare"):
        (three.folder / "file2").write_text("something else\n")
    three("commit", "-q", "-a", "--amend", "--no-edit", *more.get(kept, ("--date", "@1 +0000")))
    records = three.records
    if kept == "nothing to compare":
        forget(three)
        records = [one._replace(tree=None, patch_id=None) for one in records]
    if kept == "files":
        records = [one._replace(patch_id=None) for one in records]
    assert at(three.find(records)) == ("git_log_run_specific", "strong", three.sha(), 2)


def test_a_sidecar_that_only_itself_knows_of_is_weak_where_there_is_a_log(three):
    later = three.commit("Something else", a="1\n")
    false = three.record(7, later, "cp-forged", source="sidecar")
    position = three.find()
    assert at(position) == ("log", "certain", three.records[2].sha, 2)
    assert any(later[:12] in choice and "the log does not know it" in choice for choice in position.choices)
    assert "milestone 7" not in position.why
    assert at(three.find([false])) == ("sidecar", "certain", later, 7), "without a log it is believed"


def test_a_sidecar_that_git_contradicts_is_not_believed(three):
    false = three.records[0]._replace(index=7, checkpoint_id="cp-forged", source="sidecar", tree="f" * 40)
    for records in ([*three.records, false], [*as_sidecars(three.records), false]):
        position = three.find(records)
        assert (position.confidence, position.sha, position.index) == ("certain", three.records[2].sha, 2)
        assert "cp-forged is not believed" in position.why and position.choices == ()
    three("checkout", "-q", "main")
    assert "cp-forged is not believed" in three.find([false]).why, "nor where its commit is not in this history"


def test_a_milestone_that_the_log_does_not_know_is_only_offered(three):
    sha = three.commit(with_trailers("Forged", RUN, "cp-forged", 99), a="1")
    position = three.find()
    assert at(position) == ("log", "certain", three.records[2].sha, 2)
    assert any(sha[:12] in choice and "99" in choice for choice in position.choices)


def test_a_trailer_that_contradicts_its_record_is_not_believed(three):
    three.commit(with_trailers("Forged", RUN, "cp-run-1-1", 50), a="1")
    assert three.find()[2:4] == (three.records[2].sha, 2)
    three("commit", "-q", "--amend", "-F", "-", stdin=with_trailers("Forged", RUN, "cp-run-1-2", 50))
    assert three.find()[2:4] == (three.records[2].sha, 2)


def test_ten_thousand_trailers_and_control_characters_are_harmless(three):
    many = "".join(f"Holdfast-Checkpoint: cp-{number}\n" for number in range(10_000))
    three.commit(f"Forged\n\nHoldfast-Run: {RUN}\nHoldfast-Milestone: 9\n{many}", a="1")
    three.commit(
        f"Forged \x1b[2J\n\nHoldfast-Run: {RUN}\nHoldfast-Checkpoint: x\x1b]52;c;\x07\nHoldfast-Milestone: 9", a="2"
    )
    three.commit("Forged\n\nHoldfast-Run: run-1\u202e\nHoldfast-Checkpoint: x\nHoldfast-Milestone: 9", a="3")
    position = three.find([])
    assert position[2:4] == (three.records[2].sha, 2)
    assert (position.why + "".join(position.choices)).isprintable()


def test_bytes_that_are_not_text_do_not_disturb(three):
    people = "author \udcff <\udcfe@x> 1 +0000\ncommitter a <b> 1 +0000\n"
    raw = f"tree {three.sha('HEAD^{tree}')}\nparent {three.sha()}\n{people}\n\udcff\udcfe"
    sha = subprocess.run(
        ["git", "hash-object", "-t", "commit", "-w", "--stdin"], cwd=three.folder, capture_output=True, check=True,
        input=raw.encode("utf-8", "surrogateescape"),
    ).stdout.decode().strip()  # fmt: skip
    three("reset", "-q", "--hard", sha)
    assert three.find([])[2:4] == (three.records[2].sha, 2)


@pytest.mark.parametrize("name", ["--output=/tmp/holdfast-x", "-x", "no such", "HEAD:file0", "@{1", "\n"])
def test_a_name_that_is_no_commit_is_unknown_and_never_an_option(three, name):
    assert three.find(head=name).source == "none"
    assert not os.path.exists("/tmp/holdfast-x")


def test_a_record_that_is_no_sha_is_not_given_to_git(three):
    odd = three.records[2]._replace(
        index=9, checkpoint_id="cp-odd", sha="--all", base="--all", tree=None, patch_id=None
    )
    assert three.find([*three.records, odd])[2:4] == (three.records[2].sha, 2)
    assert three.find([odd], run_id=RUN).sha != "--all"


# --- gone


def forget(repo):
    """Nothing but HEAD keeps a commit from now on."""
    repo("for-each-ref", "--format=delete %(refname)", "refs/original", check=False)
    repo("reflog", "expire", "--expire=now", "--expire-unreachable=now", "--all")
    repo("gc", "-q", "--prune=now")


def test_a_commit_that_git_no_longer_has_is_matched_by_patch_then_by_tree_and_else_unknown(three):
    old = three.sha()
    three.strip_trailers()
    forget(three)
    assert three("cat-file", "-e", old, check=False) == "" and three.sha() != old
    assert at(three.find()) == ("patch_id", "strong", three.sha(), 2)
    without = [record._replace(patch_id=None) for record in three.records]
    position = three.find(without)
    assert at(position) == ("tree", "strong", three.sha(), 2)
    assert position.was == old
    bare = [record._replace(patch_id=None, tree=None) for record in three.records]
    position = three.find(bare)
    assert at(position) == ("none", "none", None, None)
    assert any("no longer has" in choice for choice in position.choices)


def test_a_commit_that_head_does_not_contain_is_never_the_answer(three):
    three("checkout", "-q", "main")
    position = three.find()
    assert at(position) == ("none", "none", None, None)
    assert "on work" in position.choices[0]
    three("checkout", "-q", "--detach", "main")
    three("branch", "-q", "-D", "work")
    assert "on no branch" in three.find().choices[0]


def test_where_nothing_is_committed_yet_the_position_is_unknown(tmp_path):
    repo = Repo(tmp_path / "repo", make=False)
    repo.folder.mkdir()
    repo("init", "-q")
    assert repo.find([]).source == "none"


# --- rewritten


def test_what_git_said_about_rewrites_is_followed_through_any_number_of_them(three):
    old = three.sha()
    chain = [old]
    for _ in range(3):
        three("commit", "-q", "--amend", "-m", "No trailers here", "--date", f"@{three.now}")
        three.commit("More", more=str(len(chain)))
        three("reset", "-q", "--soft", "HEAD~1")
        three("commit", "-q", "--amend", "--no-edit")
        chain.append(three.sha())
    rewrites = list(pairwise(chain))
    assert at(three.find(rewrites=rewrites)) == ("post_rewrite", "certain", chain[-1], 2)
    assert three.find(rewrites=rewrites).was == old


def test_rewrites_that_go_in_a_circle_are_not_followed(three):
    old = three.sha()
    three("commit", "-q", "--amend", "-m", "Nothing is named", "--date", "@1 +0000")
    new = three.sha()
    assert three.find(rewrites=[(old, new)]).source == "post_rewrite"
    assert three.find(rewrites=[(old, new), (new, old)]).source != "post_rewrite"
    assert three.find(rewrites=[(old, old)]).source != "post_rewrite"


def test_a_commit_that_git_wrote_again_as_it_was_is_no_circle(three):
    """The hook of git notes `x x` where a reword changed nothing."""
    old = three.sha()
    three("commit", "-q", "--amend", "-m", "Nothing is named", "--date", "@1 +0000")
    new = three.sha()
    for rewrites in ([(old, old), (old, new)], [(old, new), (new, new)]):
        assert at(three.find(rewrites=rewrites)) == ("post_rewrite", "certain", new, 2)


def drop(repo, *subjects):
    lines = "|".join(subjects)
    repo("rebase", "-q", "-i", "main", GIT_SEQUENCE_EDITOR=f"sed -i -E '/{lines}/d'")


def test_a_milestone_that_was_dropped_on_the_way_is_named(three):
    gone = three.records[1].sha
    drop(three, "milestone 1")
    position = three.find()
    assert at(position) == ("git_log_run_specific", "strong", three.sha(), 2)
    assert f"milestone 1 ({gone[:12]}) was not found in this history" in position.why
    assert "milestone 0 (" not in position.why
    assert "milestone 1 (" not in three.find(checkpoint_id="cp-run-1-2").why, "only that one was asked for"


def test_milestones_that_are_there_without_a_name_or_in_a_squash_are_not_called_lost(three):
    three.strip_trailers()
    position = three.find()
    assert position.source == "patch_id" and "not found" not in position.why
    three.commit(with_trailers("Again", RUN, "cp-run-1-3", 3), more="1\n")
    three.record(3, three.sha())
    position = three.find()
    assert at(position) == ("log", "certain", three.sha(), 3) and "not found" not in position.why


def test_a_squash_that_still_names_the_lower_milestones_does_not_lose_them(three):
    """As `git rebase -i` joins messages: the last one's trailers are the name, the others stand above."""
    script = "sed -i -e '2s/^pick/squash/'"
    three("rebase", "-q", "-i", "main", GIT_SEQUENCE_EDITOR=script)
    assert "cp-run-1-0" in three("log", "-1", "--format=%B", "HEAD~1")
    position = three.find()
    assert position.index == 2 and "not found" not in position.why


def test_a_reset_to_an_older_milestone_does_not_ask_git_to_compare_nothing(three):
    three("reset", "-q", "--hard", "HEAD~1")
    position = three.find()
    assert position.index == 1 and "range-diff" not in position.why and "could not" not in position.why


def test_a_rewrite_into_a_commit_that_is_gone_is_not_taken(three):
    three("checkout", "-q", "main")
    assert three.find(rewrites=[(three.records[2].sha, "f" * 40)]).source == "none"


def test_milestones_that_were_fixed_up_into_one_are_the_last_of_them(three):
    """The one commit keeps the message of the first, but holds the work of all."""
    three("reset", "-q", "--soft", "HEAD~2")
    three("commit", "-q", "--amend", "--no-edit")
    assert "cp-run-1-0" in three("log", "-1", "--format=%B")
    position = three.find()
    assert at(position) == ("squash", "strong", three.sha(), 2)


def test_a_milestone_that_was_changed_a_little_is_paired_by_git(three):
    old = three.sha()
    (three.folder / "file2").write_text("".join(f"line {number} of 2\n" for number in range(11)))
    three("add", "-A")
    three("commit", "-q", "--amend", "-m", "Reworded as well")
    position = three.find()
    assert at(position) == ("range_diff", "strong", three.sha(), 2)
    assert position.was == old


def test_a_similar_commit_by_another_hand_is_only_offered(three):
    three("reset", "-q", "--hard", "HEAD~1")
    text = "".join(f"line {number} of 2\n" for number in range(11))
    similar = three.commit("My own try", file2=text)
    position = three.find()
    assert at(position) == ("log", "certain", three.records[1].sha, 1)
    assert any(similar[:12] in choice for choice in position.choices)


def test_binary_files_modes_and_empty_files_are_told_apart(repo):
    for index, data in enumerate((b"\0one", b"\0two", b"\0three")):
        (repo.folder / "picture").write_bytes(data)
        repo.milestone(index, trailers=False, same="")
    names = [record.patch_id for record in repo.records]
    assert len(set(names)) == 3 and all(names)
    (repo.folder / "picture").chmod(0o755)
    assert patch_id_of(repo.git(), repo.commit("Mode")) not in names
    repo("reset", "-q", "--hard", "HEAD~2")
    (repo.folder / "picture").write_bytes(b"\0other")
    repo.commit("Another picture")
    assert repo.find()[2:4] == (repo.records[1].sha, 1)


# --- limits


def test_a_shallow_clone_works_and_says_that_history_is_cut(three, tmp_path):
    three("clone", "-q", "--depth", "1", "--branch", "work", f"file://{three.folder}", str(tmp_path / "clone"))
    clone = Repo(tmp_path / "clone", make=False)
    position = clone.find(three.records)
    assert at(position) == ("log", "certain", three.sha(), 2)
    assert "cut off" in position.why
    assert at(clone.find([])) == ("git_log_run_specific", "strong", three.sha(), 2)
    three.commit("Later", later="1")
    shutil.rmtree(tmp_path / "clone")
    three("clone", "-q", "--depth", "1", "--branch", "work", f"file://{three.folder}", str(tmp_path / "clone"))
    position = clone.find(three.records)
    assert position.source == "none" and "cut off" in position.why
    assert any("unshallow" in choice for choice in position.choices)


def test_beyond_the_bound_a_recorded_commit_is_found_and_the_bound_is_said(three, monkeypatch):
    sha = three.sha()
    for number in range(6):
        three.commit("More", more=str(number))
    monkeypatch.setattr(history_log, "MOST", 4)
    monkeypatch.setattr("holdfast.adapters.git.history.MOST", 4)
    position = three.find()
    assert at(position) == ("log", "certain", sha, 2)
    assert "newest 4 commits" in position.why
    position = three.find([])
    assert position.source == "none" and "newest 4 commits" in position.why


def test_a_change_that_is_too_large_to_compare_is_said_and_the_others_are_compared(three, monkeypatch):
    three.move_main()
    three("rebase", "-q", "main")
    three.strip_trailers()
    huge = three.commit("Huge", huge="x" * 200_000 + "\n")
    monkeypatch.setattr(history_log, "MAX_OUTPUT", 60_000)
    git = three.git()
    git.limits = git.limits._replace(output=60_000)
    position = find(git, RUN, three.records)
    assert at(position) == ("patch_id", "strong", three.sha("HEAD~1"), 2)
    assert huge[:12] in position.why and "60,000" in position.why


def test_an_older_git_that_cannot_tell_binary_files_apart_is_not_asked_to(three, monkeypatch):
    (three.folder / "picture").write_bytes(b"\0one")
    sha = three.commit("Picture")
    assert patch_id_of(three.git(), sha)
    monkeypatch.setattr(history_patches, "_TELLS_BINARIES", (99, 0))
    assert patch_id_of(three.git(), sha) is None
    assert patch_id_of(three.git(), three.records[0].sha) == three.records[0].patch_id


def test_settings_of_the_user_and_of_the_repository_do_not_change_a_patch_id(three):
    (three.folder / "picture").write_bytes(b"\0one")
    three.milestone(3, text="1\n\n2\n\n3\n")
    before = [patch_id_of(three.git(), record.sha) for record in three.records]
    for name, value in {
        "diff.context": "0", "diff.algorithm": "patience", "diff.noprefix": "true", "diff.renames": "copies",
        "color.ui": "always",
        "diff.suppressBlankEmpty": "true", "diff.external": "false", "core.abbrev": "4", "diff.mnemonicPrefix": "true",
        "log.showRoot": "false", "format.pretty": "oneline", "log.decorate": "full", "log.diffMerges": "off", "log.date": "iso",
        "diff.x.textconv": "false", "diff.x.command": "false", "diff.orderFile": "order",
    }.items():  # fmt: skip
        three("config", name, value)
    (three.folder / "order").write_text("*\n")
    (three.folder / ".git" / "info" / "attributes").write_text("* diff=x\n")
    assert [patch_id_of(three.git(), record.sha) for record in three.records] == before
    three("commit", "-q", "--amend", "-m", "No trailers")
    assert three.find().source == "patch_id"


def test_nothing_that_the_repository_says_is_executed(three):
    trap = three.folder / ".git" / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {three.folder}/.git/sprung\n")
    trap.chmod(0o755)
    for name in ("core.fsmonitor", "core.pager", "diff.external", "diff.x.textconv", "diff.x.command", "filter.x.clean",
                 "gpg.program", "core.sshCommand", "trailer.x.command", "core.editor"):  # fmt: skip
        three("config", name, str(trap))
    three("config", "log.showSignature", "true")
    (three.folder / ".git" / "info" / "attributes").write_text("* diff=x filter=x\n")
    for hook in ("post-rewrite", "post-index-change", "reference-transaction"):
        shutil.copy(trap, three.folder / ".git" / "hooks" / hook)
    (three.folder / ".git" / "sprung").unlink(missing_ok=True)
    old = three.records
    tree, parent = three.sha("HEAD^{tree}"), three.sha("HEAD~1")
    (three.folder / ".git" / "sprung").unlink(missing_ok=True)
    git = three.git()
    new = git.line("commit-tree", tree, "-p", parent, "-m", "Changed by another hand")
    more = git.line("commit-tree", git.line("rev-parse", f"{parent}^{{tree}}"), "-p", new, "-m", "And taken back")
    for head in (new, more):
        three.find(old, head=head)
        three.find([], head=head)
    patch_id_of(git, new)
    facts_of(git, new)
    assert not (three.folder / ".git" / "sprung").exists()


def test_looking_changes_nothing(three):
    three.move_main()
    three("rebase", "-q", "main")
    three.strip_trailers()

    def files():
        return {
            path: (path.stat().st_mtime_ns, path.read_bytes())
            for path in sorted(three.folder.rglob("*"))
            if path.is_file()
        }

    before = files()
    three.find()
    three.find([])
    assert files() == before


# --- one checkpoint, and its facts


def test_one_checkpoint_can_be_asked_for(three):
    middle = three.sha("HEAD~1")
    assert at(three.find(checkpoint_id="cp-run-1-1")) == ("log", "certain", middle, 1)
    three.move_main()
    three("rebase", "-q", "main")
    position = three.find(checkpoint_id="cp-run-1-1")
    assert at(position) == ("git_log_run_specific", "strong", three.sha("HEAD~1"), 1)
    assert position.was == middle and "milestone 2" not in position.why
    assert three.find(checkpoint_id="cp-unknown").source == "none"
    three("reset", "-q", "--hard", "HEAD~2")
    position = three.find(checkpoint_id="cp-run-1-1")
    assert position.source == "none", "another checkpoint of the run is not an answer"


def test_the_facts_of_a_commit(three):
    sha = three.sha()
    facts = facts_of(three.git(), "HEAD")
    assert (facts.sha, facts.tree, facts.parent) == (sha, three.sha("HEAD^{tree}"), three.sha("HEAD~1"))
    assert facts.subject == "Reach milestone 2" and facts.said.index == 2
    first = facts_of(three.git(), three.sha("main"))
    assert first.parent is None and first.said is None
    assert patch_id_of(three.git(), first.sha)


def test_a_merge_is_compared_with_its_first_parent_and_an_empty_commit_has_no_patch_id(three):
    three.move_main()
    three("checkout", "-q", "main")
    three("merge", "-q", "--no-ff", "-m", "Merge", "work")
    assert patch_id_of(three.git(), "HEAD")
    three("commit", "-q", "--allow-empty", "-m", "Nothing")
    assert patch_id_of(three.git(), "HEAD") is None


def test_a_repository_of_long_names_is_searched_too(tmp_path):
    repo = Repo(tmp_path / "repo", make=False)
    repo.folder.mkdir()
    repo("init", "-q", "-b", "main", "--object-format=sha256")
    repo.commit("Begin", base="1")
    repo("checkout", "-q", "-b", "work")
    for index in range(2):
        repo.milestone(index)
    assert len(repo.sha()) == 64
    assert at(repo.find()) == ("log", "certain", repo.sha(), 1)
    repo.move_main()
    repo("rebase", "-q", "main")
    repo.strip_trailers()
    assert at(repo.find()) == ("patch_id", "strong", repo.sha(), 1)


def test_sidecars_that_cannot_be_used_are_skipped_with_a_reason_and_the_rest_is_found(three):
    folder = str(three.folder / ".holdfast" / "checkpoints")
    for record in three.records:
        write(folder, Sidecar(schema_version=1, checkpoint_id=record.checkpoint_id, sha=record.sha, run_id=RUN,
                              milestone_index=record.index, milestone_title=record.title, created_at="2026"))  # fmt: skip
    path = os.path.join(folder, "cp-run-1-2.json")
    with open(path, "w") as file:
        file.write('{"schema_version": 1, "milestone_index": NaN}')
    read, refused = read_all(folder)
    assert [one.path for one in refused] == [path] and "NaN" in refused[0].why
    known = [Known(one.checkpoint_id, one.run_id, one.milestone_index, one.milestone_title, one.sha, one.tree, one.patch_id,
                   one.parent, one.branch, one.base, "sidecar") for one in read]  # fmt: skip
    position = three.find(known)
    assert at(position) == ("git_log_run_specific", "strong", three.sha(), 2)

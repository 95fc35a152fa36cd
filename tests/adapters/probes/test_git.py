"""Commits, branches and tags: made once, found again, and never mistaken for somebody else's."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import time
from threading import Timer

import pytest

from holdfast.adapters.probes import EffectError, GitBranch, GitCommit, GitTag, git_index, git_locks
from holdfast.adapters.probes.common import at_rest, hold
from holdfast.adapters.probes.git_index import Stage
from holdfast.adapters.probes.git_ref import with_trailer
from holdfast.adapters.probes.git_runner import Git
from holdfast.core.errors import UsageError
from holdfast.core.plain import check_plain
from tests.adapters.probes.killing import in_child

KEY = "effect-1"
BOTH = ("old.txt", "new.txt")


@pytest.fixture
def commit(repo, environ):
    def prepare(message="a message", paths=BOTH, **more):
        made = GitCommit.prepare(str(repo), message, paths, environ)
        return GitCommit(made.repo, made.message, made.branch, made.before, paths, environ=environ, **more)

    return prepare


def users_things(repo, git):
    """What a probe must leave alone, byte for byte: every file of the git folder, with its times."""
    found = {}
    for folder, _, names in os.walk(repo):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                found[path] = (file.read(), os.stat(path).st_mtime_ns)
    return found


# --- commit


@pytest.mark.parametrize("paths", [BOTH, None])
def test_a_commit_is_made_once_and_found_with_the_same_receipt(repo, git, commit, paths):
    if paths is None:
        git(repo, "add", ".")
    effect = commit(paths=paths)
    assert effect.probe(KEY).settled_as == "not_done"
    receipt = effect.act(KEY)
    assert receipt == {"commit": git(repo, "rev-parse", "main"), "branch": "main"}
    assert git(repo, "log", "--format=%B", "-1") == f"a message\n\nHoldfast-Effect: {KEY}"
    assert git(repo, "show", "--format=", "--name-only") == "new.txt\nold.txt"
    assert git(repo, "status", "--porcelain") == ""
    assert effect.probe(KEY)[::2] == ("done", receipt)
    assert effect.act(KEY) == receipt and git(repo, "rev-list", "--count", "main") == "2"
    assert git(repo, "fsck", "--strict") == ""
    assert [name for name in os.listdir(repo / ".git") if "holdfast" in name] == []


def test_only_the_named_files_are_committed_and_the_rest_stays_staged(repo, git, commit):
    (repo / "staged.txt").write_text("staged\n")
    git(repo, "add", "staged.txt")
    commit(paths=["new.txt"]).act(KEY)
    assert git(repo, "show", "--format=", "--name-status") == "A\tnew.txt"
    assert git(repo, "status", "--porcelain").splitlines() == [" M old.txt", "A  staged.txt"]


def test_a_file_can_be_removed_and_a_name_can_be_strange(repo, git, commit):
    strange = "-x \n*?[a]ü"
    (repo / strange).write_text("x")
    (repo / "old.txt").unlink()
    commit(paths=["old.txt", strange]).act(KEY)
    assert git(repo, "show", "--format=", "--name-status", "-z").split("\0")[:-1] == ["A", strange, "D", "old.txt"]
    assert git(repo, "status", "--porcelain") == "?? new.txt"


@pytest.mark.parametrize("instead", ["file", "link", "folder"])
def test_a_file_or_link_may_take_the_place_of_a_folder_and_a_folder_that_of_a_file(
    repo, git, commit, instead, tmp_path
):
    (repo / "inner").mkdir()
    (repo / "inner" / "x").write_text("x\n")
    commit(paths=["inner/x"]).act("before")
    if instead == "folder":
        (repo / "old.txt").unlink()
        (repo / "old.txt").mkdir()
    shutil.move(repo / "inner" / "x", repo / "old.txt" / "x" if instead == "folder" else tmp_path / "x")
    (repo / "inner").rmdir()
    if instead == "file":
        (repo / "inner").write_text("now a file\n")
    elif instead == "link":
        (repo / "inner").symlink_to(tmp_path)  # where another x is, which is none of ours
    paths = ["old.txt", "old.txt/x", "inner/x"] if instead == "folder" else ["inner", "inner/x"]
    commit(paths=paths).act(KEY)
    assert git(repo, "status", "--porcelain") in ("?? new.txt", " M old.txt\n?? new.txt")
    assert set(git(repo, "ls-tree", "-r", "--name-only", "HEAD").split()) == (
        {"old.txt/x"} if instead == "folder" else {"old.txt", "inner"}
    )
    assert git(repo, "fsck", "--strict") == ""


def test_the_first_commit_of_a_repository(tmp_path, git, environ):
    git(tmp_path, "init", "-q", "-b", "trunk")
    (tmp_path / "a").write_text("a")
    effect = GitCommit.prepare(str(tmp_path), "begin", ["a"], environ)
    assert effect.before is None and effect.probe(KEY).settled_as == "not_done"
    effect.act(KEY)
    assert effect.probe(KEY).settled_as == "done" and git(tmp_path, "rev-list", "--count", "trunk") == "1"


def test_a_linked_work_tree(repo, git, environ, tmp_path):
    linked = tmp_path / "linked"
    git(repo, "worktree", "add", "-q", "-b", "side", str(linked))
    (linked / "new.txt").write_text("n")
    effect = GitCommit.prepare(str(linked), "on the side", ["new.txt"], environ)
    assert effect.branch == "side"
    effect.act(KEY)
    assert effect.probe(KEY).settled_as == "done"
    assert git(linked, "status", "--porcelain") == "" and git(repo, "log", "-1", "--format=%s", "main") == "the first"


def test_a_sha256_repository(tmp_path, git, environ):
    git(tmp_path, "init", "-q", "-b", "main", "--object-format=sha256")
    (tmp_path / "a").write_text("a")
    effect = GitCommit.prepare(str(tmp_path), "begin", ["a"], environ)
    receipt = effect.act(KEY)
    assert len(receipt["commit"]) == 64 and effect.probe(KEY).receipt == receipt


def test_what_was_recorded_before_may_lie_further_back(repo, git, commit):
    first = commit(paths=["old.txt"])
    first.act("first")
    second = GitCommit(first.repo, "second", "main", first.before, ["new.txt"], environ=first.environ)
    assert second.probe(KEY).settled_as == "not_done"
    second.act(KEY)
    assert (first.probe("first").settled_as, second.probe(KEY).settled_as) == ("done", "done")
    assert git(repo, "log", "--format=%s", "-2") == "second\na message"


def test_work_on_top_and_a_cherry_picked_copy_do_not_hide_it(repo, git, commit):
    effect = commit()
    made = effect.act(KEY)["commit"]
    git(repo, "commit", "-q", "--allow-empty", "-m", "on top")
    assert effect.probe(KEY).receipt["commit"] == made
    git(repo, "reset", "-q", "--hard", "main~2")
    git(repo, "commit", "-q", "--allow-empty", "-m", "another way")
    git(repo, "cherry-pick", made)
    answer = effect.probe(KEY)
    assert answer.settled_as == "done" and answer.receipt["commit"] == git(repo, "rev-parse", "main") != made


def test_an_amended_message_is_unknown(repo, git, commit):
    effect = commit()
    effect.act(KEY)
    git(repo, "commit", "-q", "--amend", "-m", f"other words\n\nHoldfast-Effect: {KEY}")
    answer = effect.probe(KEY)
    assert answer.settled_as == "unknown" and "another" in answer.evidence
    with pytest.raises(EffectError):
        effect.act(KEY)


def test_a_commit_that_was_reset_away_is_unknown_not_undone(repo, git, commit):
    effect = commit()
    made = effect.act(KEY)["commit"]
    git(repo, "reset", "-q", "--hard", "main~1")
    answer = effect.probe(KEY)
    assert answer.settled_as == "unknown" and made in answer.evidence and "once" in answer.evidence


def test_a_rewritten_branch_is_unknown(repo, git, commit):
    effect = commit()
    git(repo, "commit", "-q", "--amend", "-m", "rewritten")
    answer = effect.probe(KEY)
    assert answer.settled_as == "unknown" and "rewritten" in answer.evidence


def test_a_branch_without_a_reflog(repo, git, commit):
    git(repo, "config", "core.logAllRefUpdates", "false")
    shutil.rmtree(repo / ".git" / "logs")
    effect = commit()
    assert effect.probe(KEY).settled_as == "not_done"
    effect.act(KEY)
    assert effect.probe(KEY).settled_as == "done"


def test_a_branch_that_is_gone_is_unknown(repo, git, commit):
    effect = commit()
    git(repo, "switch", "-q", "-c", "other")
    git(repo, "branch", "-q", "-D", "main")
    assert effect.probe(KEY).settled_as == "unknown"


def test_the_key_of_another_effect_is_not_taken_for_ours(repo, git, commit):
    effect = commit()
    for text in (f"x\n\nHoldfast-Effect: {KEY}2", f"x\n\nHoldfast-Effect: 2{KEY}", f"x\n\n Holdfast-Effect: {KEY} "):
        git(repo, "commit", "-q", "--allow-empty", "--cleanup=verbatim", "-m", text)
    assert effect.probe(KEY).settled_as == "not_done"


def test_a_replaced_object_or_a_graft_is_not_taken_for_history(repo, git, commit):
    """`git replace` can show a commit as something that it is not."""
    git(repo, "commit", "-q", "--allow-empty", "-m", "plain")
    effect = commit()
    effect = GitCommit(effect.repo, "a message", "main", git(repo, "rev-parse", "main~1"), BOTH, environ=effect.environ)
    real = git(repo, "rev-parse", "main")
    said = f"a message\n\nHoldfast-Effect: {KEY}\n"
    forged = git(repo, "commit-tree", "main^{tree}", "-p", "main~1", "-F", "-", stdin=said)
    git(repo, "replace", real, forged)
    assert git(repo, "log", "-1", "--format=%s", "main") == "a message"
    assert effect.probe(KEY).settled_as == "not_done"
    git(repo, "replace", "-d", real)
    (repo / ".git" / "info" / "grafts").write_text(f"{real} {forged}\n")
    assert effect.probe(KEY).settled_as == "not_done"


def test_a_commit_on_another_branch_is_not_on_ours(repo, git, commit):
    effect = commit()
    git(repo, "switch", "-q", "-c", "other")
    git(repo, "commit", "-q", "-a", "-m", f"a message\n\nHoldfast-Effect: {KEY}")
    assert effect.probe(KEY).settled_as == "not_done"
    with pytest.raises(EffectError, match="not checked out"):
        effect.act(KEY)


@pytest.mark.parametrize("paths", [BOTH, None])
def test_nothing_to_commit_is_an_error_unless_it_is_meant(repo, git, commit, paths):
    git(repo, "stash", "-q", "-u")
    with pytest.raises(EffectError, match="nothing to commit"):
        commit(paths=paths).act(KEY)
    commit(paths=paths, allow_empty=True).act(KEY)
    assert git(repo, "rev-list", "--count", "main") == "2" and git(repo, "stash", "list").count("\n") == 0


@pytest.mark.parametrize("state", ["MERGE_HEAD", "CHERRY_PICK_HEAD", "rebase-merge"])
def test_an_unfinished_merge_is_not_flattened(repo, commit, state):
    (repo / ".git" / state).write_text("")
    with pytest.raises(EffectError, match="not finished"):
        commit().act(KEY)


@pytest.mark.parametrize("paths", [BOTH, None])
def test_a_lock_left_by_a_killed_git_is_named(repo, git, commit, paths, monkeypatch):
    monkeypatch.setattr(git_locks, "INDEX_PATIENCE", 0.3)
    git(repo, "add", ".")
    lock = repo / ".git" / "index.lock"
    lock.touch()
    effect = commit(paths=paths)
    answer = effect.probe(KEY)
    assert answer.settled_as == "not_done" and str(lock) in answer.evidence
    with pytest.raises(EffectError, match=r"index\.lock has been there for \d+ seconds, and no git") as caught:
        effect.act(KEY)
    assert lock.exists()
    subprocess.run(shlex.split(caught.value.advice.split("`")[1]), check=True)
    effect.act(KEY)
    assert effect.probe(KEY).settled_as == "done"


@pytest.mark.parametrize("paths", [BOTH, None])
def test_an_index_that_another_git_holds_for_a_while_is_waited_for(repo, git, commit, paths):
    git(repo, "add", ".")
    lock = repo / ".git" / "index.lock"
    lock.touch()
    Timer(1.0, lock.unlink).start()
    effect = commit(paths=paths)
    effect.act(KEY)
    assert effect.probe(KEY).settled_as == "done" and git(repo, "status", "--porcelain") == ""


def test_a_lock_that_was_ours_is_recognised_and_removed(repo, git, commit):
    effect = commit()
    link, made = os.link, []

    def die(source, target, **more):
        link(source, target, **more)
        made.append(source)
        raise SystemExit

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "link", die)
        patch.setattr(os, "unlink", lambda *_, **__: None)
        with pytest.raises(SystemExit):
            effect.act(KEY)
    assert made and (repo / ".git" / "index.lock").exists()
    assert effect.probe(KEY).settled_as == "done"
    assert not (repo / ".git" / "index.lock").exists() and git(repo, "status", "--porcelain") == ""
    assert leftovers(repo) == []


def leftovers(repo):
    return [name for name in os.listdir(repo / ".git") if name.startswith("holdfast-")]


def test_an_index_that_changes_meanwhile_keeps_that_and_gets_the_commit(repo, git, commit, monkeypatch):
    git(repo, "rm", "-q", "--cached", "old.txt")
    git(repo, "commit", "-q", "-m", "without it")
    effect = commit(paths=["old.txt"])
    link, done = os.link, []

    def change(source, target, **more):
        if not done:
            done.append(git(repo, "add", "new.txt"))
        link(source, target, **more)

    monkeypatch.setattr(os, "link", change)
    effect.act(KEY)
    assert done and git(repo, "status", "--porcelain").splitlines() == ["A  new.txt"]
    assert leftovers(repo) == []


def killed_before_the_index_has_it(effect):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stage, "finish", lambda stage: os.kill(os.getpid(), signal.SIGKILL))
        assert in_child(lambda: effect.act(KEY)) == signal.SIGKILL


@pytest.mark.parametrize("way", ["probe", "act", "another act"])
def test_a_kill_behind_the_commit_leaves_an_index_that_the_next_look_brings_up_to_date(repo, git, commit, way):
    git(repo, "add", "old.txt")  # staged, and then changed again: what is committed is what is on disk
    (repo / "old.txt").write_text("changed again\n")
    (repo / "own.txt").write_text("own\n")
    git(repo, "add", "own.txt")
    effect = commit()
    killed_before_the_index_has_it(effect)
    assert "MM old.txt" in git(repo, "status", "--porcelain") and leftovers(repo)
    if way == "another act":
        commit(paths=None).act("another")
        assert git(repo, "diff", "--stat", "main~1", "main", "--", *BOTH) == "", "it does not undo the first"
    else:
        effect.probe(KEY) if way == "probe" else effect.act(KEY)
        assert git(repo, "status", "--porcelain") == "A  own.txt"
    assert leftovers(repo) == []


def test_what_was_staged_after_the_kill_stays_staged(repo, git, commit):
    (repo / "gone.txt").write_text("gone\n")
    git(repo, "add", "gone.txt")
    git(repo, "commit", "-q", "-m", "one more")
    (repo / "gone.txt").unlink()
    effect = commit(paths=[*BOTH, "gone.txt"])
    killed_before_the_index_has_it(effect)
    (repo / "old.txt").write_text("mine\n")
    git(repo, "add", "old.txt")
    assert effect.probe(KEY).settled_as == "done"
    assert git(repo, "status", "--porcelain") == "M  old.txt" and git(repo, "show", ":old.txt") == "mine"
    assert leftovers(repo) == []


def test_files_of_a_commit_that_never_came_to_be_are_removed_and_the_index_is_left_alone(repo, git, commit):
    effect = commit()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Git, "move", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        assert in_child(lambda: effect.act(KEY)) == signal.SIGKILL
    assert leftovers(repo) and git(repo, "status", "--porcelain").splitlines() == [" M old.txt", "?? new.txt"]
    with pytest.raises(EffectError, match="nothing to commit"):
        commit(paths=["none.txt"]).act("another")
    assert leftovers(repo) == [] and git(repo, "status", "--porcelain").splitlines() == [" M old.txt", "?? new.txt"]


def test_an_index_that_is_locked_all_the_time_is_brought_up_to_date_by_the_next_act(repo, git, commit, monkeypatch):
    effect, lock = commit(), repo / ".git" / "index.lock"
    monkeypatch.setattr(git_index, "_ATTEMPTS", 2)
    real = Git.move
    monkeypatch.setattr(Git, "move", lambda *more: (real(*more), lock.touch()))
    assert effect.act(KEY)["commit"] == git(repo, "rev-parse", "main")
    assert leftovers(repo)
    lock.unlink()
    assert effect.probe(KEY).settled_as == "done"
    assert git(repo, "status", "--porcelain") == "" and leftovers(repo) == []


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../../x", ".", "a//b", "./a", "a/", "x\0y"])
def test_a_path_that_leads_elsewhere_is_refused(commit, path):
    with pytest.raises(UsageError):
        commit(paths=[path])


@pytest.mark.parametrize("path", [".git/config", "folder", "link/inside"])
def test_what_git_does_not_take_for_a_file_fails_and_changes_nothing(repo, git, commit, path):
    (repo / "folder").mkdir()
    (repo / "link").symlink_to("folder")
    (repo / "folder" / "inside").write_text("x")
    before = git(repo, "status", "--porcelain")
    with pytest.raises(EffectError):
        commit(paths=[path]).act(KEY)
    assert git(repo, "status", "--porcelain") == before and not (repo / ".git" / "index.lock").exists()


def test_a_head_without_a_branch_is_refused(repo, git, environ):
    git(repo, "switch", "-q", "--detach")
    with pytest.raises(EffectError, match="No branch"):
        GitCommit.prepare(str(repo), "x", environ=environ)


@pytest.mark.parametrize(
    ("message", "whole"),
    [
        ("one", "one\n\nHoldfast-Effect: k\n"),
        ("one\n\n", "one\n\nHoldfast-Effect: k\n"),
        ("fix: it", "fix: it\n\nHoldfast-Effect: k\n"),
        ("one\n\nA text.", "one\n\nA text.\n\nHoldfast-Effect: k\n"),
        ("one\n\nA: b\nC-d: e", "one\n\nA: b\nC-d: e\nHoldfast-Effect: k\n"),
        ("one\n\nA: b\nno trailer", "one\n\nA: b\nno trailer\n\nHoldfast-Effect: k\n"),
    ],
)
def test_the_trailer_stands_where_git_looks_for_it(message, whole):
    assert with_trailer(message, "k").decode() == whole
    said = subprocess.run(["git", "interpret-trailers", "--parse"], input=whole, capture_output=True, text=True)
    assert said.stdout.endswith("Holdfast-Effect: k\n")


@pytest.mark.parametrize("message", ["", " \n", "a\0b", "a\ud800", "x\n\nholdfast-effect: mine"])
def test_a_message_that_git_would_change_is_refused(commit, message):
    with pytest.raises(UsageError):
        commit(message)


# --- branch


def test_a_branch_is_made_once_and_found(repo, git, environ):
    effect = GitBranch.prepare(str(repo), "feature/x", environ=environ)
    assert effect.probe(KEY).settled_as == "not_done"
    receipt = effect.act(KEY)
    assert receipt == {"branch": "feature/x", "commit": git(repo, "rev-parse", "main")}
    assert effect.probe(KEY)[::2] == ("done", receipt) and effect.act(KEY) == receipt
    assert git(repo, "symbolic-ref", "HEAD") == "refs/heads/main"


def test_a_branch_can_be_moved_from_where_it_was(repo, git, environ):
    git(repo, "branch", "other")
    git(repo, "commit", "-q", "-a", "-m", "two")
    effect = GitBranch.prepare(str(repo), "other", environ=environ)
    assert effect.before == git(repo, "rev-parse", "main~1") and effect.probe(KEY).settled_as == "not_done"
    effect.act(KEY)
    assert git(repo, "rev-parse", "other") == git(repo, "rev-parse", "main")
    assert effect.probe(KEY).settled_as == "done"


def test_a_branch_of_somebody_else_is_unknown_and_stays(repo, git, environ):
    effect = GitBranch.prepare(str(repo), "x", environ=environ)
    git(repo, "commit", "-q", "-a", "-m", "two")
    git(repo, "branch", "x")
    assert effect.probe(KEY).settled_as == "unknown"
    with pytest.raises(EffectError, match="not what it was"):
        effect.act(KEY)
    assert git(repo, "rev-parse", "x") == git(repo, "rev-parse", "main")


def test_our_branch_may_move_on_but_not_back(repo, git, environ):
    first = git(repo, "rev-parse", "main")
    git(repo, "commit", "-q", "-a", "-m", "two")
    git(repo, "branch", "x", first)
    effect = GitBranch.prepare(str(repo), "x", environ=environ)
    effect.act(KEY)
    git(repo, "commit", "-q", "--allow-empty", "-m", "three")
    git(repo, "update-ref", "refs/heads/x", "main")
    answer = effect.probe(KEY)
    assert answer.settled_as == "done" and "moved on" in answer.evidence
    git(repo, "update-ref", "refs/heads/x", first)
    assert effect.probe(KEY).settled_as == "unknown", "it was done and undone"


@pytest.mark.parametrize("where", ["here", "in another work tree", "to be born"])
def test_a_branch_in_use_is_not_moved(repo, git, environ, tmp_path, where):
    first = git(repo, "rev-parse", "main")
    git(repo, "commit", "-q", "-a", "-m", "two")
    name = "main"
    if where == "in another work tree":
        git(repo, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"), first)
        name = "side"
    if where == "to be born":
        git(repo, "symbolic-ref", "HEAD", "refs/heads/unborn")
        name = "unborn"
    at = first if name == "main" else git(repo, "rev-parse", "main")
    effect = GitBranch.prepare(str(repo), name, at, environ)
    with pytest.raises(EffectError, match="checked out"):
        effect.act(KEY)
    assert effect.probe(KEY).settled_as == "not_done"


@pytest.mark.parametrize("name", ["-x", "a..b", "a b", "a\0b", "a.lock", "", "@{", "a\nb", "a~1"])
def test_a_name_that_is_no_branch_is_refused(repo, git, environ, name):
    effect = GitBranch(str(repo), name, git(repo, "rev-parse", "main"), environ=environ)
    if name == "-x":  # odd, but git itself keeps such a ref, and nothing here takes it for an option
        assert effect.act(KEY) and effect.probe(KEY).settled_as == "done"
        return
    with pytest.raises(EffectError, match="cannot be the name"):
        effect.act(KEY)
    assert effect.probe(KEY).settled_as == "unknown"


def test_a_commit_that_is_not_there_is_refused(repo, environ):
    effect = GitBranch(str(repo), "x", "12" * 20, environ=environ)
    with pytest.raises(EffectError, match="There is no commit"):
        effect.act(KEY)
    for word in ("HEAD", "--all", "abc", "12" * 21):
        with pytest.raises(EffectError, match="full id"):
            GitBranch(str(repo), "x", word, environ=environ)


def test_a_ref_that_cannot_be_read_is_unknown(repo, git, environ):
    effect = GitBranch.prepare(str(repo), "x", environ=environ)
    (repo / ".git" / "refs" / "heads" / "x").write_text("")
    assert effect.probe(KEY).settled_as == "unknown"


# --- tag


@pytest.mark.parametrize("message", [None, "version one"])
def test_a_tag_is_made_once_and_found(repo, git, environ, message):
    effect = GitTag.prepare(str(repo), "v1", message=message, environ=environ)
    assert effect.probe(KEY).settled_as == "not_done"
    receipt = effect.act(KEY)
    assert receipt == {"tag": "v1", "commit": git(repo, "rev-parse", "main")}
    assert effect.probe(KEY)[::2] == ("done", receipt) and effect.act(KEY) == receipt
    assert git(repo, "cat-file", "-t", "v1") == ("tag" if message else "commit")
    assert git(repo, "fsck", "--strict") == ""
    if message:
        assert git(repo, "tag", "-l", "--format=%(contents)") == f"version one\n\nHoldfast-Effect: {KEY}"


def test_another_tag_of_that_name_is_unknown_and_stays(repo, git, environ):
    first = git(repo, "rev-parse", "main")
    git(repo, "commit", "-q", "-a", "-m", "two")
    light = GitTag.prepare(str(repo), "v1", environ=environ)
    annotated = GitTag.prepare(str(repo), "v1", message="words", environ=environ)
    for make in (
        ["v1", first],
        ["-a", "-m", "words", "v1"],
        ["-a", "-m", f"words\n\nHoldfast-Effect: {KEY}", "v1", first],
    ):
        git(repo, "tag", "-f", *make)
        now = git(repo, "rev-parse", "v1")
        for effect in (light, annotated):
            assert effect.probe(KEY).settled_as == "unknown", make
            with pytest.raises(EffectError, match="not what it was"):
                effect.act(KEY)
        assert git(repo, "rev-parse", "v1") == now
    git(repo, "tag", "-f", "v1", "main")
    assert (light.probe(KEY).settled_as, annotated.probe(KEY).settled_as) == ("done", "unknown")


# --- all of them


def each(repo, environ):
    return [
        GitCommit.prepare(str(repo), "a message", BOTH, environ),
        GitBranch.prepare(str(repo), "x", environ=environ),
        GitTag.prepare(str(repo), "v1", message="m", environ=environ),
    ]


def test_probes_change_nothing_at_all(repo, git, environ):
    git(repo, "stash", "-q", "-u")
    git(repo, "stash", "apply", "-q")
    effects = each(repo, environ)
    before = users_things(repo, git)
    assert {effect.probe(KEY).settled_as for effect in effects} == {"not_done"}
    assert users_things(repo, git) == before
    for effect in effects:
        effect.act(KEY)
    before = users_things(repo, git)
    assert {effect.probe(KEY).settled_as for effect in effects} == {"done"}
    assert users_things(repo, git) == before


def test_arguments_are_plain_data(repo, environ):
    for effect in each(repo, environ):
        check_plain(effect.arguments)
        assert "PATH" not in str(effect.arguments) + repr(effect)


def test_no_repository_no_git_or_a_hanging_one_is_unknown(repo, git, environ, tmp_path):
    slow = tmp_path / "slow"
    slow.mkdir()
    (slow / "git").write_text("#!/bin/sh\n[ $1 = version ] && exec echo git version 2.99.0\nsleep 60\n")
    (slow / "git").chmod(0o755)
    old = tmp_path / "old"
    old.mkdir()
    (old / "git").write_text("#!/bin/sh\necho git version 2.30.9\n")
    (old / "git").chmod(0o755)
    at = git(repo, "rev-parse", "main")
    begin = time.monotonic()
    for place, path, words in (
        (tmp_path, environ["PATH"], "not the top"),
        (repo, "/nowhere", "no git"),
        (repo, str(old), "2.31"),
        (repo, f"{slow}:/usr/bin:/bin", "took more than"),
    ):
        effect = GitBranch(str(place), "x", at, environ={**environ, "PATH": path}, seconds=0.5)
        answer = effect.probe(KEY)
        assert answer.settled_as == "unknown" and words in answer.evidence, answer
        with pytest.raises(EffectError, match=words):
            effect.act(KEY)
    assert time.monotonic() - begin < 30


def test_a_program_of_the_current_folder_is_never_taken_for_git(repo, git, environ, monkeypatch):
    (repo / "git").write_text("#!/bin/sh\ntouch canary\n")
    (repo / "git").chmod(0o755)
    monkeypatch.chdir(repo)
    effect = GitBranch.prepare(str(repo), "x", environ={**environ, "PATH": f".:{environ['PATH']}:"})
    assert effect.act(KEY) and not (repo / "canary").exists()


def test_while_an_act_is_at_work_the_probe_waits_and_then_knows_nothing(repo, environ, monkeypatch):
    effect = GitBranch.prepare(str(repo), "x", environ=environ)
    monkeypatch.setattr("holdfast.adapters.probes.git_ref.at_rest", lambda folder: at_rest(folder, 0.05))
    with hold(str(repo / ".git")):
        assert effect.probe(KEY).settled_as == "unknown"
    assert effect.probe(KEY).settled_as == "not_done"


@pytest.mark.parametrize("trick", ["link", "commondir", "foreign git folder", "foreign work tree", "broken"])
def test_a_git_folder_that_belongs_elsewhere_is_refused(repo, git, environ, tmp_path, trick):
    victim = tmp_path / "victim"
    shutil.copytree(repo, victim)
    at = git(repo, "rev-parse", "main")
    if trick == "link":
        shutil.rmtree(repo / ".git")
        (repo / ".git").symlink_to(victim / ".git")
    elif trick == "commondir":
        (repo / ".git" / "commondir").write_text(str(victim / ".git"))
    else:
        git(victim, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
        shutil.rmtree(repo / ".git")
        aim = {
            "foreign git folder": f"gitdir: {victim}/.git\n",
            "foreign work tree": (tmp_path / "side" / ".git").read_text(),
        }
        (repo / ".git").write_text(aim.get(trick, "nonsense\n"))
    effect = GitBranch(str(repo), "x", at, environ=environ)
    with pytest.raises(EffectError):
        effect.act(KEY)
    assert effect.probe(KEY).settled_as == "unknown" and git(victim, "branch", "--list", "x") == ""

"""Ignored files that a snapshot holds because they were asked for, and files of ours that nothing ever holds."""

from __future__ import annotations

import os

import pytest

from holdfast.adapters.git import workspace
from holdfast.adapters.git.repo import GitWorkspace
from holdfast.adapters.git.restore import RestoreRefused, in_place, into_worktree, preview
from holdfast.adapters.git.workspace import Policy, changed, plain_tree_of, read, tree_now
from holdfast.core.errors import UsageError
from holdfast.core.guards import Scope, judge
from tests.adapters.git_kit import Kit
from tests.adapters.test_restore import files_of
from tests.adapters.test_workspace import NOW, contents, take_and_keep

SOME = Policy(ignored=(".env", "build/**"))


@pytest.fixture
def kit(tmp_path):
    made = Kit(tmp_path)
    made.commit("rules", **{".gitignore": "*.log\n.env\nbuild/\n"})
    for path, text in {"x.log": "log", ".env": "KEY=1", "build/deep/out": "out", "new": "new"}.items():
        made.write(path, f"{text}\n")
    return made


def test_a_pattern_chooses_among_ignored_files_and_the_snapshot_says_which_it_holds(kit):
    git = kit.runner()
    made = take_and_keep(git, "c1", SOME)
    assert sorted(contents(kit, made)) == [".env", ".gitignore", "a.txt", "build/deep/out", "new"]
    assert made.ignored == read(git, "c1").ignored == (".env", "build/deep/out")
    assert take_and_keep(git, "c2").ignored == read(git, "c2").ignored == ()


def test_an_ignored_file_that_cannot_be_kept_is_named_if_it_was_asked_for(kit):
    kit.write("build/large", "x" * 200)
    kit.git("init", "-q", "build/own")
    made = take_and_keep(kit.runner(), "c1", SOME._replace(largest=100))
    assert [row.partition(":")[0] for row in made.left_out] == ["build/large", "build/own/"]
    assert made.ignored == (".env", "build/deep/out")


def test_what_it_held_does_not_stay_in_the_next_snapshot(kit):
    git = kit.runner()
    for name, policy, held in (("c1", SOME, 2), ("c2", Policy(), 0), ("c3", SOME, 2)):
        made = take_and_keep(git, name, policy)
        assert len(made.ignored) == held and len(contents(kit, made)) == held + 3
    os.unlink(kit.top / ".env")
    assert ".env" not in contents(kit, take_and_keep(git, "c4", SOME))


@pytest.mark.parametrize("policy", [Policy(), SOME])
def test_the_work_tree_is_compared_without_ignored_files(kit, policy):
    git = kit.runner()
    made = take_and_keep(git, "c1", policy)
    kit.write(".env", "KEY=2\n")
    assert plain_tree_of(git, made.sha) == tree_now(git) == tree_now(git, SOME)
    kit.write("new", "newer\n")
    assert plain_tree_of(git, made.sha) != tree_now(git)
    assert plain_tree_of(git, kit.git("rev-parse", "HEAD")) is None, "it is no snapshot"


@pytest.mark.parametrize("ignored", [(), SOME.ignored])
def test_a_repository_is_as_it_was_kept_whatever_became_of_ignored_files(kit, ignored):
    place = GitWorkspace(str(kit.top), kit.environ, ignored)
    made = place.snapshot("c1", NOW)
    os.unlink(kit.top / ".env")
    other = GitWorkspace(str(kit.top), kit.environ)  # whoever goes on need not know the patterns
    assert other.look("run-1", [], None, [made.sha], [], None).as_kept
    kit.write("new", "newer\n")
    assert not other.look("run-1", [], None, [made.sha], [], None).as_kept


def test_restore_brings_ignored_files_back_beside_the_repository(kit, tmp_path):
    git = kit.runner()
    take_and_keep(git, "c1", SOME)
    into_worktree(git, "c1", str(tmp_path / "beside"))
    found = files_of(tmp_path / "beside")
    assert found[b".env"] == (False, b"KEY=1\n") and found[b"build/deep/out"] == (False, b"out\n")
    assert b"x.log" not in found


def test_restore_in_place_keeps_the_ignored_files_that_it_replaces(kit):
    git = kit.runner()
    take_and_keep(git, "c1", SOME)
    wanted = files_of(kit.top)
    kit.write(".env", "KEY=2\n")
    kit.write("x.log", "another\n")
    os.unlink(kit.top / "build/deep/out")
    ruined = files_of(kit.top)
    assert [(one.path, one.kind) for one in preview(git, "c1")] == [(".env", "modified"), ("build/deep/out", "added")]
    in_place(git, "c1", "before", NOW)
    assert files_of(kit.top) == {**wanted, b"x.log": (False, b"another\n")}
    in_place(git, "before", "after", NOW)
    assert files_of(kit.top) == {**ruined, b"build/deep/out": (False, b"out\n")}, "what is ignored is not taken away"


def test_an_ignored_file_that_the_snapshot_does_not_name_is_still_in_the_way(kit):
    git = kit.runner()
    kit.write("plain", "plain\n")
    take_and_keep(git, "c1", SOME)
    os.unlink(kit.top / "plain")
    kit.write(".git/info/exclude", "plain\n")
    kit.write("plain", "now ignored\n")
    with pytest.raises(RestoreRefused, match="in the way"):
        in_place(git, "c1", "before", NOW)
    assert (kit.top / "plain").read_text() == "now ignored\n"


def test_what_is_ignored_now_and_is_just_as_the_snapshot_has_it_is_not_in_the_way(kit):
    git = kit.runner()
    kit.write(".gitignore", "d/\n")
    kit.write("d/e", "e\n")
    take_and_keep(git, "c1")
    kit.write(".gitignore", "other\n")
    kit.write("a.txt", "changed\n")
    ruined = files_of(kit.top)
    in_place(git, "c1", "before", NOW)
    assert (kit.top / "d/e").exists(), "the rules of the checkpoint ignore it, so it stays"
    in_place(git, "before", "again", NOW)
    assert files_of(kit.top) == ruined


def test_a_pattern_that_cannot_be_understood_is_refused_before_anything_is_made(kit):
    with pytest.raises(UsageError, match="not a path below the top"):
        take_and_keep(kit.runner(), "c1", Policy(ignored=("../*",)))
    assert workspace.kept(kit.runner()) == {}


# --- a store in the work tree


STORE = ("state/log.db", "state/log.db-wal", "state/log.db-shm", "state/log.db-witness", "state/log.db-lock/1")


@pytest.fixture
def place(kit):
    for path in STORE:
        kit.write(path, "ours\n")
    kit.write("state/log.dbx", "theirs\n")
    return GitWorkspace(str(kit.top), kit.environ, ("**",), [str(kit.top / "state" / "log.db")])


def test_a_store_in_the_work_tree_is_in_no_snapshot_and_no_look_shows_it(kit, place):
    made = place.snapshot("c1", NOW)
    assert [name for name in contents(kit, made) if name.startswith("state/")] == ["state/log.dbx"]
    assert [one.path for one in changed(place.git)] == ["new", "state/log.dbx"]
    assert all(one.path not in STORE for one in place.touched(None)[0])
    assert judge(Scope(("new", "state/log.dbx", ".gitignore", "a.txt")), place.touched(None)[0]).violations == ()


def test_a_milestone_does_not_commit_a_store(kit, place):
    sha = place.commit("c1", "m", "refs/heads/main", kit.git("rev-parse", "HEAD"), ())
    assert kit.git("diff-tree", "-r", "--name-only", "HEAD~1", sha).splitlines() == ["new", "state/log.dbx"]


def test_a_store_that_somebody_committed_is_not_committed_again(kit, place):
    kit.git("add", "-f", *STORE)
    kit.git("commit", "-q", "-m", "by accident")
    kit.write(STORE[0], "ours, later\n")
    assert contents(kit, place.snapshot("c1", NOW))[STORE[0]] == b"ours\n"
    sha = place.commit("c1", "m", "refs/heads/main", kit.git("rev-parse", "HEAD"), ())
    assert kit.git("diff-tree", "-r", "--name-only", "HEAD~1", sha).splitlines() == ["new", "state/log.dbx"]


def test_a_restore_leaves_a_store_alone(kit, place):
    place.snapshot("c1", NOW)
    for path in STORE:
        kit.write(path, "ours, later\n")
    kit.write("new", "ruined\n")
    in_place(place.git, "c1", "before", NOW)
    assert (kit.top / "new").read_text() == "new\n"
    assert {(kit.top / path).read_text() for path in STORE} == {"ours, later\n"}


def test_a_store_is_recognised_behind_a_link_and_one_outside_is_nobodys_business(kit, tmp_path):
    os.symlink(kit.top, tmp_path / "link")
    kit.write("log.db", "ours\n")
    for own in (tmp_path / "link" / "log.db", tmp_path / "log.db"):
        there = GitWorkspace(str(kit.top), kit.environ, (), [str(own)])
        assert ("log.db" in [one.path for one in changed(there.git)]) == (own.parent == tmp_path)

"""Locks that a killed git left go; those of others stay."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from holdfast.adapters.probes.git import GitCommit
from holdfast.adapters.probes.git_locks import clear_forsaken, is_git_at_work
from holdfast.adapters.probes.git_place import find_repository
from holdfast.adapters.probes.git_runner import Git

MAIN = "refs/heads/main"
BEFORE = ("HEAD.lock", f"{MAIN}.lock")


@pytest.fixture
def repo(tmp_path):
    top = tmp_path / "project"
    top.mkdir()
    for command in (["init", "-q", "-b", "main"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *command], cwd=top, check=True)
    (top / "file.txt").write_text("x\n")
    return top


def place_of(repo):
    return find_repository(str(repo))


def test_what_a_killed_git_left_is_cleared(repo):
    since = time.time_ns()
    for name in BEFORE:
        (repo / ".git" / name).write_text("")
    assert len(clear_forsaken(place_of(repo), MAIN, since - 10**9)) == 2
    assert not [name for name in BEFORE if (repo / ".git" / name).exists()]


def test_an_older_lock_is_not_ours(repo):
    (repo / ".git" / "HEAD.lock").write_text("")
    os.utime(repo / ".git" / "HEAD.lock", ns=(1, 1))
    assert clear_forsaken(place_of(repo), MAIN, 2) == []
    assert (repo / ".git" / "HEAD.lock").exists()


def test_a_lock_that_changes_meanwhile_is_in_use(repo, monkeypatch):
    lock = repo / ".git" / "HEAD.lock"
    lock.write_text("")
    monkeypatch.setattr(time, "sleep", lambda seconds: lock.write_text("somebody is here"))
    assert clear_forsaken(place_of(repo), MAIN, 0) == []
    assert lock.exists()


def test_a_git_at_work_keeps_its_lock(repo):
    (repo / ".git" / "HEAD.lock").write_text("")
    git = subprocess.Popen(["git", "cat-file", "--batch"], cwd=repo, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        git.stdin.write(b"HEAD\n")
        git.stdin.flush()
        assert git.stdout.readline()  # it is git by now: a child that is still being started has the name of its parent
        assert is_git_at_work(place_of(repo))
        assert clear_forsaken(place_of(repo), MAIN, 0) == []
    finally:
        git.kill()
        git.communicate()
    assert not is_git_at_work(place_of(repo))
    assert (repo / ".git" / "HEAD.lock").exists()


def test_nothing_is_removed_where_nobody_can_look(repo, monkeypatch):
    monkeypatch.setattr("holdfast.adapters.probes.git_locks._PROC", "/nowhere")
    (repo / ".git" / "HEAD.lock").write_text("")
    assert clear_forsaken(place_of(repo), None, 0) == []


def test_a_commit_that_was_cut_off_while_git_moved_the_branch_is_made_the_next_time(repo):
    environ = {
        **os.environ,
        **{f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }
    git = Git(place_of(repo), environ)
    tip = git.line("rev-parse", "HEAD")
    note = repo / ".git" / f"holdfast-commit-{'0' * 32}"
    note.write_text(tip[::-1])
    for name in BEFORE:
        (repo / ".git" / name).write_text("")
    effect = GitCommit(str(repo), "second", "main", tip, ["file.txt"], environ=environ)
    made = effect.act("k" * 20)
    assert git.line("rev-parse", "HEAD") == made["commit"] != tip
    assert not note.exists()

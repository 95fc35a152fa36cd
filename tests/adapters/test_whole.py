"""A snapshot is kept whole or not at all, also if git collects its objects while it is taken."""

from __future__ import annotations

import os
import subprocess
import time
from subprocess import PIPE
from threading import Timer

import pytest

from holdfast.adapters.git import workspace, ws_whole
from holdfast.adapters.git.repo import GitWorkspace
from holdfast.adapters.git.ws_whole import Swept
from tests.adapters.git_kit import Kit
from tests.adapters.test_workspace import NOW

HOST = os.uname().nodename


@pytest.fixture
def kit(tmp_path):
    made = Kit(tmp_path)
    made.write("new.txt", "new\n")
    return made


def all_of_it(kit, made):
    kit.git("prune", "--expire=now")


def one_blob(kit, made):
    name = kit.git("rev-parse", f"{made.sha}:new.txt")
    os.unlink(kit.top / ".git" / "objects" / name[:2] / name[2:])


def take(kit):
    return GitWorkspace(str(kit.top), kit.environ).snapshot("c1", NOW)


@pytest.mark.parametrize("sweep", [all_of_it, one_blob])
def test_what_is_collected_before_the_ref_is_there_is_made_again(kit, monkeypatch, sweep):
    real, swept = ws_whole.keep, []

    def keep(git, name, made):
        if not swept:
            swept.append(sweep(kit, made))
        return real(git, name, made)

    monkeypatch.setattr(ws_whole, "keep", keep)
    made = take(kit)
    assert swept and kit.git("show", f"{made.sha}:new.txt") == "new" and kit.git("fsck", "--full") == ""


@pytest.mark.parametrize("sweep", [all_of_it, one_blob])
def test_what_is_collected_every_time_is_refused_and_no_ref_is_left(kit, monkeypatch, sweep):
    real = ws_whole.keep
    monkeypatch.setattr(ws_whole, "keep", lambda git, name, made: (sweep(kit, made), real(git, name, made))[1])
    with pytest.raises(Swept, match="missing"):
        take(kit)
    assert workspace.kept(kit.runner()) == {} and kit.git("status", "--porcelain") == "?? new.txt"
    monkeypatch.undo()
    assert kit.git("show", f"{take(kit).sha}:new.txt") == "new"


@pytest.fixture
def a_git(kit):
    """The pid of a git that is at work."""
    process = subprocess.Popen(["git", "cat-file", "--batch"], cwd=kit.top, stdin=PIPE, stdout=PIPE)
    process.stdin.write(b"HEAD\n")
    process.stdin.flush()
    assert process.stdout.readline()  # until it has begun, it has the name of its parent
    yield process.pid
    process.kill()
    process.communicate()


def test_a_collection_is_waited_for(kit, a_git):
    note = kit.top / ".git" / "gc.pid"
    note.write_text(f"{a_git} {HOST}")
    Timer(0.5, note.unlink).start()
    began = time.monotonic()
    assert ws_whole._let_collect(kit.runner()) and time.monotonic() - began > 0.4


def test_a_note_that_a_collection_left_is_not_waited_for(kit, a_git):
    note, dead = kit.top / ".git" / "gc.pid", subprocess.Popen(["true"])
    dead.wait()
    for text in (f"{dead.pid} {HOST}", "", "x", f"x {HOST}", f"{'9' * 40} {HOST}", f"{os.getpid()} {HOST}"):
        note.write_text(text)
        assert not ws_whole._is_collecting(str(note)), text
    for text in (f"{a_git}", f"{a_git} not-{HOST}"):
        note.write_text(text)
        assert not ws_whole._is_collecting(str(note)), text
    note.write_text(f"{a_git} {HOST}")
    assert ws_whole._is_collecting(str(note))
    half_a_day_ago = time.time() - 12 * 60 * 60
    os.utime(note, (half_a_day_ago, half_a_day_ago - 1))
    assert not ws_whole._is_collecting(str(note))


def test_where_nobody_can_look_a_process_that_lives_may_be_a_collection(kit, monkeypatch):
    monkeypatch.setattr("holdfast.adapters.probes.git_locks._PROC", "/nowhere")
    note = kit.top / ".git" / "gc.pid"
    note.write_text(f"{os.getpid()} {HOST}")
    assert ws_whole._is_collecting(str(note))


def test_an_unchanged_work_tree_is_not_looked_at_twice(kit, monkeypatch):
    place = GitWorkspace(str(kit.top), kit.environ)
    first = place.snapshot("c1", NOW)
    monkeypatch.setattr(ws_whole, "_is_whole", lambda *_: pytest.fail("nothing new was made"))
    assert place.snapshot("c2", NOW).sha == first.sha

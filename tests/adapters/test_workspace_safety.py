"""Snapshots in repositories with unusual files and settings: each holds all of its own, or names what it does not hold."""

from __future__ import annotations

import os

import pytest

from holdfast.adapters.git.restore import into_worktree
from holdfast.adapters.git.workspace import drop
from tests.adapters.git_kit import Kit
from tests.adapters.test_workspace import take_and_keep


@pytest.fixture
def kit(tmp_path):
    return Kit(tmp_path)


def test_a_snapshot_after_a_soft_reset_keeps_its_own_index(kit, tmp_path):
    kit.commit("two", **{"a.txt": "two\n"})
    kit.write("a.txt", "three\n")
    git = kit.runner()
    one = take_and_keep(git, "one")
    kit.git("reset", "-q", "--soft", "HEAD~1")
    take_and_keep(git, "two")
    drop(git, "one", one.sha)
    kit.git("reset", "-q", "--hard")
    os.unlink(kit.top / ".git" / "ORIG_HEAD")
    kit.git("reflog", "expire", "--expire=now", "--all")
    kit.git("gc", "-q", "--prune=now")
    into_worktree(git, "two", str(tmp_path / "back"))
    assert kit.git("show", ":a.txt", at=tmp_path / "back") == "two"

"""Snapshots in repositories with unusual files and settings: each holds all of its own, or names what it does not hold."""

from __future__ import annotations

import os
import shutil

import pytest

from holdfast.adapters.git.restore import RestoreRefused, in_place, into_worktree
from holdfast.adapters.git.workspace import drop
from tests.adapters.git_kit import Kit
from tests.adapters.test_workspace import NOW, contents, outer, take_and_keep

__all__ = ["outer"]  # a fixture


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


# --- submodules


def test_files_in_a_submodule_without_its_git_folder_are_named(outer):
    git = outer.runner()
    os.unlink(outer.top / "sub" / ".git")
    outer.write("sub/deep/work", "precious\n")
    os.symlink("/", outer.top / "sub" / "link")
    said = "sub: it is a submodule without a git folder, and 3 files in it are not kept (deep/work, file, link)"
    assert take_and_keep(git).left_out == (said,)
    for name in ("deep/work", "file", "link"):
        os.unlink(outer.top / "sub" / name)
    assert take_and_keep(git, "c2").left_out == ()


def test_files_in_a_submodule_without_its_git_folder_are_not_removed_for_a_file(outer):
    shutil.rmtree(outer.top / "sub")
    outer.write("sub", "a file\n")
    git = outer.runner()
    made = take_and_keep(git)
    assert made.left_out == () and contents(outer, made)["sub"] == b"a file\n"
    os.unlink(outer.top / "sub")
    outer.write("sub/work", "precious\n")
    with pytest.raises(RestoreRefused, match="sub/work"):
        in_place(git, "c1", "before", NOW)
    assert (outer.top / "sub" / "work").read_text() == "precious\n"
    shutil.rmtree(outer.top / "sub")
    in_place(git, "c1", "before", NOW)
    assert (outer.top / "sub").read_text() == "a file\n"

"""The workspace as a commit, in every kind of repository: all of it is kept, and nothing of the user's changes."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest

from holdfast.adapters.git import workspace, ws_odd
from holdfast.adapters.git.workspace import (
    REFS,
    Policy,
    Snapshot,
    WorkspaceError,
    changed,
    diff,
    keep,
    kept,
    read,
    take,
)
from holdfast.adapters.git.ws_objects import NotASnapshot
from holdfast.adapters.probes.common import EffectError
from holdfast.adapters.probes.git_place import find_repository
from holdfast.adapters.probes.git_runner import Git
from holdfast.core.errors import InvalidId, NotFound, UsageError
from tests.adapters.git_kit import Kit

NOW = "2026-01-02T03:04:05Z"
OURS = ("objects", "refs/holdfast", "logs", "holdfast", "worktrees")


def prints_of(top):
    """Every file of a work tree and of its git folder: kind, mode, age and contents. Without what is ours to write."""
    found = {}
    for folder, folders, names in os.walk(top):
        inside = os.path.relpath(folder, top)
        git_part = os.path.relpath(folder, os.path.join(top, ".git"))
        if git_part in OURS:
            folders.clear()
            continue
        for name in [*names, *(each for each in folders if os.path.islink(os.path.join(folder, each)))]:
            path = os.path.join(folder, name)
            seen = os.lstat(path)
            body = os.readlink(path) if stat.S_ISLNK(seen.st_mode) else ""
            if stat.S_ISREG(seen.st_mode):
                with open(path, "rb") as file:
                    body = hashlib.sha256(file.read()).hexdigest()
            found[os.path.join(inside, name)] = (seen.st_mode, seen.st_mtime_ns, seen.st_ino, body)
    return found


def without_age(found):
    """Git marks the shared half of a split index as used whenever it reads it."""
    return {name: (row[0], *row[2:]) if "sharedindex" in name else row for name, row in found.items()}


@pytest.fixture
def kit(tmp_path):
    return Kit(tmp_path)


def take_and_keep(git, name="c1", policy=workspace.DEFAULT):
    return keep(git, name, take(git, name, NOW, policy))


def tree_of(kit, snapshot, at=None):
    """The files of a snapshot: name -> mode and contents."""
    out = subprocess.run(
        ["git", "ls-tree", "-r", "-z", snapshot.tree],
        cwd=at or kit.top,
        env=kit.environ,
        capture_output=True,
        check=True,
    ).stdout
    rows = [row.split(b"\t", 1) for row in out.split(b"\0") if row]
    return {
        os.fsdecode(name): (
            facts.split()[0].decode(),
            b""
            if facts.startswith(b"160000")
            else subprocess.run(
                ["git", "cat-file", "blob", facts.split()[2]],
                cwd=at or kit.top,
                env=kit.environ,
                capture_output=True,
                check=True,
            ).stdout,
        )
        for facts, name in rows
    }


def contents(kit, snapshot, at=None):
    return {name: data for name, (_, data) in tree_of(kit, snapshot, at).items()}


# --- what is kept


def test_changed_new_staged_and_deleted_files_are_all_kept_and_nothing_of_the_users_changes(kit):
    kit.commit("more", **{"b.txt": "b\n", "gone.txt": "g\n", "dir/deep/c.txt": "c\n"})
    kit.write("a.txt", "changed\n")
    kit.write("new file", "new\n")
    kit.write("staged.txt", "staged\n")
    kit.git("add", "staged.txt")
    kit.write("staged.txt", "and changed again\n")
    os.unlink(kit.top / "gone.txt")
    kit.git("stash", "list")
    before = prints_of(kit.top)
    git = kit.runner()
    snapshot = take_and_keep(git)
    assert changed(git) and diff(git, "c1")
    assert prints_of(kit.top) == before
    assert contents(kit, snapshot) == {
        "a.txt": b"changed\n",
        "b.txt": b"b\n",
        "dir/deep/c.txt": b"c\n",
        "new file": b"new\n",
        "staged.txt": b"and changed again\n",
    }
    assert snapshot.head == kit.git("rev-parse", "HEAD") and snapshot.branch == "refs/heads/main"
    assert snapshot.ref == REFS + "c1" == kit.git("for-each-ref", "--format=%(refname)", "refs/holdfast")
    assert read(git, "c1") == snapshot and kept(git) == {"c1": snapshot.sha}
    assert kit.git("show", f"{snapshot.sha}^2:staged/staged.txt") == "staged"
    assert kit.git("fsck", "--strict", "--no-dangling") == ""


def test_the_index_is_kept_byte_for_byte(kit):
    kit.write("staged.txt", "only staged\n")
    kit.git("add", "staged.txt")
    os.unlink(kit.top / "staged.txt")
    snapshot = take_and_keep(kit.runner())
    raw = subprocess.run(
        ["git", "cat-file", "blob", f"{snapshot.sha}^2:index"], cwd=kit.top, capture_output=True, check=True
    ).stdout
    assert raw == (kit.top / ".git" / "index").read_bytes()
    assert kit.git("show", f"{snapshot.sha}^2:staged/staged.txt") == "only staged"


def test_what_is_only_staged_survives_a_collection_of_garbage(kit):
    kit.write("staged.txt", "only staged\n")
    kit.git("add", "staged.txt")
    blob = kit.git("rev-parse", ":staged.txt")
    kit.write("staged.txt", "other\n")
    take_and_keep(kit.runner())
    kit.git("rm", "-q", "--cached", "-f", "staged.txt")
    kit.git("gc", "-q", "--prune=now")
    assert kit.git("cat-file", "blob", blob) == "only staged"


def test_the_commit_names_its_checkpoint_its_branch_and_its_head_and_has_our_identity(kit):
    snapshot = take_and_keep(kit.runner())
    said = kit.git("log", "-1", "--format=%an|%ae|%cn|%ct|%(trailers:unfold)", snapshot.sha)
    head = kit.git("rev-parse", "HEAD")
    assert said.startswith("Holdfast|holdfast@localhost|Holdfast|1767323045|")
    wanted = f"Holdfast-Checkpoint: c1\nHoldfast-Head: {head}\nHoldfast-Branch: refs/heads/main"
    assert wanted in said


def test_our_own_folder_is_not_kept_and_not_listed(kit):
    kit.write(".holdfast/holdfast.db", "ours")
    kit.write("sub/.holdfast/theirs", "theirs")
    git = kit.runner()
    assert sorted(contents(kit, take_and_keep(git))) == ["a.txt", "sub/.holdfast/theirs"]
    assert [change.path for change in changed(git)] == ["sub/.holdfast/theirs"]


def test_ignored_files_are_kept_only_when_asked_for(kit):
    kit.commit("rules", **{".gitignore": "*.log\nbuild/\n"})
    kit.write("x.log", "log\n")
    kit.write("build/deep/out", "out\n")
    git = kit.runner()
    assert sorted(contents(kit, take_and_keep(git))) == [".gitignore", "a.txt"]
    everything = take_and_keep(git, "c2", Policy(ignored=("**",)))
    assert sorted(contents(kit, everything)) == [".gitignore", "a.txt", "build/deep/out", "x.log"]
    assert sorted(contents(kit, take_and_keep(git, "c3"))) == [".gitignore", "a.txt"]


@pytest.mark.parametrize("where", [".gitignore", ".git/info/exclude", "../home/.config/git/ignore"])
def test_a_file_that_comes_to_be_ignored_is_no_longer_kept(kit, where):
    git = kit.runner()
    kit.write("x.log", "log\n")
    assert "x.log" in contents(kit, take_and_keep(git))
    kit.write(where, "*.log\n")
    assert "x.log" not in contents(kit, take_and_keep(git, "c2"))


def test_modes_links_and_binary_files_are_kept_as_they_are(kit):
    kit.write("run.sh", "#!/bin/sh\n")
    os.chmod(kit.top / "run.sh", 0o755)
    kit.write("binary", bytes(range(256)) * 5000)
    os.symlink("/etc/passwd", kit.top / "out")
    os.symlink("no/where", kit.top / "dangling")
    os.symlink(".", kit.top / "loop")
    found = tree_of(kit, take_and_keep(kit.runner()))
    assert found["run.sh"] == ("100755", b"#!/bin/sh\n")
    assert found["binary"][1] == bytes(range(256)) * 5000
    assert found["out"] == ("120000", b"/etc/passwd") and found["dangling"] == ("120000", b"no/where")
    assert found["loop"] == ("120000", b".")


NAMES = (
    b"with space",
    b"new\nline",
    b'"quoted"',
    b"-rf",
    b"--output=x",
    b"\xff\xfe not utf8",
    "ünïcödé".encode(),
    b"tab\there",
    b":(top)magic",
    b"*glob?",
    b"back\\slash",
    b" leading",
    b"trailing ",
    b"d/\x01control",
)


def test_names_of_any_kind_are_kept(kit):
    top = os.fsencode(kit.top)
    os.mkdir(os.path.join(top, b"d"))
    for name in NAMES:
        with open(os.path.join(top, name), "wb") as file:
            file.write(name)
    git = kit.runner()
    snapshot = take_and_keep(git)
    assert snapshot.left_out == ()
    assert contents(kit, snapshot) == {"a.txt": b"a\n", **{os.fsdecode(name): name for name in NAMES}}
    kit.git("add", "-A")
    kit.git("commit", "-q", "-m", "strange names")
    for name in NAMES:
        with open(os.path.join(top, name), "ab") as file:
            file.write(b"!")
    os.unlink(os.path.join(top, NAMES[1]))
    again = contents(kit, take_and_keep(git, "c2"))
    assert again == {"a.txt": b"a\n", **{os.fsdecode(name): name + b"!" for name in NAMES if name != NAMES[1]}}
    assert {change.path for change in changed(git)} == {os.fsdecode(name) for name in NAMES}


def test_a_file_that_becomes_a_folder_and_a_folder_that_becomes_a_link_are_kept(kit):
    kit.commit("more", **{"x": "file\n", "dir/inner": "inner\n", "other/inner": "other\n"})
    os.unlink(kit.top / "x")
    kit.write("x/now/deep", "deep\n")
    shutil.rmtree(kit.top / "dir")
    os.symlink("other", kit.top / "dir")
    found = tree_of(kit, take_and_keep(kit.runner()))
    assert found == {
        "a.txt": ("100644", b"a\n"),
        "x/now/deep": ("100644", b"deep\n"),
        "dir": ("120000", b"other"),
        "other/inner": ("100644", b"other\n"),
    }


# --- what is left out is named


def test_a_file_over_the_limit_is_left_out_by_name(kit):
    kit.write("big", b"x" * 5000)
    kit.write("a.txt", b"y" * 5000)
    snapshot = take_and_keep(kit.runner(), policy=Policy(largest=1000))
    assert contents(kit, snapshot) == {"a.txt": b"a\n"}
    assert snapshot.left_out == (
        "a.txt: it is 5,000 bytes, and the limit is 1,000",
        "big: it is 5,000 bytes, and the limit is 1,000",
    )
    assert read(kit.runner(), "c1").left_out == snapshot.left_out
    assert take_and_keep(kit.runner(), "c2").left_out == ()


def test_a_nested_repository_is_left_out_by_name(kit):
    inner = kit.top / "inner"
    inner.mkdir()
    kit.git("init", "-q", at=inner)
    (inner / "file").write_text("x")
    kit.git("init", "-q", "--bare", str(kit.top / "bare.git"))
    snapshot = take_and_keep(kit.runner())
    assert "inner/: it is a repository of its own" in snapshot.left_out
    assert not [name for name in contents(kit, snapshot) if name.startswith("inner")]
    assert any(name.startswith("bare.git/") for name in contents(kit, snapshot))


def test_a_pipe_in_the_place_of_a_file_does_not_hang_and_is_left_out_by_name(kit):
    os.unlink(kit.top / "a.txt")
    os.mkfifo(kit.top / "a.txt")
    os.mkfifo(kit.top / "pipe")
    snapshot = take_and_keep(kit.runner())
    assert snapshot.left_out == ("a.txt: it is a pipe",) and contents(kit, snapshot) == {}


@pytest.mark.parametrize("many", [2000, 3])
def test_pipes_are_found_in_large_work_trees_too_but_not_where_git_ignores_them(kit, monkeypatch, many):
    monkeypatch.setattr(ws_odd, "_MANY", many)
    kit.write(".gitignore", "node_modules/\n*.sock\n")
    for name in ("node_modules/a", "src/deep", "mixed"):
        (kit.top / name).mkdir(parents=True)
    for name in ("node_modules/a/file", "mixed/a.sock"):
        kit.write(name, "a file\n")
    for name in ("node_modules/a/pipe", "src/deep/pipe", "src/deep/x.sock", "mixed/pipe"):
        os.mkfifo(kit.top / name)
    seen, real = [], os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: seen.append(path) or real(path))
    assert ws_odd.odd_files(kit.runner()) == ["mixed/pipe: it is a pipe", "src/deep/pipe: it is a pipe"]
    assert any(b"node_modules" in os.fsencode(path) for path in seen) == (many == 2000)


def test_a_name_that_git_does_not_take_is_left_out_by_name(kit):
    kit.write("git~1/config", "x\n")
    snapshot = take_and_keep(kit.runner())
    assert snapshot.left_out == ("git~1/config: git does not take such a name",)


def test_what_cannot_be_read_is_left_out_by_name():
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        assert as_nobody(lambda: look_at_closed_files(Path(folder))) == 0


def look_at_closed_files(folder):
    kit = Kit(folder)
    kit.write("secret", "x")
    os.chmod(kit.top / "secret", 0)
    kit.write("closed/in", "x")
    os.chmod(kit.top / "closed", 0)
    left_out = take_and_keep(kit.runner()).left_out
    os.chmod(kit.top / "closed", 0o700)
    assert left_out == ("closed: it could not be opened (Permission denied)", "secret: it cannot be read")


def as_nobody(act):
    """Do it in a child that is not root, for whom a closed file is closed; its wait status."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            act()
            code = 0
        except BaseException as error:
            os.write(2, repr(error).encode())
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1]


# --- kinds of repositories


def test_an_empty_repository_without_an_index(tmp_path, kit):
    top = tmp_path / "empty"
    top.mkdir()
    kit.git("init", "-q", "-b", "trunk", at=top)
    git = kit.runner(top)
    snapshot = take_and_keep(git)
    assert (snapshot.head, snapshot.branch) == (None, "refs/heads/trunk") and diff(git, "c1") == b""
    (top / "first").write_text("first\n")
    again = take_and_keep(git, "c2")
    assert contents(kit, again, top) == {"first": b"first\n"} and b"+first" in diff(git, "c2")
    assert read(git, "c2") == again
    assert not (top / ".git" / "index").exists()


def test_an_unborn_branch_with_an_index(tmp_path, kit):
    top = tmp_path / "unborn"
    top.mkdir()
    kit.git("init", "-q", "-b", "trunk", at=top)
    (top / "first").write_text("first\n")
    kit.git("add", "first", at=top)
    snapshot = take_and_keep(kit.runner(top))
    assert snapshot.head is None and contents(kit, snapshot, top) == {"first": b"first\n"}
    assert len(kit.git("rev-list", "--parents", "-1", snapshot.sha, at=top).split()) == 2


def test_a_detached_head(kit):
    kit.git("checkout", "-q", "--detach")
    snapshot = take_and_keep(kit.runner())
    assert snapshot.branch is None and snapshot.head == kit.git("rev-parse", "HEAD")
    assert read(kit.runner(), "c1") == snapshot


@pytest.mark.parametrize("name", ["heads/(detached)", "heads/refs/heads/x", "heads/-x", "heads/ü/ä", "other/x"])
def test_branches_with_misleading_names(kit, name):
    kit.git("symbolic-ref", "HEAD", f"refs/{name}")
    snapshot = take_and_keep(kit.runner())
    assert snapshot.branch == f"refs/{name}" == read(kit.runner(), "c1").branch


def test_the_same_commit_on_another_branch_is_another_snapshot(kit):
    git = kit.runner()
    first = take_and_keep(git)
    kit.git("checkout", "-q", "-b", "other")
    second = take_and_keep(git, "c2")
    assert (first.tree, first.branch) == (second.tree, "refs/heads/main") and second.branch == "refs/heads/other"


def test_a_repository_with_long_ids(tmp_path, kit):
    top = tmp_path / "long"
    top.mkdir()
    kit.git("init", "-q", "--object-format=sha256", at=top)
    kit.git("config", "user.name", "S", at=top)
    kit.git("config", "user.email", "s@example.invalid", at=top)
    (top / "a").write_text("a\n")
    kit.git("add", "a", at=top)
    git = kit.runner(top)
    first = take_and_keep(git)
    assert len(first.sha) == 64 and b"+a" in diff(git, "c1")
    kit.git("commit", "-q", "-m", "m", at=top)
    (top / "a").write_text("b\n")
    assert contents(kit, take_and_keep(git, "c2"), top) == {"a": b"b\n"}
    assert kit.git("fsck", "--strict", "--no-dangling", at=top) == ""


def test_a_linked_worktree_has_its_own_files_and_the_refs_of_all(tmp_path, kit):
    kit.git("worktree", "add", "-q", str(tmp_path / "linked"), "-b", "linked")
    (tmp_path / "linked" / "here.txt").write_text("here\n")
    before = prints_of(kit.top)
    snapshot = take_and_keep(kit.runner(tmp_path / "linked"))
    assert contents(kit, snapshot) == {"a.txt": b"a\n", "here.txt": b"here\n"}
    assert snapshot.branch == "refs/heads/linked" and read(kit.runner(), "c1") == snapshot
    assert prints_of(kit.top) == before


def test_a_conflict_keeps_all_its_sides(kit):
    kit.commit("base", f="base\n", g="g\n")
    kit.git("checkout", "-q", "-b", "side")
    kit.commit("side", f="side\n", g="side g\n")
    kit.git("checkout", "-q", "main")
    kit.commit("main", f="main\n")
    kit.git("rm", "-q", "g")
    kit.git("commit", "-q", "-m", "no g")
    kit.ask("merge", "side")
    kit.write("also", "staged\n")
    kit.git("add", "also")
    kit.write("also", "changed\n")
    before = prints_of(kit.top)
    git = kit.runner()
    snapshot = take_and_keep(git)
    assert prints_of(kit.top) == before
    assert b"<<<<<<<" in contents(kit, snapshot)["f"]
    sides = [kit.git("show", f"{snapshot.sha}^2:stages/{stage}/f") for stage in (1, 2, 3)]
    assert sides == ["base", "main", "side"]
    assert kit.git("show", f"{snapshot.sha}^2:stages/0/also") == "staged"
    assert ("f", "conflict") in [change[:2] for change in changed(git)]
    assert take_and_keep(git, "c2").sha == snapshot.sha


def test_a_file_that_is_only_intended_to_be_added_is_kept(kit):
    kit.write("later", "later\n")
    kit.write("never", "never\n")
    kit.git("add", "-N", "later", "never")
    os.unlink(kit.top / "never")
    snapshot = take_and_keep(kit.runner())
    assert contents(kit, snapshot) == {"a.txt": b"a\n", "later": b"later\n"}


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_a_change_that_git_was_told_not_to_see_is_not_missed(kit, flag):
    git = kit.runner()
    kit.git("update-index", flag, "a.txt")
    kit.write("a.txt", "hidden\n")
    assert kit.git("status", "--porcelain") == ""
    assert contents(kit, take_and_keep(git)) == {"a.txt": b"hidden\n"}
    kit.write("a.txt", "hidden again\n")
    assert contents(kit, take_and_keep(git, "c2")) == {"a.txt": b"hidden again\n"}


def test_settings_that_weaken_the_look_at_files_do_not_hide_a_change(kit):
    kit.git("config", "core.ignoreStat", "true")
    kit.git("config", "core.checkStat", "minimal")
    kit.git("config", "core.trustctime", "false")
    old = 1_600_000_000
    kit.write("a.txt", "1\n")
    os.utime(kit.top / "a.txt", (old, old))
    kit.git("add", "a.txt")
    git = kit.runner()
    take_and_keep(git)
    time.sleep(1.1)  # git compares whole seconds
    kit.write("a.txt", "2\n")
    os.utime(kit.top / "a.txt", (old, old))
    assert kit.git("status", "--porcelain") == "A  a.txt" or kit.git("diff", "--name-only") == ""
    assert contents(kit, take_and_keep(git, "c2")) == {"a.txt": b"2\n"}
    kit.write("a.txt", "3333\n")
    assert contents(kit, take_and_keep(git, "c3")) == {"a.txt": b"3333\n"}


def test_a_change_within_the_same_moment_is_not_missed(kit):
    """Git tells by the age of an index whether a file may have changed after it; a copy must not look younger."""
    git = kit.runner()
    for number in range(20):
        kit.write("a.txt", f"{number:04}\n")
        kit.git("add", "a.txt")
        kit.write("a.txt", f"{number + 5000:04}\n")
        snapshot = take_and_keep(git, f"c{number}")
        assert contents(kit, snapshot) == {"a.txt": f"{number + 5000:04}\n".encode()}


def test_what_a_sparse_checkout_leaves_out_is_not_deleted(kit):
    kit.commit("more", **{"in/x": "x\n", "out/y": "y\n"})
    kit.git("sparse-checkout", "set", "in")
    assert not (kit.top / "out").exists()
    kit.write("in/x", "changed\n")
    before = prints_of(kit.top)
    snapshot = take_and_keep(kit.runner())
    assert prints_of(kit.top) == before
    assert contents(kit, snapshot) == {"a.txt": b"a\n", "in/x": b"changed\n", "out/y": b"y\n"}
    kit.write("out/y", "here after all\n")
    assert contents(kit, take_and_keep(kit.runner(), "c2"))["out/y"] == b"here after all\n"


def test_a_sparse_index_is_read(kit):
    kit.commit("more", **{"in/x": "x\n", "out/deep/y": "y\n"})
    kit.git("sparse-checkout", "set", "--cone", "--sparse-index", "in")
    kit.write("in/x", "changed\n")
    assert contents(kit, take_and_keep(kit.runner())) == {"a.txt": b"a\n", "in/x": b"changed\n", "out/deep/y": b"y\n"}


def test_a_split_index_is_kept_in_one_piece(kit):
    kit.git("config", "core.splitIndex", "true")
    kit.git("update-index", "--split-index")
    kit.write("b", "b\n")
    kit.git("add", "b")
    before = prints_of(kit.top)
    snapshot = take_and_keep(kit.runner())
    assert without_age(prints_of(kit.top)) == without_age(before)
    raw = kit.top.parent / "raw-index"
    with open(raw, "wb") as file:
        subprocess.run(["git", "cat-file", "blob", f"{snapshot.sha}^2:index"], cwd=kit.top, stdout=file, check=True)
    for shared in (kit.top / ".git").glob("sharedindex.*"):
        shared.unlink()
    assert kit.git("ls-files", environ={"GIT_INDEX_FILE": str(raw)}).split() == ["a.txt", "b"]


@pytest.fixture
def outer(kit, tmp_path):
    """A repository with a submodule `sub` that has one file."""
    inner = tmp_path / "inner"
    inner.mkdir()
    kit.git("init", "-q", at=inner)
    (inner / "file").write_text("x\n")
    kit.git("add", ".", at=inner)
    kit.git("-c", "user.name=S", "-c", "user.email=s@x.invalid", "commit", "-q", "-m", "m", at=inner)
    kit.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "sub")
    kit.git("commit", "-q", "-m", "with a submodule")
    return kit


def test_a_submodule_is_kept_as_its_commit_and_its_own_changes_are_named(outer):
    git = outer.runner()
    clean = take_and_keep(git)
    assert tree_of(outer, clean)["sub"][0] == "160000" and clean.left_out == ()
    (outer.top / "sub" / "file").write_text("dirty\n")
    (outer.top / "sub" / "new").write_text("new\n")
    dirty = take_and_keep(git, "c2")
    assert dirty.left_out == ("sub: it is a submodule, and 2 changed files in it are not kept (file, new)",)
    sub = outer.top / "sub"
    outer.git("-c", "user.name=S", "-c", "user.email=s@x.invalid", "commit", "-q", "-a", "-m", "n", at=sub)
    moved = take_and_keep(git, "c3")
    assert outer.git("rev-parse", f"{moved.tree}:sub") == outer.git("rev-parse", "HEAD", at=sub)


def test_a_submodule_that_runs_programs_runs_none(outer, tmp_path):
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\ncat\n")
    evil.chmod(0o755)
    sub = outer.top / "sub"
    (sub / ".gitattributes").write_text("* filter=evil\n")
    for name in ("filter.evil.clean", "core.fsmonitor"):
        outer.git("config", name, str(evil), at=sub)
    (sub / "file").write_text("dirty\n")
    assert "2 changed files" in take_and_keep(outer.runner()).left_out[0]
    assert not (tmp_path / "ran").exists()


def test_a_bare_repository_is_refused(tmp_path, kit):
    kit.git("init", "-q", "--bare", str(tmp_path / "bare.git"))
    with pytest.raises(EffectError, match="not the top of a git work tree"):
        find_repository(str(tmp_path / "bare.git"))
    with pytest.raises(UsageError, match="no work tree"):
        take(Git(None, kit.environ), "c1", NOW)


def test_an_index_that_is_locked_does_not_matter(kit):
    (kit.top / ".git" / "index.lock").write_text("")
    kit.write("a.txt", "changed\n")
    assert contents(kit, take_and_keep(kit.runner())) == {"a.txt": b"changed\n"}
    assert (kit.top / ".git" / "index.lock").exists()


def test_a_setting_that_refuses_some_line_endings_does_not_refuse_a_snapshot(kit):
    for name in ("autocrlf", "safecrlf"):
        kit.git("config", f"core.{name}", "true")
    kit.write("mixed", b"one\r\ntwo\nthree\r\n")
    assert contents(kit, take_and_keep(kit.runner()))["mixed"] == b"one\ntwo\nthree\n"


def test_names_that_differ_in_case_are_two_files_whatever_the_settings_say(kit):
    kit.git("config", "core.ignorecase", "true")
    kit.write("A.txt", "upper\n")
    found = contents(kit, take_and_keep(kit.runner()))
    assert {name: found[name] for name in ("a.txt", "A.txt")} == {"a.txt": b"a\n", "A.txt": b"upper\n"}


def test_line_endings_are_kept_as_git_would_and_as_they_are(kit):
    kit.git("config", "core.autocrlf", "true")
    mixed = b"one\r\ntwo\nthree\r\n"
    kit.write("mixed", mixed)
    kit.write("staged", mixed)
    kit.git("add", "staged")
    git = kit.runner()
    snapshot = take_and_keep(git)
    assert contents(kit, snapshot)["mixed"] == b"one\ntwo\nthree\n"
    for name in ("mixed", "staged"):
        raw = subprocess.run(
            ["git", "cat-file", "blob", f"{snapshot.sha}^2:raw/{name}"], cwd=kit.top, capture_output=True, check=True
        )
        assert raw.stdout == mixed
    kit.write("a.txt", "more\n")
    again = take_and_keep(git, "c2")
    assert kit.git("rev-parse", f"{again.sha}^2:raw/mixed") == kit.git("rev-parse", f"{snapshot.sha}^2:raw/mixed")


def test_a_filter_of_the_users_own_stands_and_one_of_the_repository_is_named(kit, tmp_path):
    kit.git("config", "--global", "filter.up.clean", "tr a-z A-Z")
    kit.git("config", "filter.evil.clean", f"touch {tmp_path}/ran; cat")
    kit.write(".gitattributes", "*.up filter=up\n*.evil filter=evil\n")
    kit.write("x.up", "words\n")
    kit.write("x.evil", "words\n")
    snapshot = take_and_keep(kit.runner())
    found = contents(kit, snapshot)
    assert (found["x.up"], found["x.evil"]) == (b"WORDS\n", b"words\n")
    said = "x.evil: its filter 'evil' is the repository's own and was not run"
    assert snapshot.left_out == (f"{said}; it is kept just as it is on disk",)
    kit.commit("all", **{"x.evil": "more words\n"})
    kit.git("config", "filter.evil.clean", f"touch {tmp_path}/ran; cat")
    (tmp_path / "ran").unlink(missing_ok=True)
    small = take_and_keep(kit.runner(), "c2", workspace.Policy(largest=8))
    assert small.left_out[0] == f"{said}, so its bytes are not kept"
    assert not (tmp_path / "ran").exists()


# --- again and again


def test_nothing_changed_means_the_same_commit(kit):
    git = kit.runner()
    kit.write("new", "new\n")
    first = take_and_keep(git)
    second = take_and_keep(git, "c2")
    assert second.sha == first.sha and kept(git) == {"c1": first.sha, "c2": first.sha}
    assert (first.is_new, second.is_new) == (True, False)
    assert read(git, "c2") == second._replace(ref=REFS + "c2", is_new=True)
    os.utime(kit.top / "a.txt")
    assert take_and_keep(git, "c3").sha == first.sha
    kit.write("new", "newer\n")
    assert take_and_keep(git, "c4").sha != first.sha


def test_a_file_that_comes_and_goes_is_kept_while_it_is_there(kit):
    git = kit.runner()
    kit.write("here", "here\n")
    assert "here" in contents(kit, take_and_keep(git))
    os.unlink(kit.top / "here")
    assert "here" not in contents(kit, take_and_keep(git, "c2"))
    kit.write("here", "again\n")
    assert contents(kit, take_and_keep(git, "c3"))["here"] == b"again\n"


def test_what_was_never_kept_is_not_relied_on(kit):
    git = kit.runner()
    kit.write("new", "new\n")
    lost = take(git, "c1", NOW)
    kit.git("gc", "-q", "--prune=now")
    assert kit.ask("cat-file", "-e", lost.sha).returncode
    again = take_and_keep(git, "c2")
    assert contents(kit, again)["new"] == b"new\n"
    assert kit.git("fsck", "--strict", "--no-dangling") == ""


def test_a_dropped_snapshot_is_not_relied_on(kit):
    git = kit.runner()
    kit.write("new", "new\n")
    first = take_and_keep(git)
    workspace.drop(git, "c1", first.sha)
    workspace.drop(git, "c1", first.sha)
    kit.git("gc", "-q", "--prune=now")
    assert kept(git) == {} and contents(kit, take_and_keep(git, "c2"))["new"] == b"new\n"
    assert kit.git("fsck", "--strict", "--no-dangling") == ""


def test_packed_refs_are_found(kit):
    git = kit.runner()
    first = take_and_keep(git)
    kit.git("pack-refs", "--all")
    assert take_and_keep(git, "c2").sha == first.sha and read(git, "c1").sha == first.sha
    workspace.drop(git, "c1", first.sha)
    assert sorted(kept(git)) == ["c2"]


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"key": 1}', b"\0" * 100])
def test_a_damaged_memory_of_the_last_snapshot_only_makes_it_slower(kit, damage):
    git = kit.runner()
    take_and_keep(git)
    (kit.top / ".git" / "holdfast" / "last.json").write_bytes(damage)
    kit.write("new", "new\n")
    assert contents(kit, take_and_keep(git, "c2")) == {"a.txt": b"a\n", "new": b"new\n"}


@pytest.mark.parametrize("damage", [b"", b"\0" * 300, None])
def test_a_damaged_private_index_only_makes_it_slower(kit, damage):
    git = kit.runner()
    take_and_keep(git)
    (saved,) = (kit.top / ".git" / "holdfast").glob("index-*")
    if damage is None:
        saved.unlink()
    else:
        saved.write_bytes(damage)
    assert contents(kit, take_and_keep(git, "c2")) == {"a.txt": b"a\n"}


def test_nothing_is_left_lying_about(kit):
    git = kit.runner()
    for number in range(4):
        kit.write("a.txt", f"{number}\n")
        take_and_keep(git, f"c{number}")
    left = sorted(path.name.split("-")[0] for path in (kit.top / ".git" / "holdfast").iterdir())
    assert left == ["index", "last.json"]


def test_the_tree_now_is_the_tree_of_a_snapshot_and_writes_no_object(kit):
    kit.write("new", "new\n")
    git = kit.runner()
    before = sorted((kit.top / ".git" / "objects").rglob("*"))
    tree = workspace.tree_now(git)
    assert sorted((kit.top / ".git" / "objects").rglob("*")) == before
    assert tree == take_and_keep(git).tree == workspace.tree_now(git)


# --- refs


def test_keeping_twice_is_nothing_and_keeping_another_is_refused(kit):
    git = kit.runner()
    first = take_and_keep(git)
    assert keep(git, "c1", first) == first
    kit.write("a.txt", "changed\n")
    other = take(git, "c1", NOW)
    with pytest.raises(WorkspaceError, match="already points at"):
        keep(git, "c1", other)
    with pytest.raises(WorkspaceError, match="cannot be changed"):
        workspace.drop(git, "c1", other.sha)
    assert kept(git) == {"c1": first.sha}


def test_a_lock_that_a_killed_git_left_on_our_ref_is_cleared_away(kit):
    lock = kit.top / ".git" / (REFS + "c1.lock")
    lock.parent.mkdir(parents=True)
    lock.write_text("")
    git = kit.runner()
    assert take_and_keep(git).ref == REFS + "c1" and not lock.exists()


@pytest.mark.parametrize("name", ["", "..", "a/b", "-x", "A", "x.lock", "x.", "a b", "x" * 65, "a\nb", "\0"])
def test_an_id_that_is_none_is_refused(kit, name):
    git = kit.runner()
    nothing = Snapshot("0" * 40, "0" * 40, None, None, None, ())
    for call in (
        lambda: take(git, name, NOW),
        lambda: keep(git, name, nothing),
        lambda: read(git, name),
        lambda: diff(git, name),
        lambda: workspace.drop(git, name, "0" * 40),
    ):
        with pytest.raises(InvalidId):
            call()
    assert not (kit.top / ".git" / "holdfast").exists()


def test_what_is_not_there_is_not_found(kit):
    with pytest.raises(NotFound):
        read(kit.runner(), "c1")
    with pytest.raises(UsageError, match="not a time"):
        take(kit.runner(), "c1", "yesterday")


def test_a_commit_that_is_not_ours_is_refused(kit):
    git = kit.runner()
    snapshot = take_and_keep(git, "c9")
    body = kit.git("cat-file", "commit", snapshot.sha)
    forged = {
        "a commit of the user": kit.git("rev-parse", "HEAD"),
        "a blob": kit.git("rev-parse", "HEAD:a.txt"),
        "no parent": kit.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=without(body, "parent")),
        "another author": kit.git(
            "hash-object", "-t", "commit", "-w", "--stdin", stdin=body.replace("Holdfast <", "X <")
        ),
        "another head": kit.git(
            *("hash-object", "-t", "commit", "-w", "--stdin"),
            stdin=body.replace(f"Head: {snapshot.head}", f"Head: {'1' * 40}"),
        ),
    }
    for number, sha in enumerate(forged.values()):
        kit.git("update-ref", f"{REFS}f{number}", sha)
        with pytest.raises(NotASnapshot):
            read(git, f"f{number}")


def without(body, word):
    return "\n".join(line for line in body.split("\n") if not line.startswith(word)) + "\n"


# --- looking


def test_the_difference_is_a_patch_that_applies(kit, tmp_path):
    kit.commit("more", gone="gone\n", b="b\n")
    head = kit.git("rev-parse", "HEAD")
    os.unlink(kit.top / "gone")
    kit.write("b", b"\0binary\xff")
    kit.write("new file", "new\n")
    git = kit.runner()
    snapshot = take_and_keep(git)
    (tmp_path / "patch").write_bytes(diff(git, "c1"))
    kit.git("clone", "-q", str(kit.top), str(tmp_path / "clone"))
    kit.git("apply", "--index", str(tmp_path / "patch"), at=tmp_path / "clone")
    assert kit.git("write-tree", at=tmp_path / "clone") == snapshot.tree
    assert diff(git, "c1", "HEAD~1") != diff(git, "c1") == diff(git, "c1", head)
    with pytest.raises(EffectError, match="no commit"):
        diff(git, "c1", "--output=x")


def test_changed_lists_what_git_status_lists(kit):
    kit.commit("more", gone="g\n", typed="t\n", left="l\n")
    kit.write("a.txt", "changed\n")
    os.unlink(kit.top / "gone")
    os.unlink(kit.top / "typed")
    os.symlink("x", kit.top / "typed")
    kit.write("staged", "s\n")
    kit.git("add", "staged")
    kit.git("rm", "-q", "--cached", "left")
    kit.write("new", "n\n")
    assert [change[:2] for change in changed(kit.runner())] == [
        ("a.txt", "modified"),
        ("gone", "deleted"),
        ("left", "deleted"),
        ("left", "untracked"),
        ("new", "untracked"),
        ("staged", "added"),
        ("typed", "type changed"),
    ]


def test_a_failing_status_is_not_a_clean_tree(kit):
    git = kit.runner()
    assert changed(git) == []
    (kit.top / ".git" / "index").write_bytes(b"this is no index")
    with pytest.raises(WorkspaceError, match="git status"):
        changed(git)
    with pytest.raises(WorkspaceError):
        take(git, "c1", NOW)
    assert (kit.top / ".git" / "index").read_bytes() == b"this is no index"


def test_looking_creates_nothing(kit):
    before = sorted((kit.top / ".git").rglob("*"))
    git = kit.runner()
    assert (changed(git), kept(git)) == ([], {})
    assert sorted((kit.top / ".git").rglob("*")) == before


# --- together


def test_ten_worktrees_with_ten_snapshots_each_at_once_all_succeed(kit, tmp_path):
    tops = []
    for number in range(10):
        tops.append(tmp_path / f"w{number}")
        kit.git("worktree", "add", "-q", "--detach", str(tops[-1]))
        (tops[-1] / "mine").write_text(f"{number}\n")
    failures, done = [], {}

    def work(number):
        git = kit.runner(tops[number])
        for turn in range(5):
            try:
                (tops[number] / f"turn{turn}").write_text(f"{number} {turn}\n")
                name = f"c{number}-{turn}-{threading.get_ident()}"
                done[name] = take_and_keep(git, name).sha
            except Exception as error:
                failures.append(repr(error))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(10) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == [] and len(done) == 100
    assert kept(kit.runner()) == done
    assert kit.git("fsck", "--strict", "--no-dangling") == ""
    assert not list((kit.top / ".git").rglob("*.lock")) and not list((kit.top / ".git").rglob("work-*"))

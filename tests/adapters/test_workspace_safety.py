"""Snapshots in repositories with unusual files and settings: each holds all of its own, or names what it does not hold."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from holdfast.adapters.git import ws_desk, ws_odd
from holdfast.adapters.git.restore import RestoreRefused, in_place, into_worktree, preview
from holdfast.adapters.git.workspace import WorkspaceError, drop, kept, take
from holdfast.adapters.git.ws_convert import Conversion
from holdfast.adapters.git.ws_touched import touched
from tests.adapters.git_kit import Kit
from tests.adapters.test_restore import files_of
from tests.adapters.test_workspace import NOW, as_nobody, contents, outer, take_and_keep

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


# --- files that git converts and calls unchanged

CRLF = b"a\r\nb\r\n"


def brought_back(kit, git, name="c1"):
    """What a restore gives of everything that is here, and of what is here."""
    back = kit.top.parent / f"back-{name}"
    take_and_keep(git, name)
    into_worktree(git, name, str(back))
    assert kit.git("status", "--porcelain", at=back) == kit.git("status", "--porcelain")
    return files_of(back), files_of(kit.top)


@pytest.mark.parametrize("rule", ["*.txt text=auto\n", "*.txt text\n", "*.txt text eol=crlf\n", "*.txt text eol=lf\n"])
def test_a_clean_file_whose_line_ends_git_converts_comes_back_as_it_is(kit, rule):
    kit.commit("crlf", **{".gitattributes": rule, "f.txt": CRLF, "g.txt": b"a\nb\n", "d/h.txt": b"a\r\nb\n"})
    assert kit.git("status", "--porcelain") == ""
    back, here = brought_back(kit, kit.runner())
    assert back == here and here[b"f.txt"] == (False, CRLF)


@pytest.mark.parametrize("value", ["input", "true"])
def test_so_it_does_where_a_setting_converts_it(kit, value):
    kit.git("config", "core.autocrlf", value)
    kit.commit("crlf", f=CRLF, g=b"a\nb\n")
    back, here = brought_back(kit, kit.runner())
    assert back == here and here[b"f"] == (False, CRLF) and here[b"g"] == (False, b"a\nb\n")


def test_so_it_does_where_attributes_came_after_it(kit):
    kit.commit("lf", f="$Id$\n", g="g\n")
    git = kit.runner()
    take_and_keep(git, "c0")
    kit.commit("rules", **{".gitattributes": "f ident\ng text eol=crlf\n"})
    back, here = brought_back(kit, git)
    assert back == here
    kit.write(".git/info/attributes", "a.txt text eol=crlf\n")
    back, here = brought_back(kit, git, "c2")
    assert back == here


@pytest.mark.parametrize("is_ignored", [False, True])
def test_so_it_does_where_attributes_stand_in_a_file_that_git_does_not_track(kit, is_ignored):
    kit.commit("lf", **{"sub/deep/f": b"a\nb\n"})
    kit.write("sub/.gitattributes", "* text=auto\n")
    if is_ignored:
        kit.write(".git/info/exclude", ".gitattributes\n")
    kit.write("sub/deep/f", CRLF)
    kit.git("add", "sub/deep/f")
    assert kit.git("status", "--porcelain") == ("" if is_ignored else "?? sub/.gitattributes")
    take_and_keep(kit.runner())
    into_worktree(kit.runner(), "c1", str(kit.top.parent / "back"))
    assert (kit.top.parent / "back" / "sub" / "deep" / "f").read_bytes() == CRLF


def test_so_it_does_where_the_filter_of_the_user_loses_something(kit):
    kit.git("config", "--global", "filter.upper.clean", "tr a-z A-Z")
    kit.commit("filtered", **{".gitattributes": "*.up filter=upper\n", "x.up": "words\n"})
    back, here = brought_back(kit, kit.runner())
    assert back == here and here[b"x.up"] == (False, b"words\n")


def test_line_ends_that_change_while_git_calls_the_file_the_same_are_not_missed(kit):
    kit.commit("rules", **{".gitattributes": "* text=auto\n", "f": b"a\nb\n"})
    git = kit.runner()
    for number, data in enumerate((b"a\nb\n", CRLF, b"a\nb\n", CRLF)):
        kit.write("f", data)
        back, here = brought_back(kit, git, f"c{number}")
        assert back == here and here[b"f"] == (False, data)
    assert not take(git, "same", NOW).is_new


def test_so_it_is_where_size_and_second_stay_the_same(kit):
    kit.commit("rules", **{".gitattributes": "* text\n", "f": b"a\r\nb\n"})
    git = kit.runner()
    different = (b"a\nb\r\n", b"a\r\nb\n") * 3
    for number, data in enumerate(different):
        kit.write("f", data)
        take_and_keep(git, f"c{number}")
    for number, data in enumerate(different):
        into_worktree(git, f"c{number}", str(kit.top.parent / f"back-{number}"))
        assert (kit.top.parent / f"back-{number}" / "f").read_bytes() == data


@pytest.mark.parametrize("change", ["rules", "settings"])
def test_a_file_that_git_converted_by_what_holds_no_more_comes_back_as_it_is(kit, change):
    if change == "settings":
        kit.git("config", "core.autocrlf", "true")
    kit.commit("crlf", **{".gitattributes": "* text=auto\n" if change == "rules" else "", "f": CRLF})
    while kit.git("diff-files", "--name-only") or time.time() < os.stat(kit.top / "f").st_mtime + 1.1:
        time.sleep(0.1)  # until git believes that it need not look
        kit.git("update-index", "--refresh")
    if change == "settings":
        kit.git("config", "core.autocrlf", "false")
    else:
        kit.write(".gitattributes", "*.png binary\n")
    assert kit.git("show", ":f") == "a\nb" and "f" not in kit.git("status", "--porcelain").split()
    take_and_keep(kit.runner())
    into_worktree(kit.runner(), "c1", str(kit.top.parent / "back"))
    assert (kit.top.parent / "back" / "f").read_bytes() == CRLF


@pytest.mark.parametrize(("name", "value"), [("core.autocrlf", "true"), ("core.eol", "crlf")])
def test_files_come_back_as_they_were_though_a_setting_would_write_them_otherwise_now(kit, name, value):
    kit.commit("lf", **{".gitattributes": "* text=auto\n" if name == "core.eol" else "", "f": "f\n", "g": "g\n"})
    git = kit.runner()
    take_and_keep(git)
    before = files_of(kit.top)
    kit.git("config", name, value)
    into_worktree(git, "c1", str(kit.top.parent / "back"))
    assert files_of(kit.top.parent / "back") == before
    assert preview(git, "c1") == []
    kit.write("f", "other\n")
    assert [one.path for one in preview(git, "c1")] == ["f"]
    in_place(git, "c1", "before", NOW)
    assert files_of(kit.top) == before


def test_a_file_that_vanishes_while_it_is_looked_at_is_simply_gone(kit, monkeypatch):
    kit.commit("rules", **{".gitattributes": "* text=auto\n", "d/f": CRLF, "g": b"g\n"})
    real = Conversion._is_readable

    def vanish(self, path):
        found = real(self, path)
        if path == b"d/f":
            shutil.rmtree(kit.top / "d", ignore_errors=True)
        return found

    monkeypatch.setattr(Conversion, "_is_readable", vanish)
    assert "d/f" not in contents(kit, take_and_keep(kit.runner()))


def test_a_file_that_vanishes_again_and_again_is_named_as_people_write_it(kit, monkeypatch):
    kit.commit("rules", **{".gitattributes": "* text=auto\n", "f": CRLF})
    real = Conversion._of_other_size

    def vanish(self, blobs):
        os.unlink(kit.top / "f")
        try:
            return real(self, blobs)
        finally:
            kit.write("f", CRLF)

    monkeypatch.setattr(Conversion, "_of_other_size", vanish)
    with pytest.raises(WorkspaceError, match=f"^{kit.top}/f cannot be read or written"):
        take(kit.runner(), "c1", NOW)


def test_files_of_a_filter_that_gives_back_what_it_took_are_not_stored_twice(kit):
    for name in ("clean", "smudge"):
        kit.git("config", "--global", f"filter.lfs.{name}", "tr a-z n-za-m")
    kit.commit("large", **{".gitattributes": "*.bin filter=lfs\n", "x.bin": "words\n"})
    back, here = brought_back(kit, kit.runner())
    assert back == here
    assert "raw" not in kit.git("ls-tree", "--name-only", f"{kept(kit.runner())['c1']}^2")


def test_touched_files_are_told_by_their_entries_in_any_plain_index(kit, tmp_path):
    long = tmp_path / "long"
    long.mkdir()
    kit.git("init", "-q", "--object-format=sha256", at=long)
    for top, object_format in ((kit.top, "sha1"), (long, "sha256")):
        for name in ("a", "b" * 70, "c/d"):
            (top / name).parent.mkdir(exist_ok=True)
            (top / name).write_text("x\n")
        kit.git("add", "-A", at=top)
        kit.git("update-index", "--skip-worktree", "a", at=top)
        index = top / ".git" / "index"
        before = index.read_bytes()
        for name in ("b" * 70, "c/d"):
            os.utime(top / name, (1, 1))
        kit.git("update-index", "--refresh", at=top)
        assert touched(before, index.read_bytes(), object_format) == [b"b" * 70, b"c/d"]
        assert touched(before, before, object_format) == []
        kit.git("rm", "-q", "--cached", "c/d", at=top)
        assert touched(before, index.read_bytes(), object_format) is None


# --- who may run it


def executable(top):
    return {os.fsdecode(path) for path, (runs, _) in files_of(top).items() if runs}


def test_what_runs_is_kept_though_git_is_told_not_to_look(kit):
    kit.commit("two", **{"once.sh": "x\n", "kept.sh": "x\n"})
    kit.git("update-index", "--chmod=+x", "once.sh", "kept.sh")
    kit.git("commit", "-q", "-m", "they run")
    kit.git("config", "core.fileMode", "false")
    kit.write("new.sh", "x\n")
    for name in ("kept.sh", "a.txt", "new.sh"):
        os.chmod(kit.top / name, 0o755)
    index = (kit.top / ".git" / "index").read_bytes()
    git = kit.runner()
    take_and_keep(git)
    assert (kit.top / ".git" / "index").read_bytes() == index
    into_worktree(git, "c1", str(kit.top.parent / "back"))
    assert executable(kit.top.parent / "back") == executable(kit.top) == {"kept.sh", "a.txt", "new.sh"}
    for name in ("kept.sh", "a.txt", "new.sh"):
        os.chmod(kit.top / name, 0o644)
    os.chmod(kit.top / "once.sh", 0o755)
    in_place(git, "c1", "before", NOW)
    assert executable(kit.top) == {"kept.sh", "a.txt", "new.sh"}
    in_place(git, "before", "again", NOW)
    assert executable(kit.top) == {"once.sh"}


def test_where_the_disk_does_not_keep_what_runs_the_index_tells(kit, monkeypatch):
    kit.git("config", "core.fileMode", "false")
    kit.git("update-index", "--chmod=+x", "a.txt")
    monkeypatch.setattr(os, "chmod", lambda path, mode: None)
    made = take_and_keep(kit.runner())
    assert kit.git("ls-tree", made.tree, "a.txt").startswith("100755")


# --- what cannot be kept is named


def test_however_many_names_git_does_not_take_each_is_named(kit):
    for number in range(400):
        kit.write(f"v/.GIT/precious-file-{number:04d}-with-a-long-name", "x\n")
    left_out = take_and_keep(kit.runner()).left_out
    assert len(left_out) == 400 and left_out[-1].startswith("v/.GIT/precious-file-0399")


def test_folders_that_cannot_be_opened_are_named_whatever_they_are_called():
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        assert as_nobody(lambda: look_at_closed_folders(Path(folder))) == 0


def look_at_closed_folders(folder):
    kit = Kit(folder)
    kit.write(".git/info/exclude", "ignored\n")
    kit.write("a", "a\n")
    names = ("a': b", "n\nl", "\x01", *(f"many/folder-number-{number:03d}-with-a-long-name" for number in range(200)))
    for name in (*names, "ignored"):
        os.makedirs(kit.top / name, mode=0o700)
        os.chmod(kit.top / name, 0)
    git = kit.runner()
    left_out = take_and_keep(git).left_out
    assert left_out == tuple(sorted(f"{name}: it could not be opened (Permission denied)" for name in names))
    kit.write("a", "changed\n")
    in_place(git, "c1", "before", NOW)
    assert (kit.top / "a").read_text() == "a\n"
    for name in (*names, "ignored"):
        os.chmod(kit.top / name, 0o700)


def test_a_folder_whose_path_is_too_long_is_named(kit):
    name, fd = "n" * 200, os.open(kit.top, os.O_RDONLY)
    for _ in range(25):
        os.mkdir(name, dir_fd=fd)
        inner = os.open(name, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(os.open("precious", os.O_WRONLY | os.O_CREAT, dir_fd=fd))
    os.close(fd)
    (row,) = take_and_keep(kit.runner()).left_out
    assert row.endswith("n: it could not be opened (File name too long)") and len(row) > 4000
    subprocess.run(["rm", "-rf", kit.top / name], check=True)


@pytest.mark.parametrize("many", [2000, 3])
def test_a_repository_in_a_folder_of_which_git_has_files_is_named(kit, monkeypatch, many):
    monkeypatch.setattr(ws_odd, "_MANY", many)
    kit.commit("more", **{"d/x": "x\n"})
    for name in ("d", "untracked"):
        (kit.top / name).mkdir(exist_ok=True)
        kit.git("init", "-q", at=kit.top / name)
    kit.write("fake/x", "x\n")
    kit.write("fake/.git/file", "x\n")
    rows = [f"{name}/.git: it is a repository of its own" for name in ("d", "fake")]
    assert ws_odd.odd_files(kit.runner()) == rows


# --- settings and rules


def test_a_file_that_comes_to_be_ignored_by_a_rule_that_is_itself_ignored_is_no_longer_kept(kit):
    kit.write("d/.gitignore", ".gitignore\n")
    kit.write("d/tok", "one\n")
    git = kit.runner()
    assert "d/tok" in contents(kit, take_and_keep(git, "c1"))
    kit.write("d/.gitignore", ".gitignore\ntok\n")
    kit.write("d/tok", "secret\n")
    assert "d/tok" not in contents(kit, take_and_keep(git, "c2"))
    assert not take(git, "c3", NOW).is_new


def test_a_work_tree_that_a_setting_puts_elsewhere_is_named(kit, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    kit.git("config", "core.worktree", "..")
    assert take_and_keep(kit.runner()).left_out == ()
    kit.git("config", "core.worktree", str(tmp_path / "elsewhere"))
    (row,) = take_and_keep(kit.runner(), "c2").left_out
    assert row == f"{tmp_path}/elsewhere: git takes it for the work tree, as core.worktree says, and it is not kept"


def test_links_come_back_as_links_where_a_setting_says_that_there_are_none(kit, tmp_path):
    kit.write("link-as-file", "a.txt")
    os.symlink("a.txt", kit.top / "tracked")
    kit.git("add", "-A")
    blob = kit.git("rev-parse", ":link-as-file")
    kit.git("update-index", "--cacheinfo", f"120000,{blob},link-as-file")
    kit.git("commit", "-q", "-m", "links")
    kit.git("config", "core.symlinks", "false")
    os.symlink("a.txt", kit.top / "new")
    git = kit.runner()
    take_and_keep(git)
    into_worktree(git, "c1", str(tmp_path / "back"))
    wanted = files_of(kit.top)
    assert files_of(tmp_path / "back") == wanted and wanted[b"new"] == wanted[b"tracked"] == ("link", b"a.txt")
    os.unlink(kit.top / "new")
    os.unlink(kit.top / "tracked")
    kit.write("tracked", "a.txt")
    in_place(git, "c1", "before", NOW)
    assert files_of(kit.top) == wanted


def test_a_desk_that_goes_while_it_is_swept_fails_nobody_else(kit, monkeypatch):
    git = kit.runner()
    with ws_desk.open_desk(git, "other") as other:
        home, folder = other.home, other.folder
    os.mkdir(folder)

    def gone(fd, kind, patience):
        shutil.rmtree(folder, ignore_errors=True)
        return True

    monkeypatch.setattr(ws_desk, "wait_for", gone)
    ws_desk.sweep(home, git.place)

"""Merges of what parallel tasks made: object by object, with conflicts named; then put into a work tree, killed anywhere."""

from __future__ import annotations

import hashlib
import os
import resource
import shutil
import signal
import stat
import subprocess
import tempfile

import pytest

from holdfast.adapters.git import tree_put
from holdfast.adapters.git.merging import MergeConflict, PutRefused, merge, put
from holdfast.adapters.git.repo import GitWorkspace
from holdfast.adapters.git.tree_put import MeanwhileChanged
from holdfast.adapters.git.trees import TaskTrees, changed_behind, undo
from holdfast.adapters.probes.common import EffectError
from tests.adapters.git_kit import Kit
from tests.adapters.probes.conftest import environ, git, repo
from tests.adapters.probes.killing import in_child
from tests.adapters.probes.test_git_hostile import canaries, fired, hostile, program
from tests.adapters.test_restore import files_of
from tests.adapters.test_workspace import NAMES, NOW, outer, prints_of

__all__ = ["canaries", "environ", "git", "hostile", "outer", "program", "repo"]  # fixtures

LINES = "".join(f"line {number}\n" for number in range(30))


@pytest.fixture
def kit(tmp_path):
    return Kit(tmp_path)


def workspace_of(kit, top=None):
    return GitWorkspace(str(top or kit.top), kit.environ)


def write(folder, path, data):
    target = os.path.join(os.fsencode(folder), os.fsencode(path) if isinstance(path, str) else path)
    if os.path.lexists(target):
        os.unlink(target)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if data is None:
        os.rmdir(os.path.dirname(target)) if not os.listdir(os.path.dirname(target)) else None
    elif isinstance(data, tuple):
        os.symlink(data[0], target)
    else:
        with open(target, "wb") as file:
            file.write(data if isinstance(data, bytes) else data.encode())


def side(kit, base, files, runs=()):
    """A commit in which some files are written, linked (a tuple) or removed (None)."""
    place = tempfile.mkdtemp(dir=kit.top.parent)
    top = os.path.join(place, "x")
    kit.git("worktree", "add", "-q", "--detach", top, base)
    for path, data in files.items():
        write(top, path, data)
    for path in runs:
        os.chmod(os.path.join(top, path), 0o755)
    kit.git("add", "-A", "-f", at=top)
    kit.git("commit", "-q", "--allow-empty", "-m", "side", at=top)
    sha = kit.git("rev-parse", "HEAD", at=top)
    kit.git("worktree", "remove", "--force", top)
    return sha


def merged_of(kit, base, *sides, ours=None):
    named = [(f"T{number}", sha) for number, sha in enumerate(sides, 1)]
    return merge(kit.runner(), base, ours or base, named)


def content(kit, tree):
    out = subprocess.run(["git", "ls-tree", "-r", "-z", tree], cwd=kit.top, capture_output=True, check=True).stdout
    rows = (row.split(b"\t", 1) for row in out.split(b"\0") if row)
    return {
        os.fsdecode(path): (facts.split()[0].decode(), kit.ask("cat-file", "blob", facts.split()[2].decode()).stdout)
        for facts, path in rows
    }


# --- merging


def test_what_tasks_made_is_merged_and_no_file_is_touched(kit):
    base = kit.commit("base", **{"a": LINES, "b": "b\n", "old name": LINES + "more\n", "run": "r\n", "gone": "g\n"})
    one = side(kit, base, {"a": LINES.replace("line 2\n", "LINE 2\n"), "new/one": "1\n", "gone": None}, runs=["run"])
    two = side(kit, base, {"a": LINES.replace("line 27\n", "LINE 27\n"), "new/two": "2\n", "same": "s\n"})
    three = side(
        kit, base, {"new name": LINES + "more\n", "old name": None, "run": "R\n", "link": ("a",), "same": "s\n"}
    )
    four = side(kit, base, {"old name": (LINES + "more\n").replace("line 9\n", "LINE 9\n"), "bin": b"\0\1\2"})
    before = prints_of(kit.top)
    merged = merged_of(kit, base, one, two, three, four)
    after = prints_of(kit.top)
    assert {name: row for name, row in after.items() if ".git/" not in name} == {
        name: row for name, row in before.items() if ".git/" not in name
    }
    assert {name for name in after if name not in before and not name.startswith(".git/objects/")} == set()
    assert content(kit, merged.tree) == {
        "a": ("100644", LINES.replace("line 2\n", "LINE 2\n").replace("line 27\n", "LINE 27\n")),
        "a.txt": ("100644", "a\n"),
        "b": ("100644", "b\n"),
        "bin": ("100644", "\0\1\2"),
        "link": ("120000", "a"),
        "new name": ("100644", (LINES + "more\n").replace("line 9\n", "LINE 9\n")),
        "new/one": ("100644", "1\n"),
        "new/two": ("100644", "2\n"),
        "run": ("100755", "R\n"),
        "same": ("100644", "s\n"),
    }
    assert kit.git("rev-parse", f"{merged.commit}^{{tree}}") == merged.tree
    assert kit.git("rev-parse", f"{merged.commit}^@").split() == [base, one, two, three, four]
    assert merged_of(kit, base, one, two, three, four) == merged
    assert merged_of(kit, base).tree == kit.git("rev-parse", f"{base}^{{tree}}")
    assert kit.git("fsck", "--strict", "--no-dangling") == ""


def test_names_of_every_kind_are_merged(kit):
    base = kit.commit("base")
    one = side(kit, base, dict.fromkeys(NAMES[::2], b"1"))
    two = side(kit, base, dict.fromkeys(NAMES[1::2], b"2"))
    found = content(kit, merged_of(kit, base, one, two).tree)
    assert {*found} == {"a.txt", *map(os.fsdecode, NAMES)}


@pytest.mark.parametrize(
    "one, two, paths",
    [
        ({"f": "1\n"}, {"f": "2\n"}, ["f"]),
        ({"new\nname": "1\n"}, {"new\nname": "2\n"}, ["new\nname"]),
        ({"f": None}, {"f": "changed\n"}, ["f"]),
        ({"f": "changed\n"}, {"f": None}, ["f"]),
        ({"bin": b"\0\1\3"}, {"bin": b"\0\1\4"}, ["bin"]),
        ({"link": ("x",)}, {"link": ("y",)}, ["link"]),
        ({"f": ("x",)}, {"f": "changed\n"}, ["f"]),
        ({"place": "file\n"}, {"place/in": "in\n"}, ["place"]),
    ],
)
def test_what_cannot_be_merged_is_named_with_both_sides(kit, one, two, paths):
    base = kit.commit("base", f="f\n", bin=b"\0\1\2")
    kit.git("branch", "-q", "x")
    os.symlink("z", kit.top / "link")
    base = kit.commit("link")
    apart = side(kit, base, {"elsewhere": "e\n"})
    with pytest.raises(MergeConflict) as caught:
        merged_of(kit, base, apart, side(kit, base, one), side(kit, base, two))
    error = caught.value
    assert (error.task, error.others, error.paths, error.reason) == ("T3", ("T2",), tuple(paths), "merge_conflict")
    assert "task T3" in str(error) and repr(paths[0]) in str(error) and "\n" not in str(error)


def test_an_edit_in_the_work_tree_is_a_side_too(kit):
    base = kit.commit("base", f="f\n")
    kit.write("f", "a person\n")
    kit.git("add", "-A")
    ours = kit.git("write-tree")
    one = side(kit, base, {"f": "1\n"})
    with pytest.raises(MergeConflict) as caught:
        merged_of(kit, base, one, ours=ours)
    assert caught.value.others == ("the work tree",)
    two = side(kit, base, {"g": "2\n"})
    assert content(kit, merged_of(kit, base, two, ours=ours).tree)["f"] == ("100644", "a person\n")


def test_submodules_are_merged_as_commits(outer):
    base = outer.git("rev-parse", "HEAD")
    outer.git(
        "-c",
        "user.name=S",
        "-c",
        "user.email=s@x.invalid",
        "commit",
        "-q",
        "--allow-empty",
        "-m",
        "n",
        at=outer.top / "sub",
    )
    outer.git("add", "sub")
    moved = outer.git("write-tree")
    one = side(outer, base, {"f": "1\n"})
    tree = merged_of(outer, base, one, ours=moved).tree
    assert outer.git("ls-tree", tree, "sub") == outer.git("ls-tree", moved, "sub")
    before = files_of(outer.top / "sub")
    assert put(workspace_of(outer), moved, tree) == ["f"]
    assert files_of(outer.top / "sub") == before


def test_a_merge_program_of_the_repository_does_not_run_and_does_not_decide(kit, tmp_path):
    kit.write(".gitattributes", "f merge=evil\n")
    base = kit.commit("base", f=LINES)
    kit.git("config", "merge.evil.driver", f"touch {tmp_path}/ran; true")
    one = side(kit, base, {"f": LINES.replace("line 2\n", "LINE 2\n")})
    two = side(kit, base, {"f": LINES.replace("line 27\n", "LINE 27\n")})
    with pytest.raises(MergeConflict):
        merged_of(kit, base, one, two)
    assert not (tmp_path / "ran").exists()


def test_an_older_git_is_told(kit, tmp_path):
    front = tmp_path / "front"
    front.mkdir()
    real = shutil.which("git")
    told = f'case " $* " in *" version "*) echo git version 2.37.4; exit;; esac\nexec {real} "$@"\n'
    (front / "git").write_text(f"#!/bin/sh\n{told}")
    (front / "git").chmod(0o755)
    base = kit.git("rev-parse", "HEAD")
    kit.environ["PATH"] = f"{front}:{kit.environ['PATH']}"
    with pytest.raises(EffectError, match=r"needs git 2\.38 or newer"):
        merged_of(kit, base, base)


def test_only_full_ids_are_taken(kit):
    base = kit.git("rev-parse", "HEAD")
    for name in ("HEAD", "--help", base[:10], ""):
        with pytest.raises(EffectError):
            merge(kit.runner(), base, base, [("T1", name)])
        with pytest.raises(EffectError):
            put(workspace_of(kit), base, name)


# --- putting


def laid_out(kit, names=NAMES):
    """A base and a side with every kind of change; the base is what the work tree holds."""
    kit.commit(
        "base",
        **{
            "keep": "k\n", "edit": "e\n", "gone": "g\n", "run": "r\n", "dir/a": "a\n", "dir/sub/b": "b\n",
            "file": "f\n", "deep/er/only": "o\n", "unrun": "u\n", "typed": "t\n",
        },
    )  # fmt: skip
    os.symlink("keep", kit.top / "link")
    os.symlink("keep", kit.top / "linkdir")
    os.chmod(kit.top / "unrun", 0o755)
    base = kit.commit("links")
    changes = {"edit": "E\n", "gone": None, "dir/a": None, "dir/sub/b": None, "deep/er/only": None, "file": None}
    changes |= {
        "link": ("edit",),
        "linkdir": None,
        "typed": ("edit",),
        "new/deep/er": "n\n",
        "run": "R\n",
        "unrun": "U\n",
    }
    place = kit.top.parent / "want"
    kit.git("worktree", "add", "-q", "--detach", str(place), base)
    for path, data in changes.items():
        write(place, path, data)
    shutil.rmtree(place / "dir", ignore_errors=True)
    for path, data in {"dir": "a file\n", "file/in": "in\n", "linkdir/in": "in\n"}.items():
        write(place, path, data)
    for name in names:
        write(place, name, name)
    os.chmod(place / "run", 0o755)
    os.chmod(place / "unrun", 0o644)
    kit.git("add", "-A", at=place)
    kit.git("commit", "-q", "-m", "wanted", at=place)
    return base, kit.git("rev-parse", "HEAD", at=place), files_of(place)


def index_and_head(kit):
    git = kit.top / ".git"
    return (git / "index").read_bytes(), (git / "HEAD").read_bytes(), kit.git("for-each-ref")


def test_the_work_tree_is_brought_to_the_merged_content(kit):
    base, wanted, files = laid_out(kit)
    kit.write("mine", "untracked\n")
    os.makedirs(kit.top / "empty")
    before = index_and_head(kit)
    kept = os.stat(kit.top / "keep")
    paths = put(workspace_of(kit), base, wanted)
    assert files_of(kit.top) == {**files, b"mine": (False, b"untracked\n")}
    assert {"edit", "gone", "dir", "dir/a", "file", "file/in", "run", *map(os.fsdecode, NAMES)} <= {*paths}
    assert "keep" not in paths and os.stat(kit.top / "keep") == kept
    assert index_and_head(kit) == before and not (kit.top / "deep").exists() and (kit.top / "empty").is_dir()
    assert put(workspace_of(kit), base, wanted) == paths
    assert sorted(put(workspace_of(kit), wanted, base)) == sorted(paths)
    assert kit.git("status", "--porcelain") == "?? mine"
    assert put(workspace_of(kit), base, base) == []


def edit(top, path):
    """What a person might have done at a path."""
    if path == "run":
        (top / path).unlink()
    elif path == "typed":
        os.chmod(top / path, 0o755)
    elif path == "dir":
        (top / "dir/mine").write_text("mine\n")
    elif path in ("link", "new"):
        (top / path).unlink(missing_ok=True)
        os.symlink("keep" if path == "new" else "mine", top / path)
    elif path == "file":
        (top / path).unlink()
        os.mkfifo(top / path)
    elif path == "with space":
        (top / path).mkdir()
        (top / path / "mine").write_text("mine\n")
    else:
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_text("a person\n")


EDITED = ("edit", "gone", "new/deep/er", "run", "unrun", "typed", "dir", "link", "file", "with space", "new")


@pytest.mark.parametrize("path", EDITED)
def test_an_edit_of_a_person_is_refused_by_name_before_anything_changes(kit, path):
    base, wanted, _ = laid_out(kit)
    edit(kit.top, path)
    before = prints_of(kit.top)
    with pytest.raises(PutRefused) as caught:
        put(workspace_of(kit), base, wanted)
    assert repr(path) in str(caught.value) and caught.value.reason == "dirty_worktree"
    assert prints_of(kit.top) == before


def test_a_linked_folder_is_not_written_through(kit, tmp_path):
    (tmp_path / "outside").mkdir()
    base = kit.commit("base", **{"dir/a": "a\n"})
    wanted = side(kit, base, {"dir/a": "A\n", "dir/b": "b\n"})
    shutil.rmtree(kit.top / "dir")
    os.symlink(tmp_path / "outside", kit.top / "dir")
    (tmp_path / "outside" / "a").write_text("a\n")
    with pytest.raises(PutRefused, match="'dir/a' has 'dir' in its way"):
        put(workspace_of(kit), base, wanted)
    assert os.listdir(tmp_path / "outside") == ["a"] and (tmp_path / "outside/a").read_text() == "a\n"


def test_many_edits_are_counted(kit):
    base = kit.commit("base", **{f"f{number}": "x\n" for number in range(9)})
    wanted = side(kit, base, {f"f{number}": "y\n" for number in range(9)})
    for number in range(9):
        kit.write(f"f{number}", "z\n")
    with pytest.raises(PutRefused, match="and 4 more"):
        put(workspace_of(kit), base, wanted)


def test_one_that_is_changed_meanwhile_is_not_overwritten(kit, monkeypatch):
    base = kit.commit("base", f="f\n", g="g\n")
    wanted = side(kit, base, {"f": "F\n", "g": None})
    real = tree_put.sync_paths

    def late(paths):
        kit.write("f", "a person\n")
        real(paths)

    monkeypatch.setattr(tree_put, "sync_paths", late)
    with pytest.raises(MeanwhileChanged):
        put(workspace_of(kit), base, wanted)
    assert (kit.top / "f").read_text() == "a person\n"


@pytest.mark.parametrize("call", ["rename", "unlink", "mkdir", "rmdir"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_at_every_file_is_made_good(kit, monkeypatch, call, when, tries):
    base, wanted, files = laid_out(kit, NAMES[1:3])
    before = index_and_head(kit)
    real, at, survived = getattr(os, call), 0, False
    while not survived:
        at += 1 if at < 2 or tries.whole else 3
        left = [at]

        def die(*argv, left=left, **named):
            left[0] -= 1
            if when == "before" and not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                return real(*argv, **named)
            finally:
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)

        with monkeypatch.context() as patch:
            patch.setattr(os, call, die)
            status = in_child(lambda: put(workspace_of(kit), base, wanted))
            survived = status == 0
            assert survived or os.WTERMSIG(status) == signal.SIGKILL
        put(workspace_of(kit), base, wanted)
        assert files_of(kit.top) == files, at
        put(workspace_of(kit), wanted, base)
        assert kit.git("status", "--porcelain") == "" and index_and_head(kit)[1:] == before[1:]
    assert at > 3


def test_line_ends_and_other_conversions_are_those_of_a_checkout(kit):
    kit.write(".gitattributes", "*.crlf text eol=crlf\n*.u16 working-tree-encoding=UTF-16LE text\n*.id ident\n")
    base = kit.commit(
        "base", **{"a.crlf": b"1\r\n2\r\n", "b.crlf": b"1\r\n", "c.u16": "ü\n".encode("utf-16-le"), "d.id": "$Id$\n"}
    )
    kit.git("rm", "-q", "--cached", "-r", ".")
    kit.git("reset", "-q", "--hard")
    wanted = side(
        kit, base, {"a.crlf": b"1\r\n3\r\n", "c.u16": "ö\n".encode("utf-16-le"), "d.id": "$Id$ x\n", "n.crlf": b"n\r\n"}
    )
    assert put(workspace_of(kit), base, wanted) == ["a.crlf", "c.u16", "d.id", "n.crlf"]
    here = files_of(kit.top)
    kit.git("reset", "-q", "--hard", wanted)
    assert here == files_of(kit.top) and here[b"n.crlf"] == (False, b"n\r\n")
    kit.git("reset", "-q", "--hard", base)
    kit.write("a.crlf", b"1\n2\r\n")  # git calls it the same
    assert put(workspace_of(kit), base, wanted)[0] == "a.crlf"


def test_new_attributes_hold_for_the_files_that_come_with_them(kit):
    base = kit.commit("base", **{"a.txt": "1\n2\n", "b.txt": "b\n", ".gitattributes": "*.txt text eol=crlf\n"})
    kit.git("rm", "-q", "--cached", "-r", ".")
    kit.git("reset", "-q", "--hard")
    assert (kit.top / "a.txt").read_bytes() == b"1\r\n2\r\n"
    wanted = side(kit, base, {".gitattributes": "*.txt -text\n", "a.txt": "1\n3\n", "c.txt": "c\n"})
    in_child(lambda: killed_after(1, lambda: put(workspace_of(kit), base, wanted)))
    assert (kit.top / ".gitattributes").read_text() == "*.txt -text\n"  # the first, and the others are as they were
    assert (kit.top / "a.txt").read_bytes() == b"1\r\n2\r\n"
    put(workspace_of(kit), base, wanted)
    assert (kit.top / "a.txt").read_bytes() == b"1\n3\n" and (kit.top / "c.txt").read_bytes() == b"c\n"


def killed_after(count, work):
    real, left = tree_put.move_in, [count]

    def move(*argv):
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1
        real(*argv)

    tree_put.move_in = move
    work()


def test_a_filter_of_the_repository_is_a_reason_to_refuse(kit, tmp_path):
    kit.write(".gitattributes", "*.x filter=odd\n")
    base = kit.commit("base", **{"f.x": "f\n"})
    kit.git("config", "filter.odd.clean", f"tee {tmp_path}/ran")
    wanted = side(kit, base, {"g": "G\n"})
    os.path.exists(tmp_path / "ran") and os.unlink(tmp_path / "ran")
    assert put(workspace_of(kit), base, wanted) == ["g"]
    kit.git("config", "--unset", "filter.odd.clean")
    wanted = side(kit, base, {"f.x": "F\n", "g": "G\n"})
    kit.git("config", "filter.odd.clean", f"tee {tmp_path}/ran")
    with pytest.raises(PutRefused, match="its filter 'odd' is the repository's own"):
        put(workspace_of(kit), base, wanted)
    assert not (tmp_path / "ran").exists()


def test_a_work_tree_on_another_disk(kit):
    places = ("/dev/shm", "/var/tmp", os.path.dirname(__file__))
    others = [place for place in places if os.stat(place).st_dev != os.stat(kit.top).st_dev]
    if not others:
        pytest.skip("there is only one disk")
    with tempfile.TemporaryDirectory(dir=others[0]) as folder:
        base, wanted, files = laid_out(kit)
        place = os.path.join(folder, "x")
        kit.git("worktree", "add", "-q", "--detach", place, base)
        put(workspace_of(kit, place), base, wanted)
        assert files_of(place) == files
        put(workspace_of(kit, place), wanted, base)
        write(place, ".holdfast-new", "mine\n")
        put(workspace_of(kit, place), base, wanted)
        with open(os.path.join(place, ".holdfast-new")) as file:
            assert file.read() == "mine\n"
        os.unlink(os.path.join(place, ".holdfast-new"))
        assert files_of(place) == files


def test_a_sparse_checkout_is_refused_where_files_are_not_there(kit):
    base = kit.commit("base", **{"in/x": "x\n", "out/y": "y\n"})
    wanted = side(kit, base, {"out/y": "Y\n"})
    inside = side(kit, base, {"in/x": "X\n"})
    kit.git("sparse-checkout", "set", "in")
    with pytest.raises(PutRefused, match="'out/y' is not in the work tree"):
        put(workspace_of(kit), base, wanted)
    assert put(workspace_of(kit), base, inside) == ["in/x"]
    assert (kit.top / "in/x").read_text() == "X\n" and not (kit.top / "out").exists()


def test_a_new_submodule_is_an_empty_folder_and_its_place_is_not_cleared(outer):
    wanted = outer.git("rev-parse", "HEAD")
    base = outer.git("rev-parse", "HEAD^")
    assert put(workspace_of(outer), wanted, base) == [".gitmodules", "sub"]
    assert (outer.top / "sub/file").exists() and not (outer.top / ".gitmodules").exists()
    shutil.rmtree(outer.top / "sub")
    assert put(workspace_of(outer), base, wanted) == [".gitmodules", "sub"]
    assert os.listdir(outer.top / "sub") == []


def test_a_file_and_a_submodule_take_each_others_place(outer):
    with_sub = outer.git("rev-parse", "HEAD")
    outer.git("rm", "-q", "-f", "sub")
    with_file = outer.commit("a file", sub="file\n")
    assert "sub" in put(workspace_of(outer), with_file, with_sub)
    assert os.listdir(outer.top / "sub") == []
    assert "sub" in put(workspace_of(outer), with_sub, with_file)
    assert (outer.top / "sub").read_text() == "file\n"
    put(workspace_of(outer), with_file, with_sub)
    (outer.top / "sub" / "mine").write_text("mine\n")
    with pytest.raises(PutRefused, match="'sub' is a folder with files in it"):
        put(workspace_of(outer), with_sub, with_file)


def test_large_files_need_little_memory(kit):
    base = kit.commit("base", big=b"old\n" * (50 << 18))
    wanted = side(kit, base, {"big": b"big\n" * (50 << 18), "new": b"new\n" * (50 << 18)})

    def work():
        put(workspace_of(kit), base, base)
        limit = 40 << 20
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        put(workspace_of(kit), base, wanted)
        assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10 < limit

    assert in_child(work) == 0
    digests = [hashlib.sha256((kit.top / name).read_bytes()).hexdigest() for name in ("big", "new")]
    kit.git("reset", "-q", "--hard", wanted)
    assert digests == [hashlib.sha256((kit.top / name).read_bytes()).hexdigest() for name in ("big", "new")]
    assert stat.S_IMODE(os.stat(kit.top / "new").st_mode) == 0o644


# --- all of it


def test_two_tasks_end_to_end(kit):
    base = kit.commit("base", f=LINES)
    place = workspace_of(kit)
    tasks = TaskTrees(place, "r1")
    for name, line in (("T1", "line 2\n"), ("T2", "line 27\n")):
        write(tasks.open(name, base), "f", LINES.replace(line, f"{name}\n"))
        write(tasks.open(name, base), f"made by {name}", name)
    merged = merge(place.git, base, base, [(name, tasks.collect(name)) for name in ("T1", "T2")])
    assert put(place, base, merged.commit) == ["f", "made by T1", "made by T2"]
    assert (kit.top / "f").read_text() == LINES.replace("line 2\n", "T1\n").replace("line 27\n", "T2\n")
    assert [tasks.close(name) for name in ("T1", "T2")] == [None, None]


def test_nothing_of_a_hostile_repository_runs(hostile, environ, canaries):
    place = GitWorkspace(str(hostile), environ)
    base = place.where()[0]
    before = place.snapshot("before", NOW).sha
    tasks = TaskTrees(place, "r1")
    names = ("T1", "T2")
    for name in names:
        path = tasks.open(name, base)
        write(path, f"{name}.txt", f"{name}\n")
    merged = merge(place.git, base, before, [(name, tasks.collect(name)) for name in names])
    assert {"T1.txt", "T2.txt"} <= {*put(place, before, merged.tree)}
    assert [one.path for one in changed_behind(place, before)] == ["T1.txt", "T2.txt"]
    assert undo(place, before, "k1", NOW) == ["T1.txt", "T2.txt"]
    tasks.refs_now()
    assert [tasks.close(name) for name in names] == [None, None]
    assert fired(canaries) == []

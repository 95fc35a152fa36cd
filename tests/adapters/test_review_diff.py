"""The diff that a reviewer gets: all that differs from a commit, within its bounds, and nothing is touched or run."""

from __future__ import annotations

import os
import resource

import pytest

from holdfast.adapters.git import review_diff
from holdfast.adapters.git.content import Difference
from holdfast.adapters.git.repo import GitWorkspace
from holdfast.adapters.git.review_diff import File, diff, fingerprint
from holdfast.adapters.git.ws_desk import WorkspaceError
from holdfast.adapters.probes.common import EffectError
from tests.adapters.git_kit import Kit
from tests.adapters.probes.conftest import environ, git, repo
from tests.adapters.probes.killing import in_child
from tests.adapters.probes.test_git_hostile import canaries, fired, hostile, program
from tests.adapters.test_workspace import NAMES, outer, prints_of

__all__ = ["canaries", "environ", "git", "hostile", "outer", "program", "repo"]  # fixtures

PLENTY = 1_000_000


@pytest.fixture
def kit(tmp_path):
    return Kit(tmp_path)


def place(kit):
    return GitWorkspace(str(kit.top), kit.environ)


def head(kit):
    return kit.git("rev-parse", "HEAD")


def by_path(found):
    return {file.path: file for file in found.files}


def test_committed_staged_changed_and_untracked_files_are_all_there_and_nothing_is_touched(kit):
    base = kit.commit("base", **{"edit": "old\n", "gone": "g\n", "run": "r\n", ".gitignore": "*.log\n"})
    kit.commit("committed", committed="c\n")
    kit.write("staged", "s\n")
    kit.git("add", "staged")
    kit.write("edit", "new\n")
    os.unlink(kit.top / "gone")
    os.chmod(kit.top / "run", 0o755)
    kit.write("untracked", "u\n")
    kit.write("x.log", "ignored\n")
    kit.write(".holdfast/state", "ours\n")
    before = prints_of(kit.top)
    found = diff(place(kit), base, PLENTY)
    assert prints_of(kit.top) == before
    assert found.files == (
        *(File("committed", "added", 1, 0), File("edit", "modified", 1, 1), File("gone", "deleted", 0, 1)),
        *(File("run", "modified", 0, 0), File("staged", "added", 1, 0), File("untracked", "added", 1, 0)),
    )
    assert found.stat == "6 files changed, 4 lines added, 2 removed"
    assert not found.truncated and found.omitted == ()
    for line in ("+c\n", "-old\n+new\n", "-g\n", "old mode 100644\nnew mode 100755\n", "+s\n", "+u\n"):
        assert line in found.text
    assert "ignored" not in found.text and "ours" not in found.text
    kit.git("stash", "-q", "-u")
    kit.git("reset", "-q", "--hard", base)
    assert kit.ask("apply", stdin=found.text).returncode == 0
    assert (kit.top / "untracked").read_text() == "u\n"
    assert diff(place(kit), base, PLENTY).text == found.text


def test_nothing_differs(kit):
    found = diff(place(kit), head(kit), PLENTY)
    assert found == ("", (), "0 files changed, 0 lines added, 0 removed", False, ())
    with pytest.raises(EffectError):
        diff(place(kit), "no-such-commit", PLENTY)


def test_names_are_quoted_and_never_break_a_line(kit):
    for name in NAMES:
        path = os.path.join(os.fsencode(kit.top), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(b"x\n")
    found = diff(place(kit), head(kit), PLENTY)
    assert {*by_path(found)} == {*map(os.fsdecode, NAMES)}
    assert found.text.count("\ndiff --git ") == len(NAMES) - 1
    assert 'b/new\\nline"' in found.text and '"b/\\377\\376 not utf8"' in found.text


def test_binary_files_links_submodules_and_changed_types_are_shown_by_their_names(outer):
    kit = outer
    base = kit.commit("more", bin=b"\0\1", typed="t\n")
    kit.write("bin", b"\0\2")
    os.unlink(kit.top / "typed")
    os.symlink("bin", kit.top / "typed")
    kit.write("zz", "last\n")
    (kit.top / "sub" / "file").write_text("inside\n")
    found = diff(place(kit), base, PLENTY)
    assert by_path(found)["bin"] == File("bin", "modified", None, None)
    assert by_path(found)["typed"].kind == "type changed"
    assert "Binary files a/bin and b/bin differ\n" in found.text and "\0" not in found.text
    assert found.text.endswith("+last\n") is False and "+last\n" in found.text
    assert found.omitted == ("sub: it is a submodule, and 1 changed files in it are not kept (file)",)
    assert found.truncated


def test_code_cannot_be_hidden_by_attributes(kit):
    base = kit.commit("base", **{"code.py": "old = 1\n", "sub/code.py": "old = 1\n"})
    for folder in ("", "sub/"):
        kit.write(f"{folder}.gitattributes", "* binary\n*.py -diff\n")
        kit.write(f"{folder}code.py", "evil = 1\n")
    kit.git("add", "-A")
    found = diff(place(kit), base, PLENTY)
    assert found.text.count("+evil = 1\n") == 2 and by_path(found)["sub/code.py"].added == 1


def test_bytes_that_are_no_text_and_a_missing_last_newline(kit):
    kit.write("latin", b"caf\xe9\n")
    kit.write("open", b"no end")
    found = diff(place(kit), head(kit), PLENTY)
    assert "+caf\ufffd\n" in found.text and "+no end\n\\ No newline at end of file\n" in found.text


@pytest.mark.parametrize("limit", [0, 50, 500, 3000, 20_000])
def test_the_text_is_bounded_and_says_what_is_missing(kit, limit):
    for number in range(12):
        kit.write(f"small{number:02}", "s\n")
    kit.write("long", "".join(f"line {number}\n" for number in range(5000)))
    kit.write("longer", "".join(f"line {number}\n" for number in range(9000)))
    found = diff(place(kit), head(kit), limit)
    assert len(found.text) <= limit and found.truncated and len(found.files) == 14
    assert by_path(found)["longer"].added == 9000
    named = " ".join(found.omitted)
    assert "'long': " in named and "'longer': " in named
    if limit >= 3000:
        assert [row for row in found.omitted if "small" in row] == [] and "+line 0\n" in found.text
        assert "more lines of this file are left out]\n" in found.text and "Not shown in full: 2 files" in found.text
    if limit == 20_000:
        assert len(found.text) > 15_000


def test_there_may_be_more_files_than_room(kit):
    for number in range(450):
        kit.write(f"many/{number:03}", f"{number}\n" * 40)
    found = diff(place(kit), head(kit), 10_000)
    assert len(found.files) == 450 and len(found.text) <= 10_000 and "many/000" in found.text
    assert len([row for row in found.omitted if "there was no room for it" in row]) > 350


def test_large_files_are_named_and_need_little_memory(kit, monkeypatch):
    kit.write("large.txt", b"x\n" * (25 << 20))
    kit.write("small.txt", "small\n")

    def work():
        diff(place(kit), head(kit), 100)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found = diff(place(kit), head(kit), PLENTY)
        assert found.omitted == ("'large.txt': it is too large to show",) and "+small\n" in found.text
        assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < 30 << 10

    assert in_child(work) == 0
    monkeypatch.setattr(review_diff, "KEPT", review_diff.Policy(largest=1 << 20))
    found = diff(place(kit), head(kit), PLENTY)
    assert found.truncated and found.omitted[0].startswith("large.txt: it is 52,428,800 bytes")


def test_git_that_names_other_files_is_not_believed(kit, monkeypatch):
    kit.write("x")
    monkeypatch.setattr(review_diff, "_PATCH", ("version",))
    with pytest.raises((WorkspaceError, EffectError)):
        diff(place(kit), head(kit), PLENTY)
    with pytest.raises(WorkspaceError, match="named other files"):
        list(review_diff._split(b"", [Difference(b"x", "A", b"", b"", "", "")]))


def test_only_so_much_is_compared(kit, monkeypatch):
    monkeypatch.setattr(review_diff, "_BUDGET", 100)
    monkeypatch.setattr(review_diff, "_AT_ONCE", 100)
    for name in "abcd":
        kit.write(name, f"{name * 60}\n")
    found = diff(place(kit), head(kit), PLENTY)
    assert list(found.omitted) == [f"'{name}': it is too large to show" for name in "bcd"]
    assert len(found.files) == 4


def test_tracked_files_that_are_ignored_now_are_still_compared(kit):
    base = kit.commit("base", **{"kept.log": "k\n"})
    kit.write(".gitignore", "*.log\n")
    kit.git("rm", "-q", "--cached", "kept.log")
    assert [file.path for file in diff(place(kit), base, PLENTY).files] == [".gitignore"]


def test_the_fingerprint_changes_with_any_file(kit):
    base = head(kit)
    seen = {fingerprint(place(kit), base)}
    assert seen == {kit.git("rev-parse", "HEAD^{tree}")}
    kit.write("new", "n\n")
    seen.add(fingerprint(place(kit), base))
    os.chmod(kit.top / "new", 0o755)
    seen.add(fingerprint(place(kit), base))
    os.unlink(kit.top / "a.txt")
    seen.add(fingerprint(place(kit), base))
    assert len(seen) == 4
    kit.git("add", "-A")
    kit.git("commit", "-q", "-m", "the same files")
    assert fingerprint(place(kit), base) in seen
    kit.write(".holdfast/x", "ours\n")
    assert fingerprint(place(kit), base) in seen


def test_nothing_of_a_hostile_repository_runs(hostile, environ, canaries):
    workspace = GitWorkspace(str(hostile), environ)
    base = workspace.where()[0]
    found = diff(workspace, base, PLENTY)
    assert "+changed\n" in found.text and "+new\n" in found.text
    fingerprint(workspace, base)
    assert fired(canaries) == []

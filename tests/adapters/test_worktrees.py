"""The work trees that git lists, those that are broken, and everything that changed since a commit."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from holdfast.adapters.git import touched as module
from holdfast.adapters.git.touched import CHECKED, between, touched
from holdfast.adapters.git.worktrees import GONE, Orphan, Worktree, list_worktrees, orphans, parse
from holdfast.adapters.probes import EffectError
from holdfast.adapters.probes.programs import Finished
from holdfast.core.guards import Scope, Touched, fresh, judge
from tests.adapters.git_kit import Kit


@pytest.fixture
def kit(tmp_path):
    return Kit(tmp_path)


# --- the list


def test_every_work_tree_is_listed_with_what_git_says_of_it(kit, tmp_path):
    head = kit.git("rev-parse", "HEAD")
    strange = str(tmp_path / "a b\nüx")
    kit.git("worktree", "add", "-q", "-b", "side", strange)
    kit.git("worktree", "add", "-q", "--detach", str(tmp_path / "loose"))
    kit.git("worktree", "lock", "--reason", "on a stick", str(tmp_path / "loose"))
    expected = [
        Worktree(str(kit.top), head, "refs/heads/main", is_main=True),
        Worktree(strange, head, "refs/heads/side"),
        Worktree(str(tmp_path / "loose"), head, detached=True, locked="on a stick"),
    ]
    by_path = sorted(expected[1:], key=lambda one: one.path)
    for top in (kit.top, tmp_path / "loose"):
        first, *others = list_worktrees(kit.runner(top))
        assert [first, *sorted(others, key=lambda one: one.path)] == [expected[0], *by_path]
    assert orphans(kit.runner()) == []


def test_a_name_that_is_not_utf_8_is_listed(kit, tmp_path):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    kit.git("worktree", "add", "-q", "--detach", path)
    assert [one.path for one in list_worktrees(kit.runner())][1:] == [path]


def test_a_bare_repository_and_an_older_git_are_understood():
    assert parse(b"worktree /x\nbare\n\nworktree /y\nHEAD 12\nbranch refs/heads/a\nlocked\n\n", b"\n") == [
        Worktree("/x", bare=True, is_main=True),
        Worktree("/y", "12", "refs/heads/a", locked=""),
    ]


# --- orphans


def mended(kit):
    """The command that goes with the finding is run, and the finding is gone."""
    (found,) = orphans(kit.runner())
    subprocess.run(found.fix, shell=True, cwd=kit.top, env=kit.environ, check=True, capture_output=True)
    assert orphans(kit.runner()) == []


def test_a_folder_that_is_gone_is_an_orphan_and_pruning_helps(kit, tmp_path):
    kit.git("worktree", "add", "-q", "--detach", str(tmp_path / "other"))
    shutil.rmtree(tmp_path / "other")
    assert orphans(kit.runner()) == [Orphan(str(tmp_path / "other"), GONE)]
    mended(kit)


def test_a_locked_one_may_be_away(kit, tmp_path):
    kit.git("worktree", "add", "-q", "--detach", str(tmp_path / "other"))
    kit.git("worktree", "lock", str(tmp_path / "other"))
    shutil.rmtree(tmp_path / "other")
    assert orphans(kit.runner()) == []


def test_what_was_moved_is_repaired_before_what_is_gone_is_forgotten(kit, tmp_path):
    for name in ("a", "b"):
        kit.git("worktree", "add", "-q", "--detach", str(tmp_path / name))
    shutil.rmtree(tmp_path / "a")
    (tmp_path / "b").rename(tmp_path / "moved")
    fixes = [one.fix for one in orphans(kit.runner())]
    assert fixes == [f"git worktree repair {tmp_path / 'moved'}", "git worktree prune"]
    for fix in fixes:
        subprocess.run(fix, shell=True, cwd=kit.top, env=kit.environ, check=True, capture_output=True)
    assert orphans(kit.runner()) == [] and str(tmp_path / "moved") in {one.path for one in list_worktrees(kit.runner())}


@pytest.mark.parametrize(
    ("link", "why"),
    [
        (None, "its folder is not a work tree any more"),
        ("nonsense\n", "its folder is not a work tree any more"),
        ("gitdir: /nowhere/.git/worktrees/other\n", "its folder belongs to /nowhere/.git/worktrees/other"),
    ],
)
def test_a_broken_back_link_is_an_orphan(kit, tmp_path, link, why):
    other = tmp_path / "other"
    kit.git("worktree", "add", "-q", "--detach", str(other))
    (other / ".git").unlink()
    if link is not None:
        (other / ".git").write_text(link)
    assert [one[:2] for one in orphans(kit.runner())] == [(str(other), why)]
    mended(kit)
    assert (other / "a.txt").exists()


def test_another_repository_in_its_place_is_an_orphan(kit, tmp_path):
    other = tmp_path / "other"
    kit.git("worktree", "add", "-q", "--detach", str(other))
    shutil.rmtree(other)
    kit.git("init", "-q", str(other))
    assert [one[:2] for one in orphans(kit.runner())] == [(str(other), "its folder is a repository of its own")]
    mended(kit)
    assert (other / ".git").exists()


def test_a_work_tree_of_another_repository_in_its_place_is_an_orphan_and_stays_theirs(kit, tmp_path):
    other = tmp_path / "other"
    kit.git("worktree", "add", "-q", "--detach", str(other))
    shutil.rmtree(other)
    (tmp_path / "second").mkdir()
    second = Kit(tmp_path / "second")
    second.git("worktree", "add", "-q", "--detach", str(other))
    (found,) = orphans(kit.runner())
    assert found.why == f"its folder belongs to {second.top}/.git/worktrees/other"
    mended(kit)
    assert orphans(second.runner()) == []


def test_a_record_that_names_nothing_is_an_orphan(kit, tmp_path):
    kit.git("worktree", "add", "-q", "--detach", str(tmp_path / "other"))
    record = kit.top / ".git/worktrees/other"
    for content in ("", None):
        (record / "gitdir").unlink()
        if content is not None:
            (record / "gitdir").write_text(content)
        assert orphans(kit.runner()) == [Orphan(str(record), "its record does not say where it is")]
    mended(kit)


# --- what was touched


def seen(kit, base, **more):
    found, how = touched(kit.runner(**more), base)
    return {(one.path, one.was, one.kind, one.ignored) for one in found}, how


@pytest.fixture
def base(kit):
    return kit.commit("base", **{f"{name}.txt": f"{name}\n" * 20 for name in "bcdef"})


def test_every_kind_of_change_is_seen(kit, base):
    kit.git("mv", "b.txt", "b2.txt")
    kit.commit("more", **{"c.txt": "committed\n", "new.txt": "n\n"})
    kit.git("mv", "d.txt", "d2.txt")
    kit.write("e.txt", "not staged\n")
    os.unlink(kit.top / "f.txt")
    kit.write("loose file\n.txt")
    kit.write(".git/info/exclude", "*.log\nbuild/\n")
    kit.write("x.log")
    kit.write("build/deep/y")
    found, how = seen(kit, base)
    assert how == CHECKED
    assert found == {
        ("b2.txt", "b.txt", "renamed", False),
        ("c.txt", None, "changed", False),
        ("new.txt", None, "added", False),
        ("d2.txt", "d.txt", "renamed", False),
        ("e.txt", None, "changed", False),
        ("f.txt", None, "deleted", False),
        ("loose file\n.txt", None, "untracked", False),
        ("x.log", None, "untracked", True),
        ("build/deep/y", None, "untracked", True),
    }


def test_what_is_staged_and_then_taken_back_in_the_work_tree_is_seen(kit, base):
    kit.write("b.txt", "other\n")
    kit.git("add", "b.txt")
    kit.write("b.txt", "b\n" * 20)
    assert seen(kit, base)[0] == {("b.txt", None, "changed", False)}


def test_a_file_with_new_times_and_the_old_content_is_not_touched(kit, base):
    os.utime(kit.top / "b.txt", (1, 1))
    assert seen(kit, base)[0] == set()


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_what_git_was_told_not_to_look_at_is_seen_all_the_same(kit, base, flag):
    kit.git("update-index", flag, "b.txt", "c.txt")
    kit.write("b.txt", "hidden\n")
    before = (kit.top / ".git/index").read_bytes()
    assert kit.git("status", "--porcelain") == ""
    assert seen(kit, base)[0] == {("b.txt", None, "changed", False)}
    assert (kit.top / ".git/index").read_bytes() == before


def test_a_hidden_deletion_is_seen_and_a_sparse_checkout_is_none(kit, base):
    kit.git("update-index", "--assume-unchanged", "b.txt")
    os.unlink(kit.top / "b.txt")
    kit.git("update-index", "--skip-worktree", "c.txt")
    os.unlink(kit.top / "c.txt")
    assert seen(kit, base)[0] == {("b.txt", None, "deleted", False)}


def test_strange_names_come_back_as_they_are(kit, base):
    names = [":(top)x", "-rf", "a\tb", "*", "[a]", "ü", os.fsdecode(b"\xff\xfe"), ' "q" ']
    for name in names:
        kit.write(name)
        kit.write(f"ignored/{name}")
    kit.write(".git/info/exclude", "/ignored/\n")
    found, how = seen(kit, base)
    assert how == CHECKED
    assert found == {(name, None, "untracked", False) for name in names} | {
        (f"ignored/{name}", None, "untracked", True) for name in names
    }


def test_a_negated_rule_is_not_ignored(kit, base):
    kit.write(".git/info/exclude", "*.log\n!kept.log\n")
    kit.write("kept.log")
    kit.write("other.log")
    assert seen(kit, base)[0] == {("kept.log", None, "untracked", False), ("other.log", None, "untracked", True)}


def test_if_git_cannot_say_what_is_ignored_everything_is_kept_and_that_is_said(kit, base):
    kit.write("x.log")
    os.mkfifo(kit.top / ".gitignore")  # git waits for it until its time is up
    found, how = seen(kit, base, seconds=1.0)
    assert found == {("x.log", None, "untracked", False)}  # git lists no pipe
    assert "check-ignore failed" in how and "counts as not ignored" in how
    judged = judge(Scope(("src/**",)), [Touched(*one) for one in found])
    assert [path for path, _ in judged.violations] == ["x.log"]


def test_a_check_that_ends_in_an_error_is_not_half_believed(kit, base, monkeypatch):
    kit.write("x.log")
    failed = Finished(128, b"./x.log\0", b"fatal: no more\n")
    monkeypatch.setattr(module, "check_ignore", lambda *args: failed)
    found, how = seen(kit, base)
    assert found == {("x.log", None, "untracked", False)} and "fatal: no more" in how


def test_from_nothing_everything_is_new(kit, base, tmp_path):
    assert {one[0] for one in seen(kit, None)[0]} == {"a.txt", *(f"{name}.txt" for name in "bcdef")}
    kit.git("init", "-q", str(tmp_path / "empty"))
    (tmp_path / "empty" / "x").write_text("x")
    assert [one.path for one in touched(kit.runner(tmp_path / "empty"), None)[0]] == ["x"]
    kit.git("add", "x", at=tmp_path / "empty")
    assert [one[:3] for one in touched(kit.runner(tmp_path / "empty"), None)[0]] == [("x", None, "added")]


def test_an_unknown_base_is_an_error_and_not_no_change(kit):
    for name in ("f" * 40, "--output=/tmp/x", "nowhere"):
        with pytest.raises(EffectError, match="no commit"):
            touched(kit.runner(), name)


def test_a_conflict_counts(kit, base):
    kit.git("switch", "-q", "-c", "side")
    kit.commit("side", **{"b.txt": "side\n"})
    kit.git("switch", "-q", "main")
    tip = kit.commit("main", **{"b.txt": "main\n"})
    kit.ask("merge", "side")
    assert "b.txt" in {one[0] for one in seen(kit, tip)[0]}


def test_a_nested_repository_is_one_entry(kit, base):
    kit.git("init", "-q", str(kit.top / "nested"))
    kit.write("nested/x")
    assert seen(kit, base)[0] == {("nested/", None, "untracked", False)}


def test_what_was_there_before_is_known_by_its_mark(kit, base):
    kit.write(".git/info/exclude", ".env\n")
    kit.write(".env", "old")
    kit.write("b.txt", "dirty\n")
    os.unlink(kit.top / "c.txt")
    before, _ = touched(kit.runner(), base)
    assert fresh(before, touched(kit.runner(), base)[0]) == []
    kit.write(".env", "news")
    kit.write("d.txt", "dirty\n")
    assert [one.path for one in fresh(before, touched(kit.runner(), base)[0])] == ["d.txt", ".env"]


def test_two_commits_are_compared_without_a_look_at_the_work_tree(kit, base):
    kit.git("mv", "b.txt", "b2.txt")
    tip = kit.commit("more", **{"c.txt": "c\n"})
    kit.write("d.txt", "dirty\n")
    assert between(kit.runner(), base, tip) == [Touched("b2.txt", "b.txt", "renamed"), Touched("c.txt")]


def test_nothing_of_the_users_is_touched(kit, base):
    kit.git("update-index", "--assume-unchanged", "b.txt")
    kit.write("b.txt", "x")
    os.utime(kit.top / "c.txt", (1, 1))

    def everything():
        found = {}
        for folder, _, names in os.walk(kit.top):
            for name in names:
                path = os.path.join(folder, name)
                with open(path, "rb") as file:
                    found[path] = (file.read(), os.stat(path).st_mtime_ns)
        return found

    before = everything()
    touched(kit.runner(), base)
    assert everything() == before


def test_nothing_that_the_repository_configures_is_run(kit, base, tmp_path):
    ran = tmp_path / "ran"
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\necho x >> {ran}\ncat\n")
    trap.chmod(0o755)
    kit.commit("traps", **{".gitattributes": "* filter=evil diff=evil merge=evil\n"})
    for name in ("core.fsmonitor", "core.pager", "diff.external", "filter.evil.clean", "filter.evil.smudge"):
        kit.git("config", name, str(trap))
    for name in ("filter.evil.process", "diff.evil.textconv", "diff.evil.command", "alias.diff", "core.sshCommand"):
        kit.git("config", name, str(trap))
    for name in ("post-index-change", "post-checkout", "reference-transaction"):
        shutil.copy(trap, kit.top / ".git/hooks" / name)
    kit.write("b.txt", "changed\n")
    os.utime(kit.top / "c.txt", (1, 1))
    runner = kit.runner()
    assert ("b.txt", None) in {one[:2] for one in touched(runner, base)[0]}
    between(runner, base, "HEAD")
    list_worktrees(runner)
    orphans(runner)
    assert not ran.exists()
    kit.ask("status")
    assert ran.exists(), "the traps work"

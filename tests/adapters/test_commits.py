"""What a checkpoint's last commit is for the branch that is checked out, after whatever was done to both."""

from __future__ import annotations

import pytest

from holdfast.adapters.git import commits
from holdfast.adapters.git.commits import Where, classify
from holdfast.adapters.git.repo import GitWorkspace
from holdfast.core.position import Known
from tests.adapters.git_kit import Kit

FILE = "specs/one/checkpoint.yaml"


@pytest.fixture
def kit(tmp_path):
    return Kit(tmp_path)


def asked(kit, last_commit, file=FILE, known=()):
    return classify(GitWorkspace(str(kit.top), kit.environ), last_commit, file, known)


def head(kit, name="HEAD"):
    return kit.git("rev-parse", name)


def known(sha, tree=None, patch_id=None):
    return Known("c1", "r1", 1, "t", sha, tree, patch_id, None, None, None, "sidecar")


def test_none_is_named(kit):
    for value in (None, ""):
        assert asked(kit, value) == Where("absent", None, "The checkpoint names no commit.")


def test_head_itself(kit):
    sha = head(kit)
    for value in (sha, sha[:7], sha.upper(), f" {sha} "):
        where = asked(kit, value)
        assert where == ("own", sha, f"The last commit of the checkpoint, {sha[:12]}, is checked out.", None)


def test_the_parent_of_the_commit_that_carries_the_file(kit):
    base = head(kit)
    carrier = kit.commit("batch 1", **{FILE: f"last_commit: {base}\n", "work": "w\n"})
    where = asked(kit, base[:10])
    assert where[:2] == ("parent", base) and where.carrier == carrier
    assert where.sentence == f"The checkpoint was committed with its batch in {carrier[:12]}, on top of {base[:12]}."
    kit.commit("later", more="m\n")
    assert asked(kit, base) == where
    assert asked(kit, base, file=None).kind == "ancestor"
    assert asked(kit, base, file="--output=x").kind == "ancestor"
    assert asked(kit, carrier)[:2] == ("ancestor", carrier)


def test_an_ancestor(kit):
    base = head(kit)
    kit.commit("one", x="1\n")
    assert "; 1 commit came after it" in asked(kit, base).sentence
    kit.commit("two", x="2\n")
    where = asked(kit, base)
    assert where[:2] == ("ancestor", base) and "; 2 commits came after it" in where.sentence


def rebased(kit, **files):
    """A commit that was rebased: what it was, and what it is now."""
    kit.git("checkout", "-q", "-b", "side")
    old = kit.commit("work", **(files or {"work": "w\n"}))
    kit.git("checkout", "-q", "main")
    kit.commit("meanwhile", other="o\n")
    kit.git("checkout", "-q", "side")
    kit.git("rebase", "-q", "main")
    return old, head(kit)


def test_rewritten_by_its_lines(kit):
    old, new = rebased(kit)
    where = asked(kit, old[:9])
    assert where[:2] == ("rewritten", new)
    assert where.sentence == (
        f"The last commit of the checkpoint, {old[:12]}, was rewritten: {new[:12]} on this branch changes the same lines."
    )


def test_rewritten_by_its_files(kit):
    one = kit.commit("one", x="1\n")
    old = kit.commit("two", y="2\n")
    kit.git("reset", "-q", "--soft", f"{one}^")
    kit.git("commit", "-q", "-m", "squashed")
    where = asked(kit, old)
    assert where[:2] == ("rewritten", head(kit)) and "has exactly the same files" in where.sentence


def test_rewritten_as_the_hook_noted(kit):
    workspace = GitWorkspace(str(kit.top), kit.environ)
    old = kit.commit("one", x="1\n")
    folder = kit.top / ".git" / "holdfast"
    folder.mkdir(mode=0o700)
    kit.write("x", "another\n")
    kit.git("commit", "-q", "-a", "--amend", "-m", "middle")
    middle = head(kit)
    kit.write("x", "third\n")
    kit.git("commit", "-q", "-a", "--amend", "-m", "amended")
    (folder / "rewrites").write_text(
        f"{old} {middle}\n{middle} {head(kit)}\n{'1' * 40} {'2' * 40}\n{'2' * 40} {'1' * 40}\n"
    )
    where = classify(workspace, old)
    assert where[:2] == ("rewritten", head(kit)) and "noted as its successor" in where.sentence
    assert classify(workspace, "1" * 40, known=[known("1" * 40)]).kind == "unknown"


def test_a_commit_that_git_no_longer_has_is_found_by_its_record(kit):
    old, new = rebased(kit)
    workspace = GitWorkspace(str(kit.top), kit.environ)
    patch_id, tree = workspace.patch_id(old), workspace.tree_of(new)
    gone = "ab" * 20
    assert asked(kit, gone).kind == "unknown"
    assert asked(kit, gone[:8], known=[known(gone, patch_id=patch_id)])[:2] == ("rewritten", new)
    assert asked(kit, gone, known=[known(gone, tree=tree)])[:2] == ("rewritten", new)
    where = asked(kit, gone[:8], known=[known(gone, tree), known(gone[:8] + "cd" * 16, tree)])
    assert where.kind == "unknown" and "several milestones" in where.sentence


def test_two_commits_that_are_alike_are_not_chosen_between(kit):
    old, _ = rebased(kit)
    kit.git("revert", "--no-edit", "HEAD")
    kit.commit("again", work="w\n")
    where = asked(kit, old)
    assert where[:2] == ("unknown", None) and "2 commits there are like it" in where.sentence


def test_a_commit_of_another_branch_is_unknown(kit):
    kit.git("checkout", "-q", "-b", "side")
    other = kit.commit("elsewhere", x="1\n")
    kit.git("checkout", "-q", "main")
    where = asked(kit, other)
    assert where[:2] == ("unknown", None) and "no commit there is like it" in where.sentence
    kit.git("checkout", "-q", "--orphan", "nothing")
    assert asked(kit, other).kind == "unknown" and "no commit is checked out" in asked(kit, other).sentence


def test_an_abbreviation_that_fits_several_commits_is_unknown(kit, monkeypatch):
    seen = {}
    for number in range(1000):  # two ids soon begin alike
        sha = kit.git("commit-tree", "-m", str(number), "HEAD^{tree}")
        if sha[:4] in seen:
            break
        seen[sha[:4]] = sha
    where = asked(kit, sha[:4])
    assert where[:2] == ("unknown", None) and "is the beginning of 2 commits" in where.sentence
    assert asked(kit, sha).kind != "own"


NO_IDS = ("HEAD", "--all", "main", "abc", "g" * 40, "HEAD^{tree}", "^" + "a" * 40, "a" * 65, "a..b", "12\n--x")


@pytest.mark.parametrize("value", [*NO_IDS, 12.5, True, [], 10**80])
def test_what_is_no_id_never_reaches_git(kit, monkeypatch, value):
    monkeypatch.setattr(commits, "_commits", lambda *_: pytest.fail("git was asked"))
    where = asked(kit, value)
    assert where[:2] == ("unknown", None) and "is not the id of a commit" in where.sentence


def test_a_number_is_read_as_its_digits(kit):
    where = asked(kit, 12345678)
    assert where[:2] == ("unknown", None) and "12345678: this repository has no such commit" in where.sentence


def test_a_branch_or_a_tree_with_such_a_name_is_no_commit(kit):
    kit.git("branch", "abcdef0")
    assert asked(kit, "abcdef0").kind == "unknown"
    assert asked(kit, head(kit, "HEAD^{tree}")).kind == "unknown"


def test_a_history_that_was_cut_off_is_said(kit, tmp_path):
    base = head(kit)
    kit.commit("later", x="1\n")
    kit.git("clone", "-q", "--depth=1", f"file://{kit.top}", str(tmp_path / "clone"))
    where = classify(GitWorkspace(str(tmp_path / "clone"), kit.environ), base)
    assert where.kind == "unknown" and "cut off" in where.sentence

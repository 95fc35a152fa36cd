"""Work trees of tasks when they go: what git ignores in them is moved aside, and work that is not brought in stays a commit."""

from __future__ import annotations

import os
import shutil

import pytest

from holdfast.adapters.git.merging import MergeConflict, merge
from holdfast.adapters.git.trees import TreeRefused
from holdfast.adapters.ground import put_away
from tests.adapters.git_kit import Kit
from tests.adapters.test_merging import side
from tests.adapters.test_trees import head, put, trees_of, workspace_of

OWN = "specs/one/tasks.yaml"


@pytest.fixture
def kit(tmp_path):
    return Kit(tmp_path)


def ready(kit):
    kit.write(".gitignore", ".holdfast/\n*.db\ncache/\n__pycache__/\n.venv\n")
    kit.commit("rules")
    return trees_of(kit)


# --- ignored


def test_ignored_files_are_named_and_moved_and_caches_are_not(kit):
    tasks = ready(kit)
    path = tasks.open("T1", head(kit))
    for name in ("x.db", "cache/a/b", "a/__pycache__/m.pyc", "m/y.db", b"\xe9.db"):
        put(path, name)
    assert sorted(map(os.fsencode, tasks.ignored("T1"))) == [b"cache/", b"m/", b"x.db", b"\xe9.db"]
    left = tasks.close("T1")
    assert left is not None and left.path == os.path.join(tasks.folder, "ignored", "T1") and "x.db" in left.why
    found = sorted(os.listdir(os.fsencode(left.path)))
    assert found == [b"cache", b"m", b"x.db", b"\xe9.db"] and not os.path.exists(path)


def test_our_own_links_are_not_moved(kit):
    tasks = ready(kit)
    (kit.top / ".venv").mkdir()
    path = tasks.open("T1", head(kit))
    assert tasks.link("T1", [".venv"]) == [".venv"]
    put(path, "x.db")
    assert tasks.ignored("T1") == ["x.db"]
    tasks.close("T1")
    assert os.listdir(os.path.join(tasks.folder, "ignored", "T1")) == ["x.db"] and (kit.top / ".venv").is_dir()


def test_what_was_moved_before_is_not_overwritten(kit):
    tasks = ready(kit)
    for text in ("first", "second"):
        put(tasks.open("T1", head(kit)), "x.db", text)
        tasks.close("T1")
    home = os.path.join(tasks.folder, "ignored")
    assert sorted(os.listdir(home)) == ["T1", "T1-2"]
    with open(os.path.join(home, "T1", "x.db")) as file:
        assert file.read() == "first"


# --- standing, and putting away


def test_whether_a_tree_stands(kit):
    tasks = ready(kit)
    assert tasks.standing("T1") == "none"
    path = tasks.open("T1", head(kit))
    assert tasks.standing("T1") == "open"
    os.rename(path, kit.top.parent / "away")
    assert tasks.standing("T1") == "gone"


def test_a_tree_goes_along_when_the_repository_is_moved(kit):
    tasks, base = ready(kit), head(kit)
    (kit.top / ".venv").mkdir()
    path = tasks.open("T1", base)
    tasks.link("T1", [".venv"])
    put(path, "made.txt", "made\n")
    kit.top = kit.top.rename(kit.top.with_name("moved to"))
    tasks = trees_of(kit)
    assert tasks.standing("T1") == "open"
    path = tasks.open("T1", base)
    assert path.startswith(str(kit.top))
    assert kit.git("status", "--short", at=path).split() == ["??", "made.txt"]
    assert tasks.link("T1", [".venv"]) == [".venv"] and os.path.isdir(os.path.join(path, ".venv"))
    assert kit.git("show", f"{tasks.collect('T1')}:made.txt") == "made"
    assert tasks.close("T1") is None and len(kit.git("worktree", "list").splitlines()) == 1


def test_a_tree_of_a_repository_that_was_copied_stays_that_of_the_other(kit):
    tasks, base = ready(kit), head(kit)
    path = tasks.open("T1", base)
    shutil.copytree(kit.top, kit.top.with_name("copy"), symlinks=True)
    kit.top = kit.top.with_name("copy")
    with pytest.raises(TreeRefused, match="is at"):
        trees_of(kit).open("T1", base)
    assert tasks.open("T1", base) == path and tasks.standing("T1") == "open"


def test_where_a_moved_repository_lacks_the_tree_it_is_gone_and_made_anew(kit):
    tasks, base = ready(kit), head(kit)
    shutil.rmtree(tasks.open("T1", base))
    kit.top = kit.top.rename(kit.top.with_name("moved to"))
    tasks = trees_of(kit)
    assert tasks.standing("T1") == "gone" and os.path.isdir(tasks.open("T1", base))
    assert tasks.close("T1") is None and len(kit.git("worktree", "list").splitlines()) == 1


def test_put_away_keeps_work_and_leaves_what_no_commit_can_hold(kit):
    tasks = ready(kit)
    paths = {name: tasks.open(name, head(kit)) for name in ("T1", "T2", "T3", "T4")}
    put(paths["T1"], "made.txt", "made\n")
    kit.git("init", "-q", "inner", at=paths["T3"])
    put(paths["T3"], "inner/main.c")
    kit.git("add", "-A", at=os.path.join(paths["T3"], "inner"))
    kit.git(
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@example.org",
        "commit",
        "-q",
        "-m",
        "inner",
        at=os.path.join(paths["T3"], "inner"),
    )
    os.unlink(os.path.join(paths["T4"], ".git"))
    said = put_away(workspace_of(kit), "r1", str(kit.top / "nothing"))
    assert len(said) == 3  # of T2 there is nothing to say
    assert "+made" in kit.git(*said[0].split("`")[1].split()[1:])
    assert paths["T3"] in said[1] and "git worktree remove --force" in said[1] and os.path.exists(paths["T3"])
    assert paths["T4"] in said[2] and os.path.exists(paths["T4"])
    assert not os.path.exists(paths["T1"]) and not os.path.exists(paths["T2"])
    assert put_away(workspace_of(kit), "another", "") == []


def test_what_an_agent_committed_is_shown_by_what_is_advised(kit):
    path = ready(kit).open("T1", head(kit))
    put(path, "made.txt", "made\n")
    kit.git("add", "-A", at=path)
    kit.git("-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "-m", "mine", at=path)
    (said,) = put_away(workspace_of(kit), "r1", "")
    assert "+made" in kit.git(*said.split("`")[1].split()[1:])


# --- files that are ours to write


def test_a_conflict_in_a_file_of_ours_is_left_out_and_the_rest_is_merged(kit):
    kit.write(OWN, "status: pending\n")
    kit.write("b.txt", "b\n")
    base = kit.commit("spec") or head(kit)
    ours = side(kit, base, {OWN: "status: in_progress\n"})
    theirs = side(kit, base, {OWN: "status: completed\n", "b.txt": "other\n", "new/c.txt": "c\n"})
    made = merge(workspace_of(kit).git, base, ours, [("T1", theirs)], [OWN])
    assert made.left_out == (("T1", OWN),)
    assert kit.git("show", f"{made.tree}:{OWN}") == "status: in_progress"
    assert (kit.git("show", f"{made.tree}:b.txt"), kit.git("show", f"{made.tree}:new/c.txt")) == ("other", "c")


@pytest.mark.parametrize(("ours", "theirs"), [("changed\n", None), (None, "changed\n")])
def test_a_file_of_ours_that_one_side_removed_stays_as_we_have_it(kit, ours, theirs):
    kit.write(OWN, "status: pending\n")
    base = kit.commit("spec") or head(kit)
    one, other = side(kit, base, {OWN: ours}), side(kit, base, {OWN: theirs})
    made = merge(workspace_of(kit).git, base, one, [("T1", other)], [OWN])
    assert made.left_out == (("T1", OWN),)
    assert (OWN in kit.git("ls-tree", "-r", "--name-only", made.tree)) == (ours is not None)


@pytest.mark.parametrize(("was", "theirs"), [("a\n", "b\n"), ("a\n", None), (None, "b\n")])
@pytest.mark.parametrize("ours", ["a\n", "c\n", None])
def test_what_only_we_write_stays_as_we_have_it_also_where_that_of_a_task_would_fit(kit, was, theirs, ours):
    kit.write("spec/tasks.yaml", "tasks\n")
    if was is not None:
        kit.write(OWN, was)
    base = kit.commit("spec") or head(kit)
    one, other = side(kit, base, {OWN: ours} if ours != was else {}), side(kit, base, {OWN: theirs, "b.txt": "b\n"})
    made = merge(workspace_of(kit).git, base, one, [("T1", other), ("T2", base)], [], [OWN])
    assert made.left_out == (("T1", OWN),)
    assert kit.git("show", f"{made.tree}:b.txt") == "b"
    found = kit.git("show", f"{made.tree}:{OWN}") + "\n" if OWN in kit.git("ls-tree", "-r", made.tree) else None
    assert found == ours


def test_a_conflict_elsewhere_too_is_a_conflict(kit):
    kit.write(OWN, "status: pending\n")
    kit.write("b.txt", "b\n")
    base = kit.commit("spec") or head(kit)
    ours = side(kit, base, {OWN: "status: in_progress\n", "b.txt": "mine\n"})
    theirs = side(kit, base, {OWN: "status: completed\n", "b.txt": "other\n"})
    with pytest.raises(MergeConflict) as caught:
        merge(workspace_of(kit).git, base, ours, [("T1", theirs)], [OWN])
    assert "b.txt" in caught.value.paths

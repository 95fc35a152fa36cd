"""Work trees of tasks: made, given back after a kill, collected whole, and removed only when nothing would be lost."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.adapters.git import merging
from holdfast.adapters.git.ref_moves import refs_moved
from holdfast.adapters.git.repo import GitWorkspace
from holdfast.adapters.git.tree_put import PutRefused
from holdfast.adapters.git.trees import Left, TaskTrees, TreeRefused, changed_behind, undo
from holdfast.adapters.git.workspace import Change, NotASnapshot, Policy, keep, kept, take
from holdfast.adapters.git.ws_desk import WorkspaceError
from holdfast.adapters.probes.common import EffectError
from holdfast.core.errors import BadFile, InvalidId, NotFound, UsageError
from tests.adapters.git_kit import Kit
from tests.adapters.probes.killing import Front, in_child
from tests.adapters.test_restore import files_of
from tests.adapters.test_workspace import NAMES, NOW, outer

__all__ = ["outer"]  # a fixture


@pytest.fixture
def kit(tmp_path):
    return Kit(tmp_path)


def workspace_of(kit, top=None, **environ):
    return GitWorkspace(str(top or kit.top), {**kit.environ, **environ})


def trees_of(kit, run_id="r1", **environ):
    return TaskTrees(workspace_of(kit, **environ), run_id)


def head(kit):
    return kit.git("rev-parse", "HEAD")


def put(folder, path, data="x\n"):
    target = os.path.join(os.fsencode(folder), path if isinstance(path, bytes) else os.fsencode(path))
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(target, "wb") as file:
        file.write(data if isinstance(data, bytes) else data.encode())


def names_in(kit, sha):
    out = subprocess.run(
        ["git", "ls-tree", "-r", "-z", "--name-only", sha], cwd=kit.top, capture_output=True, check=True
    )
    return [name for name in out.stdout.split(b"\0") if name]


# --- opening


def test_a_task_gets_a_work_tree_of_its_own_and_the_main_one_stays_as_it_was(kit):
    kit.write(".gitignore", ".holdfast/\n")
    kit.commit("rules")
    tasks = trees_of(kit)
    before = tasks.refs_now()
    path = tasks.open("T1", head(kit))
    assert path == str(kit.top / ".holdfast" / "worktrees" / "r1" / "T1")
    assert files_of(path) == {b"a.txt": (False, b"a\n"), b".gitignore": (False, b".holdfast/\n")}
    assert kit.git("rev-parse", "HEAD", at=path) == head(kit)
    assert kit.git("rev-parse", "--abbrev-ref", "HEAD", at=path) == "HEAD"
    assert kit.git("status", "--porcelain", at=path) == "" == kit.git("status", "--porcelain")
    assert refs_moved(before, tasks.refs_now()) == []
    assert tasks.left() == [Left("T1", path, "it is open")]


def test_it_is_given_back_with_its_edits(kit):
    tasks = trees_of(kit)
    path = tasks.open("T1", head(kit))
    put(path, "half/done", "half")
    assert trees_of(kit).open("T1", head(kit)) == path
    assert files_of(path)[b"half/done"] == (False, b"half")
    assert trees_of(kit, "r2").open("T1", head(kit)) != path


def test_another_base_is_refused(kit):
    first = head(kit)
    tasks = trees_of(kit)
    tasks.open("T1", first)
    second = kit.commit("second")
    with pytest.raises(TreeRefused, match=f"was begun at {first}, not at {second}"):
        tasks.open("T1", second)
    with pytest.raises(EffectError):
        tasks.open("T2", "main")
    with pytest.raises(EffectError):
        tasks.open("T2", "12" * 20)


def test_a_folder_that_is_not_ours_is_refused_by_name_and_left_alone(kit, tmp_path):
    tasks = trees_of(kit)
    kit.write(".holdfast/worktrees/r1/T1/mine", "mine\n")
    with pytest.raises(TreeRefused, match="r1/T1 is already there"):
        tasks.open("T1", head(kit))
    with pytest.raises(TreeRefused, match="is not removed"):
        tasks.close("T1")
    assert (kit.top / ".holdfast/worktrees/r1/T1/mine").read_text() == "mine\n"
    path = tasks.open("T2", head(kit))
    kit.git("worktree", "remove", path)
    kit.git("worktree", "add", "-q", "--detach", path)
    put(path, "mine")
    with pytest.raises(TreeRefused, match="somebody else made"):
        tasks.open("T2", head(kit))
    with pytest.raises(TreeRefused, match="somebody else made"):
        tasks.close("T2")
    shutil.rmtree(path)
    os.symlink(tmp_path, path)
    with pytest.raises(TreeRefused):
        tasks.open("T2", head(kit))


def test_a_folder_that_leads_elsewhere_is_refused(kit, tmp_path):
    os.symlink(tmp_path, kit.top / ".holdfast")
    with pytest.raises(TreeRefused, match="by a link"):
        trees_of(kit).open("T1", head(kit))


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a..b", "x.lock", "x.", "-x", "~x", "a\n", "a" * 65, "ü"])
def test_a_name_is_a_plain_word(kit, name):
    with pytest.raises(InvalidId):
        trees_of(kit).open(name, head(kit))
    with pytest.raises(InvalidId):
        trees_of(kit, name)


def test_one_whose_folder_was_removed_is_made_again(kit):
    tasks = trees_of(kit)
    path = tasks.open("T1", head(kit))
    shutil.rmtree(path)
    assert tasks.left() == [Left("T1", path, "its folder is gone")]
    assert tasks.open("T1", head(kit)) == path
    assert files_of(path) == {b"a.txt": (False, b"a\n")}


def test_a_folder_of_another_repository_or_that_is_none_is_refused(kit, tmp_path):
    base, tasks = head(kit), trees_of(kit)
    path = tasks.open("T1", base)
    (tmp_path / "other").mkdir()
    other = Kit(tmp_path / "other")
    shutil.rmtree(path)
    other.git("worktree", "add", "-q", "--detach", path)
    with pytest.raises(TreeRefused, match="of this repository"):
        tasks.open("T1", base)
    shutil.rmtree(path)
    os.mkdir(path)
    with pytest.raises(TreeRefused, match="any more"):
        tasks.open("T1", base)
    record = kit.top / ".git/holdfast/trees/r1/T1.json"
    record.write_bytes(record.read_bytes().replace(b'"open"', b'"making"'))
    assert [one.why for one in tasks.left()] == ["it was not made to the end"]
    put(path, "mine")
    with pytest.raises(TreeRefused, match="was begun there"):
        tasks.close("T1")
    shutil.rmtree(path)
    os.symlink(tmp_path, path)
    with pytest.raises(TreeRefused, match="was begun there"):
        tasks.open("T1", base)


def test_what_git_or_the_disk_refuses_is_said(kit):
    tasks = trees_of(kit)
    (kit.top / ".git" / "worktrees").write_text("in the way")
    with pytest.raises(WorkspaceError, match="`git worktree add` failed"):
        tasks.open("T1", head(kit))
    (kit.top / ".git" / "worktrees").unlink()
    tasks.open("T1", head(kit))
    assert tasks.link("T1", ["not-there"]) == []
    shutil.rmtree(kit.top / ".git/holdfast/trees")
    (kit.top / ".git/holdfast/trees").write_text("in the way")
    with pytest.raises(WorkspaceError, match="cannot be read or written"):
        tasks.left()


def test_a_record_that_cannot_be_read_is_refused(kit):
    tasks = trees_of(kit)
    tasks.open("T1", head(kit))
    record = kit.top / ".git/holdfast/trees/r1/T1.json"
    whole = record.read_bytes()
    for data in (b"", b"{", b"[]", whole.replace(b'"T1"', b'"T2"'), whole.replace(b'"open"', b'"odd"')):
        record.write_bytes(data)
        with pytest.raises(BadFile):
            tasks.open("T1", head(kit))
    record.write_bytes(whole)
    with pytest.raises(TreeRefused, match="not at"):
        TaskTrees(workspace_of(kit), "r1", str(kit.top / "elsewhere")).open("T1", head(kit))


@pytest.mark.parametrize("how", ["before", "middle", "after", "orphan"])
def test_a_kill_while_it_is_made_is_made_good(kit, tmp_path, how):
    for number in range(40):
        kit.write(f"many/{number}", "x\n" * 500)
    base = kit.commit("many")
    wanted = files_of(kit.top)
    front = Front(tmp_path / "front")
    tasks = trees_of(kit, **front.strike(0, how))
    front.strike(0, how)  # what came before counts no more
    tasks.open("count", base)
    calls = front.called()
    assert "worktree" in calls
    for at in range(1, len(calls) + 1):
        tasks = trees_of(kit, **front.strike(0, how))
        front.strike(at, how, pause=0.003 * (at % 5))
        assert os.WTERMSIG(in_child(lambda t=tasks, n=at: t.open(f"T{n}", base))) == signal.SIGKILL
        tasks = trees_of(kit)
        path = tasks.open(f"T{at}", base)
        assert files_of(path) == wanted
        assert kit.git("status", "--porcelain", at=path) == ""
        if how == "orphan":
            front.wait_for_orphan()
            assert files_of(path) == wanted
        assert tasks.close(f"T{at}") is None
    assert [one.name for one in trees_of(kit).left()] == ["count"]
    assert len(kit.git("worktree", "list").splitlines()) == 2


# --- links


def test_ignored_folders_are_linked_and_are_no_change(kit):
    kit.write(".gitignore", "node_modules/\n.venv\n/deep/cache/\n")
    kit.write("node_modules/pkg/index.js")
    kit.write(".venv/bin/python")
    kit.write("deep/cache/x")
    base = kit.commit("rules")
    tasks = trees_of(kit)
    path = tasks.open("T1", base)
    wanted = ["node_modules", ".venv/", "deep/cache", "not-there"]
    assert tasks.link("T1", wanted) == ["node_modules", ".venv", "deep/cache"] == tasks.link("T1", wanted)
    assert os.readlink(os.path.join(path, "node_modules")) == str(kit.top / "node_modules")
    assert kit.git("rev-parse", f"{tasks.collect('T1')}^{{tree}}") == kit.git("rev-parse", f"{base}^{{tree}}")
    kit.git("add", "-A", at=path)
    kit.git("commit", "-q", "-m", "with links", at=path)
    sha = tasks.collect("T1")
    assert names_in(kit, sha) == [b".gitignore", b"a.txt"]
    assert tasks.close("T1") is None
    assert (kit.top / "node_modules/pkg/index.js").exists() and (kit.top / "deep/cache/x").exists()


def test_links_that_are_known_are_not_written_down_again(kit):
    kit.write(".gitignore", ".venv\nnode_modules\n")
    kit.write(".venv/bin/python")
    tasks = trees_of(kit)
    tasks.open("T1", kit.commit("rules"))
    (record,) = (kit.top / ".git").rglob("T1.json")
    before = record.stat().st_ino
    assert tasks.link("T1", ["node_modules"]) == [] and record.stat().st_ino == before
    assert tasks.link("T1", [".venv"]) == [".venv"] and b".venv" in record.read_bytes()
    after = record.stat().st_ino
    assert tasks.link("T1", [".venv"]) == [".venv"] and record.stat().st_ino == after


def test_what_is_not_ignored_or_not_inside_is_not_linked(kit):
    kit.write(".gitignore", "dir/\n")
    kit.write("dir/kept")
    kit.git("add", "-f", "dir/kept")
    base = kit.commit("tracked in an ignored folder")
    kit.write("loose/x")
    tasks = trees_of(kit)
    path = tasks.open("T1", base)
    for name in ("a.txt", "loose", "dir"):
        with pytest.raises(UsageError, match="not ignored"):
            tasks.link("T1", [name])
    for name in ("/etc", "../x", ".git", "a/../b", "", ".GIT/x", "a\0"):
        with pytest.raises(UsageError):
            tasks.link("T1", [name])
    assert sorted(os.listdir(path)) == [".git", ".gitignore", "a.txt", "dir"]


def test_what_the_agent_put_in_the_place_of_a_link_stays(kit, tmp_path):
    kit.write(".gitignore", "cache\nodd/in\n")
    kit.write("cache/x")
    kit.write("odd/in/x")
    base = kit.commit("rules")
    tasks = trees_of(kit)
    path = tasks.open("T1", base)
    put(path, "cache/own", "own")
    assert tasks.link("T1", ["cache"]) == []
    assert names_in(kit, tasks.collect("T1")) == [b".gitignore", b"a.txt"]
    assert files_of(path)[b"cache/own"] == (False, b"own")
    os.symlink(tmp_path, os.path.join(path, "odd"))
    with pytest.raises(TreeRefused, match="by a link"):
        tasks.link("T1", ["odd/in"])


# --- collecting


def test_everything_but_what_is_ignored_is_collected(kit):
    kit.commit(
        "more", **{"gone": "g\n", "dir/c": "c\n", "run.sh": "#!/bin/sh\n", "typed": "t\n", ".gitignore": "*.log\n"}
    )
    base = head(kit)
    tasks = trees_of(kit)
    path = tasks.open("T1", base)
    put(path, "a.txt", "changed\n")
    os.unlink(os.path.join(path, "gone"))
    shutil.rmtree(os.path.join(path, "dir"))
    put(path, "dir", "a file now\n")
    os.chmod(os.path.join(path, "run.sh"), 0o755)
    os.unlink(os.path.join(path, "typed"))
    os.symlink("/etc/passwd", os.path.join(path, "typed"))
    put(path, "x.log")
    for name in NAMES:
        put(path, name, name)
    kit.git("add", "a.txt", at=path)
    sha = tasks.collect("T1")
    assert kit.git("rev-parse", f"{sha}^") == base and kit.git("rev-parse", "HEAD", at=path) == base
    back = kit.top.parent / "back"
    kit.git("worktree", "add", "-q", "--detach", str(back), sha)
    wanted = files_of(path)
    del wanted[b"x.log"]
    assert files_of(back) == wanted
    assert tasks.collect("T1") == sha
    assert kit.git("for-each-ref", "--format=%(refname)", "refs/holdfast") == f"refs/holdfast/trees/r1/T1/{sha}"
    put(path, "later")
    later = tasks.collect("T1")
    assert kit.git("for-each-ref", "--format=%(objectname)", "refs/holdfast") == later != sha
    assert kit.git("fsck", "--strict", "--no-dangling") == ""


def test_what_the_agent_committed_counts_and_is_kept(kit):
    base = head(kit)
    tasks = trees_of(kit)
    path = tasks.open("T1", base)
    put(path, "one")
    kit.git("add", "-A", at=path)
    kit.git("commit", "-q", "-m", "mine", at=path)
    moved = kit.git("rev-parse", "HEAD", at=path)
    put(path, "two")
    sha = tasks.collect("T1")
    assert names_in(kit, sha) == [b"a.txt", b"one", b"two"]
    assert kit.git("rev-parse", f"{sha}^1", f"{sha}^2").split() == [base, moved]
    about = tasks.about(sha)
    assert (about.sha, about.base, about.head, about.left_out) == (sha, base, moved, ())
    with pytest.raises(NotASnapshot):
        tasks.about(base)


def test_the_index_of_the_task_does_not_matter(kit):
    kit.write(".gitignore", "*.log\n")
    kit.write("kept.log", "kept\n")
    kit.git("add", "-f", "kept.log")
    base = kit.commit("an ignored file that is tracked")
    tasks = trees_of(kit)
    path = tasks.open("T1", base)
    os.symlink(path, os.path.join(path, "loop"))
    kit.git("rm", "-q", "--cached", "-r", ".", at=path)
    sha = tasks.collect("T1")
    assert names_in(kit, sha) == [b".gitignore", b"a.txt", b"kept.log", b"loop"]
    os.unlink(os.path.join(kit.git("rev-parse", "--absolute-git-dir", at=path), "index"))
    assert tasks.collect("T1") == sha
    os.unlink(os.path.join(path, "kept.log"))
    assert names_in(kit, tasks.collect("T1")) == [b".gitignore", b"a.txt", b"loop"]


@pytest.mark.parametrize("how", ["before", "after"])
def test_a_kill_while_it_is_collected_is_made_good(kit, tmp_path, how):
    path = trees_of(kit).open("T1", head(kit))
    front, at, survived = Front(tmp_path / "front"), 0, False
    while not survived:
        at += 1
        put(path, f"new{at}")
        tasks = trees_of(kit, **front.strike(0, how))
        front.strike(at, how)
        survived = os.WTERMSIG(in_child(lambda t=tasks: t.collect("T1"))) == 0
        sha = trees_of(kit).collect("T1")
        assert names_in(kit, sha) == sorted([b"a.txt", *(f"new{number + 1}".encode() for number in range(at))])
        assert kit.git("for-each-ref", "--format=%(objectname)", "refs/holdfast") == sha
    assert at > 8 and kit.git("fsck", "--strict", "--no-dangling") == ""
    assert trees_of(kit).close("T1") is None


def test_what_cannot_be_collected_is_said_and_keeps_the_tree(kit):
    tasks = trees_of(kit)
    path = tasks.open("T1", head(kit))
    os.mkfifo(os.path.join(path, "pipe"))
    os.mkdir(os.path.join(path, "inner"))
    kit.git("init", "-q", at=os.path.join(path, "inner"))
    put(path, "inner/x")
    sha = tasks.collect("T1")
    assert tasks.about(sha).left_out == ("inner/: it is a repository of its own",)
    left = tasks.close("T1")
    assert left == Left("T1", path, "it holds what cannot be collected (inner/: it is a repository of its own)")
    assert os.path.exists(os.path.join(path, "inner/x"))


def test_a_repository_inside_that_was_added_keeps_the_tree(kit):
    tasks = trees_of(kit)
    path = tasks.open("T1", head(kit))
    os.mkdir(os.path.join(path, "inner"))
    kit.git("init", "-q", at=os.path.join(path, "inner"))
    kit.git("-c", "user.name=S", "-c", "user.email=s@x.invalid", "commit", "-q", "--allow-empty", "-m", "m",
            at=os.path.join(path, "inner"))  # fmt: skip
    kit.git("add", "inner", at=path)
    tasks.collect("T1")
    assert tasks.close("T1").why == "it holds what cannot be collected (inner: it is a repository of its own)"


def test_our_own_folder_is_never_collected_or_written(kit):
    kit.write(".holdfast/checkpoints/real.json", "real\n")
    base = kit.commit("with a folder of ours")
    tasks = trees_of(kit)
    path = tasks.open("T1", base)
    put(path, ".holdfast/checkpoints/evil.json")
    put(path, ".holdfast/checkpoints/real.json", "evil\n")
    put(path, "new")
    kit.git("add", "-A", "-f", at=path)
    kit.git("commit", "-q", "-m", "evil", at=path)
    sha = tasks.collect("T1")
    assert names_in(kit, sha) == [b".holdfast/checkpoints/real.json", b"a.txt", b"new"]
    assert kit.git("show", f"{sha}:.holdfast/checkpoints/real.json") == "real"
    evil = kit.git("rev-parse", "HEAD", at=path)
    assert merging.put(workspace_of(kit), base, evil) == ["new"]
    assert os.listdir(kit.top / ".holdfast/checkpoints") == ["real.json"]


def test_many_tasks_are_opened_and_collected_at_once(kit):
    base = head(kit)
    tasks = trees_of(kit)

    def work(name):
        put(tasks.open(name, base), name)
        return name, tasks.collect(name)

    with ThreadPoolExecutor(6) as pool:
        found = dict(pool.map(work, [f"T{number}" for number in range(6)]))
    assert all(names_in(kit, sha) == [name.encode(), b"a.txt"] for name, sha in found.items())
    assert [tasks.close(name) for name in found] == [None] * 6


def test_only_what_is_open_is_collected(kit):
    tasks = trees_of(kit)
    with pytest.raises(NotFound):
        tasks.collect("T1")
    tasks.open("T1", head(kit))
    tasks.close("T1")
    with pytest.raises(NotFound):
        tasks.collect("T1")


def test_submodules_and_a_linked_main_work_tree(outer, tmp_path):
    side = tmp_path / "side"
    outer.git("worktree", "add", "-q", "-b", "side", str(side))
    tasks = TaskTrees(workspace_of(outer, side), "r1")
    path = tasks.open("T1", head(outer))
    assert path == str(outer.top / ".holdfast/worktrees/r1/T1")
    assert os.listdir(os.path.join(path, "sub")) == []
    assert outer.git("rev-parse", f"{tasks.collect('T1')}^{{tree}}") == outer.git("rev-parse", "HEAD^{tree}")
    put(path, "new")
    assert b"sub" in names_in(outer, tasks.collect("T1"))
    assert tasks.close("T1") is None and outer.git("status", "--porcelain", at=side) == ""


def test_a_sparse_checkout_loses_nothing(kit):
    kit.commit("more", **{"in/x": "x\n", "out/y": "y\n"})
    kit.git("sparse-checkout", "set", "in")
    tasks = trees_of(kit)
    path = tasks.open("T1", head(kit))
    put(path, "in/x", "changed\n")
    sha = tasks.collect("T1")
    assert names_in(kit, sha) == [b"a.txt", b"in/x", b"out/y"]
    assert tasks.close("T1") is None


# --- closing


def test_a_closed_tree_is_gone_with_its_refs_and_closing_again_is_nothing(kit):
    tasks = trees_of(kit)
    path = tasks.open("T1", head(kit))
    put(path, "new")
    tasks.collect("T1")
    assert tasks.close("T1") is None and tasks.close("T1") is None
    assert not os.path.exists(path) and tasks.left() == []
    assert kit.git("for-each-ref", "refs/holdfast") == ""
    assert len(kit.git("worktree", "list").splitlines()) == 1
    assert not (kit.top / ".git" / "worktrees").exists() or os.listdir(kit.top / ".git" / "worktrees") == []


@pytest.mark.parametrize("edit", ["file", "delete", "commit", "commit the same"])
def test_what_was_not_collected_keeps_the_tree(kit, edit):
    tasks = trees_of(kit)
    path = tasks.open("T1", head(kit))
    put(path, "new")
    tasks.collect("T1")
    if edit == "file":
        put(path, "later")
    elif edit == "delete":
        os.unlink(os.path.join(path, "a.txt"))
    else:
        put(path, "new", "x\n" if "same" in edit else "y\n")
        kit.git("add", "-A", at=path)
        kit.git("commit", "-q", "-m", "later", at=path)
    before = files_of(path)
    assert tasks.close("T1") == Left("T1", path, "it holds changes that were not collected")
    assert files_of(path) == before
    tasks.collect("T1")
    assert tasks.close("T1") is None


@pytest.mark.parametrize("how", ["before", "after"])
def test_a_kill_while_it_is_closed_is_made_good(kit, tmp_path, how, tries):
    base = head(kit)

    def work(tasks, name):
        path = tasks.open(name, base)
        put(path, "deep/new")
        tasks.collect(name)

    work(trees_of(kit), "count")
    front = Front(tmp_path / "front")
    tasks = trees_of(kit, **front.strike(0, how))
    front.strike(0, how)
    tasks.close("count")
    for at in tries.part(range(1, len(front.called()) + 1), 6):
        name = f"T{at}"
        work(trees_of(kit), name)
        tasks = trees_of(kit, **front.strike(0, how))
        front.strike(at, how)
        assert os.WTERMSIG(in_child(lambda t=tasks, n=name: t.close(n))) == signal.SIGKILL
        assert trees_of(kit).close(name) is None
    assert not os.path.exists(kit.top / ".holdfast/worktrees/r1")
    assert kit.git("for-each-ref", "refs/holdfast") == "" and len(kit.git("worktree", "list").splitlines()) == 1


@pytest.mark.parametrize("call", ["rename", "rmtree", "unlink", "fsync"])
def test_a_kill_at_any_step_of_closing_is_made_good(kit, monkeypatch, call, tries):
    base, place = head(kit), shutil if call == "rmtree" else os
    real, at = getattr(place, call), 0
    survived = False
    while not survived:
        at += 1 if at < 2 or tries.whole else 3
        tasks, left = trees_of(kit), [at]
        path = tasks.open("T1", base)
        put(path, "deep/new")
        tasks.collect("T1")

        def die(*argv, left=left, **named):
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*argv, **named)

        with monkeypatch.context() as patch:
            patch.setattr(place, call, die)
            survived = os.WTERMSIG(in_child(lambda t=tasks: t.close("T1"))) == 0
        if at % 2:
            assert trees_of(kit).open("T1", base) == path
            assert files_of(path) in (
                {b"a.txt": (False, b"a\n")},
                {b"a.txt": (False, b"a\n"), b"deep/new": (False, b"x\n")},
            )
            tasks.collect("T1")
        assert trees_of(kit).close("T1") is None and not os.path.exists(path)
    assert at > 1 and kit.git("for-each-ref", "refs/holdfast") == ""


# --- refs


def test_moved_refs_are_noticed(kit):
    kit.commit("second")
    kit.git("branch", "side")
    tasks = trees_of(kit)
    path = tasks.open("T1", head(kit))
    before = tasks.refs_now()
    old = kit.git("rev-parse", "HEAD^")
    kit.git("branch", "-f", "side", old, at=path)
    kit.git("checkout", "-q", "-b", "mine", at=path)
    tasks.collect("T1")
    here = head(kit)
    assert refs_moved(before, tasks.refs_now()) == [
        f"refs/heads/mine was made at {here}.",
        f"refs/heads/side was moved from {here} to {old}.",
    ]
    kit.git("checkout", "-q", "--detach")
    kit.git("branch", "-D", "-q", "side")
    said = refs_moved(before, tasks.refs_now())
    assert f"HEAD was moved from refs/heads/main to {here}." in said
    assert f"refs/heads/side was removed; it was at {here}." in said


# --- behind our back


def snapshot(kit, name="before"):
    return workspace_of(kit).snapshot(name, NOW).sha


def test_what_a_reviewer_changed_is_told_and_undone(kit):
    kit.commit("more", **{"b": "b\n", "c/d": "d\n", "run": "r\n"})
    kit.write("uncommitted", "work\n")
    kit.write("a.txt", "edited\n")
    os.symlink("a.txt", kit.top / "link")
    os.chmod(kit.top / "run", 0o755)
    wanted = files_of(kit.top)
    sha = snapshot(kit)
    assert changed_behind(workspace_of(kit), sha) == []
    kit.git("checkout", "-q", "-f", "HEAD")
    os.unlink(kit.top / "uncommitted")
    os.unlink(kit.top / "link")
    kit.write("report.md")
    kit.write("c/d", "spoiled\n")
    spoiled = files_of(kit.top)
    index = (kit.top / ".git/index").read_bytes()
    found = changed_behind(workspace_of(kit), sha, ["report.md"])
    assert found == [
        *(Change("a.txt", "modified"), Change("c/d", "modified"), Change("link", "deleted")),
        *(Change("run", "modified"), Change("uncommitted", "deleted")),
    ]
    paths = ["a.txt", "c/d", "link", "report.md", "run", "uncommitted"]
    assert undo(workspace_of(kit), sha, "spoiled", NOW) == paths
    assert files_of(kit.top) == wanted and (kit.top / ".git/index").read_bytes() == index
    tree = kept(kit.runner())["spoiled"]
    back = kit.top.parent / "back"
    kit.git("worktree", "add", "-q", "--detach", str(back), tree)
    assert files_of(back) == spoiled
    assert undo(workspace_of(kit), sha, "spoiled", NOW) == paths
    kit.write("a.txt", "a person was here\n")
    with pytest.raises(PutRefused, match=r"'a\.txt' was changed"):
        undo(workspace_of(kit), sha, "spoiled", NOW)


def test_files_that_git_converts_come_back_byte_for_byte(kit):
    kit.write(".gitattributes", "*.txt text\n")
    kit.commit("rules")
    kit.write("mixed.txt", b"one\r\ntwo\n")
    sha = snapshot(kit)
    kit.write("mixed.txt", "wiped\n")
    assert undo(workspace_of(kit), sha, "k1", NOW) == ["mixed.txt"]
    assert (kit.top / "mixed.txt").read_bytes() == b"one\r\ntwo\n"
    assert undo(workspace_of(kit), sha, "k1", NOW) == ["mixed.txt"]


def test_what_the_snapshot_did_not_hold_is_left_alone(kit):
    kit.write("big", "b" * 3000)
    kit.write("nested/big", "b" * 3000)
    git, place = kit.runner(), workspace_of(kit)
    sha = keep(git, "before", take(git, "before", NOW, Policy(largest=1000))).sha
    kit.write("a.txt", "spoiled\n")
    kit.write("big", "B" * 3000)
    assert changed_behind(place, sha) == [Change("a.txt", "modified")]
    assert undo(place, sha, "k1", NOW) == ["a.txt"]
    assert (kit.top / "big").read_text() == "B" * 3000
    tree = kit.git("rev-parse", f"{sha}^{{tree}}")
    assert [one.path for one in changed_behind(place, tree)] == ["big", "nested/big"]


def test_ignored_files_that_a_snapshot_holds_come_back_too(kit):
    kit.write(".gitignore", "*.env\n")
    kit.write("x.env", "mine\n")
    kit.write("y.env", "not held\n")
    git, place = kit.runner(), workspace_of(kit)
    sha = keep(git, "before", take(git, "before", NOW, Policy(("x.env",)))).sha
    assert changed_behind(place, sha) == []
    kit.write("x.env", "spoiled\n")
    kit.write("y.env", "changed\n")
    assert changed_behind(place, sha) == [Change("x.env", "modified")]
    assert undo(place, sha, "k1", NOW) == ["x.env"]
    assert (kit.top / "x.env").read_text() == "mine\n" and (kit.top / "y.env").read_text() == "changed\n"
    assert kit.git("show", f"{kept(git)['k1']}:x.env") == "spoiled"

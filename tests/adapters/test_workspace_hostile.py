"""Snapshots and restores in a repository that tries to run its own programs or to lead us astray: none runs, nothing strays."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from holdfast.adapters.git import workspace
from holdfast.adapters.git.restore import in_place, into_worktree, preview
from holdfast.adapters.git.workspace import REFS, WorkspaceError, changed, diff, keep, kept, read, take
from holdfast.adapters.probes.git_place import find_repository
from holdfast.adapters.probes.git_runner import Git
from tests.adapters.git_kit import Kit
from tests.adapters.probes.conftest import environ, git, repo
from tests.adapters.probes.test_git_hostile import canaries, fired, hostile, program
from tests.adapters.test_workspace import NOW, prints_of, take_and_keep

__all__ = ["canaries", "environ", "git", "hostile", "program", "repo"]  # fixtures

COMMANDS = (
    "cat-file check-attr checkout-index config diff-tree for-each-ref hash-object ls-files ls-tree read-tree rev-parse "
    "status symbolic-ref unpack-objects update-index update-ref worktree write-tree"
)


@pytest.fixture
def kit(tmp_path):
    return Kit(tmp_path)


@pytest.fixture
def trapped(hostile, git, program):
    """The hostile repository, with traps for the commands that are used here, too."""
    for command in COMMANDS.split():
        for section in ("alias", "pager"):
            git(hostile, "config", "--file", ".git/evil.cfg", f"{section}.{command}", program(f"{section}.{command}"))
    return hostile


def commands(runner, top, turn):
    """Everything that can be asked for, in an order that works."""
    here, before = f"c{turn}", f"before{turn}"
    snapshots = {}

    def take_it():
        snapshots[here] = take(runner, here, NOW)

    yield "take", take_it
    yield "keep", lambda: keep(runner, here, snapshots[here])
    yield "read", lambda: read(runner, here)
    yield "kept", lambda: kept(runner)
    yield "diff", lambda: diff(runner, here)
    yield "diff against", lambda: diff(runner, here, "HEAD")
    yield "changed", lambda: changed(runner)
    yield "tree now", lambda: workspace.tree_now(runner)
    yield "take all", lambda: take(runner, f"all{turn}", NOW, workspace.Policy(ignored=("**",)))
    (top / "plain.txt").write_text(f"changed {turn}\n")
    (top / f"later{turn}.txt").write_text("later\n")
    yield "preview", lambda: preview(runner, here)
    yield "in place", lambda: in_place(runner, here, before, NOW)
    yield "into a worktree", lambda: into_worktree(runner, here, str(top.parent / f"back{turn}"))
    yield "drop", lambda: workspace.drop(runner, before, kept(runner)[before])


def test_no_program_of_the_repository_runs_in_thirty_commands(trapped, environ, canaries):
    count = 0
    for turn in range(3):
        runner = Git(find_repository(str(trapped)), environ)
        for name, command in commands(runner, trapped, turn):
            command()
            count += 1
            assert fired(canaries) == [], name
    assert count >= 30
    back = trapped.parent / "back0"
    assert (back / "old.txt").read_text() == "changed\n" and (back / "new.txt").read_text() == "new\n"


def test_plain_git_runs_many_of_them(trapped, environ, canaries):
    """Or the test above would show nothing."""
    env = {**environ, "GIT_WORK_TREE": str(trapped), "GIT_DIR": str(trapped / ".git")}
    for argv in (["status"], ["add", "-A"], ["stash", "create"], ["diff", "HEAD"]):
        subprocess.run(["git", *argv], cwd=trapped, env=env, capture_output=True, timeout=60, check=False)
    assert len(fired(canaries)) >= 3, fired(canaries)


def test_a_trap_that_is_set_later_does_not_go_off_either(kit, tmp_path):
    """The same runner serves a whole run, and the agent may write into the configuration meanwhile."""
    runner = kit.runner()
    take_and_keep(runner)
    assert changed(runner) == []
    kit.write(".gitattributes", "* filter=late\n")
    kit.git("config", "filter.late.clean", f"touch {tmp_path}/ran; cat")
    kit.git("config", "filter.late.smudge", f"touch {tmp_path}/ran; cat")
    for number, look in enumerate((changed, workspace.tree_now, lambda git: take_and_keep(git, "c2"))):
        kit.write("a.txt", f"changed {number}\n")
        look(runner)
    kit.write("a.txt", "ruined\n")
    in_place(runner, "c2", "before", NOW)
    into_worktree(runner, "c2", str(tmp_path / "back"))
    assert not (tmp_path / "ran").exists() and (tmp_path / "back" / "a.txt").read_text() == "changed 2\n"


def test_what_the_filters_would_have_touched_is_named(trapped, environ):
    snapshot = take(Git(find_repository(str(trapped)), environ), "c1", NOW)
    assert [row.partition(":")[0] for row in snapshot.left_out] == ["/", "new.txt", "old.txt"]


@pytest.mark.parametrize("what", ["link", "dangling", "file"])
def test_a_folder_of_ours_that_is_something_else_is_refused(kit, tmp_path, what):
    outside = tmp_path / "outside"
    outside.mkdir()
    place = kit.top / ".git" / "holdfast"
    if what == "file":
        place.write_text("x")
    else:
        os.symlink(outside if what == "link" else tmp_path / "nowhere", place)
    before = prints_of(kit.top)
    runner = kit.runner()
    with pytest.raises(WorkspaceError, match="not a folder of yours"):
        take(runner, "c1", NOW)
    assert workspace.tree_now(runner), "who only looks has no business in that folder"
    assert os.listdir(outside) == [] and not (tmp_path / "nowhere").exists() and prints_of(kit.top) == before


@pytest.mark.parametrize("name", ["last.json", "work-c1-0", "index-work-c1-0"])
def test_links_laid_out_in_our_folder_are_not_followed(kit, tmp_path, name):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("precious\n")
    home = kit.top / ".git" / "holdfast"
    home.mkdir(mode=0o700)
    os.symlink(outside / "precious" if name != "work-c1-0" else outside, home / name)
    take_and_keep(kit.runner(), "c1")
    take_and_keep(kit.runner(), "c2")
    assert os.listdir(outside) == ["precious"] and (outside / "precious").read_text() == "precious\n"


def test_facts_that_name_a_file_elsewhere_are_not_believed(kit, tmp_path):
    runner = kit.runner()
    take_and_keep(runner)
    last = kit.top / ".git" / "holdfast" / "last.json"
    facts = json.loads(last.read_text())
    for name in ("../index", "/etc/passwd", "../../a.txt"):
        last.write_text(json.dumps({**facts, "saved": name}))
        assert take(runner, "c2", NOW).tree == read(runner, "c1").tree


def test_an_index_that_is_a_link_is_refused(kit, tmp_path):
    index = kit.top / ".git" / "index"
    index.rename(tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", index)
    with pytest.raises(WorkspaceError, match="index cannot be read"):
        take(kit.runner(), "c1", NOW)


def test_a_link_out_of_the_tree_is_kept_as_a_link_and_comes_back_as_one(kit, tmp_path):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("secret\n")
    os.symlink(secret, kit.top / "out")
    os.symlink(secret / "key", kit.top / "key")
    runner = kit.runner()
    snapshot = take_and_keep(runner)
    assert kit.git("ls-tree", "-r", "--name-only", snapshot.sha).split() == ["a.txt", "key", "out"]
    into_worktree(runner, "c1", str(tmp_path / "back"))
    assert os.readlink(tmp_path / "back" / "out") == str(secret)
    assert (secret / "key").read_text() == "secret\n"


def forge(kit, runner, rows):
    """A snapshot whose tree holds what an attacker put there."""
    snapshot = take_and_keep(runner)
    listing = b"".join(mode + b" " + name + b"\0" + bytes.fromhex(blob) for mode, name, blob in rows)
    raw = ["git", "hash-object", "-t", "tree", "-w", "--literally", "--stdin"]
    done = subprocess.run(raw, cwd=kit.top, env=kit.environ, input=listing, capture_output=True, check=True)
    tree = done.stdout.decode().strip()
    body = kit.git("cat-file", "commit", snapshot.sha).replace(f"tree {snapshot.tree}", f"tree {tree}", 1)
    commit = kit.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=body + "\n")
    kit.git("update-ref", f"{REFS}forged", commit)
    return tree


def test_a_forged_tree_writes_neither_into_the_git_folder_nor_through_a_link(kit, tmp_path):
    runner = kit.runner()
    blob = kit.git("rev-parse", "HEAD:a.txt")
    outside = tmp_path / "outside"
    outside.mkdir()
    link = kit.git("hash-object", "-w", "--stdin", stdin=str(outside))
    inner = kit.git("mktree", stdin=f"100644 blob {blob}\tconfig\n")
    for rows in (
        [(b"40000", b".git", inner)],
        [(b"40000", b".GIT", inner)],
        [(b"40000", b"git~1", inner)],
        [(b"100644", b"../up", blob)],
        [(b"100644", b"x/../../up", blob)],
        [(b"40000", b"..", inner)],
        [(b"120000", b"d", link), (b"40000", b"d", inner)],
        [(b"120000", b"d", link), (b"100644", b"d/config", blob)],
    ):
        forge(kit, runner, rows)
        config, before = (kit.top / ".git" / "config").read_bytes(), sorted(os.listdir(tmp_path))
        for restore in (
            lambda: into_worktree(runner, "forged", str(tmp_path / "back")),
            lambda: in_place(runner, "forged", f"before-{os.urandom(4).hex()}", NOW),
        ):
            try:
                restore()
            except WorkspaceError:
                continue
            except Exception as error:
                assert type(error).__name__ == "RestoreRefused", error
            finally:
                if (tmp_path / "back").exists():
                    kit.git("worktree", "remove", "-f", "-f", str(tmp_path / "back"))
                assert (kit.top / ".git" / "config").read_bytes() == config
                assert os.listdir(outside) == [] and sorted(os.listdir(tmp_path)) == before
        kit.git("update-ref", "-d", f"{REFS}forged")
        kit.git("update-ref", "-d", f"{REFS}c1")


def test_raw_bytes_are_never_written_through_a_link_or_into_the_git_folder(kit, tmp_path):
    """A forged list of files to make what they were, byte for byte."""
    kit.write(".gitattributes", "* text=auto\n")
    kit.write("d/config", "ours\n")
    runner = kit.runner()
    snapshot = take_and_keep(runner)
    evil = kit.git("hash-object", "-w", "--stdin", stdin="evil\n")
    beside = kit.git("rev-parse", f"{snapshot.sha}^2")
    for path in (".git/config", "../up", "x"):
        folder, _, name = path.rpartition("/")
        inner = f"100644 {name}".encode() + b"\0" + bytes.fromhex(evil)
        tree = write_tree(kit, inner)
        raw = write_tree(kit, f"40000 {folder}".encode() + b"\0" + bytes.fromhex(tree)) if folder else tree
        held = kit.git("ls-tree", beside).split("\n")
        rows = [row for row in held if not row.endswith("\traw")] + [f"040000 tree {raw}\traw"]
        top = kit.git("mktree", stdin="\n".join(rows) + "\n")
        other = kit.git("cat-file", "commit", beside).split("\n", 1)[1]
        forged = kit.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=f"tree {top}\n{other}\n")
        body = kit.git("cat-file", "commit", snapshot.sha).replace(beside, forged)
        commit = kit.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=body + "\n")
        kit.git("update-ref", f"{REFS}forged", commit)
        config = (kit.top / ".git" / "config").read_bytes()
        with pytest.raises(WorkspaceError):
            into_worktree(runner, "forged", str(tmp_path / "back"))
        with pytest.raises(WorkspaceError):
            in_place(runner, "forged", f"before{len(kept(runner))}", NOW)
        assert (kit.top / ".git" / "config").read_bytes() == config and not (tmp_path / "up").exists()
        assert not (tmp_path / "back").exists()


def write_tree(kit, body):
    argv = ["git", "hash-object", "-t", "tree", "-w", "--literally", "--stdin"]
    done = subprocess.run(argv, cwd=kit.top, env=kit.environ, input=body, capture_output=True, check=True)
    return done.stdout.decode().strip()


def test_variables_of_the_environment_do_not_lead_elsewhere(kit, tmp_path):
    other = {
        name: str(tmp_path / "x") for name in ("GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_DIR", "GIT_WORK_TREE")
    }
    runner = Git(find_repository(str(kit.top)), {**kit.environ, **other})
    kit.write("new", "new\n")
    snapshot = keep(runner, "c1", take(runner, "c1", NOW))
    assert kit.git("show", f"{snapshot.sha}:new") == "new" and not (tmp_path / "x").exists()


def test_replaced_objects_do_not_change_what_is_read(kit):
    runner = kit.runner()
    snapshot = take_and_keep(runner)
    kit.write("a.txt", "other\n")
    other = take_and_keep(runner, "c2")
    kit.git("replace", snapshot.sha, other.sha)
    assert read(runner, "c1").tree == snapshot.tree

"""What `holdfast doctor` finds in a repository: every command that it advises runs, and helps; and it mends only its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys

import apsw
import pytest

from holdfast.core import stops
from tests.cli.test_checkpoint import environ, holdfast, home, repo, run, told
from tests.forked import holdfast_says

__all__ = ["environ", "home", "repo"]  # fixtures

TWO_RUNS = """
import holdfast
with holdfast.run('mission', new=True) as run:
    place = run.workspace('.')
    for name, text in (('f', 'hello'), ('g', 'world')):
        open(name, 'w').write(text)
        place.milestone('part ' + name)
"""


def warned(repo, environ, *words):
    done = holdfast_says(["doctor", "--json", *words], repo, environ)
    found = [one for one in json.loads(done.stdout)["findings"] if one["level"] != "ok"]
    reasons = [one["reason"] for one in found if one["level"] == "fail"]
    assert done.returncode == (stops.exit_code(reasons[0]) if reasons else 0), found
    return found


def follow(repo, environ, advice):
    """Do what was advised, as somebody would who copies it from the terminal."""
    words = re.sub(r"(^|&& )holdfast ", rf"\1{sys.executable} -m holdfast ", advice)
    done = subprocess.run(["sh", "-c", words], cwd=repo, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (advice, done.stderr)
    return done.stdout


def helped(repo, environ):
    """There is one finding; what it advises takes it away."""
    (found,) = warned(repo, environ)
    follow(repo, environ, found["fix"])
    assert warned(repo, environ) == []
    return found


def forget(repo, environ):
    run(["git", "reflog", "expire", "--expire=now", "--all"], repo, environ)
    run(["git", "gc", "-q", "--prune=now"], repo, environ)


@pytest.fixture
def mark(repo, environ):
    """A milestone, and everything that git knows of it committed."""
    holdfast(repo, environ, "init")
    (repo / "a.txt").write_text("a\n")
    return told(repo, environ, "checkpoint", "--commit", "a")


def test_of_a_milestone_that_was_just_made_there_is_nothing_to_warn(repo, environ, mark):
    assert warned(repo, environ) == []


def test_a_snapshot_that_was_let_go_can_be_kept_again_until_git_collects_it(repo, environ, mark):
    name = mark["checkpoint_id"]
    holdfast(repo, environ, "checkpoint", "--drop", name)
    found = helped(repo, environ)
    assert name in found["sentence"] and found["fix"].startswith("git update-ref ")
    assert [one["checkpoint_id"] for one in told(repo, environ, "checkpoint", "--list")["checkpoints"]] == [name]
    holdfast(repo, environ, "checkpoint", "--drop", name)
    forget(repo, environ)
    assert warned(repo, environ) == []
    assert any("Nothing needs to be done" in one["sentence"] for one in told(repo, environ, "doctor")["findings"])


def test_a_sidecar_whose_commit_is_gone_for_good_is_put_away(repo, environ, mark):
    run(["git", "reset", "-q", "--hard", "HEAD~1"], repo, environ)
    run(["git", "update-ref", "-d", f"refs/holdfast/checkpoints/{mark['checkpoint_id']}"], repo, environ)
    forget(repo, environ)
    holdfast(repo, environ, "init")  # its rule was part of the milestone
    found = helped(repo, environ)
    assert "git no longer has" in found["sentence"] and found["fix"].startswith("mv ")
    assert list((repo / ".holdfast").glob("*.json.aside"))


def test_a_sidecar_whose_commit_became_another_is_mended(repo, environ, mark):
    run(["git", "commit", "-q", "--amend", "--no-edit", "--date", "2020-01-01T00:00:00Z"], repo, environ)
    run(["git", "update-ref", "-d", f"refs/holdfast/checkpoints/{mark['checkpoint_id']}"], repo, environ)
    forget(repo, environ)
    now = run(["git", "rev-parse", "HEAD"], repo, environ).strip()
    found = helped(repo, environ)
    assert now[:12] in found["sentence"] and found["fix"] == "holdfast doctor --fix"
    assert json.loads((repo / ".holdfast" / "checkpoints" / f"{mark['checkpoint_id']}.json").read_text())["sha"] == now


@pytest.mark.parametrize("what", ["link", "pipe", "folder", "socket", "notes.txt", "spoiled", "half"])
def test_what_is_no_sidecar_is_taken_away_as_advised(repo, environ, mark, what, monkeypatch):
    folder = repo / ".holdfast" / "checkpoints"
    path = folder / {"notes.txt": "notes.txt", "half": ".x.0123456789abcdef.new"}.get(what, "x y.json")
    (repo / ".holdfast" / "x y.json.aside").write_text("in the way\n")
    if what == "link":
        path.symlink_to(folder / f"{mark['checkpoint_id']}.json")
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "socket":
        monkeypatch.chdir(folder)
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    else:
        path.write_text("hello")
    helped(repo, environ)
    assert not os.path.lexists(path) and (repo / ".holdfast" / "x y.json.aside").read_text() == "in the way\n"


def test_a_sidecar_of_a_newer_holdfast_needs_no_command(repo, environ, mark):
    (repo / ".holdfast" / "checkpoints" / "x.json").write_text('{"schema_version": 99}')
    assert warned(repo, environ) == []
    (found,) = [one for one in told(repo, environ, "doctor")["findings"] if one["check"] == "sidecars"]
    assert found["fix"] == "" and "a newer Holdfast can read it" in found["sentence"]


@pytest.mark.parametrize("what", ["file", "link"])
def test_something_else_in_the_place_of_our_folder_is_moved_away(repo, environ, tmp_path, what):
    (repo / ".git" / "info" / "exclude").write_text(".holdfast*\n")
    if what == "file":
        (repo / ".holdfast").write_text("mine\n")
    else:
        (tmp_path / "elsewhere").mkdir()
        (repo / ".holdfast").symlink_to(tmp_path / "elsewhere")
    environ = {**environ, "HOLDFAST_STORE": str(tmp_path / "store" / "holdfast.db")}
    fixes = {one["fix"] for one in warned(repo, environ)}
    assert fixes == {f"mv {repo}/.holdfast {repo}/.holdfast.aside"}
    follow(repo, environ, fixes.pop())
    assert warned(repo, environ) == [] and os.path.lexists(repo / ".holdfast.aside")


def test_mending_never_points_a_sidecar_at_another_runs_equal_commit(repo, environ, tmp_path):
    holdfast(repo, environ, "init")
    run(["git", "add", "-A"], repo, environ)
    run(["git", "commit", "-q", "-m", "ignore"], repo, environ)
    for branch in ("wa", "wb"):
        run(["git", "switch", "-q", "-c", branch, "main"], repo, environ)
        run([sys.executable, "-c", TWO_RUNS], repo, environ)
    before = {path.name: path.read_text() for path in (repo / ".holdfast" / "checkpoints").iterdir()}
    assert len(before) == 4
    assert told(repo, environ, "doctor", "--fix")["done"] == []
    assert {path.name: path.read_text() for path in (repo / ".holdfast" / "checkpoints").iterdir()} == before
    assert "sidecars" in holdfast(repo, environ, "doctor", "--help")


def test_a_bare_repository_is_called_so(tmp_path, environ):
    run(["git", "init", "-q", "--bare", str(tmp_path / "bare.git")], tmp_path, environ)
    for folder in ("bare.git", "bare.git/refs"):
        done = holdfast_says(["checkpoint", "x"], tmp_path / folder, environ)
        assert done.returncode not in (0, 1) and "is a bare repository" in done.stderr
        assert "git worktree add" in done.stderr


def test_what_is_neither_a_run_nor_a_checkpoint_is_said_to_be_neither(repo, environ, mark):
    holdfast(repo, environ, "checkpoint", "--drop", mark["checkpoint_id"])
    done = holdfast_says(["show", mark["checkpoint_id"]], repo, environ)
    assert done.returncode == 66 and "no run or checkpoint" in done.stderr


@pytest.fixture
def pending(repo, environ):
    """What was here before a restore in place: kept aside, and its ref removed by hand."""
    holdfast(repo, environ, "init")
    run(["git", "add", "-A"], repo, environ)
    run(["git", "commit", "-q", "-m", "ready"], repo, environ)
    mark = told(repo, environ, "checkpoint", "one")
    (repo / "readme.txt").write_text("mine\n")
    name = told(repo, environ, "restore", mark["checkpoint_id"], "--in-place")["restored"]["kept"]
    run(["git", "update-ref", "-d", f"refs/holdfast/checkpoints/{name}"], repo, environ)
    return name


def test_work_that_is_kept_aside_and_lost_its_ref_comes_back_as_long_as_git_has_it(repo, environ, pending):
    (found,) = warned(repo, environ)
    follow(repo, environ, found["fix"])
    (found,) = warned(repo, environ)
    assert found["fix"] == f"holdfast restore {pending}"
    follow(repo, environ, f"{found['fix']} --in-place")
    assert (repo / "readme.txt").read_text() == "mine\n"


def test_work_that_was_kept_aside_and_is_collected_is_told_and_can_be_done_with(repo, environ, pending):
    forget(repo, environ)
    assert "git has collected it" in helped(repo, environ)["sentence"]


def test_work_that_is_kept_aside_in_another_repository_is_looked_for_there(repo, environ, tmp_path):
    environ["HOLDFAST_STORE"] = str(tmp_path / "store.db")
    mark = told(repo, environ, "checkpoint", "one")
    (repo / "readme.txt").write_text("mine\n")
    name = told(repo, environ, "restore", mark["checkpoint_id"], "--in-place")["restored"]["kept"]
    other = tmp_path / "other"
    run(["git", "init", "-q", str(other)], tmp_path, environ)
    holdfast(other, environ, "init")
    (found,) = warned(other, environ)
    assert found["fix"] == f"cd {repo} && holdfast restore {name}"
    holdfast(repo, environ, "restore", name)


def test_a_sidecar_that_is_written_again_is_the_one_that_was_there(repo, environ, mark):
    path = repo / ".holdfast" / "checkpoints" / f"{mark['checkpoint_id']}.json"
    before = path.read_bytes()
    path.unlink()
    helped(repo, environ)
    assert path.read_bytes() == before
    run(["git", "commit", "-q", "--amend", "-m", "another subject"], repo, environ)
    run(["git", "reflog", "expire", "--expire=now", "--all"], repo, environ)
    holdfast(repo, environ, "doctor", "--fix")
    one, other = json.loads(before), json.loads(path.read_bytes())
    assert {key for key in one if one[key] != other[key]} == {"sha"}


def test_an_index_that_git_cannot_read_is_told_and_can_be_made_anew(repo, environ, mark):
    (repo / ".git" / "index").write_bytes(b"no index at all")
    (repo / "a.txt").write_text("changed\n")
    found = helped(repo, environ)
    assert found["check"] == "index" and str(repo / ".git" / "index") in found["fix"]
    assert (repo / "a.txt").read_text() == "changed\n" and (repo / ".holdfast").is_dir()


def test_a_merge_goes_on_when_its_index_was_made_anew(repo, environ, mark):
    run(["git", "checkout", "-q", "-b", "other"], repo, environ)
    for branch, text in (("other", "theirs\n"), ("main", "ours\n")):
        run(["git", "checkout", "-q", branch], repo, environ)
        (repo / "readme.txt").write_text(text)
        run(["git", "commit", "-q", "-a", "-m", text.strip()], repo, environ)
    run(["git", "merge", "-q", "other"], repo, environ, code=1)
    merged = (repo / ".git" / "MERGE_HEAD").read_text()
    (repo / ".git" / "index").write_bytes(b"no index at all")
    assert "in conflict" in helped(repo, environ)["sentence"]
    assert (repo / ".git" / "MERGE_HEAD").read_text() == merged and "<<<<<<<" in (repo / "readme.txt").read_text()


def test_an_index_that_is_made_anew_is_as_sparse_as_its_work_tree(repo, environ, mark):
    (repo / "out").mkdir()
    (repo / "out" / "x").write_text("x\n")
    run(["git", "add", "out"], repo, environ)
    run(["git", "commit", "-q", "-m", "out"], repo, environ)
    run(["git", "sparse-checkout", "set", "--cone", "in"], repo, environ)
    (repo / ".git" / "index").write_bytes(b"no index at all")
    helped(repo, environ)
    assert run(["git", "status", "--porcelain"], repo, environ) == ""


@pytest.mark.parametrize("spoiled", ["main", "linked"])
def test_the_index_that_is_made_anew_is_the_one_that_git_cannot_read(repo, environ, mark, tmp_path, spoiled):
    other = tmp_path / "other tree"
    run(["git", "worktree", "add", "-q", "-b", "other", str(other)], repo, environ)
    (linked,) = repo.glob(".git/worktrees/*/index")
    sound, bad = (linked, repo / ".git" / "index") if spoiled == "main" else (repo / ".git" / "index", linked)
    for tree in (repo, other):
        (tree / "staged.txt").write_text("staged\n")
        run(["git", "add", "staged.txt"], tree, environ)
    bad.write_bytes(b"no index at all")
    before = sound.read_bytes()
    found = helped(other, environ)
    assert found["check"] == "index" and str(bad) in found["sentence"] and sound.read_bytes() == before


@pytest.mark.parametrize("what", ["link", "folder", "UTF-16"])
def test_a_rule_that_cannot_stand_in_gitignore_goes_where_git_looks_too(repo, environ, tmp_path, what):
    path = repo / ".gitignore"
    if what == "link":
        path.symlink_to(tmp_path / "elsewhere")
    elif what == "folder":
        path.mkdir()
    else:
        path.write_bytes("*.o\r\n".encode("utf-16"))
    holdfast(repo, environ, "init", code=65)
    (repo / "sub").mkdir()
    assert helped(repo / "sub", environ)["fix"] == "holdfast init --exclude"
    assert holdfast(repo, environ, "init", "--exclude").startswith("Everything was set up already.")


@pytest.mark.parametrize("stand", ["subfolder", "linked"])
def test_our_files_are_taken_out_of_the_index_that_has_them(repo, environ, mark, tmp_path, stand):
    standing = tmp_path / "other" if stand == "linked" else repo / "sub"
    run(["git", "worktree", "add", "-q", str(tmp_path / "other")], repo, environ)
    (repo / "sub").mkdir()
    run(["git", "add", "-f", ".holdfast/holdfast.db"], repo, environ)
    helped(standing, environ)
    assert (repo / ".holdfast" / "holdfast.db").exists()


def test_a_work_tree_that_is_said_to_be_elsewhere_is_told(repo, environ, mark, tmp_path):
    run(["git", "config", "core.worktree", ".."], repo, environ)
    assert warned(repo, environ) == []
    run(["git", "config", "core.worktree", str(tmp_path)], repo, environ)
    assert str(tmp_path) in helped(repo, environ)["sentence"]


@pytest.mark.parametrize("where", ["config", "included", "both"])
@pytest.mark.parametrize("there", ["", "gone"])
def test_wherever_that_is_said_and_whatever_is_there_it_can_be_unsaid(repo, environ, mark, tmp_path, where, there):
    own, more = repo / ".git" / "config", tmp_path / "more settings"
    for file, named in ((own, where != "included"), (more, where != "config")):
        if named:
            run(["git", "config", "--file", str(file), "core.worktree", str(tmp_path / there)], repo, environ)
    if where != "config":
        run(["git", "config", "--file", str(own), "include.path", str(more)], repo, environ)
    sentence = helped(repo, environ)["sentence"]
    assert (str(more) in sentence) == (where != "config") and (str(own) in sentence) == (where != "included")


def test_a_file_system_that_is_read_only_is_told_once_and_no_command_is_given(repo, environ, mark):
    begin = 'mount --bind . . && mount -o remount,bind,ro . && cd "$PWD" && exec "$@"'
    somebody = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = ["unshare", *somebody, "--mount", "sh", "-c", begin, "sh"]
    if subprocess.run([*command, "true"], cwd=repo, env=environ, capture_output=True, check=False).returncode:
        pytest.skip("Nothing can be mounted here.")
    done = subprocess.run(
        [*command, sys.executable, "-m", "holdfast", "doctor", "--json"],
        cwd=repo,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    found = [one for one in json.loads(done.stdout)["findings"] if one["check"] == "writable"]
    assert [one["fix"] for one in found] == [""] and "read-only" in found[0]["sentence"], found
    assert "chmod" not in done.stdout


def test_a_half_made_worktree_that_may_be_in_use_is_told_and_left_alone(repo, environ, mark, tmp_path):
    """Earlier versions left no token in git's record, so nobody can tell whose it is."""
    path, note = tmp_path / "half made", repo / ".git" / "holdfast" / f"restoring-{mark['checkpoint_id']}-0"
    run(["git", "worktree", "add", "-q", "--detach", "--no-checkout", str(path)], repo, environ)
    (path / "a.txt").write_text("a\n")
    note.write_bytes(os.fsencode(path) + b"\0")
    for words in ((), ("--fix",)):
        (found,) = warned(repo, environ, *words)
        assert str(path) in found["sentence"] and found["fix"] == ""
    assert (path / "a.txt").read_text() == "a\n" and note.exists()
    for advice in re.findall("`(.*?)`", found["sentence"]):
        follow(repo, environ, advice)
    assert warned(repo, environ) == [] and not path.exists() and not note.exists()


BEFORE_THE_INDEX = """
import os, signal
from holdfast.adapters.git import restore
from holdfast.cli.main import main
restore.put_index = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
main(["restore", {!r}, "--into", {!r}])
"""


def test_a_restore_that_was_killed_just_before_its_index_is_finished(repo, environ, tmp_path):
    holdfast(repo, environ, "init")
    (repo / "a.txt").write_text("staged\n")
    run(["git", "add", "a.txt"], repo, environ)
    (repo / "a.txt").write_text("changed\n")
    name, path = told(repo, environ, "checkpoint", "one")["checkpoint_id"], tmp_path / "back"
    run([sys.executable, "-c", BEFORE_THE_INDEX.format(name, str(path))], repo, environ, code=-9)
    (path / "mine").write_text("mine\n")
    (found,) = warned(repo, environ)
    assert "its index is not" in found["sentence"] and found["fix"] == "holdfast doctor --fix"
    follow(repo, environ, found["fix"])
    assert warned(repo, environ) == []
    here, there = (run(["git", "status", "--porcelain"], place, environ).splitlines() for place in (repo, path))
    assert {*there} == {*here, "?? mine"} and any(line.endswith("M a.txt") for line in there)


def test_a_ref_that_is_no_checkpoint_is_put_into_no_command(repo, environ, mark):
    name = "a;touch${IFS}x"
    run(["git", "update-ref", f"refs/holdfast/checkpoints/{name}", "HEAD"], repo, environ)
    assert warned(repo, environ) == []
    (found,) = [one for one in told(repo, environ, "doctor")["findings"] if name in one["sentence"]]
    assert f"'refs/holdfast/checkpoints/{name}'" in found["sentence"] and "`" not in found["sentence"]


def test_a_commit_under_our_refs_that_is_no_snapshot_is_not_offered_for_a_restore(mark, repo, environ):
    run(["git", "update-ref", "refs/holdfast/checkpoints/of-somebody-else", "HEAD"], repo, environ)
    (said,) = [one for one in told(repo, environ, "doctor")["findings"] if "of-somebody-else" in one["sentence"]]
    assert (
        said["level"] == "ok" and "no snapshot of Holdfast's" in said["sentence"] and "restore" not in said["sentence"]
    )


@pytest.mark.parametrize("what", ["deleted", "overwritten", "overwritten again", "both overwritten"])
def test_a_hook_that_is_no_longer_ours_is_told_and_put_back(repo, environ, mark, what):
    folder = repo / ".git" / "hooks"
    first, second = folder / "post-rewrite", folder / "reference-transaction"
    theirs = "#!/bin/sh\nexit 0\n"
    if what in ("overwritten again", "both overwritten"):
        first.write_text(theirs)
        first.chmod(0o755)
    holdfast(repo, environ, "init", "--hooks")
    assert warned(repo, environ) == []
    if what == "deleted":
        second.unlink()
    else:
        for path in (first, second) if what == "both overwritten" else (first,):
            path.unlink()
            path.write_text(theirs + "# another tool\n")
    (repo / "sub").mkdir()
    found = helped(repo / "sub", environ)
    assert ("reference-transaction" if what == "deleted" else "post-rewrite") in found["sentence"]
    holdfast(repo, environ, "init", "--remove-hooks")
    assert warned(repo, environ) == []


def test_hooks_of_a_relative_place_are_wanted_in_every_work_tree(repo, environ, mark, tmp_path):
    run(["git", "config", "core.hooksPath", "tools/our hooks"], repo, environ)
    (repo / "tools").mkdir()
    (repo / ".git" / "info" / "exclude").write_text("tools/\n")
    holdfast(repo, environ, "init", "--hooks")
    run(["git", "worktree", "add", "-q", str(tmp_path / "other")], repo, environ)
    for standing in (repo, tmp_path / "other"):
        (found,) = warned(standing, environ)
        assert found["check"] == "hooks" and str(tmp_path / "other") in found["sentence"]
    helped(repo, environ)
    assert (tmp_path / "other" / "tools" / "our hooks" / "reference-transaction").exists()


@pytest.mark.parametrize("how", ["removed", "moved", "moved and rewritten"])
def test_a_milestone_is_ours_although_the_folder_it_was_made_in_is_gone(repo, environ, tmp_path, how):
    holdfast(repo, environ, "init")
    run(["git", "add", "-A"], repo, environ)
    run(["git", "commit", "-q", "-m", "ready"], repo, environ)
    tree = tmp_path / "tree" if how == "removed" else repo
    if how == "removed":
        run(["git", "worktree", "add", "-q", "-b", "other", str(tree)], repo, environ)
    run([sys.executable, "-c", TWO_RUNS], tree, environ)
    if how == "removed":
        run(["git", "merge", "-q", "other"], repo, environ)
        run(["git", "worktree", "remove", str(tree)], repo, environ)
    else:
        repo = repo.rename(tmp_path / "elsewhere")
    folder = repo / ".holdfast" / "checkpoints"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    if how == "moved and rewritten":
        run(["git", "commit", "-q", "--amend", "--no-edit", "--date", "2020-01-01T00:00:00Z"], repo, environ)
        run(
            ["sh", "-c", "git for-each-ref --format='delete %(refname)' refs/holdfast | git update-ref --stdin"],
            repo,
            environ,
        )
        forget(repo, environ)
        assert helped(repo, environ)["fix"] == "holdfast doctor --fix"
        return
    for path in folder.iterdir():
        path.unlink()
    assert [one["fix"] for one in warned(repo, environ)] == ["holdfast doctor --fix"] * 2
    follow(repo, environ, "holdfast doctor --fix")
    assert warned(repo, environ) == [] and {path.name: path.read_bytes() for path in folder.iterdir()} == before


KILLED = """
import os, signal
from holdfast.adapters.git.repo import GitWorkspace
from holdfast.cli.main import main
setattr(GitWorkspace, {!r}, lambda *given: os.kill(os.getpid(), signal.SIGKILL))
main(['checkpoint', '--commit', 'part'])
"""


@pytest.mark.parametrize(("moment", "index"), [("commit", 0), ("patch_id", 1)])
def test_a_checkpoint_by_hand_that_was_killed_is_completed_or_given_up(repo, environ, moment, index):
    holdfast(repo, environ, "init")
    (repo / "a.txt").write_text("a\n")
    run([sys.executable, "-c", KILLED.format(moment)], repo, environ, code=-9)
    (repo / "a.txt").write_text("changed since\n")
    (found,) = warned(repo, environ)
    assert "was begun and not completed" in found["sentence"]
    (repo / "sub").mkdir()
    follow(repo / "sub", environ, found["fix"])
    if moment == "commit":
        assert "nothing waits for it" in helped(repo, environ)["sentence"]
    assert warned(repo, environ) == []
    assert told(repo, environ, "checkpoint", "--commit", "next")["index"] == index


def test_a_checkpoint_of_a_program_that_was_killed_is_left_to_its_program(repo, environ):
    holdfast(repo, environ, "init")
    program = TWO_RUNS.replace(
        "import holdfast\n", KILLED.format("commit").replace("main([", "([") + "import holdfast\n"
    )
    run([sys.executable, "-c", program], repo, environ, code=-9)
    assert warned(repo, environ) == []
    (said,) = [one for one in told(repo, environ, "doctor")["findings"] if "begun" in one["sentence"]]
    assert "The next start of the run completes it" in said["sentence"] and said["fix"] == ""


def test_a_snapshot_that_no_log_knows_is_told_with_what_can_be_done(repo, environ, mark, tmp_path):
    environ = {**environ, "HOLDFAST_STORE": str(tmp_path / "another.db")}
    told(repo, environ, "checkpoint", "known here")
    assert warned(repo, environ) == []
    said = [one["sentence"] for one in told(repo, environ, "doctor")["findings"] if "no log here" in one["sentence"]]
    assert any(f"`holdfast restore {mark['checkpoint_id']}`" in one for one in said)


# --- what doctor is there to find does not keep it from finding the rest


def spoil(database):
    database.write_bytes(os.urandom(8192))


def roll_back(database):
    """The database as it was before the newest events, beside a witness that knows of them."""
    shutil.copy2(database.with_name("older"), database)


@pytest.mark.parametrize(("harm", "reason"), [(spoil, "store_foreign"), (roll_back, "tail_lost")])
def test_a_store_that_cannot_be_read_is_one_finding_among_the_others(repo, environ, mark, tmp_path, harm, reason):
    database = repo / ".holdfast" / "holdfast.db"
    shutil.copy2(database, database.with_name("older"))
    told(repo, environ, "checkpoint", "newer")
    for end in ("-wal", "-shm"):
        database.with_name(f"holdfast.db{end}").unlink(missing_ok=True)
    harm(database)
    (repo / ".holdfast" / "checkpoints" / "x.json").write_text("{")
    run(["git", "worktree", "add", "-q", str(tmp_path / "other")], repo, environ)
    shutil.rmtree(tmp_path / "other")
    before = database.read_bytes()
    found = warned(repo, environ)
    assert [one["reason"] for one in found if one["level"] == "fail"] == [reason]
    assert not any("says what is wrong" in one["sentence"] for one in found)
    assert {one["check"] for one in found} == {"store", "sidecars", "worktrees"}
    assert not any("no log here knows" in one["sentence"] for one in found)
    mended = warned(repo, environ, "--fix")
    assert {one["check"] for one in mended} == {"store", "worktrees"} and database.read_bytes() == before


def test_a_log_that_cannot_be_read_is_named_and_its_mirrors_are_not_called_strange(repo, environ, mark):
    database = repo / ".holdfast" / "holdfast.db"
    connection = apsw.Connection(str(database))
    connection.execute("delete from events_1 where place % (1 << 32) = 2")
    connection.execute("delete from snapshots")
    connection.close()
    found = told(repo, environ, "doctor", code=stops.exit_code("log_damaged"))["findings"]
    assert "log_damaged" in {one["reason"] for one in found}
    assert not [one for one in found if "no log here knows" in one["sentence"]]


def test_in_a_folder_that_is_gone_the_store_is_looked_at_all_the_same(tmp_path, environ):
    environ = {**environ, "HOLDFAST_STORE": str(tmp_path / "store.db")}
    command = f"mkdir gone && cd gone && rmdir ../gone && {sys.executable} -m holdfast doctor"
    assert "no store" in run(["sh", "-c", command], tmp_path, environ)


@pytest.mark.parametrize("what", ["head", "config", "owner"])
def test_a_repository_that_git_cannot_read_is_a_finding_with_its_reason(repo, environ, mark, what):
    (repo / ".holdfast" / "checkpoints" / "x.json").write_text("{")
    if what == "head":
        (repo / ".git" / "HEAD").write_text("garbage\n")
    elif what == "config":
        (repo / ".git" / "config").write_text("[[[\n")
    elif os.geteuid() == 0:
        os.chown(repo, 1234, 1234)
    else:
        pytest.skip("only root can give a folder to somebody else")
    found = warned(repo, environ)
    assert [(one["check"], one["level"]) for one in found] == [("repository", "fail"), ("sidecars", "warn")]
    assert found[0]["reason"] == "bad_input" and "let the run go on" not in found[0]["sentence"]
    if what == "owner":
        follow(repo, environ, found[0]["fix"])
        assert [one["check"] for one in warned(repo, environ)] == ["sidecars"]
    assert [one["check"] for one in warned(repo, environ, "--fix")] == ([] if what == "owner" else ["repository"])


def test_a_link_in_the_place_of_our_folder_is_told_and_moved_away(repo, environ, tmp_path):
    holdfast(repo, environ, "init")
    (tmp_path / "elsewhere").mkdir()
    (repo / ".holdfast").symlink_to(tmp_path / "elsewhere")
    run(["git", "worktree", "add", "-q", str(tmp_path / "other")], repo, environ)
    shutil.rmtree(tmp_path / "other")
    found = warned(repo, environ)
    assert {"store", "ignored", "worktrees"} <= {one["check"] for one in found}
    assert [one["reason"] for one in found if one["level"] == "fail"] == ["store_foreign"]
    follow(repo, environ, found[0]["fix"])
    assert {one["check"] for one in warned(repo, environ)} == {"worktrees"}

"""`holdfast restore --in-place`: what is here is in a log before the first file changes, and every failure names the way back."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from tests.cli.test_checkpoint import environ, holdfast, home, repo, run, told

__all__ = ["environ", "home", "repo"]  # fixtures

DYING = """
import os, signal, sys
from holdfast.adapters.git import restore
from holdfast.cli.main import main
setattr(restore, sys.argv.pop(1), lambda *_: os.kill(os.getpid(), signal.SIGKILL))
sys.exit(main(sys.argv[1:]))
"""

FAILING = """
import sys
from holdfast.adapters.git import restore
from holdfast.cli.main import main
def fail(*given): raise OSError(28, "No space left on device", "some file")
setattr(restore, sys.argv.pop(1), fail)
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def one(repo, environ):
    """A checkpoint of version one, in a repository that is at version two."""
    holdfast(repo, environ, "init")
    (repo / "readme.txt").write_text("one\n")
    mark = told(repo, environ, "checkpoint", "one")
    (repo / "readme.txt").write_text("two\n")
    return mark["checkpoint_id"]


def ask(repo, environ, *words, program=("-m", "holdfast")):
    command = [sys.executable, *program, *words]
    return subprocess.run(command, cwd=repo, env=environ, capture_output=True, text=True, timeout=60, check=False)


def refs(repo, environ):
    return run(["git", "for-each-ref", "refs/holdfast"], repo, environ)


def test_with_a_store_that_cannot_be_read_nothing_is_changed_and_nothing_kept(repo, environ, one):
    (store,) = (repo / ".holdfast").glob("*.db")
    whole, before = store.read_bytes(), refs(repo, environ)
    store.write_bytes(b"no database at all" * 1000)
    failed = ask(repo, environ, "restore", one, "--in-place")
    assert failed.returncode == 78 and "Traceback" not in failed.stderr
    assert (repo / "readme.txt").read_text() == "two\n" and refs(repo, environ) == before
    store.write_bytes(whole)
    holdfast(repo, environ, "restore", one, "--in-place")
    assert (repo / "readme.txt").read_text() == "one\n"


def test_killed_before_the_first_file_changes_what_is_here_is_pending_in_a_log(repo, environ, one):
    died = ask(repo, environ, "_change_files", "restore", one, "--in-place", program=("-c", DYING))
    assert died.returncode == -signal.SIGKILL
    (pending,) = [row for row in told(repo, environ, "checkpoint", "--list")["checkpoints"] if row["pending"]]
    assert pending["kind"] == "kept aside" and pending["run_id"]
    found = told(repo, environ, "doctor")["findings"]
    assert f"holdfast restore {pending['checkpoint_id']}" in [row["fix"] for row in found]
    assert told(repo, environ, "resume")["unfinished"] == []


def test_killed_in_the_middle_the_files_that_were_here_come_back(repo, environ, one):
    died = ask(repo, environ, "put_raw", "restore", one, "--in-place", program=("-c", DYING))
    assert died.returncode == -signal.SIGKILL and (repo / "readme.txt").read_text() == "one\n"
    (kept,) = [
        row["checkpoint_id"] for row in told(repo, environ, "checkpoint", "--list")["checkpoints"] if row["pending"]
    ]
    holdfast(repo, environ, "restore", kept, "--in-place")
    assert (repo / "readme.txt").read_text() == "two\n"


def test_a_failure_after_files_began_to_change_names_the_undo(repo, environ, one):
    failed = ask(repo, environ, "put_raw", "restore", one, "--in-place", program=("-c", FAILING))
    assert failed.returncode not in (0, 1) and "Nothing" not in failed.stderr
    undo = failed.stderr.split("`")[1].split()
    assert undo[0] == "holdfast" and undo[-1] == "--in-place"
    holdfast(repo, environ, *undo[1:])
    assert (repo / "readme.txt").read_text() == "two\n"


def test_a_snapshot_that_no_log_knows_is_never_to_be_dropped_and_its_sidecar_describes_it(repo, environ):
    holdfast(repo, environ, "init")
    plain = told(repo, environ, "checkpoint", "plain")["checkpoint_id"]
    (repo / "a.txt").write_text("a\n")
    mark = told(repo, environ, "checkpoint", "--commit", "part a")
    for path in (repo / ".holdfast").glob("holdfast.db*"):
        path.unlink()
    said = [f"{row['sentence']} {row['fix']}" for row in told(repo, environ, "doctor")["findings"]]
    assert not [line for line in said if "--drop" in line]
    assert [line for line in said if f"holdfast restore {plain}" in line]
    holdfast(repo, environ, "restore", plain)
    rows = {row["checkpoint_id"]: row for row in told(repo, environ, "checkpoint", "--list")["checkpoints"]}
    said = json.loads((repo / ".holdfast" / "checkpoints" / f"{mark['checkpoint_id']}.json").read_text())
    known = rows[mark["checkpoint_id"]]
    assert (known["kind"], known["index"], known["title"]) == ("milestone", 0, "part a")
    assert known["run_id"] == said["run_id"] and rows[plain]["kind"] == "unknown"


def test_in_place_right_after_a_milestone_the_advice_runs_as_often_as_one_likes(repo, environ, one):
    mark = told(repo, environ, "checkpoint", "--commit", "two")
    (repo / "readme.txt").write_text("three\n")
    for words in (["--in-place"], ["--in-place", "--preview"]):
        failed = ask(repo, environ, "restore", mark["checkpoint_id"], *words)
        assert failed.returncode == 43, failed.stderr
        advice = failed.stderr.split("`")[1].split()
        back = told(repo, environ, *advice[1:])["restored"]["path"]
        assert run(["cat", "readme.txt"], back, environ) == "two\n"
    assert (repo / "readme.txt").read_text() == "three\n"

"""SIGKILL between every two parts of a checkpoint: the next start mends it, and nothing is lost or done twice."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

import holdfast
from holdfast.core.subjects import read_message

PROGRAM = """
import os, signal, sys
import holdfast
from holdfast.adapters.git import sidecars, workspace
from holdfast.adapters.probes.git_index import Stage
from holdfast.adapters.probes.git_runner import Git
from holdfast.engine.log import RunLog

repo, kill_at = sys.argv[1], int(sys.argv[2])
seen = 0


def boundary():
    global seen
    seen += 1
    if seen == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)


def around(owner, name):
    real = getattr(owner, name)

    def wrapped(*args, **kwargs):
        boundary()
        done = real(*args, **kwargs)
        boundary()
        return done

    setattr(owner, name, wrapped)


for owner, name in (
    (workspace, "take"), (workspace, "keep"), (sidecars, "write"), (RunLog, "record"), (Git, "move"), (Stage, "_swap"),
    (Stage, "announce"), (Stage, "clear"),
):
    around(owner, name)
with holdfast.run("kills", store=repo + "/.holdfast", run_id="run-1", policies={"tree": "warn"}) as run:
    place = run.workspace(repo)
    for name in ("a", "b"):
        with open(f"{repo}/{name}.txt", "w") as file:
            file.write(name)
        place.milestone(f"part {name}")
    place.snapshot("last")
print(seen)
"""


def git(repo, *argv):
    done = subprocess.run(["git", *argv], cwd=repo, capture_output=True, check=True)
    return done.stdout.decode().rstrip("\n")


def started(repo, kill_at=0):
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    command = [sys.executable, "-c", PROGRAM, str(repo), str(kill_at)]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    repo = tmp_path_factory.mktemp("kills") / "template"
    repo.mkdir()
    git(repo, "init", "-q", "-b", "main")
    git(repo, "config", "user.name", "A. User")
    git(repo, "config", "user.email", "user@example.org")
    (repo / ".gitignore").write_text(".holdfast/\n")
    (repo / "kept.txt").write_text("kept\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "first")
    git(repo, "switch", "-q", "-c", "work")
    return repo


def killed_and_mended(template, folder, kill_at):
    repo = folder / f"repo-{kill_at}"
    shutil.copytree(template, repo, symlinks=True)
    first = started(repo, kill_at)
    assert first.returncode == -signal.SIGKILL, first.stderr
    assert (repo / "kept.txt").read_text() == "kept\n"
    staged = git(repo, "diff", "--cached", "--name-status").split()
    assert staged == [] or staged[0] == "D", f"killed at {kill_at}: the index is ahead of HEAD"
    second = started(repo)
    assert second.returncode == 0, f"killed at {kill_at}: {second.stderr}"
    check(repo, kill_at)


def check(repo, kill_at):
    commits = git(repo, "rev-list", "--reverse", "main..work").split()
    said = [read_message(git(repo, "log", "-1", "--format=%B", sha)) for sha in commits]
    assert [one.index for one in said] == [0, 1], f"killed at {kill_at}: {said}"
    assert [git(repo, "show", f"work:{name}.txt") for name in ("a", "b", "kept")] == ["a", "b", "kept"]
    assert git(repo, "status", "--porcelain") == "", f"killed at {kill_at}"
    assert not list((repo / ".git").glob("*.lock")) and not list((repo / ".git").glob("holdfast-*"))
    assert git(repo, "stash", "list") == ""
    mirrors = [json.loads(path.read_text()) for path in (repo / ".holdfast" / "checkpoints").glob("*.json")]
    assert sorted((one["milestone_index"], one["sha"]) for one in mirrors) == list(enumerate(commits))
    assert not list((repo / ".holdfast" / "checkpoints").glob("*tmp*"))
    with holdfast.open_store(str(repo / ".holdfast"), read_only=True) as store:
        assert holdfast.verify_run(store, "run-1").findings == ()
        state = holdfast.read_state(store, "run-1")
    assert state.status == "finished" and state.checkpoint_open is None
    made = [one for one in state.workspaces.values() if one.complete]
    assert sorted(one.commit for one in made if one.commit) == sorted(commits)
    for name, one in state.workspaces.items():
        assert git(repo, "rev-parse", f"refs/holdfast/checkpoints/{name}") == one.snapshot


def test_a_kill_at_every_boundary_is_mended_by_the_next_start(template, tmp_path, tries, record_property):
    repo = tmp_path / "clean"
    shutil.copytree(template, repo, symlinks=True)
    clean = started(repo)
    assert clean.returncode == 0, clean.stderr
    check(repo, 0)
    assert int(clean.stdout) >= 30
    points = tries.part(range(1, int(clean.stdout) + 1), 8)
    for point in points:
        killed_and_mended(template, tmp_path, point)
    record_property("told", f"kills between the parts of a checkpoint: {len(points)} points, 0 broken")

"""Sidecars that contradict the log are told and mended; what is written again says no less than before, and nothing false."""

from __future__ import annotations

import json
import sys

import pytest

from tests.cli.test_checkpoint import environ, holdfast, home, repo, run, told
from tests.cli.test_doctor_repo import mark, warned

__all__ = ["environ", "home", "mark", "repo"]  # fixtures

TIERED = """
import os, holdfast
with holdfast.run('mission') as run:
    place = run.workspace('.')
    open('b.txt', 'w').write('b')
    place.milestone('b', tier='t1', verification_commands=['make test'])
    if 'DIE' in os.environ: os._exit(9)
"""


def path_of(repo, mark):
    return repo / ".holdfast" / "checkpoints" / f"{mark['checkpoint_id']}.json"


def sidecar(repo, mark):
    return json.loads(path_of(repo, mark).read_text())


def change(repo, mark, **fields):
    whole = sidecar(repo, mark) | fields
    path_of(repo, mark).write_text(json.dumps({name: value for name, value in whole.items() if value is not None}))


def rebase(repo, environ):
    """Somebody else's commit comes below the last one."""
    run(["git", "checkout", "-q", "-b", "base", "HEAD~1"], repo, environ)
    (repo / "other.txt").write_text("other\n")
    run(["git", "add", "other.txt"], repo, environ)
    run(["git", "commit", "-q", "-m", "Other"], repo, environ)
    run(["git", "checkout", "-q", "-"], repo, environ)
    run(["git", "rebase", "-q", "base"], repo, environ)
    return run(["git", "rev-parse", "HEAD"], repo, environ).strip()


@pytest.mark.parametrize(
    ("fields", "why"),
    [({"run_id": "another-run"}, "it says run another-run"), ({"milestone_index": 7}, "it says milestone 7")],
)
def test_a_sidecar_that_contradicts_the_log_is_told_set_aside_and_written_anew(repo, environ, mark, fields, why):
    before = sidecar(repo, mark)
    change(repo, mark, **fields)
    (found,) = warned(repo, environ)
    assert why in found["sentence"] and found["fix"] == "holdfast doctor --fix"
    holdfast(repo, environ, "doctor", "--fix")
    assert warned(repo, environ) == [] and sidecar(repo, mark) == before
    (kept,) = (repo / ".holdfast" / "checkpoints.set-aside").iterdir()
    assert json.loads(kept.read_text()) == before | fields, "nothing is lost"


@pytest.mark.parametrize("tree", [None, "HEAD~1^{tree}"])
def test_a_sidecar_that_names_a_commit_before_the_run_is_told(repo, environ, mark, tree):
    old = run(["git", "rev-parse", "HEAD~1"], repo, environ).strip()
    tree = tree and run(["git", "rev-parse", tree], repo, environ).strip()
    change(repo, mark, sha=old, tree=tree)
    (found,) = warned(repo, environ)
    assert old[:12] in found["sentence"]
    holdfast(repo, environ, "doctor", "--fix")
    assert sidecar(repo, mark)["sha"] == mark["commit"] and warned(repo, environ) == []


def test_a_sidecar_of_a_newer_holdfast_is_left_as_it_is(repo, environ, mark):
    change(repo, mark, schema_version=2, more="something")
    assert warned(repo, environ) == []
    assert "a newer Holdfast can read it" in holdfast(repo, environ, "doctor")
    before = path_of(repo, mark).read_bytes()
    holdfast(repo, environ, "doctor", "--fix")
    assert path_of(repo, mark).read_bytes() == before


def test_a_sidecar_that_is_linked_again_has_the_parent_of_its_commit(repo, environ, mark):
    now = rebase(repo, environ)
    holdfast(repo, environ, "doctor", "--fix")
    linked = sidecar(repo, mark)
    assert (linked["sha"], linked["parent"]) == (now, run(["git", "rev-parse", "HEAD~1"], repo, environ).strip())


def test_milestones_on_one_commit_are_linked_again_together(repo, environ, mark, tmp_path):
    (tmp_path / "two.py").write_text(TIERED.replace("    if", "    place.milestone('reviewed')\n    if"))
    run([sys.executable, str(tmp_path / "two.py")], repo, environ)
    now = rebase(repo, environ)
    holdfast(repo, environ, "doctor", "--fix")
    files = [json.loads(path.read_text()) for path in (repo / ".holdfast" / "checkpoints").iterdir()]
    one, other = sorted((file for file in files if file["sha"] == now), key=lambda file: file["milestone_index"])
    assert one["patch_id"] and one["parent"] == run(["git", "rev-parse", "HEAD~1"], repo, environ).strip()
    assert other["parent"] == now and "patch_id" not in other, "it has no change of its own"


def test_a_sidecar_whose_commit_is_on_another_branch_stays_there(repo, environ, mark):
    run(["git", "checkout", "-q", "-b", "other", "HEAD~1"], repo, environ)
    (repo / "o.txt").write_text("o\n")
    run(["git", "add", "o.txt"], repo, environ)
    run(["git", "commit", "-q", "-m", "Other"], repo, environ)
    run(["git", "cherry-pick", mark["commit"]], repo, environ)
    before = sidecar(repo, mark)
    holdfast(repo, environ, "doctor", "--fix")
    assert sidecar(repo, mark) == before


def test_what_a_lost_log_knew_of_a_milestone_is_kept_in_its_sidecar(repo, environ, mark, tmp_path):
    (tmp_path / "tiered.py").write_text(TIERED)
    command = [sys.executable, str(tmp_path / "tiered.py")]
    run(command, repo, {**environ, "DIE": "1"}, code=9)
    (row,) = [one for one in told(repo, environ, "resume")["unfinished"] if one["mission_id"] == "mission"]
    for path in (repo / ".holdfast").glob("holdfast.db*"):
        path.unlink()
    holdfast(repo, environ, "resume", row["run_id"], "--", *command)
    (name,) = [one["checkpoint_id"] for one in told(repo, environ, "checkpoint", "--list")["checkpoints"]
               if one["checkpoint_id"] != mark["checkpoint_id"]]  # fmt: skip
    made = {"checkpoint_id": name}
    before, now = sidecar(repo, made), rebase(repo, environ)
    holdfast(repo, environ, "doctor", "--fix")
    after = sidecar(repo, made)
    assert after["sha"] == now and (after["tier"], after["verification_commands"]) == ("t1", ["make test"])
    assert after["created_at"] == before["created_at"]

"""`holdfast import .runr`: the runs of another program, with their milestones; twice changes nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path


def holdfast(cwd, *words, code=0):
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    environ["HOLDFAST_STORE"] = str(Path(cwd) / "store" / "holdfast.db")
    command = [sys.executable, "-m", "holdfast", *words]
    done = subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout


def small_folder(top):
    """A folder of the same shape, written for this test."""
    run = top / ".runr" / "runs" / "20260104120000"
    run.mkdir(parents=True)
    state = {"run_id": "20260104120000", "phase": "STOPPED", "milestone_index": 1, "stop_reason": "guard_violation",
             "milestones": [{"goal": "first part"}, {"goal": "second part"}]}  # fmt: skip
    (run / "state.json").write_text(json.dumps(state))
    events = [
        {"seq": 1, "timestamp": "2026-01-04T12:00:00Z", "type": "run_started", "payload": {"a": 1}, "source": "cli"}
    ]
    (run / "timeline.jsonl").write_text("".join(json.dumps(one) + "\n" for one in events) + '{"seq": 2, "ty')
    sidecars = top / ".runr" / "checkpoints"
    sidecars.mkdir()
    sha = "ab" * 20
    sidecar = {"schema_version": 1, "sha": sha, "run_id": "20260104120000", "milestone_index": 0,
               "milestone_title": "first part", "created_at": "2026-01-04T12:01:00Z", "tier": "tier0"}  # fmt: skip
    (sidecars / f"{sha}.json").write_text(json.dumps(sidecar))
    return top / ".runr"


def test_a_run_comes_in_with_its_milestone_and_its_stop_and_a_torn_line_is_named(tmp_path):
    folder = small_folder(tmp_path)
    told = json.loads(holdfast(tmp_path, "import", str(folder), "--json"))
    assert [(one["run_id"], one["new"], one["milestones"]) for one in told["runs"]] == [
        ("runr-20260104120000", True, 1)
    ]
    assert any("timeline.jsonl" in one["path"] and one["line"] == 2 for one in told["problems"])
    state = json.loads(holdfast(tmp_path, "show", "runr-20260104120000", "--json"))["state"]
    assert (state["status"], state["stop_reason"], state["plan"]) == (
        "stopped",
        "guard_violation",
        ["first part", "second part"],
    )
    (made,) = state["workspaces"].values()
    assert (made["index"], made["title"], made["commit"]) == (0, "first part", "ab" * 20)
    again = json.loads(holdfast(tmp_path, "import", str(folder), "--json"))
    assert [one["new"] for one in again["runs"]] == [False]
    assert json.loads(holdfast(tmp_path, "verify", "--json"))


def test_a_folder_that_is_none_of_its_own_is_refused(tmp_path):
    holdfast(tmp_path, "import", str(tmp_path), code=65)
    assert not (tmp_path / "store").exists()


def test_every_folder_of_the_corpus_comes_in(tmp_path, corpus):
    folders = sorted((corpus / "runr-runs").glob("*/dot-runr"))
    assert folders
    for number, folder in enumerate(folders):
        place = tmp_path / str(number)
        place.mkdir()
        shutil.copytree(folder, place / ".runr")
        told = json.loads(holdfast(place, "import", ".runr", "--json"))
        assert told["runs"], folder
        holdfast(place, "verify")

"""Behaviours that no other test shows: newer events, every exit code, advice that runs, a lost right to write, long runs."""

from __future__ import annotations

import hashlib
import json
import shlex
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from holdfast import app
from holdfast.cli.main import perform
from holdfast.core import stops
from holdfast.core.errors import NewerSchema
from holdfast.core.events import (
    CheckpointComplete,
    EffectStarted,
    NoteRecorded,
    QuestionAsked,
    RunResumed,
    RunStopped,
    StepFinished,
    StepStarted,
)
from holdfast.core.state import snapshot
from holdfast.engine.log import read_state, verify_run
from tests.cli.test_log import append_raw
from tests.cli.test_reads_never_write import powerless

LONG = "long"


# --- behaviour 14


@pytest.mark.parametrize(("kind", "version"), [("step_levitated", 1), ("note_recorded", 99)])
def test_a_run_with_an_event_of_a_newer_holdfast_can_be_looked_at_and_is_not_written_to(
    holdfast, make_run, tmp_path, kind, version
):
    make_run("run-1", ending="")
    append_raw(holdfast.place, "run-1", (kind, version, b'{"text":"from later"}'))
    seen = holdfast("log", "run-1").out.splitlines()
    assert kind in seen[-1] and holdfast("status").code == 0
    assert holdfast("export", "run-1", str(tmp_path / "out.jsonl")).code == 0
    assert "from later" in (tmp_path / "out.jsonl").read_text()
    with pytest.raises(NewerSchema):
        app.record("run-1", NoteRecorded(text="by us"), place=str(holdfast.place))
    refused = holdfast("resume", "run-1", "--", "true")
    assert refused.code == stops.exit_code("newer_schema") and kind in refused.err
    assert holdfast("log", "run-1").out.splitlines() == seen


@pytest.mark.parametrize("version", ["1.1.0", "2.0.0"])
def test_a_newer_snapshot_is_one_warning_and_no_hindrance(holdfast, make_run, version):
    """It is a cache: the log is there to be read, and is written to."""
    make_run("run-1")
    leave_newer_snapshot(holdfast.place, version)
    told = holdfast("verify")
    assert told.code == 0 and [line.split()[0] for line in told.out.splitlines()].count("warn") == 1, told
    assert holdfast("show", "run-1", "--json").data["state"]["steps_done"] == 2
    app.record("run-1", RunResumed(epoch=9), NoteRecorded(text="by us"), place=str(holdfast.place))
    with closing(app.open_store(str(holdfast.place), read_only=True)) as store:
        state = read_state(store, "run-1")
    assert (state.steps_done, state.notes, state.status) == (2, 1, "running")


def leave_newer_snapshot(place: Path, version: str) -> None:
    with closing(app.open_store(str(place))) as store:
        head = store.head("run-1")
        assert head is not None
        data = json.dumps(json.loads(snapshot(read_state(store, "run-1"))) | {"schema_version": version, "later": 1})
        seal = hashlib.sha256(b"holdfast/snapshot/1\n" + head.hash + data.encode()).hexdigest()
        store.save_snapshot("run-1", head.seq, f"{seal}\n{data}".encode())


# --- behaviour 170

STOPS = """
import os, sys
import holdfast
for reason in sys.argv[1:]:
    if (pid := os.fork()) == 0:
        raise holdfast.Stopped("run-1", reason)
    print(reason, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


def test_a_process_that_a_stop_ends_leaves_with_the_code_of_the_registry(holdfast):
    told = {row["code"]: row["exit_code"] for row in holdfast("stops", "--json").data["stops"]}
    assert len(told) == len(stops.all_stops())
    command = [sys.executable, "-c", STOPS, *told, "no_such_reason"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    left = dict(line.split() for line in done.stdout.splitlines())
    assert {reason: int(code) for reason, code in left.items()} == told | {"no_such_reason": 1}


# --- behaviour 190

QUESTION = QuestionAsked(question_id="q1", text="Which colour?")


@pytest.fixture
def at_home(holdfast, monkeypatch):
    """Commands in this process, in a repository: some hundred are too many to start."""
    subprocess.run(["git", "init", "-q", str(holdfast.home)], check=True, timeout=30)
    monkeypatch.chdir(holdfast.home)
    for name, value in (("HOLDFAST_STORE", str(holdfast.place)), ("HOME", str(holdfast.home))):
        monkeypatch.setenv(name, value)
    return holdfast


def test_every_command_that_a_stop_suggests_runs(at_home, capsys):
    """Understood, and no defect of ours: what it then finds depends on the run. A person who is asked says blue."""
    defects, tried = [], 0
    for number, stop in enumerate(stops.all_stops()):
        run_id = f"run-{number}"
        rest_at(at_home.place, run_id, stop.code)
        perform(["diagnose", run_id, "--json"])
        for line in json.loads(capsys.readouterr().out)["next_actions"]:
            words = shlex.split(line["command"])
            code = perform([*words[1:], *(["blue"] if words[1] == "answer" else [])])
            said = capsys.readouterr().err
            tried += 1
            if code in (stops.exit_code("usage_error"), stops.exit_code("internal_error"), 1):
                defects.append(f"{stop.code}: {words}: {code}, {said}")
    assert defects == [] and tried > 100


def rest_at(place: Path, run_id: str, reason: str) -> None:
    with closing(app.open_store(str(place))) as store:
        log = app.start_run(store, "mission", run_id=run_id)
        log.record(EffectStarted(effect_key="mail-1", step_id="step-0"), QUESTION, RunStopped(reason=reason))
        log.close()


# --- behaviour 183


def test_a_store_that_we_may_no_longer_write_is_named_and_its_log_is_whole(holdfast, make_run):
    make_run("run-1", ending="")
    before = holdfast("log", "run-1").out
    folder = holdfast.place.parent
    for path in folder.iterdir():
        path.chmod(0o400)
    folder.chmod(0o500)
    try:
        holdfast.prefix = powerless()
        refused = holdfast("cancel", "run-1")
        assert refused.code in (stops.exit_code("store_read_only"), stops.exit_code("store_unreadable")), refused
    finally:
        folder.chmod(0o700)
        for path in folder.iterdir():
            path.chmod(0o600)
    holdfast.prefix = ()
    assert holdfast("log", "run-1").out == before and holdfast("verify").code == 0
    app.record("run-1", NoteRecorded(text="and on it goes"), place=str(holdfast.place))
    with closing(app.open_store(str(holdfast.place), read_only=True)) as store:
        assert verify_run(store, "run-1").findings == ()


# --- behaviour 188


def write_long(place: Path) -> None:
    """90,000 events of steps and 10,000 checkpoints."""
    with closing(app.open_store(str(place))) as store:
        log = app.start_run(store, "mission", run_id=LONG)
        for block in range(45):
            names = [f"step-{block}-{number}" for number in range(1000)]
            log.record(*(made(step_id=name) for name in names for made in (StepStarted, StepFinished)))
        for block in range(10):
            log.record(*(CheckpointComplete(checkpoint_id=f"c-{block}-{number}") for number in range(1000)))
        log.close()


def test_a_hundred_thousand_events_and_ten_thousand_checkpoints_are_no_burden(holdfast, make_run):
    make_run("short", ending="")
    short = min(seconds(holdfast, "status", "short") for _ in range(3))
    write_long(holdfast.place)
    listed = min(seconds(holdfast, "status", LONG) for _ in range(3))
    assert listed < 3 * short, (listed, short)
    for words in (["resume"], ["resume", LONG, "--plan"], ["doctor"]):
        assert seconds(holdfast, *words) < 10, words


def seconds(holdfast, *words: str) -> float:
    began = time.monotonic()
    answer = holdfast(*words)
    assert answer.code == 0, answer
    return time.monotonic() - began

"""`holdfast show` explains a run, or one thing of it, and gives stored bytes back unchanged."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing

import apsw
import pytest

from holdfast import app
from holdfast.core.events import CheckpointComplete, EffectStarted, StepFinished, StepStarted
from holdfast.core.stops import exit_code

BYTES = b"\x00\xff\x1b[31mnot text\n" * 50


@pytest.fixture
def rich_run(holdfast) -> str:
    """A run with a step that kept an artifact, a checkpoint and an open effect; returns the artifact's digest."""
    with closing(app.open_store(str(holdfast.place))) as store:
        digest = store.put_artifact(BYTES)
        log = app.start_run(store, "mission", run_id="run-1", title="Rich")
        log.record(StepStarted(step_id="build"), StepFinished(step_id="build", artifact=digest))
        log.record(CheckpointComplete(checkpoint_id="cp-1", step_id="build", cursor="after-build"))
        log.record(EffectStarted(effect_key="mail:7", step_id="send", policy="once"))
        log.close()
    return digest


def test_a_run_is_summed_up(holdfast, rich_run):
    out = holdfast("show", "run-1").out
    for word in ("run-1", "Rich", "cp-1", "after-build", "build", "mail:7", "interrupted"):
        assert word in out


def test_the_state_is_the_fold_as_json(holdfast, rich_run):
    data = holdfast("show", "run-1", "--json").data
    assert data["schema_version"] == 1
    assert data["state"]["schema_version"] == "1.0.0"
    assert data["state"]["steps"]["build"]["artifact"] == rich_run
    assert data["run"]["events"] == data["state"]["seq"] == 5


def test_an_event_is_shown_whole(holdfast, rich_run):
    event = holdfast("show", "run-1", "3", "--json").data["event"]
    assert (event["seq"], event["kind"], event["body"]["artifact"]) == (3, "step_finished", rich_run)
    assert rich_run in holdfast("show", "run-1", "3").out


@pytest.mark.parametrize(
    ("thing", "what", "events"), [("build", "step", [2, 3, 4]), ("cp-1", "checkpoint", [4]), ("mail:7", "effect", [5])]
)
def test_a_named_thing_is_shown_with_its_events(holdfast, rich_run, thing, what, events):
    data = holdfast("show", "run-1", thing, "--json").data
    assert (data["what"], [event["seq"] for event in data["events"]]) == (what, events)
    assert holdfast("show", "run-1", thing).out.startswith(what)


def test_an_artifact_comes_back_byte_for_byte(holdfast, rich_run, tmp_path):
    data = holdfast("show", "run-1", rich_run, "--json").data["artifact"]
    assert (data["bytes"], data["events"], data["text"]) == (len(BYTES), [3], False)
    piped = subprocess.run(
        [sys.executable, "-m", "holdfast", "show", "run-1", rich_run, "--raw"],
        env=holdfast.environment(),
        capture_output=True,
        check=True,
    )
    assert piped.stdout == BYTES
    file = tmp_path / "out.bin"
    assert holdfast("show", "run-1", rich_run, "-o", str(file)).code == 0
    assert file.read_bytes() == BYTES
    assert file.stat().st_mode & 0o777 == 0o600


def test_no_file_of_yours_is_written_over(holdfast, rich_run, tmp_path):
    file, link = tmp_path / "mine", tmp_path / "link"
    file.write_text("mine")
    os.symlink(tmp_path / "elsewhere", link)
    for path in (file, link):
        assert holdfast("show", "run-1", rich_run, "-o", str(path)).code == 64
    assert file.read_text() == "mine"
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("thing", ["99", "0", "nothing", "a" * 64, "../x", "-1"])
def test_what_is_not_there_is_named(holdfast, rich_run, thing):
    answer = holdfast("show", "--", "run-1", thing)
    assert answer.code == 66
    assert "Traceback" not in answer.err


def test_a_damaged_artifact_is_never_handed_out(holdfast, rich_run):
    import apsw

    connection = apsw.Connection(str(holdfast.place))
    connection.execute("update artifacts set data = zeroblob(length(data))")
    connection.close()
    answer = holdfast("show", "run-1", rich_run, "--raw")
    assert (answer.code, answer.out) == (100, "")


def test_a_log_with_a_broken_chain_is_not_summed_up(holdfast, rich_run):
    import apsw

    connection = apsw.Connection(str(holdfast.place))
    connection.execute("update events_1 set body = replace(body, 'build', 'guild')")
    connection.close()
    assert holdfast("show", "run-1").code == 100
    log = holdfast("log", "run-1")
    assert (log.code, "guild" in log.out) == (100, True)


def test_an_artifact_is_found_by_the_beginning_of_its_digest(holdfast, rich_run, tmp_path):
    assert holdfast("show", "run-1", rich_run[:8], "--json").data["artifact"]["digest"] == rich_run
    assert holdfast("show", "run-1", rich_run[:10], "-o", str(tmp_path / "out")).code == 0
    assert (tmp_path / "out").read_bytes() == BYTES
    assert holdfast("show", "run-1", "0" * 9).code == exit_code("not_found")
    with closing(app.open_store(str(holdfast.place))) as store, app.write_run(store, "run-1") as log:
        log.record(StepStarted(step_id="a"), StepFinished(step_id="a", artifact=rich_run[:9] + "0" * 55))
    assert "Give more" in holdfast("show", "run-1", rich_run[:8]).err


def test_what_was_changed_behind_our_back_is_not_shown_as_if_it_were_written(holdfast, rich_run):
    connection = apsw.Connection(str(holdfast.place))
    connection.execute("update events_1 set body = replace(body, 'build', 'forge') where kind = 'step_finished'")
    connection.close()
    for thing in ("3", "forge", "4"):
        answer = holdfast("show", "run-1", thing)
        assert (answer.code, answer.out) == (exit_code("log_damaged"), ""), thing
    assert holdfast("show", "run-1", "2").code == 0
    assert b"forge" in holdfast("show", "run-1", "3", "--raw").out.encode()


def test_only_an_event_or_an_artifact_has_bytes(holdfast, rich_run):
    answer = holdfast("show", "run-1", "build", "--raw")
    assert answer.code == exit_code("usage_error")
    assert "Only an event or an artifact has bytes to write." in answer.err
    assert holdfast("show", "run-1", "nobody", "--raw").code == exit_code("not_found")


def test_stored_bytes_are_no_json_document(holdfast, rich_run):
    answer = holdfast("show", "run-1", "1", "--raw", "--json")
    assert (answer.code, answer.data["error"]["reason"]) == (exit_code("usage_error"), "usage_error")
    assert answer.data["schema_version"] == 1

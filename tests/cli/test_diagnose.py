"""`holdfast diagnose`: from the log alone, and it writes nothing."""

from __future__ import annotations

from contextlib import closing

import pytest

from holdfast import app
from holdfast.core.events import RunStopped, StepFailed, StepStarted
from holdfast.core.missions import mission_of_spec
from holdfast.core.stops import exit_code
from tests.cli.test_reads_never_write import picture


def failed_run(holdfast, error: str) -> None:
    with closing(app.open_store(str(holdfast.place))) as store, app.start_run(store, "mission", run_id="run-1") as log:
        log.record(StepStarted(step_id="a", phase="implement"), StepFailed(step_id="a", error=error))
        log.record(RunStopped(reason="worker_failed", diagnosis="It did not end well."))


def test_it_says_why_how_sure_and_what_next(holdfast):
    failed_run(holdfast, "Error: 401 Unauthorized\x1b[2J")
    before = picture(holdfast.place.parent)
    answer = holdfast("diagnose", "run-1")
    assert answer.code == 0 and "auth_expired, confidence 0.95" in answer.out
    assert "worker_failed (worker, exit code 31)" in answer.out and "\x1b" not in answer.out
    assert "  holdfast resume run-1\n" in answer.out and "phase      implement" in answer.out
    data = holdfast("diagnose", "run-1", "--json").data
    assert (data["primary_diagnosis"], data["stop_reason"], data["schema_version"]) == (
        "auth_expired",
        "worker_failed",
        1,
    )
    assert data["signals"] == [
        {"source": "step", "pattern": "401 unauthorized", "snippet": "Error: 401 Unauthorized?[2J"}
    ]
    assert data["progress"]["task"] == "a" and data["diagnosed_at"].endswith("Z")
    assert picture(holdfast.place.parent) == before and list(holdfast.home.iterdir()) == []


def test_a_run_that_was_cut_off_and_one_that_is_done(holdfast, make_run):
    make_run("run-1", ending="")
    make_run("run-2", ending="finished")
    assert holdfast("diagnose", "run-1", "--json").data["stop_reason"] == "interrupted"
    data = holdfast("diagnose", "run-2", "--json").data
    assert (data["outcome"], data["resume_command"]) == ("complete", None)


def test_an_unknown_effect_leads_to_the_commands_that_settle_it(holdfast, make_run):
    make_run("run-1", ending="open")
    with closing(app.open_store(str(holdfast.place))) as store, app.write_run(store, "run-1") as log:
        log.record(RunStopped(reason="effect_unknown"))
    actions = holdfast("diagnose", "run-1", "--json").data["next_actions"]
    assert actions[0]["command"] == "holdfast settle run-1 --done mail-1"


def test_a_run_that_lives_has_no_diagnosis(holdfast, writer):
    writer("run-1")
    answer = holdfast("diagnose", "run-1")
    assert answer.code == exit_code("usage_error") and "is not at rest" in answer.err
    assert holdfast("diagnose", "nobody").code == exit_code("not_found")


def test_a_mission_or_a_spec_is_named_for_its_newest_run(holdfast):
    for run_id, mission in (("a-1", "mission"), ("a-2", "mission"), ("a-3", "spec.auth"), ("a-4", "other")):
        with closing(app.open_store(str(holdfast.place))) as store, app.start_run(store, mission, run_id=run_id) as log:
            log.record(RunStopped(reason="worker_failed"))
    for text, run_id in (("mission", "a-2"), ("auth", "a-3"), ("spec.auth", "a-3"), ("a-1", "a-1")):
        assert holdfast("diagnose", text, "--json").data["run_id"] == run_id
        assert holdfast("show", text, "--json").data["run"]["run_id"] == run_id
    assert holdfast("cancel", "auth", "--json").data
    assert holdfast("show", "a-3", "--json").data["state"]["stop_reason"] == "cancelled"
    assert holdfast("log", "nobody").code == exit_code("not_found")


@pytest.mark.parametrize("name", ["my spec", "Auth", "spec.x", "é", "~", "a" * 80])
def test_a_spec_is_named_as_its_folder_is_called(holdfast, name):
    with closing(app.open_store(str(holdfast.place))) as store:
        app.start_run(store, mission_of_spec(name), run_id="a-1").close()
    assert holdfast("show", name, "--json").data["run"]["run_id"] == "a-1"
    assert holdfast("show", f"{name}/", "--json").data["error"]["reason"] == "bad_input"

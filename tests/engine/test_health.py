"""What doctor says of a store that cannot be read, or not wholly: what is wrong and what to do, and never to ask doctor."""

from __future__ import annotations

import json
from pathlib import Path

import apsw
import pytest

from holdfast import app
from holdfast.cli.main import perform
from holdfast.core import errors, stops
from holdfast.core.events import NoteRecorded
from holdfast.engine.health import NAMED, what_to_do

DAMAGED = stops.exit_code("log_damaged")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with runs that are at rest, where the command line finds it; no repository around it."""
    monkeypatch.setenv("HOLDFAST_STORE", str(tmp_path / "here"))
    monkeypatch.chdir(tmp_path)
    store = app.open_store()
    for number in range(1, 8):
        with app.start_run(store, "m", run_id=f"run-{number}") as log:
            log.record(NoteRecorded(text="one"))
    store.close()
    return tmp_path / "here" / "holdfast.db"


def alter(place: Path, statement: str) -> None:
    """A change by another hand, in a store whose witness is gone as well."""
    connection = apsw.Connection(str(place))
    connection.execute(statement)
    connection.close()
    place.with_name("holdfast.db-witness").unlink()


def doctor(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[dict[str, str]]]:
    code = perform(["doctor", "--json", *arguments])
    return code, json.loads(capsys.readouterr().out)["findings"]


def failures(findings: list[dict[str, str]]) -> list[dict[str, str]]:
    return [finding for finding in findings if finding["level"] == "fail"]


def test_runs_that_are_not_listed_are_named(place, capsys):
    alter(place, "delete from runs where run_no in (2, 3)")
    code, findings = doctor(capsys)
    assert code == DAMAGED
    assert [(found["check"], found["reason"]) for found in failures(findings)] == [("runs", "log_damaged")] * 2
    assert [found["sentence"].partition(":")[0] for found in failures(findings)] == [
        "Run number 2, event 2",
        "Run number 3, event 2",
    ]
    assert all("put a backup" in found["sentence"] for found in failures(findings))


def test_many_lost_runs_are_counted(place, capsys):
    alter(place, "delete from runs")
    code, findings = doctor(capsys)
    assert code == DAMAGED
    assert len(failures(findings)) == NAMED + 1
    assert failures(findings)[-1]["sentence"] == "2 more runs are lost."


def test_a_run_without_its_events_is_accepted_by_the_word(place, capsys):
    alter(place, "delete from events_1")
    code, findings = doctor(capsys)
    assert (code, [found["fix"] for found in failures(findings)]) == (DAMAGED, ["holdfast doctor --fix --accept-loss"])
    assert doctor(capsys, "--fix", "--accept-loss")[0] == 0
    assert perform(["verify"]) == 0


def test_a_loss_that_the_witness_knows_can_be_accepted_and_the_rest_goes_on(place, capsys):
    connection = apsw.Connection(str(place))
    connection.execute("delete from runs where run_no = 2")
    connection.close()
    assert doctor(capsys)[0] == stops.exit_code("tail_lost")
    code, findings = doctor(capsys, "--fix", "--accept-loss")
    assert code == DAMAGED
    assert [found["check"] for found in failures(findings)] == ["runs"]
    assert perform(["status"]) == 0
    app.record("run-3", NoteRecorded(text="it goes on"))


def test_a_row_that_cannot_be_read_is_told_once_and_with_what_to_do(place, capsys):
    alter(place, "update runs set started_at = null where run_no = 4")
    code, findings = doctor(capsys)
    assert code == stops.exit_code("store_unreadable")
    (found,) = failures(findings)
    assert "the row of run run-4 has columns of a wrong type" in found["sentence"]
    assert found["sentence"].endswith("put a backup of the store in their place.")
    assert "disk" in {found["check"] for found in findings}


@pytest.mark.parametrize("arguments", [[], ["--fix"]])
def test_doctor_does_not_send_to_doctor(place, capsys, arguments):
    alter(place, "update store set store_id = 'x'")
    assert perform(["doctor", *arguments]) == stops.exit_code("store_unreadable")
    said = "".join(capsys.readouterr())
    assert "does not say which store it is" in said
    assert "put a backup" in said
    assert "holdfast doctor" not in said


def kinds(kind: type[errors.HoldfastError]) -> list[type[errors.HoldfastError]]:
    return [kind, *(found for child in kind.__subclasses__() for found in kinds(child))]


@pytest.mark.parametrize("kind", kinds(errors.StoreError))
def test_no_advice_for_a_store_is_to_look_with_doctor(kind):
    assert "doctor" not in what_to_do(kind("here", "broken"))
    assert what_to_do(kind("here", "broken"))

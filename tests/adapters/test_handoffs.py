"""Handoffs on disk: whole, in the right place, gone when the run goes on, and never a reason to fail."""

import json
import os
import shutil

import pytest

from holdfast.adapters.handoffs import Written, folder_of, gone, write
from holdfast.core.diagnosis import diagnose
from holdfast.core.errors import InvalidId
from holdfast.core.handoff import Context, handoff
from holdfast.core.shapes import RunState


def handed(reason="stalled"):
    state = RunState(run_id="run-1", status="stopped", stop_reason=reason)
    return handoff(state, diagnose(state), Context("2026-01-01T00:00:00.000000Z"))


def names(tmp_path):
    return sorted(os.listdir(folder_of(str(tmp_path), "run-1")))


def test_a_stop_leaves_two_files(tmp_path):
    found = write(str(tmp_path), handed())
    folder = tmp_path / ".holdfast" / "runs" / "run-1"
    assert found == Written((str(folder / "stop.md"), str(folder / "stop.json")))
    assert json.loads((folder / "stop.json").read_bytes())["stop_reason"] == "stalled"
    assert (folder / "stop.md").read_text().startswith("# Run stalled")
    assert write(str(tmp_path), handed()) == found and names(tmp_path) == ["stop.json", "stop.md"]


def test_only_the_last_rest_is_there(tmp_path):
    write(str(tmp_path), handed())
    assert write(str(tmp_path), handed("complete")).problem == ""
    assert names(tmp_path) == ["complete.json", "complete.md"]
    write(str(tmp_path), handed("user_stopped"))
    assert names(tmp_path) == ["stop.json", "stop.md"]


def test_a_run_that_goes_on_leaves_nothing_stale(tmp_path):
    assert gone(str(tmp_path), "run-1") == Written() and not os.listdir(tmp_path)
    write(str(tmp_path), handed())
    (tmp_path / ".holdfast" / "runs" / "run-1" / "other").write_text("kept")
    assert gone(str(tmp_path), "run-1") == Written() == gone(str(tmp_path), "run-1")
    assert names(tmp_path) == ["other"]


@pytest.mark.parametrize("part", [".holdfast", ".holdfast/runs", ".holdfast/runs/run-1"])
def test_no_link_is_followed(tmp_path, part):
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "runs" / "run-1").mkdir(parents=True)
    (tmp_path / part).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / part).symlink_to(elsewhere)
    found = write(str(tmp_path), handed())
    assert found.paths == () and "symbolic link" in found.problem
    assert "symbolic link" in gone(str(tmp_path), "run-1").problem or part != ".holdfast/runs/run-1"
    assert not [name for _, _, files in os.walk(elsewhere) for name in files]


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_written_through(tmp_path):
    write(str(tmp_path), handed())
    (tmp_path / "precious").write_text("mine")
    path = tmp_path / ".holdfast" / "runs" / "run-1" / "stop.json"
    path.unlink()
    path.symlink_to(tmp_path / "precious")
    assert write(str(tmp_path), handed()).problem == ""
    assert (tmp_path / "precious").read_text() == "mine" and not path.is_symlink()


def test_what_cannot_be_written_is_returned(tmp_path):
    write(str(tmp_path), handed())
    folder = tmp_path / ".holdfast" / "runs" / "run-1"
    (folder / "stop.json").unlink()
    (folder / "stop.json").mkdir()
    assert "it cannot be changed or read" in write(str(tmp_path), handed()).problem
    shutil.rmtree(tmp_path / ".holdfast")
    (tmp_path / ".holdfast").write_text("a file")
    assert write(str(tmp_path), handed()).problem and write(str(tmp_path / "not there"), handed()).problem


def test_a_run_cannot_name_another_place(tmp_path):
    with pytest.raises(InvalidId):
        folder_of(str(tmp_path), "../x")

"""Reads never write: every file of the store is the same before and after every command that reads, in every situation."""

from __future__ import annotations

import hashlib
import os
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from holdfast import app
from holdfast.core import stops
from tests.cli.conftest import paused

READS = {
    "status": ["status"],
    "status of all": ["status", "--all", "--json"],
    "status of one": ["status", "run-1"],
    "log": ["log", "run-1"],
    "log as json": ["log", "run-1", "--json"],
    "show": ["show", "run-1"],
    "show an event": ["show", "run-1", "2"],
    "show a step": ["show", "run-1", "step-0", "--json"],
    "show bytes": ["show", "run-1", "1", "--raw"],
    "resume": ["resume"],
    "resume as json": ["resume", "--json"],
    "a plan": ["resume", "run-1", "--plan"],
    "a plan as json": ["resume", "run-1", "--plan", "--json", "--", "no-such-command"],
    "a plan that was approved before": ["resume", "run-1", "--approve", "0000000000000000"],
    "diagnose": ["diagnose", "run-1", "--json"],
    "stops": ["stops"],
    "doctor": ["doctor", "--json"],
    "verify": ["verify"],
    "verify one": ["verify", "run-1", "--json"],
    "export": ["export", "run-1", "{elsewhere}/run.jsonl", "--force"],
    "import of a bad file": ["import", "{elsewhere}/bad.jsonl"],
    "completion": ["completion", "bash"],
    "a wrong command": ["status", "--no-such-option"],
    "an unknown run": ["log", "nobody"],
}
REFUSED = {"import of a bad file", "a wrong command", "an unknown run", "a plan that was approved before"}


def picture(folder: Path) -> dict[str, tuple[int, int, int, int, str]]:
    """Name, inode, mode, size, time of change and content of everything in a folder, and of the folder."""
    found = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        seen = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path)] = (seen.st_ino, seen.st_mode, seen.st_size, seen.st_mtime_ns, content)
    return found


def check_all_reads(holdfast, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    (elsewhere / "bad.jsonl").write_text("[]\n")
    before = picture(holdfast.place.parent)
    for name, arguments in READS.items():
        answer = holdfast(*(part.format(elsewhere=elsewhere) for part in arguments))
        assert (answer.code != 0) == (name in REFUSED), (name, answer)
        assert picture(holdfast.place.parent) == before, name
    assert list(holdfast.home.iterdir()) == []
    leftovers = [path for path in (tmp_path / "tmp").glob("*") if path.name.startswith("holdfast")]
    assert leftovers == []


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))


def test_of_a_store_at_rest(holdfast, make_run, tmp_path):
    make_run("run-1")
    make_run("run-2", ending="finished")
    check_all_reads(holdfast, tmp_path)


def test_beside_a_live_writer(holdfast, make_run, writer, tmp_path):
    make_run("run-1")
    process = writer("run-2")
    with paused(process):
        check_all_reads(holdfast, tmp_path)
        assert "running" in holdfast("status").out


def test_after_a_writer_was_killed(holdfast, make_run, writer, tmp_path):
    make_run("run-1")
    process = writer("run-2")
    process.kill()
    process.wait()
    assert Path(f"{holdfast.place}-wal").stat().st_size > 0
    check_all_reads(holdfast, tmp_path)
    assert holdfast("status", "run-2", "--json").data["run"]["events"] == 5


def test_of_a_log_with_unmerged_pages_and_no_index_of_them(holdfast, make_run, tmp_path):
    make_run("run-1")
    Path(f"{holdfast.place}-shm").unlink()
    assert Path(f"{holdfast.place}-wal").stat().st_size > 0
    check_all_reads(holdfast, tmp_path)
    assert holdfast("status", "run-1", "--json").data["run"]["events"] == 6


def test_of_a_database_file_alone(holdfast, make_run, tmp_path):
    make_run("run-1")
    settle(holdfast.place)
    check_all_reads(holdfast, tmp_path)


def settle(place: Path) -> None:
    import apsw

    with closing(apsw.Connection(str(place))) as connection:
        connection.execute("pragma wal_checkpoint(truncate)").fetchall()
    for end in ("-wal", "-shm", "-witness", "-lock"):
        Path(f"{place}{end}").unlink(missing_ok=True)


def powerless() -> tuple[str, ...]:
    """A prefix that takes root's right to write where nobody may; nothing when we are not root."""
    if os.geteuid() != 0:
        return ()
    if shutil.which("setpriv") is None:
        pytest.skip("as root this needs setpriv")
    return ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--")


@pytest.mark.parametrize("leftover", ["wal and shm", "wal alone", "neither"])
def test_of_a_folder_that_cannot_be_written(holdfast, make_run, tmp_path, leftover):
    make_run("run-1")
    if leftover == "wal alone":
        Path(f"{holdfast.place}-shm").unlink()
    elif leftover == "neither":
        settle(holdfast.place)
    folder = holdfast.place.parent
    for path in folder.iterdir():
        path.chmod(0o400)
    folder.chmod(0o500)
    holdfast.prefix = powerless()
    try:
        check_all_reads(holdfast, tmp_path)
        refused = holdfast("doctor", "--fix")
        assert refused.code in (stops.exit_code("store_read_only"), stops.exit_code("store_unreadable")), refused
    finally:
        folder.chmod(0o700)


def test_the_picture_sees_every_kind_of_change(holdfast, make_run):
    """The test above is only as good as its eyes."""
    make_run("run-1")
    before = picture(holdfast.place.parent)
    with closing(app.open_store(str(holdfast.place))) as store:
        assert store.head("run-1") is not None
    opened_for_writing = picture(holdfast.place.parent)
    app.record("run-1", *notes(), place=str(holdfast.place))
    assert before.keys() == opened_for_writing.keys()
    assert picture(holdfast.place.parent) != opened_for_writing


def notes():
    from holdfast.core.events import NoteRecorded

    return [NoteRecorded(text="x")]

"""Reads never write: every file of the store is the same before and after every command that reads, in every situation."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from holdfast import app
from holdfast.cli.log import POLL
from holdfast.core import stops
from holdfast.testing.postgres import PostgresServer, available, shared_server
from tests.cli.conftest import paused

READS = {
    "status": ["status"],
    "status of all": ["status", "--all", "--json"],
    "status of one": ["status", "run-1"],
    "status of an unknown run": ["status", "nobody"],
    "log": ["log", "run-1"],
    "log as json": ["log", "run-1", "--json"],
    "log, following": ["log", "run-1", "--follow", "--limit", "3"],
    "show": ["show", "run-1"],
    "show an event": ["show", "run-1", "2"],
    "show a step": ["show", "run-1", "step-0", "--json"],
    "show bytes": ["show", "run-1", "1", "--raw"],
    "show an artifact": ["show", "run-1", "{artifact}", "--raw"],
    "show an artifact as json": ["show", "run-1", "{artifact}", "--json"],
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
    "export to the terminal": ["export", "run-1", "-"],
    "import of a bad file": ["import", "{elsewhere}/bad.jsonl"],
    "completion": ["completion", "bash"],
    "a wrong command": ["status", "--no-such-option"],
    "an unknown run": ["log", "nobody"],
}
REFUSED = {
    "import of a bad file", "a wrong command", "an unknown run", "a plan that was approved before", "status of an unknown run",
}  # fmt: skip
KEPT = b"kept by its hash " * 400
ROWS = "select ctid::text, xmin::text, xmax::text, one::text from {} one order by ctid"
TABLES = "select 'holdfast.' || relname from pg_class where relkind in ('r', 'S') and relnamespace = 'holdfast'::regnamespace"
CLASSES = "select oid, relname, relfilenode from pg_class where relnamespace = 'holdfast'::regnamespace"


def picture(folder: Path) -> dict[str, tuple[int, int, int, int, str]]:
    """Name, inode, mode, size, time of change and content of everything in a folder, and of the folder."""
    found = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        seen = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path)] = (seen.st_ino, seen.st_mode, seen.st_size, seen.st_mtime_ns, content)
    return found


def rows(server: PostgresServer, database: str) -> dict[str, list[tuple[object, ...]]]:
    """Place, transactions and content of every row of every table and sequence, and of what says which there are."""
    names = [name for (name,) in server.execute(TABLES, database)]
    assert {"holdfast.runs", "holdfast.events", "holdfast.artifacts"} <= set(names)
    found = {name: server.execute(ROWS.format(name), database) for name in names}
    return found | {"all": sorted(server.execute(CLASSES, database))}


def check_all_reads(holdfast, tmp_path: Path, look: Callable[[], object] | None = None) -> None:
    look = look or (lambda: picture(holdfast.place.parent))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    (elsewhere / "bad.jsonl").write_text("[]\n")
    words = {"elsewhere": elsewhere, "artifact": hashlib.sha256(KEPT).hexdigest()}
    before = look()
    for name, arguments in READS.items():
        answer = holdfast(*(part.format(**words) for part in arguments))
        assert (answer.code != 0) == (name in REFUSED), (name, answer)
        assert look() == before, name
    assert list(holdfast.home.iterdir()) == []
    leftovers = [path for path in (tmp_path / "tmp").glob("*") if path.name.startswith("holdfast")]
    assert leftovers == []


@pytest.fixture
def make_run(holdfast, make_run):
    """A run as any other, in a store that holds an artifact too."""

    def make(*arguments: str, **options: str) -> str:
        with closing(app.open_store(str(holdfast.place))) as store:
            store.put_artifact(KEPT)
        run_id: str = make_run(*arguments, **options)
        return run_id

    return make


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


def test_a_follower_that_waits_writes_nothing(holdfast, make_run):
    make_run("run-1")
    before = picture(holdfast.place.parent)
    with holdfast.start("log", "run-1", "--follow") as process:
        assert [process.stdout.readline().split()[0] for _ in range(6)] == ["1", "2", "3", "4", "5", "6"]
        time.sleep(3 * POLL)
        assert picture(holdfast.place.parent) == before
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == stops.exit_code("user_stopped")
    assert picture(holdfast.place.parent) == before


@pytest.mark.postgres
@pytest.mark.skipif(available() is not None, reason=available() or "")
def test_of_a_store_on_a_server(holdfast, make_run, tmp_path):
    server = shared_server()
    with server.database() as holdfast.place:
        make_run("run-1")
        make_run("run-2", ending="finished")
        database = holdfast.place.rpartition("/")[2]
        before = rows(server, database)
        check_all_reads(holdfast, tmp_path, lambda: rows(server, database))
        app.record("run-1", *notes(), place=holdfast.place)
        after = rows(server, database)
        assert {name for name in before if before[name] != after[name]} >= {"holdfast.runs", "holdfast.events"}


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

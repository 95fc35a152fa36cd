"""A store file made or changed by another hand: refused with a reason, at once, and left as it is to the last byte."""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import socket
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast import app
from holdfast.core import errors, stops
from holdfast.core.events import NoteRecorded, RunStarted, StepFinished, StepStarted
from holdfast.core.values import Owner
from holdfast.engine.log import RunLog, World, read_head, verify_run
from holdfast.stores.sqlite import SqliteStore

NAME = "holdfast.db"
LIMIT = 8.0
Open = Callable[[Path], Any]


def a_world(name: str) -> World:
    count = itertools.count(1)
    prefix = hashlib.sha256(name.encode()).hexdigest()[:20]
    return World(lambda: "2026-01-02T03:04:05.678901Z", lambda: f"{prefix}{next(count):012x}", Owner("h", "b", 1, "1"))


def a_run(store: SqliteStore, run_id: str, notes: int = 3) -> None:
    with RunLog(store, run_id, a_world(run_id)) as log:
        log.record(RunStarted(mission_id="m"))
        log.record(StepStarted(step_id="a"))
        log.record(StepFinished(step_id="a", output="done"))
        for number in range(notes):
            log.record(NoteRecorded(text=f"note {number} of {run_id}"))


def more(path: Path, run_id: str, text: str) -> None:
    with SqliteStore(path, boot_id="b") as store, RunLog(store, run_id, a_world(text)) as log:
        log.record(NoteRecorded(text=text))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a store of two runs, closed."""
    folder = tmp_path / ".holdfast"
    with SqliteStore(folder / NAME, boot_id="b") as store:
        a_run(store, "run-1")
        a_run(store, "run-2")
    return folder


def alter(path: Path, *statements: str) -> None:
    """What somebody with a database tool can do; the witness is not told."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("pragma writable_schema = on")
    for statement in statements:
        connection.execute(statement)
    connection.execute("pragma wal_checkpoint(truncate)")
    connection.close()
    for end in ("-wal", "-shm"):
        Path(f"{path}{end}").unlink(missing_ok=True)


def everything(folder: Path) -> dict[str, tuple[int, str]]:
    """Every name in a folder with its kind and its bytes, but for SQLite's shared memory and a log without content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.name.endswith("-shm") or (path.name.endswith("-wal") and path.lstat().st_size == 0):
            continue
        mode = path.lstat().st_mode
        content = os.readlink(path) if stat.S_ISLNK(mode) else path.read_bytes().hex() if stat.S_ISREG(mode) else ""
        found[str(path.relative_to(folder))] = (mode, content)
    return found


def for_writing(path: Path) -> None:
    with SqliteStore(path, boot_id="b", patience=1.0):
        pass


def for_reading(path: Path) -> None:
    with SqliteStore(path, boot_id="b", read_only=True, patience=1.0):
        pass


OPENINGS: dict[str, Open] = {"writing": for_writing, "reading": for_reading}


@pytest.fixture(params=OPENINGS)
def opened(request: pytest.FixtureRequest) -> Open:
    return OPENINGS[request.param]


CHILD = """
import sys
from holdfast.core.errors import StoreError
from holdfast.core.values import Owner
from holdfast.stores.sqlite import SqliteStore
try:
    with SqliteStore(sys.argv[1], boot_id="b", patience=1.0, read_only=sys.argv[2] == "reading") as store:
        if not store.read_only:
            store.take("run-1", Owner("h", "b", 1, "1"), 30)
except StoreError as error:
    print(error.reason)
"""


def reason_in_a_child(path: Path, how: str) -> str:
    """The reason of the refusal. In a process of its own, because SQLite would wait for a pipe for ever."""
    command = [sys.executable, "-c", CHILD, str(path), how]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        pytest.fail("it hangs")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def refused(opened: Open, path: Path, kind: type[errors.HoldfastError] | tuple[type[errors.HoldfastError], ...]) -> Any:
    before = everything(path.parent)
    with pytest.raises(kind) as caught:
        opened(path)
    after = everything(path.parent)
    assert after == before, sorted(name for name in after.keys() | before.keys() if after.get(name) != before.get(name))
    assert stops.is_known(caught.value.reason)
    assert stops.exit_code(caught.value.reason) > 1
    return caught.value


# --- a schema that another hand has changed

SCHEMAS = {
    "a trigger on events_1": "create trigger t after insert on events_1 begin delete from events_1 where place = new.place; end",
    "a trigger on runs": "create trigger t before update on runs begin select raise(ignore); end",
    "a view": "create view v as select * from events_1",
    "an endless view": "create view v as with recursive n(i) as (select 1 union all select i + 1 from n) select * from n",
    "a virtual table": "create virtual table v using fts5(body)",
    "a generated column": "alter table events_1 add column g text generated always as (upper(body)) virtual",
    "a column with a default": "alter table events_1 add column g text default 'x'",
    "another index": "create index i on events_1 (kind)",
    "an index on an expression": "create index i on events_1 (lower(kind))",
    "another table": "create table more (x)",
    "a column renamed": "alter table events_1 rename column body to content",
    "a table missing": "drop table snapshots",
    "a table replaced by a view": "update sqlite_schema set type = 'view' where name = 'snapshots'",
    "a definition edited": "update sqlite_schema set sql = replace(sql, 'not null', '') where name = 'events_1'",
    "statistics": "analyze",
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_changed_schema_is_refused(folder, opened, name):
    alter(folder / NAME, SCHEMAS[name])
    error = refused(opened, folder / NAME, (errors.StoreForeign, errors.StoreUnreadable))
    assert NAME in str(error)


# --- tables that only seem to be the user's

MADE = "create table app_x (a text, b text unique)"
SEEMING: dict[str, tuple[str, ...]] = {
    "a trigger on a table of the user": (MADE, "create trigger app_t after insert on app_x begin delete from events_1; end"),
    "a view with such a name": ("create view app_x as select * from events_1",),
    "a virtual table with such a name": ("create virtual table app_x using fts5(body)",),
    "what a virtual table leaves behind": (
        "create virtual table app_x using fts5(body)",
        "update sqlite_schema set sql = 'CREATE TABLE app_x (a)' where name = 'app_x'",
    ),
    "an index on the events with such a name": ("create index app_i on events_1 (kind)",),
    "an index on the events that names another table": (
        MADE, "create index app_i on events_1 (kind)", "update sqlite_schema set tbl_name = 'app_x' where name = 'app_i'",
    ),
    "an index of the user under the name of ours": (
        MADE, "drop index runs_unfinished", "create index runs_unfinished on app_x (a)",
    ),
    "an index with another name": (MADE, "create index i on app_x (a)"),
    "a table that is a trigger": (
        MADE, "create trigger app_t after insert on app_x begin delete from events_1; end",
        "update sqlite_schema set type = 'table', tbl_name = 'app_t', rootpage = 99 where name = 'app_t'",
    ),
    "a table that is a view": (
        MADE, "update sqlite_schema set sql = 'CREATE VIEW app_x as select 1' where name = 'app_x'",
    ),
    "a table that has another name": (
        MADE, "update sqlite_schema set sql = 'CREATE TABLE sqlite_stat1 (tbl, idx, stat)' where name = 'app_x'",
        "delete from sqlite_schema where tbl_name = 'app_x' and type = 'index'",
    ),
    "a table on the pages of the events": (
        "create table app_x (a)",
        "update sqlite_schema set rootpage = (select rootpage from sqlite_schema where name = 'events_1') where name = 'app_x'",
    ),
    "a table without pages": ("create table app_x (a)", "update sqlite_schema set rootpage = 0 where name = 'app_x'"),
    "a name that is not plain": ('create table "app_x y" (a)',),
    "a name in capitals": ("create table App_x (a)",),
    "counters of another form": (
        "create table app_x (a integer primary key autoincrement)",
        "update sqlite_schema set sql = 'CREATE TABLE sqlite_sequence(name,seq,more)' where name = 'sqlite_sequence'",
    ),
    "statistics of the user's tables": (MADE, "insert into app_x values ('a', 'b')", "analyze app_x"),
}  # fmt: skip


@pytest.mark.parametrize("name", SEEMING)
def test_what_only_seems_to_be_the_users_is_refused(folder, opened, name):
    alter(folder / NAME, *SEEMING[name])
    refused(opened, folder / NAME, (errors.StoreForeign, errors.StoreUnreadable))


def test_tables_of_the_user_that_call_functions_are_inert(folder):
    """They are never read by Holdfast; to whoever reads them, only harmless functions answer."""
    alter(
        folder / NAME,
        "create table app_x (a text, b text generated always as (upper(a)))",
        "create table app_y (a text, b text default (load_extension('evil')))",
        "create index app_i on app_x (lower(b))",
        "insert into app_x (a) values ('x')",
    )
    prove(folder / NAME)
    with SqliteStore(folder / NAME, boot_id="b") as store, RunLog(store, "run-1", a_world("writer")) as log:
        for statement in ("insert into app_y (a) values ('y')", "select load_extension('evil')"):
            with pytest.raises(errors.BadInput):
                store.transact(log.lease, lambda sql, statement=statement: sql.execute(statement))
        draft = log.draft(NoteRecorded(text="read"))
        rows = []
        store.transact(log.lease, lambda sql: (rows.extend(sql.execute("select a, b from app_x")), draft)[1])
        log.confirm(draft)
    assert rows == [("x", "X")]


def test_a_view_in_place_of_a_table_does_not_run(folder, opened):
    alter(
        folder / NAME,
        "drop table snapshots",
        "create view snapshots as with recursive n(i) as (select 1 union all select i + 1 from n)"
        " select i as run_no, i as seq, i as data from n",
    )
    refused(opened, folder / NAME, errors.StoreForeign)


# --- a file that is not ours


@pytest.mark.parametrize("number", [0, 1, 0x486F6C65, -1])
def test_another_application_is_refused(folder, opened, number):
    alter(folder / NAME, f"pragma application_id = {number}")
    assert refused(opened, folder / NAME, errors.StoreForeign).reason == "store_foreign"


@pytest.mark.parametrize("version", [3, 7, 2**31 - 1])
def test_a_newer_store_is_refused_as_newer(folder, opened, version):
    alter(folder / NAME, f"pragma user_version = {version}")
    error = refused(opened, folder / NAME, errors.NewerSchema)
    assert (error.reason, error.found) == ("newer_schema", version)


def test_a_newer_store_with_other_tables_is_refused_as_newer(folder, opened):
    alter(folder / NAME, "create table more (x)", "pragma user_version = 3")
    refused(opened, folder / NAME, errors.NewerSchema)


@pytest.mark.parametrize("version", [0, -1, 1])
def test_a_version_that_was_never_written_is_refused(folder, opened, version):
    alter(folder / NAME, f"pragma user_version = {version}")
    refused(opened, folder / NAME, errors.StoreForeign)


def a_copy(folder: Path) -> Path:
    """The store as SQLite copies it: whole, and not in write-ahead mode."""
    copy = folder.with_name("copy") / NAME
    copy.parent.mkdir()
    alter(folder / NAME, f"vacuum into '{copy}'")
    assert apsw.Connection(str(copy)).pragma("journal_mode") == "delete"
    return copy


def test_a_copy_that_sqlite_made_is_read_as_it_is_and_can_be_gone_on_with(folder):
    copy = a_copy(folder)
    before = everything(copy.parent)
    for_reading(copy)
    assert everything(copy.parent) == before
    for text in ("first", "second"):
        more(copy, "run-1", text)
        with SqliteStore(copy, boot_id="b") as store:
            assert verify_run(store, "run-1").findings == ()
        assert apsw.Connection(str(copy)).pragma("journal_mode") == "wal"


def test_an_older_copy_that_sqlite_made_is_refused_untouched_where_the_witness_knows_more(folder):
    copy = a_copy(folder)
    more(folder / NAME, "run-1", "later")
    shutil.copy(f"{folder / NAME}-witness", f"{copy}-witness")
    refused(for_writing, copy, errors.TailLost)


def test_the_database_of_another_program_is_refused(tmp_path, opened):
    (tmp_path / "f").mkdir()
    alter(tmp_path / "f" / NAME, "create table events (x)", "insert into events values (1)")
    refused(opened, tmp_path / "f" / NAME, errors.StoreForeign)


def test_a_store_without_its_identity_is_refused(folder, opened):
    alter(folder / NAME, "delete from store")
    refused(opened, folder / NAME, errors.StoreUnreadable)


CONTENTS = {
    "zero bytes": b"",
    "one byte": b"S",
    "half a header": b"SQLite format 3\0" + bytes(30),
    "a header alone": b"SQLite format 3\0" + bytes(84),
    "text": b"this is a letter, not a database\n" * 200,
    "zeros": bytes(8192),
    "a script": b"#!/bin/sh\nrm -rf /\n",
}


@pytest.mark.parametrize("name", CONTENTS)
def test_a_file_that_is_no_database_is_refused(tmp_path, opened, name):
    path = tmp_path / "f" / NAME
    path.parent.mkdir()
    path.write_bytes(CONTENTS[name])
    refused(opened, path, errors.StoreError)


@pytest.mark.parametrize("kept", [1, 50, 99, 100, 512, 4096, 4097, 8192, 12288, 16384])
def test_a_truncated_file_is_refused_or_found_by_verify(folder, kept):
    path = folder / NAME
    alter(path)
    path.write_bytes(path.read_bytes()[:kept])
    before = everything(folder)
    with pytest.raises(errors.HoldfastError) as caught:
        prove(path)
    assert everything(folder) == before
    assert stops.exit_code(caught.value.reason) > 1


def prove(path: Path) -> None:
    """What a reader does: open, and prove each run."""
    with SqliteStore(path, boot_id="b", read_only=True) as store:
        findings = [finding for run in ("run-1", "run-2") for finding in verify_run(store, run).findings]
    if findings:
        raise errors.LogDamaged(findings[0].problem)


# --- something else in its place


def test_a_folder_in_place_of_the_file_is_refused(tmp_path, opened):
    (tmp_path / "f" / NAME).mkdir(parents=True)
    refused(opened, tmp_path / "f" / NAME, errors.StoreError)


def test_a_link_in_place_of_the_file_is_refused(folder, tmp_path, opened):
    link = tmp_path / "other" / NAME
    link.parent.mkdir()
    link.symlink_to(folder / NAME)
    before = everything(folder)
    refused(opened, link, errors.StoreError)
    assert everything(folder) == before


def test_a_link_to_nothing_in_place_of_the_file_makes_no_file(tmp_path):
    link = tmp_path / "f" / NAME
    link.parent.mkdir()
    link.symlink_to(tmp_path / "elsewhere.db")
    refused(for_writing, link, errors.StoreForeign)
    assert not (tmp_path / "elsewhere.db").exists()


@pytest.mark.parametrize("read_only", [True, False])
def test_a_link_in_place_of_the_folder_is_refused(folder, tmp_path, monkeypatch, read_only):
    """What a repository plants as .holdfast is not followed."""
    repository = tmp_path / "repository"
    (repository / ".git").mkdir(parents=True)
    (repository / ".git" / "HEAD").write_text("ref: refs/heads/main")
    (repository / ".holdfast").symlink_to(folder)
    monkeypatch.chdir(repository)
    before = everything(folder)
    with pytest.raises(errors.StoreForeign):
        app.open_store(read_only=read_only, environ={"HOME": str(tmp_path)})
    assert everything(folder) == before


@pytest.mark.parametrize("end", ["-witness", "-lock"])
def test_a_link_beside_the_file_is_not_followed(folder, tmp_path, end):
    target = tmp_path / "precious"
    target.write_bytes(b"precious")
    Path(f"{folder / NAME}{end}").unlink(missing_ok=True)
    Path(f"{folder / NAME}{end}").symlink_to(target)
    with pytest.raises(errors.StoreError), SqliteStore(folder / NAME, boot_id="b") as store:
        store.take("run-1", Owner("h", "b", 1, "1"), 30)
    assert target.read_bytes() == b"precious"


@pytest.mark.parametrize("end", ["-wal", "-shm"])
def test_a_link_in_place_of_a_log_is_not_followed(folder, tmp_path, end):
    target = tmp_path / "precious"
    target.write_bytes(b"precious")
    alter(folder / NAME)
    Path(f"{folder / NAME}{end}").symlink_to(target)
    with pytest.raises(errors.StoreError), SqliteStore(folder / NAME, boot_id="b") as store:
        a_run(store, "run-3")
    assert target.read_bytes() == b"precious"


@pytest.mark.parametrize("how", OPENINGS)
def test_a_fifo_in_place_of_the_file_does_not_hang(tmp_path, how):
    (tmp_path / "f").mkdir()
    os.mkfifo(tmp_path / "f" / NAME)
    before = everything(tmp_path)
    assert stops.is_known(reason_in_a_child(tmp_path / "f" / NAME, how))
    assert everything(tmp_path) == before


@pytest.mark.parametrize("how", OPENINGS)
@pytest.mark.parametrize("end", ["-witness", "-lock", "-wal", "-shm"])
def test_a_fifo_beside_the_file_does_not_hang(folder, end, how):
    path = Path(f"{folder / NAME}{end}")
    alter(folder / NAME)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    before = everything(folder)
    reason = reason_in_a_child(folder / NAME, how)
    assert reason == "" or stops.is_known(reason)
    assert stat.S_ISFIFO(path.lstat().st_mode)
    assert everything(folder)[NAME] == before[NAME]


def test_a_socket_in_place_of_the_file_is_refused(tmp_path, opened, monkeypatch):
    (tmp_path / "f").mkdir()
    monkeypatch.chdir(tmp_path / "f")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(NAME)
        refused(opened, tmp_path / "f" / NAME, errors.StoreError)


# --- a log that is not what was written


def test_an_older_copy_of_the_database_beside_the_newer_witness_has_lost_its_tail(folder, opened):
    alter(folder / NAME)
    older = (folder / NAME).read_bytes()
    more(folder / NAME, "run-1", "after the copy")
    alter(folder / NAME)
    (folder / NAME).write_bytes(older)
    error = refused(opened, folder / NAME, errors.TailLost)
    assert error.reason == "tail_lost"


def test_a_deleted_tail_is_lost(folder, opened):
    alter(folder / NAME, "delete from events_2 where place = (select max(place) from events_2)")
    refused(opened, folder / NAME, errors.TailLost)


def test_a_deleted_tail_of_a_run_that_rests_is_found_however_many_came_after_it(tmp_path):
    """The witness remembers recent heads only; a run that was closed long ago must not lose its end unnoticed."""
    path = tmp_path / "f" / NAME
    with SqliteStore(path, boot_id="b") as store:
        for number in range(70):
            a_run(store, f"run-{number}", notes=1)
    alter(path, f"delete from events_1 where place = {1 << 32 | 4}")
    with pytest.raises(errors.LogDamaged), SqliteStore(path, boot_id="b", read_only=True) as store:
        findings = verify_run(store, "run-0").findings
        if findings:
            raise errors.LogDamaged(findings[0].problem)


def test_a_deleted_log_is_lost(folder, opened):
    alter(folder / NAME, "delete from events_1", "delete from events_2", "delete from runs")
    refused(opened, folder / NAME, errors.TailLost)


GONE = {
    "all": "delete from runs",
    "the first": "delete from runs where run_no = 1",
    "the last": "delete from runs where run_no = 2",
    "moved": "update runs set run_no = 7 where run_no = 1",
}


@pytest.mark.parametrize("name", GONE)
def test_a_run_that_is_gone_from_the_list_is_lost_though_its_events_are_there(folder, opened, name):
    alter(folder / NAME, GONE[name])
    assert "is gone from the list of runs" in str(refused(opened, folder / NAME, errors.TailLost))


def lasting(store: SqliteStore) -> list[tuple[str, int]]:
    return [(run_id, last) for run_id, last, _ in store.strays()]


@pytest.mark.parametrize(
    ("name", "left"), [("all", ["number 1", "number 2"]), ("the first", ["number 1"]), ("the last", ["number 2"])]
)
def test_a_new_run_takes_no_number_that_a_lost_run_had(folder, name, left):
    path = folder / NAME
    alter(path, GONE[name])
    Path(f"{path}-witness").unlink()
    with SqliteStore(path, boot_id="b") as store:
        a_run(store, "run-3")
        a_run(store, "run-4")
        assert lasting(store) == [(run, 6) for run in left]
    with SqliteStore(path, boot_id="b", read_only=True) as store:
        assert {head.run_id for head in store.heads()} >= {"run-3", "run-4"}
        assert [found for head in store.heads() for found in verify_run(store, head.run_id).findings] == []
        assert lasting(store) == [(run, 6) for run in left]


def test_a_run_that_the_witness_has_forgotten_strays_when_it_is_gone_from_the_list(tmp_path):
    path = tmp_path / "f" / NAME
    with SqliteStore(path, boot_id="b") as store:
        for number in range(1, 71):
            a_run(store, f"run-{number:02}", notes=1)
        assert store.strays() == []
    alter(path, "delete from runs where run_no in (3, 4, 30)")
    with SqliteStore(path, boot_id="b", read_only=True) as store:
        assert lasting(store) == [("number 3", 4), ("number 4", 4), ("number 30", 4)]


def test_a_run_that_has_lost_all_its_events_strays(folder):
    alter(folder / NAME, "delete from events_1")
    (folder / f"{NAME}-witness").unlink()
    with SqliteStore(folder / NAME, boot_id="b", read_only=True) as store:
        assert lasting(store) == [("run-1", 0)]


LEFT: dict[str, Callable[[SqliteStore], object]] = {
    "a message": lambda store: store.post("run-1", "question", "for run-1 alone"),
    "a snapshot": lambda store: store.save_snapshot("run-1", 1, b"{}"),
}


@pytest.mark.parametrize("what", LEFT)
def test_a_new_run_gets_nothing_that_was_left_for_a_lost_one(tmp_path, what):
    path = tmp_path / "f" / NAME
    with SqliteStore(path, boot_id="b") as store:
        store.take("run-1", Owner("h", "b", 1, "1"), 30)
        LEFT[what](store)
    alter(path, "delete from runs")
    with SqliteStore(path, boot_id="b") as store:
        a_run(store, "run-2")
        assert store.messages("run-2") == []
        assert store.load_snapshot("run-2") is None


def test_a_writer_whose_run_is_deleted_under_it_has_lost_it(folder):
    with SqliteStore(folder / NAME, boot_id="b") as store, RunLog(store, "run-1", a_world("more")) as log:
        log.record(NoteRecorded(text="before"))
        other = apsw.Connection(str(folder / NAME))
        other.execute("delete from runs where run_no = 1")
        other.close()
        with pytest.raises(errors.LeaseLost):
            log.record(NoteRecorded(text="after"))


def test_an_event_at_the_last_place_there_can_be_ends_no_search_and_starts_no_run(folder):
    alter(folder / NAME, f"insert into events_15 select {(1 << 63) - 1}, {COLUMNS} from events_1 limit 1")
    with SqliteStore(folder / NAME, boot_id="b") as store:
        assert lasting(store) == [(f"number {(1 << 31) - 1}", 0xFFFFFFFF)]
        with pytest.raises(errors.StoreUnreadable):
            a_run(store, "run-3")
        assert {head.run_id for head in store.heads()} == {"run-1", "run-2"}


def test_a_last_event_with_another_hash_is_lost(folder, opened):
    alter(folder / NAME, "update events_2 set hash = zeroblob(32) where place = (select max(place) from events_2)")
    refused(opened, folder / NAME, errors.TailLost)


def test_the_database_of_another_store_beside_our_witness_is_refused(folder, tmp_path, opened):
    with SqliteStore(tmp_path / "other" / NAME, boot_id="b") as store:
        a_run(store, "run-1")
        a_run(store, "run-2")
    alter(tmp_path / "other" / NAME)
    alter(folder / NAME)
    shutil.copyfile(tmp_path / "other" / NAME, folder / NAME)
    assert "another store" in str(refused(opened, folder / NAME, errors.TailLost))


def test_a_store_without_its_witness_opens_and_says_so(folder):
    Path(f"{folder / NAME}-witness").unlink()
    with SqliteStore(folder / NAME, boot_id="b", read_only=True) as store:
        assert store.facts()["witness"] == "missing"


@pytest.mark.parametrize("content", [b"", b"x", bytes(100), b"HFWITN01" * 4096, bytes(10_000_000)])
def test_a_witness_that_cannot_be_read_accuses_nobody(folder, content):
    Path(f"{folder / NAME}-witness").write_bytes(content)
    prove(folder / NAME)


RUN_1, RUN_2 = 1 << 32, 2 << 32
COLUMNS = "kind, version, at, op, hash, steps_done, steps_open, effects_open, body"
DAMAGE: dict[str, tuple[tuple[str, ...], str, int]] = {
    "an edited body": ((f"update events_1 set body = '{{\"step_id\":\"b\"}}' where place = {RUN_1 | 2}",), "run-1", 2),
    "an edited kind": ((f"update events_1 set kind = 'step_failed' where place = {RUN_1 | 3}",), "run-1", 3),
    "an edited version": ((f"update events_1 set version = 9 where place = {RUN_1 | 3}",), "run-1", 3),
    "an edited time": ((f"update events_1 set at = '2027-01-01T00:00:00.000000Z' where place = {RUN_1 | 3}",), "run-1", 3),
    "an edited operation": ((f"update events_1 set op = randomblob(16) where place = {RUN_1 | 3}",), "run-1", 3),
    "an edited hash": ((f"update events_1 set hash = zeroblob(32) where place = {RUN_1 | 3}",), "run-1", 3),
    "an event missing in the middle": ((f"delete from events_1 where place = {RUN_1 | 3}",), "run-1", 3),
    "the first event missing": ((f"delete from events_1 where place = {RUN_1 | 1}",), "run-1", 1),
    "two events in another order": (
        (f"update events_1 set place = 99 where place = {RUN_1 | 3}",
         f"update events_1 set place = {RUN_1 | 3} where place = {RUN_1 | 4}",
         f"update events_1 set place = {RUN_1 | 4} where place = 99"), "run-1", 3),
    "events swapped between runs": (
        (f"update events_1 set place = 99 where place = {RUN_1 | 4}",
         f"insert into events_1 select {RUN_1 | 4}, {COLUMNS} from events_2 where place = {RUN_2 | 4}",
         f"delete from events_2 where place = {RUN_2 | 4}",
         f"insert into events_2 select {RUN_2 | 4}, {COLUMNS} from events_1 where place = 99",
         "delete from events_1 where place = 99"), "run-1", 4),
    "whole runs swapped": (
        ("update runs set run_id = 'z' where run_no = 1", "update runs set run_id = 'run-1' where run_no = 2",
         "update runs set run_id = 'run-2' where run_no = 1"), "run-1", 1),
    "a body that is not JSON": ((f"update events_1 set body = 'x' where place = {RUN_1 | 3}",), "run-1", 3),
    "counts that show something else": ((f"update events_1 set steps_done = 9 where place = {RUN_1 | 6}",), "run-1", 6),
    "a list that shows something else": (("update runs set status = 'finished' where run_no = 1",), "run-1", 6),
    "an operation of the wrong length": ((f"update events_1 set op = x'00' where place = {RUN_1 | 3}",), "run-1", 3),
    "a hash of the wrong length": ((f"update events_1 set hash = x'00' where place = {RUN_1 | 3}",), "run-1", 3),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_a_log_that_was_meddled_with_is_found_by_name_and_place(folder, name):
    statements, run_id, seq = DAMAGE[name]
    alter(folder / NAME, *statements)
    before = everything(folder)
    with SqliteStore(folder / NAME, boot_id="b", read_only=True) as store:
        found = verify_run(store, run_id)
    assert [(finding.run_id, finding.seq) for finding in found.findings] == [(run_id, seq)]
    assert {finding.reason for finding in found.findings} == {"log_damaged"}
    assert everything(folder) == before


@pytest.mark.parametrize("name", [name for name in DAMAGE if "show something else" not in name and "shows" not in name])
def test_nobody_writes_to_a_log_that_was_meddled_with(folder, name):
    alter(folder / NAME, *DAMAGE[name][0])
    with SqliteStore(folder / NAME, boot_id="b") as store:
        events = list(store.read("run-1"))
        with pytest.raises(errors.LogDamaged):
            RunLog(store, "run-1", a_world("writer"))
        assert list(store.read("run-1")) == events


def test_hostile_text_in_a_column_is_only_text(folder):
    """No id, kind or title from the file is executed, imported or followed; what is refused is refused by type."""
    evil = "'); drop table events; --\x1b]52;c;aGk=\x07../../etc/passwd"
    connection = apsw.Connection(str(folder / NAME))
    connection.execute("update runs set title = ?, mission_id = ? where run_no = 1", (evil, evil))
    with SqliteStore(folder / NAME, boot_id="b", read_only=True) as store:
        head = store.head("run-1")
        assert head is not None and head.projection.title == evil
        assert len(list(store.read("run-2"))) == 6
    connection.execute("update runs set run_id = ? where run_no = 1", (evil,))
    connection.close()
    with SqliteStore(folder / NAME, boot_id="b", read_only=True) as store:
        with pytest.raises(errors.StoreUnreadable):
            list(store.heads())
        assert len(list(store.read("run-2"))) == 6


def test_a_damaged_page_in_the_middle_is_refused_or_found(folder):
    alter(folder / NAME)
    path = folder / NAME
    whole = path.read_bytes()
    for page in range(1, len(whole) // 4096):
        path.write_bytes(whole[: page * 4096] + b"\xa5" * 4096 + whole[(page + 1) * 4096 :])
        before = everything(folder)
        try:
            prove(path)
        except errors.HoldfastError as error:
            assert stops.is_known(error.reason)
        else:
            with SqliteStore(path, boot_id="b", read_only=True) as store:
                assert [read_head(store, run)[0].seq for run in ("run-1", "run-2")] == [6, 6]
        assert everything(folder) == before

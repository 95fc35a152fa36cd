"""Stores of version 1, with one table for the events of all runs: read as they are, brought up to date by whoever writes."""

from __future__ import annotations

import hashlib
import itertools
import multiprocessing
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast.core.errors import HoldfastError, TailLost
from holdfast.core.events import NoteRecorded, RunStarted, StepFinished, StepStarted
from holdfast.core.values import Owner
from holdfast.engine.log import RunLog, World, verify_run
from holdfast.ports import Record
from holdfast.stores import sqlite_file
from holdfast.stores.sqlfiles import migrations
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite_tables import TABLES

RUNS = [f"run-{number:02}" for number in range(1, 21)]


def a_world(name: str) -> World:
    count, prefix = itertools.count(1), hashlib.sha256(name.encode()).hexdigest()[:20]
    return World(lambda: "2026-01-02T03:04:05.678901Z", lambda: f"{prefix}{next(count):012x}", Owner("h", "b", 1, "1"))


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A store of twenty runs as version 1 wrote it: the same rows, in its one table."""
    path = tmp_path / "f" / "holdfast.db"
    with SqliteStore(path, boot_id="b") as store:
        for number, run_id in enumerate(RUNS):
            with RunLog(store, run_id, a_world(run_id)) as log:
                log.record(RunStarted(mission_id="m"))
                log.record(StepStarted(step_id="a"))
                log.record(StepFinished(step_id="a", output="done"))
                for _ in range(number % 4):
                    log.record(NoteRecorded(text="a note"))
    connection = apsw.Connection(str(path))
    (one_table,) = (part for part in migrations("sqlite")[0][1].split("\n\n") if "create table events" in part)
    connection.execute("begin").execute(one_table)
    for table in TABLES.names:
        connection.execute(f"insert into events select * from {table}").execute(f"drop table {table}")
    connection.execute("pragma user_version = 1").execute("commit")
    assert sqlite_file.fingerprint(connection) == sqlite_file.FINGERPRINTS[1]
    connection.execute("pragma wal_checkpoint(truncate)").fetchall()
    connection.close()
    return path


def reading(path: Path) -> SqliteStore:
    return SqliteStore(path, boot_id="b", read_only=True)


def writing(path: Path) -> SqliteStore:
    return SqliteStore(path, boot_id="b")


def contents(store: SqliteStore) -> dict[str, tuple[Any, list[Record]]]:
    return {head.run_id: (head, list(store.read(head.run_id))) for head in store.heads()}


def version(path: Path) -> object:
    with reading(path) as store:
        return store.facts()["schema_version"]


def every_byte(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.parent.iterdir()}


def test_it_is_read_as_it_is(old):
    before = every_byte(old)
    with reading(old) as store:
        found = contents(store)
        facts = store.facts()
        assert [verify_run(store, run_id).findings for run_id in RUNS] == [()] * len(RUNS)
        assert (store.strays(), store.shortened()) == ([], [])
    assert sorted(found) == RUNS
    assert (facts["schema_version"], facts["runs"], facts["events"]) == (
        1,
        20,
        sum(len(log) for _, log in found.values()),
    )
    assert every_byte(old) == before


def test_who_writes_brings_it_up_to_date_and_nothing_of_it_changes(old):
    with reading(old) as store:
        before = contents(store)
    with writing(old) as store:
        assert contents(store) == before
        with RunLog(store, "run-07", a_world("more")) as log:
            log.record(NoteRecorded(text="one more"))
        assert verify_run(store, "run-07").findings == ()
        assert (store.strays(), store.shortened()) == ([], [])
    with reading(old) as store:
        after = contents(store)
        assert store.facts()["schema_version"] == sqlite_file.SCHEMA_VERSION
    assert {run_id: log for run_id, (_, log) in after.items() if run_id != "run-07"} == {
        run_id: log for run_id, (_, log) in before.items() if run_id != "run-07"
    }
    assert after["run-07"][1][:-1] == before["run-07"][1]


def test_a_reader_that_has_it_open_sees_no_event_less(old):
    with reading(old) as store:
        before = contents(store)
        writing(old).close()
        assert contents(store) == before
        assert store.facts()["schema_version"] == sqlite_file.SCHEMA_VERSION


def test_a_process_of_that_time_that_has_it_open_can_write_nothing_more(old):
    of_then = apsw.Connection(str(old))
    ((last,),) = of_then.execute("select max(place) from events")
    append = f"insert into events select place + 1, kind, version, at, op, hash, 0, 0, 0, body from events where place = {last}"
    writing(old).close()
    with pytest.raises(apsw.SQLError, match="no such table"):
        of_then.execute(append)
    of_then.close()


def a_writer(path: Path, run_id: str, begin: Any) -> None:
    begin.wait()
    with writing(path) as store, RunLog(store, run_id, a_world(f"more {run_id}")) as log:
        log.record(NoteRecorded(text="one more"))


def test_many_who_start_at_once_lose_nothing(old):
    with reading(old) as store:
        before = contents(store)
    context = multiprocessing.get_context("fork")
    begin = context.Barrier(6)
    writers = [context.Process(target=a_writer, args=(old, run_id, begin)) for run_id in RUNS[:6]]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0] * 6
    with reading(old) as store:
        after = contents(store)
        assert [verify_run(store, run_id).findings for run_id in RUNS] == [()] * len(RUNS)
    assert {run_id: len(log) - len(before[run_id][1]) for run_id, (_, log) in after.items()} == {
        run_id: int(run_id in RUNS[:6]) for run_id in RUNS
    }


OPENINGS = {
    "for writing": lambda path: sqlite_file.open_for_writing(path, 1)[0],
    "for reading": lambda path: sqlite_file.open_for_reading(path, 1, beside_writer=True).connection,
}


@pytest.mark.parametrize("how", OPENINGS)
def test_a_store_that_is_brought_up_to_date_while_it_is_looked_at_is_no_foreign_one(old, monkeypatch, how):
    is_sound = sqlite_file.is_sound

    def slowly(connection: apsw.Connection, version: int) -> Any:
        monkeypatch.undo()
        writing(old).close()
        return is_sound(connection, version)

    monkeypatch.setattr(sqlite_file, "is_sound", slowly)
    connection = OPENINGS[how](str(old))
    assert not connection.in_transaction and connection.pragma("user_version") == 2
    connection.close()


@pytest.mark.parametrize("last", [0, 1, 16, 17, 32, 33, 34])
def test_what_fails_on_the_way_leaves_version_1(old, monkeypatch, last):
    with reading(old) as store:
        before = contents(store)
    real, count = sqlite_file._all, itertools.count()

    def failing(connection: apsw.Connection, sql: str) -> Any:
        if sql.startswith(("--", "insert", "pragma user_version =")) and next(count) == last:
            raise apsw.FullError("the disk is full")
        return real(connection, sql)

    with monkeypatch.context() as patched:
        patched.setattr(sqlite_file, "_all", failing)
        with pytest.raises(HoldfastError, match="full"):
            writing(old)
    assert version(old) == 1
    with writing(old) as store:
        assert contents(store) == before
    assert version(old) == sqlite_file.SCHEMA_VERSION


def test_one_that_has_lost_its_tail_is_refused_and_not_touched(old):
    connection = apsw.Connection(str(old))
    connection.execute("delete from events where place = (select max(place) from events)")
    connection.execute("pragma wal_checkpoint(truncate)").fetchall()
    connection.close()
    before = every_byte(old)
    with pytest.raises(TailLost):
        writing(old)
    assert every_byte(old)["holdfast.db"] == before["holdfast.db"]

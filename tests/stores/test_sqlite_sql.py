"""Statements of the user in a SQLite store: what they may touch, what a crash leaves of them, and who else may write."""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from holdfast.core.errors import BadInput, LeaseLost, StoreClosed, StoreFull, StoreReadOnly, UsageError
from holdfast.core.events import NoteRecorded, RunStarted
from holdfast.engine.log import RunLog, verify_run
from holdfast.ports import Lease
from holdfast.stores import sqlite_file
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing import crashlab
from holdfast.testing.author import ANOTHER
from holdfast.testing.crashlab import bytecode
from holdfast.testing.crashlab.workload import Verdict
from tests.crash.campaign import SOURCES
from tests.crash.workloads import LogWork, world

TABLE = "create table app_box (id integer primary key autoincrement, name text unique)"


def open_at(folder, **options):
    return SqliteStore(folder / ".holdfast" / "holdfast.db", boot_id="boot-1", **options)


@pytest.fixture
def store(tmp_path):
    with open_at(tmp_path) as store:
        yield store


def begun(store, run_id="run-1", seed=1, ttl=600.0):
    log = RunLog(store, run_id, world(seed), ttl=ttl)
    if log.state.seq == 0:
        log.record(RunStarted(mission_id="test"))
    return log


def do(log, *statements, text="noted"):
    """Statements and one note in one transaction; the rows of the last statement."""
    rows = []
    drafted = []

    def work(sql):
        for statement in statements:
            rows[:] = sql.execute(*statement) if isinstance(statement, tuple) else sql.execute(statement)
        drafted.append(log.draft(NoteRecorded(text=text)))
        return drafted[0]

    log.store.transact(log.lease, work)
    log.confirm(drafted[0])
    return rows


def names(store):
    """What is in the table, without a transaction."""
    with store._reading() as reader:
        return [row[0] for row in reader.connection.execute("select name from app_box order by id")]


def schema(store):
    with store._reading() as reader:
        return reader.connection.execute("select type, name, tbl_name, sql from sqlite_schema order by 1, 2").fetchall()


# --- what a statement may do

ALLOWED = {
    "all kinds of tables": (
        "create table app_plain (a, b text not null default 'x' check (b <> ''), c generated always as (upper(b)))",
        "create table app_strict (a integer primary key, b blob unique) strict",
        "create table app_keyed (a text primary key, b text unique) without rowid",
        'create table if not exists "app_Quoted" (a references app_keyed (a) on delete cascade)',
        "create table app_copy as select 1 as one",
    ),
    "all kinds of indexes": (
        "create index app_i on app_box (name)",
        "create unique index if not exists main.app_j on app_box (name, id) where id > 5",
        "create index app_k on app_box (lower(name))",
        "reindex app_i",
        "drop index app_i",
    ),
    "changes of tables": (
        "create table app_old (a text, b text)",
        "insert into app_old values ('x', 'y')",
        "alter table app_old rename to app_new",
        "alter table app_new rename column b to c",
        "alter table app_new add column d integer default 5 check (d > 1)",
        "alter table app_new drop column c",
        "drop table app_new",
    ),
    "rows": (
        ("insert into app_box (name) values (?), (?)", ("a", "b")),
        "insert into app_box (name) values ('c') on conflict do nothing returning id",
        "replace into app_box (id, name) values (1, 'again')",
        "update app_box set name = name || '!' where id in (select max(id) from app_box)",
        "delete from app_box where name = 'b'",
    ),
    "questions": (
        "select count(*) from APP_BOX",
        "with recursive n (i) as (select 1 union all select i + 1 from n where i < 5) select count(*) from n",
        "select value from json_each('[1, 2]')",
        "select name, row_number() over (order by id) from app_box",
        "select seq from sqlite_sequence",
        "explain select * from app_box",
    ),
}


@pytest.mark.parametrize("what", ALLOWED)
def test_the_users_own_tables_are_the_users(tmp_path, store, what):
    log = begun(store)
    do(log, TABLE)
    do(log, *ALLOWED[what])
    assert sqlite_file.is_sound(store._writer.connection())
    with open_at(tmp_path) as again, open_at(tmp_path, read_only=True) as reader:
        assert again.head("run-1") == reader.head("run-1") == store.head("run-1")


REFUSED = {
    "reading the log": ("select body from events_1", "select count(*) from Events_1", "select count(*) from main.runs"),
    "reading it sideways": (
        "select 1 where exists (select 1 from runs)",
        "insert into app_box (name) select body from events_1",
        "create table app_copy as select * from artifacts",
        "select * from pragma_table_info('events_1')",
        "select * from dbstat",
    ),
    "writing to the log": (
        "insert into events_1 (place) values (99)",
        "update runs set epoch = epoch + 1",
        "delete from messages",
        "replace into store (id, store_id, created_at) values (1, '', '')",
        "update snapshots set data = x''",
    ),
    "changing our tables": (
        "drop table events_1",
        "alter table events_1 add column app_x",
        "alter table events_1 rename to app_events",
        "drop index runs_unfinished",
        "create index app_i on events_1 (kind)",
        "reindex runs",
        "reindex",
    ),
    "making other things": (
        "create table mine (a)",
        "create table App_x (a)",
        'create table "app_x y" (a)',
        "create index mine on app_box (name)",
        "create temp table app_x (a)",
        "create temp table events_1 (a)",
        "create view app_v as select 1",
        "create temp view events_1 as select 1",
        "create virtual table app_f using fts5 (a)",
        "create trigger app_t after insert on app_box begin select 1; end",
        "create trigger app_t after insert on events_1 begin delete from events_1; end",
        "create temp trigger app_t after insert on events_1 begin delete from events_1; end",
        "analyze",
        "analyze app_box",
    ),
    "editing the schema": (
        "update sqlite_schema set sql = ''",
        "delete from sqlite_master",
        "insert into sqlite_schema values ('view', 'app_v', 'app_v', 0, 'create view app_v as select 1')",
        "drop table sqlite_sequence",
    ),
    "the transaction": (
        "commit",
        "end",
        "rollback",
        "begin",
        "savepoint s",
        "release s",
        "rollback to s",
        "insert into app_box (name) values ('x'); commit; insert into app_box (name) values ('y')",
    ),
    "the database": (
        "attach ':memory:' as other",
        "attach '/tmp/other.db' as other",
        "detach main",
        "vacuum",
        "vacuum into '/tmp/other.db'",
        "pragma user_version = 9",
        "pragma journal_mode = delete",
        "pragma synchronous = off",
        "pragma writable_schema = on",
        "pragma quick_check",
        "select load_extension('evil')",
        "select fts3_tokenizer('simple')",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_everything_else_is_refused_and_undone(store, what):
    log = begun(store)
    do(log, TABLE)
    before = schema(store)
    for statement in REFUSED[what]:
        with pytest.raises(BadInput, match="refused by the database"):
            do(log, "insert into app_box (name) values ('never')", statement)
        assert store._writer.connection().authorizer is None, statement
        assert (schema(store), names(store), store.head("run-1").seq) == (before, [], 2), statement
    log.record(NoteRecorded(text="the store goes on"))
    assert verify_run(store, "run-1").findings == ()


@pytest.mark.parametrize("name", ["mine", "App_new", "app new", "sqlite_new", "events_99"])
def test_a_new_name_that_is_not_the_users_is_refused_before_the_commit(tmp_path, store, name):
    log = begun(store)
    do(log, TABLE)
    with pytest.raises(BadInput):
        do(log, f'alter table app_box rename to "{name}"')
    open_at(tmp_path).close()
    do(log, "insert into app_box (name) values ('still here')")
    assert names(store) == ["still here"]


def test_a_conflict_that_rolls_back_takes_all_with_it(store):
    log = begun(store)
    do(log, TABLE, "insert into app_box (name) values ('there')")

    def work(sql):
        sql.execute("insert into app_box (name) values ('first')")
        with pytest.raises(BadInput):
            sql.execute("insert or rollback into app_box (name) values ('there')")
        with pytest.raises(BadInput):
            sql.execute("insert into app_box (name) values ('outside of the transaction')")
        return log.draft(NoteRecorded(text="never"))

    with pytest.raises(BadInput, match="UNIQUE"):
        store.transact(log.lease, work)
    assert (names(store), store.head("run-1").seq) == (["there"], 2)


def test_a_disk_that_is_full_is_no_fault_of_the_statement(store):
    log = begun(store)
    do(log, TABLE)
    writer = store._writer.connection()
    pages = writer.pragma("page_count")
    writer.pragma("max_page_count", pages + 2)
    with pytest.raises(StoreFull):
        do(log, "insert into app_box (name) values (hex(zeroblob(100000)))")
    assert (names(store), store.head("run-1").seq) == ([], 2)
    store._writer.connection().pragma("max_page_count", 1 << 30)
    log._reload()
    do(log, "insert into app_box (name) values ('now')")
    assert names(store) == ["now"]


# --- a store with tables of the user opens everywhere


def kept(tmp_path):
    with open_at(tmp_path) as store:
        log = begun(store)
        do(log, TABLE, "create index app_i on app_box (name)", "insert into app_box (name) values ('kept')")
        log.close()
    return tmp_path / ".holdfast" / "holdfast.db"


def test_tables_of_the_user_are_no_reason_to_refuse_a_store(tmp_path):
    path = kept(tmp_path)
    before = path.read_bytes()
    os.unlink(f"{path}-shm")
    assert sqlite_file.needs_copy(str(path))
    with open_at(tmp_path, read_only=True) as copied:
        assert copied._copy is not None
        assert names(copied) == ["kept"]
        with pytest.raises(StoreReadOnly):
            copied.transact(Lease("run-1", 1, 60.0), lambda sql: None)
    assert path.read_bytes() == before
    with open_at(tmp_path) as store:
        assert verify_run(store, "run-1").findings == ()
    with open_at(tmp_path, read_only=True) as reader:
        assert names(reader) == ["kept"]


def test_doctor_and_verify_accept_tables_of_the_user(tmp_path):
    path = kept(tmp_path)
    env = {**os.environ, "HOLDFAST_STORE": str(path)}
    for verb in ("doctor", "verify", "status"):
        done = subprocess.run([sys.executable, "-m", "holdfast", verb], env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


# --- others who write


def test_a_nested_append_is_refused_and_spoils_no_append_that_waits(store):
    mine, other = begun(store), begun(store, "run-2", 2)
    do(mine, TABLE)
    problems = []
    waiting = threading.Thread(target=lambda: other.record(NoteRecorded(text="from another thread")))

    def work(sql):
        sql.execute("insert into app_box (name) values ('a')")
        waiting.start()
        while not store._committer.queue:
            time.sleep(0.001)
        draft = mine.draft(NoteRecorded(text="nested"))
        for write in (lambda: store.append(*draft), lambda: store.append_all([draft])):
            with pytest.raises(UsageError) as caught:
                write()
            problems.append(caught.value)
        mine._reload()
        return mine.draft(NoteRecorded(text="the event"))

    store.transact(mine.lease, work)
    waiting.join()
    assert len(problems) == 2
    assert (store.head("run-1").seq, store.head("run-2").seq, names(store)) == (3, 2, ["a"])


def test_a_transaction_that_was_refused_keeps_nobody_waiting(tmp_path):
    with open_at(tmp_path) as store, open_at(tmp_path, patience=0.3) as other:
        mine, theirs = begun(store), begun(other, "run-2", 2)
        for statement in (TABLE, "this is no sql"):
            with pytest.raises((BadInput, ZeroDivisionError)):
                store.transact(mine.lease, lambda sql, statement=statement: (sql.execute(statement), 1 / 0))
            theirs.record(NoteRecorded(text="at once"))


def test_a_strict_store_writes_its_witness_with_a_transaction(tmp_path):
    with open_at(tmp_path, witness="strict") as store:
        log = begun(store)
        do(log, TABLE)
        assert store._writer.witness.dirty is False
    path = tmp_path / ".holdfast" / "holdfast.db"
    assert store._writer.witness_state == "lagging"
    assert any(sighting.place == (1 << 32 | 2) for sighting in sightings(path))


def sightings(path):
    from holdfast.stores.witness import sightings as seen

    return seen(f"{path}-witness")


def test_a_child_that_is_forked_in_the_work_is_refused_and_the_parent_commits(store):
    log = begun(store)
    do(log, TABLE)
    status = []
    connection = store._writer.connection()

    def work(sql):
        sql.execute("insert into app_box (name) values ('a')")
        child = os.fork()
        if child:
            status.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        return log.draft(NoteRecorded(text="both"))

    parent = os.getpid()
    try:
        store.transact(log.lease, work)
    except StoreClosed:
        os._exit(7 if connection.in_transaction else 9)  # the child has not touched what is its parent's
    finally:
        if os.getpid() != parent:
            os._exit(8)
    assert status == [7]
    assert (names(store), store.head("run-1").seq) == (["a"], 3)


# --- crashes


def transact_for_ever(folder, ready):
    with open_at(folder) as store:
        log = begun(store, seed=random.SystemRandom().randrange(1 << 32))
        do(log, TABLE.replace("create table", "create table if not exists"))
        for number in range(log.state.seq, 1_000_000):
            ready.put(number)
            do(log, ("insert into app_box (name) values (?)", (f"note-{number}",)), text=f"note-{number}")


def hang_in_work(folder, ready):
    with open_at(folder) as store:
        log = begun(store)
        do(log, TABLE)

        def work(sql):
            sql.execute("insert into app_box (name) values (hex(zeroblob(9000000)))")
            ready.put("inside")
            time.sleep(600)
            return log.draft(NoteRecorded(text="never"))

        store.transact(log.lease, work)


def spawned(target, *arguments):
    process = multiprocessing.get_context("spawn").Process(target=target, args=arguments)
    process.start()
    return process


def killed(process):
    os.kill(process.pid, signal.SIGKILL)
    process.join(30)


def noted(store):
    texts = [record.body.decode() for record in store.read("run-1", after=1)]
    return [text.split('"')[3] for text in texts if "note-" in text]


@pytest.mark.crash
def test_a_process_killed_in_the_work_leaves_neither_row_nor_event(tmp_path):
    ready = multiprocessing.get_context("spawn").Queue()
    process = spawned(hang_in_work, tmp_path, ready)
    try:
        ready.get(timeout=60)
    finally:
        killed(process)
    with open_at(tmp_path) as store:
        assert (names(store), store.head("run-1").seq) == ([], 2)
        do(begun(store, seed=2), "insert into app_box (name) values ('next')")
        assert names(store) == ["next"]


@pytest.mark.crash
def test_a_process_killed_at_any_moment_leaves_both_or_neither(tmp_path, record_property, tries):
    chance, kills = random.Random(5), tries.of(12, 5)
    for _ in range(kills):
        ready = multiprocessing.get_context("spawn").Queue()
        process = spawned(transact_for_ever, tmp_path, ready)
        try:
            acknowledged = ready.get(timeout=60)
            for _ in range(chance.randrange(1, 40)):
                acknowledged = ready.get(timeout=60)
            time.sleep(chance.uniform(0, 0.004))
        finally:
            killed(process)
        with open_at(tmp_path) as store:
            rows, events = names(store), noted(store)
            assert rows == events
            assert len(set(rows)) == len(rows)
            assert store.head("run-1").seq >= acknowledged
            assert verify_run(store, "run-1").findings == ()
    record_property("crash", ("SQLite: kill -9 in transactions", kills, {"whole": kills, "refused": 0}, 0))


def test_a_holder_that_was_stopped_beyond_its_lease_changes_nothing(tmp_path):
    with open_at(tmp_path) as old, open_at(tmp_path) as new:
        log = begun(old, ttl=0.05)
        do(log, TABLE)
        draft = log.draft(NoteRecorded(text="from the grave"))
        time.sleep(0.1)
        lease = new.take("run-1", ANOTHER, 600.0)

        def work(sql):
            sql.execute("insert into app_box (name) values ('from the grave')")
            sql.execute("drop table app_box")
            return draft

        with pytest.raises(LeaseLost):
            old.transact(log.lease, work)
        assert (names(new), new.head("run-1").seq, new.head("run-1").epoch) == ([], 2, lease.epoch)


class SqlWork(LogWork):
    """Every event goes with a row. The rows are large and the cache is small, so pages are written before the commit."""

    name = "log with rows of the user"
    table = "create table app_labels (label text primary key, pad text)"

    def open(self, folder: Path) -> SqliteStore:
        store = super().open(folder)
        store._writer.connection().pragma("cache_size", 8)
        return store

    def begin(self, store) -> None:
        super().begin(store)
        log = begun(store, "run-a", 50)
        do(log, self.table, text="table")
        log.close()

    def append(self, log, label, number, ack) -> None:
        do(log, ("insert into app_labels values (?, ?)", (label, "p" * 60_000)), text=label)
        ack(label)

    def again(self, ack) -> None:
        """An interruption must not leave the store believing that it is still lent."""
        for log in self.logs:
            try:
                self.append(log, f"{log.run_id}:again", 0, ack)
            except UsageError as error:
                raise AssertionError("it is lent for ever") from error

    def look(self, store, acked) -> Verdict:
        verdict = super().look(store, acked)
        if verdict != Verdict(True, "whole", ""):
            return verdict
        with store._reading() as reader:
            rows = Counter(row[0] for row in reader.connection.execute("select label from app_labels"))
        events = Counter(label for head in store.heads() for label in self.labels(store, head.run_id))
        return verdict if rows == events else Verdict(False, "corrupt", f"rows {rows} and events {events} differ")


class SplitTransaction(SqlWork):
    """The row is committed before its event."""

    name = "planted: row and event in two transactions"

    def append(self, log, label, number, ack) -> None:
        log.store._writer.connection().execute("insert into app_labels values (?, '')", (label,))
        log.record(NoteRecorded(text=label))
        ack(label)


LENT = [str(Path(sqlite_file.__file__).parent / name) for name in ("sqlite_sql.py", "lending.py")]


def at_calls(work, points):
    return crashlab.kill_everywhere(work, limit=points, seed=3)


def with_errors(work, points):
    return crashlab.errno_everywhere(work, limit=points, seed=3)


def without_power(work, points):
    return crashlab.power_loss(work, images=points, seed=3)


def at_bytecodes(work, points):
    return bytecode.bytecode_points(work, SOURCES, "kill", limit=points, seed=3)


def interrupted(work, points):
    return bytecode.bytecode_points(SqlWork(2), LENT, "interrupt", limit=points, seed=3)


TECHNIQUES = {
    "kill at calls": (at_calls, 120, 40),
    "errno at calls": (with_errors, 160, 50),
    "power loss": (without_power, 600, 200),
    "SIGKILL at bytecodes": (at_bytecodes, 150, 50),
    "KeyboardInterrupt at bytecodes": (interrupted, 300, 60),
}


@pytest.mark.crash
@pytest.mark.parametrize("technique", TECHNIQUES)
def test_rows_and_events_survive_together_or_not_at_all(technique, record_property, skip_or_fail, apart, tries):
    skip_or_fail(crashlab.available())
    function, many, few = TECHNIQUES[technique]
    report = apart(function, SqlWork(4), tries.of(many, few))
    name = f"{technique}, rows of the user"
    record_property("crash", (name, report.points, report.counts, len(report.violations)))
    assert report.violations == [], crashlab.table([report])
    assert report.counts["refused"] == 0, crashlab.table([report])


@pytest.mark.crash
@pytest.mark.parametrize("technique", ["kill at calls", "power loss"])
def test_the_laboratory_finds_a_split_transaction(technique, skip_or_fail, apart):
    skip_or_fail(crashlab.available())
    function, _, few = TECHNIQUES[technique]
    assert apart(function, SplitTransaction(4), few).violations


# --- messages from another process


def post_many(folder, count):
    with open_at(folder) as store:
        for number in range(count):
            store.post("run-1", "note", str(number))


def test_a_holder_and_a_poster_in_another_process_do_not_disturb_each_other(tmp_path):
    with open_at(tmp_path) as store:
        log = begun(store)
        poster = spawned(post_many, tmp_path, 100)
        heard, seen = [], 0
        try:
            while poster.is_alive() or store.messages("run-1", after=seen):
                log.record(NoteRecorded(text="from the holder"))
                heard += store.messages("run-1", after=seen)
                seen = heard[-1].id if heard else 0
                store.drop_messages(log.lease, seen)
        finally:
            poster.join(60)
        assert poster.exitcode == 0
        assert [message.body for message in heard] == [str(number) for number in range(100)]
        assert verify_run(store, "run-1").findings == ()


def test_listening_reads_no_more_than_it_finds(store):
    begun(store)
    with store._reading() as reader:
        plan = reader.connection.execute("explain query plan " + sqlite_file.SQL["messages"], ("run-1", 0)).fetchall()
    assert all("SCAN" not in line[3] for line in plan), plan

"""Statements of the user and messages on PostgreSQL: lost answers, foreign settings, killed processes. Also run as a program."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.core import errors
from holdfast.core.events import NoteRecorded, RunStarted
from holdfast.engine.log import RunLog, verify_run
from holdfast.testing.postgres import PostgresServer, available, shared_server
from holdfast.testing.proxy import Proxy
from tests.crash.workloads import world

REASON = available()
pytestmark = [pytest.mark.postgres, pytest.mark.skipif(REASON is not None, reason=REASON or "")]
PostgresStore = pytest.importorskip("holdfast.stores.postgres").PostgresStore
first_word = pytest.importorskip("holdfast.stores.postgres_sql").first_word

SCALE = float(os.environ.get("HOLDFAST_CRASH_SCALE", "1"))
SOURCE = str(Path(next(iter(holdfast.__path__))).parent)
TABLE = "create table app_box (name text primary key)"


@pytest.fixture
def url() -> Iterator[str]:
    with shared_server().database() as address:
        yield address


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy("127.0.0.1", shared_server().port) as between:
        yield between


def through(proxy: Proxy, url: str) -> str:
    return shared_server().url_of(url.rpartition("/")[2], proxy.port)


@pytest.fixture
def store(url) -> Iterator[Any]:
    with PostgresStore(url) as opened:
        yield opened


def sql(url: str, statement: str) -> list:
    return shared_server().execute(statement, url.rpartition("/")[2])


def begun(store, run_id="run-1", seed=1, ttl=600.0):
    log = RunLog(store, run_id, world(seed), ttl=ttl)
    if log.state.seq == 0:
        log.record(RunStarted(mission_id="test"))
    return log


def do(log, *statements, text="noted"):
    """Statements and one note in one transaction; the rows of the last statement."""
    rows, drafted = [], []

    def work(lent):
        for statement in statements:
            rows[:] = lent.execute(*statement) if isinstance(statement, tuple) else lent.execute(statement)
        drafted.append(log.draft(NoteRecorded(text=text)))
        return drafted[0]

    log.store.transact(log.lease, work)
    log.confirm(drafted[0])
    return rows


def put(log, name):
    do(log, ("insert into app_box values (%s)", (name,)), text=name)


def names(url):
    return [row[0] for row in sql(url, "select name from public.app_box order by name")]


def noted(store, run_id="run-1"):
    texts = [record.body.decode().split('"')[3] for record in store.read(run_id, after=1)]
    return sorted(text for text in texts if text.startswith("note-"))


# --- the connection that is lent


def test_statements_find_the_tables_of_the_user_and_events_ours(url, store):
    sql(url, "create table public.events (mine text); create table public.runs (mine text)")
    log = begun(store)
    assert do(log, "insert into events values ('a')", "select mine from events") == [("a",)]
    assert do(log, "show search_path") == [("public",)]
    assert sql(url, "select mine from public.events") == [("a",)]
    assert store.head("run-1").seq == 3


def test_the_search_path_is_the_one_that_the_database_gives(url):
    sql(url, "create schema own; create table own.app_box (name text primary key)")
    sql(url, f"alter database {url.rpartition('/')[2]} set search_path = own")
    with PostgresStore(url) as store:
        put(begun(store), "note-a")
        assert sql(url, "select name from own.app_box") == [("note-a",)]
        assert store.head("run-1").seq == 2


def test_a_role_with_the_name_of_the_schema_does_not_bring_its_tables_into_the_store(url, store):
    """The default search path begins with a schema named like the role."""
    assert sql(url, "select current_user") == [("holdfast",)]
    do(begun(store), TABLE, "create table app_more (name text references app_box)")
    assert sql(url, "select schemaname from pg_tables where tablename like 'app%'") == [("public",), ("public",)]
    PostgresStore(url).close()


@pytest.mark.parametrize("said_by", ["the database", "the statements of the user"])
def test_several_events_of_one_append_come_back_as_they_were_whatever_a_backslash_means(url, said_by):
    """The driver writes a list of bytes otherwise where the server takes a backslash in a literal for an escape."""
    if said_by == "the database":
        sql(url, f"alter database {url.rpartition('/')[2]} set standard_conforming_strings = off")
    with PostgresStore(url) as store:
        log = begun(store)
        log.record(NoteRecorded(text="one"), NoteRecorded(text="a \\ and a ' too"))
        changed = "select set_config('standard_conforming_strings', 'off', true)"
        log.transact(lambda lent: [lent.execute(changed), NoteRecorded(text="three"), NoteRecorded(text="four")][1:])
        log.record(NoteRecorded(text="five"), NoteRecorded(text="six"))
        assert [record.seq for record in store.read("run-1")] == [1, 2, 3, 4, 5, 6, 7]
        assert verify_run(store, "run-1").findings == ()


@pytest.mark.parametrize(
    "statement",
    [
        "create table app_box (run_id text references holdfast.runs)",
        "create rule app_rule as on insert to holdfast.events do instead nothing",
        "do $$ begin create table app_box (run_id text references holdfast.runs); end $$",
    ],
)
def test_what_would_make_the_store_refuse_itself_is_refused_before_the_commit(url, store, statement):
    log = begun(store)
    with pytest.raises(errors.BadInput, match="Holdfast's own table"):
        do(log, statement)
    PostgresStore(url).close()
    log.record(NoteRecorded(text="as ever"))


SETTINGS = {
    "search_path": "select set_config('search_path', 'nowhere', {})",
    "synchronous_commit": "select set_config('synchronous_commit', 'off', {})",
    "statement_timeout": "select set_config('statement_timeout', '0', {})",
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("only_here", ["true", "false"])
def test_what_a_statement_sets_reaches_no_append_and_no_later_transaction(url, store, setting, only_here):
    log = begun(store)
    before = do(log, f"show {setting}")
    seen = do(log, SETTINGS[setting].format(only_here), f"show {setting}")
    assert seen != before
    assert do(log, f"show {setting}") == before
    with pytest.raises(ZeroDivisionError):
        store.transact(log.lease, lambda lent: lent.execute(SETTINGS[setting].format("false")) and 1 / 0)
    assert do(log, f"show {setting}") == before
    assert store.facts()["synchronous_commit"] == "on"
    log.record(NoteRecorded(text="as ever"))


def test_the_commit_waits_for_the_disk_whatever_a_statement_said(url, store, monkeypatch):
    """Asked of the server at the last moment before the commit."""
    from holdfast.stores import postgres_sql

    seen = []
    commit = postgres_sql.PostgresLender._commit

    def asking(lender, connection, append, values):
        seen.append(connection.execute("show synchronous_commit").fetchone())
        seen.append(connection.execute("show search_path").fetchone())
        commit(lender, connection, append, values)

    monkeypatch.setattr(postgres_sql.PostgresLender, "_commit", asking)
    do(begun(store), "select set_config('synchronous_commit', 'off', false), set_config('search_path', 'x', false)")
    assert seen == [("on",), ("holdfast, pg_temp",)] or seen == [("on",), ("holdfast,pg_temp",)]


# --- statements

WORDS = {
    "select 1": "select",
    " \n\t;; ( Select 1)": "select",
    "-- a\n--b\r  insert": "insert",
    "/* select */ commit": "",
    "/* /* */ select */ commit": "",
    "commit": "commit",
    "-- select": "",
    "": "",
    "selectx": "selectx",
    "select/**/1": "select",
    "“select”": "",
}


@pytest.mark.parametrize("statement", WORDS)
def test_the_first_word_is_the_one_the_server_sees(statement):
    assert first_word(statement) == WORDS[statement]


ENDING = (
    "commit",
    ";commit",
    "/* /* */ select */ commit",
    "rollback",
    "rollback and chain",
    "prepare transaction 'x'",
    "start transaction",
    "select 1; commit",
    "commit; select 1",
    "do $$ begin commit; end $$",
    "do $$ begin rollback; end $$",
    "call app_ends()",
    "set session characteristics as transaction read only",
    "discard all",
    "copy app_box from stdin",
    "explain commit",
)


@pytest.mark.parametrize("statement", ENDING)
def test_no_statement_ends_the_transaction(url, store, statement):
    sql(url, "create procedure app_ends() language plpgsql as 'begin commit; end'")
    log = begun(store)
    do(log, TABLE)
    with pytest.raises(errors.BadInput):
        do(log, "insert into app_box values ('never')", statement)
    assert (names(url), store.head("run-1").seq) == ([], 2)
    put(log, "note-after")
    assert names(url) == ["note-after"]


def test_a_constraint_that_is_checked_at_the_commit_is_a_fault_of_the_statement(url, store):
    log = begun(store)
    do(log, TABLE, "create table app_more (name text references app_box deferrable initially deferred)")
    with pytest.raises(errors.BadInput, match="foreign key"):
        do(log, "insert into app_more values ('nowhere')")
    assert (sql(url, "select * from app_more"), store.head("run-1").seq) == ([], 2)


def test_an_error_shows_the_statement_and_no_value(store):
    log = begun(store)
    do(log, TABLE, "insert into app_box values ('hunter2')")
    with pytest.raises(errors.BadInput) as caught:
        do(log, ("insert into app_box values (%s)", ("hunter2",)))
    assert "insert into app_box" in str(caught.value) and "duplicate key" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_table_locked_by_somebody_else_is_busy(url):
    import psycopg

    with PostgresStore(url, patience=1.0) as store, psycopg.connect(url) as blocker:
        log = begun(store)
        do(log, TABLE)
        blocker.execute("lock table app_box")
        with pytest.raises(errors.StoreBusy):
            put(log, "note-a")
        blocker.rollback()
        put(log, "note-a")
        assert names(url) == ["note-a"]


def test_a_store_opened_for_reading_lends_nothing(url, store):
    log = begun(store)
    with PostgresStore(url, read_only=True) as reader, pytest.raises(errors.StoreReadOnly):
        reader.transact(log.lease, lambda lent: log.draft(NoteRecorded(text="x")))


def test_a_child_that_is_forked_in_the_work_is_refused_and_the_parent_commits(url, store):
    log = begun(store)
    do(log, TABLE)
    status = []

    def work(lent):
        lent.execute("insert into app_box values ('a')")
        child = os.fork()
        if child:
            status.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        return log.draft(NoteRecorded(text="both"))

    parent = os.getpid()
    try:
        store.transact(log.lease, work)
    except errors.StoreClosed:
        os._exit(7)
    finally:
        if os.getpid() != parent:
            os._exit(8)
    assert status == [7]
    assert (names(url), store.head("run-1").seq) == (["a"], 3)


def test_a_lease_may_be_renewed_while_the_work_goes_on(url, store):
    log = begun(store, ttl=1.0)
    do(log, TABLE)

    def work(lent):
        lent.execute("insert into app_box values ('slow')")
        for _ in range(3):
            keeper = threading.Thread(target=log.renew)
            keeper.start()
            keeper.join()
            time.sleep(0.5)
        return log.draft(NoteRecorded(text="slow"))

    store.transact(log.lease, work)
    assert names(url) == ["slow"]


# --- the wire and the server


def test_a_commit_whose_answer_was_lost_is_found_and_the_work_not_done_again(url, store, proxy):
    with PostgresStore(through(proxy, url)) as far:
        log, calls = begun(far), []
        do(log, TABLE)

        def work(lent):
            calls.append(lent.execute("insert into app_box values ('once')"))
            return log.draft(NoteRecorded(text="note-once"))

        commit = far._lender._commit
        far._lender._commit = lambda *given: (proxy.cut("down", 1), commit(*given))[1]
        far.transact(log.lease, work)
        assert (proxy.cuts_made, len(calls)) == (1, 1)
    assert (names(url), noted(store)) == (["once"], ["note-once"])


def test_a_connection_lost_in_the_work_writes_nothing_and_says_so(url, store, proxy):
    with PostgresStore(through(proxy, url)) as far:
        log, calls = begun(far), []
        do(log, TABLE)

        def work(lent):
            calls.append(lent.execute("insert into app_box values ('never')"))
            proxy.cut("up", 0)
            lent.execute("select 1")
            return log.draft(NoteRecorded(text="never"))

        with pytest.raises(errors.StoreUnavailable):
            far.transact(log.lease, work)
        assert len(calls) == 1
        put(log, "note-after")
    assert (names(url), noted(store)) == (["note-after"], ["note-after"])


def test_an_idle_connection_that_died_is_replaced_before_the_work_begins(url, store, proxy):
    with PostgresStore(through(proxy, url)) as far:
        log = begun(far)
        do(log, TABLE)
        sql(url, "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() "
                 "and application_name = 'holdfast' and datname = current_database()")  # fmt: skip
        put(log, "note-a")
    assert names(url) == noted(store) == ["note-a"]


def conversation(proxied: str, number: int) -> tuple[str, bool]:
    """One run that is begun and then written with a row; whether that was acknowledged. Reopens as a person would."""
    run_id, name = f"run-{number:05}", f"note-{number:05}"
    try:
        store = PostgresStore(proxied, patience=20)
    except errors.StoreUnavailable:
        store = PostgresStore(proxied, patience=20)
    with store:
        log = begun(store, run_id, number)
        for _ in range(2):
            try:
                put(log, name)
                return run_id, True
            except errors.StoreUnavailable:
                if log.state.seq > 1:
                    return run_id, True
    return run_id, False


@pytest.mark.crash
def test_a_connection_cut_at_any_byte_leaves_row_and_event_or_neither(url, store, proxy, record_property, tries):
    sql(url, TABLE.replace("app_box", "public.app_box"))
    conversation(through(proxy, url), 0)
    proxy.heal()
    conversation(through(proxy, url), 1)
    every = [(way, after) for way, total in dict(proxy.passed).items() for after in range(total)]
    points = sorted(random.Random(11).sample(every, min(len(every), round(tries.of(150, 50) * SCALE))))
    for number, (way, after) in enumerate(points, 2):
        proxy.cut(way, after, reset=bool(number % 2))
        run_id, acknowledged = conversation(through(proxy, url), number)
        rows = sql(url, f"select count(*) from public.app_box where name = 'note-{number:05}'")[0][0]
        assert (rows, len(noted(store, run_id))) == (1, 1) if acknowledged else (0, 0), (way, after)
        assert verify_run(store, run_id).findings == ()
    assert proxy.cuts_made >= len(points) * 0.9
    made = proxy.cuts_made
    record_property("crash", ("PostgreSQL: wire cut in a transaction", made, {"whole": made, "refused": 0}, 0))


@pytest.mark.crash
def test_a_server_killed_with_9_keeps_rows_and_events_together(record_property):
    kills = max(1, round(5 * SCALE))
    with PostgresServer() as server, PostgresStore(server.url) as store:
        log, stop, number = begun(store), threading.Event(), 0
        do(log, TABLE)

        def kill() -> None:
            chance = random.Random(9)
            for _ in range(kills):
                time.sleep(chance.uniform(0.05, 0.3))
                server.kill9()
                server.start()
            stop.set()

        killer = threading.Thread(target=kill)
        killer.start()
        while not stop.is_set():
            number += 1
            try:
                put(log, f"note-{number:06}")
            except errors.StoreUnavailable:
                continue
        killer.join()
        rows = [row[0] for row in server.execute("select name from app_box order by name")]
        assert rows == noted(store)
        assert len(rows) > kills
        assert verify_run(store, "run-1").findings == ()
    record_property("crash", ("PostgreSQL: kill -9 in transactions", kills, {"whole": kills, "refused": 0}, 0))


@pytest.mark.crash
@pytest.mark.parametrize("place", ["in the work", "anywhere"])
def test_a_process_killed_with_9_leaves_both_or_neither(url, store, place, tries):
    sql(url, TABLE.replace("app_box", "public.app_box"))
    chance = random.Random(4)
    for trial in range(1 if place == "in the work" else tries.of(6, 3)):
        command = [sys.executable, __file__, place, url, str(trial)]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([SOURCE, str(Path(__file__).parents[2])])}
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout
            for _ in range(chance.randrange(1, 30) if place == "anywhere" else 1):
                assert child.stdout.readline()
            time.sleep(chance.uniform(0, 0.004))
            child.send_signal(signal.SIGKILL)
        ended = "select count(*) from pg_stat_activity where state like 'idle in%' or wait_event_type = 'Lock'"
        while sql(url, ended) != [(0,)]:
            time.sleep(0.01)
        assert names(url) == sorted(noted(store, f"run-{trial}") + names_of_others(url, trial))
        if place == "in the work":
            assert names(url) == []


def names_of_others(url, trial):
    return [name for name in names(url) if not name.startswith(f"note-{trial}-")]


# --- messages


def test_a_message_whose_answer_was_lost_is_left_once(url, store, proxy):
    begun(store)
    with PostgresStore(through(proxy, url)) as far:
        ids = [far.post("run-1", "cancel", "first")]
        for number in range(3):
            proxy.cut("down", number)
            ids.append(far.post("run-1", "cancel", str(number)))
        assert proxy.cuts_made == 3
    assert [message.id for message in store.messages("run-1")] == ids
    assert ids == sorted(ids)


def test_a_message_that_was_taken_in_before_it_is_repeated_does_not_come_again(url, store):
    from holdfast.stores.postgres import _post

    log = begun(store)
    values = {"run_id": "run-1", "token": b"t" * 16, "kind": "cancel", "body": b"now"}
    first = store._link.run(lambda connection: _post(connection, values))
    store.drop_messages(log.lease, first[0])
    assert store._link.run(lambda connection: _post(connection, values)) == first
    assert store.messages("run-1") == []
    assert store.post("run-1", "cancel", "another") > first[0]


def test_a_role_that_may_only_write_rows_can_leave_and_drop_messages(url):
    PostgresStore(url).close()
    sql(url, "create role scribe login password 'scribe'")
    try:
        sql(url, "grant usage on schema holdfast to scribe")
        sql(url, "grant select, insert, update on all tables in schema holdfast to scribe")
        with PostgresStore(url.replace(f"holdfast:{shared_server().password}", "scribe:scribe")) as store:
            log = begun(store)
            store.drop_messages(log.lease, store.post("run-1", "cancel", ""))
            assert store.messages("run-1") == []
    finally:
        sql(url, "drop owned by scribe")
        sql(url, "drop role scribe")


# --- the programs


def main(place: str, url: str, trial: str) -> None:
    with PostgresStore(url) as store:
        log = begun(store, f"run-{trial}", int(trial))
        if place == "in the work":

            def hang(lent):
                lent.execute("insert into app_box values ('never')")
                print("inside", flush=True)
                time.sleep(600)

            store.transact(log.lease, hang)
        for number in range(100_000):
            put(log, f"note-{trial}-{number:06}")
            print(number, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

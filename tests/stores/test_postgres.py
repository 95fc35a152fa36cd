"""The PostgreSQL store: killed servers, cut wires, stopped holders, many processes. Run as a program, this file is a writer."""

from __future__ import annotations

import os
import random
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.core import errors
from holdfast.core.events import RunStarted
from holdfast.core.wire import GENESIS, chain_hash, check_chain
from holdfast.engine.log import RunLog, World, verify_run
from holdfast.ports import Append, Lease, Owner, Projection, Record, Store
from holdfast.testing.postgres import PostgresServer, available, shared_server
from holdfast.testing.proxy import Direction, Proxy
from holdfast.testing.store_suite import StoreSuite

REASON = available()
pytestmark = [pytest.mark.postgres, pytest.mark.skipif(REASON is not None, reason=REASON or "")]
PostgresStore = pytest.importorskip("holdfast.stores.postgres").PostgresStore

SCALE = float(os.environ.get("HOLDFAST_CRASH_SCALE", "1"))
SOURCE = str(Path(next(iter(holdfast.__path__))).parent)
AT = "2026-01-02T03:04:05.678901Z"
ME = Owner("host", "boot", os.getpid(), "now")
SHOWN = Projection("mission", "title", "running")


def record(run_id: str, seq: int, previous: bytes, op: str | None = None, body: bytes = b'{"n":1}') -> Record:
    op = op or secrets.token_hex(16)
    digest = chain_hash(previous, run_id, seq, "x_test", 1, AT, op, body)
    return Record(run_id, seq, "x_test", 1, AT, body, digest, op)


def chain(run_id: str, count: int, seq: int = 0, previous: bytes = GENESIS, op: str | None = None) -> list[Record]:
    records: list[Record] = []
    for number in range(seq + 1, seq + count + 1):
        records.append(record(run_id, number, previous, op))
        previous = records[-1].hash
    return records


def next_record(store, run_id: str, body: bytes = b'{"n":1}') -> Record:
    head = store.head(run_id)
    return record(run_id, head.seq + 1 if head else 1, head.hash if head else GENESIS, body=body)


def whole(store, run_id: str) -> list[str]:
    """The operations of a run in order, after checking that no number is missing, repeated or unchained."""
    previous, ops = GENESIS, []
    for expected, found in enumerate(store.read(run_id), 1):
        previous = check_chain(found, previous, expected)
        ops.append(found.op)
    head = store.head(run_id)
    assert (head.seq, head.hash) == (len(ops), previous)
    assert len(set(ops)) == len(ops)
    return ops


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


class Child:
    """This file as a program in another process: `Child("verb", ...)`."""

    def __init__(self, *arguments: object) -> None:
        command = [sys.executable, __file__, *map(str, arguments)]
        env = {**os.environ, "PYTHONPATH": SOURCE}
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def say(self, line: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def end(self) -> list[str]:
        said, _ = self.process.communicate(timeout=120)
        assert self.process.returncode == 0
        return said.split()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *problem: object) -> None:
        self.process.kill()
        self.process.communicate()


class TestPostgresStore(StoreSuite):
    placeholder = "%s"

    @pytest.fixture(autouse=True)
    def address(self, url: str) -> None:
        self.url = url

    def make_store(self, folder: Path) -> Store:
        made: Store = PostgresStore(self.url)
        return made


# --- the server dies


class Hammer(threading.Thread):
    """Appends to one run for ever and remembers what was acknowledged."""

    def __init__(self, store, run_id: str) -> None:
        super().__init__(daemon=True)
        self.store, self.run_id = store, run_id
        self.acknowledged: list[str] = []
        self.stop = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            lease = self.store.take(self.run_id, ME, 600.0)
            seq, previous = 0, GENESIS
            while not self.stop.is_set():
                records = chain(self.run_id, 1 + seq % 3, seq, previous, secrets.token_hex(16))
                self.store.append(lease, records, SHOWN)
                seq, previous = records[-1].seq, records[-1].hash
                self.acknowledged += [entry.hash.hex() for entry in records]
        except BaseException as error:
            self.error = error

    def wait_for(self, more: int) -> None:
        wanted = len(self.acknowledged) + more
        wait_until(lambda: len(self.acknowledged) >= wanted or self.error is not None)


@pytest.mark.crash
def test_a_server_killed_with_9_again_and_again_loses_and_doubles_nothing(record_property, tries):
    kills = max(1, round(tries.of(20, 6) * SCALE))
    chance = random.Random(20260102)
    with PostgresServer() as server, PostgresStore(server.url) as store:
        hammers = [Hammer(store, f"run-{number}") for number in range(4)]
        for hammer in hammers:
            hammer.start()
        for _ in range(kills):
            for hammer in hammers:
                hammer.wait_for(5)
            time.sleep(chance.uniform(0, 0.02))
            server.kill9()
            server.start()
        for hammer in hammers:
            hammer.stop.set()
        for hammer in hammers:
            hammer.join(60)
            assert hammer.error is None
        for hammer in hammers:
            stored = [entry.hash.hex() for entry in store.read(hammer.run_id)]
            check_links(store, hammer.run_id)
            assert stored == hammer.acknowledged
            assert len(stored) > kills * 5
    record_property("crash", ("PostgreSQL: kill -9 of the server", kills, {"whole": kills, "refused": 0}, 0))


def check_links(store, run_id: str) -> None:
    previous = GENESIS
    for expected, found in enumerate(store.read(run_id), 1):
        previous = check_chain(found, previous, expected)


def wait_until(ready, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < until, "waited too long"
        time.sleep(0.005)


def test_a_server_that_stays_away_is_named_within_the_patience_given():
    with PostgresServer() as server, PostgresStore(server.url, patience=0.6) as store:
        lease = store.take("run", ME, 60)
        server.kill9()
        began = time.monotonic()
        with pytest.raises(errors.StoreUnavailable):
            store.append(lease, chain("run", 1), SHOWN)
        assert time.monotonic() - began < 5


# --- the wire is cut


def conversation(proxied: str, run_id: str) -> None:
    """Everything that can change a run. A store that cannot be opened is opened again, as a person would."""
    try:
        store = PostgresStore(proxied, patience=20)
    except errors.StoreUnavailable:
        store = PostgresStore(proxied, patience=20)
    with store:
        lease = store.take(run_id, ME, 60)
        assert lease.epoch == 1
        first = chain(run_id, 1)
        several = chain(run_id, 2, 1, first[0].hash, secrets.token_hex(16))
        store.append(lease, first, SHOWN)
        store.append(lease, several, SHOWN)
        store.renew(lease)
        assert store.head(run_id).seq == 3


def cut_points(totals: dict[Direction, int], wanted: int) -> list[tuple[Direction, int]]:
    every = [(way, after) for way in totals for after in range(totals[way])]
    return every if wanted >= len(every) else sorted(random.Random(7).sample(every, wanted))


@pytest.mark.crash
def test_a_connection_cut_at_any_byte_in_either_direction_loses_and_doubles_nothing(
    url, store, proxy, record_property, tries
):
    conversation(through(proxy, url), "run-00000")
    proxy.heal()
    conversation(through(proxy, url), "run-00001")
    points = cut_points(dict(proxy.passed), round(tries.of(420, 90) * SCALE))
    for number, (way, after) in enumerate(points, 2):
        run_id = f"run-{number:05}"
        proxy.cut(way, after, reset=bool(number % 2))
        conversation(through(proxy, url), run_id)
        assert len(list(store.read(run_id))) == 3, (way, after)
        check_links(store, run_id)
    # the last bytes of the goodbye may pass after the next cut was armed
    assert proxy.cuts_made >= len(points) * 0.95
    made = proxy.cuts_made
    record_property("crash", ("PostgreSQL: wire cut at a byte", made, {"whole": made, "refused": 0}, 0))


def test_a_server_that_swallows_everything_is_given_up_and_the_same_append_goes_on_later(url, proxy):
    with PostgresStore(through(proxy, url), patience=2.0) as store:
        lease = store.take("run", ME, 60)
        entry = chain("run", 1)
        proxy.black_hole()
        began = time.monotonic()
        with pytest.raises(errors.StoreUnavailable):
            store.append(lease, entry, SHOWN)
        assert time.monotonic() - began < 15
        proxy.heal()
        store.append(lease, entry, SHOWN)
        assert whole(store, "run") == [entry[0].op]


def test_an_answer_lost_on_the_way_back_does_not_double_the_append(url, proxy):
    with PostgresStore(through(proxy, url)) as store:
        lease = store.take("run", ME, 60)
        first, second = chain("run", 2)
        store.append(lease, [first], SHOWN)
        proxy.cut("down", 1)
        store.append(lease, [second], SHOWN)
        assert proxy.cuts_made == 1
        assert whole(store, "run") == [first.op, second.op]


def test_an_acquisition_whose_answer_was_lost_is_recognised_when_repeated(url, proxy):
    with PostgresStore(through(proxy, url)) as store:
        store.take("prepares-the-statement", ME, 60)
        proxy.cut("down", 1)
        lease = store.take("run", ME, 60)
        assert proxy.cuts_made == 1
        assert lease.epoch == 1
        store.append(lease, chain("run", 1), SHOWN)


# --- holders that stop, and many writers


@pytest.mark.crash
def test_a_holder_stopped_beyond_its_lease_cannot_append_when_it_wakes(url, store, record_property, tries):
    trials = max(1, round(tries.of(20, 5) * SCALE))
    for trial in range(trials):
        run_id = f"run-{trial}"
        with Child("hold", url, run_id) as child:
            wait_until(lambda run_id=run_id: (head := store.head(run_id)) is not None and head.seq > 20)
            child.process.send_signal(signal.SIGSTOP)
            wait_until(lambda run_id=run_id: not store.head(run_id).held)
            lease = store.take(run_id, ME, 60)
            entry = next_record(store, run_id)
            store.append(lease, [entry], SHOWN)
            child.process.send_signal(signal.SIGCONT)
            acknowledged = child.end()
        assert acknowledged.pop() == "LeaseLost"
        ops = whole(store, run_id)
        assert ops.pop() == entry.op
        assert acknowledged == ops
    record_property("crash", ("PostgreSQL: stopped holder wakes", trials, {"whole": trials, "refused": 0}, 0))


@pytest.mark.crash
@pytest.mark.slow
def test_two_processes_hand_one_run_over_and_10000_appends_keep_their_order(url, store, tries):
    each = tries.of(5000, 1500)
    turn = each // 20
    with Child("share", url, "run", each, turn) as one, Child("share", url, "run", each, turn) as other:
        acknowledged = [one.end(), other.end()]
    ops = whole(store, "run")
    assert len(ops) == 2 * each
    assert sorted(ops) == sorted(acknowledged[0] + acknowledged[1])
    mine = set(acknowledged[0])
    assert [op for op in ops if op in mine] == acknowledged[0]
    assert store.head("run").epoch >= 40


@pytest.mark.crash
@pytest.mark.slow
def test_two_processes_make_10000_appends_to_many_runs(url, store, tries):
    each = tries.of(5000, 1500)
    with Child("many", url, "a", each, 10) as one, Child("many", url, "b", each, 10) as other:
        one.end(), other.end()
    heads = list(store.heads())
    assert len(heads) == 20
    assert all(len(whole(store, head.run_id)) == each // 10 for head in heads)


def test_two_processes_with_one_lease_are_told_apart_by_the_sequence_number(url, store):
    lease = store.take("run", ME, 600)
    with Child("contend", url, "run", lease.epoch, 300) as one, Child("contend", url, "run", lease.epoch, 300) as other:
        acknowledged = one.end() + other.end()
    assert sorted(whole(store, "run")) == sorted(acknowledged)


def test_threads_of_one_store_write_many_runs_at_once(store):
    def write(run_id: str) -> None:
        lease = store.take(run_id, ME, 60)
        for entry in chain(run_id, 50):
            store.append(lease, [entry], SHOWN)

    threads = [threading.Thread(target=write, args=(f"run-{number:02}",)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(whole(store, f"run-{number:02}")) for number in range(12)] == [50] * 12


@pytest.mark.parametrize("lengths", [(1, 1, 1), (1, 3, 2)], ids=["one event each", "some have several"])
def test_appends_at_once_are_one_transaction(url, store, lengths):
    appends = [
        Append(store.take(f"run-{number}", ME, 60), chain(f"run-{number}", length), SHOWN)
        for number, length in enumerate(lengths)
    ]
    assert store.append_all(appends) == [None] * len(lengths)
    assert [len(whole(store, f"run-{number}")) for number in range(len(lengths))] == list(lengths)
    assert len(sql(url, "select distinct xmin::text from holdfast.events")) == 1


ODD = ['{"text":"a\\\\b, {c} \\"d\\" \\u0000 NULL"}', '{"text":"\u00fc \u2028 \U0001f980"}', '{"text":""}']


def test_appends_at_once_keep_every_letter(url, store):
    appends = []
    for number, length in enumerate((1, 3)):
        run_id, records, previous = f"run-{number}", [], GENESIS
        for seq, body in enumerate(ODD[:length], 1):
            records.append(record(run_id, seq, previous, body=body.encode()))
            previous = records[-1].hash
        appends.append(Append(store.take(run_id, ME, 60), records, SHOWN._replace(title='a\0b"\\')))
    assert store.append_all(appends) == [None, None]
    assert [list(store.read(append.lease.run_id)) for append in appends] == [append.records for append in appends]
    assert store.head("run-0").projection.title == 'a\ufffdb"\\'
    assert len(sql(url, "select distinct xmin::text from holdfast.events")) == 1


def test_statements_that_the_server_has_forgotten_are_prepared_again(url, store):
    runs = {run_id: store.take(run_id, ME, 60) for run_id in ("a", "b")}
    for forgotten in (False, True, False):
        if forgotten:
            store._link.run(lambda connection: connection.execute("deallocate all", prepare=False))
        appends = [Append(lease, [next_record(store, run_id)], SHOWN) for run_id, lease in runs.items()]
        assert store.append_all(appends) == [None, None]
    assert [len(whole(store, run_id)) for run_id in runs] == [3, 3]
    together = sql(url, "select count(*) from holdfast.events group by xmin::text order by 1")
    assert together == [(1,), (1,), (2,), (2,)], "only those of the moment of forgetting went alone"


def test_statements_that_were_prepared_in_a_trip_that_failed_are_known(url, store):
    used = store.take("used", ME, 60)
    once = next_record(store, "used")
    store.append(used, [once], SHOWN)
    leases = {run_id: store.take(run_id, ME, 60) for run_id in ("a", "b")}
    twice = record("a", 1, GENESIS, op=once.op)
    bad = [Append(leases["a"], [twice], SHOWN), Append(leases["b"], [next_record(store, "b")], SHOWN)]
    assert [type(problem) for problem in store.append_all(bad)] == [errors.OperationReused, type(None)]
    good = [Append(lease, [next_record(store, run_id)], SHOWN) for run_id, lease in leases.items()]
    assert store.append_all(good) == [None, None]
    assert sql(url, "select count(*) from holdfast.events group by xmin::text order by 1") == [(1,), (1,), (2,)]


# --- leases by the server's clock


def test_a_lease_runs_out_by_the_clock_of_the_server(url, store):
    with PostgresStore(url) as other:
        stale = store.take("run", ME, 2.0)  # a busy machine must not take this long for one question
        with pytest.raises(errors.LeaseHeld) as held:
            other.take("run", ME, 60)
        assert held.value.holder == ME
        wait_until(lambda: sql(url, "select lease_until < clock_timestamp() from holdfast.runs") == [(True,)])
        fresh = other.take("run", ME, 60)
        assert fresh.epoch == stale.epoch + 1
        with pytest.raises(errors.LeaseLost):
            store.append(stale, chain("run", 1), SHOWN)
        with pytest.raises(errors.LeaseLost):
            store.renew(stale)
        store.release(stale)
        other.append(fresh, chain("run", 1), SHOWN)


def test_every_append_extends_the_lease(url, store):
    lease = store.take("run", ME, 60)
    sql(url, "update holdfast.runs set lease_until = clock_timestamp() + interval '1 second'")
    store.append(lease, chain("run", 1), SHOWN)
    assert sql(url, "select lease_until > clock_timestamp() + interval '50 seconds' from holdfast.runs") == [(True,)]


def test_closing_a_store_gives_its_leases_back(url, store):
    with PostgresStore(url) as other:
        other.take("run", ME, 600)
    assert store.take("run", ME, 60).epoch == 2


# --- opening


def test_eight_processes_that_open_an_empty_database_at_once_make_one_store(url):
    children = [Child("open", url) for _ in range(8)]
    for child in children:
        assert child.hear() == "ready"
    for child in children:
        child.say("go")
    names = {child.end()[-1] for child in children}
    assert names == {row[0] for row in sql(url, "select store_id from holdfast.store")}
    assert sql(url, "select schema_version from holdfast.store") == [(1,)]


def test_a_store_of_a_newer_holdfast_is_refused_and_untouched(url):
    PostgresStore(url).close()
    sql(url, "update holdfast.store set schema_version = 99")
    before = sql(url, "select xmin::text, * from holdfast.store")
    for read_only in (False, True):
        with pytest.raises(errors.NewerSchema) as refused:
            PostgresStore(url, read_only=read_only)
        assert refused.value.found == 99
    assert sql(url, "select xmin::text, * from holdfast.store") == before


FOREIGN = {
    "a table of somebody else": "create schema holdfast; create table holdfast.runs (mine text)",
    "a trigger": "create function holdfast.f() returns trigger language plpgsql as 'begin return null; end';"
    "create trigger t before insert on holdfast.events for each row execute function holdfast.f()",
    "a rule": "create rule r as on insert to holdfast.events do instead nothing",
}


@pytest.mark.parametrize("what", FOREIGN)
def test_tables_of_another_hand_are_refused(url, what):
    if "schema" not in FOREIGN[what]:
        PostgresStore(url).close()
    sql(url, FOREIGN[what])
    with pytest.raises(errors.StoreForeign):
        PostgresStore(url)


LACKING = {
    "the row that names it": ("delete from holdfast.store", errors.StoreUnreadable),
    "the table of events": ("drop table holdfast.events", errors.StoreForeign),
    "the table of artifacts": ("drop table holdfast.artifacts", errors.StoreForeign),
}


@pytest.mark.parametrize("what", LACKING)
@pytest.mark.parametrize("read_only", [False, True])
def test_a_store_that_lacks_something_is_no_empty_one(url, what, read_only):
    PostgresStore(url).close()
    statement, named = LACKING[what]
    sql(url, statement)
    with pytest.raises(named):
        PostgresStore(url, read_only=read_only)


def test_a_database_that_is_not_utf_8_is_refused():
    server = shared_server()
    server.execute("create database ascii encoding 'SQL_ASCII' template template0")
    try:
        with pytest.raises(errors.StoreForeign, match="SQL_ASCII"):
            PostgresStore(server.url_of("ascii"))
    finally:
        server.execute("drop database ascii with (force)")


def test_opening_for_reading_creates_nothing_and_reads_everything(url):
    with pytest.raises(errors.NotFound):
        PostgresStore(url, read_only=True)
    assert sql(url, "select 1 from pg_namespace where nspname = 'holdfast'") == []
    with PostgresStore(url) as writer:
        lease = writer.take("run", ME, 60)
        writer.append(lease, chain("run", 3), SHOWN)
        digest = writer.put_artifact(b"kept" * 100)
        writer.save_snapshot("run", 3, b"state")
        with PostgresStore(url, read_only=True) as reader:
            assert len(list(reader.read("run"))) == 3
            assert [head.run_id for head in reader.heads()] == ["run"]
            assert reader.get_artifact(digest) == b"kept" * 100
            assert reader.load_snapshot("run") == (3, b"state")
            assert reader.facts()["events"] == 3
            refused(reader.take, "other", ME, 1)
            refused(reader.append, lease, chain("run", 1), SHOWN)
            refused(reader.put_artifact, b"x")
            refused(reader.save_snapshot, "run", 9, b"")


def refused(write: Callable[..., object], *arguments: object) -> None:
    with pytest.raises(errors.StoreReadOnly):
        write(*arguments)


def test_a_role_that_may_only_write_rows_can_work_once_the_schema_is_there(url):
    PostgresStore(url).close()
    sql(url, "create role clerk login password 'clerk'")
    try:
        sql(url, "grant usage on schema holdfast to clerk")
        sql(url, "grant select, insert, update on all tables in schema holdfast to clerk")
        password = shared_server().password
        with PostgresStore(url.replace(f"holdfast:{password}", "clerk:clerk")) as store:
            store.append(store.take("run", ME, 60), chain("run", 2), SHOWN)
            store.save_snapshot("run", 2, b"state")
            store.get_artifact(store.put_artifact(b"bytes"))
            assert store.head("run").seq == 2
    finally:
        sql(url, "drop owned by clerk")
        sql(url, "drop role clerk")


@pytest.mark.parametrize("granted", ["usage on schema holdfast", "select on all tables in schema holdfast"])
def test_a_role_that_lacks_a_right_is_told_so(url, granted):
    PostgresStore(url).close()
    sql(url, "create role guest login password 'guest'")
    try:
        sql(url, f"grant {granted} to guest")
        theirs = url.replace(f"holdfast:{shared_server().password}", "guest:guest")
        for read_only in (False, True):
            with pytest.raises(errors.StoreReadOnly) as told:
                PostgresStore(theirs, read_only=read_only)
            assert "this role" in told.value.advice
    finally:
        sql(url, "drop owned by guest")
        sql(url, "drop role guest")


def test_two_schemas_of_one_database_are_two_stores(url):
    with PostgresStore(url) as one, PostgresStore(url, schema="other") as other:
        one.append(one.take("run", ME, 60), chain("run", 1), SHOWN)
        assert other.head("run") is None
        assert one.store_id != other.store_id


@pytest.mark.parametrize("name", ["", "Holdfast", "a-b", 'a"; drop schema public; --', "x" * 64, "é"])
def test_a_schema_name_that_would_need_quoting_is_refused(url, name):
    with pytest.raises(errors.UsageError):
        PostgresStore(url, schema=name)


def test_no_error_shows_the_password():
    server = shared_server()
    wrong = "postgresql://holdfast:hunter2-hunter2@127.0.0.1:{}/postgres"
    with pytest.raises(errors.StoreUnavailable) as refused:
        PostgresStore(wrong.format(server.port))
    with pytest.raises(errors.UsageError) as unreadable:
        PostgresStore("postgresql://holdfast:hunter2-hunter2@[::1/x?a")
    assert "hunter2" not in str(refused.value) + str(unreadable.value)


@pytest.mark.parametrize("password", ["hunt@er2", "hunt/er2", "hu@nt/er2", "hu/nt@er2"])
def test_a_password_that_would_have_to_be_encoded_is_refused_unseen(password):
    with pytest.raises(errors.UsageError, match="cannot be read") as refused:
        PostgresStore(f"postgresql://holdfast:{password}@127.0.0.1:1/work", read_only=True)
    assert "er2" not in str(refused.value)
    assert "%40" in refused.value.advice


@pytest.mark.parametrize("address", ["postgresql://", "postgresql:///", "postgresql:///work?host=@in-no-folder"])
def test_what_an_address_leaves_to_the_environment_is_no_mistake(address):
    assert import_module("holdfast.stores.postgres_link").place_of(address).startswith("PostgreSQL ")


def test_nobody_listening_is_said_at_once():
    with pytest.raises(errors.StoreUnavailable, match="refused"):
        PostgresStore("postgresql://holdfast@127.0.0.1:1/postgres")


# --- durability, bytes and limits


def test_a_commit_waits_for_the_disk_whatever_the_database_says(url):
    database = url.rpartition("/")[2]
    sql(url, f"alter database {database} set synchronous_commit = off")
    with PostgresStore(url) as store:
        assert store.facts()["synchronous_commit"] == "on"


BODIES = {
    "escaped NUL": b'{"a":"\\u0000"}',
    "spaces and order": b'{ "b" : 1 ,\n\t"a":1.0e0 }',
    "astral": '{"a":"\U0001f9ed\U0010ffff\ufeff\u202e"}'.encode(),
    "backslashes and quotes": b'{"a":"\\\\x41 \\" \' $1 %s %(x)s {}"}',
    "64 KB": b'{"a":"' + b"z" * 65_500 + b'"}',
}


@pytest.mark.parametrize("what", BODIES)
def test_a_body_comes_back_byte_for_byte(store, what):
    lease = store.take("run", ME, 60)
    first = record("run", 1, GENESIS, body=BODIES[what])
    store.append(lease, [first], SHOWN)
    op = secrets.token_hex(16)
    second = record("run", 2, first.hash, op, BODIES[what])
    third = record("run", 3, second.hash, op, BODIES[what])
    store.append(lease, [second, third], SHOWN)
    assert list(store.read("run")) == [first, second, third]


@pytest.mark.parametrize("body", [b'{"a":"\0"}', b'{"a":"\xff"}', b'{"a":"\xed\xa0\x80"}'])
def test_a_body_that_is_no_text_is_refused_and_nothing_is_written(store, body):
    lease = store.take("run", ME, 60)
    for records in ([record("run", 1, GENESIS, body=body)], [*chain("run", 1), record("run", 2, GENESIS, body=body)]):
        with pytest.raises(errors.BadRecord):
            store.append(lease, records, SHOWN)
    assert store.head("run") is None
    store.append(lease, chain("run", 1), SHOWN)


def test_a_title_with_nul_or_a_lone_surrogate_is_shown_with_a_replacement_sign(store):
    lease = store.take("run", ME, 60)
    store.append(lease, chain("run", 1), SHOWN._replace(title="a\0b\ud800c"))
    assert store.head("run").projection.title == "a\ufffdb?c"


def test_a_run_whose_title_holds_nul_is_whole(store):
    world = World(lambda: AT, lambda: secrets.token_hex(16), ME)
    with RunLog(store, "run", world) as log:
        log.record(RunStarted(mission_id="m", title="a\0b"))
    assert verify_run(store, "run").findings == ()


def test_long_logs_and_long_lists_are_read_in_pages(store):
    lease = store.take("run", ME, 60)
    entries = chain("run", 1500, op=secrets.token_hex(16))
    store.append(lease, entries, SHOWN)
    assert list(store.read("run")) == entries
    assert list(store.read("run", after=700, limit=600)) == entries[700:1300]
    assert list(store.read("run", after=1499)) == entries[1499:]


def test_an_append_on_another_history_is_refused(url, store):
    lease = store.take("run", ME, 60)
    first, second = chain("run", 2)
    store.append(lease, [first], SHOWN)
    sql(url, "update holdfast.runs set hash = sha256('another history')")
    with pytest.raises(errors.ChainBroken):
        store.append(lease, [second], SHOWN)
    assert store.head("run").seq == 1


def test_a_run_that_is_gone_from_the_list_strays_and_is_not_begun_again(url, store):
    for run_id in ("run-1", "run-2", "run-3"):
        store.append(store.take(run_id, ME, 600), chain(run_id, 2), SHOWN)
    assert store.strays() == []
    sql(url, "delete from holdfast.runs where run_id in ('run-1', 'run-3')")
    assert [(run_id, last) for run_id, last, _ in store.strays()] == [("run-1", 2), ("run-3", 2)]
    with pytest.raises(errors.LogDamaged):
        store.append(store.take("run-1", ME, 600), chain("run-1", 1), SHOWN)
    assert [(run_id, last) for run_id, last, _ in store.strays()] == [("run-1", 2), ("run-3", 2)]
    assert whole(store, "run-2")


def test_damaged_artifact_bytes_are_noticed(url, store):
    data = random.Random(3).randbytes(100_000)
    digest = store.put_artifact(data)
    assert store.put_artifact(data) == digest
    assert store.get_artifact(digest) == data
    sql(url, "update holdfast.artifacts set data = set_byte(data, 9, get_byte(data, 9) # 1)")
    with pytest.raises(errors.ArtifactDamaged):
        store.get_artifact(digest)


def test_a_run_locked_by_somebody_else_is_busy_and_the_append_can_be_repeated(url):
    import psycopg

    with PostgresStore(url, patience=0.6) as store, psycopg.connect(url) as blocker:
        lease = store.take("run", ME, 60)
        blocker.execute("select 1 from holdfast.runs for update")
        entry = chain("run", 1)
        with pytest.raises(errors.StoreBusy):
            store.append(lease, entry, SHOWN)
        blocker.rollback()
        store.append(lease, entry, SHOWN)
        assert whole(store, "run") == [entry[0].op]


def test_a_forked_child_is_refused_and_the_parent_goes_on(store):
    lease = store.take("run", ME, 60)
    entry = chain("run", 1)
    child = os.fork()
    if child == 0:
        try:
            store.append(lease, entry, SHOWN)
        except errors.StoreClosed:
            os._exit(7)
        finally:
            os._exit(8)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    store.append(lease, entry, SHOWN)
    assert whole(store, "run") == [entry[0].op]


def test_a_closed_store_says_so(url):
    store = PostgresStore(url)
    store.close()
    store.close()
    with pytest.raises(errors.StoreClosed):
        store.head("run")


# --- the writer programs


def hold(url: str, run_id: str) -> None:
    """Append until the lease is lost; print what was acknowledged."""
    with PostgresStore(url) as store:
        lease, previous, seq = store.take(run_id, ME, 0.5), GENESIS, 0
        acknowledged: list[str] = []
        try:
            while True:
                seq += 1
                entry = record(run_id, seq, previous)
                store.append(lease, [entry], SHOWN)
                previous = entry.hash
                acknowledged.append(entry.op)
        except errors.LeaseLost:
            print(*acknowledged, "LeaseLost")


def share(url: str, run_id: str, count: str, turn: str) -> None:
    """Append `count` events to a run that others write too, `turn` of them at a time."""
    left, acknowledged = int(count), []
    with PostgresStore(url) as store:
        while left:
            try:
                lease = store.take(run_id, ME, 60)
            except errors.LeaseHeld:
                time.sleep(0.005)
                continue
            head = store.head(run_id)
            seq, previous = (head.seq, head.hash) if head else (0, GENESIS)
            for entry in chain(run_id, min(left, int(turn)), seq, previous):
                store.append(lease, [entry], SHOWN)
                left -= 1
                acknowledged.append(entry.op)
            store.release(lease)
            time.sleep(0.005)
    print(*acknowledged)


def many(url: str, prefix: str, count: str, runs: str) -> None:
    with PostgresStore(url) as store:
        names = [f"{prefix}-{number}" for number in range(int(runs))]
        leases = [store.take(name, ME, 60) for name in names]
        chains = [chain(name, int(count) // len(names)) for name in names]
        for step in range(int(count) // len(names)):
            for lease, entries in zip(leases, chains, strict=True):
                store.append(lease, [entries[step]], SHOWN)


def contend(url: str, run_id: str, epoch: str, count: str) -> None:
    """Append with a lease that another process uses too: the loser of each number looks again."""
    left, acknowledged = int(count), []
    with PostgresStore(url) as store:
        while left:
            entry = next_record(store, run_id)
            try:
                store.append(Lease(run_id, int(epoch), 600.0), [entry], SHOWN)
            except errors.SequenceConflict:
                continue
            acknowledged.append(entry.op)
            left -= 1
    print(*acknowledged)


def open_when_told(url: str) -> None:
    print("ready", flush=True)
    sys.stdin.readline()
    with PostgresStore(url) as store:
        print(store.store_id)


if __name__ == "__main__":
    programs: dict[str, Callable[..., None]] = {
        "hold": hold,
        "share": share,
        "many": many,
        "contend": contend,
        "open": open_when_told,
    }
    programs[sys.argv[1]](*sys.argv[2:])

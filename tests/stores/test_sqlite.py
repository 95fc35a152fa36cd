"""The SQLite store: the suite, and what only a file and many processes can do wrong."""

import errno
import multiprocessing
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager

import apsw
import pytest

from holdfast.core.errors import (
    ArtifactDamaged,
    LeaseHeld,
    LeaseLost,
    NewerSchema,
    NotFound,
    StoreBroken,
    StoreBusy,
    StoreClosed,
    StoreForeign,
    StoreFull,
    StoreReadOnly,
    StoreReplaced,
    StoreUnreadable,
    TailLost,
)
from holdfast.core.events import NoteRecorded, RunStarted
from holdfast.engine.log import RunLog, verify_run
from holdfast.stores import sqlite, sqlite_commit, sqlite_copy, sqlite_file
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.witness import Witness, sightings
from holdfast.testing.author import ANOTHER, SOMEBODY
from holdfast.testing.store_suite import StoreSuite
from tests.crash.workloads import world


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


class TestSqliteStore(StoreSuite):
    placeholder = "?"

    def make_store(self, folder):
        return open_at(folder)


class TestStrictSqliteStore(StoreSuite):
    placeholder = "?"

    def make_store(self, folder):
        return open_at(folder, witness="strict")


# --- many processes


def spawn(target, *arguments):
    process = multiprocessing.get_context("spawn").Process(target=target, args=arguments)
    process.start()
    return process


def join(processes):
    for process in processes:
        process.join(120)
        assert process.exitcode == 0


def append_many(folder, run_ids, count, seed):
    """Append to each run in turn; where a run is shared, its lease is taken and given back for every few events."""
    done = 0
    with open_at(folder) as store:
        while done < count:
            for run_id in run_ids:
                try:
                    log = RunLog(store, run_id, world(seed * 1_000_000 + done), ttl=600.0)
                except LeaseHeld:
                    time.sleep(0.0005)
                    continue
                if log.state.seq == 0:
                    log.record(RunStarted(mission_id="many"))
                for _ in range(min(250, count - done)):
                    log.record(NoteRecorded(text=f"{seed}:{done}"))
                    done += 1
                log.close()


def texts(store, run_id):
    return [record.body.decode() for record in store.read(run_id, after=1)]


def test_two_processes_that_share_one_run_lose_and_repeat_nothing(tmp_path):
    open_at(tmp_path).close()
    join([spawn(append_many, tmp_path, ["run-1"], 5000, seed) for seed in (1, 2)])
    with open_at(tmp_path) as store:
        written = texts(store, "run-1")
        assert len(written) == len(set(written)) == 10_000
        assert verify_run(store, "run-1").findings == ()


def test_two_processes_that_write_many_runs_lose_and_repeat_nothing(tmp_path):
    mine = [[f"run-{seed}-{number}" for number in range(10)] for seed in (1, 2)]
    join([spawn(append_many, tmp_path, mine[seed - 1], 5000, seed) for seed in (1, 2)])
    with open_at(tmp_path) as store:
        written = [text for head in store.heads() for text in texts(store, head.run_id)]
        assert len(written) == len(set(written)) == 10_000
        assert all(verify_run(store, head.run_id).findings == () for head in store.heads())


def append_for_a_while(folder, seed, seconds, report):
    with open_at(folder) as store:
        log = begun(store, f"run-{seed}", seed)
        end, count = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            log.record(NoteRecorded(text="fair"))
            count += 1
    report.put(count)


def test_no_process_starves_on_a_busy_file(tmp_path):
    report = multiprocessing.get_context("spawn").Queue()
    open_at(tmp_path).close()
    join([spawn(append_for_a_while, tmp_path, seed, 2.0, report) for seed in range(4)])
    counts = sorted(report.get(timeout=5) for _ in range(4))
    assert counts[0] * 5 >= counts[-1], counts


def test_who_waits_for_a_busy_file_asks_soon_then_less_often_and_never_in_step(tmp_path, monkeypatch):
    waits = []
    with open_at(tmp_path, patience=0.3) as store, closing(apsw.Connection(store._writer.path)) as other:
        log = begun(store)
        other.execute("begin immediate")
        with monkeypatch.context() as counting, pytest.raises(StoreBusy):
            counting.setattr(time, "sleep", waits.append)
            log.record(NoteRecorded(text="too late"))
        other.execute("rollback")
    assert waits[0] < 0.0003 and max(waits) < 0.006
    assert sum(waits[:10]) / 10 < sum(waits[-50:]) / 50 / 2
    assert len(set(waits[:100])) > 90


def open_and_begin(folder, seed):
    with open_at(folder) as store:
        begun(store, f"run-{seed}", seed).close()


def test_many_processes_may_start_at_once_on_an_empty_folder(tmp_path):
    join([spawn(open_and_begin, tmp_path, seed) for seed in range(6)])
    with open_at(tmp_path) as store:
        assert len(list(store.heads())) == 6
    assert not list((tmp_path / ".holdfast").glob("*.new-*"))


def hold_until_killed(folder, ttl, ready):
    store = open_at(folder)
    log = begun(store, ttl=ttl)
    ready.put(log.lease.epoch)
    while True:
        time.sleep(0.05)
        try:
            log.record(NoteRecorded(text="from the holder"))
        except LeaseLost:
            ready.put("lost")
            return


def test_a_killed_holder_can_be_followed_at_once(tmp_path):
    ready = multiprocessing.get_context("spawn").Queue()
    holder = spawn(hold_until_killed, tmp_path, 3600.0, ready)
    ready.get(timeout=30)
    with open_at(tmp_path) as store:
        with pytest.raises(LeaseHeld):
            store.take("run-1", ANOTHER, 60.0)
        os.kill(holder.pid, signal.SIGKILL)
        holder.join(30)
        assert not store.head("run-1").held
        begun(store, seed=2).record(NoteRecorded(text="the next one"))
        assert verify_run(store, "run-1").findings == ()


def test_a_stopped_holder_that_wakes_after_its_lease_cannot_append(tmp_path):
    ready = multiprocessing.get_context("spawn").Queue()
    holder = spawn(hold_until_killed, tmp_path, 3.0, ready)
    ready.get(timeout=30)
    os.kill(holder.pid, signal.SIGSTOP)
    try:
        with open_at(tmp_path) as store:
            with pytest.raises(LeaseHeld):
                store.take("run-1", ANOTHER, 60.0)
            time.sleep(3.3)
            log = begun(store, seed=2)
            os.kill(holder.pid, signal.SIGCONT)
            assert ready.get(timeout=30) == "lost"
            before = log.state.seq
            log.record(NoteRecorded(text="still mine"))
            assert store.head("run-1").seq == before + 1
            assert verify_run(store, "run-1").findings == ()
    finally:
        holder.kill()
        holder.join(30)


def test_a_lease_does_not_outlive_a_reboot(tmp_path):
    path = tmp_path / ".holdfast" / "holdfast.db"
    with SqliteStore(path, boot_id="before the reboot") as old:
        begun(old, ttl=3600.0)
        with SqliteStore(path, boot_id="after the reboot") as new:
            assert not new.head("run-1").held
            assert new.take("run-1", ANOTHER, 60.0).epoch == 2


def test_a_store_is_not_for_forked_children(store):
    log = begun(store)
    child = os.fork()
    if child == 0:
        try:
            log.record(NoteRecorded(text="from a child"))
        except StoreClosed:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    log.record(NoteRecorded(text="the parent goes on"))
    assert store.head("run-1").held


# --- threads share commits


def test_writers_in_one_process_share_commits(store):
    logs = [begun(store, f"run-{number}", number) for number in range(8)]
    groups = []
    commit = store._committer._commit
    store._committer._commit = lambda group: (groups.append(len(group)), commit(group))
    threads = [threading.Thread(target=log.record, args=(NoteRecorded(text="x"),)) for log in logs]
    with store._writer.turn:
        for thread in threads:
            thread.start()
        while len(store._committer.queue) < 8:
            time.sleep(0.001)
    for thread in threads:
        thread.join()
    assert groups == [8]
    assert all(store.head(log.run_id).seq == 2 for log in logs)


def test_a_refused_request_does_not_spoil_its_group(store):
    good, bad = begun(store, "run-1", 1), begun(store, "run-2", 2)
    store.release(bad.lease)
    outcomes = []
    store._writer.turn.acquire()

    def write(log):
        try:
            log.record(NoteRecorded(text="x"))
            outcomes.append("written")
        except LeaseLost:
            outcomes.append("refused")

    threads = [threading.Thread(target=write, args=(log,)) for log in (bad, good)]
    for thread in threads:
        thread.start()
    while len(store._committer.queue) < 2:
        time.sleep(0.001)
    store._writer.turn.release()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["refused", "written"]
    assert store.head("run-1").seq == 2


# --- the file


def test_files_are_private(store, tmp_path):
    begun(store)
    folder = tmp_path / ".holdfast"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}


def test_a_deleted_store_is_noticed(store, tmp_path):
    log = begun(store)
    os.unlink(tmp_path / ".holdfast" / "holdfast.db")
    store._committer._look_at = 0
    with pytest.raises(StoreReplaced):
        log.record(NoteRecorded(text="into the void"))


def test_a_store_that_is_gone_is_closed_without_another_error(tmp_path):
    store = open_at(tmp_path)
    log = begun(store)
    shutil.rmtree(tmp_path / ".holdfast")
    store._committer._look_at = 0
    with pytest.raises(StoreReplaced), closing(store):
        log.record(NoteRecorded(text="into the void"))


def test_a_replaced_store_is_noticed(store, tmp_path):
    log = begun(store)
    path = tmp_path / ".holdfast" / "holdfast.db"
    shutil.copyfile(path, tmp_path / "copy.db")
    os.replace(tmp_path / "copy.db", path)
    store._committer._look_at = 0
    with pytest.raises(StoreReplaced):
        log.record(NoteRecorded(text="into the void"))


def test_a_closed_store_refuses(tmp_path):
    store = open_at(tmp_path)
    log = begun(store)
    store.close()
    store.close()
    with pytest.raises(StoreClosed):
        log.record(NoteRecorded(text="too late"))
    with pytest.raises(StoreClosed):
        store.head("run-1")


def test_closing_gives_the_leases_back(tmp_path):
    with open_at(tmp_path) as store:
        begun(store)
    with open_at(tmp_path) as store:
        assert not store.head("run-1").held


def test_a_store_that_stays_busy_says_so(tmp_path):
    with open_at(tmp_path) as other, open_at(tmp_path, patience=0.2) as store:
        log = begun(store)
        other._writer.connection().execute("begin immediate")
        with pytest.raises(StoreBusy):
            log.record(NoteRecorded(text="no turn"))
        other._writer.connection().execute("select 1")
        log.record(NoteRecorded(text="my turn"))
        assert texts(store, "run-1") == ['{"text":"my turn"}']


def test_damaged_artifacts_are_never_handed_out(store):
    for data in (b"small", b"large and dull " * 1000):
        digest = store.put_artifact(data)
        writer = store._writer.connection()
        (stored,) = writer.execute("select data from artifacts where digest = ?", (bytes.fromhex(digest),)).fetchone()
        changed = bytes([stored[0] ^ 1]) + stored[1:]
        writer.execute("update artifacts set data = ? where digest = ?", (changed, bytes.fromhex(digest)))
        with pytest.raises(ArtifactDamaged):
            store.get_artifact(digest)


def test_a_decompression_bomb_is_not_inflated(store):
    digest = store.put_artifact(b"x" * 10_000)
    store._writer.connection().execute("update artifacts set size = 10")
    with pytest.raises(ArtifactDamaged):
        store.get_artifact(digest)


def test_the_schema_fingerprint_is_that_of_the_migrations(tmp_path):
    path = str(tmp_path / "new.db")
    sqlite_file.create(path, "0" * 32, "now")
    connection = apsw.Connection(path)
    assert sqlite_file.fingerprint(connection) == sqlite_file.FINGERPRINTS[sqlite_file.SCHEMA_VERSION]
    connection.close()


def test_a_newer_store_is_refused_and_untouched(tmp_path):
    open_at(tmp_path).close()
    path = tmp_path / ".holdfast" / "holdfast.db"
    connection = apsw.Connection(str(path))
    connection.pragma("user_version", 99)
    connection.close()
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    for read_only in (False, True):
        with pytest.raises(NewerSchema):
            open_at(tmp_path, read_only=read_only)
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before


def test_the_sqlite_in_use_is_a_safe_one():
    assert tuple(int(part) for part in apsw.sqlite_lib_version().split(".")) >= sqlite_file.SAFE_SQLITE


def test_every_commit_waits_for_the_disk(store):
    writer = store._writer.connection()
    assert (writer.pragma("journal_mode"), writer.pragma("synchronous")) == ("wal", 2)


# --- the witness


def test_a_rolled_back_store_is_refused(tmp_path):
    with open_at(tmp_path) as store:
        begun(store)
    folder = tmp_path / ".holdfast"
    shutil.copytree(folder, tmp_path / "older")
    with open_at(tmp_path) as store:
        begun(store, seed=2).record(NoteRecorded(text="newer"))
    for name in ("holdfast.db", "holdfast.db-wal", "holdfast.db-shm"):
        shutil.copyfile(tmp_path / "older" / name, folder / name)
    for read_only in (False, True):
        with pytest.raises(TailLost):
            open_at(tmp_path, read_only=read_only)


def test_a_missing_witness_is_made_again_and_said(tmp_path):
    with open_at(tmp_path) as store:
        begun(store)
    (tmp_path / ".holdfast" / "holdfast.db-witness").unlink()
    with open_at(tmp_path) as store:
        assert store.facts()["witness"] == "made again"
    with open_at(tmp_path) as store:
        assert store.facts()["witness"] == "lagging"


def test_a_witness_of_another_store_is_refused(tmp_path):
    for name in ("one", "two"):
        with open_at(tmp_path / name) as store:
            begun(store)
    shutil.copyfile(
        tmp_path / "one" / ".holdfast" / "holdfast.db-witness", tmp_path / "two" / ".holdfast" / "holdfast.db-witness"
    )
    with pytest.raises(TailLost):
        open_at(tmp_path / "two")


@pytest.fixture
def syncs(monkeypatch):
    """Each sync of a witness, by the clock of the appends, which stands still until it is moved."""
    done, sync, clock = [], os.fdatasync, [time.monotonic_ns()]
    monkeypatch.setattr(os, "fdatasync", lambda fd: done.append(os.fstat(fd).st_ino) or sync(fd))
    monkeypatch.setattr(sqlite_commit, "monotonic_ns", lambda: clock[0])

    def after(seconds, act):
        clock[0] += int(seconds * 1e9)
        done.clear()
        act()
        return done

    return after


def test_whoever_appends_syncs_the_witness_once_a_second(store, syncs):
    log = begun(store)
    witness = os.stat(store._writer.witness.path).st_ino
    moments = (0.2, 0.2, 0.2, 0.5, 0.2, 0.9)
    done = [list(syncs(seconds, lambda: log.record(NoteRecorded(text="x")))) for seconds in moments]
    assert done == [[], [], [], [witness], [], [witness]]


def test_whoever_waits_long_between_two_events_syncs_the_witness_with_the_lease(store, syncs):
    log = begun(store)
    assert syncs(0.2, lambda: log.record(NoteRecorded(text="the last one for a long time"))) == []
    assert syncs(0.2, log.renew) == [os.stat(store._writer.witness.path).st_ino]
    assert syncs(2.0, log.renew) == []  # there is nothing new to sync, and the next event need not wait for its turn
    assert len(syncs(0.2, lambda: log.record(NoteRecorded(text="at last")))) == 1


def sick(fd):
    raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("call", ["pwrite", "fdatasync"])
def test_a_witness_on_a_sick_disk_is_told_and_the_log_goes_on(store, syncs, monkeypatch, call):
    log = begun(store)
    monkeypatch.setattr(os, call, lambda fd, *given: sick(fd))
    syncs(2.0, lambda: log.record(NoteRecorded(text="it is there all the same")))
    assert (store.facts()["witness"], log.state.seq) == ("degraded: Input/output error", 2)


def test_a_strict_witness_on_a_sick_disk_ends_the_append(tmp_path, monkeypatch):
    with open_at(tmp_path, witness="strict") as store:
        log = begun(store)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", sick)
            with pytest.raises(StoreBroken):
                log.record(NoteRecorded(text="x"))
        assert log.record(NoteRecorded(text="y")).seq == 3  # what had failed to be witnessed was written


# --- a write that fails


def test_after_a_write_that_failed_the_store_is_opened_anew_and_every_page_written(store):
    log, before = begun(store), store._writer.connection()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(StoreBroken):
            log.record(NoteRecorded(text="x"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert log.record(NoteRecorded(text="y")).seq == 2
    assert store._writer.connection() is not before
    assert [record.kind for record in store.read("run-1")] == ["run_started", "note_recorded"]
    assert verify_run(store, "run-1").findings == ()


def test_a_copy_without_the_locks_is_held_by_nobody(store, tmp_path):
    begun(store)
    assert store.head("run-1").held
    shutil.copytree(tmp_path / ".holdfast", tmp_path / "copy" / ".holdfast", ignore=shutil.ignore_patterns("*-lock"))
    with open_at(tmp_path / "copy", read_only=True) as copy:
        assert not copy.head("run-1").held


def test_what_is_sent_again_is_told_to_the_strict_witness(tmp_path, monkeypatch):
    def fails(*_):
        raise OSError(errno.EIO, "Input/output error")

    with open_at(tmp_path, witness="strict") as store:
        draft = begun(store).draft(NoteRecorded(text="sent twice"))
        with monkeypatch.context() as sick, pytest.raises(StoreBroken):
            sick.setattr(Witness, "write", fails)
            store.append(*draft)
        store.append(*draft)
        assert draft.records[-1].hash in {sighting.hash for sighting in sightings(store._writer.path + "-witness")}


# --- after an error of the disk


@contextmanager
def no_room():
    """No file of this process can be written behind its first bytes."""
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)


@pytest.fixture
def failed(store):
    """A run whose last append ended in an error of the disk, and the connection that had it."""
    log = begun(store)
    for number in range(20):
        log.record(NoteRecorded(text=f"note {number}"))
    connection = store._writer.connection()
    with no_room(), pytest.raises(StoreBroken):
        log.record(NoteRecorded(text="not written"))
    return log, connection


def test_after_an_error_of_the_disk_the_file_is_opened_again_and_its_log_written_anew(store, tmp_path, failed):
    log, connection = failed
    size = os.path.getsize(tmp_path / ".holdfast" / "holdfast.db-wal")
    log.record(NoteRecorded(text="written"))
    assert store._writer.connection() is not connection
    assert os.path.getsize(tmp_path / ".holdfast" / "holdfast.db-wal") < size
    assert [text for text in texts(store, "run-1") if "written" in text] == ['{"text":"written"}']
    assert verify_run(store, "run-1").findings == ()


def test_after_an_error_of_the_disk_the_witness_is_asked_again(store, failed):
    log, _ = failed
    store._writer.witness.write([((1 << 32) + log.state.seq + 1, b"a head that is gone".ljust(32))])
    with pytest.raises(TailLost):
        log.record(NoteRecorded(text="behind a lost one"))


# --- reading


def everything(folder):
    return {
        str(file.relative_to(folder)): (file.read_bytes(), file.stat().st_mtime_ns)
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def read_all(store):
    heads = list(store.heads())
    for head in heads:
        list(store.read(head.run_id))
        store.load_snapshot(head.run_id)
        verify_run(store, head.run_id)
    store.facts()
    return heads


READ_IT = """
import sys
from holdfast.stores.sqlite import SqliteStore
with SqliteStore(sys.argv[1], boot_id="boot-1", read_only=True) as store:
    print(sum(1 for head in store.heads() for record in store.read(head.run_id)))
"""


def read_in_another_process(path):
    done = subprocess.run([sys.executable, "-c", READ_IT, path], capture_output=True, text=True, check=True)
    return int(done.stdout)


# somebody who has just come in and makes the index of the write-ahead file; this goes on when the other one waits
IN_THE_MIDDLE = """
import os, sys, time
from holdfast.stores.sqlite import SqliteStore

waited = []

def made(seconds):
    waited.append(seconds)
    fd = os.open(sys.argv[1] + "-shm", os.O_RDWR)
    os.pwrite(fd, bytes.fromhex(sys.argv[2]), 0)
    os.close(fd)

time.sleep = made
with SqliteStore(sys.argv[1], boot_id="boot-1", read_only=sys.argv[3] == "reads") as store:
    print(len(list(store.heads())), len(waited) > 0)
"""


@pytest.mark.parametrize(("how", "said"), [("reads", "1 True"), ("writes", "1 False")])
def test_who_comes_while_another_makes_the_index_waits_or_makes_it(tmp_path, how, said):
    with open_at(tmp_path) as store:
        begun(store)
        with open(f"{store.path}-shm", "r+b", buffering=0) as index:  # closing it lets go of our locks
            header = index.read(136)
            index.seek(0)
            index.write(bytes(136))
            command = [sys.executable, "-c", IN_THE_MIDDLE, store.path, header.hex(), how]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout.strip()) == (0, said), done.stderr


# a process that lives on while the index of the write-ahead file is not made
UNFINISHED = """
import sys
from holdfast.stores.sqlite import SqliteStore

with SqliteStore(sys.argv[1], boot_id="boot-1") as store:
    list(store.heads())
    with open(sys.argv[1] + "-shm", "r+b", buffering=0) as index:  # closing it would let go of our locks
        index.write(bytes(136))
        print("unfinished", flush=True)
        sys.stdin.read()
"""


@pytest.fixture
def unfinished(tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    with open_at(tmp_path) as store:
        begun(store).close()
    command = [sys.executable, "-c", UNFINISHED, store.path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "unfinished\n"
        yield store.path
        other.kill()


def test_an_index_that_nobody_finishes_is_read_from_a_copy(unfinished, tmp_path):
    before = everything(tmp_path / ".holdfast")
    with open_at(tmp_path, read_only=True) as store:
        assert store.head("run-1").seq == 1
        assert list((tmp_path / "tmp").iterdir())
    assert list((tmp_path / "tmp").iterdir()) == []
    assert everything(tmp_path / ".holdfast") == before


@pytest.mark.parametrize("is_too_quick", [False, True])
def test_what_was_copied_while_somebody_finished_the_index_is_not_read(unfinished, tmp_path, monkeypatch, is_too_quick):
    copied = shutil.copyfile
    if is_too_quick:  # for the times of the files to tell
        monkeypatch.setattr(sqlite_copy, "stamp", lambda path: None)

    def write_between(source, target):
        copied(source, target)
        if target.endswith("copy.db-wal"):
            write_more(tmp_path)

    monkeypatch.setattr(shutil, "copyfile", write_between)
    with open_at(tmp_path, read_only=True) as store:
        assert list((tmp_path / "tmp").iterdir()) == []
        assert (store.head("run-1").seq, store.head("run-2").seq) == (1001, 2001)


def test_nothing_is_copied_beside_another_connection_of_this_process(unfinished, tmp_path):
    with open_at(tmp_path):
        pass  # makes the index
    with open_at(tmp_path, read_only=True) as beside:
        assert beside.head("run-1").seq == 1
        undo = "import os, sys; os.pwrite(os.open(sys.argv[1], os.O_RDWR), bytes(136), 0)"
        subprocess.run([sys.executable, "-c", undo, f"{unfinished}-shm"], check=True)
        with pytest.raises(StoreBusy):
            open_at(tmp_path, read_only=True)
    assert list((tmp_path / "tmp").iterdir()) == []


def test_who_looks_for_other_connections_may_meet_stores_that_are_opened_meanwhile(unfinished, tmp_path, monkeypatch):
    others, is_at = [open_at(tmp_path / "other")], SqliteStore._is_at

    def opens_another(store, path):
        if len(others) < 100:
            others.append(open_at(tmp_path / "other"))
        return is_at(store, path)

    monkeypatch.setattr(SqliteStore, "_is_at", opens_another)
    with open_at(tmp_path, read_only=True) as store:
        assert store.head("run-1").seq == 1 and len(others) > 1
    for other in others:
        other.close()


def test_each_reader_of_an_unfinished_index_has_a_copy(unfinished, tmp_path):
    with open_at(tmp_path, read_only=True) as first, open_at(tmp_path, read_only=True) as second:
        assert first.head("run-1") == second.head("run-1")
        assert len(list((tmp_path / "tmp").iterdir())) == 2


@pytest.mark.parametrize("left", ["closed", "killed", "no index", "merged", "live writer"])
def test_reading_changes_no_byte_of_any_file(tmp_path, left):
    path = tmp_path / ".holdfast" / "holdfast.db"
    store = open_at(tmp_path)
    log = begun(store)
    for number in range(50):
        log.record(NoteRecorded(text=str(number)))
    if left != "live writer":
        store.close()
    if left == "no index":
        os.unlink(f"{path}-shm")
    if left == "merged":
        connection = apsw.Connection(str(path))
        connection.execute("pragma wal_checkpoint(truncate)").fetchall()
        connection.close()
        assert not os.path.exists(f"{path}-wal")
    before = everything(tmp_path)
    assert read_in_another_process(str(path)) == 51
    if left != "live writer":
        with open_at(tmp_path, read_only=True) as reader:
            assert len(read_all(reader)) == 1
            with pytest.raises(StoreReadOnly):
                reader.take("run-1", SOMEBODY, 1.0)
            with pytest.raises(StoreReadOnly):
                reader.put_artifact(b"x")
    assert everything(tmp_path) == before
    store.close()


def test_a_reader_sees_what_a_live_writer_adds(tmp_path):
    with open_at(tmp_path) as store:
        log = begun(store)
        with open_at(tmp_path, read_only=True) as reader:
            for number in range(3000):
                log.record(NoteRecorded(text=str(number)))
                if number % 500 == 0:
                    assert reader.head("run-1").seq == number + 2
            assert sum(1 for _ in reader.read("run-1")) == 3001


def test_reading_where_there_is_no_store_makes_none(tmp_path):
    with pytest.raises(NotFound):
        open_at(tmp_path, read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_a_text_file_is_not_a_store(tmp_path):
    path = tmp_path / ".holdfast" / "holdfast.db"
    path.parent.mkdir()
    path.write_text("this is not a database, it is a sentence that goes on for a while " * 20)
    for read_only in (False, True):
        with pytest.raises(StoreForeign):
            open_at(tmp_path, read_only=read_only)
    assert path.read_text().startswith("this is not")


# --- a store at rest that is written while it is read


@pytest.fixture
def resting(tmp_path):
    """A store whose log is empty, opened for reading, with a run of many pages."""
    with open_at(tmp_path) as store, begun(store) as log:
        log.record(*[NoteRecorded(text="x" * 300) for _ in range(1999)])
    assert os.path.getsize(f"{store.path}-wal") == 0
    with open_at(tmp_path, read_only=True) as reader:
        yield reader


def write_more(folder):
    """Enough that the pages reach the database file itself, the old ones too."""
    with open_at(folder) as store, begun(store) as log, begun(store, "run-2", seed=2) as other:
        for _ in range(5):
            other.record(*[NoteRecorded(text="z" * 300) for _ in range(400)])
            log.record(*[NoteRecorded(text="y" * 300) for _ in range(200)])


def test_a_long_read_goes_on_when_a_writer_begins(resting, tmp_path):
    events = resting.read("run-1")
    seen = [next(events).seq]
    write_more(tmp_path)
    seen += [record.seq for record in events]
    assert seen == list(range(1, 3001))
    assert [(head.run_id, head.seq) for head in resting.heads()] == [("run-2", 2001), ("run-1", 3000)]
    assert verify_run(resting, "run-1").findings == ()


def test_what_a_changed_file_made_of_a_look_is_not_called_damage(resting, tmp_path):
    looks = []

    def look(reader):
        looks.append(reader)
        if len(looks) == 1:
            write_more(tmp_path)
            raise apsw.CorruptError("database disk image is malformed")
        return "found"

    assert resting._ask(look) == "found"
    assert len(looks) == 2


def test_damage_of_a_store_that_nobody_writes_is_damage(resting):
    def look(reader):
        raise apsw.CorruptError("database disk image is malformed")

    with pytest.raises(StoreUnreadable, match="damaged"):
        resting._ask(look)
    assert resting.head("run-1").seq == 2000


def test_a_store_that_never_rests_is_busy(resting, monkeypatch):
    monkeypatch.setattr(sqlite_file.Reader, "is_outdated", lambda reader: True)
    with pytest.raises(StoreBusy, match="again and again"):
        resting.head("run-1")


def test_events_that_do_not_go_forward_end_the_read(resting, monkeypatch):
    page = sqlite.looks.page
    monkeypatch.setattr(sqlite.looks, "page", lambda run_id, after, size, reader: page(run_id, 0, size, reader))
    with pytest.raises(StoreUnreadable, match="out of order"):
        list(resting.read("run-1"))


def spoil(row, column, value):
    return (*row[:column], value, *row[column + 1 :])


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        (0, 5 << 32 | 1, "out of order"),
        (0, None, "event 700 of run run-1 has columns of a wrong type"),
        *[(column, 2.5, "event 700 of run run-1 has columns of a wrong type") for column in range(1, 7)],
        (6, None, "event 700 of run run-1 has columns of a wrong type"),
    ],
)
def test_what_comes_before_an_event_that_cannot_be_used_is_read(resting, monkeypatch, column, value, problem):
    page = sqlite.looks.page

    def spoiled(run_id, after, size, reader):
        base, rows = page(run_id, after, size, reader)
        wrong = value if column else value and base | 1
        return base, [spoil(row, column, wrong) if row[0] == base | 700 else row for row in rows]

    monkeypatch.setattr(sqlite.looks, "page", spoiled)
    seen, events = [], resting.read("run-1")
    with pytest.raises(StoreUnreadable, match=problem):
        seen.extend(events)
    assert [record.seq for record in seen] == list(range(1, 700))


def test_a_body_is_read_as_the_bytes_it_is_hashed_by(tmp_path):
    with open_at(tmp_path) as store, begun(store) as log:
        log.record(NoteRecorded(text="ß 一 \U0001f40d"))
        assert [record.body for record in store.read("run-1")][1] == '{"text":"ß 一 \U0001f40d"}'.encode()


def test_a_body_that_is_no_text_is_none():
    connection = apsw.Connection(":memory:")
    connection.execute("create table loose (place integer primary key, kind, version, at, op, hash, body)")
    connection.execute("insert into loose (body) values ('{}'), (5), (x'7b7d'), (null)")
    rows = connection.execute(sqlite.SQL["events"].replace("{events}", "loose"), (0, 9, 9)).fetchall()
    assert [row[6] for row in rows] == [b"{}", None, None, None]


# --- a store that can only be read as a copy


@pytest.fixture
def indexless(tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    with open_at(tmp_path) as store:
        begun(store).close()
    os.unlink(f"{store.path}-shm")
    assert sqlite_file.needs_copy(store.path)
    return tmp_path / "tmp"


def test_a_copy_is_for_its_owner_alone(indexless, tmp_path):
    os.chmod(tmp_path / ".holdfast" / "holdfast.db", 0o644)
    old = os.umask(0)
    try:
        with open_at(tmp_path, read_only=True) as store:
            assert store.head("run-1").seq == 1
            modes = {path.stat().st_mode & 0o777 for path in indexless.rglob("copy.db*") if path.suffix != ".db-shm"}
    finally:
        os.umask(old)
    assert modes == {0o600}
    assert list(indexless.iterdir()) == []


@pytest.mark.parametrize(("number", "what"), [(13, "read or written"), (1, "read or written"), (30, "written")])
def test_who_may_not_even_look_is_not_told_that_only_writing_fails(number, what):
    error = sqlite_file.from_os(OSError(number, os.strerror(number)), "/store.db")
    assert isinstance(error, StoreReadOnly)
    assert str(error) == f"/store.db: the place cannot be {what} by you ({os.strerror(number)})."


@pytest.mark.parametrize(("number", "kind"), [(28, StoreFull), (30, StoreReadOnly), (5, StoreBroken)])
def test_a_copy_that_fails_names_its_folder_and_leaves_nothing(indexless, tmp_path, monkeypatch, number, kind):
    copied = shutil.copyfile

    def fail(source, target):
        if target.endswith("-wal"):
            raise OSError(number, os.strerror(number))
        copied(source, target)

    monkeypatch.setattr(shutil, "copyfile", fail)
    with pytest.raises(kind, match="copied there to be read") as caught:
        open_at(tmp_path, read_only=True)
    assert str(indexless) in str(caught.value) and "TMPDIR" in caught.value.advice
    assert list(indexless.iterdir()) == []


def test_a_copy_of_a_store_that_is_written_meanwhile_is_not_read(indexless, tmp_path, monkeypatch):
    copied = shutil.copyfile

    def write_between(source, target):
        copied(source, target)
        if target.endswith("copy.db"):
            write_more(tmp_path)

    monkeypatch.setattr(shutil, "copyfile", write_between)
    with open_at(tmp_path, read_only=True) as store:
        assert list(indexless.iterdir()) == []
        assert (store.head("run-1").seq, store.head("run-2").seq) == (1001, 2001)


def test_a_store_that_cannot_be_read_is_named_and_not_its_copy(indexless, tmp_path, monkeypatch):
    def fail(source, target):
        raise PermissionError(13, "Permission denied", source)

    monkeypatch.setattr(shutil, "copyfile", fail)
    with pytest.raises(StoreReadOnly, match="holdfast"):
        open_at(tmp_path, read_only=True)
    assert list(indexless.iterdir()) == []


def test_a_path_that_is_too_long_for_a_database_is_called_that(tmp_path):
    folder = tmp_path
    while len(os.fsencode(folder)) < sqlite_file.LONGEST_PATH:
        folder /= "x" * 60
    with pytest.raises(StoreUnreadable, match="its path is too long") as refused:
        SqliteStore(folder / "holdfast.db", boot_id="boot-1")
    assert refused.value.advice.endswith("480 bytes.")
    kept = os.path.join(tmp_path, *["x" * 60] * ((480 - len(os.fsencode(tmp_path)) - 40) // 61))
    rest = sqlite_file.LONGEST_PATH - len(os.fsencode(kept)) - len("/.db")
    SqliteStore(os.path.join(kept, "y" * rest + ".db"), boot_id="boot-1").close()


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StoreForeign, match="a file stands where its folder would be"):
        SqliteStore(tmp_path / "file" / "holdfast" / "holdfast.db", boot_id="boot-1")
    assert (tmp_path / "file").read_text() == "mine"

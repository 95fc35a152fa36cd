"""One durable event against a bare insert-and-commit of the same bytes, on the same disk."""

import os
import statistics
import time

import apsw

from bench.measure import side_by_side
from holdfast.app import open_store, redactor, world
from holdfast.core.events import NoteRecorded, RunStarted
from holdfast.core.wire import encode_body
from holdfast.engine.log import RunLog

TEXT = "Checked the parser against the corpus: 412 files read, 3 refused by name, none lost. Next comes the writer. "


def kilobyte_note():
    return NoteRecorded(text=(TEXT * 12)[: 1024 - len('{"text":""}')])


def bare_sqlite(path, body):
    connection = apsw.Connection(str(path))
    for pragma in ("journal_mode = wal", "synchronous = full", "wal_autocheckpoint = 1000"):
        list(connection.execute(f"pragma {pragma}"))
    connection.execute("create table bare (id integer primary key, body text)")

    def insert_and_commit():
        connection.execute("begin immediate")
        connection.execute("insert into bare (body) values (?)", (body,))
        connection.execute("commit")

    return insert_and_commit


def holdfast_event(store, run_id, event):
    log = RunLog(store, run_id, world(), redactor())
    log.record(RunStarted(mission_id="bench"))
    return lambda: log.record(event)


def sqlite_append(folder):
    event = kilobyte_note()
    store = open_store(str(folder / "ours" / "holdfast.db"))
    contenders = {
        "bare": bare_sqlite(folder / "bare.db", encode_body(event).decode()),
        "holdfast": holdfast_event(store, "bench-append", event),
    }
    timings = side_by_side(contenders)
    store.close()
    return timings["bare"], timings["holdfast"]


def sync_of_the_disk(folder, rounds=1000):
    """Microseconds that a page written in place and synced takes: what no event can go below, and a group pays once."""
    fd = os.open(folder / "sync", os.O_CREAT | os.O_RDWR)
    os.write(fd, bytes(1 << 16))
    os.fsync(fd)
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        os.pwrite(fd, os.urandom(4096), 0)
        os.fdatasync(fd)
        times.append(time.perf_counter() - began)
    os.close(fd)
    return statistics.median(times) * 1e6

"""What must not grow: bytes per event, cost per event, opening a long run, folding."""

import os
import statistics
import time
from functools import partial

import apsw

from bench.append import kilobyte_note
from bench.measure import side_by_side
from holdfast.app import open_store, redactor, world
from holdfast.core.events import NoteRecorded, RunStarted, StepFinished, StepStarted
from holdfast.core.state import fold
from holdfast.core.wire import GENESIS, Plainly, decode, encode
from holdfast.engine.log import RunLog

AT = "2026-01-02T03:04:05.000006Z"


def merge(path):
    """Bring every page home into the database file and drop the log file."""
    connection = apsw.Connection(path)
    connection.execute("pragma wal_checkpoint(truncate)").fetchall()
    connection.close()


def bytes_per_event(folder, events=3000):
    path = str(folder / "bytes" / "holdfast.db")
    with open_store(path) as store:
        empty = os.path.getsize(path)
        log = RunLog(store, "bench-bytes", world(), redactor())
        log.record(RunStarted(mission_id="bench"))
        note = kilobyte_note()
        for _ in range(events):
            log.record(note)
    merge(path)
    return (os.path.getsize(path) - empty) / events


def long_run(path, run_id, events, batch=1000):
    """A run of many small events, written in large appends."""
    with open_store(path) as store, RunLog(store, run_id, world()) as log:
        log.record(RunStarted(mission_id="bench"))
        for start in range(0, events, batch):
            log.record(*(NoteRecorded(text=f"note {start + number}") for number in range(min(batch, events - start))))


def flat_cost(folder):
    """CPU per append near event 1 and near event 100,000 of a run, in turns on one store, in microseconds."""
    path = str(folder / "flat" / "holdfast.db")
    long_run(path, "bench-long", 100_000)
    with open_store(path) as store:
        logs = {run_id: RunLog(store, run_id, world(), redactor()) for run_id in ("bench-short", "bench-long")}
        logs["bench-short"].record(RunStarted(mission_id="bench"))
        note = kilobyte_note()
        timings = side_by_side({run_id: partial(log.record, note) for run_id, log in logs.items()}, warm_up=100)
    return tuple(timings[run_id].cpu_us for run_id in logs)


def open_and_head(folder, rounds=60):
    """Median time to open a store and find the head of a run, for a run of 10 events and one of 100,000."""
    places = {}
    for name, events in (("short", 10), ("long", 100_000)):
        places[name] = str(folder / name / "holdfast.db")
        long_run(places[name], "bench-run", events)
        merge(places[name])
    times = {name: [] for name in places}
    for _ in range(rounds):
        for name, path in places.items():
            began = time.perf_counter()
            with open_store(path, read_only=True) as store:
                store.head("bench-run")
            times[name].append(time.perf_counter() - began)
    return tuple(statistics.median(times[name]) * 1e3 for name in ("short", "long"))


def fold_ten_thousand(rounds=7):
    """Milliseconds to decode and fold 10,000 records of steps."""
    records, head = [], GENESIS
    events = [RunStarted(mission_id="bench")]
    for number in range(5000):
        events += [StepStarted(step_id=f"step-{number}"), StepFinished(step_id=f"step-{number}", output={"n": number})]
    for seq, event in enumerate(events[:10_000], 1):
        record, _ = encode(event, "bench-fold", seq, head, AT, f"{seq:032x}", Plainly())
        records.append(record)
        head = record.hash
    times = []
    for _ in range(rounds):
        began = time.process_time()
        fold(decode(record) for record in records)
        times.append(time.process_time() - began)
    return statistics.median(times) * 1e3

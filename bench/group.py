"""Eight runs written at once in one process, by coroutines and by threads, against one run alone."""

import asyncio
import threading
import time

from bench.append import kilobyte_note
from holdfast.app import open_store, write_run
from holdfast.core.events import RunStarted
from holdfast.engine.together import Together

RUNS = 8
EVENTS = 400


def begun(store, run_id):
    log = write_run(store, run_id)
    log.record(RunStarted(mission_id="bench"))
    return log


def alone(store, logs, note, events):
    for _ in range(events):
        logs[0].record(note)
    return events


def in_threads(store, logs, note, events):
    threads = [threading.Thread(target=alone, args=(store, [log], note, events)) for log in logs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(logs) * events


def in_coroutines(store, logs, note, events):
    async def one(together, log):
        for _ in range(events):
            await together.record(log, note)

    async def every():
        together = Together(store)
        await asyncio.gather(*(one(together, log) for log in logs))

    asyncio.run(every())
    return len(logs) * events


def in_a_coroutine(store, logs, note, events):
    return in_coroutines(store, logs[:1], note, events)


WAYS = {"alone": alone, "coroutines": in_coroutines, "threads": in_threads, "a coroutine": in_a_coroutine}


def eight_against_one(place, rounds=15):
    """Events per second of one run alone, eight in coroutines, eight in threads, one in a coroutine: medians of some rounds."""
    store = open_store(place)
    logs = [begun(store, f"bench-group-{number}") for number in range(RUNS)]
    note = kilobyte_note()
    rates = {way: [] for way in WAYS}
    for number in range(rounds + 1):
        for way, work in WAYS.items():
            began = time.perf_counter()
            done = work(store, logs, note, EVENTS)
            if number:
                rates[way].append(done / (time.perf_counter() - began))
    store.close()
    return [sorted(rates[way])[rounds // 2] for way in WAYS]

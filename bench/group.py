"""Eight runs written at once by threads of one process, against one run alone."""

import threading
import time

from bench.append import holdfast_event, kilobyte_note
from holdfast.app import open_store

RUNS = 8
EVENTS = 400


def _rate(writers, events):
    def work(write):
        for _ in range(events):
            write()

    threads = [threading.Thread(target=work, args=(write,)) for write in writers]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(writers) * events / (time.perf_counter() - began)


def eight_against_one(place, rounds=5):
    """Events per second of one run and of eight, the median round of each."""
    store = open_store(place)
    writers = [holdfast_event(store, f"bench-group-{number}", kilobyte_note()) for number in range(RUNS)]
    _rate(writers, 100)
    pairs = [(_rate(writers[:1], EVENTS), _rate(writers, EVENTS)) for _ in range(rounds)]
    store.close()
    pairs.sort(key=lambda pair: pair[1] / pair[0])
    return pairs[len(pairs) // 2]

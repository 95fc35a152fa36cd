"""What every contender does in a step: hand back 1 KB of text and stamp the clocks. A step lasts from one stamp to the next."""

import os
import time
from itertools import pairwise

SIZE = 1024
VOICES = (
    "checked",
    "refused",
    "read",
    "lost",
    "wrote",
    "parsed",
    "moved",
    "tested",
    "found",
    "kept",
    "named",
    "counted",
)
THINGS = ("parser", "corpus", "writer", "file", "table", "page", "log", "branch", "commit", "lease", "head", "record")


def _prose(length):
    """Short sentences that do not repeat soon, so that no compression is flattered."""
    sentences, state = [], 1
    for _ in range(length):
        state = (state * 1103515245 + 12345) % 2**31
        sentences.append(f"{VOICES[(state >> 16) % 12]} the {THINGS[(state >> 20) % 12]} {(state >> 8) % 1000}")
    return ", ".join(sentences)


PROSE = _prose(120)


def text(number):
    """1 KB that differs from step to step."""
    head = f"{number}: "
    start = number * 7 % SIZE
    return head + PROSE[start : start + SIZE - len(head)]


class Stamps:
    def __init__(self):
        self.marks = []

    def work(self, number):
        self.marks.append((time.perf_counter(), time.process_time()))
        return text(number)

    def take(self):
        """Seconds of wall time and of CPU time of each step since the last call."""
        marks, self.marks = self.marks, []
        pairs = list(pairwise(marks))
        return [after[0] - before[0] for before, after in pairs], [after[1] - before[1] for before, after in pairs]


def first_new_step(number=0):
    """Say when this process came here, and what it had used by then; end as a crash would, so that nothing is written."""
    print(time.perf_counter(), time.process_time(), number, flush=True)
    os._exit(0)


def rate(work, runs, steps):
    """Steps per second of `runs` runs at once."""
    began = time.perf_counter()
    work(runs, steps)
    return runs * steps / (time.perf_counter() - began)

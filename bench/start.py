"""What a fresh process costs, in CPU time: `holdfast status` and recording one event, against `python -c pass`."""

import os
import resource
import statistics
import subprocess
import sys

from holdfast.app import open_store, world
from holdfast.core.events import RunStarted
from holdfast.engine.log import RunLog

RECORD = """
from holdfast.app import record
from holdfast.core.events import NoteRecorded
record("bench-start", NoteRecorded(text="what a hook writes down"))
"""


def cpu_ms(argv, environ):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, env=environ, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3


def in_turns(commands, environ, rounds=30, warm_up=2):
    """The median of each command. They take turns, so the machine's moods hit all of them alike."""
    times = [[cpu_ms(command, environ) for command in commands] for _ in range(rounds + warm_up)]
    return tuple(statistics.median(column) for column in zip(*times[warm_up:], strict=True))


def fresh_process(folder):
    """CPU milliseconds of `python -c pass`, `holdfast status` and one recorded event."""
    path = str(folder / "start" / "holdfast.db")
    with open_store(path) as store:
        for number in range(30):
            with RunLog(store, f"bench-{number}" if number else "bench-start", world()) as log:
                log.record(RunStarted(mission_id="bench", title="thirty runs, as after a week"))
    environ = {**os.environ, "HOLDFAST_STORE": path}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)  # every start after the first has compiled modules
    holdfast = os.path.join(os.path.dirname(sys.executable), "holdfast")
    commands = ([sys.executable, "-c", "pass"], [holdfast, "status"], [sys.executable, "-c", RECORD])
    return in_turns(commands, environ)

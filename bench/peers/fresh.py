"""From the start of a process to the first new step of a run that was cut off. Every start gets a fresh copy of the store."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench.peers.child import Child
from bench.peers.table import at_most, in_turns, ratio, told

STEPS = 1000
SHORT, LONG = 10, 10_000
ROUNDS = 7
CLOCKS = ("time", "CPU")
CONTENDERS = {"bare": "bare", "Holdfast": "ours", "LangGraph": "langgraph"}


def peer_rows(folder):
    what = f"start to first new step after {STEPS:,}"
    places = {name: seeded(folder, name, STEPS) for name in CONTENDERS}
    starts = measured(folder, {name: (CONTENDERS[name], places[name], STEPS) for name in CONTENDERS})
    yield from raw(what, starts)
    for clock in CLOCKS:
        ours, bare, theirs = (starts[name][clock] for name in ("Holdfast", "bare", "LangGraph"))
        yield at_most(f"{what}: Holdfast / bare, {clock}", ratio(ours, bare), 2.5)
        yield at_most(f"{what}: Holdfast / LangGraph, {clock}", ratio(ours, theirs), 1 / 5)


def length_rows(folder):
    what = "start to first new step: Holdfast"
    lengths = {f"after {steps:,}": steps for steps in (SHORT, LONG)}
    contenders = {name: ("ours", seeded(folder, "Holdfast", steps), steps) for name, steps in lengths.items()}
    starts = measured(folder, contenders)
    yield from raw(what, starts)
    (short, short_starts), (long, long_starts) = starts.items()
    for clock in CLOCKS:
        yield at_most(f"{what} {long} / {short}, {clock}", ratio(long_starts[clock], short_starts[clock]), 3)


def seeded(folder, name, steps):
    """A store with a run that was cut off after `steps` steps. Written in memory where that can be: it is not measured."""
    place = folder / "seeds" / f"{name}-{steps}"
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else folder) as scratch:
        child = Child(CONTENDERS[name], "sqlite", os.path.join(scratch, "seed"))
        child("seed", steps)
        child.close()
        shutil.copytree(os.path.join(scratch, "seed"), place)
    return place


def measured(folder, contenders):
    """Seconds by each clock, round by round; the first two rounds warm up."""
    found = {name: {clock: [] for clock in CLOCKS} for name in contenders}
    for number, order in enumerate(in_turns(contenders, ROUNDS + 2)):
        for name in order:
            module, place, steps = contenders[name]
            times = start(module, place, steps, folder / "copy")
            for clock, seconds in zip(CLOCKS, times, strict=True):
                found[name][clock] += [seconds] * (number >= 2)
    return found


def start(module, place, steps, copy):
    shutil.copytree(place, copy)
    synced(copy)  # for all contenders alike, as a store is that was written durably
    program = f"from bench.peers.{module} import resume; resume({str(copy)!r}, {steps})"
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True)
    shutil.rmtree(copy)
    if done.returncode or not done.stdout:
        raise RuntimeError(f"{module} came to no new step after {steps}:\n{done.stderr}")
    arrived, cpu, number = done.stdout.split()
    assert int(number) == steps, f"{module} did step {number} where {steps} was the first new one"
    return float(arrived) - began, float(cpu)


def synced(copy):
    """Write the files and their folders out to the disk."""
    for path in (*copy.rglob("*"), copy):
        number = os.open(path, os.O_RDONLY)
        os.fsync(number)
        os.close(number)


def raw(what, starts):
    for name, times in starts.items():
        wall, cpu = (median(times[clock]) * 1e3 for clock in CLOCKS)
        yield told(f"{what}: {name}, time and CPU", f"{wall:,.0f}, {cpu:,.0f} ms")

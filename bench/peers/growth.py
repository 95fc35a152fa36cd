"""State that grows by 1 KB per step: what it takes on disk, and whether a late step costs more than an early one."""

from statistics import median

import apsw

from bench.peers.child import Child
from bench.peers.table import at_most, ratio, told

SIZES = (500, 1000, 2000)
EARLY, LATE = slice(5, 25), slice(-20, None)
ROUNDS = 20
GOAL = 1.3
WHAT = "growing state"


def rows(folder):
    yield from our_bytes(folder / "growth" / "Holdfast")
    yield from our_cost(folder / "growth" / "cost")
    # kept as the documentation shows it, 2,000 steps would take 2 GB
    yield from their_growth(folder / "growth", "plain", "LangGraph", SIZES[:2])
    yield from their_growth(folder / "growth", "deltas", "LangGraph's DeltaChannel (beta)", SIZES)


def our_bytes(place):
    """One run that is cut off and resumed until it has all its steps."""
    sizes = {}
    for steps in SIZES:
        child = Child("ours", "sqlite", str(place))
        child("seed", steps)
        child.close()
        sizes[steps] = on_disk(place)
    yield told(f"{WHAT}: Holdfast on disk, {listed(sizes)}")
    growth = (sizes[SIZES[-1]] / SIZES[-1]) / (sizes[SIZES[0]] / SIZES[0])
    yield at_most(f"{WHAT}: bytes per step after {SIZES[-1]:,} / after {SIZES[0]}, Holdfast", growth, GOAL)


def our_cost(place):
    """Steps of a long run and of short ones in turns, in one store."""
    child = Child("ours", "sqlite", str(place))
    child("lengthen", SIZES[-1])
    early, late = [], []
    for _ in range(ROUNDS):
        early.append([median(times[EARLY]) for times in child("burst", EARLY.stop + 1)])
        late.append([median(times[EARLY]) for times in child("lengthen", EARLY.stop + 1)])
    child.close()
    for clock, before, after in zip(("time", "CPU"), zip(*early, strict=True), zip(*late, strict=True), strict=True):
        yield at_most(f"{WHAT}: a step at {SIZES[-1]:,} / at 10, {clock}, Holdfast", ratio(after, before), GOAL)


def their_growth(folder, kind, name, wanted):
    sizes = {}
    for steps in wanted:
        place = folder / f"{kind}-{steps}"
        child = Child("langgraph", "sqlite", str(place))
        walls, cpus = child("grow", kind, steps)
        child.close()
        sizes[steps] = on_disk(place)
    yield told(f"{WHAT}: {name} on disk, {listed(sizes)}")
    ratios = [median(times[LATE]) / median(times[EARLY]) for times in (walls, cpus)]
    yield told(f"{WHAT}: a step at {steps:,} / at 10, time and CPU, {name}", "{:.2f} x, {:.2f} x".format(*ratios))


def on_disk(place):
    """Bytes of all files of a store, once every page is home in its database file."""
    for path in place.glob("*.db"):
        connection = apsw.Connection(str(path))
        connection.execute("pragma wal_checkpoint(truncate)").fetchall()
        connection.close()
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())


def listed(sizes):
    return ", ".join(f"{size / 1e6:,.1f} MB at {steps:,}" for steps, size in sizes.items())

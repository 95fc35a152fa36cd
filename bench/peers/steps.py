"""One step with a result of 1 KB: a round of each contender in turn, so that the disk's moods hit all of them alike."""

from contextlib import ExitStack
from statistics import fmean, median
from typing import NamedTuple

from bench.peers.child import children
from bench.peers.table import at_least, at_most, in_turns, ratio, told
from holdfast.testing.postgres import shared_server

CONTENDERS = {"bare": "bare", "Holdfast": "ours", "LangGraph": "langgraph", "DBOS": "dbos"}
WARM_UP = {"bare": 800, "Holdfast": 800, "LangGraph": 300, "DBOS": 300}  # until each reuses its write-ahead log


class Rounds(NamedTuple):
    """Seconds of one step, a figure for each round; CPU time is that of all threads of the process."""

    wall: list[float]
    cpu: list[float]


def side_by_side(contenders, warm_up, rounds, steps=25):
    for name, child in contenders.items():
        child("burst", warm_up[name])
    found = {name: Rounds([], []) for name in contenders}
    for order in in_turns(contenders, rounds):
        for name in order:
            for column, times in zip(found[name], contenders[name]("burst", steps), strict=True):
                column.append(fmean(times))
    return found


def sqlite_rows(folder):
    what = "SQLite, one step"
    with children(CONTENDERS, "sqlite", {name: str(folder / "steps" / name) for name in CONTENDERS}) as contenders:
        yield from settings(contenders)
        found = side_by_side(contenders, WARM_UP, rounds=40)
    yield from raw(what, found)
    ours, bare = found["Holdfast"], found["bare"]
    yield at_most(f"{what}: Holdfast / bare, time", ratio(ours.wall, bare.wall), 1.5)
    yield from rates(what, found, {"LangGraph": 2.5, "DBOS": 4})
    for peer in ("LangGraph", "DBOS"):
        yield at_most(f"{what}: Holdfast / {peer}, CPU", ratio(ours.cpu, found[peer].cpu), 1 / 5)


def postgres_rows(_folder):
    what = "PostgreSQL, one step"
    with ExitStack() as stack:
        places = {name: stack.enter_context(shared_server().database()) for name in CONTENDERS}
        contenders = stack.enter_context(children(CONTENDERS, "postgres", places))
        yield from settings(contenders)
        found = side_by_side(contenders, dict.fromkeys(CONTENDERS, 200), rounds=30)
    yield from raw(what, found)
    yield told(f"{what}: Holdfast / bare, time", f"{ratio(found['Holdfast'].wall, found['bare'].wall):.2f} x")
    yield from rates(what, found, {"LangGraph": 2, "DBOS": 2})


def settings(contenders):
    for name, child in contenders.items():
        yield told(f"{name}: {child('settings')}")


def raw(what, found):
    for name, rounds in found.items():
        wall, cpu = (median(column) * 1e6 for column in rounds)
        yield told(f"{what}: {name}, time and CPU", f"{wall:,.0f}, {cpu:,.0f} us")


def rates(what, found, goals):
    for peer, goal in goals.items():
        yield at_least(f"{what}: Holdfast's rate / {peer}'s", ratio(found[peer].wall, found["Holdfast"].wall), goal)

"""LangGraph as its documentation shows it: a graph that loops over one node, checkpointed with durability="sync"."""

import asyncio
import operator
import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib.metadata import version
from itertools import chain, count
from typing import Annotated, Any, TypedDict

from langgraph.channels.delta import DeltaChannel  # type: ignore[import-not-found]
from langgraph.checkpoint.sqlite import SqliteSaver  # type: ignore[import-not-found]
from langgraph.graph import END, START, StateGraph  # type: ignore[import-not-found]

from bench.peers.work import Stamps, first_new_step, rate, text

UNLIMITED = 1_000_000
FILE = "langgraph.db"


class Replaced(TypedDict):
    text: str
    done: int


class Grown(TypedDict):
    notes: Annotated[list[str], operator.add]


class GrownByDeltas(TypedDict):
    notes: Annotated[list[str], DeltaChannel(lambda notes, batches: [*notes, *chain(*batches)])]


class Interrupted(Exception):
    """What a run is left with when it does not end."""


def looping(saver, shape, node, more):
    """The graph: `node` again and again while `more(state)`."""
    graph = StateGraph(shape)
    graph.add_node("work", node)
    graph.add_edge(START, "work")
    graph.add_conditional_edges("work", lambda state: "work" if more(state) else END, ["work", END])
    return graph.compile(checkpointer=saver)


def replacing(saver, work, steps):
    def node(state):
        return {"text": work(state["done"]), "done": state["done"] + 1}

    return looping(saver, Replaced, node, lambda state: state["done"] < steps)


def config(thread: Any) -> dict[str, Any]:
    return {"configurable": {"thread_id": str(thread)}, "recursion_limit": UNLIMITED}


def start(graph, thread):
    graph.invoke({"text": "", "done": 0}, config(thread), durability="sync")


def bursts(saver, threads):
    stamps = Stamps()

    def burst(steps):
        start(replacing(saver, stamps.work, steps), next(threads))
        return stamps.take()

    return burst


def connect(place):
    os.makedirs(place, exist_ok=True)
    return sqlite3.connect(os.path.join(place, FILE), check_same_thread=False)


def sqlite(place):
    connection, threads = connect(place), count()
    saver = SqliteSaver(connection)
    saver.setup()

    def in_threads(runs, steps):
        graph = replacing(saver, text, steps)
        with ThreadPoolExecutor(runs) as pool:
            list(pool.map(lambda thread: start(graph, thread), [next(threads) for _ in range(runs)]))

    def in_coroutines(runs, steps):
        asyncio.run(all_at_once(place, [next(threads) for _ in range(runs)], steps))

    def settings():
        mode, synchronous = (connection.execute(f"pragma {name}").fetchone()[0] for name in PRAGMAS)
        return (
            f"{version('langgraph')}, SQLite {sqlite3.sqlite_version}, journal_mode {mode}, synchronous {synchronous}"
        )

    return {
        "burst": bursts(saver, threads),
        "threads": lambda runs, steps: rate(in_threads, runs, steps),
        "coroutines": lambda runs, steps: rate(in_coroutines, runs, steps),
        "settings": settings,
        "seed": lambda steps: seed(saver, steps),
        "grow": lambda kind, steps: grow(saver, KINDS[kind], next(threads), steps),
        "close": connection.close,
    }


PRAGMAS = ("journal_mode", "synchronous")
KINDS = {"plain": Grown, "deltas": GrownByDeltas}


async def all_at_once(place, threads, steps):
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver  # type: ignore[import-not-found]  # slow to load

    async with AsyncSqliteSaver.from_conn_string(os.path.join(place, FILE)) as saver:
        graph = replacing(saver, text, steps)
        nothing = {"text": "", "done": 0}
        await asyncio.gather(*(graph.ainvoke(nothing, config(thread), durability="sync") for thread in threads))


def seed(saver, steps):
    """A thread that is cut off after `steps` steps."""

    def work(number):
        if number == steps:
            raise Interrupted
        return text(number)

    try:
        start(replacing(saver, work, UNLIMITED), "seeded")
    except Interrupted:
        return
    raise AssertionError("the seeded thread was not cut off")


def resume(place, steps):
    def work(number):
        assert number == steps
        first_new_step(number)

    replacing(SqliteSaver(connect(place)), work, UNLIMITED).invoke(None, config("seeded"), durability="sync")


def grow(saver, shape, thread, steps):
    stamps = Stamps()

    def node(state):
        return {"notes": [stamps.work(len(state["notes"]))]}

    graph = looping(saver, shape, node, lambda state: len(state["notes"]) < steps)
    graph.invoke({"notes": []}, config(thread), durability="sync")
    return stamps.take()


def postgres(url):
    from langgraph.checkpoint.postgres import PostgresSaver  # type: ignore[import-not-found]  # slow to load

    stack = ExitStack()
    saver = stack.enter_context(PostgresSaver.from_conn_string(url))
    saver.setup()

    def settings():
        commit = saver.conn.execute("show synchronous_commit").fetchone()["synchronous_commit"]
        return f"{version('langgraph')}, PostgresSaver {version('langgraph-checkpoint-postgres')}, synchronous_commit {commit}"

    return {"burst": bursts(saver, count()), "settings": settings, "close": stack.close}

"""DBOS as its documentation shows it: a workflow that calls one step many times. Its SQLite file is put into WAL mode first."""

import asyncio
import os
import sqlite3
from importlib.metadata import version

from dbos import DBOS  # type: ignore[import-not-found]

from bench.peers.work import Stamps, rate, text

STAMPS = Stamps()


@DBOS.step()
def stamped(number):
    return STAMPS.work(number)


@DBOS.workflow()
def one_burst(steps):
    for number in range(steps):
        stamped(number)


@DBOS.step()
def plain(number):
    return text(number)


@DBOS.workflow()
def many_steps(steps):
    for number in range(steps):
        plain(number)


@DBOS.step()
async def plain_async(number):
    return text(number)


@DBOS.workflow()
async def many_steps_async(steps):
    for number in range(steps):
        await plain_async(number)


def burst(steps):
    one_burst(steps)
    return STAMPS.take()


def in_threads(runs, steps):
    for handle in [DBOS.start_workflow(many_steps, steps) for _ in range(runs)]:
        handle.get_result()


async def in_coroutines(runs, steps):
    for handle in [await DBOS.start_workflow_async(many_steps_async, steps) for _ in range(runs)]:
        await handle.get_result()


def launch(url):
    DBOS(config={"name": "bench", "system_database_url": url, "log_level": "ERROR", "application_version": "1"})
    DBOS.launch()
    # DBOS makes its threads the executor of the loop, and a loop that ends takes its executor with it: one loop for all
    runner = asyncio.Runner()

    def close():
        DBOS.destroy()
        runner.close()

    return {
        "burst": burst,
        "threads": lambda runs, steps: rate(in_threads, runs, steps),
        "coroutines": lambda runs, steps: rate(lambda *size: runner.run(in_coroutines(*size)), runs, steps),
        "close": close,
    }


def ask(*queries):
    """What DBOS's own connection answers."""
    from dbos._dbos import _get_dbos_instance  # type: ignore[import-not-found]  # nothing public shows its settings

    with _get_dbos_instance()._sys_db.engine.connect() as connection:
        return [connection.exec_driver_sql(query).scalar() for query in queries]


def sqlite(place):
    os.makedirs(place)
    path = os.path.join(place, "dbos.db")
    connection = sqlite3.connect(path)
    connection.execute("pragma journal_mode = wal")
    connection.close()

    def settings():
        mode, synchronous = ask("pragma journal_mode", "pragma synchronous")
        return f"{version('dbos')}, SQLite {sqlite3.sqlite_version}, journal_mode {mode}, synchronous {synchronous}"

    return {**launch(f"sqlite:///{path}"), "settings": settings}


def postgres(url):
    def settings():
        return f"{version('dbos')}, synchronous_commit {ask('show synchronous_commit')[0]}"

    return {**launch(url), "settings": settings}

"""The live run of the laboratory on PostgreSQL: the same pipeline and the same judge, each point a run of its own.

A lease on a server outlives its process. The laboratory does not wait for that: it lets the lease run out by hand, as time
would, and only then takes the run over.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psycopg

from holdfast.ports import Store
from holdfast.stores.postgres import PostgresStore
from holdfast.testing import crashlab, postgres
from holdfast.testing.crashlab.server import ForkServer, Outcome, folder_from, judge, scratch
from holdfast.testing.crashlab.workload import Available, Report, Verdict
from holdfast.testing.proxy import Direction, Proxy
from tests.crash import live_points
from tests.crash.live_work import LiveWork

PROXIED = "proxied-url"  # a file in the folder: the address by which the work goes
EXPIRE = "update holdfast.runs set lease_until = clock_timestamp() where run_id = %s"
TIME = 60.0


class LivePostgres(LiveWork):
    """A live run in a PostgreSQL store."""

    name = "live run on PostgreSQL"
    mark = "%s"

    def __init__(self, url: str, coroutines: bool = False) -> None:
        super().__init__(coroutines)
        self.url = self.way = url

    def open(self, folder: Path) -> Store:
        with psycopg.connect(self.url, autocommit=True) as connection:
            there = connection.execute("select to_regclass('holdfast.runs')").fetchone()
            if there and there[0]:
                connection.execute(EXPIRE, (self.run_id(folder),))
        return PostgresStore(self.way)

    def work(self, folder: Path, ack: Callable[[str], None]) -> None:
        proxied = folder / PROXIED
        self.way = proxied.read_text() if proxied.exists() else self.url
        super().work(folder, ack)

    def run_id(self, folder: Path) -> str:
        return "run-" + hashlib.sha256(str(folder).encode()).hexdigest()[:24]

    def till(self, folder: Path) -> Counter[str]:
        with psycopg.connect(self.url) as connection:
            there = connection.execute("select to_regclass('app_till')").fetchone()
            if not there or not there[0]:
                return Counter()
            rows = connection.execute("select label from app_till where run = %s", (self.run_id(folder),)).fetchall()
        return Counter(label for (label,) in rows)


def available() -> Available:
    why = postgres.available()
    return Available(why is None, why or "")


def available_with_shim() -> Available:
    return available() and crashlab.available()


def at_moments(points: int, seed: int, coroutines: bool = False) -> Report:
    with postgres.shared_server().database() as url:
        return live_points.at_moments(LivePostgres(url, coroutines), points, seed)


def at_calls(points: int, seed: int) -> Report:
    """SIGKILL at what the acts write into the folder; what goes to the server is cut elsewhere."""
    with postgres.shared_server().database() as url:
        return crashlab.kill_everywhere(LivePostgres(url), limit=points, seed=seed)


def at_cuts(points: int, seed: int) -> Report:
    """The connection is cut after a byte, in either direction. The run goes on by itself, or rests and is resumed."""
    report, chance = Report("wire cut", LivePostgres.name, seed), random.Random(seed)
    server = postgres.shared_server()
    with server.database() as url, Proxy("127.0.0.1", server.port) as proxy:
        proxied = server.url_of(url.rpartition("/")[2], proxy.port)
        work = LivePostgres(url)
        with folder_from(scratch) as template, ForkServer(work, TIME, preload=False) as jobs:
            jobs.prepare(template)
            (template / PROXIED).write_text(proxied)
            proxy.heal()
            live_points.clean_moments(jobs, template)
            for point in sorted(cut_points(dict(proxy.passed), points, chance)):
                way, after = point
                proxy.cut(way, after, reset=chance.random() < 0.5)
                with folder_from(scratch, template) as folder:
                    report.add(one_cut(jobs, folder), after, f"live_postgres: cut {way} after {after} bytes")
        report.note(f"{proxy.cuts_made} cuts were made")
    return report.done()


def cut_points(passed: dict[Direction, int], points: int, chance: random.Random) -> list[tuple[Direction, int]]:
    every = sum(passed.values())
    chosen = chance.sample(range(every), min(points, every))
    return [("up", place) if place < passed["up"] else ("down", place - passed["up"]) for place in chosen]


def one_cut(jobs: ForkServer, folder: Path) -> Verdict:
    outcome = jobs.work(folder)
    if not went_on_or_rested(outcome):
        return Verdict(False, "crashed", f"{outcome.end}: {outcome.detail}")
    return judge(jobs.check(folder, live_points.said(outcome)))


def went_on_or_rested(outcome: Outcome) -> bool:
    return outcome.end == "done" or (outcome.end == "raised" and "StoreUnavailable" in outcome.detail)

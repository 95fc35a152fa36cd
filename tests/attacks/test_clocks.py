"""Time as an enemy: a wall clock that jumps by ten years, and holders that sleep through their lease."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from holdfast.core.errors import LeaseHeld
from holdfast.core.events import NoteRecorded, RunStarted
from holdfast.core.values import Owner
from holdfast.engine.log import RunLog, read_state, verify_run
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.crashlab import clocks
from tests.attacks.fuzz import a_world

RUN = "run-1"
ME = Owner("host", "boot", 1, "1")  # the same name for everybody: only the epoch tells them apart
JUMPS = 100
TAKE_OVERS = 20

# One line in, one line out: a worker that does what it is told, and says how that ended.
WORKER = """
import itertools, sys, time
from holdfast import app
from holdfast.core.errors import HoldfastError, LeaseHeld
from holdfast.core.events import NoteRecorded, RunStarted
from holdfast.core.values import Owner
from holdfast.engine.log import RunLog
from holdfast.stores.sqlite import SqliteStore

store = SqliteStore(sys.argv[1], boot_id="boot")
world = app.world()._replace(owner=Owner("host", "boot", 1, "1"))
log = None

def take(ttl):
    global log
    end = time.monotonic() + 20
    while True:
        try:
            log = RunLog(store, "run-1", world, ttl=float(ttl))
            break
        except LeaseHeld:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)
    if log.state.seq == 0:
        log.record(RunStarted(mission_id="m"))
    return log.lease.epoch

def try_take(ttl):
    return store.take("run-1", world.owner, float(ttl)).epoch

def append(text):
    return log.record(NoteRecorded(text=text)).seq

def renew(_):
    return log.renew()

def held(_):
    return store.head("run-1").held

for line in sys.stdin:
    verb, _, argument = line.strip().partition(" ")
    try:
        print("ok", globals()[verb](argument), flush=True)
    except HoldfastError as error:
        print("refused", error.reason, flush=True)
"""


class Worker:
    """A process that holds, writes and wakes on command."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def tell(self, line: str) -> None:
        print(line, file=self.process.stdin, flush=True)

    def heard(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def __call__(self, line: str) -> str:
        self.tell(line)
        return self.heard()


@contextmanager
def working(place, start=None):
    argv = [sys.executable, "-c", WORKER, str(place)]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    process = start(argv, environ) if start else subprocess.Popen(argv, stdin=-1, stdout=-1, text=True, env=environ)
    try:
        yield Worker(process)
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def place(tmp_path):
    return tmp_path / "store" / "holdfast.db"


@pytest.mark.faketime
def test_a_hundred_jumps_of_ten_years_neither_end_nor_prolong_a_lease(place, tmp_path, skip_or_fail, record_property):
    skip_or_fail(clocks.available())
    clock, chance = clocks.JumpingClock(tmp_path), random.Random(1)
    with working(place, clock.start) as holder, SqliteStore(place, boot_id="boot") as here:
        assert holder("take 600") == "ok 1"
        for number in range(JUMPS):
            clock.jump(chance.choice((-10, 10)) * clocks.YEAR + chance.uniform(-1e6, 1e6))
            assert holder(f"append {number}") == f"ok {number + 2}"
            assert holder("held") == "ok True"
            if number % 10 == 0:
                assert holder("renew") == "ok None"
            assert here.head(RUN).held
            with pytest.raises(LeaseHeld):
                here.take(RUN, ME, 60.0)
        assert verify_run(here, RUN).findings == ()
        records = list(here.read(RUN))
    years = {int(record.at[:4]) for record in records}
    assert [record.seq for record in records] == list(range(1, JUMPS + 2))
    assert max(years) - min(years) >= 18, "the clock did not jump"
    record_property("clock jumps", JUMPS)


@pytest.mark.faketime
@pytest.mark.parametrize("years", [-10, 10])
def test_a_lease_ends_after_its_length_whatever_the_calendar_says(place, tmp_path, skip_or_fail, years):
    skip_or_fail(clocks.available())
    clock = clocks.JumpingClock(tmp_path)
    with working(place, clock.start) as holder, SqliteStore(place, boot_id="boot") as here:
        assert holder("take 0.4") == "ok 1"
        assert holder("append before") == "ok 2"
        clock.jump(years * clocks.YEAR)
        taken, began = None, time.monotonic()
        while taken is None and time.monotonic() - began < 20:
            try:
                taken = here.take(RUN, ME, 60.0)
            except LeaseHeld:
                time.sleep(0.02)
        assert taken is not None and taken.epoch == 2, "the lease lasts for years"
        assert holder("append too late") == "refused lease_lost"
        assert here.head(RUN).seq == 2


@pytest.mark.faketime
def test_a_taker_whose_clock_is_ten_years_ahead_must_wait_like_anybody(place, tmp_path, skip_or_fail):
    skip_or_fail(clocks.available())
    clock = clocks.JumpingClock(tmp_path)
    clock.jump(10 * clocks.YEAR)
    with SqliteStore(place, boot_id="boot") as here, working(place, clock.start) as other:
        log = RunLog(here, RUN, a_world()._replace(owner=ME), ttl=600.0)
        log.record(RunStarted(mission_id="m"))
        assert other("held") == "ok True"
        assert other("try_take 600") == "refused lease_held"
        log.close()
        assert other("try_take 600") == "ok 2"


def test_twenty_sleepers_that_wake_after_a_take_over_append_nothing(place, record_property):
    """Each is stopped while it waits for its next command, so never inside a commit; each bears the same worker name."""
    with working(place) as one, working(place) as other:
        holder, taker = one, other
        assert holder("take 0.2").startswith("ok")
        expected = 1
        for number in range(TAKE_OVERS):
            assert holder(f"append {number} before it sleeps") == f"ok {expected + 1}"
            with clocks.paused(holder.process.pid):
                assert taker("take 0.2") == f"ok {number + 2}"
                assert taker(f"append {number} by the taker") == f"ok {expected + 2}"
                holder.tell(f"append {number} from the dead")
            expected += 2
            assert holder.heard() == "refused lease_lost"
            assert [holder("append again"), holder("renew")] == ["refused lease_lost"] * 2
            holder, taker = taker, holder
    with SqliteStore(place, boot_id="boot") as store:
        bodies = b"".join(record.body for record in store.read(RUN))
        assert b"from the dead" not in bodies and b"again" not in bodies
        assert read_state(store, RUN).notes == 2 * TAKE_OVERS
        assert verify_run(store, RUN).findings == ()
        RunLog(store, RUN, a_world()._replace(new_op=lambda: "e" * 32)).record(NoteRecorded(text="the run goes on"))
    record_property("zombie take-overs", TAKE_OVERS)

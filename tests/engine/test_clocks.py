"""A live run under a wall clock that is set back and forth by a day: order, leases, sleeps and retries hold.

The clock is that of real processes under libfaketime. Run as a program, this file is one of them.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

import holdfast
from holdfast.core.errors import LeaseHeld
from holdfast.core.wire import decode
from holdfast.engine.log import verify_run
from holdfast.testing import postgres
from holdfast.testing.crashlab import Available, clocks

RUN = "run-1"
DAY = 86400.0
NAP = 0.6
RETRY = holdfast.Retry(attempts=3, wait=0.3, factor=1.0)
TOP = Path(__file__).parents[2]
SOON = 20.0  # seconds that a nap or a pause may take on a busy machine; a day is longer

pytestmark = pytest.mark.faketime


# --- the worker


def say(text):
    print(text, flush=True)


def wait(where):
    say(where)
    if sys.stdin.readline().strip() == "die":
        os._exit(9)


class World:
    def __init__(self, path):
        self.path = Path(path)

    def act(self, name):
        with self.path.open("a") as file:
            file.write(f"{name}\n")
        return name

    @property
    def done(self):
        return self.path.read_text().splitlines() if self.path.exists() else []


def pipeline(run, world):
    """Steps, a sleep, a retry with backoff and effects; between all of them somebody may set the clock."""
    tries = []

    def flaky():
        tries.append(1)
        world.act(f"try {len(tries)}")
        if len(tries) < 3:
            raise OSError("not yet")
        return len(tries)

    run.step("first", world.act, "first")
    wait("at first")
    run.sleep(NAP, name="nap")
    wait("awake")
    run.step("flaky", flaky, retry=RETRY)
    wait("tried")
    run.effect("pay", world.act, "pay", policy="once")
    wait("paid")
    run.step("last", world.act, "last")
    wait("at last")


def main(place, path, ttl):
    time.sleep = threading.Event().wait  # libfaketime makes the call under the real one fail
    with holdfast.run("m", store=place, run_id=RUN, ttl=float(ttl)) as run:
        say(f"resumed {run.resumed}")
        pipeline(run, World(path))
    say("ended")


# --- the tests


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path, skip_or_fail):
    skip_or_fail(clocks.available())
    if request.param == "sqlite":
        yield str(tmp_path / "holdfast.db")
        return
    why = postgres.available()
    skip_or_fail(Available(why is None, why or ""))
    with postgres.shared_server().database() as url:
        yield url


@pytest.fixture
def world(tmp_path):
    return World(tmp_path / "world")


@pytest.fixture
def clock(tmp_path):
    return clocks.JumpingClock(tmp_path)


class Worker:
    """A pipeline that says where it stands and goes on when it is told to."""

    def __init__(self, process):
        self.process = process

    def hear(self):
        """The next line; a worker that sleeps for a day is ended, and says nothing more."""
        late = threading.Timer(SOON, self.process.kill)
        late.start()
        try:
            return self.process.stdout.readline().strip()
        finally:
            late.cancel()

    def tell(self, word="on"):
        print(word, file=self.process.stdin, flush=True)

    def go_on(self):
        self.tell()
        return self.hear()

    def die(self):
        """No good-bye: the run is left as it stands."""
        self.tell("die")
        assert self.process.wait(SOON) == 9


@contextmanager
def working(place, world, clock, ttl=600.0):
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    environ |= {"PYTHONPATH": f"{TOP / 'src'}{os.pathsep}{TOP}"}
    process = clock.start([sys.executable, __file__, place, str(world.path), str(ttl)], environ)
    try:
        yield Worker(process)
    finally:
        process.kill()
        process.communicate()


def log_of(place):
    with holdfast.open_store(place, read_only=True) as store:
        assert verify_run(store, RUN).findings == ()
        return list(store.read(RUN))


def kinds(place):
    return [type(decode(record)).__name__ for record in log_of(place)]


PLACES = ("at first", "awake", "tried", "paid", "at last")
WHOLE = [
    *("RunStarted", "StepFinished", "SleepStarted", "SleepEnded"),
    *("StepStarted", "StepFailed", "StepStarted", "StepFailed", "StepStarted", "StepFinished"),
    *("EffectStarted", "EffectFinished", "StepFinished", "RunFinished"),
]
DONE = ["first", "try 1", "try 2", "try 3", "pay", "last"]


def test_a_clock_that_jumps_by_days_changes_nothing_in_a_run(place, world, clock):
    """Set before every piece of work, back and forth by a day and more: the log has its order, everything is done once."""
    chance = random.Random(4)
    with working(place, world, clock) as worker:
        assert worker.hear() == "resumed False"
        assert worker.hear() == PLACES[0]
        for where in [*PLACES[1:], "ended"]:
            clock.jump(chance.choice((-1, 1)) * DAY + chance.uniform(-3600, 3600))
            assert worker.go_on() == where
    assert world.done == DONE and kinds(place) == WHOLE
    records = log_of(place)
    assert [record.seq for record in records] == list(range(1, len(WHOLE) + 1))
    times = [record.at for record in records]
    assert times != sorted(times), "the clock was not set back"


@pytest.mark.parametrize("days", [-1, 1])
def test_a_clock_that_is_set_during_a_sleep_or_a_pause_makes_it_no_longer(place, world, clock, days):
    with working(place, world, clock) as worker:
        assert [worker.hear(), worker.hear()] == ["resumed False", "at first"]
        for where in ("awake", "tried"):
            worker.tell()
            time.sleep(0.2)  # it sleeps, or waits for its next attempt
            clock.jump(days * DAY)
            assert worker.hear() == where
            clock.jump(0.0)
        for where in ("paid", "at last", "ended"):
            assert worker.go_on() == where
    assert world.done == DONE and kinds(place) == WHOLE


@pytest.mark.parametrize("days", [-1, 1])
def test_what_a_process_slept_and_did_is_not_slept_or_done_again_under_another_clock(place, world, clock, days):
    """Each place is left by a death; whoever goes on has a clock that is a day off, and repeats nothing."""
    jump = 0.0
    for number, where in enumerate(PLACES):
        clock.jump(jump)
        with working(place, world, clock, ttl=0.5) as worker:
            assert worker.hear() == f"resumed {number > 0}"
            for earlier in PLACES[:number]:
                assert worker.hear() == earlier
                worker.tell()
            assert worker.hear() == where
            worker.die()
        jump += days * DAY
        let_the_lease_end(place)
    assert world.done == DONE
    log = kinds(place)
    assert [log.count(kind) for kind in ("SleepStarted", "SleepEnded", "EffectStarted", "StepFailed")] == [1, 1, 1, 2]


def let_the_lease_end(place, patience=60.0):
    """A lease on a server outlives its process; by the server's clock, not by ours."""
    until = time.monotonic() + patience
    while True:
        with holdfast.open_store(place, read_only=True) as store:
            head = store.head(RUN)
        if not head.held:
            return
        assert time.monotonic() < until, "the lease does not end"
        time.sleep(0.05)


@pytest.mark.parametrize("days", [-1, 1])
def test_a_sleep_that_was_interrupted_is_slept_to_its_end_and_not_for_a_day(place, world, clock, days):
    with working(place, world, clock, ttl=0.5) as worker:
        assert [worker.hear(), worker.hear()] == ["resumed False", "at first"]
        worker.tell()
        until = time.monotonic() + SOON
        while kinds(place)[-1] != "SleepStarted":
            assert time.monotonic() < until, "it does not sleep"
        worker.process.kill()
        worker.process.wait()
    assert kinds(place)[-1] == "SleepStarted"
    let_the_lease_end(place)
    clock.jump(days * DAY)
    with working(place, world, clock) as worker:
        assert worker.hear() == "resumed True"
        assert worker.hear() == "at first"
        for where in ("awake", "tried", "paid", "at last", "ended"):
            assert worker.go_on() == where
    assert world.done == DONE
    assert kinds(place).count("SleepStarted") == kinds(place).count("SleepEnded") == 1


@pytest.mark.parametrize("days", [-1, 1])
def test_a_lease_holds_whatever_the_clock_of_its_holder_or_of_another_says(place, world, clock, days, tmp_path):
    with working(place, world, clock, ttl=600.0) as worker:
        assert [worker.hear(), worker.hear()] == ["resumed False", "at first"]
        clock.jump(days * DAY)
        with pytest.raises(LeaseHeld), holdfast.run("m", store=place, run_id=RUN):
            pytest.fail("must not begin")
        refused = other_program(place, clock)
        assert "LeaseHeld" in refused
        for where in ("awake", "tried", "paid", "at last", "ended"):
            assert worker.go_on() == where
    assert world.done == DONE and kinds(place) == WHOLE


def other_program(place, clock):
    """Somebody else, under the same jumping clock, wants the run too."""
    code = f"import holdfast\nwith holdfast.run('m', store={place!r}, run_id={RUN!r}): print('taken')"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    environ |= {"PYTHONPATH": str(TOP / "src")}
    ran = subprocess.run(
        [sys.executable, "-c", code], env=clock.environment(environ), capture_output=True, text=True, timeout=60
    )
    assert ran.returncode != 0 and "taken" not in ran.stdout
    return ran.stderr


def test_a_short_lease_is_kept_by_its_holder_while_the_clock_jumps(place, world, clock):
    """Its keeper renews it by a clock that nobody sets, so a taker must go on waiting."""
    with working(place, world, clock, ttl=2.0) as worker:
        assert [worker.hear(), worker.hear()] == ["resumed False", "at first"]
        until, days = time.monotonic() + 3.0, 1
        while time.monotonic() < until:
            clock.jump(days * DAY)
            days = -days
            with pytest.raises(LeaseHeld), holdfast.run("m", store=place, run_id=RUN):
                pytest.fail("must not begin")
            time.sleep(0.2)
        for where in ("awake", "tried", "paid", "at last", "ended"):
            assert worker.go_on() == where
    assert kinds(place) == WHOLE


if __name__ == "__main__":
    main(*sys.argv[1:])

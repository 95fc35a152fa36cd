"""Workers that sleep through their lease: taken over and woken, they append nothing, begin nothing, and say why.

The workers are real processes, frozen with SIGSTOP. Run as a program, this file is one.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

import holdfast
from holdfast.core.errors import LeaseHeld, LeaseLost, StoreBusy
from holdfast.core.wire import decode
from holdfast.engine.log import verify_run
from holdfast.testing import postgres
from holdfast.testing.crashlab import Available, clocks

RUN = "run-1"
TTL = 2.0
TOP = Path(__file__).parents[2]


# --- the worker


class World:
    """A file to which every act appends its name: what is there was done, whoever did it."""

    def __init__(self, path):
        self.path = Path(path)

    def act(self, name):
        with self.path.open("a") as file:
            file.write(f"{name}\n")
        return name

    def slow(self, name, key):
        self.act(f"{name} began with {key}")
        wait("in the act")
        self.act(f"{name} ended")
        return name

    def in_sql(self, sql, name):
        sql.execute("create table if not exists app_acts(name text)")
        sql.execute(f"insert into app_acts values ('{name}')")
        return name

    @property
    def done(self):
        return self.path.read_text().splitlines() if self.path.exists() else []


def say(text):
    print(text, flush=True)


def wait(where):
    """Frozen here, outside of any commit: in one it would hold the lock of the file."""
    say(where)
    sys.stdin.readline()


def everything(run, world):
    """All that a run can do, each tried for itself."""
    return {
        "keyed": lambda: run.effect("keyed", world.act, "keyed", policy="keyed"),
        "once": lambda: run.effect("once", world.act, "once", policy="once"),
        "probed": lambda: run.effect("probed", world.act, "probed", probe=lambda name: None),
        "transactional": lambda: run.effect("till", world.in_sql, "till", policy="transactional"),
        "step": lambda: run.step("step", world.act, "step"),
        "retried step": lambda: run.step("retried", world.act, "retried", retry=3),
        "checkpoint": lambda: run.checkpoint("here"),
        "note": lambda: run.note("from the dead"),
        "spend": lambda: run.spend(tokens=5),
        "sleep": lambda: run.sleep(0.01, name="nap"),
        "question": lambda: run.ask("Really?", ["yes", "no"]),
    }


def try_everything(run, world):
    wait("ready")
    for name, call in everything(run, world).items():
        try:
            call()
            say(f"{name} was done")
        except LeaseLost:
            say(f"{name} was refused")


def in_a_step(run, world):
    run.step("long", lambda: wait("ready"))
    world.act("after the step")


def in_an_act(run, world):
    run.effect("pay", world.slow, "pay", policy=os.environ["POLICY"], key="order-5")
    world.act("after the effect")


def go_on_with_it(run, world):
    wait("ready")
    run.effect("pay", world.slow, "pay", policy="keyed", key="order-5")


def leave(run, world):
    wait("ready")


def work(scene, place, path):
    world = World(path)
    with holdfast.run("m", store=place, run_id=RUN, ttl=TTL) as run:
        run.effect("before", world.act, "before", policy="once")
        SCENES[scene](run, world)


async def work_later(scene, place, path):
    world = World(path)
    async with holdfast.arun("m", store=place, run_id=RUN, ttl=TTL) as run:
        await run.effect("before", world.act, "before", policy="once")
        wait("ready")
        for name, call in everything(run, world).items():
            try:
                await call()
                say(f"{name} was done")
            except LeaseLost:
                say(f"{name} was refused")


SCENES = {"everything": try_everything, "step": in_a_step, "act": in_an_act, "open": go_on_with_it, "leave": leave}


def main(face, *arguments):
    try:
        asyncio.run(work_later(*arguments)) if face == "async" else work(*arguments)
        say("ended well")
    except LeaseLost as error:
        say(f"ended: {error.reason}")


# --- the tests


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path, skip_or_fail):
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


class Worker:
    def __init__(self, process):
        self.process = process

    def hear(self):
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def last_words(self):
        said, _ = self.process.communicate("go\n", timeout=60)
        return said.splitlines()


@contextmanager
def working(place, world, scene, face="sync", **more):
    """A worker that was heard to be ready, and is frozen by whoever is told so."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    environ |= {"PYTHONPATH": f"{TOP / 'src'}{os.pathsep}{TOP}", **more}
    argv = [sys.executable, __file__, face, scene, place, str(world.path)]
    process = subprocess.Popen(argv, stdin=-1, stdout=-1, text=True, env=environ)
    try:
        yield Worker(process)
    finally:
        process.kill()
        process.communicate()


@contextmanager
def taking_over(place, worker, patience=60.0):
    """Freeze the holder, and go on with its run as soon as its lease has ended. In a commit it is woken and frozen again."""
    pid, until = worker.process.pid, time.monotonic() + patience
    clocks.pause(pid)
    began = time.monotonic()
    while True:
        try:
            taken = holdfast.run("m", store=place, run_id=RUN, accept=True)
            run = taken.__enter__()
            break
        except LeaseHeld:
            assert time.monotonic() < until, "the lease does not end"
            time.sleep(0.05)
        except StoreBusy:
            clocks.wake(pid)
            clocks.pause(pid)
    assert time.monotonic() - began > TTL / 4, "the lease of a living process was taken away"
    try:
        yield run
    except BaseException as error:
        taken.__exit__(type(error), error, None)
        raise
    else:
        taken.__exit__(None, None, None)


def log_of(place):
    with holdfast.open_store(place, read_only=True) as store:
        assert verify_run(store, RUN).findings == ()
        return [decode(record) for record in store.read(RUN)]


def kinds(place):
    return [type(event).__name__ for event in log_of(place)]


NAMES = list(everything(None, World("")))
# whoever takes over asks for another effect, so the first is missed in the end
TAKEN = ["RunStarted", "EffectStarted", "EffectFinished", "RunResumed"]


@pytest.mark.parametrize("face", ["sync", "async"])
@pytest.mark.parametrize("ended", [False, True], ids=["the taker goes on", "the taker has ended"])
def test_a_zombie_can_do_nothing_more(place, world, face, ended):
    with working(place, world, "everything", face) as zombie:
        assert zombie.hear() == "ready"
        if ended:
            with taking_over(place, zombie) as run:
                run.effect("by the taker", world.act, "by the taker", policy="once")
            clocks.wake(zombie.process.pid)
            said = zombie.last_words()
        else:
            with taking_over(place, zombie) as run:
                run.effect("by the taker", world.act, "by the taker", policy="once")
                clocks.wake(zombie.process.pid)
                said = zombie.last_words()
        assert said == [f"{name} was refused" for name in NAMES] + ["ended: lease_lost"]
        assert zombie.process.returncode == 0
    assert world.done == ["before", "by the taker"]
    assert kinds(place) == [*TAKEN, "EffectStarted", "EffectFinished", "DriftFound", "RunFinished"]


def test_a_zombie_that_was_in_a_step_keeps_its_result_to_itself(place, world):
    with working(place, world, "step") as zombie:
        assert zombie.hear() == "ready"
        time.sleep(0.6)  # so that the step is announced
        with taking_over(place, zombie) as run:
            assert run.state.steps_open == {"long": 1}
            clocks.wake(zombie.process.pid)
            assert zombie.last_words() == ["ended: lease_lost"]
            assert run.step("long", lambda: "by the taker") == "by the taker"
    assert world.done == ["before"]
    finished = [event for event in log_of(place) if type(event).__name__ == "StepFinished"]
    assert [(event.output, event.attempt) for event in finished] == [("by the taker", 2)]


@pytest.mark.parametrize("policy", ["keyed", "once"])
def test_an_act_that_had_begun_cannot_be_recalled_but_its_outcome_is_not_believed(place, world, policy):
    """The honest limit: a call that is under way goes on in the zombie. What follows from it is the policy's."""
    with working(place, world, "act", POLICY=policy) as zombie:
        assert zombie.hear() == "in the act"
        if policy == "once":
            with pytest.raises(holdfast.Stopped, match="effect_unknown"), taking_over(place, zombie) as run:
                run.effect("pay", world.act, "pay", policy=policy, key="order-5")
        else:
            with taking_over(place, zombie) as run:
                assert run.effect("pay", again(world), "pay", policy=policy, key="order-5") == "again"
        clocks.wake(zombie.process.pid)
        assert zombie.last_words() == ["ended: lease_lost"]
    expected = {"keyed": ["pay again with order-5"], "once": []}[policy]
    assert world.done == ["before", "pay began with order-5", *expected, "pay ended"]
    assert "after the effect" not in world.done
    assert kinds(place)[-1] == {"keyed": "RunFinished", "once": "RunStopped"}[policy]


def test_a_zombie_does_not_repeat_what_it_found_open(place, world):
    """To repeat a keyed effect nothing is written first, so no append would stop it."""
    with working(place, world, "act", POLICY="keyed") as first:
        assert first.hear() == "in the act"
    let_the_lease_end(place)
    with working(place, world, "open") as zombie:
        assert zombie.hear() == "ready"
        with taking_over(place, zombie) as run:
            clocks.wake(zombie.process.pid)
            assert zombie.last_words() == ["ended: lease_lost"]
            run.effect("pay", again(world), "pay", policy="keyed", key="order-5")
    assert world.done == ["before", "pay began with order-5", "pay again with order-5"]


def let_the_lease_end(place, patience=60.0):
    """A lease on a server outlives its process."""
    until = time.monotonic() + patience
    while True:
        with holdfast.open_store(place, read_only=True) as store:
            if not store.head(RUN).held:
                return
        assert time.monotonic() < until, "the lease does not end"
        time.sleep(0.05)


def again(world):
    def act(name, key):
        world.act(f"{name} again with {key}")
        return "again"

    return act


def test_a_zombie_that_only_leaves_is_told_that_the_run_is_no_longer_its_own(place, world):
    with working(place, world, "leave") as zombie:
        assert zombie.hear() == "ready"
        with taking_over(place, zombie) as run:
            clocks.wake(zombie.process.pid)
            assert zombie.last_words() == ["ended: lease_lost"]
            run.note("by the taker")
    assert kinds(place) == [*TAKEN, "NoteRecorded", "DriftFound", "RunFinished"]


def test_one_that_sleeps_and_is_not_taken_over_goes_on(place, world):
    with working(place, world, "leave") as sleeper:
        assert sleeper.hear() == "ready"
        with clocks.paused(sleeper.process.pid):
            time.sleep(TTL * 1.5)
        assert sleeper.last_words() == ["ended well"]
    assert kinds(place)[-1] == "RunFinished"


if __name__ == "__main__":
    main(*sys.argv[1:])

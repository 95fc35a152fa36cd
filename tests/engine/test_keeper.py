"""The keeper renews while a step runs, and what it has lost stays lost."""

from __future__ import annotations

import time

import pytest

from holdfast.core.errors import LeaseLost, StoreUnavailable
from holdfast.core.events import RunStarted
from holdfast.engine.keeper import Keeper
from holdfast.engine.log import RunLog, World
from holdfast.engine.runner import Effect, Runner
from holdfast.ports import Owner
from holdfast.stores.memory import MemoryStore

US, THEM = Owner("here", "boot", 1, "1"), Owner("there", "boot", 2, "2")
TTL = 0.06


class Ticks:
    """A clock that a test moves by hand."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def world():
    count = iter(range(1, 10_000))
    return World(lambda: "2026-01-02T03:04:05.678901Z", lambda: f"{next(count):032x}", US)


def open_log(clock, ttl=TTL):
    store = MemoryStore(clock)
    return store, RunLog(store, "run", world(), ttl=ttl)


def until(condition):
    for _ in range(2000):
        if condition():
            return
        time.sleep(0.005)
    raise AssertionError("it never happened")


def test_the_lease_outlives_its_length_while_a_step_runs():
    store, log = open_log(time.monotonic)
    with Keeper(log) as keeper:
        until(lambda: keeper.renewals >= 6)
        log.record(RunStarted(mission_id="m"))
        assert store.head("run").held
        keeper.check()


def test_nothing_is_renewed_once_the_keeper_has_gone():
    _, log = open_log(time.monotonic)
    with Keeper(log) as keeper:
        until(lambda: keeper.renewals >= 1)
    renewals = keeper.renewals
    time.sleep(3 * TTL)
    assert keeper.renewals == renewals


def test_a_lost_lease_is_noticed_and_remembered():
    clock = Ticks()
    store, log = open_log(clock)
    with Keeper(log) as keeper:
        clock.now += 2 * TTL
        taken = store.take("run", THEM, TTL)
        until(lambda: keeper.lost is not None)
        store.release(taken)
        for _ in range(2):
            with pytest.raises(LeaseLost):
                keeper.check()


def test_a_sleeper_asks_the_store_before_it_acts():
    clock = Ticks()
    store, log = open_log(clock, ttl=30.0)
    keeper = Keeper(log, clock)
    keeper.check()
    assert keeper.renewals == 0
    clock.now += 29.0
    keeper.check()
    assert keeper.renewals == 1
    clock.now += 31.0
    store.take("run", THEM, 30.0)
    with pytest.raises(LeaseLost):
        keeper.check()


def test_a_store_that_is_away_for_a_moment_is_asked_again(monkeypatch):
    _, log = open_log(time.monotonic)
    renew, refusals = log.renew, [StoreUnavailable("the server", "it is away")] * 2

    def sometimes():
        if refusals:
            raise refusals.pop()
        renew()

    monkeypatch.setattr(log, "renew", sometimes)
    with Keeper(log) as keeper:
        until(lambda: keeper.renewals >= 1)
    assert (refusals, keeper.lost, keeper.problem) == ([], None, None)


def test_a_zombie_starts_no_effect():
    """It slept through its lease right after its intent was recorded; it wakes, and must not touch the world."""
    clock = Ticks()
    store, log = open_log(clock, ttl=30.0)
    keeper = Keeper(log, clock)
    done: list[str] = []

    def sleep_through_the_lease():
        clock.now += 31.0
        store.take("run", THEM, 30.0)
        keeper.check()

    with pytest.raises(LeaseLost):
        Runner(log, {"a": Effect("k", done.append)}, sleep_through_the_lease).run("m")
    assert done == []
    assert log.state.effects_open == {"k": "started"}

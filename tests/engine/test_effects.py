"""Effects of a live run, policy by policy: what happens after a crash, an error, a probe and a person. Numbers are behaviours.

A crash here is a `BaseException` after which the run says nothing more; tests/crash kills real processes.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast import Answer
from holdfast.app import write_run
from holdfast.core import events as e
from holdfast.core.errors import ArtifactDamaged, BadInput, NotFound, TooLarge, UsageError
from holdfast.core.wire import decode
from holdfast.engine import forms
from holdfast.engine import run as run_module
from holdfast.engine.forms import MAX_INLINE, Unstorable
from holdfast.engine.stopping import NameClash
from holdfast.stores.memory import MemoryStore
from holdfast.testing import postgres
from holdfast.testing.crashlab import Available

RUN = "run-1"
AGAIN = ("pure", "read", "idempotent", "keyed")
GUARDED = ("probed", "once")
TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


class Crash(BaseException):
    """The process is gone: nothing that follows is written."""


class Boom(Exception):
    """What the world raises."""


class Outside:
    """The world, what is done to it, and what somebody who looks at it can see."""

    def __init__(self, sight=None):
        self.done = []
        self.looks = 0
        self.fault = None
        self.late = False
        self.sight = sight

    def act(self, order, key):
        if self.fault and not self.late:
            raise self.fault
        self.done.append((order, key))
        if self.fault:
            raise self.fault
        return {"order": order}

    def probe(self, order, key):
        self.looks += 1
        if isinstance(self.sight, BaseException):
            raise self.sight
        return self.sight

    async def act_later(self, order, key):
        await asyncio.sleep(0)
        return self.act(order, key)

    async def probe_later(self, order, key):
        await asyncio.sleep(0)
        return self.probe(order, key)


class Sync:
    """One effect in a run for ordinary code."""

    def act(self, world):
        return world.act

    def probe(self, world):
        return world.probe

    def __call__(self, store, *call, **options):
        with holdfast.run("m", store=store, run_id=RUN) as run:
            try:
                return run.effect(*call, **options)
            except Crash:
                run._life.end = lambda *_: iter(())
                raise


class Async:
    """The same for coroutines."""

    def act(self, world):
        return world.act_later

    def probe(self, world):
        return world.probe_later

    def __call__(self, store, *call, **options):
        return asyncio.run(self.go(store, call, options))

    async def go(self, store, call, options):
        async with holdfast.arun("m", store=store, run_id=RUN) as run:
            try:
                return await run.effect(*call, **options)
            except Crash:
                run._life.end = lambda *_: iter(())
                raise


@pytest.fixture(params=[Sync, Async], ids=["sync", "async"])
def face(request):
    return request.param()


@pytest.fixture(autouse=True)
def nobody_at_the_terminal(monkeypatch):
    monkeypatch.setattr("holdfast.adapters.terminal.is_there", lambda: False)
    for name in ("HOLDFAST_RUN", "HOLDFAST_YES", "HOLDFAST_PLAN", "HOLDFAST_STRICTNESS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def place(tmp_path):
    return str(tmp_path / "holdfast.db")


@pytest.fixture
def server(skip_or_fail):
    why = postgres.available()
    skip_or_fail(Available(why is None, why or ""))
    with postgres.shared_server().database() as url:
        yield url


def pay(face, store, world, **options):
    """The effect that most tests are about."""
    options = {"policy": "once", "key": "order-{order}", **options}
    probe = options.pop("probed", world.sight is not None)
    return face(store, "pay", face.act(world), 5, probe=face.probe(world) if probe else None, **options)


def crashed(face, store, world, late, **options):
    world.fault, world.late = Crash(), late
    with pytest.raises(Crash):
        pay(face, store, world, **options)
    world.fault = None


def opened(store):
    return store if not isinstance(store, str) else holdfast.open_store(store)


def events(store):
    with opened(store) as at:
        return [decode(record) for record in at.read(RUN)]


def kinds(store):
    return [type(event) for event in events(store) if not isinstance(event, e.NoteRecorded)]


def state(store):
    with opened(store) as at:
        return holdfast.read_state(at, RUN)


def status(store, key="order-5"):
    return state(store).effects[key].status


def settle(store, settled_as, key="order-5", **more):
    """What `holdfast settle` does."""
    with opened(store) as at, write_run(at, RUN) as log:
        log.record(e.EffectSettled(effect_key=key, settled_as=settled_as, by="somebody", **more))


def unknown(face, store, world, **options):
    """The run stops, for the reason and with the exit code of an effect that nobody knows the outcome of."""
    with pytest.raises(holdfast.Stopped) as stop:
        pay(face, store, world, **options)
    assert (stop.value.reason, stop.value.code) == ("effect_unknown", 85)
    assert state(store).stop_reason == "effect_unknown" and status(store) == "unknown"
    return stop.value


# --- the table of policies: after a crash

SIGHTS = {
    "done": (Answer("done", "line 7", {"order": 5}), "done"),
    "not_done": (Answer("not_done", "no such line"), "not_done"),
    "unknown": (Answer("unknown", "the ledger is torn"), "unknown"),
    "True": (True, "done"),
    "False": (False, "not_done"),
    "None": (None, "unknown"),
    "raises": (Boom("no way to look"), "unknown"),
    "nonsense": ("yes", "unknown"),
    "unstorable": (Answer("done", "there", {1, 2}), "unknown"),
    "endless": (Answer("done", "there", "x" * (MAX_INLINE + 1)), "unknown"),
}


@pytest.mark.parametrize("late", [False, True], ids=["before the act", "after the act"])
@pytest.mark.parametrize("sight", ["no probe", *SIGHTS])
@pytest.mark.parametrize("policy", AGAIN)
def test_a_harmless_effect_is_run_again_with_its_key_and_nobody_looks(face, store, policy, sight, late):
    world = Outside(SIGHTS.get(sight, (None,))[0])
    crashed(face, store, world, late, policy=policy, probed=sight in SIGHTS)
    assert pay(face, store, world, policy=policy, probed=sight in SIGHTS) == {"order": 5}
    assert world.done == [(5, "order-5")] * (1 + late) and world.looks == 0
    assert kinds(store) == [e.RunStarted, e.EffectStarted, e.RunResumed, e.EffectFinished, e.RunFinished]


@pytest.mark.parametrize("late", [False, True], ids=["before the act", "after the act"])
@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("policy", GUARDED)
def test_a_probe_is_asked_once_and_its_word_stands(face, store, policy, sight, late):
    seen, means = SIGHTS[sight]
    world = Outside(seen)
    crashed(face, store, world, late, policy=policy, probed=True)
    before = list(world.done)
    if means == "unknown":
        unknown(face, store, world, policy=policy, probed=True)
        assert world.done == before
    else:
        found = pay(face, store, world, policy=policy, probed=True)
        assert found == ({"order": 5} if sight != "True" else None)
        assert world.done == before + [(5, "order-5")] * (means == "not_done")
        assert state(store).status == "finished" and status(store) == "done"
    assert world.looks == 1


@pytest.mark.parametrize("late", [False, True], ids=["before the act", "after the act"])
@pytest.mark.parametrize("policy", ["once", None], ids=["once", "undeclared"])
def test_once_without_a_probe_blocks_with_evidence_and_does_nothing(face, store, policy, late):
    world = Outside()
    crashed(face, store, world, late, policy=policy)
    stop = unknown(face, store, world, policy=policy)
    assert world.done == [(5, "order-5")] * late
    said = " ".join(stop.evidence)
    assert "order-5" in said and "of step pay" in said and "no probe" in said
    unknown(face, store, world, policy=policy)
    assert world.done == [(5, "order-5")] * late


@pytest.mark.parametrize("sight", SIGHTS)
def test_an_undeclared_effect_with_a_probe_is_probed(face, store, sight):
    world = Outside(SIGHTS[sight][0])
    crashed(face, store, world, True, policy=None, probed=True)
    assert state(store).effects["order-5"].policy == "probed"
    with suppress(holdfast.Stopped):
        pay(face, store, world, policy=None, probed=True)
    assert world.looks == 1


@pytest.mark.parametrize("was", [*AGAIN, "once"])
@pytest.mark.parametrize("now", [*AGAIN, "once"])
def test_a_policy_that_changed_since_the_start_takes_nothing_for_granted(store, was, now):
    """126, as far as it is about effects: the policy is bound by the intent. The memory policy is the session's."""
    world, face = Outside(), Sync()
    crashed(face, store, world, True, policy=was)
    if was == now and was != "once":
        pay(face, store, world, policy=now)
        assert len(world.done) == 2
    else:
        unknown(face, store, world, policy=now)
        assert len(world.done) == 1


# --- the table of policies: the act raises


@pytest.mark.parametrize("late", [False, True], ids=["nothing done", "done"])
@pytest.mark.parametrize("policy", AGAIN)
def test_122_an_error_of_a_harmless_effect_frees_its_key(face, store, policy, late):
    world = Outside()
    world.fault, world.late = Boom("no"), late
    with pytest.raises(Boom):
        pay(face, store, world, policy=policy)
    assert status(store) == "failed" and state(store).effects["order-5"].evidence == "Boom: no"
    assert state(store).stop_reason == "step_failed"
    world.fault = None
    assert pay(face, store, world, policy=policy) == {"order": 5}
    assert world.done == [(5, "order-5")] * (1 + late) and status(store) == "done"


@pytest.mark.parametrize("late", [False, True], ids=["nothing done", "done"])
@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("policy", GUARDED)
def test_an_error_does_not_say_that_nothing_was_done(face, store, policy, sight, late):
    seen, means = SIGHTS[sight]
    world = Outside(seen)
    world.fault, world.late = Boom("no"), late
    if means == "unknown":
        stop = unknown(face, store, world, policy=policy, probed=True)
        assert "Boom: no" in " ".join(stop.evidence)
    elif means == "done":
        assert pay(face, store, world, policy=policy, probed=True) == ({"order": 5} if sight != "True" else None)
        assert status(store) == "done" and "Boom: no" in state(store).effects["order-5"].evidence
    else:
        with pytest.raises(Boom):
            pay(face, store, world, policy=policy, probed=True)
        assert status(store) == "not_done"
        world.fault = None
        assert pay(face, store, world, policy=policy, probed=True) == {"order": 5}
    assert world.looks == 1
    assert len(world.done) == late + (means == "not_done")


@pytest.mark.parametrize("late", [False, True], ids=["nothing done", "done"])
def test_an_error_of_a_once_effect_without_a_probe_blocks(face, store, late):
    world = Outside()
    world.fault, world.late = Boom("no"), late
    assert "Boom: no" in " ".join(unknown(face, store, world).evidence)
    world.fault = None
    unknown(face, store, world)
    assert len(world.done) == late


# --- 118 to 126


class Gone(Exception):
    """The store is out of reach from now on, as it is for a process that was killed."""


class Killing(MemoryStore):
    """Gone before or after a certain append."""

    def __init__(self, left, after):
        super().__init__()
        self.left, self.after, self.dead = left, after, False

    def append(self, *append):
        self.left -= 1
        self.dead = self.dead or (self.left == 0 and not self.after)
        if self.dead:
            raise Gone
        super().append(*append)
        self.dead = self.left == 0
        if self.dead:
            raise Gone

    def alive(self):
        self.dead, self.left = False, -1
        return self


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", [1, 2, 3, 4])
@pytest.mark.parametrize("policy", ["keyed", "probed", "once"])
def test_118_intent_effect_result_killed_at_each_append(face, policy, number, after):
    """With a key or a probe it happens exactly once; without, at most once and never silently."""
    store, ledger = Killing(number, after), Outside()

    def once_by_key(order, key):
        if key not in (known for _, known in ledger.done):
            ledger.done.append((order, key))
        return {"order": order}

    act = once_by_key if policy == "keyed" else ledger.act
    look = (lambda order, key: bool(ledger.done)) if policy == "probed" else None
    call = partial(face, store, "pay", act, 5, policy=policy, key="order-5", probe=look)
    with pytest.raises(Gone):
        call()
    intended = e.EffectStarted in kinds(store.alive())
    assert intended or not ledger.done  # the intent is durable before the act
    if policy == "once" and (number, after) in ((2, True), (3, False)):
        with pytest.raises(holdfast.Stopped, match="effect_unknown"):
            call()
        assert len(ledger.done) <= 1 and status(store) == "unknown"
        return
    call()
    assert len(ledger.done) == 1 and status(store) == "done" and state(store).status == "finished"


def test_119_done_but_not_recorded_is_unknown_and_the_check_or_a_person_decides(face, store):
    world = Outside()
    crashed(face, store, world, True)
    assert status(store) == "started"  # neither done nor failed: nobody knows
    unknown(face, store, world)
    settle(store, "done", evidence="the bank says so", receipt={"order": 5})
    assert pay(face, store, world) == {"order": 5} and len(world.done) == 1


def test_120_the_same_key_with_other_arguments_is_refused(face, store):
    world = Outside()
    crashed(face, store, world, False)
    for _ in range(2):
        with pytest.raises(holdfast.Stopped) as stop:
            face(store, "pay", face.act(world), 6, policy="once", key="order-5")
        assert (stop.value.reason, stop.value.code) == ("effect_key_reused", 86)
    assert world.done == []
    settle(store, "not_done")
    with pytest.raises(holdfast.Stopped, match="effect_key_reused"):
        face(store, "pay", face.act(world), 6, policy="once", key="order-5")
    assert pay(face, store, world) == {"order": 5} and world.done == [(5, "order-5")]


@pytest.mark.parametrize("policy", ["keyed", "once"])
def test_120_the_same_key_for_another_effect_is_refused(place, policy):
    """Else a shipment would be given the receipt of a payment, and never be sent."""
    done = []

    def charge(order):
        done.append("charged")
        return "charged"

    def ship(order):
        done.append("shipped")
        return "shipped"

    with pytest.raises(holdfast.Stopped, match="effect_key_reused"), holdfast.run("m", store=place, run_id=RUN) as run:
        assert run.effect("charge", charge, {"id": 5}, policy=policy, key="order-{order.id}") == "charged"
        run.effect("ship", ship, {"id": 5}, policy=policy, key="order-{order.id}")
    assert done == ["charged"]


def test_121_threads_with_one_key_do_it_exactly_once(place):
    done, ready = [], threading.Barrier(8)

    def slow(order):
        done.append(order)
        threading.Event().wait(0.05)
        return {"order": order}

    def one(number):
        ready.wait(10)
        return run.effect(f"pay/{number}", slow, 5, policy="once", key="order-{order}")

    with holdfast.run("m", store=place, run_id=RUN) as run, ThreadPoolExecutor(8) as pool:
        assert list(pool.map(one, range(8))) == [{"order": 5}] * 8
    assert done == [5]
    assert Counter(kinds(place))[e.EffectStarted] == 1


def test_121_an_effect_within_one_of_its_key_is_refused_and_does_not_wait_for_itself(place):
    refused = []

    def inner(run):
        return run.effect("ship", lambda: "shipped", policy="idempotent", key="order-5")

    def ordinary():
        with holdfast.run("m", store=place) as run:
            run.effect("pay", lambda: run.step("at once", lambda: inner(run)), policy="idempotent", key="order-5")

    async def later():
        async with holdfast.arun("m", store=place, new=True) as run:

            async def both():
                await asyncio.gather(inner(run))

            await run.effect("pay", both, policy="idempotent", key="order-5")

    def tried(work):
        try:
            work()
        except holdfast.HoldfastError as error:
            refused.append(str(error))

    for work in (ordinary, lambda: asyncio.run(later())):
        thread = threading.Thread(target=tried, args=[work], daemon=True)
        thread.start()
        thread.join(10)
    assert len(refused) == 2 and all("it would wait for itself" in said for said in refused), refused


def test_121_what_knows_of_the_effects_is_one_also_for_who_asks_for_it_while_it_is_made(store, monkeypatch):
    part, asked = run_module._part, []

    def another_comes_first(name):
        if not asked:
            asked.append(None)
            asked[0] = run._effects
        return part(name)

    with holdfast.run("m", store=store) as run:
        monkeypatch.setattr(run_module, "_part", another_comes_first)
        assert asked == [] and run._effects is asked[0]


def test_121_coroutines_with_one_key_do_it_exactly_once(place):
    done = []

    async def slow(order):
        done.append(order)
        await asyncio.sleep(0.02)
        return {"order": order}

    async def all_of_them():
        async with holdfast.arun("m", store=place, run_id=RUN) as run:
            calls = (run.effect(f"pay/{n}", slow, 5, policy="once", key="order-{order}") for n in range(8))
            return await asyncio.gather(*calls)

    assert asyncio.run(all_of_them()) == [{"order": 5}] * 8
    assert done == [5]


def test_121_a_thread_that_fails_lets_the_next_one_try(store):
    tries = []

    def flaky(order):
        tries.append(order)
        if len(tries) == 1:
            raise Boom
        return "paid"

    def one(number):
        try:
            return run.effect(f"pay/{number}", flaky, 5, policy="idempotent", key="order-5")
        except Boom:
            return "failed"

    with holdfast.run("m", store=store, run_id=RUN) as run, ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(one, range(4))) == ["failed", "paid", "paid", "paid"]
    assert tries == [5, 5]


def test_122_a_failed_effect_can_be_done_under_another_name_in_the_same_run(store):
    world = Outside()
    world.fault = Boom()
    with holdfast.run("m", store=store, run_id=RUN) as run:
        with pytest.raises(Boom):
            run.effect("pay", world.act, 5, policy="idempotent", key="order-5")
        world.fault = None
        assert run.effect("pay again", world.act, 5, policy="idempotent", key="order-5") == {"order": 5}
    assert status(store) == "done" and len(world.done) == 1


def test_123_read_and_idempotent_are_replayed_once_is_never_silently_repeated(face):
    outcomes = {}
    for policy in ("read", "idempotent", "once"):
        store, world = MemoryStore(), Outside()
        for _ in range(3):
            world.fault, world.late = Crash(), True
            with pytest.raises((Crash, holdfast.Stopped)):
                pay(face, store, world, policy=policy)
        outcomes[policy] = len(world.done)
    assert outcomes == {"read": 3, "idempotent": 3, "once": 1}


BIG = {"page": "x" * MAX_INLINE}


def crash_after(face, store, call):
    """Do the effect, and lose the process before the run has said that it is finished."""
    at = opened(store)
    with at, pytest.raises(Crash), holdfast.run("m", store=at, run_id=RUN) as run:
        call(run)
        run._life.end = lambda *_: iter(())
        raise Crash


def fetch(run, act=lambda: BIG):
    return run.effect("fetch", act, policy="read", key="page")


def never():
    raise AssertionError("it was done before")


def test_124_a_large_result_is_an_artifact_and_comes_back(face, place):
    crash_after(face, place, fetch)
    found = state(place).effects["page"]
    assert found.receipt is None and found.artifact is not None
    assert all(len(record.body) < 1000 for record in holdfast.open_store(place).read(RUN))
    assert face(place, "fetch", never, policy="read", key="page") == BIG
    small = {"page": "x" * (MAX_INLINE - 20)}
    assert face(place + "2", "fetch", lambda: small, policy="read", key="page") == small
    assert state(place + "2").effects["page"].artifact is None


@pytest.mark.parametrize("how", ["other bytes", "other length", "no packed form", "gone"])
def test_124_a_damaged_artifact_is_a_typed_error_and_never_a_wrong_value(face, place, how):
    crash_after(face, place, fetch)
    spoil(place, how)
    with pytest.raises(NotFound if how == "gone" else ArtifactDamaged):
        face(place, "fetch", never, policy="read", key="page")
    assert status(place, "page") == "done"


def spoil(place, how):
    connection = apsw.Connection(place)
    if how == "other bytes":
        with holdfast.open_store(place) as other:
            other.put_artifact(b'{"page":"' + b"y" * MAX_INLINE + b'"}')
    change = {
        "other bytes": "update artifacts set data = (select b.data from artifacts b where b.rowid != artifacts.rowid)",
        "other length": "update artifacts set size = size + 1",
        "no packed form": "update artifacts set data = zeroblob(length(data))",
        "gone": "delete from artifacts",
    }[how]
    connection.execute(change)
    connection.close()


def test_124_a_damaged_artifact_on_a_server_is_a_typed_error(server):
    crash_after(Sync(), server, fetch)
    postgres.shared_server().execute(
        "update holdfast.artifacts set data = decode(repeat('00', octet_length(data)), 'hex')",
        server.rpartition("/")[2],
    )
    with pytest.raises(ArtifactDamaged):
        Sync()(server, "fetch", never, policy="read", key="page")


def test_125_names_keys_and_policies_that_make_no_sense_have_no_effect(face, store):
    """Error kinds, as far as it is about effects. Patterns of tool ids and versions, and `dry_run`, are the session's."""
    world = Outside()
    refused = {
        "name": lambda: face(store, "", world.act, 5, policy="once"),
        "policy": lambda: face(store, "pay", world.act, 5, policy="exactly-once"),
        "no probe": lambda: face(store, "pay", world.act, 5, policy="probed"),
        "empty key": lambda: face(store, "pay", world.act, 5, key=""),
        "long key": lambda: face(store, "pay", world.act, 5, key="k" * 201),
        "control": lambda: face(store, "pay", world.act, 5, key="a\nb"),
        "no such argument": lambda: face(store, "pay", world.act, 5, key="order-{customer.id}"),
        "no text there": lambda: face(store, "pay", world.act, {"a": 1}, key="order-{order}"),
        "half a gap": lambda: face(store, "pay", world.act, 5, key="order-{order"),
        "a secret": lambda: face(store, "pay", world.act, 5, key=TOKEN),
        "an argument": lambda: face(store, "pay", world.act, object(), policy="once"),
        "a result type": lambda: face(store, "pay", unreadable, policy="once"),
        "too many arguments": lambda: face(store, "pay", world.act, 5, 6, 7, policy="once"),
        "too few arguments": lambda: face(store, "pay", world.act, policy="once"),
        "no such parameter": lambda: face(store, "pay", world.act, 5, colour="red", policy="once"),
        "a probe of something else": lambda: face(store, "pay", world.act, 5, probe=lambda: True),
    }
    for what, call in refused.items():
        store._runs.clear()
        with pytest.raises((UsageError, Unstorable)):
            call()
        assert world.done == [], what
        assert e.EffectStarted not in kinds(store), what


def unreadable() -> type:
    raise AssertionError("must not run")


def test_126_an_effect_of_another_run_is_none_of_ours(face, store):
    """As far as it is about effects: keys are of one run. Messages of another session are the session's."""
    world = Outside()
    with holdfast.run("m", store=store, run_id="run-0") as run:
        run.effect("pay", world.act, 5, policy="once", key="order-5")
    assert pay(face, store, world) == {"order": 5}
    assert len(world.done) == 2


# --- keys


def keys_of(*calls, run_id=RUN, store=None):
    """The key that each call's act was given."""
    seen = []
    with holdfast.run("m", store=store or MemoryStore(), run_id=run_id) as run:
        for name, args, kwargs, options in calls:
            run.effect(name, lambda order=None, key="", **more: seen.append(key), *args, **kwargs, **options)
    return seen


def test_a_derived_key_is_of_the_run_the_name_and_the_arguments():
    base = ("pay", (5,), {}, {"policy": "keyed"})
    (key,) = keys_of(base)
    assert keys_of(base) == [key] and len(key) == 40
    assert keys_of(base, run_id="run-2") != [key]
    assert keys_of(("pay", (6,), {}, {"policy": "keyed"})) != [key]
    assert keys_of(("pay too", (5,), {}, {"policy": "keyed"})) != [key]
    assert keys_of(("pay", (), {"order": 5}, {"policy": "keyed"})) == [key]
    assert keys_of(("pay", (5,), {}, {"policy": "once"})) == [key]


def test_a_key_is_filled_from_the_arguments_and_evaluates_nothing():
    order = {"id": "a7", "lines": [{"sku": "x"}], "n": 3}
    templates = {
        "order-{order.id}": "order-a7",
        "{order.lines.0.sku}/{order.n}": "x/3",
        "plain": "plain",
        "{order.id}{order.id}": "a7a7",
    }
    for template, key in templates.items():
        assert keys_of(("pay", (order,), {}, {"policy": "keyed", "key": template})) == [key]
    for template in ("{order.__class__}", "{order.id!r}", "{0}", "{order[id]}", "{}", "{order}", "{order.lines.7.sku}"):
        with pytest.raises(UsageError):
            keys_of(("pay", (order,), {}, {"policy": "keyed", "key": template}))


def test_an_act_without_a_key_parameter_is_not_given_one(store):
    with holdfast.run("m", store=store, run_id=RUN) as run:
        assert run.effect("pay", lambda order: order + 1, 5, policy="keyed", key="k") == 6
        assert run.effect("ship", lambda order, key: [order, key], 5, key="mine", policy="keyed") == [5, "mine"]


def put(key, value):
    return [key, value]


def positional(key, /, value):
    return [key, value]


@pytest.mark.parametrize(
    ("act", "given"),
    [
        (put, ("a", 1)),
        (positional, ("a", 1)),
        (partial(put, "a"), (1,)),
        (partial(put, key="a"), ()),
    ],
    ids=["by position", "only by position", "held", "held by name"],
)
def test_a_key_of_the_author_s_own_is_left_as_it_is(store, act, given):
    named = {} if given else {"value": 1}
    with holdfast.run("m", store=store, run_id=RUN) as run:
        assert run.effect("put", act, *given, **named) == ["a", 1]


def test_a_repetition_gets_the_key_of_the_first_time(face, store):
    world = Outside()
    for _ in range(3):
        crashed(face, store, world, True, policy="keyed", key=None)
    pay(face, store, world, policy="keyed", key=None)
    assert len(world.done) == 4 and len({key for _, key in world.done}) == 1


@pytest.mark.parametrize("policy", ["once", "keyed"])
def test_an_effect_that_was_done_is_not_done_again_for_other_arguments_without_a_word(face, store, policy):
    """Its derived key is another one then; its name still says that it was done."""
    world = Outside()

    def first(run):
        run.effect("pay", world.act, 5, policy=policy)

    crash_after(face, store, first)
    with pytest.raises(holdfast.Stopped, match="input_changed"):
        face(store, "pay", face.act(world), 6, policy=policy)
    assert world.done[0][0] == 5 and len(world.done) == 1
    with holdfast.run("m", store=store, run_id=RUN, accept=True) as run:
        run.effect("pay", world.act, 6, policy=policy)
    assert [order for order, _ in world.done] == [5, 6]


def test_another_key_for_the_same_arguments_is_called_that(face, store):
    world = Outside()
    crash_after(face, store, lambda run: run.effect("pay", world.act, 5, key="order-{order}"))
    with pytest.raises(holdfast.Stopped, match="pay: arguments; its key: order-5 -> o-5") as stop:
        face(store, "pay", face.act(world), 5, key="o-{order}")
    assert stop.value.reason == "input_changed" and len(world.done) == 1


def test_an_open_effect_with_another_key_for_the_same_arguments_is_called_that(face, store):
    world = Outside()
    crashed(face, store, world, True)
    with pytest.raises(holdfast.Stopped, match="its key is o-5 now") as stop:
        face(store, "pay", face.act(world), 5, key="o-{order}")
    assert stop.value.reason == "effect_unknown" and len(world.done) == 1


def test_an_open_effect_is_settled_before_it_is_done_with_other_arguments(face, store):
    world = Outside()
    crashed(face, store, world, True, key=None)
    (key,) = state(store).effects_open
    with pytest.raises(holdfast.Stopped, match="effect_unknown"):
        face(store, "pay", face.act(world), 6)
    settle(store, "not_done", key)
    assert face(store, "pay", face.act(world), 6) == {"order": 6}
    assert [order for order, _ in world.done] == [5, 6]


# --- settled by a person


@dataclass
class Receipt:
    order: int


def declared(order, key) -> Receipt:
    raise Crash


@pytest.mark.parametrize("probed", [False, True], ids=["no probe", "probe"])
def test_settled_as_done_gives_the_receipt_and_does_nothing(face, store, probed):
    world = Outside(Answer("unknown") if probed else None)
    crashed(face, store, world, True, probed=probed)
    unknown(face, store, world, probed=probed)
    settle(store, "done", receipt={"order": 5})
    assert pay(face, store, world, probed=probed) == {"order": 5}
    assert len(world.done) == 1 and state(store).status == "finished"


def test_settled_as_done_without_a_receipt_gives_none_whatever_was_declared(face, store):
    call = partial(face, store, "pay", declared, 5, policy="once", key="order-5")
    with pytest.raises(Crash):
        call()
    settle(store, "done")
    assert call() is None
    assert state(store).status == "finished"


def test_settled_as_done_with_a_receipt_gives_what_was_declared(face, store):
    call = partial(face, store, "pay", declared, 5, policy="once", key="order-5")
    with pytest.raises(Crash):
        call()
    settle(store, "done", receipt={"order": 5})
    assert call() == Receipt(5)


@pytest.mark.parametrize("probed", [False, True], ids=["no probe", "probe"])
def test_settled_as_not_done_is_done_with_the_same_key(face, store, probed):
    world = Outside(Answer("unknown") if probed else None)
    crashed(face, store, world, False, probed=probed)
    unknown(face, store, world, probed=probed)
    settle(store, "not_done")
    assert pay(face, store, world, probed=probed) == {"order": 5}
    assert world.done == [(5, "order-5")]
    assert kinds(store).count(e.EffectStarted) == 2


def test_abandoned_is_not_done_and_gives_none(face, store):
    world = Outside()
    crashed(face, store, world, False)
    unknown(face, store, world)
    settle(store, "abandoned")
    assert pay(face, store, world) is None
    assert world.done == [] and state(store).status == "finished" and status(store) == "abandoned"


def test_settled_as_unknown_stops_again(face, store):
    world = Outside()
    crashed(face, store, world, False)
    settle(store, "unknown", evidence="nobody at the bank answers")
    unknown(face, store, world)


def test_what_is_settled_cannot_be_settled_again(face, store):
    world = Outside()
    crashed(face, store, world, False)
    settle(store, "done")
    with pytest.raises(holdfast.HoldfastError, match="is not open"):
        settle(store, "not_done")


def test_a_run_does_not_end_over_an_effect_that_nobody_knows(place):
    world = Outside()
    crashed(Sync(), place, world, True)
    with pytest.raises(holdfast.Stopped, match="effect_unknown"), holdfast.run("m", store=place, run_id=RUN) as run:
        run.step("something else", str, 1)
    assert state(place).stop_reason == "effect_unknown"


# --- transactional


@pytest.fixture(params=["sqlite", "postgres"])
def database(request, place):
    return place if request.param == "sqlite" else request.getfixturevalue("server")


def mark(at):
    return "%s" if at.startswith("postgres") else "?"


class Till:
    """A table beside the log."""

    def __init__(self, at):
        self.insert = f"insert into app_till(n) values ({mark(at)})"
        self.crash = self.error = None
        self.calls = 0

    def pay(self, sql, order):
        self.calls += 1
        sql.execute("create table if not exists app_till(n integer)")
        if self.crash == "before":
            raise Crash
        sql.execute(self.insert, (order,))
        if self.crash:
            raise Crash
        if self.error:
            raise self.error
        return {"rows": sql.execute("select count(*) from app_till")[0][0]}


def till_of(at):
    """What is in the table, seen by a run of its own."""
    with holdfast.run("look", store=at, new=True) as run:
        return run.effect("look", rows, policy="transactional")


def rows(sql):
    sql.execute("create table if not exists app_till(n integer)")
    return [row[0] for row in sql.execute("select n from app_till")]


def sold(face, at, till, **options):
    return face(at, "pay", till.pay, 5, policy="transactional", key="order-5", **options)


def test_transactional_is_committed_with_its_events(face, database):
    till = Till(database)
    assert sold(face, database, till) == {"rows": 1}
    assert kinds(database) == [e.RunStarted, e.EffectStarted, e.EffectFinished, e.RunFinished]
    assert till_of(database) == [5] and till.calls == 1


def test_the_key_of_a_transactional_effect_names_what_it_is_given_beside_the_sql(face, database):
    till = Till(database)
    face(database, "pay", till.pay, 5, policy="transactional", key="order-{order}")
    with opened(database) as store:
        assert list(holdfast.read_state(store, RUN).effects) == ["order-5"]
    make = holdfast.effect(policy="transactional", name="pay/{order}")(lambda sql, order: order)
    with holdfast.run("other", store=database, run_id="run-2") as run:
        assert make(6) == 6
        assert [effect.step_id for effect in run.state.effects.values()] == ["pay/6"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_transactional_that_is_cut_off_never_happened(face, database, when):
    till = Till(database)
    till.crash = when
    with pytest.raises(Crash):
        sold(face, database, till)
    assert state(database).effects == {} and till_of(database) == []
    till.crash = None
    assert sold(face, database, till) == {"rows": 1}
    assert till_of(database) == [5]


def test_transactional_that_raises_never_happened(face, database):
    till = Till(database)
    till.error = Boom("no")
    with pytest.raises(Boom):
        sold(face, database, till)
    assert state(database).effects == {} and till_of(database) == []
    till.error, till.insert = None, "insert into app_nothing values (1)"
    with pytest.raises(BadInput):
        sold(face, database, till)
    assert till_of(database) == []


def test_transactional_in_a_log_that_has_its_arguments_by_earlier_names_is_not_done_again(face, database, monkeypatch):
    till, given = Till(database), forms.given
    with monkeypatch.context() as earlier:
        earlier.setattr(forms, "given", lambda what, work, args, kwargs, lent=False: given(what, work, args, kwargs))
        once = holdfast.effect(policy="transactional")(till.pay)
        assert face(database, "pay", till.pay, 5, policy="transactional") == {"rows": 1}
        with holdfast.run("other", store=database, run_id="run-2"):
            assert once(6) == {"rows": 2}
    assert face(database, "pay", till.pay, 5, policy="transactional") == {"rows": 1}
    with holdfast.run("other", store=database, run_id="run-2"):
        assert once(6) == {"rows": 2}
    assert till_of(database) == [5, 6] and till.calls == 2


def test_transactional_is_not_done_again(face, database):
    till = Till(database)

    def first(run):
        run.effect("pay", till.pay, 5, policy="transactional", key="order-5")

    crash_after(face, database, first)
    assert sold(face, database, till) == {"rows": 1}
    assert till.calls == 1 and till_of(database) == [5]


def test_transactional_by_threads_with_one_key_is_done_once(database):
    till = Till(database)

    def one(number):
        return run.effect(f"pay/{number}", till.pay, 5, policy="transactional", key="order-5")

    with holdfast.run("m", store=database, run_id=RUN) as run, ThreadPoolExecutor(4) as pool:
        assert list(pool.map(one, range(4))) == [{"rows": 1}] * 4
    assert till.calls == 1 and till_of(database) == [5]


def test_transactional_with_a_result_too_large_for_its_event_is_refused_and_undone(face, database):
    """An artifact cannot be kept in the same transaction, and one of its own could stay behind alone."""
    till = Till(database)

    def big(sql, order):
        till.pay(sql, order)
        return BIG

    with pytest.raises(TooLarge):
        face(database, "pay", big, 5, policy="transactional", key="order-5")
    assert state(database).effects == {} and till_of(database) == []


def test_transactional_needs_a_store_with_sql(face, store):
    with pytest.raises(UsageError, match="no SQL"):
        face(store, "pay", rows, policy="transactional")
    assert state(store).effects == {}


# --- secrets


def bytes_of(place):
    return b"".join(path.read_bytes() for path in Path(place).parent.rglob("*") if path.is_file())


def test_secrets_are_gone_before_anything_is_written(face, place, monkeypatch):
    monkeypatch.setenv("SERVICE_PASSWORD", "correct-horse-battery-7")

    def act(order, key):
        return {"token": TOKEN, "also": f"password is {order['password']}"}

    call = {"password": "correct-horse-battery-7", "n": 1, "url": f"https://bob:{TOKEN}@example.org/"}
    face(place, "pay", act, call, policy="once", key="order-{order.n}")
    stored = bytes_of(place)
    assert b"correct-horse" not in stored and TOKEN.encode() not in stored
    assert b"redacted" in stored
    (started, finished) = (event for event in events(place) if isinstance(event, e.EffectStarted | e.EffectFinished))
    assert "redacted" in started.arguments["order"]["url"] and "redacted" in finished.receipt["token"]


def test_secrets_in_large_results_errors_evidence_and_probes_are_gone_too(face, place):
    world = Outside(Answer("done", f"seen with {TOKEN}", {"token": TOKEN}))
    world.fault = Boom(f"bad login with {TOKEN}")
    pay(face, place, world, probed=True)
    face(place + "2", "fetch", lambda: [TOKEN, "x" * MAX_INLINE], policy="read")
    broken = Outside(Boom(TOKEN))
    broken.fault = Boom(TOKEN)
    with pytest.raises(holdfast.Stopped) as stop:
        pay(face, place + "3", broken, probed=True)
    assert TOKEN not in str(stop.value)
    assert TOKEN.encode() not in bytes_of(place)


def test_a_key_with_a_secret_is_refused_before_the_intent(face, place):
    world = Outside()
    with pytest.raises(UsageError, match="secret"):
        face(place, "pay", face.act(world), TOKEN, policy="once", key="order-{order}")
    assert world.done == [] and state(place).effects == {}
    assert TOKEN.encode() not in bytes_of(place)


# --- what remains


def test_a_result_that_cannot_be_stored_leaves_the_outcome_open(face, store):
    """It was done, and what it gave is lost: the log may not say more than that it began."""
    done = []

    def act():
        done.append(1)
        return object()

    with pytest.raises(Unstorable):
        face(store, "pay", act, policy="once", key="order-5")
    assert done == [1] and status(store) == "started"


def test_an_effect_may_not_be_named_twice_in_one_run(store):
    with pytest.raises(NameClash), holdfast.run("m", store=store, run_id=RUN) as run:
        run.effect("pay", str, 1, policy="read")
        run.effect("pay", str, 1, policy="read")


def test_an_interruption_in_the_act_leaves_the_outcome_open(store):
    def act():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), holdfast.run("m", store=store, run_id=RUN) as run:
        run.effect("pay", act, policy="once", key="order-5")
    assert (status(store), state(store).stop_reason) == ("started", "user_stopped")


def test_a_cancelled_coroutine_leaves_the_outcome_open(store):
    async def body():
        async with holdfast.arun("m", store=store, run_id=RUN) as run:
            await asyncio.wait_for(run.effect("pay", asyncio.sleep, 60, policy="once", key="order-5"), 0.05)

    with pytest.raises(TimeoutError):
        asyncio.run(body())
    assert status(store) == "started"
    with pytest.raises(holdfast.Stopped, match="effect_unknown"):
        asyncio.run(body())


def test_a_ready_effect_brings_its_own_act_probe_and_policy(face, store):
    world = Outside()

    class Sent:
        policy = "probed"
        arguments = {"to": "you"}

        def act(self, key):
            world.done.append(("you", key))
            raise Crash

        def probe(self, key):
            return Answer("done", "it is there", {"sent": bool(world.done)})

    with pytest.raises(Crash):
        face(store, "mail", Sent(), key="mail-{to}")
    assert face(store, "mail", Sent(), key="mail-{to}") == {"sent": True}
    assert world.done == [("you", "mail-you")]


def test_an_effect_inside_a_step_that_is_tried_again_is_done_once(store):
    world, tries = Outside(), []

    def outer():
        paid = run.effect("pay", world.act, 5, policy="once", key="order-5")
        tries.append(1)
        if len(tries) < 3:
            raise Boom
        return paid

    with holdfast.run("m", store=store, run_id=RUN) as run:
        assert run.step("outer", outer, retry=holdfast.Retry(3, 0.01)) == {"order": 5}
    assert len(tries) == 3 and len(world.done) == 1


@pytest.mark.parametrize("policy", ["once", "probed", "keyed"])
def test_what_an_earlier_try_of_a_step_left_going_on_is_waited_for_and_not_begun_again(place, policy):
    begun, tries = Counter(), []

    async def everything():
        go_on = asyncio.Event()

        async def slow(what):
            begun[what] += 1
            await go_on.wait()
            return what

        async def fail():
            tries.append(1)
            if len(tries) == 1:
                raise Boom
            asyncio.get_running_loop().call_later(0.05, go_on.set)

        async def outer():
            pay = run.effect("pay", slow, "pay", policy=policy, probe=lambda what: False)
            return await asyncio.gather(pay, run.step("draft", slow, "draft"), run.step("fail", fail))

        async with holdfast.arun("m", store=place, run_id=RUN) as run:
            assert await run.step("outer", outer, retry=holdfast.Retry(2, 0.01)) == ["pay", "draft", None]

    asyncio.run(everything())
    assert begun == {"pay": 1, "draft": 1} and len(tries) == 2


def test_the_names_of_threads_in_a_step_that_is_tried_again_are_free_again(store):
    begun, tries = Counter(), []

    def work(what):
        begun[what] += 1
        return what

    def outer():
        with ThreadPoolExecutor(2) as threads:
            done = [threads.submit(run.step, name, work, name) for name in ("a", "b")]
            done.append(threads.submit(run.effect, "c", work, "c"))
            found = [one.result() for one in done]
        tries.append(1)
        if len(tries) == 1:
            raise Boom
        return found

    with holdfast.run("m", store=store, run_id=RUN) as run:
        assert run.step("outer", outer, retry=holdfast.Retry(2, 0.01)) == ["a", "b", "c"]
        with pytest.raises(NameClash):
            run.step("a", work, "a")
    assert begun == {"a": 1, "b": 1, "c": 1}


def test_an_act_that_is_under_way_when_another_thread_stops_the_run_still_says_how_it_ended(place):
    begun, stopped, done = threading.Event(), threading.Event(), []

    def slow(order):
        begun.set()
        stopped.wait(10)
        done.append(order)
        return {"order": order}

    def broken():
        begun.wait(10)
        raise Boom

    def stop():
        try:
            run.effect("broken", broken, policy="once", key="broken")
        finally:
            stopped.set()

    with pytest.raises(holdfast.Stopped, match="effect_unknown"), holdfast.run("m", store=place, run_id=RUN) as run:
        with ThreadPoolExecutor(2) as pool:
            paying, stopping = pool.submit(run.effect, "pay", slow, 5, policy="once", key="order-5"), pool.submit(stop)
        assert paying.result() == {"order": 5} and isinstance(stopping.exception(), holdfast.Stopped)
        with pytest.raises(holdfast.Stopped, match="effect_unknown"):
            run.effect("ship", slow, 6, policy="once")
    assert status(place) == "done" and status(place, "broken") == "unknown"
    assert done == [5]


def test_a_run_that_was_stopped_in_a_thread_does_not_end_as_if_it_were_not(place):
    def broken():
        raise Boom

    with pytest.raises(holdfast.Stopped) as stop, holdfast.run("m", store=place, run_id=RUN) as run:
        thread = threading.Thread(target=lambda: suppressed(run.effect, "pay", broken, policy="once"))
        thread.start()
        thread.join()
    assert stop.value.code == 85


def suppressed(call, *args, **options):
    with suppress(holdfast.Stopped):
        call(*args, **options)


@pytest.mark.parametrize("dies_inside", [False, True])
def test_steps_and_effects_of_a_step_that_is_finished_are_not_missed(place, dies_inside):
    """They are not called again, because the step around them is not: that is no change of the code."""
    lives = iter([dies_inside, False, False])

    def body(run):
        dies = next(lives)

        def outer():
            found = [run.step("inner", str, 1), run.effect("inside", str, 2, policy="read")]
            if dies:
                run._life.end = lambda *_: iter(())
                raise Crash
            return found

        return run.step("outer", outer)

    for _ in range(2):
        crash_after(Sync(), place, body)
    with holdfast.run("m", store=place, run_id=RUN, strictness="max") as run:
        assert body(run) == ["1", "2"]
    assert e.DriftFound not in kinds(place)

"""The runner, killed before and after every append and inside every effect: the same ending, no effect twice."""

from __future__ import annotations

import itertools
from typing import Any, cast

import pytest

from holdfast.core.canonical import digest_of
from holdfast.core.errors import LeaseLost, UsageError
from holdfast.core.events import EffectSettled, EffectStarted, RunStarted, StepFailed, StepStarted
from holdfast.core.values import Answer
from holdfast.engine.log import RunLog, World, read_state, verify_run
from holdfast.engine.runner import MAX_INLINE, Effect, Runner
from holdfast.ports import Owner
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore

OWNER = Owner("here", "boot", 1, "1")
OPS = itertools.count(1)
TTL = 30.0


class Crash(BaseException):
    """The process dies here. No `except Exception` can hide it."""


class Crashing:
    """A store whose process dies before or after its n-th append. The dead do nothing more."""

    def __init__(self, store, at=0, when="before"):
        self.inner, self.at, self.when = store, at, when
        self.appends, self.dead = 0, False

    def append(self, lease, records, projection):
        self.alive()
        self.appends += 1
        if self.appends == self.at and self.when == "before":
            self.die()
        self.inner.append(lease, records, projection)
        if self.appends == self.at:
            self.die()

    def die(self):
        self.dead = True
        raise Crash

    def alive(self):
        if self.dead:
            raise Crash

    def __getattr__(self, name):
        self.alive()
        return getattr(self.inner, name)


class MemoryMachine:
    """Keeps a memory store over the deaths of its processes; a death ends when its lease does."""

    appends = 0

    def __init__(self, tmp_path):
        self.now = 0.0
        self.store = MemoryStore(lambda: self.now)

    def start(self):
        return self.store

    def bury(self):
        self.now += 2 * TTL


class SqliteMachine:
    """Opens the file anew for each process."""

    appends = 0

    def __init__(self, tmp_path):
        self.path = tmp_path / "holdfast.db"
        self.store: Any = None

    def start(self):
        self.store = SqliteStore(self.path, boot_id="boot")
        return self.store

    def bury(self):
        self.store.close()


MACHINES = {"memory": MemoryMachine, "sqlite": SqliteMachine}


class Outside:
    """The world: what was done to it, and by whom it was asked to die."""

    def __init__(self, crash_in=None, when="before"):
        self.lines, self.mailbox, self.setting = [], {}, {}
        self.crash_in, self.when = crash_in, when

    def doing(self, key, change):
        dying = self.crash_in == key
        if dying:
            self.crash_in = None
        if dying and self.when == "before":
            raise Crash
        receipt = change(key)
        if dying:
            raise Crash
        return receipt

    def write(self, key):
        self.lines.append(key)
        return {"key": key}

    def seen(self, key):
        return (
            Answer("done", "it is there", {"key": key}) if key in self.lines else Answer("not_done", "it is not there")
        )

    def steps(self):
        def act(change):
            return lambda key: self.doing(key, change)

        return {
            "compute": lambda: [1, "two", None],
            "write": Effect("k-probed", act(self.write), "probed", self.seen, {"to": "file"}),
            "send": Effect("k-keyed", act(lambda key: self.mailbox.setdefault(key, key)), "keyed"),
            "set": Effect("k-idempotent", act(lambda key: self.setting.update({key: 1})), "idempotent"),
            "read": Effect("k-read", act(len), "read"),
            "write-once": Effect("k-once", act(self.write), "once", self.seen),
            "last": lambda: "end",
        }

    def happened(self):
        return sorted(self.lines), self.mailbox, self.setting


APPENDS_OF_A_CLEAN_RUN = 16
EFFECTS = ["k-probed", "k-keyed", "k-idempotent", "k-read", "k-once"]
OUTPUTS = {
    "compute": [1, "two", None],
    "write": {"key": "k-probed"},
    "send": "k-keyed",
    "set": None,
    "read": 6,
    "write-once": {"key": "k-once"},
    "last": "end",
}
HAPPENED = (["k-once", "k-probed"], {"k-keyed": "k-keyed"}, {"k-idempotent": 1})


def world():
    return World(lambda: "2026-01-02T03:04:05.678901Z", lambda: f"{next(OPS):032x}", OWNER)


def live(machine, steps, at=0, when="before"):
    """One process: it runs to rest and returns the state, or dies and returns None."""
    store = Crashing(machine.start(), at, when)
    try:
        with RunLog(store, "run", world(), ttl=TTL) as log:
            return Runner(log, steps).run("m", "a title")
    except Crash:
        return None
    finally:
        machine.appends = store.appends
        machine.bury()


def outputs(state):
    return {step_id: step.output for step_id, step in state.steps.items()}


def assert_whole(machine, outside):
    """The ending of every story: finished, everything done once, the log sound."""
    store = machine.start()
    state = read_state(store, "run")
    assert (state.status, outputs(state)) == ("finished", OUTPUTS)
    assert outside.happened() == HAPPENED
    assert verify_run(store, "run").findings == ()
    machine.bury()


@pytest.fixture(params=MACHINES)
def machine(request, tmp_path):
    return MACHINES[request.param](tmp_path)


def test_a_run_that_nobody_kills(machine):
    outside = Outside()
    live(machine, outside.steps())
    assert machine.appends == APPENDS_OF_A_CLEAN_RUN
    assert_whole(machine, outside)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("crash_at", range(1, APPENDS_OF_A_CLEAN_RUN + 1))
def test_any_crash_at_an_append_is_survived(machine, crash_at, when):
    outside = Outside()
    assert live(machine, outside.steps(), crash_at, when) is None
    live(machine, outside.steps())
    assert_whole(machine, outside)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("key", EFFECTS)
def test_any_crash_inside_an_effect_is_survived(machine, key, when):
    outside = Outside(key, when)
    assert live(machine, outside.steps()) is None
    live(machine, outside.steps())
    assert_whole(machine, outside)


@pytest.mark.parametrize("first", range(1, APPENDS_OF_A_CLEAN_RUN + 1))
def test_a_crash_during_the_recovery_from_a_crash_is_survived(first):
    for when, second, then in itertools.product(("before", "after"), range(1, 8), ("before", "after")):
        machine, outside = MemoryMachine(None), Outside()
        live(machine, outside.steps(), first, when)
        live(machine, outside.steps(), second, then)
        live(machine, outside.steps())
        assert_whole(machine, outside)


def test_a_run_killed_at_its_first_append_for_ever_is_still_new(machine):
    for _ in range(3):
        assert live(machine, Outside().steps(), 1, "before") is None
    outside = Outside()
    live(machine, outside.steps())
    assert_whole(machine, outside)


def test_resume_says_so_in_the_log_and_a_finished_run_is_left_alone(machine):
    outside = Outside()
    live(machine, outside.steps(), 4, "after")
    state = live(machine, outside.steps())
    assert state.resumes == 1
    assert live(machine, outside.steps()) == state
    assert machine.appends == 0


def test_a_finished_step_is_not_executed_again(machine):
    executed = []
    steps = {name: (lambda name=name: executed.append(name)) for name in ("a", "b", "c")}
    live(machine, steps, 7, "before")
    live(machine, steps)
    assert executed == ["a", "b", "c", "c"]


# --- once, without a probe


def once(outside):
    return {"a": Effect("k", lambda key: outside.doing(key, outside.write)), "b": lambda: "end"}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("crash_at", range(1, 7))
def test_what_cannot_be_known_is_never_done_twice_and_never_reported_falsely(machine, crash_at, when):
    outside = Outside()
    assert live(machine, once(outside), crash_at, when) is None
    between = (crash_at, when) in {(2, "after"), (3, "before")}
    for _ in range(2):
        state = live(machine, once(outside))
        assert (state.status, state.stop_reason) == (("stopped", "effect_unknown") if between else ("finished", None))
    assert len(outside.lines) == (crash_at == 3 if between else 1)


def test_a_blocked_run_names_its_evidence(machine):
    outside = Outside("k", "after")
    live(machine, once(outside))
    state = live(machine, once(outside))
    assert state.effects_open == {"k": "unknown"}
    assert all(word in state.diagnosis for word in ("effect k", "step a", "once", "no probe"))


@pytest.mark.parametrize(("settled_as", "lines"), [("done", 1), ("not_done", 2), ("abandoned", 1)])
def test_a_person_settles_what_nobody_else_can(machine, settled_as, lines):
    outside = Outside("k", "after")
    live(machine, once(outside))
    live(machine, once(outside))
    with RunLog(machine.start(), "run", world()) as log:
        log.record(EffectSettled(effect_key="k", settled_as=settled_as, by="person"))
    machine.bury()
    assert live(machine, once(outside)).status == "finished"
    assert len(outside.lines) == lines


# --- probes


@pytest.mark.parametrize("policy", ["probed", "once"])
@pytest.mark.parametrize("unsure", ["says unknown", "raises", "answers with what cannot be kept"])
def test_a_probe_that_does_not_know_blocks_the_run(policy, unsure):
    def probe(key):
        if unsure == "raises":
            raise OSError("no route to host")
        return Answer("unknown", "it is dark") if unsure == "says unknown" else Answer("done", "", object())

    machine, outside = MemoryMachine(None), Outside("k", "after")
    steps = {"a": Effect("k", lambda key: outside.doing(key, outside.write), policy, probe)}
    live(machine, steps)
    state = live(machine, steps)
    assert (state.stop_reason, outside.lines) == ("effect_unknown", ["k"])


def test_a_probe_that_later_knows_sets_the_run_free():
    machine, outside, answers = MemoryMachine(None), Outside("k", "after"), [Answer("unknown"), Answer("done")]
    steps = {"a": Effect("k", lambda key: outside.doing(key, outside.write), "probed", lambda key: answers.pop(0))}
    live(machine, steps)
    assert live(machine, steps).stop_reason == "effect_unknown"
    assert live(machine, steps).status == "finished"
    assert outside.lines == ["k"]


def test_a_policy_that_became_milder_meanwhile_does_not_count():
    machine, outside = MemoryMachine(None), Outside("k", "after")
    live(machine, once(outside))
    milder = {"a": Effect("k", outside.write, "idempotent"), "b": lambda: "end"}
    assert live(machine, milder).stop_reason == "effect_unknown"
    assert outside.lines == ["k"]


# --- failures


def test_a_step_that_raises_stops_the_run_and_is_tried_again_on_resume(machine):
    broken = [ValueError("a \x1b[31mred\x1b[0m herring")]

    def work():
        if broken:
            raise broken.pop()
        return 7

    state = live(machine, {"a": work})
    assert (state.stop_reason, state.steps["a"].error) == ("step_failed", "ValueError: a ?[31mred?[0m herring")
    assert state.steps_open == {}
    state = live(machine, {"a": work})
    assert (state.status, state.steps["a"].attempt, state.steps["a"].output) == ("finished", 2, 7)


@pytest.mark.parametrize("result", [object(), float("nan"), {1: "one"}, 2**60, "\ud800"])
def test_a_result_that_cannot_be_kept_fails_its_step(result):
    state = live(MemoryMachine(None), {"a": lambda: result})
    assert (state.status, state.stop_reason, state.steps["a"].status) == ("stopped", "step_failed", "failed")


def test_a_large_result_becomes_an_artifact(machine):
    text = "x" * (MAX_INLINE + 1)
    state = live(machine, {"a": lambda: text})
    assert state.steps["a"].output is None
    assert machine.start().get_artifact(state.steps["a"].artifact) == f'"{text}"'.encode()
    machine.bury()


class Broken:
    """An effect that raises, before or after it has done its work, until it is mended."""

    def __init__(self, done):
        self.lines, self.done, self.mended = [], done, False

    def act(self, key):
        if self.mended or self.done:
            self.lines.append(key)
        if not self.mended:
            raise TimeoutError("no answer")
        return "ok"

    def look(self, key):
        return Answer("done" if key in self.lines else "not_done", "looked")


def test_an_effect_that_raised_and_was_not_done_is_a_failed_step(machine):
    broken = Broken(done=False)
    steps = {"a": Effect("k", broken.act, "probed", broken.look)}
    state = live(machine, steps)
    assert (state.stop_reason, state.effects["k"].status, state.steps["a"].status) == (
        "step_failed",
        "not_done",
        "failed",
    )
    broken.mended = True
    assert live(machine, steps).status == "finished"
    assert broken.lines == ["k"]


def test_an_effect_that_raised_and_was_done_all_the_same_is_done(machine):
    broken = Broken(done=True)
    assert live(machine, {"a": Effect("k", broken.act, "probed", broken.look)}).status == "finished"
    assert broken.lines == ["k"]


def test_an_effect_that_raised_without_a_probe_is_unknown_not_failed(machine):
    broken = Broken(done=False)
    state = live(machine, {"a": Effect("k", broken.act)})
    assert (state.stop_reason, state.effects["k"].status) == ("effect_unknown", "unknown")
    assert "no answer" in state.diagnosis


def test_an_effect_that_may_be_repeated_fails_and_frees_its_key(machine):
    broken = Broken(done=True)
    steps = {"a": Effect("k", broken.act, "idempotent")}
    state = live(machine, steps)
    assert (state.stop_reason, state.effects["k"].status) == ("step_failed", "failed")
    broken.mended = True
    assert live(machine, steps).status == "finished"


def test_a_lease_lost_inside_an_effect_is_not_called_a_failure():
    def act(key):
        raise LeaseLost("run", 1)

    machine = MemoryMachine(None)
    with pytest.raises(LeaseLost):
        live(machine, {"a": Effect("k", act, "idempotent")})
    assert read_state(machine.start(), "run").effects_open == {"k": "started"}


# --- what is refused


@pytest.mark.parametrize("steps", [{"b": len}, {"a": len, "b": len}, {"b": len, "a": len}])
def test_a_run_is_not_resumed_with_another_plan(steps):
    machine = MemoryMachine(None)
    live(machine, {"a": lambda: 1, "c": lambda: 2}, 3, "before")
    with pytest.raises(UsageError, match="another plan"):
        live(machine, steps)
    assert machine.appends == 0


def test_a_run_is_not_resumed_for_another_mission():
    machine = MemoryMachine(None)
    with RunLog(machine.start(), "run", world()) as log:
        log.record(RunStarted(mission_id="other", plan=("a",)))
    machine.bury()
    with pytest.raises(UsageError, match="mission"):
        live(machine, {"a": len})


@pytest.mark.parametrize(
    "effect", [Effect("k", len, "transactional"), Effect("k", len, "probed"), Effect("k", len, cast(Any, "often"))]
)
def test_an_effect_that_this_runner_cannot_answer_for_is_refused_before_anything_is_written(effect):
    machine = MemoryMachine(None)
    with pytest.raises(UsageError):
        live(machine, {"a": effect})
    assert machine.start().head("run") is None


def test_one_key_for_two_steps_stops_the_run():
    outside = Outside()
    steps = {"a": Effect("k", outside.write), "b": Effect("k", outside.write)}
    state = live(MemoryMachine(None), steps)
    assert (state.stop_reason, outside.lines) == ("effect_key_reused", ["k"])


def test_the_same_key_with_other_arguments_is_never_acted_upon():
    machine, outside = MemoryMachine(None), Outside("k", "after")
    live(machine, {"a": Effect("k", lambda key: outside.doing(key, outside.write), "keyed", None, {"to": "x"})})
    state = live(machine, {"a": Effect("k", outside.write, "keyed", None, {"to": "y"})})
    assert (state.stop_reason, outside.lines) == ("effect_unknown", ["k"])


def test_an_open_effect_of_a_closed_step_is_settled_alone():
    """A log from elsewhere may hold one."""
    machine, outside = MemoryMachine(None), Outside()
    outside.lines.append("k")
    effect = EffectStarted(effect_key="k", step_id="a", policy="probed", arguments_hash=digest_of(None))
    with RunLog(machine.start(), "run", world()) as log:
        log.record(RunStarted(mission_id="m", plan=("a",)), StepStarted(step_id="a"), effect, StepFailed(step_id="a"))
    machine.bury()
    state = live(machine, {"a": Effect("k", outside.write, "probed", outside.seen)})
    assert (state.status, outside.lines) == ("finished", ["k"])

"""A live run: what is finished is not done again, what changed is said, and what cannot be stored is refused before it runs."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import msgspec
import pytest

import holdfast
from holdfast.core import events as e
from holdfast.core.errors import LeaseHeld, UsageError
from holdfast.core.wire import begun_for_many
from holdfast.engine.forms import MAX_INLINE, Unstorable
from holdfast.engine.stopping import NameClash, NotResumable
from holdfast.engine.waits import AnswerLate


@pytest.fixture
def place(tmp_path):
    return str(tmp_path / "holdfast.db")


@pytest.fixture(autouse=True)
def nobody_at_the_terminal(monkeypatch):
    monkeypatch.setattr("holdfast.adapters.terminal.is_there", lambda: False)
    for name in ("HOLDFAST_RUN", "HOLDFAST_YES", "HOLDFAST_PLAN", "HOLDFAST_STRICTNESS"):
        monkeypatch.delenv(name, raising=False)


class Counter:
    """Work that counts how often it is really done."""

    def __init__(self):
        self.done = []

    def __call__(self, value):
        self.done.append(value)
        return f"did {value}"


def opened(place, **options):
    return holdfast.run("test-mission", store=place, run_id="run-1", **options)


def kinds(place, run_id="run-1"):
    with holdfast.open_store(place, read_only=True) as store:
        return [record.kind for record in store.read(run_id)]


def state_of(place, run_id="run-1"):
    with holdfast.open_store(place, read_only=True) as store:
        return holdfast.read_state(store, run_id)


class Crash(BaseException):
    """The process is gone: nothing that follows is written."""


def crash(run):
    """Leave as a kill would: the run gets no chance to say anything."""
    run._life.end = lambda *_: iter(())
    raise Crash


def crashing(place, body, **options):
    with pytest.raises(Crash), opened(place, **options) as run:
        body(run)
        crash(run)


# --- steps ---


def test_a_finished_step_is_not_done_again(place):
    work = Counter()
    crashing(place, lambda run: run.step("a", work, 1))
    with opened(place) as run:
        assert run.resumed
        assert run.step("a", work, 1) == "did 1"
        assert run.step("b", work, 2) == "did 2"
    assert work.done == [1, 2]
    assert kinds(place) == ["run_started", "step_finished", "run_resumed", "step_finished", "run_finished"]


def test_a_step_is_found_by_its_name_never_by_its_position(place):
    work = Counter()
    crashing(place, lambda run: [run.step(name, work, name) for name in "abc"])
    with opened(place) as run:
        assert [run.step(name, work, name) for name in "cadb"] == ["did c", "did a", "did d", "did b"]
    assert work.done == ["a", "b", "c", "d"]


def test_a_run_that_is_finished_is_replayed_and_stays_as_it_is(place):
    work = Counter()
    for _ in range(2):
        with opened(place) as run:
            assert run.step("a", work, 1) == "did 1"
    assert work.done == [1]
    assert kinds(place)[-1] == "run_finished"


def test_nothing_new_begins_in_a_run_that_is_finished(place):
    work = Counter()
    with opened(place) as run:
        run.step("a", str, 1)
        run.effect("e", str, 1, policy="idempotent")
    before = kinds(place)
    with pytest.raises(NotResumable, match="finished"), opened(place) as run:
        run.step("b", work, 1)
    with pytest.raises(NotResumable, match="finished"), opened(place) as run:
        run.step("a", work, 2)
    with pytest.raises(NotResumable, match="finished"), opened(place) as run:
        run.effect("f", work, 1)
    assert work.done == [] and kinds(place) == before


def test_a_name_used_twice_is_an_error_that_names_both_places(place):
    with pytest.raises(NameClash) as clash, opened(place) as run:
        run.step("a", str, 1)
        run.step("a", str, 2)
    assert clash.value.first != clash.value.second
    assert clash.value.first.startswith(__file__) and clash.value.second.startswith(__file__)


def test_an_effect_may_not_take_the_name_of_a_step(place):
    with pytest.raises(NameClash), opened(place) as run:
        run.step("a", str, 1)
        run.effect("a", str, 2)


@pytest.mark.parametrize("name", ["", " a", "a" * 201, "a\nb", 5, None, "\x1b[31m"])
def test_a_name_that_cannot_be_shown_is_refused(place, name):
    with pytest.raises(UsageError), opened(place) as run:
        run.step(name, str, 1)


def test_a_step_inside_a_step_is_remembered_by_itself(place):
    inner = Counter()
    outer_done = []

    def body(run, die):
        def outer():
            outer_done.append(1)
            value = run.step("inner", inner, 1)
            if die:
                crash(run)
            return value + "!"

        return run.step("outer", outer)

    crashing(place, lambda run: body(run, True))
    with opened(place) as run:
        assert body(run, False) == "did 1!"
    assert inner.done == [1] and len(outer_done) == 2


def test_steps_in_threads_each_keep_their_own_result(place):
    work = Counter()

    def body(run):
        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(lambda n: run.step(f"s{n}", work, n), range(24)))

    crashing(place, lambda run: [run.step(f"s{n}", work, n) for n in range(0, 24, 3)])
    with opened(place) as run:
        assert body(run) == [f"did {n}" for n in range(24)]
    assert sorted(work.done) == list(range(24))
    assert state_of(place).steps_done == 24


def test_a_long_step_is_announced_while_it_runs(place):
    with opened(place) as run:
        run.step("quick", str, 1)
        run.step("slow", time.sleep, 0.8)
    assert kinds(place) == ["run_started", "step_finished", "step_started", "step_finished", "run_finished"]


def test_a_failing_step_is_recorded_and_its_error_raised(place):
    def fail():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"), opened(place) as run:
        run.step("a", fail)
    state = state_of(place)
    assert (state.status, state.stop_reason) == ("stopped", "step_failed")
    assert state.steps["a"].error == "ValueError: no"
    with opened(place) as run:
        assert run.step("a", lambda: 5) == 5


def test_a_step_that_failed_and_was_caught_does_not_stop_the_run(place):
    def fail():
        raise ValueError("no")

    with opened(place) as run:
        with pytest.raises(ValueError, match="no"):
            run.step("a", fail)
        run.step("b", str, 1)
    assert state_of(place).status == "finished"


# --- what can be stored ---


@dataclass
class Chapter:
    name: str
    words: int


class Page(msgspec.Struct):
    number: int
    at: datetime


def chapters() -> list[Chapter]:
    return [Chapter("a", 1), Chapter("b", 2)]


def page(number: int) -> Page:
    return Page(number, datetime(2026, 1, 2, 3, 4, 5))


def test_declared_types_come_back_as_they_were(place):
    def body(run):
        return run.step("chapters", chapters), run.step("page", page, 7)

    crashing(place, body)
    with opened(place) as run:
        assert body(run) == ([Chapter("a", 1), Chapter("b", 2)], Page(7, datetime(2026, 1, 2, 3, 4, 5)))


def test_a_value_is_the_same_now_and_after_a_restart(place):
    given = {"list": (1, 2), "text": "ü"}
    seen = []

    def body(run):
        seen.append(run.step("a", lambda: given))

    crashing(place, body)
    given["text"] = "changed later"
    with opened(place) as run:
        body(run)
    assert seen[0] == seen[1] == {"list": [1, 2], "text": "ü"}


def test_a_result_without_a_declared_type_is_refused_not_guessed(place):
    with pytest.raises(Unstorable, match="declared return type"), opened(place) as run:
        run.step("a", lambda: Chapter("a", 1))


@pytest.mark.parametrize("value", [{1: 2}, {"a": {1, 2}}, object(), b"x", float("nan"), 2**60, "\ud800", open])
def test_what_cannot_be_stored_is_refused_with_its_place(place, value):
    with pytest.raises(Unstorable, match="step a"), opened(place) as run:
        run.step("a", lambda: value)
    assert "step_finished" not in kinds(place)


@pytest.mark.parametrize("value", [{1: 2}, object(), b"x", float("inf"), {"deep": [set()]}])
def test_arguments_that_cannot_be_stored_are_refused_before_the_step_runs(place, value):
    work = Counter()
    with pytest.raises(Unstorable, match="argument"), opened(place) as run:
        run.step("a", work, value)
    assert work.done == []


def test_a_declared_type_that_has_no_form_is_refused_before_the_step_runs(place):
    done = []

    def bad() -> threading.Lock:
        done.append(1)
        return threading.Lock()

    with pytest.raises(Unstorable, match="no JSON form"), opened(place) as run:
        run.step("a", bad)
    assert done == []


def test_large_results_become_artifacts(place):
    big = "x" * (MAX_INLINE + 1)
    crashing(place, lambda run: run.step("big", lambda: big))
    assert state_of(place).steps["big"].artifact is not None
    with opened(place) as run:
        assert run.step("big", lambda: "never") == big


def test_large_arguments_are_hashed_and_not_kept(place):
    big = "y" * 5000
    with opened(place) as run:
        run.step("a", len, big)
    with holdfast.open_store(place, read_only=True) as store:
        assert all(len(record.body) < 1000 for record in store.read("run-1"))


# --- drift ---


def test_other_arguments_stop_a_run_that_nobody_watches(place):
    work = Counter()
    crashing(place, lambda run: run.step("a", work, {"lang": "de", "n": 1}))
    with pytest.raises(holdfast.Stopped) as stop, opened(place) as run:
        run.step("a", work, {"lang": "fr", "n": 1})
    assert (stop.value.reason, stop.value.code) == ("input_changed", 40)
    assert "lang" in str(stop.value) and "fr" in str(stop.value)
    assert len(work.done) == 1


@pytest.mark.parametrize(
    "how",
    [
        {"accept": True},
        {"strictness": "off"},
        {"policies": {"arguments": "warn"}},
        {"confirm": lambda title, lines: True},
    ],
)
def test_other_arguments_that_are_accepted_run_the_step_again_and_say_so(place, how):
    work = Counter()
    crashing(place, lambda run: run.step("a", work, 1))
    with opened(place, **how) as run:
        assert run.step("a", work, 2) == "did 2"
    with opened(place, **how) as run:
        assert run.step("a", work, 2) == "did 2"
    assert work.done == [1, 2]
    assert "drift_found" in kinds(place)


@pytest.mark.parametrize(("said", "accepted"), [("1", True), ("0", False), ("no", False), ("", False)])
def test_the_environment_accepts_with_a_one_and_with_nothing_else(place, monkeypatch, said, accepted):
    work = Counter()
    crashing(place, lambda run: run.step("a", work, 1))
    monkeypatch.setenv("HOLDFAST_YES", said)
    with contextlib.nullcontext() if accepted else pytest.raises(holdfast.Stopped), opened(place) as run:
        run.step("a", work, 2)
    assert work.done == ([1, 2] if accepted else [1])


def test_a_person_who_says_no_is_heard(place):
    asked = []

    def no(title, lines):
        asked.append((title, list(lines)))
        return False

    crashing(place, lambda run: run.step("a", str, 1))
    with pytest.raises(holdfast.Stopped, match="input_changed"), opened(place, confirm=no) as run:
        run.step("a", str, 2)
    assert len(asked) == 1 and any("1" in line and "2" in line for line in asked[0][1])


def test_whoever_is_asked_says_true_or_has_not_accepted(place):
    crashing(place, lambda run: run.step("a", str, 1))
    with pytest.raises(holdfast.Stopped, match="input_changed"), opened(place, confirm=lambda *_: "n") as run:
        run.step("a", str, 2)
    with opened(place, confirm=lambda *_: True) as run:
        assert run.step("a", str, 2) == "2"


def test_changed_inputs_of_the_run_are_shown_key_by_key(place):
    crashing(place, lambda run: None, inputs={"source": "a", "same": 1})
    with pytest.raises(holdfast.Stopped) as stop, opened(place, inputs={"source": "b", "same": 1}):
        pytest.fail("must not begin")
    assert stop.value.reason == "input_changed" and "source" in str(stop.value) and "same" not in str(stop.value)
    with opened(place, inputs={"source": "b", "same": 1}, accept=True):
        pass
    assert state_of(place).status == "finished"


def make(text):
    scope = {}
    exec(compile(f"def work():\n    return {text!r}\n", f"<{text}>", "exec"), scope)
    import linecache

    linecache.cache[f"<{text}>"] = (1, None, ["def work():\n", f"    return {text!r}\n"], f"<{text}>")
    return scope["work"]


def test_changed_code_is_reported_and_the_recorded_result_kept(place):
    crashing(place, lambda run: run.step("a", make("one")))
    with opened(place) as run:
        assert run.step("a", make("two")) == "one"
    with holdfast.open_store(place, read_only=True) as store:
        from holdfast.core.wire import decode

        found = [decode(r) for r in store.read("run-1") if r.kind == "drift_found"]
    assert [(f.drift, f.subject, f.verdict) for f in found] == [("code", "a", "go")]


def test_changed_code_is_refused_under_max(place):
    crashing(place, lambda run: run.step("a", make("one")), strictness="max")
    with pytest.raises(holdfast.Stopped, match="code_changed"), opened(place, strictness="max") as run:
        run.step("a", make("two"))


def test_a_step_that_vanished_is_reported(place):
    crashing(place, lambda run: [run.step("a", str, 1), run.step("b", str, 2)])
    with opened(place) as run:
        run.step("b", str, 2)
    with pytest.raises(holdfast.Stopped, match="code_changed"):
        crashing(place + "2", lambda run: [run.step("a", str, 1), run.step("b", str, 2)], strictness="max")
        with opened(place + "2", strictness="max") as run:
            run.step("b", str, 2)
    assert kinds(place)[-2:] == ["drift_found", "run_finished"]


# --- retries and budgets ---


def test_a_step_is_tried_again_and_its_attempts_survive_a_restart(place):
    tries = []

    def flaky():
        tries.append(1)
        if len(tries) < 3:
            raise OSError("not yet")
        return "there"

    with opened(place) as run:
        assert run.step("a", flaky, retry=holdfast.Retry(attempts=3, wait=0.01)) == "there"
    assert kinds(place).count("step_failed") == 2 and state_of(place).steps["a"].attempt == 3


def test_the_wait_before_a_retry_survives_a_restart(place):
    def fail():
        raise OSError("not yet")

    with pytest.raises(Crash), opened(place) as run:
        run._book.sleep = lambda seconds: crash(run)
        run.step("a", fail, retry=holdfast.Retry(attempts=2, wait=0.6))
    began = time.monotonic()
    with opened(place) as run:
        assert run.step("a", lambda: 1, retry=holdfast.Retry(attempts=2, wait=0.6)) == 1
    assert time.monotonic() - began > 0.3


def test_a_budget_of_attempts_is_counted_from_the_log(place):
    budget = holdfast.Budget(attempts=3)
    crashing(place, lambda run: [run.step(f"s{n}", str, n) for n in range(2)], budget=budget)
    with pytest.raises(holdfast.Stopped) as stop, opened(place, budget=budget) as run:
        for n in range(5):
            run.step(f"s{n}", str, n)
    assert stop.value.reason == "budget_exhausted" and state_of(place).steps_done == 3


def test_coroutines_that_begin_at_once_do_not_share_the_last_attempt(place):
    begun = []

    async def body():
        async with holdfast.arun("m", store=place, run_id="run-1", budget=holdfast.Budget(attempts=3)) as run:
            works = (partial(slow, number) for number in range(8))
            await asyncio.gather(*(run.step(f"s{number}", work) for number, work in enumerate(works)))

    async def slow(number):
        begun.append(number)
        await asyncio.sleep(0.1)

    with pytest.raises(holdfast.Stopped, match="budget_exhausted"):
        asyncio.run(body())
    assert len(begun) == state_of(place).spent.attempts == 3


def test_as_many_coroutines_begin_at_once_as_there_are_attempts(place):
    async def body():
        async with holdfast.arun("m", store=place, run_id="run-1", budget=holdfast.Budget(attempts=8)) as run:
            given_up = asyncio.create_task(run.step("s", str))
            await asyncio.sleep(0)
            given_up.cancel()  # before it is written down
            return await asyncio.gather(*(run.step(f"s{number}", str, number) for number in range(8)))

    assert asyncio.run(body()) == [str(number) for number in range(8)]


def test_tokens_and_money_are_counted_over_restarts(place):
    budget = holdfast.Budget(tokens=100, money=1.0)
    crashing(place, lambda run: run.spend(tokens=80, money=0.9), budget=budget)
    with pytest.raises(holdfast.Stopped, match="budget_exhausted"), opened(place, budget=budget) as run:
        run.spend(tokens=30)
    assert state_of(place).spent.tokens == 110


def test_a_budget_of_time_is_counted_over_restarts(place):
    budget = holdfast.Budget(seconds=0.5)

    def body(run):
        run.step("a", time.sleep, 0.35)

    crashing(place, body, budget=budget)
    with pytest.raises(holdfast.Stopped, match="timeout"), opened(place, budget=budget) as run:
        body(run)
        run.step("b", time.sleep, 0.35)
        run.step("c", str, 1)


# --- waiting ---


def test_a_question_stops_the_run_and_an_answer_goes_on(place):
    with pytest.raises(holdfast.Stopped) as stop, opened(place) as run:
        run.ask("Publish?", ["yes", "no"])
    assert stop.value.code == 50
    with pytest.raises(holdfast.Stopped, match="awaiting_answer"), opened(place) as run:
        run.ask("Publish?", ["yes", "no"])
    with holdfast.open_store(place) as store:
        from holdfast.app import write_run

        with write_run(store, "run-1") as log:
            log.record(e.QuestionAnswered(question_id="Publish?", answer="yes", by="somebody"))
    with opened(place) as run:
        assert run.ask("Publish?", ["yes", "no"]) == "yes"
    assert kinds(place).count("question_asked") == 1


def test_somebody_at_the_terminal_is_asked_at_once(place):
    with opened(place, prompt=lambda text, choices: "no") as run:
        assert run.ask("Publish?", ["yes", "no"]) == "no"
    assert state_of(place).questions["Publish?"].answer == "no"


def test_an_answer_that_comes_too_late_is_none(place):
    def ask(**options):
        with opened(place) as run:
            return run.ask("Publish?", ["yes", "no"], timeout=0.05, **options)

    with pytest.raises(holdfast.Stopped, match="awaiting_answer"):
        ask()
    time.sleep(0.1)
    with pytest.raises(AnswerLate) as late:
        ask()
    assert "give it a `default`" in late.value.advice
    assert ask(default="no") == "no"
    assert kinds(place).count("question_expired") == 1


def test_a_sleep_is_slept_once(place):
    crashing(place, lambda run: run.sleep(0.3, name="nap"))
    began = time.monotonic()
    with opened(place) as run:
        run.sleep(0.3, name="nap")
    assert time.monotonic() - began < 0.25
    assert kinds(place).count("sleep_started") == 1


def test_a_sleep_goes_on_after_a_restart_where_it_was(place):
    with pytest.raises(Crash), opened(place) as run:
        run._book.sleep = lambda seconds: crash(run)
        run.sleep(0.5, name="nap")
    began = time.monotonic()
    with opened(place) as run:
        run.sleep(0.5, name="nap")
    assert 0.05 < time.monotonic() - began < 0.7


def test_a_long_sleep_does_not_keep_the_process(place):
    with pytest.raises(holdfast.Stopped) as stop, opened(place) as run:
        run.sleep(3600, name="nap")
    assert (stop.value.reason, stop.value.code) == ("sleeping", 52)


def test_a_message_cancels_a_live_run_at_the_next_boundary(place):
    def body():
        with opened(place) as run:
            for n in range(100):
                run.step(f"s{n}", time.sleep, 0.05)

    worker = ThreadPoolExecutor(1)
    going = worker.submit(body)
    time.sleep(0.4)
    with holdfast.open_store(place) as store:
        store.post("run-1", "cancel", "enough")
    with pytest.raises(holdfast.Stopped) as stop:
        going.result(timeout=20)
    worker.shutdown()
    state = state_of(place)
    assert (stop.value.reason, stop.value.code, state.status) == ("cancelled", 132, "stopped")
    assert 0 < state.steps_done < 100
    with pytest.raises(NotResumable), opened(place):
        pytest.fail("must not begin")


# --- which run ---


def test_the_unfinished_run_of_a_mission_goes_on_by_itself(place):
    with pytest.raises(ValueError, match="stop"), holdfast.run("m", store=place) as run:
        first = run.run_id
        raise ValueError("stop")
    with holdfast.run("m", store=place) as run:
        assert run.run_id == first
    with holdfast.run("m", store=place) as run:
        assert run.run_id != first


def test_two_at_once_one_wins_and_the_other_is_told(place):
    with opened(place), pytest.raises(LeaseHeld), opened(place):
        pytest.fail("must not begin")


def test_another_mission_cannot_take_a_run(place):
    with opened(place):
        pass
    with pytest.raises(UsageError, match="belongs to mission"), holdfast.run("other", store=place, run_id="run-1"):
        pytest.fail("must not begin")


def test_ctrl_c_is_recorded(place):
    with pytest.raises(KeyboardInterrupt), opened(place):
        raise KeyboardInterrupt
    assert state_of(place).stop_reason == "user_stopped"


# --- decorators ---


def test_decorated_functions_are_steps_and_effects_of_the_run_around_them(place):
    done = []

    @holdfast.step
    def double(n):
        done.append(n)
        return 2 * n

    @holdfast.step(name="greet/{name}", retry=2)
    def greet(name):
        done.append(name)
        return f"hello {name}"

    @holdfast.effect(policy="idempotent", key="mail-{to}")
    def mail(to, key):
        done.append(key)
        return "sent"

    def body(run):
        return double(1), double(2), greet("you"), mail("you")

    crashing(place, body)
    with opened(place) as run:
        assert body(run) == (2, 4, "hello you", "sent")
    assert done == [1, 2, "you", "mail-you"]
    assert "greet/you" in state_of(place).steps and "mail-you" in state_of(place).effects
    with pytest.raises(UsageError, match="No run"):
        double(1)


# --- coroutines ---


def test_coroutines_have_the_same_run(place):
    done = []

    async def work(n):
        await asyncio.sleep(0.001)
        done.append(n)
        return n * n

    async def body(stop):
        async with holdfast.arun("m", store=place, run_id="run-1") as run:
            squares = await asyncio.gather(*(run.step(f"s{n}", work, n) for n in range(10)))
            if stop:
                raise ValueError("stop")
            sent = await run.effect("send", work, 11, policy="keyed")
            await run.sleep(0.01, name="nap")
            await run.checkpoint("post_gate")
            return squares, sent

    with pytest.raises(ValueError, match="stop"):
        asyncio.run(body(True))
    assert asyncio.run(body(False)) == ([n * n for n in range(10)], 121)
    assert sorted(done) == [*range(10), 11]
    assert state_of(place).status == "finished"


def test_a_gate_blocks_coroutines_too(place):
    async def body():
        async with holdfast.arun("m", store=place, run_id="run-1") as run:
            await run.gate("pre_generation_gate", [holdfast.Conflict("term", "low")])
            await run.gate("post_gate", [holdfast.Conflict("term", "high")])

    with pytest.raises(holdfast.HoldfastError, match="closed by 1 conflict"):
        asyncio.run(body())
    assert [kind for kind in kinds(place) if "gate" in kind or "checkpoint" in kind] == [
        "step_checkpointed",
        "gate_blocked",
    ]


def test_coroutines_that_checkpoint_one_place_at_once_get_one_token(place):
    conflicts = [holdfast.Conflict("workspace", "high", "two senses")]

    async def body():
        async with holdfast.arun("m", store=place, run_id="run-1") as run:
            made = await asyncio.gather(*(run.checkpoint("post_gate") for _ in range(3)))
            gates = (run.gate("pre_generation_gate", conflicts) for _ in range(3))
            blocked = await asyncio.gather(*gates, return_exceptions=True)
            return {one.retry_token for one in made}, {one.retry_token for one in blocked}

    assert [len(tokens) for tokens in asyncio.run(body())] == [1, 1]
    assert kinds(place).count("step_checkpointed") == 1 + 3  # a gate that blocks again records where it stands again


def test_a_stop_in_one_coroutine_ends_the_run_in_all(place):
    async def body():
        async with holdfast.arun("m", store=place, run_id="run-1") as run:
            await asyncio.gather(run.step("a", str, 1), run.ask("Well?"))

    with pytest.raises(holdfast.Stopped, match="awaiting_answer"):
        asyncio.run(body())
    assert state_of(place).stop_reason == "awaiting_answer"


def test_runs_of_one_loop_share_commits(place):
    async def one(store, number):
        async with holdfast.arun("m", store=store, run_id=f"run-{number}") as run:
            return [await run.step(f"s{n}", str, n) for n in range(20)]

    async def body():
        with holdfast.open_store(place) as store:
            inner = store.append_all
            store.append_all = lambda appends: (commits.append(len(appends)), inner(appends))[1]
            return await asyncio.gather(*(one(store, number) for number in range(8)))

    commits = []
    assert asyncio.run(body()) == [[str(n) for n in range(20)]] * 8
    assert max(commits) > 1


def test_nothing_is_left_running(place):
    before = threading.active_count()
    with opened(place):
        pass
    assert threading.active_count() == before


def test_a_secret_that_its_program_takes_out_of_the_environment_is_known_all_the_same(place, monkeypatch):
    secret = "xK9vQ2mZ7pL4tR8w"
    monkeypatch.setenv("SOME_API_KEY", secret)
    with opened(place) as run:
        monkeypatch.delenv("SOME_API_KEY")
        run.step("a", lambda: f"it is {secret}")
    assert secret not in msgspec.json.encode(state_of(place)).decode()


def test_a_long_log_is_proven_whichever_hash_does_it(place, monkeypatch):
    monkeypatch.setattr("holdfast.engine.log._MANY", 10)
    with opened(place) as run:
        for number in range(40):
            run.step(f"step-{number}", str, number)
    loaded = []
    quicker = lambda: loaded.append(True) or begun_for_many()  # noqa: E731
    monkeypatch.setattr("holdfast.engine.log.begun_for_many", quicker)
    assert state_of(place).steps_done == 40
    assert loaded == [True]
    with holdfast.open_store(place) as store:
        assert holdfast.verify_run(store, "run-1").findings == ()


def test_what_is_told_after_a_step_does_not_belong_to_it(place):
    with opened(place) as run:
        run.step("a", lambda: run.spend(tokens=1))
        run.spend(tokens=2)
        told = [msgspec.json.decode(record.body) for record in run.records(0) if record.kind == "budget_spent"]
    assert [(one["tokens"], one.get("step_id")) for one in told] == [(1, "a"), (2, None)]


def test_a_step_that_another_thread_ended_since_it_was_called_is_not_begun(place):
    with opened(place) as run:
        this, _ = run._steps.called("a", str, (1,), {}, None)
        run._book.record(e.StepFinished(step_id="a", output="1", input_hash=this.input_hash))
        assert run._steps.usual(this) is False

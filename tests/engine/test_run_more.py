"""The rarer ways of a live run: forms that cannot be kept, a lost lease, an approved plan, messages, gates and coroutines."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import gc
import linecache
import pathlib
import pickle
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast.app import write_run
from holdfast.core.checkpoint import Conflict, ScopeRef
from holdfast.core.errors import IllegalEvent, LeaseLost, TooLarge, UsageError
from holdfast.core.values import Message
from holdfast.core.wire import decode
from holdfast.engine import forms
from holdfast.engine.checkpoints import BlockedByConflict
from holdfast.engine.forms import Unstorable
from holdfast.engine.run import no_guard
from holdfast.engine.stopping import NotResumable, PlanChanged, Stopped
from holdfast.engine.waits import read_answer


@pytest.fixture
def place(tmp_path):
    return str(tmp_path / "holdfast.db")


@pytest.fixture(autouse=True)
def nobody_at_the_terminal(monkeypatch):
    monkeypatch.setattr("holdfast.adapters.terminal.is_there", lambda: False)
    for name in ("HOLDFAST_RUN", "HOLDFAST_YES", "HOLDFAST_PLAN", "HOLDFAST_STRICTNESS"):
        monkeypatch.delenv(name, raising=False)


def opened(place, **options):
    return holdfast.run("test-mission", store=place, run_id="run-1", **options)


def state_of(place):
    with holdfast.open_store(place, read_only=True) as store:
        return holdfast.read_state(store, "run-1")


def kinds(place):
    with holdfast.open_store(place, read_only=True) as store:
        return [record.kind for record in store.read("run-1")]


def post(place, kind, body):
    with holdfast.open_store(place) as store:
        store.post("run-1", kind, body)


class Crash(BaseException):
    """The process is gone: nothing that follows is written."""


def crashing(place, body, **options):
    with pytest.raises(Crash), opened(place, **options) as run:
        body(run)
        run._life.end = lambda *_: iter(())
        raise Crash


# --- forms ---


@dataclasses.dataclass
class Point:
    x: float
    y: object = None


class Pair(msgspec.Struct):
    left: int
    right: object = None


NO_NUMBER: Any = "text"


class Opaque:
    """Not plain data."""


def test_arguments_have_the_names_of_the_parameters_still_open_to_the_caller():
    def work(a, b, *rest, key=None): ...

    class Worker:
        def method(self, a, b): ...

    assert forms.given("step s", work, (1, 2, 3), {"key": "k"}) == {"a": 1, "b": 2, "2": 3, "key": "k"}
    assert forms.given("step s", functools.partial(work, 1), (2,), {}) == {"b": 2}
    assert forms.given("step s", functools.partial(functools.partial(work, 1), 2), (3,), {}) == {"0": 3}
    assert forms.given("step s", Worker().method, (1, 2), {}) == {"a": 1, "b": 2}
    assert forms.given("step s", functools.partial(Worker().method, 1), (2,), {}) == {"b": 2}
    assert forms.given("step s", max, (1, 2), {}) == {"0": 1, "1": 2}
    assert forms.given("step s", work, (), {}) == {}


def test_records_are_plain_arguments_unless_something_in_them_is_not():
    def work(p):
        return p

    assert forms.given("step s", work, (Point(1.5, [1]),), {}) == {"p": {"x": 1.5, "y": [1]}}
    assert forms.given("step s", work, (), {"p": Pair(1)}) == {"p": {"left": 1, "right": None}}
    with pytest.raises(Unstorable, match="The argument p of step s cannot be stored: a Point is not plain data"):
        forms.given("step s", work, (Point(1.5, Opaque()),), {})


def test_a_set_in_a_record_is_the_same_argument_in_whatever_order_it_comes(place):
    one, other = {0, 8}, {8, 0}
    assert list(one) != list(other), "as sets of text are in two processes"
    done = []
    for points in (one, other):
        with contextlib.suppress(KeyError), opened(place) as run:
            run.effect("plot", lambda p: done.append(p.x), Point(1.0, points))
            raise KeyError
    assert done == [1.0] and "drift_found" not in kinds(place)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (Point(1.0, Opaque()), "The result of step s cannot be stored: .*Opaque"),
        (Point(float("nan")), r"The result of step s at \$\.x cannot be stored: NaN"),
        (
            Point(NO_NUMBER),
            "The result of step s cannot be stored: it is not the declared Point: Expected `float`",
        ),
        (Point(1.0, "\ud800"), "The result of step s .*cannot be stored"),
    ],
)
def test_a_result_that_is_not_what_was_declared_is_refused_with_its_place(value, problem):
    with pytest.raises(Unstorable, match=problem) as refused:
        forms.result("step s", value, Point)
    assert refused.value.reason == "unstorable" and "declare a dataclass" in refused.value.advice


def test_a_declared_result_comes_back_as_what_was_declared():
    assert forms.result("step s", Point(1.0, [1]), Point) == ({"x": 1.0, "y": [1]}, Point(1.0, [1]))
    assert forms.read("step s", {"x": 2}, Point) == Point(2)
    assert forms.read("step s", {"x": 2}, None) == {"x": 2}
    with pytest.raises(Unstorable, match="it is not the declared Point"):
        forms.read("step s", {"z": 2}, Point)


def declaring(kind):
    def work(): ...

    work.__annotations__ = {"return": kind}
    return work


def test_only_a_declared_type_that_says_more_than_plain_data_is_used():
    def nothing(): ...

    assert forms.declared_result("step s", nothing) is None
    assert forms.declared_result("step s", declaring(dict)) is None
    assert forms.declared_result("step s", declaring(None)) is None
    assert forms.declared_result("step s", declaring("NoSuchName")) is None, "a hint that cannot be read says nothing"
    assert forms.declared_result("step s", declaring(Point)) is Point
    assert forms.declared_result("step s", functools.partial(declaring(Point))) is Point
    assert forms.declared_result("step s", declaring(list[Point])) == list[Point]
    with pytest.raises(Unstorable, match="its declared type Opaque has no JSON form"):
        forms.declared_result("step s", declaring(Opaque))
    with pytest.raises(Unstorable, match=r"its declared type .*list.* has no JSON form \("):
        forms.declared_result("step s", declaring(list[int] | tuple[int, int]))


class Node(msgspec.Struct):
    name: str
    next: Node | None = None
    data: dict[str, Any] = {}
    anything: object = None


class Shelf(msgspec.Struct):
    nodes: list[Node]
    at: pathlib.Path | None = None


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        (list[pathlib.Path], "Path"),
        (pathlib.Path | None, "Path"),
        (Shelf, "Path"),
        (dict[str, list[Shelf]], "Path"),
        (tuple[int, Opaque], "Opaque"),
        (dict[int, str], "keys that are not text"),
        (list[dict[tuple[int, int], str]], "keys that are not text"),
    ],
)
def test_a_part_of_a_declared_type_that_could_not_be_kept_is_refused_before_the_step_runs(place, kind, part):
    ran = []

    def work():
        ran.append(1)

    work.__annotations__ = {"return": kind}
    with pytest.raises(Unstorable, match=rf"has no JSON form \({part}\)"), opened(place) as run:
        run.step("s", work)
    assert not ran


@pytest.mark.parametrize("kind", [Node, list[Node], dict[str, Node], dict[str | int, str], set[int], list[Any]])
def test_a_declared_type_that_can_be_kept_is_used(kind):
    assert forms.declared_result("step s", declaring(kind)) == kind


def by_position(a, /, **more):
    return [a, more]


def test_arguments_of_one_name_are_two(place):
    with opened(place) as run:
        assert run.step("s", by_position, 1, a=2) == [1, {"a": 2}]
        run.sleep(0, name="rest")
    with pytest.raises(NotResumable), opened(place, accept=True) as run:
        run.step("s", by_position, 3, a=2)


def test_a_result_has_a_limit(monkeypatch):
    monkeypatch.setattr(forms, "MAX_OUTPUT", 10)
    forms.check_size("step s", b"x" * 10)
    with pytest.raises(TooLarge, match="The result of step s is 11 bytes; the limit is 10"):
        forms.check_size("step s", b"x" * 11)


def test_the_code_of_a_function_is_its_text_without_its_indent():
    def work():
        def inner():
            return 1

        return inner

    assert forms.code_hash(work) == forms.code_hash(functools.partial(work)) != forms.code_hash(work())
    assert forms.code_hash(max) is None
    assert forms.code_hash(eval("lambda: 1")) is None, "text that no file holds"
    assert len(forms.code_hash(work)) == 32


@pytest.mark.parametrize("name", ["<string>", "<stdin>"])
def test_the_code_of_a_function_is_not_looked_for_in_another_text_of_that_name(name, monkeypatch):
    monkeypatch.setitem(linecache.cache, name, (7, None, ["other()"], name))
    work = eval(compile("lambda: 1", name, "eval"))
    assert forms.code_hash(work) is None


def test_a_key_is_given_to_whoever_has_a_parameter_for_it():
    def keyed(a, key): ...
    def keyword(a, *, key): ...
    def other(a): ...

    assert forms.takes_key(keyed) and forms.takes_key(keyword) and forms.takes_key(functools.partial(keyed, 1))
    assert not forms.takes_key(other) and not forms.takes_key(max)


SECRET = "gh" + "p_" + "a1B2c3D4e5" * 3 + "F6g7H8"


@pytest.mark.parametrize(
    ("what", "ask"),
    [
        ("The name", lambda run, work: run.step(SECRET, work)),
        ("The name", lambda run, work: run.step("mail " + SECRET, work, retry=2)),
        ("The name", lambda run, work: run.effect(SECRET, work, probe=lambda: False)),
        ("The key of an effect", lambda run, work: run.effect("mail", work, key=SECRET, probe=lambda: False)),
        ("The name", lambda run, work: run.ask(SECRET, "Go on?")),
        ("The name", lambda run, work: run.ask(f"{'Tag the release, and send it? ':x<70}{SECRET}")),
        ("The name", lambda run, work: run.sleep(0.01, name=SECRET)),
    ],
)
def test_a_name_that_is_a_secret_is_refused_before_anything_is_done_because_it_could_not_be_found_again(
    place, what, ask
):
    done = []
    with pytest.raises(UsageError, match=f"{what} holds a secret"), opened(place) as run:
        ask(run, lambda: done.append(1))
    assert done == [] and kinds(place) == ["run_started", "run_stopped"]


def test_a_mission_id_that_is_a_secret_is_refused_before_the_log_begins(place, monkeypatch):
    monkeypatch.setenv("SHOP_PASSWORD", "harbour-7x42q9")
    with pytest.raises(UsageError, match="The mission id holds a secret"), holdfast.run("harbour-7x42q9", store=place):
        pass
    with holdfast.open_store(place, read_only=True) as store:
        assert list(store.heads()) == []


class Wordless(Exception):
    def __str__(self):
        raise ValueError("no words")


def test_an_error_that_cannot_say_what_it_is_is_on_record_all_the_same(place):
    def work():
        raise Wordless

    with pytest.raises(Wordless), opened(place) as run:
        run.step("a", work)
    with holdfast.open_store(place, read_only=True) as store:
        failed = [decode(record) for record in store.read("run-1") if record.kind == "step_failed"]
    assert [event.error for event in failed] == ["Wordless: it cannot be shown (ValueError)"]
    assert kinds(place)[-1] == "run_stopped"


def test_the_probe_is_asked_about_what_the_act_was_given_whatever_that_did_to_it(place):
    sent = []

    def send(mail):
        sent.append(mail.pop("id"))
        raise ConnectionError("after it was sent")

    with opened(place) as run:
        run.effect("mail", send, {"id": 17}, probe=lambda mail: mail.get("id") in sent)
    assert sent == [17]


def test_three_tenths_are_no_more_than_three_tenths(place):
    with opened(place, budget=holdfast.Budget(money=0.3)) as run:
        for _ in range(3):
            run.spend(money=0.1)
    with (
        pytest.raises(Stopped),
        holdfast.run("m", store=place, run_id="run-2", budget=holdfast.Budget(money=0.3)) as run,
    ):
        run.spend(money=0.300001)
        run.step("a", str, 1)


@pytest.mark.parametrize("ttl", [0, -1, float("nan"), 1e308, "30", True])
def test_a_lease_of_no_length_or_for_ever_is_refused(place, ttl):
    with pytest.raises(UsageError, match="ttl"), opened(place, ttl=ttl):
        pass
    with opened(place, ttl=0.5) as run:
        run.step("a", str, 1)


# --- the lease ---


def lose(run):
    """Another process has taken the run over, and the keeper knows it."""
    run._life._keeper.lost = LeaseLost("run-1", 1)


def test_a_run_that_lost_its_lease_does_not_say_that_it_is_finished(place):
    with pytest.raises(LeaseLost), opened(place) as run:
        run.step("a", str, 1)
        lose(run)
    assert kinds(place) == ["run_started", "step_finished"]


def test_a_run_that_lost_its_lease_leaves_its_error_alone(place):
    with pytest.raises(ValueError, match="mine"), opened(place) as run:
        lose(run)
        raise ValueError("mine")
    assert kinds(place) == ["run_started"]


def test_a_lease_that_is_lost_inside_a_step_is_no_failure_of_the_step(place):
    def work():
        raise LeaseLost("run-1", 1)

    with pytest.raises(LeaseLost), opened(place) as run:
        run.step("a", work, retry=3)
    assert kinds(place) == ["run_started", "step_started"]
    with pytest.raises(LeaseLost), opened(place) as run:
        run.effect("e", work)
    assert state_of(place).effects_open, "what became of it is not known"


def test_an_effect_is_not_begun_without_the_lease(place):
    done = []
    with pytest.raises(LeaseLost), opened(place) as run:
        lose(run)
        run.effect("e", done.append, 1)
    assert done == []


def test_a_run_that_nobody_watches_may_not_touch_the_world():
    with pytest.raises(LeaseLost):
        no_guard()


# --- beginning ---


def test_only_the_plan_that_was_approved_is_done(place, monkeypatch):
    crashing(place, lambda run: run.step("a", str, 1))
    monkeypatch.setenv("HOLDFAST_PLAN", "0123456789abcdef")
    before = kinds(place)
    with pytest.raises(PlanChanged, match="Plan 0123456789abcdef of run run-1 was approved") as changed, opened(place):
        pytest.fail("must not begin")
    assert kinds(place) == before
    assert changed.value.reason == "plan_changed" and "holdfast resume run-1 --plan" in changed.value.advice
    monkeypatch.setenv("HOLDFAST_PLAN", changed.value.present)
    with opened(place) as run:
        assert run.step("a", str, 1) == "1"


def test_drift_that_was_not_in_the_approved_plan_is_refused(place, monkeypatch):
    crashing(place, lambda run: run.step("a", str, 1))
    monkeypatch.setenv("HOLDFAST_PLAN", "x")
    with pytest.raises(PlanChanged) as changed, opened(place):
        pytest.fail("must not begin")
    monkeypatch.setenv("HOLDFAST_PLAN", changed.value.present)
    with pytest.raises(holdfast.Stopped, match="step a is in the log, and the code no longer runs it"), opened(place):
        pass
    assert state_of(place).stop_reason == "code_changed"


def test_the_drift_that_an_approved_plan_showed_is_gone_on_with(place, monkeypatch):
    def approve():
        monkeypatch.setenv("HOLDFAST_PLAN", "x")
        with pytest.raises(PlanChanged) as changed, opened(place):
            pytest.fail("must not begin")
        monkeypatch.setenv("HOLDFAST_PLAN", changed.value.present)

    crashing(place, lambda run: run.step("a", str, 1))
    monkeypatch.setenv("HOLDFAST_PLAN", "")
    with pytest.raises(holdfast.Stopped, match="arguments"), opened(place) as run:
        run.step("a", str, 2)
    approve()
    with pytest.raises(holdfast.Stopped, match="arguments"), opened(place) as run:
        run.step("a", str, 3)  # not what was shown
    approve()
    with pytest.raises(holdfast.Stopped, match="vanished"), opened(place) as run:
        run.effect("e", str, 1, policy="idempotent")
    approve()
    with pytest.raises(holdfast.Stopped, match="arguments"), opened(place, policies={"arguments": "refuse"}) as run:
        run.step("a", str, 3)  # the code's own policy stands
    approve()
    with opened(place) as run:
        assert run.step("a", str, 3) == "3"
        run.effect("e", str, 1, policy="idempotent")
    with holdfast.open_store(place, read_only=True) as store:
        found = [decode(record) for record in store.read("run-1") if record.kind == "drift_found"]
    decided = [(event.verdict, event.by) for event in found]
    by_plan = "the approved plan"
    assert decided == [("refuse", "nobody to ask"), *[("refuse", by_plan)] * 2, ("refuse", "policy"), ("go", by_plan)]


def test_what_a_run_ignores_needs_no_approval(place, monkeypatch):
    crashing(place, lambda run: run.step("a", str, 1))
    monkeypatch.setenv("HOLDFAST_PLAN", "x")
    with pytest.raises(PlanChanged) as changed, opened(place):
        pytest.fail("must not begin")
    monkeypatch.setenv("HOLDFAST_PLAN", changed.value.present)
    with opened(place, policies={"vanished": "ignore"}):
        pass
    assert state_of(place).status == "finished"


def test_inputs_that_were_not_kept_are_compared_by_their_hashes(place):
    crashing(place, lambda run: None)
    told = []
    with opened(place, inputs={"a": 1}, confirm=lambda title, lines: told.append(lines) or True) as run:
        assert run.inputs == {"a": 1}
    assert told == [["a: (missing) -> 1"]]


def test_arguments_too_large_to_keep_are_compared_by_their_hashes(place):
    crashing(place, lambda run: run.step("a", len, "x" * 10_000))
    told = []
    with opened(place, confirm=lambda title, lines: told.append(lines) or True) as run:
        assert run.step("a", len, "y" * 10_001) == 10_001
    assert told == [["what it was given before was too large to keep, so only the hashes can be compared"]]


# --- messages ---


@pytest.mark.parametrize("body", ["", "{}", "[]", '["q"]', '["q",1,"me"]', "\x00"])
def test_an_answer_that_makes_no_sense_is_none(body):
    assert read_answer(Message(1, "answer", body)) is None


def answered(question, answer, by="me"):
    return msgspec.json.encode((question, answer, by)).decode()


def test_answers_left_for_a_run_are_heard_when_it_goes_on_and_the_rest_is_passed_over(place):
    with pytest.raises(holdfast.Stopped, match="awaiting_answer"), opened(place) as run:
        run.ask("Publish?", ["yes", "no"])
    for kind, body in (
        ("answer", "no JSON"),
        ("answer", answered("Another?", "yes")),
        ("answer", answered("Publish?", "maybe")),
        ("answer", answered("Publish?", "")),
        ("whatever", "?"),
        ("answer", answered("Publish?", "no")),
        ("answer", answered("Publish?", "yes")),
    ):
        post(place, kind, body)
    with opened(place) as run:
        assert run.ask("Publish?", ["yes", "no"]) == "no"
    assert kinds(place).count("question_answered") == 1
    with holdfast.open_store(place) as store:
        assert [message.body for message in store.messages("run-1", 0)] == [answered("Publish?", "yes")]


def test_an_empty_answer_is_passed_over_where_any_text_will_do(place):
    with pytest.raises(holdfast.Stopped, match="awaiting_answer"), opened(place) as run:
        run.ask("Which?")
    post(place, "answer", answered("Which?", ""))
    post(place, "answer", answered("Which?", "that"))
    with opened(place) as run:
        assert run.ask("Which?") == "that"


def test_a_question_of_many_lines_is_known_by_its_first(place):
    text = "\n  Publish this?  \n- old\n+ new\n"
    with opened(place, prompt=lambda text, choices: "no") as run:
        assert run.ask(text, ["yes", "no"]) == "no"
    assert state_of(place).questions["Publish this?"].text == text


def test_a_run_ends_though_another_thread_or_task_leaves_it_than_entered_it(place):
    run = holdfast.run("test-mission", store=place, run_id="run-1")
    run.__enter__()
    with ThreadPoolExecutor(1) as threads:
        threads.submit(run.__exit__, None, None, None).result()
    assert state_of(place).status == "finished"
    with pytest.raises(UsageError, match="No run is going on here"):
        holdfast.step(str)("late")

    async def by_two_tasks():
        run = holdfast.arun("test-mission", store=place, run_id="run-2")
        await asyncio.create_task(run.__aenter__())
        await asyncio.create_task(run.__aexit__(None, None, None))

    asyncio.run(by_two_tasks())
    with holdfast.open_store(place, read_only=True) as store:
        assert holdfast.read_state(store, "run-2").status == "finished"
    assert not any(thread.name.startswith("keeper") for thread in threading.enumerate())


def test_a_live_run_hears_a_message_once(place):
    with pytest.raises(holdfast.Stopped, match="cancelled"), opened(place) as run:
        post(place, "cancel", "enough")
        deadline = time.monotonic() + 10
        while run._book.wish is None and time.monotonic() < deadline:
            time.sleep(0.02)
        first = run._book.wish
        run._life._listen()
        assert run._book.wish is first
        run.step("a", str, 1)
    assert kinds(place) == ["run_started", "cancel_requested", "run_stopped"]


@pytest.mark.parametrize("choices", ["yes", ["yes", ""]])
def test_choices_are_a_list_of_texts(place, choices):
    with pytest.raises(UsageError, match="The choices of a question are a list of texts"), opened(place) as run:
        run.ask("Publish?", choices)


def test_a_default_is_one_of_the_choices(place):
    with pytest.raises(UsageError, match="The default 'maybe' is not one of the choices"), opened(place) as run:
        run.ask("Publish?", ["yes", "no"], default="maybe")


# --- checkpoints and gates ---


def test_a_checkpoint_of_a_live_run_is_written_once_for_the_same_place_and_inputs(place):
    with opened(place, inputs={"a": 1}) as run:
        first = run.checkpoint("drafted", scope_refs=[("team_domain", "v1")])
        again = run.checkpoint("drafted", scope_refs=[ScopeRef("team_domain", "v1")])
        assert first == again and first.scope_refs == (ScopeRef("team_domain", "v1"),)
        other = run.checkpoint("drafted", inputs={"a": 2})
        assert other.retry_token != first.retry_token and other.input_hash != first.input_hash
        named = run.checkpoint("drafted", step_id="chapter-1", strictness="max", lifetime=60)
        assert (named.step_id, named.strictness) == ("chapter-1", "max")
    assert kinds(place).count("step_checkpointed") == 3


def test_a_gate_blocks_after_its_checkpoint_and_an_open_one_writes_nothing(place):
    with pytest.raises(BlockedByConflict), opened(place) as run:
        run.gate("post_gate", [Conflict("a", "low")], strictness="off")
        run.gate("post_gate", [], strictness="max", scope_refs=[("team_domain", "v1")])
        run.gate("post_gate", [Conflict("a", "critical")], step_id="s", lifetime=60)
    assert kinds(place)[:3] == ["run_started", "step_checkpointed", "gate_blocked"]
    assert list(state_of(place).checkpoints) == ["s"]


def test_a_checkpoint_that_says_something_else_is_written_anew(place):
    with pytest.raises(ZeroDivisionError), opened(place) as run:
        first = run.checkpoint("drafted", scope_refs=[("team_domain", "v1")])
        raise ZeroDivisionError
    with opened(place) as run:
        assert run.checkpoint("drafted", scope_refs=[("team_domain", "v1")]) == first
        newer = run.checkpoint("drafted", scope_refs=[("team_domain", "v2")])
        assert newer.scope_refs == (ScopeRef("team_domain", "v2"),)
        stricter = run.checkpoint("drafted", scope_refs=[("team_domain", "v2")], strictness="max")
        assert stricter.strictness == "max"
    assert kinds(place).count("step_checkpointed") == 3


def test_a_token_that_has_expired_is_not_handed_out_again(place):
    with opened(place) as run:
        first = run.checkpoint("drafted", lifetime=0.01)
        time.sleep(0.02)
        assert run.checkpoint("drafted", lifetime=60).retry_token != first.retry_token


def blocked_token(place, cursor, **options):
    with pytest.raises(BlockedByConflict) as blocked, opened(place) as run:
        run.gate(cursor, [Conflict("a", "high")], step_id="s", **options)
    return blocked.value.retry_token


def test_a_gate_that_is_still_closed_keeps_the_token_that_it_gave(place):
    token = blocked_token(place, "post_gate")
    assert blocked_token(place, "post_gate", lifetime=0.01) == token
    time.sleep(0.02)
    later = blocked_token(place, "post_gate")
    assert later != token  # which has expired
    assert blocked_token(place, "pre_generation_gate") not in (token, later)  # it stands elsewhere
    assert kinds(place).count("step_checkpointed") == 4


@pytest.mark.parametrize(("evidence", "end"), [("all is used up", "used up. `"), ("Publish?", "Publish? `")])
def test_what_a_stop_says_is_a_sentence_before_its_advice(evidence, end):
    assert end in str(Stopped("run-1", "awaiting_answer", [evidence]))


def test_a_run_whose_code_leaves_it_is_not_said_to_have_died_without_a_word(place):
    with pytest.raises(SystemExit), opened(place):
        raise SystemExit(3)
    assert "its own code left it" in state_of(place).diagnosis and "SystemExit: 3" in state_of(place).diagnosis


def test_what_cannot_go_on_comes_with_the_command_that_forks_it(place):
    with opened(place) as run:
        run.step("a", lambda: 1)
    with pytest.raises(NotResumable) as refused, opened(place) as run:
        run.step("b", lambda: 1)
    assert "`holdfast fork run-1`" in refused.value.advice


def test_a_strictness_that_is_none_is_refused(place):
    with pytest.raises(UsageError, match="off, medium or max"), opened(place) as run:
        run.checkpoint("drafted", strictness="very")


# --- ending ---


def test_a_run_that_another_thread_has_stopped_does_not_end_as_finished(place):
    with pytest.raises(holdfast.Stopped, match="awaiting_answer"), opened(place) as run:
        caught = []

        def ask():
            try:
                run.ask("Publish?")
            except holdfast.Stopped as stop:
                caught.append(stop)

        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        assert caught
    assert kinds(place)[-1] == "run_stopped"


def test_nothing_is_written_to_a_run_that_another_thread_has_stopped(place):
    with pytest.raises(holdfast.Stopped, match="awaiting_answer"), opened(place) as run:
        with pytest.raises(holdfast.Stopped):
            run.ask("Publish?")
        with pytest.raises(holdfast.Stopped):
            run.step("a", str, 1)
        run.note("a note is welcome at any time")
        with pytest.raises(holdfast.Stopped):
            run.checkpoint("drafted")
    assert kinds(place) == ["run_started", "question_asked", "run_stopped", "note_recorded"]


def test_a_stop_at_the_very_end_is_told(place):
    told = []
    with pytest.raises(Crash), opened(place) as run:
        run.step("gone", str, 1)
        raise Crash
    with pytest.raises(holdfast.Stopped), opened(place, policies={"vanished": "refuse"}, tell=told.append):
        pass
    assert len(told) == 1 and "code_changed" in told[0]


def test_a_stop_in_a_thread_is_told_when_the_run_is_left(place):
    told = []
    with pytest.raises(holdfast.Stopped), opened(place, tell=told.append) as run, ThreadPoolExecutor(1) as threads:
        assert isinstance(threads.submit(run.ask, "Publish?").exception(), holdfast.Stopped)
    assert len(told) == 1 and "awaiting_answer" in told[0]


def test_what_a_run_tells_of_itself(place):
    with opened(place) as run:
        assert not run.resumed and run.state.status == "running"
        run.note("halfway")
        run.spend(tokens=3, money=0.5, step_id="a")
    state = state_of(place)
    assert (state.notes, state.spent.tokens, state.spent.money) == (1, 3, 0.5)


# --- effects ---


def test_effects_are_stopped_by_a_budget_too(place):
    done = []
    budget = holdfast.Budget(tokens=5)
    with pytest.raises(holdfast.Stopped, match="budget_exhausted"), opened(place, budget=budget) as run:
        run.effect("e", done.append, 1, policy="idempotent")
        with pytest.raises(holdfast.Stopped, match="all 5 tokens are used up"):
            run.spend(tokens=6)
        run.effect("f", done.append, 2, policy="idempotent")
    assert done == [1]


class Die(BaseException):
    """In the middle of an act."""


def die(value):
    raise Die


def begun(place, policy):
    with pytest.raises(Die), opened(place) as run:
        run.effect("mail", die, 1, policy=policy)
    with holdfast.open_store(place, read_only=True) as store:
        assert holdfast.read_state(store, "run-1").effects_open


def test_an_open_read_with_other_arguments_is_given_up_because_it_leaves_no_trace(place):
    begun(place, "read")
    with opened(place) as run:
        assert run.effect("mail", str, 2, policy="read") == "2"
    settled = [effect.status for effect in state_of(place).effects.values()]
    assert settled == ["abandoned", "done"]


def test_an_open_effect_with_other_arguments_stops_the_run(place):
    begun(place, "idempotent")
    done = []
    with pytest.raises(holdfast.Stopped, match="effect_unknown") as stop, opened(place) as run:
        run.effect("mail", done.append, 2, policy="idempotent")
    assert done == [] and "it is given something else now" in stop.value.evidence


# --- coroutines ---


def test_coroutines_note_spend_sleep_ask_and_mark_as_ordinary_code_does(place):
    async def body():
        async with holdfast.arun(
            "test-mission", store=place, run_id="run-1", prompt=lambda text, choices: "yes", inputs={"a": 1}
        ) as run:
            await run.note("halfway")
            await run.spend(tokens=3)
            await run.sleep(0.01, name="nap")
            assert await run.ask("Publish?", ["yes", "no"]) == "yes"
            mark = await run.checkpoint("drafted")
            assert await run.checkpoint("drafted") == mark
            return await run.effect("e", str, 1, policy="read")

    assert asyncio.run(body()) == "1"
    assert kinds(place) == [
        "run_started", "note_recorded", "budget_spent", "sleep_started", "sleep_ended", "question_asked",
        "question_answered", "step_checkpointed", "effect_started", "effect_finished", "run_finished",
    ]  # fmt: skip


def test_a_coroutine_run_that_cannot_begin_leaves_nothing_open(place):
    async def body(mission):
        async with holdfast.arun(mission, store=place, run_id="run-1"):
            pass

    asyncio.run(body("test-mission"))
    with pytest.raises(UsageError, match="belongs to mission"):
        asyncio.run(body("other"))
    with holdfast.open_store(place) as store, write_run(store, "run-1"):
        pass
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("keeper")]


# --- long steps ---


def test_runs_of_coroutines_leave_no_thread_behind(place, tmp_path):
    async def many(store=None):
        for _ in range(3):
            async with holdfast.arun("test-mission", store=store or place, new=True) as run:
                await run.step("a", lambda: 1)

    def writers():
        return [thread for thread in threading.enumerate() if thread.name.startswith("holdfast-write")]

    before = set(writers())
    asyncio.run(many())
    with holdfast.open_store(str(tmp_path / "other.db")) as store:
        for _ in range(3):
            asyncio.run(many(store))
        gc.collect()
        for thread in set(writers()) - before:
            thread.join(5)
        assert not set(writers()) - before


def test_a_long_step_that_could_not_be_announced_is_announced_later(place, monkeypatch):
    from holdfast.core.errors import StoreBusy
    from holdfast.engine import steps

    monkeypatch.setattr(steps, "LONG", 0.0)
    with opened(place) as run:
        real, failures = run._book.record, []

        def record(*events):
            if not failures and type(events[0]).__name__ == "StepStarted":
                failures.append(1)
                raise StoreBusy("the store", "no turn")
            return real(*events)

        run._book.record = record
        run.step("slow", time.sleep, 0.9)
        assert failures == [1]
    assert kinds(place) == ["run_started", "step_started", "step_finished", "run_finished"]


@pytest.mark.parametrize("money", [float("nan"), float("inf"), -1.0, 1e300])
def test_a_sum_that_no_log_can_hold_is_refused_and_the_run_goes_on(place, money):
    with opened(place) as run:
        with pytest.raises(IllegalEvent):
            run.spend(money=money)
        run.spend(money=1.5)
        assert run.state.spent.money == 1.5
    with holdfast.open_store(place) as store:
        assert holdfast.read_state(store, run.run_id).spent.money == 1.5


FORKING = """
import os, sys, holdfast
with holdfast.run("m", store=sys.argv[1], run_id="run-1") as run:
    run.step("before", lambda: 1)
    child = os.fork()
    if not child:
        if sys.argv[2] == "exit":
            sys.exit(3)
        raise ValueError("the child has a mistake")
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    run.step("after", lambda: 2)
"""


@pytest.mark.parametrize(
    ("way", "code", "said"), [("exit", 3, []), ("raise", 1, ["ValueError: the child has a mistake"])]
)
def test_a_forked_child_that_leaves_the_block_ends_in_its_own_way_and_the_run_goes_on(place, way, code, said):
    done = subprocess.run([sys.executable, "-c", FORKING, place, way], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.split()) == (0, [str(code)])
    assert [line for line in done.stderr.splitlines() if line.partition(":")[0].endswith("Error")] == said
    assert kinds(place) == ["run_started", "step_finished", "step_finished", "run_finished"]


def test_a_stop_passes_from_a_worker_to_its_pool():
    stop = Stopped("run-1", "effect_unknown", ("effect x",))
    again = pickle.loads(pickle.dumps(stop))
    assert (again.code, str(again), vars(again)) == (stop.code, str(stop), vars(stop))


def test_the_stop_of_a_run_within_is_told_once_and_is_on_record_where_it_ended_the_outer_one(place):
    told = []

    def child():
        with holdfast.run("child", store=place, run_id="run-2", tell=told.append) as inner:
            inner.ask("Publish?", ["yes", "no"])

    with pytest.raises(Stopped) as stopped, opened(place, tell=told.append) as run:
        run.step("child", child)
    assert (stopped.value.run_id, stopped.value.reason) == ("run-2", "awaiting_answer")
    assert told == [str(stopped.value)]
    rest = state_of(place)
    assert (rest.status, rest.stop_reason) == ("stopped", "interrupted")
    assert "run-2 stopped: awaiting_answer" in rest.diagnosis


def test_the_end_of_an_iterator_reaches_the_caller_as_what_it_is_whichever_try_it_was(place):
    def nothing_left():
        return next(iter(()))

    for _ in range(2):
        with pytest.raises(StopIteration), opened(place) as run:
            run.step("next", nothing_left)
    with pytest.raises(StopIteration), opened(place) as run:
        run.effect("take", nothing_left, policy="idempotent")
    with pytest.raises(RuntimeError, match="of its own"), opened(place) as run:
        run.step("other", own_trouble, retry=2)


def own_trouble():
    raise RuntimeError("of its own") from StopIteration()


def test_a_store_is_named_by_a_path_of_any_kind(place):
    with opened(pathlib.Path(place)) as run:
        assert run.step("a", lambda: 1) == 1
    with holdfast.open_store(pathlib.Path(place), read_only=True) as store:
        assert [head.run_id for head in store.heads()] == ["run-1"]

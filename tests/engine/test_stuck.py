"""No run is stuck for good: what leaves no trace is given up, a receipt that does not fit and wrong numbers are named."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass

import pytest

import holdfast
from holdfast.app import world
from holdfast.core.errors import NotFound, UsageError
from holdfast.core.redact import Redactor
from holdfast.core.retry import Retry
from holdfast.engine.fork import fork
from holdfast.engine.forms import BadReceipt, BadResult
from holdfast.engine.forms import _shape as shape_of
from holdfast.engine.people import NotOpen, look, settle

NAN = float("nan")


class Crash(BaseException):
    """The process is gone: nothing that follows is written."""


@dataclass
class Receipt:
    id: int


@pytest.fixture
def place(tmp_path):
    return str(tmp_path / "holdfast.db")


@pytest.fixture(autouse=True)
def nobody_at_the_terminal(monkeypatch):
    monkeypatch.setattr("holdfast.adapters.terminal.is_there", lambda: False)


def opened(place):
    return holdfast.run("m", store=place, run_id="run-1")


def crash(*given):
    raise Crash


def crashed(place, **options):
    with suppress(Crash), opened(place) as run:
        run.effect("e", crash, **options)


def effect_of(place):
    with holdfast.open_store(place, read_only=True) as store:
        (effect,) = holdfast.read_state(store, "run-1").effects.values()
        return effect


@pytest.mark.parametrize("policy", ["pure", "read"])
def test_what_leaves_no_trace_is_given_up_when_the_code_ends_without_it(place, policy):
    crashed(place, policy=policy)
    with opened(place) as run:
        run.step("other", lambda: 1)
    effect = effect_of(place)
    assert (effect.status, effect.evidence) == ("abandoned", "the code ended without it, and it leaves no trace")
    assert run.state.status == "finished"


@pytest.mark.parametrize(
    ("error", "end"), [(None, ("step_failed", "run_finished")), (ValueError, ("run_stopped",))], ids=["ends", "fails"]
)
def test_a_step_that_a_thread_still_does_when_the_code_ends_is_on_record(place, error, end):
    begun, over = threading.Event(), threading.Event()

    def work():
        begun.set()
        over.wait(10)

    def beside(run):
        with suppress(holdfast.HoldfastError):
            run.step("beside", work)

    try:
        with suppress(ValueError), opened(place) as run:
            threading.Thread(target=beside, args=(run,), daemon=True).start()
            assert begun.wait(10)
            if error is not None:
                raise error
        kinds = [event.kind for event in holdfast.open_store(place, read_only=True).read("run-1")]
    finally:
        over.set()
    assert kinds == ["run_started", "step_started", *end]


@pytest.mark.parametrize("policy", ["idempotent", "keyed"])
def test_what_may_have_been_done_is_for_a_person_and_the_plan_says_how(place, policy):
    crashed(place, policy=policy)
    with pytest.raises(holdfast.Stopped, match="effect_unknown"), opened(place) as run:
        run.step("other", lambda: 1)
    with holdfast.open_store(place, read_only=True) as store:
        (row,) = (row for row in look(store, "run-1").plan.rows if row.kind == "effect")
    assert f"`holdfast settle run-1 --not-done {row.name}`" in row.reason


def test_a_receipt_of_another_type_is_named_with_the_way_out(place):
    done = []

    def publish() -> Receipt:
        done.append(1)
        raise Crash

    with suppress(Crash), opened(place) as run:
        run.effect("publish", publish)
    with holdfast.open_store(place) as store:
        settle(store, "run-1", "publish", "done", world(), Redactor(), receipt="x-17")
    for _ in range(2):
        named = r"The receipt 'x-17' on record for effect publish .* Receipt"
        with pytest.raises(BadReceipt, match=named) as caught, opened(place) as run:
            run.effect("publish", publish)
    assert "by a default for a field that is new" in caught.value.advice
    key = next(iter(run.state.effects))
    assert f"`holdfast settle run-1 --done --receipt JSON {key}`" in caught.value.advice

    def publish() -> Receipt | str:
        done.append(1)
        return Receipt(1)

    with opened(place) as run:
        assert run.effect("publish", publish) == "x-17"
    assert done == [1]


def test_a_result_that_is_not_what_is_declared_now_is_named_with_the_ways_out_and_both_help(place):
    done = []

    def draft() -> Receipt:
        done.append(1)
        return Receipt(17)

    with suppress(Crash), opened(place) as run:
        run.step("draft", draft)
        crash()

    @dataclass
    class Newer(Receipt):
        pages: int

    draft.__annotations__["return"] = Newer
    shape_of.cache_clear()
    named = r"The result {'id': 17} on record for step draft cannot be used: .* `pages`"
    with pytest.raises(BadResult, match=named) as caught, opened(place) as run:
        run.step("draft", draft)
    assert "another name" in caught.value.advice

    @dataclass
    class Patient(Receipt):
        pages: int = 0

    draft.__annotations__["return"] = Patient
    shape_of.cache_clear()
    with suppress(Crash), opened(place) as run:
        assert run.step("draft", draft) == Patient(17, 0)
        assert done == [1]
        crash()
    with opened(place) as run:
        assert run.step("draft anew", draft) == Patient(17, 0)
    assert done == [1, 1]


def test_the_plan_says_that_the_probe_of_an_effect_done_once_decides(place):
    def publish():
        raise Crash

    with suppress(Crash), opened(place) as run:
        run.effect("publish", publish, policy="once", probe=lambda: True)
    with holdfast.open_store(place, read_only=True) as store:
        plan = look(store, "run-1").plan
    assert [(row.kind, row.move, row.reason) for row in plan.rows] == [
        ("effect", "settle", "of step publish: its probe decides")
    ]
    assert plan.verdict == "go"


def test_a_wrong_receipt_is_replaced_and_the_run_goes_on_with_the_right_one(place):
    done = []

    def publish() -> Receipt:
        done.append(1)
        raise Crash

    with suppress(Crash), opened(place) as run:
        run.effect("publish", publish)
    with holdfast.open_store(place) as store:
        for receipt in ("x-17", {"id": 17}):
            settle(store, "run-1", "publish", "done", world(), Redactor(), receipt=receipt)
        forked = fork(store, "run-1", "run-2", world(), Redactor(), at=2)
    for run_id in ("run-1", forked.run_id):
        with holdfast.run("m", store=place, run_id=run_id) as run:
            assert run.effect("publish", publish) == Receipt(17)
    assert done == [1]


def test_the_receipt_that_an_act_gave_is_replaced_only_where_it_is_named_in_full(place):
    with pytest.raises(ZeroDivisionError), opened(place) as run:
        run.effect("publish", lambda: "x" * 40_000)
        raise ZeroDivisionError
    with holdfast.open_store(place) as store:
        with pytest.raises(NotFound):
            settle(store, "run-1", "pub", "done", world(), Redactor(), receipt=6)
        with pytest.raises(NotOpen, match="it is done"):
            settle(store, "run-1", "publish", "done", world(), Redactor())
        settle(store, "run-1", "publish", "done", world(), Redactor(), receipt=6)
    with opened(place) as run:
        assert run.effect("publish", lambda: "x" * 40_000) == 6


@pytest.mark.parametrize(
    "wrong",
    [
        lambda run: run.sleep(1e12, name="nap"),
        lambda run: run.sleep(NAN, name="nap"),
        lambda run: run.ask("Go?", timeout=1e13),
        lambda run: run.step("a", lambda: 1, retry="3"),
        lambda run: run.step("a", lambda: 1, retry=Retry(2, NAN)),
        lambda run: run.spend(tokens=1.5),
        lambda run: run.spend(tokens=2**60),
        lambda run: run.spend(money="much"),
    ],
)
def test_wrong_numbers_are_refused_in_words_and_the_run_goes_on(place, wrong):
    with opened(place) as run:
        with pytest.raises(UsageError):
            wrong(run)
        run.spend(tokens=1, money=0.5)
    assert run.state.status == "finished"

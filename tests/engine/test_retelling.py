"""What a resumed run says again is counted once, and a mistake of a program does not end its run for good."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

import holdfast
from holdfast.core.errors import HoldfastError, LeaseHeld, LeaseLost
from holdfast.core.events import NoteRecorded
from holdfast.core.redact import Redactor
from holdfast.core.wire import decode
from holdfast.engine.people import settle
from holdfast.engine.stopping import NameClash, NotResumable
from tests.crash.workloads import world


class Death(BaseException):
    """What a killed process leaves is the log up to here; the block is left without a word."""


@pytest.fixture
def place(tmp_path):
    return str(tmp_path / "r.db")


def state_of(place):
    with holdfast.open_store(place, read_only=True) as store:
        (head,) = store.heads()
        notes = [record.body for record in store.read(head.run_id) if record.kind == "note_recorded"]
        return holdfast.read_state(store, head.run_id), len(notes)


def spending(run, die_at, named=False, inside=False):
    for number in range(4):

        def work(number=number):
            if number == die_at:
                raise Death
            if inside:
                run.spend(tokens=30, money=0.5)
            return number

        run.step(f"s{number}", work)
        if not inside:
            run.spend(tokens=30, money=0.5, step_id=f"s{number}" if named else None)
        run.note(f"step {number} is done")


@pytest.mark.parametrize(("named", "inside"), [(False, False), (True, False), (False, True)])
def test_what_was_spent_and_noted_is_in_the_log_once_over_any_number_of_restarts(place, named, inside):
    for die_at in (1, 2, 2, 3):
        with pytest.raises(Death), holdfast.run("m", store=place) as run:
            spending(run, die_at, named, inside)
    with holdfast.run("m", store=place) as run:
        spending(run, None, named, inside)
    state, notes = state_of(place)
    assert (state.spent.tokens, state.spent.money, notes) == (120, 2.0, 4)


def test_the_same_for_coroutines(place):
    async def once(die):
        async with holdfast.arun("m", store=place) as run:
            await run.step("a", lambda: 1)
            await run.spend(tokens=5)
            await run.note("once")
            if die:
                raise Death

    for die in (True, True, False):
        with suppress(Death):
            asyncio.run(once(die))
    state, notes = state_of(place)
    assert (state.spent.tokens, notes) == (5, 1)


def test_what_was_lost_between_a_step_and_its_cost_is_told_now(place):
    with pytest.raises(Death), holdfast.run("m", store=place) as run:
        run.step("a", lambda: 1)
        raise Death
    with holdfast.run("m", store=place) as run:
        run.step("a", lambda: 1)
        run.spend(tokens=7)
    assert state_of(place)[0].spent.tokens == 7


def test_an_attempt_that_is_made_again_costs_again(place):
    for die in (True, False):
        try:
            with holdfast.run("m", store=place) as run:

                def work(die=die, run=run):
                    run.spend(tokens=3, step_id="a")
                    if die:
                        raise Death
                    return 1

                run.step("a", work)
        except Death:
            pass
    assert state_of(place)[0].spent.tokens == 6


def test_steps_side_by_side_are_counted_once_by_their_names(place):
    def go(run, die):
        def one(number):
            run.step(f"s{number}", lambda: number)
            run.spend(tokens=10, step_id=f"s{number}")

        threads = [threading.Thread(target=one, args=(number,)) for number in range(4 if die else 6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if die:
            raise Death

    for _ in range(2):
        with pytest.raises(Death), holdfast.run("m", store=place) as run:
            go(run, True)
    with holdfast.run("m", store=place) as run:
        go(run, False)
    assert state_of(place)[0].spent.tokens == 60


def test_the_cost_of_an_effect_that_is_done_is_told_once(place):
    for die in (True, False):
        try:
            with holdfast.run("m", store=place) as run:
                run.effect("mail", lambda: None, policy="once")
                run.spend(tokens=4, step_id="mail")
                if die:
                    raise Death
        except Death:
            pass
    assert state_of(place)[0].spent.tokens == 4


@pytest.mark.parametrize("way", ["probe", "done", "abandoned"])
def test_also_if_only_a_probe_or_a_person_said_what_became_of_it(place, way):
    def act():
        raise Death

    def go(run, die):
        run.effect("mail", act, policy="once", probe=(lambda: True) if way == "probe" else None)
        run.spend(tokens=4, step_id="mail")
        if die:
            raise Death

    with suppress(Death), holdfast.run("m", store=place, run_id="r") as run:
        go(run, True)
    if way != "probe":
        with holdfast.open_store(place) as store:
            settle(store, "r", "mail", way, world(1), Redactor())
    for die in (True, True, False, False):
        with suppress(Death), holdfast.run("m", store=place, run_id="r") as run:
            go(run, die)
    assert state_of(place)[0].spent.tokens == 4


def test_what_is_spent_under_a_name_that_is_no_step_is_told_once(place):
    for die in (True, True, False):
        with suppress(Death), holdfast.run("m", store=place) as run:
            run.spend(tokens=4, step_id="planning")
            run.step("a", lambda: 1)
            with suppress(ValueError):
                run.step("fails", int, "x")
            run.spend(tokens=8, step_id="fails")  # it was done once more each time
            if die:
                raise Death
    assert state_of(place)[0].spent.tokens == 4 + 3 * 8


@pytest.mark.parametrize("kind", ["step", "effect"])
def test_what_is_done_anew_with_other_arguments_costs_again(place, kind):
    for given in (1, 1, 2, 2):
        with suppress(Death), holdfast.run("m", store=place, accept=True, tell=str) as run:
            run.effect("before", lambda: None)
            if kind == "step":
                run.step("draft", lambda number: number, given)
            else:
                run.effect("draft", lambda number: number, given)
            run.spend(tokens=4, step_id="draft")
            raise Death
    assert state_of(place)[0].spent.tokens == 8


def test_a_note_that_holds_a_secret_is_told_once_also_if_that_is_known_only_later(place, monkeypatch):
    for known in (False, True, True):
        if known:
            monkeypatch.setenv("DEPLOY_TOKEN", "correct-horse-battery")
        with suppress(Death), holdfast.run("m", store=place) as run:
            run.note("used sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789")
            run.note("and correct-horse-battery")
            raise Death
    assert state_of(place)[1] == 2


def test_a_finished_run_refuses_what_it_did_not_spend_in_words(place):
    with holdfast.run("m", store=place, run_id="r"):
        pass
    with pytest.raises(NotResumable, match="it is finished, and its code now asks") as caught:  # noqa: SIM117
        with holdfast.run("m", store=place, run_id="r") as run:
            run.spend(tokens=1)
    assert "holdfast fork r" in caught.value.advice


# --- mistakes and errors of others


def two_of_a_name(run):
    run.step("a", lambda: 1)


def no_plain_data(run):
    run.step("b", object)


def of_another_run(run):
    run.step("c", raising(LeaseHeld("other", "somebody")))


def lost_by_another_run(run):
    run.step("d", raising(LeaseLost("other", 3)))


def lost_in_an_effect(run):
    run.effect("e", raising(LeaseLost("other", 3)), policy="idempotent")


def not_there(run):
    with holdfast.open_store(run._book.log.store.path, read_only=True) as store:
        holdfast.read_state(store, "no-such-run")


def raising(error):
    def work():
        raise error

    return work


@pytest.mark.parametrize(
    ("mistake", "reason"),
    [
        (two_of_a_name, "name_clash"),
        (no_plain_data, "unstorable"),
        (of_another_run, "step_failed"),
        (lost_by_another_run, "step_failed"),
        (lost_in_an_effect, "step_failed"),
        (not_there, "step_failed"),
    ],
    ids=lambda one: getattr(one, "__name__", one),
)
def test_a_run_goes_on_after_a_mistake_was_mended_and_does_no_effect_twice(place, mistake, reason):
    paid = []
    for is_mended in (False, True):
        try:
            with holdfast.run("shop", store=place) as run:
                run.effect("pay", lambda: paid.append("x"), policy="once")
                run.step("a", lambda: 1)
                if not is_mended:
                    mistake(run)
        except HoldfastError:
            state = state_of(place)[0]
            assert (state.status, state.stop_reason) == ("stopped", reason)
    assert paid == ["x"] and state_of(place)[0].status == "finished"


def test_a_name_used_twice_is_told_with_both_places(place):
    said = r"test_retelling.py:\d+ and at .*test_retelling.py:\d+"
    with pytest.raises(NameClash, match=said), holdfast.run("m", store=place) as run:
        run.step("a", lambda: 1)
        run.step("a", lambda: 1)


def same(number):
    return number


def test_and_where_a_thread_or_a_loop_calls_with_the_function_that_it_was_given(place, tmp_path):
    said = r"at .*test_retelling.py:\d+ and at .*test_retelling.py:\d+"
    with pytest.raises(NameClash, match=said), holdfast.run("m", store=place) as run, ThreadPoolExecutor(2) as pool:
        list(pool.map(run.step, ["a", "a"], [same, same], [1, 2]))

    async def go():
        async with holdfast.arun("m", store=str(tmp_path / "a.db")) as run:
            await asyncio.gather(run.step("a", same, 1), run.step("a", same, 2))

    with pytest.raises(NameClash, match=said):
        asyncio.run(go())


def test_a_note_of_somebody_else_is_no_note_of_the_code(place):
    with pytest.raises(Death), holdfast.run("m", store=place) as run:
        run._book.record(NoteRecorded(text="same", author="somebody"))
        raise Death
    with holdfast.run("m", store=place) as run:
        run.note("same")
    assert state_of(place)[1] == 2


@pytest.mark.parametrize("kind", ["step", "effect"])
def test_what_was_told_inside_of_what_is_done_hides_nothing_that_is_told_later(place, kind):
    """What is done is not executed again, so its code tells nothing again: the same words after it are new ones."""
    for die in (True, False):
        with suppress(Death), holdfast.run("m", store=place) as run:
            work = lambda: run.spend(tokens=100)  # noqa: E731
            if kind == "step":
                run.step("draft", work)
            else:
                run.effect("draft", work, probe=lambda: False)
            if die:
                raise Death
            run.spend(tokens=100)
    assert state_of(place)[0].spent.tokens == 200


@pytest.mark.parametrize("kind", ["step", "effect"])
def test_a_note_inside_of_what_is_done_hides_no_note_that_is_said_later(place, kind):
    for die in (True, True, False):
        with suppress(Death), holdfast.run("m", store=place) as run:
            work = lambda: run.note("same")  # noqa: E731
            run.note("same")
            if kind == "step":
                run.step("draft", work)
            else:
                run.effect("draft", work, probe=lambda: False)
            if die:
                raise Death
            run.note("same")
    with holdfast.open_store(place, read_only=True) as store:
        (head,) = store.heads()
        notes = [decode(record) for record in store.read(head.run_id) if record.kind == "note_recorded"]
    assert [note.step_id for note in notes] == [None, "draft", None]


def test_what_is_told_inside_belongs_to_the_innermost_step_of_its_own_run(place, tmp_path):
    def inner():
        with holdfast.run("other", store=str(tmp_path / "o.db")) as other:
            other.spend(tokens=1)
        run.spend(tokens=2)
        run.step("deeper", lambda: run.spend(tokens=3))
        run.spend(tokens=4)

    with holdfast.run("m", store=place) as run:
        run.step("outer", inner)
        run.spend(tokens=5)
    assert spent_for(place) == [("outer", 2), ("deeper", 3), ("outer", 4), (None, 5)]
    assert spent_for(str(tmp_path / "o.db")) == [(None, 1)]


def spent_for(place):
    with holdfast.open_store(place, read_only=True) as store:
        (head,) = store.heads()
        events = [decode(record) for record in store.read(head.run_id) if record.kind == "budget_spent"]
    return [(event.step_id, event.tokens) for event in events]

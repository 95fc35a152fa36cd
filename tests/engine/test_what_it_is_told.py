"""What a run is told by its code and by probes: whatever could not be read back never gets into its log."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

import pytest

import holdfast
from holdfast import app
from holdfast.adapters.probes.files import FileWrite
from holdfast.core.checkpoint import BadCheckpoint
from holdfast.core.errors import UsageError
from holdfast.engine import people
from holdfast.engine.log import read_state, verify_run

MANY: Any = "many"


@pytest.fixture
def place(tmp_path):
    return str(tmp_path / "holdfast.db")


@pytest.fixture(autouse=True)
def nobody_at_the_terminal(monkeypatch):
    monkeypatch.setattr("holdfast.adapters.terminal.is_there", lambda: False)


def opened(place, **options):
    return holdfast.run("test-mission", store=place, run_id="run-1", **options)


def findings(place):
    with holdfast.open_store(place, read_only=True) as store:
        return verify_run(store, "run-1").findings


@pytest.mark.parametrize(
    "tell",
    [
        lambda run: run.note(5),
        lambda run: run.note(ValueError("what an except clause has at hand")),
        lambda run: run.spend(tokens=1, step_id=7),
        lambda run: run.ask("Which?", [1, 2, 3]),
        lambda run: run.ask("Which?", ["one", ""]),
        lambda run: run.ask(5, ["one"]),
        lambda run: run.ask("Which?", {"one", "two"}),
        lambda run: run.ask("Which?", (word for word in ("one", "two"))),
        lambda run: run.stop(5),
        lambda run: run.sleep(100, name="nap", stay=0, reason=5),
    ],
)
def test_what_is_no_text_is_refused_and_the_log_can_still_be_read(place, tell):
    with pytest.raises(UsageError, match="text"), opened(place) as run:
        run.step("before", lambda: 1)
        tell(run)
    assert findings(place) == ()
    with opened(place) as run:
        assert run.step("before", lambda: 2) == 1


def test_a_title_that_is_no_text_begins_no_run(place):
    with pytest.raises(UsageError, match="The title of a run is text, not 5"), opened(place, title=5):
        raise AssertionError("it began")
    with opened(place, title="A title") as run:
        assert not run.resumed


def test_coroutines_are_told_so_too(place):
    async def main():
        async with holdfast.arun("test-mission", store=place, run_id="run-1") as run:
            await run.note(None)

    with pytest.raises(UsageError, match="A note is text, not None"):
        asyncio.run(main())
    assert findings(place) == ()


def broken():
    raise OSError("the connection was lost")


@pytest.mark.parametrize("word", ["finished", "abandoned", None, True])
def test_a_probe_that_answers_with_a_word_of_its_own_has_not_answered(place, word):
    with pytest.raises(SystemExit) as stop, opened(place) as run:
        run.effect("mail", broken, probe=lambda: holdfast.Answer(word, "the outbox"))
    assert stop.value.reason == "effect_unknown"
    assert findings(place) == ()


def test_the_evidence_of_a_probe_may_be_anything_that_can_be_shown(place):
    with opened(place) as run:
        run.effect("mail", broken, probe=lambda: holdfast.Answer("done", 3, {"id": 3}))
        assert next(iter(run.state.effects.values())).evidence == "OSError: the connection was lost; 3"
    assert findings(place) == ()


def wordless():
    raise AssertionError


def test_an_error_without_words_is_told_by_its_name(place):
    with pytest.raises(AssertionError), opened(place) as run:
        run.step("count", wordless)
    with pytest.raises(SystemExit), opened(place) as run:
        assert run.state.steps["count"].error == "AssertionError"
        run.effect("mail", wordless, probe=wordless)
    with holdfast.open_store(place, read_only=True) as store:
        (effect,) = read_state(store, "run-1").effects.values()
    assert effect.evidence == "AssertionError; the probe failed: AssertionError"


# --- an answer is for what was asked


def ask(place, text, choices=("yes", "no"), **options):
    with opened(place, **options) as run:
        return run.ask(text, list(choices), name="publish")


def answered(place, text="Publish 3 chapters?"):
    with pytest.raises(SystemExit), opened(place) as run:
        run.ask(text, ["yes", "no"], name="publish")
    with holdfast.open_store(place) as store:
        people.answer(store, "run-1", "publish", "yes", app.world(), app.redactor())


def test_an_answer_is_not_taken_for_another_question_of_that_name(place):
    answered(place)
    with pytest.raises(SystemExit) as stop:
        ask(place, "Publish 500 chapters?")
    assert stop.value.reason == "input_changed"
    assert 'question: "Publish 3 chapters?" -> "Publish 500 chapters?"' in stop.value.evidence
    assert ask(place, "Publish 3 chapters?") == "yes"


def test_an_answer_that_was_accepted_for_another_question_stands_for_it_from_then_on(place):
    answered(place)

    def go_on(**options):
        with pytest.raises(ZeroDivisionError), opened(place, **options) as run:
            assert run.ask("Publish them all?", ["yes", "no"], name="publish") == "yes"
            raise ZeroDivisionError

    go_on(accept=True)
    go_on()
    with pytest.raises(SystemExit):
        ask(place, "Publish none?")
    assert findings(place) == ()


def test_an_answer_that_is_none_of_the_choices_now_is_never_given(place):
    answered(place)
    with pytest.raises(UsageError, match="The answer 'yes' to publish is none of its choices now"):
        ask(place, "Publish 3 chapters?", ["blue", "green"], accept=True)


def test_at_the_terminal_what_is_on_record_is_asked_and_its_answer_is_for_nothing_else(place):
    with pytest.raises(SystemExit):
        ask(place, "Publish 3 chapters?")
    asked = []
    with pytest.raises(SystemExit) as stop:
        ask(place, "Publish 500 chapters?", ["all", "none"], prompt=lambda *what: asked.append(what) or "yes")
    assert asked == [("Publish 3 chapters?", ("yes", "no"))]
    assert stop.value.reason == "input_changed"
    assert ask(place, "Publish 3 chapters?") == "yes"


def test_a_secret_in_a_question_is_no_change_of_it(place):
    text = "Use the key ghp_0123456789abcdefghijABCDEFGHIJ012345?"
    answered(place, text)
    assert ask(place, text) == "yes"


# --- what makes no sense is said in words, and leaves nothing behind


async def later():
    return 1


def one_by_one():
    yield 1


@pytest.mark.parametrize("act", [later, one_by_one, partial(later)])
def test_an_act_that_a_call_does_not_begin_leaves_no_open_effect(place, act):
    with pytest.raises(UsageError, match="does nothing yet"), opened(place) as run:
        run.effect("mail", act)
    with opened(place) as run:
        assert run.state.effects == {} and run.effect("mail", lambda: 1) == 1


@pytest.mark.parametrize("work", [later, one_by_one, partial(later)])
def test_a_step_that_a_call_does_not_begin_is_refused_before_it_runs(place, work):
    with pytest.raises(UsageError, match="step mail does nothing yet"), opened(place) as run:
        run.step("mail", work, retry=3)
    with opened(place) as run:
        assert run.state.steps == {}


@pytest.mark.parametrize("probe", [later, one_by_one, partial(later)])
def test_a_probe_that_a_call_does_not_begin_is_refused_before_it_is_needed(place, probe):
    """After a crash it could not say what became of the effect, and a person would have to."""
    with pytest.raises(UsageError, match="the probe of effect mail does nothing yet"), opened(place) as run:
        run.effect("mail", lambda: 1, policy="once", probe=probe)
    with opened(place) as run:
        assert run.state.effects == {}


@pytest.mark.parametrize("more", [{"probe": lambda: True}, {"z": 3}], ids=["a probe", "an argument"])
def test_an_effect_that_brings_its_probe_and_arguments_is_given_no_others(place, tmp_path, more):
    ready = FileWrite(str(tmp_path / "file"), b"x", before=None)
    with pytest.raises(UsageError, match="brings its own arguments and probe"), opened(place) as run:
        run.effect("write", ready, **more)
    assert not (tmp_path / "file").exists()


def test_a_run_of_coroutines_awaits_an_act_but_asks_no_generator(place):
    async def main():
        async with holdfast.arun("test-mission", store=place, run_id="run-1") as run:
            assert await run.effect("mail", later) == 1
            with pytest.raises(UsageError, match="does nothing yet"):
                await run.effect("mails", one_by_one)
            assert await run.effect("letters", later, policy="once", probe=later) == 1
            assert await run.step("one", later) == 1
            with pytest.raises(UsageError, match="does nothing yet"):
                await run.step("many", one_by_one)

    asyncio.run(main())


@pytest.mark.parametrize(
    "wrong",
    [
        lambda run: run.effect("mail", later, key=5),
        lambda run: run.effect("mail", lambda: 1, key=5),
        lambda run: run.checkpoint("here", scope_refs=[("team_domain",)]),
        lambda run: run.checkpoint("here", scope_refs=[5]),
        lambda run: run.checkpoint("here", lifetime="a day"),
        lambda run: run.checkpoint("here", strictness="a little"),
        lambda run: run.gate("here", [], strictness="a little"),
        lambda run: run.gate("here", ["the term is used twice"]),
        lambda run: FileWrite("/tmp/never", MANY),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(place, wrong):
    with opened(place) as run:
        with pytest.raises((UsageError, BadCheckpoint)):
            wrong(run)
        run.step("after", lambda: 1)
    assert findings(place) == ()


@pytest.mark.parametrize(
    "options",
    [
        {"inputs": ["a"]},
        {"inputs": "a"},
        {"budget": 5},
        {"budget": 0},
        {"budget": holdfast.Budget(tokens=MANY)},
        {"budget": holdfast.Budget(money=-1)},
        {"budget": holdfast.Budget(seconds=float("nan"))},
    ],
)
def test_a_run_that_makes_no_sense_does_not_begin(place, options):
    with pytest.raises(UsageError), opened(place, **options):
        raise AssertionError("it began")
    with opened(place, budget=holdfast.Budget(tokens=0, money=0.5), inputs={"a": 1}) as run:
        assert not run.resumed


def slowly(question, choices):
    time.sleep(0.1)
    return "yes"


def test_an_answer_at_the_terminal_that_comes_too_late_does_not_count(place):
    with opened(place, prompt=slowly) as run:
        assert run.ask("Publish?", ["yes", "no"], timeout=0.05, default="no") == "no"
        assert run.state.questions["Publish?"].expired
        assert run.ask("Really?", ["yes", "no"], timeout=60, default="no") == "yes"


def test_nobody_is_asked_what_had_to_be_answered_before(place):
    with pytest.raises(ZeroDivisionError), opened(place, prompt=slowly) as run:
        with pytest.raises(holdfast.HoldfastError, match="Nobody answered"):
            run.ask("Publish?", timeout=0.05)
        raise ZeroDivisionError
    with opened(place, prompt=lambda question, choices: 1 / 0) as run:
        assert run.ask("Publish?", timeout=0.05, default="no") == "no"


def test_an_answer_that_is_no_text_is_refused(place):
    with pytest.raises(UsageError, match="An answer is text, not 5"), opened(place, prompt=lambda *asked: 5) as run:
        run.ask("How many?")
    assert findings(place) == ()


def test_what_is_known_as_a_secret_since_changes_nothing(place, monkeypatch):
    done: list[str] = []

    def once(thing):
        with opened(place, inputs={"thing": thing, "token": thing}) as run:
            run.step("fetch", lambda thing, token: done.append("fetch"), thing, thing)
            run.effect("send", lambda thing, token: done.append("send"), thing, thing)
            raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            once(["qwertz-uiop-4711"])
        monkeypatch.setenv("THING_TOKEN", "qwertz-uiop-4711")
    assert done == ["fetch", "send"]
    with pytest.raises(holdfast.Stopped, match="input_changed"):
        once(["qwertz-uiop-4712"])


def test_other_arguments_are_told_without_what_is_known_as_a_secret_since(place, monkeypatch):
    def once(number):
        with opened(place) as run:
            run.effect("send", lambda token, number: None, "qwertz-uiop-4711", number)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        once(1)
    monkeypatch.setenv("THING_TOKEN", "qwertz-uiop-4711")
    with pytest.raises(holdfast.Stopped) as stop:
        once(2)
    assert "1 -> 2" in str(stop.value.evidence) and "qwertz" not in str(stop.value.evidence)

"""What a run is told by its code and by probes: whatever could not be read back never gets into its log."""

from __future__ import annotations

import asyncio

import pytest

import holdfast
from holdfast.core.errors import UsageError
from holdfast.engine.log import verify_run


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

"""What a step was given and gave stays in the log as it was then, whatever a program does with it afterwards."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast.core.wire import decode
from holdfast.engine.forms import MAX_ARGUMENTS
from holdfast.engine.log import verify_run

KEPT: list[Any] = []


@pytest.fixture
def place(tmp_path):
    return str(tmp_path / "holdfast.db")


def opened(place):
    return holdfast.run("m", store=place, run_id="run-1")


def findings(place):
    with holdfast.open_store(place, read_only=True) as store:
        return verify_run(store, "run-1").findings


def event(place, kind):
    with holdfast.open_store(place, read_only=True) as store:
        return next(decode(record) for record in store.read("run-1") if record.kind == kind)


def fill(items, count):
    items.extend(["v" * 100] * count)
    return len(items)


@pytest.mark.parametrize("count", [1, 20_000])
@pytest.mark.parametrize("retry", [None, 2])
def test_a_step_that_changes_what_it_was_given_is_done_and_kept_as_it_was_called(place, count, retry):
    with opened(place) as run:
        assert run.step("fill", fill, ["a"], count, retry=retry) == count + 1
    kind = "step_finished" if retry is None else "step_started"
    assert event(place, kind).arguments == {"items": ["a"], "count": count}


def test_every_try_of_a_step_is_given_what_the_first_one_was(place):
    seen = []

    def eat(items, more):
        seen.append((list(items), dict(more)))
        items.clear()
        more["eaten"] = True
        if len(seen) < 3:
            raise OSError("not yet")
        return len(seen)

    with opened(place) as run:
        assert run.step("eat", eat, ["a"], more={"b": 1}, retry=holdfast.Retry(attempts=3, wait=0.0)) == 3
    assert seen == [(["a"], {"b": 1})] * 3


def test_a_step_that_makes_its_argument_unstorable_is_done(place):
    with opened(place) as run:
        assert run.step("odd", lambda items: items.append({1, 2}), []) is None
    assert event(place, "step_finished").arguments == {"items": []}


def test_a_transactional_effect_that_changes_what_it_was_given_is_kept_as_it_was_called(place):
    def book(sql, items):
        return fill(items, MAX_ARGUMENTS)

    with opened(place) as run:
        run.effect("book", book, ["a"], policy="transactional")
    assert list(event(place, "effect_started").arguments.values()) == [["a"]]


def plain():
    return KEPT


def declared() -> dict[str, Any]:
    return {"items": KEPT}


def spoil(result):
    (result if isinstance(result, list) else result["items"])[0]["n"] += 1


@pytest.mark.parametrize("work", [plain, declared])
@pytest.mark.parametrize("how", ["step", "effect"])
def test_a_result_that_is_changed_afterwards_changes_nothing_in_the_log(place, work, how):
    KEPT[:] = [{"n": 1}]
    for _ in range(3):
        with pytest.raises(holdfast.Stopped), opened(place) as run:
            result = getattr(run, how)("a", work)
            assert result in ([{"n": 1}], {"items": [{"n": 1}]})
            KEPT[0]["n"] = 99
            spoil(result)
            raise run.stop("interrupted")
        assert findings(place) == ()

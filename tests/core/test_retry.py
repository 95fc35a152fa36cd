"""How often, how long and until when: pauses grow to a limit, and a time that is moved is still the same moment plus so much."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import BadInput, UsageError
from holdfast.core.retry import ONCE, Budget, Retry, as_retry, check_budget, later, seconds_until, text_of, time_of

AT = "2026-01-02T03:04:05.000006Z"


@pytest.mark.parametrize("limit", [-1, float("nan"), "many", [1]])
@pytest.mark.parametrize("what", Budget._fields)
def test_a_limit_that_is_no_number_is_refused_by_name(what, limit):
    with pytest.raises(UsageError, match=f"no limit for {what}") as refused:
        check_budget(Budget(**{what: limit}))
    assert refused.value.advice == "A limit is a number, or None for as much as it likes."


@pytest.mark.parametrize("value", [5, None, (1, 2.0, 3, 4.0), {"attempts": 5}])
def test_what_is_no_budget_is_refused_with_an_example_of_one(value):
    with pytest.raises(UsageError) as refused:
        check_budget(value)
    assert str(refused.value) == f"{value!r} is no budget."
    assert refused.value.advice == "Say of what, as in holdfast.Budget(attempts=5)."


def test_of_something_long_that_is_no_budget_only_the_beginning_is_shown():
    long: Any = "x" * 1000
    with pytest.raises(UsageError) as refused:
        check_budget(long)
    assert str(refused.value) == f"'{'x' * 39} is no budget."


def test_limits_are_numbers_or_none():
    check_budget(Budget())
    check_budget(Budget(0, 0.5, 3, float("inf")))


def test_pauses_grow_by_the_factor_and_stay_at_the_longest():
    retry = Retry(attempts=9, wait=2.0, factor=3.0, longest=50.0)
    assert [retry.pause(attempt) for attempt in range(1, 6)] == [2.0, 6.0, 18.0, 50.0, 50.0]


def test_what_is_not_said_is_three_attempts_that_wait_one_second_and_then_two():
    assert Retry() == (3, 1.0, 2.0, 300.0)
    assert [Retry().pause(attempt) for attempt in (1, 2, 9, 10)] == [1.0, 2.0, 256.0, 300.0]


def test_no_number_of_attempts_is_too_large_for_the_arithmetic():
    """2 ** 60 is the largest power that is taken; without that limit a float overflows at the 1025th attempt."""
    endless = Retry(attempts=10**9, wait=1.0, longest=float("inf"))
    assert endless.pause(61) == endless.pause(62) == endless.pause(10**9) == 2.0**60
    assert endless.pause(60) == 2.0**59


def test_there_is_a_next_attempt_until_all_are_used():
    assert [Retry(attempts=3).left(attempt) for attempt in (1, 2, 3, 4)] == [True, True, False, False]
    assert not ONCE.left(1)


def test_a_number_is_so_many_attempts_and_nothing_is_one():
    assert as_retry(None) is ONCE and ONCE.attempts == 1
    assert as_retry(5) == Retry(attempts=5)
    mine = Retry(2, 0.0, 0.0, 0.0)
    assert as_retry(mine) is mine


NAN = float("nan")
NO_NUMBER: Any = "3"


@pytest.mark.parametrize("seconds", [1e12, -1e12, 1e300, NAN, float("inf"), "3", None])
def test_a_time_that_there_is_not_is_refused(seconds):
    with pytest.raises(UsageError, match="No time is") as refused:
        later(AT, seconds)
    assert refused.value.advice == "Give a number of seconds that ends before the year 9999."


@pytest.mark.parametrize(
    "value", ["3", 2.0, (3, 1.0), Retry(2, NAN), Retry(NO_NUMBER), Retry(2, NO_NUMBER), Retry(2, 1.0, NAN)]
)
def test_what_is_no_number_of_attempts_or_seconds_is_refused(value):
    with pytest.raises(UsageError, match="cannot be followed") as refused:
        as_retry(value)
    assert refused.value.advice == "`retry` is a number of attempts, or a Retry."


@pytest.mark.parametrize("value", [0, -1, Retry(attempts=0), Retry(wait=-1), Retry(factor=-0.5), Retry(longest=-1)])
def test_what_cannot_be_followed_is_refused(value):
    with pytest.raises(UsageError, match="at least one attempt, and no negative waits") as refused:
        as_retry(value)
    assert "Retry(attempts=" in str(refused.value)


def test_a_budget_that_says_nothing_limits_nothing():
    assert Budget() == (None, None, None, None)
    assert Budget(1, 2.0, 3, 4.0)._asdict() == {"attempts": 1, "seconds": 2.0, "tokens": 3, "money": 4.0}


# --- times


def test_times_are_text_in_utc_with_microseconds():
    assert text_of(datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)) == AT
    assert text_of(datetime(2026, 1, 2, 5, 4, 5, 6, tzinfo=timezone(timedelta(hours=2)))) == AT
    assert time_of(AT) == datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    assert time_of("2026-01-02T05:04:05.000006+02:00").tzinfo is UTC
    assert text_of(time_of(AT)) == AT


@pytest.mark.parametrize("text", ["", "soon", "9" * 5000, "2026-99-99T00:00:00Z", "0001-01-01T00:00:00+14:00", "a\0b"])
def test_what_is_no_time_is_refused_in_words(text):
    with pytest.raises(BadInput, match="is no time"):
        seconds_until(AT, text)


@pytest.fixture
def far_from_utc(monkeypatch):
    monkeypatch.setenv("TZ", "XYZ-09")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("far_from_utc")
def test_the_zone_of_the_machine_is_no_matter():
    assert datetime.now().astimezone().utcoffset() == timedelta(hours=9)
    assert text_of(datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)) == later(AT, 0) == AT
    assert seconds_until(AT, "2026-01-02T05:04:05.000006+02:00") == 0.0


def test_later_is_so_many_seconds_later():
    assert later(AT, 0) == AT
    assert later(AT, 1.5) == "2026-01-02T03:04:06.500006Z"
    assert later(AT, 86_400) == "2026-01-03T03:04:05.000006Z"
    assert later(AT, -5) == "2026-01-02T03:04:00.000006Z"


def test_seconds_until_a_moment_are_negative_once_it_is_over():
    assert seconds_until(AT, "2026-01-02T03:05:05.000006Z") == 60.0
    assert seconds_until(AT, AT) == 0.0
    assert seconds_until("2026-01-02T03:05:05.000006Z", AT) == -60.0


@given(st.integers(-(10**9), 10**9))
def test_what_is_later_by_so_much_is_so_much_away(milliseconds):
    assert seconds_until(AT, later(AT, milliseconds / 1000)) == pytest.approx(milliseconds / 1000, abs=1e-6)

"""Trying again without a person: only where the registry allows it, slower each time, never in a loop."""

import pytest

from holdfast.core.auto_resume import Halt, No, Wait, next_try
from holdfast.core.stops import Limits, all_stops

LIMITS = Limits(max_resumes=3)


def at(seconds: int) -> str:
    return f"2026-01-01T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.000000Z"


def stalls(*places: str) -> list[Halt]:
    return [Halt("stalled", at(1000 * number), place) for number, place in enumerate(places)]


@pytest.mark.parametrize("stop", all_stops(), ids=lambda stop: stop.code)
def test_only_what_the_registry_allows(stop):
    found = next_try([Halt(stop.code, at(0), "a")], LIMITS, at(0))
    assert isinstance(found, Wait) == stop.auto_resumable
    assert stop.auto_resumable or (isinstance(found, No) and found.outcome == "skipped")


def test_delays_grow_and_then_it_is_over():
    found = [next_try(stalls(*"abcd"[:count]), LIMITS, at(1000 * (count - 1))) for count in (1, 2, 3, 4)]
    assert [one.seconds for one in found[:3] if isinstance(one, Wait)] == [30.0, 120.0, 300.0]
    assert isinstance(found[3], No) and found[3].outcome == "exhausted"


def test_the_same_reason_at_the_same_place_is_a_loop():
    found = next_try(stalls("a", "a"), LIMITS, at(1000))
    assert isinstance(found, No) and found.outcome == "loop_detected"
    assert found.why == "stalled came 2 times at the same place."
    assert isinstance(next_try(stalls("a", "b"), LIMITS, at(1000)), Wait)


def test_time_that_has_passed_is_not_waited_again():
    halts = stalls("a")
    assert [next_try(halts, LIMITS, at(later))[0] for later in (10, 29, 500)] == [20.0, 1.0, 0.0]


def test_a_clock_that_went_back_waits_no_longer():
    assert next_try([Halt("stalled", at(500), "a")], LIMITS, at(0))[0] == 30.0


def test_a_usage_limit_is_waited_for_until_it_resets_and_costs_nothing():
    limit = Halt("quota_wait", at(0), "a", due=at(7200))
    assert next_try([limit], Limits(max_resumes=0), at(200)) == Wait(7000.0, "Waiting for a usage limit to reset.")
    again = limit._replace(at=at(7200), due=at(9000))
    assert next_try([limit, again], Limits(max_resumes=0), at(7200))[0] == 1800.0
    assert next_try([limit, *stalls("a")], LIMITS, at(0))[0] == 30.0


def test_a_limit_whose_end_is_unknown_or_over_is_tried_more_and_more_slowly():
    waits = [Halt("quota_wait", at(1000 * number), "a") for number in range(5)]
    assert [next_try(waits[: count + 1], LIMITS, at(1000 * count))[0] for count in range(5)] == [30, 120, 300, 300, 300]
    over = [Halt("quota_wait", at(1000 * number), "a", due=at(0)) for number in range(2)]
    assert next_try(over, LIMITS, at(1060))[0] == 60.0
    assert next_try([*stalls("b"), waits[1]], LIMITS, at(1000))[0] == 30.0
    assert next_try(waits[:1], Limits(delays=()), at(0))[0] == 0.0


def test_a_limit_that_resets_within_a_second_is_waited_for_until_then():
    assert next_try([Halt("quota_wait", at(0), "a", due=at(1))], LIMITS, at(0))[0] == 1.0


def test_a_wait_of_unknown_length_that_is_over_is_not_waited_again():
    assert next_try([Halt("quota_wait", at(0), "a")], LIMITS, at(500))[0] == 0.0

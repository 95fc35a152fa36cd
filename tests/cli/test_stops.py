"""`holdfast stops` prints the registry and nothing but the registry."""

from __future__ import annotations

from holdfast.core import stops


def test_every_stop_is_listed(holdfast):
    out = holdfast("stops").out
    for stop in stops.all_stops():
        assert stop.code in out and stop.title in out


def test_the_json_is_the_registry(holdfast):
    data = holdfast("stops", "--json").data
    assert data["schema_version"] == 1
    assert {row["code"]: row["exit_code"] for row in data["stops"]} == {s.code: s.exit_code for s in stops.all_stops()}


def test_a_reason_an_alias_and_an_exit_code_name_the_same_stop(holdfast):
    for name in ("timeout", "time_budget_exceeded", "124"):
        assert holdfast("stops", name, "--json").data["stop"]["code"] == "timeout"
    assert "time_budget_exceeded" in holdfast("stops", "timeout").out


def test_an_unknown_reason_is_not_found(holdfast):
    answer = holdfast("stops", "no_such_reason")
    assert answer.code == stops.exit_code("not_found") == 66
    assert "no_such_reason" in answer.err


def test_it_needs_no_store(holdfast):
    assert holdfast("stops").code == 0
    assert not holdfast.place.parent.exists()

"""The values that stores and engine exchange: what they say when nothing is said, and how they name themselves."""

from __future__ import annotations

from holdfast.core.values import Answer, Message, Owner, Projection


def test_an_owner_is_named_by_process_and_host():
    assert str(Owner("build-3", "b00t", 4711, "2026-01-02T03:04:05Z")) == "process 4711 on build-3"


def test_a_run_of_which_nothing_is_known_is_ready_and_has_nothing_open():
    assert Projection() == ("", "", "ready", None, 0, 0, 0)


def test_an_answer_needs_no_evidence():
    assert Answer("unknown") == ("unknown", "", None)
    assert Message(1, "cancel", "me") == (1, "cancel", "me")

"""`holdfast fork`: a new run that can go on, made of the first events of another, which is the same before and after."""

from __future__ import annotations

import json
import sys

import pytest

from tests.cli.test_errors import understood


def log_of(holdfast, run_id):
    return [json.loads(line) for line in holdfast("log", run_id, "--json").out.splitlines()]


@pytest.mark.parametrize("ending", ["finished", "stopped", "open", ""])
def test_a_fork_can_go_on_however_the_original_ended(holdfast, make_run, ending):
    make_run("run-1", ending=ending)
    before, head = log_of(holdfast, "run-1"), holdfast("status", "run-1", "--json").data
    document = holdfast("fork", "run-1", "--as", "second", "--json").data
    assert log_of(holdfast, "run-1") == before
    assert holdfast("status", "run-1", "--json").data == head
    rest = 1 if ending in ("finished", "stopped") else 0
    assert document == {
        "schema_version": 1,
        "run_id": "second",
        "forked_from": "run-1",
        "forked_at": len(before),
        "events": len(before) - rest + 1,
        "effects_open": ["mail-1"] if ending == "open" else [],
        "effects_after": [],
        "next_actions": ["holdfast resume second"],
    }
    first = log_of(holdfast, "second")[0]
    assert (first["body"]["forked_from"], first["body"]["forked_at"]) == ("run-1", len(before))
    assert holdfast("status", "second", "--json").data["run"]["resumable"]
    assert holdfast("verify").code == 0
    understood(document["next_actions"][0])
    assert holdfast("resume", "second", "--", sys.executable, "-c", "").code == 0


def test_text_says_the_same_and_a_fresh_id_is_given(holdfast, make_run):
    make_run("run-1", ending="open")
    answer = holdfast("fork", "run-1")
    assert (answer.code, answer.err) == (0, "")
    said, still_open, following = answer.out.splitlines()
    run_id = said.split()[1]
    assert len(run_id) == 36
    assert said == f"Run {run_id} is here now, with 7 events, from run run-1 up to its event 6."
    assert still_open == "Open in it: mail-1."
    assert following == f"  holdfast resume {run_id}"


def test_a_fork_begins_where_it_is_told_to(holdfast, make_run):
    make_run("run-1", ending="finished")
    holdfast("fork", "run-1", "--at", "3", "--as", "second")
    kinds = [event["kind"] for event in log_of(holdfast, "second")]
    assert kinds == ["run_started", "step_started", "step_finished", "run_stopped"]


def test_a_fresh_fork_is_said_to_be_one_and_not_to_be_interrupted(holdfast, make_run):
    make_run("run-1", ending="finished")
    holdfast("fork", "run-1", "--at", "3", "--as", "second")
    shown = holdfast("status", "second", "--json").data["run"]
    assert (shown["status"], shown["stop_reason"], shown["resumable"]) == ("stopped", "forked", True)
    (listed,) = holdfast("resume", "--json").data["unfinished"]
    assert (listed["run_id"], listed["reason"]) == ("second", "forked")
    plan = holdfast("resume", "second", "--plan", "--json").data["plan"]
    assert (plan["verdict"], plan["stop_reason"]) == ("go", "forked")
    assert plan["diagnosis"] == "Made of run run-1 up to its event 3; it has not gone on yet."
    everything = [holdfast(*words).out for words in (["status"], ["status", "second"], ["resume"], ["doctor"])]
    assert not any("interrupted" in text for text in everything)


def test_what_the_original_did_after_the_event_is_named(holdfast, make_run):
    make_run("run-1", ending="open")
    begun = next(event["seq"] for event in log_of(holdfast, "run-1") if event["kind"] == "effect_started")
    named = holdfast("fork", "run-1", "--at", str(begun - 1), "--as", "second").out.splitlines()[1]
    assert named == f"Begun by the original after event {begun - 1}; the fork does them again: mail-1."


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["run-1", "--at", "7"], 66),
        (["run-1", "--at", "0"], 64),
        (["run-1", "--at", "-1"], 64),
        (["run-1", "--at", "x"], 64),
        (["run-1", "--at", str(10**30)], 66),
        (["run-1", "--as", "../x"], 65),
        (["run-1", "--as", ""], 65),
        (["run-1", "--as", "run-2"], 65),
        (["nobody"], 66),
    ],
)
def test_what_cannot_be_forked_is_refused_and_nothing_is_made(holdfast, make_run, arguments, code):
    make_run("run-1")
    make_run("run-2")
    before = holdfast("status", "--json").data["runs"]
    answer = holdfast("fork", *arguments)
    assert answer.code == code, answer
    assert len(answer.err.splitlines()) == 2
    after = holdfast("status", "--json").data["runs"]
    assert after == before


def test_no_store_is_made(holdfast):
    assert holdfast("fork", "run-1").code == 66
    assert not holdfast.place.parent.exists()

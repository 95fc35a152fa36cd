"""`holdfast cancel`: a live run hears it at its next boundary, any other is cancelled at once, and neither goes on again."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from holdfast.core import stops
from tests.cli.test_errors import understood

LIVE = """
import sys, time, holdfast
with holdfast.run("pipeline", run_id="run-1") as run:
    print("ready", flush=True)
    for number in range(3000):
        run.step(f"step-{number}", time.sleep, 0.02)
"""


def kinds(holdfast):
    return [line.split()[3] for line in holdfast("log", "run-1").out.splitlines()]


@pytest.mark.parametrize(
    ("ending", "written"),
    [
        ("", ["cancel_requested", "run_stopped"]),
        ("stopped", ["run_resumed", "cancel_requested", "run_stopped"]),
        ("open", ["cancel_requested", "run_stopped"]),
    ],
)
def test_a_run_that_nobody_holds_is_cancelled_at_once(holdfast, make_run, ending, written):
    make_run("run-1", ending=ending)
    before = len(kinds(holdfast))
    answer = holdfast("cancel", "run-1", "--because", "the order was withdrawn")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("Run run-1 is cancelled.\n")
    assert kinds(holdfast)[before:] == written
    run = holdfast("status", "run-1", "--json").data["run"]
    assert (run["stop_reason"], run["resumable"]) == ("cancelled", False)
    assert "the order was withdrawn" in holdfast("show", "run-1").out


def test_effects_without_an_outcome_are_named_with_the_commands_that_settle_them(holdfast, make_run):
    make_run("run-1", ending="open")
    document = holdfast("cancel", "run-1", "--json").data
    assert (document["recorded"], document["open"]) == (True, ["mail-1"])
    for line in document["next_actions"]:
        understood(line)
    assert document["next_actions"][1] == "holdfast settle run-1 --done mail-1"
    assert holdfast("settle", "run-1", "mail-1", "--done").code == 0


@pytest.mark.parametrize("first", ["finished", "cancelled"])
def test_what_has_ended_is_left_alone(holdfast, make_run, first):
    make_run("run-1", ending="finished" if first == "finished" else "stopped")
    if first == "cancelled":
        assert holdfast("cancel", "run-1").code == 0
    before = kinds(holdfast)
    answer = holdfast("cancel", "run-1", "--json")
    assert answer.code == stops.exit_code("not_resumable") == 63
    assert answer.data["error"]["reason"] == "not_resumable"
    assert "has ended already" in answer.err and first in answer.err
    assert kinds(holdfast) == before


def test_a_live_run_stops_within_about_a_second(holdfast):
    process = subprocess.Popen(
        [sys.executable, "-c", LIVE],
        env=holdfast.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == "ready\n"
        answer = holdfast("cancel", "run-1", "--because", "enough")
        began = time.monotonic()
        assert answer.code == 0 and "is held; it stops at its next step or effect" in answer.out
        assert process.wait(60) == stops.exit_code("cancelled")
        assert time.monotonic() - began < 10  # a busy machine; the run itself looks four times a second
    finally:
        process.kill()
        process.communicate()
    assert kinds(holdfast)[-2:] == ["cancel_requested", "run_stopped"]
    assert "enough" in holdfast("show", "run-1").out
    assert holdfast("resume", "run-1", "--", "true").code == 63


def test_a_message_is_reported_as_one(holdfast, writer):
    writer("run-1")
    document = holdfast("cancel", "run-1", "--json").data
    assert (document["recorded"], document["message_id"], document["open"]) == (False, 1, [])
    assert document["next_actions"] == ["holdfast log run-1 -f"]


def test_no_store_and_no_run_are_made(holdfast, make_run):
    assert holdfast("cancel", "run-1").code == 66
    assert not holdfast.place.parent.exists()
    make_run("run-2")
    assert holdfast("cancel", "run-1").code == 66
    assert holdfast("status", "run-1").code == 66


def test_a_reason_that_is_no_text_is_refused(holdfast, make_run):
    make_run("run-1")
    assert holdfast("cancel", "run-1", "--because", "\udcff").code == 65
    assert holdfast("cancel", "run-1", "--because", "x" * 100_000).code == 0

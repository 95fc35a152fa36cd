"""`holdfast answer`: recorded if nobody holds the run, left for it if somebody does; a terminal is asked, a pipe is not."""

from __future__ import annotations

import io
import os
import pty
import select
import shlex
import subprocess
import sys
import time
from contextlib import closing

import pytest

from holdfast import app
from holdfast.adapters import terminal
from holdfast.core import stops
from holdfast.core.events import QuestionAsked, RunStopped
from holdfast.engine.log import read_state
from tests.cli.test_errors import understood

COLOUR = QuestionAsked(question_id="colour", text="Which \x1b[31mcolour?", choices=("red", "blue"))
SIZE = QuestionAsked(question_id="size", text="Which size?")
LATE = QuestionAsked(question_id="late", text="Now?", deadline="2020-01-01T00:00:00.000000Z")
WAITS = RunStopped(reason="awaiting_answer")
PIPELINE = """
import sys, holdfast
with holdfast.run("pipeline", run_id="run-1") as run:
    print(run.ask("Go on?", ["yes", "no"], name="go"))
"""
LIVE = """
import sys, time, holdfast
with holdfast.run("pipeline", run_id="run-1", prompt=lambda text, choices: None) as run:
    from holdfast.core.events import QuestionAsked
    run._book.record(QuestionAsked(question_id="go", text="Go on?"))
    print("ready", flush=True)
    for number in range(3000):
        run.step(f"wait-{number}", time.sleep, 0.02)
        if run.state.questions["go"].answer is not None:
            break
    print(run.ask("Go on?", name="go"), flush=True)
"""


AT_A_TERMINAL = """
import holdfast
with holdfast.run("pipeline", run_id="run-1") as run:
    print("said", run.ask("Publish?", ["red", "blue"]{more}), flush=True)
    print("said", run.ask("Really?", ["red", "blue"]), flush=True)
"""
LATE_AT_A_TERMINAL = """
import subprocess, sys, time, holdfast
def prompt(question, choices):
    subprocess.run([sys.executable, "-m", "holdfast", "answer", "run-1", "red"], check=True)
    time.sleep({late})
    return {typed!r}
with holdfast.run("pipeline", run_id="run-1", prompt=prompt) as run:
    print("said", run.ask("Publish?", ["red", "blue"], timeout={timeout}))
"""


@pytest.fixture
def write(holdfast):
    def write(*events, run_id="run-1"):
        with (
            closing(app.open_store(str(holdfast.place))) as store,
            app.start_run(store, "mission", run_id=run_id) as log,
        ):
            log.record(*events)

    return write


def answers(holdfast):
    with closing(app.open_store(str(holdfast.place), read_only=True)) as store:
        return {name: asked.answer for name, asked in read_state(store, "run-1").questions.items()}


def test_an_answer_is_recorded_and_says_how_to_go_on(holdfast, write):
    write(COLOUR, WAITS)
    answer = holdfast("answer", "run-1", "blue")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == "The answer to colour is recorded.\n  holdfast resume run-1 -- COMMAND\n"
    understood(answer.out.splitlines()[-1].strip())
    assert answers(holdfast) == {"colour": "blue"}


def test_json_reports_the_same(holdfast, write):
    write(COLOUR, WAITS)
    document = holdfast("answer", "run-1", "red", "--json").data
    assert document == {
        "schema_version": 1,
        "run_id": "run-1",
        "question_id": "colour",
        "recorded": True,
        "message_id": None,
        "next_actions": ["holdfast resume run-1 -- COMMAND"],
    }


def test_one_of_several_is_named(holdfast, write):
    write(COLOUR, SIZE)
    answer = holdfast("answer", "run-1", "9")
    assert answer.code == stops.exit_code("ambiguous_id") and "'colour', 'size'" in answer.err
    assert holdfast("answer", "run-1", "9", "--question", "si").out.splitlines()[-1] == "  holdfast resume run-1"
    assert answers(holdfast) == {"colour": None, "size": "9"}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["green", "--question", "colour"], "bad_input"),
        (["", "--question", "size"], "bad_input"),
        (["\udcff", "--question", "size"], "bad_input"),
        (["x", "--question", "nobody"], "not_found"),
        (["x", "--question", "late"], "deadline_passed"),
        (["--question", "colour"], "usage_error"),
        (["x" * 70_000, "--question", "size"], "too_large"),
    ],
)
def test_what_is_no_answer_is_refused_and_nothing_is_written(holdfast, write, arguments, reason):
    write(COLOUR, SIZE, LATE)
    answer = holdfast("answer", "run-1", *arguments)
    assert answer.code == stops.exit_code(reason), answer
    assert len(answer.err.splitlines()) == 2 and "Traceback" not in answer.err and "\x1b" not in answer.err
    assert answers(holdfast) == {"colour": None, "size": None, "late": None}


def test_a_run_that_asks_nothing_is_not_answered(holdfast, make_run):
    make_run("run-1")
    answer = holdfast("answer", "run-1", "yes")
    assert answer.code == 66 and "holdfast resume run-1 --plan" in answer.err
    assert holdfast("answer", "nobody", "yes").code == 66


def test_no_store_is_made(holdfast):
    assert holdfast("answer", "run-1", "yes").code == 66
    assert not holdfast.place.parent.exists()


def typed(holdfast, lines, *arguments, program=("-m", "holdfast")):
    """What a command shows on a terminal on which a person types these lines, one at each question, and its exit code.

    In the place of a line, what another process does then.
    """
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, *program, *arguments],
        env=holdfast.environment(NO_COLOR="1"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=holdfast.home,
        start_new_session=True,
    )
    os.close(theirs)
    shown, waiting, until = b"", list(lines), time.monotonic() + 60
    try:
        while time.monotonic() < until:
            ready, _, _ = select.select([ours], [], [], 0.1)
            piece = read(ours) if ready else b""
            shown += piece
            if waiting and shown.count(b"(red / blue) ") > len(lines) - len(waiting):
                line = waiting.pop(0)
                os.write(ours, line if isinstance(line, bytes) else line())
            if ready and not piece:
                break
        return process.wait(60), shown.decode()
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def read(fd):
    try:
        return os.read(fd, 65536)
    except OSError:
        return b""


def test_on_a_terminal_the_question_is_asked_until_the_answer_is_a_choice(holdfast, write):
    write(COLOUR, WAITS)
    code, shown = typed(holdfast, [b"green\n", b"\n", b" blue \n"], "answer", "run-1")
    assert code == 0, shown
    assert "Which ?[31mcolour?" in shown and "\x1b[31m" not in shown
    assert answers(holdfast) == {"colour": "blue"}


def test_a_person_who_does_not_answer_has_not_answered(holdfast, write):
    write(COLOUR, WAITS)
    code, shown = typed(holdfast, [b"\x04"], "answer", "run-1")
    assert code == 64 and "No answer was given" in shown
    assert answers(holdfast) == {"colour": None}


def test_a_pipeline_that_asked_goes_on_with_the_answer(holdfast, tmp_path):
    script = tmp_path / "pipeline.py"
    script.write_text(PIPELINE)
    with closing(app.open_store(str(holdfast.place))) as store:
        app.start_run(store, "pipeline", run_id="run-1").close()
    go_on = ["resume", "run-1", "--", sys.executable, str(script)]
    assert holdfast(*go_on).code == stops.exit_code("awaiting_answer")
    advice = holdfast("status", "run-1", "--json").data["run"]["next_actions"]
    assert advice[:2] == [f"holdfast answer run-1 --question=go {choice}" for choice in ("yes", "no")]
    assert holdfast(*shlex.split(advice[0])[1:]).code == 0
    answer = holdfast(*go_on)
    assert (answer.code, answer.out) == (0, "yes\n"), answer


def test_a_live_run_hears_the_answer(holdfast):
    process = subprocess.Popen(
        [sys.executable, "-c", LIVE], env=holdfast.environment(), stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "ready\n"
        document = holdfast("answer", "run-1", "certainly", "--json").data
        assert (document["recorded"], document["message_id"]) == (False, 1)
        assert document["next_actions"] == ["holdfast log run-1 -f"]
        assert process.stdout.readline() == "certainly\n"
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()
    assert answers(holdfast) == {"go": "certainly"}
    line = next(line for line in holdfast("log", "run-1").out.splitlines() if "question_answered" in line)
    assert "certainly" in line and "person" in line


def kinds(holdfast):
    with closing(app.open_store(str(holdfast.place), read_only=True)) as store:
        return [record.kind for record in store.read("run-1")]


def elsewhere(holdfast, *words):
    """What another process does while the terminal waits; nothing is typed."""

    def act():
        assert holdfast(*words).code == 0
        return b""

    return act


@pytest.mark.parametrize("more", ["", ", timeout=30"])
def test_a_run_that_waits_at_a_terminal_hears_an_answer_from_elsewhere(holdfast, more):
    began = time.monotonic()
    lines = [elsewhere(holdfast, "answer", "run-1", "red"), b"blue\n"]
    code, shown = typed(holdfast, lines, program=("-c", AT_A_TERMINAL.format(more=more)))
    assert (code, shown.count("said red"), shown.count("said blue")) == (0, 1, 1), shown
    assert time.monotonic() - began < 25
    assert answers(holdfast) == {"Publish?": "red", "Really?": "blue"}
    assert kinds(holdfast)[1:5] == ["question_asked", "question_answered"] * 2


def test_a_run_that_waits_at_a_terminal_is_cancelled_from_elsewhere(holdfast):
    code, _ = typed(holdfast, [elsewhere(holdfast, "cancel", "run-1")], program=("-c", AT_A_TERMINAL.format(more="")))
    assert code == stops.exit_code("cancelled")
    assert kinds(holdfast)[-2:] == ["cancel_requested", "run_stopped"]


@pytest.mark.parametrize(("late", "typed", "timeout"), [(0, "blue", 60), (0, None, 60), (5.1, None, 5)])
def test_an_answer_that_was_left_in_time_counts_before_what_is_typed_and_before_the_deadline(
    holdfast, late, typed, timeout
):
    script = LATE_AT_A_TERMINAL.format(late=late, typed=typed, timeout=timeout)
    done = subprocess.run(
        [sys.executable, "-c", script], env=holdfast.environment(), capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["said red"]), done.stdout + done.stderr
    assert answers(holdfast) == {"Publish?": "red"}
    assert "question_expired" not in kinds(holdfast)


def test_what_is_called_into_a_question_and_is_no_answer_to_it_leaves_it_open(holdfast):
    """The run is called for an answer to another question, and asks its own again."""

    def other():
        with closing(app.open_store(str(holdfast.place))) as store:
            store.post("run-1", "answer", '["nobody", "red", "person"]')
        return b""

    code, shown = typed(holdfast, [other, b"red\n", b"blue\n"], program=("-c", AT_A_TERMINAL.format(more="")))
    assert (code, shown.count("Publish? (red / blue)")) == (0, 2), shown
    assert answers(holdfast) == {"Publish?": "red", "Really?": "blue"}


def test_what_stands_for_a_terminal_and_is_no_file_is_read_as_it_is(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("green\nblue\n"))
    assert terminal.prompt("Which?", ["red", "blue"], None, lambda: False) == "blue"

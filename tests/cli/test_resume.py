"""`holdfast resume`: what is unfinished, what would be done, and the one command it starts, which only a person can name."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import time
from contextlib import closing

import pytest

from holdfast import app
from holdfast.cli.main import perform
from holdfast.core import stops
from holdfast.core.events import (
    DriftFound,
    EffectFinished,
    EffectStarted,
    QuestionAsked,
    RunResumed,
    RunStopped,
    StepFailed,
    StepFinished,
    StepStarted,
)
from tests.cli.test_errors import understood
from tests.cli.test_reads_never_write import picture

SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"
PIPELINE = """
import os, sys, time
import holdfast
from holdfast.core.stops import exit_code

def work(name):
    with open(sys.argv[1], "a") as file:
        file.write(name + "\\n")
    return name

try:
    with holdfast.run("pipeline") as run:
        run.step("first", work, "first")
        print("first", flush=True)
        while len(sys.argv) > 2 and not os.path.exists(sys.argv[2]):
            time.sleep(0.01)
        run.step("second", work, "second")
except holdfast.HoldfastError as error:
    print(error, file=sys.stderr)
    sys.exit(exit_code(error.reason))
"""
PARTS = (
    StepStarted(step_id="a"),
    StepFinished(step_id="a", output=1),
    StepStarted(step_id="b"),
    StepFailed(step_id="b", error="no \x1b[31mway"),
    EffectStarted(effect_key="k 1", step_id="pay"),
    EffectStarted(effect_key="done", step_id="mail"),
    EffectFinished(effect_key="done"),
    QuestionAsked(question_id="colour", text="Which?", choices=("red", "blue")),
    RunStopped(reason="effect_unknown", diagnosis="old"),
    RunResumed(),
    DriftFound(drift="arguments", subject="b", verdict="refuse", was="1234", now="5678"),
    RunStopped(reason="input_changed", diagnosis="b was given something else"),
)


@pytest.fixture
def write(holdfast):
    def write(run_id, *events):
        with (
            closing(app.open_store(str(holdfast.place))) as store,
            app.start_run(store, "mission", run_id=run_id) as log,
        ):
            log.record(*events)

    return write


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "pipeline.py"
    path.write_text(PIPELINE)
    return str(path)


def python(*arguments):
    return ["--", sys.executable, "-c", SHOW, *arguments]


def advised(text):
    return [line.strip() for line in text.splitlines() if line.startswith("  holdfast ")]


# --- what is unfinished


def test_without_a_store_nothing_is_unfinished_and_nothing_is_made(holdfast):
    answer = holdfast("resume")
    assert (answer.code, answer.out, answer.err) == (0, "Nothing is unfinished here.\n", "")
    assert holdfast("resume", "--json").data["unfinished"] == []
    assert not holdfast.place.parent.exists()


def test_a_finished_run_is_not_listed(holdfast, make_run):
    make_run("run-1", ending="finished")
    assert holdfast("resume").out == "Nothing is unfinished here.\n"


def test_what_is_unfinished_is_listed_with_owner_reason_and_next_command(holdfast, make_run, writer):
    make_run("stopped-1")
    make_run("broken-1", ending="")
    make_run("finished-1", ending="finished")
    process = writer("live-1")
    data = {run["run_id"]: run for run in holdfast("resume", "--json").data["unfinished"]}
    assert set(data) == {"stopped-1", "broken-1", "live-1"}
    shown = {
        run_id: (run["status"], run["reason"], run["held"], run["resumable"], run["next"])
        for run_id, run in data.items()
    }
    assert shown == {
        "stopped-1": ("stopped", "awaiting_answer", False, True, "holdfast resume stopped-1"),
        "broken-1": ("interrupted", "interrupted", False, True, "holdfast resume broken-1"),
        "live-1": ("running", None, True, False, "holdfast log live-1 -f"),
    }
    assert data["live-1"]["owner"]["pid"] == process.pid
    lines = holdfast("resume").out.splitlines()
    assert len(lines) == 1 + len(data)
    for run_id, run in data.items():
        (line,) = [line for line in lines if line.startswith(run_id)]
        facts = [run["mission_id"], run["status"], run["reason"] or "", run["next"]]
        assert all(fact in line for fact in facts)
        assert (f"process {process.pid} on " in line) == run["held"]
        understood(run["next"])


def test_runs_that_ended_for_good_are_only_counted(holdfast, make_run, write):
    make_run("run-1")
    write("run-2", RunStopped(reason="cancelled"))
    data = holdfast("resume", "--json").data
    assert ([run["run_id"] for run in data["unfinished"]], data["ended"]) == (["run-1"], 1)
    out = holdfast("resume").out
    assert "run-2" not in out and "Ended for good without being finished: 1." in out


# --- the plan


@pytest.mark.parametrize("arguments", [["--plan"], [], ["--plan", "--", "no-such-command"]])
def test_text_and_json_of_a_plan_carry_the_same_facts(holdfast, write, arguments):
    write("run-1", *PARTS)
    text = holdfast("resume", "run-1", *arguments).out
    document = holdfast("resume", "run-1", "--json", *arguments).data
    plan = document["plan"]
    assert [(row["kind"], row["name"], row["move"]) for row in plan["rows"]] == [
        ("step", "a", "replay"),
        ("step", "b", "run"),
        ("effect", "k 1", "blocked"),
        ("effect", "done", "replay"),
        ("question", "colour", "ask"),
    ]
    lines = text.splitlines()
    for row in plan["rows"]:
        words = [row["move"], row["kind"], row["name"], row["reason"].replace("\x1b", "?")]
        assert any(all(word in line for word in words) for line in lines), row
    for name in ("run_id", "mission_id", "plan_id", "stop_reason", "diagnosis"):
        assert plan[name] in text
    assert f"{plan['verdict']}: {plan['why']}" in text
    assert plan["verdict"] == "ask" and plan["events"] == 1 + len(PARTS)
    assert plan["drift"] == [
        {"drift": "arguments", "subject": "b", "verdict": "refuse", "was": "1234", "now": "5678", "by": "policy"}
    ]
    assert "arguments of b changed (1234 -> 5678); decided: refuse, by policy" in text
    assert advised(text) == document["next_actions"]
    assert "\x1b" not in text


def test_a_gate_that_blocks_is_in_the_plan_and_opens_under_the_id_of_that_plan(holdfast, make_run):
    make_run("run-1", steps=0, ending="", mission="demo")
    gated = "import holdfast, sys; conflicts = [holdfast.Conflict('term', 'high')] * int(sys.argv[1])\n"
    gated += "with holdfast.run('demo') as run: run.gate('post_gate', conflicts)"
    go_on = ["--", sys.executable, "-c", gated]
    assert "closed by 1 conflict" in holdfast("resume", "run-1", *go_on, "1").err
    plan = holdfast("resume", "run-1", "--plan", "--json").data["plan"]
    row = plan["rows"][-1]
    assert (row["kind"], row["name"], row["move"]) == ("gate", "post_gate", "blocked")
    assert (plan["verdict"], plan["why"]) == ("ask", "a person is needed for gate post_gate")
    lines = holdfast("resume", "run-1", "--plan").out.splitlines()
    assert any(all(word in line for word in row.values()) for line in lines)
    assert holdfast("resume", "run-1", "--approve", plan["plan_id"], *go_on, "0").code == 0


def test_the_commands_in_a_plan_parse_and_lead_on(holdfast, write):
    write("run-1", *PARTS)
    document = holdfast("resume", "run-1", "--json").data
    assert document["next_actions"][0] == "holdfast resume run-1 -- COMMAND"
    quoted = [line for row in document["plan"]["rows"] for line in row["reason"].split("`")[1::2]]
    assert len(quoted) == 5
    for line in [*document["next_actions"], *quoted]:
        understood(line)
    settle = next(line for line in quoted if "--not-done" in line)
    assert holdfast(*shlex.split(settle)[1:]).code == 0
    rows = holdfast("resume", "run-1", "--json").data["plan"]["rows"]
    assert [row["move"] for row in rows if row["name"] == "k 1"] == ["run"]


def test_a_plan_writes_nothing(holdfast, write):
    write("run-1", *PARTS)
    before = picture(holdfast.place.parent)
    for arguments in (["--plan"], ["--plan", "--json"], [], ["--plan", "--", sys.executable, "-c", "1/0"]):
        assert holdfast("resume", "run-1", *arguments).code == 0
        assert picture(holdfast.place.parent) == before
    assert list(holdfast.home.iterdir()) == []


@pytest.mark.parametrize(("by", "helps"), [("nobody to ask", True), ("asked", True), ("policy", False)])
def test_a_change_that_nobody_accepted_comes_with_the_command_that_does_and_with_short_hashes(
    holdfast, write, by, helps
):
    found = DriftFound(drift="inputs", subject="the run", verdict="refuse", was="1" * 16, now="2" * 64, by=by)
    write("run-1", found, RunStopped(reason="input_changed"))
    document, text = holdfast("resume", "run-1", "--json").data, holdfast("resume", "run-1").out
    assert ("holdfast resume run-1 --yes -- COMMAND" in document["next_actions"]) == helps
    assert advised(text) == document["next_actions"]
    assert document["plan"]["drift"][0]["now"] == "2" * 16
    assert f"({'1' * 16} -> {'2' * 16})" in text
    for line in document["next_actions"]:
        understood(line)


def test_a_message_that_would_be_heard_first_is_named(holdfast, make_run):
    make_run("run-1")
    with closing(app.open_store(str(holdfast.place))) as store:
        store.post("run-1", "cancel", "enough")
    assert holdfast("resume", "run-1", "--json").data["plan"]["messages"] == [{"id": 1, "kind": "cancel"}]
    assert "Heard first: message 1, cancel." in holdfast("resume", "run-1").out


def test_the_plan_of_a_finished_run_refuses_and_going_on_is_refused(holdfast, make_run, tmp_path):
    make_run("run-1", ending="finished")
    document = holdfast("resume", "run-1", "--plan", "--json").data
    assert (document["plan"]["verdict"], document["plan"]["stop_reason"]) == ("refuse", "complete")
    for line in document["next_actions"]:
        understood(line)
    for arguments in ([], python()):
        answer = holdfast("resume", "run-1", *arguments)
        assert answer.code == stops.exit_code("not_resumable") == 63
        assert "it is finished" in answer.err and answer.out == ""


def test_a_cancelled_run_cannot_be_resumed(holdfast, make_run):
    make_run("run-1")
    assert holdfast("cancel", "run-1").code == 0
    answer = holdfast("resume", "run-1", *python())
    assert answer.code == 63 and "cancelled" in answer.err and answer.out == ""


def test_an_unknown_run_is_not_found(holdfast, make_run):
    make_run("run-1")
    assert holdfast("resume", "nobody").code == 66
    assert holdfast("resume", "nobody", *python()).code == 66


# --- starting


def test_a_mission_that_only_begins_like_one_of_a_command_goes_on_with_its_own_program(holdfast, make_run):
    make_run("run-1", mission="command.center")
    answer = holdfast("resume", "run-1", "--", sys.executable, "-c", "print('its own')")
    assert (answer.code, answer.out) == (0, "its own\n")


def test_the_command_is_told_which_run_and_which_store(holdfast, make_run):
    make_run("run-1", ending="")
    answer = holdfast("resume", "run-1", *python("a b", "--json", "$HOME", "*"))
    words, environ = json.loads(answer.out)
    assert words == ["a b", "--json", "$HOME", "*"]
    assert (environ["HOLDFAST_RUN"], environ["HOLDFAST_STORE"]) == ("run-1", str(holdfast.place))
    assert "HOLDFAST_YES" not in environ and "HOLDFAST_PLAN" not in environ


def test_yes_and_the_approved_plan_are_handed_on_and_an_old_approval_is_not(holdfast, make_run):
    make_run("run-1", ending="")
    plan_id = holdfast("resume", "run-1", "--json").data["plan"]["plan_id"]
    answer = holdfast("resume", "run-1", "--yes", "--approve", plan_id, *python(), HOLDFAST_PLAN="0" * 16)
    environ = json.loads(answer.out)[1]
    assert (environ["HOLDFAST_YES"], environ["HOLDFAST_PLAN"]) == ("1", plan_id)
    environ = json.loads(holdfast("resume", "run-1", *python(), HOLDFAST_PLAN=plan_id).out)[1]
    assert "HOLDFAST_PLAN" not in environ


def test_the_store_is_named_even_if_only_the_folder_said_where_it_is(holdfast, tmp_path):
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    (tmp_path / "repo" / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    place = tmp_path / "repo" / ".holdfast" / "holdfast.db"
    with closing(app.open_store(str(place))) as store:
        app.start_run(store, "mission", run_id="run-1").close()
    answer = holdfast("resume", *python(), cwd=tmp_path / "repo", HOLDFAST_STORE="")
    assert json.loads(answer.out)[1]["HOLDFAST_STORE"] == str(place)


def test_a_folded_id_is_handed_on_whole(holdfast, make_run):
    run_id = make_run(ending="")
    assert json.loads(holdfast("resume", run_id[-8:], *python()).out)[1]["HOLDFAST_RUN"] == run_id


def test_a_mission_is_named_for_its_newest_run_and_that_of_a_spec_only_where_its_spec_is(holdfast, make_run):
    for run_id, mission in (("run-1", "nightly"), ("run-2", "nightly"), ("run-3", "other"), ("run-4", "spec.auth")):
        make_run(run_id, mission=mission, ending="")
    assert holdfast("resume", "nightly", "--plan", "--json").data["plan"]["run_id"] == "run-2"
    assert json.loads(holdfast("resume", "nightly", *python()).out)[1]["HOLDFAST_RUN"] == "run-2"
    for text in ("auth", "spec.auth", "nobody", "no/body"):
        answer = holdfast("resume", text, *python())
        assert answer.code in (65, 66)
        assert ("No spec" in answer.err and "`holdfast resume run-4` goes on" in answer.err) == ("auth" in text)


def test_the_only_unfinished_run_needs_no_name(holdfast, make_run, write):
    make_run("run-1", ending="finished")
    make_run("run-2", ending="")
    write("run-3", RunStopped(reason="cancelled"))
    assert json.loads(holdfast("resume", *python()).out)[1]["HOLDFAST_RUN"] == "run-2"
    assert holdfast("resume", "--plan", "--json").data["plan"]["run_id"] == "run-2"


def test_without_a_name_exactly_one_run_must_be_unfinished(holdfast, make_run):
    make_run("run-1", ending="finished")
    answer = holdfast("resume", *python())
    assert answer.code == stops.exit_code("not_resumable") and answer.out == ""
    make_run("run-2")
    make_run("run-3")
    answer = holdfast("resume", *python())
    assert answer.code == stops.exit_code("ambiguous_id") and answer.out == ""
    assert "'run-3', 'run-2'" in answer.err


@pytest.mark.parametrize("code", [0, 1, 7, 85, 255])
def test_the_exit_code_is_the_commands(holdfast, make_run, code):
    make_run("run-1", ending="")
    assert holdfast("resume", "run-1", "--", sys.executable, "-c", f"import sys; sys.exit({code})").code == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_command(holdfast, make_run, number):
    make_run("run-1", ending="")
    waiting = (
        f"import signal, sys, time; signal.signal({int(number)}, lambda *_: sys.exit(42)); print('ready', flush=True)\n"
        "for _ in range(600): time.sleep(0.1)"  # one that comes just before a long sleep would be seen after it
    )
    process = holdfast.start("resume", "run-1", "--", sys.executable, "-c", waiting)
    try:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.wait(30) == 42
    finally:
        process.kill()
        process.communicate()


def test_beside_json_the_command_is_a_child_and_the_document_says_how_the_run_rests(holdfast, make_run):
    make_run("run-1", mission="pipeline", ending="")
    stopping = "import holdfast\nprint('its own words')\nwith holdfast.run('pipeline') as run: run.stop('awaiting_answer', 'x')"
    answer = holdfast("resume", "run-1", "--json", "--", sys.executable, "-c", stopping)
    assert answer.code == stops.exit_code("awaiting_answer") and "its own words" in answer.err
    run = answer.data["run"]
    assert (run["run_id"], run["status"], run["stop_reason"]) == ("run-1", "stopped", "awaiting_answer")
    assert holdfast("resume", "run-1", "--json", "--", "no-such-command").code == 64
    killed = holdfast("resume", "run-1", "--json", "--", "sh", "-c", "kill -KILL $$")
    assert killed.code == 128 + signal.SIGKILL and killed.data["run"]["run_id"] == "run-1"


def test_beside_json_the_exit_code_is_that_of_the_command_also_if_nobody_can_say_how_the_run_rests(holdfast, make_run):
    make_run("run-1", ending="")
    answer = holdfast("resume", "run-1", "--json", "--", "sh", "-c", f"rm -r {holdfast.place.parent}; exit 7")
    assert answer.code == 7 and answer.data["run_id"] == "run-1" and answer.data["error"]["reason"] == "not_found"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_beside_json_a_signal_reaches_the_command_too(holdfast, make_run, number):
    make_run("run-1", ending="")
    waiting = (
        f"import signal, sys, time; signal.signal({int(number)}, lambda *_: sys.exit(42)); print('ready', flush=True)\n"
        "for _ in range(600): time.sleep(0.1)"  # one that comes just before a long sleep would be seen after it
    )
    process = holdfast.start("resume", "run-1", "--json", "--", sys.executable, "-c", waiting, stdin=subprocess.DEVNULL)
    try:
        assert process.stderr.readline() == "ready\n"
        process.send_signal(number)
        out, _ = process.communicate(timeout=30)
        assert process.returncode == 42 and json.loads(out)["run"]["run_id"] == "run-1"
    finally:
        process.kill()
        process.communicate()


def test_the_command_finds_signals_as_a_program_expects_them(holdfast, make_run):
    make_run("run-1", ending="")
    answer = holdfast("resume", "run-1", "--", "sh", "-c", "kill -PIPE $$; echo alive")
    assert (answer.code, answer.out) == (-signal.SIGPIPE, "")


@pytest.mark.parametrize("command", ["no-such-command", "", "./", "a\x7f"])
def test_a_command_that_cannot_be_started_is_named(holdfast, make_run, command):
    make_run("run-1", ending="")
    before = picture(holdfast.place.parent)
    answer = holdfast("resume", "run-1", "--", command)
    assert answer.code == 64 and "cannot be started" in answer.err and "Traceback" not in answer.err
    assert picture(holdfast.place.parent) == before


def test_in_this_process_a_command_that_cannot_be_started_changes_no_signal(holdfast, make_run, monkeypatch, capsys):
    make_run("run-1", ending="")
    monkeypatch.setenv("HOLDFAST_STORE", str(holdfast.place))
    before = signal.getsignal(signal.SIGPIPE)
    assert perform(["resume", "run-1", "--", "nul\0l"]) == 64
    assert signal.getsignal(signal.SIGPIPE) == before


def test_nothing_in_a_store_is_ever_started(holdfast, write, tmp_path):
    """A log can name programs wherever it likes; resume starts what stands on the command line, and otherwise nothing."""
    mark = tmp_path / "mark"
    evil = f"touch {mark}; $(touch {mark})"
    write(
        "run-1",
        StepStarted(step_id=evil, phase=evil),
        QuestionAsked(question_id=evil, text=evil, choices=(evil,)),
        EffectStarted(effect_key=evil, step_id=evil),
        RunStopped(reason="awaiting_answer", diagnosis=evil),
    )
    for arguments in ([], ["run-1"], ["run-1", "--plan"], ["run-1", "--yes"], ["run-1", "--", "true"]):
        assert holdfast("resume", *arguments).code == 0
    row = holdfast("resume", "run-1", "--json").data["plan"]["rows"][1]
    subprocess.run(["sh", "-c", row["reason"].split("`")[1].replace("holdfast", "true")], check=True)
    assert not mark.exists()


# --- approving


def test_an_approved_plan_goes_on_and_any_event_makes_it_old(holdfast, make_run):
    make_run("run-1", ending="open")
    first = holdfast("resume", "run-1", "--plan", "--json").data["plan"]["plan_id"]
    assert holdfast("resume", "run-1", "--plan", "--json").data["plan"]["plan_id"] == first
    assert holdfast("resume", "run-1", "--plan", "--approve", first).code == 0
    assert holdfast("settle", "run-1", "mail-1", "--done").code == 0
    before = picture(holdfast.place.parent)
    answer = holdfast("resume", "run-1", "--approve", first, "--json", *python())
    assert answer.code == stops.exit_code("plan_changed") == 44
    assert answer.data["error"]["reason"] == "plan_changed"
    second = holdfast("resume", "run-1", "--plan", "--json").data["plan"]["plan_id"]
    assert second != first and second in answer.err
    assert picture(holdfast.place.parent) == before
    assert json.loads(holdfast("resume", "run-1", "--approve", second, *python()).out)[1]["HOLDFAST_PLAN"] == second


def test_a_plan_is_not_approved_without_the_command_that_does_it(holdfast, make_run):
    make_run("run-1", ending="")
    plan_id = holdfast("resume", "run-1", "--plan", "--json").data["plan"]["plan_id"]
    before = picture(holdfast.place.parent)
    answer = holdfast("resume", "run-1", "--approve", plan_id)
    assert (answer.code, answer.out) == (stops.exit_code("usage_error"), "")
    assert f"holdfast resume run-1 --approve {plan_id} -- COMMAND" in answer.err
    assert holdfast("resume", "run-1", "--approve", "0" * 16).code == stops.exit_code("plan_changed")
    assert picture(holdfast.place.parent) == before


def test_a_plan_that_grew_old_between_approval_and_start_is_refused_by_the_run_itself(holdfast, script, tmp_path):
    """What `resume` hands on in the environment is checked again by the process that takes the lease."""
    with closing(app.open_store(str(holdfast.place))) as store:
        app.start_run(store, "pipeline", run_id="run-1").close()
    done = tmp_path / "done"
    plan_id = holdfast("resume", "run-1", "--json").data["plan"]["plan_id"]
    environ = holdfast.environment(HOLDFAST_RUN="run-1", HOLDFAST_PLAN="0" * 16)
    refused = subprocess.run([sys.executable, script, str(done)], env=environ, capture_output=True, text=True)
    assert refused.returncode == stops.exit_code("plan_changed"), refused.stderr
    assert not done.exists()
    assert holdfast("resume", "run-1", "--approve", plan_id, "--", sys.executable, script, str(done)).code == 0
    assert done.read_text() == "first\nsecond\n"


# --- going on, and only once


def test_a_killed_pipeline_goes_on_where_it_stood(holdfast, script, tmp_path):
    done, gate = tmp_path / "done", tmp_path / "gate"
    process = subprocess.Popen(
        [sys.executable, script, str(done), str(gate)], env=holdfast.environment(), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "first\n"
    process.kill()
    process.communicate()
    rows = holdfast("resume", "--plan", "--json").data["plan"]["rows"]
    assert [(row["name"], row["move"]) for row in rows] == [("first", "replay")]
    assert holdfast("resume", "--", sys.executable, script, str(done)).code == 0
    assert done.read_text() == "first\nsecond\n"
    assert holdfast("resume").out == "Nothing is unfinished here.\n"


def test_a_held_run_is_refused_before_anything_is_started(holdfast, make_run, writer, tmp_path):
    process = writer("run-1")
    mark = tmp_path / "mark"
    for arguments in (["run-1", "--", "touch", str(mark)], ["--", "touch", str(mark)], ["run-1"], ["run-1", "--plan"]):
        answer = holdfast("resume", *arguments, "--json") if "--" not in arguments else holdfast("resume", *arguments)
        assert answer.code == stops.exit_code("lease_held") == 81
        assert f"process {process.pid} on " in answer.err
    assert not mark.exists()


def test_of_two_resumes_one_wins_and_the_other_is_told_who_holds_it(holdfast, script, tmp_path):
    with closing(app.open_store(str(holdfast.place))) as store:
        app.start_run(store, "pipeline", run_id="run-1").close()
    done, gate = tmp_path / "done", tmp_path / "gate"
    arguments = ["resume", "run-1", "--", sys.executable, script, str(done), str(gate)]
    winner = holdfast.start(*arguments)
    try:
        assert winner.stdout.readline() == "first\n"
        loser = holdfast(*arguments)
        assert (loser.code, loser.out) == (stops.exit_code("lease_held"), "")
        assert f"process {winner.pid} on " in loser.err
        gate.touch()
        assert winner.wait(60) == 0
    finally:
        winner.kill()
        winner.communicate()
    assert done.read_text() == "first\nsecond\n"


def test_of_many_resumes_at_once_exactly_one_does_the_work(holdfast, script, tmp_path):
    """Here several may pass the first look; the lease then lets one of them in."""
    with closing(app.open_store(str(holdfast.place))) as store:
        app.start_run(store, "pipeline", run_id="run-1").close()
    done, gate = tmp_path / "done", tmp_path / "gate"
    arguments = ["resume", "run-1", "--", sys.executable, script, str(done), str(gate)]
    started = [holdfast.start(*arguments) for _ in range(4)]
    try:
        until = time.monotonic() + 60
        while sum(process.poll() is not None for process in started) < 3:
            assert time.monotonic() < until
            time.sleep(0.01)
        gate.touch()
        codes = sorted(process.wait(60) for process in started)
        assert codes == [0, *[stops.exit_code("lease_held")] * 3]
    finally:
        for process in started:
            process.kill()
            process.communicate()
    assert done.read_text() == "first\nsecond\n"


def test_help_shows_the_command_and_an_example(holdfast):
    out = holdfast("resume", "--help").out
    assert "[-- COMMAND...]" in out and "holdfast resume 8cb0f3ef --plan" in out


def test_a_command_without_the_two_dashes_is_not_understood(holdfast, make_run):
    make_run("run-1")
    answer = holdfast("resume", "run-1", "python", "x.py")
    assert answer.code == 64 and "holdfast resume --help" in answer.err


# --- programs of several runs

SEVERAL = """
import os, sys
import holdfast

for item in ("one", "two", "three"):
    with holdfast.run("items", new=True) as run:
        run.step("work", lambda: print(item, flush=True))
        if len(sys.argv) > 1:
            os._exit(9)
"""
TWO = """
import contextlib, os, sys
import holdfast

for mission in ("other", "main"):
    with contextlib.suppress(KeyError), holdfast.run(mission) as run:
        run.step("work", lambda: print(mission, flush=True))
        if len(sys.argv) > 1:
            raise KeyError
"""


@pytest.mark.parametrize("new", ["new=True", "new=False"])
def test_a_program_of_several_runs_goes_on_with_the_one_and_does_the_others(holdfast, tmp_path, new):
    program = tmp_path / "several.py"
    program.write_text(SEVERAL.replace("new=True", new))
    environ = holdfast.environment()
    assert subprocess.run([sys.executable, program, "die"], env=environ, capture_output=True).stdout == b"one\n"
    answer = holdfast("resume", "--", sys.executable, str(program))
    assert (answer.code, answer.out) == (0, "two\nthree\n")
    assert [run["status"] for run in holdfast("status", "--json").data["runs"]] == ["finished"] * 3


def test_an_approval_is_for_the_run_that_was_asked_for_and_for_no_other_of_the_program(holdfast, tmp_path):
    program = tmp_path / "two.py"
    program.write_text(TWO)
    environ = holdfast.environment()
    assert subprocess.run([sys.executable, program, "die"], env=environ, capture_output=True).returncode == 0
    plan = holdfast("resume", "main", "--plan", "--json").data["plan"]
    answer = holdfast("resume", "main", "--approve", plan["plan_id"], "--", sys.executable, str(program))
    assert (answer.code, answer.out) == (0, ""), answer.err
    assert [run["status"] for run in holdfast("status", "--json").data["runs"]] == ["finished"] * 2


def test_an_approval_of_a_commands_run_is_for_it_whatever_run_is_around(holdfast, monkeypatch):
    assert holdfast("run", "--", "false").code != 0
    plan = holdfast("resume", "--plan", "--json").data["plan"]
    told = []
    monkeypatch.setattr(
        "holdfast.cli.run_command.go_on", lambda run_id, mission, argv, more, as_json: told.append(more)
    )
    for name, value in holdfast.environment(HOLDFAST_RUN="outer").items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        perform(["resume", plan["run_id"], "--approve", plan["plan_id"], "--", "false"])
    assert told == [{"HOLDFAST_PLAN": plan["plan_id"], "HOLDFAST_RUN": plan["run_id"]}]

"""`holdfast killtest` as a user runs it, on programs that are sound and on programs with a planted bug."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from holdfast.core import stops
from tests.cli.conftest import Answer

GOOD = """
import os, time, holdfast
from holdfast import Answer

SENT = os.path.join(os.environ["HOLDFAST_KILLTEST_FOLDER"], "sent.txt")

def send(text, key):
    with open(SENT, "a") as file:
        file.write(key + "\\n")
    time.sleep(0.03)
    return {"sent": key}

def was_sent(text, key):
    there = os.path.exists(SENT) and key in open(SENT).read()
    return Answer("done", "it is there", {"sent": key}) if there else Answer("not_done", "it is not there")

def book(sql, amount):
    sql.execute("create table app_money (amount integer)")
    sql.execute("insert into app_money values (?)", (amount,))
    return amount

with holdfast.run("letters", store="my-own.db", new=True) as run:
    text = run.step("draft", lambda: "text in " + SENT)
    run.effect("publish", lambda text, key: {"url": key}, text, policy="keyed")
    run.effect("send", send, text, probe=was_sent)
    run.effect("book", book, 7, policy="transactional")
    run.effect("ring", lambda: "rang")
"""
BAD = (
    "effects_repeated",
    "effects_lost",
    "steps_repeated",
    "steps_lost",
    "events_lost",
    "differ",
    "stuck",
    "checks_failed",
)


@pytest.fixture
def killtest(holdfast, tmp_path):
    """Put a program to the test, with options before it."""

    def test(source, *options):
        program = tmp_path / "program.py"
        program.write_text(source)
        tester = holdfast.start("killtest", *options, "--", sys.executable, str(program), stdin=subprocess.DEVNULL)
        try:
            out, err = tester.communicate(timeout=300)
        finally:
            tester.kill()
            tester.wait()
        return Answer(tester.returncode, out, err)

    return test


def one_run(body, top="import holdfast"):
    return f"{top}\nwith holdfast.run('m') as run:\n    " + body.replace("\n", "\n    ")


def counted(answer):
    found = answer.data["killtest"]
    return found, {name: found[name] for name in BAD if found[name]}


# --- programs that are sound


@pytest.mark.crash
@pytest.mark.slow
def test_a_sound_program_passes_at_every_point(killtest, holdfast, tmp_path):
    kept = tmp_path / "kept"
    answer = killtest(GOOD, "--json", "--keep", str(kept))
    found, bad = counted(answer)
    assert (answer.code, bad, found["sound"]) == (0, {}, True), answer
    assert found["tried"] == found["points"] == found["reached"] >= 27
    assert {trial["point"].partition(":")[0] for trial in found["trials"]} == {
        "before", "inside", "after", "begin", "middle", "end",
    }  # fmt: skip
    blocked = [trial["where"] for trial in found["trials"] if trial["ended"] == "blocked"]
    assert found["blocked"] == len(blocked) >= 4 and all("ring" in where for where in blocked)
    assert found["finished"] == found["tried"] - found["blocked"]
    assert found["again"] >= 2 and found["trusted"] == 1 and found["nondeterministic"] == []
    assert all(json.loads(line)["text"].startswith("killed at") for line in answer.err.splitlines()) and answer.err
    assert list(holdfast.home.iterdir()) == []
    assert (kept / "end-2" / "world" / "sent.txt").read_text().count("\n") == 1
    assert (
        "effect_settled" in holdfast("log", only_run(holdfast, kept / "end-2"), HOLDFAST_STORE=str(kept / "end-2")).out
    )


def only_run(holdfast, folder):
    return holdfast("status", "--all", "--json", HOLDFAST_STORE=str(folder)).data["runs"][0]["run_id"]


@pytest.mark.crash
def test_coroutines_that_work_side_by_side_pass(killtest):
    source = """
import asyncio, holdfast

async def work(number):
    await asyncio.sleep(0.01)
    return number

async def one(mission, store):
    async with holdfast.arun(mission, store=store, run_id=mission) as run:
        await asyncio.gather(*(run.step(f"s{number}", work, number) for number in range(3)))
        await asyncio.gather(*(run.effect(f"e{number}", work, number, policy="keyed") for number in range(2)))

async def main():
    with holdfast.open_store("unused.db") as store:
        await asyncio.gather(one("a", store), one("b", store))

asyncio.run(main())
"""
    found, bad = counted(killtest(source, "--json", "--points", "3"))
    assert (bad, found["tried"], found["finished"]) == ({}, 3, 3) and found["points"] > 10


@pytest.mark.crash
def test_a_program_that_asks_a_question_rests_there(killtest):
    answer = killtest(one_run("run.step('one', lambda: 1)\nrun.ask('Really?', ['yes'])"), "--json", "--at", "after:2")
    assert answer.code == 0 and answer.data["killtest"]["finished"] == 1


@pytest.mark.crash
def test_a_world_is_copied_for_each_trial_and_the_check_sees_it(killtest, tmp_path):
    world = tmp_path / "world"
    world.mkdir()
    (world / "mails").write_text("")
    mail = "def mail():\n    with open('mails', 'a') as file:\n        file.write('mail\\n')\n"
    check = f"{sys.executable} -c \"print(open('mails').read()); exit(open('mails').read() != 'mail\\n')\""
    source = one_run(mail + "run.step('mail', mail)")
    options = ("--json", "--world", str(world), "--check", check)
    found, bad = counted(killtest(source, *options, "--at", "before:2", "--at", "after:2"))
    assert bad == {"checks_failed": 1}
    assert [len(trial["faults"]) for trial in found["trials"]] == [1, 0]
    assert (world / "mails").read_text() == ""


# --- planted bugs


BUGGY = """
pick = run.step("pick", random.random)
run.effect("lost", lambda: "paid", probe=lambda: True)
run.effect("twice", lambda: "paid", probe=lambda: False)
def pay():
    with open(os.environ["HOLDFAST_KILLTEST_FOLDER"] + "/paid", "a") as file:
        file.write("7")
run.effect("again", pay, policy="idempotent")
"""


@pytest.mark.crash
def test_probes_that_lie_results_of_chance_and_what_is_not_idempotent_are_found(killtest, tmp_path):
    kept = tmp_path / "kept"
    options = ("--at", "begin:1", "--at", "end:2", "--at", "end:3", "--keep", str(kept), "--json", "--exact")
    answer = killtest(one_run(BUGGY, "import os, random, holdfast"), *options)
    found, bad = counted(answer)
    assert answer.code == stops.exit_code("verification_failed") == 10
    assert bad == {"effects_lost": 1, "effects_repeated": 1, "differ": 1}
    lost, repeated, again = found["trials"]
    assert [fault["text"] for fault in lost["faults"]] == [
        "effect lost is recorded as done, and was never begun",
        'effect lost gave done null, undisturbed done "paid"',
    ]
    assert [fault["text"] for fault in repeated["faults"]] == ["effect twice (probed) was done 2 times under one key"]
    assert (again["faults"], again["again"], found["again"]) == ([], 1, 1)
    assert (kept / "end-3" / "world" / "paid").read_text() == "77"
    assert found["nondeterministic"] == ["step pick"]


@pytest.mark.crash
def test_a_result_of_chance_is_named_and_forgiven(killtest):
    source = one_run("run.step('pick', random.random)\nrun.step('same', lambda: 1)", "import random, holdfast")
    answer = killtest(source, "--at", "before:2")
    assert answer.code == 0 and "not compared: step pick\n" in answer.out


@pytest.mark.crash
def test_a_name_that_depends_on_time_is_a_failure(killtest):
    source = one_run("run.step(f'at {time.time_ns()}', lambda: 1)", "import time, holdfast")
    answer = killtest(source, "--at", "after:2")
    assert answer.code == 10
    assert "a name must not depend on time or chance" in answer.out and "results that differ" in answer.out


@pytest.mark.crash
def test_an_effect_that_is_given_the_time_is_done_under_two_keys_if_nobody_minds_drift(killtest):
    source = one_run("run.effect('tell', lambda at: 1, str(time.time_ns()), policy='keyed')", "import time, holdfast")
    answer = killtest(source.replace("'m'", "'m', strictness='off'"), "--at", "after:3")
    assert answer.code == 10 and "effect tell was done under 2 keys" in answer.out
    assert "killed after append 3 (effect_finished tell) (--at after:3)" in answer.out


@pytest.mark.crash
def test_a_second_run_of_a_mission_is_seen_and_a_named_run_is_found_again(killtest):
    source = (
        "import holdfast\nfor names in ({'run_id': 'a'}, {}):\n    with holdfast.run('m', **names):\n        pass\n"
    )
    answer = killtest(source, "--at", "after:4")
    assert answer.code == 10
    assert "it ended as m finished, m#2 finished, m#3 finished, undisturbed as m finished, m#2 finished" in answer.out


@pytest.mark.crash
def test_a_program_that_hangs_once_it_was_killed_does_not_come_to_rest(killtest):
    source = one_run("if run.resumed: time.sleep(600)", "import time, holdfast")
    answer = killtest(source, "--json", "--at", "after:1", "--timeout", "5")
    assert (answer.code, counted(answer)[1]) == (10, {"stuck": 1})


# --- programs that cannot be tested, and commands that cannot be understood


@pytest.mark.parametrize(
    ("source", "options", "reason", "words"),
    [
        ("raise SystemExit('no money')", (), "bad_input", "exit code 1. Its last line: no money"),
        ("print('hello')", (), "bad_input", "used no Holdfast"),
        (
            "from holdfast import app\nwith app.open_store() as store:\n    app.start_run(store, 'm').close()",
            (),
            "bad_input",
            "opens no run",
        ),
        ("import time; time.sleep(600)", ("--timeout", "0.5"), "timeout", "did not end within 0.5 seconds"),
        (one_run("pass"), ("--check", "false"), "bad_input", "The check fails after an undisturbed run"),
        (one_run("pass"), ("--at", "end:9"), "usage_error", "no point 'end:9'"),
        (one_run("pass"), ("--sample",), "usage_error", "How many points"),
    ],
)
def test_what_cannot_be_tested_is_said(killtest, source, options, reason, words):
    answer = killtest(source, *options)
    assert answer.code == stops.exit_code(reason), answer
    assert words in answer.err and answer.out == ""


def test_bad_commands_are_refused(holdfast, tmp_path):
    assert "no program to test" in holdfast("killtest").err
    assert "cannot be started" in holdfast("killtest", "--", "no-such-program").err
    (tmp_path / "file").touch()
    assert "not empty" in holdfast("killtest", "--keep", str(tmp_path), "--", "true").err
    inside = tmp_path / "world" / "kept"
    inside.mkdir(parents=True)
    assert (
        "inside of the world"
        in holdfast("killtest", "--world", str(tmp_path / "world"), "--keep", str(inside), "--", "true").err
    )
    assert holdfast("killtest", "--check", "'", "--", "true").code == stops.exit_code("usage_error")


def test_ctrl_c_ends_the_program_and_its_children_too(holdfast, tmp_path):
    pids = tmp_path / "pids"
    source = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}} ')\n"
        "time.sleep(600)\n"
    )
    tester = holdfast.start("killtest", "--", sys.executable, "-c", source)
    try:
        numbers = started(pids)
        tester.send_signal(signal.SIGINT)
        tester.communicate(timeout=30)
    finally:
        tester.kill()
        tester.communicate()
    assert tester.returncode == stops.exit_code("user_stopped")
    assert not any(lives(number) for number in numbers)


def started(path):
    deadline = time.monotonic() + 30
    while not (path.exists() and path.read_text().endswith(" ")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return [int(number) for number in path.read_text().split()]


def lives(pid):
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False

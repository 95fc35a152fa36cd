"""One program is started on record, heard, and seen to its end with all that it started, whatever it does."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import stat
import threading
import time

import pytest

from holdfast.adapters.agents import runner
from holdfast.adapters.agents.life import changed_since
from holdfast.adapters.agents.runner import CannotStart, Ears, dispatch
from holdfast.adapters.processes import left_behind, read_record, reap, start_time
from holdfast.core.redact import Redactor
from holdfast.testing.scripted_agent import read_ledger
from tests.adapters.agents.kit import NO_SECRETS, acting, finish, is_alive, order, output, python, wait_until


def go(wanted, **ears):
    return dispatch(wanted, NO_SECRETS, Ears(**ears))


def test_it_runs_in_its_folder_with_its_input_and_its_environment(tmp_path):
    wanted = order(tmp_path, "sh", "-c", 'cat; pwd; echo "$WORD"', stdin=b"fed\n", env={"WORD": "w"})
    outcome = go(wanted)
    assert (outcome.ended_by, outcome.exit_code, outcome.ended) == ("exit", 0, ())
    assert (
        output(tmp_path) == f"fed\n{tmp_path}/work\nw\n"
        and outcome.last_line == "w"
        and outcome.said == len(output(tmp_path))
    )


def test_arguments_reach_the_program_as_they_are(tmp_path):
    strange = ("$(touch x)", "`y`", "; rm", "a b", "", "-n", "'\"", "*", "new\nline", "\udcff")
    go(order(tmp_path, "python3", "-c", "import sys,os; os.write(1, repr(sys.argv[1:]).encode())", *strange))
    assert output(tmp_path) == repr(list(strange)) and not os.listdir(tmp_path / "work")


def test_without_input_it_reads_nothing_and_is_in_a_session_of_its_own(tmp_path):
    code = "import os,sys; print(repr(sys.stdin.read()), os.getsid(0) == os.getpid(), 'HOLDFAST_GATE' in os.environ)"
    go(order(tmp_path, "python3", "-c", code))
    assert output(tmp_path) == "'' True False\n"


def test_both_channels_are_kept_and_told_apart(tmp_path):
    heard = []
    go(
        order(tmp_path, "sh", "-c", "echo out; echo err >&2"),
        hear=lambda lines, error: heard.extend((error, x) for x in lines),
    )
    assert sorted(heard) == [(False, "out"), (True, "err")] and sorted(output(tmp_path).split()) == ["err", "out"]


def test_the_folder_is_private_and_holds_the_record(tmp_path):
    go(order(tmp_path, "true", stdin=b"x"))
    stage = tmp_path / "stage"
    assert stat.S_IMODE(stage.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in stage.iterdir())
    assert sorted(file.name for file in stage.iterdir()) == ["output.log", "process.json", "prompt.txt"]
    assert read_record(str(stage)).ended


@pytest.mark.parametrize("code", [0, 1, 77])
def test_its_exit_code_is_told(tmp_path, code):
    assert go(order(tmp_path, "sh", "-c", f"exit {code}"))[:2] == ("exit", code)


def test_a_death_by_a_signal_that_is_not_ours_is_told(tmp_path):
    outcome = go(order(tmp_path, "sh", "-c", "kill -SEGV $$"))
    assert outcome[:2] == ("signal", -signal.SIGSEGV) and "SIGSEGV" in outcome.evidence
    assert "signal 40" in go(order(tmp_path, "sh", "-c", "kill -40 $$")).evidence


def test_what_cannot_be_started_is_said(tmp_path):
    assert go(order(tmp_path, "/nowhere/at-all")).exit_code == 127
    with pytest.raises(CannotStart, match="cannot be started"):
        go(order(tmp_path, "true")._replace(cwd=str(tmp_path / "gone")))
    with pytest.raises(CannotStart):
        go(order(tmp_path, "true", "a\0b"))


def test_it_is_ended_when_its_time_is_up(tmp_path):
    outcome = go(order(tmp_path, "sh", "-c", "echo begun; exec sleep 60", timeout=0.5))
    assert outcome[:2] == ("timeout", None) and "sign of life" in outcome.evidence and output(tmp_path) == "begun\n"


def test_it_is_ended_when_it_shows_no_sign_of_life(tmp_path):
    outcome = go(acting(tmp_path, {"do": "hang"}, stall_after=1.0, timeout=30))
    assert outcome.ended_by == "stalled" and "said nothing" in outcome.evidence and outcome.seconds < 15


@pytest.mark.parametrize(
    "command",
    [
        "for i in 1 2 3 4 5 6 7 8 9 10; do echo $i; sleep 0.25; done",
        "exec python3 -c 'import time\nfor n in range(9): open(str(n), \"w\").close(); time.sleep(0.3)'",
        "exec python3 -c 'import time; end = time.time() + 2.5\nwhile time.time() < end: sum(range(9999))'",
    ],
    ids=["it speaks", "it writes files", "it uses the processor"],
)
def test_a_slow_one_is_not_taken_for_a_dead_one(tmp_path, command):
    assert go(order(tmp_path, "sh", "-c", command, stall_after=1.0, timeout=30)).ended_by == "exit"


def test_a_look_at_files_is_bounded_and_follows_no_link(tmp_path):
    now = time.time()
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_text("x")
    past = now - 1000
    for path in (tmp_path / "a" / "file", tmp_path / "a"):
        os.utime(path, (past, past))
    os.symlink("/proc", tmp_path / "link")
    os.utime(tmp_path / "link", (past, past), follow_symlinks=False)
    assert not changed_since(str(tmp_path), now - 500)
    os.utime(tmp_path / "a" / "file", (now, now))
    assert changed_since(str(tmp_path), now - 500)
    assert not changed_since(str(tmp_path / "gone"), 0)


def test_it_stops_when_it_is_asked_to(tmp_path):
    began = time.monotonic()
    outcome = go(order(tmp_path, "sleep", "60"), should_stop=lambda: time.monotonic() - began > 0.3)
    assert outcome[:2] == ("stopped", None) and outcome.seconds < 5 and not outcome.interrupted


def test_what_goes_wrong_in_a_listener_ends_it_too(tmp_path):
    def fail(line):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        go(order(tmp_path, "sh", "-c", "echo x; sleep 60"), on_output=fail)
    assert not is_alive(read_record(str(tmp_path / "stage")).pid)


# --- the tree


def pids_in(text):
    return [int(pid) for pid in re.findall(r"grandchild: (\d+)", text)]


CHILDREN = ({"away": True}, {"away": False}, {"away": True, "quiet": True})


@pytest.mark.parametrize("last", [{"do": "hang"}, {"do": "say", "text": "bye"}], ids=["ended by us", "ended by itself"])
def test_nobody_of_the_tree_is_left(tmp_path, last):
    acts = [{"do": "grandchild", "seconds": 60, **one} for one in CHILDREN]
    outcome = go(acting(tmp_path, {"do": "ignore"}, *acts, last, timeout=1.0, grace=0.3))
    children = pids_in(output(tmp_path))
    assert len(children) == 3 and not any(map(is_alive, children))
    assert len(outcome.ended) == (4 if last["do"] == "hang" else 3) and outcome.seconds < 10


def test_one_that_gave_up_family_and_environment_is_found_if_it_was_seen(tmp_path):
    # the group is still its own, and whoever leaves even that was seen while it was a child
    code = "env -i setsid sleep 60 & echo $!; sleep 1.2"
    go(order(tmp_path, "bash", "-c", code, stall_after=2.0))
    assert not is_alive(int(output(tmp_path)))
    go(order(tmp_path, "bash", "-c", "(env -i sleep 60 & echo $!)"))
    assert not is_alive(int(output(tmp_path)))


def test_one_that_closes_its_output_and_lives_on_is_waited_for(tmp_path):
    outcome = go(acting(tmp_path, {"do": "close"}, {"do": "sleep", "seconds": 0.6}, {"do": "crash", "code": 5}))
    assert outcome[:2] == ("exit", 5) and outcome.seconds > 0.5


def test_two_at_a_time_do_not_disturb_each_other(tmp_path):
    outcomes = {}

    def one(name):
        (tmp_path / name).mkdir()
        outcomes[name] = go(order(tmp_path / name, "sh", "-c", f"sleep 0.5; echo {name}", key=name))

    threads = [threading.Thread(target=one, args=(name,)) for name in ("a", "b", "c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {name: outcome.last_line for name, outcome in outcomes.items()} == {"a": "a", "b": "b", "c": "c"}
    assert all(outcome.exit_code == 0 and not outcome.ended for outcome in outcomes.values())


# --- floods


@pytest.mark.parametrize(
    "command",
    ["yes | head -c 40000000", "head -c 100000000 /dev/zero", "head -c 20000000 /dev/urandom; echo; echo end"],
    ids=["lines", "no line end", "binary"],
)
def test_a_flood_is_bounded_in_memory_and_on_disk(tmp_path, command):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = go(order(tmp_path, "sh", "-c", command, max_output=100_000))
    assert outcome[:2] == ("exit", 0) and outcome.dropped > 10_000_000
    assert os.path.getsize(tmp_path / "stage" / "output.log") < 4 * 100_000 + 200
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000


def test_the_newest_line_is_told_redacted_and_not_too_often(tmp_path):
    told = []
    command = "for i in $(seq 200); do echo $i hunter2-secret; sleep 0.005; done"
    dispatch(order(tmp_path, "sh", "-c", command), Redactor(["hunter2-secret"]), Ears(on_output=told.append))
    assert 3 < len(told) < 40 and all(re.fullmatch(r"\d+ \[redacted:env\]", line) for line in told)
    assert "hunter2" not in output(tmp_path)


# --- when this process is interrupted or killed

PARENT = """
import json, os, sys
from pathlib import Path
from holdfast.adapters.agents import runner
from tests.adapters.agents.kit import NO_SECRETS, acting

folder, moment = Path(sys.argv[1]), sys.argv[2]
die = lambda *_: os.kill(os.getpid(), 9)
real = runner.record

def record(place, identity, *, durable):
    if moment == "before the record" and not identity.ended:
        die()
    if moment == "after the end" and identity.ended:
        die()
    real(place, identity, durable=durable)
    if moment == "after the record":
        die()

runner.record = record
acts = {"short": [{"do": "say", "text": "hi"}], "long": [{"do": "say", "text": "hi"}, {"do": "hang"}]}
say = die if moment == "when it speaks" else lambda line: print("line", line, flush=True)
order = acting(folder, *acts[sys.argv[3]])
outcome = runner.dispatch(order, NO_SECRETS, runner.Ears(on_output=say))
print(json.dumps(outcome), flush=True)
"""


@pytest.mark.parametrize(
    ("moment", "kind", "left"),
    [
        ("before the record", "long", False),
        ("after the record", "long", False),
        ("when it speaks", "long", True),
        ("after the end", "short", False),
    ],
)
def test_a_kill_leaves_no_agent_or_one_on_record(tmp_path, moment, kind, left):
    parent = python(PARENT, tmp_path, moment, kind)
    try:
        assert parent.wait(30) == -9, parent.stdout.read()
    finally:
        finish(parent)
    stage = str(tmp_path / "stage")
    if not left:
        time.sleep(0.5)
        assert left_behind(stage) is None
        starts = [line for line in read_ledger(str(tmp_path / "ledger")) if line["act"] == "start"]
        assert len(starts) == (moment == "after the end"), "what was not on record was never started"
        return
    found = left_behind(stage)
    assert [one.pid for one in found.ours] == [read_record(stage).pid] and is_alive(found.identity.pid)
    assert len(reap(found)) == 1 and not is_alive(found.identity.pid) and left_behind(stage) is None


def test_kills_at_any_time_leave_nobody_unknown(tmp_path):
    for number in range(8):
        folder = tmp_path / str(number)
        folder.mkdir()
        parent = python(PARENT, folder, "never", "long")
        try:
            wait_until(lambda folder=folder: (folder / "script.json").exists())
            time.sleep(number * 0.006)
        finally:
            finish(parent)
        stage = str(folder / "stage")
        time.sleep(0.15)
        starts = read_ledger(str(folder / "ledger"))
        found = left_behind(stage)
        assert not starts or read_record(stage) is not None
        if found:
            reap(found)
        assert not any(is_alive(line["pid"]) for line in starts)


def test_ctrl_c_ends_the_tree_and_the_outcome_says_so(tmp_path):
    parent = python(PARENT, tmp_path, "never", "long")
    try:
        assert parent.stdout.readline().startswith("line")
        parent.send_signal(signal.SIGINT)
        outcome = json.loads(
            [line for line in parent.communicate(timeout=30)[0].splitlines() if line.startswith("[")][-1]
        )
    finally:
        finish(parent)
    assert (outcome[0], outcome[1], outcome[-1]) == ("stopped", None, True)
    assert not is_alive(read_record(str(tmp_path / "stage")).pid)


def test_a_pid_has_one_start_time_and_a_dead_one_has_none():
    assert start_time(os.getpid()) and start_time(os.getpid()) == start_time(os.getpid())
    assert start_time(2**22 + 1) == "" and runner.MAX_OUTPUT > 0

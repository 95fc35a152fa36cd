"""Behaviours that no other test shows: old events that stay as they were written, one log on every engine, Enter means No."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from contextlib import closing

import pytest

import holdfast
from holdfast import app
from holdfast.core import stops
from holdfast.core.events import (
    EffectFinished,
    EffectStarted,
    Extension,
    NoteRecorded,
    RunFinished,
    RunStarted,
    StepFailed,
    StepFinished,
    StepStarted,
)
from holdfast.core.wire import GENESIS, chain_hash
from holdfast.engine.log import RunLog, verify_run
from holdfast.ports import Projection, Record
from holdfast.stores.memory import MemoryStore
from holdfast.testing import postgres
from holdfast.testing.crashlab import Available
from tests.crash.workloads import AT, world

RUN = "run-1"


# --- behaviour 13

OLD = [
    ("run_started", 1, b'{"mission_id":"m"}'),
    ("step_started", 1, b'{"step_id":"a"}'),
    ("step_finished", 1, b'{"step_id":"a","output":7}'),
    ("checkpoint_complete", 1, b'{"checkpoint_id":"c1"}'),
]


def write_old(place):
    """A log as the first Holdfast wrote it."""
    with closing(app.open_store(place)) as store:
        lease, head = store.take(RUN, app.world().owner, 30.0), GENESIS
        for seq, (kind, version, body) in enumerate(OLD, 1):
            head = chain_hash(head, RUN, seq, kind, version, AT, f"{seq:032x}", body)
            record = Record(RUN, seq, kind, version, AT, body, head, f"{seq:032x}")
            store.append(lease, [record], Projection("m", "", "running", None, int(seq > 2), int(seq == 2), 0))
        store.release(lease)


def test_events_of_old_versions_are_lifted_as_they_are_read_and_stay_as_they_were_written(tmp_path):
    place = str(tmp_path / "holdfast.db")
    write_old(place)
    with holdfast.run("m", store=place, run_id=RUN, accept=True) as run:
        assert run.state.steps["a"].output == 7 and run.state.steps_done == 1
        run.note("written by this version")
    with closing(app.open_store(place, read_only=True)) as store:
        kept = [(record.kind, record.version, record.body) for record in store.read(RUN)]
        assert kept[: len(OLD)] == OLD and kept[-1][0] == "run_finished"
        assert verify_run(store, RUN).findings == ()


# --- behaviour 189

STORY = (
    (RunStarted(mission_id="m", title="On every engine, ünïcode 日本"),),
    (StepStarted(step_id="a"), StepFinished(step_id="a", output={"n": 2**53 - 1, "x": 0.1, "none": None})),
    (EffectStarted(effect_key="k", step_id="b"),),
    (EffectFinished(effect_key="k", receipt=["done", 1]),),
    (StepStarted(step_id="c"), StepFailed(step_id="c", error="it broke")),
    (Extension(kind="x_ours", data={"key": "value"}, tagged=3), NoteRecorded(text="a note")),
    (RunFinished(),),
)


def told(store):
    """The same story, and all that a reader can see of it."""
    digest = store.put_artifact(b"kept " * 1000)
    with RunLog(store, RUN, world(7)) as log:
        for events in STORY:
            log.record(*events)
    head = store.head(RUN)
    return {
        "records": list(store.read(RUN)),
        "head": (head.seq, head.hash, head.projection, head.held),
        "list": [(one.run_id, one.seq, one.projection) for one in store.heads()],
        "unfinished": list(store.heads(unfinished=True)),
        "snapshot": store.load_snapshot(RUN),
        "artifact": (digest, store.get_artifact(digest)),
        "findings": verify_run(store, RUN),
    }


def test_every_engine_keeps_the_same_bytes(tmp_path, skip_or_fail):
    why = postgres.available()
    skip_or_fail(Available(why is None, why or ""))
    expected = told(MemoryStore())
    assert len(expected["records"]) == sum(map(len, STORY)) and expected["findings"].findings == ()
    with postgres.shared_server().database() as url:
        for place in (str(tmp_path / "holdfast.db"), url):
            with closing(app.open_store(place)) as store:
                assert told(store) == expected


# --- behaviour 30

PIPELINE = """
import os, sys
import holdfast
with holdfast.run("m", store=sys.argv[1], run_id="run-1", inputs={"n": int(sys.argv[2])}) as run:
    if run.step("a", lambda: 1) and sys.argv[3:]:
        os._exit(0)
print("went on")
"""
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}


def at_a_terminal(place, typed, program=PIPELINE):
    """The pipeline with other inputs, and somebody who types at it."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-c", program, place, "2"]
    process = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=CLEAN)
    os.close(follower)
    os.write(leader, typed)
    said = b"".join(iter(lambda: heard(leader), b""))
    os.close(leader)
    return process.wait(timeout=30), said.decode()


def heard(fd):
    try:
        return os.read(fd, 65536)
    except OSError:  # nobody is at the other end any more
        return b""


@pytest.mark.parametrize(("typed", "goes_on"), [(b"\n", False), (b"n\n", False), (b"\x04", False), (b"y\n", True)])
def test_at_a_terminal_only_a_yes_accepts_other_inputs(tmp_path, typed, goes_on):
    place = str(tmp_path / "holdfast.db")
    subprocess.run([sys.executable, "-c", PIPELINE, place, "1", "die"], env=CLEAN, check=True, timeout=30)
    code, said = at_a_terminal(place, typed)
    assert "[y/N]" in said and "n: 1 -> 2" in said
    assert (code, "went on" in said) == ((0, True) if goes_on else (stops.exit_code("input_changed"), False)), said


ASKING = """
import sys
import time
import holdfast
with holdfast.run("m", store=sys.argv[1], run_id="run-1") as run:
    print("said", run.ask("Publish?", ["yes", "no"], timeout=1.5, default="no"), run.state.questions["Publish?"].expired)
"""


@pytest.mark.parametrize(
    ("typed", "said"), [(b"", "said no True"), (b"perhaps\n", "said no True"), (b"hm\nyes\n", "said yes False")]
)
def test_a_question_at_a_terminal_waits_no_longer_than_it_was_told_to(tmp_path, typed, said):
    code, heard_there = at_a_terminal(str(tmp_path / "holdfast.db"), typed, ASKING)
    assert code == 0 and said in heard_there, heard_there


DEAF = """
import os, sys, time
import holdfast
with holdfast.run("m", store=sys.argv[1], run_id="run-1", inputs={"n": int(sys.argv[2])}) as run:
    run.step("a", lambda: 1)
    print("here", flush=True)
    while sys.argv[3:] and os.isatty(0):
        time.sleep(0.01)
    run.ask("Publish?", ["yes", "no"])
"""


@pytest.mark.parametrize("stderr", ["a pipe that nobody reads", "/dev/full", "closed"])
def test_that_nobody_hears_what_is_told_changes_nothing_of_how_a_run_ends(tmp_path, stderr):
    read, write = os.pipe()
    os.close(read)
    words = [sys.executable, "-c", DEAF, str(tmp_path / "holdfast.db")]
    command = {"closed": ["sh", "-c", 'exec "$@" 2>&-', "sh"]}.get(stderr, [])
    with open("/dev/full" if stderr == "/dev/full" else write, "w") as nobody:
        ends = [
            subprocess.run([*command, *words, n], env=CLEAN, stdin=subprocess.DEVNULL, stderr=nobody, timeout=30)
            for n in ("1", "2")
        ]
    expected = [stops.exit_code("awaiting_answer"), stops.exit_code("input_changed")]
    assert [end.returncode for end in ends] == expected
    with closing(app.open_store(str(tmp_path / "holdfast.db"))) as store:
        assert [record.kind for record in store.read("run-1")][-2:] == ["drift_found", "run_stopped"]


def test_a_terminal_that_is_gone_when_it_is_asked_has_not_answered(tmp_path):
    leader, follower = pty.openpty()
    words = [sys.executable, "-c", DEAF, str(tmp_path / "holdfast.db"), "1", "wait"]
    with subprocess.Popen(words, stdin=follower, stdout=subprocess.PIPE, stderr=follower, env=CLEAN) as process:
        os.close(follower)
        assert process.stdout.readline() == b"here\n"
        os.close(leader)
    assert process.returncode == stops.exit_code("awaiting_answer")


AWAITED = """
import asyncio, sys
import holdfast

async def main():
    async with holdfast.arun("m", store=sys.argv[1], run_id="run-1") as run:
        await asyncio.gather(run.ask("Publish?", ["yes", "no"]), asyncio.sleep(60))

asyncio.run(main())
"""


def test_one_interrupt_ends_a_question_that_a_coroutine_asks(tmp_path):
    """The first only cancels its task, which cannot hear of it while the terminal is read."""
    leader, follower = pty.openpty()
    words = [sys.executable, "-c", AWAITED, str(tmp_path / "holdfast.db")]
    with subprocess.Popen(words, stdin=follower, stdout=follower, stderr=follower, env=CLEAN) as process:
        os.close(follower)
        shown = heard(leader)
        while b"Publish?" not in shown:
            shown += heard(leader)
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(timeout=20) == -signal.SIGINT
        finally:
            process.kill()
            os.close(leader)
    with closing(app.open_store(str(tmp_path / "holdfast.db"))) as store:
        assert [record.kind for record in store.read("run-1")] == ["run_started", "question_asked", "run_stopped"]

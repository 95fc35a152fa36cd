"""What counts as time in which a run was running."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

import pytest

import holdfast
from holdfast.core.retry import Budget
from holdfast.core.values import Record
from holdfast.engine.budgets import seconds_run


def record(second, kind):
    return Record("r", second, kind, 1, f"2026-01-01T00:{second // 60:02}:{second % 60:02}.000000Z", b"{}", b"", "")


@pytest.mark.parametrize(
    ("events", "seconds"),
    [
        ([(0, "run_started"), (5, "note_recorded")], 5),
        ([(0, "run_started"), (5, "note_recorded"), (60, "run_resumed"), (61, "note_recorded")], 6),
        ([(0, "run_started"), (5, "sleep_started"), (50, "sleep_ended"), (51, "note_recorded")], 6),
        ([(0, "run_started"), (5, "sleep_started"), (60, "run_resumed"), (61, "note_recorded")], 6),
        ([(0, "run_started"), (5, "sleep_started"), (6, "sleep_started"), (50, "sleep_ended"), (60, "sleep_ended")], 5),
        ([(9, "run_started"), (5, "note_recorded")], 0),
        ([], 0),
    ],
)
def test_what_was_slept_and_what_was_dead_does_not_count(events, seconds):
    assert seconds_run([record(*event) for event in events]) == seconds


def test_a_wait_does_not_use_up_the_time_of_a_run(tmp_path):
    with holdfast.run("waits", store=str(tmp_path / "r.db"), budget=Budget(seconds=1.0)) as run:
        run.sleep(1.5, name="limit")
        assert run.step("after", lambda: "still in time") == "still in time"
    with (
        pytest.raises(SystemExit),
        holdfast.run("works", store=str(tmp_path / "s.db"), budget=Budget(seconds=0.2)) as run,
    ):
        time.sleep(0.4)
        run.step("after", lambda: None)


LONG = """
import sys, time, holdfast
with holdfast.run("m", store=sys.argv[1], run_id="r", budget=holdfast.Budget(seconds=3)) as run:
    run.step("long", lambda: print("begun", flush=True) or time.sleep(60))
"""


def test_the_time_of_a_long_step_counts_also_in_a_process_that_is_killed(tmp_path):
    command, lives = [sys.executable, "-c", LONG, str(tmp_path / "r.db")], 0
    while lives < 6:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            if process.stdout.readline() != "begun\n":
                break
            lives += 1
            time.sleep(2.5)
            process.kill()
    assert lives < 6
    with holdfast.open_store(str(tmp_path / "r.db"), read_only=True) as store:
        assert holdfast.read_state(store, "r").stop_reason == "timeout"


def test_what_is_slept_is_not_marked_as_time(tmp_path):
    with holdfast.run("m", store=str(tmp_path / "r.db"), run_id="r", budget=Budget(seconds=2)) as run:
        run.sleep(2.5, name="limit")
    with holdfast.open_store(str(tmp_path / "r.db"), read_only=True) as store:
        assert "budget_spent" not in [record.kind for record in store.read("r")]


def test_a_coroutine_that_takes_long_is_marked_too(tmp_path):
    async def long():
        await asyncio.sleep(1.9)

    async def work():
        async with holdfast.arun("m", store=str(tmp_path / "r.db"), run_id="r", budget=Budget(seconds=20)) as run:
            await run.step("long", long)

    asyncio.run(work())
    with holdfast.open_store(str(tmp_path / "r.db"), read_only=True) as store:
        marks = [record.kind for record in store.read("r")]
    assert marks == ["run_started", "step_started", "budget_spent", "step_finished", "run_finished"]

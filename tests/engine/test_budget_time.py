"""What counts as time in which a run was running."""

from __future__ import annotations

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

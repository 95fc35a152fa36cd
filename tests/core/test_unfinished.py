"""What a checkpoint file tells of work that somebody else began."""

from __future__ import annotations

import pytest

from holdfast.core.spec import Checkpoint, PhaseCursor, Stage, Task
from holdfast.core.unfinished import contradicted, still_incomplete, unfinished

TASKS = [Task("T1", status="complete"), Task("T2"), Task("T3"), Task("T4", status="dropped")]


def test_incomplete_stages_come_before_the_cursor():
    stages = (Stage("2", "T2", "fix", "codex", "failed", "2026-01-01", "no"), Stage(task="T2"), Stage(task="T1"))
    said = Checkpoint(incomplete=stages, cursor=PhaseCursor("2", "implementer", "in_progress", ("T1", "T2", "T3")))
    assert unfinished(said, TASKS) == {
        "T2": [
            "T2: codex began fix (failed) of batch 2 at 2026-01-01: no, and no valid end of that is told",
            "T2: somebody began work, and no valid end of that is told",
        ],
        "T3": ["T3 stood in implementer (in_progress) of batch 2"],
    }
    assert contradicted(said, TASKS) == ["T1 is complete in tasks.yaml, which counts, and has an incomplete stage"]


@pytest.mark.parametrize(
    "said",
    [
        None,
        Checkpoint(),
        Checkpoint(cursor=PhaseCursor("2", "complete", "", ("T2",))),
        Checkpoint(cursor=PhaseCursor("2", "tester", "pending", ("T2",))),
        Checkpoint(cursor=PhaseCursor("2", "tester", "Completed", ("T2",))),
    ],
)
def test_nothing_is_told_where_nothing_is_open(said):
    assert (unfinished(said, TASKS), contradicted(said, TASKS)) == ({}, [])


def test_a_stage_is_over_with_its_task_or_with_its_batch():
    stages = tuple(
        Stage(batch, task) for batch, task in [("1", "T1"), ("1", "T2"), ("2", ""), ("2c", ""), ("3", ""), ("3", "T9")]
    )
    assert still_incomplete(Checkpoint(incomplete=stages), TASKS, "2") == (stages[1], stages[4])

"""What all parts of the pipeline share."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from holdfast.core.batches import plan
from holdfast.core.settings import Settings
from holdfast.core.spec import SpecError, Task
from holdfast.engine.pipeline import desk as shared


def test_the_plan_that_closes_a_batch_is_the_one_that_the_next_begins_with(monkeypatch):
    run, ground = (
        SimpleNamespace(state=SimpleNamespace(effects={}, steps={})),
        SimpleNamespace(where=lambda: (None, None)),
    )
    desk = shared.Desk(run, None, SimpleNamespace(ground=ground), Settings(), print, str, 0.0)
    made = []
    monkeypatch.setattr(shared, "plan", lambda tasks, **how: (made.append(tasks), plan(tasks, **how))[1])
    tasks = (Task("T1"), Task("T2", depends_on=("T1",)))
    assert desk.plan(tasks) == desk.plan(tasks) == plan(tasks) and len(made) == 1
    done = (Task("T1", status="complete"), tasks[1])
    assert desk.plan(done) == plan(done) and desk.plan(tasks) == plan(tasks) and len(made) == 3
    with pytest.raises(SpecError):
        desk.plan((Task("T1", depends_on=("T2",)), tasks[1]))
    assert desk.plan(tasks) == plan(tasks)

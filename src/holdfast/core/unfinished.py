"""Work that a checkpoint file tells was begun and has no end, by another program or by hand. The log knows nothing of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.core.spec import OVER, Checkpoint, PhaseCursor, Stage, Task, batches_behind
from holdfast.core.stops import snippet

_NOT_AT_WORK = frozenset({"complete", "completed", "done", "pending"})


def unfinished(checkpoint: Checkpoint | None, tasks: Sequence[Task]) -> dict[str, list[str]]:
    """What is told of tasks that are not over, by their ids. Incomplete stages come before the cursor."""
    found: dict[str, list[str]] = {}
    if checkpoint is None:
        return found
    opened = {task.id for task in tasks if task.status not in OVER}
    for stage in checkpoint.incomplete:
        if stage.task in opened:
            found.setdefault(stage.task, []).append(_begun(stage))
    cursor = checkpoint.cursor
    if cursor is not None and not _NOT_AT_WORK & {cursor.phase.casefold(), cursor.status.casefold()}:
        for name in cursor.tasks:
            if name in opened and name not in found:
                found[name] = [f"{name} stood in {_place(cursor)}"]
    return found


def _begun(stage: Stage) -> str:
    who = f"{stage.agent} began" if stage.agent else "somebody began"
    when = f" at {stage.started_at}" if stage.started_at else ""
    why = f": {snippet(stage.failure)}" if stage.failure else ""
    return f"{stage.task}: {who} {_place(stage)}{when}{why}, and no valid end of that is told"


def _place(one: Stage | PhaseCursor) -> str:
    status = f" ({one.status})" if one.status else ""
    return f"{one.phase or 'work'}{status}{f' of batch {one.batch}' if one.batch else ''}"


def contradicted(checkpoint: Checkpoint | None, tasks: Sequence[Task]) -> list[str]:
    """Tasks of which work has no end there, and which are complete all the same."""
    stages = checkpoint.incomplete if checkpoint is not None else ()
    over: Mapping[str, Task] = {task.id: task for task in tasks if task.status in OVER}
    names = dict.fromkeys(stage.task for stage in stages if stage.task in over)
    return [f"{name} is {over[name].status} in tasks.yaml, which counts, and has an incomplete stage" for name in names]


def still_incomplete(checkpoint: Checkpoint, tasks: Sequence[Task], batch: str) -> tuple[Stage, ...]:
    """The stages that are not over when this batch is: those of tasks that are open, and those of no task in later batches."""
    opened = {task.id for task in tasks if task.status not in OVER}
    done = batches_behind(Checkpoint(last_batch=batch))
    return tuple(
        one
        for one in checkpoint.incomplete
        if (one.task in opened if one.task else batches_behind(Checkpoint(last_batch=one.batch)) > done)
    )

"""Which batch is next, and what is written when it is done. A batch that was begun stays as it was planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

import msgspec

from holdfast.core import batches
from holdfast.core.review import LATER, Finding
from holdfast.core.spec import (
    OVER,
    Checkpoint,
    Deferred,
    NextBatch,
    Reviewer,
    Spec,
    Task,
    TaskRef,
    changes,
    changes_since,
    digest_of,
    refuse,
    summary_of,
)
from holdfast.engine.pipeline.desk import Desk, Halt, Moment

FINAL = "final"


class Planner:
    """Decides about batches, one at a time, from what the files say then."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._last: Mapping[str, Any] | None = None  # the newest plan there is

    def batch(self, number: int) -> dict[str, Any]:
        """The batch of this number as it is to be worked on: planned anew only if nothing of it was begun."""
        desk, attempt = self._desk, 1
        while True:
            name = _plan_name(number, attempt)
            planned: dict[str, Any] = desk.run.step(name, lambda: self._plan(number))
            self._last = planned
            if _plan_name(number, attempt + 1) not in desk.run.state.steps and not self._is_stale(
                planned, number, name
            ):
                return planned
            attempt += 1

    def _is_stale(self, planned: Mapping[str, Any], number: int, name: str) -> bool:
        if not self._desk.decided_before(name) or self._is_begun(number):
            return False
        return bool(_digest(self._read()) != planned["digest"])

    def _is_begun(self, number: int) -> bool:
        start = f"batch-{number}/"
        return any(known.step_id.startswith(start) for known in self._desk.run.state.effects.values())

    def _read(self) -> Spec:
        spec = self._desk.parts.specs.read()
        refuse(spec.problems)
        return spec

    def _plan(self, number: int) -> dict[str, Any]:
        """What to do next, from the files."""
        desk, spec = self._desk, self._read()
        planned = batches.plan(spec.tasks, break_on_phase=desk.settings.run.break_on_phase)
        self._tell_changes(spec)
        self._check_claims(number, spec)
        chosen = planned[0] if planned else batches.Batch((), False)
        tasks = {task.id: task for task in spec.tasks}
        before = self._done_before(spec) + number - 1
        return {
            "number": str(number),
            "shown": str(before + 1),
            "total": before + len(planned),
            "spec": spec.name,
            "tasks": [_as_data(tasks[name], place) for place, name in enumerate(chosen.tasks, 1)],
            "parallel": chosen.parallel and desk.settings.run.parallel > 1,
            "phases": list(desk.settings.run.phases),
            "open": [task.id for task in spec.tasks if task.status not in OVER],
            "digest": _digest(spec),
            "plan": desk.keep_value([_bare(task) for task in spec.tasks]),
            "taken": [one.id for one in spec.deferred if one.id],
        }

    def _done_before(self, spec: Spec) -> int:
        """How many batches the spec had behind it when this run began."""
        if self._last is not None:
            return int(self._last["shown"]) - int(self._last["number"])
        last = spec.checkpoint.last_batch if spec.checkpoint else None
        digits = "".join(takewhile(str.isdigit, (last or "").encode("ascii", "ignore").decode()))
        return int(digits[:9] or 0)

    def _tell_changes(self, spec: Spec) -> None:
        """Say what is different from what was planned by before: from the log, else from the checkpoint's own summary."""
        desk, checkpoint = self._desk, spec.checkpoint
        if self._last is not None:
            earlier = msgspec.json.decode(desk.kept(self._last["plan"]), type=list[Task])
            said = changes(earlier, [_bare(task) for task in spec.tasks])
        else:
            said = changes_since(checkpoint, spec.tasks) if checkpoint else []
            if checkpoint is not None and checkpoint.last_commit:
                desk.note(
                    desk.parts.ground.last_commit(checkpoint.last_commit, f"{desk.parts.specs.path}/checkpoint.yaml")
                )
        for sentence in said:
            desk.note(f"tasks.yaml: {sentence}")

    def _check_claims(self, number: int, spec: Spec) -> None:
        """A task that became complete, and no batch of this run did it: a person may say so, an agent may not.

        What was changed while the run rested was changed by a person. What was changed while it ran stops it once.
        """
        if self._last is None:
            return
        ours = {task["id"] for task in self._last["tasks"]}
        claimed = [
            one for one in spec.tasks if one.status in OVER and one.id in self._last["open"] and one.id not in ours
        ]
        said = [
            f"tasks.yaml: {one.id} is {one.said or one.status} now, and no batch of this run did it" for one in claimed
        ]
        if said and not self._desk.decided_before(f"batch-{number - 1}/closed"):
            raise Halt("insufficient_evidence", *said)
        for sentence in said:
            self._desk.note(sentence)


def _plan_name(number: int, attempt: int) -> str:
    return f"batch-{number}/plan" if attempt == 1 else f"batch-{number}/plan-{attempt}"


def _digest(spec: Spec) -> str:
    return digest_of(spec.tasks)


def _bare(task: Task) -> Task:
    """What of a task decides the plan, and stays the same while the run works on it."""
    return Task(task.id, task.title, files=task.files, depends_on=task.depends_on, phase=task.phase)


def _as_data(task: Task, place: int) -> dict[str, Any]:
    return {"id": task.id, "title": task.title, "text": task.text, "files": list(task.files), "place": place}


# --- what is written when it is done


def write_files(desk: Desk, batch: Mapping[str, Any], base: str, found: Sequence[Finding], at: str) -> None:
    """The five steps of the format: statuses, next batch, deferred issues, the checkpoint; the commit comes after."""
    specs = desk.parts.specs
    specs.mark({task["id"]: "complete" for task in batch["tasks"]}, today=at[:10])
    if found:
        specs.write_review(batch["shown"], found)
    specs.write_checkpoint(_checkpoint(desk, specs.read(), batch, base, at))
    desk.tell(Moment("note", text="checkpoint.yaml is written"))


def _checkpoint(desk: Desk, spec: Spec, batch: Mapping[str, Any], base: str, at: str) -> Checkpoint:
    lists = summary_of(spec.tasks)
    carried = tuple(spec.checkpoint.deferred) if spec.checkpoint else ()
    known = {one.id for one in carried}
    found = [put_off(one, number) for number, one in desk.found.values() if one.severity in LATER]
    fresh = tuple(one for one in found if one.id not in known)
    following = _next_batch(desk, spec, batch)
    return Checkpoint(
        spec_name=spec.name,
        spec_path=f"./{desk.parts.specs.path}",
        branch=(desk.parts.ground.where()[1] or "").removeprefix("refs/heads/"),
        timestamp=at,
        last_batch=batch["shown"],
        last_commit=base,
        completed=lists["completed"],
        in_progress=lists["in_progress"],
        pending=lists["pending"],
        next_batch=following,
        finished=following is None,
        deferred=(*carried, *fresh),
        reviewers=_reviewers(desk, spec),
        tasks_digest=_digest(spec),
    )


def _reviewers(desk: Desk, spec: Spec) -> tuple[Reviewer, ...]:
    """Those of the settings; else those that the file names already; else the one agent."""
    named = spec.checkpoint.reviewers if spec.checkpoint else ()
    if named and not desk.settings.run.reviewers:
        return named
    return tuple(Reviewer(name) for name in desk.settings.run.agents_for("review"))


def put_off(one: Finding, batch: str) -> Deferred:
    return Deferred(
        description=one.description,
        severity=one.severity,
        id=one.id,
        batch=batch,
        task=one.task or None,
        location=one.location or None,
        reviewer=", ".join(one.reviewers) or None,
    )


def _next_batch(desk: Desk, spec: Spec, batch: Mapping[str, Any]) -> NextBatch | None:
    planned = batches.plan(spec.tasks, break_on_phase=desk.settings.run.break_on_phase)
    if not planned:
        return None
    tasks = {task.id: task for task in spec.tasks}
    refs = tuple(_ref(tasks[name]) for name in planned[0].tasks)
    return NextBatch(str(int(batch["shown"]) + 1), refs, planned[0].parallel and desk.settings.run.parallel > 1)


def _ref(task: Task) -> TaskRef:
    return TaskRef(task.id, task.title, ", ".join(task.files) or None)

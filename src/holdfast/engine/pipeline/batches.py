"""Which batch is next, and what is written when it is done. A batch that was begun stays as it was planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.core import batches
from holdfast.core.position import WEAK
from holdfast.core.review import LATER, Finding, highest
from holdfast.core.spec import (
    ASIDE,
    OVER,
    Checkpoint,
    Deferred,
    NextBatch,
    PhaseCursor,
    Reviewer,
    Spec,
    Task,
    TaskRef,
    batches_behind,
    changes,
    changes_since,
    refuse,
    summary_of,
    unblocked,
)
from holdfast.core.stops import snippet
from holdfast.core.unfinished import contradicted, still_incomplete, unfinished
from holdfast.engine.pipeline.desk import Desk, Halt, Moment, label

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
        return bool(self._read().digest != planned["digest"])

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
        planned = desk.plan(spec.tasks)
        bare = [_bare(task) for task in spec.tasks]
        self._tell_changes(spec, bare)
        self._tell_claims(spec)
        held = batches.held(spec.tasks)
        self._tell_held(held)
        chosen = planned[0] if planned else batches.Batch((), False)
        tasks = {task.id: task for task in spec.tasks}
        before = self._done_before(spec) + number - 1
        told = unfinished(spec.checkpoint, spec.tasks)
        begun = {name: told[name] for name in chosen.tasks if name in told}
        return {
            "number": str(number),
            "shown": str(before + 1),
            "total": before + len(planned),
            "spec": spec.name,
            "tasks": [_as_data(tasks[name], place) for place, name in enumerate(chosen.tasks, 1)],
            "parallel": chosen.parallel and desk.settings.run.parallel > 1,
            "phases": list(desk.settings.run.phases),
            "open": [task.id for task in spec.tasks if task.status not in OVER],
            "done": [task.id for task in spec.tasks if task.status in OVER - ASIDE],
            "held": held,
            "digest": spec.digest,
            "plan": desk.keep_value(bare),
            "taken": highest([*(one.id for one in spec.deferred if one.id), *spec.reviewed]),
            "carried": msgspec.to_builtins(_carried(spec)),
            **({"begun": begun} if begun else {}),
        }

    def _done_before(self, spec: Spec) -> int:
        """How many batches the spec had behind it when this run began."""
        if self._last is not None:
            return int(self._last["shown"]) - int(self._last["number"])
        return batches_behind(spec.checkpoint)

    def _tell_changes(self, spec: Spec, bare: Sequence[Task]) -> None:
        """Say what is different from what was planned by before: from the log, else from the checkpoint's own summary."""
        desk, checkpoint = self._desk, spec.checkpoint
        if self._last is not None:
            earlier = msgspec.json.decode(desk.kept(self._last["plan"]), type=list[Task])
            said = changes(earlier, bare)
        else:
            said = changes_since(checkpoint, spec.tasks) if checkpoint else []
            self._tell_origin(checkpoint)
            self._tell_unfinished(spec)
        for sentence in said:
            desk.note(f"tasks.yaml: {sentence}")

    def _tell_origin(self, checkpoint: Checkpoint | None) -> None:
        """By which checkpoint a new run goes on, and where that was made, if it is not plainly here."""
        desk, said = self._desk, ""
        if checkpoint is None:
            return
        if checkpoint.last_commit:
            said = desk.parts.ground.last_commit(checkpoint.last_commit, f"{desk.parts.specs.path}/checkpoint.yaml")
            desk.note(said)
        desk.run.begun_by("checkpoint_yaml", WEAK, checkpoint.last_commit, said)
        if not checkpoint.finished and checkpoint.branch not in ("", _branch(desk)):
            desk.note(f"checkpoint.yaml was written on the branch {checkpoint.branch}, and this is {_branch(desk)}")

    def _tell_unfinished(self, spec: Spec) -> None:
        """What the file tells was begun: those tasks are done anew, and who does them is told of it."""
        told = [sentence for found in unfinished(spec.checkpoint, spec.tasks).values() for sentence in found]
        for sentence in told + contradicted(spec.checkpoint, spec.tasks):
            self._desk.note(f"checkpoint.yaml: {sentence}")

    def _tell_claims(self, spec: Spec) -> None:
        """What became of tasks between two batches is told. While a batch is open, `check_claims` stops for it first."""
        if self._last is None:
            return
        told, _ = _told(self._desk, self._last)
        for sentence in _claims(self._last, spec):
            if sentence not in told:
                self._desk.note(sentence)

    def _tell_held(self, held: Mapping[str, Sequence[str]]) -> None:
        before = batches.held_said(self._last.get("held", {})) if self._last is not None else []
        for sentence in batches.held_said(held):
            if sentence not in before:
                self._desk.note(f"tasks.yaml: {sentence}")


def check_held(desk: Desk, batch: Mapping[str, Any]) -> None:
    """Stop if nothing is left but what somebody called blocked, and what waits for it: only a person can change that."""
    if said := batches.held_said(batch.get("held", {})):
        path = f"{desk.parts.specs.path}/tasks.yaml"
        raise Halt("tasks_blocked", *said, f"give what is blocked another status in {path}, and resume the run")


def _claims(batch: Mapping[str, Any], spec: Spec) -> list[str]:
    """What the files say of tasks that were open when this batch was planned, and that it did not do; and of done ones."""
    ours, now = {task["id"] for task in batch["tasks"]}, {task.id: task for task in spec.tasks}
    others = [name for name in batch["open"] if name not in ours]
    gone = [f"tasks.yaml: {name} is gone, and no batch of this run did it" for name in others if name not in now]
    over = [now[name] for name in others if name in now and now[name].status in OVER]
    said = [f"tasks.yaml: {one.id} is {one.said or one.status} now, and no batch of this run did it" for one in over]
    done = [now[name] for name in batch.get("done", ()) if name in now]  # not recorded by an earlier version
    again = [
        f"tasks.yaml: {one.id} is {one.said or one.status} now, and was complete when {label(batch)} was planned"
        for one in done
        if one.status not in OVER
    ]
    return gone + said + again


def _told(desk: Desk, batch: Mapping[str, Any]) -> tuple[set[str], str]:
    """The claims that the run stopped for in this batch, and the name of the next mark."""
    told, name = desk.told(f"{label(batch)}/claims", "insufficient_evidence")
    return {sentence for one in told for sentence in one}, name


def check_claims(desk: Desk, batch: Mapping[str, Any]) -> None:
    """Stop before a commit if tasks are gone or over that nobody did, or to be done again: a person may say so, an agent may not.

    It is asked once. Who goes on after that stop wants it so.
    """
    if desk.decided_before(f"{label(batch)}/files"):
        return
    spec = desk.parts.specs.read()
    refuse(spec.problems)
    found, (told, name) = _claims(batch, spec), _told(desk, batch)
    if fresh := [sentence for sentence in found if sentence not in told]:
        desk.run.step(name, lambda: fresh)
        raise Halt("insufficient_evidence", *fresh, "put tasks.yaml right, or resume the run if it is right as it is")
    for sentence in found:
        desk.note(sentence)


def _plan_name(number: int, attempt: int) -> str:
    return f"batch-{number}/plan" if attempt == 1 else f"batch-{number}/plan-{attempt}"


def _bare(task: Task) -> Task:
    """What of a task decides the plan, and stays the same while the run works on it."""
    return Task(task.id, task.title, files=task.files, depends_on=task.depends_on, phase=task.phase)


def _carried(spec: Spec) -> dict[str, tuple[str, Finding]]:
    """Findings that `checkpoint.yaml` carries on and no file calls resolved, by their ids, each with its batch."""
    listed = spec.checkpoint.deferred if spec.checkpoint else ()
    return {one.id: (one.batch or "", _found(one)) for one in listed if one.id and one in spec.deferred}


def _found(one: Deferred) -> Finding:
    return Finding(
        id=one.id or "",
        severity=one.severity,
        description=one.description,
        location=one.location or "",
        task=one.task or "",
        reviewers=(one.reviewer,) if one.reviewer else (),
    )


def carried(batch: Mapping[str, Any]) -> dict[str, tuple[str, Finding]]:
    """What was carried on when this batch was planned. An earlier version did not record it."""
    return msgspec.convert(batch.get("carried", {}), dict[str, tuple[str, Finding]])


def _as_data(task: Task, place: int) -> dict[str, Any]:
    return {"id": task.id, "title": task.title, "text": task.text, "files": list(task.files), "place": place}


# --- what is written when it is done


def write_files(
    desk: Desk,
    batch: Mapping[str, Any],
    base: str,
    found: Sequence[Finding],
    earlier: frozenset[str],
    at: str,
    reviewed_by: tuple[str, ...] | None,
) -> None:
    """The five steps of the format: statuses, next batch, deferred issues, the checkpoint; the commit comes after.

    `earlier` are the ids of findings that batches before this one wrote down; `reviewed_by` is None where nobody knows.
    """
    specs = desk.parts.specs
    specs.mark({task["id"]: "complete" for task in batch["tasks"]}, today=at[:10])
    if fresh := [one for one in found if one.id not in earlier]:
        specs.write_review(batch["shown"], fresh)
    made = _checkpoint(desk, specs.read(), batch, base, earlier, at)
    specs.write_checkpoint(msgspec.structs.replace(made, reviewed_by=_told_by(made, reviewed_by)))
    desk.tell(Moment("note", text="checkpoint.yaml is written"))


def _checkpoint(
    desk: Desk, spec: Spec, batch: Mapping[str, Any], base: str, earlier: frozenset[str], at: str
) -> Checkpoint:
    lists = summary_of(spec.tasks)
    following = _next_batch(desk, spec, batch)
    return Checkpoint(
        spec_name=spec.name,
        spec_path=f"./{desk.parts.specs.path}",
        branch=_branch(desk),
        timestamp=at,
        last_batch=batch["shown"],
        last_commit=base,
        completed=lists["completed"],
        in_progress=lists["in_progress"],
        pending=lists["pending"],
        next_batch=following,
        finished=following is None,
        deferred=_deferred(desk, spec, earlier),
        reviewers=_reviewers(desk, spec),
        reviewed_by=spec.checkpoint.reviewed_by if spec.checkpoint else None,
        tasks_digest=spec.digest,
        cursor=PhaseCursor(batch["shown"], "complete", "completed", tuple(task["id"] for task in batch["tasks"]), at),
        incomplete=still_incomplete(spec.checkpoint, spec.tasks, batch["shown"]) if spec.checkpoint else (),
    )


def _branch(desk: Desk) -> str:
    return (desk.parts.ground.where()[1] or "").removeprefix("refs/heads/")


def _deferred(desk: Desk, spec: Spec, earlier: frozenset[str]) -> tuple[Deferred, ...]:
    """Those of the file, and the new ones. What was written down before and is gone, a person took out: it stays out.

    What went out while agents were at work is put back.
    """
    found = [put_off(one, number) for number, one in desk.found.values() if one.severity in LATER]
    if spec.checkpoint is None and desk.checkpoint is None:
        return tuple(found)
    now, before = ((one.deferred if one else ()) for one in (spec.checkpoint, desk.checkpoint))
    names = {_name(one) for one in now}
    gone = [one for one in before if _name(one) not in names]
    if gone:
        said = f"{', '.join(snippet(_name(one)) for one in gone)} went out of it while agents were at work"
        desk.note(f"checkpoint.yaml: {said}, and is put back; what is taken out while the run rests stays out")
    known = {one.id for one in (*now, *gone)} | earlier
    return (*now, *gone, *(one for one in found if one.id not in known))


def _name(one: Deferred) -> str:
    return one.id or one.description


def _reviewers(desk: Desk, spec: Spec) -> tuple[Reviewer, ...]:
    """Who is to review: those that the files name, also where not all of them can; else those of the settings."""
    known = {one.name: one for one in spec.reviewers}
    if known and known.keys() >= set(desk.settings.run.reviewers):
        return spec.reviewers
    return tuple(known.get(name, Reviewer(name)) for name in desk.settings.run.agents_for("review"))


def _told_by(made: Checkpoint, reviewed_by: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Who reviewed, where these are not all those who were to; and in a file that told it once."""
    if reviewed_by is None:
        return made.reviewed_by
    as_wished = {one.name for one in made.reviewers} == {*reviewed_by}
    return None if as_wished and made.reviewed_by is None else reviewed_by


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
    planned = desk.plan(spec.tasks) or desk.plan(unblocked(spec.tasks))  # then the spec is not finished
    if not planned:
        return None
    tasks = {task.id: task for task in spec.tasks}
    refs = tuple(_ref(tasks[name]) for name in planned[0].tasks)
    return NextBatch(str(int(batch["shown"]) + 1), refs, planned[0].parallel and desk.settings.run.parallel > 1)


def _ref(task: Task) -> TaskRef:
    return TaskRef(task.id, task.title, ", ".join(task.files) or None)

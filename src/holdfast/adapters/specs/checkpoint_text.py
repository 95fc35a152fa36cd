"""The text of `checkpoint.yaml`: a new one in the order of the format, an old one with only the values that we own changed.

What nobody here knows stays: keys, comments, order, and whether tasks are told by id alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from holdfast.adapters.specs.carried import Known, items_of
from holdfast.adapters.specs.draft import EARLIER, Draft
from holdfast.adapters.specs.edit import append, apply, scalar_edit
from holdfast.adapters.specs.emit import block, commit, flow, moment, number, quoted, scalar
from holdfast.adapters.specs.reader import checkpoint_in
from holdfast.adapters.specs.texts import Text
from holdfast.adapters.specs.yaml_text import Entry, Node, compose, plain
from holdfast.core.spec import Checkpoint, Deferred, NextBatch, PhaseCursor, Reviewer, Stage, Status, TaskRef, list_of
from holdfast.core.spec_graph import FILES, first
from holdfast.core.spec_graph import text as text_of
from holdfast.core.spec_shapes import (
    DONE,
    IDS,
    NAMES,
    SPEC_NAMES,
    SPEC_PATHS,
    read_checkpoint,
    read_reviewers,
)
from holdfast.core.statuses import spelling, status

_PARTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("What this is about", ("spec_name", "spec_path", "branch", "timestamp")),
    ("How far it is: last_commit is the commit that the batch was built on", ("last_batch", "last_commit")),
    ("The tasks as tasks.yaml has them", ("tasks",)),
    ("What comes next; null when nothing is left", ("next_batch",)),
    ("Findings that were put off", ("deferred_issues",)),
    ("Who reviews", ("review_config",)),
    ("Who reviewed the last batch", ("reviewed_by",)),
    ("By this it is seen whether the tasks were changed since", ("tasks_digest",)),
)
_OPTIONAL = ("reviewed_by", "tasks_digest")
_STATUS_IN: dict[str, Status] = {"completed": "complete", "in_progress": "in_progress", "pending": "pending"}
_REF = dict.fromkeys((*IDS, *NAMES, *FILES, "status"))
_STAGES = "incomplete_stages"
_REVIEWER = dict.fromkeys(("name", "model"))
_NEXT: Known = {"number": None, "batch": None, "parallel": None, "tasks": _REF}
_ANYTHING = "anything"


def fresh(checkpoint: Checkpoint) -> str:
    lists = {"completed": checkpoint.completed, "in_progress": checkpoint.in_progress, "pending": checkpoint.pending}
    values = _values(checkpoint) | {"tasks": {name: _whole(refs) for name, refs in lists.items()}}
    lines = ["checkpoint:"]
    parts = [part for part in _PARTS if part[1][0] not in _OPTIONAL or getattr(checkpoint, part[1][0]) is not None]
    for place, (about, names) in enumerate(parts):
        lines += ([""] if place else []) + [f"  # {about}"]
        lines += [line for name in names for line in block(name, values[name], 2)]
    return "\n".join(lines) + "\n"


def _values(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "spec_name": scalar(checkpoint.spec_name),
        "spec_path": scalar(checkpoint.spec_path),
        "branch": scalar(checkpoint.branch),
        "timestamp": moment(checkpoint.timestamp),
        "last_batch": number(checkpoint.last_batch),
        "last_commit": commit(checkpoint.last_commit),
        "next_batch": _next(checkpoint.next_batch),
        "deferred_issues": [_deferred(one) for one in checkpoint.deferred],
        "review_config": {"reviewers": [_reviewer(one) for one in checkpoint.reviewers]},
        "reviewed_by": [scalar(name) for name in checkpoint.reviewed_by or ()],
        "tasks_digest": commit(checkpoint.tasks_digest),
    }


def _ref(ref: TaskRef) -> dict[str, str]:
    return {"id": scalar(ref.id), "name": quoted(ref.name)} | ({"file": scalar(ref.file)} if ref.file else {})


def _next(batch: NextBatch | None) -> str | dict[str, Any]:
    return "null" if batch is None else _batch(batch)


def _batch(batch: NextBatch) -> dict[str, Any]:
    return {
        "number": number(batch.number),
        "tasks": [_ref(ref) for ref in batch.tasks],
        "parallel": "true" if batch.parallel else "false",
    }


def _deferred(one: Deferred) -> dict[str, str]:
    fields = {
        "id": one.id and scalar(one.id),
        "batch": one.batch and number(one.batch),
        "task": one.task and scalar(one.task),
        "severity": one.severity,
        "description": quoted(one.description),
        "location": one.location and quoted(one.location),
        "reviewer": one.reviewer and scalar(one.reviewer),
        "status": "" if one.status == "deferred" else scalar(one.status),
    }
    return {name: value for name, value in fields.items() if value}


def _reviewer(one: Reviewer) -> str | dict[str, str]:
    return {"name": scalar(one.name), "model": scalar(one.model)} if one.model else scalar(one.name)


# --- an existing file


def updated(text: Text, checkpoint: Checkpoint) -> str:
    draft = Draft(text.text)
    old = checkpoint_in(draft.text)
    values = _values(checkpoint)
    for name, names in (("spec_name", SPEC_NAMES), ("spec_path", SPEC_PATHS)):
        draft.set_if(getattr(old, name) != getattr(checkpoint, name), names, values[name])
    there = [name for name in ("tasks_digest",) if name in draft.body().value]
    fields = ("branch", "timestamp", "last_batch", "last_commit", *there)  # one that is not there comes last
    draft.set_all({name: values[name] for name in fields if getattr(old, name) != getattr(checkpoint, name)})
    _update_tasks(draft, checkpoint)
    _update_next(draft, old, checkpoint)
    _update_cursor(draft, old.cursor, checkpoint.cursor)
    _update_stages(draft, checkpoint)
    _update_deferred(draft, old.deferred, checkpoint.deferred)
    if old.reviewers != checkpoint.reviewers:
        _update_reviewers(draft, checkpoint)
    told = checkpoint.reviewed_by not in (None, old.reviewed_by)
    draft.set_if(told, ("reviewed_by",), values["reviewed_by"])
    if not there:
        draft.set_if(old.tasks_digest != checkpoint.tasks_digest, ("tasks_digest",), values["tasks_digest"])
    return draft.text


def check(text: Text) -> None:
    """Raise CannotEdit now, if what a run changes in the file could not be changed later."""
    old = checkpoint_in(text.text)
    task = (TaskRef(_ANYTHING, _ANYTHING),)
    later = replace(
        old,
        timestamp=_ANYTHING,
        last_batch=_ANYTHING,
        last_commit=_ANYTHING,
        completed=task,
        in_progress=task,
        pending=task,
        next_batch=NextBatch(_ANYTHING, task, not (old.next_batch and old.next_batch.parallel)),
        deferred=(*old.deferred, Deferred(_ANYTHING)),
        reviewed_by=(_ANYTHING,),
        tasks_digest=_ANYTHING,
        cursor=PhaseCursor(_ANYTHING, _ANYTHING),
        incomplete=(),
    )
    updated(text, later)
    over = (*old.completed, *old.in_progress, *old.pending)
    updated(text, replace(later, completed=over, in_progress=(), pending=(), next_batch=None))


def _update_tasks(draft: Draft, new: Checkpoint) -> None:
    """Tasks stand in the list that is theirs now, each with what the file says of it besides."""
    draft.make_room("tasks")
    known = draft.lists("tasks")
    style = _style(known)
    done = next((name for name in DONE if name in known), DONE[0])
    lists = {done: new.completed, "in_progress": new.in_progress, "pending": new.pending}
    _retell(draft, {"completed": new.completed, "in_progress": new.in_progress, "pending": new.pending})
    wanted = {name: {ref.id: ref for ref in refs} for name, refs in lists.items()}
    in_line = style is _ids and _is_in_line(known)
    draft.sort("tasks", wanted, _id_of, _REF, lambda ref: style([ref])[0], rest="earlier_tasks", in_line=in_line)


def _retell(draft: Draft, lists: Mapping[str, Sequence[TaskRef]]) -> None:
    """The names of tasks, and their statuses where they are told beside them, as they are now."""
    now = {ref.id: (name, ref.name) for name, refs in lists.items() for ref in refs}
    documents, edits = compose(draft.text), []
    places = [("earlier_tasks",), *(("tasks", name) for name in draft.lists("tasks"))]
    for path, node in (pair for way in places for pair in draft.rows(*way)):
        row = plain(node)
        about = _id_of(row)
        if about not in now:
            continue
        listed, title = now[about]
        if row.get(NAMES[0]) == title and "status" not in row:
            continue
        said = status(text_of(row.get("status")))
        if text_of(first(row, NAMES)) != title:
            name = next((one for one in NAMES if row.get(one) is not None), NAMES[0])
            after = next(one for one in IDS if row.get(one) is not None)
            edits.append(scalar_edit(draft.text, (*path, name), node, quoted(title), after))
        if said and list_of(said) != listed:
            word = spelling(_STATUS_IN[listed], [text_of(row["status"])])
            edits.append(scalar_edit(draft.text, (*path, "status"), node, scalar(word)))
    if edits:
        draft.text = apply(draft.text, edits, documents)


def _style(known: Mapping[str, Node]) -> Callable[[Sequence[TaskRef]], list[Any]]:
    """How this file tells of tasks: by objects, or by their ids alone."""
    lists = [node for node in known.values() if isinstance(node.value, list) and node.value]
    is_plain = all(isinstance(item.node.value, str) for node in lists for item in node.value)
    return _ids if lists and is_plain else _whole


def _is_in_line(known: Mapping[str, Node]) -> bool:
    return next((node.flow for node in known.values() if isinstance(node.value, list) and node.value), False)


def _whole(refs: Sequence[TaskRef]) -> list[Any]:
    return [_ref(ref) for ref in refs]


def _ids(refs: Sequence[TaskRef]) -> list[Any]:
    return [scalar(ref.id) for ref in refs]


def _id_of(data: Any) -> str | None:
    return text_of(first(data, IDS) if isinstance(data, dict) else data) or None


def _update_reviewers(draft: Draft, new: Checkpoint) -> None:
    draft.make_room("review_config")
    wanted = {"reviewers": {one: one for one in new.reviewers}}
    draft.sort("review_config", wanted, _reviewer_of, _REVIEWER, _reviewer, rest="earlier_reviewers")


def _reviewer_of(data: Any) -> Reviewer | None:
    return next(iter(read_reviewers({"reviewers": [data]})), None)


def _update_next(draft: Draft, old: Checkpoint, new: Checkpoint) -> None:
    """What the file says of a batch besides goes with it when another one is next."""
    held = draft.body().value.get("next_batch")
    was, now = old.next_batch, new.next_batch
    if held is None or held.node.is_nothing or was is None or now is None:
        if held is not None and not held.node.is_nothing and draft.says_more("next_batch", _NEXT):
            draft.put_aside("next_batch")
        if now is not None or held is None or not held.node.is_nothing:
            draft.set(("next_batch",), _next(now))
        return
    style = _style({"tasks": held.node.value["tasks"].node} if "tasks" in held.node.value else {})
    is_same = _same(was.tasks, now.tasks, style)
    if (was.number != now.number or not is_same) and draft.says_more("next_batch", _NEXT):
        draft.put_aside("next_batch")
        draft.set(("next_batch",), _batch(now) | {"tasks": _told(now.tasks, held, style)})
        return
    values = {
        "number": number(now.number) if was.number != now.number else None,
        "tasks": None if is_same else _told(now.tasks, held, style),
        "parallel": None if was.parallel == now.parallel else "true" if now.parallel else "false",
    }
    draft.set_in("next_batch", {name: value for name, value in values.items() if value is not None})


def _told(tasks: Sequence[TaskRef], held: Entry, style: Callable[[Sequence[TaskRef]], list[Any]]) -> Any:
    """The tasks of a batch in the style of the one before."""
    if style is _ids and _is_in_line({"tasks": held.node.value["tasks"].node}):
        return flow([ref.id for ref in tasks])
    return style(tasks)


def _same(was: Sequence[TaskRef], now: Sequence[TaskRef], style: Callable[[Sequence[TaskRef]], Any]) -> bool:
    return tuple(was) == tuple(now) if style is _whole else [ref.id for ref in was] == [ref.id for ref in now]


def _update_cursor(draft: Draft, old: PhaseCursor | None, new: PhaseCursor | None) -> None:
    """A cursor that the file has says where the work stands now. What it said of another place besides is put aside."""
    if old is None or new is None or old == new:
        return
    values = {name: scalar(getattr(new, name)) for name in ("phase", "status")}
    fields = {"batch": number(new.batch), **values, "tasks": flow(new.tasks), "updated_at": moment(new.updated_at)}
    if draft.says_more("phase_cursor", dict.fromkeys(fields)):
        draft.put_aside("phase_cursor")
        draft.set(("phase_cursor",), fields)
    else:
        draft.set_in("phase_cursor", fields)


def _update_stages(draft: Draft, new: Checkpoint) -> None:
    """Stages that are over are taken out of those that are incomplete; what they carry is put aside."""
    over = {path[-1] for path, node in draft.rows(_STAGES) if _stage_of(plain(node)) not in new.incomplete}
    if not over:
        return
    draft.unfold((_STAGES,))
    done = {ref.id for ref in new.completed}
    told = [pair for pair in draft.rows(_STAGES) if pair[0][-1] in over and plain(pair[1]).get("task") in done]
    edits = [
        scalar_edit(draft.text, (*path, "status"), node, "completed") for path, node in told if "status" in node.value
    ]
    if edits:
        draft.text = apply(draft.text, edits, compose(draft.text))
    known = dict.fromkeys((*Stage.__struct_fields__, "updated_at", "report_dir"))
    items = list(items_of(draft.text, _STAGES, draft.body().value[_STAGES].node, _stage_of, known))
    for one in items:
        if one.place in over and one.more:
            draft.text = append(draft.text, (*draft.path, f"{EARLIER}{_STAGES}"), one.written)
    draft.set((_STAGES,), [one.written for one in items if one.place not in over])


def _stage_of(data: Any) -> Stage | None:
    return next(iter(read_checkpoint({_STAGES: [data]}).incomplete), None)


def _update_deferred(draft: Draft, was: Sequence[Deferred], now: Sequence[Deferred]) -> None:
    """What is there already stays as it is written; what is new comes after it."""
    if tuple(was) == tuple(now[: len(was)]):
        for one in now[len(was) :]:
            draft.text = append(draft.text, (*draft.path, "deferred_issues"), _deferred(one))
    else:
        draft.set(("deferred_issues",), [_deferred(one) for one in now])

"""The text of `checkpoint.yaml`: a new one in the order of the format, an old one with only the values that we own changed.

What nobody here knows stays: keys, comments, order, and whether tasks are told by id alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from holdfast.adapters.specs.edit import CannotEdit, Path, append, put, put_all
from holdfast.adapters.specs.emit import block, commit, flow, moment, number, quoted, scalar
from holdfast.adapters.specs.texts import Text
from holdfast.adapters.specs.yaml_text import Node, compose, plain
from holdfast.core.spec import Checkpoint, Deferred, NextBatch, Reviewer, TaskRef
from holdfast.core.spec_shapes import DONE, SPEC_NAMES, SPEC_PATHS, merged, read_checkpoint

_PARTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("What this is about", ("spec_name", "spec_path", "branch", "timestamp")),
    ("How far it is: last_commit is the commit that the batch was built on", ("last_batch", "last_commit")),
    ("The tasks as tasks.yaml has them", ("tasks",)),
    ("What comes next; null when nothing is left", ("next_batch",)),
    ("Findings that were put off", ("deferred_issues",)),
    ("Who reviews", ("review_config",)),
    ("By this it is seen whether the tasks were changed since", ("tasks_digest",)),
)
_OPTIONAL = ("tasks_digest",)
_ANYTHING = "anything"


def fresh(checkpoint: Checkpoint) -> str:
    values = _values(checkpoint)
    lines = ["checkpoint:"]
    parts = [(about, names) for about, names in _PARTS if checkpoint.tasks_digest or names != _OPTIONAL]
    for place, (about, names) in enumerate(parts):
        lines += ([""] if place else []) + [f"  # {about}"]
        lines += [line for name in names for line in block(name, values[name], 2)]
    return "\n".join(lines) + "\n"


def _values(checkpoint: Checkpoint) -> dict[str, Any]:
    lists = {"completed": checkpoint.completed, "in_progress": checkpoint.in_progress, "pending": checkpoint.pending}
    return {
        "spec_name": scalar(checkpoint.spec_name),
        "spec_path": scalar(checkpoint.spec_path),
        "branch": scalar(checkpoint.branch),
        "timestamp": moment(checkpoint.timestamp),
        "last_batch": number(checkpoint.last_batch),
        "last_commit": commit(checkpoint.last_commit),
        "tasks": {name: [_ref(ref) for ref in refs] for name, refs in lists.items()},
        "next_batch": _next(checkpoint.next_batch),
        "deferred_issues": [_deferred(one) for one in checkpoint.deferred],
        "review_config": {"reviewers": [_reviewer(one) for one in checkpoint.reviewers]},
        "tasks_digest": commit(checkpoint.tasks_digest),
    }


def _ref(ref: TaskRef) -> dict[str, str]:
    return {"id": scalar(ref.id), "name": quoted(ref.name)} | ({"file": scalar(ref.file)} if ref.file else {})


def _next(batch: NextBatch | None) -> str | dict[str, Any]:
    if batch is None:
        return "null"
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
    draft = _Draft(text.text)
    old = read_checkpoint(draft.data())
    values = _values(checkpoint)
    for name, names in (("spec_name", SPEC_NAMES), ("spec_path", SPEC_PATHS)):
        draft.set_if(getattr(old, name) != getattr(checkpoint, name), names, values[name])
    plain_fields = ("branch", "timestamp", "last_batch", "last_commit")
    draft.set_all({name: values[name] for name in plain_fields if getattr(old, name) != getattr(checkpoint, name)})
    _update_tasks(draft, old, checkpoint)
    _update_next(draft, old, checkpoint)
    _update_deferred(draft, old.deferred, checkpoint.deferred)
    if old.reviewers != checkpoint.reviewers:
        draft.set_in("review_config", {"reviewers": values["review_config"]["reviewers"]})
    draft.set_if(old.tasks_digest != checkpoint.tasks_digest, ("tasks_digest",), values["tasks_digest"])
    return draft.text


def check(text: Text) -> None:
    """Raise CannotEdit now, if what a run changes in the file could not be changed later."""
    old = read_checkpoint(text.data)
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
        tasks_digest=_ANYTHING,
    )
    updated(text, later)


class _Draft:
    """A text that is being changed, and the way to the map that holds what a checkpoint has to say."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.path: Path = next(self._bodies(), ())
        if not self.path:
            raise CannotEdit(("checkpoint",), "is not a map")
        if self.body().is_nothing:
            self.text = put(self.text, self.path, {})
        if not isinstance(self.body().value, dict):
            raise CannotEdit(self.path, "is not a map")

    def _bodies(self) -> Iterator[Path]:
        """The last map under `checkpoint` if there is one, else the last document that is a map."""
        maps = [(place, root) for place, root in enumerate(compose(self.text)) if isinstance(root.value, dict)][::-1]
        yield from ((place, "checkpoint") for place, root in maps if "checkpoint" in root.value)
        yield from ((place,) for place, _ in maps[:1])

    def body(self) -> Node:
        node = compose(self.text)[int(self.path[0])]
        return node.value["checkpoint"].node if len(self.path) > 1 else node

    def data(self) -> dict[str, Any]:
        return merged([plain(root) for root in compose(self.text)])

    def set(self, names: Sequence[str], value: Any) -> None:
        """Under the first of these names that the file has, else under the first of them."""
        known = self.body().value
        name = next((name for name in names if name in known), names[0])
        self.text = put(self.text, (*self.path, name), value)

    def set_if(self, differs: bool, names: Sequence[str], value: Any) -> None:
        if differs:
            self.set(names, value)

    def set_all(self, values: Mapping[str, Any]) -> None:
        self.text = put_all(self.text, self.path, values)

    def set_in(self, name: str, values: Mapping[str, Any]) -> None:
        """The keys of a map that may have others. If it is no map, it is put there whole."""
        held = self.body().value.get(name)
        if held is None or not isinstance(held.node.value, dict) or not held.node.value:
            self.set((name,), dict(values))
            return
        self.text = put_all(self.text, (*self.path, name), values)


def _update_tasks(draft: _Draft, old: Checkpoint, new: Checkpoint) -> None:
    held = draft.body().value.get("tasks")
    known = held.node.value if held and isinstance(held.node.value, dict) else {}
    lists = {
        next((name for name in DONE if name in known), DONE[0]): (old.completed, new.completed),
        "in_progress": (old.in_progress, new.in_progress),
        "pending": (old.pending, new.pending),
    }
    style = _style(known)
    changed = {name: style(refs) for name, (was, refs) in lists.items() if not _same(was, refs, style)}
    wanted = {name: value for name, value in changed.items() if name in known or lists[name][1] or style is _whole}
    if wanted:
        draft.set_in("tasks", wanted)


def _style(known: Mapping[str, Any]) -> Callable[[Sequence[TaskRef]], Any]:
    """How this file tells of tasks: by objects, or by their ids alone, in one line or one below the other."""
    lists = [entry.node for entry in known.values() if isinstance(entry.node.value, list) and entry.node.value]
    if not lists or not all(isinstance(item.node.value, str) for node in lists for item in node.value):
        return _whole
    return _in_one_line if lists[0].flow else _one_below_the_other


def _whole(refs: Sequence[TaskRef]) -> list[dict[str, str]]:
    return [_ref(ref) for ref in refs]


def _in_one_line(refs: Sequence[TaskRef]) -> str:
    return flow([ref.id for ref in refs])


def _one_below_the_other(refs: Sequence[TaskRef]) -> list[str]:
    return [scalar(ref.id) for ref in refs]


def _same(was: Sequence[TaskRef], now: Sequence[TaskRef], style: Callable[[Sequence[TaskRef]], Any]) -> bool:
    return tuple(was) == tuple(now) if style is _whole else [ref.id for ref in was] == [ref.id for ref in now]


def _update_next(draft: _Draft, old: Checkpoint, new: Checkpoint) -> None:
    held = draft.body().value.get("next_batch")
    if new.next_batch is None:
        draft.set_if(held is None or not held.node.is_nothing, ("next_batch",), "null")
        return
    if old.next_batch is None or held is None:
        draft.set(("next_batch",), _next(new.next_batch))
        return
    style = _style({"tasks": held.node.value["tasks"]} if "tasks" in held.node.value else {})
    was, now = old.next_batch, new.next_batch
    values = {
        "number": number(now.number) if was.number != now.number else None,
        "tasks": None if _same(was.tasks, now.tasks, style) else style(now.tasks),
        "parallel": None if was.parallel == now.parallel else "true" if now.parallel else "false",
    }
    draft.set_in("next_batch", {name: value for name, value in values.items() if value is not None})


def _update_deferred(draft: _Draft, was: Sequence[Deferred], now: Sequence[Deferred]) -> None:
    """What is there already stays as it is written; what is new comes after it."""
    if tuple(was) == tuple(now[: len(was)]):
        for one in now[len(was) :]:
            draft.text = append(draft.text, (*draft.path, "deferred_issues"), _deferred(one))
    else:
        draft.set(("deferred_issues",), [_deferred(one) for one in now])

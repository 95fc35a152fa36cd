"""Writes a spec's files back: statuses in the file's own words, the checkpoint as a mirror, findings of reviews.

Changes only the values it owns, at their places, and refuses by name what cannot be changed that way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from holdfast.adapters.specs import checkpoint_text, review_text
from holdfast.adapters.specs.edit import CannotEdit, Edit, Path, apply, item_edit, line_of, scalar_edit, way_to
from holdfast.adapters.specs.emit import commit as hash_of
from holdfast.adapters.specs.emit import moment, scalar
from holdfast.adapters.specs.reader import CHECKPOINT, REVIEW, TASKS, task_nodes, tasks_in
from holdfast.adapters.specs.texts import Text, load, refused, store
from holdfast.adapters.specs.yaml_text import Node
from holdfast.core.errors import BadFile
from holdfast.core.review import Finding
from holdfast.core.spec import OVER, Checkpoint, SpecError, Status
from holdfast.core.spec_shapes import IDS, TITLES, said_of
from holdfast.core.statuses import spelling, status

_PROGRESS = re.compile(r"([0-9]+)( ?/ ?)([0-9]+)(?:( ?\(?)[0-9]+( ?%\)?))?")  # 2/8, 2 / 8, 2/8 (25%)
_DATES = ("last_updated", "updated")
_DEEPEST = 6  # document, phases, number, tasks, number
T = TypeVar("T")


class Writer:
    """The files of one folder. `top` is the repository that no link may leave."""

    def __init__(self, folder: str, top: str) -> None:
        self._folder, self._top = folder, top

    def mark(self, statuses: Mapping[str, Status], commits: Mapping[str, str], today: str | None) -> None:
        """Set the status of tasks, and note commits as evidence. What says it already stays as it is said."""
        text = self._load(TASKS)
        if text is None:
            raise SpecError(f"There is no {TASKS} in {self._folder}.")
        edits = self._guarded(text.path, lambda: list(_marks(text, statuses, commits, today)))
        if edits:
            changed = self._guarded(text.path, lambda: apply(text.text, edits, text.documents))
            store(self._folder, TASKS, text.mark + changed, text.whole)

    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        new, change = checkpoint_text.fresh, checkpoint_text.updated
        self._write(CHECKPOINT, lambda: new(checkpoint), lambda text: change(text, checkpoint))

    def write_review(self, batch: str, findings: Sequence[Finding]) -> None:
        new, change = review_text.fresh, review_text.updated
        self._write(REVIEW, lambda: new(batch, findings), lambda text: change(text, batch, findings))

    def check(self) -> None:
        """Refuse now what could not be changed later. They are mirrors: without one, it is written anew."""
        for name, check in ((CHECKPOINT, checkpoint_text.check), (REVIEW, review_text.check)):
            advice = f"Mend it, or move it away: a {name} that is not there is written anew."
            try:
                text = load(self._folder, name, self._top)
            except BadFile as error:
                error.advice = advice
                raise
            if text is not None and text.documents:
                _tried(text, check, advice)
        tasks = self._load(TASKS)
        if tasks is not None:
            _tried(tasks, _check_marks, "Write that task as a map of its own, with an id and a status.")

    def _write(self, name: str, new: Callable[[], str], change: Callable[[Text], str]) -> None:
        text = self._load(name)
        if text is None or not text.documents:
            store(self._folder, name, (text.whole if text else "") + new(), text.whole if text else None)
            return
        changed = self._guarded(text.path, lambda: change(text))
        store(self._folder, name, text.mark + changed, text.whole)

    def _load(self, name: str) -> Text | None:
        try:
            return load(self._folder, name, self._top)
        except BadFile as error:
            place = f" (line {error.line})" if error.line else ""
            raise refused(error.path, f"{error.problem}{place}") from error

    def _guarded(self, path: str, work: Callable[[], T]) -> T:
        try:
            return work()
        except CannotEdit as error:
            raise refused(path, f"{error.where} {error.why}") from None


def _tried(text: Text, check: Callable[[Text], None], advice: str) -> None:
    try:
        check(text)
    except CannotEdit as error:
        line = line_of(text.documents, error.path) or next(
            (node.line for name, node in task_nodes(text) if name in error.path), None
        )
        raise BadFile(text.path, line, f"{error.where} {error.why}", advice=advice) from None


def _check_marks(text: Text) -> None:
    """Raise CannotEdit now, if the status of an open task could not be changed later."""
    open_ones = [task.id for task in tasks_in(text.text).tasks if task.status not in OVER]
    for wanted in ("in_progress", "complete"):
        apply(text.text, list(_marks(text, dict.fromkeys(open_ones, wanted), {}, None)), text.documents)


def _marks(text: Text, statuses: Mapping[str, Status], commits: Mapping[str, str], today: str | None) -> Iterator[Edit]:
    stated = tasks_in(text.text)
    said = {task.id: task.said for task in stated.tasks}
    written = {one: scalar(spelling(one, said_of(stated.tasks))) for one in set(statuses.values())}
    found = 0
    nodes = _by_id(text, {*statuses, *commits})
    for name, (path, node) in nodes.items():
        wanted = statuses.get(name)
        if wanted is not None and (status(said[name]) != wanted if said[name] else wanted != "pending"):
            found += 1
            after = next((key for key in (*IDS, *TITLES) if key in node.value), "")
            yield scalar_edit(text.text, (*path, "status"), node, written[wanted], after)
        if name in commits:
            yield from _evidence(text.text, path, node, commits[name])
    if found:
        done = sum(statuses.get(task.id, task.status) == "complete" for task in stated.tasks)
        yield from _meta(text, done, len(stated.tasks), today)


def _by_id(text: Text, wanted: set[str]) -> dict[str, tuple[Path, Node]]:
    found: dict[str, tuple[Path, Node]] = {}
    for name, node in task_nodes(text):
        if name in wanted:
            if name in found:
                raise CannotEdit((name,), "is there twice")
            path = way_to(text.documents, node)
            if path is None or len(path) > _DEEPEST or not isinstance(node.value, dict):
                raise CannotEdit((name,), "is not a task that stands in the file itself")
            found[name] = (path, node)
    missing = sorted(wanted - found.keys())
    if missing:
        raise CannotEdit((missing[0],), "is not a task of this file")
    return found


def _evidence(text: str, path: Path, node: Node, commit: str) -> Iterator[Edit]:
    entry = node.value.get("evidence")
    if entry is None:
        after = next((key for key in ("status", *IDS, *TITLES) if key in node.value), "")
        yield scalar_edit(text, (*path, "evidence"), node, f"{{commits: [{hash_of(commit)}]}}", after)
        return
    inner = entry.node.value if isinstance(entry.node.value, dict) else {}
    if "commits" not in inner:
        raise CannotEdit((*path, "evidence"), "has no list of commits")
    commits = inner["commits"].node.value
    if not isinstance(commits, list) or commit not in [one.node.value for one in commits]:
        yield item_edit(text, (*path, "evidence", "commits"), inner["commits"], hash_of(commit))


def _meta(text: Text, done: int, count: int, today: str | None) -> Iterator[Edit]:
    for number, root in enumerate(text.documents):
        held = root.value.get("meta") if isinstance(root.value, dict) else None
        if held is None or not isinstance(held.node.value, dict):
            continue
        fresh = {key: moment(today) for key in _DATES if today is not None}
        progress = held.node.value.get("progress")
        told = _PROGRESS.fullmatch(str(progress.node.value)) if progress else None
        if told:
            share = f"{told[4]}{100 * done // max(count, 1)}{told[5]}" if told[5] else ""
            fresh["progress"] = f"{done}{told[2]}{count}{share}"
        for key in fresh.keys() & held.node.value.keys():
            yield scalar_edit(text.text, (number, "meta", key), held.node, fresh[key])

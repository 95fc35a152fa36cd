"""What a dependency file says, in any of the shapes people write: needs, files, phases and its own idea of the batches.

Takes plain text data. Which way `from` and `to` point is found out by what else is known; if nothing is, that is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any

from holdfast.core.named import NamedTuple
from holdfast.core.spec import ASIDE, Phase, Task, natural

Plain = Any
Pair = tuple[str, str]
NEEDS = (
    *("depends_on", "deps", "dependencies", "needs", "requires", "blocked_by", "blockedBy", "blocked-by"),
    *("depends-on", "dependsOn", "dependson", "depends on", "after", "prerequisites"),
)
FILES = ("file", "files", "path", "paths")
_FILES = frozenset(FILES)
_MAPS = ("edges", "graph", "nodes", "tasks", "task_dependencies", "dependency_graph", *NEEDS)
_LISTS = ("edges", "internal", "dependencies")
_NAMES = ("id", "task", "task_id", "key")
_ELSE = frozenset({"batches", "external", "actions", "parallel_groups", "critical_path"})  # these tell of no need


class Graph(NamedTuple):
    """What each task needs, files by task, and the phases and batches as they stand in the file."""

    needs: Mapping[str, tuple[str, ...]] = {}
    files: Mapping[str, tuple[str, ...]] = {}
    phases: tuple[Phase, ...] = ()
    batches: tuple[tuple[str, ...], ...] = ()
    remarks: tuple[str, ...] = ()


def words(value: Plain) -> tuple[str, ...]:
    """One name or a list of names, as names: `a`, `a, b`, [a, b] and [{id: a}, {path: b}] all are."""
    if isinstance(value, str):
        return tuple(filter(None, map(str.strip, value.split(","))))
    if isinstance(value, list):
        return tuple(word for item in value for word in words(item))
    return words(first(value, ("id", "path", "file", "name"))) if isinstance(value, dict) else ()


def text(value: Plain) -> str:
    return value.strip() if isinstance(value, str) else ""


def first(value: Mapping[str, Plain], names: Iterable[str]) -> Plain:
    for name in names:
        if (found := value.get(name)) is not None:
            return found
    return None


def files_of(value: Mapping[str, Plain]) -> tuple[str, ...]:
    """The files that an object names, under all the names that this has."""
    if _FILES.isdisjoint(value):
        return ()
    return tuple(dict.fromkeys(file for name in FILES if name in value for file in _paths(value[name])))


def _paths(value: Plain) -> tuple[str, ...]:
    """Also files by what becomes of them, {create: [a.py]}, or each with a word for that, {a.py: create}."""
    if not isinstance(value, dict) or words(value):
        return words(value)
    return tuple(word for key, held in value.items() for word in ((key,) if _is_path(key) else words(held)))


def _is_path(text: str) -> bool:
    return "." in text or "/" in text


def needs_of(value: Mapping[str, Plain]) -> tuple[str, ...]:
    """What an object says it needs, under all the names that this has; also each with a word for it, {a: hard}."""
    found = [value[name] for name in NEEDS if name in value]
    return tuple(dict.fromkeys(need for held in found for need in words(held) or _labelled(held)))


def _labelled(value: Plain) -> tuple[str, ...]:
    if not isinstance(value, dict) or any(isinstance(held, dict | list) for held in value.values()):
        return ()
    return tuple(value)


def read_graph(data: Mapping[str, Plain], tasks: Sequence[Task]) -> Graph:
    ids = {task.id for task in tasks}
    rows = list(phase_rows(data.get("phases")))
    phases = tuple(_phase(row) for row in rows)
    pairs, remarks = _directed(list(_arrows(data)), tasks, phases)
    told = [*_mapped(data, ids), *_of_phase_tasks(rows, ids)]
    needs = _gathered([*_each(told), *_of_phases(rows, phases, tasks), *_each(pairs)])
    if not needs and _is_meant(data, ids):
        remarks = (*remarks, _NO_NEED)
    if not needs and not any(task.depends_on for task in tasks):
        needs = implied(phases, tasks)
    files = dict(_files(data, rows))
    return Graph(needs, files, phases, tuple(_batches(data.get("batches"))), remarks)


def _each(pairs: Iterable[Pair]) -> Iterator[tuple[str, tuple[str, ...]]]:
    return ((task, (need,)) for task, need in pairs)


def _gathered(told: Iterable[tuple[str, tuple[str, ...]]]) -> dict[str, tuple[str, ...]]:
    """All that each task needs, once. What is told of a whole phase stays one tuple for all of its tasks."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for task, needs in told:
        found.setdefault(task, []).append(needs)
    return {task: parts[0] if len(parts) == 1 else tuple(dict.fromkeys(chain(*parts))) for task, parts in found.items()}


def phase_rows(value: Plain) -> Iterator[Mapping[str, Plain]]:
    """The phases of a list, or of a map from a name to a phase or to its tasks."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield {"id": name, **item} if isinstance(item, dict) else {"id": name, "tasks": item}
    elif isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))


def _phase(row: Mapping[str, Plain]) -> Phase:
    return phase_of(row, first(row, ("tasks", "task_ids")))


def phase_of(row: Mapping[str, Plain], tasks: Plain) -> Phase:
    stated = row.get("checkpoint")
    goal: Mapping[str, Plain] = stated if isinstance(stated, dict) else {}
    about = text(first(row, ("description",))) or text(goal.get("description"))
    criteria = first(goal, ("criteria",))
    listed = tuple(text(item) for item in criteria if text(item)) if isinstance(criteria, list) else ()
    names = words(tasks) or (tuple(tasks) if isinstance(tasks, dict) else ())
    return Phase(text(first(row, ("name", "title", "id"))), names, about, listed)


def _mapped(data: Mapping[str, Plain], ids: set[str]) -> Iterator[Pair]:
    """Maps from a task to what it needs: at the top, under a name, or with the needs inside an object."""
    yield from _of_map({name: value for name, value in data.items() if name in ids}, ids)
    for name in _MAPS:
        value = data.get(name)
        if isinstance(value, dict) and name not in ids:
            yield from _of_map(value, ids)
        elif name != "edges":
            yield from _of_objects(value, ids)


def _of_map(value: Mapping[str, Plain], ids: set[str]) -> Iterator[Pair]:
    for name, item in value.items():
        if isinstance(item, dict):
            yield from _of_object(name, item, ids)
        else:
            yield from ((name, need) for need in words(item))


def _of_object(name: str, item: Mapping[str, Plain], ids: set[str]) -> Iterator[Pair]:
    """The needs in an object; and where all that a map holds are tasks, each with more about it, these are what is needed."""
    yield from ((name, need) for need in needs_of(item))
    yield from ((later, name) for later in words(item.get("blocks")))
    inner = [item, *(item[key] for key in NEEDS if isinstance(item.get(key), dict))]
    yield from ((name, need) for held in inner if held.keys() <= ids for need in held)


def _of_objects(value: Plain, ids: set[str]) -> Iterator[Pair]:
    for item in value if isinstance(value, list) else ():
        if isinstance(item, dict) and text(first(item, _NAMES)):
            yield from _of_object(text(first(item, _NAMES)), item, ids)


def _of_phase_tasks(rows: Sequence[Mapping[str, Plain]], ids: set[str]) -> Iterator[Pair]:
    for row in rows:
        held = row.get("tasks")
        yield from _of_map(held, ids) if isinstance(held, dict) else _of_objects(held, ids)


def _is_meant(data: Mapping[str, Plain], ids: set[str]) -> bool:
    """Whether a file in which no need was found wants to tell of some: it has items that say nothing else, or names a task in
    what it says of another."""
    listed = [item for name in _LISTS if isinstance(data.get(name), list) for item in data[name]]
    told = [item for item in listed if isinstance(item, dict) and any(name in item for name in NEEDS)]
    rest = {name: value for name, value in data.items() if name not in _ELSE}
    return len(told) < len(listed) or _relates(rest, ids, "")


def _relates(value: Plain, ids: set[str], of: str) -> bool:
    if isinstance(value, dict):
        own = text(first(value, _NAMES))
        of = own if own in ids else of
        named = any(of and key != of for key in ids & value.keys())
        return named or any(_relates(item, ids, key if key in ids else of) for key, item in value.items())
    if isinstance(value, list):
        return any(_relates(item, ids, of) for item in value)
    return bool(of) and any(word in ids and word != of for word in words(value))


def _of_phases(
    rows: Sequence[Mapping[str, Plain]], phases: Sequence[Phase], tasks: Sequence[Task]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """A phase that needs a task, or another phase: then it needs what of that phase will be done at all."""
    aside = _aside(tasks)
    members = _members(rows, phases)
    for row, phase in zip(rows, phases, strict=True):
        own = set(phase.tasks)
        for need in needs_of(row):
            found = [one for one in members[need] if one not in aside] if need in members else [need]
            others = tuple(dict.fromkeys(one for one in found if one not in own))
            yield from ((task, others) for task in phase.tasks if others)


def _members(rows: Sequence[Mapping[str, Plain]], phases: Sequence[Phase]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for row, phase in zip(rows, phases, strict=True):
        found |= {text(row[key]): phase.tasks for key in ("id", "name", "title") if text(row.get(key))}
    return found


def _aside(tasks: Sequence[Task]) -> set[str]:
    return {task.id for task in tasks if task.status in ASIDE}


def implied(phases: Sequence[Phase], tasks: Sequence[Task]) -> dict[str, tuple[str, ...]]:
    """Phases and not one word about needs: each phase needs what will be done at all of the one before it."""
    aside = _aside(tasks)
    left = [tuple(dict.fromkeys(task for task in phase.tasks if task not in aside)) for phase in phases]
    return _gathered((task, before) for before, phase in pairwise(filter(None, left)) for task in phase)


def _arrows(data: Mapping[str, Plain]) -> Iterator[Pair]:
    """Pairs of (from, to), however they are written down."""
    for name in _LISTS:
        value = data.get(name)
        for item in value if isinstance(value, list) else ():
            yield from _arrow(item)


def _arrow(item: Plain) -> Iterator[Pair]:
    if isinstance(item, list) and len(item) == 2 and all(map(text, item)):
        yield text(item[0]), text(item[1])
    elif isinstance(item, dict):
        yield from ((start, end) for start in words(item.get("from")) for end in words(item.get("to")))
    elif isinstance(item, str):
        for start, end in pairwise(item.split("->")):
            yield from ((one, other) for one in words(start) for other in words(end))


def _directed(
    arrows: Sequence[Pair], tasks: Sequence[Task], phases: Sequence[Phase]
) -> tuple[list[Pair], tuple[str, ...]]:
    """The arrows as (task, need), by the first evidence that speaks: needs told elsewhere, phases, then the ids."""
    if not arrows:
        return [], ()
    for count, remark in zip(_evidence(arrows, tasks, phases), ("", "", _GUESSED), strict=True):
        ahead, back = count
        if ahead != back:
            mixed = (_MIXED,) if ahead and back and not remark else ()
            return _turned(arrows, turn=back > ahead), (*mixed, *((remark,) if remark else ()))
    return _turned(arrows, turn=True), (_GUESSED,)


_NO_NEED = "It names tasks, and no need of any was understood, so it holds none back. Write a need as `T2: [T1]`, for instance."
_GUESSED = "Nothing says which way `from` and `to` point; it was taken from the order of the ids."
_MIXED = "Some of its `from` and `to` point the other way than most do."


def _turned(arrows: Sequence[Pair], *, turn: bool) -> list[Pair]:
    return [(end, start) for start, end in arrows] if turn else list(arrows)


def _evidence(arrows: Sequence[Pair], tasks: Sequence[Task], phases: Sequence[Phase]) -> Iterator[tuple[int, int]]:
    """How many arrows lead from a task to its need, and how many to a task from its need."""
    known = {(task.id, need) for task in tasks for need in task.depends_on}
    yield sum(pair in known for pair in arrows), sum((end, start) in known for start, end in arrows)
    place = {task: number for number, phase in enumerate(phases) for task in phase.tasks}
    steps = [place[start] - place[end] for start, end in arrows if start in place and end in place]
    yield sum(step > 0 for step in steps), sum(step < 0 for step in steps)
    later = sum(natural(start) > natural(end) for start, end in arrows)
    yield later, len(arrows) - later


def _files(data: Mapping[str, Plain], rows: Sequence[Mapping[str, Plain]]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for row in rows:
        yield from _files_of(row.get("tasks"))
    for name in ("nodes", "tasks"):
        value = data.get(name)
        listed = (
            [{"id": key, **item} for key, item in value.items() if isinstance(item, dict)]
            if isinstance(value, dict)
            else value
        )
        yield from _files_of(listed)


def _files_of(value: Plain) -> Iterator[tuple[str, tuple[str, ...]]]:
    for item in value if isinstance(value, list) else ():
        if isinstance(item, dict) and text(item.get("id")):
            found = files_of(item)
            if found:
                yield text(item["id"]), found


def _batches(value: Plain) -> Iterator[tuple[str, ...]]:
    items = list(value.values()) if isinstance(value, dict) else value
    for item in items if isinstance(items, list) else ():
        yield words(item.get("tasks")) if isinstance(item, dict) else words(item)

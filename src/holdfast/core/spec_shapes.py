"""Plain data of the files of a spec, in any shape people write, as the one model. Never guesses that something is done.

Takes what a YAML reader gives when every scalar is text: maps, lists, text and nothing. Says in words what it cannot use.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence

from msgspec.structs import replace

from holdfast.core.named import NamedTuple
from holdfast.core.spec import (
    Checkpoint,
    Deferred,
    NextBatch,
    Phase,
    PhaseCursor,
    Reviewer,
    Stage,
    Task,
    TaskRef,
)
from holdfast.core.spec_graph import (
    FILES,
    NEEDS,
    Graph,
    Plain,
    files_of,
    first,
    needs_of,
    phase_of,
    phase_rows,
    text,
    words,
)
from holdfast.core.statuses import severity, status

TITLES = ("content", "title", "subject", "name")
IDS = ("id", "task_id", "key")
NAMES = ("name", "content", "title", "subject")  # of a task in a checkpoint
DONE = ("completed", "done", "complete")
SPEC_NAMES = ("spec_name", "scope_name", "spec", "scope")
SPEC_PATHS = ("spec_path", "scope_path")
SAID = ("description", "issue", "detail", "finding", "text", "summary")
PLACES = ("location", "file", "area")
FOUND_BY = ("reviewer", "found_by", "source")
_SILENT = {
    *IDS,
    *TITLES,
    *NEEDS,
    *FILES,
    "status",
    "phase",
    "active_form",
    "activeForm",
    "parallel",
    "evidence",
    "blocks",
}
_RESOLVED = ("resolved", "fixed", "closed", "done")
_LABELLED = re.compile(r"([A-Za-z0-9][\w.-]*) ?\(([a-z-]+)\)")
_TASK_FIRST = re.compile(r"\[?([A-Z][A-Z0-9]*-[0-9]+|T[0-9]+)\b")
_MARK = "[P]"
_JOINED = frozenset({"tasks", "phases", "edges", "internal", "dependencies", "batches"})
_INSIDE = {"tasks": "depends_on", "dependencies": "depends_on", "phases": "tasks"}  # what a bare value under an id is


class Row(NamedTuple):
    """A row of the file, and what else decides how it is read: the phase that names it, and the tasks that it waits for."""

    plain: Plain
    phase: str | None
    blocked: Sequence[str]
    task: Task
    remark: str


class Tasks(NamedTuple):
    """What `tasks.yaml` says. A remark is (the place in the list, a sentence); a fatal one is a flaw."""

    name: str = ""
    code: str | None = None
    next_id: int | None = None
    tasks: tuple[Task, ...] = ()
    phases: tuple[Phase, ...] = ()
    remarks: tuple[tuple[int, str], ...] = ()
    flaws: tuple[tuple[int, str], ...] = ()
    read: tuple[Row, ...] = ()


def merged(documents: Sequence[Plain]) -> dict[str, Plain]:
    """The documents of one file as one map. A bare list is a list of tasks; the lists of a plan go on in the next."""
    data: dict[str, Plain] = {}
    for document in documents:
        found = document if isinstance(document, dict) else {"tasks": document} if isinstance(document, list) else {}
        known = {key: data[key] for key in _JOINED & data.keys() & found.keys()}
        data |= found
        data |= {key: _both(key, before, found[key]) for key, before in known.items()}
    return data


def _both(key: str, before: Plain, after: Plain) -> Plain:
    if after is None:
        return before
    if not goes_on(key, [before], after):
        return after
    if isinstance(before, dict) and isinstance(after, dict):
        return {**before, **after}
    return [*_listed(key, before), *_listed(key, after)]


def goes_on(key: str, before: Sequence[Plain], after: Plain) -> bool:
    """Whether a later document adds to what earlier ones list: a list always does, a map if it says nothing anew of theirs.

    A list and a map go together where the map can be read as a list.
    """
    kinds = {"map" if isinstance(one, dict) else "list" if isinstance(one, list) else "" for one in (*before, after)}
    if kinds == {"map"}:
        return all(one.keys().isdisjoint(after) for one in before)
    return kinds == {"list"} or (kinds == {"list", "map"} and key in _INSIDE)


def _listed(key: str, value: Plain) -> list[Plain]:
    """A list as it is, and a map by id as the list that says the same."""
    if isinstance(value, list):
        return value
    return [
        {"id": name, **row} if isinstance(row, dict) else row and {"id": name, _INSIDE[key]: row}
        for name, row in value.items()
    ]


def task_rows(data: Mapping[str, Plain]) -> list[Plain]:
    """The tasks as they stand in the file: a list, a map by id, or one of these inside the phases; beside tasks of their own
    phases mostly just name them."""
    found = data.get("tasks")
    inner = [_rows(row.get("tasks")) for row in phase_rows(data.get("phases"))]
    mapped = [task for rows in inner for task in rows if isinstance(task, dict)]
    if not isinstance(found, dict | list):
        return mapped
    own = _rows(found)
    known = {text(first(row, IDS)) for row in own if isinstance(row, dict)} if mapped else frozenset()
    return [*own, *(row for row in mapped if tells_task(text(first(row, IDS)), row, known))]


def tells_task(name: str, row: object, known: Container[str]) -> bool:
    """Whether this is a task of its own, and not only the name of one."""
    is_told = isinstance(row, dict) and ("status" in row or any(key in row for key in TITLES))
    return is_told and name != "" and name not in known


def _rows(value: Plain) -> list[Plain]:
    if isinstance(value, dict):
        return [{"id": name, **row} if isinstance(row, dict) else row for name, row in value.items()]
    return value if isinstance(value, list) else []


def read_tasks(data: Mapping[str, Plain], before: Tasks | None = None) -> Tasks:
    """What the data say. Rows that are as they were `before` are what they were then."""
    phases = tuple(_phases(data.get("phases")))
    where = {task: phase.name for phase in phases for task in phase.tasks}
    rows = task_rows(data)
    names = [text(first(row, IDS)) if isinstance(row, dict) else "" for row in rows]
    blocked, remarks = _blocked(names, rows)
    read, flaws = list[Row](), list[tuple[int, str]]()
    for number, (name, row) in enumerate(zip(names, rows, strict=True)):
        if not name:
            flaws.append((number, "A task has no id."))
            continue
        phase, needs = where.get(name), blocked.get(name, ())
        known = before.read[len(read)] if before is not None and len(read) < len(before.read) else None
        if known is None or known[:3] != (row, phase, needs):
            known = Row(row, phase, needs, *_task(row, phase, needs))
        read.append(known)
        remarks += [(number, known.remark)] if known.remark else []
    return Tasks(
        text(first(data, ("spec", "scope", "name"))),
        text(data.get("code")) or None,
        number_of(data.get("next_id")),
        tuple(row.task for row in read),
        phases,
        tuple(remarks),
        tuple(flaws),
        tuple(read),
    )


def _blocked(names: Sequence[str], rows: Sequence[Plain]) -> tuple[dict[str, list[str]], list[tuple[int, str]]]:
    """Who needs what, by the tasks that say what they block; and which of these name a task that is not there."""
    known, found, strange = set(names), dict[str, list[str]](), list[tuple[int, str]]()
    for number, (name, row) in enumerate(zip(names, rows, strict=True)):
        for later in words(row["blocks"]) if name and "blocks" in row else ():
            found.setdefault(later, []).append(name)
            strange += [] if later in known else [(number, f"{name} blocks {later}, and there is no such task.")]
    return found, strange


def _phases(value: Plain) -> Iterator[Phase]:
    for row in phase_rows(value):
        yield phase_of(row, first(row, ("task_ids", "tasks")))


def _task(row: Mapping[str, Plain], phase: str | None, blocked: Sequence[str]) -> tuple[Task, str]:
    name, title, said = text(first(row, IDS)), text(first(row, TITLES)), text(row.get("status"))
    known = status(said) if said else "pending"
    task = Task(
        id=name,
        title=title,
        status=known or "pending",
        said=said,
        files=files_of(row),
        depends_on=tuple(dict.fromkeys((*needs_of(row), *blocked))),
        phase=text(row.get("phase")) or phase,
        marked_parallel=is_true(row.get("parallel")) or _MARK in title,
        text=_told(row, title),
    )
    return task, "" if known else f"{name} has the status {said!r:.80}, which is not known; it counts as pending."


def _told(row: Mapping[str, Plain], title: str) -> str:
    rest = {key: value for key, value in row.items() if key not in _SILENT}
    more = [text(row[key]) for key in TITLES if text(row.get(key)) not in ("", title)]
    return "\n".join([*more, *_prose(rest, "")])


def _prose(value: Plain, indent: str) -> Iterator[str]:
    """Any data as lines a person or an agent can read."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _labelled(f"{indent}{key}:", item, indent)
    elif isinstance(value, list):
        for item in value:
            yield from _labelled(f"{indent}-", item, indent)
    elif value is not None:
        yield from (indent + line for line in value.strip().splitlines())


def _labelled(label: str, item: Plain, indent: str) -> Iterator[str]:
    if isinstance(item, str) and "\n" not in item.strip():
        yield f"{label} {item.strip()}".rstrip()
    else:
        yield label
        yield from _prose(item, indent + "  ")


def is_true(value: Plain) -> bool:
    return text(value).casefold() in ("true", "yes", "on", "p", "[p]")


def number_of(value: Plain) -> int | None:
    return int(text(value)) if re.fullmatch("[0-9]{1,9}", text(value)) else None


def joined(tasks: Sequence[Task], graph: Graph) -> tuple[Task, ...]:
    """The tasks with what the dependency file adds: needs, files, phases."""
    where = {task: phase.name for phase in graph.phases for task in phase.tasks}
    return tuple(_join(task, graph.needs.get(task.id, ()), graph.files.get(task.id, ()), where) for task in tasks)


def _join(task: Task, needs: tuple[str, ...], files: tuple[str, ...], where: Mapping[str, str]) -> Task:
    return replace(
        task,
        depends_on=tuple(dict.fromkeys((*task.depends_on, *needs))) if task.depends_on else needs,
        files=tuple(dict.fromkeys((*task.files, *files))) if task.files else files,
        phase=task.phase or where.get(task.id),
    )


def read_checkpoint(data: Mapping[str, Plain]) -> Checkpoint:
    inner = data.get("checkpoint")
    body: Mapping[str, Plain] = inner if isinstance(inner, dict) else data
    lists = body.get("tasks")
    tasks: Mapping[str, Plain] = lists if isinstance(lists, dict) else {}
    completed, doing, pending = refs(first(tasks, DONE)), refs(tasks.get("in_progress")), refs(tasks.get("pending"))
    following = _next_batch(body.get("next_batch"))
    over = bool(completed) and not doing and not pending
    return Checkpoint(
        spec_name=text(first(body, SPEC_NAMES)),
        spec_path=text(first(body, SPEC_PATHS)),
        branch=text(body.get("branch")),
        timestamp=text(body.get("timestamp")),
        last_batch=text(body.get("last_batch")) or None,
        last_commit=text(body.get("last_commit")) or None,
        completed=completed,
        in_progress=doing,
        pending=pending,
        next_batch=following,
        finished=following is None and ("next_batch" in body or over or is_true(body.get("all_tasks_complete"))),
        deferred=tuple(read_deferred(body.get("deferred_issues"))),
        reviewers=read_reviewers(body),
        reviewed_by=words(body["reviewed_by"]) if "reviewed_by" in body else None,
        tasks_digest=text(body.get("tasks_digest")) or None,
        cursor=_cursor(body.get("phase_cursor")),
        incomplete=tuple(_stages(body.get("incomplete_stages"))),
    )


def refs(value: Plain) -> tuple[TaskRef, ...]:
    found = (_ref(item) for item in value) if isinstance(value, list) else (TaskRef(name) for name in words(value))
    return tuple(ref for ref in found if ref.id)


def _ref(item: Plain) -> TaskRef:
    if isinstance(item, dict):
        files = files_of(item)
        name = text(first(item, NAMES))
        return TaskRef(text(first(item, IDS)), name, ", ".join(files) or None)
    return TaskRef(text(item))


def _next_batch(value: Plain) -> NextBatch | None:
    if not isinstance(value, dict):
        return None
    return NextBatch(text(first(value, ("number", "batch"))), refs(value.get("tasks")), is_true(value.get("parallel")))


def _fields(value: Plain, names: Sequence[str]) -> dict[str, str]:
    return {name: text(value.get(name)) for name in names}


def _cursor(value: Plain) -> PhaseCursor | None:
    if not isinstance(value, dict):
        return None
    return PhaseCursor(**_fields(value, ("batch", "phase", "status", "updated_at")), tasks=words(value.get("tasks")))


def _stages(value: Plain) -> Iterator[Stage]:
    for item in value if isinstance(value, list) else ():
        if isinstance(item, dict):
            yield Stage(**_fields(item, ("batch", "task", "phase", "agent", "status", "started_at", "failure")))


def read_reviewers(data: Mapping[str, Plain]) -> tuple[Reviewer, ...]:
    """Names or objects, under `review_config` or at the top."""
    config = data.get("review_config")
    found = config.get("reviewers") if isinstance(config, dict) else data.get("reviewers")
    return tuple(
        reviewer for item in (found if isinstance(found, list) else words(found)) for reviewer in _reviewer(item)
    )


def _reviewer(item: Plain) -> Iterator[Reviewer]:
    if isinstance(item, dict):
        name = text(first(item, ("name", "id", "type", "agent", "model")))
        model = text(item.get("model")) or None
        if name:
            yield Reviewer(name, model)
    elif text(item):
        yield Reviewer(text(item))


def read_deferred(value: Plain) -> Iterator[Deferred]:
    """Findings that were put off, as sentences, as `id (severity): sentence`, or as objects."""
    for item in value if isinstance(value, list) else ():
        if isinstance(item, dict):
            label = _LABELLED.fullmatch(next(iter(item), "")) if len(item) == 1 else None
            yield _labelled_finding(item, label) if label else _finding(item)
        elif text(item):
            named = _TASK_FIRST.match(text(item))
            yield Deferred(text(item), task=named[1] if named else None)


def _labelled_finding(item: Mapping[str, Plain], label: re.Match[str]) -> Deferred:
    named = _TASK_FIRST.match(label[1])
    sentence = text(next(iter(item.values())))
    return Deferred(sentence, severity(label[2]), label[1], task=named[1] if named else None)


def _finding(item: Mapping[str, Plain]) -> Deferred:
    said = text(item.get("status")).casefold()
    return Deferred(
        description=text(first(item, SAID)) or " ".join(_prose(item, "")),
        severity=severity(text(item.get("severity")) or "medium"),
        id=text(item.get("id")) or None,
        batch=text(item.get("batch")) or None,
        task=", ".join(words(first(item, ("task", "owner")))) or None,
        location=text(first(item, PLACES)) or None,
        reviewer=", ".join(words(first(item, FOUND_BY))) or None,
        status="resolved" if said.startswith(_RESOLVED) else "deferred",
    )


def open_findings(*lists: Sequence[Deferred]) -> tuple[Deferred, ...]:
    """What is still put off, each once: by its id, else by what it says."""
    found: dict[str, Deferred] = {}
    for one in (finding for findings in lists for finding in findings):
        found.setdefault(one.id or one.description, one)
    settled = {key for key, one in found.items() if one.status == "resolved"}
    settled |= {one.id for findings in lists for one in findings if one.status == "resolved" and one.id}
    return tuple(one for key, one in found.items() if key not in settled)


def ids_in(value: Plain) -> list[str]:
    """Every id anywhere in what a file says."""
    if isinstance(value, dict):
        own = [value["id"]] if isinstance(value.get("id"), str) else []
        return own + [name for item in value.values() for name in ids_in(item)]
    return [name for item in value for name in ids_in(item)] if isinstance(value, list) else []


def said_of(tasks: Sequence[Task]) -> tuple[str, ...]:
    return tuple(task.said for task in tasks if task.said)

"""Reads the files of a spec into one model. A file that cannot be used is reported with its line, and the others still load.

Only a folder without `tasks.yaml` is no spec at all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from holdfast.adapters.paths import real_path
from holdfast.adapters.specs.memory import Memory
from holdfast.adapters.specs.texts import Text, data_of, fetch, parse, problem_of, within
from holdfast.adapters.specs.yaml_text import Node
from holdfast.core.batches import faults, plan
from holdfast.core.errors import BadInput, NotFound
from holdfast.core.named import NamedTuple
from holdfast.core.spec import ASIDE, OVER, Checkpoint, Problem, Spec, SpecError, Task, digest_of, natural
from holdfast.core.spec_besides import lost, lost_of_checkpoint
from holdfast.core.spec_graph import Graph, implied, read_graph
from holdfast.core.spec_shapes import (
    IDS,
    Tasks,
    goes_on,
    ids_in,
    joined,
    open_findings,
    read_checkpoint,
    read_deferred,
    read_reviewers,
    read_tasks,
    tells_task,
)

TASKS, NEEDS, CHECKPOINT, REVIEW, VALIDATION = (
    f"{kind}.yaml" for kind in ("tasks", "dependencies", "checkpoint", "review", "validation")
)
FILES = (TASKS, NEEDS, CHECKPOINT, REVIEW, VALIDATION)
_PLACES = (
    "specs/active",
    "specs/draft",
    "specs/done",
    "specs",
    "scopes/active",
    "scopes/draft",
    "scopes/done",
    "scopes",
)
_NAMES_TOLD = 10


Found = dict[str, bytes | BadInput]


def fetch_all(folder: str, top: str, shown: str) -> Found:
    """The bytes of each file that is there, or why they cannot be had. `shown` is what the folder is called in an error."""
    if not within(folder, top):
        raise SpecError(f"{shown} is a link that leaves the repository.")
    if not os.path.lexists(os.path.join(folder, TASKS)):
        raise SpecError(f"There is no {TASKS} in {shown}.", advice="A spec is a folder with a tasks.yaml.")
    found: Found = {}
    base = real_path(top)
    for name in FILES:
        try:
            data = fetch(folder, name, base)
        except BadInput as error:
            found[name] = error
        else:
            found |= {} if data is None else {name: data}
    return found


def lost_in(name: str, before: bytes, now: bytes | None) -> list[str]:
    """What a file said besides what a run writes, and does not say any more; "all of it" if nobody can read it now.

    Where that is something, with the deferred findings that are gone.
    """
    was = parse(name, before).data
    if now == before:
        return []
    try:
        left = parse(name, now or b"").data
    except BadInput:
        left = {}
    gone = lost_of_checkpoint(was, left) if name == CHECKPOINT else list(dict.fromkeys(lost(was, left)))
    gone += ["its comments"] if b"#" in before and b"#" not in (now or b"") else []
    put_off, known = ([one.id or one.description for one in read_checkpoint(data).deferred] for data in (was, left))
    found = ["all of it"] if was and not left else gone
    return found and [*found, *(one for one in put_off if one not in known)]


class Planned(NamedTuple):
    """The tasks with what they need, and what follows from that alone."""

    tasks: tuple[Task, ...]
    faults: Sequence[str]
    digest: str


class Understood(NamedTuple):
    """What the files say, and the parts of it that hold as long as the files do that they come from."""

    found: Found
    spec: Spec
    stated: Tasks
    needs: Mapping[str, Any]
    graph: Graph
    planned: Planned


def understood(folder: str, shown: str, found: Found, before: Understood | None = None) -> Understood:
    """All that the files say. What did not change since `before` is not worked out again."""
    texts: dict[str, Text] = {}
    problems: list[Problem] = []
    for name, data in found.items():
        try:
            if isinstance(data, BadInput):
                raise data
            texts[name] = parse(os.path.join(folder, name), data)
        except BadInput as error:
            line, message = problem_of(error)
            problems.append(Problem(os.path.join(shown, name), line, message, fatal=name in (TASKS, NEEDS)))
    stated = tasks_in(texts[TASKS].text) if TASKS in texts else read_tasks({})
    needs = texts[NEEDS].data if NEEDS in texts else {}
    graph = _graph(needs, stated, before)
    if before is not None and (stated, graph) == (before.stated, before.graph):
        planned = before.planned
    else:
        tasks = joined(stated.tasks, graph)
        sound = before.planned.tasks if before is not None and not before.planned.faults else ()
        planned = Planned(tasks, faults(tasks, sound), digest_of(tasks))
    spec = _spec(shown, texts, problems, stated, graph, planned)
    return Understood(found, spec, stated, needs, graph, planned)


@Memory
def tasks_in(text: str, known: Sequence[tuple[str, Tasks]]) -> Tasks:
    """What a `tasks.yaml` says."""
    return read_tasks(data_of(text), known[0][1] if known else None)


def _graph(needs: Mapping[str, Any], stated: Tasks, before: Understood | None) -> Graph:
    """What each task needs: of the tasks, their ids and needs decide it, and which of them are set aside."""
    if before is not None and needs == before.needs and _basis(stated) == _basis(before.stated):
        return before.graph
    graph = read_graph(needs, stated.tasks)
    if graph.needs or graph.phases or any(task.depends_on for task in stated.tasks):
        return graph
    return graph._replace(needs=implied(stated.phases, stated.tasks))


def _basis(stated: Tasks) -> tuple[Any, ...]:
    return stated.phases, [(task.id, task.depends_on, task.status in ASIDE) for task in stated.tasks]


def _spec(
    folder: str,
    texts: Mapping[str, Text],
    problems: Sequence[Problem],
    stated: Tasks,
    graph: Graph,
    planned: Planned,
) -> Spec:
    data = {name: text.data for name, text in texts.items()}
    checkpoint = checkpoint_in(texts[CHECKPOINT].text) if CHECKPOINT in texts else None
    review = data.get(REVIEW, {})
    named = [read_reviewers(data.get(name, {})) for name in (REVIEW, VALIDATION)]
    found = [*problems, *_of_tasks(folder, texts.get(TASKS), stated), *_of_graph(folder, graph, planned.tasks)]
    return Spec(
        name=stated.name or (checkpoint.spec_name if checkpoint else "") or os.path.basename(os.path.abspath(folder)),
        path=folder,
        code=stated.code,
        next_id=stated.next_id,
        tasks=planned.tasks,
        phases=stated.phases or graph.phases,
        reviewers=next((some for some in [checkpoint.reviewers if checkpoint else (), *named] if some), ()),
        deferred=open_findings(
            checkpoint.deferred if checkpoint else (), [*read_deferred(review.get("deferred_issues"))]
        ),
        reviewed=tuple(ids_in(review)),
        checkpoint=checkpoint,
        problems=(*found, *(_problem(folder, TASKS, None, said, fatal=True) for said in planned.faults)),
        digest=planned.digest,
    )


@Memory
def checkpoint_in(text: str, known: object) -> Checkpoint:
    """What a `checkpoint.yaml` says."""
    return read_checkpoint(data_of(text))


def _problem(folder: str, name: str, line: int | None, said: str, *, fatal: bool = False) -> Problem:
    return Problem(os.path.join(folder, name), line, said, fatal)


def _of_tasks(folder: str, text: Text | None, stated: Tasks) -> Iterator[Problem]:
    if text is None:
        return
    lines = [node.line for _, node in task_nodes(text)] if stated.flaws or stated.remarks else []
    for fatal, remarks in ((True, stated.flaws), (False, stated.remarks)):
        for place, said in remarks:
            yield _problem(folder, TASKS, lines[place] if place < len(lines) else None, said, fatal=fatal)
    if not stated.tasks:
        yield _problem(folder, TASKS, None, "It names no task.", fatal=True)


def task_nodes(text: Text) -> list[tuple[str, Node]]:
    """Each task's id and its map, in the order in which `core.spec_shapes.task_rows` has them."""
    own = [pair for node in _told(text, "tasks") for pair in _nodes_of(node)]
    inner = [node for phases in _told(text, "phases") for node in _of_phases(phases)]
    more = [pair for node in inner for pair in _nodes_of(node)]
    known = {name for name, _ in own}
    return [*own, *(pair for pair in more if tells_task(pair[0], pair[1].told, known))] if own else more


def _told(text: Text, key: str) -> list[Node]:
    """What the documents hold under a key that counts, as `core.spec_shapes.merged` takes it together."""
    found: list[Node] = []
    for node in (_held(root, key) for root in text.documents):
        if node is not None and not node.is_nothing:
            found = [*found, node] if goes_on(key, [one.value for one in found], node.value) else [node]
    return found


def _of_phases(phases: Node) -> Iterator[Node]:
    """What each phase holds as its tasks. In a map from names, that may be all that stands there."""
    if isinstance(phases.value, dict):
        inner = [entry.node for entry in phases.value.values()]
    else:
        inner = [entry.node for entry in _items(phases) if isinstance(entry.node.value, dict)]
    yield from (node for phase in inner if (node := _held(phase, "tasks")) is not None)


def _held(root: Node, key: str) -> Node | None:
    """What a document holds under a key. A bare list is a list of tasks."""
    if isinstance(root.value, dict):
        return root.value[key].node if key in root.value else None
    return root if key == "tasks" and isinstance(root.value, list) else None


def _items(node: Node | None) -> list[Any]:
    return node.value if node is not None and isinstance(node.value, list) else []


def _nodes_of(node: Node) -> Iterator[tuple[str, Node]]:
    if isinstance(node.value, dict):
        yield from ((name, entry.node) for name, entry in node.value.items())
    for entry in _items(node):
        row = entry.node.told if isinstance(entry.node.told, dict) else {}
        key = next((key for key in IDS if key in row), None)
        yield "" if key is None else str(row[key].node.told).strip(), entry.node


def _of_graph(folder: str, graph: Graph, tasks: Sequence[Task]) -> Iterator[Problem]:
    for remark in graph.remarks:
        yield _problem(folder, NEEDS, None, remark)
    strangers = sorted(graph.needs.keys() - {task.id for task in tasks}, key=natural)
    if strangers and tasks:
        listed = ", ".join(strangers[:_NAMES_TOLD])
        yield _problem(folder, NEEDS, None, f"It tells what {listed} needs, and {TASKS} has no such task.")
    if graph.batches and _other_batches(graph, tasks):
        yield _problem(folder, NEEDS, None, "Its batches are not those that follow from needs and files; these count.")


def _other_batches(graph: Graph, tasks: Sequence[Task]) -> bool:
    """Whether the batches in the file differ from those of the same tasks before any was begun."""
    listed = {name for batch in graph.batches for name in batch}
    fresh = [
        replace(task, status="pending") if task.id in listed and task.status not in ASIDE else task for task in tasks
    ]
    if faults(fresh):
        return False
    names = {task.id for task in fresh if task.status not in OVER}
    stated = [names.intersection(batch) for batch in graph.batches]
    return [batch for batch in stated if batch] != [set(batch.tasks) for batch in plan(fresh)]


def find(top: str) -> list[str]:
    """The folders of specs below a repository's usual places."""
    found: dict[str, str] = {}
    for place in _PLACES:
        base = os.path.join(top, place)
        for name in sorted(os.listdir(base), key=natural) if os.path.isdir(base) else ():
            folder = os.path.join(base, name)
            if os.path.isfile(os.path.join(folder, TASKS)) and within(folder, top):
                found.setdefault(real_path(folder), folder)
    return list(found.values())


def named(top: str, text: str) -> str:
    """The folder that a path or a name means. Raises with the candidates when it means none, or several."""
    for path in (os.path.abspath(text), os.path.join(top, text)):
        folder = os.path.dirname(path) if os.path.basename(path) == TASKS else os.path.normpath(path)
        if os.path.isfile(os.path.join(folder, TASKS)):
            return folder
    known = find(top)
    fitting = [one for one in known if os.path.basename(one) == text]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        places = ", ".join(os.path.relpath(one, top) for one in fitting)
        raise SpecError(
            f"There are {len(fitting)} specs called {text!r:.120}: {places}.", advice="Give the path of one."
        )
    error = NotFound("spec", text)
    error.advice = f"There are: {', '.join(os.path.relpath(one, top) for one in known) or 'none'}."
    raise error

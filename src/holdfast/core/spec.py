"""A spec as one model, whatever shape its files have: tasks, phases, findings put off, the checkpoint a file tells of.

Only values and how two of them differ. What decides the batches has one digest, the same for every order of the tasks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Literal

import msgspec

from holdfast.core.canonical import digest
from holdfast.core.errors import BadInput

Status = Literal["pending", "in_progress", "awaiting_review", "blocked", "complete", "deferred", "dropped"]
Severity = Literal["critical", "high", "medium", "low"]

OVER: frozenset[Status] = frozenset({"complete", "deferred", "dropped"})  # nobody has to work on these
ASIDE: frozenset[Status] = frozenset({"deferred", "dropped"})  # and these will not be there for others
HELD: frozenset[Status] = frozenset({"blocked"})  # nobody is to begin with these until a person says otherwise
_DIGITS = re.compile("([0-9]+)")
_PROBLEMS_TOLD = 20
_NEVER = float("-inf")


class Task(msgspec.Struct, frozen=True, gc=False):
    """One line of the plan. `said` is the status as the file spells it; `text` is what else an agent should be told.

    It holds words alone, so the garbage collector need not look at the thousands that there may be.
    """

    id: str
    title: str = ""
    status: Status = "pending"
    said: str = ""
    files: tuple[str, ...] = ()
    depends_on: tuple[str, ...] = ()
    phase: str | None = None
    marked_parallel: bool = False
    text: str = ""


class Phase(msgspec.Struct, frozen=True):
    """A named group of tasks, with what must hold when it is over."""

    name: str
    tasks: tuple[str, ...] = ()
    description: str = ""
    criteria: tuple[str, ...] = ()


class Reviewer(msgspec.Struct, frozen=True):
    name: str
    model: str | None = None


class Deferred(msgspec.Struct, frozen=True):
    """A finding that was put off."""

    description: str
    severity: Severity = "medium"
    id: str | None = None
    batch: str | None = None
    task: str | None = None
    location: str | None = None
    reviewer: str | None = None
    status: str = "deferred"


class TaskRef(msgspec.Struct, frozen=True, gc=False):
    """A task as a checkpoint names it."""

    id: str
    name: str = ""
    file: str | None = None


class NextBatch(msgspec.Struct, frozen=True):
    number: str
    tasks: tuple[TaskRef, ...] = ()
    parallel: bool = False


class PhaseCursor(msgspec.Struct, frozen=True):
    """Where a batch stood, as a file tells it."""

    batch: str = ""
    phase: str = ""
    status: str = ""
    tasks: tuple[str, ...] = ()
    updated_at: str = ""


class Stage(msgspec.Struct, frozen=True):
    """Work that was begun and has no valid end, as a file tells it."""

    batch: str = ""
    task: str = ""
    phase: str = ""
    agent: str = ""
    status: str = ""
    started_at: str = ""
    failure: str = ""


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """What `checkpoint.yaml` says. A mirror: the log is asked first.

    `reviewers` are wanted; `reviewed_by` is who reviewed the last batch, told where these were others.
    """

    spec_name: str = ""
    spec_path: str = ""
    branch: str = ""
    timestamp: str = ""
    last_batch: str | None = None
    last_commit: str | None = None
    completed: tuple[TaskRef, ...] = ()
    in_progress: tuple[TaskRef, ...] = ()
    pending: tuple[TaskRef, ...] = ()
    next_batch: NextBatch | None = None
    finished: bool = False
    deferred: tuple[Deferred, ...] = ()
    reviewers: tuple[Reviewer, ...] = ()
    reviewed_by: tuple[str, ...] | None = None
    tasks_digest: str | None = None
    cursor: PhaseCursor | None = None
    incomplete: tuple[Stage, ...] = ()


class Problem(msgspec.Struct, frozen=True):
    """What is wrong with a file. A fatal one leaves nothing to run by."""

    path: str
    line: int | None
    message: str
    fatal: bool = False

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}: {self.message}" if self.line else f"{self.path}: {self.message}"


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """All that the files of one folder say. `path` is the folder; `next_id` the number of the next task, if it is told;
    `reviewed` are the ids in `review.yaml`."""

    name: str
    path: str
    code: str | None = None
    next_id: int | None = None
    tasks: tuple[Task, ...] = ()
    phases: tuple[Phase, ...] = ()
    reviewers: tuple[Reviewer, ...] = ()
    deferred: tuple[Deferred, ...] = ()
    reviewed: tuple[str, ...] = ()
    checkpoint: Checkpoint | None = None
    problems: tuple[Problem, ...] = ()
    digest: str = ""


class SpecError(BadInput):
    """A spec that cannot be worked by. `problems` has every one of them."""

    advice = "Put the files in order and try again. Nothing was changed."

    def __init__(self, message: str, problems: Sequence[Problem] = (), *, advice: str | None = None) -> None:
        super().__init__(message, advice=advice)
        self.problems = tuple(problems)


def refuse(problems: Sequence[Problem]) -> None:
    """Raise, with all of them, if one of the problems is fatal."""
    fatal = [problem for problem in problems if problem.fatal]
    if fatal:
        more = len(fatal) - _PROBLEMS_TOLD
        told = [str(problem) for problem in fatal[:_PROBLEMS_TOLD]] + ([f"And {more} more."] if more > 0 else [])
        raise SpecError(" ".join(told), problems)


@lru_cache(maxsize=8192)
def natural(text: str) -> tuple[tuple[object, ...], str]:
    """A key that sorts T before T2 and that before T10, however long the numbers are, and the same for everybody."""
    parts: list[object] = list(_DIGITS.split(text))
    for place in range(1, len(parts), 2):
        bare = str(parts[place]).lstrip("0")
        parts[place] = (len(bare), bare)
    return tuple(parts), text  # text and number take turns in `parts` alone


def digest_of(tasks: Iterable[Task]) -> str:
    """The digest of what decides the batches: ids, titles, files, needs, and whether each is open, blocked, complete or
    set aside."""
    sort = cache(_sorted)  # all tasks of a phase may need the same
    rows = [
        (task.id, task.title, _sorted(task.files), sort(task.depends_on), task.phase, _stand(task)) for task in tasks
    ]
    return digest(b"holdfast/tasks/1\n" + msgspec.json.encode(sorted(rows, key=lambda row: row[0])))


def _sorted(names: Iterable[str]) -> list[str]:
    return sorted(set(names))


def _stand(task: Task) -> str:
    return task.status if task.status in OVER | HELD else "open"


def changes(before: Iterable[Task], after: Iterable[Task]) -> list[str]:
    """What is different now, one sentence each, in the order of the ids. Empty when the batches are decided by the same."""
    was, now = _by_id(before), _by_id(after)
    differing = [name for name in was.keys() | now.keys() if was.get(name) != now.get(name)]
    sentences: list[str] = []
    for name in sorted(differing, key=natural):
        sentences += _change(name, was.get(name), now.get(name))
    return sentences


def _by_id(tasks: Iterable[Task]) -> dict[str, Task]:
    return {task.id: task for task in tasks}


def _change(name: str, was: Task | None, now: Task | None) -> list[str]:
    if was is None or now is None:
        return [f"{name} was removed."] if was else [f"{name} was added{_titled(now)}."]
    return [*_rewording(was, now), *_regrouping(was, now), *_restatus(was, now)]


def _titled(task: Task | None) -> str:
    return f": {task.title}" if task and task.title else ""


def _rewording(was: Task, now: Task) -> list[str]:
    if was.title == now.title:
        return []
    return [f"{now.id} is called {now.title!r} now; it was {was.title!r}."]


def _regrouping(was: Task, now: Task) -> list[str]:
    said = [
        *_list_change(now.id, "needs", was.depends_on, now.depends_on),
        *_list_change(now.id, "touches", was.files, now.files),
    ]
    if was.phase != now.phase:
        said.append(f"{now.id} is in phase {now.phase or '(none)'} now; it was in {was.phase or '(none)'}.")
    return said


def _list_change(name: str, verb: str, was: Sequence[str], now: Sequence[str]) -> list[str]:
    more, less = sorted(set(now) - set(was), key=natural), sorted(set(was) - set(now), key=natural)
    said = [f"{name} now {verb} {', '.join(more)}."] if more else []
    return said + ([f"{name} no longer {verb} {', '.join(less)}."] if less else [])


def _restatus(was: Task, now: Task) -> list[str]:
    return [] if _stand(was) == _stand(now) else [f"{now.id} is {now.status} now; it was {was.status}."]


def unblocked(tasks: Iterable[Task]) -> list[Task]:
    """The tasks as they are once nothing is blocked any more."""
    return [msgspec.structs.replace(task, status="pending") if task.status in HELD else task for task in tasks]


def changes_since(checkpoint: Checkpoint, tasks: Sequence[Task]) -> list[str]:
    """The same from the little that a checkpoint tells: which tasks there were, how they were called, and which were done.

    What is blocked is told by itself, and counted as open when older checkpoints were written. Of a checkpoint that names no
    task at all, nobody knows which are new.
    """
    if checkpoint.tasks_digest in (digest_of(tasks), digest_of(unblocked(tasks))):
        return []
    was, now = _summary(checkpoint), _by_id(tasks)
    names = sorted(was.keys() | now.keys(), key=natural) if was else ()
    said = [_since(name, was.get(name), now.get(name)) for name in names]
    told = [sentence for sentence in said if sentence]
    if not told and checkpoint.tasks_digest is not None:
        return ["What a task needs, which files it touches or its phase has changed, or one is no longer blocked."]
    return told


def _summary(checkpoint: Checkpoint) -> dict[str, tuple[TaskRef, bool]]:
    opened = {ref.id: (ref, False) for ref in (*checkpoint.pending, *checkpoint.in_progress)}
    return opened | {ref.id: (ref, True) for ref in checkpoint.completed}


def _since(name: str, was: tuple[TaskRef, bool] | None, now: Task | None) -> str:
    if was is None or now is None:
        return f"{name} was removed." if was else _new(now)
    ref, done = was
    if ref.name and ref.name != now.title:
        return f"{name} is called {now.title!r} now; it was {ref.name!r}."
    if done != (now.status == "complete"):
        return f"{name} is {now.status} now; it was {'complete' if done else 'not complete'}."
    return ""


def _new(task: Task | None) -> str:
    """A task that was set aside is in no summary, and so is not new."""
    return f"{task.id} was added{_titled(task)}." if task and task.status not in ASIDE else ""


def newest(checkpoints: Iterable[Checkpoint]) -> Checkpoint | None:
    """The one written last, by what it says itself. One that does not say when is older than all that do."""
    return max(checkpoints, key=age, default=None)


def age(checkpoint: Checkpoint | None) -> tuple[float, int]:
    """What sorts checkpoints from the oldest to the newest, by what they say themselves; none comes before them all."""
    return (_moment(checkpoint.timestamp), len(checkpoint.completed)) if checkpoint is not None else (_NEVER, -1)


def _moment(text: str) -> float:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return _NEVER
    return found.replace(tzinfo=found.tzinfo or UTC).timestamp()


def batches_behind(checkpoint: Checkpoint | None) -> int:
    """How many batches were done before: the number that the name of the last one begins with."""
    found = re.match("[0-9]{1,9}", (checkpoint.last_batch if checkpoint else None) or "")
    return int(found[0]) if found else 0


def summary_of(tasks: Iterable[Task]) -> Mapping[str, tuple[TaskRef, ...]]:
    """The three lists of a checkpoint. What was dropped or deferred is in none of them."""
    lists: dict[str, list[TaskRef]] = {"completed": [], "in_progress": [], "pending": []}
    for task in tasks:
        if task.status not in ASIDE:
            lists[list_of(task.status)].append(TaskRef(task.id, task.title))
    return {name: tuple(refs) for name, refs in lists.items()}


def list_of(status: Status) -> str:
    """The list of a checkpoint that a task of this status stands in."""
    return _LIST_OF.get(status, "pending")


_LIST_OF = {"complete": "completed", "in_progress": "in_progress", "awaiting_review": "in_progress"}

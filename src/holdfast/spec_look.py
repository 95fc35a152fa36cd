"""Looking at specs and their runs: what is left of one, which run of it can go on. Starts nothing and writes nothing."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection
from contextlib import closing
from typing import Any

import msgspec

from holdfast import app, config, settings
from holdfast.adapters.ground import around
from holdfast.adapters.specs import SpecFolder, find, named
from holdfast.adapters.specs.reader import CHECKPOINT
from holdfast.core.batches import Batch, held, held_said, plan
from holdfast.core.drift import Policy
from holdfast.core.errors import HoldfastError, NotFound
from holdfast.core.ids import SPEC
from holdfast.core.missions import mission_of_spec
from holdfast.core.named import NamedTuple
from holdfast.core.shapes import FINISHED, RunState
from holdfast.core.spec import Checkpoint, Problem, Spec, SpecError, age, batches_behind, newest, refuse
from holdfast.core.stops import is_resumable
from holdfast.core.strictness import Strictness
from holdfast.core.unfinished import unfinished
from holdfast.engine.log import read_head
from holdfast.ports import Head, Store

KIND = "spec"
_POLICIES: dict[str, Policy] = {"code": "ignore", "vanished": "ignore", "arguments": "warn"}
MEND = (
    f"Mend that line; or move the file away, and the run begins by what tasks.yaml says and writes a new {CHECKPOINT}."
)


class SpecEnded(HoldfastError):
    """The last run of a spec is over, and nothing of it is left to go on with."""

    reason = "not_resumable"

    def __init__(self, spec: str, last: Head) -> None:
        why = last.projection.stop_reason
        how = "is complete" if why is None else f"ended for good ({why})"
        begin = f"`holdfast run {shlex.quote(spec)}` begins another for tasks that are open"
        super().__init__(
            f"The last run of {spec} {how}: {last.run_id}.",
            advice=f"{begin}; `holdfast show {last.run_id}` shows what was done.",
        )


class SpecElsewhere(HoldfastError):
    """The last run of a spec can go on, but in the work tree that it began in."""

    reason = "bad_input"

    def __init__(self, spec: str, last: Head, places: Collection[str]) -> None:
        place = next(filter(os.path.isdir, places), "")
        super().__init__(
            f"The last run of {spec} belongs to another work tree, {place}: {last.run_id}.",
            advice=f"`cd {shlex.quote(place)} && holdfast resume {last.run_id}` goes on with it there.",
        )


class Seen(NamedTuple):
    """A spec as its files are now, the batches that are left, each with its number, what is in none of them, and
    what the checkpoint tells was begun."""

    folder: SpecFolder
    spec: Spec
    batches: tuple[tuple[int, Batch], ...]
    held: tuple[str, ...]
    begun: tuple[str, ...]


def look(text: str, parallel: int | None = None) -> Seen:
    """A spec by its path or name, with the batches as they would be run. `parallel`: instead of what the settings say."""
    environ = config.environment()
    top = around(os.getcwd(), environ).top
    folder = named(top, text)
    spec = folder.read()
    refuse(spec.problems)
    run = settings.load(top, environ).settings.run
    at_once = (parallel or run.parallel) > 1
    planned = [
        batch._replace(parallel=batch.parallel and at_once)
        for batch in plan(spec.tasks, break_on_phase=run.break_on_phase)
    ]
    numbered = tuple(enumerate(planned, batches_behind(spec.checkpoint) + 1))
    begun = tuple(sentence for found in unfinished(spec.checkpoint, spec.tasks).values() for sentence in found)
    return Seen(folder, spec, numbered, tuple(held_said(held(spec.tasks))), begun)


def look_data(seen: Seen) -> dict[str, Any]:
    return {
        "spec": seen.spec.name,
        "path": seen.folder.path,
        "problems": [str(problem) for problem in seen.spec.problems],
        "tasks": [
            {"id": task.id, "title": task.title, "status": task.status, "files": list(task.files)}
            for task in seen.spec.tasks
        ],
        "batches": [
            {"number": number, "tasks": list(batch.tasks), "parallel": batch.parallel} for number, batch in seen.batches
        ],
        "held": list(seen.held),
        "begun": list(seen.begun),
    }


def is_there(text: str) -> bool:
    named(around(os.getcwd(), config.environment()).top, text)
    return True


def is_begun(text: str) -> bool:
    """Whether this names a spec of which a checkpoint tells. Raises NotFound for a spec that has none: it never ran;
    and SpecError where nobody can read it, or several are called so."""
    try:
        folder = named(around(os.getcwd(), config.environment()).top, text)
    except SpecError:
        raise
    except HoldfastError:
        return False
    spec = folder.read()
    if spec.checkpoint is not None:
        return True
    if (problem := _unreadable(spec)) is not None:
        raise SpecError(str(problem), [problem], advice=MEND)
    error = NotFound("run of the spec", text)
    error.advice = f"`holdfast run {shlex.quote(text)}` begins one."
    raise error


def _unreadable(spec: Spec) -> Problem | None:
    """What is wrong with a checkpoint that is there and cannot be read."""
    return next((one for one in spec.problems if os.path.basename(one.path) == CHECKPOINT), None)


def waiting(where: config.Config) -> list[dict[str, Any]]:
    """The specs here that are not finished by their checkpoint, or whose checkpoint nobody can read, and of which no run
    is known: the newest first, by what the checkpoints say themselves."""
    try:
        top = around(os.getcwd(), config.environment()).top
    except HoldfastError:
        return []
    paths = [path for path in find(top) if os.path.isfile(os.path.join(top, path, CHECKPOINT))]
    specs = [spec for path in paths if _is_open(spec := SpecFolder(path, top).read())]
    left = [spec for spec in specs if last_run(where, os.path.join(top, spec.path)) is None]
    left.sort(key=lambda spec: age(spec.checkpoint), reverse=True)
    said = [spec.checkpoint for spec in left if spec.checkpoint is not None]
    first = newest(said) if len(said) > 1 and age(said[0])[0] > age(said[1])[0] else None
    return [_row(spec, first, len(left)) for spec in left]


def _is_open(spec: Spec) -> bool:
    return not spec.checkpoint.finished if spec.checkpoint is not None else _unreadable(spec) is not None


def _row(spec: Spec, first: Checkpoint | None, many: int) -> dict[str, Any]:
    """`first` is the newest checkpoint, if the `many` tell which one that is."""
    said, problem = spec.checkpoint, _unreadable(spec)
    row: dict[str, Any] = {"path": spec.path, "last_batch": (said.last_batch if said else None) or ""}
    row |= {"written": said.timestamp, "newest": said is first} if said is not None and many > 1 else {}
    row |= {"problem": str(problem), "advice": MEND} if problem is not None else {}
    return row | {"next": f"holdfast resume {shlex.quote(spec.path)}"}


def spec_names() -> list[str]:
    top = around(os.getcwd(), config.environment()).top
    return [os.path.basename(path) for path in find(top)]


def spec_of(store: Store, run_id: str) -> str | None:
    """The path of the spec that a run is for; None if it is a run of something else."""
    state = state_of(store, run_id)
    if state is None or state.inputs is None or not state.mission_id.startswith(SPEC):
        return None
    given = msgspec.json.decode(store.get_artifact(state.inputs))
    return str(given["path"]) if isinstance(given, dict) and given.get("kind") == KIND else None


def unfinished_run(where: config.Config, text: str) -> str | None:
    """The newest run of the spec of this name or path that can go on here; None if there is none, or no such spec."""
    try:
        top = around(os.getcwd(), config.environment()).top
        folder = named(top, text)
        mission = mission_of(folder)
        store = app.open_configured(where, read_only=True)
    except HoldfastError:
        return None
    with closing(store):
        return run_to_go_on_with(store, mission, top, folder.path)


def to_resume(where: config.Config, text: str) -> str | None:
    """The run of a spec that can go on here; None if this is no spec, or it never ran.

    Raises SpecEnded if the last one is over, and SpecElsewhere if it can go on in another work tree.
    """
    found = unfinished_run(where, text)
    if found is None and (last := last_run(where, text)) is not None:
        shown = last.projection
        if shown.status == FINISHED or not (shown.stop_reason is None or is_resumable(shown.stop_reason)):
            raise SpecEnded(text, last)
        with closing(app.open_configured(where, read_only=True)) as store:
            state = state_of(store, last.run_id)
        raise SpecElsewhere(text, last, state.repositories if state is not None else ())
    return found


def last_run(where: config.Config, text: str) -> Head | None:
    """The newest run of the spec of this name or path in this repository, however it ended; None if there is none."""
    try:
        folder = named(around(os.getcwd(), config.environment()).top, text)
        store = app.open_configured(where, read_only=True)
    except HoldfastError:
        return None
    with closing(store):
        mission = mission_of(folder)
        heads = (head for head in store.heads() if head.projection.mission_id == mission)
        return next((head for head in heads if spec_of(store, head.run_id) == folder.path), None)


def run_to_go_on_with(store: Store, mission_id: str, top: str, path: str) -> str | None:
    """The newest run of the spec at this path that can go on in this work tree. One of another work tree stays there."""
    for head in store.heads(unfinished=True):
        shown = head.projection
        if shown.mission_id != mission_id or not (shown.stop_reason is None or is_resumable(shown.stop_reason)):
            continue
        state = state_of(store, head.run_id)
        places = state.repositories if state is not None else {}
        is_here = not places or top in places or not any(map(os.path.isdir, places))
        if is_here and spec_of(store, head.run_id) == path:
            return head.run_id
    return None


def mission_of(folder: SpecFolder) -> str:
    return mission_of_spec(os.path.basename(folder.path.rstrip("/")))


def state_of(store: Store, run_id: str) -> RunState | None:
    return None if store.head(run_id) is None else read_head(store, run_id, trust_snapshot=True)[0]


def policies(state: RunState | None, strictness: Strictness, allow_dirty: bool = False) -> dict[str, Policy]:
    """In the middle of a batch the work tree is as its agents left it; between two it should be clean.

    What the base branch changed as well is work that may have to be done anew, so a person is asked.
    """
    loose: dict[str, Policy] = {"tree": "warn"} if allow_dirty or _is_in_a_batch(state) else {}
    asked: dict[str, Policy] = {"base": "ask"} if strictness == Strictness.MEDIUM else {}
    return {**_POLICIES, **loose, **asked}


def _is_in_a_batch(state: RunState | None) -> bool:
    """Whether a batch was begun and its commit was not made."""
    if state is None:
        return False
    begun = max((step.seq for name, step in state.steps.items() if name.endswith("/begin")), default=0)
    committed = [made.seq for made in state.workspaces.values() if made.complete and made.index is not None]
    return begun > max(committed, default=0)


def going_on(state: RunState, top: str) -> tuple[Strictness, dict[str, Policy]]:
    """How strict the run of a spec is when it goes on in this work tree, and what it does about each difference."""
    strictness = settings.load(top, config.environment()).settings.run.strictness
    return strictness, policies(state, strictness)

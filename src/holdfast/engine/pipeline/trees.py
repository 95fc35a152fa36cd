"""The work trees of tasks that run side by side, and what a person does in the main one meanwhile. Loses nothing untold.

A tree that is gone took reported work along: the run stops once, and who goes on has that task done anew. A file in the main
work tree that no task made is a person's: it becomes part of the batch only if they let the run go on after a stop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.core.reports import Kind
from holdfast.engine.own_files import of_spec
from holdfast.engine.pipeline.desk import Desk, Halt, label, step_name

PHASES: tuple[Kind, ...] = ("test", "implement")
_SHOWN = 8


def tree_name(batch: Mapping[str, Any], task: Mapping[str, Any]) -> str:
    return f"{batch['number']}-{task['place']}"


def listed(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return ", ".join(map(plain, paths[:_SHOWN])) + more


def plain(path: str) -> str:
    """A path as text: a name may be bytes that are none."""
    return path.encode("utf-8", "backslashreplace").decode()


def own_files(desk: Desk) -> list[str]:
    """The files of the spec that the run writes itself."""
    return list(of_spec(desk.parts.specs.path))


# --- trees that are gone


def stage_name(desk: Desk, batch: Mapping[str, Any], task: Mapping[str, Any], kind: Kind) -> str:
    """The name of a task's stage. What was done in a tree that is gone has another name than what is done after that."""
    return f"{label(batch)}/{step_name(task['id'])}/{kind}{tree_words(desk, batch, task)}"


def tree_words(desk: Desk, batch: Mapping[str, Any], task: Mapping[str, Any]) -> str:
    lost = len(_lost(desk, batch, task)[0])
    return f", tree {lost + 1}" if lost else ""


def _lost(desk: Desk, batch: Mapping[str, Any], task: Mapping[str, Any]) -> tuple[list[Any], str]:
    return desk.told(f"{label(batch)}/{step_name(task['id'])}/lost", "insufficient_evidence")


def check_there(desk: Desk, batch: Mapping[str, Any]) -> None:
    """Stop if the tree of a task is gone, and reported work with it."""
    said = [sentence for task in batch["tasks"] if (sentence := _gone(desk, batch, task)) is not None]
    if said:
        raise Halt("insufficient_evidence", *said, "a resumed run lets an agent do that task again")


def _gone(desk: Desk, batch: Mapping[str, Any], task: Mapping[str, Any]) -> str | None:
    status = {known.step_id: known.status for known in desk.run.state.effects.values()}
    names = [name for kind in PHASES if (name := stage_name(desk, batch, task, kind)) in status]
    tree = tree_name(batch, task)
    standing = desk.parts.ground.standing(tree) if names else "open"
    done = [name for name in names if status[name] == "done"]
    said = f"{', '.join(done or names)}: the work tree {desk.parts.ground.path(tree)} is gone, and what was done in it"
    if done and standing != "open":
        desk.run.step(_lost(desk, batch, task)[1], lambda: said)
        return said
    if standing == "gone":
        desk.note(f"{said}; the work begins anew")
    return None


# --- a person's files


def dirty(desk: Desk, batch: Mapping[str, Any]) -> str | None:
    """What differs from the last commit before a parallel batch is begun, to be kept with its beginning."""
    return desk.keep_value(_changed(desk)) if batch["parallel"] else None


def _changed(desk: Desk) -> list[str]:
    ground, own = desk.parts.ground, f"{desk.parts.specs.path}/"
    return [plain(path) for path in ground.uncommitted(ground.top) if not path.startswith(own)]


def check_meanwhile(desk: Desk, batch: Mapping[str, Any], base: str, begun: str | None) -> None:
    """Stop for files in the main work tree that no task made. Those that somebody went on after become part of the batch."""
    found = _strange(desk, batch, base, begun)
    told, name = desk.told(f"{label(batch)}/meanwhile", "dirty_worktree")
    known = {path for one in told for path in _kept(desk, str(one))}
    fresh = [path for path in found if path not in known]
    if fresh:
        desk.run.step(name, lambda: desk.keep_value(fresh))
        said = f"{listed(fresh)} changed in the main work tree while {label(batch)} was worked on, and no task did it"
        what_next = "commit it or move it away; a resumed run makes what is left part of the batch"
        raise Halt("dirty_worktree", said, f"{what_next}, and needs no --allow-dirty for it")
    if found:
        desk.note(f"{label(batch)}: {listed(found)}, which no task made, becomes part of the batch")


def _strange(desk: Desk, batch: Mapping[str, Any], base: str, begun: str | None) -> list[str]:
    if begun is None:  # by a version that did not look
        return []
    then, ground = set(_kept(desk, begun)), desk.parts.ground
    found = [path for path in _changed(desk) if path not in then]
    trees = [ground.path(tree_name(batch, task)) for task in batch["tasks"]] if found else []
    made = {plain(path) for tree in trees for path in ground.changed(tree, base)}
    return [path for path in found if path not in made]


def _kept(desk: Desk, digest: str) -> list[str]:
    return msgspec.json.decode(desk.kept(digest), type=list[str])


# --- between the phases of a task


def left_in(desk: Desk, tree: str) -> dict[str, str]:
    """What the phase before left in the tree of a task, so that the next one cannot pass it off as its own."""
    ground, path = desk.parts.ground, desk.parts.ground.path(tree)
    try:
        found = ground.content(path, ground.uncommitted(path))
    except HoldfastError:  # no work tree any more, which stops the run when its work is collected
        return {}
    return {plain(name): one for name, one in found.items()}


# --- bringing the results together


def bring_in(desk: Desk, batch: Mapping[str, Any], base: str, number: str) -> dict[str, Any]:
    """Merge what the tasks left into the main work tree, as all of it is now: a person may have had a hand in it."""
    ground = desk.parts.ground
    collected = [(task["id"], ground.collect(tree_name(batch, task))) for task in batch["tasks"]]
    ours = desk.snapshot(f"before batch-{number}/merge, start {desk.run.state.resumes + 1}")
    tasks, *mirrors = own_files(desk)
    paths, left_out = ground.bring_in(base, ours, collected, [tasks], mirrors)
    for task_id, path in left_out:
        desk.note(f"{label(batch)}: {task_id} changed {path}, which the run writes itself; that change is left out")
    for task in batch["tasks"]:
        if ignored := ground.ignored(tree_name(batch, task)):
            said = f"git ignores {listed(ignored)} of {task['id']}; it is not merged, and kept aside in {ground.aside}"
            desk.note(f"{label(batch)}: {said}")
    return {"collected": dict(collected), "paths": list(map(plain, paths))}


def close(desk: Desk, batch: Mapping[str, Any]) -> None:
    """Remove the trees of a batch that is committed."""
    for task in batch["tasks"]:
        try:
            kept = desk.parts.ground.close(tree_name(batch, task))
        except HoldfastError as error:  # its work is committed; only the folder is left
            kept = str(error)
        if kept is not None:
            desk.note(kept)

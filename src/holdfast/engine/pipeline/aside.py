"""Tasks that a person dropped, deferred, blocked or took out of the file when their batch had begun: left out, once asked.

An agent may have written that instead. So the run stops first, and who goes on after that stop wants it so. That a task is
called complete counts for nothing here: only a report shows that it was done.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from holdfast.core.briefs import Work
from holdfast.core.reports import Kind
from holdfast.core.spec import ASIDE, HELD, refuse
from holdfast.engine.pipeline import trees
from holdfast.engine.pipeline.desk import CutShort, Desk, Halt, label, step_name
from holdfast.engine.pipeline.stage import Dispatch, Order, keep_output

_STAGE = rf"({'|'.join(trees.PHASES)})(, tree \d+)?(?: \(\d+\))?"  # what the names of a task's stages end with
_GATE = r"(review|fix)-(\d+)(?:/.*)?(?: \(\d+\))?"
_WHAT_NEXT = "put tasks.yaml right, or resume the run to leave that out; what was changed for it stays"


def without(desk: Desk, batch: Mapping[str, Any], base: str) -> dict[str, Any]:
    """The batch without what was set aside since it was begun. Stops the run for what it was not stopped for yet."""
    name = label(batch)
    told, mark = desk.told(f"{name}/aside", "insufficient_evidence")
    out: set[str] = set()
    for number, names in enumerate(told, 1):
        out.update(desk.run.step(f"{name}/out-{number}", partial(_still, desk, batch, names)))
    if desk.decided_before(f"{name}/begin") and not desk.decided_before(f"{name}/files"):
        _ask(desk, {one: said for one, said in _aside(desk, batch).items() if one not in out}, mark)
    for task in batch["tasks"] if out else ():
        if task["id"] in out:
            _give_up(desk, batch, task, base)
    return {**batch, "tasks": [task for task in batch["tasks"] if task["id"] not in out]}


def _still(desk: Desk, batch: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    now = _aside(desk, batch)
    return [name for name in names if name in now]


def _aside(desk: Desk, batch: Mapping[str, Any]) -> dict[str, str]:
    """The tasks of this batch that nobody is to work on any more, by what the files say now, and a sentence for each."""
    spec = desk.parts.specs.read()
    refuse(spec.problems)
    now = {task.id: task for task in spec.tasks}
    said: dict[str, str] = {}
    for name in (task["id"] for task in batch["tasks"]):
        if name not in now:
            said[name] = f"tasks.yaml: {name} is gone, and {label(batch)} has begun with it"
        elif now[name].status in ASIDE | HELD:
            said[name] = f"tasks.yaml: {name} is {now[name].said} now, and {label(batch)} has begun with it"
    return said


def _ask(desk: Desk, fresh: Mapping[str, str], mark: str) -> None:
    if fresh:
        desk.run.step(mark, lambda: list(fresh))
        raise Halt("insufficient_evidence", *fresh.values(), _WHAT_NEXT)


# --- what is open of it


def _give_up(desk: Desk, batch: Mapping[str, Any], task: Mapping[str, Any], base: str) -> None:
    """Find out what became of work on a task that is left out: nothing of it stays open, nobody goes on with it or waits."""
    name = label(batch)
    place = "the work tree"
    if batch["parallel"]:
        place = f"{desk.parts.ground.path(trees.tree_name(batch, task))}, and what was merged of it before in {place}"
    desk.note(f"{name}: {task['id']} is left out; what was changed for it stays in {place}")
    _end(desk, batch, task, base, _GivenUp)


def leave_lost(desk: Desk, batch: Mapping[str, Any], base: str) -> None:
    """Find out the same of work in a tree that is gone: what is done anew has another name, so nobody else would."""
    for task in batch["tasks"]:
        if living := trees.tree_words(desk, batch, task):
            _end(desk, batch, task, base, _Lost, living)


def _end(
    desk: Desk,
    batch: Mapping[str, Any],
    task: Mapping[str, Any],
    base: str,
    how: type[_GivenUp],
    living: str | None = None,
) -> None:
    """Nothing of the stages of a task stays open or waits, but for those in the tree that is worked in now."""
    stages = re.compile(re.escape(f"{label(batch)}/{step_name(task['id'])}/") + _STAGE)
    for sleep, until in list(desk.run.state.sleeps.items()):
        found = stages.fullmatch(sleep.rpartition("/")[0])
        if until is not None and found and (found[2] or "") != living:
            desk.run.sleep(0.0, name=sleep)
    state = desk.run.state
    for name in [state.effects[key].step_id for key in state.effects_open]:
        found = stages.fullmatch(name)
        if found and (found[2] or "") != living:
            kind = next(kind for kind in trees.PHASES if kind == found[1])
            _settle(desk, how(desk, _order(desk, batch, task, base, kind, name)), name)


def leave_review(desk: Desk, order: Order, how: type[_GivenUp] | None = None) -> None:
    """Nobody goes on with the review of one who was cut off, and whom nobody names any more."""
    keep_output(desk, order)
    _settle(desk, (how or _Unasked)(desk, order), order.name)


def leave_gate(desk: Desk, batch: Mapping[str, Any], base: str) -> None:
    """The same of reviews and fixes of a batch of which nothing is left: nobody comes by there again."""
    gate = re.compile(re.escape(f"{label(batch)}/") + _GATE)
    state = desk.run.state
    for name in [state.effects[key].step_id for key in state.effects_open]:
        if found := gate.fullmatch(name):
            order = _gate_order(desk, batch, base, name, found[1], found[2])
            if order.mutates:
                _settle(desk, _GivenUp(desk, order), order.name)
            else:
                leave_review(desk, order, _GivenUp)


def _gate_order(desk: Desk, batch: Mapping[str, Any], base: str, name: str, kind: str, number: str) -> Order:
    begun = partial(desk.snapshot, f"before {label(batch)}/{kind}-{number}")
    return Order(
        name=name,
        kind="fix" if kind == "fix" else "review",
        batch=str(batch["number"]),
        task=f"{label(batch)}/{number}",
        agents=(),
        cwd=lambda: desk.parts.ground.top,
        since=begun if kind == "fix" else lambda: base,
        work=lambda: Work("fix", batch["spec"], []),
    )


def _settle(desk: Desk, dispatch: _GivenUp, name: str) -> None:
    try:
        desk.run.effect(name, dispatch)
    except _SetAside:
        return


def _order(desk: Desk, batch: Mapping[str, Any], task: Mapping[str, Any], base: str, kind: Kind, name: str) -> Order:
    ground, first = desk.parts.ground, trees.stage_name(desk, batch, task, kind)
    return Order(
        name=name,
        kind=kind,
        batch=batch["number"],
        task=task["id"],
        agents=(),
        cwd=lambda: ground.open(trees.tree_name(batch, task), base) if batch["parallel"] else ground.top,
        since=lambda: base if batch["parallel"] else desk.snapshot(f"before {first}"),
        work=lambda: Work(kind, batch["spec"], []),
    )


class _SetAside(CutShort):
    """Nobody goes on with this work."""


class _GivenUp(Dispatch):
    why = "its task was set aside, and nobody was asked to go on with it"

    def act(self, key: str) -> dict[str, Any]:
        raise _SetAside("user_stopped", self.why)


class _Unasked(_GivenUp):
    why = "its agent was cut off and is no reviewer any more"


class _Lost(_GivenUp):
    why = "its work tree is gone, and its task is begun anew in another one"

    def edits(self) -> str:
        return "its work tree is gone, and what was done in it"

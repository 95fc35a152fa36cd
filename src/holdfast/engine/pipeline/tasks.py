"""The phases of tasks, before the gate: tests, then the implementation, one task after the other or side by side.

Side by side, each task has a work tree of its own; what they did is brought together in the order of the plan. Two that
changed the same lines are a stop with a reason, and both results stay where they are.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from holdfast.core.briefs import Brief, Work
from holdfast.core.errors import HoldfastError
from holdfast.core.named import NamedTuple
from holdfast.core.reports import ImplementerReport, Kind, Report, TesterReport
from holdfast.engine.pipeline import aside, stage, trees
from holdfast.engine.pipeline.desk import CutShort, Desk, Halt, first_of, label, step_name
from holdfast.engine.pipeline.stage import Order
from holdfast.engine.pipeline.trees import PHASES, stage_name, tree_name


class Site(NamedTuple):
    """Where a task is worked on: a folder, and what it looked like before a stage began."""

    cwd: Callable[[], str]
    before: Callable[[str], str]


_NO_EVIDENCE = "insufficient_evidence"
Claims = dict[str, list[str]]  # by the id of a task, the files that it is reported to be implemented in


def work_on(desk: Desk, batch: Mapping[str, Any], base: str, begun: str | None) -> Claims:
    """All tasks of a batch through their phases, and their results in the main work tree. Gives what is reported of them.

    `begun` is the artifact that names what differed from the last commit when a parallel batch began.
    """
    claims: Claims = {}
    with desk.watching(label(batch)):
        _work_on(desk, batch, base, begun, claims)
    named = [path for paths in claims.values() for path in paths]
    if named and desk.run.resumed:
        _is_there(desk, batch, base, named)
    return claims


def _is_there(desk: Desk, batch: Mapping[str, Any], base: str, claims: Sequence[str]) -> None:
    """Stop if nothing is left of work that was reported. Who goes on after that stop wants it so."""
    ground = desk.parts.ground
    if set(ground.changed(ground.top, base)) - {*trees.own_files(desk)} or ground.ignores(ground.top, claims):
        return
    said = f"{', '.join(claims[:8])} was reported, and no file differs from the commit that the batch began with"
    _stop_once(desk, batch, f"{label(batch)}/gone", said)


def check_kept(desk: Desk, batch: Mapping[str, Any], base: str, claims: Claims) -> None:
    """Stop before a commit if nothing is left of files that a task made: another agent may have stashed or removed them."""
    ground = desk.parts.ground
    decided = desk.decided_before(f"{label(batch)}/files") or desk.told(f"{label(batch)}/gone", _NO_EVIDENCE)[0]
    for task, paths in () if decided else claims.items():
        if paths and not ground.present(ground.top, paths) and (made := _made(desk, batch, base, paths)):
            said = f"{task}: {', '.join(made[:8])} was reported and there, and is not in the work tree any more"
            _stop_once(desk, batch, f"{label(batch)}/{step_name(task)}/away", said)


def _made(desk: Desk, batch: Mapping[str, Any], base: str, paths: Sequence[str]) -> list[str]:
    """Those of the paths that a snapshot of this batch holds, and the commit that it began with does not."""
    ground, mark = desk.parts.ground, f"before {label(batch)}/"
    taken = [one.snapshot for one in desk.run.state.workspaces.values() if one.complete and one.title.startswith(mark)]
    held = {path for snapshot in taken if snapshot is not None for path in ground.committed(snapshot, paths)}
    return sorted(held - ground.committed(base, paths).keys())


def _stop_once(desk: Desk, batch: Mapping[str, Any], mark: str, said: str) -> None:
    told, name = desk.told(mark, _NO_EVIDENCE)
    if not told:
        desk.run.step(name, lambda: said)
        raise Halt(_NO_EVIDENCE, said, "`holdfast checkpoint --list` shows what is kept")
    desk.note(f"{label(batch)}: {said}; the run goes on without it")


def _work_on(desk: Desk, batch: Mapping[str, Any], base: str, begun: str | None, claims: Claims) -> None:
    if batch["parallel"]:
        _side_by_side(desk, batch, base, begun, claims)
        return
    site = Site(lambda: desk.parts.ground.top, lambda name: desk.snapshot(f"before {name}"))
    for task in batch["tasks"]:
        phases(desk, batch, task, site, claims)


def phases(desk: Desk, batch: Mapping[str, Any], task: Mapping[str, Any], site: Site, claims: Claims) -> None:
    """Each phase of one task. `claims` gets the files that it is reported to be implemented in."""
    said: list[str] = []
    tests: Mapping[str, str] = {}
    for kind in (kind for kind in PHASES if kind in batch["phases"]):
        name = stage_name(desk, batch, task, kind)
        if not desk.knew(name):
            site.before(name)  # the evidence, before the intent
        order = Order(
            name=name,
            kind=kind,
            batch=batch["number"],
            task=task["id"],
            agents=desk.settings.run.agents_for(kind),
            cwd=site.cwd,
            since=partial(site.before, name),
            work=partial(_work, desk, batch, task, kind, tuple(said)),
            besides=tests,
        )
        report = stage.done(desk, order)
        said += _told(report)
        if isinstance(report, TesterReport) and batch["parallel"]:
            tests = desk.run.step(f"{name}/left", partial(trees.left_in, desk, tree_name(batch, task)))
        if isinstance(report, ImplementerReport) and report.status == "success":
            claims[task["id"]] = [*report.implementation_files]


def _work(desk: Desk, batch: Mapping[str, Any], task: Mapping[str, Any], kind: Kind, before: Sequence[str]) -> Work:
    """The task in the words that its file has now: a person may have made it clearer since it was planned."""
    now = next((one for one in desk.parts.specs.read().tasks if one.id == task["id"]), None)
    title, text = (task["title"], task["text"]) if now is None else (now.title, now.text)
    return Work(kind, batch["spec"], [(task["id"], title, text)], task["files"], before, brief=_brief(batch, task))


def _brief(batch: Mapping[str, Any], task: Mapping[str, Any]) -> Brief | None:
    """What checkpoint.yaml told of earlier work on this task, of which no log is here."""
    told = batch.get("begun", {}).get(task["id"])
    if told is None:
        return None
    unknown = (
        "whether edits of that work are in this folder, and what it did outside of it",
        "what git said when it began, if checkpoint.yaml does not have it under incomplete_stages",
    )
    return Brief(not_done=[f"by checkpoint.yaml, {sentence}" for sentence in told], unknown=unknown)


def _told(report: Report) -> list[str]:
    """What the next phase should know of this one."""
    if isinstance(report, TesterReport):
        if report.status == "gap":
            return [f"no failing test could be written: {report.gap_reason}"]
        return [f"tests were written in {', '.join(report.test_files) or 'files that the report does not name'}"]
    assert isinstance(report, ImplementerReport)
    return [f"implemented in {', '.join(report.implementation_files) or 'files that the report does not name'}"]


# --- side by side


def _side_by_side(desk: Desk, batch: Mapping[str, Any], base: str, begun: str | None, claims: Claims) -> None:
    tasks, failed, name = batch["tasks"], threading.Event(), f"{label(batch)}/merge"
    if not desk.knew(name):
        trees.check_there(desk, batch)
        aside.leave_lost(desk, batch, base)
    jobs = [partial(_in_own_tree, desk, batch, task, base, failed, claims) for task in tasks]
    failures = together(desk, jobs, "holdfast-task", desk.settings.run.parallel)
    if failure := first_of(failures):
        raise failure
    if not desk.knew(name):
        trees.check_there(desk, batch)
        trees.check_meanwhile(desk, batch, base, begun)
    try:
        desk.run.effect(name, partial(trees.bring_in, desk, batch, base), batch["number"], policy="idempotent")
    except HoldfastError as error:
        where = [f"{task['id']}: {desk.parts.ground.path(tree_name(batch, task))}" for task in tasks]
        raise Halt(error.reason, str(error), *filter(None, (error.advice,)), *where) from error


def together(desk: Desk, jobs: Sequence[Callable[[], Any]], name: str, most: int) -> list[BaseException | None]:
    """Run them all to their end, `most` at a time, and give what each raised. An interrupt ends the others first."""
    raised: list[BaseException | None] = [None] * len(jobs)
    waiting = deque(enumerate(jobs))

    def go_on() -> None:
        while waiting:
            try:
                place, job = waiting.popleft()
            except IndexError:
                return  # another was quicker
            try:
                job()
            except BaseException as error:  # noqa: BLE001 - whoever waits for all of them judges it
                raised[place] = error

    threads = [threading.Thread(target=go_on, name=f"{name}_{number}") for number in range(min(most, len(jobs)))]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException:
        waiting.clear()
        desk.halt()
        for thread in threads:
            if thread.ident is not None:  # else it never began
                thread.join()
        raise
    return raised


def _in_own_tree(
    desk: Desk,
    batch: Mapping[str, Any],
    task: Mapping[str, Any],
    base: str,
    failed: threading.Event,
    claims: Claims,
) -> None:
    """A task that was not begun when another one failed is not begun; one that was comes to its end."""
    if failed.is_set():
        raise CutShort("interrupted", f"{label(batch)}/{task['id']} was not begun")
    site = Site(partial(desk.parts.ground.open, tree_name(batch, task), base), lambda name: base)
    try:
        phases(desk, batch, task, site, claims)
    except BaseException:
        failed.set()
        raise

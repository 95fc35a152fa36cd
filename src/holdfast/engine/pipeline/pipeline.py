"""The main job: a spec, batch by batch, until everything is complete or there is one clear reason to rest.

An ordinary program on a durable run: killed anywhere and started again, it walks the same way through the log and does
only what is not on record. Every batch ends with one commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.stops import lookup, snippet
from holdfast.engine.pipeline import aside, tasks, trees
from holdfast.engine.pipeline.batches import FINAL, Planner, carried, check_claims, check_held, write_files
from holdfast.engine.pipeline.desk import Desk, Halt, Moment, label
from holdfast.engine.pipeline.gate import Gate, Passed, recalled

_SHOWN = 8


def work(desk: Desk) -> None:
    """Do what is left of the spec. Raises what stops the run."""
    try:
        _work(desk)
    except Halt as halt:
        desk.run.listen()  # what was cut short for a wish of somebody's stops for that
        # what is not what it must be can be put right: nothing here is an end for good
        reason = halt.reason if lookup(halt.reason).resumable else "step_failed"
        raise desk.run.stop(reason, *halt.evidence) from None
    except HoldfastError as error:
        if lookup(error.reason).family != "usage":
            raise
        raise desk.run.stop("step_failed", str(error), error.advice or "") from error


def _work(desk: Desk) -> None:
    planner, number = Planner(desk), 1
    start = _base(desk, "start")
    while (batch := _planned(desk, planner, number))["tasks"]:
        _batch(desk, batch)
        number += 1
    check_held(desk, batch)
    _final(desk, batch, start)


def _planned(desk: Desk, planner: Planner, number: int) -> dict[str, Any]:
    """The next batch. What the files carried on by then is as known as what was found in this run."""
    batch = planner.batch(number)
    desk.found = carried(batch) | desk.found
    return batch


def _base(desk: Desk, name: str) -> str:
    """The commit that something is built on, as it was when it began."""
    base = desk.run.step(f"{name}/base", lambda: desk.parts.ground.where()[0])
    if base is None:
        raise Halt("bad_input", "the branch has no commit yet: make a first one")
    return str(base)


def _batch(desk: Desk, batch: Mapping[str, Any]) -> None:
    name = label(batch)
    is_over = desk.decided_before(f"{name}/closed")
    desk.tell(Moment("batch", name, "", {**batch, "done": is_over}))
    if is_over:
        desk.found = {one.id: (batch["shown"], one) for one in recalled(desk, batch)} | desk.found
        return
    desk.checkpoint = desk.parts.specs.read().checkpoint
    base = _base(desk, name)
    begun = desk.run.step(f"{name}/begin", partial(_begin, desk, batch))
    if (left := aside.without(desk, batch, base))["tasks"]:
        with desk.guarding(name):
            claims = tasks.work_on(desk, left, base, begun)
            passed = Gate(desk, left, base, _tiers(desk, left), _taken(desk, left)).go_through()
            check_claims(desk, batch)
            tasks.check_kept(desk, left, base, claims)
        _commit(desk, left, base, passed, _title(left), _body(left))
    else:
        aside.leave_gate(desk, left, base)
        _pass_over(desk, left, base)
    if batch["parallel"]:
        desk.run.step(f"{name}/trees", partial(trees.close, desk, left))
    desk.run.step(f"{name}/closed", lambda: None)


def _taken(desk: Desk, batch: Mapping[str, Any]) -> list[str]:
    """Ids that findings of this spec have already."""
    return [*batch["taken"], *desk.found]


def _begin(desk: Desk, batch: Mapping[str, Any]) -> str | None:
    found = trees.dirty(desk, batch)
    desk.parts.specs.mark({task["id"]: "in_progress" for task in batch["tasks"]})
    return found


def _tiers(desk: Desk, batch: Mapping[str, Any]) -> tuple[str, ...]:
    when = desk.settings.verify.tier1_when
    is_last = int(batch["shown"]) >= batch["total"]
    risky = len(batch["tasks"]) > 1
    second = when == "always" or is_last or (when == "risk" and risky)
    return ("tier0", "tier1") if second else ("tier0",)


def _commit(desk: Desk, batch: Mapping[str, Any], base: str, passed: Passed, title: str, body: str) -> None:
    name, earlier = label(batch), frozenset(desk.found)
    desk.check_branch()  # a check may have left another one behind
    desk.found = {one.id: (batch["shown"], one) for one in passed.found} | desk.found
    at = str(desk.run.step(f"{name}/passed", desk.now))
    files = partial(write_files, desk, batch, base, passed.found, earlier, at, passed.reviewed_by)
    desk.run.step(f"{name}/files", files)
    mark = desk.repo.milestone(title, body=body, tier=passed.tier, verification_commands=list(passed.commands))
    desk.tell(Moment("commit", name, str(mark.commit or ""), {"sidecar": mark.sidecar_written}))
    if mark.left_out:
        desk.note(f"{name}: the commit is without {'; '.join(mark.left_out[:_SHOWN])}")


def _pass_over(desk: Desk, batch: Mapping[str, Any], base: str) -> None:
    """Nothing of the batch is left. The checkpoint says so; the next commit has it, with what agents left unreviewed here."""
    at = str(desk.run.step(f"{label(batch)}/passed", desk.now))
    files = partial(write_files, desk, batch, base, (), frozenset(desk.found), at, ())
    desk.run.step(f"{label(batch)}/files", files)


def _title(batch: Mapping[str, Any]) -> str:
    return f"{snippet(batch['spec'])}: batch {batch['shown']} of {batch['total']}"


def _body(batch: Mapping[str, Any]) -> str:
    named = "\n".join(f"- {snippet(task['id'])}: {snippet(task['title'])}" for task in batch["tasks"])
    ids = ", ".join(snippet(task["id"]) for task in batch["tasks"])
    return f"{named}\n\nTasks: {ids}\nBatch: {batch['shown']}/{batch['total']}"


# --- when nothing is left


def _final(desk: Desk, batch: Mapping[str, Any], start: str) -> None:
    """Everything is complete: one last look at all of it, and the checks that are kept for the end."""
    last = {**batch, "number": FINAL, "shown": str(int(batch["shown"]) - 1), "parallel": False}
    desk.tell(Moment("batch", label(last), "", last))
    desk.checkpoint = desk.parts.specs.read().checkpoint
    base = _base(desk, label(last))
    everything = desk.run.step(f"{label(last)}/tasks", partial(_everything, desk))
    gate = Gate(desk, {**last, "tasks": everything}, start, ("tier0", "tier1", "tier2"), _taken(desk, batch))
    with desk.guarding(label(last)):
        passed = gate.go_through()
        check_claims(desk, last)
    left = desk.run.step(f"{label(last)}/left", partial(_left, desk))
    if passed.fixes or passed.found or left:
        _commit(desk, last, base, passed, f"{snippet(batch['spec'])}: final review", "")


def _left(desk: Desk) -> list[str]:
    """What differs from the last commit when all has passed: a person's corrections, or what checks wrote. It is told.

    What was there before the run, outside of its scope, is not committed.
    """
    ground, outside = desk.parts.ground, desk.repo.check_scope()
    uncommitted = ground.uncommitted(ground.top)
    differing = [path for path in uncommitted if path not in outside]
    if beyond := [path for path in uncommitted if path in outside]:
        said = "was there when the scope was set, is outside of it, and is in no commit of this run"
        desk.note(f"batch-{FINAL}: {trees.listed(beyond)} {said}")
    changed = [path for path in differing if not path.endswith("/")]
    if changed:
        desk.note(
            f"batch-{FINAL}: {trees.listed(changed)} differs from the last commit, and is committed with the review"
        )
    if len(changed) < len(differing):
        inner = [path for path in differing if path.endswith("/")]
        desk.note(f"batch-{FINAL}: {trees.listed(inner)} is a repository of its own, and is in no commit of this one")
    return [trees.plain(path) for path in changed[:_SHOWN]]


def _everything(desk: Desk) -> list[dict[str, str]]:
    return [{"id": task.id, "title": task.title, "text": ""} for task in desk.parts.specs.read().tasks]

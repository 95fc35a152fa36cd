"""Runs of Runr, read from its folder and taken in as logs of ours. Only the store is written; the folder is read as data."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from holdfast import app
from holdfast.adapters import runr
from holdfast.adapters.git.repo import top_of
from holdfast.adapters.runr_shapes import Problem, RunrRun
from holdfast.cli.output import emit, escape, say
from holdfast.core.errors import HoldfastError
from holdfast.core.ids import is_id, is_kind
from holdfast.core.subjects import imported_id
from holdfast.engine.foreign import Foreign, bring_in

KIND = "x_runr_"
LISTED = 20


def take_in(path: str, as_json: bool) -> None:
    folder = runr.look(path)
    done: list[dict[str, Any]] = []
    problems = [*folder.problems, *(problem for one in folder.runs for problem in one.problems)]
    problems += [Problem(one.sha, f"a sidecar of run {one.run_id}, which is not here") for one in folder.strays]
    problems += [Problem(one.path, "its run id cannot be one of ours") for one in folder.runs if not is_id(id_of(one))]
    with app.open_store() as store:
        for one in foreigners(path, folder.runs):
            try:
                is_new = bring_in(store, one, app.world(), app.redactor())
            except HoldfastError as error:
                problems.append(Problem(one.run_id, str(error)))
                continue
            done.append(
                {"run_id": one.run_id, "new": is_new, "milestones": len(one.milestones), "events": len(one.recorded)}
            )
    if as_json:
        emit({"folder": path, "runs": done, "problems": [problem._asdict() for problem in problems]})
        return
    for row in done:
        state = "is here now" if row["new"] else "was here already, and is left as it is"
        say(f"Run {row['run_id']} {state}: {row['milestones']} milestones, {row['events']} records.")
    for problem in problems[:LISTED]:
        say(f"Not read: {escape(problem)}")
    if not done:
        say(f"There are no runs in {escape(path)}.")


def foreigners(path: str, read: Sequence[RunrRun]) -> Iterator[Foreign]:
    repo = top_of(os.path.dirname(os.path.abspath(path)))
    for one in read:
        run_id = id_of(one)
        if is_id(run_id):
            yield Foreign(
                run_id=run_id,
                mission_id=run_id,
                title=one.title,
                repo=repo,
                plan=tuple(one.milestones),
                recorded=[(kind_of(event.type), event.payload) for event in one.timeline],
                milestones=one.sidecars,
                stop=one.stop_reason,
            )


def id_of(run: RunrRun) -> str:
    return imported_id(run.run_id)


def kind_of(name: str) -> str:
    kind = KIND + "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in name.lower())[:50]
    return kind if is_kind(kind) else KIND + "event"

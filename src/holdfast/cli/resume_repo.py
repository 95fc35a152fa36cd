"""What `holdfast resume --plan` says of a repository: where the last milestone is now, and what differs. Only looks."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from contextlib import closing
from typing import Any

import msgspec

from holdfast import app, config
from holdfast.adapters.git.repo import GitWorkspace
from holdfast.cli import repo
from holdfast.cli.output import escape, say
from holdfast.cli.render import pairs
from holdfast.core.checkpoint import effective_strictness
from holdfast.core.drift import policy_for
from holdfast.core.errors import HoldfastError, NotFound, UsageError
from holdfast.core.position import DEEPEN, nameless
from holdfast.core.repo_drift import drifts, landmarks, seen_id
from holdfast.core.shapes import RunState
from holdfast.engine.arrival import look as look_at
from holdfast.engine.log import read_head
from holdfast.ports import Store


def look(where: config.Config, run_id: str, legacy: bool) -> list[dict[str, Any]]:
    """One entry for each repository that the run has been in; none for a run without."""
    with closing(app.open_configured(where, read_only=True)) as store:
        state = read_head(store, run_id, trust_snapshot=True)[0]
        return [seen(store, state, place, legacy) for place in places(state)]


def places(state: RunState) -> list[str]:
    """A run that was taken in from elsewhere was where its milestones are; one that has none may have been here."""
    made = dict.fromkeys(made.repo for made in state.workspaces.values())
    return list(state.repositories or made) or [os.getcwd()]


def seen(store: Store, state: RunState, place: str, legacy: bool) -> dict[str, Any]:
    known = state.repositories.get(place)
    try:
        before = None if known is None else msgspec.json.decode(store.get_artifact(known.artifact))
        workspace = repo.at(place) if known is None else opened(place, landmarks(state, place))
        found = look_at(workspace, state, place, before, legacy)
    except HoldfastError as error:
        return {"repository": place, "problem": str(error)}
    strictness = effective_strictness(config=config.environment().get("HOLDFAST_STRICTNESS") or None)
    differing = drifts(state, place, found, before)
    return {
        "repository": workspace.top,
        "id": seen_id(differing, found),
        "branch": found.branch,
        "head": found.head,
        "checkpoint": found.position._asdict(),
        "uncommitted": list(found.changed),
        "drift": [{**one._asdict(), "policy": policy_for(one.drift, strictness)} for one in differing],
        "kept_aside": list(state.kept_aside),
        "being_made": state.checkpoint_open,
    }


def opened(place: str, landmarks: Sequence[str]) -> GitWorkspace:
    """The repository where it was; or the one around us, if it has a commit by which it is recognised."""
    try:
        workspace = repo.at(place)
        if workspace.top == place:
            return workspace
        problem: HoldfastError = NotFound("repository", place)
    except HoldfastError as error:
        problem = error
    try:
        here = repo.here()
    except HoldfastError:
        raise problem from None
    if not any(map(here.has, landmarks)):
        raise UsageError(f"{problem} Whether it is the one here is unknown. {DEEPEN}") if here.is_shallow() else problem
    return here


def is_cut_off() -> bool:
    """Whether the repository around us has only a part of its history."""
    try:
        return repo.here().is_shallow()
    except HoldfastError:
        return False


def only_mirrored(known: Collection[str]) -> list[dict[str, Any]]:
    """Runs of which this repository knows milestones, and the store no log. Outside of a repository there are none."""
    try:
        place = repo.here()
        found = place.mirrored()
    except HoldfastError:
        return []
    last = {one.run_id: one for one in found if one.run_id not in known}
    return [
        {
            "run_id": run_id,
            "milestone": one.index,
            "title": one.title,
            "sha": one.sha,
            "source": one.source,
            "unexplained": place.unexplained(one.sha),
        }
        for run_id, one in last.items()
    ]


def show_mirrored(entries: list[dict[str, Any]]) -> None:
    for one in entries:
        at = f"milestone {one['milestone']} ({escape(one['title'])}) is {one['sha'][:12]}, by {one['source']}"
        gap = f"; {nameless(one['unexplained'])}" if one["unexplained"] else ""
        say(f"Run {one['run_id']} has no log here, but mirrors: {at}{gap}.")
        say(f"  holdfast resume {one['run_id']} -- COMMAND")
    if is_cut_off():
        say(f"Older milestones are not seen. {DEEPEN}")


def show(entries: list[dict[str, Any]]) -> None:
    for entry in entries:
        say()
        pairs([("repository", escape(entry["repository"])), ("problem", escape(entry.get("problem") or "") or None)])
        if "problem" in entry:
            continue
        position = entry["checkpoint"]
        at = f"{position['sha'][:12]}, milestone {position['index']}" if position["sha"] else "unknown"
        pairs([("milestone", f"{at} ({position['source']}): {escape(position['why'])}")])
        for choice in position["choices"]:
            say(f"  {escape(choice)}")
        for one in entry["drift"]:
            say(f"Differs, {one['policy']}: {one['drift']} of {escape(one['subject'])}")
            for line in one["lines"]:
                say(f"  {escape(line)}")
        for name in entry["kept_aside"]:
            say(f"Kept aside: `holdfast restore {name}`")

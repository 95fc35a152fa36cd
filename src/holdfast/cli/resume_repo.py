"""What `holdfast resume --plan` says of a repository: where the last milestone is now, and what differs. Only looks."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Sequence
from contextlib import closing
from functools import partial
from importlib import import_module
from typing import Any

import msgspec

from holdfast import app, config
from holdfast.adapters.git.mirrors import Mirrored
from holdfast.adapters.git.repo import GitWorkspace
from holdfast.cli import repo
from holdfast.cli.output import escape, say
from holdfast.cli.render import pairs
from holdfast.core.drift import Policy, policy_for
from holdfast.core.errors import HoldfastError, NotFound, UsageError
from holdfast.core.ids import SPEC
from holdfast.core.plan import command
from holdfast.core.position import DEEPEN, nameless
from holdfast.core.repo_drift import LISTED, drifts, landmarks, seen_id
from holdfast.core.shapes import RunState
from holdfast.core.strictness import Strictness, effective_strictness
from holdfast.engine.arrival import look as look_at
from holdfast.engine.log import read_head
from holdfast.engine.others import milestones_of_others
from holdfast.ports import Store

_OF_SPEC = re.compile(r".+: (batch .+ of [0-9]+|final review)", re.DOTALL)  # as the pipeline calls its commits
MOST = 20  # runs without a log that are looked for at once: each takes a search of its own


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
        others = partial(milestones_of_others, store, state.run_id)
        found = look_at(workspace, state, place, before, others, legacy)
        strictness, own = going_on(state, workspace.top)
    except HoldfastError as error:
        return {"repository": place, "problem": str(error)}
    differing = drifts(state, place, found, before)
    return {
        "repository": workspace.top,
        "id": seen_id(differing, found),
        "branch": found.branch,
        "head": found.head,
        "checkpoint": found.position._asdict(),
        "uncommitted": [*found.changed, *found.inside],
        "drift": [{**one._asdict(), "policy": policy_for(one.drift, strictness, own)} for one in differing],
        "kept_aside": list(state.kept_aside),
        "being_made": state.checkpoint_open,
    }


def going_on(state: RunState, top: str) -> tuple[Strictness, dict[str, Policy]]:
    """How strict a resume would be, and what the run says itself of some differences: that of a spec does."""
    if state.mission_id.startswith(SPEC):
        found: tuple[Strictness, dict[str, Policy]] = import_module("holdfast.spec_look").going_on(state, top)
        return found
    return effective_strictness(config=app.strictness()), {}


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


def advice_without(advice: str) -> str:
    """What to say of a run that has neither a log nor mirrors here."""
    try:
        is_cut = repo.here().is_shallow()
    except HoldfastError:
        return advice
    return DEEPEN if is_cut else f"{advice} No sidecar names the run either, nor a commit in the history of HEAD."


class MirrorsUnsure(HoldfastError):
    """Nothing here tells for sure which milestone of a run without a log was the last."""

    reason = "drift_refused"

    def __init__(self, run_id: str, why: str) -> None:
        super().__init__(why)
        self.advice = f"`holdfast resume {run_id}` lists what can be done; --yes goes on from what was found."


def only_mirrored(where: config.Config, known: Collection[str], only: str | None = None) -> list[dict[str, Any]]:
    """Runs of which this repository knows milestones, and the store no log: the newest ones, or one."""
    try:
        workspace = repo.here()
        found = workspace.only_mirrored(known, only, most=MOST)
        return [as_data(one) | ways_of(where, workspace, one) for one in found]
    except HoldfastError:
        return []


def as_data(one: Mirrored) -> dict[str, Any]:
    position = one.position
    return {
        "run_id": one.run_id,
        "milestone": position.index,
        "title": title_of(one),
        "checkpoint_id": position.checkpoint_id,
        "sha": position.sha,
        "source": position.source,
        "confidence": position.confidence,
        "unexplained": one.unexplained,
        "sure": one.is_sure,
        "why": position.why,
        "choices": list(position.choices),
    }


def title_of(one: Mirrored) -> str | None:
    return {known.checkpoint_id: known.title for known in one.known}.get(one.position.checkpoint_id or "")


def ways_of(where: config.Config, workspace: GitWorkspace, one: Mirrored) -> dict[str, str | None]:
    """How to go on: for a run of a spec by the files of the spec, unless a run of it is here."""
    spec = spec_of(workspace, title_of(one) or "", one.position.sha)
    if spec is None:
        return {"spec": None, "other": None, "next": f"holdfast resume {one.run_id}{_yes(one)} -- COMMAND"}
    head = import_module("holdfast.spec_look").last_run(where, os.path.join(workspace.top, spec))
    if head is not None:
        return {"spec": spec, "other": head.run_id, "next": f"holdfast show {head.run_id}"}
    verb = "resume" if os.path.isfile(os.path.join(workspace.top, spec, "checkpoint.yaml")) else "run"
    return {"spec": spec, "other": None, "next": f"holdfast {verb} {shlex.quote(spec)}"}


def _yes(one: Mirrored) -> str:
    return "" if one.is_sure else " --yes"


def spec_of(workspace: GitWorkspace, title: str, commit: str | None) -> str | None:
    """The spec that is here and of which a milestone is a batch: its commit holds what the run wrote of it."""
    if commit is None or not _OF_SPEC.fullmatch(title):
        return None
    said = workspace.git("diff-tree", "--root", "--no-commit-id", "--name-only", "-r", "-z", commit)
    changed = [os.path.split(path) for path in os.fsdecode(said).split("\0")]
    folders = [
        folder for name in ("checkpoint.yaml", "tasks.yaml") for folder, file in changed if folder and file == name
    ]
    here = [folder for folder in folders if os.path.isfile(os.path.join(workspace.top, folder, "tasks.yaml"))]
    return next((one for one in here if title.startswith(f"{os.path.basename(one)}: ")), next(iter(here), None))


def check_mirrored(entry: dict[str, Any], yes: bool) -> None:
    """To go on from what is not the last milestone for sure would make others a second time: a person decides."""
    strictness = effective_strictness(config=app.strictness())
    policy = policy_for("commit", strictness)
    if not entry["sure"] and (policy == "refuse" or (policy == "ask" and not yes)):
        raise MirrorsUnsure(entry["run_id"], entry["why"])


def show_mirrored(entries: list[dict[str, Any]]) -> None:
    for one in entries:
        say(f"Run {one['run_id']} has no log here, but mirrors: {mirrored_line(one)}")
        if one["spec"] is not None:
            other = f"run {one['other']} is here" if one["other"] else "another run goes on by what its files say"
            say(f"  It is a run of the spec {escape(one['spec'])}, of which {other}:")
        elif not one["sure"]:
            for line in (one["why"], *one["choices"]) if one["sha"] else one["choices"]:
                say(f"  {escape(line)}")
        say(f"  {escape(one['next'])}")
    if len(entries) == MOST:
        say("There may be more runs without a log. `holdfast resume RUN` looks for any of them.")
    if is_cut_off():
        say(f"Older milestones are not seen. {DEEPEN}")


def mirrored_line(one: dict[str, Any]) -> str:
    if one["sha"] is None:
        return escape(one["why"])
    gap = f"; {nameless(one['unexplained'])}" if one["unexplained"] else ""
    by = f"by {one['source']}, {one['confidence']}"
    return f"milestone {one['milestone']} ({escape(one['title'])}) is {one['sha'][:12]}, {by}{gap}."


def show(entries: list[dict[str, Any]]) -> None:
    for entry in entries:
        say()
        pairs([("repository", escape(entry["repository"])), ("problem", escape(entry.get("problem") or "") or None)])
        if "problem" in entry:
            continue
        position = entry["checkpoint"]
        at = f"{position['sha'][:12]}, milestone {position['index']}" if position["sha"] else "unknown"
        by = f"{position['source']}, {position['confidence']}" if position["sha"] else position["source"]
        pairs([("milestone", f"{at} ({by}): {escape(position['why'])}")])
        for choice in position["choices"]:
            say(f"  {escape(choice)}")
        for one in entry["drift"]:
            say(f"Differs, {one['policy']}: {one['drift']} of {escape(one['subject'])}")
            for line in one["lines"]:
                say(f"  {escape(line)}")
        for line in () if "tree" in {one["drift"] for one in entry["drift"]} else entry["uncommitted"][:LISTED]:
            say(f"Uncommitted: {escape(line)}")
        for name in entry["kept_aside"]:
            say(f"Kept aside: `{escape(command('restore', name))}`")

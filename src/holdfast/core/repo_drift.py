"""How a repository differs from what the log knew of it. Values in, findings out; never looks at a repository itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from holdfast.core.events import Drift, MilestoneIndexCorrected
from holdfast.core.fingerprint import differences
from holdfast.core.position import Known, Position
from holdfast.core.shapes import RunState, WorkspaceState

ALREADY, BEHIND, AHEAD = "already_checkpointed", "state_behind_checkpoint", "state_ahead_of_checkpoint"
BASE = "base:"  # what names the base branch in a fingerprint; it is compared by what it changed, not by its commit
LISTED = 10


class Seen(NamedTuple):
    """One look at a repository. `as_kept`: what is uncommitted is just what the last snapshot holds.

    `overlap` are files that the base branch changed, and the run as well.
    """

    head: str | None
    branch: str | None
    as_kept: bool
    changed: tuple[str, ...]
    position: Position
    environment: Mapping[str, str]
    overlap: tuple[str, ...] = ()
    base: str | None = None


class Found(NamedTuple):
    drift: Drift
    subject: str
    was: str
    now: str
    lines: tuple[str, ...]


def milestones(state: RunState) -> list[tuple[str, WorkspaceState]]:
    """The milestones that the log has, complete, by their index."""
    made = [(name, known) for name, known in state.workspaces.items() if known.complete and known.index is not None]
    return sorted(made, key=lambda pair: (pair[1].index or 0, pair[1].seq))


def records(state: RunState) -> list[Known]:
    """What the log knows of each milestone, for finding it again."""
    return [
        Known(
            checkpoint_id=name,
            run_id=state.run_id,
            index=made.index or 0,
            title=made.title,
            sha=made.commit or "",
            tree=made.tree,
            patch_id=made.patch_id,
            parent=made.parent,
            branch=made.branch,
            base=made.base,
            source="log",
        )
        for name, made in milestones(state)
        if made.commit
    ]


def next_index(state: RunState) -> int:
    made = milestones(state)
    return (made[-1][1].index or 0) + 1 if made else 0


def last_of(state: RunState, repo: str) -> WorkspaceState | None:
    """The last complete checkpoint of this repository."""
    made = [known for known in state.workspaces.values() if known.complete and known.repo == repo]
    return max(made, key=lambda known: known.seq, default=None)


def corrected(state: RunState, position: Position) -> MilestoneIndexCorrected | None:
    """The disagreement about the last milestone, if there is one. An answer that is not sure corrects nothing."""
    if position.index is None or position.sha is None or position.confidence == "weak":
        return None
    last, begun = next_index(state) - 1, state.workspaces.get(state.checkpoint_open or "")
    if position.index == last:
        return None
    reason = BEHIND if position.index > last else AHEAD
    if begun is not None and begun.index == position.index:
        reason = ALREADY
    return MilestoneIndexCorrected(
        previous=last + 1,
        corrected_to=position.index + 1,
        reason=reason,
        checkpoint_id=position.checkpoint_id,
        sha=position.sha,
        source=position.source,
    )


def drifts(state: RunState, repo: str, seen: Seen, environment: Mapping[str, str] | None) -> list[Found]:
    """Everything that is not as the last checkpoint of this repository knew it."""
    last = last_of(state, repo)
    found = [] if last is None else [*_branch(last, seen), *_commit(state, seen), *_tree(last, seen)]
    return [*found, *_base(seen), *_environment(seen, environment)]


def _branch(last: WorkspaceState, seen: Seen) -> Sequence[Found]:
    if last.branch == seen.branch:
        return ()
    was, now = _short(last.branch), _short(seen.branch)
    return (Found("branch", "the branch", was, now, (f"{was} was checked out, and now {now}",)),)


def _commit(state: RunState, seen: Seen) -> Sequence[Found]:
    if not records(state):
        return ()
    position = seen.position
    if position.sha is None:
        return (Found("commit", "the last milestone", "", "", (position.why, *position.choices)),)
    if position.confidence == "weak":
        return (Found("commit", "the last milestone", position.was or "", position.sha, (position.why,)),)
    return ()


def _tree(last: WorkspaceState, seen: Seen) -> Sequence[Found]:
    """Files that differ from the last commit are no drift if the last checkpoint kept them just so."""
    if not seen.changed or seen.as_kept:
        return ()
    more = [f"and {len(seen.changed) - LISTED} more"] if len(seen.changed) > LISTED else []
    return (Found("tree", "the work tree", last.tree or "", "", (*seen.changed[:LISTED], *more)),)


def _base(seen: Seen) -> Sequence[Found]:
    if not seen.overlap:
        return ()
    lines = tuple(f"{path} was changed there too" for path in seen.overlap[:LISTED])
    return (Found("base", seen.base or "the base branch", "", "", lines),)


def _environment(seen: Seen, before: Mapping[str, str] | None) -> Sequence[Found]:
    kept = {name: value for name, value in (before or {}).items() if not name.startswith(BASE)}
    lines = () if before is None else tuple(differences(kept, seen.environment))
    return (Found("environment", "the environment", "", "", lines),) if lines else ()


def _short(ref: str | None) -> str:
    return "no branch" if ref is None else ref.removeprefix("refs/heads/")

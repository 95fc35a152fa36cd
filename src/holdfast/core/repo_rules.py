"""What events about a repository do to a state, and where they may stand. Decides before it changes anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.core.errors import IllegalEvent
from holdfast.core.events import (
    KIND_OF,
    CheckpointAbandoned,
    CheckpointComplete,
    CheckpointSidecarWriteFailed,
    CheckpointStarted,
    EnvironmentSeen,
    Event,
    MilestoneIndexCorrected,
    ResumeCheckpointSelected,
    ScopeDeclared,
    SnapshotKept,
    SnapshotSettled,
)
from holdfast.core.shapes import FINISHED, RUNNING, STOPPED, RepositoryState, RunState, WorkspaceState


def _refuse(event: Event, problem: str) -> IllegalEvent:
    return IllegalEvent(KIND_OF[type(event)], problem)


def _checkpoint_started(state: RunState, event: CheckpointStarted) -> None:
    if state.checkpoint_open is not None:
        raise _refuse(event, f"checkpoint {state.checkpoint_open} is still being made")
    if event.checkpoint_id in state.workspaces:
        raise _refuse(event, f"checkpoint {event.checkpoint_id} was made before")
    state.workspaces[event.checkpoint_id] = WorkspaceState(
        event.repo,
        event.index,
        event.title,
        event.branch,
        event.parent,
        event.base,
        seq=state.seq + 1,
        created_at=event.created_at,
        tier=event.tier,
        verification_commands=event.verification_commands,
        body=event.body,
    )
    state.checkpoint_open = event.checkpoint_id


def _checkpoint_complete(state: RunState, event: CheckpointComplete) -> None:
    made = state.workspaces.get(event.checkpoint_id)
    if made is not None:
        if state.checkpoint_open != event.checkpoint_id:
            raise _refuse(event, f"checkpoint {event.checkpoint_id} is not being made")
        made.snapshot, made.commit, made.tree = event.snapshot, event.commit, event.tree
        made.patch_id, made.sidecar_written = event.patch_id, event.sidecar_written
        made.seq, made.complete = state.seq + 1, True
        state.checkpoint_open = None
    state.checkpoint_id = event.checkpoint_id
    state.cursor = event.cursor


def _checkpoint_abandoned(state: RunState, event: CheckpointAbandoned) -> None:
    if state.checkpoint_open != event.checkpoint_id:
        raise _refuse(event, f"checkpoint {event.checkpoint_id} is not being made")
    state.checkpoint_open = None
    state.given_up[event.checkpoint_id] = state.workspaces.pop(event.checkpoint_id).repo


def _snapshot_kept(state: RunState, event: SnapshotKept) -> None:
    state.kept_aside[event.checkpoint_id] = event.snapshot


def _snapshot_settled(state: RunState, event: SnapshotSettled) -> None:
    if event.checkpoint_id not in state.kept_aside:
        raise _refuse(event, f"{event.checkpoint_id} is not kept aside")
    del state.kept_aside[event.checkpoint_id]
    state.given_up[event.checkpoint_id] = ""


def _environment_seen(state: RunState, event: EnvironmentSeen) -> None:
    known = state.repositories.pop(event.formerly or event.repo, None)
    if known is None:
        known = RepositoryState(event.artifact, event.head, event.branch)
    known.artifact = event.artifact
    state.repositories[event.repo] = known
    for made in state.workspaces.values():
        if made.repo == event.formerly:
            made.repo = event.repo
    for name, place in state.given_up.items():
        if place == event.formerly:
            state.given_up[name] = event.repo


def _scope_declared(state: RunState, event: ScopeDeclared) -> None:
    known = state.repositories.get(event.repo)
    if known is None:
        raise _refuse(event, f"the run was never in {event.repo:.120}")
    known.allow, known.deny = event.allow, event.deny
    known.touched_before, known.scope_since = event.before, event.since


def _nothing_more(state: RunState, event: Event) -> None:
    return None


APPLY: dict[type[Event], Callable[[RunState, Any], None]] = {
    CheckpointStarted: _checkpoint_started,
    CheckpointComplete: _checkpoint_complete,
    CheckpointAbandoned: _checkpoint_abandoned,
    CheckpointSidecarWriteFailed: _nothing_more,
    ResumeCheckpointSelected: _nothing_more,
    MilestoneIndexCorrected: _nothing_more,
    SnapshotKept: _snapshot_kept,
    SnapshotSettled: _snapshot_settled,
    EnvironmentSeen: _environment_seen,
    ScopeDeclared: _scope_declared,
}
_AT_WORK: dict[str, str | None] = {RUNNING: None, STOPPED: None}
LEGAL: dict[type[Event], dict[str, str | None]] = {
    CheckpointStarted: _AT_WORK,
    CheckpointComplete: _AT_WORK,
    CheckpointAbandoned: _AT_WORK,
    CheckpointSidecarWriteFailed: {**_AT_WORK, FINISHED: None},
    ResumeCheckpointSelected: _AT_WORK,
    MilestoneIndexCorrected: _AT_WORK,
    SnapshotKept: _AT_WORK,
    SnapshotSettled: {**_AT_WORK, FINISHED: None},
    EnvironmentSeen: {RUNNING: None},
    ScopeDeclared: {RUNNING: None},
}

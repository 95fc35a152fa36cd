"""What a sidecar has to say, by the log and by git: which say something else, and how one is written again. Fakes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from holdfast.adapters.git import sidecars
from holdfast.adapters.git.history import facts_of
from holdfast.adapters.git.history_log import branches_with, commits_of
from holdfast.adapters.git.repo import GitWorkspace
from holdfast.core.line import Commit
from holdfast.core.position import short
from holdfast.core.shapes import RunState, WorkspaceState
from holdfast.core.sidecar import ENDING, Sidecar, file_name
from holdfast.engine.workspaces import sidecar_of


def newer(refused: Sequence[sidecars.Refused]) -> set[str]:
    """The checkpoints whose sidecar only a newer Holdfast can read: it is there, and it is left alone."""
    return {os.path.basename(one.path).removesuffix(ENDING) for one in refused if one.cure == sidecars.NEWER}


def false_ones(place: GitWorkspace, states: Sequence[RunState], read: Sequence[Sidecar]) -> dict[str, str]:
    """Sidecars that are not believed, by the name of their file, with the reason."""
    logged = {name: (state.run_id, made) for state in states for name, made in state.workspaces.items()}
    known = [(one, *logged[one.checkpoint_id]) for one in read if one.checkpoint_id in logged]
    there = commits_of(place.git, (one.sha for one, _, _ in known))
    found = {}
    for one, run_id, made in known:
        why = _against_log(one, run_id, made) or _against_git(place, one, made, there.get(one.sha))
        if why:
            found[file_name(one.checkpoint_id)] = why
    return found


def _against_log(one: Sidecar, run_id: str, made: WorkspaceState) -> str:
    if one.run_id != run_id:
        return f"it says run {one.run_id}, and the log says {run_id}"
    if one.milestone_index != made.index:
        return f"it says milestone {one.milestone_index}, and the log says {made.index}"
    return ""


def _against_git(place: GitWorkspace, one: Sidecar, made: WorkspaceState, commit: Commit | None) -> str:
    """A commit that git no longer has says nothing. One that the log does not name must be one that came after the run began."""
    if commit is None:
        return ""
    if one.tree not in (None, commit.tree):
        return f"commit {short(one.sha)} has other files than it says"
    if one.sha == made.commit:
        return ""
    if one.tree is None:
        return f"the log says another commit than {short(one.sha)}, and it knows no files to compare"
    if made.base and place.has(made.base) and place.git.contains(made.base, one.sha):
        return f"commit {short(one.sha)} is older than the run"
    return ""


def is_at_home(place: GitWorkspace, sha: str) -> bool:
    """Whether a commit is in the history of HEAD, or of a branch: then it did not move."""
    return place.has(sha) and (place.git.contains("HEAD", sha) or bool(branches_with(place.git, sha)))


# --- written again


def written_again(
    place: GitWorkspace, run_id: str, name: str, made: WorkspaceState, present: Sidecar | None, seq: int | None
) -> Sidecar:
    """The sidecar of a milestone whose commit is `made.commit` now. What was known when it was made is kept."""
    whole = sidecar_of(run_id, name, made, _authored(place, made.commit or ""))
    return msgspec.structs.replace(whole, **dict(_as_made(whole, present, seq)))


def _as_made(whole: Sidecar, present: Sidecar | None, seq: int | None) -> Iterator[tuple[str, Any]]:
    if present is None:
        yield "seq", seq
        return
    yield from (("created_at", present.created_at), ("seq", present.seq))
    for field in ("tier", "verification_commands"):
        yield field, getattr(whole, field) or getattr(present, field)


def _authored(place: GitWorkspace, sha: str) -> str:
    """When the commit was made, for a milestone of which nobody wrote down when it was."""
    return place.git.line("log", "-1", "--no-show-signature", "--format=%aI", "--end-of-options", sha, "--")


def moved(place: GitWorkspace, made: WorkspaceState, sha: str | None) -> WorkspaceState:
    """The milestone at the commit that it is now; and what git knows of its commit, if nobody wrote it down."""
    if sha is None or not place.has(sha) or (sha == made.commit and made.tree is not None):
        return made
    facts = facts_of(place.git, sha)
    if (
        made.parent is not None and made.parent == made.commit
    ):  # without a change of its own it stands on another's commit
        return msgspec.structs.replace(made, commit=sha, tree=facts.tree, parent=sha)
    return msgspec.structs.replace(made, commit=sha, tree=facts.tree, patch_id=place.patch_id(sha), parent=facts.parent)

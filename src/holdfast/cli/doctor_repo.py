"""What `holdfast doctor` looks at in a repository: ignore rules, worktrees, sidecars, snapshots, hooks. Repairs mirrors only.

Every finding that is not fine names a command that helps, and that command runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from holdfast import app
from holdfast.adapters.git import history, hooks, ignoring, sidecars, workspace, worktrees
from holdfast.adapters.git.repo import GitWorkspace
from holdfast.cli import repo
from holdfast.core.errors import HoldfastError
from holdfast.core.position import Position
from holdfast.core.repo_drift import milestones, records
from holdfast.core.shapes import RunState, WorkspaceState
from holdfast.core.sidecar import Sidecar
from holdfast.engine.health import OK, WARN, Finding
from holdfast.engine.workspaces import sidecar_of

FIX = "holdfast doctor --fix"
NAMED = 5


def findings() -> Iterator[Finding]:
    """Everything about the repository around us; nothing outside of one."""
    place = repository()
    if place is None:
        return
    states = list(repo.states())
    try:
        read, refused = sidecars.read_all(place.sidecars)
    except sidecars.SidecarsUnreadable as problem:
        read, refused = [], []
        yield Finding("sidecars", WARN, str(problem), f"mv {place.sidecars} {place.sidecars}.aside")
    yield from ignored(place)
    yield from trees(place)
    yield from hooked(place)
    for one in refused[:NAMED]:
        yield Finding("sidecars", WARN, f"{one.path} is not used: {one.why}.", FIX)
    yield from mirrored(place, states, read)
    yield from snapshots(place, states)
    yield from waiting(states)


def repository() -> GitWorkspace | None:
    try:
        return repo.here()
    except HoldfastError:
        return None


def ignored(place: GitWorkspace) -> Iterator[Finding]:
    try:
        seen, tracked = ignoring.look(place.git), ignoring.tracked(place.git)
    except HoldfastError as problem:
        yield Finding("ignored", WARN, str(problem), f"rm {os.path.join(place.main, '.holdfast')}")
        return
    if tracked:
        yield Finding(
            "ignored", WARN, f"git tracks {tracked[0]}, which is Holdfast's own.", "git rm -r --cached .holdfast"
        )
    if seen.ignored:
        yield Finding("ignored", OK, f"git ignores .holdfast/ ({seen.by}).")
    else:
        yield Finding(
            "ignored", WARN, "git does not ignore .holdfast/, so it may be committed by accident.", "holdfast init"
        )
    folder = os.path.join(place.main, ".holdfast")
    if os.path.isdir(folder) and not os.access(folder, os.W_OK | os.X_OK):
        yield Finding("writable", WARN, f"{folder} cannot be written.", f"chmod u+rwx {folder}")


def trees(place: GitWorkspace) -> Iterator[Finding]:
    lost = worktrees.orphans(place.git)
    for one in lost[:NAMED]:
        yield Finding("worktrees", WARN, f"The worktree {one.path}: {one.why}.", one.fix)


def hooked(place: GitWorkspace) -> Iterator[Finding]:
    try:
        states = hooks.state(place.git)
    except HoldfastError as problem:
        yield Finding("hooks", OK, f"Holdfast's hooks cannot be here: {problem}")
        return
    for name, state in states.items():
        if state == "changed":
            yield Finding(
                "hooks",
                WARN,
                f"The hook {name} was changed since Holdfast put it there.",
                "holdfast init --hooks --force",
            )


# --- sidecars against the log and against git


def mirrored(place: GitWorkspace, states: list[RunState], read: list[Sidecar]) -> Iterator[Finding]:
    there = {one.checkpoint_id for one in read}
    logged = {name: made for state in states for name, made in milestones(state) if made.commit}
    for name in [name for name in logged if name not in there][:NAMED]:
        yield Finding("sidecars", WARN, f"Checkpoint {name} has no sidecar.", FIX)
    for one in [one for one in read if one.checkpoint_id not in logged][:NAMED]:
        yield Finding(
            "sidecars",
            WARN,
            f"Checkpoint {one.checkpoint_id} of run {one.run_id} has a sidecar, and no log here knows it.",
            "holdfast resume",
        )
    for one in [one for one in read if not has(place, one.sha)][:NAMED]:
        yield Finding(
            "sidecars", WARN, f"Checkpoint {one.checkpoint_id} was commit {one.sha[:12]}, which git no longer has.", FIX
        )


def has(place: GitWorkspace, sha: str) -> bool:
    return place.git.ask("cat-file", "-e", f"{sha}^{{commit}}").code == 0


def snapshots(place: GitWorkspace, states: list[RunState]) -> Iterator[Finding]:
    kept = workspace.kept(place.git)
    known = {name for state in states for name in (*state.workspaces, *state.kept_aside)}
    for name in [name for name in kept if name not in known][:NAMED]:
        yield Finding(
            "snapshots", WARN, f"Snapshot {name} is kept, and no log here knows it.", f"holdfast restore {name}"
        )
    wanted = [name for state in states for name, made in state.workspaces.items() if made.complete and name not in kept]
    for name in wanted[:NAMED]:
        yield Finding(
            "snapshots",
            WARN,
            f"Checkpoint {name} is in the log, and its snapshot is no longer kept.",
            "holdfast checkpoint --list",
        )
    if kept:
        yield Finding("snapshots", OK, f"{len(kept)} snapshots are kept under refs/holdfast/.")


def waiting(states: list[RunState]) -> Iterator[Finding]:
    for state in states:
        for name in state.kept_aside:
            yield Finding(
                "kept aside", WARN, f"Work of run {state.run_id} is kept aside as {name}.", f"holdfast restore {name}"
            )
        if state.checkpoint_open is not None:
            yield Finding(
                "checkpoints",
                WARN,
                f"Checkpoint {state.checkpoint_open} of run {state.run_id} was begun and not completed.",
                f"holdfast resume {state.run_id}",
            )


# --- repairs


def repair() -> Iterator[str]:
    """Write sidecars that are missing or point at commits that moved; remove leftovers. Says what was done."""
    place = repository()
    if place is None:
        return
    for path in sidecars.remove_leftovers(place.sidecars):
        yield f"Removed the unfinished file {path}."
    states = list(repo.states())
    for path in sidecars.set_aside(place.sidecars):
        yield f"Set aside a sidecar that cannot be read: {path}."
    read, _ = sidecars.read_all(place.sidecars)
    there = {one.checkpoint_id: one for one in read}
    for state in states:
        for name, made in milestones(state):
            if made.commit:
                yield from relink(place, state, name, made, there.get(name))


def relink(
    place: GitWorkspace, state: RunState, name: str, made: WorkspaceState, present: Sidecar | None
) -> Iterator[str]:
    at = present.sha if present is not None else made.commit or ""
    position = None if has(place, at) else found(place, state, name)
    if position is not None and (position.sha is None or position.confidence == "weak"):
        return  # nobody knows where it is; a sidecar is not made to say so
    if present is not None and position is None:
        return
    sha = position.sha if position is not None and position.sha else made.commit
    place.write_sidecar(sidecar_of(state.run_id, name, moved(place, made, sha), app.now()))
    if position is None or position.sha is None:
        yield f"Wrote the sidecar of checkpoint {name} again."
    else:
        yield f"Checkpoint {name} was commit {at[:12]} and is {position.sha[:12]} now ({position.source}: {position.why})."


def found(place: GitWorkspace, state: RunState, name: str) -> Position:
    known = [*records(state), *(one for one in place.known() if one.run_id == state.run_id)]
    rewrites = hooks.read_rewrites(place.git)
    return history.find(place.git, state.run_id, known, rewrites=rewrites, allow_legacy=False, checkpoint_id=name)


def moved(place: GitWorkspace, made: WorkspaceState, sha: str | None) -> WorkspaceState:
    if sha is None or sha == made.commit:
        return made
    import msgspec

    return msgspec.structs.replace(made, commit=sha, tree=place.tree_of(sha), patch_id=place.patch_id(sha))

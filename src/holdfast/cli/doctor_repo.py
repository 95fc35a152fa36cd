"""What `holdfast doctor` looks at in a repository: ignore rules, worktrees, sidecars, snapshots, hooks. Repairs mirrors only.

Every finding that is not fine names a command that helps, and that command runs; or it says that nothing needs to be done.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import TypeVar

from holdfast import app, config
from holdfast.adapters.git import restore, sidecars, workspace, worktrees, ws_intent
from holdfast.adapters.git.repo import GitWorkspace, top_of
from holdfast.cli import repo
from holdfast.cli.checkpoint import MISSION
from holdfast.cli.doctor_relink import false_ones, is_at_home, moved, newer, written_again
from holdfast.cli.doctor_sidecars import refused, usable
from holdfast.cli.doctor_tree import (
    FIX,
    NAMED,
    attempt,
    away,
    is_closed,
    is_readable,
    listed,
    look,
    opening,
    stopped,
    unusable,
)
from holdfast.core import ids
from holdfast.core.errors import HoldfastError
from holdfast.core.events import KIND_OF, CheckpointStarted, Event, SnapshotKept
from holdfast.core.named import NamedTuple
from holdfast.core.position import WEAK
from holdfast.core.repo_drift import milestones
from holdfast.core.shapes import FINISHED, RunState, WorkspaceState
from holdfast.core.sidecar import Sidecar, file_name
from holdfast.core.subjects import is_imported
from holdfast.core.wire import decode
from holdfast.engine.health import OK, WARN, Finding, failed

Kind = TypeVar("Kind", bound=Event)


class Here(NamedTuple):
    """The repository around us with its work trees, and the logs here."""

    place: GitWorkspace
    logs: repo.Logs
    folders: frozenset[str]

    @property
    def states(self) -> list[RunState]:
        return self.logs.states


def findings(own: Sequence[str]) -> Iterator[Finding]:
    """Everything about the repository around us; nothing outside of one. `own` are the files of the store."""
    try:
        place = repository(own)
    except (HoldfastError, OSError) as problem:
        yield unusable(top_of(os.getcwd()), problem)
        return
    if place is None:
        return
    around = list(look(place))
    yield from around
    yield from attempt("sidecars", partial(refused, place))
    if any(one.check == "repository" for one in around):
        return
    try:
        logs = repo.read_logs()
    except HoldfastError:
        yield Finding("sidecars", OK, "Sidecars and snapshots are not compared with the log, which cannot be read.")
        return
    yield from (failed("runs", problem) for problem in list(logs.unread.values())[:NAMED])
    yield from attempt("worktrees", partial(against, place, logs))


def against(place: GitWorkspace, logs: repo.Logs) -> Iterator[Finding]:
    """What is kept of checkpoints, held against the logs."""
    here = Here(place, logs, folders(place, logs.states))
    for name, check in AGAINST_THE_LOG.items():
        yield from attempt(name, partial(check, here))


def repository(own: Sequence[str]) -> GitWorkspace | None:
    """The work tree around us; None outside of one, and in a bare repository, which has none."""
    try:
        folder = os.getcwd()
        top = top_of(folder)
    except (HoldfastError, FileNotFoundError):  # nor is there one in a folder that is gone
        return None
    if not os.path.lexists(os.path.join(top, ".git")):
        return None
    return GitWorkspace(folder, config.environment(), own=own)


# --- sidecars against the log and against git


def ours(here: Here, state: RunState) -> list[tuple[str, WorkspaceState]]:
    """The checkpoints that a run took of this repository, in whichever of its work trees."""
    return [(name, made) for name, made in state.workspaces.items() if made.repo in here.folders]


def folders(place: GitWorkspace, states: list[RunState]) -> frozenset[str]:
    """The work trees of this repository: those it has, and those that are gone or were elsewhere and left something here."""
    known = {one.path for one in worktrees.list_worktrees(place.git)} | {place.top, place.main}
    every = [(name, made) for state in states for name, made in state.workspaces.items() if made.repo not in known]
    gone = {folder for folder in {made.repo for _, made in every} if not worktrees.is_tree(folder)}
    if not gone:
        return frozenset(known)
    names = {*workspace.kept(place.git), *(one.checkpoint_id for one in usable(place) or ())}
    shas = place.present(sha for _, made in every for sha in (made.commit, made.snapshot) if sha)
    left = {made.repo for name, made in every if name in names or not shas.isdisjoint({made.commit, made.snapshot})}
    return frozenset(known | (gone & left))


def mirrors(here: Here) -> Iterator[Finding]:
    place = here.place
    try:
        read, spoiled = sidecars.read_all(place.sidecars)
    except sidecars.SidecarsUnreadable:
        return  # what is in the folder is not known, and `refused` says so
    false = false_ones(place, here.states, read)
    yield from listed("sidecars", list(false.items()), lambda one: (f"{one[0]} is not believed: {one[1]}.", FIX))
    there = {one.checkpoint_id for one in read} | newer(spoiled)
    logged = [
        (name, made)
        for state in here.states
        for name, made in ours(here, state)
        if made.complete and made.commit is not None
    ]
    bare = [(name, made.commit or "") for name, made in logged if name not in there]
    present = place.present([*(sha for _, sha in bare), *(one.sha for one in read)])
    bare = [(name, sha) for name, sha in bare if sha in present]
    fix = FIX
    if is_closed(place.sidecars):
        first = opening(place.sidecars)
        fix = f"{first} && {FIX}" if first else ""
    yield from listed("sidecars", bare, lambda one: (f"Checkpoint {one[0]} has no sidecar.", fix))
    known = {name for state in here.states for name in state.workspaces}
    strange = [one for one in read if one.checkpoint_id not in known and one.run_id not in here.logs.unread]
    yield from listed(
        "sidecars",
        strange,
        lambda one: (
            f"Checkpoint {one.checkpoint_id} of run {one.run_id} has a sidecar, and no log here knows it. It does no harm: "
            "the run can go on from it where its history is, and `holdfast resume` lists such runs.",
            "",
        ),
        OK,
    )
    gone = [one for one in read if one.sha not in present and file_name(one.checkpoint_id) not in false]
    yield from listed("sidecars", gone, lambda one: collected(here, one))


def collected(here: Here, one: Sidecar) -> tuple[str, str]:
    """A sidecar whose commit git no longer has: it can be made to point at what took its place, or be put away."""
    said = f"Checkpoint {one.checkpoint_id} was commit {one.sha[:12]}, which git no longer has"
    state = next((state for state in here.states if one.checkpoint_id in dict(ours(here, state))), None)
    position = None if state is None else repo.find(here.place, state, one.checkpoint_id)
    if position is not None and position.sha is not None and position.confidence != WEAK:
        return f"{said}; it is {position.sha[:12]} now.", FIX
    said += ", and nothing in this history is like it. Its sidecar is of no use here."
    return said, away(here.place.sidecar_path(one.checkpoint_id), os.path.dirname(here.place.sidecars))


def snapshots(here: Here) -> Iterator[Finding]:
    kept, states = workspace.kept(here.place.git), here.states
    given_up = {name for state in states for name in state.given_up}
    known = {name for state in states for name in (*state.workspaces, *state.kept_aside)} | given_up
    yield from listed(
        "checkpoints",
        [name for name in kept if name in given_up],
        lambda name: (
            f"Snapshot {name} is kept, and nothing waits for it.",
            f"holdfast checkpoint --drop {name}",
        ),
    )
    unknown = [name for name in kept if name not in known and ids.is_id(name) and not here.logs.unread]
    strange = [name for name in unknown if not is_snapshot(here, name)]
    yield from listed(
        "checkpoints",
        [name for name in unknown if name not in strange],
        lambda name: (
            f"Snapshot {name} is kept, and no log here knows it. It may be the only copy of somebody's files: "
            f"`holdfast restore {name}` brings them back into a work tree of their own, and it stays kept.",
            "",
        ),
        OK,
    )
    strange += [name for name in kept if not ids.is_id(name)]
    yield from listed(
        "checkpoints",
        strange,
        lambda name: (f"{shlex.quote(workspace.REFS + name)} is no snapshot of Holdfast's, and is left alone.", ""),
        OK,
    )
    yield from unkept(here, kept)
    if kept:
        yield Finding("checkpoints", OK, f"Kept under refs/holdfast/: {len(kept)}.")


def is_snapshot(here: Here, name: str) -> bool:
    """Whether it can be restored: somebody may have put a commit of their own there."""
    try:
        workspace.read_parts(here.place.git, name)
    except HoldfastError:
        return False
    return True


def unkept(here: Here, kept: Collection[str]) -> Iterator[Finding]:
    """Checkpoints of the log whose snapshot was let go: as long as git has it, it can be kept again."""
    made = {name: one.snapshot for state in here.states for name, one in ours(here, state) if name not in kept}
    there = [(name, sha) for name, sha in made.items() if sha and here.place.has(sha)]
    yield from listed(
        "checkpoints",
        there,
        lambda one: (
            f"Checkpoint {one[0]} is in the log, and its snapshot was let go. Until git collects it, it can be kept again.",
            keep_again(*one),
        ),
    )
    gone = [name for name, sha in made.items() if sha and name not in dict(there)]
    if gone:
        many = f"{gone[0]} is" if len(gone) == 1 else f"{', '.join(gone[:NAMED])}{', ...' * (len(gone) > NAMED)} are"
        said = (
            f"In the log {many} without a snapshot: it was let go, and git has collected it. Nothing needs to be done."
        )
        yield Finding("checkpoints", OK, said)


def taken_in(here: Here) -> Iterator[Finding]:
    """Where the last milestone of a run of Runr is, which only subjects may tell."""
    for state in here.states:
        known = bool(ours(here, state)) or not state.workspaces
        if not is_imported(state.run_id, state.mission_id) or state.status == FINISHED or not known:
            continue
        position = repo.find(here.place, state)
        sure = position.sha is not None and position.confidence != WEAK
        said = f"Run {state.run_id}, by {position.source}, {position.confidence}: {position.why}"
        yield Finding("imported", OK if sure else WARN, said, "" if sure else f"holdfast resume {state.run_id} --plan")


def waiting(here: Here) -> Iterator[Finding]:
    kept = workspace.kept(here.place.git)
    for state in here.states:
        pending = [(state, *one) for one in state.kept_aside.items()]
        yield from listed("kept aside", pending, lambda one: aside(here, kept, *one))
        if state.checkpoint_open is not None and state.run_id not in here.logs.held:
            yield begun(state)


def begun(state: RunState) -> Finding:
    """What a killed process left: the next start of its program mends it; one taken by hand has no program."""
    said = f"Checkpoint {state.checkpoint_open} of run {state.run_id} was begun and not completed."
    if state.mission_id != MISSION:
        return Finding("checkpoints", OK, f"{said} The next start of the run completes it, or gives it up.")
    more = "The next one that is taken for this run completes it, or gives it up."
    return Finding("checkpoints", WARN, f"{said} {more}", f"holdfast checkpoint 'after a crash' {state.run_id}")


def aside(here: Here, kept: Collection[str], state: RunState, name: str, snapshot: str) -> tuple[str, str]:
    """Work that is kept aside, and the command that helps: as long as git has it, that is a way to get it back."""
    said = f"Work is kept aside as {name}"
    if name in kept:
        return f"{said}.", f"holdfast restore {name}"
    if here.place.has(snapshot):
        return f"{said}, and its ref is gone. Until git collects it, it can be kept again.", keep_again(name, snapshot)
    there = next((event.repo for _, event in events_of(state.run_id, SnapshotKept) if event.checkpoint_id == name), "")
    if there in here.folders or not worktrees.is_tree(there):
        return f"{said}, its ref is gone, and git has collected it.", f"holdfast checkpoint --drop {name}"
    return f"{said} in {there}.", f"cd {shlex.quote(there)} && holdfast restore {shlex.quote(name)}"


def keep_again(name: str, snapshot: str) -> str:
    return shlex.join(["git", "update-ref", f"{workspace.REFS}{name}", snapshot])


def events_of(run_id: str, kind: type[Kind]) -> Iterator[tuple[int, Kind]]:
    """The events of one kind in the log of a run, by their number."""
    with closing(app.open_store(read_only=True)) as store:
        for record in store.read(run_id):
            event = decode(record) if record.kind == KIND_OF[kind] else None
            if isinstance(event, kind):
                yield record.seq, event


AGAINST_THE_LOG: dict[str, Callable[[Here], Iterator[Finding]]] = {
    "sidecars": mirrors,
    "checkpoints": snapshots,
    "imported": taken_in,
    "kept aside": waiting,
}


# --- repairs


def repair(own: Sequence[str]) -> Iterator[str | Finding]:
    """Write sidecars that are missing or point at commits that moved; remove leftovers. Says what was done, or why it was not."""
    try:
        place = repository(own)
    except (HoldfastError, OSError):
        return  # `findings` says so
    if place is None:
        return
    for step in REPAIRS if is_readable(place) else (clear_sidecars,):
        try:
            yield from step(place)
        except (HoldfastError, OSError) as problem:
            yield stopped("fix", problem)


def remove_half_made(place: GitWorkspace) -> Iterator[str]:
    for intent in ws_intent.unfinished(place.git):
        ws_intent.discard(place.git, intent)
        yield f"Removed what a restore that was cut off had left at {intent.path or intent.file}."


def finish_restores(place: GitWorkspace) -> Iterator[str]:
    for intent in ws_intent.unindexed(place.git):
        restore.finish(place.git, intent)
        yield f"Wrote the index of {intent.path}, whose restore was cut off just before."


def forget_what_is_over(place: GitWorkspace) -> Iterator[str]:
    for intent in ws_intent.over(place.git):
        intent.end(place.git)
        yield f"Forgot that a restore into {intent.path} was cut off: its files are there."


def clear_sidecars(place: GitWorkspace) -> Iterator[str]:
    for path in sidecars.remove_leftovers(place.sidecars):
        yield f"Removed the unfinished file {path}."
    for path in sidecars.set_aside(place.sidecars):
        yield f"Set aside a sidecar that cannot be read: {path}."


def write_sidecars(place: GitWorkspace) -> Iterator[str]:
    logs = repo.read_logs()
    for path in sidecars.set_aside(
        place.sidecars, false_ones(place, logs.states, sidecars.read_all(place.sidecars)[0])
    ):
        yield f"Set aside a sidecar that is not believed: {path}."
    read, spoiled = sidecars.read_all(place.sidecars)
    there = {one.checkpoint_id: one for one in read}
    here = Here(place, logs, folders(place, logs.states))
    for state in logs.states:
        known = {name for name, _ in ours(here, state)} - newer(spoiled)
        for name, made in milestones(state):
            if made.commit and name in known:
                yield from relink(place, state, name, made, there.get(name))


REPAIRS = (remove_half_made, finish_restores, forget_what_is_over, clear_sidecars, write_sidecars)


def relink(
    place: GitWorkspace, state: RunState, name: str, made: WorkspaceState, present: Sidecar | None
) -> Iterator[str]:
    at = present.sha if present is not None else made.commit or ""
    position = None if is_at_home(place, at) else repo.find(place, state, name)
    if position is not None and (position.sha is None or position.confidence == WEAK):
        if present is not None or not place.has(at):
            return  # nobody knows where it is; a sidecar is not made to say so
        position = None
    if present is not None and position is None:
        return
    sha = position.sha if position is not None else made.commit
    now = moved(place, made, sha)
    place.write_sidecar(written_again(place, state.run_id, name, now, present, begun_at(state, name)))
    if position is None or position.sha is None:
        yield f"Wrote the sidecar of checkpoint {name}."
    else:
        yield f"Checkpoint {name} was commit {at[:12]} and is {position.sha[:12]} now ({position.source}: {position.why})."


def begun_at(state: RunState, name: str) -> int | None:
    """The event with which a checkpoint was begun."""
    begun = (seq for seq, event in events_of(state.run_id, CheckpointStarted) if event.checkpoint_id == name)
    return next(begun, None)

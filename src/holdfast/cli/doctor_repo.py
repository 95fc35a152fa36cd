"""What `holdfast doctor` looks at in a repository: ignore rules, worktrees, sidecars, snapshots, hooks. Repairs mirrors only.

Every finding that is not fine names a command that helps, and that command runs; or it says that nothing needs to be done.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from typing import TypeVar

from holdfast import app
from holdfast.adapters.git import hooks, ignoring, sidecars, workspace, worktrees, ws_intent
from holdfast.adapters.git.repo import GitWorkspace
from holdfast.cli import repo
from holdfast.cli.doctor_sidecars import false_ones, is_at_home, moved, newer, written_again
from holdfast.core.errors import HoldfastError
from holdfast.core.events import KIND_OF, CheckpointStarted, Event, SnapshotKept
from holdfast.core.position import WEAK
from holdfast.core.repo_drift import milestones
from holdfast.core.shapes import FINISHED, RunState, WorkspaceState
from holdfast.core.sidecar import Sidecar, file_name
from holdfast.core.subjects import is_imported
from holdfast.core.wire import decode
from holdfast.engine.health import OK, WARN, Finding

FIX = "holdfast doctor --fix"
NAMED = 5
Item = TypeVar("Item")
Kind = TypeVar("Kind", bound=Event)


def findings() -> Iterator[Finding]:
    """Everything about the repository around us; nothing outside of one."""
    place = repository()
    if place is None:
        return
    states = list(repo.states())
    for check in (placed, ignored, writable, trees, hooked):
        yield from check(place)
    yield from mirrors(place, states)
    yield from snapshots(place, states)
    yield from taken_in(place, states)
    yield from waiting(place, states)


def repository() -> GitWorkspace | None:
    try:
        return repo.here()
    except HoldfastError:
        return None


def listed(check: str, items: Sequence[Item], say: Callable[[Item], tuple[str, str]]) -> Iterator[Finding]:
    """A finding for each of the first few, and how many more there are."""
    for item in items[:NAMED]:
        sentence, fix = say(item)
        yield Finding(check, WARN, sentence, fix)
    if len(items) > NAMED:
        yield Finding(check, WARN, f"And {len(items) - NAMED} more like that.", say(items[NAMED])[1])


# --- around the store


def placed(place: GitWorkspace) -> Iterator[Finding]:
    """A repository may say that its work tree is elsewhere. Nobody is led there by it, but git looks there."""
    said = [value for scope, name, value in place.git.settings if (scope, name) == ("local", "core.worktree")]
    there = os.path.realpath(os.path.join(place.place.common, said[-1])) if said else place.main
    if there != place.main:
        told = f"git takes {there} for the work tree, as core.worktree says; Holdfast takes {place.main}, which holds .git."
        yield Finding("work tree", WARN, told, "git config --unset-all core.worktree")


def ignored(place: GitWorkspace) -> Iterator[Finding]:
    try:
        tracked = ignoring.tracked(place.git)
    except HoldfastError as problem:
        anew = f"{away(place.place.index_file)} && git reset --quiet"
        yield Finding("index", WARN, f"{problem} It can be made anew from HEAD; what was staged is lost.", anew)
        return
    try:
        seen = ignoring.look(place.git)
    except HoldfastError as problem:
        yield Finding("ignored", WARN, str(problem), away(os.path.join(place.main, ".holdfast")))
        return
    if tracked:
        said = f"git tracks {tracked[0]}, which is Holdfast's own."
        yield Finding("ignored", WARN, said, "git rm -r --cached .holdfast")
    if seen.ignored:
        yield Finding("ignored", OK, f"git ignores .holdfast/ ({seen.by}).")
    else:
        said = "git does not ignore .holdfast/, so it may be committed by accident."
        yield Finding("ignored", WARN, said, "holdfast init")


def writable(place: GitWorkspace) -> Iterator[Finding]:
    for folder in (
        os.path.join(place.main, ".holdfast"),
        place.place.common,
        os.path.join(place.place.common, "objects"),
    ):
        if os.path.isdir(folder) and not os.access(folder, os.W_OK | os.X_OK):
            yield Finding("writable", WARN, f"{folder} cannot be written.", shlex.join(["chmod", "u+rwx", folder]))


def trees(place: GitWorkspace) -> Iterator[Finding]:
    yield from listed(
        "worktrees", worktrees.orphans(place.git), lambda one: (f"The worktree {one.path}: {one.why}.", one.fix)
    )
    begun = ws_intent.unfinished(place.git)
    yield from listed(
        "worktrees", begun, lambda one: (f"A restore into {one.path or 'a new folder'} was cut off.", FIX)
    )


def hooked(place: GitWorkspace) -> Iterator[Finding]:
    try:
        states = hooks.state(place.git)
    except HoldfastError as problem:
        yield Finding("hooks", OK, f"Holdfast's hooks cannot be here: {problem}")
        return
    changed = [name for name, state in states.items() if state == "changed"]
    yield from listed(
        "hooks",
        changed,
        lambda name: (f"The hook {name} was changed since Holdfast put it there.", "holdfast init --hooks --force"),
    )


# --- sidecars against the log and against git


def ours(place: GitWorkspace, state: RunState) -> list[tuple[str, WorkspaceState]]:
    """The checkpoints that a run took of this repository, in whichever of its work trees."""
    here = folders(place)
    return [(name, made) for name, made in state.workspaces.items() if made.repo in here]


def folders(place: GitWorkspace) -> set[str]:
    return {one.path for one in worktrees.list_worktrees(place.git)} | {place.top, place.main}


def mirrors(place: GitWorkspace, states: list[RunState]) -> Iterator[Finding]:
    try:
        read, refused = sidecars.read_all(place.sidecars)
    except sidecars.SidecarsUnreadable as problem:
        around = os.path.dirname(place.sidecars)
        is_folder = os.path.isdir(around) and not os.path.islink(around)
        yield Finding("sidecars", WARN, str(problem), away(place.sidecars if is_folder else around))
        return
    yield from listed("sidecars", refused, lambda one: unusable(place, one))
    false = false_ones(place, states, read)
    yield from listed("sidecars", list(false.items()), lambda one: (f"{one[0]} is not believed: {one[1]}.", FIX))
    there = {one.checkpoint_id for one in read} | newer(refused)
    logged = [
        (name, made)
        for state in states
        for name, made in ours(place, state)
        if made.complete and made.commit is not None
    ]
    bare = [name for name, made in logged if name not in there and place.has(made.commit or "")]
    yield from listed("sidecars", bare, lambda name: (f"Checkpoint {name} has no sidecar.", FIX))
    known = {name for state in states for name in state.workspaces}
    strange = [one for one in read if one.checkpoint_id not in known]
    yield from listed(
        "sidecars",
        strange,
        lambda one: (
            f"Checkpoint {one.checkpoint_id} of run {one.run_id} has a sidecar, and no log here knows it.",
            "holdfast resume",
        ),
    )
    gone = [one for one in read if not place.has(one.sha) and file_name(one.checkpoint_id) not in false]
    yield from listed("sidecars", gone, lambda one: collected(place, states, one))


def unusable(place: GitWorkspace, one: sidecars.Refused) -> tuple[str, str]:
    said = f"{one.path} is not used: {one.why}."
    if one.cure == sidecars.NEWER:
        return f"{said} It does no harm, and a newer Holdfast can read it.", ""
    return said, FIX if one.cure == sidecars.MEND else away(one.path, place) if one.cure else ""


def collected(place: GitWorkspace, states: list[RunState], one: Sidecar) -> tuple[str, str]:
    """A sidecar whose commit git no longer has: it can be made to point at what took its place, or be put away."""
    said = f"Checkpoint {one.checkpoint_id} was commit {one.sha[:12]}, which git no longer has"
    state = next((state for state in states if one.checkpoint_id in dict(ours(place, state))), None)
    position = None if state is None else repo.find(place, state, one.checkpoint_id)
    if position is not None and position.sha is not None and position.confidence != WEAK:
        return f"{said}; it is {position.sha[:12]} now.", FIX
    said += ", and nothing in this history is like it. Its sidecar is of no use here."
    return said, away(place.sidecar_path(one.checkpoint_id), place)


def away(path: str, place: GitWorkspace | None = None) -> str:
    """A command that puts something out of the way, beside itself or out of the folder of sidecars, and overwrites nothing."""
    folder = os.path.dirname(path) if place is None else os.path.dirname(place.sidecars)
    names = (f"{os.path.basename(path)}.aside{number}" for number in ("", *range(1, 1000)))
    targets = (os.path.join(folder, name) for name in names)
    return shlex.join(["mv", path, next(target for target in targets if not os.path.lexists(target))])


def snapshots(place: GitWorkspace, states: list[RunState]) -> Iterator[Finding]:
    kept = workspace.kept(place.git)
    given_up = {name for state in states for name in state.given_up}
    known = {name for state in states for name in (*state.workspaces, *state.kept_aside)}
    yield from listed(
        "checkpoints",
        [name for name in kept if name in given_up],
        lambda name: (
            f"Snapshot {name} is kept, and nothing waits for it.",
            f"holdfast checkpoint --drop {name}",
        ),
    )
    yield from listed(
        "checkpoints",
        [name for name in kept if name not in known | given_up],
        lambda name: (
            f"Snapshot {name} is kept, and no log here knows it. It may be the only copy of somebody's files.",
            f"holdfast restore {name}",
        ),
    )
    yield from unkept(place, states, kept)
    if kept:
        yield Finding("checkpoints", OK, f"Kept under refs/holdfast/: {len(kept)}.")


def unkept(place: GitWorkspace, states: list[RunState], kept: Collection[str]) -> Iterator[Finding]:
    """Checkpoints of the log whose snapshot was let go: as long as git has it, it can be kept again."""
    made = {name: one.snapshot for state in states for name, one in ours(place, state) if name not in kept}
    there = [(name, sha) for name, sha in made.items() if sha and place.has(sha)]
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


def taken_in(place: GitWorkspace, states: list[RunState]) -> Iterator[Finding]:
    """Where the last milestone of a run of Runr is, which only subjects may tell."""
    for state in states:
        known = bool(ours(place, state)) or not state.workspaces
        if not is_imported(state.run_id, state.mission_id) or state.status == FINISHED or not known:
            continue
        position = repo.find(place, state)
        sure = position.sha is not None and position.confidence != WEAK
        said = f"Run {state.run_id}, by {position.source}, {position.confidence}: {position.why}"
        yield Finding("imported", OK if sure else WARN, said, "" if sure else f"holdfast resume {state.run_id} --plan")


def waiting(place: GitWorkspace, states: list[RunState]) -> Iterator[Finding]:
    kept = workspace.kept(place.git)
    for state in states:
        pending = [(state, *one) for one in state.kept_aside.items()]
        yield from listed("kept aside", pending, lambda one: aside(place, kept, *one))
        if state.checkpoint_open is not None:
            said = f"Checkpoint {state.checkpoint_open} of run {state.run_id} was begun and not completed."
            yield Finding("checkpoints", WARN, said, f"holdfast resume {state.run_id}")


def aside(place: GitWorkspace, kept: Collection[str], state: RunState, name: str, snapshot: str) -> tuple[str, str]:
    """Work that is kept aside, and the command that helps: as long as git has it, that is a way to get it back."""
    said = f"Work is kept aside as {name}"
    if name in kept:
        return f"{said}.", f"holdfast restore {name}"
    if place.has(snapshot):
        return f"{said}, and its ref is gone. Until git collects it, it can be kept again.", keep_again(name, snapshot)
    there = next((event.repo for _, event in events_of(state.run_id, SnapshotKept) if event.checkpoint_id == name), "")
    if there in folders(place):
        return f"{said}, its ref is gone, and git has collected it.", f"holdfast checkpoint --drop {name}"
    return f"{said} in {there}.", f"cd {shlex.quote(there)} && holdfast restore {name}"


def keep_again(name: str, snapshot: str) -> str:
    return shlex.join(["git", "update-ref", f"{workspace.REFS}{name}", snapshot])


def events_of(run_id: str, kind: type[Kind]) -> Iterator[tuple[int, Kind]]:
    """The events of one kind in the log of a run, by their number."""
    with closing(app.open_store(read_only=True)) as store:
        for record in store.read(run_id):
            event = decode(record) if record.kind == KIND_OF[kind] else None
            if isinstance(event, kind):
                yield record.seq, event


# --- repairs


def repair() -> Iterator[str]:
    """Write sidecars that are missing or point at commits that moved; remove leftovers. Says what was done."""
    place = repository()
    if place is None:
        return
    for intent in ws_intent.unfinished(place.git):
        ws_intent.discard(place.git, intent)
        yield f"Removed what a restore that was cut off had left at {intent.path or intent.file}."
    for path in sidecars.remove_leftovers(place.sidecars):
        yield f"Removed the unfinished file {path}."
    states = list(repo.states())
    false = false_ones(place, states, sidecars.read_all(place.sidecars)[0])
    for path in sidecars.set_aside(place.sidecars, false):
        yield f"Set aside a sidecar that cannot be read, or is not believed: {path}."
    read, refused = sidecars.read_all(place.sidecars)
    there = {one.checkpoint_id: one for one in read}
    for state in states:
        here = {name for name, _ in ours(place, state)} - newer(refused)
        for name, made in milestones(state):
            if made.commit and name in here:
                yield from relink(place, state, name, made, there.get(name))


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

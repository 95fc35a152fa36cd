"""Brings a snapshot back: into a new worktree, or in place after a snapshot of what is there. Never cleans, resets or moves HEAD.

Git itself writes the files, by the rules of a checkout: it does not follow links out of the tree, does not touch `.git`,
and does not overwrite what differs from what it was told is there. Files that git converts are then made what they were,
byte for byte. The index is put in place last and at once. Ignored files are left alone, but for those that the snapshot
holds; one that is in the way is a reason to refuse. What a snapshot says it left out is left alone, too.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from holdfast.adapters.git import ws_modes
from holdfast.adapters.git.restore_plan import Plan, RestoreRefused, elsewhere, plan_of, refuse_in_the_way
from holdfast.adapters.git.restore_raw import convert_again, ignored_as_then, linked_as_here, put_raw, raw_of, rewritten
from holdfast.adapters.git.restore_sparse import absent_now, absent_then, index_of, leave_out, without
from holdfast.adapters.git.tree_put import put_tree
from holdfast.adapters.git.workspace import (
    Parts,
    Snapshot,
    check_checkpoint_id,
    drop,
    keep,
    read_parts,
    take_at,
)
from holdfast.adapters.git.ws_alone import be_alone
from holdfast.adapters.git.ws_desk import Desk, IndexFile, WorkspaceError, open_desk, place_of, read_index
from holdfast.adapters.git.ws_facts import REFS
from holdfast.adapters.git.ws_gather import Policy, gather
from holdfast.adapters.git.ws_intent import Intent, announce, records_of
from holdfast.adapters.git.ws_modes import Modes, give_back, modes_of, narrow
from holdfast.adapters.git.ws_objects import seconds_of
from holdfast.adapters.git.ws_put import is_put, put_index
from holdfast.adapters.git.ws_scan import GITLINK, KINDS, Change
from holdfast.adapters.paths import real_path
from holdfast.adapters.probes.git_locks import wait_for_index
from holdfast.adapters.probes.git_place import find_repository
from holdfast.adapters.probes.git_runner import Git, complaint
from holdfast.core.errors import HoldfastError, UsageError
from holdfast.core.named import NamedTuple

__all__ = ["OtherHead", "RestoreRefused", "Restored", "finish", "in_place", "into_worktree", "is_free", "preview"]

EVERYTHING = Policy(largest=1 << 62, every_mode=True)  # before files are replaced, none is too large to keep
AWAY = (
    "Name another place. If that work tree was moved, `git worktree repair` in it says so to git; if it is gone for "
    "good, `git worktree prune` forgets it."
)
UNBORN = "refs/heads/holdfast/"


class Restored(NamedTuple):
    """Where a snapshot was brought back. `kept` is the checkpoint of what was there before, in place only."""

    path: str
    sha: str
    branch: str | None
    kept: str | None
    left_out: tuple[str, ...] = ()


class OtherHead(RestoreRefused):
    """HEAD is not where it was at the checkpoint, and a restore does not move it."""

    reason = "branch_differs"


# --- into a new worktree


def into_worktree(git: Git, checkpoint_id: str, path: str) -> Restored:
    """A new worktree, detached where HEAD was; files and index as they were. A failure takes it away again."""
    parts = read_parts(git, checkpoint_id)
    target = _new_place(git, path)
    with announce(git, checkpoint_id, target) as (intent, held), _or_removed(git, intent):
        _add(held, parts, checkpoint_id, target, intent)
        there = Git(find_repository(target), git.given, git.limits.seconds)
        there.held = held.held
        with open_desk(there, checkpoint_id) as desk:
            with _closed(target):
                users = _fill(desk, parts)
            intent.fill()
            put_index(desk, users, read_index(desk.place).stamp)
    snapshot = parts.snapshot
    return Restored(target, snapshot.sha, snapshot.branch, None, snapshot.left_out)


def _new_place(git: Git, path: str) -> str:
    if not os.path.isabs(path):
        raise UsageError(f"{path!r:.200} is not an absolute path.", advice="Name the new worktree by its whole path.")
    parent = real_path(os.path.dirname(path.rstrip(os.sep)))
    target = os.path.join(parent, os.path.basename(path.rstrip(os.sep)))
    common = real_path(place_of(git).common)
    if os.path.lexists(target):
        raise RestoreRefused(f"{target} is already there.", advice="Name a place where nothing is yet.")
    if not os.path.isdir(parent):
        raise RestoreRefused(f"There is no folder {parent}.", advice="Make it first, or name another place.")
    if f"{target}{os.sep}".startswith(f"{common}{os.sep}"):
        raise RestoreRefused(f"{target} lies in the git folder.", advice="Name a place outside of it.")
    if "\n" in target:
        raise RestoreRefused(f"{target!r:.200} has a newline in it, and git cannot note that.", advice="Name another.")
    if records_of(git, target):
        raise RestoreRefused(f"{target} belongs to a work tree that is not there now.", advice=AWAY)
    return target


def is_free(git: Git, path: str) -> bool:
    """Whether nothing is at a place, and git knows of no worktree there."""
    return not os.path.lexists(path) and not records_of(git, path)


@contextmanager
def _or_removed(git: Git, intent: Intent) -> Iterator[None]:
    try:
        yield
    except BaseException:
        intent.undo(git)
        raise


@contextmanager
def _closed(folder: str) -> Iterator[None]:
    """Nobody else looks into it before every file has its permissions."""
    mode = stat.S_IMODE(os.stat(folder).st_mode)
    os.chmod(folder, 0o700)
    yield
    os.chmod(folder, mode)


def _add(git: Git, parts: Parts, checkpoint_id: str, target: str, intent: Intent) -> None:
    """Register the worktree, with no file in it yet. Where no commit was, HEAD stands on a branch of its own, unborn."""
    snapshot = parts.snapshot
    branch = f"{UNBORN}{checkpoint_id}"
    if snapshot.head is None and git.value_of(branch):
        raise RestoreRefused(f"There already is a branch {branch}.", advice="Rename it, then try again.")
    argv = ("worktree", "add", "--quiet", "--detach", "--no-checkout", "--end-of-options", target)
    finished = git.ask(*argv, snapshot.head or snapshot.sha)
    if finished.code:
        raise WorkspaceError(f"`git worktree add` failed: {complaint(finished)}")
    intent.bind(git)
    if snapshot.head is None:
        Git(find_repository(target), git.given, git.limits.seconds)("symbolic-ref", "HEAD", branch)


def _fill(desk: Desk, parts: Parts) -> IndexFile:
    """All files. The index that belongs to them comes last, for it says that the worktree is whole."""
    desk.see_files()
    index = desk.path("tree")
    desk.run("read-tree", linked_as_here(desk, parts), index=index)
    users = index_of(desk, parts)
    leave_out(desk, absent_then(desk, parts, users), "tree")
    if parts.exact is not None:
        desk.write_as_stored()
    desk.run("checkout-index", "--all", index=index)
    put_raw(desk, raw_of(desk, parts))
    narrow(desk.place.top, _modes_of(desk, parts))
    return users


def finish(git: Git, intent: Intent) -> None:
    """Put in place the index of a worktree whose restore was killed when all other files were there."""
    parts = read_parts(git, intent.checkpoint_id)
    with open_desk(Git(find_repository(intent.path), git.given, git.limits.seconds), intent.checkpoint_id) as desk:
        put_index(desk, index_of(desk, parts), None)


def _modes_of(desk: Desk, parts: Parts) -> Modes:
    return ws_modes.read(desk.run("cat-file", "blob", parts.beside["modes"])) if "modes" in parts.beside else {}


# --- in place


def in_place(
    git: Git, checkpoint_id: str, keep_as: str, now: str, announce_kept: Callable[[Snapshot], None] = lambda made: None
) -> Restored:
    """Make files and index here what they were, after a snapshot of what is here as checkpoint `keep_as`.

    `announce_kept` is told of that snapshot before the first file is changed; if it fails, nothing is changed and
    nothing is kept. Refuses where HEAD is not what it was, and where something would be lost that no snapshot holds.
    """
    parts = read_parts(git, checkpoint_id)
    snapshot = parts.snapshot
    seconds = seconds_of(now)
    if git.value_of(REFS + check_checkpoint_id(keep_as)):
        raise RestoreRefused(f"There already is a checkpoint {keep_as}.", advice="Use a new id for what is here.")
    with open_desk(git, keep_as) as desk:
        be_alone(desk)
        _refuse_locked(desk)
        users = read_index(desk.place)
        before = take_at(desk, keep_as, seconds, _as_wide_as(desk, parts))
        _refuse_other_head((before.head, before.branch), snapshot, checkpoint_id)
        desk.ask("update-index", "-q", "--refresh", index=desk.path("index"))  # whatever it finds, `read-tree` judges
        wanted, absent = index_of(desk, parts), absent_now(desk)
        here = without(desk, before.tree, absent, "here")
        leave_out(desk, absent, "index")
        plan = plan_of(desk, here, _as_it_was(desk, parts, wanted, here))
        refuse_in_the_way(desk, plan.differences, checkpoint_id)
        _keep_announced(git, keep_as, before, announce_kept)
        then = _modes_of(desk, parts)
        modes = modes_of(desk.place.top, {*then, *(row.path for row in plan.differences)})
        with _or_put_back(desk, git, Before(here, keep_as, users, modes), plan, checkpoint_id):
            _change_files(desk, here, plan.tree)
            put_raw(desk, raw_of(desk, parts))
            convert_again(desk, parts, read_parts(git, keep_as), plan)
            narrow(desk.place.top, modes)
            narrow(desk.place.top, then)
            put_index(desk, wanted, users.stamp)
    return Restored(desk.place.top, snapshot.sha, snapshot.branch, keep_as, tuple(_left_as_it_is(snapshot, plan)))


def _as_it_was(desk: Desk, parts: Parts, users: IndexFile, here: str) -> Snapshot:
    """The snapshot, with just the files that were in the work tree: a sparse checkout may have left some out."""
    snapshot = parts.snapshot
    tree = linked_as_here(desk, parts, here)
    return snapshot._replace(tree=without(desk, tree, absent_then(desk, parts, users), "there"))


def _left_as_it_is(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """What was not brought back, each with the reason."""
    here = {*plan.left.values()}
    yield from (f"{row}; what is here is left as it is" if row in here else row for row in snapshot.left_out)
    modules = (row for row in plan.differences if GITLINK in (row.old, row.new))
    yield from (f"{os.fsdecode(row.path)}: it is a submodule, and is left as it is" for row in modules)


def _keep_announced(git: Git, keep_as: str, made: Snapshot, announce_kept: Callable[[Snapshot], None]) -> None:
    """Keep a snapshot and say so; what cannot be said is not kept. An interrupt leaves it: it may have been said by then."""
    held = keep(git, keep_as, made)
    try:
        announce_kept(held)
    except Exception:
        drop(git, keep_as, made.sha)
        raise


class Before(NamedTuple):
    """What was here: the tree of the files, the checkpoint that keeps it, the user's index, and who may read the files."""

    tree: str
    kept: str
    users: IndexFile
    modes: Modes


@contextmanager
def _or_put_back(desk: Desk, git: Git, before: Before, plan: Plan, checkpoint_id: str) -> Iterator[None]:
    """Here files change. A failure puts them back; where that fails too, whoever hears of it hears of the way back."""
    try:
        yield
    except (HoldfastError, OSError, KeyboardInterrupt) as error:
        said = _sentence(error)
        kind = type(error) if isinstance(error, (RestoreRefused, WorkspaceError)) else WorkspaceError
        try:
            _put_back(desk, git, before, plan, checkpoint_id)
        except (HoldfastError, OSError) as again:
            undo = f"What was here is kept: `holdfast restore {before.kept} --in-place` brings it back."
            why = _sentence(again)
            raise kind(
                f"Only some of the files may be restored. {said} They could not be put back: {why}",
                advice=f"{undo} {elsewhere(checkpoint_id)}",
            ) from error
        if isinstance(error, KeyboardInterrupt):
            raise
        raise kind(f"{said} All files are again what they were before.", advice=elsewhere(checkpoint_id)) from error


def _sentence(error: HoldfastError | OSError | KeyboardInterrupt) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "It was interrupted."
    if isinstance(error, OSError):
        return f"{os.fsdecode(error.filename or 'A file')} cannot be read or written: {error.strerror}."
    return f"{str(error).rstrip('.')}."


def _put_back(desk: Desk, git: Git, before: Before, plan: Plan, checkpoint_id: str) -> None:
    """Files that are what neither side has are left alone, and that is an error."""
    raw, was = (raw_of(desk, read_parts(git, name)) for name in (before.kept, checkpoint_id))
    put_tree(git, plan.tree, before.tree, is_torn=True, raw=raw, was=was)
    put_raw(desk, raw)
    give_back(desk.place.top, before.modes)
    now = read_index(desk.place)
    if is_put(desk, now):
        put_index(desk, before.users, now.stamp)


def preview(git: Git, checkpoint_id: str) -> list[Change]:
    """What `in_place` would change in the work tree, or why it would refuse. Writes nothing into the repository."""
    parts = read_parts(git, checkpoint_id)
    snapshot = parts.snapshot
    with TemporaryDirectory(prefix="holdfast-") as home, open_desk(git, checkpoint_id, home) as desk:
        _refuse_locked(desk)
        desk.write_objects_here()
        desk.see_files()
        found = gather(desk, _as_wide_as(desk, parts))
        _refuse_other_head((found.head, found.branch), snapshot, checkpoint_id)
        here = without(desk, found.tree, absent_now(desk), "here")
        plan = plan_of(desk, here, _as_it_was(desk, parts, index_of(desk, parts), here))
        refuse_in_the_way(desk, plan.differences, checkpoint_id)
        rows = [*((row.path, row.kind) for row in plan.differences)]
        rows += [(path, "M") for path in rewritten(desk, parts, found.raw, plan)]
    return [Change(os.fsdecode(path), KINDS[kind]) for path, kind in sorted(rows)]


def _as_wide_as(desk: Desk, parts: Parts) -> Policy:
    """Everything, and of the ignored files those that this snapshot may replace or has just so."""
    named = ignored_as_then(desk, parts).union(map(os.fsencode, parts.snapshot.ignored))
    return EVERYTHING._replace(named=frozenset(named))


def _refuse_locked(desk: Desk) -> None:
    if held := wait_for_index(desk.place):
        raise RestoreRefused(held.sentence, advice=held.advice)


def _refuse_other_head(now: tuple[str | None, str | None], snapshot: Snapshot, checkpoint_id: str) -> None:
    then = (snapshot.head, snapshot.branch)
    if now != then:
        here, there = (f"{branch or 'no branch'} at {head or 'no commit'}" for head, branch in (now, then))
        said = f"HEAD is on {here}; at the checkpoint it was on {there}, and a restore does not move it."
        raise OtherHead(said, advice=elsewhere(checkpoint_id))


def _change_files(desk: Desk, old: str, new: str) -> None:
    """Git looks at every file that it is to change before it changes the first."""
    argv = ("read-tree", "-m", "-u", "--no-sparse-checkout", old, new)
    finished = desk.ask(*argv, index=desk.path("index"))
    if finished.code:
        raise RestoreRefused(f"Git would not change the files: {complaint(finished)}")

"""Brings a snapshot back: into a new worktree, or in place after a snapshot of what is there. Never cleans, resets or moves HEAD.

Git itself writes the files, by the rules of a checkout: it does not follow links out of the tree, does not touch `.git`,
and does not overwrite what differs from what it was told is there. Files that git converts are then made what they were,
byte for byte. The index is put in place last and at once. Ignored files are left alone, but for those that the snapshot
holds; one that is in the way is a reason to refuse. What a snapshot says it left out is left alone, too.
"""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import NamedTuple

from holdfast.adapters.git.workspace import (
    Parts,
    Snapshot,
    check_checkpoint_id,
    drop,
    keep,
    object_format,
    read_parts,
    take_at,
)
from holdfast.adapters.git.ws_desk import Desk, IndexFile, Stamp, WorkspaceError, open_desk, place_of, read_index
from holdfast.adapters.git.ws_facts import REFS
from holdfast.adapters.git.ws_gather import Policy, gather
from holdfast.adapters.git.ws_intent import Intent, announce, records_of
from holdfast.adapters.git.ws_objects import Maker, seconds_of
from holdfast.adapters.git.ws_put import put_bytes, put_index
from holdfast.adapters.git.ws_scan import GITLINK, KINDS, LIST, Change, LeftOut, joined, parse_flags
from holdfast.adapters.probes.git_locks import wait_for_index
from holdfast.adapters.probes.git_runner import Git, complaint, find_repository
from holdfast.core.errors import HoldfastError, UsageError

EVERYTHING = Policy(largest=1 << 62)  # before files are replaced, none is too large to keep
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


class RestoreRefused(HoldfastError):
    """A restore that would lose something, or that cannot give what was asked for."""

    reason = "drift_refused"


class OtherHead(RestoreRefused):
    """HEAD is not where it was at the checkpoint, and a restore does not move it."""

    reason = "branch_differs"


def elsewhere(checkpoint_id: str) -> str:
    return f"`holdfast restore {checkpoint_id}` brings it back beside what is here, in a new worktree."


class Difference(NamedTuple):
    """One path in which two trees differ; modes as git writes them, and what the old tree has there."""

    path: bytes
    kind: str
    old: bytes
    new: bytes
    blob: bytes


class Plan(NamedTuple):
    """The tree to go to, in what it differs from what is here, and in what it does although a snapshot differs there."""

    tree: str
    differences: list[Difference]
    left: dict[bytes, str]  # path -> what the snapshot said when it left it out


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
            _fill(desk, parts)
    snapshot = parts.snapshot
    return Restored(target, snapshot.sha, snapshot.branch, None, snapshot.left_out)


def _new_place(git: Git, path: str) -> str:
    if not os.path.isabs(path):
        raise UsageError(f"{path!r:.200} is not an absolute path.", advice="Name the new worktree by its whole path.")
    parent = os.path.realpath(os.path.dirname(path.rstrip(os.sep)))
    target = os.path.join(parent, os.path.basename(path.rstrip(os.sep)))
    common = os.path.realpath(place_of(git).common)
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


def _fill(desk: Desk, parts: Parts) -> None:
    index = desk.path("tree")
    desk.run("read-tree", parts.snapshot.tree, index=index)
    users = _index_of(desk, parts)
    absent = _absent(desk, parts, users)
    if absent:
        desk.run("update-index", "--force-remove", "-z", "--stdin", stdin=joined(absent), index=index)
    desk.run("checkout-index", "--all", index=index)
    _put_raw(desk, _raw_of(desk, parts))
    put_index(desk, users, read_index(desk.place).stamp)


def _index_of(desk: Desk, parts: Parts) -> IndexFile:
    if "index" not in parts.beside:
        return IndexFile()
    data = desk.run("cat-file", "blob", parts.beside["index"])
    return IndexFile(data, Stamp(0, len(data), parts.index_mtime_ns))


def _absent(desk: Desk, parts: Parts, users: IndexFile) -> list[bytes]:
    """What a sparse checkout had left out of the work tree."""
    if not users.stamp:
        return []
    flags = parse_flags(desk.run(*LIST, index=desk.lay("users", users)))
    present = desk.run("cat-file", "blob", parts.beside["present"]) if "present" in parts.beside else b""
    return sorted({*flags.skipped} - {*present.split(b"\0")})


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
        _refuse_locked(desk)
        users = read_index(desk.place)
        before = take_at(desk, keep_as, seconds, _as_wide_as(parts))
        _refuse_other_head((before.head, before.branch), snapshot, checkpoint_id)
        desk.ask("update-index", "-q", "--refresh", index=desk.path("index"))  # whatever it finds, `read-tree` judges
        plan = _plan(desk, before.tree, snapshot)
        _refuse_in_the_way(desk, plan.differences, checkpoint_id)
        _keep_announced(git, keep_as, before, announce_kept)
        with _undo_named(keep_as, checkpoint_id):
            _change_files(desk, before.tree, plan.tree)
            _put_raw(desk, _raw_of(desk, parts))
            _convert_again(desk, parts, read_parts(git, keep_as), plan)
            put_index(desk, _index_of(desk, parts), users.stamp)
    return Restored(desk.place.top, snapshot.sha, snapshot.branch, keep_as, tuple(_left_as_it_is(snapshot, plan)))


def _plan(desk: Desk, here: str, snapshot: Snapshot) -> Plan:
    """What a snapshot left out stays as it is here: its tree has something older there, or nothing."""
    left_out = LeftOut(snapshot.left_out)
    rows = _differences(desk, here, snapshot.tree)
    said = {row.path: left_out.row_of(row.path) for row in rows}
    left = [row for row in rows if said[row.path]]
    differences = [row for row in rows if not said[row.path]]
    return Plan(_with(desk, snapshot.tree, left), differences, {row.path: said[row.path] or "" for row in left})


def _with(desk: Desk, tree: str, rows: Sequence[Difference]) -> str:
    """A tree, with what is here in the place of some of its files."""
    if not rows:
        return tree
    index = desk.path("target")
    desk.run("read-tree", tree, index=index)
    listing = b"".join(b"%s %s\t%s\0" % (row.old, row.blob, row.path) for row in rows)
    desk.run("update-index", "-z", "--index-info", stdin=listing, index=index)
    return desk.line("write-tree", "--missing-ok", index=index)


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


@contextmanager
def _undo_named(keep_as: str, checkpoint_id: str) -> Iterator[None]:
    """Here files change: whoever hears of a failure hears of the way back."""
    undo = f"What was here is kept: `holdfast restore {keep_as} --in-place` brings it back."
    try:
        yield
    except OSError as error:
        said = f"{error.filename or 'A file'} cannot be read or written: {error.strerror}."
        raise WorkspaceError(f"Only some of the files may be restored. {said}", advice=undo) from error
    except HoldfastError as error:
        error.advice = f"{undo} {elsewhere(checkpoint_id)}"
        raise


def preview(git: Git, checkpoint_id: str) -> list[Change]:
    """What `in_place` would change in the work tree, or why it would refuse. Writes nothing into the repository."""
    parts = read_parts(git, checkpoint_id)
    snapshot = parts.snapshot
    with TemporaryDirectory(prefix="holdfast-") as home, open_desk(git, checkpoint_id, home) as desk:
        _refuse_locked(desk)
        desk.write_objects_here()
        found = gather(desk, _as_wide_as(parts))
        _refuse_other_head((found.head, found.branch), snapshot, checkpoint_id)
        rows = _plan(desk, found.tree, snapshot).differences
        _refuse_in_the_way(desk, rows, checkpoint_id)
    return [Change(os.fsdecode(row.path), KINDS[row.kind]) for row in rows]


def _as_wide_as(parts: Parts) -> Policy:
    """Everything, and of the ignored files those that this snapshot may replace."""
    return EVERYTHING._replace(named=frozenset(map(os.fsencode, parts.snapshot.ignored)))


def _refuse_locked(desk: Desk) -> None:
    if held := wait_for_index(desk.place):
        raise RestoreRefused(held.sentence, advice=held.advice)


def _refuse_other_head(now: tuple[str | None, str | None], snapshot: Snapshot, checkpoint_id: str) -> None:
    then = (snapshot.head, snapshot.branch)
    if now != then:
        here, there = (f"{branch or 'no branch'} at {head or 'no commit'}" for head, branch in (now, then))
        said = f"HEAD is on {here}; at the checkpoint it was on {there}, and a restore does not move it."
        raise OtherHead(said, advice=elsewhere(checkpoint_id))


def _differences(desk: Desk, old: str, new: str) -> list[Difference]:
    argv = ("diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", "--no-ext-diff")
    said = desk.run(*argv, old, new).split(b"\0")
    rows = (facts.split(b" ") for facts in said[0:-1:2])
    return [
        Difference(path, row[4].decode(), row[0].lstrip(b":"), row[1], row[2])
        for row, path in zip(rows, said[1::2], strict=True)
    ]


def _refuse_in_the_way(desk: Desk, differences: Sequence[Difference], checkpoint_id: str) -> None:
    """Whatever is where a file shall come must be in the snapshot that was just taken, or it would be lost."""
    safe = {row.path for row in differences if row.kind != "A"}
    top = os.fsencode(desk.place.top)
    found: set[bytes] = set()
    for row in differences:
        if row.kind == "A":
            found |= {path for path in _standing_at(top, row.path) if path not in safe}
    if found:
        some = ", ".join(os.fsdecode(path) for path in sorted(found)[:3])
        raise RestoreRefused(
            f"{len(found)} files that no snapshot holds are in the way ({some}).",
            advice=f"They are ignored, or could not be kept. Move them away; or: {elsewhere(checkpoint_id)}",
        )


def _standing_at(top: bytes, path: bytes) -> Iterator[bytes]:
    """Every file at a path, below it, or in the place of one of its folders."""
    pieces = path.split(b"/")
    for count in range(1, len(pieces)):
        folder = b"/".join(pieces[:count])
        mode = _mode_at(os.path.join(top, folder))
        if mode is None:
            return
        if not stat.S_ISDIR(mode):
            yield folder
            return
    mode = _mode_at(os.path.join(top, path))
    if mode is not None and not stat.S_ISDIR(mode):
        yield path
    elif mode is not None:
        for folder, _, names in os.walk(os.path.join(top, path)):
            yield from (os.path.relpath(os.path.join(folder, name), top) for name in names)


def _mode_at(path: bytes) -> int | None:
    try:
        return os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None


def _change_files(desk: Desk, old: str, new: str) -> None:
    """Git looks at every file that it is to change before it changes the first."""
    argv = ("read-tree", "-m", "-u", "--no-sparse-checkout", old, new)
    finished = desk.ask(*argv, index=desk.path("index"))
    if finished.code:
        raise RestoreRefused(f"Git would not change the files: {complaint(finished)}")


# --- files that git converts


def _raw_of(desk: Desk, parts: Parts) -> dict[bytes, str]:
    if "raw" not in parts.beside:
        return {}
    rows = (row.split(b"\t", 1) for row in desk.run("ls-tree", "-r", "-z", parts.beside["raw"]).split(b"\0") if row)
    return {path: facts.split(b" ")[2].decode() for facts, path in rows}


def _put_raw(desk: Desk, raw: dict[bytes, str]) -> None:
    maker = Maker(object_format(desk.git))
    for path, name in raw.items():
        put_bytes(desk.place.top, path, functools.partial(_wanted, desk, maker, name))


def _wanted(desk: Desk, maker: Maker, name: str, old: bytes) -> bytes | None:
    """What a file shall hold, unless it does."""
    return None if maker.name_of("blob", old) == name else desk.run("cat-file", "blob", name)


def _convert_again(desk: Desk, parts: Parts, before: Parts, plan: Plan) -> None:
    """Files whose bytes on disk were special then and are not now, although git calls them the same."""
    then, now = (_raw_of(desk, one) for one in (before, parts))
    for path in sorted({*then} - {*now} - {*plan.left} - {row.path for row in plan.differences}):
        name = f"{parts.snapshot.tree}:{os.fsdecode(path)}"
        data = desk.run("cat-file", "--filters", "--end-of-options", name)
        put_bytes(desk.place.top, path, functools.partial(_unless_same, data))


def _unless_same(data: bytes, old: bytes) -> bytes | None:
    return None if old == data else data

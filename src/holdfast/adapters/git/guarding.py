"""What an agent changed behind our back since a snapshot, and the way back. Keeps what is there before it replaces anything."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Sequence

from holdfast.adapters.git import workspace as snapshots
from holdfast.adapters.git.content import WHOLE, content_of, differences, looking
from holdfast.adapters.git.repo import GitWorkspace
from holdfast.adapters.git.tree_put import put_tree
from holdfast.adapters.git.workspace import Change, object_format
from holdfast.adapters.git.ws_desk import open_desk
from holdfast.adapters.git.ws_objects import IDENTITY, Commit, Maker, parse_commit
from holdfast.adapters.git.ws_put import put_bytes
from holdfast.adapters.git.ws_scan import KINDS
from holdfast.adapters.probes.git_runner import Git, check_id


def changed_behind(workspace: GitWorkspace, before: str, expected: Iterable[str] = ()) -> list[Change]:
    """How the work tree differs from a snapshot or tree, but for the expected paths. What that did not hold is not compared."""
    git, known = workspace.git, {os.fsencode(path) for path in expected}
    commit = _commit(git, check_id(before))
    with looking(git) as desk:
        now = content_of(desk, before).tree
        if now == (before if commit is None else commit.tree):
            return []
        rows = differences(desk, before, now)
    left_out = _left_out(git, commit)
    found = (row for row in rows if row.path not in known and not _is_left_out(left_out, row.path))
    return [Change(os.fsdecode(row.path), KINDS[row.kind]) for row in found]


def undo(workspace: GitWorkspace, before: str, keep_as: str, now: str) -> list[str]:
    """Bring every file back to a snapshot, after a snapshot of what is there as checkpoint `keep_as`; the paths.

    If it was interrupted, doing it again with the same id goes on. HEAD, branches and the index stay as they are.
    """
    git = workspace.git
    wanted, left_out = workspace.tree_of(check_id(before)), _left_out(git, _commit(git, before))
    here = workspace.kept(keep_as)
    if here is None:
        held = frozenset(git("ls-tree", "-r", "-z", "--name-only", wanted).split(b"\0"))  # ignored or not
        here = snapshots.keep(git, keep_as, snapshots.take(git, keep_as, now, WHOLE._replace(named=held)))
    paths = put_tree(git, here.tree, wanted, functools.partial(_is_left_out, left_out))
    _put_raw(git, before, paths)
    return [os.fsdecode(path) for path in paths]


def _commit(git: Git, sha: str) -> Commit | None:
    """A commit; None for a tree."""
    finished = git.ask("cat-file", "commit", sha)
    return None if finished.code else parse_commit(finished.out)


def _beside(commit: Commit | None) -> str | None:
    """The commit that holds what a snapshot keeps beside its files; None if it is not one of our snapshots."""
    if commit is None:
        return None
    is_ours = commit.author.startswith(IDENTITY + b" ") and "Holdfast-Checkpoint" in commit.trailers
    return commit.parents[-1] if is_ours and commit.parents else None


def _left_out(git: Git, commit: Commit | None) -> list[str]:
    beside = _beside(commit)
    finished = git.ask("cat-file", "blob", f"{beside}:left_out") if beside else None
    return [os.fsdecode(row) for row in finished.out.split(b"\0") if row] if finished else []


def _is_left_out(rows: Sequence[str], path: bytes) -> bool:
    """Whether one of the rows names a path, or a folder around it."""
    pieces = os.fsdecode(path).split("/")
    around = ["/".join(pieces[:count]) for count in range(1, len(pieces) + 1)]
    starts = tuple(start for one in around for start in (f"{one}: ", f"{one}/: "))
    return any(row.startswith(starts) for row in rows)


def _put_raw(git: Git, sha: str, paths: Sequence[bytes]) -> None:
    """Files that git converts get the bytes that they had."""
    beside = _beside(_commit(git, sha))
    finished = git.ask("ls-tree", "-r", "-z", f"{beside}:raw") if beside else None
    rows = [row.split(b"\t", 1) for row in finished.out.split(b"\0") if row] if finished else []
    raw = {path: facts.split(b" ")[2].decode() for facts, path in rows}
    converted = [path for path in paths if path in raw]
    if not converted:
        return
    maker = Maker(object_format(git))
    with open_desk(git, "raw") as desk:
        for path in converted:
            put_bytes(desk, path, functools.partial(_wanted, git, maker, raw[path]))


def _wanted(git: Git, maker: Maker, name: str, old: bytes) -> bytes | None:
    return None if maker.name_of("blob", old) == name else git.body_of(name, "blob")

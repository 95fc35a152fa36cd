"""Merges what parallel tasks made, without touching a file; then brings a work tree to the result. Never overwrites an edit.

The merge is git's own, of three trees at a time: the base, what is there so far, and what the next task made. The same
trees give the same result, so nothing of it needs to be kept. What git cannot merge is a conflict, and nothing changes.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Collection, Sequence

from holdfast.adapters.git.repo import GitWorkspace
from holdfast.adapters.git.tree_put import PutRefused, put_tree
from holdfast.adapters.git.workspace import object_format
from holdfast.adapters.git.ws_desk import look_again
from holdfast.adapters.git.ws_objects import Maker
from holdfast.adapters.probes.common import EffectError
from holdfast.adapters.probes.git_runner import Git, check_id, complaint, version_of
from holdfast.adapters.probes.programs import search_path
from holdfast.core.errors import HoldfastError
from holdfast.core.named import NamedTuple

__all__ = ["MergeConflict", "Merged", "PutRefused", "merge", "put"]

OLDEST = (2, 38)  # the first that merges trees without a work tree
OURS = "the work tree"
SECONDS = 300.0
_SETTINGS = {
    "merge.renames": "true",
    "merge.directoryRenames": "false",  # a file stays in the folder where its task put it
    "merge.renormalize": "false",
    "merge.conflictStyle": "merge",
    "merge.renameLimit": "7000",
}
_SAID = tuple(word for name, value in _SETTINGS.items() for word in ("-c", f"{name}={value}"))
_DRIVER = re.compile(r"merge\..+\.driver", re.IGNORECASE | re.DOTALL)
_SHOWN = 5


class Merged(NamedTuple):
    """The files of all, as a tree, and as a commit that stands on the base and on what every task made.

    `left_out` are tasks and paths: what they made of these does not fit, and the paths are as they were.
    """

    tree: str
    commit: str
    left_out: tuple[tuple[str, str], ...] = ()


class MergeConflict(HoldfastError):
    """What a task made does not go together with what is there, or with what the tasks before it made."""

    reason = "merge_conflict"

    def __init__(self, task: str, others: Sequence[str], paths: Sequence[str]) -> None:
        some = ", ".join(map(repr, paths[:_SHOWN])) + (
            f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
        )
        beside = " and ".join(others) or "what is there"
        super().__init__(
            f"What task {task} made cannot be merged with {beside}: both changed {some}.",
            advice=f"Nothing was changed, and all results are kept. Do task {task} again on the result of the others.",
        )
        self.task, self.others, self.paths = task, tuple(others), tuple(paths)


class Outcome(NamedTuple):
    """What git made of one merge; `conflicts` are the paths that it could not merge."""

    tree: str
    conflicts: tuple[str, ...]


def merge(
    git: Git,
    base: str,
    ours: str,
    theirs: Sequence[tuple[str, str]],
    kept: Collection[str] = frozenset(),
    own: Collection[str] = frozenset(),
) -> Merged:
    """Merge what tasks made since commit `base` into `ours`, in order. Commits and trees are named by their full ids.

    `kept` are paths that are ours to write: where a task changed them as well and that does not fit, they stay as they are.
    Those of `own` always do.
    """
    _check_merges(git)
    look_again(git)
    git = _prepared(git)
    maker = Maker(object_format(git))
    root = maker.commit(git.tree_of(base), [], 0, b"base\n")
    trees = [(name, git.tree_of(sha)) for name, sha in theirs]
    tree, left_out = git.tree_of(ours), list[tuple[str, str]]()
    for count, (name, other) in enumerate(trees):
        sides = [maker.commit(one, [root], 0, b"side\n") for one in (tree, other)]
        outcome = _merge_two(git, maker, sides)
        if not set(outcome.conflicts) <= {*kept, *own}:
            others = [(OURS, git.tree_of(ours)), *trees[:count]]
            raise MergeConflict(name, _touching(git, base, others, outcome.conflicts), outcome.conflicts)
        changed = set(_changed(git, base, other)) if own else set()
        out = sorted({*outcome.conflicts, *(path for path in own if os.fsencode(path) in changed)})
        left_out += [(name, path) for path in out]
        tree = _with(git, outcome.tree, tree, out)
    commit = maker.commit(tree, [git.commit_of(base), *(sha for _, sha in theirs)], 0, b"Tasks of one batch, merged\n")
    git("unpack-objects", "-q", stdin=maker.pack())
    return Merged(tree, git.know_tree(commit, tree), tuple(left_out))


def _check_merges(git: Git) -> None:
    found = version_of(git.program, search_path(git.given))
    if found < OLDEST:
        said, wanted = (".".join(map(str, one)) for one in (found, OLDEST))
        raise EffectError(
            f"This is git {said}, and merging the work of parallel tasks needs git {wanted} or newer.",
            advice=f"Install git {wanted} or newer, or let one task run at a time.",
        )


def _prepared(git: Git) -> Git:
    """The same git, in which a merge program of the repository does not run, and so what it is for is a conflict."""
    other = copy.copy(git)
    said = dict(git.environment)
    for number in range(int(said["GIT_CONFIG_COUNT"])):
        if _DRIVER.fullmatch(said[f"GIT_CONFIG_KEY_{number}"]):
            said[f"GIT_CONFIG_VALUE_{number}"] = "false"
    other.environment = said
    other.limits = git.limits._replace(seconds=max(SECONDS, git.limits.seconds))
    return other


def _merge_two(git: Git, maker: Maker, sides: Sequence[str]) -> Outcome:
    git("unpack-objects", "-q", stdin=maker.pack())
    maker.made.clear()
    finished = git.ask(*_SAID, "merge-tree", "--write-tree", "--no-messages", "--name-only", "-z", *sides)
    if finished.code not in (0, 1):
        raise EffectError(f"`git merge-tree` failed: {complaint(finished)}")
    tree, *paths = (os.fsdecode(field) for field in finished.out.split(b"\0"))
    if not finished.code:
        return Outcome(check_id(tree), ())
    named = (path for path in paths if path)
    return Outcome(check_id(tree), tuple(sorted({_own_name(path, sides) for path in named})) or ("(unnamed)",))


def _with(git: Git, tree: str, other: str, paths: Sequence[str]) -> str:
    """A tree with these paths as another tree has them."""
    for path in paths:
        tree = _taking(git, tree, other, os.fsencode(path).split(b"/"))
    return tree


def _taking(git: Git, tree: str, other: str, path: Sequence[bytes]) -> str:
    name, *rest = path
    rows, wanted = _rows(git, tree), _rows(git, other).get(name)
    if rest and name in rows and wanted is not None:
        inner = _taking(git, _id(rows[name]), _id(wanted), rest)
        wanted = b"040000 tree %s\t%s" % (inner.encode(), name)
    others = {one: row for one, row in rows.items() if one != name}
    made = [*others.values(), *([wanted] if wanted is not None else [])]
    return git.line("mktree", "-z", stdin=b"".join(row + b"\0" for row in made))


def _rows(git: Git, tree: str) -> dict[bytes, bytes]:
    """What a tree holds, as git lists it, by name."""
    rows = [row for row in git("ls-tree", "-z", tree).split(b"\0") if row]
    return {row.split(b"\t", 1)[1]: row for row in rows}


def _id(row: bytes) -> str:
    return row.split(b"\t", 1)[0].split(b" ")[2].decode()


def _own_name(path: str, sides: Sequence[str]) -> str:
    """Where a file and a folder want one name, git appends the side to that of the file."""
    for side in sides:
        path = path.removesuffix(f"~{side}")
    return path


def _touching(git: Git, base: str, others: Sequence[tuple[str, str]], paths: Sequence[str]) -> list[str]:
    """Which of the others changed one of the paths, or something in its place."""
    wanted = [os.fsencode(path) for path in paths]
    found = []
    for name, tree in others:
        changed = _changed(git, base, tree)
        if any(_meet(one, other) for one in wanted for other in changed):
            found.append(name)
    return found


def _changed(git: Git, base: str, tree: str) -> list[bytes]:
    out = git("diff-tree", "-r", "-z", "--name-only", "--no-renames", "--end-of-options", git.tree_of(base), tree)
    return [path for path in out.split(b"\0") if path]


def _meet(one: bytes, other: bytes) -> bool:
    return one == other or one.startswith(other + b"/") or other.startswith(one + b"/")


def put(workspace: GitWorkspace, ours: str, merged: str) -> list[str]:
    """Bring the work tree from content `ours` to `merged`; the paths in which the two differ.

    Refuses before it changes anything if one of them holds something else. If it was killed, doing it again goes on.
    """
    git = workspace.git
    return [os.fsdecode(path) for path in put_tree(git, git.tree_of(ours), git.tree_of(merged))]

"""What a work tree holds now, as a tree, held against a commit. Writes no file, and leaves every index but a private one alone.

A file of that commit which is still there counts, whatever an agent did to its index or to the rules of what is ignored.
Files of our own are as that commit has them, whatever an agent made of them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from holdfast.adapters.git.ws_desk import Desk, open_desk
from holdfast.adapters.git.ws_gather import Gathered, Policy, gather
from holdfast.adapters.git.ws_scan import ABSENT, GITLINK, Own, joined, shown
from holdfast.adapters.probes.git_runner import Git
from holdfast.adapters.remembering import Few
from holdfast.core.named import NamedTuple

WHOLE = Policy(largest=1 << 62)  # no file is too large to count
_RAW = ("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-ext-diff", "--ignore-submodules=none")

Entries = dict[bytes, tuple[bytes, bytes]]

# What a tree holds never changes: the few that were looked at last, by their ids, unless one is too large to be kept.
_HELD = Few[str, Entries](8)
_LARGEST_HELD = 20_000


class Content(NamedTuple):
    """The tree, where HEAD stands, and what is not in the tree, with the reason. `inner`: the repositories in it that are new."""

    tree: str
    head: str | None
    left_out: tuple[str, ...]
    inner: tuple[bytes, ...]


class Difference(NamedTuple):
    """One path in which two trees differ; modes and ids as git writes them."""

    path: bytes
    kind: str
    old_mode: bytes
    new_mode: bytes
    old: str
    new: str


@contextmanager
def looking(git: Git) -> Iterator[Desk]:
    """A desk for those who only look: what they make of the files goes away with it."""
    with TemporaryDirectory(prefix="holdfast-") as home, open_desk(git, "look", home) as desk:
        desk.write_objects_here()
        yield desk


def content_of(desk: Desk, base: str, links: Mapping[str, bytes] | None = None, policy: Policy = WHOLE) -> Content:
    """`links` are links of ours, by path, that do not count as long as they lead where we let them."""
    found = gather(desk, policy)
    own, listed = Own(desk.git), _listed(desk, found)
    then = _held(desk, desk.git.tree_of(base))
    heads = _held(desk, desk.git.tree_of(found.head)) if found.head and found.head != base else ()
    known = {*then, *heads}
    ours, theirs = ({path: row for path, row in rows.items() if path in own} for rows in (listed, then))
    back = sorted(path for path in known - {*listed} if path not in own and _is_file(desk, path))
    away = [os.fsencode(path) for path, target in (links or {}).items() if _target(desk, path) == target]
    changes = [
        (("--add", "--replace", "-z", "--stdin"), joined(back)),
        (("--force-remove", "-z", "--stdin"), joined([*away, *(ours if ours != theirs else ())])),
        (("-z", "--index-info"), _info(theirs) if ours != theirs else b""),
    ]
    for argv, listing in changes:
        if listing:
            desk.run("update-index", *argv, stdin=listing, index=desk.path("index"))
    is_same = not any(listing for _, listing in changes)
    tree = found.tree if is_same else desk.line("write-tree", "--missing-ok", index=desk.path("index"))
    inner = (path for path, row in listed.items() if row[0] == GITLINK and row != then.get(path) and path not in own)
    return Content(tree, found.head, _rows(found), tuple(inner))


def _listed(desk: Desk, found: Gathered) -> Entries:
    """What the private index holds: path -> mode and id. That is its tree, but for what was only announced by `git add -N`."""
    if all(entry.staged != ABSENT for entry in found.scan.entries):
        return _held(desk, found.tree)
    rows = (
        row.split(b"\t", 1) for row in desk.run("ls-files", "-s", "-z", index=desk.path("index")).split(b"\0") if row
    )
    return {path: (facts.split(b" ")[0], facts.split(b" ")[1]) for facts, path in rows}


def _held(desk: Desk, tree: str) -> Entries:
    held = _HELD.get(tree)
    if held is None:
        rows = (row.split(b"\t", 1) for row in desk.run("ls-tree", "-r", "-z", tree).split(b"\0") if row)
        held = {path: (facts.split(b" ")[0], facts.split(b" ")[2]) for facts, path in rows}
        if len(held) <= _LARGEST_HELD:
            _HELD[tree] = held
    return held


def _info(entries: Entries) -> bytes:
    return b"".join(b"%s %s\t%s\0" % (*row, path) for path, row in entries.items())


def _rows(found: Gathered) -> tuple[str, ...]:
    """Without those of files that are in the tree just as they are on disk, because their filter was not run."""
    held = tuple(shown(path, "its filter ") for path in found.raw)
    return tuple(row for row in found.left_out if not row.startswith(held))


def _is_file(desk: Desk, path: bytes) -> bool:
    """A file or a link, in real folders all the way."""
    top = os.fsencode(desk.place.top)
    *folders, name = path.split(b"/")
    try:
        for folder in folders:
            top = os.path.join(top, folder)
            if not stat.S_ISDIR(os.lstat(top).st_mode):
                return False
        mode = os.lstat(os.path.join(top, name)).st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def _target(desk: Desk, path: str) -> bytes | None:
    try:
        return os.readlink(os.fsencode(os.path.join(desk.place.top, path)))
    except OSError:
        return None


def differences(desk: Desk, old: str, new: str) -> list[Difference]:
    said = desk.run(*_RAW, "--end-of-options", old, new).split(b"\0")
    rows = (facts.lstrip(b":").split(b" ") for facts in said[0:-1:2])
    return [
        Difference(path, row[4].decode(), row[0], row[1], row[2].decode(), row[3].decode())
        for row, path in zip(rows, said[1::2], strict=True)
    ]

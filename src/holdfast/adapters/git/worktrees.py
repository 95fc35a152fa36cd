"""The work trees of a repository, and those that are none any more. Only looks; what is broken is left as it is."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence

from holdfast.adapters.paths import real_path
from holdfast.adapters.probes.common import EffectError
from holdfast.adapters.probes.git_place import find_repository
from holdfast.adapters.probes.git_runner import Git, complaint
from holdfast.core.named import NamedTuple

GONE = "its folder is gone. If you moved it, run `git worktree repair` in it; if not, let git forget it"
PRUNE = "git worktree prune"
REPAIR = "git worktree repair"
_MOST = 4096  # bytes of a file that names a folder
_NO_SUCH_OPTION = 129


class Worktree(NamedTuple):
    """A work tree as git lists it. `locked` and `prunable` hold the reason, which may be empty; None if it is not so."""

    path: str
    head: str | None = None
    branch: str | None = None
    bare: bool = False
    detached: bool = False
    locked: str | None = None
    prunable: str | None = None
    is_main: bool = False


class Orphan(NamedTuple):
    """A work tree that git knows of and that is not there, or does not know of this repository; and the command that helps."""

    path: str
    why: str
    fix: str = PRUNE


def list_worktrees(git: Git) -> list[Worktree]:
    """All work trees, the main one first."""
    finished = git.ask("worktree", "list", "--porcelain", "-z")
    end = b"\0"
    if finished.code == _NO_SUCH_OPTION:  # before git 2.36 there is no -z, and no way to list a name with a newline
        finished, end = git.ask("worktree", "list", "--porcelain"), b"\n"
    if finished.code:
        raise EffectError(f"`git worktree` failed: {complaint(finished)}")
    return parse(finished.out, end)


def is_tree(folder: str) -> bool:
    """Whether a folder is the top of a work tree, of whichever repository."""
    try:
        find_repository(folder)
    except EffectError:
        return False
    return True


def parse(listing: bytes, end: bytes = b"\0") -> list[Worktree]:
    """The output of `git worktree list --porcelain`: attributes, each with an end, and one more end after each work tree."""
    found: list[Worktree] = []
    for block in listing.split(end + end):
        said = dict(_attribute(line) for line in block.split(end) if line)
        if said:
            found.append(_worktree(said, is_main=not found))
    return found


def _attribute(line: bytes) -> tuple[str, str]:
    name, _, value = line.partition(b" ")
    return os.fsdecode(name), os.fsdecode(value)


def _worktree(said: Mapping[str, str], is_main: bool) -> Worktree:
    return Worktree(
        path=said.get("worktree", ""),
        head=said.get("HEAD"),
        branch=said.get("branch"),
        bare="bare" in said,
        detached="detached" in said,
        locked=said.get("locked"),
        prunable=said.get("prunable"),
        is_main=is_main,
    )


# --- orphans


def orphans(git: Git) -> list[Orphan]:
    """Work trees whose folder is gone or names another repository. One that somebody locked is meant to be away.

    Those that are only to be forgotten come last: pruning forgets the ones that are still to be repaired, too.
    """
    assert git.place is not None
    records = os.path.join(git.place.common, "worktrees")
    beside = os.path.dirname(os.path.dirname(git.place.common))
    found = [_orphan(os.path.join(records, name), beside) for name in _names(records)]
    return sorted((one for one in found if one is not None), key=lambda one: one.fix == PRUNE)


def _names(folder: str) -> Sequence[str]:
    try:
        return sorted(name for name in os.listdir(folder) if os.path.isdir(os.path.join(folder, name)))
    except OSError:
        return ()


def _orphan(record: str, beside: str) -> Orphan | None:
    """What is wrong with the work tree of one record in the git folder. `beside` is where one may have been moved to."""
    if os.path.lexists(os.path.join(record, "locked")):
        return None
    link = _line(os.path.join(record, "gitdir"))
    if not link:
        return Orphan(record, "its record does not say where it is")
    link = os.path.normpath(os.path.join(record, link))
    top = os.path.dirname(link)
    if not os.path.isdir(top):
        return _lost(record, top, beside)
    if os.path.isdir(link):
        return Orphan(top, "its folder is a repository of its own", f"rm -r {shlex.quote(record)}")
    back = _line(link)
    if not back.startswith("gitdir: "):
        return Orphan(top, "its folder is not a work tree any more", REPAIR)
    named = os.path.join(top, back.removeprefix("gitdir: "))
    if real_path(named) == real_path(record):
        return None
    fix = REPAIR if not os.path.isdir(named) else f"rm -r {shlex.quote(record)}"
    return Orphan(top, f"its folder belongs to {os.path.normpath(named)}", fix)


def _lost(record: str, top: str, beside: str) -> Orphan:
    """It was deleted, or moved without git's knowledge: not far away, or to where only its owner knows."""
    for folder in (os.path.dirname(top), beside):
        for moved in (os.path.join(folder, name) for name in _names(folder)):
            if _named_by(moved) == real_path(record):
                return Orphan(top, f"it was moved to {moved}", f"{REPAIR} {shlex.quote(moved)}")
    return Orphan(top, GONE)


def _named_by(top: str) -> str | None:
    """The git folder that the `.git` file of a linked work tree names; None if there is no such file."""
    line = _line(os.path.join(top, ".git"))
    return real_path(os.path.join(top, line.removeprefix("gitdir: "))) if line.startswith("gitdir: ") else None


def is_moved(top: str) -> bool:
    """Whether a folder is a linked work tree that git looks for elsewhere, where there is none."""
    record = _named_by(top)
    link = _line(os.path.join(record, "gitdir")) if record else ""
    return bool(record and link) and not os.path.lexists(os.path.join(record or "", link))


def is_submodule(top: str) -> bool:
    record = _named_by(top)
    return record is not None and os.path.isfile(os.path.join(record, "HEAD")) and not _line(f"{record}/commondir")


def _line(path: str) -> str:
    """The file without its last line end, as far as it can name a folder; nothing if it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.fsdecode(os.read(fd, _MOST)).rstrip("\r\n").replace("\0", "")
    except OSError:  # a folder in its place
        return ""
    finally:
        os.close(fd)

"""Where the work tree of a task is on the disk: whether it is one, what git knows of it, and links in it. Follows no link."""

from __future__ import annotations

import os
from contextlib import suppress

from holdfast.adapters.git.plain_files import opened
from holdfast.adapters.paths import real_path
from holdfast.core.errors import HoldfastError, UsageError

_PARTS = (".git", "..", ".", "")
_LONGEST = 4096


class TreeRefused(HoldfastError):
    """A folder that is not the work tree of a task, although it stands where one should be."""

    reason = "bad_input"
    advice = "Look at the folder, and move it away if nobody needs it there."


def plain(path: str) -> str:
    """A path below the top, in plain pieces."""
    if os.path.isabs(path) or any(part.lower() in _PARTS for part in path.rstrip("/").split("/")) or "\0" in path:
        raise UsageError(f"{path!r:.200} is not the path of something in a work tree.")
    return path.rstrip("/")


def link(top: str, path: str, target: bytes) -> bool:
    """Whether the link is there now. In real folders only."""
    place = os.path.join(top, path)
    folder = os.path.dirname(place)
    os.makedirs(folder, exist_ok=True)
    if real_path(folder) != folder:
        raise TreeRefused(f"{folder} leads somewhere else by a link.")
    with suppress(FileExistsError):
        os.symlink(target, os.fsencode(place))
    return os.path.islink(place) and os.fsencode(os.readlink(place)) == target


def is_worktree(common: str, path: str) -> bool:
    """A real folder that is empty, or that names a work tree of this repository."""
    if os.path.islink(path) or not os.path.isdir(path):
        return False
    named = _line(os.path.join(path, ".git")).removeprefix("gitdir: ")
    return os.listdir(path) in ([], [".git"]) or os.path.dirname(named) == os.path.join(common, "worktrees")


def registered(common: str, path: str) -> list[str]:
    """Where git keeps what it knows of the work tree at a path."""
    home = os.path.join(common, "worktrees")
    folders = [os.path.join(home, name) for name in (os.listdir(home) if os.path.isdir(home) else [])]
    return [folder for folder in folders if _line(os.path.join(folder, "gitdir")) == os.path.join(path, ".git")]


def _line(path: str) -> str:
    try:
        with opened(os.path.dirname(path)) as folder:
            found = folder.read(os.path.basename(path), _LONGEST)
    except HoldfastError:
        return ""
    return os.fsdecode(found.data).rstrip("\n") if found else ""

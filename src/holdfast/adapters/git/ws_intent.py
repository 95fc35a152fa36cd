"""Says which new worktree is being made, before it is, so that a half-made one can be told from one that is in use.

A small file in our folder names the place and is locked while the work goes on. If the file is there and nobody holds its
lock, whoever worked was killed. Removes a half-made worktree only when asked.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from holdfast.adapters.git.ws_desk import WorkspaceError, holding, own_folder, place_of, turn
from holdfast.adapters.ledger import read_all, sync_folder, write_all
from holdfast.adapters.probes.common import wait_for
from holdfast.adapters.probes.git_runner import Git

MARK = "restoring-"
_OPEN = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LONGEST = 4096
_MAKE = _OPEN | os.O_CREAT | os.O_EXCL


class Intent(NamedTuple):
    """The file that says it, and the worktree that is to be."""

    file: str
    path: str

    def undo(self, git: Git) -> None:
        """Take away the worktree, whatever there is of it, and then the file. Refuses a folder that is something else."""
        worktrees = os.path.join(place_of(git).common, "worktrees")
        records = _records(worktrees, self.path)
        if os.path.lexists(self.path) and not _is_ours(self.path, worktrees):
            raise WorkspaceError(
                f"{self.path} is not the worktree that was begun there.",
                advice=f"Look at {self.path}; then remove {self.file}.",
            )
        for folder in (self.path, *records):
            if os.path.lexists(folder):
                shutil.rmtree(folder)
        with suppress(OSError):
            os.rmdir(worktrees)  # as git does; fails if there are others
        with suppress(FileNotFoundError):
            os.unlink(self.file)


def _records(worktrees: str, path: str) -> list[str]:
    """Where git keeps what it knows of the worktree at a path."""
    names = os.listdir(worktrees) if os.path.isdir(worktrees) else []
    folders = [os.path.join(worktrees, name) for name in names]
    return [folder for folder in folders if _line(os.path.join(folder, "gitdir")) == os.path.join(path, ".git")]


def _is_ours(path: str, worktrees: str) -> bool:
    """A real folder that is empty, or that names a worktree of this repository."""
    if os.path.islink(path) or not os.path.isdir(path):
        return False
    named = _line(os.path.join(path, ".git")).removeprefix("gitdir: ")
    return os.listdir(path) in ([], [".git"]) or os.path.dirname(named) == worktrees


def _line(path: str) -> str:
    try:
        fd = os.open(path, _READ)
    except OSError:
        return ""
    try:
        return os.fsdecode(os.read(fd, _LONGEST)).rstrip("\n")
    finally:
        os.close(fd)


@contextmanager
def announce(git: Git, checkpoint_id: str, path: str) -> Iterator[tuple[Intent, Git]]:
    """Durable before the block begins; gone when it ended well. The git that comes with it holds the lock."""
    home = own_folder(place_of(git).common)
    with turn(home):
        file, fd = _make(home, checkpoint_id)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        write_all(fd, os.fsencode(path) + b"\0", 0)
        os.fsync(fd)
        sync_folder(home)
        yield Intent(file, path), holding(git, fd)
        with suppress(FileNotFoundError):
            os.unlink(file)
    finally:
        os.close(fd)


def _make(home: str, checkpoint_id: str) -> tuple[str, int]:
    number = 0
    while True:
        file = os.path.join(home, f"{MARK}{checkpoint_id}-{number}")
        try:
            return file, os.open(file, _MAKE, 0o600)
        except FileExistsError:
            number += 1


def unfinished(git: Git) -> list[Intent]:
    """The worktrees that somebody began to make and was killed over."""
    home = os.path.join(place_of(git).common, "holdfast")
    names = sorted(os.listdir(home)) if os.path.isdir(home) and not os.path.islink(home) else []
    found = [_left_behind(os.path.join(home, name)) for name in names if name.startswith(MARK)]
    return [intent for intent in found if intent]


def _left_behind(file: str) -> Intent | None:
    try:
        fd = os.open(file, _OPEN)
    except FileNotFoundError:
        return None
    try:
        if not wait_for(fd, fcntl.LOCK_EX, 0.0):
            return None
        path, whole, _ = read_all(fd).partition(b"\0")
        return Intent(file, os.fsdecode(path)) if whole else Intent(file, "")
    finally:
        os.close(fd)


def discard(git: Git, intent: Intent) -> None:
    """Remove a half-made worktree and what says so. One that was killed before it began has no place yet."""
    if intent.path:
        intent.undo(git)
    else:
        os.unlink(intent.file)

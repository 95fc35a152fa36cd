"""Says which new worktree is being made, before it is, so that a half-made one can be told from one that is in use.

A small file in our folder names the place and is locked while the work goes on. If the file is there and nobody holds its
lock, whoever worked was killed. A token in git's record of the worktree tells it from a later one at the same place.
Removes a half-made worktree only when asked, and never one that has an index or had all its files, or one with a file that
the snapshot does not have: that is whole, or in use.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from holdfast.adapters.git.ws_desk import (
    WorkspaceError,
    holding,
    make_file,
    own_folder,
    place_of,
    turn,
)
from holdfast.adapters.git.ws_facts import REFS
from holdfast.adapters.ledger import read_all, sync_folder, write_all
from holdfast.adapters.paths import real_path
from holdfast.adapters.probes.common import wait_for
from holdfast.adapters.probes.git_runner import Git
from holdfast.adapters.syncing import sync_paths
from holdfast.core.named import NamedTuple

MARK = "restoring-"
BOUND = "holdfast-restoring"
FULL = b"full"
_OPEN = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LONGEST = 4096
_MAKE = _OPEN | os.O_CREAT | os.O_EXCL


class Intent(NamedTuple):
    """The file that says it, the worktree that is to be, and the token by which git's record of it is known for ours."""

    file: str
    path: str
    token: str = ""
    is_full: bool = False

    @property
    def checkpoint_id(self) -> str:
        return os.path.basename(self.file).removeprefix(MARK).rpartition("-")[0]

    def fill(self) -> None:
        """All files are there, and somebody may work with them from now on."""
        fd = os.open(self.file, _OPEN)
        try:
            write_all(fd, _note(self.path, self.token, FULL), 0)
            os.fsync(fd)
        finally:
            os.close(fd)

    def bind(self, git: Git) -> None:
        """Leave the token in the record that git just made: a later worktree at the same place has another record."""
        for record in records_of(git, self.path):
            make_file(os.path.join(record, BOUND), self.token.encode())
            sync_paths([os.path.join(record, BOUND), record])

    def undo(self, git: Git) -> None:
        """Take away the worktree, whatever there is of it, and then the file. Refuses a folder that is something else."""
        records = self.made(git)
        if os.path.lexists(self.path) and not self._is_ours(records):
            raise WorkspaceError(
                f"{self.path} is not the worktree that was begun there.",
                advice=f"Look at {self.path}; then remove {self.file}.",
            )
        for folder in (self.path, *records):
            if os.path.lexists(folder):
                shutil.rmtree(folder)
        with suppress(OSError):
            os.rmdir(_worktrees(git))  # as git does; fails if there are others
        with suppress(FileNotFoundError):
            os.unlink(self.file)

    def end(self, git: Git) -> None:
        """It is whole: the file goes first, for without it a token means nothing."""
        with suppress(FileNotFoundError):
            os.unlink(self.file)
        for record in self.made(git):
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(record, BOUND))

    def made(self, git: Git) -> list[str]:
        """Git's records of this worktree. One without a token is ours while nothing is in it: we were killed before `bind`."""
        return [record for record in records_of(git, self.path) if self._made(record)]

    def _made(self, record: str) -> bool:
        token = _line(os.path.join(record, BOUND))
        return token == self.token if token else not _has_index(record) and _is_bare(self.path)

    def stands(self, git: Git) -> bool:
        """Whether what is at the place is still the half-made worktree. The index comes last: with one, it is in use."""
        records = self.made(git)
        if self.is_full or any(map(_has_index, records)) or records_of(git, self.path) != records:
            return False
        return not os.path.lexists(self.path) or self._is_ours(records)

    def _is_ours(self, records: list[str]) -> bool:
        """A real folder that is empty, or that names one of our records."""
        if os.path.islink(self.path) or not os.path.isdir(self.path):
            return False
        named = _line(os.path.join(self.path, ".git")).removeprefix("gitdir: ")
        return not os.listdir(self.path) or real_path(os.path.join(self.path, named)) in records


def _worktrees(git: Git) -> str:
    return os.path.join(real_path(place_of(git).common), "worktrees")


def records_of(git: Git, path: str) -> list[str]:
    """Where git keeps what it knows of the worktree at a path, be it there or not."""
    worktrees = _worktrees(git)
    names = os.listdir(worktrees) if os.path.isdir(worktrees) else []
    folders = [os.path.join(worktrees, name) for name in names]
    return [folder for folder in folders if _place(folder) == real_path(path)]


def _place(record: str) -> str | None:
    """The worktree that a record names."""
    named = _line(os.path.join(record, "gitdir"))
    return real_path(os.path.dirname(os.path.join(record, named))) if named else None


def _has_index(record: str) -> bool:
    return os.path.lexists(os.path.join(record, "index"))


def _is_bare(path: str) -> bool:
    """Whether nothing of a user can be there."""
    try:
        return os.listdir(path) in ([], [".git"])
    except FileNotFoundError:
        return True
    except OSError:
        return False


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
        _forget(home, path)
        file, fd = _make(home, checkpoint_id)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        intent = Intent(file, path, os.urandom(16).hex())
        write_all(fd, _note(path, intent.token, b""), 0)
        os.fsync(fd)
        sync_folder(home)
        yield intent, holding(git, fd)
        intent.end(git)
    finally:
        os.close(fd)


def _note(path: str, token: str, state: bytes) -> bytes:
    return b"%s\0%s\0%s\0" % (os.fsencode(path), token.encode(), state)


def _forget(home: str, path: str) -> None:
    """Nothing is at the place, so what was begun there earlier is gone."""
    for intent in _all_left(home):
        if intent.path == path:
            os.unlink(intent.file)


def _make(home: str, checkpoint_id: str) -> tuple[str, int]:
    number = 0
    while True:
        file = os.path.join(home, f"{MARK}{checkpoint_id}-{number}")
        try:
            return file, os.open(file, _MAKE, 0o600)
        except FileExistsError:
            number += 1


def unfinished(git: Git) -> list[Intent]:
    """The worktrees that somebody began to make and was killed over, as far as they are still that."""
    home = os.path.join(place_of(git).common, "holdfast")
    return [intent for intent in _all_left(home) if not intent.path or intent.stands(git)]


def doubtful(git: Git) -> list[Intent]:
    """Worktrees that were begun and have no index yet, of which nobody can tell whether they are in use: none is removed."""
    home = os.path.join(place_of(git).common, "holdfast")
    left = [intent for intent in _all_left(home) if intent.path and not intent.is_full and not intent.stands(git)]
    records = [(intent, records_of(git, intent.path)) for intent in left if os.path.isdir(intent.path)]
    return [intent for intent, found in records if found and not any(map(_has_index, found))]


def _all_left(home: str) -> list[Intent]:
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
        path, *more = read_all(fd).split(b"\0")
        token = more[0] if len(more) > 1 else b""  # a note of an older version has none
        return Intent(file, os.fsdecode(path) if more else "", token.decode("ascii", "replace"), FULL in more[1:])
    finally:
        os.close(fd)


def over(git: Git) -> list[Intent]:
    """Notes of those who were killed when all their files were there: they are no longer needed, and nothing else goes."""
    home = os.path.join(place_of(git).common, "holdfast")
    return [intent for intent in _all_left(home) if intent.path and intent.made(git) and not intent.stands(git)]


def unindexed(git: Git) -> list[Intent]:
    """Those of them whose worktree has no index yet: it is all that is missing there."""
    return [one for one in over(git) if one.is_full and not any(map(_has_index, one.made(git)))]


def discard(git: Git, intent: Intent) -> None:
    """Remove a half-made worktree and what says so. One that was killed before it began has no place yet."""
    if not intent.path:
        os.unlink(intent.file)
        return
    if added := _added(git, intent):
        raise WorkspaceError(
            f"{intent.path} is a restore that was cut off, and {len(added)} files in it are not of its snapshot.",
            advice=f"Move {os.fsdecode(added[0])} away, if you need it; then remove the folder, and {intent.file}.",
        )
    intent.undo(git)


def _added(git: Git, intent: Intent) -> list[bytes]:
    """Files in a half-made worktree that somebody else put there."""
    listed = git.ask("ls-tree", "-r", "-z", "--name-only", "--end-of-options", f"{REFS}{intent.checkpoint_id}")
    known, top = set(listed.out.split(b"\0")), os.fsencode(intent.path)
    walk = ((folder, names) for folder, _, names in os.walk(top))
    found = (os.path.relpath(os.path.join(folder, name), top) for folder, names in walk for name in names)
    return sorted(path for path in found if path not in known and path != b".git")

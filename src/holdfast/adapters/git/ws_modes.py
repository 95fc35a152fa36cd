"""Permissions narrower than usual, which git does not keep: found, written down and given back. Only ever narrows them.

Looked at are changed, untracked and ignored files and the folders around them. Of a file that is as HEAD has it nobody
asks: to look at every file would cost as much as the whole snapshot.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress

Modes = dict[bytes, int]

_USUAL = {
    stat.S_IFREG: frozenset({0o644, 0o755, 0o664, 0o775, 0o666, 0o777}),
    stat.S_IFDIR: frozenset({0o755, 0o775, 0o777}),
}
_BITS = 0o777
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def narrow_modes(top: str, paths: Iterable[bytes]) -> Modes:
    """The permissions of those files, and of the folders around them, that are not the usual ones."""
    start, found = os.fsencode(top), Modes()
    for path in _with_folders(paths):
        with suppress(OSError):  # it is gone, or cannot be looked at, and is named for that elsewhere
            mode = os.lstat(os.path.join(start, path)).st_mode
            if mode & _BITS not in _USUAL.get(stat.S_IFMT(mode), (mode & _BITS,)):
                found[path] = mode & _BITS
    return found


def _with_folders(paths: Iterable[bytes]) -> set[bytes]:
    found: set[bytes] = set()
    for path in paths:
        while path and path not in found:
            found.add(path)
            path = os.path.dirname(path)
    return found


def written(modes: Modes) -> bytes:
    return b"".join(b"%o %s\0" % (mode, path) for path, mode in sorted(modes.items()))


def read(data: bytes) -> Modes:
    rows = (row.split(b" ", 1) for row in data.split(b"\0") if row)
    return {path: int(mode, 8) & _BITS for mode, path in rows}


def give_back(top: str, modes: Mapping[bytes, int]) -> None:
    """Take away what these permissions do not allow, what is inside of a folder first."""
    for path in sorted(modes, reverse=True):
        with suppress(FileNotFoundError, NotADirectoryError):  # it was left out, or is left as it is
            _narrow(top, path, modes[path])


def _narrow(top: str, path: bytes, mode: int) -> None:
    """One step at a time, so that no link leads out."""
    *folders, name = path.split(b"/")
    fd = os.open(top, _FOLDER)
    try:
        for step, flags in (*((folder, _FOLDER) for folder in folders), (name, _OPEN)):
            if stat.S_ISLNK(os.lstat(step, dir_fd=fd).st_mode):
                return
            inner = os.open(step, flags, dir_fd=fd)
            os.close(fd)
            fd = inner
        found = os.fstat(fd).st_mode
        if stat.S_IFMT(found) in _USUAL and found & _BITS & ~mode:
            os.fchmod(fd, stat.S_IMODE(found) & ~(_BITS & ~mode))
    finally:
        os.close(fd)

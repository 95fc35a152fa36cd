"""Who besides their owner may read files and folders, which git does not keep: found, written down and given back.

Only the permissions of the group and of all others: whether a file runs is git's to keep, and its owner's own permissions
are left alone. Looked at are changed, untracked and ignored files and the folders around them. Of a file that is as HEAD has
it nobody asks, but for a restore in place: to look at every file would cost as much as the whole snapshot.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

Modes = dict[bytes, int]

OTHERS = 0o077
_USUAL = {stat.S_IFREG: 0o044, stat.S_IFDIR: 0o055}  # what everybody may do
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def modes_of(top: str, paths: Iterable[bytes]) -> Modes:
    """What the others may do with files and the folders around them."""
    return {path: mode & OTHERS for path, mode in _found(top, paths)}


def narrow_modes(top: str, paths: Iterable[bytes]) -> Modes:
    """The same, of those that not everybody may read."""
    usual = ((path, mode, _USUAL[stat.S_IFMT(mode)]) for path, mode in _found(top, paths))
    return {path: mode & OTHERS for path, mode, least in usual if mode & least != least}


def _found(top: str, paths: Iterable[bytes]) -> Iterator[tuple[bytes, int]]:
    start = os.fsencode(top)
    for path in _with_folders(paths):
        with suppress(OSError):  # it is gone, or cannot be looked at, and is named for that elsewhere
            mode = os.lstat(os.path.join(start, path)).st_mode
            if stat.S_IFMT(mode) in _USUAL:
                yield path, mode


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
    return {path: int(mode, 8) & OTHERS for mode, path in rows}


def narrow(top: str, modes: Mapping[bytes, int]) -> None:
    """Take away from the others what these permissions do not allow them. Gives nothing."""
    for path, mode in modes.items():
        _change(top, path, ~(OTHERS & ~mode), 0)


def give_back(top: str, modes: Mapping[bytes, int]) -> None:
    """Let the others do just what these permissions say."""
    for path, mode in modes.items():
        _change(top, path, ~OTHERS, mode)


def _change(top: str, path: bytes, keep: int, more: int) -> None:
    """One step at a time, so that no link leads out. What is as it shall be is not even opened; what is not there is left."""
    *folders, name = path.split(b"/")
    with suppress(FileNotFoundError, NotADirectoryError):
        fd = os.open(top, _FOLDER)
        try:
            for folder in folders:
                if stat.S_ISLNK(os.lstat(folder, dir_fd=fd).st_mode):
                    return
                inner = os.open(folder, _FOLDER, dir_fd=fd)
                os.close(fd)
                fd = inner
            found = os.lstat(name, dir_fd=fd).st_mode
            if stat.S_IFMT(found) in _USUAL and stat.S_IMODE(found) != stat.S_IMODE(found) & keep | more:
                _chmod(name, fd, keep, more)
        finally:
            os.close(fd)


def _chmod(name: bytes, folder: int, keep: int, more: int) -> None:
    fd = os.open(name, _OPEN, dir_fd=folder)
    try:
        found = os.fstat(fd).st_mode
        if stat.S_IFMT(found) in _USUAL:
            os.fchmod(fd, stat.S_IMODE(found) & keep | more)
    finally:
        os.close(fd)

"""Proof of life for lease holders: one locked byte per acquisition in a file beside the store. Never a pid alone.

A killed process loses its locks with its last breath, so a free byte means that the holder is gone. The lock belongs to
the open file, not to the process (where the system has such locks), so other openings of the file do not disturb it.
"""

from __future__ import annotations

import fcntl
import os
import struct

_FLOCK = "hhqqi4x"
_SET = getattr(fcntl, "F_OFD_SETLK", fcntl.F_SETLK)
_GET = getattr(fcntl, "F_OFD_GETLK", fcntl.F_GETLK)


class LifeLocks:
    """Locks held by this store object, and a look at those of others."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1
        self._ours: set[tuple[int, int]] = set()

    def hold(self, run_no: int, epoch: int) -> None:
        if self._fd < 0:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        fcntl.fcntl(self._fd, _SET, _range(fcntl.F_WRLCK, run_no, epoch))
        self._ours.add((run_no, epoch))

    def drop(self, run_no: int, epoch: int) -> None:
        self._ours.discard((run_no, epoch))
        if self._fd >= 0:
            fcntl.fcntl(self._fd, _SET, _range(fcntl.F_UNLCK, run_no, epoch))

    def held(self, run_no: int, epoch: int) -> bool:
        """Is somebody, in any process, holding this acquisition? If not us, looks through a fresh opening. Writes nothing."""
        if (run_no, epoch) in self._ours:
            return True
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return False
        try:
            answer = fcntl.fcntl(fd, _GET, _range(fcntl.F_WRLCK, run_no, epoch))
        finally:
            os.close(fd)
        return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._ours.clear()


def _range(kind: int, run_no: int, epoch: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, run_no << 20 | epoch & 0xFFFFF, 1, 0)

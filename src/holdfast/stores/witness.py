"""The head witness: a small file beside the database that remembers recent heads. A log without them has lost its tail.

Two 512-byte slots for each of 32 groups of runs, written in turn after every commit, so a torn write spoils one of them.
A slot that cannot be read is passed over: it protects less, it never accuses. The file says nothing that the log does not.
"""

from __future__ import annotations

import os
import struct
import zlib
from typing import NamedTuple

SLOT = 512
GROUPS = 32
SIZE = SLOT * GROUPS * 2
_LAYOUT = struct.Struct(">8s32sQQ32s")
_MAGIC = b"HFWITN01"
_CRC = struct.Struct(">I")


class Sighting(NamedTuple):
    """A head that was committed: it must be in the log."""

    store_id: str
    run_no: int
    seq: int
    hash: bytes


class Witness:
    """Writes sightings without waiting for the disk; `sync` waits."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.dirty = False
        self._fd = -1

    def open(self) -> bool:
        """True if the file was there."""
        existed = os.path.lexists(self.path)
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        if os.fstat(self._fd).st_size < SIZE:
            os.ftruncate(self._fd, SIZE)
            os.fsync(self._fd)
        return existed

    def write(self, store_id: str, run_no: int, seq: int, head: bytes) -> None:
        packed = _LAYOUT.pack(_MAGIC, store_id.encode(), run_no, seq, head)
        slot = packed + _CRC.pack(zlib.crc32(packed))
        if os.pwrite(self._fd, slot, SLOT * (run_no % GROUPS * 2 + (seq & 1))) != len(slot):
            raise OSError(28, "short write to the witness")
        self.dirty = True

    def sync(self) -> None:
        if self.dirty:
            self.dirty = False
            os.fdatasync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def sightings(path: str) -> list[Sighting] | None:
    """What the witness has seen; None if there is no witness. Writes nothing."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        data = os.read(fd, SIZE)
    finally:
        os.close(fd)
    found = (_parse(data[offset : offset + SLOT]) for offset in range(0, len(data), SLOT))
    return [sighting for sighting in found if sighting is not None]


def _parse(slot: bytes) -> Sighting | None:
    end = _LAYOUT.size + _CRC.size
    if not slot.startswith(_MAGIC) or len(slot) < end:
        return None
    packed = slot[: _LAYOUT.size]
    if _CRC.unpack(slot[_LAYOUT.size : end])[0] != zlib.crc32(packed):
        return None
    _, store_id, run_no, seq, head = _LAYOUT.unpack(packed)
    return Sighting(store_id.decode("ascii", "replace"), run_no, seq, head)

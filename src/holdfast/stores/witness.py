"""The head witness: a small file beside the database that remembers recent heads. A log without them has lost its tail.

A 512-byte slot in each of two banks for each of 32 groups of runs, written in turn after every commit, so a torn write spoils
one of them. A slot that cannot be read is passed over: it protects less, it never accuses. A sighting counts wherever it stands
in the file. The file says nothing that the log does not.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from collections.abc import Iterable

from holdfast.core.named import NamedTuple

SLOT = 512
GROUPS = 32
SIZE = SLOT * GROUPS * 2
_LAYOUT = struct.Struct(">8s32sQ32s")
_MAGIC = b"HFWITN01"
_SLOT_USED = _LAYOUT.size + 4


class Sighting(NamedTuple):
    """A head that was committed: it must be in the log."""

    store_id: str
    place: int
    hash: bytes


class Witness:
    """Writes sightings without waiting for the disk; `sync` waits."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.dirty = False
        self._prefix = b""
        self._fd = -1
        self._next = [0] * GROUPS

    def serve(self, store_id: str) -> None:
        """Say whose heads these are."""
        self._prefix = _MAGIC + store_id.encode()

    def open(self) -> bool:
        """True if the file was there. Its blocks are on disk from the start, so writing to it needs no space."""
        existed = os.path.lexists(self.path)
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        missing = SIZE - os.fstat(self._fd).st_size
        if missing > 0:
            self._put(bytes(missing), SIZE - missing)
            os.fsync(self._fd)
        return existed

    def write(self, heads: Iterable[tuple[int, bytes]]) -> None:
        """Heads by their places. Runs that are written together are neighbours: their slots go out in one piece."""
        piece, start, end = b"", 0, -1
        for place, head in heads:
            packed = self._prefix + place.to_bytes(8, "big") + head
            group = (place >> 32) % GROUPS
            bank = self._next[group] = self._next[group] ^ 1
            slot = packed + zlib.crc32(packed).to_bytes(4, "big")
            offset = SLOT * (bank * GROUPS + group)
            if offset == end:
                piece = piece.ljust(offset - start, b"\0") + slot
            else:
                if piece:
                    self._put(piece, start)
                piece, start = slot, offset
            end = offset + SLOT
        if piece:
            self._put(piece, start)
            self.dirty = True

    def _put(self, data: bytes, offset: int) -> None:
        if os.pwrite(self._fd, data, offset) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)

    def clear(self) -> None:
        self._put(bytes(SIZE), 0)
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
    if not slot.startswith(_MAGIC) or len(slot) < _SLOT_USED:
        return None
    packed = slot[: _LAYOUT.size]
    if int.from_bytes(slot[_LAYOUT.size : _SLOT_USED], "big") != zlib.crc32(packed):
        return None
    _, store_id, place, head = _LAYOUT.unpack(packed)
    return Sighting(store_id.decode("ascii", "replace"), place, head)

"""A file to which effects append one line each, and a look that says whether a line is there. Never rewrites a whole line.

The newline is the mark of completion. A writer that was killed in mid-line leaves a torn end; it counts as never written,
and the next `append` cuts it off. One writer at a time: whoever holds the lease of the run.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from typing import Literal

from holdfast.core.named import NamedTuple

Found = Literal["done", "not_done", "unknown"]


class Sight(NamedTuple):
    """What a look at the ledger found, in words; and what `append` returned, or would have, if the line is there."""

    found: Found
    evidence: str
    receipt: dict[str, int] | None = None


class Ledger:
    """Lines of the form `key checksum`. `moment` is told how far an append has come, for those who time their kills."""

    def __init__(self, path: str | os.PathLike[str], moment: Callable[[str], None] = lambda name: None) -> None:
        self.path = os.path.abspath(path)
        self._moment = moment
        self.mended = 0

    def append(self, key: str) -> dict[str, int]:
        """Write the line of a key, durably, and return where it stands. Two calls write two lines."""
        line = line_of(key)
        new = not os.path.exists(self.path)
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            start, number = self._cut_torn_end(fd)
            middle = len(line) // 2
            write_all(fd, line[:middle], start)
            self._moment("half written")
            write_all(fd, line[middle:], start + middle)
            self._moment("written")
            os.fsync(fd)
        finally:
            os.close(fd)
        if new:
            sync_folder(os.path.dirname(self.path))
        self._moment("synced")
        return receipt_of(number, line)

    def look(self, key: str) -> Sight:
        """Is the line there? What is found is made durable before it is called done."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return Sight("not_done", "the ledger does not exist")
        try:
            sight = sight_of(key, read_all(fd))
            if sight.found == "done":
                os.fsync(fd)
                sync_folder(os.path.dirname(self.path))
        finally:
            os.close(fd)
        return sight

    def _cut_torn_end(self, fd: int) -> tuple[int, int]:
        """Where the next line begins, and its number."""
        data = read_all(fd)
        end = data.rfind(b"\n") + 1
        if end < len(data):
            os.ftruncate(fd, end)
            os.fsync(fd)
            self.mended += 1
            self._moment("mended")
        return end, data.count(b"\n") + 1


def line_of(key: str) -> bytes:
    if not key.isprintable() or not key.isascii() or " " in key or not key:
        raise ValueError(f"{key!r:.80} cannot be the key of a line")
    return f"{key} {zlib.crc32(key.encode()):08x}\n".encode()


def receipt_of(number: int, line: bytes) -> dict[str, int]:
    return {"line": number, "bytes": len(line)}


def lines_in(data: bytes) -> list[bytes]:
    """The whole lines; a torn end is not one."""
    return data[: data.rfind(b"\n") + 1].splitlines(keepends=True)


def sight_of(key: str, data: bytes) -> Sight:
    wanted, lines = line_of(key), lines_in(data)
    if wanted in lines:
        number = lines.index(wanted) + 1
        return Sight("done", f"line {number} of the ledger", receipt_of(number, wanted))
    for number, line in enumerate(lines, 1):
        if not intact(line):
            return Sight("unknown", f"line {number} of the ledger is damaged and could be the one")
    return Sight("not_done", f"none of the {len(lines)} lines of the ledger")


def intact(line: bytes) -> bool:
    key, _, checksum = line.rstrip(b"\n").partition(b" ")
    return checksum == f"{zlib.crc32(key):08x}".encode()


def read_all(fd: int) -> bytes:
    pieces, place = [], 0
    while piece := os.pread(fd, 1 << 20, place):
        pieces.append(piece)
        place += len(piece)
    return b"".join(pieces)


def write_all(fd: int, data: bytes, place: int) -> None:
    while data:
        written = os.pwrite(fd, data, place)
        data, place = data[written:], place + written


def sync_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

"""Git objects made from values: blobs, flat trees and commits, and one pack that brings them in. Runs nothing itself."""

from __future__ import annotations

import hashlib
import re
import struct
import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from holdfast.core.errors import HoldfastError, UsageError
from holdfast.core.named import NamedTuple

IDENTITY = b"Holdfast <holdfast@localhost>"
_TYPES = {"commit": 1, "tree": 2, "blob": 3}
_MODES = {"tree": b"40000", "blob": b"100644"}
_TRAILER = re.compile(rb"(Holdfast-[A-Za-z-]+): ([^\n]*)")
_QUICK = 1  # git compresses again when it unpacks


class NotASnapshot(HoldfastError):
    """A commit under one of our refs that we did not make."""

    reason = "bad_input"
    advice = "Somebody else moved this ref. `holdfast log` names the commit that belongs to the checkpoint."


class Made(NamedTuple):
    """An object that is to be written."""

    kind: str
    data: bytes
    name: str  # its id


class Maker:
    """Makes objects for a repository of one object format, and remembers them until they are packed."""

    def __init__(self, object_format: str) -> None:
        self.format = object_format
        self.made: list[Made] = []

    def name_of(self, kind: str, data: bytes) -> str:
        return hashlib.new(
            self.format, b"%s %d\0" % (kind.encode(), len(data)) + data, usedforsecurity=False
        ).hexdigest()

    def _make(self, kind: str, data: bytes) -> str:
        made = Made(kind, data, self.name_of(kind, data))
        if made not in self.made:
            self.made.append(made)
        return made.name

    def blob(self, data: bytes) -> str:
        return self._make("blob", data)

    def tree(self, entries: Mapping[str, tuple[str, str]]) -> str:
        """A tree of plain names; each is a blob or a tree, by its id."""
        rows = sorted((name + "/" * (kind == "tree"), name, kind, target) for name, (kind, target) in entries.items())
        data = b"".join(
            b"%s %s\0" % (_MODES[kind], name.encode()) + bytes.fromhex(target) for _, name, kind, target in rows
        )
        return self._make("tree", data)

    def commit(self, tree: str, parents: Sequence[str], seconds: int, message: bytes) -> str:
        lines = [f"tree {tree}".encode(), *(f"parent {parent}".encode() for parent in parents)]
        who = b"%s %d +0000" % (IDENTITY, seconds)
        lines += [b"author " + who, b"committer " + who, b"", message]
        return self._make("commit", b"\n".join(lines))

    def pack(self) -> bytes:
        body = b"PACK" + struct.pack(">II", 2, len(self.made))
        body += b"".join(_header(made) + zlib.compress(made.data, _QUICK) for made in self.made)
        return body + hashlib.new(self.format, body, usedforsecurity=False).digest()


def _header(made: Made) -> bytes:
    size = len(made.data)
    first, size = (_TYPES[made.kind] << 4) | (size & 15), size >> 4
    out = bytearray()
    while size:
        out.append(first | 0x80)
        first, size = size & 0x7F, size >> 7
    out.append(first)
    return bytes(out)


def seconds_of(now: str) -> int:
    """The second of a time as text; one without a zone is taken as UTC."""
    try:
        time = datetime.fromisoformat(now)
    except ValueError as error:
        raise UsageError(f"{now!r:.60} is not a time.", advice="Say it like 2026-01-02T03:04:05Z.") from error
    return max(0, int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()))


# --- reading a commit


class Commit(NamedTuple):
    tree: str
    parents: tuple[str, ...]
    author: bytes
    message: bytes

    @property
    def trailers(self) -> dict[str, bytes]:
        last = self.message.rstrip(b"\n").rpartition(b"\n\n")[2]
        return {match[1].decode(): match[2] for match in map(_TRAILER.fullmatch, last.split(b"\n")) if match}


def parse_commit(data: bytes) -> Commit:
    head, _, message = data.partition(b"\n\n")
    rows = [line.partition(b" ")[::2] for line in head.split(b"\n")]
    found = dict(rows)
    parents = tuple(value.decode() for name, value in rows if name == b"parent")
    return Commit(found[b"tree"].decode(), parents, found.get(b"author", b""), message)

"""Which files git found touched though unchanged: their entries differ in two states of one private index. Reads bytes only."""

from __future__ import annotations

from collections.abc import Iterator

_HEADER = 12
_STAT = 40  # bytes of an entry before the id: times, device, inode, mode, owner, size
_LONG_ID = {"sha256": 32}
_EXTENDED = 0x40  # in the first byte of the flags: two more bytes of flags follow
_PLAIN_VERSIONS = (2, 3)  # in later ones, names stand in pieces


def touched(old: bytes, new: bytes, object_format: str) -> list[bytes] | None:
    """The paths whose entries differ; None where that cannot be told, because more than that differs."""
    if old == new:
        return []
    count, version = (int.from_bytes(new[start : start + 4], "big") for start in (8, 4))
    if len(old) != len(new) or old[:_HEADER] != new[:_HEADER] or version not in _PLAIN_VERSIONS:
        return None
    found = []
    for start, name, end in _entries(new, count, _STAT + _LONG_ID.get(object_format, 20)):
        if old[name:end] != new[name:end]:
            return None
        if old[start:name] != new[start:name]:
            found.append(new[name:end])
    return found


def _entries(data: bytes, count: int, flags: int) -> Iterator[tuple[int, int, int]]:
    """Where each entry begins, and where its name begins and ends. An entry is padded to eight bytes, by one at least."""
    start = _HEADER
    for _ in range(count):
        name = start + flags + (4 if data[start + flags] & _EXTENDED else 2)
        end = data.index(b"\0", name)
        yield start, name, end
        start += (end - start + 8) & ~7

"""One look at a work tree by `git status`, as values. Reads only; refuses to call a tree clean when git failed.

Every path is bytes here, as git says it. Our own folder `.holdfast/` at the top is never among them, nor is a store that
lies elsewhere in the work tree.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Protocol

from holdfast.adapters.paths import real_path
from holdfast.adapters.probes.git_runner import Git
from holdfast.core.named import NamedTuple

OWN = b".holdfast"
ABSENT, GITLINK = b"000000", b"160000"
STATUS = (
    *("status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all", "--no-renames"),
    *("--ignore-submodules=dirty", "--no-ahead-behind"),
)
IGNORED = "--ignored=traditional"
_FIELDS = {b"1": 8, b"u": 10}  # how many spaces stand before the path
_UNOPENED = b"could not open directory"
_TRUNCATED = 16 * 1024


class Entry(NamedTuple):
    """A tracked path that differs. `now` and `staged` are modes; `blobs` are the object ids that the index has of it."""

    path: bytes
    in_index: str  # how the index differs from HEAD: one letter, `.` for not at all, `U` for a conflict
    on_disk: str  # how the work tree differs from the index
    now: bytes
    staged: bytes
    blobs: tuple[tuple[int, bytes, bytes], ...]  # stage, mode, id


class Scan(NamedTuple):
    head: str | None
    branch: str | None  # as git shortens it; None when detached
    entries: tuple[Entry, ...]
    untracked: tuple[bytes, ...]  # a nested repository ends in a slash
    ignored: tuple[bytes, ...]  # only if they were asked for
    is_closed: bool  # whether there may be folders that could not be looked into
    is_as_head: bool  # whether the index says just what HEAD says

    @property
    def conflicts(self) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.entries if entry.in_index == "U")

    @property
    def staged(self) -> tuple[Entry, ...]:
        """What the index has and HEAD has not."""
        return tuple(entry for entry in self.entries if entry.in_index != ".")


class Said(Protocol):
    @property
    def out(self) -> bytes: ...
    @property
    def err(self) -> bytes: ...


class Own:
    """Which paths of a work tree are ours. A store is its file, and everything beside it whose name goes on with a dash."""

    def __init__(self, git: Git) -> None:
        assert git.place is not None
        top = os.path.join(real_path(git.place.top), "")
        where = (os.path.join(real_path(os.path.dirname(path)), os.path.basename(path)) for path in git.own)
        stores = [os.fsencode(path.removeprefix(top)) for path in where if path.startswith(top)]
        self._names = (OWN, *stores)
        self._beginnings = (OWN + b"/", *(store + b"-" for store in stores))

    def __contains__(self, path: bytes) -> bool:
        return path in self._names or path.startswith(self._beginnings)


def parse_status(said: Said, own: Own) -> Scan:
    """The output of STATUS."""
    headers: dict[bytes, bytes] = {}
    entries: list[Entry] = []
    others: dict[bytes, list[bytes]] = {b"?": [], b"!": []}
    for record in said.out.split(b"\0")[:-1]:
        kind, _, rest = record.partition(b" ")
        if kind == b"#":
            name, _, value = rest.partition(b" ")
            headers[name] = value
        elif kind in others:
            others[kind].append(rest)
        else:
            entries.append(_entry(kind, record))
    head, branch = headers[b"branch.oid"], headers[b"branch.head"]
    return Scan(
        None if head == b"(initial)" else head.decode(),
        None if branch == b"(detached)" else os.fsdecode(branch),
        tuple(entry for entry in entries if entry.path not in own),
        tuple(path for path in others[b"?"] if path not in own),
        tuple(path for path in others[b"!"] if path not in own),
        _UNOPENED in said.err or len(said.err) >= _TRUNCATED,
        all(entry.in_index == "." for entry in entries),
    )


def _entry(kind: bytes, record: bytes) -> Entry:
    fields = record.split(b" ", _FIELDS[kind])
    path = fields[-1]
    if kind == b"u":
        modes, ids = fields[3:6], fields[7:10]
        stages = ((stage, mode, blob) for stage, (mode, blob) in enumerate(zip(modes, ids, strict=True), 1))
        blobs = tuple(row for row in stages if row[1] != ABSENT)
        return Entry(path, "U", "U", fields[6], ABSENT, blobs)
    letters = fields[1].decode()
    blobs = ((0, fields[4], fields[7]),) if fields[4] != ABSENT else ()
    return Entry(path, letters[0], letters[1], fields[5], fields[4], blobs)


class Change(NamedTuple):
    """A path that differs, and how. `was` is its old name, if it was renamed."""

    path: str
    kind: str
    was: str | None = None


KINDS = {"A": "added", "M": "modified", "T": "type changed", "D": "deleted", "U": "conflict"}


def changes_of(scan: Scan) -> list[Change]:
    """What a person would call changed: the work tree against the index, or else the index against HEAD."""
    listed = [Change(os.fsdecode(entry.path), _kind(entry)) for entry in scan.entries]
    new = [Change(os.fsdecode(path), "repository" if path.endswith(b"/") else "untracked") for path in scan.untracked]
    return sorted(listed + new)


def _kind(entry: Entry) -> str:
    if entry.in_index == "A" and entry.on_disk != "D":
        return "added"
    return KINDS[entry.on_disk if entry.on_disk != "." else entry.in_index]


# --- what the index alone says


class Flags(NamedTuple):
    """Entries of an index that need care: promises not to look at them, and gitlinks."""

    assumed: tuple[bytes, ...]  # assumed unchanged
    skipped: tuple[bytes, ...]  # not in the work tree by a sparse checkout, or not to be looked at
    gitlinks: tuple[bytes, ...]


LIST = ("ls-files", "--stage", "-v", "-z")


def parse_flags(listing: bytes) -> Flags:
    """The output of LIST: a letter, the mode, the id and the stage, then the path."""
    rows = [row for row in listing.split(b"\0") if row and (row[:1] != b"H" or row[2:8] == GITLINK)]
    split = [(row[:1], row[2:8], row.partition(b"\t")[2]) for row in rows]
    return Flags(
        tuple(path for tag, _, path in split if tag.islower()),
        tuple(path for tag, _, path in split if tag.upper() == b"S"),
        tuple(dict.fromkeys(path for _, mode, path in split if mode == GITLINK)),
    )


def joined(paths: Iterable[bytes]) -> bytes:
    return b"".join(path + b"\0" for path in paths)


def shown(path: bytes, why: str) -> str:
    return f"{os.fsdecode(path)}: {why}"


KEPT_AS_IT_IS = "; it is kept just as it is on disk"
NOT_KEPT = ", so its bytes are not kept"
_ROW = re.compile(
    r"(.+): (?:it is [0-9,]+ bytes, .*|it cannot be .*|it could not be opened .*|its filter .*" + NOT_KEPT + "|"
    r"it is a (?:pipe|socket|device|repository of its own)|it is not a file)",
    re.DOTALL,
)


class LeftOut:
    """The paths that a snapshot says it did not keep, with all below them. Nobody knows what was there."""

    def __init__(self, rows: Iterable[str]) -> None:
        found = ((row, _ROW.fullmatch(row)) for row in rows)
        self._rows = {os.fsencode(match[1]).rstrip(b"/"): row for row, match in found if match}

    def row_of(self, path: bytes) -> str | None:
        """What was said of a path, or of a folder around it."""
        while path:
            if path in self._rows:
                return self._rows[path]
            path = os.path.dirname(path)
        return None

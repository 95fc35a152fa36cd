"""The recorded trace, and a disk that knows after each call which bytes and names would survive a power loss.

Two models. `ext4`: un-synced data of a file may be lost in any part, names change in the order of the calls and are
kept by the next commit of the file system. `strict`: POSIX to the letter, a name is kept only by an fsync of its folder.
The -shm file is never part of a disk. Writes through mmap are not modelled.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from pathlib import Path

from holdfast.core.named import NamedTuple
from holdfast.testing.crashlab.shim import LabError

OPEN, WRITE, SYNC, DATASYNC, SIZE, GROW, RENAME, LINK, UNLINK, MKDIR, RMDIR, MARK = range(1, 13)
NAMES = dict(
    zip(
        range(1, 13),
        ("open", "write", "fsync", "fdatasync", "size", "grow", "rename", "link", "unlink", "mkdir", "rmdir", "ack"),
        strict=True,
    )
)
MODELS = ("ext4", "strict")
HEAD = struct.Struct("<IiQqIII")
SECTOR = 512
PAGE = 4096

Base = dict[str, tuple[int, bytes | None]]  # path -> inode, content (None is a folder)


class Op(NamedTuple):
    """One recorded call; paths are relative to the folder, `other` is empty when outside of it."""

    kind: int
    error: int
    ino: int
    number: int
    path: str
    other: str
    data: bytes

    @property
    def is_mark(self) -> bool:
        return self.kind == MARK

    def __str__(self) -> str:
        return f"{NAMES[self.kind]} {self.data.decode() if self.is_mark else self.path or '.'}"


def read_trace(trace: Path, folder: Path) -> list[Op]:
    """The calls and acknowledgements of a recorded run, in order."""
    raw, at, ops = trace.read_bytes(), 0, []
    root = str(folder.resolve())
    while at < len(raw):
        kind, error, ino, number, *lengths = HEAD.unpack_from(raw, at)
        at += HEAD.size
        parts = []
        for length in lengths:
            parts.append(raw[at : at + length])
            at += length
        ops.append(Op(kind, error, ino, number, _relative(parts[0], root), _relative(parts[1], root), parts[2]))
    return ops


def _relative(path: bytes, root: str) -> str:
    text = path.decode(errors="surrogateescape")
    return text[len(root) + 1 :] if text.startswith(root + "/") else ""


class Change:
    """One un-synced change of a file's bytes: a write (data) or a new size."""

    __slots__ = ("at", "data", "doomed", "grow", "must")

    def __init__(self, at: int, data: bytes | None, grow: bool = False) -> None:
        self.at, self.data, self.grow = at, data, grow
        self.must = self.doomed = False

    def apply(self, content: bytearray, sectors: frozenset[int] | None = None) -> None:
        """Change the content; `sectors` limits a torn write to some of its 512-byte sectors."""
        if self.data is None:
            del content[self.at if not self.grow else len(content) :]
            content.extend(bytes(max(0, self.at - len(content))))
            return
        for low, high in self.pieces(SECTOR) if sectors is not None else [(self.at, self.at + len(self.data))]:
            if sectors is None or low // SECTOR in sectors:
                content.extend(bytes(max(0, high - len(content))))
                content[low:high] = self.data[low - self.at : high - self.at]

    def pieces(self, unit: int) -> Iterator[tuple[int, int]]:
        """The byte ranges of a write, cut at multiples of a unit."""
        low, end = self.at, self.at + len(self.data or b"")
        while low < end:
            high = min(end, (low // unit + 1) * unit)
            yield low, high
            low = high

    def units(self, unit: int) -> list[int]:
        return [low // unit for low, _ in self.pieces(unit)]


class Node:
    """A file: the bytes that survive for certain, and the changes that may or may not."""

    __slots__ = ("digest", "durable", "folder", "pending")

    def __init__(self, content: bytes = b"", folder: bool = False) -> None:
        self.durable = bytearray(content)
        self.folder = folder
        self.pending: list[Change] = []
        self.digest: bytes | None = None

    def flush(self) -> None:
        """A successful sync. What an earlier failed sync dropped is kept only in pages that were written again."""
        fresh = {unit for change in self.pending if not change.doomed for unit in change.units(PAGE)}
        for change in self.pending:
            if not change.doomed or change.data is None:
                change.apply(self.durable)
            elif rewritten := [sector for sector in change.units(SECTOR) if sector * SECTOR // PAGE in fresh]:
                change.apply(self.durable, frozenset(rewritten))
        self.pending, self.digest = [], None

    def grows(self) -> bool:
        return any(change.data is None or change.at + len(change.data) > len(self.durable) for change in self.pending)

    def fingerprint(self) -> bytes:
        self.digest = self.digest or hashlib.blake2b(self.durable, digest_size=16).digest()
        return self.digest


class Renaming(NamedTuple):
    """One un-synced change of names: each path gets a node, or none."""

    moves: tuple[tuple[str, Node | None], ...]

    def apply(self, names: dict[str, Node]) -> None:
        for path, node in self.moves:
            if node is None:
                names.pop(path, None)
            else:
                names[path] = node


def folder_of(path: str) -> str:
    return path.rpartition("/")[0]


class Disk:
    """What is certain and what is not, after a prefix of the trace."""

    def __init__(self, model: str, base: Base) -> None:
        if model not in MODELS:
            raise LabError(f"there is no power-loss model {model!r}; choose one of {', '.join(MODELS)}")
        self.strict = model == "strict"
        self.durable = {path: Node(content or b"", content is None) for path, (_, content) in base.items()}
        self.live = dict(self.durable)
        self.inodes = {ino: self.durable[path] for path, (ino, _) in base.items()}
        self.renamings: list[Renaming] = []
        self.acked: list[str] = []

    def apply(self, op: Op) -> None:
        """Do one recorded call. A failed sync dooms what it should have kept; other failed calls changed nothing."""
        if op.error and op.kind in (SYNC, DATASYNC):
            for change in self._node(op).pending:
                change.doomed = True
        elif not op.error:
            HANDLERS[op.kind](self, op)

    def _node(self, op: Op) -> Node:
        return self.inodes.get(op.ino) or self.live.get(op.path) or Node()

    def _rename(self, *moves: tuple[str, Node | None]) -> None:
        Renaming(moves).apply(self.live)
        same = len({folder_of(path) for path, _ in moves}) == 1
        if self.strict and not same:
            self.renamings += [Renaming((move,)) for move in moves]
        else:
            self.renamings.append(Renaming(moves))

    def _mark(self, op: Op) -> None:
        self.acked.append(op.data.decode())

    def _open(self, op: Op) -> None:
        node = self.live.get(op.path)
        if node is None:
            node = self.inodes[op.ino] = Node()
            self._rename((op.path, node))
        elif op.number:
            node.pending.append(Change(0, None))
        self.inodes[op.ino] = node

    def _write(self, op: Op) -> None:
        self._node(op).pending.append(Change(op.number, op.data))

    def _size(self, op: Op) -> None:
        self._node(op).pending.append(Change(op.number, None, grow=op.kind == GROW))

    def _move(self, op: Op) -> None:
        under = [path for path in self.live if path.startswith(op.path + "/")]
        pairs = [(path, op.other + path[len(op.path) :]) for path in [op.path, *under]]
        gone: list[tuple[str, Node | None]] = [(old, None) for old, _ in pairs]
        come: list[tuple[str, Node | None]] = [(new, self.live.get(old)) for old, new in pairs if op.other]
        self._rename(*gone, *come)

    def _link(self, op: Op) -> None:
        self._rename((op.other, self.live.get(op.path)))

    def _unlink(self, op: Op) -> None:
        self._rename((op.path, None))

    def _mkdir(self, op: Op) -> None:
        self._rename((op.path, Node(folder=True)))

    def _sync(self, op: Op) -> None:
        node = self.live.get(op.path)
        if not op.path or (node and node.folder):
            self._sync_folder(op.path)
        else:
            self._sync_file(self._node(op), op.kind == DATASYNC)

    def _sync_folder(self, path: str) -> None:
        if not self.strict:
            return self._commit()
        kept = [item for item in self.renamings if any(folder_of(name) == path for name, _ in item.moves)]
        self.renamings = [item for item in self.renamings if item not in kept]
        for item in kept:
            item.apply(self.durable)
        return None

    def _sync_file(self, node: Node, data_only: bool) -> None:
        renamed = any(moved is node for item in self.renamings for _, moved in item.moves)
        if not self.strict and (renamed or node.grows() or (node.pending and not data_only)):
            self._commit()
        node.flush()

    def _commit(self) -> None:
        """ext4 commits its running transaction: all names and sizes changed so far."""
        for item in self.renamings:
            item.apply(self.durable)
        self.renamings = []
        for node in self.live.values():
            for change in node.pending:
                change.must = change.must or change.data is None

    def files(self) -> list[Node]:
        """Every file with uncertain changes that some legal set of names can show, in a stable order."""
        shown = [*self.durable.values(), *(node for item in self.renamings for _, node in item.moves if node)]
        return [node for node in dict.fromkeys(shown) if node.pending]


HANDLERS = {
    OPEN: Disk._open,
    WRITE: Disk._write,
    SYNC: Disk._sync,
    DATASYNC: Disk._sync,
    SIZE: Disk._size,
    GROW: Disk._size,
    RENAME: Disk._move,
    LINK: Disk._link,
    UNLINK: Disk._unlink,
    MKDIR: Disk._mkdir,
    RMDIR: Disk._unlink,
    MARK: Disk._mark,
}


def snapshot(folder: Path) -> Base:
    """The prepared folder, on which everything is certain."""
    found: Base = {}
    for path in sorted(folder.rglob("*")):
        if not path.name.endswith("-shm"):
            found[str(path.relative_to(folder))] = (path.lstat().st_ino, None if path.is_dir() else path.read_bytes())
    return found

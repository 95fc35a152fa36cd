"""What a sparse checkout leaves out of the work tree, at a checkpoint and now. A snapshot's tree has it all the same."""

from __future__ import annotations

import os
from collections.abc import Sequence

from holdfast.adapters.git.workspace import Parts
from holdfast.adapters.git.ws_desk import Desk, IndexFile, Stamp
from holdfast.adapters.git.ws_scan import LIST, joined, parse_flags


def index_of(desk: Desk, parts: Parts) -> IndexFile:
    """The user's index as it was."""
    if "index" not in parts.beside:
        return IndexFile()
    data = desk.run("cat-file", "blob", parts.beside["index"])
    return IndexFile(data, Stamp(0, len(data), parts.index_mtime_ns))


def absent_then(desk: Desk, parts: Parts, users: IndexFile) -> list[bytes]:
    """What a sparse checkout had left out of the work tree."""
    if not users.stamp:
        return []
    flags = parse_flags(desk.run(*LIST, index=desk.lay("users", users)))
    present = desk.run("cat-file", "blob", parts.beside["present"]) if "present" in parts.beside else b""
    return sorted({*flags.skipped} - {*present.split(b"\0")})


def absent_now(desk: Desk) -> list[bytes]:
    """What the user's index says need not be here, and is not."""
    top = os.fsencode(desk.place.top)
    return [path for path in parse_flags(desk.run(*LIST)).skipped if not os.path.lexists(os.path.join(top, path))]


def without(desk: Desk, tree: str, paths: Sequence[bytes], name: str) -> str:
    """A tree that lacks some paths, made in an index of that name."""
    if not paths:
        return tree
    desk.run("read-tree", tree, index=desk.path(name))
    leave_out(desk, paths, name)
    return desk.line("write-tree", "--missing-ok", index=desk.path(name))


def leave_out(desk: Desk, paths: Sequence[bytes], name: str) -> None:
    """Take some paths out of an index."""
    if paths:
        desk.run("update-index", "--force-remove", "-z", "--stdin", stdin=joined(paths), index=desk.path(name))

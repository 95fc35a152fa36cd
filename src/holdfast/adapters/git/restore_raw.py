"""Files that git converts, brought back byte for byte: a snapshot keeps them as they were on disk, beside its tree."""

from __future__ import annotations

import functools
import os

from holdfast.adapters.git.restore_plan import Plan
from holdfast.adapters.git.workspace import Parts, object_format
from holdfast.adapters.git.ws_desk import Desk
from holdfast.adapters.git.ws_objects import Maker
from holdfast.adapters.git.ws_put import put_bytes


def raw_of(desk: Desk, parts: Parts) -> dict[bytes, str]:
    if "raw" not in parts.beside:
        return {}
    rows = (row.split(b"\t", 1) for row in desk.run("ls-tree", "-r", "-z", parts.beside["raw"]).split(b"\0") if row)
    return {path: facts.split(b" ")[2].decode() for facts, path in rows}


def put_raw(desk: Desk, raw: dict[bytes, str]) -> None:
    maker = Maker(object_format(desk.git))
    for path, name in raw.items():
        put_bytes(desk, path, functools.partial(_wanted, desk, maker, name))


def _wanted(desk: Desk, maker: Maker, name: str, old: bytes) -> bytes | None:
    """What a file shall hold, unless it does."""
    return None if maker.name_of("blob", old) == name else desk.run("cat-file", "blob", name)


def convert_again(desk: Desk, parts: Parts, before: Parts, plan: Plan) -> None:
    """Files whose bytes on disk were special then and are not now, although git calls them the same."""
    then, now = (raw_of(desk, one) for one in (before, parts))
    for path in sorted({*then} - {*now} - {*plan.left} - {row.path for row in plan.differences}):
        name = f"{parts.snapshot.tree}:{os.fsdecode(path)}"
        data = desk.run("cat-file", "--filters", "--end-of-options", name)
        put_bytes(desk, path, functools.partial(_unless_same, data))


def _unless_same(data: bytes, old: bytes) -> bytes | None:
    return None if old == data else data

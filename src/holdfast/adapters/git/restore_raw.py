"""Files that git converts, brought back byte for byte: a snapshot keeps them as they were on disk, beside its tree.

Older snapshots do not say what every file was on disk. What they do not say is left as it is here, never guessed.
"""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Iterable, Iterator, Mapping

from holdfast.adapters.git.ignoring import left_out
from holdfast.adapters.git.restore_plan import Plan
from holdfast.adapters.git.tree_put import LINK, blob_id, look
from holdfast.adapters.git.workspace import Parts, object_format
from holdfast.adapters.git.ws_convert import FILES, Conversion
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
    """Files whose bytes on disk are special now and were not then, although git calls them the same; and those that git
    just wrote, where its settings convert them now."""
    paths = _same(raw_of(desk, before), plan)
    if Conversion(desk, 0, b"").writes_crlf():
        paths |= {row.path for row in plan.differences if row.new in FILES}
    for path, data in _ordinary(desk, parts, paths):
        put_bytes(desk, path, functools.partial(_unless_same, data))


def _ordinary(desk: Desk, parts: Parts, paths: set[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Those files that were not special then, with what they held. Where nobody noted what was special, there are none."""
    if parts.exact is None:
        return
    desk.write_as_stored()
    top = os.fsencode(desk.place.top)
    for path in sorted(paths - {*raw_of(desk, parts)}):
        name = f"{parts.snapshot.tree}:{os.fsdecode(path)}"
        data = desk.run("cat-file", "--filters", "--end-of-options", name)
        found = look(top, path).found
        if found is not None and max(found.st_size, len(data)) <= parts.exact:
            yield path, data


def _same(paths: Iterable[bytes], plan: Plan) -> set[bytes]:
    """Those that are in both trees, and the same."""
    return {*paths} - {*plan.left} - {row.path for row in plan.differences}


def _unless_same(data: bytes, old: bytes) -> bytes | None:
    return None if old == data else data


def rewritten(desk: Desk, parts: Parts, now: Mapping[bytes, object], plan: Plan) -> list[bytes]:
    """The files that git calls the same and whose bytes a restore in place would change. `now` are those that are special."""
    top, maker = os.fsencode(desk.place.top), Maker(object_format(desk.git))
    then = raw_of(desk, parts)
    wanted = {path: then[path] for path in _same(then, plan)}
    wanted |= {path: maker.name_of("blob", data) for path, data in _ordinary(desk, parts, _same(now, plan))}
    there = (path for path in wanted if look(top, path).found is not None)
    return [path for path in there if blob_id(os.path.join(top, path), maker.format) != wanted[path]]


# --- ignored files


def ignored_as_then(desk: Desk, parts: Parts) -> set[bytes]:
    """Files that are ignored now and are on disk just as a snapshot has them: that is no reason to refuse it."""
    top, raw, known = os.fsencode(desk.place.top), raw_of(desk, parts), {*desk.run("ls-files", "-z").split(b"\0")}
    rows = (row.split(b"\t", 1) for row in desk.run("ls-tree", "-r", "-z", parts.snapshot.tree).split(b"\0") if row)
    then = {path: facts.split(b" ")[2].decode() for facts, path in rows if path not in known and _is_file(top, path)}
    ignored = map(os.fsencode, left_out(desk.git, [os.fsdecode(path) for path in then]) if then else [])
    named = {path: blob_id(os.path.join(top, path), object_format(desk.git)) for path in ignored}
    return {path for path, name in named.items() if name in (then[path], raw.get(path))}


def _is_file(top: bytes, path: bytes) -> bool:
    found = look(top, path).found
    return found is not None and (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode))


# --- links


def linked_as_here(desk: Desk, parts: Parts, here: str | None = None) -> str:
    """The tree of a snapshot. An older one calls a link what may have been a file that stands for one, where the repository
    is told that there are no links: then it is a link only if it is one here, in a tree of what is here.
    """
    tree = parts.snapshot.tree
    if parts.exact is not None or not _has_no_links(desk):
        return tree
    sure = {*_links(desk, here)} if here else set()
    unsure = {path: name for path, name in _links(desk, tree).items() if path not in sure}
    if not unsure:
        return tree
    index = desk.path("linked")
    desk.run("read-tree", tree, index=index)
    listing = b"".join(b"100644 %s\t%s\0" % (name, path) for path, name in unsure.items())
    desk.run("update-index", "-z", "--index-info", stdin=listing, index=index)
    return desk.line("write-tree", "--missing-ok", index=index)


def _has_no_links(desk: Desk) -> bool:
    said = [value.lower() for _, name, value in desk.git.settings if name == "core.symlinks"]
    return bool(said) and said[-1] in ("false", "no", "off", "0", "")


def _links(desk: Desk, tree: str) -> dict[bytes, bytes]:
    rows = (row.split(b"\t", 1) for row in desk.run("ls-tree", "-r", "-z", tree).split(b"\0") if row)
    return {path: facts.split(b" ")[2] for facts, path in rows if facts.startswith(LINK)}

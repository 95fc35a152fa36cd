"""What a restore in place would change, and why it must not. Decides only; changes nothing in the work tree."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence

from holdfast.adapters.git.ignoring import check_ignore
from holdfast.adapters.git.tree_put import check_out, git_in
from holdfast.adapters.git.workspace import Snapshot
from holdfast.adapters.git.ws_desk import Desk
from holdfast.adapters.git.ws_scan import GITLINK, LeftOut
from holdfast.core.errors import HoldfastError
from holdfast.core.named import NamedTuple


class RestoreRefused(HoldfastError):
    """A restore that would lose something, or that cannot give what was asked for."""

    reason = "drift_refused"


def elsewhere(checkpoint_id: str) -> str:
    return f"`holdfast restore {checkpoint_id}` brings it back beside what is here, in a new worktree."


class Difference(NamedTuple):
    """One path in which two trees differ; modes as git writes them, and what the old tree has there."""

    path: bytes
    kind: str
    old: bytes
    new: bytes
    blob: bytes


class Plan(NamedTuple):
    """The tree to go to, in what it differs from what is here, and in what it does although a snapshot differs there."""

    tree: str
    differences: list[Difference]
    left: dict[bytes, str]  # path -> what the snapshot said when it left it out; nothing if it is ignored there


def plan_of(desk: Desk, here: str, snapshot: Snapshot) -> Plan:
    """What a snapshot left out stays as it is here: its tree has something older there, or nothing."""
    left_out = LeftOut(snapshot.left_out)
    rows = _differences(desk, here, snapshot.tree)
    said = {row.path: left_out.row_of(row.path) for row in rows}
    said |= dict.fromkeys(_ignored_then(desk, snapshot.tree, rows), "")
    left = [row for row in rows if said[row.path] is not None]
    differences = [row for row in rows if said[row.path] is None]
    return Plan(_with(desk, snapshot.tree, left), differences, {row.path: said[row.path] or "" for row in left})


def _ignored_then(desk: Desk, tree: str, rows: Sequence[Difference]) -> list[bytes]:
    """Files that are in no tree of ours because its rules ignore them: where the rules come back, such files stay."""
    going = [row.path for row in rows if row.kind == "D"]
    if not going or not any(_is_rule(row.path) for row in rows):
        return []
    names = desk.run("ls-tree", "-r", "-z", "--name-only", tree).split(b"\0")
    folder = check_out(desk, "rules", tree, [name for name in names if _is_rule(name)])
    said = check_ignore(git_in(desk, os.fsdecode(folder)), map(os.fsdecode, going)).out.split(b"\0")
    return [path.removeprefix(b"./") for path in said if path]


def _is_rule(path: bytes) -> bool:
    return os.path.basename(path) == b".gitignore"


def _with(desk: Desk, tree: str, rows: Sequence[Difference]) -> str:
    """A tree, with what is here in the place of some of its files."""
    if not rows:
        return tree
    index = desk.path("target")
    desk.run("read-tree", tree, index=index)
    listing = b"".join(b"%s %s\t%s\0" % (row.old, row.blob, row.path) for row in rows)
    desk.run("update-index", "-z", "--index-info", stdin=listing, index=index)
    return desk.line("write-tree", "--missing-ok", index=index)


def _differences(desk: Desk, old: str, new: str) -> list[Difference]:
    argv = ("diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", "--no-ext-diff")
    said = desk.run(*argv, old, new).split(b"\0")
    rows = (facts.split(b" ") for facts in said[0:-1:2])
    return [
        Difference(path, row[4].decode(), row[0].lstrip(b":"), row[1], row[2])
        for row, path in zip(rows, said[1::2], strict=True)
    ]


def refuse_in_the_way(desk: Desk, differences: Sequence[Difference], checkpoint_id: str) -> None:
    """Whatever is where a file shall come must be in the snapshot that was just taken, or it would be lost."""
    safe = {row.path for row in differences if row.kind != "A"}
    top = os.fsencode(desk.place.top)
    found: set[bytes] = set()
    for row in differences:
        if row.kind == "A" or (row.kind == "T" and row.old == GITLINK):
            found |= {path for path in _standing_at(top, row.path) if path not in safe}
    if found:
        some = ", ".join(os.fsdecode(path) for path in sorted(found)[:3])
        raise RestoreRefused(
            f"{len(found)} files that no snapshot holds are in the way ({some}).",
            advice=f"They are ignored, or could not be kept. Move them away; or: {elsewhere(checkpoint_id)}",
        )


def _standing_at(top: bytes, path: bytes) -> Iterator[bytes]:
    """Every file at a path, below it, or in the place of one of its folders."""
    pieces = path.split(b"/")
    for count in range(1, len(pieces)):
        folder = b"/".join(pieces[:count])
        mode = _mode_at(os.path.join(top, folder))
        if mode is None:
            return
        if not stat.S_ISDIR(mode):
            yield folder
            return
    mode = _mode_at(os.path.join(top, path))
    if mode is not None and not stat.S_ISDIR(mode):
        yield path
    elif mode is not None:
        for folder, folders, names in os.walk(os.path.join(top, path)):
            links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
            yield from (os.path.relpath(os.path.join(folder, name), top) for name in (*names, *links))


def _mode_at(path: bytes) -> int | None:
    try:
        return os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None

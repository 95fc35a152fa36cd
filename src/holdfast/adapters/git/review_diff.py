"""Everything in a work tree that differs from a commit, as one bounded text. Changes nothing, and says what it left out.

Committed, staged, not staged and untracked, in one: the files as they are against the commit. Not what is ignored, and
not `.holdfast`. No program that the repository names is run. Names that hold strange characters are quoted as git does.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Sequence

from holdfast.adapters.git.content import Content, Difference, content_of, differences, looking
from holdfast.adapters.git.repo import GitWorkspace
from holdfast.adapters.git.ws_desk import Desk, WorkspaceError
from holdfast.adapters.git.ws_gather import Policy
from holdfast.adapters.git.ws_scan import KINDS
from holdfast.adapters.probes.git_runner import Git
from holdfast.core.errors import shown
from holdfast.core.named import NamedTuple

LARGEST = 1024 * 1024  # bytes of a file, before and after, whose lines are shown
KEPT = Policy()  # a file that no snapshot holds is named, not read
LEAST = 300  # characters of a file; where there is no room for so many, it is only named
_BATCH = 200
_AT_ONCE = 8 * 1024 * 1024  # bytes of files that are compared in one go
_BUDGET = 64 * 1024 * 1024  # bytes of lines that are looked at before the rest is only named
_TAIL = 2000
_SHAPE = ("--no-renames", "--no-ext-diff", "--no-textconv", "--no-color", "--submodule=short")
_PATCH = (
    *("-c", "core.quotePath=true", "-c", "diff.suppressBlankEmpty=false", "-c", "diff.interHunkContext=0"),
    *("diff-tree", "-r", "-p", "--unified=3", "--diff-algorithm=myers", "--src-prefix=a/", "--dst-prefix=b/", *_SHAPE),
)


class File(NamedTuple):
    """One file that differs. Without numbers of lines it is binary, or too large to count them."""

    path: str
    kind: str
    added: int | None
    removed: int | None


class Diff(NamedTuple):
    """`text` holds the changed lines; `omitted` names each file of which it does not hold all, with the reason."""

    text: str
    files: tuple[File, ...]
    stat: str
    truncated: bool
    omitted: tuple[str, ...]


class Piece(NamedTuple):
    """What a file contributes to the text, and why that is not all."""

    text: str
    why: str | None = None


def diff(workspace: GitWorkspace, base: str, limit: int) -> Diff:
    """What differs from commit `base` now, in at most `limit` characters. Short changes go before long ones are cut."""
    commit = workspace.git.commit_of(base)
    with looking(workspace.git) as desk:
        found = content_of(desk, commit, policy=KEPT)
        rows = differences(desk, commit, found.tree)
        sizes = _sizes(desk, rows)
        batches = list(_batches(rows, sizes))
        git = _blind(desk)
        files = _files(git, (commit, found.tree), rows, batches)
        texts = _texts(git, (commit, found.tree), batches)
    pieces = _cut([texts.get(row.path) for row in rows], max(0, limit - min(_TAIL, limit // 4)))
    return _joined(rows, pieces, files, found, limit)


def fingerprint(workspace: GitWorkspace, base: str) -> str:
    """The id of all that `diff` would look at: while it is the same, nothing changed."""
    commit = workspace.git.commit_of(base)
    with looking(workspace.git) as desk:
        return content_of(desk, commit, policy=KEPT).tree


# --- looking


def _sizes(desk: Desk, rows: Sequence[Difference]) -> dict[bytes, int]:
    """The bytes on both sides together."""
    names = {name for row in rows for name in (row.old, row.new)}
    asked = "".join(f"{name}\n" for name in sorted(names)).encode()
    said = (line.split() for line in desk.run("cat-file", "--batch-check", stdin=asked).decode().splitlines())
    known = {fields[0]: int(fields[2]) for fields in said if len(fields) == 3}
    return {row.path: known.get(row.old, 0) + known.get(row.new, 0) for row in rows}


def _batches(rows: Sequence[Difference], sizes: dict[bytes, int]) -> Iterator[list[Difference]]:
    """Files whose lines can be shown, as many as can be compared at once."""
    batch: list[Difference] = []
    size = 0
    for row in rows:
        if sizes[row.path] > LARGEST:
            continue
        if len(batch) == _BATCH or size + sizes[row.path] > _AT_ONCE:
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += sizes[row.path]
    if batch:
        yield batch


def _asked(trees: tuple[str, str], batch: Sequence[Difference]) -> list[str]:
    return ["--end-of-options", *trees, "--", *(os.fsdecode(row.path) for row in batch)]


def _blind(desk: Desk) -> Git:
    """A git that sees no attributes of the work tree: whoever is reviewed could call the code binary by them."""
    git, nowhere = copy.copy(desk.git), desk.path("nowhere")
    os.mkdir(nowhere, 0o700)
    git.place = desk.place._replace(top=nowhere)
    git.environment = {**desk.git.environment, "GIT_WORK_TREE": nowhere, "GIT_INDEX_FILE": desk.path("none")}
    return git


def _files(
    git: Git, trees: tuple[str, str], rows: Sequence[Difference], batches: Sequence[Sequence[Difference]]
) -> tuple[File, ...]:
    counts: dict[bytes, tuple[int | None, int | None]] = {}
    for batch in batches:
        out = git("diff-tree", "-r", "-z", "--numstat", *_SHAPE, *_asked(trees, batch))
        for line in out.split(b"\0")[:-1]:
            added, removed, path = line.split(b"\t", 2)
            counts[path] = (_number(added), _number(removed))
    return tuple(File(os.fsdecode(row.path), KINDS[row.kind], *counts.get(row.path, (None, None))) for row in rows)


def _number(text: bytes) -> int | None:
    return None if text == b"-" else int(text)


def _texts(git: Git, trees: tuple[str, str], batches: Sequence[Sequence[Difference]]) -> dict[bytes, str]:
    """The patch of each file, until it is more than anybody can read."""
    found: dict[bytes, str] = {}
    left = _BUDGET
    for batch in batches:
        if left > 0:
            out = git(*_PATCH, *_asked(trees, batch))
            found.update(zip((row.path for row in batch), _split(out, batch), strict=True))
            left -= len(out)
    return found


def _split(out: bytes, rows: Sequence[Difference]) -> Iterator[str]:
    """The patch of each of the rows, in their order. One that changed its type has two parts."""
    text = out.decode("utf-8", "replace")
    parts = iter([f"diff --git {part}" for part in f"\n{text}".split("\ndiff --git ")[1:]])
    for row in rows:
        mine = [next(parts, "") for _ in range(2 if row.kind == "T" else 1)]
        if "" in mine:
            raise WorkspaceError("`git diff-tree` named other files than before.")
        yield "".join(part if part.endswith("\n") else f"{part}\n" for part in mine)


# --- fitting


def _cut(texts: Sequence[str | None], room: int) -> list[Piece]:
    share = _share([len(text) for text in texts if text is not None], room)
    pieces = []
    for text in texts:
        piece = Piece("", "it is too large to show") if text is None else _shortened(text, share)
        if len(piece.text) > room:
            piece = Piece("", "there was no room for it")
        room -= len(piece.text)
        pieces.append(piece)
    return pieces


def _share(sizes: Sequence[int], room: int) -> int:
    """How many characters each may have at most, so that all together fit: what the short ones leave goes to the long."""
    for done, size in enumerate(sorted(sizes)):
        if size * (len(sizes) - done) > room:
            return max(LEAST, room // (len(sizes) - done))
        room -= size
    return max(sizes, default=0)


def _shortened(text: str, share: int) -> Piece:
    """The first lines, and how many more there are."""
    if len(text) <= share:
        return Piece(text)
    kept = text[: max(0, share - 60)]
    kept = kept[: kept.rfind("\n") + 1]
    lines = text.count("\n") - kept.count("\n")
    return Piece(f"{kept}[{lines} more lines of this file are left out]\n", f"{lines} lines are left out")


def _joined(
    rows: Sequence[Difference], pieces: Sequence[Piece], files: tuple[File, ...], found: Content, limit: int
) -> Diff:
    short = [
        f"{shown(os.fsdecode(row.path))}: {piece.why}" for row, piece in zip(rows, pieces, strict=True) if piece.why
    ]
    omitted = (*short, *found.left_out)
    text = "".join(piece.text for piece in pieces)
    if omitted:
        text += _tail(omitted, limit - len(text))
    return Diff(text, files, _stat(files), bool(omitted), omitted)


def _tail(rows: Sequence[str], room: int) -> str:
    head = f"[Not shown in full: {len(rows)} files]\n"
    lines = ""
    for row in rows:
        line = f"[{row if row.isprintable() else ascii(row)}]\n"
        if len(head) + len(lines) + len(line) > room:
            break
        lines += line
    return (head + lines)[: max(0, room)]


def _stat(files: Sequence[File]) -> str:
    added, removed = (sum(getattr(file, side) or 0 for file in files) for side in ("added", "removed"))
    many = "1 file" if len(files) == 1 else f"{len(files)} files"
    return f"{many} changed, {added} lines added, {removed} removed"

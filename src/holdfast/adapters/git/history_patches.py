"""What commits change, made comparable: patch ids, and git's own pairing of two ranges. What cannot be compared is said.

Names of changes are made by plumbing with every choice spelled out, so no setting of a user or a repository has a part in them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from holdfast.adapters.git.history_log import facts_of, wide
from holdfast.adapters.probes.common import EffectError
from holdfast.adapters.probes.git_runner import Git, complaint
from holdfast.core.named import NamedTuple
from holdfast.core.stops import snippet

MOST = 1000  # commits whose changes are named in one search
MOST_PAIRED = 150  # commits on either side; the cost of pairing grows with the product
SIMILARITY = "60"  # percent of a change that may differ before git calls it another one
_BATCH = 200
_MOST_FAILURES = 20
_DIFF = (
    *("-c", "diff.suppressBlankEmpty=false", "diff-tree", "--root", "-r", "-p", "--full-index", "--no-renames"),
    *("--unified=3", "--diff-algorithm=myers", "--no-indent-heuristic", "--no-color", "--no-ext-diff", "--no-textconv"),
    *("--src-prefix=a/", "--dst-prefix=b/", "--submodule=short", "--ignore-submodules=none", "--no-relative"),
)
_TELLS_BINARIES = (2, 39)  # an older git gives every change of a binary file the same name
_HEADER = re.compile(rb"^(?=(?:[0-9a-f]{40}|[0-9a-f]{64})\n)", re.MULTILINE)
_BINARY = (b"\nBinary files ", b"\nGIT binary patch")
_PAIR = re.compile(r" *(?:\d+|-): +([0-9a-f]+|-+) ([=!<>]) +(?:\d+|-): +([0-9a-f]+|-+) ")


class Named(NamedTuple):
    """Patch ids by commit, and why some are missing."""

    ids: dict[str, str]
    notes: list[str]


def patch_id_of(git: Git, sha: str) -> str | None:
    """The name of what a commit changes against its first parent; None if it changes nothing, or more than can be compared."""
    facts = facts_of(git, sha)
    return name_patches(git, [(facts.sha, facts.parent)]).ids.get(facts.sha)


def name_patches(git: Git, wanted: Sequence[tuple[str, str | None]]) -> Named:
    """Patch ids of commits against the commits named beside them, or against nothing."""
    named = Named({}, [])
    waiting = [wanted[start : start + _BATCH] for start in range(0, len(wanted), _BATCH)]
    while waiting and len(named.notes) < _MOST_FAILURES:
        batch = waiting.pop()
        try:
            named.ids.update(_names(git, batch))
        except EffectError as error:
            middle = len(batch) // 2
            if middle:  # find out which of them it is, and go on with the others
                waiting += [batch[:middle], batch[middle:]]
            else:
                named.notes.append(f"what {batch[0][0][:12]} changes could not be compared: {snippet(str(error))}")
    return named


def _names(git: Git, batch: Sequence[tuple[str, str | None]]) -> dict[str, str]:
    asked = "".join(f"{sha} {parent}\n" if parent else f"{sha}\n" for sha, parent in batch)
    return {sha: name for name, sha in _ids(git, wide(git)(*_DIFF, "--stdin", stdin=asked.encode()))}


def name_trees(git: Git, start: str, trees: Iterable[str]) -> Named:
    """Patch ids from a commit to trees, by tree. One that git no longer has is left out."""
    named = Named({}, [])
    for tree in trees:
        if git.ask("cat-file", "-e", f"{tree}^{{tree}}").code == 0:
            try:
                named.ids.update((tree, name) for name, _ in _ids(git, wide(git)(*_DIFF, start, tree)))
            except EffectError as error:
                named.notes.append(
                    f"what changed up to the tree {tree[:12]} could not be compared: {snippet(str(error))}"
                )
    return named


def _ids(git: Git, diff: bytes) -> list[list[str]]:
    """Pairs of a patch id and the commit it is of."""
    if any(mark in diff for mark in _BINARY) and not _tells_binaries(git):
        diff = b"".join(part for part in _HEADER.split(diff) if not any(mark in part for mark in _BINARY))
    return [line.split(" ") for line in git("patch-id", "--stable", stdin=diff).decode().splitlines()]


def _tells_binaries(git: Git) -> bool:
    found = re.search(r"(\d+)\.(\d+)", git.line("version"))
    return found is not None and (int(found[1]), int(found[2])) >= _TELLS_BINARIES


def by_value(values: Mapping[str, str], newest_first: Iterable[str]) -> dict[str, list[str]]:
    """Commits by their value, oldest first."""
    found: dict[str, list[str]] = {}
    for sha in reversed(list(newest_first)):
        if sha in values:
            found.setdefault(values[sha], []).append(sha)
    return found


def pair_ranges(git: Git, base: str, old: str, new: str) -> Iterator[tuple[str, str]]:
    """Commits of base..old with those of base..new that git takes for the same change, or nearly so."""
    argv = ("-c", "core.abbrev=no", "range-diff", "--no-color", "--no-patch", f"--creation-factor={SIMILARITY}")
    finished = git.ask(*argv, f"{base}..{old}", f"{base}..{new}")
    if finished.code:
        raise EffectError(f"`git range-diff` failed: {complaint(finished)}")
    for line in finished.out.decode("utf-8", "replace").splitlines():
        match = _PAIR.match(line)
        if match and match[2] in "=!":
            yield match[1], match[3]

"""Commits that a fetch or a pull brought, by what git wrote down when it moved the branch of the other side. Only looks.

Where git wrote nothing down, or a push came between, nothing is taken for brought; nor where the reflog of `HEAD` does not go
back to where the work began, as in another clone or a work tree that was made anew: it cannot say what was made for it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator
from itertools import pairwise

from holdfast.adapters.probes.git_runner import Git

_BROUGHT = ("fetch", "pull")
_MADE = re.compile(r"(commit|cherry-pick|revert|am)\b|(rebase|pull).*\((pick|reword|edit|squash|fixup|continue)\)")


def pulled(git: Git, refs: Iterable[str], since: str) -> set[str]:
    """The commits by which a fetch moved one of these refs, but for those that were made in this work tree since then."""
    ranges = [pair for ref in refs for pair in _fetches(git, ref)]
    found = {sha for old, new in ranges for sha in _between(git, old, new)}
    moves = _moves(git, "HEAD") if found else []
    if since not in {sha for sha, _ in moves}:
        return set()
    return found - {sha for sha, how in moves if _MADE.match(how)}


def _fetches(git: Git, ref: str) -> Iterator[tuple[str, str]]:
    """Where a ref was before and after each fetch. What it was before the oldest entry is not known."""
    moves = _moves(git, ref)
    for (new, how), (old, _) in pairwise(moves):
        if how.startswith(_BROUGHT):
            yield old, new


def _between(git: Git, old: str, new: str) -> list[str]:
    finished = git.ask("rev-list", new, f"^{old}", "--")
    return [] if finished.code else finished.out.decode().split()  # git may have thrown away what a reflog names


def _moves(git: Git, ref: str) -> list[tuple[str, str]]:
    """What a ref was moved to, and by what, the newest first."""
    finished = git.ask("log", "--walk-reflogs", "-z", "--format=%H %gs", "--end-of-options", ref, "--")
    rows = [os.fsdecode(row).partition(" ") for row in finished.out.split(b"\0") if row] if not finished.code else []
    return [(sha, how) for sha, _, how in rows]


def changed_in(git: Git, commits: Collection[str]) -> set[str]:
    """The files that any of these commits changed."""
    if not commits:
        return set()
    argv = ("log", "--no-walk", "--stdin", "--format=", "--name-only", "--no-renames", "-z")
    listing = git(*argv, stdin="".join(f"{sha}\n" for sha in sorted(commits)).encode())
    return {os.fsdecode(name) for name in listing.split(b"\0") if name}


def renamed_to(git: Git, ref: str) -> str | None:
    """The branch that a branch became: git writes that down, and what was written follows the branch."""
    assert git.place is not None
    logs, said = os.path.join(git.place.common, "logs"), f"\tBranch: renamed {ref} to ".encode()
    for folder, _, names in os.walk(os.path.join(logs, "refs", "heads")):
        for path in (os.path.join(folder, name) for name in names):
            with open(path, "rb") as file:
                if said in file.read():
                    return os.path.relpath(path, logs)
    return None

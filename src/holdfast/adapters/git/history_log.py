"""Reads a history with one `git log`, and single commits in batches. Bounded; what lies beyond a bound is said, never guessed."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Sequence

from holdfast.adapters.probes.common import EffectError
from holdfast.adapters.probes.git_runner import Git, complaint
from holdfast.core.line import Commit, Line
from holdfast.core.named import NamedTuple
from holdfast.core.sidecar import is_sha
from holdfast.core.subjects import Said, names_in, read_message

MOST = 20_000  # commits of one history
MAX_OUTPUT = 128 * 1024 * 1024
_LOG = ("log", "-z", "--format=tformat:%H %T %P%n%ae %at%n%B")
_WORDS = ("holdfast-", "chore(runr)", "chore(agent)")  # one of them is in every message that can name a checkpoint


class Facts(NamedTuple):
    """What a record of a milestone needs to know about its commit. `parent` is the first one."""

    sha: str
    tree: str
    parent: str | None
    subject: str
    said: Said | None


def wide(git: Git) -> Git:
    """The same git, allowed to say more: a history of many long messages is no fault."""
    other = copy.copy(git)
    other.environment = {**git.environment, "GIT_FLUSH": "0"}  # into a pipe, git would write each commit by itself
    other.limits = git.limits._replace(output=max(MAX_OUTPUT, git.limits.output))
    return other


def read_line(git: Git, head: str) -> Line | None:
    """The history of a commit, newest first; None if there is no such commit, or none yet."""
    finished = wide(git).ask(*_LOG, "--topo-order", f"--max-count={MOST}", "--end-of-options", head, "--")
    if finished.code == 0:
        commits = [_commit(text) for text in _records(finished.out)]
        return Line(commits) if commits else None
    if git.ask("rev-parse", "--verify", "--quiet", "--end-of-options", head).code:
        return None
    raise EffectError(f"The history of {head!r:.120} cannot be read: {complaint(finished)}")


def facts_of(git: Git, sha: str) -> Facts:
    """The facts of one commit."""
    (text,) = _records(git(*_LOG, "--no-walk", "--end-of-options", git.commit_of(sha), "--"))
    commit, message = _commit(text), text.split("\n", 2)[2]
    subject = next((line.strip() for line in message.split("\n") if line.strip()), "")
    return Facts(commit.sha, commit.tree, commit.parents[0] if commit.parents else None, subject, commit.said)


def _records(out: bytes) -> list[str]:
    return out.decode("utf-8", "surrogateescape").split("\0")[:-1]


def _commit(text: str) -> Commit:
    names, stamp, message = text.split("\n", 2)
    sha, tree, *parents = names.split(" ")
    if not parents[0]:
        parents = []
    folded = message.lower()
    if not any(word in folded for word in _WORDS):
        return Commit(sha, tree, tuple(parents), stamp, None)
    return Commit(sha, tree, tuple(parents), stamp, read_message(message), names_in(message))


def is_shallow(git: Git) -> bool:
    """Whether the history was cut off when it was cloned."""
    assert git.place is not None
    return os.path.exists(os.path.join(git.place.common, "shallow"))


def commits_of(git: Git, shas: Iterable[str]) -> dict[str, Commit]:
    """Those of the commits that git still has."""
    names = sorted({sha for sha in shas if is_sha(sha)})
    asked = "".join(f"{name}^{{commit}}\n" for name in names).encode()
    said = git("cat-file", "--batch-check", stdin=asked).decode("utf-8", "replace").splitlines() if names else []
    there = [name for name, line in zip(names, said, strict=True) if line.startswith(f"{name} commit ")]
    if not there:
        return {}
    out = wide(git)(*_LOG, "--no-walk=unsorted", "--stdin", stdin="".join(f"{name}\n" for name in there).encode())
    return {commit.sha: commit for commit in map(_commit, _records(out))}


def mark_beyond(git: Git, line: Line, shas: Sequence[str]) -> None:
    """Of commits that the listing did not reach, find out whether the history contains them."""
    head = line.commits[0].sha
    line.beyond = frozenset(sha for sha in shas if sha not in line.place and git.contains(head, sha))


def fork_of(git: Git, one: str, other: str) -> str | None:
    """The commit at which two histories part; None if they have nothing in common."""
    finished = git.ask("merge-base", "--end-of-options", one, other)
    if finished.code not in (0, 1):
        raise EffectError(f"`git merge-base` failed: {complaint(finished)}")
    return finished.out.decode().split("\n")[0] or None


def branches_with(git: Git, sha: str) -> list[str]:
    """The branches, here and of remotes, that contain a commit."""
    out = git("for-each-ref", "--format=%(refname:short)", "--contains", sha, "refs/heads", "refs/remotes")
    return [os.fsdecode(name) for name in out.splitlines()]

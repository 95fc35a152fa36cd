"""What the `last_commit` of a checkpoint file is for the branch that is checked out now. Only looks, and never guesses.

    own        HEAD itself
    parent     the commit on which the commit that brought the checkpoint file stands: the file was committed with its batch
    ancestor   an older commit of this branch
    rewritten  not on this branch, but a commit is that changes the same lines or has the same files
    unknown    not found here, not related to this branch, or not to be told for sure
    absent     the file names none

The text is data: only hex digits reach git, and never where it could read an option or an expression.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from holdfast.adapters.git.history_log import commits_of, fork_of, is_shallow, read_line
from holdfast.adapters.git.history_patches import MOST, by_value, name_patches
from holdfast.adapters.git.hooks import read_rewrites
from holdfast.adapters.git.repo import GitWorkspace
from holdfast.adapters.probes.git_runner import Git
from holdfast.core.errors import shown
from holdfast.core.line import Commit, Line
from holdfast.core.named import NamedTuple
from holdfast.core.position import Known

Kind = Literal["own", "parent", "ancestor", "rewritten", "unknown", "absent"]
_HEX = re.compile("[0-9a-f]{4,64}")
_SHORT = 12
_LINES, _FILES = "changes the same lines", "has exactly the same files"


class Where(NamedTuple):
    """`sha` is the commit on this branch, if there is one; `carrier` the commit that brought the checkpoint file."""

    kind: Kind
    sha: str | None
    sentence: str
    carrier: str | None = None


class Gone(NamedTuple):
    """A commit that is not on this branch, by what is known of it."""

    sha: str
    tree: str | None
    patch_id: str | None


def classify(
    workspace: GitWorkspace, last_commit: object, file: str | None = None, known: Sequence[Known] = ()
) -> Where:
    """`file` is the checkpoint file, by its path from the top; `known` are records of milestones, such as sidecars."""
    if last_commit is None or last_commit == "":
        return Where("absent", None, "The checkpoint names no commit.")
    text = _hex(last_commit)
    if text is None:
        return _unknown(f"{shown(last_commit, 60)} is not the id of a commit")
    git = workspace.git
    head, _ = workspace.where()
    if head is None:
        return _unknown(f"{text} cannot be looked for, because no commit is checked out here")
    found = _commits(git, text)
    if len(found) > 1:
        return _unknown(f"{text} is the beginning of {len(found)} commits, so it does not say which")
    if found and git.contains(head, found[0]):
        return _on_branch(git, found[0], head, file)
    return _elsewhere(workspace, text, found, head, known)


def _hex(value: object) -> str | None:
    """The digits of an id. YAML reads an id of decimal digits as a number."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    text = str(value).strip().lower() if isinstance(value, str) or value < 10**64 else ""
    return text if _HEX.fullmatch(text) else None


def _unknown(why: str) -> Where:
    return Where("unknown", None, f"What the last commit of the checkpoint is here cannot be told: {why}.")


def _commits(git: Git, text: str) -> list[str]:
    """The commits whose id begins so. Names of branches and tags have no part in it."""
    objects = git.line("rev-parse", f"--disambiguate={text}").split()
    return list(commits_of(git, objects))


# --- on this branch


def _on_branch(git: Git, sha: str, head: str, file: str | None) -> Where:
    short, carrier = sha[:_SHORT], _carrier(git, head, file)
    if carrier is not None and sha in carrier.parents:
        sentence = f"The checkpoint was committed with its batch in {carrier.sha[:_SHORT]}, on top of {short}."
        return Where("parent", sha, sentence, carrier.sha)
    name = carrier.sha if carrier else None
    if sha == head:
        return Where("own", sha, f"The last commit of the checkpoint, {short}, is checked out.", name)
    count = int(git.line("rev-list", "--count", f"{sha}..{head}"))
    after = "1 commit came" if count == 1 else f"{count} commits came"
    return Where(
        "ancestor", sha, f"The last commit of the checkpoint, {short}, is on this branch; {after} after it.", name
    )


def _carrier(git: Git, head: str, file: str | None) -> Commit | None:
    """The last commit of this branch that changed the checkpoint file."""
    if file is None:
        return None
    sha = git.line("log", "-1", "--format=%H", "--no-show-signature", "--end-of-options", head, "--", file)
    return commits_of(git, [sha]).get(sha)


# --- not on this branch


def _elsewhere(workspace: GitWorkspace, text: str, found: Sequence[str], head: str, known: Sequence[Known]) -> Where:
    git = workspace.git
    gone = _gone(git, text, found, known)
    cut = "; the history was cut off when it was cloned" if is_shallow(git) else ""
    if len(gone) != 1:
        why = "several milestones have ids that begin so" if gone else "this repository has no such commit"
        return _unknown(f"{text}: {why}{cut}")
    line = read_line(git, head)
    assert line is not None
    one = gone[0]
    if (new := _rewritten(git, one.sha, line)) is not None:
        return _moved(one, new, "was noted as its successor when it was rewritten")
    matches, how = _matches(git, one, line)
    if len(matches) == 1:
        return _moved(one, matches[0], how)
    if matches:
        return _unknown(f"{one.sha[:_SHORT]} is not on this branch, and {len(matches)} commits there are like it")
    return _unknown(f"{one.sha[:_SHORT]} is not on this branch, and no commit there is like it{cut}")


def _moved(gone: Gone, new: str, how: str) -> Where:
    old = gone.sha[:_SHORT]
    sentence = f"The last commit of the checkpoint, {old}, was rewritten: {new[:_SHORT]} on this branch {how}."
    return Where("rewritten", new, sentence)


def _gone(git: Git, text: str, found: Sequence[str], known: Sequence[Known]) -> list[Gone]:
    """As git has it, or else as records of milestones know it."""
    if found:
        commit = commits_of(git, found)[found[0]]
        named = name_patches(git, [(commit.sha, _first(commit))]).ids
        return [Gone(commit.sha, commit.tree, named.get(commit.sha))]
    rows = {one.sha: Gone(one.sha, one.tree, one.patch_id) for one in known if one.sha.startswith(text)}
    return list(rows.values())


def _rewritten(git: Git, sha: str, line: Line) -> str | None:
    """What the hook of git noted, followed to a commit of this branch."""
    became, seen = {old: new for old, new in read_rewrites(git) if old != new}, {sha}
    while sha in became and became[sha] not in seen:
        sha = became[sha]
        seen.add(sha)
        if sha in line.place:
            return sha
    return None


def _matches(git: Git, gone: Gone, line: Line) -> tuple[list[str], str]:
    """The commits of this branch since the two parted that are like it: by their lines, or else by their files."""
    is_here = bool(commits_of(git, [gone.sha]))
    recent = line.since(fork_of(git, gone.sha, line.commits[0].sha) if is_here else None)[:MOST]
    patches = name_patches(git, [(one.sha, _first(one)) for one in recent]).ids if gone.patch_id else {}
    by_lines = _equal(patches, recent, gone.patch_id)
    if by_lines:
        return by_lines, _LINES
    changing = list(line.changing(recent))
    return _equal({one.sha: one.tree for one in changing}, changing, gone.tree), _FILES


def _equal(values: Mapping[str, str], commits: Sequence[Commit], wanted: str | None) -> list[str]:
    return by_value(values, [one.sha for one in commits]).get(wanted or "", [])


def _first(commit: Commit) -> str | None:
    return commit.parents[0] if commit.parents else None

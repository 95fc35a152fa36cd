"""How a repository differs from what the log knew of it. Values in, findings out; never looks at a repository itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from shlex import quote

from holdfast.core.canonical import digest
from holdfast.core.events import Drift, MilestoneIndexCorrected
from holdfast.core.fingerprint import comparable, differences
from holdfast.core.named import NamedTuple
from holdfast.core.position import Known, Position
from holdfast.core.shapes import RunState, WorkspaceState
from holdfast.core.subjects import is_imported

ALREADY, BEHIND, AHEAD = "already_checkpointed", "state_behind_checkpoint", "state_ahead_of_checkpoint"
BASE = "base:"  # what names the base branch in a fingerprint; it is compared by what it changed, not by its commit
TREE = "tree"  # what names the uncommitted files that were there when the run came, in a fingerprint
_APART = "\0"
NO_BRANCH = "no branch"
LISTED = 10


class Seen(NamedTuple):
    """One look at a repository. `as_kept`: what is uncommitted is just what the last snapshot holds.

    `overlap` are files that the base branch changed, and the run as well.
    """

    head: str | None
    branch: str | None
    as_kept: bool
    changed: tuple[str, ...]
    position: Position
    environment: Mapping[str, str]
    overlap: tuple[str, ...] = ()
    base: str | None = None
    inside: tuple[str, ...] = ()  # what is changed in submodules, which no checkpoint keeps


class Found(NamedTuple):
    drift: Drift
    subject: str
    was: str
    now: str
    lines: tuple[str, ...]


def milestones(state: RunState, repo: str | None = None) -> list[tuple[str, WorkspaceState]]:
    """The milestones that the log has of a repository, or of all, complete, by their index."""
    made = [
        (name, known)
        for name, known in state.workspaces.items()
        if known.complete and known.index is not None and repo in (None, known.repo)
    ]
    return sorted(made, key=lambda pair: (pair[1].index or 0, pair[1].seq))


def records(state: RunState, repo: str | None = None) -> list[Known]:
    """What the log knows of each milestone, for finding it again."""
    return [
        Known(
            checkpoint_id=name,
            run_id=state.run_id,
            index=made.index or 0,
            title=made.title,
            sha=made.commit or "",
            tree=made.tree,
            patch_id=made.patch_id,
            parent=made.parent,
            branch=made.branch,
            base=made.base,
            source="log",
        )
        for name, made in milestones(state, repo)
        if made.commit
    ]


def not_ours(state: RunState, others: Iterable[Known]) -> list[Known]:
    """Milestones of other runs, but for those that a fork has in common with the run it comes from."""
    return [one for one in others if one.checkpoint_id not in state.workspaces]


def landmarks(state: RunState, repo: str) -> list[str]:
    """Commits by which a repository is recognised elsewhere: where the run came to it, and its newest milestones."""
    known, made = state.repositories.get(repo), milestones(state, repo)[-LISTED:]
    return [sha for sha in (known.head if known else None, *(one.commit for _, one in reversed(made))) if sha]


def next_index(state: RunState, repo: str | None = None) -> int:
    made = milestones(state, repo)
    return (made[-1][1].index or 0) + 1 if made else 0


def last_of(state: RunState, repo: str) -> WorkspaceState | None:
    """The last complete checkpoint of this repository that was taken here; what was taken over knows no workspace."""
    made = [one for one in state.workspaces.values() if one.complete and one.repo == repo and one.snapshot]
    return max(made, key=lambda known: known.seq, default=None)


def corrected(state: RunState, repo: str, position: Position) -> MilestoneIndexCorrected | None:
    """The disagreement about the last milestone, if there is one. An answer that is not sure corrects nothing."""
    if position.index is None or position.sha is None or position.confidence == "weak":
        return None
    last = next_index(state, repo) - 1
    if position.index == last:
        return None
    return MilestoneIndexCorrected(
        previous=last + 1,
        corrected_to=position.index + 1,
        reason=BEHIND if position.index > last else AHEAD,
        checkpoint_id=position.checkpoint_id,
        sha=position.sha,
        source=position.source,
    )


def already(checkpoint_id: str, begun: WorkspaceState, commit: str) -> MilestoneIndexCorrected:
    """A milestone was begun, and its commit is there: it counts, though the log did not know."""
    index = begun.index or 0
    return MilestoneIndexCorrected(
        previous=index,
        corrected_to=index + 1,
        reason=ALREADY,
        checkpoint_id=checkpoint_id,
        sha=commit,
        source="git_log_run_specific",
    )


def is_unlogged(state: RunState, repo: str, position: Position) -> bool:
    """Whether this run has a log without one milestone, and mirrors name one of it: an old copy of the log was put back,
    or somebody forged it. What was taken in from Runr never had them in a log."""
    known = position.checkpoint_id in state.workspaces or position.checkpoint_id in state.given_up
    is_named = position.sha is not None and position.checkpoint_id is not None and not known
    return is_named and not records(state, repo) and not is_imported(state.run_id, state.mission_id)


def drifts(state: RunState, repo: str, seen: Seen, environment: Mapping[str, str] | None) -> list[Found]:
    """Everything that is not as the last checkpoint of this repository knew it."""
    last, known = last_of(state, repo), state.repositories.get(repo)
    branch = last.branch if last is not None else known.branch if known is not None else seen.branch
    tree, made = last.tree if last is not None else "", milestones(state, repo)
    return [
        *_branch(branch, seen),
        *(_unlogged(seen.position) if is_unlogged(state, repo, seen.position) else _commit(made, seen)),
        *_tree(tree or "", _new(seen, environment or {}, bool(made) or last is not None)),
        *_base(seen),
        *_environment(seen, environment),
    ]


def seen_id(found: Sequence[Found], seen: Seen) -> str:
    """The name of exactly this look: what differs, and where everything is."""
    content = (found, seen.head, seen.branch, seen.changed, seen.position.sha, seen.position.index)
    return digest(b"holdfast/seen/1\n" + repr(content).encode("utf-8", "backslashreplace"))[:8]


def _branch(before: str | None, seen: Seen) -> Sequence[Found]:
    if before == seen.branch:
        return ()
    was, now = _short(before), _short(seen.branch)
    ways = f"`git switch {quote(was)}` goes back to it, --yes goes on here" if before else "--yes goes on here"
    return (Found("branch", "the branch", was, now, (f"{was} was checked out, and now {now}", ways)),)


def _unlogged(position: Position) -> Sequence[Found]:
    said = (
        f"milestone {position.index} is in this repository, and the log has none: "
        "the log is older than the repository, or somebody else wrote it"
    )
    return (Found("commit", "the last milestone", "", position.sha or "", (said, position.why, *position.choices)),)


def _commit(made: Sequence[tuple[str, WorkspaceState]], seen: Seen) -> Sequence[Found]:
    """The last milestone must be found, for sure, and be the last: work that was lost on the way is not gone on from."""
    position, last = seen.position, next((one for one in reversed(made) if one[1].commit), None)
    if last is None:
        return ()
    if position.sha is None:
        return (Found("commit", "the last milestone", "", "", (position.why, *position.choices)),)
    if position.confidence == "weak":
        return (Found("commit", "the last milestone", position.was or "", position.sha, (position.why,)),)
    index, title = last[1].index or 0, last[1].title
    if position.index is not None and position.index < index:
        lost = (
            f"milestone {index} ({title}) is in the log, and not in this history; the last one here is {position.index}"
        )
        return (Found("commit", "the last milestone", last[1].commit or "", position.sha, (lost,)),)
    if position.beyond:
        newer = (
            f"milestone {position.beyond[-1][0]} is in this repository, and not in the log: "
            "the log is older than the repository, or somebody else wrote it"
        )
        return (Found("commit", "the last milestone", last[1].commit or "", "", (newer, *position.choices)),)
    return ()


def uncommitted(lines: Sequence[str]) -> str:
    """What a fingerprint says of the uncommitted files that a run meets: a name may be bytes that are no text."""
    return _APART.join(lines).encode("utf-8", "backslashreplace").decode()


def _new(seen: Seen, before: Mapping[str, str], is_kept: bool) -> Sequence[str]:
    """Files that differ from the last commit, but for what the last checkpoint kept just so; before the first one, for
    what was there when the run came."""
    if is_kept:
        return () if seen.as_kept else seen.changed
    first = before.get(TREE)
    return () if first is None else [line for line in seen.changed if uncommitted([line]) not in first.split(_APART)]


def _tree(before: str, lines: Sequence[str]) -> Sequence[Found]:
    return (Found("tree", "the work tree", before, "", (*lines[:LISTED], *_more(lines))),) if lines else ()


def _more(listed: Sequence[str]) -> Sequence[str]:
    return [f"and {len(listed) - LISTED} more"] if len(listed) > LISTED else []


def _base(seen: Seen) -> Sequence[Found]:
    if not seen.overlap:
        return ()
    lines = tuple(f"{path} was changed there too" for path in seen.overlap[:LISTED])
    return (Found("base", seen.base or "the base branch", "", "", (*lines, *_more(seen.overlap))),)


def _environment(seen: Seen, before: Mapping[str, str] | None) -> Sequence[Found]:
    kept = {name: value for name, value in (before or {}).items() if not name.startswith(BASE) and name != TREE}
    lines = () if before is None else tuple(differences(kept, comparable(kept, seen.environment)))
    return (Found("environment", "the environment", "", "", lines),) if lines else ()


def _short(ref: str | None) -> str:
    return NO_BRANCH if ref is None else ref.removeprefix("refs/heads/")

"""Which of several equal commits is which milestone: each commit has one owner, or the match is weak. Never looks itself.

Milestones may be equal to each other, or to those of another run. Then a commit that is equal to them is told apart by whom
it is reserved for, by author and time, and by order; and where these do not tell it is only offered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from holdfast.core.line import Commit
from holdfast.core.named import NamedTuple
from holdfast.core.position import STRONG, WEAK, Found, Known, doubted, found_as

CONTESTED = "but another milestone is equal to it, so it may be that one"
_WHAT = {
    "patch_id": "it changes exactly what the milestone changed",
    "squash": "it changes at once what was changed step by step up to this milestone, so it is a squash",
    "tree": "it has exactly the files that the milestone had",
}
_PAIRED = {
    True: (STRONG, "and both have the same author and time"),
    False: (WEAK, "but author or time differ, or do not tell it from another milestone"),
}

Item = TypeVar("Item")
Key = TypeVar("Key")
Owner = Sequence[Known]  # the records of one commit that was
Share = tuple[Known, str, bool]  # a record, the commit that is its, and whether that is sure


class Pair(NamedTuple):
    """Two commits that git takes for versions of the same change; `sure` if author and time say so too, and of no other."""

    old: str
    new: str
    sure: bool


class Clues(NamedTuple):
    """What tells equal commits apart. `stamps`: author and time, by commit, of those that were and those that are.

    `reserved`: commits that can only be what certain others were. `rivals`: what other runs know of milestones of theirs.
    """

    stamps: Mapping[str, str] = {}
    reserved: Mapping[str, frozenset[str]] = {}
    rivals: Sequence[Known] = ()


def by_content(
    source: str,
    records: Sequence[Known],
    values: Mapping[str, str],
    commits: Mapping[str, Sequence[str]],
    clues: Clues | None = None,
) -> Iterator[Found]:
    """Commits that are equal to a record in some value (`values`: of a record's commit; `commits`: by value, oldest first)."""
    clues = clues or Clues()
    rivals = _alike(clues.rivals, values)
    for value, same in _alike(records, values).items():
        owners = _owners([*same, *rivals.get(value, ())])
        for record, sha, is_sure in _shares(owners, commits.get(value, ()), clues):
            if record in same:
                found = found_as(record, source, STRONG, sha, _WHAT[source])
                yield found if is_sure else doubted(found, CONTESTED)


def by_pair(records: Iterable[Known], pairs: Iterable[Pair]) -> Iterator[Found]:
    news = {pair.old: pair for pair in pairs}
    for record in records:
        if pair := news.get(record.sha):
            confidence, stamp = _PAIRED[pair.sure]
            why = f"git pairs it with the milestone's commit by what it changes, {stamp}"
            yield found_as(record, "range_diff", confidence, pair.new, why)


def reserved_by_name(
    commits: Iterable[Commit], run_id: str, records: Sequence[Known], there: Mapping[str, Commit], own: bool
) -> dict[str, frozenset[str]]:
    """Commits whose message names other runs only; with `own`, also those that name one recorded checkpoint of this run.

    A run may have stood on a commit with another's name: then what has that name now is reserved for that one.
    """
    ours = shas_by_checkpoint(records) if own else {}
    found = {}
    for commit in commits:
        said = commit.said
        if commit.named and commit.names_another(run_id):
            stood_on = (one.sha for one in records if one.sha in there and there[one.sha].named & commit.named)
            found[commit.sha] = frozenset(stood_on)
        elif said is not None and said.run_id == run_id and said.checkpoint_id in ours:
            found[commit.sha] = ours[said.checkpoint_id]
    return found


def shas_by_checkpoint(records: Iterable[Known]) -> dict[str | None, frozenset[str]]:
    """The commits that records name, by checkpoint."""
    found: dict[str | None, frozenset[str]] = {}
    for one in records:
        found[one.checkpoint_id] = found.get(one.checkpoint_id, frozenset()) | {one.sha}
    return found


# --- sharing out


def _alike(records: Iterable[Known], values: Mapping[str, str]) -> dict[str, list[Known]]:
    return _grouped((one for one in records if values.get(one.sha)), lambda one: values[one.sha])


def _owners(records: Iterable[Known]) -> list[list[Known]]:
    """Milestones on one commit belong together, and so do records of one checkpoint."""
    owners: list[list[Known]] = []
    for record in records:
        names = {record.sha, record.checkpoint_id}
        home = next((own for own in owners if any(names & {one.sha, one.checkpoint_id} for one in own)), None)
        if home is None:
            owners.append([record])
        else:
            home.append(record)
    return owners


def _shares(owners: Sequence[Owner], equal: Sequence[str], clues: Clues) -> Iterator[Share]:
    left = []
    for own in owners:
        shas = {one.sha for one in own}
        held = [sha for sha in equal if shas & clues.reserved.get(sha, frozenset())]
        yield from _given(own, held[-1:], True)
        if not held:
            left.append(own)
    free = [sha for sha in equal if sha not in clues.reserved]
    yield from _by_stamp(left, free, clues.stamps)


def _by_stamp(owners: Sequence[Owner], free: Sequence[str], stamps: Mapping[str, str]) -> Iterator[Share]:
    """Those that have kept author and time first; the others share what is left."""
    here = _grouped(free, stamps.get)
    were = _grouped(owners, lambda own: next((stamps[one.sha] for one in own if one.sha in stamps), None))
    kept = {stamp for stamp in were if stamp is not None and stamp in here}
    for stamp in kept:
        yield from _in_turn(were[stamp], here[stamp])
    rest = [own for own in owners if not any(own in were[stamp] for stamp in kept)]
    yield from _in_turn(rest, [sha for sha in free if stamps.get(sha) not in kept])


def _in_turn(owners: Sequence[Owner], commits: Sequence[str]) -> Iterator[Share]:
    """Milestones of one run take equal commits in turn, the last one the newest. Too few, or of two runs: nobody knows."""
    is_one_run = len({one.run_id for own in owners for one in own}) == 1
    is_sure = len(owners) == 1 or (is_one_run and len(commits) >= len(owners))
    for turn, own in enumerate(owners):
        is_last = turn == len(owners) - 1 or not is_sure
        yield from _given(own, commits[-1:] if is_last else commits[turn : turn + 1], is_sure)


def _given(own: Owner, shas: Sequence[str], is_sure: bool) -> Iterator[Share]:
    return ((record, sha, is_sure) for sha in shas for record in own)


def _grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    found: dict[Key, list[Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found

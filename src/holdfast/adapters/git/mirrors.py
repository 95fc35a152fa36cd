"""Runs that have no log here: where each of them is, by its sidecars and by what messages say. Invents no number and no title.

The same search as with a log, with the sidecars as its records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from holdfast.adapters.git.history import Search, first_parent
from holdfast.adapters.probes.git_runner import Git
from holdfast.core.line import Commit, Line
from holdfast.core.named import NamedTuple
from holdfast.core.position import WEAK, Found, Known, Position, answer, nowhere
from holdfast.core.sidecar import runr_id
from holdfast.core.subjects import PREFIX

_JOINED = "commit {} joins the messages of several milestones, and which title is whose is not known"


class Located(NamedTuple):
    """Where the last milestone is, and all the others that were met on the way. `records` are those that are believed."""

    position: Position
    places: Sequence[Found]
    records: Sequence[Known]
    first: int | None  # the lowest milestone that the commit of the position holds beside its own
    choices: Callable[[], Sequence[str]]  # what a person may do if that is not enough

    def holds(self, index: int) -> bool:
        return self.first is not None and self.first <= index <= (self.position.index or 0)


def locate(git: Git, line: Line, run_id: str, records: Sequence[Known], rewrites: Sequence[tuple[str, str]]) -> Located:
    """All that can be found of a run without a log in a history."""
    search = Search(git, run_id, records, line, rewrites, None)
    search.look()
    position = answer(search.found, search.wanted, line, search.notes, True, search.below()) or search.nothing()
    return Located(position, search.places, search.records, search.first(), lambda: search.nothing().choices)


class Mirrored(NamedTuple):
    """One run. `known` are its milestones up to the position, each where it is now; `highest` is the last that a sidecar knows.

    `unexplained`: commits after the position that name nothing, and may be milestones.
    """

    run_id: str
    position: Position
    known: list[Known]
    highest: int | None
    unexplained: int = 0

    @property
    def is_sure(self) -> bool:
        """Whether the last milestone that anything here knows of is found, for sure."""
        index = self.position.index
        return index is not None and self.position.confidence != WEAK and index >= (self.highest or 0)


def runs_in(line: Line, sidecars: Sequence[Known]) -> list[str]:
    """The runs that sidecars know, and those that the trailers of a history name, also in messages that a squash joined."""
    named = {pair for one in line.commits for pair in one.named}
    runr = {
        run_id for run_id, name in named if (name or "").startswith(runr_id(run_id, ""))
    }  # its subjects, not trailers
    return sorted({one.run_id for one in sidecars} | {run_id for run_id, _ in named} - runr)


def look(
    git: Git, line: Line, sidecars: Sequence[Known], rewrites: Sequence[tuple[str, str]], runs: Collection[str]
) -> list[Mirrored]:
    return [_look(git, line, sidecars, rewrites, run_id) for run_id in runs]


def _look(
    git: Git, line: Line, sidecars: Sequence[Known], rewrites: Sequence[tuple[str, str]], run_id: str
) -> Mirrored:
    located = locate(git, line, run_id, sidecars, rewrites)
    position, highest = located.position, max((one.index for one in located.records), default=None)
    if position.sha is None:
        return Mirrored(run_id, position, [], highest)
    ours = {one.checkpoint_id: one for one in sidecars if one in located.records}  # in the order of their age
    known = [*_recorded(ours.values(), located, line), *_named(ours, located, line)]
    joined = [one.sha for one in known if one.sha in line.place and not one.title]
    if joined:
        why = f"The position of run {run_id} is unknown: {_JOINED.format(joined[-1][:12])}."
        return Mirrored(run_id, nowhere(why, located.choices()), [], highest)
    known.sort(key=lambda one: one.index)
    position = _doubted(position, _strangers(line, run_id) - {one.checkpoint_id for one in known})
    return Mirrored(run_id, position, known, highest, line.unexplained(position.sha or ""))


def _strangers(line: Line, run_id: str) -> set[str | None]:
    return {checkpoint_id for one in line.commits for name, checkpoint_id in one.named if name == run_id}


def _doubted(position: Position, strangers: Collection[str | None]) -> Position:
    """A name of this run that is not understood may be that of a later milestone."""
    if not strangers:
        return position
    many = f"{len(strangers)} more checkpoint{'s' * (len(strangers) > 1)} of this run"
    return position._replace(confidence=WEAK, why=f"{position.why} Messages here name {many}, but not where.")


def _recorded(records: Collection[Known], located: Located, line: Line) -> list[Known]:
    """What sidecars know, up to the position: at its place now; in the squash that holds it; or as it was."""
    position, places = located.position, _places(located)
    last = position.index or 0
    found = []
    for one in records:
        place = places.get(one.checkpoint_id)
        if place is not None:
            found.append(_moved(one, place.sha, place.source, line))
        elif located.holds(one.index):
            found.append(_moved(one, position.sha or "", position.source, line))
        else:
            found.append(one)
    return [one for one in found if one.index <= last]


def _named(records: Collection[str], located: Located, line: Line) -> list[Known]:
    """What only messages name, up to the position. One that joins several messages has no title of its own."""
    last, places = located.position.index or 0, _places(located).values()
    found = [one for one in places if one.checkpoint_id not in records and one.index <= last]
    return [_from_trailers(one, line.commits[line.place[one.sha]]) for one in found]


def _places(located: Located) -> dict[str | None, Found]:
    """The best place of each milestone; the sure ones, and the position itself."""
    position = located.position
    good = [one for one in located.places if one.confidence != WEAK or one.sha == position.sha]
    return {one.checkpoint_id: one for one in reversed(good) if one.checkpoint_id is not None}


def _moved(one: Known, sha: str, source: str, line: Line) -> Known:
    if sha == one.sha or sha not in line.place:
        return one._replace(sha=sha, source=source)
    now = line.commits[line.place[sha]]
    patch = one.patch_id if source == "patch_id" else None
    return one._replace(sha=sha, source=source, tree=now.tree, patch_id=patch, parent=first_parent(now))


def _from_trailers(found: Found, commit: Commit) -> Known:
    said = commit.said
    assert said is not None
    is_joined = len(commit.named) > 1
    return Known(
        checkpoint_id=found.checkpoint_id or "",
        run_id=said.run_id or "",
        index=found.index,
        title="" if is_joined else said.title.removeprefix(PREFIX),
        sha=commit.sha,
        tree=commit.tree,
        patch_id=None,
        parent=first_parent(commit),
        branch=None,
        base=None,
        source=found.source,
    )

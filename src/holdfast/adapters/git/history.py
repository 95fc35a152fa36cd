"""Finds the last milestone of a run in a history, after whatever was done to that history. Changes nothing, and never guesses.

The cheap evidence comes from one `git log`. What commits change is compared only for milestones that are higher than
what was found so far. How evidence is weighed: `holdfast.core.position`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from holdfast.adapters.git.history_log import (
    MOST,
    Facts,
    branches_with,
    commits_of,
    facts_of,
    fork_of,
    is_shallow,
    mark_beyond,
    read_line,
)
from holdfast.adapters.git.history_patches import (
    MOST as MOST_PATCHES,
)
from holdfast.adapters.git.history_patches import (
    MOST_PAIRED,
    by_value,
    name_patches,
    name_trees,
    pair_ranges,
    patch_id_of,
)
from holdfast.adapters.probes.common import EffectError
from holdfast.adapters.probes.git_runner import Git
from holdfast.core.line import Commit, Line
from holdfast.core.matching import Clues, Pair, by_content, by_pair, reserved_by_name, shas_by_checkpoint
from holdfast.core.position import (
    DEEPEN,
    SHOWN,
    UNLIKE,
    UNLOGGED,
    WEAK,
    Found,
    Known,
    Position,
    above,
    answer,
    best_of,
    by_legacy,
    by_name,
    by_record,
    by_rewrite,
    choices_for,
    contradicted,
    doubted,
    linked,
    lost,
    nowhere,
    of_run,
    short,
    unlogged,
    unseen,
)
from holdfast.core.sidecar import is_sha
from holdfast.core.stops import snippet

__all__ = ["Facts", "Search", "facts_of", "find", "first_parent", "patch_id_of"]

_MOST_RECORDS = 500  # of the highest milestones, whose changes are compared
_MOST_RANGES = 30  # of the highest milestones, between which ranges are compared
_JOINED = ("squash", "tree")  # such a commit may bear the name of any milestone that it holds


def find(
    git: Git,
    run_id: str,
    records: Sequence[Known],
    *,
    rewrites: Sequence[tuple[str, str]] = (),
    head: str = "HEAD",
    allow_legacy: bool = True,
    imported: bool = False,
    checkpoint_id: str | None = None,
) -> Position:
    """Where the highest milestone of this run is in the history of `head`; of one checkpoint, if its id is given.

    Records of other runs are never the answer: they tell which equal commits are theirs.
    `imported`: the run came from Runr, whose subjects name it by the id that it had there.
    """
    line = read_line(git, head)
    if line is None:
        return nowhere(f"The position of run {run_id} is unknown: {head!r:.120} is no commit, or none yet.", ())
    if imported:
        line = line.imported_as(run_id)
    search = Search(git, run_id, records, line, rewrites, checkpoint_id)
    search.look()
    if allow_legacy and checkpoint_id is None:
        search.look_for_legacy()
    below = search.below()
    return answer(search.found, search.wanted, line, search.notes, checkpoint_id is None, below) or search.nothing()


class Search:
    """One search: the evidence so far, and what could not be looked at."""

    def __init__(
        self,
        git: Git,
        run_id: str,
        records: Sequence[Known],
        line: Line,
        rewrites: Sequence[tuple[str, str]],
        checkpoint_id: str | None,
    ) -> None:
        self.git, self.run_id, self.line, self.only = git, run_id, line, checkpoint_id
        self.rewrites = rewrites
        self.others = [one for one in records if one.run_id != run_id]
        self.places: list[Found] = []  # of any milestone of the run
        self.notes: list[str] = []
        self.legacy: list[str] = []
        self.every = self._believed(of_run(records, run_id), line.commits)
        self.mirrors = {one.checkpoint_id for one in unlogged(self.every)}
        self.records = [one for one in self.every if one.checkpoint_id not in self.mirrors]
        self._joined: dict[str, str] = {}  # what commits change, but for those that change just what one milestone did
        self._firsts: dict[tuple[str, str | None], int] = {}  # from which milestone on a squash holds everything

    @property
    def wanted(self) -> list[Known]:
        return [one for one in self.records if self.only in (None, one.checkpoint_id)]

    @property
    def found(self) -> list[Found]:
        return [one for one in self.places if self.only in (None, one.checkpoint_id)]

    def look(self) -> None:
        self._note_limits()
        self._add(linked(by_record(self.every, self.line), self.records, self._is_older))
        self._add(by_rewrite(self.every, self.rewrites, self.line))
        self._add(self._alike(list(by_name(self.every, self.run_id, self.line))))
        if self._open():
            self.records = self._believed(self.records, self.there.values())
        for stage in (self._by_patch, self._by_range_diff, self._by_squash, self._by_tree):
            if self._open():
                self._add(stage())

    def _believed(self, records: list[Known], commits: Iterable[Commit]) -> list[Known]:
        """Without the mirrors that git contradicts."""
        false = contradicted(records, {one.sha: one.tree for one in commits})
        for one in false:
            why = f"commit {short(one.sha)} has other files than it says"
            self.notes.append(f"the {one.source} of checkpoint {one.checkpoint_id} is not believed: {why}")
        return [one for one in records if one not in false]

    def _add(self, found: Iterable[Found]) -> None:
        self.places += [doubted(one, UNLOGGED) if one.checkpoint_id in self.mirrors else one for one in found]

    @cached_property
    def there(self) -> dict[str, Commit]:
        """Of the commits that records name, those that git still has."""
        rivals = (one.sha for one in self._others_there[1])
        return commits_of(self.git, (*rivals, *(name for one in self.records for name in (one.sha, one.base or ""))))

    @cached_property
    def _others_there(self) -> tuple[dict[str, frozenset[str]], list[Known]]:
        """Commits here that are surely other runs', with what they were; and the milestones of theirs that are nowhere."""
        sure = [*by_record(self.others, self.line), *by_rewrite(self.others, self.rewrites, self.line)]
        held = {one.sha: frozenset({one.was or one.sha}) for one in sure}
        seen = {one.checkpoint_id for one in sure}
        return held, [one for one in self.others if one.checkpoint_id not in seen][-_MOST_RECORDS:]

    def _open(self) -> list[Known]:
        return above(self.wanted, self.found, self.line)

    def _note_limits(self) -> None:
        if len(self.line.commits) == MOST:
            shas = [one.sha for one in self.records[-_MOST_RECORDS:] if one.sha not in self.line.place]
            mark_beyond(self.git, self.line, list(commits_of(self.git, shas)))
            self.notes.append(f"only the newest {MOST:,} commits were read")
        if is_shallow(self.git):
            self.notes.append("the history is cut off, as in a shallow clone")

    # --- whether a mirror or a name is true

    def _is_older(self, sha: str) -> bool:
        """Whether a commit was there before the run."""
        return sha in self.line.place and all(one.sha != sha for one in self._since)

    def _alike(self, found: list[Found]) -> Iterator[Found]:
        """A rewrite keeps the changes, the files, or author and time. A name on a commit that kept none may be false."""
        logged = {one.checkpoint_id: one for one in self.records if one.source == "log"}
        moved = [(one, logged[one.checkpoint_id]) for one in found if one.was and one.checkpoint_id in logged]
        strange = {one: record for one, record in moved if not self._has_kept(one.sha, record)}
        patches = self._patches_of(list(strange.values()))
        here = self._named([(one.sha, first_parent(self._at(one.sha))) for one in strange])
        for one in found:
            patch = patches.get(strange[one].sha) if one in strange else None
            is_like = one not in strange or (patch is not None and patch == here.get(one.sha))
            yield one if is_like else doubted(one, UNLIKE)

    def _at(self, sha: str) -> Commit:
        return self.line.commits[self.line.place[sha]]

    def _has_kept(self, sha: str, record: Known) -> bool:
        """Its files, or author and time; or there is nothing to compare."""
        now, then = self._at(sha), self.there.get(record.sha)
        if then is not None:
            return now.tree == then.tree or now.stamp == then.stamp
        return now.tree == record.tree or (record.tree is None and record.patch_id is None)

    # --- what commits change

    @cached_property
    def _since(self) -> list[Commit]:
        """The commits that can be milestones of this run: those that are not older than its first."""
        bases = [one.base for one in self.records if one.base] + [one.parent for one in self.records[:1] if one.parent]
        base = next((name for name in bases if name in self.line.place), None)
        if base is None:
            base = next((self._fork(name) for name in bases if name in self.there), None)
        return self.line.since(base)

    def _fork(self, sha: str) -> str | None:
        return fork_of(self.git, sha, self.line.commits[0].sha)

    def _named(self, wanted: list[tuple[str, str | None]]) -> dict[str, str]:
        named = name_patches(self.git, wanted)
        self.notes += named.notes
        return named.ids

    def _by_patch(self) -> Iterator[Found]:
        if len(self._since) > MOST_PATCHES:
            self.notes.append(f"only what the newest {MOST_PATCHES:,} commits change was compared")
        single = set(self._patches.values())
        self._joined = {sha: name for sha, name in self._changes.items() if name not in single}
        return self._equal("patch_id", self._patches, self._changes, self._recent)

    @cached_property
    def _patches(self) -> dict[str, str]:
        return self._patches_of([*self._others_there[1], *self.records])

    @cached_property
    def _recent(self) -> list[Commit]:
        return self._since[:MOST_PATCHES]

    @cached_property
    def _changes(self) -> dict[str, str]:
        return self._named([(one.sha, first_parent(one)) for one in self._recent])

    def _equal(
        self, source: str, values: dict[str, str], changes: dict[str, str], commits: Sequence[Commit]
    ) -> Iterator[Found]:
        """Only for milestones that are no longer where they were; and what still is one of them is not another."""
        moved = [one for one in self.records if one.sha not in self.line]
        return by_content(
            source, moved, values, by_value(changes, [one.sha for one in commits]), self._clues(source, commits)
        )

    def _clues(self, source: str, commits: Sequence[Commit]) -> Clues:
        """What tells these commits apart, for milestones that may be equal."""
        stamps = {one.sha: one.stamp for one in (*self.there.values(), *commits)}
        return Clues(stamps, self._reserved(source, commits), self._others_there[1])

    def _reserved(self, source: str, commits: Iterable[Commit]) -> dict[str, frozenset[str]]:
        """Commits that can only be what certain others were. A squash may bear the name of one that it holds."""
        ours = shas_by_checkpoint(self.records)
        sure = [one for one in self.places if one.confidence != WEAK and one.checkpoint_id in ours]
        stayed = {one.sha: ours[one.checkpoint_id] for one in sure if source not in _JOINED or one.was is None}
        named = reserved_by_name(commits, self.run_id, self.records, self.there, source not in _JOINED)
        return self._others_there[0] | named | stayed

    def _patches_of(self, records: Sequence[Known]) -> dict[str, str]:
        """By commit: as git says now, or, if it no longer has the commit, as was recorded then."""
        recorded = {one.sha: one.patch_id for one in records if one.patch_id}
        alive = {one.sha: self.there[one.sha] for one in records[-_MOST_RECORDS:] if one.sha in self.there}
        return recorded | self._named([(sha, first_parent(commit)) for sha, commit in alive.items()])

    def _by_squash(self) -> Iterator[Found]:
        """Ranges that end in a milestone and begin where the run did, or before another milestone."""
        alive = [one for one in self.records[-_MOST_RANGES:] if one.sha in self.there]
        for start, number in self._starts(alive).items():
            values = self._named([(sha, start) for sha in dict.fromkeys(one.sha for one in alive[number:])])
            if number == 0:
                values |= self._kept(start)
            for one in self._equal("squash", values, self._joined, self._since):
                self._firsts.setdefault((one.sha, one.checkpoint_id), alive[number].index if number else -1)
                yield one

    def _kept(self, start: str) -> dict[str, str]:
        """What changed up to milestones whose commit is gone, but whose files a snapshot of the workspace still keeps."""
        gone = {one.sha: one.tree for one in self.records[-_MOST_RANGES:] if one.sha not in self.there}
        named = name_trees(
            self.git, start, sorted({tree for tree in gone.values() if tree is not None and is_sha(tree)})
        )
        self.notes += named.notes
        return {sha: named.ids[tree] for sha, tree in gone.items() if tree in named.ids}

    def _starts(self, alive: Sequence[Known]) -> dict[str, int]:
        """Where a range may begin, and with which record."""
        bases = [one.base for one in self.records if one.base in self.there] + [
            self._fork(one.sha) for one in alive[-1:]
        ]
        starts = [(base, 0) for base in bases]
        starts += [(first_parent(self.there[one.sha]), number) for number, one in enumerate(alive)]
        found: dict[str, int] = {}
        for start, number in starts:
            if start is not None:
                found.setdefault(start, number)
        return found

    def _by_tree(self) -> Iterator[Found]:
        recorded = {one.sha: one.tree for one in (*self._others_there[1], *self.records) if one.tree}
        recorded |= {sha: commit.tree for sha, commit in self.there.items()}
        changing = list(self.line.changing(self._since))
        return self._equal("tree", recorded, {one.sha: one.tree for one in changing}, changing)

    # --- nearly the same

    def _by_range_diff(self) -> Iterator[Found]:
        alive = [one.sha for one in self._open() if one.sha in self.there]
        base = self._fork(alive[-1]) if alive else None
        if base is None or not self._can_pair(base, alive[-1]):
            return iter(())
        try:
            pairs = list(pair_ranges(self.git, base, alive[-1], self.line.commits[0].sha))
        except EffectError as error:
            self.notes.append(f"nearly equal commits could not be looked for: {snippet(str(error))}")
            return iter(())
        reserved = self._reserved("range_diff", self.line.commits)
        both = [(old, new) for old, new in pairs if old in self.there and old in reserved.get(new, {old})]
        return by_pair(self._open(), [self._pair(*pair) for pair in both])

    def _can_pair(self, base: str, old: str) -> bool:
        if base in (old, self.line.commits[0].sha):
            return False  # nothing came after it on one of the sides
        many = self.git.line("rev-list", "--count", f"--max-count={MOST_PAIRED + 1}", f"{base}..{old}")
        if max(int(many), len(self.line.since(base))) <= MOST_PAIRED:
            return True
        self.notes.append(f"nearly equal commits were not looked for among more than {MOST_PAIRED}")
        return False

    def _pair(self, old: str, new: str) -> Pair:
        """Author and time tell only if no other milestone that is still looked for has the same."""
        stamp = self.there[old].stamp
        placed = {one.checkpoint_id for one in self.places if one.confidence != WEAK}
        sought = {one.sha for one in self.records if one.checkpoint_id not in placed}
        sought |= {one.sha for one in self._others_there[1]}
        others = {self.there[sha].stamp for sha in sought - {old} if sha in self.there}
        return Pair(old, new, stamp == self._at(new).stamp and stamp not in others)

    # --- at the end

    def below(self) -> list[Known]:
        """Milestones below the answer that this history has lost. Where it is cut off, or too long, nobody can say."""
        best = best_of(self.found, self.line)
        is_cut = len(self.line.commits) == MOST or is_shallow(self.git)
        if best is None or self.only is not None or is_cut:
            return []
        first = self.first()
        gone = unseen(best, self.records, self.places, self.line)
        gone = [one for one in gone if first is None or one.index < first]
        if not gone or len(self._since) > MOST_PATCHES:
            return []
        here = {one.checkpoint_id for one in self._equal("patch_id", self._patches, self._changes, self._recent)}
        return [one for one in gone if self._patches.get(one.sha) and one.checkpoint_id not in here]

    def first(self) -> int | None:
        """The lowest milestone that the answer holds beside its own, if it is a squash or has the files of all of them."""
        best = best_of(self.found, self.line)
        if best is None or best.source not in _JOINED:
            return None
        return self._firsts[best.sha, best.checkpoint_id] if best.source == "squash" else -1

    def look_for_legacy(self) -> None:
        if self.found:
            return
        old, why = by_legacy(self.records, self.run_id, self.line)
        if old is not None:
            self.places.append(old)
        elif why:
            self.legacy.append(
                f"Some commits say that they are milestones, but name no run. They are not taken: {why}."
            )

    def nothing(self) -> Position:
        homes = {one.sha: branches_with(self.git, one.sha) for one in self.wanted[-SHOWN:] if one.sha in self.there}
        said = [*self.legacy, *([DEEPEN] if is_shallow(self.git) else [])]
        if not self.wanted and any(name == self.run_id for one in self.line.commits for name, _ in one.named):
            self.notes.append("messages name it, but not for sure which milestone they are of")
        choices = choices_for(self.wanted, self.there, homes, said)
        return nowhere(lost(self.run_id, self.wanted, self.notes), choices)


def first_parent(commit: Commit) -> str | None:
    return commit.parents[0] if commit.parents else None

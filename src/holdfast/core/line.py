"""A history as a value: its commits, newest first, and what can be told from them alone. Never looks at a repository."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from holdfast.core.named import NamedTuple
from holdfast.core.subjects import Said, as_imported, imported_id


class Commit(NamedTuple):
    """One commit of a history. `stamp` is its author and the time of authorship, which survive a rewrite.

    `said` is the one checkpoint that its message names, `named` every run and checkpoint: a squash may name many.
    """

    sha: str
    tree: str
    parents: tuple[str, ...]
    stamp: str
    said: Said | None
    named: frozenset[tuple[str, str | None]] = frozenset()

    def names_another(self, run_id: str) -> bool:
        """Whether its message names a run, and not this one."""
        return bool(self.named) and all(name != run_id for name, _ in self.named)

    def imported_as(self, run_id: str) -> Commit:
        if self.said is None and not self.named:
            return self
        named = frozenset((run_id if imported_id(name) == run_id else name, other) for name, other in self.named)
        return self._replace(said=self.said and as_imported(self.said, run_id), named=named)


class Line:
    """The history of a commit, newest first. `beyond` are commits that it contains, but that lie too far back to be listed."""

    def __init__(self, commits: Sequence[Commit]) -> None:
        self.commits = commits
        self.place = {commit.sha: number for number, commit in enumerate(commits)}
        self.beyond: frozenset[str] = frozenset()

    def __contains__(self, sha: str) -> bool:
        return sha in self.place or sha in self.beyond

    def distance(self, sha: str) -> int:
        return self.place.get(sha, len(self.commits))

    def since(self, base: str | None) -> list[Commit]:
        """The commits that do not belong to the history of `base`, newest first; all, if it is not in this one."""
        old = self._history(base) if base in self.place else set()
        return [commit for commit in self.commits if commit.sha not in old]

    def _history(self, sha: str | None) -> set[str]:
        seen: set[str] = set()
        waiting = [sha] if sha else []
        while waiting:
            name = waiting.pop()
            if name not in seen and name in self.place:
                seen.add(name)
                waiting.extend(self.commits[self.place[name]].parents)
        return seen

    def changing(self, commits: Iterable[Commit]) -> Iterator[Commit]:
        """Those that changed a file: a commit without a change says nothing by having the files of its parent."""
        for commit in commits:
            before = self.place.get(commit.parents[0]) if commit.parents else None
            if before is None or self.commits[before].tree != commit.tree:
                yield commit

    def after(self, sha: str) -> Iterator[Commit]:
        """The commits whose history has this one in it, oldest first."""
        built = {sha}
        for commit in reversed(self.commits):
            if not built.isdisjoint(commit.parents):
                built.add(commit.sha)
                yield commit

    def unexplained(self, sha: str) -> int:
        """How many commits after this one changed something and name no checkpoint: each may be one that lost its name."""
        alone = (commit for commit in self.after(sha) if commit.said is None and len(commit.parents) == 1)
        return sum(1 for _ in self.changing(alone))

    def imported_as(self, run_id: str) -> Line:
        """The same history for a run that was taken in from Runr: subjects that name it name it by its id here."""
        line = Line([one.imported_as(run_id) for one in self.commits])
        line.beyond = self.beyond
        return line

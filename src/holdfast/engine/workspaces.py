"""Checkpoints of a repository: the place in the log and the workspace as one fact. Never says complete what is not there.

The intent is in the log before anything is made. Then come the snapshot, for a milestone the commit and its sidecar, and
only then `CheckpointComplete`. A process that is killed in between leaves an intent; the next one looks at what was made,
completes it or gives it up, and says which. The user's files, index and HEAD are not touched on the way, but for the
milestone's own commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from holdfast.core.errors import HoldfastError, UsageError
from holdfast.core.events import (
    CheckpointAbandoned,
    CheckpointComplete,
    CheckpointSidecarWriteFailed,
    CheckpointStarted,
    EnvironmentSeen,
    Event,
)
from holdfast.core.guards import Judgement, Scope
from holdfast.core.named import NamedTuple
from holdfast.core.repo_drift import already, next_index
from holdfast.core.shapes import RUNNING, WorkspaceState
from holdfast.core.sidecar import MAX_NUMBER, SCHEMA_VERSION, Sidecar
from holdfast.core.subjects import PREFIX, with_trailers
from holdfast.engine.arrival import Arrival
from holdfast.engine.book import Book, Part
from holdfast.engine.drifting import Drifting
from holdfast.ports import Snapshot, Workspace

_SHOWN = 12


class Mark(NamedTuple):
    """A checkpoint of a repository, as its author gets to see it. The last three are known when it is taken, not later."""

    checkpoint_id: str
    snapshot: str
    commit: str | None
    index: int | None  # type: ignore[assignment]  # a tuple has a method of this name; nobody calls it here
    sidecar_written: bool | None
    left_out: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()  # files that git ignores, and that the snapshot holds
    ignored_outside: int = 0  # files that git ignores, outside of what the scope of the run allows


class Wanted(NamedTuple):
    """What a checkpoint is to be. Without `is_milestone` it is a snapshot only."""

    title: str
    is_milestone: bool = False
    index: int | None = None  # type: ignore[assignment]  # as above
    tier: str | None = None
    commands: Sequence[str] = ()
    body: str = ""


class Workspaces:
    """The checkpoints that one run takes of one work tree."""

    def __init__(self, book: Book, drifting: Drifting, workspace: Workspace) -> None:
        self._book = book
        self._workspace = workspace
        self._arrival = Arrival(book, drifting, workspace)

    def begin(self, scope: Scope | None) -> Part:
        """Mend what a killed process left, see whether the repository is still the one that the log knows, and go on."""
        book = self._book
        yield from book.boundary()
        yield book.checkpoints.acquire
        try:
            yield from self._mend()
            if book.state.status == RUNNING:
                yield from self._arrival.begin(scope)
        finally:
            book.checkpoints.release()

    # --- taking one

    def snapshot(self, name: str) -> Part:
        """Keep the workspace under a name of its own. Done once: when the run goes on, it is remembered."""
        return (yield from self._take(Wanted(name)))

    def milestone(
        self, title: str, index: int | None, tier: str | None, commands: Sequence[str] | None, body: str
    ) -> Part:
        """Keep the workspace and commit it, with trailers and a sidecar. Done once per title."""
        if isinstance(commands, str):
            raise UsageError(
                "The commands of a verification are a list.", advice="Write ['make test'], not 'make test'."
            )
        return (yield from self._take(Wanted(title, True, index, tier, tuple(commands or ()), body)))

    def _take(self, wanted: Wanted) -> Part:
        book = self._book
        yield from book.boundary()
        book.claim(book.redacted(wanted.title))
        yield book.checkpoints.acquire  # a run makes one checkpoint at a time
        try:
            yield from self._mend()
            known = self._made_before(wanted)
            return known if known is not None else (yield from self._begin(wanted))
        finally:
            book.checkpoints.release()

    def _made_before(self, wanted: Wanted) -> Mark | None:
        """A run that goes on remembers; a visitor who names a title again means a new checkpoint."""
        title, top = self._book.redacted(wanted.title), self._workspace.top
        for checkpoint_id, known in self._book.state.workspaces.items() if self._book.replays else ():
            same = known.title == title and (known.index is not None) == wanted.is_milestone and known.repo == top
            if known.complete and same:
                return _mark(checkpoint_id, known)
        return None

    def _begin(self, wanted: Wanted) -> Part:
        book, workspace = self._book, self._workspace
        book.must_go_on()
        head, branch = workspace.where()
        number = None
        leave: frozenset[str] = frozenset()
        if wanted.is_milestone:
            workspace.check_committable(branch)
            number = self._number(wanted.index)
            leave = yield from self._arrival.check_scope()
        checkpoint_id, known = book.options.new_id(), book.state.repositories.get(workspace.top)
        started = CheckpointStarted(
            checkpoint_id=checkpoint_id,
            repo=workspace.top,
            index=number,
            title=book.redacted(wanted.title),  # it stands in a commit and in a file
            branch=branch,
            parent=head,
            base=(known.head if known is not None else None) or head,
            created_at=book.log.world.now(),
            tier=None if wanted.tier is None else book.redacted(wanted.tier),
            verification_commands=tuple(map(book.redacted, wanted.commands)),
            body=book.redacted(wanted.body),
        )
        yield partial(book.record, started)
        return (yield from self._make(checkpoint_id, leave))

    def _number(self, given: int | None) -> int:
        following = next_index(self._book.state, self._workspace.top)
        if given is not None and given < following:
            raise UsageError(
                f"The next milestone has an index of {following} or more, not {given}.", advice="Leave it out."
            )
        number = following if given is None else given
        if number > MAX_NUMBER:  # in the log it could neither be completed nor given up
            problem = f"{number!r:.40} cannot be the number of a milestone; the last is {MAX_NUMBER}."
            raise UsageError(problem, advice="Give a smaller one (`index`, or --index).")
        return number

    def outside(self, since: str) -> list[str]:
        """What was touched since a commit, committed or not, that the scope does not allow."""
        return self._arrival.outside(since)[0]

    def check_scope(self) -> Part:
        """Stop the run if something was touched that its scope does not allow."""
        yield from self._book.boundary()
        return (yield from self._arrival.check_scope())

    # --- making it

    def _make(self, checkpoint_id: str, leave: frozenset[str]) -> Part:
        book, workspace = self._book, self._workspace
        known, commit = book.state.workspaces[checkpoint_id], None
        try:
            made = workspace.snapshot(checkpoint_id, book.log.world.now())
            if known.index is not None:
                commit = workspace.commit(*self._order(checkpoint_id, known), leave)
        except (HoldfastError, OSError) as error:
            if (yield from self._was_it_made(checkpoint_id, known)):
                return _mark(checkpoint_id, book.state.workspaces[checkpoint_id])
            yield partial(book.record, CheckpointAbandoned(checkpoint_id=checkpoint_id, why=book.said(error)))
            raise
        return (yield from self._complete(checkpoint_id, known, made, commit))

    def _order(self, checkpoint_id: str, known: WorkspaceState) -> tuple[str, str, str | None, str | None]:
        whole = f"{PREFIX}{known.title}\n\n{known.body}"
        message = with_trailers(whole, self._book.log.run_id, checkpoint_id, known.index or 0)
        return checkpoint_id, message, known.branch, known.parent

    def _complete(
        self,
        checkpoint_id: str,
        known: WorkspaceState,
        made: Snapshot,
        commit: str | None,
        found: Sequence[Event] = (),
    ) -> Part:
        book, workspace = self._book, self._workspace
        tree = made.tree if commit is None else workspace.tree_of(commit)
        patch = None if commit is None or commit == known.parent else workspace.patch_id(commit)
        more: list[Event] = []
        left_out, judged = made.left_out, Judgement()
        if commit is not None:
            left_out, judged = (*left_out, *workspace.odd_files()), self._arrival.judged
            whole = msgspec.structs.replace(known, commit=commit, tree=tree, patch_id=patch)
            more = [*self._mirror(sidecar_of(book.log.run_id, checkpoint_id, whole, book.log.world.now()))]
        complete = CheckpointComplete(
            checkpoint_id=checkpoint_id,
            sidecar_written=None if commit is None else not more,
            snapshot=made.sha,
            commit=commit,
            tree=tree,
            patch_id=patch,
            left_out=tuple(map(book.short, (*left_out[:_SHOWN], *judged.let_pass()))),
        )
        state = yield partial(book.record, *found, *more, complete, *self._surroundings(commit))
        mark = _mark(checkpoint_id, state.workspaces[checkpoint_id])
        return mark._replace(left_out=left_out, ignored=made.ignored, ignored_outside=judged.ignored_outside)

    def _surroundings(self, commit: str | None) -> list[Event]:
        """A lockfile that the run itself committed is what it knows from now on."""
        known = self._book.state.repositories.get(self._workspace.top)
        if commit is None or known is None or self._book.state.status != RUNNING:
            return []
        digest = self._arrival.fingerprint(known.artifact)
        return [] if digest == known.artifact else [EnvironmentSeen(artifact=digest, repo=self._workspace.top)]

    def _mirror(self, sidecar: Sidecar) -> list[Event]:
        """Best effort: a mirror that cannot be written is an event, and the run goes on."""
        try:
            self._workspace.write_sidecar(sidecar)
        except (OSError, HoldfastError) as error:
            path = self._workspace.sidecar_path(sidecar.checkpoint_id)
            said = self._book.said(error)
            return [CheckpointSidecarWriteFailed(checkpoint_id=sidecar.checkpoint_id, path=path, error=said)]
        return []

    # --- mending

    def _mend(self) -> Part:
        """A checkpoint was begun, and whoever made it did not come to an end: complete what is there, or give it up."""
        checkpoint_id = self._book.state.checkpoint_open
        if checkpoint_id is None:
            return
        known = self._book.state.workspaces[checkpoint_id]
        if known.repo != self._workspace.top:
            yield from self._mend_elsewhere(checkpoint_id, known)
        elif not (yield from self._was_it_made(checkpoint_id, known, mended=True)):
            kept = self._workspace.kept(checkpoint_id) is not None
            why = "before the commit" if kept else "before a snapshot of it was kept"
            more = f"; the workspace is kept: `holdfast restore {checkpoint_id}`" if kept else ""
            given_up = CheckpointAbandoned(checkpoint_id=checkpoint_id, why=f"its process ended {why}{more}")
            yield partial(self._book.record, given_up)

    def _mend_elsewhere(self, checkpoint_id: str, known: WorkspaceState) -> Part:
        """It was being made in another repository: that one is asked, if it is still there."""
        book = self._book
        try:
            assert book.options.open_workspace is not None
            there = book.options.open_workspace(known.repo, (), book.log.store)
        except HoldfastError as error:
            yield partial(book.record, CheckpointAbandoned(checkpoint_id=checkpoint_id, why=book.said(error)))
            return
        if there.top != known.repo:
            why = f"{known.repo} is no longer the top of its work tree"
            yield partial(book.record, CheckpointAbandoned(checkpoint_id=checkpoint_id, why=why))
            return
        yield from Workspaces(book, Drifting(book), there)._mend()

    def _was_it_made(self, checkpoint_id: str, known: WorkspaceState, *, mended: bool = False) -> Part:
        """Look at what is there, and complete it if it is whole. Raises if nobody can say."""
        made = self._workspace.kept(checkpoint_id)
        if made is None:
            return False
        commit = None
        if known.index is not None:
            commit = self._workspace.committed(*self._order(checkpoint_id, known))
            if commit is None:
                return False
        found = [already(checkpoint_id, known, commit)] if mended and commit is not None else []
        yield from self._complete(checkpoint_id, known, made, commit, found)
        return True


def sidecar_of(run_id: str, checkpoint_id: str, known: WorkspaceState, now: str) -> Sidecar:
    """The mirror of a milestone. What is not known is left out."""
    return Sidecar(
        schema_version=SCHEMA_VERSION,
        checkpoint_id=checkpoint_id,
        sha=known.commit or "",
        run_id=run_id,
        milestone_index=known.index or 0,
        milestone_title=known.title,
        created_at=known.created_at or now,
        tree=known.tree,
        patch_id=known.patch_id,
        branch=known.branch,
        parent=known.parent,
        base=known.base,
        seq=known.seq,
        tier=known.tier,
        verification_commands=known.verification_commands or None,
    )


def _mark(checkpoint_id: str, known: WorkspaceState) -> Mark:
    return Mark(checkpoint_id, known.snapshot or "", known.commit, known.index, known.sidecar_written)

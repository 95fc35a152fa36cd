"""Checkpoints of a repository: the place in the log and the workspace as one fact. Never says complete what is not there.

The intent is in the log before anything is made. Then come the snapshot, for a milestone the commit and its sidecar, and
only then `CheckpointComplete`. A process that is killed in between leaves an intent; the next one looks at what was made,
completes it or gives it up, and says which. The user's files, index and HEAD are not touched on the way, but for the
milestone's own commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from holdfast.core.errors import HoldfastError, UsageError
from holdfast.core.events import (
    CheckpointAbandoned,
    CheckpointComplete,
    CheckpointSidecarWriteFailed,
    CheckpointStarted,
    EnvironmentSeen,
    Event,
    ResumeCheckpointSelected,
    ScopeDeclared,
    SnapshotKept,
)
from holdfast.core.guards import Scope, Touched, check, judge
from holdfast.core.position import Known
from holdfast.core.repo_drift import corrected, drifts, last_of, next_index, records
from holdfast.core.shapes import RUNNING, WorkspaceState
from holdfast.core.sidecar import SCHEMA_VERSION, Sidecar
from holdfast.core.subjects import PREFIX, with_trailers
from holdfast.engine.book import Book, Part
from holdfast.engine.drifting import Drifting, read_artifact
from holdfast.ports import Snapshot, Workspace

_SHOWN = 12


class Mark(NamedTuple):
    """A checkpoint of a repository, as its author gets to see it."""

    checkpoint_id: str
    snapshot: str
    commit: str | None
    index: int | None  # type: ignore[assignment]  # a tuple has a method of this name; nobody calls it here
    sidecar_written: bool | None


class Workspaces:
    """The checkpoints that one run takes of one work tree."""

    def __init__(
        self, book: Book, drifting: Drifting, workspace: Workspace, new_id: Callable[[], str], *, keep_aside: bool
    ) -> None:
        self._book = book
        self._drifting = drifting
        self._workspace = workspace
        self._new_id = new_id
        self._keep_aside = keep_aside

    # --- beginning

    def begin(self, scope: Scope | None) -> Part:
        """Mend what a killed process left, see whether the repository is still the one that the log knows, and go on."""
        book = self._book
        yield from book.boundary()
        if book.state.checkpoint_open is not None:
            yield from self.mend()
        if book.state.status != RUNNING:
            return
        known = book.state.environments.get(self._workspace.top)
        if known is None:
            yield from self._first_look()
        elif book.resumed:
            yield from self._compare(known[0])
        if scope is not None and scope != (book.state.allow, book.state.deny):
            yield from self._declare(scope)

    def _declare(self, scope: Scope) -> Part:
        """From here on the run answers for what it touches; what was touched before is written down."""
        check(scope)
        touched, _ = self._workspace.touched(self._base() or self._workspace.where()[0])
        digest = self._book.log.store.put_artifact(msgspec.json.encode([printable(one) for one in touched]))
        yield partial(self._book.record, ScopeDeclared(allow=scope.allow, deny=scope.deny, before=digest))

    def _first_look(self) -> Part:
        book, workspace = self._book, self._workspace
        body = msgspec.json.encode(workspace.environment(), order="sorted")
        digest = book.log.store.put_artifact(book.log.redact.body(body))
        yield partial(book.record, EnvironmentSeen(artifact=digest, repo=workspace.top, head=workspace.where()[0]))
        if book.options.recover and not book.state.workspaces:
            yield from self._recover()

    def _recover(self) -> Part:
        """The log is new, but somebody asked for this run by its id: what mirrors know of it is taken over, and said to be."""
        found = self._workspace.mirrored(self._book.log.run_id)
        if not found:
            return
        last, top = found[-1], self._workspace.top
        events: list[Event] = [
            ResumeCheckpointSelected(
                source=last.source,
                confidence="strong",
                sha=last.sha,
                index=last.index,
                checkpoint_id=last.checkpoint_id,
                why=f"there was no log; {len(found)} milestones were found by sidecars and trailers",
            )
        ]
        for one in found:
            events += taken_over(one, top)
        yield partial(self._book.record, *events)

    def _compare(self, environment: str) -> Part:
        book, state = self._book, self._book.state
        before = read_artifact(book, environment)
        last = last_of(state, self._workspace.top)
        seen = self._workspace.look(state.run_id, records(state), before, None if last is None else last.snapshot)
        position = seen.position
        if records(state) or position.sha is not None:
            events: list[Event] = [
                ResumeCheckpointSelected(
                    source=position.source,
                    confidence=position.confidence,
                    sha=position.sha,
                    index=position.index,
                    checkpoint_id=position.checkpoint_id,
                    was=position.was,
                    why=position.why,
                )
            ]
            fixed = corrected(state, position)
            yield partial(book.record, *events, *([fixed] if fixed is not None else []))
        for found in drifts(state, self._workspace.top, seen, before):
            if found.drift == "tree" and self._keep_aside:
                yield from self._set_aside(len(seen.changed))
            else:
                yield from self._drifting.met(found.drift, found.subject, found.was, found.now, found.lines)

    def _set_aside(self, paths: int) -> Part:
        book, checkpoint_id = self._book, self._new_id()
        made = self._workspace.snapshot(checkpoint_id, book.log.world.now())
        kept = SnapshotKept(checkpoint_id=checkpoint_id, snapshot=made.sha, repo=self._workspace.top, paths=paths)
        yield partial(book.record, kept)
        book.options.tell(f"What was in the work tree is kept: `holdfast restore {checkpoint_id}` brings it back.")

    # --- taking one

    def snapshot(self, name: str) -> Part:
        """Keep the workspace under a name of its own. Done once: when the run goes on, it is remembered."""
        return (yield from self._take(name, None))

    def milestone(self, title: str, index: int | None, tier: str | None, commands: Sequence[str] | None) -> Part:
        """Keep the workspace and commit it, with trailers and a sidecar. Done once per title."""
        if index is not None and index < 0:
            raise UsageError(f"A milestone has an index of 0 or more, not {index}.")
        return (yield from self._take(title, index, tier, commands, is_milestone=True))

    def _take(
        self,
        title: str,
        index: int | None,
        tier: str | None = None,
        commands: Sequence[str] | None = None,
        *,
        is_milestone: bool = False,
    ) -> Part:
        book = self._book
        yield from book.boundary()
        book.claim(title)
        title = book.redacted(title)  # it stands in a commit and in a file
        known = self._made_before(title, is_milestone)
        if known is not None:
            return known
        book.must_go_on()
        if is_milestone:
            yield from self._check_scope()
        checkpoint_id, (head, branch) = self._new_id(), self._workspace.where()
        number = (next_index(book.state) if index is None else index) if is_milestone else None
        started = CheckpointStarted(
            checkpoint_id=checkpoint_id,
            repo=self._workspace.top,
            index=number,
            title=title,
            branch=branch,
            parent=head,
            base=self._base() or head,
        )
        yield partial(book.record, started)
        return (yield from self._make(checkpoint_id, tier, commands))

    def _made_before(self, title: str, is_milestone: bool) -> Mark | None:
        for checkpoint_id, known in self._book.state.workspaces.items():
            if known.complete and known.title == title and (known.index is not None) == is_milestone:
                return _mark(checkpoint_id, known)
        return None

    def _base(self) -> str | None:
        """The commit that was checked out when the run first came here; None if there was none, or it is not known."""
        return self._book.state.environments.get(self._workspace.top, (None, None))[1]

    def _check_scope(self) -> Part:
        book, state = self._book, self._book.state
        if not (state.allow or state.deny):
            return
        touched, _ = self._workspace.touched(self._base() or self._workspace.where()[0])
        before = {tuple(row) for row in read_artifact(book, state.touched_before) or ()}
        since = [one for one in touched if not one.mark or printable(one) not in before]
        found = judge(Scope(state.allow, state.deny), since)
        if found.violations:
            lines = [f"{path}: {why}" for path, why in found.violations[:_SHOWN]]
            raise (yield from book.stop("guard_violation", *lines))

    # --- making it

    def _make(self, checkpoint_id: str, tier: str | None = None, commands: Sequence[str] | None = None) -> Part:
        book, workspace = self._book, self._workspace
        known = book.state.workspaces[checkpoint_id]
        try:
            made = workspace.snapshot(checkpoint_id, book.log.world.now())
            commit = None if known.index is None else workspace.commit(*self._order(checkpoint_id, known))
        except (HoldfastError, OSError) as error:
            given_up = CheckpointAbandoned(checkpoint_id=checkpoint_id, why=book.said(error))
            yield partial(book.record, given_up)
            raise
        return (yield from self._complete(checkpoint_id, known, made, commit, tier, commands))

    def _order(self, checkpoint_id: str, known: WorkspaceState) -> tuple[str, str, str | None, str | None]:
        message = with_trailers(PREFIX + known.title, self._book.log.run_id, checkpoint_id, known.index or 0)
        return checkpoint_id, message, known.branch, known.parent

    def _complete(
        self,
        checkpoint_id: str,
        known: WorkspaceState,
        made: Snapshot,
        commit: str | None,
        tier: str | None,
        commands: Sequence[str] | None,
    ) -> Part:
        book = self._book
        tree = made.tree if commit is None else self._workspace.tree_of(commit)
        patch = None if commit is None or commit == known.parent else self._workspace.patch_id(commit)
        failed = None
        if commit is not None:
            whole = msgspec.structs.replace(known, commit=commit, tree=tree, patch_id=patch)
            commands = [book.redacted(line) for line in commands or ()]
            failed = self._mirror(
                sidecar_of(book.log.run_id, checkpoint_id, whole, book.log.world.now(), tier, commands)
            )
        complete = CheckpointComplete(
            checkpoint_id=checkpoint_id,
            sidecar_written=None if commit is None else failed is None,
            snapshot=made.sha,
            commit=commit,
            tree=tree,
            patch_id=patch,
            left_out=tuple(map(book.short, made.left_out[:_SHOWN])),
        )
        state = yield partial(book.record, *([failed] if failed is not None else []), complete)
        return _mark(checkpoint_id, state.workspaces[checkpoint_id])

    def _mirror(self, sidecar: Sidecar) -> CheckpointSidecarWriteFailed | None:
        """Best effort: a mirror that cannot be written is an event, and the run goes on."""
        try:
            self._workspace.write_sidecar(sidecar)
        except (OSError, HoldfastError) as error:
            path = self._workspace.sidecar_path(sidecar.checkpoint_id)
            said = self._book.said(error)
            return CheckpointSidecarWriteFailed(checkpoint_id=sidecar.checkpoint_id, path=path, error=said)
        return None

    # --- mending

    def mend(self) -> Part:
        """A checkpoint was begun, and the process that made it is gone: complete what is there, or give it up."""
        book, workspace = self._book, self._workspace
        checkpoint_id = book.state.checkpoint_open
        assert checkpoint_id is not None
        known = book.state.workspaces[checkpoint_id]
        made = workspace.kept(checkpoint_id)
        if made is None:
            why = "no snapshot of it was kept before its process ended"
        elif known.index is None:
            yield from self._complete(checkpoint_id, known, made, None, None, None)
            return
        elif (commit := workspace.committed(*self._order(checkpoint_id, known))) is not None:
            yield from self._complete(checkpoint_id, known, made, commit, None, None)
            return
        else:
            why = f"its process ended before the commit; the workspace is kept: `holdfast restore {checkpoint_id}`"
        yield partial(book.record, CheckpointAbandoned(checkpoint_id=checkpoint_id, why=why))


def taken_over(one: Known, top: str) -> tuple[CheckpointStarted, CheckpointComplete]:
    """A milestone that only mirrors knew, as the events that a log would have of it."""
    return (
        CheckpointStarted(
            checkpoint_id=one.checkpoint_id,
            repo=top,
            index=one.index,
            title=one.title,
            branch=one.branch,
            parent=one.parent,
            base=one.base,
        ),
        CheckpointComplete(
            checkpoint_id=one.checkpoint_id,
            commit=one.sha,
            tree=one.tree,
            patch_id=one.patch_id,
            sidecar_written=one.source == "sidecar",
        ),
    )


def printable(one: Touched) -> tuple[Any, ...]:
    """As JSON can hold it: a name may be bytes that are no text."""
    return tuple(
        value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value for value in one
    )


def sidecar_of(
    run_id: str,
    checkpoint_id: str,
    known: WorkspaceState,
    now: str,
    tier: str | None = None,
    commands: Sequence[str] | None = None,
) -> Sidecar:
    """The mirror of a milestone. What is not known is left out."""
    return Sidecar(
        schema_version=SCHEMA_VERSION,
        checkpoint_id=checkpoint_id,
        sha=known.commit or "",
        run_id=run_id,
        milestone_index=known.index or 0,
        milestone_title=known.title,
        created_at=now,
        tree=known.tree,
        patch_id=known.patch_id,
        branch=known.branch,
        parent=known.parent,
        base=known.base,
        seq=known.seq,
        tier=tier,
        verification_commands=tuple(commands) if commands else None,
    )


def _mark(checkpoint_id: str, known: WorkspaceState) -> Mark:
    return Mark(checkpoint_id, known.snapshot or "", known.commit, known.index, known.sidecar_written)

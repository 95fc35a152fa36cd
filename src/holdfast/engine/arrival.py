"""A run comes to a repository: is it still the one that the log knows? Compares, takes over what only mirrors know, and asks.

Nothing in the repository is changed here, but for a snapshot of uncommitted work where that was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.core.events import (
    CheckpointComplete,
    CheckpointStarted,
    EnvironmentSeen,
    Event,
    ResumeCheckpointSelected,
    ScopeDeclared,
    SnapshotKept,
)
from holdfast.core.guards import Judgement, Scope, Touched, check, judge
from holdfast.core.position import BY_CONTENT, DEEPEN, STRONG, WEAK, Known, Position, nameless
from holdfast.core.repo_drift import (
    BASE,
    TREE,
    Found,
    Seen,
    corrected,
    drifts,
    is_unlogged,
    landmarks,
    last_of,
    milestones,
    next_index,
    not_ours,
    records,
    seen_id,
    uncommitted,
)
from holdfast.core.shapes import RepositoryState, RunState
from holdfast.core.subjects import is_imported
from holdfast.engine.book import Book, Part
from holdfast.engine.drifting import Drifting, read_artifact
from holdfast.engine.others import milestones_of_others
from holdfast.engine.own_files import written_by_others
from holdfast.engine.stopping import PlanChanged
from holdfast.ports import Workspace

_SHOWN = 12
_CUT = Found("commit", "the last milestone", "", "", ("The position of the run is unknown.", DEEPEN))
OLDER = "the log is older than the repository"
_FIRST = Found("tree", "the work tree", "", "", ())


class Arrival:
    """What one run has to do with one work tree before it takes checkpoints of it."""

    def __init__(self, book: Book, drifting: Drifting, workspace: Workspace) -> None:
        self._book = book
        self._drifting = drifting
        self._workspace = workspace
        self._head = workspace.where()[0]
        self._begun: tuple[tuple[str, ...], str | None] = (
            (),
            None,
        )  # where the run's own commits begin, by what is known
        self.judged = Judgement()  # by the last look at the scope

    @property
    def _known(self) -> RepositoryState | None:
        return self._book.state.repositories.get(self._workspace.top)

    def begin(self, scope: Scope | None) -> Part:
        book, top = self._book, self._workspace.top
        if scope is not None:
            check(scope)
        if top not in book.arrived:
            yield from self._arrive()
            book.arrived.add(top)
        known = self._known
        if scope is not None and known is not None and scope != (known.allow, known.deny):
            yield from self._declare(scope, known)

    def _arrive(self) -> Part:
        formerly = self._formerly()
        if self._known is None and is_imported(self._book.log.run_id, self._book.state.mission_id):
            yield from self._take_up()
        elif self._known is None and formerly is None:
            yield from self._first_look()
        elif self._book.resumed:
            yield from self._compare(formerly or self._workspace.top)
            if formerly is not None:
                yield from self._write_down(formerly)
            yield from self._account()

    def _formerly(self) -> str | None:
        """The folder under which the log knows this repository, if it was moved or is another work tree of it."""
        if self._known is not None or not self._book.resumed:
            return None
        state, has = self._book.state, self._workspace.has
        return next((repo for repo in state.repositories if any(map(has, landmarks(state, repo)))), None)

    def _write_down(self, formerly: str | None = None) -> Part:
        yield partial(self._book.record, self._surroundings(formerly))

    def _surroundings(self, formerly: str | None = None) -> Event:
        workspace = self._workspace
        head, branch = workspace.where()
        digest = self.fingerprint(tree=uncommitted(workspace.changed()))
        return EnvironmentSeen(artifact=digest, repo=workspace.top, head=head, branch=branch, formerly=formerly)

    def fingerprint(self, before: str | None = None, tree: str | None = None) -> str:
        """The artifact that holds what surrounds the repository now; its base branches stay as they were until merged."""
        was = read_artifact(self._book, before) or {}
        now = self._workspace.environment(was)
        now |= {} if tree is None else {TREE: tree}
        was |= self._workspace.renamed(was, now)
        for name in now.keys() & was.keys():
            if name.startswith(BASE) and now[name] != was[name] and self._workspace.common(now[name]) != now[name]:
                now[name] = was[name]
        body = msgspec.json.encode(now, order="sorted")
        return self._book.log.store.put_artifact(self._book.log.redact.body(body))

    # --- a repository that the log does not know

    def _first_look(self) -> Part:
        alone = self._book.options.recover and not self._book.state.workspaces
        mirrored, doubts = self._workspace.recovered(self._book.log.run_id) if alone else ([], ())
        if self._workspace.is_shallow():
            yield from self._cut_off(mirrored)
        elif doubts:
            yield from self._met(_CUT._replace(lines=doubts), 0)
        taken = self._taking_over(mirrored, "there was no log") if alone else []
        yield partial(
            self._book.record, self._surroundings(), *taken
        )  # at once: later, the log would be one without them
        if alone:
            changed = self._workspace.changed() if self._book.state.workspaces else ()
            if changed:
                yield from self._met(_FIRST._replace(lines=tuple(changed[:_SHOWN])), len(changed))

    def _cut_off(self, mirrored: list[Known]) -> Part:
        """Milestones that are known to be, and not seen here, would be made a second time: a person decides."""
        book, seen = self._book, {one.index for one in mirrored}
        made = {one.repo for _, one in milestones(book.state)} if book.resumed else ()
        if any(map(self._may_be_this_one, made)) or {*range(max(seen, default=0))} - seen:
            yield from self._met(_CUT, 0)
        elif book.options.recover and not (made or mirrored):
            book.options.tell(f"Whether this run has milestones is unknown. {DEEPEN}")

    def _may_be_this_one(self, repo: str) -> bool:
        """Whether what the log knows as `repo` may be here, cut off: not if it stands where it stood and knows nothing of us."""
        book = self._book
        assert book.options.open_workspace is not None
        try:
            there = book.options.open_workspace(repo, (), book.log.store)
        except HoldfastError:
            return True
        is_it = there.top == repo and any(map(there.has, landmarks(book.state, repo)))
        return not is_it or there.has(self._head or "")

    def _take_up(self) -> Part:
        """A run that was taken in from Runr comes to its repository for the first time since."""
        made = milestones(self._book.state)
        there = next((one.repo for _, one in made if self._workspace.has(one.commit or "")), self._workspace.top)
        yield from self._write_down(None if there == self._workspace.top else there)
        yield from self._compare(self._workspace.top)

    def _take_over(self, found: list[Known], because: str) -> Part:
        """What only mirrors know of this run comes into its log, which says so."""
        if found:
            yield partial(self._book.record, *self._taking_over(found, because))

    def _taking_over(self, found: list[Known], because: str) -> list[Event]:
        if not found:
            return []
        last = found[-1]
        gap = self._workspace.unexplained(last.sha)
        why = f"{because}; {len(found)} milestones were found by sidecars and trailers"
        position = Position(
            last.source,
            WEAK if gap and last.source != "sidecar" else STRONG,
            *(last.sha, last.index, last.checkpoint_id, None),
            f"{why}; {nameless(gap)}" if gap else why,
            (),
        )
        return [selected(position), *(event for one in found for event in taken_over(one, self._workspace.top))]

    # --- one that it knows

    def _compare(self, repo: str) -> Part:
        book, state = self._book, self._book.state
        before = read_artifact(book, state.repositories[repo].artifact)
        others = partial(milestones_of_others, book.log.store, state.run_id)
        seen = look(self._workspace, state, repo, before, others, book.options.legacy)
        strange = is_unlogged(state, repo, seen.position)
        if records(state, repo) or seen.position.sha is not None:
            fixed = None if strange else corrected(state, repo, seen.position)
            yield partial(book.record, selected(seen.position), *([fixed] if fixed is not None else []))
        is_ahead = (seen.position.index or 0) >= next_index(state, repo) and seen.position.confidence != "weak"
        if is_ahead and not strange:
            yield from self._take_over(self._newer(), OLDER)
        approved = self._approved(repo, seen, before)
        for found in drifts(state, repo, seen, before):
            yield from self._met(found, len(seen.changed), approved)
        if seen.position.beyond or strange:  # somebody said that they are this run's
            yield from self._catch_up(repo)

    def _newer(self) -> list[Known]:
        state = self._book.state
        known = {name for name, _ in milestones(state)}
        return [one for one in self._workspace.recovered(state.run_id)[0] if one.checkpoint_id not in known]

    def _catch_up(self, repo: str) -> Part:
        """Mirrors know later milestones than the log, or any where it knows none: an old copy of the log was put back."""
        for last in (newer := self._newer())[-1:]:
            at = Position(last.source, STRONG, last.sha, last.index, last.checkpoint_id, None, OLDER, ())
            fixed = corrected(self._book.state, repo, at)
            yield partial(self._book.record, *([fixed] if fixed is not None else []))
            yield from self._take_over(newer, OLDER)

    def _approved(self, repo: str, seen: Seen, before: Mapping[str, str] | None) -> bool:
        """Whether somebody approved of going on with the repository just as it is."""
        approved = self._book.options.approved or ""
        if "." not in approved:
            return False
        present = seen_id(drifts(self._book.state, repo, seen, before), seen)
        if approved.partition(".")[2] != present:
            raise PlanChanged(self._book.log.run_id, approved, f"{approved.partition('.')[0]}.{present}")
        return True

    def _met(self, found: Found, changed: int, approved: bool = False) -> Part:
        if found.drift == "tree" and self._book.options.keep_aside:
            yield from self._set_aside(changed)
        else:
            lines = (found.drift, found.subject, found.was, found.now, found.lines)
            yield from self._drifting.met(*lines, approved=approved)

    def _set_aside(self, paths: int) -> Part:
        book, checkpoint_id = self._book, self._book.options.new_id()
        made = self._workspace.snapshot(checkpoint_id, book.log.world.now())
        kept = SnapshotKept(checkpoint_id=checkpoint_id, snapshot=made.sha, repo=self._workspace.top, paths=paths)
        yield partial(book.record, kept)
        lost = "; not kept: " + ", ".join(made.left_out[:_SHOWN]) if made.left_out else ""
        book.options.tell(
            f"What was in the work tree is kept: `holdfast restore {checkpoint_id}` brings it back{lost}."
        )

    # --- the scope

    def _declare(self, scope: Scope, known: RepositoryState) -> Part:
        """From here on the run answers for what it touches. What was touched before its first scope is written down once."""
        before, since = known.touched_before, known.scope_since
        if before is None:
            since = self._head
            touched, _ = self._workspace.touched(since)
            before = self._book.log.store.put_artifact(msgspec.json.encode([as_kept(one) for one in touched]))
        yield from self._record_scope(scope, before, since)

    def _record_scope(self, scope: Scope, before: str | None, since: str | None) -> Part:
        top, (allow, deny) = self._workspace.top, scope
        yield partial(self._book.record, ScopeDeclared(repo=top, allow=allow, deny=deny, before=before, since=since))

    def check_scope(self) -> Part:
        """Stop the run if it touched what it may not; give the paths that are not its doing and not in its scope."""
        lines, leave = self.outside(self._since()) if self._has_scope() else ([], frozenset())
        if lines:
            raise (yield from self._book.stop("guard_violation", *lines, *self.judged.let_pass()))
        return leave

    def _has_scope(self) -> bool:
        known = self._known
        return known is not None and bool(known.allow or known.deny)

    def _since(self) -> str | None:
        """Where what is to be judged begins: at the last milestone, which was judged then, or where the scope was declared."""
        known = self._known
        if known is None or known.scope_since is None:
            return self._head  # the log does not say: then what comes in this process is the run's doing
        made = [one.commit for _, one in milestones(self._book.state, self._workspace.top)[-1:] if one.commit]
        starts = (known.scope_since, *made)
        if starts != self._begun[0]:
            self._begun = starts, self._workspace.latest(starts) or self._head
        return self._begun[1]

    def _account(self) -> Part:
        """What was committed outside of the scope since then may be a person's: whoever says so is believed."""
        known, options, since = self._known, self._book.options, self._since() if self._has_scope() else self._head
        if known is None or since == self._head or not (options.accept or options.confirm):
            return
        loose = {line.partition(": ")[2] for line in self._workspace.changed()}
        lines = [line for line in self.outside(since)[0] if line.partition(": ")[0] not in loose]
        if lines:
            yield from self._met(Found("commit", "the scope", since or "", self._head or "", tuple(lines)), 0)
            yield from self._record_scope(Scope(known.allow, known.deny), known.touched_before, self._head)

    def _judged(self, scope: Scope, touched: list[Touched], since: str | None) -> Judgement:
        """What a merge or a rebase brought from a base branch is not the run's doing."""
        found = judge(scope, touched)
        if not found.violations or since is None or since != self._begun[1]:
            return found
        theirs = self._workspace.brought(since)
        return judge(scope, [one for one in touched if not {one.path, one.was or one.path} <= theirs])

    def outside(self, since: str | None) -> tuple[list[str], frozenset[str]]:
        """What was touched since a commit and may not be, a line each; and the paths outside that are not the run's doing."""
        known = self._known
        if known is None or not (known.allow or known.deny):
            return [], frozenset()
        scope = Scope(known.allow, known.deny)
        before = set(map(tuple, read_artifact(self._book, known.touched_before) or ()))
        touched = written_by_others(self._book, self._workspace.touched(since)[0])
        strange = {path for path, _ in judge(scope, touched).violations}
        ours = self._workspace.made_by_init(since, strange) if strange else frozenset()
        old = [one for one in touched if one.path in ours or (one.mark and as_kept(one) in before)]
        found = self._judged(scope, [one for one in touched if one not in set(old)], since)
        if found.ignored_outside not in (0, self.judged.ignored_outside):
            self._book.options.tell(*found.let_pass())
        self.judged = found
        lines = [f"{path}: {why}" for path, why in found.violations[:_SHOWN]]
        return lines, frozenset(path for path, _ in judge(scope, old).violations)


def look(
    workspace: Workspace,
    state: RunState,
    repo: str,
    before: Mapping[str, str] | None,
    others: Callable[[], Iterable[Known]],
    legacy: bool = False,
) -> Seen:
    """One look at the repository that the log knows as `repo`. Writes nothing.

    `others` gives the milestones of other runs: asked for only where one of them may be equal to what was found.
    Subjects that name no run count only if that was asked for (`legacy`), or for a run of Runr, which knew no better.
    """
    imported = is_imported(state.run_id, state.mission_id)
    last = last_of(state, repo)
    given_up = [name for name, place in state.given_up.items() if place == repo]
    known = state.repositories.get(repo)
    see = partial(
        workspace.look,
        state.run_id,
        before=before,
        snapshots=[] if last is None else [last.snapshot or ""],
        given_up=given_up,
        base=None if known is None else known.head,
        legacy=legacy or imported,
        imported=imported,
    )
    seen = see(records(state, repo))
    if seen.position.source in BY_CONTENT:
        seen = see([*records(state, repo), *not_ours(state, others())])
    strange = [one for one in seen.position.beyond if one[1] not in state.workspaces and one[1] not in state.given_up]
    return seen._replace(position=seen.position._replace(beyond=tuple(strange)))


def selected(position: Position) -> Event:
    return ResumeCheckpointSelected(
        source=position.source,
        confidence=position.confidence,
        sha=position.sha,
        index=position.index,
        checkpoint_id=position.checkpoint_id,
        was=position.was,
        why=position.why,
    )


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
            created_at=one.created_at,
            tier=one.tier,
            verification_commands=one.verification_commands,
        ),
        CheckpointComplete(
            checkpoint_id=one.checkpoint_id,
            commit=one.sha,
            tree=one.tree,
            patch_id=one.patch_id,
            sidecar_written=one.source == "sidecar",
        ),
    )


def as_kept(one: Touched) -> tuple[str, str]:
    """What tells one state of a file from another, as JSON can hold it: a name may be bytes that are no text."""
    return one.path.encode("utf-8", "backslashreplace").decode(), one.mark

"""A live run in the hands of its author: steps, effects, checkpoints, questions, sleep. One engine, two thin faces.

`Run` is for ordinary code and threads; `engine.async_run` has the face for coroutines. Leaving the `with` block ends the
run or says why it rests; entering it again with a longer log goes on, and what is finished is not done again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar, Token
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from holdfast.core.errors import LeaseLost
from holdfast.core.events import NoteRecorded, Policy, ResumeCheckpointSelected
from holdfast.core.plain import check_text
from holdfast.core.retry import Retry
from holdfast.core.shapes import RunState
from holdfast.engine import forms
from holdfast.engine.book import WITHIN, Book, Options, Part, drive
from holdfast.engine.budgets import Budgets
from holdfast.engine.drifting import Drifting
from holdfast.engine.life import Life
from holdfast.engine.log import RunLog
from holdfast.engine.retelling import Retelling
from holdfast.engine.steps import Steps
from holdfast.engine.stopping import Stopped
from holdfast.engine.waits import LONGEST_STAY, Waits

if TYPE_CHECKING:
    from holdfast.core.checkpoint import Conflict, ScopeRef, StepCheckpoint
    from holdfast.core.strictness import Strictness
    from holdfast.engine.effects import Effects, Ready
    from holdfast.engine.marks import Marks
    from holdfast.engine.repository import Repository
    from holdfast.ports import Record

R = TypeVar("R")
CURRENT: ContextVar[LiveRun | None] = ContextVar("holdfast_run", default=None)


class LiveRun:
    """What both faces share: the parts of a run, as generators that one of them drives."""

    def __init__(self, book: Book, mission_id: str, inputs: Mapping[str, Any], title: str) -> None:
        self.run_id = book.log.run_id
        self.mission_id = mission_id
        self.inputs = inputs
        self._book = book
        drifting = self._drifting = Drifting(book)
        self._retelling = Retelling(book)
        self._budgets = Budgets(book, self._retelling)
        self._steps = Steps(book, drifting, self._budgets)
        self._waits = Waits(book, drifting)
        self._life = Life(book, drifting, self._waits, self._budgets, mission_id, inputs, title)
        self._token: Token[LiveRun | None] | None = None
        self._made: dict[str, Any] = {}

    @property
    def _effects(self) -> Effects:
        shared = (self._book, self._budgets, self._drifting, self._steps.recalled)
        made: Effects = self._kept("effects", lambda part: part.Effects(*shared))
        return made

    @property
    def _marks(self) -> Marks:
        made: Marks = self._kept("marks", lambda part: part.Marks(self._book, self.mission_id, self.inputs))
        return made

    def _kept(self, name: str, make: Callable[[Any], Any]) -> Any:
        """Of what is made at its first use, one for all threads: two would not know of each other's effects."""
        if name not in self._made:
            self._made.setdefault(name, make(_part(name)))
        return self._made[name]

    def _begin_watching(self, announce: Callable[[], Any]) -> None:
        forms.keep_source(sys.modules.get("__main__"))
        self._life.watch(announce)
        self._book.guard = self._life.guard

    def _beside(self) -> Part:
        """What is told now and then beside the run's own code."""
        yield from self._steps.announce_long()
        yield from self._budgets.mark()

    def _open_repository(
        self, drive: Callable[[Part], Any], path: str, allow: Sequence[str], deny: Sequence[str], ignored: Sequence[str]
    ) -> Part:
        opened = _part("repository").open_repository
        return opened(self._book, self._drifting, drive, path, allow, deny, ignored)  # type: ignore[no-any-return]

    def _forget(self) -> None:
        if self._token is not None:
            with suppress(ValueError):  # another thread or task leaves it than entered it, and never knew it
                CURRENT.reset(self._token)
            self._token = None

    @property
    def is_entered(self) -> bool:
        """Whether its block is going on. Where it was entered, its name may be kept for longer, if others left it."""
        return self._token is not None

    @property
    def state(self) -> RunState:
        """The fold of the log up to now."""
        return self._book.state

    @property
    def resumed(self) -> bool:
        """Whether the log was there before this process."""
        return self._book.resumed

    @property
    def is_wished_to_stop(self) -> bool:
        """Whether somebody left a message that is heard at the next boundary."""
        return self._book.wish is not None

    def interrupt(self, error: Exception) -> None:
        """Let whoever comes to a boundary of this run, in any thread, leave with this error."""

        def wish() -> Part:
            yield from ()
            raise error

        self._book.call(wish)

    def _new_note(self, text: str) -> NoteRecorded | None:
        """What is to be written down; None for what an earlier process has written, and this one says again on its way."""
        check_text("A note", text)
        note = NoteRecorded(text=text, step_id=self._book.executed())
        return None if self._retelling.is_known(note) else note

    def begun_by(self, source: str, confidence: str, was: str | None, why: str) -> None:
        """Write down which mirror says what was done before this log began, and what became of the commit that it names."""
        self._book.record(ResumeCheckpointSelected(source=source, confidence=confidence, was=was, why=why))

    def keep(self, data: bytes) -> str:
        """Store bytes as they are, by their SHA-256, which is what an event can hold."""
        return self._book.log.store.put_artifact(data)

    def keep_json(self, body: bytes) -> str:
        """Store JSON, without the secrets in it."""
        return self.keep(self._book.log.redact.body(body))

    def kept(self, digest: str) -> bytes:
        """What was stored. Raises NotFound or ArtifactDamaged."""
        return self._book.log.store.get_artifact(digest)

    def records(self, after: int) -> Iterator[Record]:
        """What the log holds after an event, as it is stored."""
        return self._book.log.store.read(self.run_id, after=after)


class Run(LiveRun):
    """A run, for ordinary code. May be used by many threads at once."""

    def __init__(
        self, log: RunLog, options: Options, mission_id: str, inputs: Mapping[str, Any], title: str = ""
    ) -> None:
        super().__init__(Book(log, options, no_guard, time.sleep), mission_id, inputs, title)

    def step(
        self, name: str, work: Callable[..., R], /, *args: Any, retry: Retry | int | None = None, **kwargs: Any
    ) -> R:
        """Do it once: what it gave is remembered by its name and what it was given. Durable when this returns."""
        steps = self._steps
        this, value = steps.called(name, work, args, kwargs, retry)
        if this is None:
            return value  # type: ignore[no-any-return]
        if not steps.usual(this):
            return drive(steps.run(this))  # type: ignore[no-any-return]
        outer = WITHIN.get()
        try:
            try:
                # what `Within` does, with nothing called: every step comes by here
                WITHIN.set((self._book, name, outer))
                value = work(*args, **kwargs)
                form = forms.result(f"step {name}", value, this.declared)
            except Exception as error:
                drive(steps.failed(this, error))
                raise
            self._book.record(steps.ending(this, form))
        finally:
            WITHIN.set(outer)
            steps.leave(this)
        return form.seen  # type: ignore[no-any-return]

    def effect(
        self,
        name: str,
        act: Callable[..., R] | Ready,
        /,
        *args: Any,
        policy: Policy | None = None,
        key: str | None = None,
        probe: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> R:
        """Do something to the world. What happens after a crash depends on its policy; undeclared counts as `once`."""
        return drive(self._effects.run(name, act, args, kwargs, policy, key, probe))  # type: ignore[no-any-return]

    def checkpoint(
        self,
        cursor: str,
        *,
        step_id: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        scope_refs: Iterable[ScopeRef | tuple[str, str]] = (),
        strictness: Strictness | None = None,
        lifetime: float | None = None,
    ) -> StepCheckpoint:
        """Write down where the run stands, with a token that resumes it from here."""
        return drive(self._marks.checkpoint(cursor, step_id, inputs, scope_refs, strictness, lifetime))  # type: ignore[no-any-return]

    def gate(
        self,
        cursor: str,
        conflicts: Sequence[Conflict],
        *,
        step_id: str | None = None,
        scope_refs: Iterable[ScopeRef | tuple[str, str]] = (),
        strictness: Strictness | None = None,
        lifetime: float | None = None,
    ) -> None:
        """Go through, or raise BlockedByConflict. The checkpoint is written before the gate blocks."""
        drive(self._marks.gate(cursor, conflicts, step_id, scope_refs, strictness, lifetime))

    def ask(
        self,
        question: str,
        choices: Sequence[str] = (),
        *,
        name: str | None = None,
        timeout: float | None = None,
        default: str | None = None,
    ) -> str:
        """Ask a person. Without a terminal the process may end; `holdfast answer` and a resume go on."""
        return str(drive(self._waits.ask(question, choices, name, timeout, default)))

    def sleep(self, seconds: float, *, name: str, stay: float = LONGEST_STAY, reason: str = "sleeping") -> None:
        """Sleep over restarts. Longer than `stay` the process is not kept: the run stops, and can be resumed then."""
        drive(self._waits.sleep(seconds, name, stay, reason))

    def listen(self) -> None:
        """Hear what others left for this run: here it stops if somebody wishes it."""
        drive(self._book.boundary())

    def stop(self, reason: str, *evidence: str) -> Stopped:
        """Record why the run rests; the caller raises what it gets, which ends the process with the reason's code."""
        made: Stopped = drive(self._book.stop(reason, *evidence))
        return made

    def spend(self, *, tokens: int = 0, money: float = 0.0, step_id: str | None = None) -> None:
        """Count something against the budget."""
        drive(self._budgets.spend(tokens, money, step_id))

    def note(self, text: str) -> None:
        """Write something down for whoever reads the log. What a resumed run says again on its way is not written twice."""
        note = self._new_note(text)
        if note is not None:
            self._book.record(note)

    def workspace(
        self, path: str = ".", *, allow: Sequence[str] = (), deny: Sequence[str] = (), ignored: Sequence[str] = ()
    ) -> Repository:
        """The git work tree around `path`: snapshots and milestones of it, within a scope. Compared with what the log knows.

        Snapshots hold files that git ignores only where a pattern in `ignored` names them.
        """
        made: Repository = drive(self._open_repository(drive, path, allow, deny, ignored))
        return made

    def __enter__(self) -> Self:
        self._begin_watching(lambda: drive(self._beside()))
        try:
            drive(self._life.begin())
        except BaseException as error:
            self._life.failed(error)
            raise
        self._token = CURRENT.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._forget()
        try:
            drive(self._life.end(error, self._book.names, self._steps.announce_long(0)))
        finally:
            self._life.close()


def _part(name: str) -> Any:
    """What many runs never use, loaded by the first call of it."""
    return import_module(f"holdfast.engine.{name}")


def no_guard() -> None:
    raise LeaseLost("", 0)

"""The asynchronous face of a run. The engine is that of `engine.run`; only who waits for it differs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakKeyDictionary

from holdfast.core.errors import IllegalEvent
from holdfast.core.events import Event, Policy
from holdfast.core.retry import Retry
from holdfast.core.shapes import STOPPED
from holdfast.engine import forms
from holdfast.engine.book import Book, Options, Part, Within
from holdfast.engine.log import RunLog
from holdfast.engine.run import CURRENT, LiveRun, no_guard
from holdfast.engine.stopping import Stopped
from holdfast.engine.together import Together
from holdfast.engine.waits import LONGEST_STAY
from holdfast.ports import Store

if TYPE_CHECKING:
    from holdfast.core.checkpoint import Conflict, ScopeRef, StepCheckpoint
    from holdfast.core.strictness import Strictness
    from holdfast.engine.effects import Ready
    from holdfast.engine.repository import Repository


class AsyncBook(Book):
    """The book of a run in an event loop: what many runs record at the same time is committed together."""

    awaits = True

    def __init__(self, log: RunLog, options: Options, together: Together) -> None:
        super().__init__(log, options, no_guard, asyncio.sleep)
        self._together = together

    def new_lock(self) -> Any:
        return asyncio.Lock()

    def listener(self) -> Callable[[], bool]:
        """Ctrl-C cancels a task instead of interrupting what it waits for."""
        called, task = super().listener(), asyncio.current_task()
        cancelled = 0 if task is None else task.cancelling()
        return lambda: called() or (task is not None and task.cancelling() > cancelled)

    def record(self, *events: Event) -> Any:
        return self._or_why_not(self._together.record(self.log, *events))

    def alone(self, work: Callable[[], Any]) -> Any:
        return self._or_why_not(self._together.alone(self.log, work))

    async def _or_why_not(self, written: Awaitable[Any]) -> Any:
        try:
            return await written
        except IllegalEvent as error:
            raise self.why_not(error) from None


class AsyncRun(LiveRun):
    """A run, for coroutines of one event loop."""

    def __init__(
        self,
        log: RunLog,
        options: Options,
        mission_id: str,
        inputs: Mapping[str, Any],
        title: str = "",
    ) -> None:
        super().__init__(AsyncBook(log, options, together_for(log.store)), mission_id, inputs, title)

    async def step(
        self, name: str, work: Callable[..., Any], /, *args: Any, retry: Retry | int | None = None, **kwargs: Any
    ) -> Any:
        steps = self._steps
        this, value = steps.called(name, work, args, kwargs, retry)
        if this is None:
            return value
        if not steps.usual(this):
            return await drive(steps.run(this))
        try:
            try:
                with Within(self._book, name):
                    value = work(*args, **kwargs)
                    if isinstance(value, Awaitable):
                        value = await value
                form = forms.result(f"step {name}", value, this.declared)
            except Exception as error:
                await drive(steps.failed(this, error))
                raise
            await self._book.record(steps.ending(this, form))
        finally:
            steps.leave(this)
        return form.seen

    async def effect(
        self,
        name: str,
        act: Callable[..., Any] | Ready,
        /,
        *args: Any,
        policy: Policy | None = None,
        key: str | None = None,
        probe: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        return await drive(self._effects.run(name, act, args, kwargs, policy, key, probe))

    async def checkpoint(
        self,
        cursor: str,
        *,
        step_id: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        scope_refs: Iterable[ScopeRef | tuple[str, str]] = (),
        strictness: Strictness | None = None,
        lifetime: float | None = None,
    ) -> StepCheckpoint:
        part = self._marks.checkpoint(cursor, step_id, inputs, scope_refs, strictness, lifetime)
        return await drive(part)  # type: ignore[no-any-return]

    async def gate(
        self,
        cursor: str,
        conflicts: Sequence[Conflict],
        *,
        step_id: str | None = None,
        scope_refs: Iterable[ScopeRef | tuple[str, str]] = (),
        strictness: Strictness | None = None,
        lifetime: float | None = None,
    ) -> None:
        await drive(self._marks.gate(cursor, conflicts, step_id, scope_refs, strictness, lifetime))

    async def ask(
        self,
        question: str,
        choices: Sequence[str] = (),
        *,
        name: str | None = None,
        timeout: float | None = None,
        default: str | None = None,
    ) -> str:
        return str(await drive(self._waits.ask(question, choices, name, timeout, default)))

    async def sleep(self, seconds: float, *, name: str, stay: float = LONGEST_STAY) -> None:
        await drive(self._waits.sleep(seconds, name, stay))

    async def spend(self, *, tokens: int = 0, money: float = 0.0, step_id: str | None = None) -> None:
        await drive(self._budgets.spend(tokens, money, step_id))

    async def note(self, text: str) -> None:
        note = self._new_note(text)
        if note is not None:
            await self._book.record(note)

    async def workspace(
        self, path: str = ".", *, allow: Sequence[str] = (), deny: Sequence[str] = (), ignored: Sequence[str] = ()
    ) -> Repository:
        """As for ordinary code; what the methods of the repository give is awaited."""
        made: Repository = await drive(self._open_repository(drive, path, allow, deny, ignored))
        return made

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()

        going: set[asyncio.Task[Any]] = set()

        def announce() -> None:
            task = loop.create_task(drive(self._beside()))
            going.add(task)
            task.add_done_callback(going.discard)

        self._begin_watching(lambda: loop.call_soon_threadsafe(announce))
        try:
            await drive(self._life.begin())
        except BaseException as error:
            self._life.failed(error)
            raise
        self._token = CURRENT.set(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._forget()
        try:
            await drive(self._life.end(error, self._book.names, self._steps.announce_long(0)))
        finally:
            self._life.close()
            if self.state.status == STOPPED:
                _pass_over_stops(asyncio.get_running_loop())


def _pass_over_stops(loop: asyncio.AbstractEventLoop) -> None:
    """A stop that leaves a task ends the loop at once, so nobody can take it from the tasks around: asyncio would report it."""
    others = loop.get_exception_handler()
    if getattr(others, "func", None) is not _but_stops:
        loop.set_exception_handler(partial(_but_stops, others))


def _but_stops(others: Callable[..., object] | None, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if not isinstance(context.get("exception"), Stopped):  # of which the run has told
        loop.default_exception_handler(context) if others is None else others(loop, context)


_SHARED: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakKeyDictionary[Store, Together]] = WeakKeyDictionary()


def together_for(store: Store) -> Together:
    """What all runs of this event loop that use the same store object share."""
    of_loop = _SHARED.setdefault(asyncio.get_running_loop(), WeakKeyDictionary())
    return of_loop.setdefault(store, Together(store))


async def drive(part: Part) -> Any:
    """Run a part to its end, calling what it asks for and awaiting what can be awaited."""
    try:
        todo = next(part)
        while True:
            try:
                value = todo()
                if isinstance(value, Awaitable):
                    value = await value
            except BaseException as error:  # noqa: BLE001 - it belongs to the part, which may know what to do
                todo = part.throw(error)
            else:
                todo = part.send(value)
    except StopIteration as end:
        return end.value

"""Many runs driven by coroutines of one process: what they record at the same time is committed together.

A quick disk is waited for where we are; a slow one in another thread, so that the event loop never stands still for it.
One log has one append on its way at a time. The events of a group are drafted one right after the other: their code is
then still in the processor's caches.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from weakref import proxy, ref

from holdfast.core.errors import UsageError
from holdfast.core.events import Event
from holdfast.core.state import RunState
from holdfast.engine.log import RunLog
from holdfast.ports import Append, Store

QUICK = 0.005  # seconds that an event loop may well stand still
T = TypeVar("T")
Wish = tuple[RunLog, tuple[Event, ...] | None, "asyncio.Future[Any]"]  # no events: a turn to write something else
Draft = tuple[Append, RunLog, "asyncio.Future[Any]"]


class Together:
    """The asynchronous way to record. All logs must be of the one store, and all calls from one event loop."""

    def __init__(self, store: Store) -> None:
        self._store: Store = proxy(store)  # it is shared for as long as its store is used, and no longer
        self._waiting: list[Wish] = []
        self._took = QUICK
        self._sent: asyncio.Future[list[Exception | None]] | None = None
        self._committing: asyncio.Task[None] | None = None
        self._lent: set[RunLog] = set()
        self._loop: ref[asyncio.AbstractEventLoop] | None = None  # of the first call
        # not the thread pool of the loop: all of that may be at work that waits for what is to be written here
        self._writer = ThreadPoolExecutor(1, "holdfast-write")

    def record(self, log: RunLog, *events: Event) -> Coroutine[Any, Any, RunState]:
        """Append events, all or none. Durable when this returns."""
        return self._wish(log, events)

    async def alone(self, log: RunLog, work: Callable[[], T]) -> T:
        """Something else that writes to this log, while nothing of it is on its way."""
        await self._wish(log, None)
        try:
            return work()
        finally:
            self._take_back(log)

    async def _wish(self, log: RunLog, events: tuple[Event, ...] | None) -> Any:
        loop = asyncio.get_running_loop()
        self._loop = self._loop or ref(loop)
        if self._loop() is not loop:
            raise UsageError("This run belongs to another event loop.", advice="Await it in the loop that entered it.")
        done = loop.create_future()
        wish = (log, events, done)
        self._waiting.append(wish)
        if self._committing is None:
            self._committing = asyncio.create_task(self._commit())
        try:
            return await done
        except asyncio.CancelledError:
            await self._give_up(wish)
            raise

    async def _give_up(self, wish: Wish) -> None:
        """Take back what was not sent; what was sent is waited for, so that the next look at the log sees it."""
        log, events, done = wish
        if wish in self._waiting:
            self._waiting.remove(wish)
        elif events is None and not done.cancelled():
            self._take_back(log)
        elif self._sent is not None:
            await asyncio.wait([self._sent])

    def _take_back(self, log: RunLog) -> None:
        """Who had the turn at this log is done with it; those who came later go on."""
        self._lent.discard(log)
        if self._waiting and self._committing is None:
            self._committing = asyncio.create_task(self._commit())

    async def _commit(self) -> None:
        try:
            while (drafts := self._take()) is not None:
                if drafts:
                    await self._write(drafts)
                await asyncio.sleep(0)  # those who were told come back with their next events
        finally:
            self._committing = None

    def _take(self) -> list[Draft] | None:
        """Draft the first wish of each log. A turn is lent: its log stays alone until it is given back. None: nothing to do."""
        waiting, self._waiting = self._waiting, []
        busy = self._lent.copy()
        drafts: list[Draft] = []
        for wish in waiting:
            log, events, done = wish
            if log in busy:
                self._waiting.append(wish)
            elif not done.cancelled():
                busy.add(log)
                if events is None:
                    self._lent.add(log)
                    done.set_result(None)
                else:
                    _draft(log, events, done, drafts)
        return drafts if len(self._waiting) < len(waiting) else None

    async def _write(self, drafts: list[Draft]) -> None:
        appends = [append for append, _, _ in drafts]
        outcomes = self._outcomes(appends) if self._took < QUICK else await self._elsewhere(drafts, appends)
        for (append, log, done), problem in zip(drafts, outcomes, strict=True):
            if not done.cancelled():  # else its log is read again: others may have written to it meanwhile
                _tell(done, log.confirm(append) if problem is None else problem)

    async def _elsewhere(self, drafts: list[Draft], appends: list[Append]) -> list[Exception | None]:
        for _, log, _ in drafts:
            log.busy = True  # others of this loop may look at its state meanwhile
        try:
            self._sent = asyncio.get_running_loop().run_in_executor(self._writer, self._outcomes, appends)
            return await self._sent
        finally:
            self._sent = None  # it knows the loop, which knows us
            for _, log, _ in drafts:
                log.busy = False

    def _outcomes(self, appends: list[Append]) -> list[Exception | None]:
        began = time.perf_counter()
        try:
            return self._store.append_all(appends)
        except Exception as error:  # noqa: BLE001 - it is theirs: every waiting caller gets it
            return [error] * len(appends)
        finally:
            self._took = time.perf_counter() - began


def _draft(log: RunLog, events: tuple[Event, ...], done: asyncio.Future[Any], drafts: list[Draft]) -> None:
    """Make it ready to be written. Who wished for what cannot be, or for nothing, is told at once."""
    try:
        append = log.draft(*events)
    except Exception as error:  # noqa: BLE001 - it is the caller's
        _tell(done, error)
        return
    if append.records:
        drafts.append((append, log, done))
    else:
        _tell(done, log.confirm(append))


def _tell(done: asyncio.Future[Any], outcome: RunState | Exception) -> None:
    if isinstance(outcome, RunState):
        done.set_result(outcome)
    else:
        done.set_exception(outcome)

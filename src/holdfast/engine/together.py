"""Many runs driven by coroutines of one process: what they record at the same time is committed together.

A quick disk is waited for where we are; a slow one in another thread, so that the event loop never stands still for it.
One log has one append on its way at a time.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from holdfast.core.events import Event
from holdfast.core.state import RunState
from holdfast.engine.log import RunLog
from holdfast.ports import Append, Store

QUICK = 0.002  # seconds that an event loop may well stand still
T = TypeVar("T")
Sent = tuple[Append, "asyncio.Future[None]"]


class Together:
    """The asynchronous way to record. All logs must be of the one store, and all calls from one event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[Sent] = []
        self._took = QUICK
        self._sent: asyncio.Future[list[Exception | None]] | None = None
        self._committing: asyncio.Task[None] | None = None
        self._taken: set[RunLog] = set()
        self._queues: dict[RunLog, deque[asyncio.Future[None]]] = {}

    async def record(self, log: RunLog, *events: Event) -> RunState:
        """Append events, all or none. Durable when this returns."""
        if log in self._taken:
            await self._turn(log)
        self._taken.add(log)
        try:
            append = log.draft(*events)
            if append.records:
                waiting = self._send(append)
                log.busy = True  # others of this loop may look at its state meanwhile
                try:
                    await waiting[1]
                except asyncio.CancelledError:
                    await self._give_up(waiting)
                    raise
                finally:
                    log.busy = False
            return log.confirm(append)
        finally:
            if self._queues:
                self._hand_on(log)
            else:
                self._taken.discard(log)

    async def alone(self, log: RunLog, work: Callable[[], T]) -> T:
        """Something else that writes to this log, while nothing of it is on its way."""
        if log in self._taken:
            await self._turn(log)
        try:
            return work()
        finally:
            self._hand_on(log)

    async def _turn(self, log: RunLog) -> None:
        """Wait until those who came before have written. Whoever returns from here has the turn, and hands it on."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(log, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it had the turn already
                self._hand_on(log)
            raise

    def _hand_on(self, log: RunLog) -> None:
        queue = self._queues.get(log)
        while queue:
            turn = queue.popleft()
            if not turn.done():
                turn.set_result(None)  # the log stays taken
                return
        self._queues.pop(log, None)
        self._taken.discard(log)

    def _send(self, append: Append) -> Sent:
        loop = asyncio.get_running_loop()
        waiting = (append, loop.create_future())
        self._waiting.append(waiting)
        if self._committing is None:
            self._committing = loop.create_task(self._commit())
        return waiting

    async def _give_up(self, waiting: Sent) -> None:
        """Take back what was not sent; what was sent is waited for, so that the next look at the log sees it."""
        if waiting in self._waiting:
            self._waiting.remove(waiting)
        elif self._sent is not None:
            await asyncio.wait([self._sent])

    async def _commit(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                group, self._waiting = self._waiting, []
                appends = [append for append, _ in group]
                if self._took < QUICK:
                    outcomes = self._outcomes(appends)
                else:
                    self._sent = loop.run_in_executor(None, self._outcomes, appends)
                    outcomes = await self._sent
                _tell(group, outcomes)
                await asyncio.sleep(0)  # those who were told come back with their next events
        finally:
            self._committing = None

    def _outcomes(self, appends: list[Append]) -> list[Exception | None]:
        began = time.perf_counter()
        try:
            return self._store.append_all(appends)
        except Exception as error:  # noqa: BLE001 - it is theirs: every waiting caller gets it
            return [error] * len(appends)
        finally:
            self._took = time.perf_counter() - began


def _tell(group: list[Sent], outcomes: list[Exception | None]) -> None:
    for (_, done), problem in zip(group, outcomes, strict=True):
        if done.cancelled():
            continue
        if problem is None:
            done.set_result(None)
        else:
            done.set_exception(problem)

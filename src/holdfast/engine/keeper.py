"""Keeps a lease alive while a long step runs, and remembers its loss. Never takes a lost lease back.

`check` is asked before every effect: a process that slept through its lease must not touch the world.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from holdfast.core.errors import HoldfastError, LeaseLost
from holdfast.engine.log import RunLog

RENEWALS_PER_LEASE = 3
LISTEN = 0.25  # seconds between two looks at what others want, where somebody looks


class Keeper:
    """A daemon thread that renews the lease of a log three times per length of the lease."""

    def __init__(
        self, log: RunLog, clock: Callable[[], float] = time.monotonic, beside: Callable[[], None] | None = None
    ) -> None:
        self._log = log
        self._clock = clock
        self._every = log.lease.ttl / RENEWALS_PER_LEASE
        self._renewed = clock()
        self._beside = beside
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"keeper of {log.run_id}", daemon=True)
        self.renewals = 0
        self.lost: LeaseLost | None = None
        self.problem: HoldfastError | None = None

    def __enter__(self) -> Keeper:
        self._thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._done.set()
        self._thread.join()

    def check(self) -> None:
        """Return only if the lease is held; ask the store when the last answer is too old. Raises LeaseLost."""
        if self.lost is None and self._clock() - self._renewed > 2 * self._every:
            self._renew()
        if self.lost is not None:
            raise LeaseLost(self.lost.run_id, self.lost.epoch)

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def _keep(self) -> None:
        pause = self._every if self._beside is None else min(self._every, LISTEN)
        while self.lost is None and not self._done.wait(pause):
            try:
                if self._clock() - self._renewed >= self._every - pause / 2:
                    self._renew()
                if self._beside is not None:
                    self._beside()
            except HoldfastError as error:
                self.problem = error  # a store that is away may come back; until then `check` asks it, and raises

    def _renew(self) -> None:
        asked = self._clock()
        try:
            self._log.renew()
        except LeaseLost as lost:
            self.lost = lost
            return
        self._renewed = asked
        self.renewals += 1
        self.problem = None

"""Starts a program by the system's own short way, and waits for it: a fraction of what `subprocess` uses for each start.

It gets a session of its own, its three pipes and the locks it shall hold. A file of ours that others may inherit is closed
for it; where that cannot be known, nothing is started this way.
"""

from __future__ import annotations

import itertools
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

Env = Mapping[str, str] | Mapping[bytes, bytes]
_LISTED = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"
_USUAL = (signal.SIGPIPE, signal.SIGXFSZ)  # Python itself ignores them
_PAUSE, _LONGEST = 0.0005, 0.05


class Spawned:
    """A child, to be asked and waited for as one of `subprocess`. Whoever lets the system take its children gets 0, as there."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._take(os.WNOHANG)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, as soon as there is one. Raises TimeoutExpired."""
        if timeout is not None and self.poll() is None:
            self._until_it_ends(time.monotonic() + timeout, timeout)
        code = self._take(0)
        assert code is not None
        return code

    def _take(self, how: int) -> int | None:
        if self._code is None:
            try:
                pid, status = os.waitpid(self.pid, how)
            except ChildProcessError:
                pid, status = self.pid, 0
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def _until_it_ends(self, end: float, seconds: float) -> None:
        """One wait where the system tells of an end; elsewhere a look now and then."""
        told = _told_of(self.pid)
        if told is not None:
            try:
                waiting = select.poll()
                waiting.register(told, select.POLLIN)
                waiting.poll(max(0.0, (end - time.monotonic()) * 1000))
            finally:
                os.close(told)
        self._looking(end, seconds)

    def _looking(self, end: float, seconds: float) -> None:
        pause = _PAUSE
        while self.poll() is None:
            left = end - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired(str(self.pid), seconds)
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST)


def _told_of(pid: int) -> int | None:
    """A file that can be read as soon as a child has ended; None where the system has no such files."""
    try:
        return os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
    except OSError:  # an older system, or a child that the system has taken already
        return None


def spawn(argv: Sequence[str], env: Env, fds: tuple[int | None, int, int], keep: Sequence[int]) -> Spawned | None:
    """Start it with these for stdin (None: nothing to read), stdout and stderr; None where it cannot be started this way."""
    stdin, stdout, stderr = fds
    opened = _open_files()
    if opened is None or min(stdout, stderr, 3 if stdin is None else stdin) < 3:
        return None
    free = (number for number in itertools.count(3) if number not in opened)
    actions: list[tuple[Any, ...]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0) if stdin is None else (os.POSIX_SPAWN_DUP2, stdin, 0),
        (os.POSIX_SPAWN_DUP2, stdout, 1),
        (os.POSIX_SPAWN_DUP2, stderr, 2),
        *((os.POSIX_SPAWN_DUP2, fd, next(free)) for fd in keep),  # of a file it is the copy that is inherited
        *((os.POSIX_SPAWN_CLOSE, fd) for fd, others_may in opened.items() if others_may and fd > 2),
    ]
    return Spawned(os.posix_spawn(argv[0], list(argv), env, file_actions=actions, setsid=True, setsigdef=_USUAL))


def _open_files() -> dict[int, bool] | None:
    """The files we have open, each with whether a program would inherit it; None if the system does not tell."""
    try:
        numbers = map(int, os.listdir(_LISTED))
    except OSError:
        return None
    return {fd: others_may for fd in numbers if (others_may := _is_inherited(fd)) is not None}


def _is_inherited(fd: int) -> bool | None:
    try:
        return os.get_inheritable(fd)
    except OSError:  # it was open for the listing only, or another thread has closed it
        return None

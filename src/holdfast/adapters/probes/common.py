"""What all shipped effects share: their error, the grammar of their keys, and the lock that outlives a killed parent.

A program that an act starts may live on when the act's process is killed. It holds the lock it inherited, so a probe
can wait until it is gone, and says `unknown` if it does not go.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.core.canonical import digest_of
from holdfast.core.errors import HoldfastError, UsageError, shown
from holdfast.core.stops import snippet
from holdfast.core.values import Answer

MAX_KEY = 200
PATIENCE = 10.0  # seconds a probe waits for what a killed act left running
_PAUSE = 0.002


class EffectError(HoldfastError):
    """An act that refused to begin, or failed. Whether it changed anything is for its probe to say."""

    reason = "effect_failed"
    advice = "Look at what it was to change, then let the run go on."


def check_key(key: str) -> None:
    """A key travels in trailers and headers, so it is one line of plain characters."""
    plain = key.isascii() and key.isprintable() and key == key.strip()
    if not plain or not 0 < len(key) <= MAX_KEY:
        raise UsageError(
            f"{shown(key, 80)} cannot be the key of this effect.",
            advice=f"Use 1 to {MAX_KEY} printable ASCII characters, without spaces at the ends.",
        )


def mark_of(key: str, what: str) -> str:
    """A short name for the leftovers of one effect, fit for a file name."""
    return digest_of([key, what])[:32]


def sure(look: Callable[[], Answer]) -> Answer:
    """What the look found; a look that fails has found nothing out."""
    try:
        return look()
    except (HoldfastError, OSError, ValueError) as error:
        return Answer("unknown", f"it could not be looked at: {snippet(str(error))}")


@contextmanager
def hold(folder: str, patience: float = PATIENCE) -> Iterator[int]:
    """The lock on a folder, shared with every program that inherits it. Nothing is written for it."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not wait_for(fd, fcntl.LOCK_EX, patience):
            raise EffectError(
                f"Another effect is at work in {folder}.", advice="Wait until it ends, then let the run go on."
            )
        yield fd
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)  # also for a stranger that was forked meanwhile and holds a copy
        os.close(fd)


def at_rest(folder: str, patience: float = PATIENCE) -> bool:
    """Whether no act, and nothing that a killed act started, is at work in the folder."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return wait_for(fd, fcntl.LOCK_SH, patience)
    finally:
        os.close(fd)


def wait_for(fd: int, kind: int, patience: float) -> bool:
    """Lock what is open, by `fcntl.LOCK_SH` or `LOCK_EX`. False: somebody else kept it for all that time."""
    end = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
        time.sleep(_PAUSE)

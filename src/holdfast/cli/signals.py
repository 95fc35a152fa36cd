"""What ends a run from outside: every such signal is taken as Ctrl-C, while a run is going on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def ended_like_by_ctrl_c() -> Iterator[None]:
    """A terminal that is closed, or a machine that shuts down, ends a run as Ctrl-C does: agents are ended, the log says so.

    What we were started to ignore, as under nohup, stays ignored.
    """
    heard = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN]
    kept = {number: signal.signal(number, _interrupt) for number in heard}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt

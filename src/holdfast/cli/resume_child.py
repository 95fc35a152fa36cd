"""Runs the command of `holdfast resume --json` to its end. What it prints goes to stderr: stdout is one JSON document.

Signals are handed on, and its exit code is ours. A Ctrl-C at a terminal reaches it without us.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from holdfast.cli.behind import not_started

HANDED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


def perform(behind: Sequence[str], environ: dict[str, str]) -> int:
    sys.stderr.flush()
    waiting: list[int] = []
    kept = {number: signal.signal(number, lambda number, _: waiting.append(number)) for number in HANDED_ON}
    try:
        child = subprocess.Popen(list(behind), env=environ, stdout=sys.stderr.fileno())
    except (OSError, ValueError) as error:
        raise not_started(behind[0], error) from None
    else:
        return waited_for(child, waiting)
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def waited_for(child: subprocess.Popen[bytes], waiting: Sequence[int]) -> int:
    def hand_on(number: int, _: Any) -> None:
        if number != signal.SIGINT or not sys.stdin.isatty():
            child.send_signal(number)

    for number in HANDED_ON:
        signal.signal(number, hand_on)
    for early in waiting:  # they came while it was being started
        hand_on(early, None)
    while True:  # by and by: a signal that comes just before a wait without end would be seen after it
        with suppress(subprocess.TimeoutExpired):
            code = child.wait(timeout=1)
            return code if code >= 0 else 128 - code

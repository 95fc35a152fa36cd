"""Asking and telling the person at the terminal, if there is one. Questions go to stderr; silence is never a yes.

Whether anybody hears us decides nothing: what is told is in the log, and who cannot be asked has not answered.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence

LOOK = 0.25  # seconds between two looks at whether somebody calls
_TURN = threading.Lock()  # what is typed answers the one question that is shown


def is_there() -> bool:
    """Whether somebody can read what we ask and type an answer."""
    try:
        return sys.stdin.isatty() and sys.stderr.isatty()
    except (AttributeError, ValueError):
        return False


def tell(text: str) -> None:
    """One line for whoever looks. Control characters of foreign text never reach the terminal."""
    _write(f"holdfast: {text}", "\n")


def confirm(question: str, lines: Sequence[str]) -> bool:
    """Yes only if the answer says so."""
    with _TURN:
        for line in lines:
            tell(f"  {line}")
        return (_line(f"{question} [y/N] ") or "").strip().lower() in ("y", "yes")


def prompt(
    question: str,
    choices: Sequence[str],
    seconds: float | None = None,
    is_called: Callable[[], bool] | None = None,
) -> str | None:
    """What was typed; one of the choices if there are any; None if nobody answers, not in time, or somebody calls meanwhile."""
    offered = f" ({' / '.join(choices)})" if choices else ""
    end = None if seconds is None else time.monotonic() + seconds
    if not _has_turn(end, is_called):
        return None
    try:
        while (said := _line(f"{question}{offered} ", end, is_called)) is not None:
            said = said.strip()
            if said and (not choices or said in choices):
                return said
        return None
    finally:
        _TURN.release()


def _has_turn(end: float | None, is_called: Callable[[], bool] | None) -> bool:
    """Whether what other threads ask is answered before the end, and before somebody calls."""
    while not _TURN.acquire(timeout=LOOK):
        if (end is not None and end <= time.monotonic()) or (is_called is not None and is_called()):
            return False
    return True


def _line(question: str, end: float | None = None, is_called: Callable[[], bool] | None = None) -> str | None:
    try:
        patient = end is None and (is_called is None or not _can_be_watched())
        said = sys.stdin.readline() if _write(question, "") and (patient or _is_typed(end, is_called)) else ""
    except (OSError, ValueError):
        return None
    return said if said else None


def _can_be_watched() -> bool:
    """What stands for a terminal within another program, as in IDLE, can only be read."""
    try:
        return sys.stdin.fileno() >= 0
    except OSError:
        return False


def _is_typed(end: float | None, is_called: Callable[[], bool] | None) -> bool:
    """Whether a line is there before the end, and before somebody calls. A terminal hands out line by line, so nothing waits
    in a buffer of ours.
    """
    from select import select

    left = LOOK
    while left > 0 and not (is_called is not None and is_called()):
        left = LOOK if end is None else end - time.monotonic()
        if select([sys.stdin], [], [], max(0.0, min(left, LOOK)))[0]:
            return True
    _write("", "\n")
    return False


def _write(text: str, end: str) -> bool:
    """False: it is closed, a pipe that nobody reads, a full disk or a terminal that is gone."""
    if sys.stderr is None:
        return False
    plain = "".join(char if char.isprintable() else "?" for char in text) + end
    try:
        sys.stderr.flush()
        _put(plain)
    except (OSError, ValueError):
        return False
    return True


def _put(plain: str) -> None:
    """Past the buffer where there is a file: what stays in it is tried again when Python ends, which then leaves with 120."""
    try:
        number = sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):
        sys.stderr.write(plain)
        sys.stderr.flush()
        return
    os.write(number, plain.encode(errors="replace"))

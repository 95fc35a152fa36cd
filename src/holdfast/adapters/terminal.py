"""Asking and telling the person at the terminal, if there is one. Questions go to stderr; silence is never a yes.

Whether anybody hears us decides nothing: what is told is in the log, and who cannot be asked has not answered.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence


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
    for line in lines:
        tell(f"  {line}")
    return (_line(f"{question} [y/N] ") or "").strip().lower() in ("y", "yes")


def prompt(question: str, choices: Sequence[str], seconds: float | None = None) -> str | None:
    """What was typed; one of the choices if there are any; None if nobody answers, or not in time."""
    offered = f" ({' / '.join(choices)})" if choices else ""
    end = None if seconds is None else time.monotonic() + seconds
    while (said := _line(f"{question}{offered} ", end)) is not None:
        said = said.strip()
        if said and (not choices or said in choices):
            return said
    return None


def _line(question: str, end: float | None = None) -> str | None:
    try:
        said = sys.stdin.readline() if _write(question, "") and (end is None or _is_typed(end)) else ""
    except (OSError, ValueError):
        return None
    return said if said else None


def _is_typed(end: float) -> bool:
    """Whether a line is there before the end. A terminal hands out line by line, so nothing waits in a buffer of ours."""
    from select import select

    return bool(select([sys.stdin], [], [], max(0.0, end - time.monotonic()))[0])


def _write(text: str, end: str) -> bool:
    """False: it is closed, a pipe that nobody reads, a full disk or a terminal that is gone."""
    if sys.stderr is None:
        return False
    try:
        sys.stderr.write("".join(char if char.isprintable() else "?" for char in text) + end)
        sys.stderr.flush()
    except (OSError, ValueError):
        return False
    return True

"""Tables, times and progress for people. Rich on a terminal, plain text everywhere else; every cell is escaped.

Colour needs a terminal and respects NO_COLOR. Nothing here knows what a run is.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import count
from typing import Any, TypeVar

from holdfast.cli.output import escape, say

Item = TypeVar("Item")

MOST_RICH = 500  # rows that rich lays out in less than a second
_STYLES = {
    "running": "green",
    "finished": "green",
    "ok": "green",
    "interrupted": "yellow",
    "warn": "yellow",
    "stopped": "yellow",
    "fail": "red",
}
_COLOURS = {"red": 31, "green": 32, "yellow": 33}
_SPANS = ((60, 1, "s"), (3600, 60, "min"), (86400, 3600, "h"), (float("inf"), 86400, "d"))


def on_terminal() -> bool:
    return sys.stdout.isatty()


def coloured() -> bool:
    return on_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(word: str) -> str:
    """A word in its colour, on a terminal that wants one."""
    style = _STYLES.get(word.partition(":")[0])
    return f"\x1b[{_COLOURS[style]}m{word}\x1b[0m" if style and coloured() else word


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], right: frozenset[str] = frozenset()) -> None:
    cells = [[escape(cell) for cell in row] for row in rows]
    if on_terminal() and len(cells) <= MOST_RICH:
        _rich_table(columns, cells, right)
    else:
        _plain_table(columns, cells, right)


def _plain_table(columns: Sequence[str], cells: list[list[str]], right: frozenset[str]) -> None:
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    for row in [list(columns), *cells]:
        shown = zip(columns, row, widths, strict=True)
        say("  ".join(_padded(cell, width, name in right) for name, cell, width in shown).rstrip())


def _padded(cell: str, width: int, right: bool) -> str:
    padding = " " * (width - len(cell))
    return padding + paint(cell) if right else paint(cell) + padding


def _rich_table(columns: Sequence[str], cells: list[list[str]], right: frozenset[str]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        shown.add_column(name, justify="right" if name in right else "left", overflow="fold")
    for row in cells:
        shown.add_row(*(Text(cell, style=_STYLES.get(cell.partition(":")[0], "")) for cell in row))
    Console(highlight=False, markup=False, emoji=False).print(shown)


def pairs(rows: Iterable[tuple[str, object]]) -> None:
    """Names and values, one to a line; an empty value is left out."""
    kept = [(name, escape(value)) for name, value in rows if value not in (None, "")]
    width = max((len(name) for name, _ in kept), default=0)
    for name, value in kept:
        say(f"{name.ljust(width)}  {paint(value)}")


def short(run_id: str) -> str:
    """Enough of a run id to type: the random end of a generated one, else all of it."""
    generated = len(run_id) == 36 and [at for at, letter in enumerate(run_id) if letter == "-"] == [8, 13, 18, 23]
    return run_id[-8:] if generated else run_id


def seconds_between(earlier: str, later: str) -> float | None:
    """Seconds from one recorded time to another; None if either is no time."""
    try:
        return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()
    except (ValueError, TypeError):
        return None


def ago(at: str, now: str) -> str:
    seconds = seconds_between(at, now)
    if seconds is None:
        return "unknown"
    if seconds < 0:
        return "now" if seconds > -60 else "in the future"
    unit, name = next((unit, name) for end, unit, name in _SPANS if seconds < end)
    return f"{int(seconds // unit)} {name} ago"


def clock(at: str) -> str:
    """A recorded time to the second, in UTC."""
    return f"{at[:10]} {at[11:19]}Z" if len(at) == 27 else at


def size(count: int) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count //= 1024
    return f"{count:,} {unit}"


def watched(items: Iterable[Item], label: str, total: int | None = None) -> Iterator[Item]:
    """The items, with a progress bar on a terminal's error output once a second has passed."""
    if not sys.stderr.isatty():
        yield from items
        return
    began, bar, task = time.monotonic(), None, None
    try:
        for done, item in enumerate(items):
            yield item
            if bar is None and time.monotonic() - began > 1.0:
                bar, task = _start_bar(label, total)
            if bar is not None:
                bar.update(task, completed=done + 1)
    finally:
        if bar is not None:
            bar.stop()


def counter(label: str, total: int | None) -> Generator[int, None, None]:
    """A progress bar that moves with each `next`."""
    yield from watched(count(), label, total)


def _start_bar(label: str, total: int | None) -> tuple[Any, Any]:
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), transient=True)
    bar.start()
    return bar, bar.add_task(escape(label), total=total)

"""What a person sees while a spec runs: a live table on a terminal, plain lines elsewhere, JSON lines for a program.

Goes to stderr, so that stdout holds the result alone. Whatever comes from an agent is escaped.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from holdfast.cli.output import escape, line_of
from holdfast.engine.pipeline.desk import Moment

Tell = Callable[[Moment], None]
_LINE = 100
_DATA = ("number", "shown", "total", "agent", "task", "phase", "seconds", "tokens", "money", "until", "sidecar")


@contextmanager
def watching(as_json: bool) -> Iterator[Tell]:
    """What to tell the moments of a run to."""
    if as_json:
        yield _as_json
    elif sys.stderr.isatty():
        with _Live() as live:
            yield live.tell
    else:
        yield Lines().tell


def _as_json(moment: Moment) -> None:
    if moment.what != "line":
        data = {name: value for name, value in moment.data.items() if name in _DATA}
        _write(line_of({"moment": moment.what, "name": moment.name, "text": moment.text, **data}))


def _write(line: str) -> None:
    """A watcher who has gone away is no reason to stop."""
    with suppress(OSError, ValueError):
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


class Lines:
    """One line for each thing that happened; what an agent prints is left to the log."""

    def __init__(self, write: Callable[[str], None] = _write) -> None:
        self._write = write
        self._began: dict[str, float] = {}
        self._lock = threading.Lock()

    def tell(self, moment: Moment) -> None:
        with self._lock:
            line = self._line(moment)
            if line is not None:
                self._write(line)

    def _line(self, moment: Moment) -> str | None:
        if moment.what == "start":
            self._began.setdefault(moment.name, time.monotonic())
        return _LINES[moment.what](moment) if moment.what in _LINES else None


def batch_line(moment: Moment) -> str:
    data = moment.data
    if data["number"] == "final":
        return "final review: everything is complete"
    ids = ", ".join(task["id"] for task in data["tasks"])
    how = ", side by side" if data["parallel"] else ""
    was = " (done before)" if data.get("done") else ""
    return f"batch {data['shown']} of {data['total']}: {escape(ids, _LINE)}{how}{was}"


def span(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f}s"
    return f"{seconds // 60:.0f}m{seconds % 60:02.0f}s" if seconds < 3600 else f"{seconds / 3600:.1f}h"


def used(tokens: int, money: float) -> str:
    """What it cost, as far as the agent says."""
    return (f", {tokens:,} tokens" if tokens else "") + (f", ${money:.2f}" if money else "")


def wait_line(moment: Moment) -> str:
    until = f" until {escape(moment.data['until'])}" if moment.data.get("until") else ""
    seconds = moment.data.get("seconds", 0.0)
    how_long = "" if until else f" for {span(seconds)}"
    return f"  {escape(moment.name) or 'the run'}: waiting{how_long}{until} {escape(moment.text, _LINE)}".rstrip()


_LINES: dict[str, Callable[[Moment], str]] = {
    "batch": batch_line,
    "start": lambda moment: f"  {escape(moment.name)}: {escape(moment.text, _LINE)}",
    "end": lambda moment: (
        f"  {escape(moment.name)}: done in {span(moment.data.get('seconds', 0.0))}"
        f"{used(moment.data.get('tokens', 0), moment.data.get('money', 0.0))} {escape(moment.text, _LINE)}".rstrip()
    ),
    "wait": wait_line,
    "commit": lambda moment: f"  {escape(moment.name)}: committed {escape(moment.text)[:12]}",
    "note": lambda moment: f"  {escape(moment.text, 2 * _LINE)}",
}


class _Live:
    """What happened scrolls by; below it stand the stages that are going on, with their time and the agent's last line."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._going: dict[str, tuple[float, str, str]] = {}
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._batch, self._tokens, self._money = "", 0, 0.0
        self._lines = Lines(self._scroll)
        self._console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._live = Live(console=self._console, get_renderable=self._picture, refresh_per_second=4, transient=True)

    def __enter__(self) -> _Live:
        self._live.__enter__()
        return self

    def __exit__(self, *problem: Any) -> None:
        self._live.__exit__(*problem)

    def tell(self, moment: Moment) -> None:
        with self._lock:
            if moment.what == "start":
                self._going[moment.name] = (time.monotonic(), moment.text, "")
            elif moment.what == "line" and moment.name in self._going:
                began, agent, _ = self._going[moment.name]
                self._going[moment.name] = (began, agent, moment.text)
            elif moment.what in ("end", "fail"):
                self._going.pop(moment.name, None)
                self._tokens += moment.data.get("tokens", 0)
                self._money += moment.data.get("money", 0.0)
            elif moment.what == "batch":
                self._batch = f"{batch_line(moment)}; "
        if moment.what != "start":
            self._lines.tell(moment)

    def _scroll(self, line: str) -> None:
        from rich.text import Text

        self._console.print(Text(line))

    def _picture(self) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2))
        with self._lock:
            rows = list(self._going.items())
        now = time.monotonic()
        for name, (began, agent, line) in rows:
            cells = (escape(name), escape(agent, 24), span(now - began), escape(line, 80))
            grid.add_row(*map(Text, cells))
        spent = used(self._tokens, self._money)
        return Group(grid, Text(f"{self._batch}{span(now - self._began)}{spent}; Ctrl-C stops it, and nothing is lost"))

"""How far something long has got, on the error output: bars on a terminal, a line for each look elsewhere and beside JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from holdfast.cli.output import remark

T = TypeVar("T")
Reached = tuple[Mapping[str, int], str]  # how much of each total there is, and a word for the first of them


@contextmanager
def bars(
    totals: Mapping[str, int], reached: Callable[[T], Reached], line: Callable[[T], str], as_json: bool
) -> Iterator[Callable[[T], None]]:
    if as_json or not sys.stderr.isatty():
        yield lambda seen: remark(line(seen), as_json)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description:<6}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[last]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        rows = {name: shown.add_task(name, total=most, last="") for name, most in totals.items()}

        def watch(seen: T) -> None:
            counts, word = reached(seen)
            for name, row in rows.items():
                shown.update(row, completed=counts[name], last=word)
                word = ""

        yield watch

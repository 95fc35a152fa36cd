"""What a reader of a SQLite store finds out with more than one statement. Writes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import repeat
from operator import lt
from typing import Any

from holdfast.core.values import Record
from holdfast.stores.sqlite_file import Reader
from holdfast.stores.sqlite_writer import SEQ, SHIFT, every, on_each, one, roll_back

_EVENT = (int, str, int, str, bytes, bytes, bytes)
_COLUMNS = [{kind} for kind in _EVENT]
_record = partial(tuple.__new__, Record)  # what Record(...) does in the end, without its frame


def page(run_id: str, after: int, size: int, reader: Reader) -> tuple[int, list[tuple[Any, ...]]]:
    """Where a run begins, and some of its events."""
    row = one(reader.connection, "run_no", (run_id,))
    if row is None:
        return 0, []
    base, sql = int(row[0]) << SHIFT, reader.tables.of_run(row[0], "events")
    return base, reader.connection.execute(sql, (base | after, base | SEQ, size)).fetchall()


def sound(rows: list[tuple[Any, ...]], last: int) -> list[tuple[Any, ...]]:
    """The columns of the events that can be used: of all, unless one has a column of a wrong type or does not go forward.

    A page is looked at column by column, because that takes no step of Python for each event.
    """
    columns = list(zip(*rows, strict=True))
    if [set(map(type, column)) for column in columns] == _COLUMNS and all(map(lt, (last, *columns[0]), columns[0])):
        return columns
    for number, row in enumerate(rows):
        if not typed(row, _EVENT) or row[0] <= last:
            return list(zip(*rows[:number], strict=True))
        last = row[0]
    return columns


def records(run_id: str, base: int, columns: list[tuple[Any, ...]]) -> Iterator[Record]:
    """The events of a run that have these columns."""
    if not columns:
        return iter(())
    places, kinds, versions, times, ops, hashes, bodies = columns
    seqs = [place - base for place in places]
    return map(_record, zip(repeat(run_id), seqs, kinds, versions, times, bodies, hashes, map(bytes.hex, ops)))


def problem(run_id: str, row: tuple[Any, ...], after: int) -> str:
    """What is wrong with an event that is not sound."""
    if not typed(row, _EVENT):
        return f"event {after + 1} of run {run_id} has columns of a wrong type"
    return f"the events of run {run_id} are out of order"


def standings(query: str, values: tuple[object, ...], reader: Reader) -> list[tuple[Any, Any]]:
    """Rows of runs, each with where its log stands, or None. All of one moment: a row and its log are written together."""
    connection = reader.connection
    connection.execute("begin")
    try:
        rows = every(connection, query, values)
        return [(row, connection.execute(reader.tables.of_run(row[0], "head"), row[:1]).fetchone()) for row in rows]
    finally:
        roll_back(connection)


def counts(reader: Reader) -> tuple[int, int, int, int]:
    runs, artifacts = one(reader.connection, "counts")
    events = on_each(reader.connection, reader.tables, "events_count")
    return reader.version, runs, sum(count for (count,) in events), artifacts


def typed(values: Sequence[object], types: tuple[type, ...]) -> bool:
    return tuple(map(type, values)) == types


def size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        return 0

"""What a reader of a SQLite store finds out with more than one statement. Writes nothing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from holdfast.stores.sqlite_file import Reader
from holdfast.stores.sqlite_writer import SEQ, SHIFT, every, on_each, one, roll_back


def page(run_id: str, after: int, size: int, reader: Reader) -> tuple[int, list[tuple[Any, ...]]]:
    """Where a run begins, and some of its events."""
    row = one(reader.connection, "run_no", (run_id,))
    if row is None:
        return 0, []
    base, sql = int(row[0]) << SHIFT, reader.tables.of_run(row[0], "events")
    return base, reader.connection.execute(sql, (base | after, base | SEQ, size)).fetchall()


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

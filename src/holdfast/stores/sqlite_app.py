"""The user's own tables in a store's file: which there may be, and what a statement may do. Refuses all that is not plain.

Names begin with `app_`. There are tables and indexes; a trigger, a view or a virtual table runs code that nobody asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import apsw

from holdfast.stores.sqlite_tables import TABLES

PREFIX = "app_"
_AUTO = "sqlite_autoindex_" + PREFIX
_COUNTERS = "sqlite_sequence"
_COUNTERS_SQL = f"CREATE TABLE {_COUNTERS}(name,seq)"
_OWN = frozenset({"store", "runs", *TABLES.names, "artifacts", "snapshots", "messages"})
_SCHEMA = frozenset({"sqlite_master", "sqlite_schema", "sqlite_temp_master"})
_READABLE = frozenset({_COUNTERS, "json_each", "json_tree", "pragma_quick_check"})
_FORBIDDEN = frozenset({"load_extension", "fts3_tokenizer", "sqlite_log"})


def is_name(name: object) -> bool:
    """A name that a table or an index of the user may have."""
    return isinstance(name, str) and name.startswith(PREFIX) and name.isascii() and name.isidentifier()


def is_plain(row: Sequence[Any]) -> bool:
    """Whether this row of the schema is a table or an index of the user."""
    kind, name, table, sql, root = row
    if not (isinstance(name, str) and isinstance(sql, str) and isinstance(root, int) and root > 1):
        return False
    if kind == "table":
        plain = is_name(name) and sql.startswith("CREATE TABLE ")
        return name == table and (plain or (name, sql) == (_COUNTERS, _COUNTERS_SQL))
    if kind == "index" and is_name(table):
        made = is_name(name) and sql.startswith(("CREATE INDEX ", "CREATE UNIQUE INDEX "))
        return made or (name.startswith(f"sqlite_autoindex_{table}_") and sql == "")
    return False


def is_understood(rows: Sequence[Sequence[Any]], objects: Sequence[Sequence[Any]]) -> bool:
    """Whether SQLite has made of the schema's text what its rows say, each table and index with pages of its own.

    A row that was edited can be called a table of the user and be an index on the events.
    """
    indexes = Counter((row[2], row[1]) for row in rows if row[0] == "index")
    return (
        {row[1] for row in rows if row[0] == "table"} == {name for name, _, _ in objects}
        and indexes == Counter((table, index) for table, _, index in objects if index is not None)
        and all(kind == "table" for _, kind, _ in objects)
        and len({row[4] for row in rows}) == len(rows)
    )


Rule = Callable[[str | None, str | None], bool]


def _always(first: str | None, second: str | None) -> bool:
    return True


def _function(_: str | None, name: str | None) -> bool:
    return name not in _FORBIDDEN


def _read(table: str | None, column: str | None) -> bool:
    """Reading no column names the table as the statement does: it may be one of the statement's own making."""
    name = (table or "").lower()
    return is_name(table) or name in _READABLE | _SCHEMA or (column == "" and name not in _OWN)


def _write(table: str | None, _: str | None) -> bool:
    """SQLite itself refuses to change its schema tables by hand; making and dropping tables must."""
    return is_name(table) or table in ("sqlite_master", _COUNTERS)


def _update(table: str | None, column: str | None) -> bool:
    return _write(table, column) or table == "sqlite_temp_master"


def _make_table(table: str | None, _: str | None) -> bool:
    return is_name(table) or table == _COUNTERS


def _table(table: str | None, _: str | None) -> bool:
    return is_name(table)


def _altered(_: str | None, table: str | None) -> bool:
    return is_name(table)


def _index(index: str | None, table: str | None) -> bool:
    return is_name(table) and _rebuilt(index, None)


def _rebuilt(index: str | None, _: str | None) -> bool:
    return is_name(index) or (index or "").startswith(_AUTO)


def _pragma(name: str | None, table: str | None) -> bool:
    """The look with which SQLite proves a check that is added to a table."""
    return name == "quick_check" and is_name(table)


DEFINING: dict[int, Rule] = {
    apsw.SQLITE_CREATE_TABLE: _make_table,
    apsw.SQLITE_DROP_TABLE: _table,
    apsw.SQLITE_ALTER_TABLE: _altered,
    apsw.SQLITE_CREATE_INDEX: _index,
    apsw.SQLITE_DROP_INDEX: _index,
    apsw.SQLITE_REINDEX: _rebuilt,
}
# what is not here is refused: transactions, savepoints, attaching, pragmas, triggers, views, virtual and temporary tables
RULES: dict[int, Rule] = {
    apsw.SQLITE_SELECT: _always,
    apsw.SQLITE_RECURSIVE: _always,
    apsw.SQLITE_FUNCTION: _function,
    apsw.SQLITE_READ: _read,
    apsw.SQLITE_INSERT: _write,
    apsw.SQLITE_DELETE: _write,
    apsw.SQLITE_UPDATE: _update,
    apsw.SQLITE_PRAGMA: _pragma,
    **DEFINING,
}


class Guard:
    """Asked by SQLite about everything that a statement wants to do. `changed`: a table or an index may be another now."""

    changed = False

    def __call__(
        self, action: int, first: str | None, second: str | None, database: str | None, within: str | None
    ) -> int:
        rule = RULES.get(action)
        if rule is None or not rule(first, second):
            return apsw.SQLITE_DENY
        self.changed = self.changed or action in DEFINING
        return apsw.SQLITE_OK

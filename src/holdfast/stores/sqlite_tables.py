"""Which table holds the events of a run: one of sixteen, by the number of the run. Version 1 of the schema had one for all.

Runs that are written at the same time have neighbouring numbers, so each of them grows at the end of a tree of its own.
In one tree all but the last grow in the middle, and every second event moves pages of its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.stores.sqlfiles import queries

SQL = queries("sqlite")
EVENTS = "{events}"


class Tables:
    """The tables of events of one version of the schema."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self._made: dict[tuple[str, int], str] = {}

    def of_run(self, number: int, query: str) -> str:
        """The statement, on the table of this run."""
        table = number % len(self.names)
        made = self._made.get((query, table))
        if made is None:
            made = self._made[query, table] = self.filled(SQL[query], table)
        return made

    def each(self, query: str) -> Iterator[str]:
        """The statement, on one table after the other."""
        return (self.of_run(number, query) for number in range(len(self.names)))

    def filled(self, sql: str, table: int) -> str:
        return (
            sql.replace(EVENTS, self.names[table])
            .replace("{tables}", str(len(self.names)))
            .replace("{table}", str(table))
        )


TABLES = Tables(tuple(f"events_{number}" for number in range(16)))
BY_VERSION = {1: Tables(("events",)), 2: TABLES}

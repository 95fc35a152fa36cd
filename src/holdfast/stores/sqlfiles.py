"""Reads SQL from the .sql files beside the stores. Refuses a file whose queries are not named."""

from __future__ import annotations

import os
from functools import cache

_FOLDER = os.path.join(os.path.dirname(__file__), "sql")
_NAME = "-- name: "


@cache
def queries(engine: str) -> dict[str, str]:
    """The named queries of `sql/<engine>/queries.sql`: each begins with a line `-- name: <name>`."""
    found: dict[str, str] = {}
    for block in _text(engine, "queries.sql").split(_NAME)[1:]:
        name, _, sql = block.partition("\n")
        found[name.strip()] = "\n".join(line for line in sql.splitlines() if not line.startswith("--")).strip()
    return found


def migrations(engine: str) -> list[tuple[int, str]]:
    """The numbered migrations of an engine, in order: `0001_log.sql` is version 1."""
    files = sorted(name for name in os.listdir(os.path.join(_FOLDER, engine)) if name[0].isdigit())
    return [(int(name.split("_")[0]), _text(engine, name)) for name in files]


def _text(engine: str, name: str) -> str:
    with open(os.path.join(_FOLDER, engine, name), encoding="utf-8") as file:
        return file.read()

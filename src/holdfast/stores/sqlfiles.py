"""Reads SQL from the .sql files beside the stores. Refuses a file whose queries are not named."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent / "sql"
_NAME = "-- name: "


def queries(engine: str) -> dict[str, str]:
    """The named queries of `sql/<engine>/queries.sql`: each begins with a line `-- name: <name>`."""
    found: dict[str, str] = {}
    text = (_FOLDER / engine / "queries.sql").read_text(encoding="utf-8")
    for block in text.split(_NAME)[1:]:
        name, _, sql = block.partition("\n")
        found[name.strip()] = "\n".join(line for line in sql.splitlines() if not line.startswith("--")).strip()
    return found


def migrations(engine: str) -> list[tuple[int, str]]:
    """The numbered migrations of an engine, in order: `0001_log.sql` is version 1."""
    files = sorted((_FOLDER / engine).glob("[0-9]*_*.sql"))
    return [(int(file.name.split("_")[0]), file.read_text(encoding="utf-8")) for file in files]

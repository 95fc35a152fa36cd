"""What a spec's files say besides what a run writes, and what of that is gone from a later state of them. Plain data only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.core.spec_graph import FILES, first, text
from holdfast.core.spec_shapes import IDS, NAMES, SPEC_NAMES, SPEC_PATHS, read_deferred

Plain = Any
_REF = frozenset((*IDS, *NAMES, *FILES, "status"))
_NEXT = frozenset(("number", "batch", "tasks", "parallel"))
_SCALARS = ("branch", "timestamp", "last_batch", "last_commit", "tasks_digest")
_OURS = frozenset((*SPEC_NAMES, *SPEC_PATHS, *_SCALARS, "tasks", "next_batch", "deferred_issues", "review_config"))


def lost_of_checkpoint(before: Mapping[str, Plain], now: Mapping[str, Plain]) -> list[str]:
    """The names of what was there besides, and is not any more. A deferred finding that is gone is another matter."""
    was, left = _besides(before), _besides(now)
    was["deferred_issues"] = {key: row for key, row in was["deferred_issues"].items() if key in left["deferred_issues"]}
    return list(dict.fromkeys(lost(was, left)))


def lost(before: Plain, now: Plain, name: str = "") -> Iterator[str]:
    """The names of keys, ids and lists that had something and have it no more. Another word for a word is no loss."""
    if not before:
        return
    if isinstance(before, dict):
        left = now if isinstance(now, dict) else {}
        gone = [one for key, value in before.items() for one in lost(value, left.get(key), str(key))]
        yield from [name] if gone and name and left is not now else gone
    elif isinstance(before, list):
        rows = now if isinstance(now, list) else []
        known = {text(first(row, IDS)): row for row in rows if isinstance(row, dict)}
        for row in before:
            own = text(first(row, IDS)) if isinstance(row, dict) else ""
            if own in known and own:
                yield from lost(row, known[own], own)
            elif row not in rows:
                yield own or name
    elif not now:
        yield name


def _besides(data: Mapping[str, Plain]) -> dict[str, Plain]:
    """What is not ours, with items by their ids. Other documents and keys beside `checkpoint` count as they are."""
    inner = data.get("checkpoint")
    body: Mapping[str, Plain] = inner if isinstance(inner, dict) else data
    around = {key: value for key, value in data.items() if key != "checkpoint"} if body is not data else {}
    tasks, following, config = (_map(body.get(key)) for key in ("tasks", "next_batch", "review_config"))
    lists = [row for value in tasks.values() for row in _rows(value)]
    return {
        "around": around,
        **{key: value for key, value in body.items() if key not in _OURS},
        "tasks": _by_id(lists),
        "next_batch": _without(following, _NEXT),
        "tasks of next_batch": _by_id(_rows(following.get("tasks"))),
        "review_config": _without(config, frozenset({"reviewers"})),
        "deferred_issues": {one: row for row in _rows(body.get("deferred_issues")) for one in _findings(row)},
    }


def _map(value: Plain) -> Mapping[str, Plain]:
    return value if isinstance(value, dict) else {}


def _rows(value: Plain) -> list[Mapping[str, Plain]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _without(row: Mapping[str, Plain], ours: frozenset[str]) -> dict[str, Plain]:
    return {key: value for key, value in row.items() if key not in ours}


def _by_id(rows: list[Mapping[str, Plain]]) -> dict[str, Plain]:
    return {text(first(row, IDS)): _without(row, _REF) for row in rows}


def _findings(row: Mapping[str, Plain]) -> Iterator[str]:
    yield from (one.id or one.description for one in read_deferred([row]))

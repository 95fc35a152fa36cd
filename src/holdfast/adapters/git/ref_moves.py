"""What became of branches, tags and HEAD between two looks at them, in sentences. Who moved them is not known."""

from __future__ import annotations

from collections.abc import Mapping


def refs_moved(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """A sentence for every ref that is not where it was."""
    moved = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    return [_sentence(name, before.get(name), after.get(name)) for name in sorted(moved)]


def _sentence(name: str, old: str | None, new: str | None) -> str:
    if old is None:
        return f"{name} was made at {new}."
    return f"{name} was removed; it was at {old}." if new is None else f"{name} was moved from {old} to {new}."

"""Maps and lists that stand in brackets, as one line for each entry. Values, keys and comments stay as they are written."""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.adapters.specs.yaml_text import Entry, Node

_COMMENT = re.compile(r"(?:^|\s)(#.*)")


def unfolded(text: str, node: Node, indent: int) -> list[str]:
    """The lines of a collection in brackets that is not empty. A comment behind an entry stays behind it."""
    lines: list[str] = []
    entries: list[Entry] = list(node.value.values() if isinstance(node.value, dict) else node.value)
    here = node.start + 1
    for entry in entries:
        start = entry.start if entry.key is None else entry.key.start
        _add_comments(lines, text[here:start], indent)
        lines += _entry(text, entry, indent)
        here = max(entry.end, start)
    _add_comments(lines, text[here : node.end - 1], indent)
    return lines


def _entry(text: str, entry: Entry, indent: int) -> Iterator[str]:
    first, *more = text[entry.start : entry.end].strip().splitlines() or [""]
    head = "-" if entry.key is None else f"{text[entry.key.start : entry.key.end]}:"
    yield f"{' ' * indent}{head} {first}".rstrip()
    yield from (f"{' ' * (indent + 4)}{line.strip()}" for line in more)


def _add_comments(lines: list[str], gap: str, indent: int) -> None:
    """Those between two entries: in the line of the one before, or in lines of their own."""
    for place, line in enumerate(gap.splitlines()):
        found = _COMMENT.search(line)
        if found and place == 0 and lines:
            lines[-1] += f"  {found[1].rstrip()}"
        elif found:
            lines.append(f"{' ' * indent}{found[1].rstrip()}")

"""What items of lists carry besides what we write: keys that nobody here knows, and comments. Moves items with all of it.

Nothing is thrown away that says more than we do: what has no place any more goes to the list `earlier_NAME`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from holdfast.adapters.specs.edit import CannotEdit, Path, end_of, line_end, must_be_own
from holdfast.adapters.specs.emit import Written, items
from holdfast.adapters.specs.yaml_text import Entry, Node, plain
from holdfast.core.named import NamedTuple

Known = Mapping[str, Any]  # the keys that are ours, each with those below it


class Item(NamedTuple):
    """An item of a list in the file. `name` is the list that has it, `look` tells whether it says more than we write, and
    `beside` is the comment in its last line."""

    name: str
    place: int
    about: Hashable
    data: Any
    written: Written
    look: Callable[[], bool]
    beside: str = ""

    @property
    def more(self) -> bool:
        return self.look()


def is_more(text: str, node: Node, start: int, end: int, known: Known) -> bool:
    """Whether something stands there that we did not write: a key or a comment."""
    return _has_strange(node, known) or "#" in _between(text, node, start, end)


def _has_strange(node: Node, known: Known | None) -> bool:
    if isinstance(node.value, dict):
        return known is None or any(
            key not in known or _has_strange(entry.node, known[key]) for key, entry in node.value.items()
        )
    return isinstance(node.value, list) and any(_has_strange(entry.node, known) for entry in node.value)


def _between(text: str, node: Node, start: int, end: int) -> str:
    """The text without its scalars."""
    parts: list[str] = []
    for first, last in _scalars(node):
        parts.append(text[start:first])
        start = max(start, last)
    return "".join([*parts, text[start:end]])


def _scalars(node: Node) -> Iterator[tuple[int, int]]:
    if isinstance(node.value, str):
        yield node.start, node.end
        return
    for entry in node.value.values() if isinstance(node.value, dict) else node.value:
        if entry.key is not None:
            yield entry.key.start, entry.key.end
        if entry.start == entry.node.start:
            yield from _scalars(entry.node)


def as_item(text: str, path: Path, entry: Entry) -> Written:
    """The value of a key, as an item that says the same."""
    must_be_own(path, entry)
    assert entry.key is not None
    is_below = "\n" in text[entry.key.end : entry.start]
    end = line_end(text, end_of(text, entry)) if is_below else end_of(text, entry)
    first, *rest = _unindented(text[entry.start : end], entry.node.column if is_below else entry.key.column)
    return Written((f"- {first}", *(f"  {line}" for line in rest)))


def items_of(
    text: str, name: str, node: Node, about: Callable[[Any], Hashable], known: Known, stay: Stay | None = None
) -> Iterator[Item]:
    """The items of a list, one below the other or of plain words in one line. A comment above an item goes with it.

    Those that `stay` where they are are not among them.
    """
    held = node.value if isinstance(node.value, list) else []
    first, end = (stay.first, len(held) - stay.last) if stay else (0, len(held))
    start = _start_of(text, node, first)
    for place, entry in enumerate(held[first:end], first):
        data = plain(entry.node)
        if node.flow:
            written = Written((f"- {text[entry.start : entry.end]}",))
            yield Item(name, place, about(data), data, written, partial(_is_sentence, data))
            continue
        end = line_end(text, end_of(text, entry))
        lines = _unindented(text[start:end], node.column)
        if not any(line.startswith("-") for line in lines):
            raise CannotEdit((name, place), "is written in a way in which it cannot be moved")
        look = partial(_says_more, text, entry.node, start, end, known)
        yield Item(name, place, about(data), data, Written(lines), look, text[end_of(text, entry) : end])
        start = _line_after(text, end)


def _line_after(text: str, place: int) -> int:
    return text.find("\n", place) + 1 or len(text)


def _start_of(text: str, node: Node, place: int) -> int:
    """Where the lines of an item begin, with the comments above it."""
    before = node.value[place - 1] if place and not node.flow else None
    return node.start - node.column if before is None else _line_after(text, line_end(text, end_of(text, before)))


class Stay(NamedTuple):
    """How many items at the beginning and at the end of a list stay there, and their lines."""

    first: int
    last: int
    before: Written
    behind: Written

    def middle(self, values: Sequence[Any]) -> Sequence[Any]:
        return values[self.first : len(values) - self.last]

    def around(self, values: Any) -> list[Any]:
        return [self.before, *values, self.behind]


def staying(text: str, node: Node, was: Sequence[Any], now: Sequence[Any]) -> Stay | None:
    """What stays of a list, if all of it would be written as it is, line by line; None where that is not sure."""
    count = len(was)
    first = _alike(was, now)
    last = _alike(was[first:][::-1], now[first:][::-1])
    if node.flow or not first + last:
        return None
    written = [_as_it_stands(text, node, *ends) for ends in ((0, first), (count - last, count))]
    return None if None in written else Stay(first, last, *filter(None, written))


def _alike(one: Sequence[Any], other: Sequence[Any]) -> int:
    count = min(len(one), len(other))
    return next((place for place in range(count) if one[place] != other[place]), count)


def _as_it_stands(text: str, node: Node, first: int, end: int) -> Written | None:
    dash, entries = f"{' ' * node.column}-", node.value[first:end]
    if not entries:
        return Written(())
    if any(isinstance(one.node.told, str) for one in entries):  # a word may be told in another way now
        return None
    if not all(text.startswith(dash, text.rfind("\n", 0, one.start) + 1) for one in entries):
        return None
    lines = text[_start_of(text, node, first) : line_end(text, end_of(text, entries[-1]))].split("\n")
    is_ours = all(not line or (line.startswith(dash[:-1]) and line == line.rstrip()) for line in lines)
    return Written(tuple(line[node.column :] for line in lines)) if is_ours else None


def _says_more(text: str, node: Node, start: int, end: int, known: Known) -> bool:
    return _is_sentence(node.value) or is_more(text, node, start, end, known)


def _is_sentence(data: Any) -> bool:
    return isinstance(data, str) and " " in data.strip()


@lru_cache(maxsize=8192)
def _unindented(text: str, column: int) -> tuple[str, ...]:
    return tuple(line.removesuffix("\r")[_shift(line, column) :] for line in text.split("\n"))


def _shift(line: str, column: int) -> int:
    return min(column, len(line) - len(line.lstrip(" ")))


def _retold(item: Item, value: Any) -> Written:
    """Another value in the place of a word; the comments around that stay."""
    dash = next(place for place, line in enumerate(item.written.lines) if line.startswith("-"))
    first, *rest = items([value], 0)
    return Written((*item.written.lines[:dash], first + item.beside, *rest))


def sorted_in(
    found: Sequence[Item], wanted: Mapping[str, Iterable[Hashable]]
) -> tuple[dict[str, list[Item | None]], list[Item]]:
    """For each list what it is to hold, None for what is nowhere yet; and the items that are in none of them then."""
    left: dict[Hashable, list[Item]] = {}
    for item in found:
        left.setdefault(item.about, []).append(item)
    lists: dict[str, list[Item | None]] = {}
    for name, subjects in wanted.items():
        lists[name] = []
        for about in subjects:
            fitting = left.get(about, [])
            chosen = next((one for one in fitting if one.name == name), fitting[0] if fitting else None)
            lists[name].append(chosen)
            left[about] = [one for one in fitting if one is not chosen]
    return lists, [one for fitting in left.values() for one in fitting]


def row(fresh: Iterable[Any], chosen: Sequence[Item | None], write: Callable[[Any], Any], in_line: bool) -> Any:
    """The items of a list: as they are in the file, or as `write` gives them."""
    if in_line and all(one is None or (isinstance(one.data, str) and not one.more) for one in chosen):
        return f"[{', '.join(map(write, fresh))}]"
    return [_item(about, one, write) for about, one in zip(fresh, chosen, strict=True)]


def _item(about: Any, one: Item | None, write: Callable[[Any], Any]) -> Any:
    if one is not None and not isinstance(one.data, str):
        return one.written
    value = write(about)
    if one is None:
        return value
    return one.written if isinstance(value, str) else _retold(one, value)

"""Changes a YAML text at one place and nowhere else. Reads the result back, and refuses if anything else came out different.

Every change is text in, text out. Comments, order, quotes, unknown keys, anchors and line ends stay byte for byte.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Any

from holdfast.adapters.specs.emit import block, items, like
from holdfast.adapters.specs.unfold import unfolded
from holdfast.adapters.specs.yaml_text import BadYaml, Entry, Node, compose, plain
from holdfast.core.named import NamedTuple

Path = tuple[str | int, ...]


class CannotEdit(Exception):
    """A place that cannot be changed without touching the rest. `where` says which, `why` in words."""

    def __init__(self, path: Path, why: str) -> None:
        self.path, self.where, self.why = path, ".".join(map(str, path)), why
        super().__init__(f"{self.where} {why}")


def put(text: str, path: Path, value: Any) -> str:
    """Give a key a value (see `emit.block`): in the place of the one it has, else at the end of its map.

    A map in brackets gets a line for each entry first.
    """
    documents = compose(text)
    parent = _parent(documents, path)
    if not parent.value:
        return _filled(text, path, parent, value)
    if parent.flow:
        return put(unfold(text, path[:-1]), path, value)
    entry = parent.value.get(str(path[-1]))
    if entry:
        return apply(text, [_replacing(text, path, entry, value)], documents)
    return _checked(documents, _added(text, path, parent, value), [path])


def put_all(text: str, path: Path, values: Mapping[str, Any]) -> str:
    """Give several keys of one map their values, as `put` does for each. Where all are there, the result is read back once."""
    if len(values) > 1:
        documents = compose(text)
        held = _parent(documents, (*path, next(iter(values))))
        if not held.flow and held.value.keys() >= values.keys():
            with suppress(CannotEdit):  # by which of them, it is found out one by one
                edits = [_replacing(text, (*path, key), held.value[key], value) for key, value in values.items()]
                return apply(text, edits, documents)
    for key, value in values.items():
        text = put(text, (*path, key), value)
    return text


def unfold(text: str, path: Path) -> str:
    """Write what stands in brackets here, and around it, as one line for each entry. What is written so already stays."""
    for length in range(1, len(path) + 1):
        documents = compose(text)
        node = documents[int(path[0])] if length == 1 else _entry(documents, path[:length]).node
        if node.flow and node.value:
            text = _checked(documents, _unfolded(text, documents, path[:length], node), (), path[:length])
    return text


def _unfolded(text: str, documents: Sequence[Node], path: Path, node: Node) -> str:
    if len(path) == 1:
        before, indent = text[: node.start], 0
        is_alone = not before.rpartition("\n")[2].strip()
        before = before[: len(before) - node.column] if is_alone else before.rstrip(" ") + _newline(text)
    else:
        entry = _entry(documents, path)
        must_be_own(path, entry)
        before, indent = text[: node.start].rstrip() + _newline(text), _key(entry).column + 2
    return before + _newline(text).join(unfolded(text, node, indent)) + text[node.end :]


def _entry(documents: Sequence[Node], path: Path) -> Entry:
    entry: Entry = _parent(documents, path).value[str(path[-1])]
    return entry


def _key(entry: Entry) -> Node:
    assert entry.key is not None
    return entry.key


class Edit(NamedTuple):
    """Put `new` in the place of the text from `start` to `end`. `path` is what is meant to be different then."""

    path: Path
    start: int
    end: int
    new: str


def scalar_edit(text: str, path: Path, parent: Node, value: str, after: str = "") -> Edit:
    """Give a key a value that is ready to be written, in the quotes of the old one. A new key comes after the key `after`."""
    entry = parent.value.get(str(path[-1]))
    if entry is None:
        return _squeezed_in(text, path, parent, parent.value.get(after), value)
    must_be_own(path, entry)
    end = end_of(text, entry)
    return Edit(path, entry.start, end, _spaced(text, entry, like(text[entry.start : end], value)))


def item_edit(text: str, path: Path, entry: Entry, word: str) -> Edit:
    """Add a scalar that is ready to be written to a list, in one line or one below the other."""
    must_be_own(path, entry)
    held = entry.node.value
    if not isinstance(held, list):
        raise CannotEdit(path, "is not a list")
    if not entry.node.flow:
        end = line_end(text, end_of(text, entry))
        return Edit(path, end, end, f"{_newline(text)}{' ' * entry.node.column}- {word}")
    last = held[-1].end if held else entry.start + 1
    return Edit(path, last, last, (", " if held else "") + word)


def apply(text: str, edits: Sequence[Edit], documents: Sequence[Node]) -> str:
    """All of them at once."""
    parts: list[str] = []
    here = 0
    for edit in sorted(edits, key=lambda edit: edit.start):
        parts += [text[here : edit.start], edit.new]
        here = edit.end
    return _checked(documents, "".join([*parts, text[here:]]), [edit.path for edit in edits])


def append(text: str, path: Path, item: Any) -> str:
    """Add an item (see `emit.items`) to a list in block style, or begin one where there is none."""
    documents = compose(text)
    entry = _parent(documents, path).value.get(str(path[-1]))
    if entry is None or not entry.node.value or entry.node.is_nothing:
        return put(text, path, [item])
    must_be_own(path, entry)
    if not isinstance(entry.node.value, list):
        raise CannotEdit(path, "is not a list")
    if entry.node.flow:
        return append(unfold(text, path), path, item)
    lines = items([item], entry.node.column)
    return _checked(documents, _after(text, end_of(text, entry), lines), [path])


def _parent(documents: Sequence[Node], path: Path) -> Node:
    node = documents[int(path[0])]
    for step in path[1:-1]:
        held = node.value.get(step) if isinstance(node.value, dict) else node.value[int(step)]
        if held is None:
            raise CannotEdit(path, "has no place in this file")
        must_be_own(path, held)
        node = held.node
    if not isinstance(node.value, dict):
        raise CannotEdit(path, "is not in a map")
    return node


def must_be_own(path: Path, entry: Entry) -> None:
    if entry.node.anchor is not None and entry.start == entry.node.start:
        raise CannotEdit(path, f"is shared under the name &{entry.node.anchor}")
    if entry.start != entry.node.start and not isinstance(entry.node.value, str):
        raise CannotEdit(path, f"is shared under the name &{entry.node.anchor}")


def end_of(text: str, entry: Entry) -> int:
    """Where a value ends; the line end of a block of text is not part of it."""
    end = entry.end
    while end > entry.start and text[end - 1] in "\r\n ":
        end -= 1
    return end


def line_end(text: str, place: int) -> int:
    """The place before the line end."""
    end = text.find("\n", place)
    end = len(text) if end < 0 else end
    return end - 1 if end > place and text[end - 1] == "\r" else end


def _indent(parent: Node) -> int:
    """Where the keys of a map begin; an anchor may stand before the first."""
    columns: list[int] = [entry.key.column for entry in parent.value.values()]
    return min(columns)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _below(text: str, lines: Sequence[str]) -> str:
    newline = _newline(text)
    return "".join(newline + line for line in lines)


def _spaced(text: str, entry: Entry, word: str) -> str:
    return word if entry.start and text[entry.start - 1] in " \t\n{," else f" {word}"


def _after(text: str, place: int, lines: Sequence[str]) -> str:
    end = line_end(text, place)
    return text[:end] + _below(text, lines) + text[end:]


def _filled(text: str, path: Path, parent: Node, value: Any) -> str:
    """The first entry of an empty map."""
    if len(path) > 2:
        return put(text, path[:-1], {str(path[-1]): value})
    lines = block(str(path[-1]), value, 0)
    return _checked(compose(text), text[: parent.start] + _newline(text).join(lines) + text[parent.end :], [path])


def _added(text: str, path: Path, parent: Node, value: Any) -> str:
    lines = block(str(path[-1]), value, _indent(parent))
    return _after(text, end_of(text, next(reversed(parent.value.values()))), lines)


def _squeezed_in(text: str, path: Path, parent: Node, after: Entry | None, value: str) -> Edit:
    if after is None or not isinstance(after.node.value, str):
        raise CannotEdit(path, "is missing, and there is no place to put it")
    end = end_of(text, after)
    word = f"{path[-1]}: {value}"
    if parent.flow:
        return Edit(path, end, end, f", {word}")
    end = line_end(text, end)
    return Edit(path, end, end, f"{_newline(text)}{' ' * _indent(parent)}{word}")


def _replacing(text: str, path: Path, entry: Entry, value: Any) -> Edit:
    """A value for a value, whatever lines the two need. What stands beside the key as a comment stays."""
    must_be_own(path, entry)
    lines = block(str(path[-1]), value, _key(entry).column)
    head, rest = lines[0].partition(":")[2], lines[1:]
    colon = text.index(":", _key(entry).end) + 1
    end = end_of(text, entry)
    if "\n" in text[colon : entry.start]:
        beside = text[colon : text.rindex("\n", colon, entry.start)].removesuffix("\r")
    else:
        beside = text[max(end, colon) : line_end(text, max(end, colon))]
    end = line_end(text, max(end, colon))
    return Edit(path, colon, end, head + beside + _below(text, rest))


def line_of(documents: Sequence[Node], path: Path) -> int | None:
    """The line of the last node on the way to a place that is there."""
    line, held = None, dict[str | int, Any](enumerate(documents))
    for step in path:
        found = held.get(step)
        if found is None:
            break
        node: Node = found.node if isinstance(found, Entry) else found
        line = node.line
        held = node.value if isinstance(node.value, dict) else dict(enumerate(node.value))
    return line


def way_to(documents: Sequence[Node], node: Node) -> Path | None:
    """The path to the place where a node stands itself, not by an alias."""
    return next((way for number, root in enumerate(documents) if (way := _way_to(root, node, (number,)))), None)


def _way_to(here: Node, node: Node, path: Path) -> Path | None:
    if here is node:
        return path
    pairs: Any = here.value.items() if isinstance(here.told, dict) else ()
    if isinstance(here.told, list):
        nearest = bisect_right(here.value, node.start, key=attrgetter("start")) - 1
        pairs = ((nearest, here.value[nearest]),) if nearest >= 0 else ()
    for step, entry in pairs:
        is_around = entry.start == entry.node.start <= node.start <= entry.end
        if is_around and (way := _way_to(entry.node, node, (*path, step))):
            return way
    return None


def _checked(before: Sequence[Node], after: str, paths: Sequence[Path], where: Path = ()) -> str:
    """The text, if it reads back as what was there but for these places. `where` is what an error names."""
    meant, where = set(paths), (where or next(iter(paths), ()))
    try:
        new = [plain(root) for root in compose(after)]
    except BadYaml as error:
        raise CannotEdit(where, f"cannot be changed here ({error.problem})") from None
    for found in _differences([plain(root) for root in before], new, ()):
        if not any(found[:length] in meant for length in range(1, len(found) + 1)):
            raise CannotEdit(where, "cannot be changed without changing something else")
    return after


def _differences(old: Any, new: Any, path: Path) -> Iterator[Path]:
    if old is new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old.keys() | new.keys():
            yield from _differences(old.get(key, ...), new.get(key, ...), (*path, key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for place, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _differences(one, other, (*path, place))
    elif old != new:
        yield path

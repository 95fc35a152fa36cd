"""YAML as text that knows its places: every scalar is text, nothing is constructed, each node knows where it stands.

Built from the events of the C parser without recursion, so depth, aliases and size are bounded before they cost anything.
Refuses with the line: what is not YAML, a key given twice, a key that is no text, an alias to itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import yaml
from yaml._yaml import CParser

MAX_BYTES = 8 * 1024 * 1024
MAX_DEPTH = 100
MAX_NODES = 250_000
_REMEMBERED = 7  # texts: the files of a spec, and one of them as it is changed
_NOTHING = frozenset({"", "~", "null", "Null", "NULL"})


class BadYaml(Exception):
    """Text that is not the YAML we read. `line` counts from one."""

    def __init__(self, line: int | None, problem: str) -> None:
        super().__init__(problem)
        self.line = line
        self.problem = problem


class Node:
    """A scalar (`value` is text), a list (`value` is a list of entries) or a map (`value` is a dict of entries)."""

    __slots__ = ("anchor", "column", "end", "flow", "line", "size", "start", "style", "value")

    def __init__(self, event: Any, value: Any) -> None:
        mark = event.start_mark
        self.value = value
        self.start: int = mark.index
        self.end: int = event.end_mark.index
        self.line: int = mark.line + 1
        self.column: int = mark.column
        self.anchor: str | None = event.anchor
        self.size = 1
        self.flow: bool = False
        self.style: str | None = None

    @property
    def is_nothing(self) -> bool:
        return self.style == "" and self.value in _NOTHING


class Entry:
    """A value where it is used. Its place is its own, also when the value is an alias. Items of lists have no key."""

    __slots__ = ("end", "key", "node", "start")

    def __init__(self, key: Node | None, node: Node, start: int, end: int) -> None:
        self.key = key
        self.node = node
        self.start = start
        self.end = end


@lru_cache(maxsize=_REMEMBERED)
def compose(text: str) -> Sequence[Node]:
    """The documents of a text. An empty one is nothing. Nobody changes a node, so the same text has the same ones."""
    try:
        return _Composer(CParser(text)).documents()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise BadYaml(mark.line + 1 if mark else None, _sentence(error)) from None
    except yaml.reader.ReaderError as error:
        at = len(text.encode()[: error.position].decode("utf-8", "ignore"))
        raise BadYaml(
            text.count("\n", 0, at) + 1, f"it has a character that YAML does not allow, {error.reason}"
        ) from None


def _sentence(error: yaml.MarkedYAMLError) -> str:
    said = [part for part in (error.context, error.problem) if part]
    return "it is not valid YAML: " + ", ".join(said)


class _Composer:
    """Builds nodes from events. `open` holds the collections that have begun and have no end yet."""

    def __init__(self, parser: Any) -> None:
        self._next = parser.get_event
        self._open: list[Node] = []
        self._keys: list[Node | None] = []
        self._anchors: dict[str, Node] = {}
        self._roots: list[Node] = []
        self._count = 0

    def documents(self) -> list[Node]:
        handlers: dict[type, Any] = {
            yaml.ScalarEvent: self._scalar,
            yaml.MappingStartEvent: self._begin,
            yaml.SequenceStartEvent: self._begin,
            yaml.MappingEndEvent: self._finish,
            yaml.SequenceEndEvent: self._finish,
            yaml.AliasEvent: self._alias,
            yaml.DocumentStartEvent: self._document,
        }
        while (event := self._next()) is not None and type(event) is not yaml.StreamEndEvent:
            handler = handlers.get(type(event))
            if handler:
                handler(event)
        return self._roots

    def _document(self, event: Any) -> None:
        self._anchors = {}

    def _scalar(self, event: Any) -> None:
        node = Node(event, event.value)
        node.style = "" if event.implicit[0] and not event.style else event.style or "tagged"
        if event.anchor:
            self._anchors[event.anchor] = node
        self._put(node, node.start, node.end, 1)

    def _begin(self, event: Any) -> None:
        node = Node(event, {} if type(event) is yaml.MappingStartEvent else [])
        node.flow = bool(event.flow_style)
        if event.anchor:
            self._anchors[event.anchor] = node
        self._open.append(node)
        self._keys.append(None)
        if len(self._open) > MAX_DEPTH:
            raise BadYaml(node.line, f"it is nested more than {MAX_DEPTH} deep")

    def _finish(self, event: Any) -> None:
        node = self._open.pop()
        self._keys.pop()
        if node.flow:
            node.end = event.end_mark.index
        else:
            entries = node.value.values() if isinstance(node.value, dict) else node.value
            node.end = next(reversed(entries)).end if entries else node.start
        self._put(node, node.start, node.end, 1)

    def _alias(self, event: Any) -> None:
        node = self._anchors.get(event.anchor)
        line = event.start_mark.line + 1
        if node is None:
            raise BadYaml(line, f"*{event.anchor} refers to nothing before it")
        if any(node is parent for parent in self._open):
            raise BadYaml(line, f"*{event.anchor} refers to itself")
        self._put(node, event.start_mark.index, event.end_mark.index, node.size)

    def _put(self, node: Node, start: int, end: int, cost: int) -> None:
        self._count += cost
        if self._count > MAX_NODES:
            raise BadYaml(node.line, f"it has more than {MAX_NODES:,} values, aliases counted")
        if not self._open:
            self._roots.append(node)
            return
        parent = self._open[-1]
        parent.size += node.size
        if isinstance(parent.value, list):
            parent.value.append(Entry(None, node, start, end))
        elif (key := self._keys[-1]) is None:
            self._keys[-1] = self._key(node, parent)
        else:
            parent.value[key.value] = Entry(key, node, start, end)
            self._keys[-1] = None

    def _key(self, node: Node, parent: Node) -> Node:
        if not isinstance(node.value, str):
            raise BadYaml(node.line, "a key is not text")
        if node.value in parent.value:
            raise BadYaml(node.line, f"the key {node.value!r:.80} is given twice")
        return node


def plain(node: Node) -> Any:
    """The data of a node: maps, lists, text, None. `<<` brings in what another map has."""
    value = node.value
    if isinstance(value, str):
        return None if node.is_nothing else value
    if isinstance(value, list):
        return [plain(entry.node) for entry in value]
    data = {key: plain(entry.node) for key, entry in value.items()}
    return _with_merged(data) if "<<" in data else data


def _with_merged(data: dict[str, Any]) -> dict[str, Any]:
    brought = data["<<"] if isinstance(data["<<"], list) else [data["<<"]]
    if not all(isinstance(one, dict) for one in brought):
        return data
    del data["<<"]
    for one in brought:
        data = one | data
    return data

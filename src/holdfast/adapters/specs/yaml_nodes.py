"""The nodes of YAML, and how they are built from the events of the C parser: every scalar is text, nothing is constructed.

Without recursion, so depth, aliases and size are bounded before they cost anything. Refuses with the line: what is not
YAML, a key given twice, a key that is no text, an alias to itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import yaml
from yaml._yaml import CParser

from holdfast.core.named import NamedTuple

MAX_DEPTH = 100
MAX_NODES = 250_000
_NOTHING = frozenset({"", "~", "null", "Null", "NULL"})
_UNKNOWN: Any = ...


class BadYaml(Exception):
    """Text that is not the YAML we read. `line` counts from one."""

    def __init__(self, line: int | None, problem: str) -> None:
        super().__init__(problem)
        self.line = line
        self.problem = problem


class Later(NamedTuple):
    """Entries that stand so many characters and lines later than they say."""

    value: Any
    shift: int
    lines: int


class Node(msgspec.Struct, eq=False, gc=False):
    """A scalar (`value` is text), a list (`value` is a list of entries) or a map (`value` is a dict of entries).

    Once it is composed nobody changes it; it only finds out at its time where its entries stand, and what data it holds.
    No node is in itself, so the garbage collector need not look at them.
    """

    held: Any
    start: int
    end: int
    line: int
    column: int
    anchor: str | None = None
    size: int = 1
    flow: bool = False
    style: str | None = None
    data: Any = _UNKNOWN

    @property
    def value(self) -> Any:
        held = self.held
        if type(held) is Later:
            held = self.held = _moved(*held)
        return held

    @property
    def told(self) -> Any:
        """The value, for who does not ask where its entries stand."""
        return self.held.value if type(self.held) is Later else self.held

    def at(self, shift: int, lines: int) -> Node:
        """The same node so many characters and lines later."""
        held = self.held
        if type(held) is Later:
            held = Later(held.value, held.shift + shift, held.lines + lines)
        elif type(held) is not str:
            held = Later(held, shift, lines)
        start, end, line = self.start + shift, self.end + shift, self.line + lines
        return Node(held, start, end, line, self.column, self.anchor, self.size, self.flow, self.style, self.data)

    @property
    def is_nothing(self) -> bool:
        return self.style == "" and self.value in _NOTHING


class Entry(msgspec.Struct, eq=False, gc=False):
    """A value where it is used. Its place is its own, also when the value is an alias. Items of lists have no key."""

    key: Node | None
    node: Node
    start: int
    end: int

    def at(self, shift: int, lines: int) -> Entry:
        key = self.key and self.key.at(shift, lines)
        return Entry(key, self.node.at(shift, lines), self.start + shift, self.end + shift)


def _moved(value: Any, shift: int, lines: int) -> Any:
    if isinstance(value, dict):
        return {key: entry.at(shift, lines) for key, entry in value.items()}
    return [entry.at(shift, lines) for entry in value]


class Gap(NamedTuple):
    """So many characters and lines were left out of a text; what begins behind `place` stands so much later."""

    place: int
    size: int
    lines: int


class Composed(NamedTuple):
    """The documents of a text. `amount` is what MAX_NODES bounds; `shares` says whether there are anchors."""

    roots: list[Node]
    amount: int
    shares: bool


def composed(text: str, gaps: Sequence[Gap] = ()) -> Composed:
    """The documents, with the places that they have where the gaps are filled."""
    try:
        return _Composer(CParser(text), gaps).documents()
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

    def __init__(self, parser: Any, gaps: Sequence[Gap]) -> None:
        self._next = parser.get_event
        self._open: list[Node] = []
        self._keys: list[Node | None] = []
        self._anchors: dict[str, Node] = {}
        self._roots: list[Node] = []
        self._amount = 0
        self._shares = False
        self._gaps = [*reversed(gaps)]
        self._shift = self._lines = 0

    def documents(self) -> Composed:
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
                while self._gaps and event.start_mark.index > self._gaps[-1].place:
                    gap = self._gaps.pop()
                    self._shift, self._lines = self._shift + gap.size, self._lines + gap.lines
                handler(event)
        return Composed(self._roots, self._amount, self._shares)

    def _document(self, event: Any) -> None:
        self._anchors = {}

    def _node(self, event: Any, value: Any) -> Node:
        mark, shift = event.start_mark, self._shift
        start, end, line = mark.index + shift, event.end_mark.index + shift, mark.line + 1 + self._lines
        node = Node(value, start, end, line, mark.column, event.anchor)
        if event.anchor:
            self._anchors[event.anchor] = node
            self._shares = True
        return node

    def _scalar(self, event: Any) -> None:
        node = self._node(event, event.value)
        node.style = "" if event.implicit[0] and not event.style else event.style or "tagged"
        self._put(node, node.start, node.end, 1)

    def _begin(self, event: Any) -> None:
        node = self._node(event, {} if type(event) is yaml.MappingStartEvent else [])
        node.flow = bool(event.flow_style)
        self._open.append(node)
        self._keys.append(None)
        if len(self._open) > MAX_DEPTH:
            raise BadYaml(node.line, f"it is nested more than {MAX_DEPTH} deep")

    def _finish(self, event: Any) -> None:
        node = self._open.pop()
        self._keys.pop()
        if node.flow:
            node.end = event.end_mark.index + self._shift
        else:
            entries = node.held.values() if isinstance(node.held, dict) else node.held
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
        self._amount += cost
        if self._amount > MAX_NODES:
            raise BadYaml(node.line, f"it has more than {MAX_NODES:,} values, aliases counted")
        if not self._open:
            self._roots.append(node)
            return
        parent = self._open[-1]
        parent.size += node.size
        if isinstance(parent.held, list):
            parent.held.append(Entry(None, node, start, end))
        elif (key := self._keys[-1]) is None:
            self._keys[-1] = self._key(node, parent)
        else:
            parent.held[key.held] = Entry(key, node, start, end)
            self._keys[-1] = None

    def _key(self, node: Node, parent: Node) -> Node:
        if not isinstance(node.held, str):
            raise BadYaml(node.line, "a key is not text")
        if node.held in parent.held:
            raise BadYaml(node.line, f"the key {node.held!r:.80} is given twice")
        return node

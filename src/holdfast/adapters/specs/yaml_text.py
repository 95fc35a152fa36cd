"""YAML as text that knows its places, and as plain data. A text that was composed is not composed again while it is remembered,
and of one that was changed only what is new in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.adapters.specs.memory import Memory
from holdfast.adapters.specs.yaml_nodes import BadYaml, Composed, Entry, Node, composed
from holdfast.adapters.specs.yaml_rows import recomposed

__all__ = ["MAX_BYTES", "BadYaml", "Entry", "Node", "compose", "plain"]

MAX_BYTES = 8 * 1024 * 1024


def compose(text: str) -> Sequence[Node]:
    """The documents of a text. An empty one is nothing. Nobody changes a node, so the same text has the same ones."""
    return _memory(text).roots


@Memory
def _memory(text: str, known: Sequence[tuple[str, Composed]]) -> Composed:
    return recomposed(text, known) or composed(text)


def plain(node: Node) -> Any:
    """The data of a node: maps, lists, text, None. `<<` brings in what another map has."""
    value = node.told
    if isinstance(value, str):
        return None if node.is_nothing else value
    if node.data is ...:
        node.data = [plain(entry.node) for entry in value] if isinstance(value, list) else _map(value)
    return node.data


def _map(value: dict[str, Entry]) -> dict[str, Any]:
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

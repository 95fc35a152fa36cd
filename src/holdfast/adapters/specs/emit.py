"""YAML to be written: scalars that every reader takes for the same text, and blocks in the manner of the seed's files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.core.named import NamedTuple

_PLAIN = re.compile(r"[A-Za-z_./][A-Za-z0-9_./+@-]*(?: [A-Za-z0-9_./+@-]+)*")
_WORDS = frozenset(["true", "false", "yes", "no", "on", "off", "y", "n", "null"])
_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?(?:Z|[+-][0-9]{2}:[0-9]{2}))?"
)
_ODD = re.compile(r"\.(inf|nan)|[.-]+")
_MARKS = frozenset('"\\')
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}


class Written(NamedTuple):
    """An item of a list as it stands in a file: its lines from the dash on, without their indentation, and comments above."""

    lines: tuple[str, ...]


def scalar(text: str | None) -> str:
    """Plain where nobody could take it for anything but text, else in quotes. A number in the text stays text."""
    if text is None:
        return "null"
    if _PLAIN.fullmatch(text) and text.casefold() not in _WORDS and not _ODD.fullmatch(text.casefold()):
        return text
    return quoted(text)


def quoted(text: str) -> str:
    if text.isprintable() and not _MARKS.intersection(text):
        return f'"{text}"'
    return f'"{"".join(map(_letter, text))}"'


def number(text: str | None) -> str:
    """A batch: a number stands as one, everything else as text."""
    return text if text and re.fullmatch("0|[1-9][0-9]{0,8}", text) else scalar(text)


def moment(text: str) -> str:
    return text if _TIME.fullmatch(text) else scalar(text)


def commit(text: str | None) -> str:
    """A commit that a reader could take for a number (0123456, 612e243, 0b10110) is put in quotes."""
    if text and text[0].isdigit() and text.isalnum():
        return text if set(text) & set("acdf") else quoted(text)
    return scalar(text)


def like(old: str, ready: str) -> str:
    """A scalar that is ready to be written, in the quotes of the one it replaces."""
    bare = ready.strip("\"'")
    if old[:1] in ("'", '"') and bare.isprintable() and not set("\"'\\") & set(bare):
        return old[0] + bare + old[0]
    return ready


def _letter(letter: str) -> str:
    if letter.isprintable():
        return _ESCAPES.get(letter, letter)
    return _ESCAPES.get(letter) or ("\\uFFFD" if "\ud800" <= letter <= "\udfff" else f"\\U{ord(letter):08X}")


def block(key: str, value: Any, indent: int) -> list[str]:
    """The lines of a key. A value is a scalar that is ready to be written, a list of values, or a map of them."""
    head = f"{' ' * indent}{key}:"
    if isinstance(value, str):
        return [f"{head} {value}"]
    if not value:
        return [f"{head} {'{}' if isinstance(value, Mapping) else '[]'}"]
    return [head, *(_pairs(value, indent + 2) if isinstance(value, Mapping) else items(value, indent + 2))]


def _pairs(value: Mapping[str, Any], indent: int) -> list[str]:
    return [line for key, item in value.items() for line in block(key, item, indent)]


def items(value: Sequence[Any], indent: int) -> list[str]:
    lines: list[str] = []
    for item in value:
        if isinstance(item, Written):
            lines += [f"{' ' * indent}{line}".rstrip() for line in item.lines]
            continue
        body = _pairs(item, indent + 2) if isinstance(item, Mapping) else [f"{' ' * (indent + 2)}{item}"]
        lines += [f"{' ' * indent}- {body[0][indent + 2 :]}", *body[1:]]
    return lines


def flow(values: Sequence[str]) -> str:
    return f"[{', '.join(map(scalar, values))}]"

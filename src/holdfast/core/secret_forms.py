"""The forms in which a known text may hide: plain, JSON-escaped, percent-encoded, base64 at any alignment.

It writes patterns (RE2, bytes) and decodes base64. It decides nothing.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator
from functools import cache

PIECE = 64
RUN = "A-Za-z0-9+/_-"
_WRAP = r"(?:\r?\n|\\+[rn])*"
_SHORT = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
_ENTITY = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}
_EITHER = {
    "+": r"(?:[+-]|(?i:%2b))",
    "-": r"(?:[+-]|(?i:%2b))",
    "/": r"(?:\\*/|_|(?i:%2f))",
    "_": r"(?:\\*/|_|(?i:%2f))",
}

# base64 puts 3 bytes in 4 characters; a text that begins at byte 0, 1 or 2 of a group is certain from character 0, 2 or 3.
_CERTAIN_FROM = (0, 2, 3)


@cache
def text_pattern(pattern: str) -> re.Pattern[str]:
    """Compiled at first use: a process that records one clean event pays for none of them."""
    return re.compile(pattern, re.ASCII)


@cache
def bytes_pattern(pattern: bytes) -> re.Pattern[bytes]:
    return re.compile(pattern, re.S)


def pieces(value: str) -> list[str]:
    """A long value in parts of 64 to 127 characters: a part of a secret is secret too."""
    count = max(1, len(value) // PIECE)
    return [value[i * PIECE : (i + 1) * PIECE if i + 1 < count else None] for i in range(count)]


def raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def flexible(text: str) -> str:
    """A pattern for the text as it is, JSON-escaped at any depth, or percent-encoded by any encoder."""
    return "".join(map(_flexible_char, text))


def _flexible_char(char: str) -> str:
    if char == "_" or (char.isascii() and char.isalnum()):
        return char
    forms = [_hex(raw(char)), "(?i:" + "".join(f"%{byte:02x}" for byte in raw(char)) + ")", *_escapes(char)]
    return "(?:" + "|".join(forms) + ")"


def _hex(data: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in data)


def _escapes(char: str) -> Iterator[str]:
    units = char.encode("utf-16-be", "surrogatepass")
    yield "".join(rf"\\+(?i:u{units[i : i + 2].hex()})" for i in range(0, len(units), 2))
    if char in _SHORT:
        yield rf"\\+{_SHORT[char]}"
    if char in "\"'/\\":
        yield rf"\\+{_hex(raw(char))}"
    if char == " ":
        yield r"\+"
    if char in _ENTITY:
        yield _ENTITY[char]


def certain(data: bytes, shift: int) -> str:
    """The base64 characters that hold only bits of `data` when it begins at byte `shift` of a group."""
    encoded = binascii.b2a_base64(bytes(shift) + data, newline=False).decode("ascii")
    return encoded[_CERTAIN_FROM[shift] : (shift + len(data)) * 8 // 6]


def base64_forms(text: str, limit: int | None = None) -> list[str]:
    """Patterns for the text inside base64, standard or url-safe, wrapped or not, at each alignment."""
    return [_base64_form(certain(raw(text), shift)[:limit]) for shift in range(3)]


def _base64_form(characters: str) -> str:
    return f"[{RUN}]?" + _WRAP.join(_EITHER.get(char, char) for char in characters) + f"[{RUN}]?"


_LINE_BREAK = r"(?:\r?\n|(?:\\+r)?\\+n)[ \t]*"
BASE64_RUN = rf"(?:[{RUN}]{{60,}}{_LINE_BREAK})+[{RUN}]+={{0,2}}|[{RUN}]{{12,}}={{0,2}}"
_BREAKS = rb"\\+[rn]|\s+"
_STANDARD = bytes.maketrans(b"-_", b"+/")


def decode(characters: bytes) -> bytes:
    """Base64 without padding, either alphabet; a last character that holds no whole byte is dropped."""
    standard = characters.translate(_STANDARD)
    whole = standard[:-1] if len(standard) % 4 == 1 else standard
    return binascii.a2b_base64(whole + b"=" * (-len(whole) % 4))


class HeadsInBase64:
    """Finds where known beginnings of secrets stand inside base64, without decoding everything."""

    def __init__(self, heads: tuple[str, ...]) -> None:
        self._parts = [sorted({certain(raw(head), shift) for head in heads}) for shift in range(3)]

    def trigger(self) -> str:
        choices = "|".join("|".join(part) for part in self._parts)
        return f"(?:{choices.replace('+', '[+-]').replace('/', '[/_]')})[{RUN}]{{8}}"

    def decoded(self, run: bytes) -> Iterator[bytes]:
        """The run decoded once for every alignment at which a head was seen."""
        clean = bytes_pattern(_BREAKS).sub(b"", run).rstrip(b"=").translate(_STANDARD)
        for offset in sorted(self._offsets(clean)):
            yield decode(clean[offset:])

    def _offsets(self, clean: bytes) -> set[int]:
        return {
            (found.start() - _CERTAIN_FROM[shift]) % 4
            for shift, part in enumerate(self._parts)
            for found in bytes_pattern("|".join(map(re.escape, part)).encode("ascii")).finditer(clean)
        }

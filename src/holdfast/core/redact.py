"""Takes secrets out of text, JSON bytes, plain data and streams, before anything is hashed or written.

Pure and deterministic. What it finds becomes `[redacted:<kind>]`; doing it twice changes nothing more. It never
touches keys, numbers, hashes or ids, and it finds no secret whose shape, name or value it does not know.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

import re2

from holdfast.core import secret_names, secret_rules
from holdfast.core.secret_forms import BASE64_RUN, RUN, HeadsInBase64, base64_forms, flexible, pieces, raw
from holdfast.core.secret_names import is_flag, kind_of_field, looks_random, secret_values

__all__ = ["JSON", "KINDS", "Redactor", "StreamRedactor", "secret_values"]

JSON: TypeAlias = Any
KINDS = frozenset(
    [rule.kind for rule in (*secret_rules.TOKENS, *secret_rules.PHRASES)] + [*secret_names.KINDS, "env", "tangled"]
)
SHORTEST_VALUE = 4
PASSES = 8
WINDOW = 8192
HOLD = 4096


class Span(NamedTuple):
    """Bytes `start` to `end` are secret; `reach` is where the words that prove it begin; a lower rank names the kind."""

    start: int
    end: int
    kind: str
    rank: int
    reach: int


class Match(Protocol):
    def span(self, group: int = 0) -> tuple[int, int]: ...


class Pattern(Protocol):
    @property
    def groups(self) -> int: ...
    def finditer(self, text: bytes) -> Iterator[Match]: ...


class PatternSet(Protocol):
    def Add(self, pattern: bytes) -> int: ...  # noqa: N802
    def Compile(self) -> None: ...  # noqa: N802
    def Match(self, text: bytes) -> list[int] | None: ...  # noqa: N802


Find: TypeAlias = Callable[[bytes], Iterable[Span]]


def _options(capture: bool = True) -> Any:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # bytes are bytes: broken UTF-8 cannot hide anything
    options.log_errors = False
    options.max_mem = 64 << 20
    options.never_capture = not capture
    return options


@cache
def _compiled(pattern: str) -> Pattern:
    return cast(Pattern, re2.compile(pattern.encode("ascii"), _options()))


def placeholder(kind: str) -> bytes:
    return b"[redacted:%b]" % kind.encode("ascii")


_PLACEHOLDERS = re.compile(rb"(?:\[redacted:(?:" + "|".join(sorted(KINDS)).encode("ascii") + rb")\])+")


def is_placeholder(data: bytes) -> bool:
    return _PLACEHOLDERS.fullmatch(data) is not None


# --- what each trigger of the set leads to ---


class Lead(NamedTuple):
    """A trigger that is cheap to look for in any bytes, and the search that follows when it is seen."""

    trigger: str
    find: Find


def _after_curl(data: bytes, start: int, end: int) -> bool:
    return b"curl" in data[max(0, start - 400) : start]


def _user_and_password(data: bytes, start: int, end: int) -> bool:
    return any(b":" in text for text in _plain_base64(data[start:end]))


def _plain_base64(token: bytes) -> Iterator[bytes]:
    whole = token.rstrip(b"=")
    if len(whole) % 4 != 1:
        yield json_free_decode(whole + b"=" * (-len(whole) % 4))

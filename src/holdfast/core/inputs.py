"""Inputs as data that can be hashed and compared: when they are the same, and what changed. Refuses what has no exact form.

Beside plain data these have a form of their own: a dataclass, a Struct and a dict of any class are objects; a tuple is a
list; an Enum is its value; an aware datetime is its UTC time as RFC 3339 text, a date is its ISO text, a path is its text
with `/`. Refused, with the path to it and advice: a naive datetime, bytes, a set, and everything else. The rest is as in
`core/canonical.py`: keys are text, 5 and 5.0 are one number, NaN is none, NFC and NFD differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime
from enum import Enum
from itertools import zip_longest
from typing import Any

import msgspec

from holdfast.core.canonical import canonical, digest
from holdfast.core.errors import BadInput, NotCanonical, shown
from holdfast.core.named import NamedTuple
from holdfast.core.plain import MAX_DEPTH, check_plain

MAX_VALUES = 1_000_000
MISSING = "(missing)"
SHOWN = 80
SHOWN_CHANGES = 20
SHORT_HASH = 16
_BEFORE = 20
_EXACT = 2**53 - 1
_LARGEST = 2**1023


class TooManyInputs(BadInput):
    reason = "too_large"
    advice = "Pass the hash of large content instead of the content."

    def __init__(self, limit: int) -> None:
        super().__init__(f"The inputs hold more than {limit:,} values.")
        self.limit = limit


class Change(NamedTuple):
    """One place that differs: both sides as JSON text, cut short; MISSING where there is none."""

    old: str
    new: str


class Difference(NamedTuple):
    """Two inputs that are not the same: their hashes in short, and what changed, or None where that cannot be known."""

    old_hash: str
    new_hash: str
    changes: Mapping[str, Change] | None

    def lines(self, limit: int = SHOWN_CHANGES) -> list[str]:
        """What a person is shown, one line a change."""
        if self.changes is None:
            return ["what changed is not known: the inputs of the checkpoint are not kept"]
        told = [f"{path:.120}: {old} -> {new}" for path, (old, new) in self.changes.items()]
        return [*told[:limit], f"and {len(told) - limit} more"] if len(told) > limit else told


def compute_input_hash(inputs: Any) -> str:
    """SHA-256 of the canonical form, the same for every order of keys. Secrets must be gone before."""
    return digest(canonical_inputs(inputs))


def canonical_inputs(inputs: Any) -> bytes:
    return canonical(plain_inputs(inputs))


def short_hash(input_hash: str) -> str:
    return input_hash[:SHORT_HASH]


def plain_inputs(inputs: Any) -> dict[str, Any]:
    """The inputs as plain data of their own. Raises NotCanonical with the place, or TooManyInputs."""
    return _plain(inputs, _Walk())


def _plain(inputs: Any, walk: _Walk) -> dict[str, Any]:
    value = walk.convert(inputs, "$", 0)
    if type(value) is not dict:
        raise _refused("$", f"the inputs are a {type(inputs).__name__}, not an object", "Give each input a name.")
    check_plain(value)
    return value


# --- what else has a form


class _Walk:
    """One conversion. It counts, so that lists that hold each other many times over come to an end."""

    def __init__(self) -> None:
        self._left = MAX_VALUES

    def convert(self, value: Any, path: str, depth: int) -> Any:
        self._left -= 1
        if self._left < 0:
            raise TooManyInputs(MAX_VALUES)
        if depth > MAX_DEPTH:
            raise NotCanonical(path, f"it is nested more than {MAX_DEPTH} deep")
        if type(value) in (list, tuple):
            return [self.convert(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
        members = _members(value, path)
        if members is not None:
            return {key: self.convert(item, _inside(path, key), depth + 1) for key, item in members.items()}
        simple = _simple(value, path)
        return self.convert(simple, path, depth + 1) if isinstance(value, Enum) else self.number(simple)

    def number(self, value: Any) -> Any:
        return value


class _ReadBack(_Walk):
    """The canonical form writes a large float like a whole number; read back, it is that float again."""

    def number(self, value: Any) -> Any:
        return float(value) if type(value) is int and _EXACT < abs(value) < _LARGEST else value


def _inside(path: str, key: object) -> str:
    return f"{path}.{key:.60}" if type(key) is str else path


def _members(value: Any, path: str) -> dict[Any, Any] | None:
    """The members of what counts as an object, or None."""
    if isinstance(value, dict):
        return dict(value)
    names = None if isinstance(value, type) else _field_names(value)
    return None if names is None else _read(value, path, lambda: {name: getattr(value, name) for name in names})


def _field_names(value: Any) -> list[str] | None:
    if isinstance(value, msgspec.Struct):
        return list(value.__struct_fields__)
    if hasattr(type(value), "__dataclass_fields__"):
        from dataclasses import fields  # loaded already by whoever made the class

        return [field.name for field in fields(value)]
    return None


def _read(value: Any, path: str, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except Exception as error:  # noqa: BLE001 - reading from an object of a foreign class may raise anything
        raise NotCanonical(path, f"a {type(value).__name__} cannot be read ({type(error).__name__})") from None


def _simple(value: Any, path: str) -> Any:
    for kind, rule in _RULES:
        if isinstance(value, kind):
            return rule(value, path)
    return _path_text(value, path) if hasattr(type(value), "__fspath__") else value


def _path_text(value: Any, path: str) -> str:
    """Known by what it can do, because the core loads nothing that reaches files."""
    text = _read(value, path, value.as_posix) if hasattr(type(value), "as_posix") else None
    if isinstance(text, str):
        return text
    raise _refused(path, f"a {type(value).__name__} is not plain data", "Pass the path as text.")


def _time_text(value: datetime, path: str) -> str:
    try:
        return utc_text(value)
    except Exception as error:  # noqa: BLE001 - a time zone is foreign code, and a time may lie outside the calendar
        advice = "Give the time a zone, for example with `datetime.now(UTC)`."
        raise _refused(path, f"the time {shown(value, 60)} is no known moment: {error}", advice) from None


def utc_text(value: datetime) -> str:
    """The moment as text: RFC 3339, UTC, microseconds. A time without a zone is no moment: ValueError."""
    if value.utcoffset() is None:
        raise ValueError("it has no time zone")
    return datetime.isoformat(value.astimezone(UTC), timespec="microseconds").replace("+00:00", "Z")


def _refusal(problem: str, advice: str) -> Callable[[Any, str], Any]:
    def refuse(value: Any, path: str) -> Any:
        raise _refused(path, problem, advice)

    return refuse


def _refused(path: str, problem: str, advice: str) -> NotCanonical:
    error = NotCanonical(path, problem)
    error.advice = advice
    return error


_BYTES = _refusal("bytes have no JSON form", "Pass their SHA-256, or decode them to text.")
_SET = _refusal("a set has no order", "Pass a sorted list.")
_RULES: tuple[tuple[type, Callable[[Any, str], Any]], ...] = (
    (Enum, lambda value, path: value.value),
    (datetime, _time_text),
    (date, lambda value, path: date.isoformat(value)),
    (bytes, _BYTES),
    (bytearray, _BYTES),
    (memoryview, _BYTES),
    (set, _SET),
    (frozenset, _SET),
)


# --- what changed


class _Absent:
    """No value at all; null is a value."""


_ABSENT = _Absent()


def compute_input_diff(old: Any, new: Any) -> dict[str, Change]:
    """What differs, by its path (`a.b[2]`; a name that is no plain word stands in quotes: `a["x y"]`).

    Either side may be read back from its canonical form by any JSON reader.
    """
    return dict(_differences("", _plain(old, _ReadBack()), _plain(new, _ReadBack())))


def _differences(path: str, old: Any, new: Any) -> Iterator[tuple[str, Change]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from _differences(_member(path, key), old.get(key, _ABSENT), new.get(key, _ABSENT))
    elif isinstance(old, list) and isinstance(new, list):
        for index, (before, after) in enumerate(zip_longest(old, new, fillvalue=_ABSENT)):
            yield from _differences(f"{path}[{index}]", before, after)
    elif _text(old) != _text(new):
        yield path, _change(_text(old), _text(new))


def _member(path: str, key: str) -> str:
    if key.replace("-", "_").isidentifier():
        return f"{path}.{key}" if path else key
    import json  # rarely needed, and slow to load

    return f"{path}[{json.dumps(key)}]"


def _text(value: Any) -> str:
    return MISSING if value is _ABSENT else canonical(value).decode()


def _change(old: str, new: str) -> Change:
    """Long texts are shown from shortly before the first place where they differ."""
    length = min(len(old), len(new))
    first = next((index for index in range(length) if old[index] != new[index]), length)
    begin = first - _BEFORE if first > SHOWN - _BEFORE else 0
    return Change(_cut(old, begin), _cut(new, begin))


def _cut(text: str, begin: int) -> str:
    if text == MISSING:
        return text
    part = text[begin : begin + SHOWN]
    clean = "".join(letter if letter.isprintable() else "?" for letter in part)
    return ("..." if begin else "") + clean + ("..." if len(text) > begin + SHOWN else "")

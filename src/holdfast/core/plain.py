"""What counts as plain data: JSON with text keys and exact numbers. Refuses everything else, with the path to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.core.errors import NotCanonical, UsageError, shown

MAX_DEPTH = 100
EXACT = 2**53 - 1


def check_plain(value: Any, path: str = "$", depth: int = 0) -> None:
    """Raise NotCanonical, naming the place, unless the value has one exact JSON form."""
    if depth > MAX_DEPTH:
        raise NotCanonical(path, f"it is nested more than {MAX_DEPTH} deep")
    kind = type(value)
    if value.isascii() if kind is str else -EXACT <= value <= EXACT if kind is int else value is None:
        return  # what `_is_surely_plain` says, without a call
    check = _CHECKS.get(kind)
    if check is None:
        raise NotCanonical(path, f"a {kind.__name__} is not plain data")
    check(value, path, depth)


def check_text(what: str, value: object) -> None:
    """Raise UsageError unless it is text: an event that holds anything else in its place could not be read back."""
    if not isinstance(value, str):
        raise UsageError(f"{what} is text, not {shown(value, 60)}.")


def _is_surely_plain(value: Any) -> bool:
    """Most data is short text and small numbers, which need no closer look."""
    kind = type(value)
    return value.isascii() if kind is str else -EXACT <= value <= EXACT if kind is int else value is None


def are_surely_plain(values: Iterable[Any]) -> bool:
    """The same for many, with no call for each: every step that is done already comes by here."""
    for value in values:
        kind = type(value)
        if not (value.isascii() if kind is str else -EXACT <= value <= EXACT if kind is int else value is None):
            return False
    return True


def _check_text(value: str, path: str, depth: int) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise NotCanonical(path, "the text holds a lone surrogate") from None


def _refuse_int(value: int, path: str, depth: int) -> None:
    raise NotCanonical(path, "the number is beyond 2^53 and JSON readers would round it; pass it as text")


def _check_float(value: float, path: str, depth: int) -> None:
    if value != value or value in (float("inf"), float("-inf")):
        raise NotCanonical(path, "NaN and infinity are not JSON")


def _check_dict(value: dict[Any, Any], path: str, depth: int) -> None:
    for key, item in value.items():
        if type(key) is not str:
            raise NotCanonical(path, f"the key {shown(key, 60)} is a {type(key).__name__}, not text")
        if not key.isascii():
            _check_text(key, path, depth)
        kind = type(item)
        sure = item.isascii() if kind is str else -EXACT <= item <= EXACT if kind is int else item is None
        if not sure or depth == MAX_DEPTH:
            check_plain(item, f"{path}.{key:.60}", depth + 1)


def _check_list(value: list[Any] | tuple[Any, ...], path: str, depth: int) -> None:
    for index, item in enumerate(value):
        if not _is_surely_plain(item) or depth == MAX_DEPTH:
            check_plain(item, f"{path}[{index}]", depth + 1)


def _accept(value: Any, path: str, depth: int) -> None:
    return None


_CHECKS: dict[type, Any] = {
    dict: _check_dict,
    list: _check_list,
    tuple: _check_list,
    str: _check_text,
    int: _refuse_int,  # smaller ones are surely plain
    float: _check_float,
    bool: _accept,
    type(None): _accept,
}

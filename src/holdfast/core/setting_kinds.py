"""What one value of a settings file may be: each kind turns a value into what it means, or raises ValueError with the rule."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from typing import TypeVar

from holdfast.core import guards
from holdfast.core.durations import seconds
from holdfast.core.errors import UsageError, shown

Kind = Callable[[object], object]
Argv = tuple[str, ...]

MOST_ITEMS = 200
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ASSIGNS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_SHELL = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "2>", "2>&1", "&>"})
_OWN = frozenset({".git", guards.OWN})
_T = TypeVar("_T")


def flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def between(low: int, high: int) -> Callable[[object], int]:
    def whole(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ValueError(f"must be a whole number from {low:,} to {high:,}")
        return value

    return whole


def amount(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e9:
        raise ValueError("must be a number from 0 to 1,000,000,000")
    return float(value)


def span(value: object) -> float:
    """A length of time that is not nothing."""
    found = seconds(value)
    if found == 0:
        raise ValueError("must be longer than nothing")
    return found


def spans(value: object) -> tuple[float, ...]:
    return _each(value, seconds)


def one_of(*words: str) -> Callable[[object], str]:
    def word(value: object) -> str:
        if value not in words or not isinstance(value, str):
            raise ValueError("must be " + " or ".join(f'"{known}"' for known in words) + f", not {shown(value, 60)}")
        return value

    return word


def some_of(*words: str) -> Callable[[object], tuple[str, ...]]:
    """Some of the words, each once, in this order."""

    def chosen(value: object) -> tuple[str, ...]:
        found = _each(value, one_of(*words))
        if not found or list(found) != sorted(set(found), key=words.index):
            raise ValueError("must hold at least one of " + ", ".join(words) + ", each once and in this order")
        return found

    return chosen


def name(value: object) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError("must be a name: letters, digits, '.', '_' and '-', at most 64")
    return value


def names(value: object) -> tuple[str, ...]:
    """One name, or several in the order in which they are tried."""
    found = (name(value),) if isinstance(value, str) else _each(value, name)
    if not found or len(set(found)) < len(found):
        raise ValueError("must be a name or a list of different names")
    return found


def patterns(value: object) -> tuple[str, ...]:
    found = _each(value, _text)
    try:
        guards.check(guards.Scope(found))
    except UsageError as error:
        raise ValueError(f"is not understood. {error}".rstrip(".")) from None
    return found


def places(value: object) -> tuple[str, ...]:
    return _each(value, _place)


def _place(value: object) -> str:
    """A path below the top, and not of git's own folder or ours."""
    parts = _text(value).split("/")
    if not parts[0] or any(part in ("", ".", "..") for part in parts) or not _OWN.isdisjoint(map(str.lower, parts)):
        raise ValueError(
            f"holds {shown(value, 60)}, which is not the path of something below the top of the repository"
        )
    return "/".join(parts)


def commands(value: object) -> tuple[Argv, ...]:
    return _each(value, command)


def command(value: object) -> Argv:
    """The words of a command. It runs without a shell, so what only a shell understands is refused."""
    if isinstance(value, list):
        words = _each(value, _text)
    else:
        words = _split(_text(value))
        strange = next((word for word in words if word in _SHELL), None)
        if strange is not None or (words and _ASSIGNS.match(words[0])):
            raise ValueError(_no_shell(strange or words[0]))
    if not words or not words[0]:
        raise ValueError("holds a command without a program")
    return words


def _no_shell(word: str) -> str:
    advice = 'write one command for each, or ["sh", "-c", "..."]; put `env` before NAME=value'
    return f"holds {shown(word, 60)}, but commands run without a shell: {advice}"


def _split(text: str) -> Argv:
    try:
        return tuple(shlex.split(text))
    except ValueError:
        raise ValueError(f"holds the command {shown(text, 60)} with a quote that is not closed") from None


def _text(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(f"must hold text, not {shown(value, 60)}")
    return value


def _each(value: object, kind: Callable[[object], _T]) -> tuple[_T, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) > MOST_ITEMS:
        raise ValueError(f"must be a list of at most {MOST_ITEMS}")
    return tuple(map(kind, value))

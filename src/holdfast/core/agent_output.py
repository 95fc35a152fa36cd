"""Listens to what an agent says, line by line, and keeps what its profile knows to look for. Never keeps more than a bound.

What it hears is data: a line that is not what the profile says is skipped, and only numbers are added up.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from holdfast.core.agents import MAX_SESSION, Find, Profile
from holdfast.core.named import NamedTuple

MAX_KEPT = 1_500_000  # characters of what was said, and of one value
MAX_LINE = 1 << 20
MAX_COMPLAINTS = 16_384
MAX_ERRORS = 20
MAX_SHOWN = 2000
ENOUGH = 1e15
NAMES = ("session", "result", "money", "tokens", "errors", "progress")


class Said(NamedTuple):
    """What an agent said. `complaints` is the end of its error channel, `tail` that of its output."""

    session: str | None = None
    result: str = ""
    money: float | None = None
    tokens: int | None = None
    errors: tuple[str, ...] = ()
    complaints: str = ""
    tail: str = ""


class Listener:
    """Feed it lines without their ends, then ask what was `said`."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._output, self._complaints = _Tail(MAX_KEPT), _Tail(MAX_COMPLAINTS)
        self._values: dict[tuple[str, int], Any] = {}
        self._joining: frozenset[tuple[str, int]] = frozenset()  # what the object before this one was a piece of
        self.progress = ""
        self._errors: deque[str] = deque(maxlen=MAX_ERRORS)
        self._finds = {name: getattr(profile, name) for name in NAMES}

    def hear(self, line: str, is_error: bool = False) -> None:
        if is_error:
            self._complaints.add(line)
            return
        self._output.add(line)
        if self._profile.output == "jsonl" and line.lstrip()[:1] == "{" and len(line) <= MAX_LINE:
            self._look(_decoded(line.encode("utf-8", "replace")))
        elif self._profile.output == "text":
            self._look_in_text(line)

    def read(self, document: bytes) -> None:
        """The structured output of an agent that writes one JSON document."""
        self._look(_decoded(document))

    def said(self) -> Said:
        if self._profile.output == "json" and not self._profile.output_file:
            self.read(self._output.text().encode("utf-8", "replace"))
        tokens, money = self._sum("tokens"), self._sum("money")
        return Said(
            session=self.session,
            result=self._text("result") or ("" if self._profile.output == "jsonl" else self._output.text()),
            money=money,
            tokens=None if tokens is None else int(tokens),
            errors=tuple(self._errors),
            complaints=self._complaints.text(),
            tail=self._output.text()[-MAX_COMPLAINTS:],
        )

    def _look(self, value: Any) -> None:
        if not isinstance(value, dict):
            return
        held = set()
        for name, finds in self._finds.items():
            for number, find in enumerate(finds):
                if not find.after and _holds(find, value):
                    held.add((name, number))
                    self._take((name, number), find, _at(value, find.path))
        self._joining = frozenset(held)

    def _look_in_text(self, line: str) -> None:
        for name, finds in self._finds.items():
            for number, find in enumerate(finds):
                if find.after and find.after in line:
                    self._take((name, number), find, _after(find.after, line, name))

    def _take(self, place: tuple[str, int], find: Find, value: Any) -> None:
        if value is None:
            return
        if place[0] == "errors":
            self._errors.append(str(value)[:MAX_COMPLAINTS])
        elif place[0] == "progress":
            self.progress = str(value)[:MAX_SHOWN].strip() or self.progress
        elif place not in self._values or find.which == "last":
            self._values[place] = value
        elif find.which == "join":
            between = "" if place in self._joining else "\n"
            self._values[place] = f"{self._values[place]}{between}{value}"[-MAX_KEPT:]
        elif find.which == "sum":
            self._values[place] = (_number(self._values[place]) or 0) + (_number(value) or 0)

    def _found(self, name: str) -> list[Any]:
        return [self._values[name, n] for n in range(len(self._finds[name])) if (name, n) in self._values]

    def _text(self, name: str) -> str:
        return "\n".join(str(value)[-MAX_KEPT:] for value in self._found(name))

    def _sum(self, name: str) -> float | None:
        numbers = [number for value in self._found(name) if (number := _number(value)) is not None]
        return sum(numbers) if numbers else None

    @property
    def session(self) -> str | None:
        """An id that can be handed back on a command line, or none."""
        for value in self._found("session"):
            text = str(value)
            if text and text.isprintable() and not text.startswith("-") and len(text) <= MAX_SESSION:
                return text
        return None


class _Tail:
    """The last lines, within a bound of characters."""

    def __init__(self, most: int) -> None:
        self._lines: deque[str] = deque()
        self._size, self._most = 0, most

    def add(self, line: str) -> None:
        line = line[-self._most :]
        self._lines.append(line)
        self._size += len(line) + 1
        while self._size > self._most and len(self._lines) > 1:
            self._size -= len(self._lines.popleft()) + 1

    def text(self) -> str:
        return "\n".join(self._lines)


def _after(words: str, line: str, name: str) -> str | None:
    """The word behind these; of errors the whole line, and only where it begins with them: code may hold them too."""
    if name == "errors":
        return line if line.startswith(words) else None
    return next(iter(line.partition(words)[2].split()), None)


def _decoded(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _holds(find: Find, value: dict[str, Any]) -> bool:
    return all(_word(_at(value, path)) == wanted for path, wanted in find.where.items())


def _word(value: Any) -> str | None:
    return (
        {True: "true", False: "false"}[value] if isinstance(value, bool) else value if isinstance(value, str) else None
    )


def _at(value: Any, path: str) -> Any:
    for key in path.split("."):
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and key.isdecimal() and len(key) < 10 and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value


def _number(value: Any) -> float | None:
    """A number that can be added up: as JSON has it, or as text like `$0.02`, and not out of all proportion."""
    if isinstance(value, bool):
        return None
    try:
        number = float(value.strip("$,;. ") if isinstance(value, str) else value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if 0 <= number <= ENOUGH else None

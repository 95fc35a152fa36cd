"""Which changes are within the scope of a run. Values in, findings out. Refuses patterns that it could misunderstand.

A pattern is a path below the top, with `/` between its parts, told apart by case:

    docs, docs/       the file or folder docs, and everything below it
    src/*.py          `*` is any text and `?` any one character within one part
    src/**            `**` as a part of its own is any number of parts; so `**/*.md` is every .md file
    ./src             the same as src

Everything else is meant literally, `[` too: folders are really called `[id]`. A pattern always begins at the top, so
`*.md` is only about files there. Matching takes no longer than length of pattern times length of path, whatever they hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TypeVar

from holdfast.core.errors import UsageError
from holdfast.core.named import NamedTuple

OWN = ".holdfast"
SAMPLE = 20
NAMED = 3
OUTSIDE = "it is outside of the allowed paths"
_ANY = "**"
_Part = Callable[[str], bool]
_T = TypeVar("_T")


class Scope(NamedTuple):
    """What a run may touch. Deny beats allow; nothing in `allow` means everything."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class Touched(NamedTuple):
    """A path that differs from the base, `was` its name before a rename. `mark` tells two contents of it apart."""

    path: str
    was: str | None = None
    kind: str = "changed"
    ignored: bool = False
    mark: str = ""


class Judgement(NamedTuple):
    """Paths that break the scope, each with the reason; and how many ignored files lie outside of what is allowed."""

    violations: tuple[tuple[str, str], ...] = ()
    ignored_outside: int = 0
    ignored_sample: tuple[str, ...] = ()

    def let_pass(self) -> tuple[str, ...]:
        """A line about the ignored files outside of what is allowed; none if there are none."""
        if not self.ignored_outside:
            return ()
        many = "1 ignored file is" if self.ignored_outside == 1 else f"{self.ignored_outside} ignored files are"
        more = ", ..." if self.ignored_outside > NAMED else ""
        named = ", ".join(self.ignored_sample[:NAMED])
        return (f"{many} outside of the allowed paths, which is no violation: {named}{more}",)


def judge(scope: Scope, touched: Iterable[Touched]) -> Judgement:
    """Hold every touched path against the scope, both names of a rename.

    Our own files pass, and ignored ones that are only outside of what is allowed; what is denied is denied.
    """
    rules = _Rules(scope)
    violations: dict[tuple[str, str], None] = {}
    passed: dict[str, None] = {}
    for one in touched:
        for path, note in _names(one):
            if _is_own(path):
                continue
            why = rules.against(path)
            if why == OUTSIDE and one.ignored:
                passed[path] = None
            elif why:
                violations[path, why + note] = None
    return Judgement(tuple(violations), len(passed), tuple(passed)[:SAMPLE])


def fresh(before: Iterable[Touched], now: Iterable[Touched]) -> list[Touched]:
    """What was touched since an earlier look: everything that was not there then, or not just so."""
    known = frozenset(before)
    return [one for one in now if not one.mark or one not in known]


def matches(pattern: str, path: str) -> bool:
    return _compiled(pattern).matches(path.rstrip("/").split("/"))


def check(scope: Scope) -> None:
    """Raise a UsageError for the first pattern that cannot be understood."""
    for pattern in (*scope.allow, *scope.deny):
        _compiled(pattern)


def _names(one: Touched) -> Sequence[tuple[str, str]]:
    if one.was is None or one.was == one.path:
        return ((one.path, ""),)
    return ((one.path, f" (it was {one.was})"), (one.was, f" (it became {one.path})"))


def _is_own(path: str) -> bool:
    return path == OWN or path.startswith(f"{OWN}/")


class _Rules:
    def __init__(self, scope: Scope) -> None:
        self._allow = [(text, _compiled(text)) for text in scope.allow]
        self._deny = [(text, _compiled(text)) for text in scope.deny]

    def allows(self, path: str) -> bool:
        parts = path.rstrip("/").split("/")
        return not self._allow or any(pattern.matches(parts) for _, pattern in self._allow)

    def against(self, path: str) -> str | None:
        parts = path.rstrip("/").split("/")
        for text, pattern in self._deny:
            if pattern.matches(parts):
                return f"it is denied by `{text}`"
        return None if self.allows(path) else OUTSIDE


# --- patterns


class _Pattern:
    """Runs of parts, with any number of parts between two runs. The first run begins at the top."""

    def __init__(self, runs: Sequence[Sequence[_Part]]) -> None:
        self._first, self._last = runs[0], runs[-1]
        self._middle = runs[1:-1]
        self._is_one = len(runs) == 1

    def matches(self, parts: Sequence[str]) -> bool:
        if self._is_one:
            return len(parts) == len(self._first) and _fits(self._first, parts, 0)
        at, end = len(self._first), len(parts) - len(self._last)
        if at > end or not _fits(self._first, parts, 0) or not _fits(self._last, parts, end):
            return False
        for run in self._middle:
            found = next((place for place in range(at, end - len(run) + 1) if _fits(run, parts, place)), None)
            if found is None:
                return False
            at = found + len(run)
        return True


def _fits(run: Sequence[_Part], parts: Sequence[str], at: int) -> bool:
    return all(part(parts[at + number]) for number, part in enumerate(run))


@lru_cache(maxsize=1024)
def _compiled(text: str) -> _Pattern:
    parts = [part for part in text.split("/") if part not in ("", ".")]
    _refuse_strange(text, parts)
    if text.endswith("/") or not _is_wild(parts[-1]):
        parts.append(_ANY)
    return _Pattern([[_part(text) for text in run] for run in _split(parts, _ANY)])


def _refuse_strange(text: str, parts: Sequence[str]) -> None:
    problem = None
    if text.startswith("/") or ".." in parts or not parts or "\0" in text:
        problem = "it is not a path below the top of the work tree"
    elif text.startswith("!"):
        problem = "`!` is not understood"
    elif "{" in text and "," in text and "}" in text:
        problem = "lists in braces are not understood"
    if problem:
        raise UsageError(
            f"The pattern {text!r:.120} cannot be used: {problem}.",
            advice="Write paths like `src/**`, `docs/` or `**/*.md`, one pattern for each; put exceptions in the denylist.",
        )


def _is_wild(part: str) -> bool:
    return "*" in part or "?" in part


def _split(items: Sequence[_T], at: _T) -> list[list[_T]]:
    runs: list[list[_T]] = [[]]
    for item in items:
        if item == at:
            runs.append([])
        else:
            runs[-1].append(item)
    return runs


def _part(text: str) -> _Part:
    """What decides whether one part of a path is meant by one part of a pattern."""
    if not _is_wild(text):
        return text.__eq__
    pieces = text.split("*")
    return lambda name: _pieces_fit(pieces, name)


def _pieces_fit(pieces: Sequence[str], name: str) -> bool:
    """The first piece stands at the start, the last at the end, the others between them, each as early as it can."""
    first, last = pieces[0], pieces[-1]
    if len(pieces) == 1:
        return len(name) == len(first) and _is_at(first, name, 0)
    at, end = len(first), len(name) - len(last)
    if at > end or not _is_at(first, name, 0) or not _is_at(last, name, end):
        return False
    for piece in pieces[1:-1]:
        found = _find(piece, name, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True


def _is_at(piece: str, name: str, at: int) -> bool:
    if "?" not in piece:
        return name.startswith(piece, at)
    return all(wanted in ("?", found) for wanted, found in zip(piece, name[at : at + len(piece)], strict=True))


def _find(piece: str, name: str, start: int, end: int) -> int:
    if "?" not in piece:
        return name.find(piece, start, end)
    return next((at for at in range(start, end - len(piece) + 1) if _is_at(piece, name, at)), -1)

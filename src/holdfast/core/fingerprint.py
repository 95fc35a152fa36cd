"""What surrounds a run, as names and values in text, and how two of them differ. Only compares; takes none itself."""

from __future__ import annotations

from collections.abc import Mapping

Fingerprint = dict[str, str]

TIMES = frozenset({"created_at", "taken_at", "updated_at"})  # when it was taken says nothing about what it is of
VERSION = "fingerprint"  # which names it may have; one without it knew fewer lockfiles, and no agents of one's own
_GREW = ("lockfile:", "agent:", VERSION)
_DIGEST = 64
_SHORT = 12
_LONGEST = 160


def make(facts: Mapping[str, str]) -> Fingerprint:
    """The facts in the order of their names."""
    return dict(sorted(facts.items()))


def comparable(before: Mapping[str, str], now: Mapping[str, str]) -> Mapping[str, str]:
    """What of a fingerprint can be held against an earlier one, which may not have looked for everything."""
    if VERSION in before:
        return now
    return {name: value for name, value in now.items() if name in before or not name.startswith(_GREW)}


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Every name whose value differs, one sentence each, in the order of the names."""
    names = sorted((before.keys() | now.keys()) - TIMES)
    return [_said(name, before.get(name), now.get(name)) for name in names if before.get(name) != now.get(name)]


def _said(name: str, was: str | None, value: str | None) -> str:
    if was is None:
        return f"{name} was added: {_shown(value)}"
    if value is None:
        return f"{name} was removed; it was {_shown(was)}"
    return f"{name} changed from {_shown(was)} to {_shown(value)}"


def _shown(value: str | None) -> str:
    """A value as a person wants to see it: digests by their beginning, the rest as it is, but not for ever."""
    words = [word[:_SHORT] if _is_digest(word) else word for word in (value or "nothing").split(" ")]
    text = " ".join(words)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _is_digest(word: str) -> bool:
    return len(word) == _DIGEST and not set(word) - set("0123456789abcdef")

"""How long, as people write it: `90s`, `45m`, `2h30m`, `1d`, or plain seconds. Refuses what could mean two things."""

from __future__ import annotations

import re

MOST = 366 * 86400.0
HOW = 'a length of time such as "90s", "45m", "2h30m", or a number of seconds'
_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_PARTS = re.compile(r"(?:([0-9]{1,9})d)?(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9})s)?")
_SECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")


def seconds(value: object) -> float:
    """The seconds that text or a number means. Raises ValueError, with the rule, for anything else."""
    found = _of_text(value.strip()) if isinstance(value, str) else _of_number(value)
    if found is None or not 0 <= found <= MOST:
        raise ValueError(f"must be {HOW}, at most a year")
    return float(found)


def _of_number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _of_text(text: str) -> float | None:
    if _SECONDS.fullmatch(text):
        return float(text)
    parts = _PARTS.fullmatch(text)
    if parts is None or not text:
        return None
    return sum(int(count) * unit for count, unit in zip(parts.groups(default="0"), _UNITS.values(), strict=True))

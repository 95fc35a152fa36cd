"""Keys of effects made from what an effect is given: `order-{order.id}`. Fills gaps with plain data; evaluates nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.core.errors import UsageError
from holdfast.core.plain import check_text

LONGEST = 200
_GAP = re.compile(r"\{([A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*)\}")


def business_key(template: str, arguments: Any) -> str:
    """The template with each `{name.field}` filled from the arguments. Refuses a gap that has no text or number."""
    check_text("The key of an effect", template)
    key = _GAP.sub(lambda found: _text_at(found.group(1), arguments, template), template)
    if not 0 < len(key) <= LONGEST or not key.isprintable() or "{" in key or "}" in key:
        raise UsageError(
            f"{key!r:.120} cannot be the key of an effect.", advice=f"A key is 1 to {LONGEST} printable characters."
        )
    return key


def _text_at(path: str, arguments: Any, template: str) -> str:
    value = arguments
    for part in path.split("."):
        value = _member(value, part)
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise UsageError(
            f"The key {template!r:.120} names {path}, and the effect was given no text or whole number there.",
            advice="Name an argument by the name of its parameter, or one of its fields.",
        )
    return str(value)


def _member(value: Any, part: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(part)
    if isinstance(value, Sequence) and not isinstance(value, str) and part.isdigit() and int(part) < len(value):
        return value[int(part)]
    return None

"""The text of `review.yaml`: findings by their weight, each with an id that is never used twice. Only adds.

A finding that is noted already, with its batch, place and words, is not noted again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from holdfast.adapters.specs.edit import CannotEdit, append, put
from holdfast.adapters.specs.emit import block, flow, number, quoted, scalar
from holdfast.adapters.specs.texts import Text
from holdfast.adapters.specs.yaml_text import compose
from holdfast.core.review import LATER, Finding
from holdfast.core.review import ORDER as WEIGHTS
from holdfast.core.spec_shapes import SAID, ids_in, read_deferred

_STATUS = {"critical": "resolved", "high": "resolved", "medium": "deferred"}  # of what came through the gate
_ID = re.compile("([CHML])([0-9]{3,9})")


def fresh(batch: str, findings: Sequence[Finding]) -> str:
    given = numbered(findings, ())
    issues = {weight: [_item(batch, one) for one in given if one.severity == weight] for weight in WEIGHTS}
    put_off = [_item(batch, one) for one in given if one.severity in LATER]
    return "\n".join([*block("issues", issues, 0), "", *block("deferred_issues", put_off, 0)]) + "\n"


def updated(text: Text, batch: str, findings: Sequence[Finding]) -> str:
    data = text.data
    known = set(_noted(data))
    new = [one for one in findings if (one.description.strip(), batch) not in known]
    draft = text.text
    for one in numbered(new, ids_in(data)):
        draft = _added(draft, one.severity, _item(batch, one))
    return draft


def check(text: Text) -> None:
    """Raise CannotEdit now, if no finding could be added to the file later."""
    updated(text, "anything", [Finding(id="", severity=weight, description="anything") for weight in WEIGHTS])


def _added(draft: str, weight: str, item: dict[str, str]) -> str:
    """The text with one more finding, in the lists it belongs to."""
    maps = [(place, root.value) for place, root in enumerate(compose(draft)) if isinstance(root.value, dict)]
    if not maps:
        raise CannotEdit(("issues",), "has no place in this file")
    place, top = next(((place, top) for place, top in maps if "issues" in top), maps[-1])
    if "issues" not in top:
        draft = put(draft, (place, "issues"), {weight: [item]})
    else:
        under = () if isinstance(top["issues"].node.value, list) else (weight,)
        draft = append(draft, (place, "issues", *under), item)
    return append(draft, (place, "deferred_issues"), item) if weight in LATER else draft


def numbered(findings: Sequence[Finding], taken: Sequence[str]) -> list[Finding]:
    """The findings with ids; one that has an id keeps it, unless another has it already."""
    used = set(taken)
    given: list[Finding] = []
    for one in findings:
        name = one.id if one.id and one.id not in used else _next_id(one.severity[0].upper(), used)
        used.add(name)
        given.append(replace(one, id=name))
    return given


def _next_id(letter: str, used: set[str]) -> str:
    found = [int(match[2]) for name in used if (match := _ID.fullmatch(name)) and match[1] == letter]
    return f"{letter}{max(found, default=0) + 1:03}"


def _noted(data: dict[str, Any]) -> Iterator[tuple[str, str | None]]:
    issues = data.get("issues")
    lists = list(issues.values()) if isinstance(issues, dict) else [issues]
    for found in lists:
        yield from ((one.description, one.batch) for one in read_deferred(found))


def _item(batch: str, one: Finding) -> dict[str, str]:
    fields = {
        "id": scalar(one.id),
        "batch": number(batch),
        "task": one.task and scalar(one.task),
        "severity": one.severity,
        "found_by": flow(one.reviewers) if one.reviewers else "",
        "gate": one.gate and scalar(one.gate),
        "location": one.location and quoted(one.location),
        SAID[0]: quoted(one.description.strip()),
        "suggestion": one.suggestion and quoted(one.suggestion),
        "status": _STATUS.get(one.severity, "open"),
    }
    return {name: value for name, value in fields.items() if value}

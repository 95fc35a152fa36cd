"""What an agent answers: one JSON object for each kind of work, and the words that ask for it.

A report counts only with the id it was asked for, so neither an old one nor an echo of the question is ever taken.
Unknown keys are ignored; a wrong type is named by its path; whatever cannot be read is said, never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, TypeAlias

import msgspec

BEGIN, END = "BEGIN_JSON", "END_JSON"
MAX_BYTES = 1_000_000
MAX_TEXT = 4 * MAX_BYTES
MAX_DEPTH = 20
MAX_PAIRS = 32

Kind: TypeAlias = Literal["test", "implement", "review", "fix"]
Mark: TypeAlias = Literal["pass", "fail"]


class _Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    report_id: str = ""


class TesterReport(_Report, frozen=True, kw_only=True):
    """Failing tests were written, or why none could be."""

    status: Literal["success", "gap", "blocked"]
    test_files: tuple[str, ...] = ()
    failure_output: str = ""
    gap_reason: str = ""
    blocked_reason: str = ""


class Ran(msgspec.Struct, frozen=True):
    """A command that an agent says it ran."""

    command: str
    exit_code: int


class Evidence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What speaks for it that nothing had to be changed."""

    files_checked: tuple[str, ...] = ()
    output: str = ""
    commands_run: tuple[Ran, ...] = ()


class ImplementerReport(_Report, frozen=True, kw_only=True):
    """The task was done, could not be, or had been done before."""

    status: Literal["success", "blocked", "no_changes_needed"]
    implementation_files: tuple[str, ...] = ()
    test_output: str = ""
    clarifications: tuple[str, ...] = ()
    blocked_reason: str = ""
    evidence: Evidence = Evidence()


class Gates(msgspec.Struct, frozen=True, kw_only=True):
    correctness: Mark = "pass"
    style: Mark = "pass"
    performance: Mark = "pass"
    security: Mark = "pass"
    architecture: Mark = "pass"


class Issue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that a reviewer saw, in the reviewer's own words."""

    severity: str
    description: str
    task: str = ""
    gate: str = ""
    location: str = ""
    suggestion: str = ""


class ReviewerReport(_Report, frozen=True, kw_only=True):
    verdict: Literal["approve", "request_changes", "reject"]
    gates: Gates = Gates()
    reviewer: str = ""
    issues: tuple[Issue, ...] = ()
    strengths: tuple[str, ...] = ()


class FixReport(_Report, frozen=True, kw_only=True):
    """Which findings were put right; `resolved` holds their ids."""

    status: Literal["success", "blocked"]
    resolved: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    blocked_reason: str = ""


Report: TypeAlias = TesterReport | ImplementerReport | ReviewerReport | FixReport


class Unreadable(msgspec.Struct, frozen=True):
    """No report was found; `why` is a sentence that can be handed back to the agent. `nothing`: not even a broken one."""

    why: str
    nothing: bool = False


class _Bad(Exception):
    pass


def extract(text: str, file: bytes | None, wanted: Kind, report_id: str) -> Report | Unreadable:
    """The report in the file, else between the last markers that hold it, else the whole output."""
    problems: list[str] = []
    for place, data in _candidates(text, file):
        try:
            return _read(data, wanted, report_id)
        except _Bad as problem:
            problems.append(f"{place} {problem}")
    if not problems:
        return Unreadable(f"There was no report file and no JSON between {BEGIN} and {END} lines.", nothing=True)
    return Unreadable("; ".join(problems[:3]) + ".")


def _candidates(text: str, file: bytes | None) -> Iterator[tuple[str, bytes]]:
    if file is not None:
        yield "The report file", file
    text = text[-MAX_TEXT:]
    for number, body in enumerate(_pairs(text.splitlines())):
        if number == MAX_PAIRS:
            return
        yield "The JSON between the markers", body.encode("utf-8", "replace")
    whole = _unfenced(text.encode("utf-8", "replace"))
    if whole.startswith(b"{") and whole.endswith(b"}"):
        yield "The output", whole


def _pairs(lines: list[str]) -> Iterator[str]:
    """What stands between two markers, the last pair first. A marker is a line of its own, however it is decorated."""
    end: int | None = None
    for number in range(len(lines) - 1, -1, -1):
        line = lines[number].strip(" \t`*#>")
        if line == END:
            end = number
        elif line == BEGIN and end is not None:
            yield "\n".join(lines[number + 1 : end])
            end = None


def _read(data: bytes, wanted: Kind, report_id: str) -> Report:
    if len(data) > MAX_BYTES:
        raise _Bad(f"has {len(data):,} bytes; the limit is {MAX_BYTES:,}")
    value = _object(_unfenced(data))
    if value.get("report_id") != report_id:
        raise _Bad("does not carry the report_id that was asked for")
    _check_depth(value, MAX_DEPTH)
    value = _relaxed(value)
    if wanted == "review" and "findings" in value:
        value.setdefault("issues", value["findings"])  # what they are called when they are handed on
    try:
        return msgspec.convert(value, _KINDS[wanted].report)
    except msgspec.ValidationError as error:
        raise _Bad(f"is no {wanted} report: {error}") from None


def _unfenced(data: bytes) -> bytes:
    """Without the byte order mark, blanks, and the fence that some agents put around JSON."""
    data = data.removeprefix(b"\xef\xbb\xbf").strip()
    if data.startswith(b"```") and data.endswith(b"```") and b"\n" in data:
        data = data.partition(b"\n")[2].removesuffix(b"```").strip()
    return data


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _Bad(f"is not JSON: {str(error) or 'it is nested too deep'}") from None
    if not isinstance(value, dict):
        raise _Bad("is not one JSON object")
    return value


def _check_depth(value: Any, left: int) -> None:
    if left == 0:
        raise _Bad(f"is nested more than {MAX_DEPTH} deep")
    inner: Iterable[Any] = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in inner:
        _check_depth(item, left - 1)


_ONE_OF_A_FEW = ("status", "verdict", "correctness", "style", "performance", "security", "architecture")
_LISTS = ("test_files", "implementation_files", "clarifications", "strengths", "resolved", "files", "files_checked")


def _relaxed(value: Any, name: str = "") -> Any:
    """Forgives what means the same: null for absent, other capitals, one text where a list of texts is due."""
    if isinstance(value, dict):
        return {key: _relaxed(item, key) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_relaxed(item) for item in value]
    if not isinstance(value, str):
        return value
    return _RELAX[name](value) if name in _RELAX else value


_RELAX: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(_ONE_OF_A_FEW, lambda text: text.strip().lower()),
    **dict.fromkeys(_LISTS, lambda text: [text] if text.strip() else []),
    "evidence": lambda text: {"output": text},
}


# --- asking for one


class _Shape(msgspec.Struct, frozen=True):
    """The class of a report, and its fields as they are told to an agent."""

    report: type[Report]
    fields: tuple[tuple[str, str], ...]


_TEXT, _TEXTS = "<text>", "[<text>, ...]"
_KINDS: dict[Kind, _Shape] = {
    "test": _Shape(
        TesterReport,
        (
            ("status", '<"success" if tests that fail for the right reason are written, else "gap" or "blocked">'),
            ("test_files", "[<path of each test file>, ...]"),
            ("failure_output", "<what the new tests print now>"),
            ("gap_reason", "<why no such test can be written; needed for a gap>"),
            ("blocked_reason", "<what is missing; needed when blocked>"),
        ),
    ),
    "implement": _Shape(
        ImplementerReport,
        (
            ("status", '<"success", "blocked" or, with evidence, "no_changes_needed">'),
            ("implementation_files", "[<path of each changed file>, ...]"),
            ("test_output", "<the end of what the tests print now>"),
            ("clarifications", _TEXTS),
            ("blocked_reason", "<what is missing; needed when blocked>"),
            (
                "evidence",
                '{"files_checked": [...], "output": <text>, "commands_run": [{"command": <text>, "exit_code": <number>}]}',
            ),
        ),
    ),
    "review": _Shape(
        ReviewerReport,
        (
            ("reviewer", _TEXT),
            ("verdict", '<"approve", "request_changes" or "reject">'),
            (
                "gates",
                '{"correctness": <"pass" or "fail">, "style": ..., "performance": ..., "security": ..., "architecture": ...}',
            ),
            (
                "issues",
                '[{"task": <id>, "severity": <"critical", "high", "medium" or "low">, "gate": <which>, '
                '"location": <file:line>, "description": <text>, "suggestion": <text>}, ...]',
            ),
            ("strengths", _TEXTS),
        ),
    ),
    "fix": _Shape(
        FixReport,
        (
            ("status", '<"success" or "blocked">'),
            ("resolved", "[<id of each finding that is put right>, ...]"),
            ("files", "[<path of each changed file>, ...]"),
            ("blocked_reason", "<what is missing; needed when blocked>"),
        ),
    ),
}


def instructions(kind: Kind, report_id: str, report_path: str) -> str:
    """How to answer. The pattern in it is not JSON, so an echo of these words is never taken for an answer."""
    pattern = ",\n".join(f'  "{name}": {what}' for name, what in _KINDS[kind].fields)
    return (
        "## How to report\n\n"
        "When you are done, and only then, write one JSON object. Replace everything in angle brackets; leave out what you "
        "cannot say. Nothing counts as done without it.\n\n"
        f'{{\n  "report_id": <the id below, as text>,\n{pattern}\n}}\n\n'
        f"The report_id is {report_id} and must be copied exactly.\n"
        f"Write the object into this file: {report_path}\n"
        f"If you cannot write that file, end your answer with it instead, between a line that holds only {BEGIN} and a line "
        f"that holds only {END}.\n"
    )

"""What several reviewers saw, as one judgement: findings with ids, what must be fixed now, what is put off. Never drops a no.

A gate fails if any reviewer fails it. The same finding by two reviewers is one, with the higher severity. A reviewer who
says no and names nothing has still said no: that becomes a finding of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import holdfast.core.lean  # noqa: F401 - before msgspec
from holdfast.core.canonical import canonical, digest
from holdfast.core.named import NamedTuple
from holdfast.core.reports import Issue, ReviewerReport
from holdfast.core.statuses import severity

import msgspec  # isort: skip

Severity = Literal["critical", "high", "medium", "low"]
ORDER: tuple[Severity, ...] = ("critical", "high", "medium", "low")
NOW: frozenset[str] = frozenset({"critical", "high"})
LATER: frozenset[str] = frozenset({"medium"})  # noted, and carried on
_LINE = re.compile(r":\d[\d:,\- ]*$")
_FINGERPRINT = 16
_DIGITS = 9  # of the number in an id; a longer one was not given by us
LONGEST, LONGEST_PLACE = 4000, 300  # characters that are kept of what a reviewer says


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that reviewers saw. `id` begins with the letter of its severity and is never used twice in a spec."""

    id: str
    severity: Severity
    description: str
    location: str = ""
    task: str = ""
    gate: str = ""
    suggestion: str = ""
    reviewers: tuple[str, ...] = ()


class Judgement(NamedTuple):
    """The reviews of one round. `failed` are the gates that did not pass, `rejected` those who want it not at all."""

    findings: tuple[Finding, ...] = ()
    failed: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()

    @property
    def to_fix(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if one.severity in NOW)


def judge(
    reports: Mapping[str, ReviewerReport], taken: Iterable[str] = (), earlier: Iterable[Finding] = ()
) -> Judgement:
    """Bring the reports together, by the name of each reviewer. `taken`: ids that are given away.

    What is found again keeps the id that it has among the `earlier` ones, as long as it is as severe as it was.
    """
    merged: dict[tuple[str, str], list[tuple[str, Issue]]] = {}
    for reviewer, report in sorted(reports.items()):
        for issue in (*report.issues, *_unnamed(reviewer, report)):
            merged.setdefault(_identity(issue), []).append((reviewer, issue))
    numbers, known = _numbers(taken), {_sameness(one): one.id for one in earlier}
    findings = sorted(map(_merge, merged.values()), key=lambda one: ORDER.index(one.severity))
    failed = {name for report in reports.values() for name, mark in _marks(report) if mark == "fail"}
    rejected = sorted(name for name, report in reports.items() if report.verdict == "reject")
    named = tuple(_named(one, known, numbers) for one in findings)
    return Judgement(named, tuple(sorted(failed)), tuple(rejected))


def fingerprint(findings: Sequence[Finding]) -> str:
    """The same for the same findings in any order, wherever the lines have moved to meanwhile."""
    said = sorted({_sameness(one)[1:] for one in findings})
    return digest(canonical([list(one) for one in said]))[:_FINGERPRINT]


def highest(taken: Iterable[str]) -> list[str]:
    """Of ids that are given away, those that decide which come next: the last of each severity."""
    letters = {weight[0].upper() for weight in ORDER}
    return [f"{letter}{number:03}" for letter, number in sorted(_numbers(taken).items()) if letter in letters]


def _marks(report: ReviewerReport) -> list[tuple[str, str]]:
    return list(msgspec.structs.asdict(report.gates).items())


def _unnamed(reviewer: str, report: ReviewerReport) -> Iterator[Issue]:
    """What a reviewer refused without saying why."""
    serious = [issue for issue in report.issues if severity(issue.severity) in NOW]
    for gate in (name for name, mark in _marks(report) if mark == "fail"):
        if not any(issue.gate == gate for issue in report.issues) and not serious:
            yield Issue(severity="high", gate=gate, description=f"{reviewer} fails {gate} and names no finding for it")
    if report.verdict != "approve" and not report.issues and all(mark == "pass" for _, mark in _marks(report)):
        yield Issue(severity="high", description=f"{reviewer} does not approve and names no finding")


def _identity(issue: Issue) -> tuple[str, str]:
    return issue.location.strip(), _plain(issue.description)


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def _merge(same: Sequence[tuple[str, Issue]]) -> Finding:
    worst = min((issue for _, issue in same), key=lambda issue: ORDER.index(severity(issue.severity)))
    return Finding(
        id="",
        severity=severity(worst.severity),
        description=worst.description.strip()[:LONGEST],
        location=worst.location.strip()[:LONGEST_PLACE],
        task=next((issue.task for _, issue in same if issue.task), ""),
        gate=worst.gate,
        suggestion=worst.suggestion[:LONGEST],
        reviewers=tuple(dict.fromkeys(reviewer for reviewer, _ in same)),
    )


def _numbers(taken: Iterable[str]) -> Counter[str]:
    highest: Counter[str] = Counter()
    for one in taken:
        letter, number = one[:1].upper(), one[1:]
        if number.isascii() and number.isdigit() and len(number) <= _DIGITS:
            highest[letter] = max(highest[letter], int(number))
    return highest


def _sameness(one: Finding) -> tuple[str, str, str]:
    """What makes two findings of two rounds the same, wherever the lines have moved to meanwhile."""
    return one.severity, _LINE.sub("", one.location), _plain(one.description)


def _named(finding: Finding, known: Mapping[tuple[str, str, str], str], numbers: Counter[str]) -> Finding:
    if _sameness(finding) in known:
        return msgspec.structs.replace(finding, id=known[_sameness(finding)])
    letter = finding.severity[0].upper()
    numbers[letter] += 1
    return msgspec.structs.replace(finding, id=f"{letter}{numbers[letter]:03}")

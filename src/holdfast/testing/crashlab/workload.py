"""What every technique of the laboratory shares: workload, verdict and report. It injects no fault itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from holdfast.core.named import NamedTuple

KINDS = ("whole", "refused", "lost", "doubled", "corrupt", "crashed")
LEGAL = frozenset({"whole", "refused"})


class Verdict(NamedTuple):
    """What a reopened store looked like: `whole` or `refused` (a named, typed refusal); all else is a violation."""

    ok: bool
    kind: str
    detail: str


class Workload(Protocol):
    """Something durable to be crashed. `check` must be able to run more than once in the same folder."""

    name: str

    def prepare(self, folder: Path) -> None:
        """Make a fresh store in the folder, before faults begin."""

    def work(self, folder: Path, ack: Callable[[str], None]) -> None:
        """Append events; call `ack(label)` right after each append was acknowledged."""

    def check(self, folder: Path, acked: Sequence[str]) -> Verdict:
        """Reopen, verify and look: every acknowledged label is there exactly once."""


FolderFactory = Callable[[], Path]


class Available(NamedTuple):
    """Whether a technique can run on this machine (true or false in an `if`), and if not, why, in one line."""

    ok: bool
    why: str

    def __bool__(self) -> bool:
        return self.ok


class Violation(NamedTuple):
    """One broken promise and the recipe to see it again."""

    technique: str
    point: int
    seed: int
    kind: str
    detail: str
    recipe: str


class Report:
    """Counts of one technique over one workload; `add` judges a point, `table` prints many reports."""

    def __init__(self, technique: str, workload: str, seed: int = 0) -> None:
        self.technique = technique
        self.workload = workload
        self.seed = seed
        self.points = 0
        self.counts = dict.fromkeys(KINDS, 0)
        self.violations: list[Violation] = []
        self.notes: list[str] = []
        self.seconds = 0.0
        self._began = time.monotonic()

    def add(self, verdict: Verdict, point: int, recipe: str) -> None:
        """Count one point; anything but whole or refused becomes a violation with its recipe."""
        self.points += 1
        self.counts[verdict.kind] = self.counts.get(verdict.kind, 0) + 1
        if not verdict.ok or verdict.kind not in LEGAL:
            self.violations.append(Violation(self.technique, point, self.seed, verdict.kind, verdict.detail, recipe))

    def note(self, text: str) -> None:
        """Say something that is no point: a technique that was not available, a bound that was reached."""
        self.notes.append(text)

    def done(self) -> Report:
        """Stop the clock and hand the report on."""
        self.seconds = time.monotonic() - self._began
        return self

    @property
    def ok(self) -> bool:
        return not self.violations

    @property
    def ms_per_point(self) -> float:
        return 1000.0 * self.seconds / self.points if self.points else 0.0

    def __str__(self) -> str:
        return table([self])


_HEAD = ("technique", "workload", "seed", "points", "whole", "refused", "violations", "ms/point")


def _row(report: Report) -> tuple[str, ...]:
    counts = report.counts
    return (
        report.technique,
        report.workload,
        str(report.seed),
        str(report.points),
        str(counts["whole"]),
        str(counts["refused"]),
        str(len(report.violations)),
        f"{report.ms_per_point:.1f}",
    )


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    left = [cell.ljust(width) for cell, width in zip(cells[:2], widths[:2], strict=True)]
    right = [cell.rjust(width) for cell, width in zip(cells[2:], widths[2:], strict=True)]
    return "  ".join(left + right).rstrip()


def table(reports: Iterable[Report], show: int = 5) -> str:
    """All reports as a plain text table, then notes and at most `show` violations each with their recipes."""
    reports = list(reports)
    rows = [_HEAD, *map(_row, reports)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = [_line(row, widths) for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    for report in reports:
        lines += [f"note ({report.technique}, {report.workload}): {note}" for note in report.notes]
        lines += [_tell(violation) for violation in report.violations[:show]]
        if len(report.violations) > show:
            lines.append(f"... and {len(report.violations) - show} more violations of {report.technique}")
    return "\n".join(lines)


def _tell(violation: Violation) -> str:
    return (
        f"VIOLATION {violation.technique} point {violation.point} seed {violation.seed}: "
        f"{violation.kind}: {violation.detail} | replay: {violation.recipe}"
    )

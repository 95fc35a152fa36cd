"""`holdfast verify`: walks the hash chain, folds the log, and compares head, list, snapshot and artifacts with it.

Names the first bad event of each run and leaves with the exit code of the worst finding. Repairs nothing, writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import click

from holdfast import app
from holdfast.cli.export import counted
from holdfast.cli.output import emit, escape, json_option, run_argument, say
from holdfast.cli.render import paint
from holdfast.cli.watching import watching
from holdfast.core import stops
from holdfast.core.errors import LogDamaged, UsageError
from holdfast.core.named import NamedTuple
from holdfast.engine.log import Finding, Verification, verify_run
from holdfast.engine.transfer import check_artifacts
from holdfast.ports import Store


class Report(NamedTuple):
    """What was looked at, and what was found."""

    runs: list[Verification]

    @property
    def findings(self) -> list[Finding]:
        return [finding for run in self.runs for finding in run.findings]

    @property
    def exit_code(self) -> int:
        return max((stops.exit_code(finding.reason) for finding in self.findings if is_damage(finding)), default=0)


def is_damage(finding: Finding) -> bool:
    """A stop reason means that the log itself is hurt; anything else is a cache, which is rebuilt, or may be nothing."""
    return stops.is_known(finding.reason)


@click.command()
@run_argument(required=False)
@click.option("--all", "everything", is_flag=True, help="Every run here. This is the default.")
@json_option
def command(run: str | None, everything: bool, as_json: bool) -> int:
    """Prove that RUN, or every run here, is what was written."""
    if run is not None and everything:
        raise UsageError("Name a run, or ask for --all, but not both.")
    with app.reading() as store:
        report = verify(store, run)
    show_data(report) if as_json else show_text(report)
    return report.exit_code


def verify(store: Store, run: str | None) -> Report:
    heads = list(store.heads()) if run is None else [app.newest_run(store, run)]
    with watching(store, "Verifying", sum(head.seq for head in heads)) as seen:
        listed = [verify_one(seen, head.run_id) for head in heads]
    return Report(listed if run is not None else [*listed, *unlisted(store)])


def unlisted(store: Store) -> Iterator[Verification]:
    for run_id, last, damage in store.strays():
        yield Verification(run_id, last, (Finding(run_id, last, damage, LogDamaged.reason),))


def verify_one(store: Store, run_id: str) -> Verification:
    found = verify_run(store, run_id)
    return found._replace(findings=(*found.findings, *check_artifacts(store, run_id)))


def show_data(report: Report) -> None:
    runs = [
        {"run_id": run.run_id, "events": run.events, "findings": [finding_data(finding) for finding in run.findings]}
        for run in report.runs
    ]
    emit({"ok": not report.findings, "exit_code": report.exit_code, "runs": runs})


def finding_data(finding: Finding) -> dict[str, object]:
    return {**finding._asdict(), "severity": severity(finding)}


def severity(finding: Finding) -> str:
    return "fail" if is_damage(finding) else "warn"


def show_text(report: Report) -> None:
    for finding in report.findings:
        say(
            f"{paint(severity(finding))}  run {escape(finding.run_id)}, event {finding.seq}: {escape(sentence(finding.problem))}"
        )
    events = sum(run.events for run in report.runs)
    good = sum(1 for run in report.runs if not run.findings)
    say(f"As they were written: {good:,} of {counted(len(report.runs), 'run')}, {counted(events, 'event')}.")


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."

"""What every test shares: one deterministic property-test profile, honest skips, and the table of points tried."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "holdfast", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
settings.load_profile("holdfast")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell starts what runs behind it so, and children inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
if (
    signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
):  # under nohup: still nothing to us, but children do not inherit that
    signal.signal(signal.SIGHUP, lambda number, frame: None)

IN_CI = os.environ.get("HOLDFAST_CI") == "1"


@pytest.fixture
def skip_or_fail():
    """Skip with one clear line where the machine cannot; in CI nothing may be skipped."""

    def decide(available):
        if not available:
            (pytest.fail if IN_CI else pytest.skip)(available.why)

    return decide


class Found:
    """Whether the folder of real files is there."""

    why = "HOLDFAST_CORPUS names no folder of real files"

    def __init__(self, folder):
        self.folder = folder

    def __bool__(self):
        return os.path.isdir(self.folder)


@pytest.fixture
def corpus(skip_or_fail):
    """The folder of files that people and other programs wrote."""
    found = Found(os.environ.get("HOLDFAST_CORPUS", ""))
    skip_or_fail(found)
    return Path(found.folder)


def told(terminalreporter, wanted):
    """What the tests recorded under a name, whichever process ran them."""
    return [
        value
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", None) == "call"
        for name, value in report.user_properties
        if name == wanted
    ]


def pytest_terminal_summary(terminalreporter):
    rows = told(terminalreporter, "crash")
    if rows:
        terminalreporter.section("crash laboratory: points tried")
        width = max(len(row[0]) for row in rows)
        terminalreporter.write_line(f"{'technique':{width}}  {'points':>7} {'whole':>7} {'refused':>7} {'broken':>6}")
        for name, points, counts, broken in sorted(rows):
            line = f"{name:{width}}  {points:7} {counts['whole']:7} {counts['refused']:7} {broken:6}"
            terminalreporter.write_line(line)
        terminalreporter.write_line(f"{'in all':{width}}  {sum(row[1] for row in rows):7}")
    for matrix in told(terminalreporter, "matrix"):
        terminalreporter.section(
            "milestones after a history was rewritten: which was found, by log, sidecars or git alone"
        )
        for row in matrix:
            terminalreporter.write_line(row.rstrip())
    for sentence in told(terminalreporter, "told"):
        terminalreporter.write_line(sentence)
    fuzzed = told(terminalreporter, "fuzz")
    if fuzzed:
        terminalreporter.write_line(f"bad inputs fuzzed: {sum(count for _, count in fuzzed):,}")


def pytest_sessionfinish(session):
    """In CI a skipped test is a failed one: what this machine cannot show, it has not shown."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped") if reporter and IN_CI else None
    if skipped:
        reporter.write_line(f"{len(skipped)} skipped, and in CI nothing may be")
        session.exitstatus = 1

"""What every test shares: one deterministic property-test profile, honest skips, and the table of points tried."""

import os
import random
import shutil
import signal
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
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
MEMORY = "/dev/shm"
ROOM = 4 << 30  # bytes


def in_memory() -> bool:
    """Whether there is a folder in memory with room for all that the tests write, and with programs that run there."""
    try:
        disk = os.statvfs(MEMORY)
    except OSError:
        return False
    return os.access(MEMORY, os.W_OK) and not disk.f_flag & os.ST_NOEXEC and disk.f_bavail * disk.f_frsize > ROOM


if "TMPDIR" not in os.environ and in_memory():  # a kill loses nothing that was written, so nothing need reach a disk
    os.environ["TMPDIR"] = tempfile.tempdir = MEMORY


@pytest.fixture
def skip_or_fail():
    """Skip with one clear line where the machine cannot; in CI nothing may be skipped."""

    def decide(available):
        if not available:
            (pytest.fail if IN_CI else pytest.skip)(available.why)

    return decide


class Tries:
    """Points to try: all of them, or as many as were asked for, spread over the whole by a seed."""

    whole = os.environ.get("HOLDFAST_SWEEP") == "all"

    def part(self, points, few):
        points = list(points)
        return points if self.whole else [points[at] for at in self.places(len(points), few)]

    def places(self, total, few):
        return sorted(random.Random(few).sample(range(total), min(few, total)))

    def limit(self, few):
        return None if self.whole else few

    def of(self, many, few):
        return many if self.whole else few


@pytest.fixture
def tries():
    """A part of many points in `make test`. `make crash-ci` runs each test that asks for this, and then with all."""
    return Tries()


@pytest.fixture(scope="module")
def apart():
    """Runs a function in a small process. What forks a thousand times pays for its own size each time, and we are large."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as small:
        yield lambda function, *args, **options: small.submit(function, *args, **options).result()


LONGEST = 80  # characters of a parameter in the name of a test


def pytest_make_parametrize_id(val):
    """A value of ten megabytes is no name: every process of the tests would keep it, and each fork of one copy its pages."""
    long = isinstance(val, (str, bytes)) and len(val) > LONGEST
    return f"{val[: LONGEST // 2]!r}, {len(val)} long" if long else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if "tries" in getattr(item, "fixturenames", ()):
            item.add_marker("sweep")


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
    matrix = sorted(told(terminalreporter, "matrix"))
    if matrix:
        terminalreporter.section("milestones after a history was rewritten: which was found, by what was left")
        for _, done, *found in [(0, "", "log present", "only sidecars", "only git"), *matrix]:
            terminalreporter.write_line(f"{done:37}{''.join(f'{one:38}' for one in found)}".rstrip())
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
    if (
        reporter and session.exitstatus == 0 and tempfile.tempdir == MEMORY
    ):  # memory is not kept for what nobody looks at
        shutil.rmtree(session.config._tmp_path_factory.getbasetemp(), ignore_errors=True)

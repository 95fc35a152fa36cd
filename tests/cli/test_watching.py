"""The bar beside a long reading, for each command that reads a whole log."""

import io
import time
from contextlib import suppress
from hashlib import sha256

import pytest

from holdfast.app import open_store, start_run
from holdfast.cli import answer, cancel, diagnose, doctor, fork, render, resume, settle, show, status, verify
from holdfast.core.errors import HoldfastError
from holdfast.core.events import NoteRecorded, RunStopped

EVENTS = 40
PAPER = sha256(b"paper").hexdigest()


class Bar:
    def __init__(self):
        self.reached, self.stopped = [], False

    def update(self, task, completed):
        self.reached.append(completed)

    def stop(self):
        self.stopped = True


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def bars(monkeypatch):
    """Each look at the clock is a second later; what is shown is kept."""
    shown, seconds = {}, iter(range(1_000_000))

    def begin(label, total):
        shown[label, total] = bar = Bar()
        return bar, "task"

    monkeypatch.setattr(render, "_start_bar", begin)
    monkeypatch.setattr(render.time, "monotonic", lambda: float(next(seconds)))
    return shown


@pytest.fixture
def run_id(tmp_path, monkeypatch):
    path = str(tmp_path / "holdfast.db")
    monkeypatch.setenv("HOLDFAST_STORE", path)
    with open_store(path) as store, start_run(store, "long") as log:
        store.put_artifact(b"paper")
        for _ in range(EVENTS):
            log.record(NoteRecorded(text="on and on"))
        log.record(RunStopped(reason="awaiting_answer", diagnosis="it was"))
        log.close()  # with a snapshot, which `doctor` holds against the log
        return log.run_id


@pytest.mark.parametrize(
    ("command", "label"), [(verify, "Verifying"), (show, "Reading"), (diagnose, "Reading"), (doctor, "Looking")]
)
def test_whoever_waits_for_a_long_log_sees_how_far_it_is(command, label, run_id, bars, monkeypatch):
    monkeypatch.setattr("sys.stderr", Terminal())
    words = [] if command is doctor else [run_id]
    command.command.main(words, standalone_mode=False)
    ((told, total), bar), *_ = bars.items()
    assert told == label and total == (None if command is doctor else EVENTS + 2)
    assert bar.reached[-1] >= EVENTS and bar.stopped


@pytest.mark.parametrize(
    ("command", "words", "total"),
    [
        (show, ["nosuch"], EVENTS + 2),
        (show, ["41"], 41),
        (show, ["abcdef0123"], EVENTS + 2),
        (show, ["nosuch", "--raw"], EVENTS + 2),
        (show, [PAPER], EVENTS + 2),
        (status, [], EVENTS + 2),
        (resume, ["--plan"], EVENTS + 2),
        (cancel, [], EVENTS + 2),
        (settle, ["nosuch", "--done"], EVENTS + 2),
        (answer, ["yes"], EVENTS + 2),
        (fork, [], EVENTS + 2),
    ],
)
def test_whoever_asks_for_one_thing_of_a_long_log_does_too(command, words, total, run_id, bars, monkeypatch):
    monkeypatch.setattr("sys.stderr", Terminal())
    with suppress(HoldfastError):
        command.command.main([run_id, *words], standalone_mode=False)
    bar = bars["Reading", total]
    assert bar.reached[-1] >= EVENTS and bar.stopped


@pytest.mark.parametrize(("command", "words", "label"), [(status, ["--all"], "Reading"), (resume, [], "Looking")])
def test_whoever_waits_for_many_runs_sees_it(command, words, label, run_id, bars, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with open_store() as store:
        for _ in range(5):
            start_run(store, "short").close()
    monkeypatch.setattr("sys.stderr", Terminal())
    command.command.main(words, standalone_mode=False)
    bar = bars[label, None]
    assert bar.reached[-1] >= 5 and bar.stopped


def test_a_table_of_very_many_rows_is_not_laid_out_by_rich(monkeypatch):
    monkeypatch.setattr("sys.stdout", Terminal())
    monkeypatch.setattr(render, "_rich_table", None)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    render.table(("run", "events", "status"), [(f"run-{n}", n, "finished") for n in range(1000)], frozenset({"events"}))
    lines = render.sys.stdout.getvalue().splitlines()
    assert len(lines) == 1001
    assert (lines[0], lines[8]) == ("run      events  status", "run-7         7  \x1b[32mfinished\x1b[0m")


def test_elsewhere_there_is_none(run_id, bars, monkeypatch):
    monkeypatch.setattr("sys.stderr", io.StringIO())
    show.command.main([run_id], standalone_mode=False)
    assert not bars and time.monotonic() < 3

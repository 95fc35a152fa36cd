"""The bar beside a long reading, for each command that reads a whole log."""

import io
import time

import pytest

from holdfast.app import open_store, start_run
from holdfast.cli import diagnose, doctor, render, show, verify
from holdfast.core.events import NoteRecorded, RunStopped

EVENTS = 40


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
        for _ in range(EVENTS):
            log.record(NoteRecorded(text="on and on"))
        log.record(RunStopped(reason="interrupted", diagnosis="it was"))
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


def test_elsewhere_there_is_none(run_id, bars, monkeypatch):
    monkeypatch.setattr("sys.stderr", io.StringIO())
    show.command.main([run_id], standalone_mode=False)
    assert not bars and time.monotonic() < 3

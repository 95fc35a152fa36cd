"""Real commands on real stores: every test of the command line starts a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast import app
from holdfast.core.events import EffectStarted, Event, RunFinished, RunStopped, StepFinished, StepStarted
from tests import forked

CLEAN = ("HOLDFAST_STORE", "HOLDFAST_WITNESS", "HOLDFAST_DEBUG", "NO_COLOR", "XDG_DATA_HOME")
ENDINGS: dict[str, tuple[Event, ...]] = {
    "finished": (RunFinished(),),
    "stopped": (RunStopped(reason="awaiting_answer", diagnosis="Which colour?"),),
    "open": (EffectStarted(effect_key="mail-1", step_id="step-0"),),
}

WRITER = """
import sys, time
from holdfast import app
from holdfast.core.events import StepFinished, StepStarted
store = app.open_store(sys.argv[1])
log = app.start_run(store, "mission", run_id=sys.argv[2], title="live")
for number in range(int(sys.argv[3])):
    log.record(StepStarted(step_id=f"step-{number}"))
    log.record(StepFinished(step_id=f"step-{number}", output=number))
print("ready", flush=True)
sys.stdin.readline()
"""


class Answer(NamedTuple):
    """What a command said and how it left."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


class Shell:
    """Runs `holdfast` as a user would, in a clean environment with its own store."""

    def __init__(self, place: Path, home: Path) -> None:
        self.place = place
        self.home = home
        self.prefix: tuple[str, ...] = ()

    def environment(self, **changes: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in CLEAN}
        return kept | {"HOLDFAST_STORE": str(self.place), "HOME": str(self.home)} | changes

    def __call__(self, *arguments: str, cwd: Path | None = None, **environ: str) -> Answer:
        done = forked.holdfast(arguments, cwd or self.home, self.environment(**environ), self.prefix)
        return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "holdfast", *arguments]
        return subprocess.Popen(
            command,
            env=self.environment(),
            cwd=self.home,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )


@pytest.fixture
def holdfast(tmp_path: Path) -> Shell:
    home = tmp_path / "home"
    home.mkdir()
    return Shell(tmp_path / "store" / "holdfast.db", home)


MakeRun = Callable[..., str]


@pytest.fixture
def make_run(holdfast: Shell) -> MakeRun:
    """A run with steps and an ending, written by this process, which then lets go of it."""

    def make(
        run_id: str | None = None, steps: int = 2, ending: str = "stopped", title: str = "", mission: str = "mission"
    ) -> str:
        with closing(app.open_store(str(holdfast.place))) as store:
            log = app.start_run(store, mission, run_id=run_id, title=title)
            for number in range(steps):
                log.record(StepStarted(step_id=f"step-{number}"), StepFinished(step_id=f"step-{number}", output=number))
            if ending:
                log.record(*ENDINGS[ending])
            log.close()
            return log.run_id

    return make


@pytest.fixture
def writer(holdfast: Shell) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Processes that write a run, say so, and then live on until they are told to end."""
    alive: list[subprocess.Popen[str]] = []

    def start(run_id: str = "live", steps: int = 2) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(holdfast.place), run_id, str(steps)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        alive.append(process)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in alive:
        process.kill()
        process.communicate()


@contextmanager
def paused(process: subprocess.Popen[str]) -> Iterator[None]:
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)

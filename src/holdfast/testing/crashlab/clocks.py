"""Clocks that jump (libfaketime) and processes that freeze (SIGSTOP). Nothing here changes the clock of the machine."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from holdfast.testing.crashlab.workload import Available

PLACES = ("/usr/lib/*/faketime", "/usr/lib/faketime", "/usr/local/lib/faketime", "/opt/homebrew/lib/faketime")
LIBRARIES = ("libfaketime.so.1", "libfaketime.1.dylib")
YEAR = 365.25 * 86400


def find_library(places: Sequence[str] = PLACES) -> Path | None:
    """The faketime library, or None. The single-threaded build is enough: we only move the wall clock."""
    root = Path("/")
    for place in places:
        for name in LIBRARIES:
            for found in sorted(root.glob(f"{place.lstrip('/')}/{name}")):
                return found
    return None


def available(places: Sequence[str] = PLACES) -> Available:
    """Whether clock jumps can be played; pausing a process always can."""
    if find_library(places) is None:
        return Available(False, "libfaketime is not installed, so clock jumps are skipped")
    return Available(True, "")


class JumpingClock:
    """The wall clock of the children started with `start`. It can be moved while they run; monotonic time is left alone."""

    def __init__(self, folder: Path, library: Path | None = None) -> None:
        found = library or find_library()
        if found is None:
            raise FileNotFoundError(available().why)
        self.library = found
        self.stamp = folder / "wall-clock"
        self.jump(0.0)

    def jump(self, seconds: float) -> None:
        """From now on the children's wall clock is so many seconds ahead of the true one (or behind, if negative)."""
        fresh = self.stamp.with_suffix(".new")
        fresh.write_text(f"{seconds:+.6f}\n")
        fresh.replace(self.stamp)

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The base environment plus what puts a child under this clock."""
        return {
            **base,
            "LD_PRELOAD": " ".join(filter(None, (str(self.library), base.get("LD_PRELOAD")))),
            "FAKETIME_TIMESTAMP_FILE": str(self.stamp),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def start(self, argv: Sequence[str], env: Mapping[str, str], pipes: bool = True) -> subprocess.Popen[str]:
        """Start a program under this clock; with `pipes` its input and output are text pipes."""
        pipe = subprocess.PIPE if pipes else None
        return subprocess.Popen(argv, env=self.environment(env), stdin=pipe, stdout=pipe, text=True, bufsize=1)


def _state(pid: int) -> str:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        raise ProcessLookupError(f"process {pid} is gone") from None
    return text.rpartition(")")[2].split()[0]


def _wait(pid: int, frozen: bool, timeout: float) -> None:
    if not Path("/proc/self/stat").exists():
        return
    deadline = time.monotonic() + timeout
    while (_state(pid) in "Tt") != frozen:
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {pid} did not {'stop' if frozen else 'go on'} within {timeout} seconds")
        time.sleep(0.001)


def pause(pid: int, timeout: float = 5.0) -> None:
    """Freeze a process (SIGSTOP) and wait until it is frozen: it holds what it holds and does not know that time passes."""
    os.kill(pid, signal.SIGSTOP)
    _wait(pid, True, timeout)


def wake(pid: int, timeout: float = 5.0) -> None:
    """Let a frozen process go on (SIGCONT)."""
    os.kill(pid, signal.SIGCONT)
    _wait(pid, False, timeout)


@contextmanager
def paused(pid: int) -> Iterator[None]:
    """A process frozen for the length of a block."""
    pause(pid)
    try:
        yield
    finally:
        wake(pid)

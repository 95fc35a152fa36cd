"""Runs `holdfast` in forked processes that end themselves with SIGKILL at chosen events, until one comes to its end.

    python killer.py HITS every[:N]|both|at:N:before|at:N:after|on:MOMENT whole|alone FIRST... -- [AGAIN...]

`every` dies once at each event that HITS does not name yet, just before or just after it is written, in turn; `both` does both.
`every:N` dies at one of N of them, by their names.
`at` and `on` die once. `whole` takes every descendant along, `alone` leaves them as orphans. Each death is a line of HITS.
Without AGAIN the first death is the end.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from zlib import crc32

import psutil

import holdfast.cli.resume
import holdfast.cli.run
import holdfast.spec_run  # noqa: F401 - loaded once, and not in each of some hundred lives
from holdfast.cli.main import main as holdfast_main
from holdfast.core.events import Event, snake
from holdfast.core.state import RunState
from holdfast.engine.log import RunLog

MOST_LIVES = 2000
Choose = Callable[[int, str], bool]  # number of the record in this life, and its moment


TITLES: dict[str, str] = {}
LIFE = re.compile(r", start \d+")


def name_of(event: Event) -> str:
    """What this event is, whichever life writes it."""
    checkpoint = getattr(event, "checkpoint_id", "")
    if checkpoint and (title := getattr(event, "title", "")):
        TITLES[checkpoint] = LIFE.sub("", title)
    said = [getattr(event, field, "") for field in ("step_id", "effect_key", "sleep_id")]
    return " ".join(str(word) for word in (snake(type(event).__name__), *said, TITLES.get(checkpoint)) if word)


def every(hits: Path, both: bool, one_of: int) -> Choose:
    seen = set(hits.read_text().splitlines()) if hits.exists() else set()

    def choose(number: int, moment: str) -> bool:
        when, _, name = moment.partition(" ")
        if both:
            return moment not in seen
        wanted = ("before", "after")[len(seen) % 2]
        chosen = crc32(name.encode()) % one_of == 0
        return chosen and when == wanted and not {f"before {name}", f"after {name}"} & seen

    return choose


def at(wanted: int, when: str, hits: Path) -> Choose:
    done = hits.exists()
    return lambda number, moment: not done and number == wanted and moment.startswith(when)


def on(wanted: str, hits: Path) -> Choose:
    done = hits.exists()
    return lambda number, moment: not done and moment.startswith(wanted)


def chosen(mode: str, hits: Path) -> Choose:
    kind, _, rest = mode.partition(":")
    if kind == "on":
        return on(rest, hits)
    number, _, when = rest.partition(":")
    return at(int(number), when, hits) if kind == "at" else every(hits, kind == "both", int(number or 1))


def die(hits: Path, moment: str, whole: bool) -> None:
    with hits.open("a") as file:
        file.write(moment + "\n")
    for child in psutil.Process().children(recursive=True) if whole else ():
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue
    os.kill(os.getpid(), signal.SIGKILL)
    threading.Event().wait()


def watch(choose: Choose, hits: Path, whole: bool) -> None:
    """From now on, each event of this process is a chance to die."""
    real, count = RunLog.record, 0

    def record(self: RunLog, *events: Event) -> RunState:
        nonlocal count
        count += 1
        name = " + ".join(map(name_of, events))
        if choose(count, f"before {name}"):
            die(hits, f"before {name}", whole)
        state = real(self, *events)
        if choose(count, f"after {name}"):
            die(hits, f"after {name}", whole)
        return state

    RunLog.record = record  # type: ignore[method-assign]


def live(arguments: Sequence[str], choose: Choose, hits: Path, whole: bool) -> int:
    """One life, in a process of its own. Its exit code, negative if it was killed."""
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            watch(choose, hits, whole)
            holdfast_main(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
        finally:
            sys.stdout.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(hits: str, mode: str, reach: str, *commands: str) -> int:
    first, again = commands[: commands.index("--")], commands[commands.index("--") + 1 :]
    path = Path(hits)
    for number in range(MOST_LIVES):
        code = live(again if number else first, chosen(mode, path), path, reach == "whole")
        if code != -signal.SIGKILL:
            return code
        if not again or path.read_text().endswith("after run_finished\n"):
            return 0  # nothing is left to go on with
    return 99


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

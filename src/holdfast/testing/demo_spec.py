"""Kills a spec run with everything that it started, at seeded moments, starts it again until it is done, and counts.

Believes nothing that the run says of itself: what was done stands in the agent's ledger, in git and in the files; what is
running is asked of the machine. The moments that a run tells are only used to choose when to kill it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import psutil

from holdfast.core.named import NamedTuple
from holdfast.testing.demo import PATIENCE, ChildFailed, whole_lines
from holdfast.testing.demo_counts import Look
from holdfast.testing.workshop import AGENT_FILE, BATCHES, SPEC, Workshop

MARK = "DEMONSTRATION"  # in the environment of everything that belongs to one life
PAUSE = 0.2  # seconds that the agent takes in the middle of each piece of work
_GONE = 20.0

# The kinds of moments in the order in which a batch has them, each with the most seconds between its cue and the kill.
KINDS = {
    "starting": 0.7,
    "writing tests": PAUSE,
    "implementing": PAUSE,
    "between stages": 0.03,
    "merging": 0.35,
    "reviewing": PAUSE,
    "verifying": 0.3,
    "committing": 0.3,
}
_ORDER = tuple(KINDS)
_LAST = len(BATCHES) + 1  # the final review


class Kill(NamedTuple):
    """When to kill: so many seconds after the first moment of this kind in this batch, or after a later one."""

    batch: int
    kind: str
    after: float


def kills_of(count: int, seed: int) -> list[Kill]:
    """Seeded moments, spread evenly over the batches and dealt over all kinds, in the order in which they come."""
    chance = random.Random(seed)
    deck: list[str] = []
    while len(deck) < count:
        deck += chance.sample(_ORDER, len(_ORDER))
    kills = [
        Kill(1 + place * len(BATCHES) // max(1, count), kind, chance.uniform(0, KINDS[kind]))
        for place, kind in enumerate(deck[:count])
    ]
    return sorted(kills, key=lambda kill: (kill.batch, _ORDER.index(kill.kind)))


# --- what a run tells of


class Ears:
    """Places the moments that a run tells. It remembers which work has ended, over all lives."""

    def __init__(self) -> None:
        self.batch = 0
        self.last = "starting"
        self._ended: set[str] = set()

    def hear(self, line: str) -> None:
        moment = _object(line)
        name = moment.get("name") or ""
        label = name.partition("/")[0]
        if label.startswith("batch-"):
            self.batch = _LAST if label == "batch-final" else int(label.removeprefix("batch-"))
        self.last = self._kind(moment, name) or self.last

    def is_at(self, kill: Kill) -> bool:
        """Whether the moment for this kill has come, or has gone by."""
        here = (self.batch, _ORDER.index(self.last))
        return kill.kind == "starting" or here >= (kill.batch, _ORDER.index(kill.kind))

    def _kind(self, moment: Mapping[str, Any], name: str) -> str | None:
        what, phase = moment.get("moment"), str(moment.get("phase"))
        if what == "batch":
            return "starting"
        if what == "end" and name.endswith("/implement"):
            self._ended.add(name)
            return "merging" if self._all_ended() else "between stages"
        if what == "note" and "checkpoint.yaml" in str(moment.get("text")):
            return "committing"
        if what == "start":
            return {"test": "writing tests", "implement": "implementing", "verify": "verifying"}.get(phase, "reviewing")
        return None

    def _all_ended(self) -> bool:
        wanted = {f"batch-{self.batch}/{task}/implement" for task in BATCHES[min(self.batch, len(BATCHES)) - 1]}
        return wanted <= self._ended


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


# --- one life


class Life:
    """One start of `holdfast`, with all the processes that it brings into the world. Leaves none behind."""

    def __init__(self, command: Sequence[str], cwd: str, environ: Mapping[str, str], mark: str) -> None:
        self.mark = mark
        pipe = subprocess.PIPE
        self._child = subprocess.Popen(
            command,
            cwd=cwd,
            env={**environ, MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,
        )
        self._alarm = threading.Timer(PATIENCE, self.kill)
        self._alarm.start()

    def __enter__(self) -> Life:
        return self

    def __exit__(self, *problem: object) -> None:
        self._alarm.cancel()
        self.kill()
        with self._child:
            pass

    def lines(self) -> Iterator[str]:
        assert self._child.stderr is not None
        return whole_lines(self._child.stderr)

    def kill(self) -> int:
        """SIGKILL for all of it, until nobody is left. Says how many agents were at work."""
        family = _family(self._child.pid) if self._child.poll() is None else []
        agents = sum(_is_agent(process) for process in family)
        deadline = time.monotonic() + _GONE
        while True:
            for process in family:
                _kill(process)
            if not (family := carrying(self.mark)):
                return agents
            if time.monotonic() > deadline:
                raise ChildFailed(f"These processes cannot be killed: {[process.pid for process in family]}.")

    @property
    def was_killed(self) -> bool:
        return self._child.wait() == -signal.SIGKILL

    def end(self) -> tuple[int, str]:
        """Its exit code and what it said, once it is over."""
        assert self._child.stdout is not None
        said = self._child.stdout.read().decode(errors="replace")
        return self._child.wait(), said


def carrying(mark: str) -> list[psutil.Process]:
    """Every live process of this mark."""
    return [process for process in psutil.process_iter() if _mark_of(process) == mark]


def _mark_of(process: psutil.Process) -> str | None:
    try:
        return process.environ().get(MARK) if process.status() != psutil.STATUS_ZOMBIE else None
    except (psutil.Error, OSError):
        return None


def _family(pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.Error:
        return []


def _is_agent(process: psutil.Process) -> bool:
    try:
        return AGENT_FILE in process.cmdline()
    except psutil.Error:
        return False


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.Error:
        return


# --- all lives


class Killer:
    """The parent. `command` is `holdfast` itself; `look` says what is on disk once a life is over."""

    def __init__(
        self,
        shop: Workshop,
        command: Sequence[str],
        environ: Mapping[str, str],
        look: Callable[[], Look],
        watch: Callable[[Killer], None],
    ) -> None:
        self._shop, self._command, self._environ = shop, tuple(command), environ
        self._look, self._watch = look, watch
        self._ears = Ears()
        self.mark = f"{os.getpid()}-{time.monotonic_ns()}"
        self.looks: list[Look] = []
        self.kills = 0
        self.kills_at_work = 0
        self.processes_left = 0

    @property
    def figures(self) -> dict[str, int]:
        """What only the parent can count."""
        return {name: getattr(self, name) for name in ("kills", "kills_at_work", "processes_left")}

    @property
    def where(self) -> str:
        """Where the last life ended, in words."""
        batch = self._ears.batch
        place = "the final review" if batch == _LAST else f"batch {batch}"
        return f"in {place}, {self._ears.last}" if batch else "at the start"

    def go(self, kills: Sequence[Kill]) -> None:
        """Start and kill, again and again; then let the last life come to its end. Ends early if the work is done before."""
        for kill in kills:
            if not self._one_life(kill):
                return
        self._one_life(None)

    def _one_life(self, kill: Kill | None) -> bool:
        """True if it was killed, False if it came to its end, with nothing left to do."""
        self._ears.batch, self._ears.last = 0, "starting"
        with Life(self._next_command(), self._shop.top, self._environ, self.mark) as life:
            killed = self._live(life, kill)
            if not killed:
                check_end(life, f"Start {len(self.looks) + 1} of the spec, {self.where},")
                self.processes_left += len(carrying(self.mark))
        self.kills += killed
        self.looks.append(self._look())
        self._watch(self)
        return killed

    def _next_command(self) -> list[str]:
        """`run` and `resume` by turns; both go on with what is unfinished."""
        begun = bool(self.looks) and bool(self.looks[-1].events)
        verb = "resume" if begun and len(self.looks) % 2 else "run"
        return [*self._command, verb, SPEC, "--yes", "--json"]

    def _live(self, life: Life, kill: Kill | None) -> bool:
        lines = life.lines()
        if kill is not None and (kill.kind == "starting" or self._wait_for(kill, lines)):
            time.sleep(kill.after)
            self.kills_at_work += life.kill() > 0
            for line in lines:
                self._ears.hear(line)
            return life.was_killed
        for line in lines:
            self._ears.hear(line)
        return False

    def _wait_for(self, kill: Kill, lines: Iterator[str]) -> bool:
        """Until the moment to kill. False if the life was over before."""
        for line in lines:
            self._ears.hear(line)
            if self._ears.is_at(kill):
                return True
        return False


def undisturbed(shop: Workshop, command: Sequence[str], environ: Mapping[str, str]) -> Life:
    """The same work, which nobody kills unless it is left."""
    mark = f"{os.getpid()}-undisturbed-{time.monotonic_ns()}"
    return Life([*command, "run", SPEC, "--yes", "--json"], shop.top, environ, mark)


def check_end(life: Life, words: str) -> None:
    """Wait for it. Raises if it did not end well."""
    for _ in life.lines():
        pass
    code, said = life.end()
    if code != 0:
        raise ChildFailed(f"{words} ended with {code}: {_why(said)}")


def _why(said: str) -> str:
    """The reason and the first evidence in what a command printed, or the end of it."""
    told = _object(said)
    run, error = told.get("run", {}), told.get("error", {})
    snippets = [one["snippet"] for one in run.get("signals", ())][:1]
    words = [*filter(None, (run.get("stop_reason"), *snippets, error.get("reason"), error.get("message")))]
    return ": ".join(words) or said.strip()[-300:] or "no word"

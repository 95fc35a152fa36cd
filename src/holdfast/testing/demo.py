"""Kills a child process with SIGKILL at seeded moments, starts it again until it is done, and counts what went wrong.

Believes nothing the child says about itself: what was acknowledged is what came through the pipe, what was executed is
what stands in the counter file, what was done is what stands in the effect's own file.
"""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any, cast

from holdfast.core.errors import HoldfastError
from holdfast.core.named import NamedTuple
from holdfast.ports import Lease, Projection, Record, Store

PATIENCE = 60.0  # seconds without an end after which a child is called hung
EARLY_SHARE = 0.2  # of the kills come at a time, most of them while the child is still starting
EARLY_WITHIN = 0.12
LATE_WITHIN = 0.002


class ChildFailed(HoldfastError):
    """The run under test ended by itself, and not well."""

    advice = "Run the demo again with --keep FOLDER and look at the store in it."


class Kill(NamedTuple):
    """When to kill: `after` seconds from the given cue, or from the start if there is none."""

    cue: int
    after: float


class Look(NamedTuple):
    """What stands in the store and the effect's file after a child is dead."""

    finished: frozenset[str] = frozenset()
    effects_open: int = 0
    torn: bool = False


class Kept(NamedTuple):
    """What is left at the end."""

    finished: bool
    steps_done: int
    records: Mapping[int, str]
    effects_done: frozenset[str]
    written: Sequence[str]
    executed: Sequence[tuple[int, str]]


class Tally(NamedTuple):
    """The table at the end. Everything from `steps_repeated` on must be zero."""

    steps_planned: int
    steps_done: int
    effects_planned: int
    kills_asked: int
    kills: int
    kills_in_effect: int
    torn_lines: int
    steps_cut_off: int
    events_acknowledged: int
    steps_repeated: int
    effects_twice: int
    effects_lost: int
    events_lost: int

    @property
    def sound(self) -> bool:
        wrong = self.steps_repeated + self.effects_twice + self.effects_lost + self.events_lost
        return wrong == 0 and self.steps_done == self.steps_planned


def kills_of(count: int, seed: int, cues: int) -> list[Kill]:
    """Seeded moments: at the start, at a cue (an acknowledgement, the middle of a write), or a little after one."""
    chance = random.Random(seed)
    most = max(2, 5 * cues // (4 * max(1, count)))
    return [_kill(chance, most) for _ in range(count)]


def _kill(chance: random.Random, most: int) -> Kill:
    if chance.random() < EARLY_SHARE:
        return Kill(0, chance.uniform(0, EARLY_WITHIN))
    return Kill(chance.randint(1, most), chance.choice((0.0, chance.uniform(0, LATE_WITHIN))))


def announcing(store: Store, say: Callable[[str], None]) -> Store:
    """The same store, which says aloud each event that it has acknowledged."""
    return cast(Store, _Announcing(store, say))


class _Announcing:
    def __init__(self, store: Store, say: Callable[[str], None]) -> None:
        self._store = store
        self._say = say

    def append(self, lease: Lease, records: Sequence[Record], projection: Projection) -> None:
        self._store.append(lease, records, projection)
        self._say("events " + " ".join(f"{record.seq}:{record.hash.hex()}" for record in records))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class Killer:
    """The parent. `command` gives the command line of the n-th child, `look` what is on disk once it is dead."""

    def __init__(
        self, command: Callable[[int], Sequence[str]], look: Callable[[], Look], watch: Callable[[Killer], None]
    ) -> None:
        self._command = command
        self._look = look
        self._watch = watch
        self.acknowledged: dict[int, set[str]] = {}
        self.looks = [Look()]
        self.kills = 0
        self.last = ""

    def go(self, kills: Sequence[Kill]) -> None:
        """Start and kill, again and again; then let the last child live. Stops early if the work is done before."""
        for kill in kills:
            if not self._one_life(kill):
                return
        self._one_life(None)

    def _one_life(self, kill: Kill | None) -> bool:
        """Run one child. True if it was killed, False if it came to its end."""
        command = self._command(len(self.looks) - 1)
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
            alarm = threading.Timer(PATIENCE, child.kill)
            alarm.start()
            try:
                killed = self._live(child, kill)
            finally:
                alarm.cancel()
                child.kill()
        self.looks.append(self._look())
        self.kills += killed
        self._watch(self)
        return killed

    def _live(self, child: subprocess.Popen[bytes], kill: Kill | None) -> bool:
        assert child.stdout is not None and child.stderr is not None
        self.last = "start"
        lines = whole_lines(child.stdout)
        ended = kill is None or not self._wait_for(kill, lines)
        if not ended:
            child.kill()
        for line in lines:
            self._hear(line)
        problem = child.stderr.read().decode(errors="replace").strip()
        code = child.wait()
        if code == 0 or (not ended and code == -9):
            return code != 0
        raise ChildFailed(f"Child {len(self.looks)} ended with {code} at '{self.last}': {problem[-500:] or 'no word'}")

    def _wait_for(self, kill: Kill, lines: Iterator[str]) -> bool:
        """Until the moment to kill. False if the child was done before."""
        for _ in range(kill.cue):
            line = next(lines, None)
            if line is None:
                return False
            self._hear(line)
        time.sleep(kill.after)
        return True

    def _hear(self, line: str) -> None:
        kind, _, rest = line.partition(" ")
        self.last = rest if kind == "moment" else "acknowledged"
        for event in rest.split() if kind == "events" else ():
            seq, _, digest = event.partition(":")
            self.acknowledged.setdefault(int(seq), set()).add(digest)


def whole_lines(stream: IO[bytes]) -> Iterator[str]:
    """Lines as they come. What a killed child had not finished saying was not said."""
    for line in stream:
        if line.endswith(b"\n"):
            yield line.decode().rstrip("\n")


def tally(killer: Killer, kept: Kept, plan: Sequence[str], keys: Sequence[str], kills_asked: int) -> Tally:
    """Compare what was heard and seen with what is left."""
    lines, executions = Counter(kept.written), Counter(step_id for _, step_id in kept.executed)
    due = set(keys) if kept.finished else kept.effects_done
    dead = killer.looks[1:][: killer.kills]
    return Tally(
        steps_planned=len(plan),
        steps_done=kept.steps_done,
        effects_planned=len(keys),
        kills_asked=kills_asked,
        kills=killer.kills,
        kills_in_effect=sum(look.effects_open > 0 for look in dead),
        torn_lines=sum(look.torn for look in dead),
        steps_cut_off=sum(count > 1 for count in executions.values()),
        events_acknowledged=len(killer.acknowledged),
        steps_repeated=len(repeated(killer.looks, kept.executed)),
        effects_twice=sum(count > 1 for count in lines.values()),
        effects_lost=len(due - lines.keys()),
        events_lost=sum({kept.records.get(seq)} != heard for seq, heard in killer.acknowledged.items()),
    )


def repeated(looks: Sequence[Look], executed: Sequence[tuple[int, str]]) -> set[str]:
    """Steps that were executed by a child although their end was on record before that child began, or twice by one."""
    again = {step_id for child, step_id in executed if step_id in looks[child].finished}
    return again | {step_id for (_, step_id), count in Counter(executed).items() if count > 1}

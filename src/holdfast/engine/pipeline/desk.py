"""What all parts of the pipeline share: the run, the world they work in, and what the log held when this process came.

What was recorded before this process began was seen by whoever resumed the run; what is recorded since then was not.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

import msgspec

from holdfast.core.batches import Batch, plan
from holdfast.core.canonical import digest
from holdfast.core.drift import CHOICES
from holdfast.core.errors import HoldfastError
from holdfast.core.events import RunStopped
from holdfast.core.named import NamedTuple
from holdfast.core.review import Finding
from holdfast.core.settings import Settings
from holdfast.core.shapes import OPEN, EffectState, RunState, WorkspaceState
from holdfast.core.spec import Checkpoint, Task
from holdfast.core.stops import snippet
from holdfast.core.wire import decode
from holdfast.engine.repository import Repository
from holdfast.engine.run import Run
from holdfast.ports.spec import Agents, Checks, Ground, Specs

_LONGEST = 100
_SHOWN = 8
_LOOK = "/mirrors-"
_BOUNDS = frozenset({"run_stopped", "run_resumed"})  # where the life of a process ends
_OURS = re.compile(
    r"(review|fix|gate|verify|plan|mirrors)(-\d.*)?$|(merge|base|begin|files|passed|closed|trees|tasks)$"
)  # names of our own


def progress(state: RunState) -> str:
    """How far a run has got. What only keeps how a file was at a start of it is no step further."""
    return f"{state.steps_done - sum(_LOOK in name for name in state.steps)}.{len(state.effects)}"


class Halt(HoldfastError):
    """The run has to rest. `reason` is a code of the registry; `evidence` says what was seen, a line each."""

    def __init__(self, reason: str, *evidence: str) -> None:
        super().__init__("; ".join(evidence) or reason)
        self.reason = reason
        self.evidence = evidence


class CutShort(Halt):
    """Work that was ended because the run is to stop anyway."""


class Parts(NamedTuple):
    """The world, by what the pipeline asks of it."""

    specs: Specs
    agents: Agents
    checks: Checks
    ground: Ground


class Moment(NamedTuple):
    """Something that a person who watches would like to see. `what`: batch, start, line, end, fail, wait, commit or note."""

    what: str
    name: str = ""
    text: str = ""
    data: Mapping[str, Any] = {}


class Desk:
    """One spec, being run by this process."""

    def __init__(
        self,
        run: Run,
        repo: Repository,
        parts: Parts,
        settings: Settings,
        tell: Callable[[Moment], None],
        now: Callable[[], str],
        stay: float,
    ) -> None:
        self.run = run
        self.repo = repo
        self.parts = parts
        self.settings = settings
        self.tell = tell
        self.now = now
        self.stay = stay
        self.halted = threading.Event()
        self.found: dict[str, tuple[str, Finding]] = {}  # by its id, what reviewers found, and in which batch
        self.checkpoint: Checkpoint | None = None  # what the file said when this process came to the batch
        self._planned: tuple[Sequence[Task], tuple[Batch, ...]] = (), ()
        self._branch = parts.ground.where()[1]
        self._snapshots: dict[str, str] = {}
        self._earlier: dict[str, EffectState] = {known.step_id: known for known in run.state.effects.values()}
        self._steps_then = {name for name, known in run.state.steps.items() if known.status == "finished"}

    def plan(self, tasks: Sequence[Task]) -> tuple[Batch, ...]:
        """The batches of these tasks. The plan that closes a batch is the one that the next begins with."""
        before, planned = self._planned
        if before is not tasks:
            planned = plan(tasks, break_on_phase=self.settings.run.break_on_phase, sound=before)
            self._planned = tasks, planned
        return planned

    def knew(self, effect: str) -> bool:
        """Whether this effect was done before this process began."""
        known = self._earlier.get(effect)
        return known is not None and known.status == "done"

    def was_open(self, effect: str) -> bool:
        """Whether this effect was begun, and not ended, before this process."""
        known = self._earlier.get(effect)
        return known is not None and known.status in OPEN

    def decided_before(self, step: str) -> bool:
        """Whether this step was finished before this process began."""
        return step in self._steps_then

    def told(self, name: str, reason: str) -> tuple[list[Any], str]:
        """What marks of this name hold for which the run really stopped, and the name of the next mark.

        A mark is written before the stop. If the process was killed in between, nobody was told.
        """
        found: list[Any] = []
        for number in count(1):
            known = self.run.state.steps.get(f"{name}-{number}")
            if known is None or known.status != "finished":
                return found, f"{name}-{number}"
            if self.stopped_after(known.ended, reason):
                found.append(known.output)
        raise AssertionError

    def stopped_after(self, seq: int, reason: str) -> bool:
        """Whether the process that wrote this event stopped the run for this reason."""
        for record in self.run.records(seq):
            if record.kind in _BOUNDS:
                event = decode(record)
                return isinstance(event, RunStopped) and event.reason == reason
        return False

    def _rested_since(self, seq: int) -> bool:
        return any(record.kind == "run_stopped" for record in self.run.records(seq))

    def halt(self) -> None:
        """Let every thread of this run come to its end at its next boundary, also one that waits for a limit."""
        self.halted.set()
        self.run.interrupt(CutShort("interrupted", "the run is to stop"))

    def is_stopping(self) -> bool:
        return self.halted.is_set() or self.run.is_wished_to_stop

    def note(self, text: str) -> None:
        """Something that belongs into the log, and that a person should see."""
        self.run.note(text)
        self.tell(Moment("note", text=text))

    @contextmanager
    def watching(self, name: str) -> Iterator[None]:
        """Tell of every ref that is elsewhere after the work than before it. Who moved it is not known."""
        before = self.parts.ground.refs()
        try:
            yield
        except Halt:
            self._tell_moved(name, before)
            raise
        self._tell_moved(name, before)

    def _tell_moved(self, name: str, before: Mapping[str, str]) -> None:
        for sentence in self.parts.ground.moved(before):
            self.note(f"{name}: while agents were at work, by one of them or by a person: {sentence}")

    @contextmanager
    def guarding(self, name: str) -> Iterator[None]:
        """What goes out of the checkpoint and the review while agents are at work is put back, also if the work stops.

        After a kill they are held against what they were before it; after a stop, against what a person made of them.
        """
        before = {} if self.decided_before(f"{name}/passed") else self._mirrors(name)
        try:
            yield
        except BaseException:
            with suppress(
                HoldfastError
            ):  # why the work stopped is told first; the next start looks at the files as well
                self._put_back(before)
            raise
        self._put_back(before)

    def _mirrors(self, name: str) -> dict[str, str]:
        for number in count(1):
            mark = f"{name}{_LOOK}{number}"
            known = self.run.state.steps.get(mark)
            if known is None or known.status != "finished" or not self._rested_since(known.ended):
                return dict(self.run.step(mark, self._keep_mirrors))
        raise AssertionError

    def _keep_mirrors(self) -> dict[str, str]:
        return {name: self.keep(data) for name, data in self.parts.specs.mirrors().items()}

    def _put_back(self, before: Mapping[str, str]) -> None:
        specs = self.parts.specs
        for name, artifact in before.items():
            if not (gone := specs.lost(name, self.kept(artifact))):
                continue
            now = specs.mirrors().get(name)
            kept = "" if now is None else f"; what stood there is artifact {self.keep(now)}"
            specs.put_back(name, self.kept(artifact))
            said = ", ".join(map(snippet, gone[:_SHOWN]))
            self.note(f"{name}: {said} went out of it while agents were at work, and it is put back as it was{kept}")

    def check_branch(self) -> None:
        """Stop if an agent or a check left another branch checked out: what is done now would go astray."""
        now = self.parts.ground.where()[1]
        if now != self._branch:
            said = f"{self._branch or 'no branch'} was checked out, and now {now or 'no branch'}"
            raise Halt("branch_differs", said, *CHOICES["branch"])

    def snapshot(self, name: str) -> str:
        """The commit that holds the main work tree as it was when this name was first used."""
        if name not in self._snapshots:
            self._snapshots[name] = str(self.repo.snapshot(name).snapshot)
        return self._snapshots[name]

    def taken(self, name: str) -> WorkspaceState | None:
        """The snapshot that was taken under a name; None if none was."""
        made = self.run.state.workspaces.values()
        return next((one for one in made if one.title == name and one.complete), None)

    # --- what is too large for an event

    def keep(self, data: bytes) -> str:
        return self.run.keep(data)

    def keep_value(self, value: Any) -> str:
        return self.run.keep_json(msgspec.json.encode(value))

    def kept(self, digest: str) -> bytes:
        return self.run.kept(digest)


def label(batch: Mapping[str, Any]) -> str:
    return f"batch-{batch['number']}"


def step_name(task_id: str) -> str:
    """What stands for a task in the names of its steps: its id, or where that is too long or no line of text, its digest."""
    plain = (
        len(task_id) <= _LONGEST and task_id.isprintable() and task_id == task_id.strip() and not _OURS.match(task_id)
    )
    return task_id if plain else f"task-{digest(task_id.encode('utf-8', 'backslashreplace'))[:12]}"


def first_of(failures: Sequence[BaseException | None]) -> BaseException | None:
    """The failure to stop for: the first in the order of the tasks. One that only follows from a stop comes last."""
    real = [one for one in failures if one is not None]
    return min(real, key=lambda one: isinstance(one, CutShort), default=None)

"""How a run of a spec is at rest, written down for the next person or agent. Mirrors only: what fails here changes nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from holdfast import app, config, spec_look
from holdfast.adapters import handoffs
from holdfast.adapters.git.repo import GitWorkspace
from holdfast.adapters.ground import put_away
from holdfast.core.auto_resume import Halt
from holdfast.core.diagnosis import Evidence, Signal, diagnose
from holdfast.core.errors import InvalidId, NotFound
from holdfast.core.events import RunResumed, RunStopped
from holdfast.core.handoff import Context, Handoff, as_data, handoff
from holdfast.core.named import NamedTuple
from holdfast.core.shapes import RunState
from holdfast.core.wire import decode
from holdfast.engine.pipeline.desk import progress
from holdfast.engine.pipeline.tries import FILE, OUTPUT
from holdfast.ports import Store

_LINES = 12
_FILES = re.compile(rf"(\S{{1,80}}){FILE}([0-9a-f]{{64}})")


class Result(NamedTuple):
    run_id: str
    handed: Handoff
    paths: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        return self.handed.stop.exit_code

    @property
    def is_over(self) -> bool:
        """Whether it stopped for good, with work that is not done."""
        return not self.handed.stop.resumable and self.exit_code != 0

    def as_data(self) -> dict[str, Any]:
        return {"run": as_data(self.handed), "files": list(self.paths)}


def halt_of(store: Store, run_id: str) -> Halt | None:
    """How the run came to rest, and how far it had got; None if it is complete."""
    state = spec_look.state_of(store, run_id)
    if state is None or state.stop_reason is None:
        return None
    due = next((until for until in state.sleeps.values() if until is not None), None)
    return Halt(state.stop_reason, app.now(), progress(state), due)


def hand_over(store: Store, run_id: str, top: str, besides: Sequence[str] = ()) -> Result:
    """Write down for the next person or agent where the run stands. A mirror: its failure changes nothing.

    `besides`: why it does not go on by itself.
    """
    state = spec_look.state_of(store, run_id)
    if state is None:
        raise NotFound("run", run_id)
    evidence, notes = _last_words(store, state)
    signals = [Signal("note", line) for line in notes]
    stage = _stage(state, evidence)
    said = [line for line in reversed(notes) if line.startswith(f"{stage}: ")]
    context = _context(state, stage, _agent_output(store, (*evidence, *said)), _agent_files((*evidence, *said)))
    found = diagnose(state, evidence, signals)
    told = tuple(Evidence("auto-resume", "", text) for text in besides)
    handed = handoff(state, found._replace(evidence=(*found.evidence, *told)), context)
    written = handoffs.write(GitWorkspace(top, config.environment()).main, handed)
    return Result(run_id, handed, written.paths)


def put_trees_away(store: Store, run_id: str) -> list[str]:
    """Remove what a run that does not go on left of work trees of tasks, and say where their work is."""
    state = spec_look.state_of(store, run_id)
    said: list[str] = []
    for top in filter(os.path.isdir, state.repositories if state is not None else ()):
        workspace = GitWorkspace(top, config.environment())
        said += put_away(workspace, run_id, os.path.join(handoffs.folder_of(workspace.main, run_id), "stages"))
    return said


def _last_words(store: Store, state: RunState) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The evidence of the last stop, and the notes since the run last went on."""
    evidence: tuple[str, ...] = ()
    notes: list[str] = []
    for record in store.read(state.run_id, after=max(0, state.seq - 200)):
        event = decode(record)
        if isinstance(event, RunStopped):
            evidence = event.evidence
        elif isinstance(event, RunResumed):
            evidence = ()
            notes.clear()
        elif (text := getattr(event, "text", None)) is not None:
            notes.append(str(text))
    return evidence, tuple(notes[-_LINES:])


def _agent_output(store: Store, said: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The artifact of what an agent printed that is named first, and its last lines."""
    for digest in filter(None, (line.rpartition(OUTPUT)[2] for line in said if OUTPUT in line)):
        with suppress(NotFound, InvalidId):
            text = store.get_artifact(digest).decode("utf-8", "replace")
            return digest, tuple(line for line in text.splitlines() if line.strip())[-_LINES:]
    return "", ()


def _agent_files(said: Sequence[str]) -> dict[str, str]:
    """The artifacts of what agents wrote and did not deliver, by the names of the files; of each name that is named first."""
    found: dict[str, str] = {}
    for name, digest in (pair for line in said for pair in _FILES.findall(line)):
        found.setdefault(name, digest)
    return found


def _stage(state: RunState, evidence: Sequence[str]) -> str:
    """The one that the stop names, else the last one that was begun."""
    names = [known.step_id for known in state.effects.values()]
    said = next((line.partition(":")[0] for line in evidence), "")
    return said if said in names else next(reversed(names), "")


def _context(state: RunState, name: str, output: tuple[str, tuple[str, ...]], files: Mapping[str, str]) -> Context:
    """Where it stood."""
    batch, _, rest = name.partition("/")
    task, _, phase = rest.rpartition("/")
    finished = sum(name.endswith("/closed") for name in state.steps)
    return Context(
        at=app.now(),
        batch=batch,
        task=task,
        phase=phase,
        last_lines=output[1],
        artifacts={**({"output": output[0]} if output[0] else {}), **files},
        progress={"batches": finished, "steps": state.steps_done, "events": state.seq},
    )

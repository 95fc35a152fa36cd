"""What an agent left that delivered no report: kept as artifacts, and named where people and the handoff look for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.engine.pipeline.desk import Desk
from holdfast.ports.spec import Answered, Left

OUTPUT, FILE = "output: artifact ", " file: artifact "
_SHOWN = 3


class Tries:
    """The tries of one stage, in this process, that came to no report. Raw output is never thrown away."""

    def __init__(self, desk: Desk, stage: str) -> None:
        self._desk, self._stage = desk, stage
        self._unread: list[dict[str, Any]] = []
        self.said: list[dict[str, Any]] = []

    def add(self, answered: Answered) -> None:
        said = {"agent": answered.agent, "ended_by": answered.ended_by, "why": answered.why[:400]}
        said |= _kept(self._desk, answered.output, answered.files)
        self.said.append(said)
        if is_only_unreadable(answered):
            self._unread.append(said)
        words = f"{self._stage}: {answered.agent}, {answered.ended_by}: {said['why']}"
        self._desk.note("; ".join((words, *_files(said), *_output(said))))

    def evidence(self) -> list[str]:
        """What is kept of the last one, and why reports before it could not be read, if for something else."""
        if not self.said:
            return []
        last = self.said[-1]
        others = {one["why"]: one for one in self._unread if one["why"] != last["why"]}
        before = [
            f"before that, {one['agent']}: {'; '.join((why.rstrip('.'), *_files(one)))}" for why, one in others.items()
        ]
        return [*_output(last), *_files(last), *before[-_SHOWN:]]

    def note_left(self, left: Left) -> list[str]:
        """Keep what an earlier start left, in words; and note it whole, because the answer of a probe may be cut short."""
        kept = _kept(self._desk, left.output, left.files)
        is_noted = any(kept.items() <= said.items() for said in self.said)
        if not is_noted and (kept["output"] or "files" in kept):
            self._desk.note("; ".join((f"{self._stage}: left by an earlier start", *_files(kept), *_output(kept))))
        return [f"its output is artifact {kept['output']}"] if kept["output"] else []


def _kept(desk: Desk, output: bytes, files: Sequence[tuple[str, bytes]]) -> dict[str, Any]:
    named = [{"name": name, "artifact": desk.keep(data)} for name, data in files]
    return {"output": desk.keep(output) if output else None, **({"files": named} if named else {})}


def _output(said: dict[str, Any]) -> list[str]:
    return [f"{OUTPUT}{said['output']}"] if said["output"] else []


def _files(said: dict[str, Any]) -> list[str]:
    return [f"{one['name']}{FILE}{one['artifact']}" for one in said.get("files", ())]


def is_only_unreadable(answered: Answered) -> bool:
    """The agent came to its end by itself and complained of nothing; only its report is missing or broken."""
    return answered.ended_by == "exit" and answered.trouble is None


def keep_cut_off(desk: Desk, name: str, left: Left) -> None:
    """Keep the same of a reviewer, whose work nobody probes: as steps."""
    for file, data in left.files:
        _keep(desk, f"{name}/cut off, {file}", "artifact", data)
    if left.output:
        _keep(desk, f"{name}/cut off, output", "output", left.output)


def _keep(desk: Desk, name: str, key: str, data: bytes) -> None:
    kept = desk.keep(data)
    desk.run.step(f"{name} {kept[:16]}", lambda: {key: kept})

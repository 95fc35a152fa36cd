"""The agents of one run: asks them, and finds what a dead process left of their work.

Each effect key has a folder of its own: the record of the process, its output, the session and the report. What still
runs after its parent died is ended only if it is surely ours.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping

from holdfast.adapters import processes
from holdfast.adapters.agents.notes import noted
from holdfast.adapters.agents.runner import MAX_OUTPUT, OUTPUT, Ears
from holdfast.adapters.agents.work import REPORT, Done, Work, last_lines, left_files, read_whole, report_file, run
from holdfast.core.agent_output import Listener, Said
from holdfast.core.agents import Profile
from holdfast.core.errors import NotFound
from holdfast.core.limits import is_session_gone
from holdfast.core.redact import Redactor
from holdfast.core.reports import Kind, Unreadable, extract, instructions
from holdfast.ports.spec import Answered, Ask, Left

TAIL = 4000


class Agents:
    """The agents of one run. What it is asked under a key is told apart from everything asked under other keys."""

    def __init__(
        self,
        profiles: Mapping[str, Profile],
        run_id: str,
        folder: str,
        environ: Mapping[str, str],
        redactor: Redactor,
    ) -> None:
        self._profiles, self._run_id, self._folder = profiles, run_id, folder
        self._environ, self._redactor = environ, redactor

    def report_instructions(self, kind: Kind, key: str) -> str:
        return instructions(kind, self.report_id(key), os.path.join(self.stage(key), REPORT))

    def ask(self, ask: Ask, tell: Callable[[str], None], should_stop: Callable[[], bool]) -> Answered:
        profile = self._profile(ask.agent)
        work = self._work(ask, profile)
        done = run(profile, work, self._environ, self._redactor, Ears(tell, should_stop))
        if work.session is not None and _lost_session(done):
            anew = work._replace(session=None, prompt=ask.whole or ask.prompt)
            done = run(profile, anew, self._environ, self._redactor, Ears(tell, should_stop))
        if done.outcome.interrupted:
            raise KeyboardInterrupt
        return self._answered(ask, done)

    def left(self, key: str, kind: Kind) -> Left:
        folder = self.stage(key)
        if not os.path.isdir(folder):
            return Left()
        found = processes.left_behind(folder)
        if found is not None and not found.ours:
            return Left(unsure=found.why)
        ended = [] if found is None else processes.reap(found)
        note = noted(folder)
        output = self._output(folder)
        said = self._heard(output, note.agent)
        report = extract(said.result, report_file(folder, self._redactor), kind, self.report_id(key))
        return Left(
            report=None if isinstance(report, Unreadable) else report,
            session=note.session,
            unsure=next((line for line in ended if line.endswith("cannot be ended")), None),
            evidence=tuple(f"{line} was still running and was ended" for line in ended),
            tail=said.tail[-TAIL:],
            agent=note.agent,
            output=output,
            files=self._files(folder, note.agent) if isinstance(report, Unreadable) else (),
        )

    def stage(self, key: str) -> str:
        """The folder for what belongs to this key."""
        return os.path.join(self._folder, hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:24])

    def report_id(self, key: str) -> str:
        return hashlib.sha256(f"{self._run_id}\n{key}".encode("utf-8", "replace")).hexdigest()[:20]

    def _profile(self, name: str) -> Profile:
        if name not in self._profiles:
            raise NotFound("agent", name)
        return self._profiles[name]

    def _work(self, ask: Ask, profile: Profile) -> Work:
        return Work(
            prompt=ask.prompt,
            key=ask.key,
            run_id=self._run_id,
            kind=ask.kind,
            cwd=ask.cwd,
            folder=self.stage(ask.key),
            report_id=self.report_id(ask.key),
            task=ask.task,
            session=ask.session if profile.resume else None,
            timeout=ask.timeout,
            stall_after=ask.stall_after,
        )

    def _answered(self, ask: Ask, done: Done) -> Answered:
        trouble = done.trouble
        return Answered(
            agent=ask.agent,
            report=done.report,
            why=done.why_not,
            trouble=None if trouble is None or done.report is not None else trouble.kind,
            resets_at=None if trouble is None else trouble.resets_at,
            ended_by=done.outcome.ended_by,
            session=done.said.session,
            tokens=done.said.tokens or 0,
            money=done.said.money or 0.0,
            seconds=done.outcome.seconds,
            output=self._output(self.stage(ask.key)),
            files=self._files(self.stage(ask.key), ask.agent) if done.report is None else (),
        )

    def _output(self, folder: str) -> bytes:
        return read_whole(os.path.join(folder, OUTPUT))[: 4 * MAX_OUTPUT]

    def _files(self, folder: str, agent: str) -> tuple[tuple[str, bytes], ...]:
        return left_files(self._profiles.get(agent), folder, self._redactor)

    def _heard(self, output: bytes, agent: str) -> Said:
        """What it said, as its profile reads it."""
        if agent not in self._profiles:
            return Said()
        listener = Listener(self._profiles[agent])
        for line in output.decode("utf-8", "replace").splitlines():
            listener.hear(line)
        said = listener.said()
        return said._replace(result="") if self._profiles[agent].edits_last else said


def _lost_session(done: Done) -> bool:
    return done.report is None and is_session_gone(done.said.errors, last_lines(done.said))

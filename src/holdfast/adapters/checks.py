"""Commands that are run to their end without a shell: those of a verification, and one that a person names. Output is kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from holdfast.adapters import processes
from holdfast.adapters.agents.installed import find_program
from holdfast.adapters.agents.runner import OUTPUT, Ears, Order, Outcome, dispatch
from holdfast.core.redact import Redactor
from holdfast.ports.spec import Ran

FOREVER = 10.0 * 365 * 86_400
_CUT_SHORT = {"stopped": False, "timeout": True}  # by whom it was ended, and whether for want of time


class Commands:
    """The commands of one run. Each key has a folder of its own, with the record of its process and its output."""

    def __init__(self, run_id: str, folder: str, environ: Mapping[str, str], redactor: Redactor) -> None:
        self._run_id, self._folder = run_id, folder
        self._environ, self._redactor = environ, redactor

    def run(
        self,
        key: str,
        command: Sequence[str],
        cwd: str,
        timeout: float = FOREVER,
        should_stop: Callable[[], bool] = lambda: False,
        pass_on: Callable[[bytes, bool], None] = lambda data, is_error: None,
    ) -> Ran:
        """Run it to its end. What a dead process left running under this key is ended first. Raises KeyboardInterrupt."""
        self.end_what_is_left(key)
        outcome = dispatch(
            self._order(key, command, cwd, timeout), self._redactor, Ears(should_stop=should_stop, pass_on=pass_on)
        )
        if outcome.interrupted:
            raise KeyboardInterrupt
        return self._ran(key, command, outcome)

    def end_what_is_left(self, key: str) -> list[str]:
        """What was still running of it, and was ended if it is surely ours."""
        left = processes.left_behind(self.stage(key))
        return [] if left is None else processes.reap(left)

    def was_started(self, key: str) -> bool:
        """Whether a process was ever let go under this key: its record is written before."""
        return processes.read_record(self.stage(key)) is not None

    def stage(self, key: str) -> str:
        return os.path.join(self._folder, key)

    def _order(self, key: str, command: Sequence[str], cwd: str, timeout: float) -> Order:
        told = {processes.RUN: self._run_id, processes.KEY: key, "PWD": cwd}
        kept = {name: value for name, value in self._environ.items() if not name.startswith("HOLDFAST_")}
        program = find_program(command[0], cwd, self._environ)
        return Order(
            key=key,
            run_id=self._run_id,
            argv=(program, *command[1:]),
            cwd=cwd,
            env={**kept, **told},
            folder=self.stage(key),
            timeout=timeout,
            stall_after=FOREVER,
            proof=True,
        )

    def _ran(self, key: str, command: Sequence[str], outcome: Outcome) -> Ran:
        output = processes.get(self.stage(key), OUTPUT, 64_000_000) or b""
        timed_out = _CUT_SHORT.get(outcome.ended_by)
        code = outcome.exit_code if timed_out is None else None
        return Ran(tuple(command), code, outcome.seconds, bool(timed_out), output)

"""`holdfast run -- COMMAND`: any one command as a durable step. Its output goes through, and is kept.

Killed while it runs, nobody knows what it did: started again, the run says so and stops, unless the command was declared
as one that may be repeated. The command comes from the command line, never from a store. Its standard input is empty.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, TypeAlias

from holdfast import app, config, live
from holdfast.adapters.agents.installed import find_program
from holdfast.adapters.checks import FOREVER, Commands
from holdfast.cli.output import emit, remark
from holdfast.cli.signals import ended_like_by_ctrl_c
from holdfast.core.canonical import canonical, digest
from holdfast.core.errors import UsageError
from holdfast.core.ids import COMMAND
from holdfast.core.plan import command_name
from holdfast.core.values import Answer
from holdfast.engine.run import Run
from holdfast.engine.stopping import Stopped

ADVICE = "Put the command into a script, and start that from a folder with another name."
PassOn: TypeAlias = Callable[[bytes, bool], None]


class Command:
    """The command, in the form that the gate to the world takes."""

    def __init__(self, argv: Sequence[str], policy: Any, run: Run, commands: Commands, pass_on: PassOn) -> None:
        self.policy = policy
        self.arguments = {"argv": list(argv), "cwd": os.getcwd()}
        self._argv, self._run, self._commands, self._pass_on = tuple(argv), run, commands, pass_on

    def act(self, key: str) -> dict[str, Any]:
        ran = self._commands.run(
            key, self._argv, os.getcwd(), FOREVER, lambda: self._run.is_wished_to_stop, pass_on=self._pass_on
        )
        return {"exit_code": ran.exit_code, "seconds": round(ran.seconds, 1), "output": self._run.keep(ran.output)}

    def probe(self, key: str) -> Answer:
        """Ends what is left of it, if that is ours. What it had done by then, nobody knows."""
        if not self._commands.was_started(key):
            return Answer("not_done", "it was never started")
        left = self._commands.end_what_is_left(key)
        ended = "; ".join(f"{one} was ended" if one.endswith(")") else one for one in left) or "its process is gone"
        return Answer("unknown", f"the command was running when its run was killed; {ended}")


class Through:
    """What the command says, where it says it; beside a JSON document it all goes to stderr. It is kept all the same."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self.lost: OSError | None = None  # what could not be written to somebody who still listens

    def __call__(self, data: bytes, is_error: bool) -> None:
        stream = sys.stderr if is_error or self._as_json else sys.stdout
        try:
            stream.buffer.write(data)
            stream.buffer.flush()
        except (BrokenPipeError, ValueError):
            return  # nobody reads it any more
        except OSError as error:
            self.lost = error


def mission_of(argv: Sequence[str]) -> str:
    folder = os.getcwd()
    for what, said in (("folder", folder), *(("argument", word) for word in argv)):
        if not said.isascii() and said != said.encode("utf-8", "replace").decode():
            raise UsageError(f"The {what} {said!r:.120} is not UTF-8, and a log holds only text.", advice=ADVICE)
    return COMMAND + digest(canonical([folder, list(argv)]))[:16]


def go_on(run_id: str, mission_id: str, argv: tuple[str, ...], told: Mapping[str, str], as_json: bool) -> int:
    """The step of a run that was begun before, if this is its command."""
    if mission_of(argv) != mission_id:
        raise UsageError(
            f"Run {run_id} is one of another command, or of another folder.",
            advice=f"`holdfast show {run_id}` names the command; give the same words, in the folder where it was begun.",
        )
    os.environ.update(told)
    return perform(argv, None, False, as_json, run_id)


def perform(argv: tuple[str, ...], policy: str | None, new: bool, as_json: bool, run_id: str | None = None) -> int:
    """Run it once. A command that failed is tried again when the run is started again. No policy: as the last time."""
    where = config.load()
    if where.on_server:
        raise UsageError("A command is run with the store of this machine.", advice="Unset HOLDFAST_STORE.")
    find_program(argv[0], os.getcwd(), config.environment())
    given = {"kind": "command", "argv": list(argv), "cwd": os.getcwd()}
    title = app.redactor().text(shlex.join(argv))[:80]  # half a secret has no shape to be known by
    tell = partial(remark, as_json=True) if as_json else None
    through = Through(as_json)
    try:
        with (
            ended_like_by_ctrl_c(),
            live.run(mission_of(argv), run_id=run_id, new=new, inputs=given, title=title, tell=tell) as run,
        ):
            begun = next((one.policy for one in reversed(run.state.effects.values())), "once")
            folder = os.path.join(os.path.dirname(where.place), "runs", run.run_id, "stages")
            commands = Commands(run.run_id, folder, config.environment(), app.redactor())
            receipt = _attempt(run, lambda: Command(argv, policy or begun, run, commands, through))
    except Stopped as stopped:
        if as_json:
            emit({"run_id": stopped.run_id, "stop_reason": stopped.reason, "evidence": list(stopped.evidence)})
        return int(stopped.code or 0)
    if as_json:
        emit({"run_id": run.run_id, "stop_reason": None, **receipt})
    if through.lost is not None:
        remark(f"Run {run.run_id} is finished, and holds what the command said.", as_json)
        raise through.lost
    return 0


def _attempt(run: Run, command: Callable[[], Command]) -> dict[str, Any]:
    """The first attempt that succeeds. One that failed before this process began is followed by another."""
    ended = {one.step_id for one in run.state.effects.values() if one.status == "done"}
    for attempt in count(1):
        name = command_name(attempt)
        receipt: dict[str, Any] | None = run.effect(name, command())
        if receipt is None and name in _given_up(run):
            continue
        if receipt is None:
            return {"exit_code": None, "settled": "somebody said that it was done"}
        if receipt["exit_code"] == 0:
            return receipt
        if name not in ended:
            raise run.stop("step_failed", f"the command: exit code {receipt['exit_code']}")
    raise AssertionError


def _given_up(run: Run) -> set[str]:
    return {one.step_id for one in run.state.effects.values() if one.status == "abandoned"}

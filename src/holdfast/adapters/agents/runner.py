"""Starts one program, listens to it, and sees it to its end with everything that it started.

The program waits behind a gate until its identity is on disk, so a kill of this process at any moment leaves either no
program or one on record. It ends by itself, in time, for want of any sign of life, or when it is asked to.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Literal, TypeAlias

import msgspec

from holdfast.adapters.agents.life import Life
from holdfast.adapters.agents.output import Lines, Log
from holdfast.adapters.processes import GRACE, NONCE, Tree, has_exited, identify, put, record
from holdfast.core.errors import HoldfastError
from holdfast.core.named import NamedTuple
from holdfast.core.redact import Redactor

OUTPUT, PROMPT = "output.log", "prompt.txt"
MAX_OUTPUT = 4_000_000
GATE = 'read -r HOLDFAST_GATE || exit 125; unset HOLDFAST_GATE; exec "$@" <"$0"'
_TICK, _TELL, _SAVE, _DRAIN = 0.2, 0.1, 5.0, 2.0
_PIECE = 1 << 16

EndedBy: TypeAlias = Literal["exit", "signal", "timeout", "stalled", "stopped"]


class Order(NamedTuple):
    """What is to be run. `env` is all of its environment; `folder` gets its record, its output and what it is fed.

    `proof`: that it was ever started must be known even after a failure of power, which it does not outlive itself.
    """

    key: str
    run_id: str
    argv: Sequence[str]
    cwd: str
    env: Mapping[str, str]
    folder: str
    stdin: bytes | None = None
    timeout: float = 2700.0
    stall_after: float = 900.0
    max_output: int = MAX_OUTPUT
    agent: str = ""
    grace: float = GRACE
    proof: bool = False


class Outcome(NamedTuple):
    """How it ended. `exit_code` is None if we ended it; `ended` names the processes that had to be ended, `said` and `dropped`
    count characters, and `interrupted` means Ctrl-C here."""

    ended_by: EndedBy
    exit_code: int | None
    seconds: float
    evidence: str
    said: int = 0
    dropped: int = 0
    last_line: str = ""
    ended: tuple[str, ...] = ()
    interrupted: bool = False


class CannotStart(HoldfastError):
    reason = "worker_failed"

    def __init__(
        self, program: str, problem: str, *, advice: str = "Check that it is installed and can be run."
    ) -> None:
        super().__init__(f"{program} cannot be started: {problem}.", advice=advice)


class Ears(NamedTuple):
    """Who is told what: the newest line, redacted, ten times a second at most; every line; every byte; and when to stop."""

    on_output: Callable[[str], None] = lambda line: None
    should_stop: Callable[[], bool] = lambda: False
    hear: Callable[[Sequence[str], bool], None] = lambda lines, is_error: None
    pass_on: Callable[[bytes, bool], None] = lambda data, is_error: None


def dispatch(order: Order, redactor: Redactor, ears: Ears | None = None) -> Outcome:
    """Run it to its end. Nothing of it is left when this returns or raises."""
    os.makedirs(order.folder, 0o700, exist_ok=True)
    nonce = os.urandom(8).hex()
    order = order._replace(env={**order.env, NONCE: nonce})
    process, gate = _behind_gate(order)
    with process:
        try:
            identity = identify(process.pid, order.key, order.run_id, order.agent, nonce)
            record(order.folder, identity, durable=order.proof)
            run = _Run(order, process, Tree(identity), redactor, ears or Ears())
            with contextlib.suppress(BrokenPipeError):
                os.write(gate, b"\n")
        finally:
            os.close(gate)
        outcome = run.to_the_end()
    record(order.folder, msgspec.structs.replace(identity, ended=True), durable=order.proof)
    return outcome


def _behind_gate(order: Order) -> tuple[subprocess.Popen[bytes], int]:
    """A process that becomes the program when it reads a line from the gate, and ends if the gate closes before."""
    if order.stdin is not None:
        put(order.folder, PROMPT, order.stdin, durable=False)  # whoever starts it again writes it again
    fed = os.devnull if order.stdin is None else os.path.join(order.folder, PROMPT)
    shut, gate = os.pipe()
    try:
        argv = ["/bin/sh", "-c", GATE, fed, *order.argv]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            argv, stdin=shut, stdout=pipe, stderr=pipe, cwd=order.cwd, env=order.env, start_new_session=True
        ), gate
    except (OSError, ValueError) as error:
        os.close(gate)
        raise CannotStart(order.argv[0], str(error)) from error
    finally:
        os.close(shut)


class _Run:
    def __init__(
        self, order: Order, process: subprocess.Popen[bytes], tree: Tree, redactor: Redactor, ears: Ears
    ) -> None:
        assert process.stdout and process.stderr
        self._order, self._process, self._tree, self._ears = order, process, tree, ears
        self._log = Log(os.path.join(order.folder, OUTPUT), order.max_output, redactor)
        self._lines: dict[IO[bytes], Lines] = {
            process.stdout: Lines(lambda lines: ears.hear(lines, False), self._log.write),
            process.stderr: Lines(lambda lines: ears.hear(lines, True), self._log.write),
        }
        self._waiting = selectors.DefaultSelector()
        for pipe in self._lines:
            os.set_blocking(pipe.fileno(), False)
            self._waiting.register(pipe, selectors.EVENT_READ)
        self._life = Life(tree, order.cwd, order.stall_after)
        self._began = self._told = self._saved = time.monotonic()
        self._told_at = 0

    def to_the_end(self) -> Outcome:
        ended: list[str] = []
        interrupted = False
        try:
            ended_by, evidence = self._watch()
        except KeyboardInterrupt:
            ended_by, evidence, interrupted = "stopped", "Ctrl-C was pressed", True
        finally:
            ended = self._end()
        code = self._process.returncode
        if ended_by == "exit":
            ended_by, evidence = ("signal", _signal_name(-code)) if code < 0 else ("exit", f"it exited with {code}")
        return Outcome(
            ended_by,
            code if ended_by in ("exit", "signal") else None,
            time.monotonic() - self._began,
            evidence,
            self._log.said,
            self._log.dropped,
            self._log.last_line(),
            tuple(ended),
            interrupted,
        )

    # --- while it runs

    def _watch(self) -> tuple[EndedBy, str]:
        checked = 0.0
        while True:
            self._listen(_TICK)
            now = time.monotonic()
            if now - checked < _TICK / 2 and self._waiting.get_map():
                continue
            checked = now
            reason = self._reason_to_end(now)
            if reason is not None:
                return reason
            self._tell(now)

    def _reason_to_end(self, now: float) -> tuple[EndedBy, str] | None:
        if has_exited(self._process.pid):
            return "exit", ""
        if self._ears.should_stop():
            return "stopped", "it was asked to stop"
        if now - self._began >= self._order.timeout:
            quiet = self._life.quiet_for
            return (
                "timeout",
                f"its {self._order.timeout:g} seconds were up; its last sign of life was {quiet:.0f} seconds ago",
            )
        death = self._life.death()
        return None if death is None else ("stalled", death)

    def _listen(self, seconds: float) -> bool:
        """Take in what is there. False if nothing can come any more."""
        if not self._waiting.get_map():
            time.sleep(min(seconds, 0.05))
            return False
        for key, _ in self._waiting.select(seconds):
            pipe = key.fileobj
            assert not isinstance(pipe, int)
            data = os.read(key.fd, _PIECE)
            if data:
                self._life.sign()
                self._ears.pass_on(data, pipe is self._process.stderr)
                self._lines[pipe].feed(data)  # type: ignore[index]
            else:
                self._waiting.unregister(pipe)
        return True

    def _tell(self, now: float) -> None:
        if now - self._told >= _TELL and self._told_at != self._log.said:
            self._told, self._told_at = now, self._log.said
            self._log.put_newest()
            self._ears.on_output(self._log.last_line())
        if now - self._saved >= _SAVE:
            self._log.save()
            self._saved = now

    # --- the end

    def _end(self) -> list[str]:
        try:
            ended = self._tree.end(self._order.grace)
        except KeyboardInterrupt:
            ended = self._tree.end(0.0)
        self._drain()
        self._process.wait()
        self._log.close()
        return ended

    def _drain(self) -> None:
        """What is still in the pipes. Somebody who got hold of them and is not ours to end cannot keep us here."""
        end = time.monotonic() + _DRAIN
        while time.monotonic() < end and self._listen(_TICK):
            pass
        for lines in self._lines.values():
            lines.end()
        self._waiting.close()


def _signal_name(number: int) -> str:
    with contextlib.suppress(ValueError):
        return f"it was ended by {signal.Signals(number).name}, and not by us"
    return f"it was ended by signal {number}, and not by us"

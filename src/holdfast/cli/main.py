"""The door of the command line: does one command, names what went wrong, leaves with a code of the stop registry.

No error leaves as a traceback unless HOLDFAST_DEBUG asks for it. The plain call of `status`, which prompts and hooks make
all the time, does not wait for the parser of arguments to load.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from holdfast.cli.output import emit, escape, leave_quietly, line_of, warn
from holdfast.cli.overview import show_status
from holdfast.core import stops
from holdfast.core.errors import BadFile, HoldfastError, StoreFull

QUICK = {("status",): False, ("status", "--json"): True}
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
IN_LINES = frozenset({"log"})  # verbs whose JSON is one object to a line, an error as well


class Stopped(HoldfastError):
    reason = "user_stopped"


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 - closed by whoever started us
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    code = perform(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            leave_quietly(stream)
    sys.exit(code)


def perform(arguments: Sequence[str]) -> int:
    """Do one command and return its exit code."""
    try:
        return _do(arguments)
    except BrokenPipeError:
        leave_quietly()
        return 0
    except OSError as error:  # not even the report could be written
        leave_quietly()
        return stops.exit_code(unexpected(error).reason)


def _do(arguments: Sequence[str]) -> int:
    try:
        code = _perform(tuple(arguments))
        hand_over()
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        return report(Stopped("Stopped."), arguments)
    except Exception as error:  # noqa: BLE001
        return report(error, arguments)
    return code


def hand_over() -> None:
    """What was said goes to its reader. One who has gone changes nothing of what was done, or of its exit code."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        leave_quietly()


def _perform(arguments: tuple[str, ...]) -> int:
    if arguments in QUICK:
        show_status(as_json=QUICK[arguments])
        return 0
    code: int = import_module("holdfast.cli.verbs").perform(arguments)
    return code


def wants_json(arguments: Sequence[str]) -> bool:
    ours = list(arguments)
    return "--json" in (ours[: ours.index("--")] if "--" in ours else ours)


def report(error: Exception, arguments: Sequence[str]) -> int:
    """Say what went wrong, once, and return the exit code of its reason, whether anybody listens or not."""
    as_json = wants_json(arguments)
    named = error if isinstance(error, HoldfastError) else unexpected(error)
    code = stops.exit_code(named.reason)
    if isinstance(error, OSError) and error.filename is None:
        leave_quietly()  # what it could not write is still in its buffer
    hand_over()
    try:
        tell(named, as_json)
        if os.environ.get("HOLDFAST_DEBUG") == "1":
            sys.excepthook(type(error), error, error.__traceback__)
    except OSError:
        leave_quietly(sys.stderr)  # nobody hears it; what went wrong is still told by the exit code
    if as_json:
        problem = {"reason": named.reason, "message": str(named), "advice": named.advice, "exit_code": code}
        emit({"error": problem}, in_a_line=not IN_LINES.isdisjoint(arguments[:1]))
        hand_over()
    return code


def tell(named: HoldfastError, as_json: bool) -> None:
    """On standard error: a sentence and its advice, or beside lines for a program one more of them."""
    if as_json:
        warn(line_of({"moment": "error", "name": named.reason, "text": str(named), "advice": named.advice}))
        return
    warn(f"holdfast: {escape(named)}")
    if named.advice:
        warn(f"  {escape(named.advice)}")


def unexpected(error: Exception) -> HoldfastError:
    if isinstance(error, OSError):
        problem = (error.strerror or str(error) or type(error).__name__).rstrip(".")
        where = str(error.filename or "Input or output")
        return StoreFull(where, problem) if error.errno in FULL else BadFile(where, None, problem)
    advice = "This is a defect of Holdfast. Set HOLDFAST_DEBUG=1 to see where it happened."
    return HoldfastError(f"{type(error).__name__}: {str(error) or 'no message'}", advice=advice)

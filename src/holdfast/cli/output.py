"""The one door to the terminal: stored text is escaped here, JSON is written here. Prints nothing raw, interprets nothing.

An escaped text is one line without control characters, terminal sequences, bidirectional overrides or invisible letters.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from holdfast import app
from holdfast.core.errors import HoldfastError, UsageError

if TYPE_CHECKING:
    import click

SCHEMA_VERSION = 1
UNREADABLE = "body_text"
Function = TypeVar("Function", bound=Callable[..., Any])


def escape(text: object, limit: int | None = None) -> str:
    """Text from anywhere as one harmless line; what would not be seen as itself is spelled out."""
    shown = str(text)
    if limit is not None and len(shown) > limit:
        shown = shown[: limit - 3] + "..."
    return shown if shown.isprintable() else "".join(map(_escape_letter, shown))


def _escape_letter(letter: str) -> str:
    return letter if letter.isprintable() else letter.encode("unicode_escape", "surrogatepass").decode("ascii")


def say(line: str = "") -> None:
    """One line that is already harmless. A reader who has gone changes nothing of what is done, or of its exit code."""
    try:
        sys.stdout.write(line + "\n")
    except BrokenPipeError:
        leave_quietly()


def warn(line: str) -> None:
    sys.stdout.flush()
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def emit(document: Mapping[str, Any], *, in_a_line: bool = False) -> None:
    """One JSON document."""
    import json

    indent = None if in_a_line else 2
    say(json.dumps({"schema_version": SCHEMA_VERSION, **document}, indent=indent, allow_nan=False))


def line_of(data: Mapping[str, Any]) -> str:
    """One JSON object in one line."""
    import json

    return json.dumps(data, allow_nan=False)


def remark(line: str, as_json: bool) -> None:
    """A line on standard error, beside the result. Beside JSON it is a JSON object, too."""
    warn(line_of({"moment": "note", "name": "", "text": line}) if as_json else line)


def check_open() -> None:
    """What is asked for as bytes must go somewhere: a closed standard output takes everything and keeps nothing."""
    if sys.__stdout__ is None:
        raise UsageError("There is no standard output to write to.", advice="Name a file, or use a pipe.")


def leave_quietly(stream: TextIO | None = None) -> None:
    """Nobody can read us any more. What is still buffered goes nowhere, or the interpreter would complain at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), (stream or sys.stdout).fileno())


def write_lines(lines: Iterable[str]) -> int:
    """Many lines, the first at once, the rest as fast as the reader takes them. How many there were."""
    out, number = sys.stdout, 0
    for number, line in enumerate(lines, 1):
        out.write(line + "\n")
        if number == 1:
            out.flush()
    out.flush()
    return number


def parse_body(body: bytes) -> dict[str, Any] | None:
    """The JSON object in a stored body, or None: damaged and hostile bodies are shown as text, never refused."""
    import json

    try:
        parsed = json.loads(body, parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if abs(number) == float("inf"):
        raise ValueError(f"{text:.60} is beyond every number that JSON output can hold")
    return number


def body_field(body: bytes) -> dict[str, Any]:
    """How a body appears in JSON output."""
    parsed = parse_body(body)
    return {"body": parsed} if parsed is not None else {UNREADABLE: body.decode("utf-8", "backslashreplace")}


def json_option(function: Function) -> Function:
    import click

    return click.option("--json", "as_json", is_flag=True, help="Machine-readable, with a schema version.")(function)


def run_argument(required: bool = True) -> Callable[[Function], Function]:
    import click

    return click.argument("run", required=required, shell_complete=complete_run)


def complete_run(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Ids of runs for the shell. Silent when there is no store: completion has no place for an error."""
    try:
        with app.reading() as store:
            return [head.run_id for head in store.heads(limit=200) if head.run_id.startswith(incomplete)]
    except HoldfastError:
        return []

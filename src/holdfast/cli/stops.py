"""`holdfast stops`: the stop registry, as it drives exit codes and resuming. Knows no reason of its own."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.output import emit, escape, json_option, say
from holdfast.cli.render import pairs, table
from holdfast.core import stops
from holdfast.core.errors import NotFound
from holdfast.core.stop_table import Stop

COLUMNS = ("reason", "exit", "family", "resume", "title")


@click.command()
@click.argument("code", required=False)
@json_option
def command(code: str | None, as_json: bool) -> None:
    """List every reason a run can be at rest for, or explain the one called CODE."""
    if code is None:
        show_all(as_json)
    else:
        show_one(find_stop(code), as_json)


def find_stop(code: str) -> Stop:
    """The stop of a code, of another program's name for it, or of an exit code."""
    if stops.is_known(code):
        return stops.lookup(code)
    for stop in stops.all_stops():
        if str(stop.exit_code) == code:
            return stop
    error = NotFound("stop reason", code)
    error.advice = "`holdfast stops` lists them all."
    raise error


def show_all(as_json: bool) -> None:
    known = stops.all_stops()
    if as_json:
        emit({"stops": [as_data(stop) for stop in known]})
        return
    table(COLUMNS, [(s.code, s.exit_code, s.family, resume(s), s.title) for s in known], frozenset({"exit"}))


def resume(stop: Stop) -> str:
    return "by itself" if stop.auto_resumable else "yes" if stop.resumable else "no"


def show_one(stop: Stop, as_json: bool) -> None:
    if as_json:
        emit({"stop": as_data(stop)})
        return
    pairs(
        [
            ("reason", stop.code),
            ("title", stop.title),
            ("family", stop.family),
            ("exit code", stop.exit_code),
            ("resume", resume(stop)),
            ("diagnosis", stop.sentence),
            ("other names", ", ".join(stops.aliases_of(stop.code))),
        ]
    )
    for action in stop.next_actions:
        say(f"  {escape(action.replace('{run}', 'RUN'))}")


def as_data(stop: Stop) -> dict[str, Any]:
    return {**stop._asdict(), "aliases": list(stops.aliases_of(stop.code))}

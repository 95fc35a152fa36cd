"""`holdfast cancel`: ends a run for good, at a boundary between steps. Kills no process, undoes no effect."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

import click

from holdfast import app
from holdfast.cli.output import emit, escape, json_option, run_argument, say
from holdfast.cli.watching import opened
from holdfast.core.ids import SPEC
from holdfast.core.plan import settle_commands
from holdfast.core.shapes import RunState
from holdfast.engine import people
from holdfast.ports import Store


@click.command()
@run_argument()
@click.option("--because", metavar="TEXT", default="", help="Why; it is kept in the log.")
@json_option
def command(run: str, because: str, as_json: bool) -> None:
    """Cancel RUN. It does not go on; `holdfast fork` makes a new run of what it had done.

    A live process hears it within about a second, at its next step or effect. The work trees of tasks are removed; what
    was in them is kept as commits.

    \b
    holdfast cancel 8cb0f3ef
    holdfast cancel 8cb0f3ef --because "the order was withdrawn"
    """
    with app.reading() as store:
        head = app.newest_run(store, run)
    run_id = head.run_id
    with opened(head) as store:
        told = people.cancel(store, run_id, because, app.world(), app.redactor())
        trees = work_trees(store, told.state)
    report(run_id, told, trees, as_json)


def work_trees(store: Store, state: RunState | None) -> list[str]:
    """What became of the work trees of its tasks, if it is a run of a spec and nobody holds it."""
    if state is None or not state.mission_id.startswith(SPEC):
        return []
    said: list[str] = import_module("holdfast.spec_rest").put_trees_away(store, state.run_id)  # rarely needed
    return said


def report(run_id: str, told: people.Told, trees: Sequence[str], as_json: bool) -> None:
    live = told.state is None
    left = [] if told.state is None else list(told.state.effects_open)
    following = [f"holdfast log {run_id} -f" if live else f"holdfast show {run_id}"]
    following += [line for key in left for line in settle_commands(run_id, key)[:2]]
    if as_json:
        delivery = {"recorded": not live, "message_id": told.message_id}
        emit({"run_id": run_id, **delivery, "open": left, "work_trees": list(trees), "next_actions": following})
        return
    say(f"Run {run_id} is held; it stops at its next step or effect." if live else f"Run {run_id} is cancelled.")
    if left:
        say(f"Nobody knows what became of {escape(', '.join(left))}; it can still be said.")
    for sentence in trees:
        say(escape(sentence))
    for line in following:
        say(f"  {line}")

"""`holdfast fork`: a new run from the first events of another, which stays as it is."""

from __future__ import annotations

import click

from holdfast import app
from holdfast.adapters import system
from holdfast.cli.export import counted
from holdfast.cli.output import emit, escape, json_option, run_argument, say
from holdfast.cli.watching import opened
from holdfast.engine.fork import Forked, fork


@click.command()
@run_argument()
@click.option(
    "--at", metavar="EVENT", type=click.IntRange(min=1), help="The last event to take over; else all of them."
)
@click.option("--as", "new_id", metavar="ID", help="The id of the new run; else a fresh one.")
@json_option
def command(run: str, at: int | None, new_id: str | None, as_json: bool) -> None:
    """Make a new run of what RUN had done up to an event. It can go on even if RUN has ended.

    Effects that were done by then stay done in the fork and are not repeated. What RUN found out later about one that was
    open is taken over; else it stays open. Effects that RUN began after the event are named: the fork does them again.

    \b
    holdfast fork 8cb0f3ef
    holdfast fork 8cb0f3ef --at 12 --as second-try
    """
    with app.reading() as store:
        head = app.newest_run(store, run)
    chosen = system.new_run_id() if new_id is None else new_id
    with opened(head) as store:
        made = fork(store, head.run_id, chosen, app.world(), app.redactor(), at)
    report(made, as_json)


def report(made: Forked, as_json: bool) -> None:
    following = f"holdfast resume {made.run_id}"
    if as_json:
        emit({**made._asdict(), "next_actions": [following]})
        return
    taken = f"{counted(made.events, 'event')}, from run {made.forked_from} up to its event {made.forked_at}"
    say(f"Run {made.run_id} is here now, with {taken}.")
    if made.effects_open:
        say(f"Open in it: {escape(', '.join(made.effects_open))}.")
    if made.effects_after:
        names = escape(", ".join(made.effects_after))
        say(f"Begun by the original after event {made.forked_at}; the fork does them again: {names}.")
    say(f"  {following}")

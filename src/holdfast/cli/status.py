"""`holdfast status`: which runs are here, which of them live, and why the others rest; or how far a spec is."""

from __future__ import annotations

from importlib import import_module

import click

from holdfast.cli.output import json_option, run_argument
from holdfast.cli.overview import LIMIT, show_status
from holdfast.core.errors import HoldfastError, InvalidId, NotFound


@click.command()
@run_argument(required=False)
@click.option("--all", "everything", is_flag=True, help="Every run, however many.")
@click.option("--limit", type=click.IntRange(min=1), default=LIMIT, show_default=True, help="How many runs to show.")
@json_option
def command(run: str | None, everything: bool, limit: int, as_json: bool) -> None:
    """Show the runs here, unfinished ones first; or one RUN; or the tasks and batches of a SPEC."""
    try:
        show_status(run, None if everything else limit, as_json)
    except (NotFound, InvalidId):
        if run is None or not is_spec(run):
            raise
        import_module("holdfast.cli.run").show_batches(import_module("holdfast.spec_look"), run, as_json)


def is_spec(text: str) -> bool:
    """Whether a spec of this name or path is here. A file that cannot be read is one, and is reported as such."""
    try:
        found: bool = import_module("holdfast.spec_look").is_there(text)
    except HoldfastError:
        return False
    return found

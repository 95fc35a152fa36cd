"""`holdfast status`: which runs are here, which of them live, and why the others rest."""

from __future__ import annotations

import click

from holdfast.cli.output import json_option, run_argument
from holdfast.cli.overview import LIMIT, show_status


@click.command()
@run_argument(required=False)
@click.option("--all", "everything", is_flag=True, help="Every run, however many.")
@click.option("--limit", type=click.IntRange(min=1), default=LIMIT, show_default=True, help="How many runs to show.")
@json_option
def command(run: str | None, everything: bool, limit: int, as_json: bool) -> None:
    """Show the runs here, unfinished ones first, or one RUN."""
    show_status(run, None if everything else limit, as_json)

"""`holdfast export`: a run as one file, to read without Holdfast or to import elsewhere. Only reads the store."""

from __future__ import annotations

import sys
from contextlib import closing

import click

from holdfast import app
from holdfast.cli.output import check_open, emit, escape, json_option, leave_quietly, run_argument, say
from holdfast.cli.render import counter, on_terminal
from holdfast.core.errors import UsageError
from holdfast.engine import transfer
from holdfast.engine.whole_file import file_errors
from holdfast.ports import Head, Store

CUT_OFF = "What has arrived is not whole; import refuses it."


@click.command()
@run_argument()
@click.argument("file", type=click.Path(allow_dash=True))
@click.option("--force", is_flag=True, help="Replace a file that is already there.")
@json_option
def command(run: str, file: str, force: bool, as_json: bool) -> None:
    """Write RUN to FILE, events and artifacts, one JSON object to a line; - is standard output."""
    check_output(file, as_json)
    with app.reading() as store:
        done = write(store, app.newest_run(store, run), file, force)
    if as_json:
        emit({"file": file, **done._asdict()})
    elif file != "-":
        held = f"{counted(done.events, 'event')} and {counted(done.artifacts, 'artifact')}"
        say(f"Run {escape(done.run_id)}: {held} in {escape(file)}.")


def check_output(file: str, as_json: bool) -> None:
    if file == "-" and as_json:
        raise UsageError("The export itself goes to standard output, so --json has no place there.")
    if file == "-":
        check_open()
    if file == "-" and on_terminal():
        raise UsageError("Stored text may do anything to a terminal.", advice="Name a file, or use a pipe.")


def write(store: Store, head: Head, file: str, force: bool) -> transfer.Exported:
    with closing(counter("Exporting", head.seq)) as steps:
        if file != "-":
            return transfer.export_file(store, head.run_id, file, force, lambda seq: next(steps))
        with file_errors("standard output", CUT_OFF):
            return write_out(store, head.run_id, lambda seq: next(steps))


def write_out(store: Store, run_id: str, tick: transfer.Tick) -> transfer.Exported:
    """A reader that goes away early leaves half a run behind, and that is no success."""
    try:
        done = transfer.export_run(store, run_id, sys.stdout.buffer, tick)
        sys.stdout.buffer.flush()
    except OSError:
        leave_quietly()
        raise
    return done


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"

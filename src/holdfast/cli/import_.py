"""`holdfast import`: a run from an exported file. The whole file is proven before the store is opened for writing."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from importlib import import_module
from typing import BinaryIO

import click

from holdfast import app
from holdfast.cli.export import counted
from holdfast.cli.output import emit, json_option, say
from holdfast.cli.render import counter
from holdfast.core.errors import NotFound, UsageError
from holdfast.engine import transfer
from holdfast.ports import Store

SAID = {
    "new": "Run {run_id} is here now, with {events}.",
    "extended": "Run {run_id} was here in part; it has {events} now, {appended} of them new.",
    "identical": "Run {run_id} is here already, with the same {events}.",
    "older": "Run {run_id} is here already, and has gone on since the {events} of this file.",
}
ARTIFACTS = " Added: {artifacts}."


@click.command()
@click.argument("file", type=click.Path(allow_dash=True))
@json_option
def command(file: str, as_json: bool) -> None:
    """Read a run from FILE, as `holdfast export` wrote it; - is standard input.

    A file that is damaged, cut off or newer is refused with the line, and nothing is written. A run that is here
    already gets what it lacks; one that went another way is refused. A folder is one of Runr (.runr), whose runs are
    taken in with their milestones.
    """
    if os.path.isdir(file):
        import_module("holdfast.cli.import_runr").take_in(file, as_json)  # rarely needed
        return
    name = "standard input" if file == "-" else file
    with source(file) as content:
        done = bring_in(content, name)
    if as_json:
        emit({"file": file, **done._asdict()})
        return
    text = SAID[done.outcome] + (ARTIFACTS if done.artifacts else "")
    events, artifacts = counted(done.events, "event"), counted(done.artifacts, "artifact")
    say(text.format(run_id=done.run_id, events=events, appended=f"{done.appended:,}", artifacts=artifacts))


def source(file: str) -> AbstractContextManager[BinaryIO]:
    if file == "-" and sys.stdin is None:
        raise UsageError("There is no standard input to read from.")
    return transfer.open_stream(sys.stdin.buffer) if file == "-" else transfer.open_source(file)


def bring_in(content: BinaryIO, name: str) -> transfer.Imported:
    with store_if_any() as store, closing(counter("Proving", None)) as steps:
        found = transfer.survey(store, content, name, lambda seq: next(steps))
    if found.complete:
        return found.imported
    with closing(app.open_store()) as store:
        return transfer.import_run(store, content, name, app.world(), found)


@contextmanager
def store_if_any() -> Iterator[Store | None]:
    """The store, for reading only; None where there is none yet, so that a bad file does not make one."""
    try:
        store = app.open_store(read_only=True)
    except NotFound:
        yield None
        return
    with closing(store):
        yield store

"""`holdfast restore`: a checkpoint's files again, in a new work tree. In place only when asked; what is there is kept first."""

from __future__ import annotations

import os
from itertools import chain, count

import click

from holdfast import app
from holdfast.adapters import system
from holdfast.adapters.git import restore as back
from holdfast.adapters.git.repo import GitWorkspace
from holdfast.cli import repo
from holdfast.cli.checkpoint import MISSION, settle
from holdfast.cli.output import emit, escape, json_option, say
from holdfast.core.errors import UsageError
from holdfast.core.events import RunFinished, SnapshotKept

LISTED = 20


@click.command()
@click.argument("checkpoint")
@click.option("--into", metavar="FOLDER", help="The new work tree; it must not exist. Default: beside the repository.")
@click.option("--in-place", is_flag=True, help="Here, after a snapshot of what is here.")
@click.option("--preview", is_flag=True, help="With --in-place: what would change. Writes nothing.")
@json_option
def command(checkpoint: str, into: str | None, in_place: bool, preview: bool, as_json: bool) -> None:
    """Bring back the files of CHECKPOINT as they were: work tree, untracked files and index."""
    if into is not None and (in_place or preview):
        raise UsageError(f"--into and {'--in-place' if in_place else '--preview'} exclude each other.")
    place = repo.here()
    checkpoint_id = repo.find_checkpoint(place, checkpoint)
    if preview:
        show_preview(place, checkpoint_id, as_json)
        return
    if in_place:
        kept_as = system.new_run_id()
        done = back.in_place(
            place.git, checkpoint_id, kept_as, app.now(), lambda made: write_down(kept_as, made.sha, place.top)
        )
    else:
        done = back.into_worktree(
            place.git, checkpoint_id, os.path.abspath(into or default_folder(place, checkpoint_id))
        )
    show(done, checkpoint_id, as_json)
    settle(checkpoint_id, "restored")


def write_down(checkpoint_id: str, snapshot: str, top: str) -> None:
    """What is here is pending until somebody deals with it, and a log says so before the first file is changed."""
    with app.open_store() as store, app.start_run(store, MISSION, title="kept before a restore in place") as log:
        log.record(SnapshotKept(checkpoint_id=checkpoint_id, snapshot=snapshot, repo=top), RunFinished())


def default_folder(place: GitWorkspace, checkpoint_id: str) -> str:
    """Beside the repository, under a name that is free."""
    name = f"{place.main}-{checkpoint_id[-8:]}"
    names = chain([name], (f"{name}-{number}" for number in count(2)))
    return next(one for one in names if back.is_free(place.git, one))


def show(done: back.Restored, checkpoint_id: str, as_json: bool) -> None:
    if as_json:
        emit({"checkpoint_id": checkpoint_id, "restored": done._asdict()})
        return
    say(f"Checkpoint {checkpoint_id} is in {escape(done.path)}.")
    if done.kept is not None:
        say(f"What was there is kept: `holdfast restore {done.kept} --in-place` undoes this.")
    for line in done.left_out:
        say(repo.about_file(line, "Not restored"))


def show_preview(place: GitWorkspace, checkpoint_id: str, as_json: bool) -> None:
    changes = back.preview(place.git, checkpoint_id)
    if as_json:
        emit({"checkpoint_id": checkpoint_id, "changes": [change._asdict() for change in changes]})
        return
    for change in changes[:LISTED]:
        say(f"{change.kind:10} {escape(change.path)}")
    if len(changes) > LISTED:
        say(f"and {len(changes) - LISTED} more")
    if not changes:
        say("Nothing would change.")

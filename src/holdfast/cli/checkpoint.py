"""`holdfast checkpoint`: keep the work tree as it is now, under an id of its own. Nothing of yours is touched.

With --commit it is a milestone: one commit on your branch, with trailers and a sidecar.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import click

from holdfast import app, live
from holdfast.adapters.git.workspace import kept
from holdfast.cli import repo
from holdfast.cli.output import emit, escape, json_option, run_argument, say
from holdfast.cli.render import table
from holdfast.core.drift import DRIFTS, Policy
from holdfast.core.errors import HoldfastError, UsageError
from holdfast.core.events import SnapshotSettled
from holdfast.core.guards import Scope, check
from holdfast.core.repo_drift import next_index
from holdfast.core.shapes import RUNNING, WorkspaceState
from holdfast.engine.log import read_head
from holdfast.engine.stopping import Stopped
from holdfast.engine.workspaces import Mark
from holdfast.ports import Store

MISSION, BY_HAND = "workspace", "checkpoints taken by hand"
_AS_IT_IS: dict[str, Policy] = dict.fromkeys(DRIFTS, "ignore")  # it is over: nothing goes on from there
LISTED = 20
COLUMNS = ("checkpoint", "kind", "index", "title", "run", "pending")
KEYS = ("checkpoint_id", "kind", "index", "title", "run_id", "pending")


@click.command()
@click.argument("title", required=False)
@run_argument(required=False)
@click.option(
    "--commit", is_flag=True, help="Commit all changes to the branch as a milestone, with trailers and a sidecar."
)
@click.option("--index", type=click.IntRange(0), help="With --commit: the number of the milestone; else the next one.")
@click.option(
    "--ignored",
    metavar="PATTERN",
    multiple=True,
    help="Keep files that git ignores, too, if PATTERN names them: `.env`, `build/**`. Repeatable.",
)
@click.option("--list", "listing", is_flag=True, help="List the checkpoints that are kept in this repository.")
@click.option("--drop", metavar="CHECKPOINT", help="Let go of one that is kept. Its log stays.")
@json_option
def command(
    title: str | None,
    run: str | None,
    commit: bool,
    index: int | None,
    ignored: tuple[str, ...],
    listing: bool,
    drop: str | None,
    as_json: bool,
) -> None:
    """Keep HEAD, index, work tree and untracked files as they are now, for RUN if one is named.

    \b
    holdfast checkpoint "before the refactoring"
    holdfast checkpoint --commit "parser works"
    holdfast checkpoint --list
    """
    if index is not None and not commit:
        raise UsageError("--index is for a milestone.", advice="Add --commit.")
    check(Scope(ignored))
    if drop is not None:
        let_go(drop, as_json)
    elif listing:
        show_all(as_json)
    else:
        mark = take(title or app.now(), run, commit, index, ignored)
        show(mark._replace(left_out=tuple(sorted({*mark.left_out, *repo.here().odd_files()}))), as_json)


def take(title: str, run: str | None, commit: bool, index: int | None, ignored: Sequence[str]) -> Mark:
    repo.here()  # before anything is made: is there a repository at all?
    if run is not None:
        with app.open_store() as store, live.visit(store, app.find_run(store, run).run_id) as visited:
            return taken(visited, title, commit, index, ignored)
    end_what_was_cut_off()
    number = following() if commit and index is None else index
    try:
        with live.run(MISSION, new=True, title=BY_HAND) as own:
            try:
                return taken(own, title, commit, number, ignored)
            except HoldfastError as error:
                problem = error  # said below: a run that was made for this one act is over, not interrupted
    except Stopped as stop:
        problem = UsageError(str(stop))
    raise problem


def end_what_was_cut_off() -> None:
    """A checkpoint that a killed process began is completed or given up, and its run is over, before the next one begins.

    Tried once: a run that cannot be ended so has stopped, and `holdfast doctor` names it.
    """
    with app.open_store() as store:
        for head in store.heads(unfinished=True):
            shown = head.projection
            if (shown.mission_id, shown.title, shown.status) == (MISSION, BY_HAND, RUNNING):
                with suppress(HoldfastError, Stopped):
                    end_one(store, head.run_id)


def end_one(store: Store, run_id: str) -> None:
    state = read_head(store, run_id, trust_snapshot=True)[0]
    if state.checkpoint_open is None or state.steps or state.effects:
        return  # nothing of it is left undone, or it is somebody's own
    place = state.workspaces[state.checkpoint_open].repo
    with live.run(MISSION, run_id=run_id, store=store, policies=_AS_IT_IS) as run:
        run.workspace(place)


def taken(run: Any, title: str, commit: bool, index: int | None, ignored: Sequence[str]) -> Mark:
    place = run.workspace(".", ignored=ignored)
    made: Mark = place.milestone(title, index=index) if commit else place.snapshot(title)
    return made


def following() -> int:
    """The number after the last milestone that was taken by hand."""
    return max((next_index(state) for state in repo.states() if state.mission_id == MISSION), default=0)


def show(mark: Mark, as_json: bool) -> None:
    if as_json:
        emit(mark._asdict())
        return
    say(f"Checkpoint {mark.checkpoint_id}.")
    if mark.commit is not None:
        written = (
            "" if mark.sidecar_written else " Its sidecar could not be written; `holdfast doctor --fix` tries again."
        )
        say(f"Milestone {mark.index} is commit {mark.commit[:12]}.{written}")
    for path in mark.ignored[:LISTED]:
        say(f"Kept although git ignores it: {escape(path)}")
    if len(mark.ignored) > LISTED:
        say(f"and {len(mark.ignored) - LISTED} more of them")
    if mark.ignored_outside:
        say(f"Ignored files outside of the allowed paths, which is no violation: {mark.ignored_outside}.")
    for line in mark.left_out:
        say(repo.about_file(line, "Not kept" if mark.commit is None else "Not in the snapshot"))
    say(f"  holdfast restore {mark.checkpoint_id}")


def show_all(as_json: bool) -> None:
    rows = list(listed())
    if as_json:
        emit({"checkpoints": [dict(zip(KEYS, row, strict=True)) for row in rows]})
    elif rows:
        table(COLUMNS, [[cell if cell is not None else "" for cell in row] for row in rows])
    else:
        say("No checkpoint is kept in this repository.")


def listed() -> Iterator[tuple[str, str, int | None, str, str, bool]]:
    """Each kept snapshot, with what the logs here say of it, or else its sidecar."""
    place = repo.here()
    known: dict[str, tuple[str, int | None, str, str]] = {
        one.checkpoint_id: ("milestone", one.index, one.title, one.run_id) for one in place.known()
    }
    pending: dict[str, str] = {}
    given_up: dict[str, str] = {}
    for state in repo.states():
        pending |= dict.fromkeys(state.kept_aside, state.run_id)
        given_up |= dict.fromkeys(state.given_up, state.run_id)
        known |= {name: described(made, state.run_id) for name, made in state.workspaces.items()}
    for checkpoint_id in sorted(kept(place.git)):
        kind, index, title, run_id = known.get(checkpoint_id, ("unknown", None, "", ""))
        if checkpoint_id in pending:
            kind, run_id = "kept aside", pending[checkpoint_id]
        elif checkpoint_id in given_up:
            kind, run_id = "given up", given_up[checkpoint_id]
        yield checkpoint_id, kind, index, escape(title, 60), run_id, checkpoint_id in pending


def described(made: WorkspaceState, run_id: str) -> tuple[str, int | None, str, str]:
    return "milestone" if made.index is not None else "snapshot", made.index, made.title, run_id


def let_go(text: str, as_json: bool) -> None:
    place = repo.here()
    is_pending = any(text in state.kept_aside for state in repo.states())  # also if its ref is gone
    checkpoint_id = text if is_pending else repo.find_checkpoint(place, text)
    settle(checkpoint_id, "dropped")
    place.drop(checkpoint_id)
    if as_json:
        emit({"checkpoint_id": checkpoint_id, "dropped": True})
    else:
        say(f"Checkpoint {checkpoint_id} is no longer kept; git removes it in its own time.")


def settle(checkpoint_id: str, settled_as: str) -> None:
    """Say in the log what became of work that was kept aside."""
    for state in repo.states():
        if checkpoint_id in state.kept_aside:
            with app.open_store() as store, app.write_run(store, state.run_id) as log:
                log.record(SnapshotSettled(checkpoint_id=checkpoint_id, settled_as=settled_as))  # type: ignore[arg-type]
            return

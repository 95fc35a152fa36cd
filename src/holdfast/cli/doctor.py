"""`holdfast doctor`: is this set-up sound? Looks only; with --fix it repairs mirrors (witness, snapshots, drafts) and says so."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module

import click

from holdfast import app, config
from holdfast.adapters import surroundings
from holdfast.cli.output import emit, escape, json_option, say
from holdfast.cli.render import paint
from holdfast.cli.watching import watching
from holdfast.core import stops
from holdfast.core.errors import HoldfastError, StoreForeign, TailLost, UsageError
from holdfast.core.state import seal
from holdfast.engine.health import FAIL, Finding, Seen, drifted_snapshots, examine, failed
from holdfast.engine.log import read_head
from holdfast.ports import Store


@click.command()
@click.option(
    "--fix", is_flag=True, help="Repair mirrors: witness, snapshots, sidecars, unfinished drafts. Never the log."
)
@click.option(
    "--accept-loss", is_flag=True, help="With --fix: go on without events that the witness knows and the log lost."
)
@json_option
def command(fix: bool, accept_loss: bool, as_json: bool) -> int:
    """Check the store, the disk, the clock and the runs here."""
    if accept_loss and not fix:
        raise UsageError("--accept-loss needs --fix.", advice="`holdfast doctor --fix --accept-loss` does both.")
    around = import_module("holdfast.cli.doctor_repo")  # starts git
    where = placed()
    own = where.files if isinstance(where, config.Config) else ()
    deeds = [*repair(where, accept_loss), *around.repair(own)] if fix else []
    done = [deed for deed in deeds if isinstance(deed, str)]
    undone = [deed for deed in deeds if isinstance(deed, Finding)]
    findings = once([*diagnose(where), *around.findings(own), *undone])
    if as_json:
        emit({"store": shown(where), "findings": [item._asdict() for item in findings], "done": done})
    else:
        show(findings, done)
    return exit_code(findings)


def placed() -> config.Config | StoreForeign:
    """Where the store is; or that something that is not ours has its place."""
    try:
        return config.load()
    except StoreForeign as problem:
        return problem


def shown(where: config.Config | StoreForeign) -> str:
    return where.place if isinstance(where, StoreForeign) else where.shown


def once(findings: list[Finding]) -> list[Finding]:
    """The same sentence is said once, by whoever said it first."""
    return list({item.sentence: item for item in reversed(findings)}.values())[::-1]


def diagnose(where: config.Config | StoreForeign) -> Iterator[Finding]:
    if isinstance(where, StoreForeign):
        away = import_module("holdfast.cli.doctor_tree").away
        yield failed("store", where)._replace(fix=away(where.place))
        return
    seen = look_around(where)
    try:
        store = app.open_configured(where, read_only=True)
    except HoldfastError as problem:
        yield from examine(None, problem, seen)
        return
    with closing(store), watching(store, "Looking") as watched:
        yield from examine(watched, None, seen)


def look_around(where: config.Config) -> Seen:
    if where.on_server:
        return Seen(where.shown, app.now())
    folder = os.path.dirname(where.place)
    space, kind = surroundings.free_bytes(folder), surroundings.filesystem(folder)
    modes, drafts = surroundings.modes(where.place), tuple(surroundings.drafts(where.place))
    return Seen(where.place, app.now(), space, kind, modes, drafts, surroundings.foreign(where.place))


def exit_code(findings: list[Finding]) -> int:
    reasons = [item.reason for item in findings if item.level == FAIL and item.reason]
    return stops.exit_code(reasons[0]) if reasons else 0


def show(findings: list[Finding], done: list[str]) -> None:
    for sentence in done:
        say(f"done  {escape(sentence)}")
    for item in findings:
        say(f"{paint(item.level)}{' ' * (6 - len(item.level))}{escape(item.check)}: {escape(item.sentence)}")
        if item.fix:
            say(f"      {escape(item.fix)}")


# --- repairs


def repair(where: config.Config | StoreForeign, accept_loss: bool) -> Iterator[str | Finding]:
    """Mirrors only. The log is never changed, and nothing that cannot be rebuilt is deleted."""
    if isinstance(where, StoreForeign):
        return
    try:
        if app.has_store(where):
            yield from repair_store(where, accept_loss)
    except HoldfastError as problem:
        yield failed("store", problem)
    for path in [] if where.on_server else surroundings.remove_drafts(where.place):
        yield f"Removed the unfinished draft {path}."


def repair_store(where: config.Config, accept_loss: bool) -> Iterator[str]:
    """Opening for writing makes a missing witness anew; one that accuses the log is set aside only if told to."""
    try:
        store = app.open_configured(where)
    except TailLost:
        if not accept_loss:
            raise
        kept = app.set_witness_aside(where)
        yield f"Accepted that events are lost. What knows of them is kept as {' and '.join(kept)}."
        store = app.open_configured(where)
    with closing(store):
        if store.facts().get("witness") in ("missing", "made again"):
            yield "Made a new witness from the log."
        for run_id, had, has in app.accept_losses(store) if accept_loss else ():
            yield f"Accepted that run {run_id}, which had {had} events, has {has}."
        yield from rebuild_snapshots(store)


def rebuild_snapshots(store: Store) -> Iterator[str]:
    for run_id in list(drifted_snapshots(store)):
        state, head, _ = read_head(store, run_id)
        store.save_snapshot(run_id, state.seq, seal(state, head))
        yield f"Made the snapshot of run {run_id} again from its log."

"""What a list of runs says of each: what it is, seen from here, and why it rests. Writes nothing.

Kept apart from `status` so that the plain call loads neither a parser of arguments nor an event.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from itertools import islice
from typing import Any

from holdfast import app, config
from holdfast.cli.output import emit, say
from holdfast.cli.render import ago, clock, pairs, short, table, watched
from holdfast.core import stops
from holdfast.core.errors import NotFound
from holdfast.ports import Head, Store

LIMIT = 20
COLUMNS = ("run", "mission", "status", "events", "steps", "changed", "owner", "title")
MOST = 1_000_000_000
NUMBERS = frozenset({"events", "steps"})


def show_status(run: str | None = None, limit: int | None = LIMIT, as_json: bool = False) -> None:
    where = config.load()
    try:
        store = app.open_configured(where, read_only=True)
    except NotFound:
        if run is not None:
            raise
        show_nothing(where, as_json)
        return
    try:
        if run is not None:
            show_one(store, app.find_run(store, run), as_json)
        else:
            show_many(store, where, limit, as_json)
    finally:
        store.close()


def show_nothing(where: config.Config, as_json: bool) -> None:
    if as_json:
        emit({"store": where.shown, "runs": [], "more": False})
    else:
        say("Nothing here yet. `holdfast demo` shows what Holdfast does.")


def show_many(store: Store, where: config.Config, limit: int | None, as_json: bool) -> None:
    heads = list(islice(watched(unfinished_first(store), "Reading"), None if limit is None else min(limit, MOST) + 1))
    more = limit is not None and len(heads) > limit
    heads = heads[:limit]
    if as_json:
        emit({"store": where.shown, "runs": [as_data(head) for head in heads], "more": more})
        return
    if not heads:
        show_nothing(where, as_json)
        return
    now = app.now()
    table(COLUMNS, [row(head, now) for head in heads], NUMBERS)
    if more:
        say("There are more: `holdfast status --all` shows them.")


def unfinished_first(store: Store) -> Iterator[Head]:
    yield from store.heads(unfinished=True)
    yield from (head for head in store.heads() if head.projection.status == "finished")


def status_word(head: Head) -> str:
    """What a run is, seen from here: a run that nobody holds is not running, whatever it recorded last."""
    recorded = head.projection.status
    return "interrupted" if recorded == "running" and not head.held else recorded


def owner_of(head: Head) -> str:
    return str(head.owner) if head.held and head.owner is not None else ""


def row(head: Head, now: str) -> tuple[object, ...]:
    shown = head.projection
    word = status_word(head) if shown.stop_reason is None else f"stopped: {shown.stop_reason}"
    steps = f"{shown.steps_done}+{shown.steps_open}" if shown.steps_open else shown.steps_done
    changed = ago(head.updated_at, now)
    return short(head.run_id), shown.mission_id, word, head.seq, steps, changed, owner_of(head), shown.title


def reason_of(head: Head) -> str | None:
    """The registry's word for why a run rests; None while it runs."""
    if head.projection.stop_reason is not None:
        return head.projection.stop_reason
    return {"interrupted": "interrupted", "finished": "complete"}.get(status_word(head))


def as_data(head: Head) -> dict[str, Any]:
    shown, reason = head.projection, reason_of(head)
    return {
        "run_id": head.run_id,
        "mission_id": shown.mission_id,
        "title": shown.title,
        "status": status_word(head),
        "stop_reason": shown.stop_reason,
        "resumable": reason is not None and stops.is_resumable(reason),
        "events": head.seq,
        "steps_done": shown.steps_done,
        "steps_open": shown.steps_open,
        "effects_open": shown.effects_open,
        "started_at": head.started_at,
        "updated_at": head.updated_at,
        "epoch": head.epoch,
        "held": head.held,
        "owner": None if head.owner is None else head.owner._asdict(),
    }


def show_one(store: Store, head: Head, as_json: bool) -> None:
    if as_json:
        emit({"run": as_data(head) | {"next_actions": next_actions(store, head)}})
        return
    pairs(describe(head, app.now()))
    for action in next_actions(store, head):
        say(f"  {action}")


def describe(head: Head, now: str) -> list[tuple[str, object]]:
    shown, reason = head.projection, reason_of(head)
    return [
        ("run", head.run_id),
        ("mission", shown.mission_id),
        ("title", shown.title),
        ("status", status_word(head)),
        ("reason", shown.stop_reason),
        ("meaning", None if reason is None else stops.lookup(reason).sentence),
        ("owner", owner_of(head)),
        ("events", head.seq),
        ("steps done", shown.steps_done),
        ("steps open", shown.steps_open or None),
        ("effects open", shown.effects_open or None),
        ("started", clock(head.started_at)),
        ("changed", f"{clock(head.updated_at)}, {ago(head.updated_at, now)}"),
    ]


def next_actions(store: Store, head: Head) -> list[str]:
    """The commands of the registry. Those that settle or answer name what is open, for which the log is read."""
    reason = reason_of(head)
    if reason is None:
        return []
    actions = stops.next_actions(reason, head.run_id)
    if not head.projection.effects_open and not any(" answer " in action for action in actions):
        return list(actions)
    state = import_module("holdfast.cli.watching").read_watched(store, head)
    found: list[str] = import_module("holdfast.core.handoff").commands(state, stops.lookup(reason))
    return found

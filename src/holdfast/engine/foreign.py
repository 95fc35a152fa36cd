"""Runs of other programs, taken in as logs of ours: what they recorded as extensions, their milestones as checkpoints.

Nothing is invented: what they did not record is not there, and a run that is here already is left as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.core.events import CheckpointComplete, CheckpointStarted, Event, Extension, RunFinished, RunStarted
from holdfast.core.named import NamedTuple
from holdfast.core.sidecar import Sidecar
from holdfast.core.stops import lookup
from holdfast.core.wire import MAX_EVENT_BYTES, Redact
from holdfast.engine.log import RunLog, World
from holdfast.engine.stopping import stopped
from holdfast.ports import Store

_ROOM = MAX_EVENT_BYTES // 2


class Foreign(NamedTuple):
    """A run as another program left it. `stop` is its own word for why it rests, None if it said nothing."""

    run_id: str
    mission_id: str
    title: str
    repo: str
    plan: tuple[str, ...]
    recorded: Sequence[tuple[str, Mapping[str, Any]]]
    milestones: Sequence[Sidecar]
    stop: str | None


def bring_in(store: Store, run: Foreign, world: World, redact: Redact) -> bool:
    """Write the run into the store. False: a run of that id is here, and nothing was written."""
    if store.head(run.run_id) is not None:
        return False
    with RunLog(store, run.run_id, world, redact) as log:
        log.record(*_events(store, run, redact))  # in one append: it is here whole, or not at all
    return True


def _events(store: Store, run: Foreign, redact: Redact) -> Iterator[Event]:
    yield RunStarted(mission_id=run.mission_id, title=run.title, plan=run.plan)
    for kind, data in run.recorded:
        yield Extension(kind=kind, data=_small(store, data, redact))
    latest = {one.milestone_index: one for one in sorted(run.milestones, key=lambda one: one.created_at)}
    for _, one in sorted(latest.items()):
        yield from _milestone(run, one)
    if run.stop is None:
        return
    stop = lookup(run.stop)
    yield RunFinished() if stop.exit_code == 0 else stopped(stop.code, f"it said {run.stop}")


def _milestone(run: Foreign, one: Sidecar) -> Iterator[Event]:
    yield CheckpointStarted(
        checkpoint_id=one.checkpoint_id,
        repo=run.repo,
        index=one.milestone_index,
        title=one.milestone_title,
        created_at=one.created_at,
        tier=one.tier,
        verification_commands=one.verification_commands or (),
    )
    yield CheckpointComplete(checkpoint_id=one.checkpoint_id, commit=one.sha, sidecar_written=True)


def _small(store: Store, data: Mapping[str, Any], redact: Redact) -> dict[str, Any]:
    """The data itself, or where it is kept if it is too large for an event; what no log can hold becomes text."""
    try:
        body = msgspec.json.encode(data)
        whole = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, TypeError, ValueError) as problem:
        raise HoldfastError(f"A record of another program cannot be kept: {problem}.") from None
    return whole if len(body) <= _ROOM else {"artifact": store.put_artifact(redact.body(body)), "bytes": len(body)}

"""A new run from the first events of another. The original is only read; the new log is written whole, or not at all.

The events are recorded anew, so chain, redaction and fold hold for the new run as for any other. What was done stays done,
under its own key; what was open stays open. Only the rest at which the original stood is left out, so that the fork can go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from holdfast.core.errors import BadInput, LogDamaged, NotFound
from holdfast.core.events import (
    CancelRequested,
    CheckpointAbandoned,
    Event,
    QuestionAnswered,
    RunFinished,
    RunResumed,
    RunStarted,
    RunStopped,
)
from holdfast.core.ids import check_id
from holdfast.core.wire import Redact, decode
from holdfast.engine.log import RunLog, World, chained
from holdfast.ports import Store

RESTS = (RunStopped, RunFinished, CancelRequested)


class Forked(NamedTuple):
    run_id: str
    forked_from: str
    forked_at: int
    events: int
    effects_open: tuple[str, ...]


def fork(store: Store, run_id: str, new_id: str, world: World, redact: Redact, at: int | None = None) -> Forked:
    """The run `new_id`, made of the events of `run_id` up to and including `at`, by default all of them."""
    check_id(new_id, "The new run id")
    head = store.head(run_id)
    if head is None:
        raise NotFound("run", run_id)
    last = head.seq if at is None else at
    if not 1 <= last <= head.seq:
        missing = NotFound("event", str(last))
        missing.advice = f"Run {run_id} has the events 1 to {head.seq}; `holdfast log {run_id}` lists them."
        raise missing
    first = [decode(record) for record in chained(store.read(run_id, limit=last))]
    if len(first) != last:
        raise LogDamaged(f"The head of run {run_id} says event {head.seq}, but its log ends at event {len(first)}.")
    with _new_log(store, new_id, world, redact) as log:
        state = log.record(*copied(first, run_id, last))
        if state.checkpoint_open is not None:
            why = f"it was being made by run {run_id}"
            state = log.record(CheckpointAbandoned(checkpoint_id=state.checkpoint_open, why=why))
    return Forked(new_id, run_id, last, state.seq, tuple(state.effects_open))


def copied(events: Sequence[Event], run_id: str, at: int) -> list[Event]:
    """The events of a fork: it names its origin, has heard no messages, and does not rest where the original did."""
    began = max((place for place, event in enumerate(events) if isinstance(event, RunResumed)), default=0)
    return [
        _own(event, run_id, at) for place, event in enumerate(events) if place < began or not isinstance(event, RESTS)
    ]


def _own(event: Event, run_id: str, at: int) -> Event:
    if isinstance(event, RunStarted):
        return msgspec.structs.replace(event, forked_from=run_id, forked_at=at)
    if isinstance(event, (QuestionAnswered, CancelRequested)):
        return msgspec.structs.replace(event, message_id=0)
    return event


def _new_log(store: Store, new_id: str, world: World, redact: Redact) -> RunLog:
    taken = BadInput(f"Run {new_id} is here already.", advice="Give the fork another id.")
    if store.head(new_id) is not None:
        raise taken
    log = RunLog(store, new_id, world, redact)
    if log.state.seq:
        log.close()
        raise taken
    return log

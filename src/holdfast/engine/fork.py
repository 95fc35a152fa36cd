"""A new run from the first events of another. The original is only read; the new log is written whole, or not at all.

The events are recorded anew, so chain, redaction and fold hold for the new run as for any other. What was done stays done,
under its own key. Of what was open the fork knows what the original found out later; the rest stays open. In the place of
the rest at which the original stood is one of its own, `forked`, from which it can go on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import msgspec

from holdfast.core.errors import BadInput, HoldfastError, LogDamaged, NotFound
from holdfast.core.events import (
    CancelRequested,
    CheckpointAbandoned,
    EffectFailed,
    EffectFinished,
    EffectSettled,
    EffectStarted,
    Event,
    QuestionAnswered,
    RunFinished,
    RunResumed,
    RunStarted,
    RunStopped,
)
from holdfast.core.ids import check_id
from holdfast.core.named import NamedTuple
from holdfast.core.shapes import HARMLESS, OPEN, RunState
from holdfast.core.state import fold
from holdfast.core.wire import Redact, decode
from holdfast.engine.log import RunLog, World, chained
from holdfast.ports import Record, Store

RESTS = (RunStopped, RunFinished, CancelRequested)

OfEffect = EffectStarted | EffectFinished | EffectFailed | EffectSettled


class Forked(NamedTuple):
    """`effects_after`: what the original began after the event, and is not known not to have done. The fork does it again."""

    run_id: str
    forked_from: str
    forked_at: int
    events: int
    effects_open: tuple[str, ...]
    effects_after: tuple[str, ...] = ()


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
    records = list(chained(store.read(run_id, limit=last)))
    first = [decode(record) for record in records]
    if len(first) != last:
        raise LogDamaged(f"The head of run {run_id} says event {head.seq}, but its log ends at event {len(first)}.")
    later = list(_of_effects(store, records[-1], head.seq - last))
    with _new_log(store, new_id, world, redact) as log:
        took = copied(first, run_id, last)
        state = log.record(*took, *outcomes(fold(took).effects_open, later), *_rest(fold(took), run_id, last))
    return Forked(new_id, run_id, last, state.seq, tuple(state.effects_open), tuple(begun(later)))


def copied(events: Sequence[Event], run_id: str, at: int) -> list[Event]:
    """The events of a fork: it names its origin, has heard no messages, and does not rest where the original did."""
    began = max((place for place, event in enumerate(events) if isinstance(event, RunResumed)), default=0)
    return [
        _own(event, run_id, at) for place, event in enumerate(events) if place < began or not isinstance(event, RESTS)
    ]


def _rest(state: RunState, run_id: str, at: int) -> Iterator[Event]:
    """How a fork ends: what another process was at is not there, and nobody was ever at work on it."""
    if state.checkpoint_open is not None:
        yield CheckpointAbandoned(checkpoint_id=state.checkpoint_open, why=f"it was being made by run {run_id}")
    yield RunStopped(reason="forked", diagnosis=f"Made of run {run_id} up to its event {at}; it has not gone on yet.")


def _of_effects(store: Store, last: Record, count: int) -> Iterator[OfEffect]:
    """What the original did to the world after that event, as far as its log can be read."""
    if count == 0:
        return
    try:
        for record in chained(store.read(last.run_id, after=last.seq, limit=count), last.hash, last.seq):
            if record.kind.startswith("effect_") and isinstance(event := decode(record), OfEffect):
                yield event
    except HoldfastError:
        return  # a fork from before the damage is a way out of it


def outcomes(keys: Collection[str], later: Sequence[OfEffect]) -> list[Event]:
    """What the original found out later about effects that were open. What only its own code gave up stays open."""
    left, done, found = set(keys), set[str](), list[Event]()
    for event in later:
        given_up = isinstance(event, EffectSettled) and event.by == "policy"
        if event.effect_key in (left | done) and not given_up:
            found.append(event)
            if isinstance(event, EffectFinished) or getattr(event, "settled_as", "") == "done":
                done.add(event.effect_key)  # only another receipt can follow
            elif not isinstance(event, EffectSettled) or event.settled_as not in OPEN:
                left.discard(event.effect_key)
    return found


def begun(later: Sequence[OfEffect]) -> list[str]:
    """The keys of what was begun, without what is known not to be done and what leaves no trace."""
    keys: dict[str, None] = {}
    for event in later:
        if isinstance(event, EffectStarted):
            if event.policy not in HARMLESS:
                keys[event.effect_key] = None
        elif isinstance(event, EffectFailed) or (isinstance(event, EffectSettled) and event.settled_as == "not_done"):
            keys.pop(event.effect_key, None)
    return list(keys)


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

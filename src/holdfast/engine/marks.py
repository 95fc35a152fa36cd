"""Checkpoints and gates of a live run: what `engine.checkpoints` records, with what the run already knows filled in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from holdfast.core.canonical import digest
from holdfast.core.checkpoint import BadCheckpoint, Conflict, ScopeRef, StepCheckpoint
from holdfast.core.strictness import Strictness, effective_strictness
from holdfast.engine import checkpoints
from holdfast.engine.book import Book, Part

Refs = Iterable[ScopeRef | tuple[str, str]]


class Marks:
    """The checkpoints of one run."""

    def __init__(self, book: Book, mission_id: str, inputs: Mapping[str, Any]) -> None:
        self._book = book
        self._mission_id = mission_id
        self._inputs = inputs

    def checkpoint(
        self,
        cursor: str,
        step_id: str | None,
        inputs: Mapping[str, Any] | None,
        scope_refs: Refs,
        strictness: Strictness | None,
        lifetime: float | None,
    ) -> Part:
        book = self._book
        yield from book.boundary()
        wanted = checkpoints.Context(
            mission_id=self._mission_id,
            step_id=step_id or cursor,
            inputs=dict(self._inputs if inputs is None else inputs),
            strictness=self._strictness(strictness),
            scope_refs=_refs(scope_refs),
            cursor=cursor,
        )
        record = partial(
            checkpoints.checkpoint,
            book.log,
            step_id=wanted.step_id,
            cursor=cursor,
            inputs=wanted.inputs,
            new_token=book.options.new_token,
            strictness=wanted.strictness,
            scope_refs=wanted.scope_refs,
            lifetime=lifetime,
        )
        return (yield partial(book.alone, lambda: self._made_before(wanted) or record()))

    def _still_good(self, step_id: str, cursor: str) -> StepCheckpoint | None:
        """The last checkpoint of a step, if it stands at the cursor and its token can still be used."""
        log, state = self._book.log, self._book.state
        event = checkpoints.event_of(log.store, state, step_id)
        if event is None or event.cursor != cursor or state.checkpoints[step_id].used:
            return None
        return None if checkpoints.is_expired(log, event) else checkpoints.loaded(log.store, log.run_id, event)

    def _made_before(self, wanted: checkpoints.Context) -> StepCheckpoint | None:
        """The last one, if it says the same: it is not written twice."""
        known = self._still_good(wanted.step_id, wanted.cursor or "")
        given = digest(checkpoints.redacted_inputs(self._book.log, wanted.inputs))
        now = (given, wanted.strictness, wanted.scope_refs)
        return known if known and (known.input_hash, known.strictness, known.scope_refs) == now else None

    def gate(
        self,
        cursor: str,
        conflicts: Sequence[Conflict],
        step_id: str | None,
        scope_refs: Refs,
        strictness: Strictness | None,
        lifetime: float | None,
    ) -> Part:
        book = self._book
        yield from book.boundary()
        context = checkpoints.Context(
            mission_id=self._mission_id,
            step_id=step_id or cursor,
            inputs=dict(self._inputs),
            strictness=self._strictness(strictness),
            scope_refs=_refs(scope_refs),
            cursor=cursor,
        )

        def pass_or_block() -> None:
            known = self._still_good(context.step_id, cursor)
            asked = msgspec.structs.replace(context, retry_token=known.retry_token if known else None)
            checkpoints.gate(book.log, conflicts, asked, new_token=book.options.new_token, lifetime=lifetime)

        yield partial(book.alone, pass_or_block)

    def _strictness(self, own: Strictness | None) -> Strictness:
        return effective_strictness(call=own, mission=self._book.options.strictness)


def _refs(refs: Refs) -> tuple[ScopeRef, ...]:
    try:
        return tuple(ref if isinstance(ref, ScopeRef) else ScopeRef(*ref) for ref in refs)
    except TypeError:
        raise BadCheckpoint("scope_refs", "must be pairs of a scope and its version") from None

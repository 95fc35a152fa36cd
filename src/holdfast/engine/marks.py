"""Checkpoints and gates of a live run: what `engine.checkpoints` records, with what the run already knows filled in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from holdfast.core.canonical import digest
from holdfast.core.checkpoint import Conflict, ScopeRef, Strictness
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
        name = step_id or cursor
        known = book.state.checkpoints.get(name)
        given = dict(self._inputs if inputs is None else inputs)
        clean = digest(checkpoints.redacted_inputs(book.log, given))
        if known is not None and (known.cursor, known.input_hash, known.used) == (cursor, clean, False):
            return checkpoints.load_latest(book.log.store, book.log.run_id, self._mission_id, name)
        record = partial(
            checkpoints.checkpoint,
            book.log,
            step_id=name,
            cursor=cursor,
            inputs=given,
            new_token=book.options.new_token,
            strictness=self._strictness(strictness),
            scope_refs=_refs(scope_refs),
            lifetime=lifetime,
        )
        return (yield partial(book.alone, record))

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
        pass_or_block = partial(
            checkpoints.gate, book.log, conflicts, context, new_token=book.options.new_token, lifetime=lifetime
        )
        yield partial(book.alone, pass_or_block)

    def _strictness(self, own: Strictness | None) -> Strictness:
        return self._book.options.strictness if own is None else Strictness(own)


def _refs(refs: Refs) -> tuple[ScopeRef, ...]:
    return tuple(ref if isinstance(ref, ScopeRef) else ScopeRef(*ref) for ref in refs)

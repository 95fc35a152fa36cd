"""What the code of a resumed run tells the log again on its way to where it stood. It is in the log, and is not told twice.

A step or effect has a name to be known by. What was spent and noted beside them has not, so it is known by what it says, in which
step, how often it was said before this process, and whether the code is still on its way.
"""

from __future__ import annotations

from collections import Counter
from itertools import takewhile
from threading import Lock

import msgspec

from holdfast.core.events import (
    BudgetSpent,
    EffectFinished,
    EffectSettled,
    EffectStarted,
    Event,
    NoteRecorded,
    StepFinished,
)
from holdfast.core.wire import decode
from holdfast.engine.book import Book
from holdfast.engine.drifting import without_kinds

_KINDS = frozenset(
    {"budget_spent", "note_recorded", "step_finished", "effect_started", "effect_finished", "effect_settled"}
)
_CLOSED = frozenset({"done", "abandoned"})


class Retelling:
    """Knows what earlier processes of this run told. Reads the log for it once, and only if it is asked."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._left: Counter[Event] | None = None
        self._done: set[str] = set()
        self._effects: set[str] = set()
        self._lock = Lock()

    def is_known(self, event: BudgetSpent | NoteRecorded) -> bool:
        """Whether an earlier process wrote this down, and this is the same once more."""
        book = self._book
        if not book.resumed or book.executed() is not None:  # what is done is not executed again
            return False
        with self._lock:
            if self._left is None:
                self._left = self._read()
            said = self._as_said(event)
            known = self._left[said] > 0 and self._is_on_its_way(event)
            self._left[said] -= known
            return known

    def _is_on_its_way(self, event: BudgetSpent | NoteRecorded) -> bool:
        """What names a step is told again if that step was done before, and not once more since; all else, also what names
        none that was begun, until this process begins something new.
        """
        step_id = getattr(event, "step_id", None)
        if step_id is None or not (step_id in self._effects or step_id in self._book.state.steps):
            return not self._book.anew
        return step_id in self._done and not self._is_done_anew(step_id)

    def _is_done_anew(self, step_id: str) -> bool:
        """Whether this process began it once more, because it is given something else now."""
        state, began = self._book.state, self._book.began_at
        step = state.steps.get(step_id)
        if step is not None:
            return step.seq > began
        begun = takewhile(lambda effect: effect.seq > began, reversed(state.effects.values()))
        return any(effect.step_id == step_id for effect in begun)

    def _as_said(self, event: Event) -> Event:
        """As it can be compared: without what is known as a secret now, or was when it was written down."""
        if not isinstance(event, NoteRecorded):
            return event
        return msgspec.structs.replace(event, text=without_kinds(self._book.redacted(event.text)))

    def _read(self) -> Counter[Event]:
        log, told, names = self._book.log, Counter[Event](), dict[str, str]()
        for record in log.store.read(log.run_id, limit=self._book.began_at):
            event = decode(record) if record.kind in _KINDS else None
            if isinstance(event, EffectStarted):
                names[event.effect_key] = event.step_id
            elif isinstance(event, EffectFinished) or (
                isinstance(event, EffectSettled) and event.settled_as in _CLOSED
            ):
                self._done.add(names[event.effect_key])
            elif isinstance(event, StepFinished):
                self._done.add(event.step_id)
            elif isinstance(event, (BudgetSpent, NoteRecorded)):
                told[self._as_said(event)] += 1
        self._effects.update(names.values())
        return told

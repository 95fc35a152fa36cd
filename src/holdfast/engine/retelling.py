"""What the code of a resumed run tells the log again on its way to where it stood. It is in the log, and is not told twice.

A step or effect has a name to be known by. What was spent and noted beside them has not, so it is known by what it says, how
often it was said before this process, and whether the code is still on its way.
"""

from __future__ import annotations

from collections import Counter
from threading import Lock

from holdfast.core.events import BudgetSpent, EffectFinished, EffectStarted, Event, NoteRecorded, StepFinished
from holdfast.core.wire import decode
from holdfast.engine.book import Book

_KINDS = frozenset({"budget_spent", "note_recorded", "step_finished", "effect_started", "effect_finished"})


class Retelling:
    """Knows what earlier processes of this run told. Reads the log for it once, and only if it is asked."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._left: Counter[Event] | None = None
        self._done: set[str] = set()
        self._lock = Lock()

    def is_known(self, event: BudgetSpent | NoteRecorded) -> bool:
        """Whether an earlier process wrote this down, and this is the same once more."""
        book = self._book
        if not book.resumed or book.executed() is not None:  # what is done is not executed again
            return False
        with self._lock:
            if self._left is None:
                self._left = self._read()
            known = self._left[event] > 0 and self._is_on_its_way(event)
            self._left[event] -= known
            return known

    def _is_on_its_way(self, event: BudgetSpent | NoteRecorded) -> bool:
        """What names a step is told again if that step was done before; all else, until this process begins something new."""
        step_id = getattr(event, "step_id", None)
        return step_id in self._done if step_id is not None else not self._book.anew

    def _read(self) -> Counter[Event]:
        log, told, names = self._book.log, Counter[Event](), dict[str, str]()
        for record in log.store.read(log.run_id, limit=self._book.began_at):
            event = decode(record) if record.kind in _KINDS else None
            if isinstance(event, EffectStarted):
                names[event.effect_key] = event.step_id
            elif isinstance(event, EffectFinished):
                self._done.add(names[event.effect_key])
            elif isinstance(event, StepFinished):
                self._done.add(event.step_id)
            elif event is not None:
                told[event] += 1
        return told

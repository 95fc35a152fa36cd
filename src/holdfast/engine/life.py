"""How a run begins, is watched, and comes to rest. Beginning and resuming are one thing: the log is longer, or it is not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import msgspec

from holdfast.core.canonical import digest
from holdfast.core.errors import LeaseLost, UsageError
from holdfast.core.events import DriftFound, EffectSettled, RunFinished, RunResumed, RunStarted, StepFailed
from holdfast.core.inputs import canonical_inputs
from holdfast.core.plain import check_text
from holdfast.core.shapes import FINISHED, HARMLESS, RUNNING, STOPPED
from holdfast.core.stops import is_resumable
from holdfast.core.values import Message
from holdfast.core.wire import decode
from holdfast.engine.book import Book, Part, reason_of
from holdfast.engine.budgets import Budgets
from holdfast.engine.drifting import Drifting, difference, read_artifact
from holdfast.engine.keeper import Keeper
from holdfast.engine.stopping import NotResumable, PlanChanged, Stopped
from holdfast.engine.waits import Waits


class Life:
    """The beginning and the end of one run in this process."""

    def __init__(
        self,
        book: Book,
        drifting: Drifting,
        waits: Waits,
        budgets: Budgets,
        mission_id: str,
        inputs: Mapping[str, Any],
        title: str,
    ) -> None:
        self._book = book
        self._drifting = drifting
        self._waits = waits
        self._budgets = budgets
        self._mission_id = mission_id
        self._inputs = inputs
        self._title = title
        self._keeper = Keeper(book.log, beside=self._listen)
        self.guard = self._keeper.check
        self._announce: Callable[[], Any] = lambda: None
        self._heard = self._heard_before = book.log.state.heard
        self._process = os.getpid()

    # --- watching

    def watch(self, announce: Callable[[], Any]) -> None:
        """Keep the lease, hear what others want, and let long steps be seen, all beside the run's own code."""
        self._announce = announce
        self._keeper.__enter__()

    def _listen(self) -> None:
        book = self._book
        if book.wish is None and (messages := book.log.store.messages(book.log.run_id, self._heard)):
            self._heard = messages[-1].id
            book.call(partial(self._hear, messages))
        self._announce()

    def _hear(self, messages: Sequence[Message]) -> Part:
        self._book.wish = None
        yield from self._waits.hear(messages)

    def failed(self, error: BaseException) -> None:
        """It did not even begin."""
        if isinstance(error, Stopped):
            self._book.options.tell(str(error))
        self.close()

    def close(self) -> None:
        if self._is_of_parent():
            return
        if self._keeper.running:
            self._keeper.__exit__()
        self._book.log.close()

    def _is_of_parent(self) -> bool:
        """Whether this is a forked child: the run and its lease are those of the process that forked it."""
        return os.getpid() != self._process

    # --- beginning

    def begin(self) -> Part:
        book, state = self._book, self._book.state
        if state.mission_id != self._mission_id:
            book.check_plain("The mission id", self._mission_id)
        self._budgets.begin()
        given = canonical_inputs(self._inputs)
        clean = book.log.redact.body(given) if self._inputs else given
        if state.seq == 0:
            yield from self._start(clean)
        else:
            yield from self._go_on(clean)
        book.began_at = book.state.seq

    def _go_on(self, clean: bytes) -> Part:
        book, state = self._book, self._book.state
        if state.mission_id != self._mission_id:
            raise UsageError(
                f"Run {state.run_id} belongs to mission {state.mission_id!r:.80}, not {self._mission_id!r:.80}."
            )
        book.resumed = True
        if state.status == FINISHED:
            return
        if state.status == STOPPED and state.stop_reason is not None and not is_resumable(state.stop_reason):
            raise NotResumable(state.run_id, f"it stopped for {state.stop_reason}, which is for good")
        if book.options.approved is not None:
            self._check_plan(book.options.approved)
        yield partial(book.record, RunResumed(epoch=book.log.lease.epoch, was=state.stop_reason or state.status))
        yield from self._waits.hear(book.log.store.messages(book.log.run_id, self._heard))
        yield from self._compare_inputs(clean)

    def _check_plan(self, approved: str) -> None:
        book = self._book
        plan_id = import_module("holdfast.core.plan").plan_id  # only `holdfast resume` has approved one
        if approved.partition(".")[0] != (present := plan_id(book.state, book.log.head)):
            raise PlanChanged(book.log.run_id, approved, present)
        book.approved = self._shown()

    def _shown(self) -> frozenset[tuple[str, ...]]:
        """The differences that its plan showed: those that were met since the run last went on."""
        log, met = self._book.log, list[tuple[str, ...]]()
        for record in log.store.read(log.run_id):
            if record.kind == "run_resumed":
                met.clear()
            elif record.kind == "drift_found" and isinstance(event := decode(record), DriftFound):
                met.append(difference(event))
        return frozenset(met)

    def _start(self, clean: bytes) -> Part:
        book = self._book
        check_text("The title of a run", self._title)
        started = RunStarted(
            mission_id=self._mission_id,
            title=self._title,
            input_hash=digest(clean),
            inputs=book.log.store.put_artifact(clean) if self._inputs else None,
            strictness=book.options.strictness,
        )
        yield partial(book.record, started)

    def _compare_inputs(self, clean: bytes) -> Part:
        state = self._book.state
        if state.input_hash is None or state.input_hash == digest(clean):
            return
        before = read_artifact(self._book, state.inputs) or {}
        if self._drifting.is_same(before, msgspec.json.decode(clean)):
            return
        now = self._book.log.store.put_artifact(clean)
        yield from self._drifting.of_inputs(before, msgspec.json.decode(clean), state.input_hash, now)

    # --- ending

    def end(self, error: BaseException | None, names: Iterable[str], announce: Part) -> Part:
        """Say how it ended, and first what still goes on. What was already said, or can no longer be, is left alone."""
        book, lost = self._book, self._keeper.lost
        if error is not None and self._is_of_parent():
            return  # a worker of its own ends in its own way
        if error is None and lost is not None:
            raise LeaseLost(lost.run_id, lost.epoch)
        if book.is_lost(error) or lost is not None:
            return
        if book.state.status == RUNNING:
            yield from announce
        if error is None:
            try:
                yield from self._finish(set(names))
            except Stopped as stop:
                book.options.tell(str(stop))
                raise
        else:
            yield from self._left_by(error)
        if book.state.heard > self._heard_before:
            book.log.store.drop_messages(book.log.lease, book.state.heard)

    def _left_by(self, error: BaseException) -> Part:
        """Its code is left: tell why it rests, or let it rest for this."""
        book = self._book
        if isinstance(error, Stopped) and error.run_id == book.log.run_id:
            book.options.tell(str(error))
        elif book.state.status == RUNNING:  # the stop of a run within this one, too: that has told of itself alone
            yield from book.stop(reason_of(error), book.said(error))
        elif book.state.status == STOPPED:  # by another thread or task, which may have told nobody
            book.options.tell(str(Stopped(book.log.run_id, book.state.stop_reason or "interrupted")))

    def _finish(self, names: set[str]) -> Part:
        book, state = self._book, self._book.state
        if state.status == STOPPED:
            raise Stopped(state.run_id, state.stop_reason or "interrupted")  # by another thread, which it has ended
        if state.status != RUNNING:
            return
        if book.resumed:
            yield from self._drifting.of_vanished(names)
        if state.effects_open:
            yield from self._leave_effects()
        left = [
            StepFailed(step_id=name, attempt=attempt, error="the code ended without it")
            for name, attempt in state.steps_open.items()
        ]
        yield partial(book.record, *left, RunFinished())

    def _leave_effects(self) -> Part:
        """The code ended without what it had begun: what leaves no trace is given up, and the rest a person has to settle."""
        book, state = self._book, self._book.state
        evidence = "the code ended without it, and it leaves no trace"
        given_up = [
            EffectSettled(effect_key=key, settled_as="abandoned", evidence=evidence, by="policy")
            for key in state.effects_open
            if state.effects[key].policy in HARMLESS
        ]
        if given_up:
            yield partial(book.record, *given_up)
        open_ones = [f"effect {key} is {status}" for key, status in book.state.effects_open.items()]
        if open_ones:
            raise (yield from book.stop("effect_unknown", *open_ones))

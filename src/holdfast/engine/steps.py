"""A step: run once, remembered by its name and what it was given, never by its position. Repeats no finished work.

A short step is one event, written when it has ended. One that takes longer is announced by the keeper meanwhile, so that
others see it; one that may be tried again is announced before it begins, so that its attempts are counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import msgspec

from holdfast.core.canonical import canonical_plain, digest
from holdfast.core.errors import HoldfastError, LeaseLost, UsageError
from holdfast.core.events import Event, StepFailed, StepFinished, StepStarted
from holdfast.core.retry import ONCE, Retry, as_retry, later, seconds_until
from holdfast.core.shapes import RUNNING, StepState
from holdfast.engine import forms
from holdfast.engine.book import Book, Part
from holdfast.engine.budgets import Budgets
from holdfast.engine.drifting import Drifting

LONG = 0.2  # seconds after which a step is announced while it runs
_SURELY_SMALL = 4096
_NUMBERS = frozenset({int, bool, float, type(None)})  # only text can hold a secret


class Call(NamedTuple):
    """A step as it is called now."""

    name: str
    work: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    retry: Retry
    arguments: Any
    input_hash: str
    declared: Any


class Going:
    """An attempt that is going on."""

    __slots__ = ("announced", "attempt", "began", "call", "since", "told")

    def __init__(self, call: Call, attempt: int, since: int) -> None:
        self.call = call
        self.attempt = attempt
        self.since = self.told = since
        self.began = time.monotonic()
        self.announced = False

    def since_if(self, now: int) -> int:
        """The event after which it began, if others have come since."""
        return 0 if now == self.since else self.since

    def start(self, now: int) -> StepStarted:
        self.told = self.since
        call = self.call
        return StepStarted(
            step_id=call.name,
            attempt=self.attempt,
            input_hash=call.input_hash,
            code_hash=forms.code_hash(call.work),
            arguments=call.arguments,
            since=self.since_if(now),
        )


class Steps:
    """The steps of one run."""

    def __init__(self, book: Book, drifting: Drifting, budgets: Budgets) -> None:
        self._book = book
        self._drifting = drifting
        self._budgets = budgets
        self._going: dict[str, Going] = {}

    def run(
        self,
        name: str,
        work: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        retry: Retry | int | None = None,
    ) -> Part:
        book = self._book
        if book.wish is not None:
            yield from book.boundary()
        book.claim(name)
        this = self._call(name, work, args, kwargs, retry)
        known = book.state.steps.get(name)
        if known is not None and known.status == "finished" and not (yield from self._drifting.of_step(this, known)):
            return self._replayed(this, known)
        return (yield from self._execute(this, known))

    def _call(
        self,
        name: str,
        work: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        retry: Retry | int | None,
    ) -> Call:
        what = f"step {name}"
        given = forms.given(what, work, args, kwargs)
        clean = canonical_plain(given)
        if not _NUMBERS.issuperset(map(type, given.values())):
            clean = self._book.log.redact.body(clean)
        arguments = given if len(clean) <= forms.MAX_ARGUMENTS else None
        declared = forms.declared_result(what, work)
        return Call(name, work, args, kwargs, as_retry(retry), arguments, digest(clean), declared)

    def _replayed(self, this: Call, known: StepState) -> Any:
        for going in list(self._going.values()):
            going.since = min(going.since, known.since or known.seq - 1)  # it may be one of theirs
        stored = known.output
        if known.artifact is not None:
            stored = msgspec.json.decode(self._book.log.store.get_artifact(known.artifact))
        return forms.read(f"step {this.name}", stored, this.declared)

    # --- executing

    def _execute(self, this: Call, known: StepState | None) -> Part:
        self._book.must_go_on()
        attempt = 1 if known is None else known.attempt + 1
        last = attempt - 1 + max(1, this.retry.attempts - attempt + 1)
        if known is not None and known.retry_at is not None:
            yield from wait_until(self._book, known.retry_at, this.retry.pause(known.attempt))
        while True:
            going = Going(this, attempt, self._book.state.seq)
            if this.retry is not ONCE or self._budgets.limited:
                yield from self._announce(going)
            self._going[this.name] = going
            try:
                with nullcontext() if this.retry is ONCE else self._book.trying():
                    value = yield partial(this.work, *this.args, **this.kwargs)
                form = forms.result(f"step {this.name}", value, this.declared)
            except Exception as error:
                again = yield from self._failed(going, error, attempt < last)
                if not again:
                    raise
                attempt += 1
            else:
                yield from self._finish(going, form)
                return form.seen
            finally:
                self._going.pop(this.name, None)

    def _announce(self, going: Going) -> Part:
        """Its attempts are counted, so this one is written down before it begins."""
        if self._budgets.limited:
            yield from self._budgets.check(attempts=1)
        going.announced = True
        yield partial(self._book.record, going.start(self._book.state.seq))

    def announce_long(self) -> Part:
        """Let others see what has been going on for a while."""
        for going in list(self._going.values()):
            if not going.announced and time.monotonic() - going.began > LONG:
                with self._book.lock:
                    if self._going.get(going.call.name) is going and self._book.state.status == RUNNING:
                        yield from self._announce_now(going)

    def _announce_now(self, going: Going) -> Part:
        going.announced = True
        try:
            yield partial(self._book.record, going.start(self._book.state.seq))
        except HoldfastError:
            going.announced = False  # its end, or the next look, says it then
            raise

    def _finish(self, going: Going, form: forms.Form) -> Part:
        body = (
            b"" if type(form.stored) is str and len(form.stored) < _SURELY_SMALL else msgspec.json.encode(form.stored)
        )
        output, artifact = form.stored, None
        if len(body) > forms.MAX_INLINE:
            forms.check_size(f"step {going.call.name}", body)
            output, artifact = None, self._book.log.store.put_artifact(self._book.log.redact.body(body))
        with self._book.lock:
            end = self._end(going, output, artifact)
        state = yield partial(self._book.record, end)
        if going.call.name not in state.steps:
            raise UsageError(
                "The name of a step holds a secret, so what it gave cannot be found again.", advice="Use another name."
            )

    def _end(self, going: Going, output: Any, artifact: str | None) -> StepFinished:
        this = going.call
        self._going.pop(this.name, None)
        if going.announced:
            since = going.since if going.since < going.told else 0
            return StepFinished(step_id=this.name, attempt=going.attempt, output=output, artifact=artifact, since=since)
        return StepFinished(
            step_id=this.name,
            attempt=going.attempt,
            output=output,
            artifact=artifact,
            input_hash=this.input_hash,
            code_hash=forms.code_hash(this.work),
            arguments=this.arguments,
            since=going.since_if(self._book.state.seq),
        )

    def _failed(self, going: Going, error: Exception, again: bool) -> Part:
        """Record the failure. True: it is to be tried again, and the time for that has come."""
        if isinstance(error, LeaseLost):
            raise error
        book, this = self._book, going.call
        retry_at = later(book.log.world.now(), this.retry.pause(going.attempt)) if again else None
        failed = StepFailed(step_id=this.name, attempt=going.attempt, error=book.said(error), retry_at=retry_at)
        with book.lock:
            self._going.pop(this.name, None)
            begun = going.announced or book.state.steps_open.get(this.name) == going.attempt
            events: list[Event] = [failed] if begun else [going.start(book.state.seq), failed]
        yield partial(book.record, *events)
        if retry_at is not None:
            yield from wait_until(book, retry_at, this.retry.pause(going.attempt))
        return again


def wait_until(book: Book, until: str, longest: float) -> Part:
    """Sleep in small pieces, so that a wish to stop is heard. A clock that is set back makes it no longer than `longest`."""
    end = time.monotonic() + longest
    while (left := min(seconds_until(book.log.world.now(), until), end - time.monotonic())) > 0:
        pause = min(left, 0.5)
        yield partial(book.sleep, pause)
        yield from book.boundary()

"""A step: run once, remembered by its name and what it was given, never by its position. Repeats no finished work.

A short step is one event, written when it has ended. One that takes longer is announced by the keeper meanwhile, so that
others see it; one that may be tried again is announced before it begins, so that its attempts are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from time import monotonic
from types import MethodType
from typing import Any

import msgspec

from holdfast.core.canonical import canonical_plain
from holdfast.core.errors import HoldfastError
from holdfast.core.events import Event, StepFailed, StepFinished, StepStarted
from holdfast.core.retry import ONCE, Retry, as_retry, later, seconds_until
from holdfast.core.sha import hexdigest
from holdfast.core.shapes import RUNNING, StepState
from holdfast.engine import forms
from holdfast.engine.book import Book, Part, Within
from holdfast.engine.budgets import Budgets
from holdfast.engine.drifting import Drifting

LONG = 0.2  # seconds after which a step is announced while it runs
TURN = 0.005
_SURELY_SMALL = 4096
_NUMBERS = frozenset({int, bool, float, type(None)})  # only text can hold a secret


class Call(msgspec.Struct, eq=False):
    """A step as it is called now, what was `known` of it then, and the attempt at it that is going on."""

    name: str
    work: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    retry: Retry
    arguments: Any
    input_hash: str
    code_hash: str | None
    declared: Any
    known: StepState | None
    attempt: int = 1
    since: int = 0
    told: int = 0
    began: float = 0.0
    live: bool = False
    announced: bool = False

    def begin(self, seq: int) -> None:
        """An attempt begins, after this event."""
        self.since = self.told = seq
        self.began = monotonic()
        self.live = True
        self.announced = False

    def start(self, now: int) -> StepStarted:
        self.told = self.since
        return StepStarted(
            step_id=self.name,
            attempt=self.attempt,
            input_hash=self.input_hash,
            code_hash=self.code_hash,
            arguments=self.arguments,
            since=0 if now == self.since else self.since,  # if others have come since
        )


class Steps:
    """The steps of one run. A face calls `called`; what is not done it does itself where that is `usual`, else `run` does."""

    def __init__(self, book: Book, drifting: Drifting, budgets: Budgets) -> None:
        self._book = book
        self._drifting = drifting
        self._budgets = budgets
        self._going: dict[str, Call] = {}
        self._last: tuple[Any, forms.Shape] = (None, forms.Shape((), None, None))  # most steps are of the same function

    def called(
        self,
        name: str,
        work: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        retry: Retry | int | None,
    ) -> tuple[Call | None, Any]:
        """One use of the name, and what the step is given; or None, and what it gave where it is done and nothing else is to do.

        Refuses what could not be stored. A resumed run comes by here with every step that is done.
        """
        known = self._book.claim(name, work, 2)  # called by a face of the run, which its code calls
        last = self._last
        if last[0] is not work and not (type(work) is MethodType is type(last[0]) and last[0] == work):
            forms.check_begun(f"step {name}", work, self._book.awaits)
            last = self._last = (work, forms.shape_of(work))
        names, declared, code_hash = last[1]
        glance = None if kwargs else forms.at_a_glance(names, args)
        arguments: Any
        arguments, clean, has_text = glance or _closer(name, names, args, kwargs)
        if has_text:
            clean = self._book.log.redact.body(clean)
        if type(declared) is str:
            raise forms.Unstorable(f"The result of step {name}", declared)
        given = hexdigest(clean)
        if (
            known is not None
            and known.status == "finished"
            and known.input_hash == given
            and known.code_hash == code_hash
            and retry is None
            and self._book.wish is None
            and not self._budgets.limited
        ):
            plain = declared is None and type(known.output) is str and not self._going
            return None, known.output if plain else self.done(name, declared, known)
        if len(clean) > forms.MAX_ARGUMENTS:
            arguments = None
        tries = ONCE if retry is None else as_retry(retry)
        return Call(name, work, args, kwargs, tries, arguments, given, code_hash, declared, known), None

    def usual(self, this: Call) -> bool:
        """True: it begins, and is one event when it ends. False: there is more to it, see `run`."""
        book = self._book
        if book.wish is not None or this.retry is not ONCE or self._budgets.limited or this.known is not None:
            return False
        with book.lock:
            state = book.log.state
            if this.name in state.steps:
                return False  # it was begun meanwhile, by another thread
            if state.status != RUNNING:
                return False
            book.guard()
            book.anew = True
            if self._going.setdefault(this.name, this) is not this:
                return False
            this.begin(state.seq)
        return True

    def run(self, this: Call) -> Part:
        """Whatever it takes: stop, wait, ask, announce, try again, or find that it is done."""
        book = self._book
        if book.wish is not None:
            yield from book.boundary()
        while self._going.setdefault(this.name, this) is not this:
            yield partial(book.sleep, TURN)  # an earlier try of the step around it has left it going on
            book.guard()
            yield from book.boundary()
        try:
            return (yield from self._done_or_executed(this))
        finally:
            self.leave(this)

    def _done_or_executed(self, this: Call) -> Part:
        known = self._book.state.steps.get(this.name)
        if known is not None and known.status == "finished" and not (yield from self._drifting.of_step(this, known)):
            return self.done(this.name, this.declared, self._book.state.steps[this.name])
        return (yield from self._execute(this, known))

    def done(self, name: str, declared: Any, known: StepState) -> Any:
        """What it gave when it was done."""
        if self._going:
            self.recalled(known.since or known.seq - 1)
        if known.artifact is None:
            stored = forms.again(known.output)
        else:
            stored = msgspec.json.decode(self._book.log.store.get_artifact(known.artifact))
        if declared is None:
            return stored
        try:
            return forms.read(f"step {name}", stored, declared)
        except forms.Unstorable as error:
            raise forms.BadResult(name, stored, error.problem) from None

    def recalled(self, begun: int) -> None:
        """What began after this event is done, and asked for again: it may be part of each that is going on."""
        for going in list(self._going.values()):
            going.since = min(going.since, begun)

    # --- executing

    def _execute(self, this: Call, known: StepState | None) -> Part:
        self._book.must_go_on()
        this.attempt = 1 if known is None else known.attempt + 1
        last = this.attempt - 1 + max(1, this.retry.attempts - this.attempt + 1)
        if known is not None and known.retry_at is not None:
            yield from wait_until(self._book, known.retry_at, this.retry.pause(known.attempt))
        spare = _spare(this)
        while True:
            this.begin(self._book.state.seq)
            if this.retry is not ONCE or self._budgets.limited:
                yield from self._announce(this)
            try:
                with Within(self._book, this.name), nullcontext() if this.retry is ONCE else self._book.trying():
                    value = yield partial(this.work, *this.args, **this.kwargs)
                form = forms.result(f"step {this.name}", value, this.declared)
            except Exception as error:
                again = yield from self.failed(this, error, this.attempt < last)
                if not again:
                    raise
                this.args, this.kwargs = spare()
                this.attempt += 1
            else:
                yield partial(self._book.record, self.ending(this, form))
                return form.seen
            finally:
                this.live = False

    def leave(self, this: Call) -> None:
        """Its end is on record, or never will be: whoever waits for it may look."""
        this.live = False
        self._going.pop(this.name, None)

    def _announce(self, going: Call) -> Part:
        """Its attempts are counted, so this one is written down before it begins."""

        def announce() -> Any:
            going.announced = True
            return self._book.record(going.start(self._book.state.seq))

        if self._budgets.limited:
            yield from self._budgets.begin_attempt(going.name, going.attempt, announce)
        else:
            yield announce

    def announce_long(self, seconds: float = LONG) -> Part:
        """Let others see what has been going on for a while."""
        for going in list(self._going.values()):
            if not going.announced and monotonic() - going.began >= seconds:
                with self._book.lock:
                    if going.live and self._book.state.status == RUNNING:
                        yield from self._announce_now(going)

    def _announce_now(self, going: Call) -> Part:
        going.announced = True
        try:
            yield partial(self._book.record, going.start(self._book.state.seq))
        except HoldfastError:
            going.announced = False  # its end, or the next look, says it then
            raise

    def ending(self, this: Call, form: forms.Form) -> StepFinished:
        """The event that ends it, to be recorded next."""
        this.live = False
        book, output, artifact = self._book, form.stored, None
        body = b"" if type(output) is str and len(output) < _SURELY_SMALL else msgspec.json.encode(output)
        if len(body) > forms.MAX_INLINE:
            forms.check_size(f"step {this.name}", body)
            output, artifact = None, book.log.store.put_artifact(book.log.redact.body(body))
        with book.lock:  # if it was just being announced, that is known now
            now = book.log.state.seq
        name, attempt, since = this.name, this.attempt, this.since
        if this.announced:
            return StepFinished(name, attempt, output, artifact, since=since if since < this.told else 0)
        others = 0 if now == since else since  # if others have come since
        return StepFinished(name, attempt, output, artifact, this.input_hash, this.code_hash, this.arguments, others)

    def failed(self, this: Call, error: Exception, again: bool = False) -> Part:
        """Record the failure. True: it is to be tried again, and the time for that has come."""
        book = self._book
        if book.is_lost(error):
            raise error
        retry_at = later(book.log.world.now(), this.retry.pause(this.attempt)) if again else None
        failed = StepFailed(step_id=this.name, attempt=this.attempt, error=book.said(error), retry_at=retry_at)
        with book.lock:
            this.live = False
            begun = this.announced or book.state.steps_open.get(this.name) == this.attempt
            events: list[Event] = [failed] if begun else [this.start(book.state.seq), failed]
        yield partial(book.record, *events)
        if retry_at is not None:
            yield from wait_until(book, retry_at, this.retry.pause(this.attempt))
        return again


def _closer(
    name: str, names: tuple[str, ...], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[dict[str, Any], bytes, bool]:
    """What a step is given, by name, its canonical form, and whether it can hold a secret. Refuses what is not plain data."""
    given = forms.named("step " + name, names, args, kwargs)
    clean = canonical_plain(given)
    if _NUMBERS.issuperset(map(type, given.values())):
        return given, clean, False
    return forms.kept(given), clean, True


def _spare(this: Call) -> Callable[[], tuple[tuple[Any, ...], Mapping[str, Any]]]:
    """What every further try is given: what the first one was, whatever that did to it. A restart gives it the same."""
    if this.retry is ONCE:
        return lambda: (this.args, this.kwargs)
    kept = forms.copied(this.args, this.kwargs)
    return lambda: forms.copied(*kept)


def wait_until(book: Book, until: str, longest: float) -> Part:
    """Sleep in small pieces, so that a wish to stop is heard. A clock that is set back makes it no longer than `longest`."""
    end = monotonic() + longest
    while (left := min(seconds_until(book.log.world.now(), until), end - monotonic())) > 0:
        pause = min(left, 0.5)
        yield partial(book.sleep, pause)
        yield from book.boundary()

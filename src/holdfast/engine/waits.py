"""Questions, sleeps and wishes to cancel: all in the log, so that the process may end and another goes on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from holdfast.core.errors import HoldfastError, IllegalEvent, UsageError
from holdfast.core.events import (
    CancelRequested,
    QuestionAnswered,
    QuestionAsked,
    QuestionExpired,
    SleepEnded,
    SleepStarted,
)
from holdfast.core.plain import check_text
from holdfast.core.retry import later, seconds_until
from holdfast.core.shapes import QuestionState
from holdfast.core.values import Message
from holdfast.engine.book import Book, Part
from holdfast.engine.drifting import Drifting
from holdfast.engine.steps import wait_until

CANCEL, ANSWER = "cancel", "answer"
_GRACE = 0.01  # seconds that whoever waits for an answer waits longer, so that the deadline has passed by every clock
LONGEST_STAY = 60.0  # seconds that a sleeping run keeps its process; for longer it leaves, and is resumed


class AnswerLate(HoldfastError):
    """Nobody answered in time."""

    reason = "deadline_passed"
    advice = "It cannot be answered any more: give it a `default`, or ask under another name, and resume."

    def __init__(self, question_id: str, text: str) -> None:
        super().__init__(f"Nobody answered {question_id} in time: {text:.120}")
        self.question_id = question_id


def read_answer(message: Message) -> QuestionAnswered | None:
    try:
        question_id, answer, by = msgspec.json.decode(message.body, type=tuple[str, str, str])
    except msgspec.DecodeError:
        return None
    return QuestionAnswered(question_id=question_id, answer=answer, by=by, message_id=message.id)


class Waits:
    """What one run waits for."""

    def __init__(self, book: Book, drifting: Drifting) -> None:
        self._book = book
        self._drifting = drifting

    # --- questions

    def ask(
        self, text: str, choices: Sequence[str], name: str | None, timeout: float | None, default: str | None
    ) -> Part:
        book = self._book
        yield from book.boundary()
        check_text("A question", text)
        begins = text[:80]
        if not name:  # half a secret has no shape to be known by
            book.check_plain("The name", begins if book.redacted(text).startswith(begins) else text)
        question_id = name or _first_line(begins)
        book.claim(question_id)
        known = book.state.questions.get(question_id)
        if known is None:
            _check_choices(choices, default)
            deadline = None if timeout is None else later(book.log.world.now(), timeout)
            asked = QuestionAsked(question_id=question_id, text=text, choices=tuple(choices), deadline=deadline)
            known = (yield partial(book.record, asked)).questions[question_id]
        while _is_open(known):
            yield from self._wait(question_id)
            known = book.state.questions[question_id]
        if known.answer is not None:
            yield from self._fits(question_id, known, text, choices)
            return known.answer
        if default is None:
            raise AnswerLate(question_id, text)
        return default

    def _wait(self, question_id: str) -> Part:
        """Until somebody says something here, somebody calls this run from elsewhere, or time has run out.

        What was left for this run by then came first.
        """
        book = self._book
        calls, known = book.calls, book.state.questions[question_id]
        said = None if self._is_late(known) else self._said(known)
        yield from book.boundary()
        yield from self.hear(book.log.store.messages(book.log.run_id, book.state.heard))
        known = book.state.questions[question_id]
        if not _is_open(known):
            return
        if self._is_late(known):
            yield from self._take(QuestionExpired(question_id=question_id))
        elif said is not None:
            yield from self._take(QuestionAnswered(question_id=question_id, answer=said, by="terminal"))
        elif book.calls == calls:
            raise (yield from book.stop("awaiting_answer", f"question {question_id}", known.text, *known.choices))

    def _said(self, known: QuestionState) -> str | None:
        """What somebody says now; None if nobody is there, time has run out, or somebody calls meanwhile."""
        book, prompt = self._book, self._book.options.prompt
        left = None if known.deadline is None else seconds_until(book.log.world.now(), known.deadline) + _GRACE
        said = prompt(known.text, known.choices, left, book.listener()) if prompt is not None else None
        if said is not None:
            check_text("An answer", said)
        return said

    def _take(self, said: QuestionAnswered | QuestionExpired) -> Part:
        """Write it down, unless the question was answered or expired before."""
        book = self._book
        if _is_open(book.state.questions[said.question_id]):
            try:
                yield partial(book.record, said)
            except IllegalEvent:
                if _is_open(book.state.questions[said.question_id]):
                    raise  # else another thread or task was faster

    def _is_late(self, known: QuestionState) -> bool:
        now = self._book.log.world.now()
        return known.expired or (known.deadline is not None and seconds_until(now, known.deadline) <= 0)

    def _fits(self, question_id: str, known: QuestionState, text: str, choices: Sequence[str]) -> Part:
        """An answer is for what was asked. For anything else under that name it counts only where that is accepted."""
        now = [self._book.redacted(text), *map(self._book.redacted, choices)]
        yield from self._drifting.of_question(question_id, known, now)
        if choices and known.answer not in now[1:]:
            raise UsageError(
                f"The answer {known.answer!r:.80} to {question_id} is none of its choices now.",
                advice="Give the new question another name.",
            )

    # --- sleeping

    def sleep(self, seconds: float, name: str, stay: float, reason: str = "sleeping") -> Part:
        book = self._book
        yield from book.boundary()
        book.claim(name)
        until = book.state.sleeps.get(name, "")
        if until is None:
            return
        if until == "":
            until = later(book.log.world.now(), seconds)
            yield partial(book.record, SleepStarted(sleep_id=name, until=until))
        if min(seconds_until(book.log.world.now(), until), seconds) > stay:
            raise (yield from book.stop(reason, f"until {until}"))
        with book.sleeping():
            yield from wait_until(book, until, seconds)
        yield partial(book.record, SleepEnded(sleep_id=name))

    # --- wishes of others

    def hear(self, messages: Sequence[Message]) -> Part:
        """Take in what others left for this run. What makes no sense to it is passed over."""
        book = self._book
        for message in messages:
            if message.kind == CANCEL:
                requested = CancelRequested(by=book.short(message.body), message_id=message.id)
                raise (yield from book.stop("cancelled", requested.by, first=(requested,)))
            if message.kind == ANSWER and (answer := read_answer(message)) is not None:
                known = book.state.questions.get(answer.question_id)
                if known is not None and _can_answer(known, answer.answer):
                    yield from self._take(answer)


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _is_open(known: QuestionState) -> bool:
    return known.answer is None and not known.expired


def _can_answer(known: QuestionState, text: str) -> bool:
    return _is_open(known) and (text in known.choices if known.choices else text != "")


def _is_word(choice: object) -> bool:
    return isinstance(choice, str) and choice != ""


def _check_choices(choices: object, default: str | None) -> None:
    """A set has another order in every process, and a generator can be read once."""
    if isinstance(choices, str) or not isinstance(choices, Sequence) or not all(map(_is_word, choices)):
        raise UsageError("The choices of a question are a list of texts.", advice="Write ['yes', 'no'].")
    if default is not None and choices and default not in choices:
        raise UsageError(f"The default {default!r:.80} is not one of the choices.")

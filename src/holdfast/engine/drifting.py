"""What a run does when its code meets a log that says otherwise: compare, ask or refuse, and write down what was decided."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from holdfast.core.canonical import canonical, digest_of
from holdfast.core.drift import CHOICES, STOP, VERDICTS, policy_for
from holdfast.core.events import (
    Drift,
    DriftFound,
    EffectFinished,
    EffectSettled,
    EffectStarted,
    StepFinished,
    StepStarted,
    Verdict,
)
from holdfast.core.inputs import compute_input_diff, short_hash
from holdfast.core.named import Protocol
from holdfast.core.shapes import FINISHED, EffectState, QuestionState, StepState
from holdfast.core.values import Record
from holdfast.core.wire import decode
from holdfast.engine.book import Book, Part

_OF_EFFECTS = frozenset({"effect_started", "effect_finished", "effect_settled"})
SHOWN = 12  # changed keys that a question lists


class Called(Protocol):
    """A step as it is called now."""

    @property
    def name(self) -> str: ...
    @property
    def arguments(self) -> Any: ...
    @property
    def input_hash(self) -> str: ...
    @property
    def code_hash(self) -> str | None: ...


class Deed(Protocol):
    """An effect as it is called now."""

    @property
    def name(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def arguments(self) -> Any: ...
    @property
    def arguments_hash(self) -> str: ...
    @property
    def act(self) -> partial[Any]: ...
    @property
    def code_hash(self) -> str | None: ...


_SECRET = re.compile(r"(?<=\[redacted):[a-z0-9_]+(?=\])")  # of what kind a secret was said to be


class Drifting:
    """The drift of one run."""

    def __init__(self, book: Book) -> None:
        self._book = book

    def of_step(self, this: Called, known: StepState) -> Part:
        """True: the step must run again, because it is given something else now and that was accepted."""
        if known.input_hash not in (None, this.input_hash) and not self.was_given(known.seq, this.arguments):
            lines = changed_lines(self._as_kept(self._given_before(known.seq)), self._as_kept(this.arguments))
            yield from self.met("arguments", this.name, str(known.input_hash), this.input_hash, lines)
            return True
        code = this.code_hash
        if known.code_hash is not None and code is not None and known.code_hash != code:
            yield from self.met("code", this.name, known.code_hash, code, [f"the source of step {this.name} changed"])
        return False

    def of_effect(self, this: Deed, known: EffectState, key: str) -> Part:
        """It was done with other arguments, or under another key. Returns if it may be done with these as well."""
        if known.arguments_hash == this.arguments_hash:
            lines = [f"its key: {key} -> {this.key}"]
            yield from self.met("arguments", this.name, digest_of(key), digest_of(this.key), lines)
            return
        lines = changed_lines(self._as_kept(self._given_before(known.seq)), self._as_kept(this.arguments))
        yield from self.met("arguments", this.name, known.arguments_hash, this.arguments_hash, lines)

    def of_act(self, this: Deed, known: EffectState) -> Part:
        """It is done, and stays so. What we ship for effects changes with us, and is not the code of the run."""
        was, now = known.code_hash, this.code_hash
        if was is None or now is None or was == now or _is_ours(this.act.func):
            return
        yield from self.met("code", this.name, was, now, [f"the source of effect {this.name} changed"])

    def of_question(self, question_id: str, known: QuestionState, now: Sequence[str]) -> Part:
        """It was answered. Returns if what is asked now, its text and its choices, is the same, or was accepted for it."""
        was = [known.text, *known.choices]
        before, present = digest_of(was), digest_of(now)
        if was != now and known.accepted != short_hash(present):
            lines = changed_lines(*({"question": text, "choices": choices} for text, *choices in (was, now)))
            yield from self.met("arguments", question_id, before, present, lines)

    def of_inputs(self, before: Any, now: Any, was: str, new: str) -> Part:
        yield from self.met("inputs", "the run", was, new, changed_lines(before, now))

    def of_vanished(self, claimed: Collection[str]) -> Part:
        state, log = self._book.state, self._book.log
        done = {known.step_id: known.seq for known in state.effects.values() if known.status == "done"}
        steps, effects = ([name for name in known if name not in claimed] for known in (state.steps, done))
        if not steps and not effects:
            return
        spans = [(step.since, step.ended) for name, step in state.steps.items() if name in claimed and step.since]
        spans += effect_spans(log.store.read(log.run_id), claimed)
        for name in vanished({name: _span(state.steps[name]) for name in steps}, spans):
            lines = [f"step {name} is in the log, and the code no longer runs it"]
            yield from self.met("vanished", name, "", "", lines)
        for name in vanished({name: (done[name] - 1, done[name]) for name in effects}, spans):
            lines = [f"effect {name} is done, and the code no longer asks for it"]
            yield from self.met("vanished", name, "", "", lines)

    def met(
        self, drift: Drift, subject: str, was: str, now: str, lines: Sequence[str], *, approved: bool = False
    ) -> Part:
        """Decide by policy; write down what was decided; go on, or raise the stop. `approved`: it was in an approved plan."""
        book = self._book
        policy = policy_for(drift, book.options.strictness, book.options.policies)
        found = DriftFound(drift=drift, subject=subject, verdict="go", was=short_hash(was), now=_kept(drift, now))
        if not approved and book.options.approved is not None and not book.options.accept and policy in ("warn", "ask"):
            # what the plan showed goes on, and of all else nobody knew who approved it
            verdict, by = "go" if difference(found) in book.approved else "refuse", "the approved plan"
        else:
            verdict, by = self._verdict("go" if approved else VERDICTS[policy], drift, subject, was, now, lines)
        found = msgspec.structs.replace(found, verdict=verdict, by=by)
        if verdict != "go" or policy == "ask":
            book.must_go_on()
        if verdict != "go":
            said = (f"{subject}: {drift}", *lines[:SHOWN], *CHOICES.get(drift, ()))
            raise (yield from book.stop(STOP[drift], *said, first=(found,)))
        if policy == "warn":
            book.options.tell(f"{subject}: {'; '.join(lines[:SHOWN])}")
        if book.state.status != FINISHED:
            yield partial(book.record, found)

    def _verdict(
        self, verdict: Verdict, drift: Drift, subject: str, was: str, now: str, lines: Sequence[str]
    ) -> tuple[Verdict, str]:
        options = self._book.options
        if verdict != "ask":
            return verdict, "policy"
        if options.accept:
            return "go", "yes"
        if options.confirm is None:
            return "refuse", "nobody to ask"
        title = f"{subject}: {drift} changed ({short_hash(was)} -> {short_hash(now)}). Go on with what it is now?"
        return (
            ("go", "asked")
            if options.confirm(title, [self._book.redacted(line) for line in lines]) is True  # words are no yes
            else ("refuse", "asked")
        )

    def was_given(self, seq: int, arguments: Any) -> bool:
        """Whether an event says the same arguments, and only what is known as a secret was other then."""
        return self.is_same(self._given_before(seq), arguments)

    def is_same(self, before: Any, now: Any) -> bool:
        both = (before, now)
        return None not in both and len({without_kinds(self._clean(given).decode()) for given in both}) == 1

    def _clean(self, arguments: Any) -> bytes:
        return self._book.log.redact.body(canonical(arguments))

    def _as_kept(self, arguments: Any) -> Any:
        return None if arguments is None else msgspec.json.decode(self._clean(arguments))

    def _given_before(self, seq: int) -> Any:
        """What the step was given then, from the event that says so."""
        log = self._book.log
        record = next(log.store.read(log.run_id, after=seq - 1, limit=1), None)
        event = None if record is None else decode(record)
        return event.arguments if isinstance(event, (StepStarted, StepFinished, EffectStarted)) else None


def difference(found: DriftFound) -> tuple[str, ...]:
    """What differs, and from what, whoever decided about it."""
    return found.drift, found.subject, found.was, found.now


def without_kinds(text: str) -> str:
    """Redacted text, whatever kind of secret was taken out."""
    return _SECRET.sub("", text)


def vanished(gone: Mapping[str, tuple[int, int]], spans: Collection[tuple[int, int]]) -> list[str]:
    """Of what is no longer asked for: what went on within something whose end is on record may be its own, and is not missed."""
    return [
        name for name, (begun, last) in gone.items() if not any(since <= begun and last < end for since, end in spans)
    ]


def _span(step: StepState) -> tuple[int, int]:
    """The event after which it began, and the last that is known of it."""
    return step.since or step.seq - 1, max(step.seq, step.ended)


def effect_spans(records: Iterable[Record], claimed: Collection[str]) -> list[tuple[int, int]]:
    """From where to where the effects of these names went on: their code is not executed again, nor what it asked for."""
    begun, spans = dict[str, int](), list[tuple[int, int]]()
    for record in records:
        event = decode(record) if record.kind in _OF_EFFECTS else None
        if isinstance(event, EffectStarted) and event.step_id in claimed:
            begun.setdefault(event.effect_key, record.seq)
        elif isinstance(event, (EffectFinished, EffectSettled)) and event.effect_key in begun:
            spans.append((begun[event.effect_key], record.seq))
    return spans


def _is_ours(act: Any) -> bool:
    return str(getattr(act, "__module__", "")).startswith("holdfast.")


def _kept(drift: Drift, now: str) -> str:
    return now if drift == "inputs" else short_hash(now)


def changed_lines(before: Any, now: Any) -> list[str]:
    """One line for each key that changed: old and new."""
    if not isinstance(before, dict) or not isinstance(now, dict):
        return ["what it was given before was too large to keep, so only the hashes can be compared"]
    changes = compute_input_diff(before, now)
    return [f"{key}: {change.old} -> {change.new}" for key, change in changes.items()]


def read_artifact(book: Book, digest: str | None) -> Any:
    return None if digest is None else msgspec.json.decode(book.log.store.get_artifact(digest))

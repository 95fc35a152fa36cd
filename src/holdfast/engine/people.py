"""What people do to a run from outside: look at what it would do, settle, answer, cancel. Never does the run's own work.

A run that nobody holds is written under a lease of the moment. One that a live process holds is left alone: to answer and
to cancel is then to leave it a message, and to settle is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from holdfast.core import gates
from holdfast.core.errors import BadInput, HoldfastError, LeaseHeld, NotFound, UsageError
from holdfast.core.events import (
    CancelRequested,
    CheckpointAbandoned,
    DriftFound,
    EffectSettled,
    Event,
    QuestionAnswered,
    RunResumed,
    SettledAs,
)
from holdfast.core.named import NamedTuple
from holdfast.core.plain import check_plain
from holdfast.core.plan import Plan, plan_id, resume_plan
from holdfast.core.retry import seconds_until
from holdfast.core.rules import PERSON
from holdfast.core.shapes import FINISHED, STOPPED, QuestionState, RunState
from holdfast.core.state import evolve
from holdfast.core.stops import is_resumable, snippet
from holdfast.core.subjects import is_imported
from holdfast.core.wire import GENESIS, Redact, decode
from holdfast.engine.log import RunLog, World, chained, check_reached
from holdfast.engine.stopping import stopped
from holdfast.engine.waits import ANSWER, CANCEL
from holdfast.ports import Message, Store

NO_REASON = "a person asked for it"
SHOWN = 5  # names that an error lists


class NoAnswer(BadInput):
    """What was said cannot be the answer to the question."""

    advice = "Nothing was written. `holdfast resume RUN --plan` shows what is asked."


class NotOpen(BadInput):
    advice = (
        "Only an effect that was started and has no known outcome can be settled. Of one that is done, `--done "
        "--receipt JSON` replaces the receipt, if it is named in full."
    )

    def __init__(self, effect_key: str, status: str) -> None:
        super().__init__(f"Effect {effect_key!r:.120} is not open: it is {status}.")
        self.effect_key = effect_key


class Ambiguous(UsageError):
    reason = "ambiguous_id"

    def __init__(self, what: str, found: Sequence[str], advice: str) -> None:
        shown = ", ".join(f"{name!r:.120}" for name in found[:SHOWN]) + (", ..." if len(found) > SHOWN else "")
        super().__init__(f"More than one {what}: {shown}.", advice=advice)
        self.found = tuple(found)


class TooLate(HoldfastError):
    reason = "deadline_passed"
    advice = "Nothing was written. A resumed run goes on with its default, or says that nobody answered."

    def __init__(self, question_id: str, deadline: str) -> None:
        super().__init__(f"Question {question_id!r:.120} had to be answered by {deadline}.")
        self.question_id = question_id


class Ended(HoldfastError):
    reason = "not_resumable"
    advice = "Nothing was written; there is nothing left to cancel."

    def __init__(self, run_id: str, how: str) -> None:
        super().__init__(f"Run {run_id} has ended already: {how}.")
        self.run_id = run_id


class Look(NamedTuple):
    """What a resume would do now, the name of exactly that, and the messages it would hear first."""

    plan: Plan
    plan_id: str
    messages: tuple[Message, ...]
    has_workspaces: bool = False


class Told(NamedTuple):
    """What became of a wish: the state after it was recorded, or the message that a live process will hear."""

    state: RunState | None
    message_id: int | None = None


def look(store: Store, run_id: str) -> Look:
    """The plan of a run, from its proven log. Writes nothing."""
    reached, state, head = store.head(run_id), RunState(run_id=run_id), GENESIS
    drift: list[DriftFound] = []
    known: dict[str, gates.Gate] = {}
    for record in chained(store.read(run_id)):
        event = decode(record)
        evolve(state, event)
        head = record.hash
        gates.see(known, event)
        if isinstance(event, RunResumed):
            drift.clear()
        elif isinstance(event, DriftFound):
            drift.append(event)
    check_reached(reached, state)
    if state.seq == 0:
        raise NotFound("run", run_id)
    messages = tuple(store.messages(run_id, state.heard))
    return Look(resume_plan(state, drift, known.values()), plan_id(state, head), messages, has_workspaces(state))


def has_workspaces(state: RunState) -> bool:
    """Whether there are repositories to look at. A run of Runr was in one, although its log here has not seen it yet."""
    return bool(state.repositories) or is_imported(state.run_id, state.mission_id)


# --- settle


def settle(
    store: Store,
    run_id: str,
    effect: str,
    settled_as: SettledAs,
    world: World,
    redact: Redact,
    *,
    evidence: str = "",
    receipt: Any = None,
) -> tuple[str, RunState]:
    """Record what a person says became of an open effect: its key, and the state after that. Raises LeaseHeld.

    A checkpoint whose making nobody saw the end of is settled by its id.
    """
    with RunLog(store, run_id, world, redact) as log:
        making = log.state.checkpoint_open
        if making is not None and effect not in log.state.effects and effect and making.startswith(effect):
            return making, log.record(_given_up(making, settled_as, evidence))
        key = find_effect(log.state, effect, again=settled_as == "done" and receipt is not None)
        said = EffectSettled(effect_key=key, settled_as=settled_as, evidence=evidence, by=PERSON, receipt=receipt)
        return key, log.record(said)


def _given_up(checkpoint_id: str, settled_as: SettledAs, evidence: str) -> CheckpointAbandoned:
    if settled_as != "not_done":
        raise BadInput(
            f"Checkpoint {checkpoint_id} is taken anew, whatever became of it.",
            advice="Say --not-done: what is committed already is not committed again.",
        )
    return CheckpointAbandoned(checkpoint_id=checkpoint_id, why=evidence or "a person said that it is to be taken anew")


def find_effect(state: RunState, text: str, *, again: bool = False) -> str:
    """The key of the open effect that `text` names: by its key, its step, or the beginning of either if it is the only one.

    With `again` also of one that is done, if its key or its step is named in full.
    """
    steps = {key: effect.step_id for key, effect in state.effects.items()}
    whole = [text] if text in steps else [key for key, step in steps.items() if step == text]
    found = [key for key in whole if key in state.effects_open]
    if not found and again:
        found = [key for key in whole if state.effects[key].status == "done"]
    if not found and text not in steps:
        found = [key for key in state.effects_open if text and (key.startswith(text) or steps[key].startswith(text))]
    if len(found) > 1:
        raise Ambiguous(f"open effect fits {text!r:.120}", found, "Give the whole key.")
    if not found:
        raise _no_effect(state, text, whole)
    return found[0]


def _no_effect(state: RunState, text: str, closed: Sequence[str]) -> HoldfastError:
    if closed:
        return NotOpen(closed[-1], state.effects[closed[-1]].status)
    missing = NotFound("open effect", text)
    missing.advice = f"`holdfast resume {state.run_id} --plan` names those that are open."
    return missing


# --- answer


def answer(
    store: Store, run_id: str, question_id: str, text: str, world: World, redact: Redact, by: str = PERSON
) -> Told:
    """Record an answer, or leave it for the live process that asked."""
    check_plain([question_id, text, by])
    said = QuestionAnswered(question_id=question_id, answer=text, by=by)
    body = redact.body(msgspec.json.encode((question_id, text, by))).decode()
    return _tell(store, run_id, world, redact, lambda log: [said], ANSWER, body)


def open_questions(state: RunState) -> dict[str, QuestionState]:
    return {name: asked for name, asked in state.questions.items() if asked.answer is None and not asked.expired}


def find_question(state: RunState, text: str | None) -> str:
    """The open question that `text` names or begins, or the only one there is."""
    known = open_questions(state)
    found = [name for name in known if name == text] or [
        name for name in known if text is None or name.startswith(text)
    ]
    if len(found) > 1:
        fits = "question is open" if text is None else f"open question fits {text!r:.120}"
        raise Ambiguous(fits, found, "Say which with --question ID.")
    if not found:
        raise _no_question(state, text)
    return found[0]


def _no_question(state: RunState, text: str | None) -> HoldfastError:
    asked = state.questions.get(text) if text is not None else None
    if asked is not None:
        return NoAnswer(f"Question {text!r:.120} is already answered or has expired.")
    missing = NotFound("open question of run", state.run_id) if text is None else NotFound("open question", text)
    missing.advice = f"`holdfast resume {state.run_id} --plan` names those that are open."
    return missing


def check_answer(question_id: str, asked: QuestionState, text: str, now: str) -> None:
    """Refuse an answer that is empty, too late, or none of the choices."""
    if not text:
        raise NoAnswer("An answer is at least one character.")
    if asked.choices and text not in asked.choices:
        raise NoAnswer(f"{text!r:.120} is not one of the answers: {', '.join(asked.choices)}.")
    if asked.deadline is not None and seconds_until(now, asked.deadline) <= 0:
        raise TooLate(question_id, asked.deadline)


# --- cancel


def cancel(store: Store, run_id: str, because: str, world: World, redact: Redact) -> Told:
    """End a run for good: at once if nobody holds it, else at the next boundary of the process that does."""
    check_plain([because])
    head = store.head(run_id)
    if head is None:
        raise NotFound("run", run_id)
    check_goes_on(run_id, head.projection.status, head.projection.stop_reason)
    clean: str = msgspec.json.decode(redact.body(msgspec.json.encode([because or NO_REASON])))[0]
    said = snippet(clean)
    return _tell(store, run_id, world, redact, lambda log: _cancelled(log, said), CANCEL, said)


def _cancelled(log: RunLog, because: str) -> list[Event]:
    state = log.state
    check_goes_on(state.run_id, state.status, state.stop_reason)
    events: list[Event] = [CancelRequested(by=because), stopped("cancelled", because)]
    if state.status == STOPPED:
        events.insert(0, RunResumed(epoch=log.lease.epoch, was=state.stop_reason or STOPPED))
    return events


def check_goes_on(run_id: str, status: str, stop_reason: str | None) -> None:
    """Refuse a run that has ended for good."""
    if status == FINISHED:
        raise Ended(run_id, "it is finished")
    if stop_reason is not None and not is_resumable(stop_reason):
        raise Ended(run_id, f"it stopped for {stop_reason}")


def _tell(
    store: Store,
    run_id: str,
    world: World,
    redact: Redact,
    events: Callable[[RunLog], Sequence[Event]],
    kind: str,
    body: str,
) -> Told:
    try:
        log = RunLog(store, run_id, world, redact)
    except LeaseHeld:
        return Told(None, store.post(run_id, kind, body))
    with log:
        return Told(log.record(*events(log)))

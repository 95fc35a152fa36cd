"""Performs what `core.moves` decides: record the intent, act, record the outcome. Never guesses what became of an effect.

Resume is start with a longer log: `run` is the only way in, and there is one loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.core.canonical import digest_of
from holdfast.core.errors import LeaseLost, TooLarge, UsageError
from holdfast.core.events import (
    EffectFailed,
    EffectFinished,
    EffectSettled,
    EffectStarted,
    Event,
    Policy,
    RunFinished,
    RunResumed,
    RunStarted,
    RunStopped,
    StepFailed,
    StepFinished,
    StepStarted,
)
from holdfast.core.moves import REMEDIES, Begin, Finish, Move, Rest, Settle, next_move, remedy
from holdfast.core.named import NamedTuple
from holdfast.core.plain import check_plain
from holdfast.core.state import FINISHED, FREE, EffectState, RunState
from holdfast.core.stops import snippet
from holdfast.core.values import Answer
from holdfast.core.wire import Redact
from holdfast.engine.effects import as_answer, evidence_of
from holdfast.engine.log import RunLog
from holdfast.engine.stopping import stopped

MAX_INLINE = 16 * 1024
MAX_OUTPUT = 16 * 1024 * 1024
UNSUPPORTED: frozenset[Policy] = frozenset({"transactional"})


class Effect(NamedTuple):
    """Something done to the world. `act` gets the key and returns a receipt; `probe` gets the key and looks."""

    key: str
    act: Callable[[str], Any]
    policy: Policy = "once"
    probe: Callable[[str], Answer] | None = None
    arguments: Any = None


Step = Effect | Callable[[], Any]


def _nothing() -> None:
    return None


class Runner:
    """One run and the steps of its plan. `guard` raises LeaseLost when this process may no longer act."""

    def __init__(self, log: RunLog, steps: Mapping[str, Step], guard: Callable[[], None] = _nothing) -> None:
        self.log = log
        self.steps = steps
        self._guard = guard
        self._perform: dict[type[Move], Callable[[Any], None]] = {
            Settle: self._settle,
            Begin: self._begin,
            Finish: self._finish,
        }

    def run(self, mission_id: str, title: str = "") -> RunState:
        """Start the run, or go on where its log ends, until it rests. The state says how it rests."""
        self._open(mission_id, title)
        since = 0
        while not isinstance(move := next_move(self.log.state, since), Rest):
            since = move.place if isinstance(move, Begin) else since
            self._perform[type(move)](move)
        return self.log.state

    def _open(self, mission_id: str, title: str) -> None:
        check_steps(self.steps)
        check_names(self.steps, self.log.redact)
        state = self.log.state
        if state.seq == 0:
            self.log.record(RunStarted(mission_id=mission_id, title=title, plan=tuple(self.steps)))
            return
        check_plan(state, mission_id, self.steps)
        if state.status != FINISHED:
            self.log.record(RunResumed(epoch=self.log.lease.epoch, was=state.stop_reason or state.status))

    # --- the moves

    def _begin(self, move: Begin) -> None:
        step = self.steps[move.step_id]
        started = StepStarted(step_id=move.step_id, attempt=move.attempt)
        if isinstance(step, Effect):
            self._begin_effect(started, step)
        else:
            self._compute(started, step)

    def _finish(self, move: Finish) -> None:
        self.log.record(RunFinished())

    def _compute(self, started: StepStarted, work: Callable[[], Any]) -> None:
        self.log.record(started)
        try:
            output = plain(work())
        except Exception as error:  # noqa: BLE001 - a step may raise anything, and what it raised is recorded
            self.log.record(*step_failed(started.step_id, started.attempt, self._said(error)))
        else:
            self.log.record(self._finished(started.step_id, started.attempt, output))

    def _begin_effect(self, started: StepStarted, effect: Effect) -> None:
        arguments_hash = digest_of(effect.arguments)
        known = self.log.state.effects.get(effect.key)
        if known is not None and (known.step_id, known.arguments_hash) != (started.step_id, arguments_hash):
            self.log.record(stopped("effect_key_reused", *evidence_of(effect.key, known)))
        elif known is not None and known.status not in FREE:
            self.log.record(started, self._finished(started.step_id, started.attempt, known.receipt))
        else:
            intent = EffectStarted(
                effect_key=effect.key, step_id=started.step_id, policy=effect.policy, arguments_hash=arguments_hash
            )
            self.log.record(started, intent)
            self._act(effect)

    def _settle(self, move: Settle) -> None:
        known = self.log.state.effects[move.effect_key]
        effect = self._effect_of(move.effect_key, known)
        if effect is None:
            answer = Answer("unknown", "the step that started it is not what it was")
            self._record_answer(move.effect_key, answer)
        elif remedy(known.policy, effect.policy, effect.probe is not None) == "again":
            self._act(effect)
        else:
            self._record_answer(move.effect_key, ask(effect))

    # --- acting

    def _act(self, effect: Effect) -> None:
        """Do it. The intent is on record, and so will be the outcome, as far as it is known."""
        self._guard()
        try:
            receipt = plain(effect.act(effect.key), MAX_INLINE)
        except LeaseLost:
            raise
        except Exception as error:  # noqa: BLE001 - an effect may raise anything, and that does not say it was not done
            self._record_failure(effect, error)
        else:
            finished = EffectFinished(effect_key=effect.key, receipt=receipt)
            self.log.record(finished, *self._end_of_step(effect.key, receipt))

    def _said(self, error: Exception) -> str:
        return self._short(f"{type(error).__name__}: {error}")

    def _short(self, text: str) -> str:
        """Redacted first, shortened then: half a secret has no shape to be known by."""
        whole = text.encode("utf-8", "backslashreplace").decode()
        clean = msgspec.json.decode(self.log.redact.body(msgspec.json.encode({"text": whole})), type=dict[str, str])
        return snippet(clean["text"])

    def _record_failure(self, effect: Effect, error: Exception) -> None:
        known = self.log.state.effects[effect.key]
        if remedy(known.policy, effect.policy, effect.probe is not None) == "again":
            failed = EffectFailed(effect_key=effect.key, error=self._said(error))
            self.log.record(failed, *self._failure_of_step(known, error))
            return
        answer = ask(effect)
        if answer.settled_as == "not_done":
            settled = EffectSettled(effect_key=effect.key, settled_as="not_done", evidence=self._short(answer.evidence))
            self.log.record(settled, *self._failure_of_step(known, error))
        else:
            self._record_answer(effect.key, answer._replace(evidence=f"{self._said(error)}; {answer.evidence}"))

    def _record_answer(self, key: str, answer: Answer) -> None:
        evidence = self._short(answer.evidence)
        events: list[Event] = [EffectSettled(effect_key=key, settled_as=answer.settled_as, evidence=evidence)]
        if answer.settled_as == "done":
            events += self._end_of_step(key, answer.receipt)
        if answer.settled_as == "unknown":
            events.append(stopped("effect_unknown", *evidence_of(key, self.log.state.effects[key]), evidence))
        self.log.record(*events)

    # --- what follows for the step

    def _effect_of(self, key: str, known: EffectState) -> Effect | None:
        step = self.steps.get(known.step_id)
        same = isinstance(step, Effect) and (step.key, digest_of(step.arguments)) == (key, known.arguments_hash)
        return step if isinstance(step, Effect) and same else None

    def _end_of_step(self, key: str, receipt: Any) -> list[Event]:
        step_id = self.log.state.effects[key].step_id
        attempt = self.log.state.steps_open.get(step_id)
        return [] if attempt is None else [self._finished(step_id, attempt, receipt)]

    def _failure_of_step(self, known: EffectState, error: Exception) -> Sequence[Event]:
        attempt = self.log.state.steps_open.get(known.step_id)
        both = step_failed(known.step_id, attempt or 0, self._said(error))
        return both if attempt is not None else both[1:]

    def _finished(self, step_id: str, attempt: int, output: Any) -> StepFinished:
        body = msgspec.json.encode(output)
        if len(body) <= MAX_INLINE:
            return StepFinished(step_id=step_id, attempt=attempt, output=output)
        artifact = self.log.store.put_artifact(self.log.redact.body(body))
        return StepFinished(step_id=step_id, attempt=attempt, artifact=artifact)


def check_steps(steps: Mapping[str, Step]) -> None:
    """Refuse, before anything is written, what this runner cannot keep its word about."""
    for step_id, step in steps.items():
        if isinstance(step, Effect) and (step.policy not in REMEDIES or step.policy in UNSUPPORTED):
            raise UsageError(f"Step {step_id} has an effect with policy {step.policy!r:.40}, which cannot be run here.")
        if isinstance(step, Effect) and step.policy == "probed" and step.probe is None:
            raise UsageError(f"The effect of step {step_id} is declared as probed but has no probe.")


def check_names(steps: Mapping[str, Step], redact: Redact) -> None:
    """A name that redaction would change could not be found again after a crash."""
    for step_id, step in steps.items():
        for name in (step_id, step.key) if isinstance(step, Effect) else (step_id,):
            said = msgspec.json.encode({"name": name})
            if redact.body(said) != said:
                raise UsageError(
                    "The name of a step or the key of an effect holds a secret.", advice="Use another name."
                )


def check_plan(state: RunState, mission_id: str, steps: Mapping[str, Step]) -> None:
    """A longer log must be the log of these steps."""
    if state.mission_id != mission_id:
        raise UsageError(f"Run {state.run_id} belongs to mission {state.mission_id!r:.80}, not {mission_id!r:.80}.")
    if state.plan != tuple(steps):
        differ = sorted(set(state.plan) ^ set(steps)) or ["their order"]
        raise UsageError(
            f"Run {state.run_id} was started with another plan; what differs: {', '.join(differ[:5])}.",
            advice="Resume it with the steps it was started with, or start a new run.",
        )


def ask(effect: Effect) -> Answer:
    """What the probe says. No probe, or a probe that fails, knows nothing."""
    if effect.probe is None:
        return Answer("unknown", "there is no probe that could look")
    try:
        answer = as_answer(effect.probe(effect.key))
        plain(answer.receipt, MAX_INLINE)
    except Exception as error:  # noqa: BLE001 - whatever a probe raises, the outcome is unknown and is recorded as such
        return Answer("unknown", f"the probe failed: {type(error).__name__}: {error}")
    return answer


def plain(value: Any, limit: int = MAX_OUTPUT) -> Any:
    """The value, if it is plain data that can be kept."""
    check_plain(value)
    size = len(msgspec.json.encode(value))
    if size > limit:
        raise TooLarge("The result", size, limit, advice="Write it to a file and give back its path.")
    return value


def step_failed(step_id: str, attempt: int, error: str) -> tuple[StepFailed, RunStopped]:
    """Both in one append: a run that stops for a failed step has no moment in which it would simply try again."""
    failed = StepFailed(step_id=step_id, attempt=attempt, error=error)
    return failed, stopped("step_failed", f"step {step_id}", error)

"""What a resume would do, row by row, as a pure answer to a state. Never looks at the world, a clock or anybody's code.

So it says what the log decides: a finished step is replayed, an open effect goes by its recorded policy. Whether the code
still asks for the same things is found out when it runs, and recorded as drift.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from holdfast.core.canonical import digest
from holdfast.core.events import DriftFound, Policy, Verdict
from holdfast.core.gates import Gate
from holdfast.core.ids import COMMAND, SPEC
from holdfast.core.moves import REMEDIES
from holdfast.core.named import NamedTuple
from holdfast.core.shapes import (
    FINISHED,
    OPEN,
    READY,
    RUNNING,
    STOPPED,
    EffectState,
    QuestionState,
    RunState,
    StepState,
    WorkspaceState,
)
from holdfast.core.stops import is_resumable, lookup, snippet

RowKind = Literal["step", "effect", "question", "sleep", "checkpoint", "gate"]
RowMove = Literal["replay", "run", "settle", "ask", "blocked", "wait", "left"]

ID_LENGTH = 16
FEW = 3
SETTLEMENTS = ("--done", "--not-done", "--abandon")
_NEEDS_A_PERSON = ("blocked", "ask")
_REST: dict[str, str] = {RUNNING: "interrupted", FINISHED: "complete"}

# What a resume does with an effect whose outcome is on record.
_CLOSED: dict[str, tuple[RowMove, str]] = {
    "done": ("replay", "it is done"),
    "abandoned": ("replay", "it was given up, and is not done"),
    "failed": ("run", "it failed, and is done again, with the same key and arguments"),
    "not_done": ("run", "it was never done, and is done now, with the same key and arguments"),
}


class Row(NamedTuple):
    """What becomes of one step, effect, question, sleep, checkpoint or gate."""

    kind: RowKind
    name: str
    move: RowMove
    reason: str


class Plan(NamedTuple):
    """All that a resume would do. `drift`: what was found since the run last began or was resumed."""

    run_id: str
    mission_id: str
    seq: int
    verdict: Verdict
    why: str
    stop_reason: str
    diagnosis: str
    rows: tuple[Row, ...]
    drift: tuple[DriftFound, ...] = ()


def resume_plan(state: RunState, drift: Sequence[DriftFound] = (), gates: Iterable[Gate] = ()) -> Plan:
    changed = frozenset(found.subject for found in drift if found.drift == "arguments" and found.verdict == "refuse")
    rows = (*_rows(state, changed), *(row for gate in gates for row in _of_gate(state, gate)))
    verdict, why = _verdict(state, rows)
    rows = tuple(map(_left, rows)) if verdict == "refuse" else rows
    reason = state.stop_reason or _REST.get(state.status, "")
    diagnosis = state.diagnosis or (lookup(reason).sentence if reason else "")
    return Plan(state.run_id, state.mission_id, state.seq, verdict, why, reason, diagnosis, rows, tuple(drift))


def plan_id(state: RunState, head: bytes) -> str:
    """The name of exactly this plan. `head` is the hash of the last event, so any new event gives another name.

    Gates and drift come from the log alone, so it names them too.
    """
    content = (state.run_id, state.seq, head.hex(), tuple(_rows(state)))
    return digest(b"holdfast/plan/1\n" + msgspec.json.encode(content))[:ID_LENGTH]


def next_command(plan: Plan) -> str:
    """The one command that leads on."""
    if plan.verdict == "refuse":
        return command("fork", plan.run_id)
    alone = plan.verdict == "ask" or plan.mission_id.startswith(SPEC)
    return command("resume", plan.run_id) + ("" if alone else " -- COMMAND")


def command(verb: str, *words: str) -> str:
    """A command as it can be typed."""
    return shlex.join(["holdfast", verb, *words])


def settle_commands(run_id: str, effect_key: str) -> tuple[str, ...]:
    """The commands that say what became of an effect: it was done, it was not, it is given up.

    A key that no terminal shows as it is cannot be typed, and has to be looked up.
    """
    return tuple(command("settle", run_id, settled, *_typed(effect_key)) for settled in SETTLEMENTS)


def replace_command(run_id: str, effect_key: str) -> str:
    """The command that puts another receipt in the place of the one on record."""
    return command("settle", run_id, "--done", "--receipt", "JSON", *_typed(effect_key))


def _typed(effect_key: str) -> tuple[str, ...]:
    shown = effect_key if effect_key.isprintable() else "EFFECT"
    return ("--", shown) if shown.startswith("-") else (shown,)


def answer_commands(run_id: str, question_id: str, question: QuestionState) -> tuple[str, ...]:
    """A command for each of a few answers to choose from; else the one that asks for the answer."""
    named = (run_id, *([f"--question={question_id}"] if question_id.isprintable() else []))
    typed = [choice for choice in question.choices if choice and choice.isprintable()]
    if not 1 <= len(question.choices) == len(typed) <= FEW:
        return (command("answer", *named),)
    return tuple(
        command("answer", *named, *(("--", choice) if choice.startswith("-") else (choice,)))
        for choice in question.choices
    )


def _verdict(state: RunState, rows: Sequence[Row]) -> tuple[Verdict, str]:
    if state.status == READY:
        return "refuse", "it has not begun"
    if state.status == FINISHED:
        return "refuse", "it is finished"
    if state.stop_reason is not None and not is_resumable(state.stop_reason):
        return "refuse", f"it stopped for {state.stop_reason}, which is for good"
    left = [row for row in rows if row.move in _NEEDS_A_PERSON]
    if left:
        return "ask", "a person is needed for " + _listed([f"{row.kind} {row.name}" for row in left])
    if state.status == STOPPED and lookup(state.stop_reason or "").family == "drift":
        return "ask", "the world had changed, and is compared again"
    waits = [row for row in rows if row.move == "wait"]
    return "go", _listed([f"{row.kind} {row.name} has to wait" for row in waits]) or "nothing stands in its way"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _rows(state: RunState, changed: Collection[str] = ()) -> Iterator[Row]:
    """`changed`: what the code gave other arguments when it last met the log, which nobody has accepted yet."""
    last = {effect.step_id: key for key, effect in state.effects.items()}
    for name, step in state.steps.items():
        yield _if_accepted(Row("step", name, *_of_step(step)), name in changed)
    for name in state.plan:
        if name not in state.steps:
            yield Row("step", name, "run", "attempt 1: it has not begun")
    for key, effect in state.effects.items():
        is_changed = effect.step_id in changed and last[effect.step_id] == key
        yield _if_accepted(Row("effect", key, *_of_effect(state, key, effect)), is_changed)
    yield from _of_command(state)
    for name, question in state.questions.items():
        yield Row("question", name, *_of_question(state.run_id, name, question))
    for name, until in state.sleeps.items():
        yield Row("sleep", name, *(("replay", "it is over") if until is None else ("wait", f"until {until}")))
    for name, made in state.workspaces.items():
        yield Row("checkpoint", name, *_of_workspace(made))


def _if_accepted(row: Row, is_changed: bool) -> Row:
    """What is done is done again for other arguments, once these are accepted: `--approve` does so for what is shown."""
    if not is_changed or row.move != "replay":
        return row
    return row._replace(
        move="ask", reason=f"{row.reason}; given something else now, it is done anew if that is accepted"
    )


def _left(row: Row) -> Row:
    """The same in a run that has ended. What became of an effect that nobody knows can still be said."""
    if row.move == "replay" or (row.kind, row.move) == ("effect", "blocked"):
        return row
    return row._replace(move="left", reason="it stays as it is: the run has ended")


def _of_step(step: StepState) -> tuple[RowMove, str]:
    if step.status == "finished":
        return "replay", f"attempt {step.attempt} finished it"
    following = f"attempt {step.attempt + 1}"
    if step.status == "reopened":
        return "run", f"{following}: it is given something else now, which was accepted"
    if step.status != "failed":
        return "run", f"{following}: attempt {step.attempt} has no end"
    failed = f"attempt {step.attempt} failed: {snippet(step.error or 'no reason is known')}"
    if step.retry_at is not None:
        return "wait", f"{following} not before {step.retry_at}: {failed}"
    return "run", f"{following}: {failed}"


def _of_effect(state: RunState, key: str, effect: EffectState) -> tuple[RowMove, str]:
    move, why = _CLOSED[effect.status] if effect.status not in OPEN else _of_open(state, key, effect)
    return move, f"of step {effect.step_id}: {why}"


def _of_command(state: RunState) -> Iterator[Row]:
    """`holdfast run -- COMMAND` begins another attempt when all that it began are over and none was a success."""
    begun = [*state.effects.values()] if state.mission_id.startswith(COMMAND) else []
    if not begun or state.status == FINISHED or any(effect.status not in ("done", "abandoned") for effect in begun):
        return
    last = begun[-1]
    code = last.receipt.get("exit_code") if isinstance(last.receipt, Mapping) else None
    if last.status == "abandoned" or code:
        ended = f"ended with exit code {code}" if code else "was given up"
        yield Row(
            "effect", command_name(len(begun) + 1), "run", f"the attempt before it {ended}: the command runs again"
        )


def command_name(attempt: int) -> str:
    """What an attempt of `holdfast run -- COMMAND` is called."""
    return "command" if attempt == 1 else f"command ({attempt})"


def _of_open(state: RunState, key: str, effect: EffectState) -> tuple[RowMove, str]:
    policy: Policy = effect.policy
    say_it = "say it: " + _choice([f"`{line}`" for line in settle_commands(state.run_id, key)])
    if REMEDIES[policy][False] == "again":
        again = f"it is {policy}, so it is done again with the same key"
        return "run", f"{again}; if the code no longer does it, {say_it}" if _is_stuck(state) else again
    if policy == "probed":
        asked = "decides" if effect.status == "started" else f"could not say, and is asked again; else {say_it}"
        return "settle", f"its probe {asked}"
    return "blocked", f"nobody knows what became of it; {say_it}"


def _is_stuck(state: RunState) -> bool:
    """It came to rest because of an effect, and perhaps would again."""
    return state.stop_reason is not None and lookup(state.stop_reason).family == "effect"


def _of_workspace(made: WorkspaceState) -> tuple[RowMove, str]:
    what = "a snapshot" if made.index is None else f"milestone {made.index}"
    if made.complete:
        return "replay", f"{what}, {snippet(made.title)}: it is complete"
    return "settle", f"{what}, {snippet(made.title)}: it was begun; what was made of it decides"


def _of_gate(state: RunState, gate: Gate) -> Iterator[Row]:
    blocked, name = gate.blocked, gate.blocked.step_id
    known = state.checkpoints.get(name)
    if known is not None and known.used:
        return  # what it had blocked has come to its end
    many = "1 conflict" if blocked.conflicts == 1 else f"{blocked.conflicts} conflicts"
    closed = f"closed by {many}, at strictness {snippet(blocked.strictness)}"
    if not gate.is_closed:
        yield Row("gate", name, "run", f"it was {closed}; it decides again")
        return
    lost = "" if blocked.resumable else "; no checkpoint was written, so its step begins anew"
    yield Row("gate", name, "blocked", f"it is {closed}; deal with them, then it decides again{lost}")


def _choice(words: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _of_question(run_id: str, name: str, question: QuestionState) -> tuple[RowMove, str]:
    if question.answer is not None:
        return "replay", "it is answered"
    if question.expired:
        return "replay", "nobody answered it in time"
    offered = f" ({' / '.join(question.choices)})" if question.choices else ""
    until = f", until {question.deadline}" if question.deadline else ""
    lines = [f"`{line}`" for line in answer_commands(run_id, name, question)]
    return "ask", f"{snippet(question.text)}{offered}{until}; answer it: {_choice(lines)}"

"""What the next person or agent needs when a run is at rest: stop.json and a short page. Pure; its texts are shown as data.

Whatever came from an agent, a task or a file stands inside a fence or a code span that it cannot leave, so it can forge
neither a heading nor a command. Secrets are hidden before texts come here.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from itertools import groupby
from typing import Any

from holdfast.core.diagnosis import Diagnosis
from holdfast.core.ids import SPEC, is_id
from holdfast.core.named import NamedTuple
from holdfast.core.plan import answer_commands, command, settle_commands
from holdfast.core.shapes import RunState
from holdfast.core.signal_table import OUTCOMES
from holdfast.core.stop_table import Stop
from holdfast.core.stops import lookup, next_actions, snippet

SCHEMA_VERSION = 1
MOST_ACTIONS = 3
MOST_LINES = 12
MOST_ARTIFACTS = 6
MOST_ROWS = 12
_STEMS = {"complete": "complete"}
_DIGEST = re.compile(r"-[0-9a-f]{8}$")  # at the end of the mission of a spec whose name is no id

# What each verb is good for when a run is at rest: a title, and why.
_VERBS = {
    "resume": ("Go on", "It continues where the log ends; what is finished is not done again."),
    "show": ("Look at the run", "It shows what is done, what is open and what the stop said."),
    "status": ("Look around", "It lists every run here and who holds it."),
    "log": ("Read the log", "It shows what happened, event by event."),
    "answer": (
        "Answer it",
        "The run asked, and goes on with the answer; a terminal is asked for one that is not there.",
    ),
    "settle": ("Say what became of the effect", "Nobody recorded it, and doing it twice could harm."),
    "run": ("Begin a new run", "It takes the spec and the files as they are now; the old run stays as it is."),
    "fork": ("Begin anew from here", "This run has ended for good; a fork keeps what it finished."),
    "doctor": ("Check the set-up", "It names what is wrong with the store or its mirrors."),
    "verify": ("Prove the log", "It names the first event that is not what was written."),
    "export": ("Keep a copy", "It writes the whole run to one file."),
    "stops": ("Read about this reason", "It explains the reason and what follows from it."),
    "trust": (
        "Look at the commands and accept them",
        "The files of the repository name commands that nobody accepted yet.",
    ),
}
_PLAN = ("See what comes next", "It shows the plan and the command that goes on, and starts nothing.")


class Action(NamedTuple):
    title: str
    command: str
    why: str


class Context(NamedTuple):
    """Where the run stood, as far as whoever drives it knows. `artifacts`: name -> digest or path. `at`: the time now."""

    at: str
    batch: str = ""
    task: str = ""
    phase: str = ""
    last_lines: tuple[str, ...] = ()
    artifacts: Mapping[str, str] = {}
    progress: Mapping[str, int] = {}


class Handoff(NamedTuple):
    """All of it. `resume_command` is None for a run that does not go on; `resumes_at` is when what it waits for is due."""

    run_id: str
    title: str
    outcome: str
    stop: Stop
    diagnosis: Diagnosis
    actions: tuple[Action, ...]
    resume_command: str | None
    resumes_at: str | None
    context: Context


def handoff(state: RunState, diagnosis: Diagnosis, context: Context) -> Handoff:
    stop = lookup(diagnosis.code)
    return Handoff(
        state.run_id,
        state.title,
        OUTCOMES.get(stop.family, "stopped"),
        stop,
        diagnosis,
        tuple(_action(state, text) for text in commands(state, stop)[:MOST_ACTIONS]),
        command("resume", state.run_id) if stop.resumable and is_id(state.run_id) else None,
        next((until for until in state.sleeps.values() if until is not None), None),
        context,
    )


def commands(state: RunState, stop: Stop) -> list[str]:
    """The registry's commands; those that name an effect or a question name the one that is open."""
    found: list[str] = []
    for text in next_actions(stop.code, state.run_id):
        verb = shlex.split(text)[1]
        if verb == "settle":
            found.extend(_settling(state))
        elif verb == "answer":
            found.extend(_answering(state, text))
        else:
            found.append(text)
    return list(dict.fromkeys(found))


def _settling(state: RunState) -> tuple[str, ...]:
    unknown = [key for key in state.effects_open if state.effects[key].status == "unknown"]
    key = next(iter([*unknown, *state.effects_open]), None)
    if key is not None:
        return settle_commands(state.run_id, key)[:2]
    if state.checkpoint_open is None:
        return (command("show", state.run_id),)
    name = state.mission_id.removeprefix(SPEC)
    named = state.mission_id.startswith(SPEC) and not _DIGEST.search(name)
    anew = (command("run", name, "--new", "--allow-dirty"),) if named else ()
    return command("settle", state.run_id, "--not-done", state.checkpoint_open), *anew


def _answering(state: RunState, otherwise: str) -> tuple[str, ...]:
    for name, asked in state.questions.items():
        if asked.answer is None and not asked.expired:
            return answer_commands(state.run_id, name, asked)
    return (otherwise,)


def _action(state: RunState, text: str) -> Action:
    """Only the run of a spec is gone on with by Holdfast itself; any other one is a program's own."""
    _, verb, *words = shlex.split(text)
    only_shows = verb == "resume" and ("--plan" in words or not state.mission_id.startswith(SPEC))
    title, why = _PLAN if only_shows else _VERBS[verb]
    return Action(title, text, why)


# --- as JSON


def file_stem(handed: Handoff) -> str:
    """The name of its files without their ending: `complete` or `stop`."""
    return _STEMS.get(handed.outcome, "stop")


def as_data(handed: Handoff) -> dict[str, Any]:
    stop, found, context = handed.stop, handed.diagnosis, handed.context
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": handed.run_id,
        "outcome": handed.outcome,
        "stop_reason": stop.code,
        "stop_reason_family": stop.family,
        "exit_code": stop.exit_code,
        "primary_diagnosis": found.category,
        "diagnosis": found.sentence,
        "confidence": found.confidence,
        "signals": [one._asdict() for one in found.evidence],
        "next_actions": [action._asdict() for action in handed.actions],
        "resume_command": handed.resume_command,
        "resumes_at": handed.resumes_at,
        "resumable": stop.resumable,
        "auto_resumable": stop.auto_resumable,
        "related_artifacts": dict(context.artifacts),
        "progress": {"batch": context.batch, "task": context.task, "phase": context.phase, **context.progress},
        "diagnosed_at": context.at,
    }


def to_json(handed: Handoff) -> bytes:
    return json.dumps(as_data(handed), indent=2, allow_nan=False).encode() + b"\n"


# --- as a page


def to_markdown(handed: Handoff) -> str:
    sections = [_head(handed), _evidence(handed), _next(handed), _last_lines(handed), _artifacts(handed)]
    return "\n".join(line for section in sections for line in section)


def _head(handed: Handoff) -> list[str]:
    stop, context = handed.stop, handed.context
    places = [("batch", context.batch), ("task", context.task), ("phase", context.phase)]
    rows = [
        ("run", span(handed.run_id)),
        ("title", span(handed.title)),
        ("reason", f"{span(stop.code)} ({stop.family}, exit code {stop.exit_code})"),
        ("at", span(context.at)),
        *((name, span(value)) for name, value in places),
        *((span(name), str(count)) for name, count in context.progress.items()),
    ]
    head = [f"# {stop.title}", "", handed.diagnosis.sentence, ""]
    return [*head, *(f"- {name}: {value}" for name, value in rows[:MOST_ROWS] if value), ""]


def _evidence(handed: Handoff) -> list[str]:
    found = handed.diagnosis
    head = [f"## Diagnosis: {span(found.category)}, confidence {found.confidence:.2f}", ""]
    rows = [f"- {span(one.source)}: {span(one.snippet)}" for one in found.evidence]
    return [*head, *(rows or ["Nothing but the reason itself is known."]), ""]


def _next(handed: Handoff) -> list[str]:
    rows = [f"{number}. {action.title}: {span(action.command)}" for number, action in enumerate(handed.actions, 1)]
    return ["## Next", "", *rows, ""]


def _last_lines(handed: Handoff) -> list[str]:
    lines = [snippet(line) for line in handed.context.last_lines[-MOST_LINES:]]
    if not lines:
        return []
    mark = "`" * max(3, 1 + _longest_run("".join(lines)))
    return ["## Last lines (text of the agent, not advice)", "", f"{mark}text", *lines, mark, ""]


def _artifacts(handed: Handoff) -> list[str]:
    kept = list(handed.context.artifacts.items())
    rows = [f"- {span(name)}: {span(value)}" for name, value in kept[:MOST_ARTIFACTS]]
    return ["## Kept", "", *rows, ""] if rows else []


def span(text: str) -> str:
    """Foreign text as code inside a line: one line, with a fence that it does not hold."""
    shown = snippet(text)
    if not shown:
        return ""
    mark = "`" * (1 + _longest_run(shown))
    room = " " if "`" in shown else ""
    return f"{mark}{room}{shown}{room}{mark}"


def _longest_run(text: str) -> int:
    return max((len(list(run)) for letter, run in groupby(text) if letter == "`"), default=0)

"""`holdfast diagnose`: why a run is at rest, how sure that is, and what to do next. From the log alone; writes nothing."""

from __future__ import annotations

import click

from holdfast import app
from holdfast.cli.output import emit, escape, json_option, run_argument, say
from holdfast.cli.overview import status_word
from holdfast.cli.render import pairs
from holdfast.cli.watching import read_watched
from holdfast.core.diagnosis import diagnose
from holdfast.core.errors import UsageError
from holdfast.core.handoff import MOST_ARTIFACTS, Context, Handoff, as_data, handoff
from holdfast.core.shapes import RunState


@click.command()
@run_argument()
@json_option
def command(run: str, as_json: bool) -> None:
    """Say why RUN is at rest, on what evidence, and what to do next.

    \b
    holdfast diagnose 8cb0f3ef
    """
    with app.reading() as store:
        head = app.newest_run(store, run)
        state = read_watched(store, head)
    if status_word(head) in ("running", "ready"):
        raise UsageError(f"Run {head.run_id} is not at rest.", advice=f"`holdfast log {head.run_id} -f` follows it.")
    handed = handoff(state, diagnose(state), context_of(state, app.now()))
    if as_json:
        emit(as_data(handed))
    else:
        show(handed)


def context_of(state: RunState, now: str) -> Context:
    """Where the run stood, as far as its log says."""
    last = next(iter([*reversed(state.steps_open), *reversed(state.steps)]), "")
    phase = (state.steps[last].phase if last in state.steps else None) or ""
    kept = [(name, step.artifact) for name, step in state.steps.items() if step.artifact]
    newest = dict(kept[-MOST_ARTIFACTS:])
    return Context(now, task=last, phase=phase, artifacts=newest, progress={"steps_done": state.steps_done})


def show(handed: Handoff) -> None:
    found = handed.diagnosis
    pairs(
        [
            ("run", handed.run_id),
            ("outcome", handed.outcome),
            ("reason", f"{handed.stop.code} ({handed.stop.family}, exit code {handed.stop.exit_code})"),
            ("diagnosis", f"{found.category}, confidence {found.confidence:.2f}"),
            ("step", handed.context.task),
            ("phase", handed.context.phase),
        ]
    )
    say(f"\n{escape(found.sentence)}")
    for one in found.evidence:
        say(f"  {escape(one.source)}: {escape(one.snippet)}")
    say("\nNext:")
    for action in handed.actions:
        say(f"  {escape(action.command)}")
        say(f"      {action.title}. {action.why}")

"""`holdfast settle`: a person says what became of an effect whose outcome is not on record. Refuses a run that lives."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from holdfast import app
from holdfast.cli.output import emit, escape, json_option, run_argument, say
from holdfast.cli.watching import opened
from holdfast.core.errors import BadInput, UsageError
from holdfast.core.events import SettledAs
from holdfast.core.plan import next_command, resume_plan
from holdfast.core.state import RunState
from holdfast.engine import people

SAID: dict[SettledAs, str] = {
    "done": "was done: a resumed run takes its receipt and does not do it again",
    "not_done": "was not done: a resumed run does it, with the same key and arguments",
    "abandoned": "is given up: a resumed run goes on without it, and its code gets nothing back",
}


@click.command()
@run_argument()
@click.argument("effect")
@click.option("--done", is_flag=True, help="It happened. It is not done again.")
@click.option("--not-done", is_flag=True, help="It did not happen. The run does it when it goes on.")
@click.option("--abandon", is_flag=True, help="Give it up: the run goes on without it.")
@click.option("--receipt", metavar="JSON", help="With --done: what the effect gave back.")
@click.option("--evidence", metavar="TEXT", default="", help="How you know; it is kept in the log.")
@json_option
def command(
    run: str, effect: str, done: bool, not_done: bool, abandon: bool, receipt: str | None, evidence: str, as_json: bool
) -> None:
    """Say what became of EFFECT of RUN: its key, the name of its step, or the beginning of either.

    EFFECT can also be a checkpoint that was begun, and of which nobody knows whether it was made: with --not-done it is
    taken anew, and what is committed already is not committed again.

    \b
    holdfast settle 8cb0f3ef mail-17 --done --evidence "it is in the outbox"
    holdfast settle 8cb0f3ef mail-17 --done --receipt '{"id": 17}'
    holdfast settle 8cb0f3ef mail-17 --not-done
    """
    chosen: dict[SettledAs, bool] = {"done": done, "not_done": not_done, "abandoned": abandon}
    settled_as = the_one(chosen)
    given = read_receipt(receipt, settled_as)
    with app.reading() as store:
        head = app.newest_run(store, run)
    with opened(head) as store:
        key, state = people.settle(
            store, head.run_id, effect, settled_as, app.world(), app.redactor(), evidence=evidence, receipt=given
        )
    report(state, key, settled_as, as_json)


def the_one(chosen: dict[SettledAs, bool]) -> SettledAs:
    said = [settled_as for settled_as, wanted in chosen.items() if wanted]
    if len(said) != 1:
        raise UsageError("Say what became of it, once.", advice="Add one of --done, --not-done and --abandon.")
    return said[0]


def read_receipt(text: str | None, settled_as: SettledAs) -> Any:
    if text is None:
        return None
    if settled_as != "done":
        raise UsageError("Only an effect that was done has a receipt.", advice="Leave --receipt out, or add --done.")
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as problem:
        raise BadInput(
            f"The receipt is not JSON: {problem}.", advice="Text needs its own quotes: '\"paid\"'."
        ) from None


def report(state: RunState, key: str, settled_as: SettledAs, as_json: bool) -> None:
    following = next_command(resume_plan(state))
    if key not in state.effects:
        report_checkpoint(state.run_id, key, following, as_json)
        return
    effect = state.effects[key]
    if as_json:
        settled = {"effect_key": key, "step_id": effect.step_id, "settled_as": settled_as, "evidence": effect.evidence}
        emit({"run_id": state.run_id, "effect": settled, "open": list(state.effects_open), "next_actions": [following]})
        return
    say(f"Effect {escape(key)} of step {escape(effect.step_id)} {SAID[settled_as]}.")
    if state.effects_open:
        say(f"Still open: {escape(', '.join(state.effects_open))}.")
    say(f"  {following}")


def report_checkpoint(run_id: str, checkpoint_id: str, following: str, as_json: bool) -> None:
    if as_json:
        emit({"run_id": run_id, "checkpoint": checkpoint_id, "settled_as": "not_done", "next_actions": [following]})
        return
    taken_anew = "a resumed run takes it anew, and commits only what is not committed"
    say(f"Checkpoint {escape(checkpoint_id)} is given up: {taken_anew}.")
    say(f"  {following}")

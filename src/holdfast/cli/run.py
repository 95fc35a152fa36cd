"""`holdfast run`: a spec with coding agents, batch by batch; or any one command as a durable step.

Started again it goes on where it stopped: an unfinished run of the spec is taken up, whoever began it.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

import click

from holdfast.cli import progress
from holdfast.cli.behind import TakesCommand, words_behind
from holdfast.cli.loading import load
from holdfast.cli.output import emit, escape, json_option, say
from holdfast.cli.render import paint, table
from holdfast.cli.signals import ended_like_by_ctrl_c
from holdfast.core.errors import UsageError
from holdfast.core.spec import summary_of

TASKS = ("batch", "task", "status", "file", "title")


def complete_spec(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    try:
        found: list[str] = import_module("holdfast.spec_look").spec_names()
    except Exception:  # noqa: BLE001 - completion has no place for an error
        return []
    return [name for name in found if name.startswith(incomplete)]


@click.command(cls=TakesCommand)
@click.argument("spec", required=False, shell_complete=complete_spec)
@click.option("--agent", metavar="NAME", help="The agent for every phase, instead of those of holdfast.toml.")
@click.option("--reviewer", "reviewers", metavar="NAME", multiple=True, help="A reviewer; may be given more than once.")
@click.option("--parallel", type=click.IntRange(1, 64), help="How many tasks of a batch at the same time.")
@click.option("--plan", "only_plan", is_flag=True, help="Show the batches. Writes and starts nothing.")
@click.option("--new", is_flag=True, help="A new run, even if one of this spec is unfinished.")
@click.option("--allow-dirty", is_flag=True, help="Start over uncommitted changes; the first batch commits them.")
@click.option("--no-wait", is_flag=True, help="Do not wait for a usage limit to reset: stop, and say until when.")
@click.option(
    "--auto-resume", type=click.IntRange(0, 20), metavar="N", help="How often to go on by itself after a stall."
)
@click.option("--policy", type=click.Choice(["once", "idempotent"]), default="once", show_default=True,
              help="For COMMAND: whether it may be run again when its outcome is not known.")  # fmt: skip
@click.option("--yes", is_flag=True, help="Trust the repository's files and accept what changed, without being asked.")
@json_option
@click.pass_context
def command(
    context: click.Context,
    spec: str | None,
    agent: str | None,
    reviewers: tuple[str, ...],
    parallel: int | None,
    only_plan: bool,
    new: bool,
    allow_dirty: bool,
    no_wait: bool,
    auto_resume: int | None,
    policy: str,
    yes: bool,
    as_json: bool,
) -> int:
    """Run SPEC, a folder with tasks.yaml or its name, with coding agents; or COMMAND, as one durable step.

    \b
    holdfast run auth-system
    holdfast run specs/active/auth-system --agent claude --reviewer codex
    holdfast run auth-system --plan
    holdfast run -- make release
    """
    behind = words_behind(context)
    if (spec is None) == (not behind):
        raise UsageError(
            "Give a SPEC, or a COMMAND behind `--`." if spec is None else "Give a SPEC or a COMMAND, not both.",
            advice="`holdfast run --help` shows both.",
        )
    if behind and (only_plan or agent or reviewers or parallel or no_wait or allow_dirty or auto_resume is not None):
        raise UsageError(
            "One of these options is for a SPEC, not for a COMMAND.",
            advice="A COMMAND takes --policy, --new and --json.",
        )
    if behind:
        code: int = import_module("holdfast.cli.run_command").perform(behind, policy, new, as_json)
        return code
    assert spec is not None
    specs = load("holdfast.spec_run")  # loads all that a spec needs
    if only_plan:
        show_batches(import_module("holdfast.spec_look"), spec, as_json, parallel)
        return 0
    stay = 0.0 if no_wait else specs.LONGEST_STAY
    wish = specs.Wish(spec, agent, reviewers, parallel, allow_dirty, new, yes, stay, auto_resume=auto_resume)
    return go(specs, wish, as_json)


def go(specs: Any, wish: Any, as_json: bool) -> int:
    """Run a spec to its end, or to where it rests, and say which."""
    wish = specs.remembered(wish)
    job = specs.prepare(wish)
    with ended_like_by_ctrl_c(), progress.watching(as_json) as tell:
        result = specs.perform(wish, job, tell)
    try:
        emit(result.as_data()) if as_json else show(result)
        sys.stdout.flush()
    except BrokenPipeError:  # nobody reads it any more; how it ended is still told by the exit code
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for the rest of this process
    code: int = result.exit_code
    return code


def show(result: Any) -> None:
    handed = result.handed
    word = paint("finished" if handed.stop.exit_code == 0 else "stopped")
    say(f"{word}: run {handed.run_id}, {escape(handed.stop.code)}: {escape(handed.diagnosis.sentence)}")
    for line in handed.diagnosis.evidence[:3]:
        say(f"  {escape(line.snippet, 160)}")
    for action in handed.actions:
        say(f"  {escape(action.command)}")
    for path in result.paths[:1]:
        say(f"  {escape(path)}")


def show_batches(specs: Any, spec: str, as_json: bool, parallel: int | None = None) -> None:
    seen = specs.look(spec, parallel)
    if as_json:
        emit(specs.look_data(seen))
        return
    for problem in seen.spec.problems:
        say(f"{paint('warn')}: {escape(problem)}")
    places = {
        name: f"{number}{' ||' if batch.parallel else ''}" for number, batch in seen.batches for name in batch.tasks
    }
    ordered = sorted(seen.spec.tasks, key=lambda task: int(places.get(task.id, "0").split()[0]))
    table(TASKS, [(places.get(one.id, ""), one.id, one.status, ", ".join(one.files), one.title) for one in ordered])
    done = len(summary_of(seen.spec.tasks)["completed"])
    left = f"{len(seen.batches)} batch{'' if len(seen.batches) == 1 else 'es'} left"
    for sentence in (*seen.begun, *seen.held):
        say(f"{escape(sentence)}.")
    say(f"{done} of {len(seen.spec.tasks)} tasks are complete; {left}.")

"""`holdfast demo`: the main job, killed and counted; and `holdfast demo effects`: steps with effects on a real file, likewise.

Touches nothing but its own folder. The child that gets killed in the second is this same command with the hidden option --child.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from typing import Any

import click
from click.core import ParameterSource

from holdfast import app
from holdfast.adapters.ledger import Ledger, lines_in
from holdfast.cli import demo_spec
from holdfast.cli.bars import Reached, bars
from holdfast.cli.demo_spec import place
from holdfast.cli.output import emit, json_option, say
from holdfast.cli.render import paint, table
from holdfast.core import stops
from holdfast.core.errors import NotFound, UsageError
from holdfast.core.named import NamedTuple
from holdfast.engine.demo import MISSION, cues_of, keys_of, plan_of, script
from holdfast.engine.keeper import Keeper
from holdfast.engine.log import Verification, read_state, verify_run
from holdfast.engine.runner import Runner
from holdfast.testing.demo import Kept, Killer, Look, Tally, announcing, kills_of, tally

RUN = "demo"
STORE, EFFECTS, EXECUTIONS = "holdfast.db", "effects.txt", "executions.txt"
PAUSES = {"half written": 0.008, "written": 0.008, "computing": 0.01}  # seconds in which a kill can hit


class Demo(NamedTuple):
    """One demonstration: where it happens and how hard it is."""

    folder: str
    steps: int
    kills: int
    seed: int
    lying: bool

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)


@click.group(invoke_without_command=True)
@click.option("--kills", type=click.IntRange(0, 200), default=12, show_default=True, help="How often to kill the run.")
@click.option("--seed", type=int, default=None, help="Repeat the kills of an earlier demo.")
@click.option("--keep", "folder", type=click.Path(), help="Do it in this new folder, and leave everything there.")
@click.option(
    "--lying-agent", "lying", is_flag=True, help="An agent that does all again, to see that the table shows it."
)
@json_option
@click.pass_context
def command(
    context: click.Context, kills: int, seed: int | None, folder: str | None, lying: bool, as_json: bool
) -> int | None:
    """Run a spec in a real repository, kill it at random moments, resume it, and count what was lost or done twice."""
    if context.invoked_subcommand is not None:
        refuse_options(context)
        return None
    with place(folder) as where:
        return demo_spec.perform(demo_spec.Demo(where, kills, seeded(seed), lying), as_json)


def refuse_options(context: click.Context) -> None:
    """An option before the name of the other demo would be for this one, and go unheard."""
    for name in context.params:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError("Options stand behind `effects`.", advice="`holdfast demo effects --help` shows them.")


def seeded(seed: int | None) -> int:
    return seed if seed is not None else time.time_ns() % 10_000


@command.command("effects")
@click.option("--kills", type=click.IntRange(0, 1000), default=25, show_default=True, help="How often to kill the run.")
@click.option("--steps", type=click.IntRange(1, 999), default=40, show_default=True, help="How many steps it has.")
@click.option("--seed", type=int, default=None, help="Repeat the kills of an earlier demo.")
@click.option("--keep", "folder", type=click.Path(), help="Do it in this new folder, and leave everything there.")
@click.option("--lying-probe", "lying", is_flag=True, help="Plant a bug, to see that the table shows it.")
@click.option("--child", type=int, hidden=True)
@json_option
def effects(
    kills: int, steps: int, seed: int | None, folder: str | None, lying: bool, child: int | None, as_json: bool
) -> int:
    """Kill a run of steps with effects on a real file, again and again, and count what was lost or done twice."""
    with place(folder, fresh=child is None) as where:
        demo = Demo(where, steps, kills, seeded(seed), lying)
        return parent(demo, as_json) if child is None else live(demo, child)


# --- the child, which gets killed


def live(demo: Demo, child: int) -> int:
    """Start or resume the run, and go on until it rests. This is all a program has to do."""
    with closing(announcing(app.open_store(demo.path(STORE)), speak)) as store, app.write_run(store, RUN) as log:
        steps = script(demo.steps, Ledger(demo.path(EFFECTS), moment), count_in(demo, child), moment, demo.lying)
        with Keeper(log) as keeper:
            state = Runner(log, steps, keeper.check).run(MISSION, "steps with effects on a real file")
    return stops.exit_code(state.stop_reason) if state.stop_reason else 0


def speak(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def moment(name: str) -> None:
    speak(f"moment {name}")
    time.sleep(PAUSES.get(name, 0.0))


def count_in(demo: Demo, child: int) -> Callable[[str], None]:
    """Writes down every real execution, outside of anything that the run itself keeps."""
    file = os.open(demo.path(EXECUTIONS), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def executed(step_id: str) -> None:
        os.write(file, f"{child} {step_id}\n".encode())

    return executed


# --- the parent, which kills and counts


def parent(demo: Demo, as_json: bool) -> int:
    with screen(demo, as_json) as watch:
        killer = Killer(lambda child: command_of(demo, child), lambda: look(demo), watch)
        killer.go(kills_of(demo.kills, demo.seed, cues_of(demo.steps)))
    kept, verification = what_is_left(demo)
    counts = tally(killer, kept, plan_of(demo.steps), keys_of(demo.steps), demo.kills)
    sound = counts.sound and not verification.findings
    show = show_json if as_json else show_table
    show(demo, counts, verification, sound)
    return 0 if sound else stops.exit_code("internal_error")


def command_of(demo: Demo, child: int) -> list[str]:
    options = ["--child", str(child), "--steps", str(demo.steps), "--keep", demo.folder]
    lying = ["--lying-probe"] if demo.lying else []
    return [sys.executable, "-P", "-m", "holdfast", "demo", "effects", *options, *lying]


def look(demo: Demo) -> Look:
    torn = bool(torn_end(read(demo.path(EFFECTS))))
    try:
        with app.reading(demo.path(STORE)) as store:
            state = read_state(store, RUN)
    except NotFound:
        return Look(torn=torn)
    finished = frozenset(step_id for step_id, step in state.steps.items() if step.status == "finished")
    return Look(finished, len(state.effects_open), torn)


def what_is_left(demo: Demo) -> tuple[Kept, Verification]:
    with app.reading(demo.path(STORE)) as store:
        verification, state = verify_run(store, RUN), read_state(store, RUN)
        records = {record.seq: record.hash.hex() for record in store.read(RUN)}
    done = frozenset(key for key, effect in state.effects.items() if effect.status == "done")
    written = [line.split()[0].decode() for line in lines_in(read(demo.path(EFFECTS)))]
    counted = (line.decode().split() for line in lines_in(read(demo.path(EXECUTIONS))))
    executed = [(int(child), step_id) for child, step_id in counted]
    return Kept(state.status == "finished", state.steps_done, records, done, written, executed), verification


def read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


def torn_end(data: bytes) -> bytes:
    return data[data.rfind(b"\n") + 1 :]


# --- what people and programs see


def screen(demo: Demo, as_json: bool) -> AbstractContextManager[Callable[[Killer], None]]:
    return bars({"kills": demo.kills, "steps": demo.steps}, reached, lambda killer: line_of(demo, killer), as_json)


def reached(killer: Killer) -> Reached:
    return {"kills": killer.kills, "steps": len(killer.looks[-1].finished)}, f"at '{killer.last}'"


def line_of(demo: Demo, killer: Killer) -> str:
    seen = killer.looks[-1]
    where = f"{len(seen.finished):>3} of {demo.steps} steps done"
    if len(killer.looks) - 1 > killer.kills:
        return f"ended    {where}"
    marks = [word for word, there in (("effect open", seen.effects_open), ("torn line", seen.torn)) if there]
    return f"kill {killer.kills:>3} {where}, after '{killer.last}'" + "".join(f", {mark}" for mark in marks)


def show_json(demo: Demo, counts: Tally, verification: Verification, sound: bool) -> None:
    findings = [finding._asdict() for finding in verification.findings]
    verify = {"events": verification.events, "findings": findings}
    emit({"demo": {"seed": demo.seed, **counts._asdict(), "sound": sound, "verify": verify}})


def show_table(demo: Demo, counts: Tally, verification: Verification, sound: bool) -> None:
    table(("what", "count", ""), rows(counts, verification), frozenset({"count"}))
    say(f"{paint('ok')}: nothing lost, nothing doubled." if sound else f"{paint('fail')}: a promise was broken.")
    say(f"The same kills again: holdfast demo effects --kills {demo.kills} --steps {demo.steps} --seed {demo.seed}")


def rows(counts: Tally, verification: Verification) -> list[tuple[Any, ...]]:
    findings = "; ".join(f"event {finding.seq}: {finding.problem}" for finding in verification.findings)
    return [
        ("steps done", counts.steps_done, f"of {counts.steps_planned}"),
        ("kills survived", counts.kills, f"of {counts.kills_asked}"),
        ("- with an effect open", counts.kills_in_effect, "started, its outcome not recorded"),
        ("- with a torn line in the file", counts.torn_lines, "cut off in the middle of a write"),
        ("steps begun anew", counts.steps_cut_off, "their first execution was cut off"),
        ("steps repeated", counts.steps_repeated, "executed though their end was on record"),
        ("effects done twice", counts.effects_twice, f"of {counts.effects_planned}"),
        ("effects lost", counts.effects_lost, "recorded as done, not in the file"),
        ("events lost", counts.events_lost, f"of {counts.events_acknowledged} acknowledged"),
        (
            "verify: findings",
            len(verification.findings),
            findings or f"{verification.events} events, chain and head sound",
        ),
    ]

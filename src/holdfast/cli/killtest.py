"""`holdfast killtest`: kills your own program at every point of its runs, starts it again, and counts what went wrong.

The program really runs, again and again. Touches no store but those it makes; leaves with 0 only if nothing went wrong.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import click

from holdfast import app, config
from holdfast.cli.output import emit, escape, json_option, remark, say
from holdfast.cli.render import paint, table, watched
from holdfast.core import stops
from holdfast.core.errors import UsageError
from holdfast.testing.killcount import Baseline, Tally, Verdict, is_sound, tally
from holdfast.testing.killtest import Plan, Point, Tester, named, sampled, spread

FAILED = "verification_failed"
MOST_SHOWN = 10


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--points", "most", type=click.IntRange(1), help="Try at most so many points, evenly spread.")
@click.option("--sample", is_flag=True, help="Choose the points by chance instead.")
@click.option("--seed", type=int, help="Repeat the choice of an earlier --sample.")
@click.option("--at", "names", metavar="POINT", multiple=True, help="Try only this point, such as end:2.")
@click.option("--jobs", type=click.IntRange(1, 64), default=2, show_default=True, help="Trials at the same time.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="The longest that one start of the program may take.",
)
@click.option(
    "--world",
    type=click.Path(exists=True, file_okay=False),
    metavar="FOLDER",
    help="Let each trial work in a fresh copy of this folder.",
)
@click.option(
    "--check", default="", metavar="COMMAND", help="Run this after each trial; it fails if the world is wrong."
)
@click.option("--exact", is_flag=True, help="Results that differ between two undisturbed runs are failures too.")
@click.option(
    "--keep", "folder", type=click.Path(), metavar="FOLDER", help="Do it in this new folder, and leave it there."
)
@json_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def command(
    most: int | None,
    sample: bool,
    seed: int | None,
    names: tuple[str, ...],
    jobs: int,
    timeout: float,
    world: str | None,
    check: str,
    exact: bool,
    folder: str | None,
    as_json: bool,
    command: tuple[str, ...],
) -> int:
    """Kill COMMAND at every point of its runs, start it again, and compare with an undisturbed run.

    The exit code is 0 if nothing was repeated, lost or different, else 10 (verification_failed). A run that stops with
    effect_unknown is no failure: it is counted as blocked.
    """
    if not command:
        raise UsageError(
            "There is no program to test.", advice="Name it: `holdfast killtest -- python my_pipeline.py`."
        )
    seed = seed if seed is not None else time.time_ns() % 10_000
    with place(folder) as where:
        check_world(world, where)
        plan = Plan(command, where, config.environment(), timeout, world, words_of(check))
        tester = Tester(plan, app.reading)
        base = tester.baseline()
        points = choose(tester.points, most, sample, seed, names)
        with closing(tester.trials(base, points, jobs, keep=folder is not None)) as trials:
            found = list(progress(trials, len(points), as_json))
    verdicts = in_order(points, found)
    counts = tally(verdicts, len(tester.points))
    sound = is_sound(base, counts, exact)
    (show_json if as_json else show_text)(base, verdicts, counts, sound, seed if sample else None)
    return 0 if sound else stops.exit_code(FAILED)


@contextmanager
def place(folder: str | None) -> Iterator[str]:
    """An empty folder: a new one that is left, or one that is removed in the end."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="holdfast-killtest-") as made:
            yield os.path.realpath(made)
        return
    os.makedirs(folder, mode=0o700, exist_ok=True)
    if os.listdir(folder):
        raise UsageError(f"The folder {folder} is not empty.", advice="Name a new folder, or an empty one.")
    yield os.path.realpath(folder)


def check_world(world: str | None, folder: str) -> None:
    if world is not None and os.path.commonpath([os.path.realpath(world), folder]) == os.path.realpath(world):
        raise UsageError(f"The folder {folder} is inside of the world that is copied to it.")


def words_of(check: str) -> list[str]:
    try:
        return shlex.split(check)
    except ValueError as error:
        raise UsageError(f"The check cannot be understood: {str(error).lower()}.") from None


def choose(points: Sequence[Point], most: int | None, sample: bool, seed: int, names: Sequence[str]) -> list[Point]:
    if names:
        return named(points, names)
    if most is None and sample:
        raise UsageError("How many points are to be chosen?", advice="Say it with --points N.")
    if most is None:
        return list(points)
    return sampled(points, most, seed) if sample else spread(points, most)


def in_order(points: Sequence[Point], verdicts: Iterable[Verdict]) -> list[Verdict]:
    places = {point.name: number for number, point in enumerate(points)}
    return sorted(verdicts, key=lambda verdict: places[verdict.point])


def progress(verdicts: Iterable[Verdict], total: int, as_json: bool) -> Iterator[Verdict]:
    """A bar on a terminal; elsewhere, and beside JSON, a line now and then."""
    if sys.stderr.isatty() and not as_json:
        yield from watched(verdicts, "Killing", total)
        return
    said = time.monotonic()
    for number, verdict in enumerate(verdicts, 1):
        yield verdict
        if time.monotonic() - said > 1.0:
            said = time.monotonic()
            remark(f"killed at {number} of {total} points", as_json)


# --- what people and programs see


def show_json(base: Baseline, verdicts: Sequence[Verdict], counts: Tally, sound: bool, seed: int | None) -> None:
    emit(
        {
            "killtest": {
                "sound": sound,
                "seed": seed,
                **counts._asdict(),
                "nondeterministic": sorted(map(base.shown, base.unstable)),
                "shifting": sorted(map(base.shown, base.shifting)),
                "trials": [trial_data(verdict) for verdict in verdicts],
            }
        }
    )


def trial_data(verdict: Verdict) -> dict[str, Any]:
    return {**verdict._asdict(), "faults": [fault._asdict() for fault in verdict.faults]}


def show_text(base: Baseline, verdicts: Sequence[Verdict], counts: Tally, sound: bool, seed: int | None) -> None:
    table(("what", "count", ""), rows(counts, seed), frozenset({"count"}))
    for line in remarks(base):
        say(line)
    for line in faults(verdicts):
        say(line)
    bad = "something was repeated, lost or different."
    say(f"{paint('ok')}: nothing repeated, nothing lost, nothing different." if sound else f"{paint('fail')}: {bad}")


def rows(counts: Tally, seed: int | None) -> list[tuple[Any, ...]]:
    unreached = counts.tried - counts.reached
    chosen = f"of {counts.points}" + (f", chosen with --seed {seed}" if seed is not None else "")
    return [
        ("points tried", counts.tried, chosen + (f"; {unreached} not reached" if unreached else "")),
        ("finished as undisturbed", counts.finished, ""),
        ("blocked honestly", counts.blocked, "stopped with effect_unknown: at most once kept its word"),
        ("effects run again, as declared", counts.again, "pure, read, idempotent or keyed"),
        ("effects only a probe calls done", counts.trusted, "cut off in the middle"),
        ("effects repeated", counts.effects_repeated, ""),
        ("effects lost", counts.effects_lost, ""),
        ("steps repeated", counts.steps_repeated, ""),
        ("steps lost", counts.steps_lost, ""),
        ("events lost", counts.events_lost, ""),
        ("results that differ", counts.differ, ""),
        ("not at rest", counts.stuck, "started again and again, or over its time"),
        ("checks that failed", counts.checks_failed, ""),
    ]


def remarks(base: Baseline) -> Iterator[str]:
    if base.unstable:
        names = ", ".join(sorted(map(base.shown, base.unstable)))
        yield f"{paint('warn')}: not the same in two undisturbed runs, and so not compared: {escape(names)}"
    if base.shifting:
        names = ", ".join(sorted(map(base.shown, base.shifting)))
        yield f"{paint('fail')}: in one undisturbed run but not in the other: {escape(names)}"
        yield "  What is finished is found again by its name: a name must not depend on time or chance."


def faults(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Each fault once, with the points at which it came."""
    places: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        for text in {fault.text: None for fault in verdict.faults}:
            places[text].append(verdict)
    for text, where in list(places.items())[:MOST_SHOWN]:
        more = f", and at {len(where) - 1} more points" if len(where) > 1 else ""
        yield f"{paint('fail')}: {escape(text)}"
        yield f"  killed {escape(where[0].where)} (--at {where[0].point}){more}"
    if len(places) > MOST_SHOWN:
        yield f"  ... and {len(places) - MOST_SHOWN} more; --json has them all"

"""Where a live run is killed or cut off: before and after every append, at the begin and end of every act, on the wire.

The kills are real: a forked process ends itself with SIGKILL at a counted moment, and so does the one that goes on after it.
"""

from __future__ import annotations

import random
from pathlib import Path

from holdfast.testing.crashlab.server import ForkServer, Outcome, folder_from, judge, scratch
from holdfast.testing.crashlab.shim import LabError
from holdfast.testing.crashlab.workload import Report, Verdict, Workload
from tests.crash.live_work import PLAN

KILLED = "wait status 9"
LEFT = (0, 1, 1, 2)  # how often the one that goes on is killed as well
TIME = 60.0


def at_moments(work: Workload, points: int, seed: int, until_found: bool = False) -> Report:
    """SIGKILL at each moment of a run, or at a seeded sample of them; some of those that resume it die too."""
    report, chance = Report("kill at moments", work.name, seed), random.Random(seed)
    with folder_from(scratch) as template, ForkServer(work, TIME, preload=False) as server:
        server.prepare(template)
        moments = clean_moments(server, template)
        chosen = list(range(1, moments + 1))
        if points < moments:
            report.note(f"{points} of {moments} moments, sampled by the seed")
            chosen = sorted(chance.sample(chosen, points))
        for moment in chosen:
            deaths = [moment, *(chance.randrange(1, moments) for _ in range(chance.choice(LEFT)))]
            with folder_from(scratch, template) as folder:
                report.add(one_point(server, folder, deaths), moment, f"at_moments({work.name}): kill at {deaths}")
            if until_found and report.violations:
                break
    return report.done()


def clean_moments(server: ForkServer, template: Path) -> int:
    """How many moments an undisturbed run has; it also proves that the check has nothing against one."""
    with folder_from(scratch, template) as folder:
        outcome = server.clean_work(folder)
        verdict = judge(server.check(folder, outcome.acked))
    if verdict.kind != "whole":
        raise LabError(f"the workload is {verdict.kind} without any fault: {verdict.detail}")
    return int(outcome.acked[-1].removeprefix("moments:"))


def one_point(server: ForkServer, folder: Path, deaths: list[int]) -> Verdict:
    acked: list[str] = []
    for moment in deaths:
        (folder / PLAN).write_text(str(moment))
        outcome = server.work(folder)
        acked += said(outcome)
        if not died_or_rested(outcome):
            return Verdict(False, "crashed", f"{outcome.end}: {outcome.detail}")
    return judge(server.check(folder, acked))


def said(outcome: Outcome) -> list[str]:
    return [label for label in outcome.acked if not label.startswith("moments:")]


def died_or_rested(outcome: Outcome) -> bool:
    """Killed, done before its moment came, or stopped because a person has to look."""
    killed = outcome.end == "crashed" and outcome.detail == KILLED
    return killed or outcome.end == "done" or (outcome.end == "raised" and "effect_unknown" in outcome.detail)

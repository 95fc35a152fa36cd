"""SIGKILL of the whole process tree at every event of a run of four batches, and of nothing but the run itself.

Whenever it dies, what goes on comes to the same end: the same files, each task done once, each commit once, and nothing of the
user's touched. HOLDFAST_POINTS says how many places to try from a fresh start; all of them if it is large.
"""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from pathlib import Path

import pytest

from holdfast.core.events import EffectStarted
from tests.pipeline.kit import FOUR, SPEC, Project, build, carrying, end, wait_for

POINTS = int(os.environ.get("HOLDFAST_POINTS", "4" if os.environ.get("HOLDFAST_SWEEP") == "all" else "2"))
ALL = POINTS > 100
SEED = int(os.environ.get("HOLDFAST_SEED", "7"))
RUN = ("run", SPEC, "--yes")
RESUME = ("resume", SPEC, "--yes")
USERS = {"secret.env": "TOKEN=mine\n", "mine.txt": "never commit this\n"}  # ignored, and excluded
BATCHES = 4


def made(folder: Path) -> Project:
    """The project, with files of a user beside it that git does not keep."""
    project = build(folder, FOUR)
    project.write(".gitignore", "__pycache__/\n*.env\n")
    project.commit("ignore")
    (project.top / ".git" / "info" / "exclude").write_text("mine.txt\n")
    for name, text in USERS.items():
        project.write(name, text)
    return project


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, int]:
    """A run that nobody disturbs, and the number of its records."""
    project = made(tmp_path_factory.mktemp("undisturbed"))
    answer = project.run()
    assert answer.code == 0, answer
    is_whole(project, project)
    return project, len(project.events())


# --- what must hold at the end


def is_whole(project: Project, clean: Project) -> None:
    assert project.tree() == clean.tree()
    assert project.subjects == clean.subjects and len(project.subjects) == BATCHES + 2
    trailers = project.git("log", "--format=%(trailers:key=Holdfast-Checkpoint,valueonly)").split()
    assert len(trailers) == len(set(trailers)) == BATCHES
    assert {name: project.read(name) for name in USERS} == USERS
    each_once(project)
    nothing_left(project)


def each_once(project: Project) -> None:
    """Every report was accepted once, nobody was started for what had been delivered, and no edit was made twice."""
    effects = {event.step_id for event in project.events() if isinstance(event, EffectStarted)}
    work = [name for name in effects if name.endswith(("/implement", "/test")) or "/fix-" in name]
    assert len(work) == 2 * len(FOUR) + 1
    assert {name: len(project.ended(name)) for name in work} == dict.fromkeys(work, 1)
    finished: set[tuple[str, str]] = set()
    for line in project.ledger():
        stage = (line["phase"], line["task"])
        assert not (line["act"] == "start" and stage in finished), f"{stage} was done, and begun again"
        if line["act"] == "finish":
            finished.add(stage)
    done = Counter((line["phase"], line["task"], line["n"]) for line in project.ledger() if line["n"])
    assert set(done.values()) == {1}


def nothing_left(project: Project) -> None:
    assert len(project.run_ids()) == 1
    assert carrying(project.run_id) == []
    verified = project.holdfast("verify", "--json")
    assert (verified.code, verified.data.get("findings", [])) == (0, []), verified
    assert "error" not in project.git("fsck", "--no-progress", "--no-dangling")
    assert len(project.git("worktree", "list").splitlines()) == 1
    assert list((project.top / ".holdfast" / "worktrees").glob("*/*")) == []
    assert project.git("status", "--porcelain") == "" == project.git("stash", "list")
    assert list(project.top.rglob("*.lock")) == []


# --- at every event


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize("reach", ["whole", "alone"] if ALL else ["whole"])
def test_one_run_that_dies_at_every_one_of_its_events(tmp_path, undisturbed, reach, tries, record_property):
    """With all of its agents, or without: those left behind are ended, or have delivered."""
    clean, _ = undisturbed
    project = made(tmp_path)
    whole = ALL or tries.whole
    answer = project.killed("both" if ALL else "every" if whole else "every:6", reach, RUN, RUN)
    assert answer.code == 0, (project.hits[-5:], answer)
    is_whole(project, clean)
    hit = {line.partition(" ")[2] for line in project.hits}
    record_property("told", f"kills of one run ({reach}): {len(project.hits)}, at {len(hit)} different events")
    assert len(hit) > (120 if whole else 12)


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.parametrize("point", range(POINTS))
def test_one_kill_from_a_fresh_start(tmp_path, undisturbed, point):
    clean, events = undisturbed
    if point >= events:
        return
    places = random.Random(SEED).sample(range(1, events + 1), min(POINTS, events))
    number = sorted(places)[point]
    project = made(tmp_path)
    when = ("before", "after")[(number + SEED) % 2]
    answer = project.killed(f"at:{number}:{when}", "whole", RUN, RESUME if number > 2 else RUN)
    assert answer.code == 0, (project.hits, answer)
    is_whole(project, clean)


# --- in the middle of an agent's work


@pytest.mark.crash
@pytest.mark.parametrize("reach", ["whole", "alone"])
def test_killed_while_an_agent_works_with_it_or_without(tmp_path, undisturbed, reach):
    """An agent that outlives its run is ended when the run goes on, and what it had edited is kept and told."""
    clean, _ = undisturbed
    project = made(tmp_path)
    slow = [{"do": "half", "path": "kit/count.py", "text": "# half\n# of it\n"}, {"do": "sleep", "seconds": 60}]
    quick = [{"do": "write", "path": "kit/count.py", "text": clean.read("kit/count.py")}, *REPORT]
    project.script({"implement/T3": [slow, quick]})
    process = project.start(*RUN)
    wait_for(lambda: project.acts("implement/T3", "half"))
    agents = wait_for(lambda: carrying(project.run_id))
    if reach == "whole":
        for pid in agents:
            os.kill(pid, signal.SIGKILL)
    assert end(process, signal.SIGKILL).code == -signal.SIGKILL
    if reach == "whole":  # killed, and gone as soon as the machine has let each of them run once more
        wait_for(lambda: not {*agents} & {*carrying(project.run_id)})
    assert bool(carrying(project.run_id)) == (reach == "alone")
    assert project.read("kit/count.py") == "# half\n"
    answer = project.resume()
    assert answer.code == 0, answer
    is_whole_but_for_its_start(project, clean)
    told = next(text for text in project.prompts() if "kit/count.py was changed since this work began" in text)
    assert "+# half" in told and ("was still running and was ended" in told) == (reach == "alone")


REPORT = [{"do": "report", "with": {"status": "success", "implementation_files": ["kit/count.py"]}}]


def is_whole_but_for_its_start(project: Project, clean: Project) -> None:
    is_whole(project, clean)
    assert (project.starts("implement/T3"), project.acts("implement/T3", "finish")) == (2, 1)

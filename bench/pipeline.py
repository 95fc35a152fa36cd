"""What `holdfast run` itself uses for one task: its own CPU, without that of agents, tests and git, which are processes."""

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile

TRIES = 3
LONG = 1000  # tasks of a long spec
DONE = 900  # of these, complete when it is looked at for the second time
BEGIN = """
import json, os, sys, time
from holdfast.cli.loading import load
spec_run = load("holdfast.spec_run")
os.chdir(sys.argv[1])
wish = spec_run.Wish("text-kit", yes=True, parallel=int(sys.argv[2]))
"""
ONE_RUN = f"""{BEGIN}
result = spec_run.perform(wish, spec_run.prepare(wish), lambda moment: None)
assert result.exit_code == 0, result.handed
print(time.process_time())
"""
SOME_BATCHES = f"""{BEGIN}
marks = []
def tell(moment):
    if moment.what == "batch":
        marks.append((time.process_time(), len(moment.data["tasks"])))
        if len(marks) > int(sys.argv[3]):
            print(json.dumps(marks), flush=True)
            os._exit(0)  # as if killed: nothing is at work between two batches
spec_run.perform(wish, spec_run.prepare(wish), tell)
"""


def overhead(parallel):
    """Milliseconds of CPU for each of the eight tasks of the demonstration, start of the program included."""
    from holdfast.testing import workshop

    found = []
    for _ in range(TRIES):
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            environ = surroundings(folder)
            shop = workshop.build(os.path.join(folder, "shop"), environ)
            found.append(1000 * float(said(ONE_RUN, environ, shop.top, parallel)) / len(workshop.TASKS))
    return statistics.median(found)


def surroundings(folder):
    names = {f"GIT_{who}_{what}": "bench@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)  # every start after the first has compiled modules
    return {**kept, **names, "HOME": folder, "XDG_STATE_HOME": folder}


def said(program, environ, *words):
    command = [sys.executable, "-c", program, *map(str, words)]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout


# --- a long spec


def in_long(width, batches):
    """Milliseconds of CPU for a task of a long spec with so many tasks in a batch, where that is most: at its beginning, or
    when DONE of its tasks are complete. The median of some batches, without the start of the program, which is once for all."""
    return max(of_batches(width, batches, done) for done in (0, DONE))


def of_batches(width, batches, done):
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        environ = surroundings(folder)
        marks = json.loads(said(SOME_BATCHES, environ, long_spec(folder, environ, width, done), 1, batches))
    pairs = itertools.pairwise(marks)
    return statistics.median(1000 * (after - before) / count for (before, count), (after, _) in pairs)


def long_spec(folder, environ, width, done):
    """A repository with a spec in which each task needs one of the batch before."""
    from holdfast.testing import workshop

    shop = workshop.build(os.path.join(folder, "shop"), environ, acts=acts())
    tasks, needs = ["spec: text-kit", "tasks:"], ["phases:", "  - id: 1", "    tasks:"]
    for number in range(1, LONG + 1):
        status = "completed" if number <= done else "pending"
        tasks += [f"  - id: T{number}", f"    content: Make part {number} of the kit", f"    status: {status}"]
        need = f"T{number - width}" if number > width else ""
        needs += [f"      - id: T{number}", f"        file: kit/T{number}.py", f"        depends_on: [{need}]"]
        if number <= done:
            workshop.write(shop, f"kit/T{number}.py", "PART = True\n")
    for name, lines in (("tasks", tasks), ("dependencies", needs)):
        workshop.write(shop, f"{workshop.FOLDER}/{name}.yaml", "\n".join(lines) + "\n")
    for command in (["add", "-A"], ["commit", "-q", "-m", "A long spec"]):
        subprocess.run(["git", *command], cwd=shop.top, env=environ, check=True)
    return shop.top


def acts():
    """What the agent does for any task."""
    from holdfast.testing.workshop import PASS, TASKS, report

    test, part = "tests/test_{task}.py", "kit/{task}.py"
    check = "import unittest\n\n\nclass Test(unittest.TestCase):\n    def test(self):\n        pass\n"
    every = {
        "test": [
            {"do": "write", "path": test, "text": check},
            report(status="success", test_files=[test], failure_output="ImportError"),
        ],
        "implement": [
            {"do": "write", "path": part, "text": "PART = True\n"},
            report(status="success", implementation_files=[part], test_output="OK"),
        ],
    }
    own = {f"{phase}/{task.id}": played for task in TASKS for phase, played in every.items()}
    review = [report(verdict="approve", gates=PASS, issues=[])]
    reviews = {f"review/{name}": review for name in ("*", "batch-2/1", "batch-3/1")}
    return own | {f"{phase}/*": played for phase, played in every.items()} | reviews


def rows(folder):
    """Yield (what, measured, goal, met)."""
    alone, beside = overhead(1), overhead(2)
    yield "`holdfast run`: own CPU for one task, one after the other", f"{alone:.0f} ms", "<= 150 ms", alone <= 150
    yield "`holdfast run`: own CPU for one task, two at a time", f"{beside:.0f} ms", "<= 150 ms", beside <= 150
    for width, batches, how in ((4, 3, "four in a batch"), (1, 7, "each a batch")):
        long = in_long(width, batches)
        yield f"the same in a spec of {LONG:,}, {how}", f"{long:.0f} ms", "<= 150 ms", long <= 150

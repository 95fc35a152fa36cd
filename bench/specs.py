"""A spec of 1,000 tasks: reading and batching it, against the C loader of YAML on the same files."""

import os
import subprocess
import sys
import tempfile

import yaml

from bench.measure import side_by_side
from bench.start import in_turns
from holdfast.adapters.specs import SpecFolder
from holdfast.adapters.specs.memory import forget
from holdfast.core.batches import plan

TASKS = 1000
DONE = 400


def written(folder, count=TASKS):
    """The three files of a spec as they are after some hundred batches."""
    put(folder, tasks=tasks(count), dependencies=needs(count), checkpoint=checkpoint(count))


def phased(folder, count=TASKS):
    """One of few words: two phases, of which the second needs all of the first."""
    halves = [range(1, count // 2 + 1), range(count // 2 + 1, count + 1)]
    phases = (f"  - {{id: p{half[0]}, tasks: [{', '.join(map(name_of, half))}]}}" for half in halves)
    short = (
        f"  - {{id: {name_of(number)}, content: Part {number}, file: src/{number}.py}}"
        for number in range(1, count + 1)
    )
    put(folder, tasks=("tasks:", *short), dependencies=("phases:", *phases))


def put(folder, **files):
    for name, lines in files.items():
        with open(os.path.join(folder, f"{name}.yaml"), "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")


def name_of(number):
    return f"BIG-{number:03}"


def tasks(count):
    yield from ("spec: big-one", "code: BIG", f"next_id: {count + 1}", "tasks:")
    for number in range(1, count + 1):
        yield f"  - id: {name_of(number)}"
        yield f'    content: "Part {number}: move the parser of section {number} behind the port, and keep its tests"'
        yield f"    status: {'completed' if number <= DONE else 'pending'}"
        yield f"    active_form: Moving part {number}"
        yield "    acceptance:"
        yield f"      - section {number} is read through the port"
        yield '      - "all tests are green: unit and golden"'
    yield from ("meta:", "  created: 2026-01-01", f"  progress: {DONE}/{count}")


def needs(count):
    yield from ("phases:", "  - id: all", "    name: All of it", "    tasks:")
    for number in range(1, count + 1):
        before = [name_of(one) for one in (number - 7, number - 40) if one > 0]
        yield f"      - id: {name_of(number)}"
        yield f"        file: src/part{number % 40}/section_{number % 700}.py"
        yield f"        depends_on: [{', '.join(before)}]"


def checkpoint(count):
    yield from ("checkpoint:", "  spec_name: big-one", "  branch: feat/big-one", "  last_batch: 57", "  tasks:")
    for label, numbers in (("completed", range(1, DONE + 1)), ("pending", range(DONE + 1, count + 1))):
        yield f"    {label}:"
        for number in numbers:
            yield f"      - id: {name_of(number)}"
            yield f'        name: "Part {number}: move the parser of section {number} behind the port, and keep its tests"'
    yield from ("  next_batch:", "    number: 58", f"    tasks: [{name_of(DONE + 1)}]", "  deferred_issues: []")


def load_all(folder):
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), "rb") as file:
            yaml.load(file.read(), Loader=yaml.CSafeLoader)


def rows(folder):
    with tempfile.TemporaryDirectory(dir=folder) as place:
        written(place)

        def ours():
            forget()  # every time as if it were the first
            return plan(
                SpecFolder(place, place).read().tasks
            )  # a new one each time: it remembers what it has understood

        assert sum(len(batch.tasks) for batch in ours()) == TASKS - DONE
        contenders = {"bare": lambda: load_all(place), "ours": ours}
        times = side_by_side(contenders, rounds=5, repeats=2, warm_up=1)
    ratio = times["ours"].wall_us / times["bare"].wall_us
    yield f"spec of {TASKS:,} tasks: read + batch / C YAML load", f"{ratio:.2f} x", "<= 4 x", ratio <= 4
    for what, write in ((f"spec of {TASKS:,} tasks", written), ("the same with few words, in two phases", phased)):
        whole, bare = status(folder, write)
        ratio = whole / bare
        yield f"{what}: `holdfast status` / C YAML load, CPU", f"{ratio:.1f} x", "<= 10 x", ratio <= 10


def status(folder, write):
    """CPU milliseconds of `holdfast status SPEC` from its start to its end, in a repository with that spec, and of loading it."""
    with tempfile.TemporaryDirectory(dir=folder) as top:
        place = os.path.join(top, "specs", "active", "big-one")
        os.makedirs(place)
        write(place)
        bare = side_by_side({"bare": lambda: load_all(place)}, rounds=5, repeats=2, warm_up=1)["bare"].cpu_us / 1e3
        subprocess.run(["git", "init", "-q", top], check=True)
        environ = {**os.environ, "HOLDFAST_STORE": os.path.join(top, "none.db")}
        environ.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [os.path.join(os.path.dirname(sys.executable), "holdfast"), "status", "big-one"]
        here = os.getcwd()
        os.chdir(top)
        try:
            return in_turns([command], environ, rounds=9)[0], bare
        finally:
            os.chdir(here)

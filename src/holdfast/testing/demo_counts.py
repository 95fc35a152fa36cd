"""What the demo of a spec run counts, and of what: the agent's ledger, the files, git, and the heads of the log.

Every figure is of the outside, and each of those that must be zero can be something else: a test sees to that.
"""

from __future__ import annotations

import glob
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.core.named import NamedTuple
from holdfast.testing.scripted_agent import read_ledger
from holdfast.testing.workshop import BATCHES, FOLDER, TASKS, Task, Workshop, report, write

COMMITTED, IGNORED = "NOTES.md", "private.txt"
OWN = {COMMITTED: "What I think of this.\n", IGNORED: "Not for git: \N{SNOWMAN}\n"}
SETTINGS = "holdfast.toml"
_CHECKPOINT = f"{FOLDER}/checkpoint.yaml"
_COMPLETE = """
import sys
path, half, rest = sys.argv[1:]
with open(path, "a+") as file:
    file.seek(0)
    if file.read() != half + rest:
        file.write(rest)
"""
_PYTHON = (sys.executable, "-I", "-S", "-c", _COMPLETE)
_OF_ITS_TIME = re.compile(rb"^ *(?:timestamp|last_commit): .*$", re.MULTILINE)


class Look(NamedTuple):
    """What is there once a life is over. `events`: the hash of each by its number; `cut`: tasks whose file is half written."""

    events: Mapping[int, str] = {}
    effects_open: int = 0
    tasks_done: int = 0
    cut: tuple[str, ...] = ()
    own: Mapping[str, Any] = {}


class Left(NamedTuple):
    """What is left in the end. `commits`: the batch of each; `tree`: path -> content, without what tells the time."""

    ledger: Sequence[Mapping[str, Any]]
    commits: Sequence[str]
    tree: Mapping[str, bytes]
    texts: Mapping[str, str]
    events: Mapping[int, str]
    own: Mapping[str, Any]
    unclean: Sequence[str]
    trees: int
    findings: int


class Tally(NamedTuple):
    """The table. Everything from `implemented_twice` on must be zero."""

    kills_asked: int
    kills: int
    kills_at_work: int
    kills_in_effect: int
    implemented: int
    commits: int
    edits_cut: int
    edits_kept: int
    implemented_twice: int
    begun_again: int
    commits_twice: int
    files_lost: int
    own_touched: int
    events_lost: int
    processes_left: int
    work_trees_left: int
    findings: int
    differences: int

    @property
    def sound(self) -> bool:
        wrong = self[self._fields.index("implemented_twice") :]
        whole = (len(TASKS), len(BATCHES), self.edits_cut)
        return not any(wrong) and (self.implemented, self.commits, self.edits_kept) == whole


# --- the project and its agent


def furnish(shop: Workshop, environ: Mapping[str, str]) -> None:
    """Files of its user: one that is committed, one that git is told to ignore."""
    for path, text in OWN.items():
        write(shop, path, text)
    write(shop, ".gitignore", f"__pycache__/\n/{IGNORED}\n")
    for command in (["add", "-A"], ["commit", "-q", "-m", "My own notes"]):
        git(shop, environ, *command)


def halves(pause: float) -> dict[str, Any]:
    """An agent that appends the second half to what is there: whole only if the first half was kept."""
    return {
        f"implement/{task.id}": [
            {"do": "half", "path": task.file, "text": task.code},
            {"do": "sleep", "seconds": pause},
            {"do": "run", "argv": [*_PYTHON, task.file, half_of(task), task.code.removeprefix(half_of(task))]},
            report(status="success", implementation_files=[task.file], test_output="OK"),
        ]
        for task in TASKS
    }


def lies(pause: float, starts: int) -> dict[str, Any]:
    """An agent that forgets its report, and then does everything again although it is told not to."""
    return {
        f"implement/{task.id}": [
            [{"do": "append", "path": task.file, "text": task.code}, {"do": "crash", "code": 0}],
            *[
                [
                    {"do": "append", "path": task.file, "text": task.code},
                    {"do": "sleep", "seconds": pause},
                    report(status="success", implementation_files=[task.file], test_output="OK"),
                ]
            ]
            * starts,
        ]
        for task in TASKS
    }


def half_of(task: Task) -> str:
    return task.code[: len(task.code) // 2]


# --- looking


def git(shop: Workshop, environ: Mapping[str, str], *arguments: str) -> bytes:
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=shop.top, env=dict(environ), check=True, capture_output=True)
    return done.stdout


def cut_off(shop: Workshop) -> tuple[str, ...]:
    """The tasks of which some work tree has exactly the first half."""
    return tuple(task.id for task in TASKS if half_of(task).encode() in map(read, _copies(shop, task.file)))


def _copies(shop: Workshop, path: str) -> list[str]:
    trees = os.path.join(glob.escape(shop.top), ".holdfast", "worktrees", "**", path)
    return [os.path.join(shop.top, path), *glob.glob(trees, recursive=True)]


def read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def own_files(shop: Workshop) -> dict[str, Any]:
    """The user's own files: bytes, rights and time of change."""
    return {path: _as_it_is(os.path.join(shop.top, path)) for path in (*OWN, SETTINGS)}


def _as_it_is(path: str) -> tuple[bytes | None, int, int]:
    if (content := read(path)) is None:
        return None, 0, 0
    seen = os.stat(path)
    return content, seen.st_mode, seen.st_mtime_ns


def batches_of(shop: Workshop, environ: Mapping[str, str]) -> list[str]:
    """The batch that each commit of a run names, the first one first."""
    said = git(shop, environ, "log", "--reverse", "--format=%(trailers:key=Batch,valueonly,separator=%x2C)")
    return [line for line in said.decode().splitlines() if line]


def tree_of(shop: Workshop, environ: Mapping[str, str]) -> dict[str, bytes]:
    """Every committed file but the settings, which name the folder."""
    names = git(shop, environ, "ls-tree", "-r", "-z", "--name-only", "HEAD").decode().split("\0")
    contents = {name: git(shop, environ, "cat-file", "blob", f"HEAD:{name}") for name in names if name}
    contents.pop(SETTINGS, None)
    return contents | {_CHECKPOINT: _OF_ITS_TIME.sub(b"", contents.get(_CHECKPOINT, b""))}


def what_is_left(shop: Workshop, environ: Mapping[str, str], events: Mapping[int, str], findings: int) -> Left:
    return Left(
        ledger=read_ledger(shop.ledger),
        commits=batches_of(shop, environ),
        tree=tree_of(shop, environ),
        texts={task.id: (read(os.path.join(shop.top, task.file)) or b"").decode() for task in TASKS},
        events=events,
        own=own_files(shop),
        unclean=git(shop, environ, "status", "--porcelain").decode().splitlines(),
        trees=git(shop, environ, "worktree", "list", "--porcelain").count(b"worktree ") - 1,
        findings=findings,
    )


# --- counting


def tally(
    looks: Sequence[Look], left: Left, wanted: Mapping[str, bytes], own: Mapping[str, Any], figures: Mapping[str, int]
) -> Tally:
    """Compare what was seen after each life with what is left, and that with an undisturbed run. `figures`: the parent's own."""
    done = implementations(left.ledger)
    cut = [task for look in looks for task in look.cut]
    dead = looks[: figures["kills"]]
    states = [*(look.own for look in looks), left.own]
    return Tally(
        **figures,
        kills_in_effect=sum(look.effects_open > 0 for look in dead),
        implemented=len(done),
        commits=len(set(left.commits)),
        edits_cut=len(cut),
        edits_kept=sum(_code(task) in left.texts[task] for task in cut),
        implemented_twice=sum(count > 1 for count in done.values()),
        begun_again=len(begun_again(left.ledger)),
        commits_twice=len(left.commits) - len(set(left.commits)),
        files_lost=len((wanted.keys() | {*OWN, SETTINGS}) - left.tree.keys() - _there(left.own)),
        own_touched=sum(any(state.get(path) != own[path] for state in states) for path in own),
        events_lost=len(
            {(seq, mark) for look in looks for seq, mark in look.events.items()} - set(left.events.items())
        ),
        work_trees_left=left.trees,
        findings=left.findings,
        differences=len(differing(left.tree, wanted)) + len(left.unclean),
    )


def _code(name: str) -> str:
    return next(task.code for task in TASKS if task.id == name)


def _there(own: Mapping[str, Any]) -> set[str]:
    return {path for path, (content, *_) in own.items() if content is not None}


def implementations(ledger: Sequence[Mapping[str, Any]]) -> Counter[str]:
    """How often the agent put the end of each task's work into its file."""
    return Counter(line["task"] for line in ledger if line["phase"] == "implement" and line["act"] in ("run", "append"))


def begun_again(ledger: Sequence[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """Work for which an agent was started although one had come to its end with it."""
    ended: set[tuple[str, str]] = set()
    again: set[tuple[str, str]] = set()
    for line in ledger:
        work = (line["phase"], line["task"])
        if line["act"] == "start" and work in ended:
            again.add(work)
        if line["act"] == "finish":
            ended.add(work)
    return again


def differing(tree: Mapping[str, bytes], wanted: Mapping[str, bytes]) -> set[str]:
    return {path for path in tree.keys() | wanted.keys() if tree.get(path) != wanted.get(path)}

"""A checkpoint of a repository with 10,000 files, against what git itself needs to look at it or to stash it."""

import itertools
import os
import shutil
import statistics
import subprocess
import time

from holdfast.adapters.git.workspace import DEFAULT
from holdfast.adapters.git.ws_whole import take_whole
from holdfast.adapters.probes.git_place import find_repository
from holdfast.adapters.probes.git_runner import Git

FILES, CHANGED, ROUNDS = 10_000, 20, 15
NOW = "2026-01-02T03:04:05Z"


class Repository:
    """10,000 files in 1,000 folders, all committed; `environ` is that of a user without settings of their own."""

    def __init__(self, folder):
        self.top, home = folder / "repo", folder / "home"
        home.mkdir(parents=True)
        self.environ = {"HOME": str(home), "PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1"}
        self.top.mkdir()
        self.paths = [
            self.top / f"d{number % 100:02}" / f"e{number // 1000}" / f"{number}.txt" for number in range(FILES)
        ]
        for path in self.paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"a line of file {path.name}\n" * 40)
        self.plainly("init", "-q")
        self.plainly("config", "user.name", "Somebody")
        self.plainly("config", "user.email", "somebody@example.invalid")
        self.plainly("add", "-A")
        self.plainly("commit", "-q", "-m", "all of it")
        time.sleep(1.1)  # or git would take the files for changed in the moment of the commit, and read them every time
        self.plainly("status")
        self.git = Git(find_repository(str(self.top)), self.environ)
        self.count = 0

    def plainly(self, *argv):
        subprocess.run(["git", *argv], cwd=self.top, env=self.environ, stdout=subprocess.DEVNULL, check=True)

    def change(self, number):
        """New contents for always the same files, so that neither git nor we have more to do each time."""
        for path in self.paths[:: FILES // CHANGED]:
            path.write_text(f"round {number} of file {path.name}\n" * 40)

    def checkpoint(self):
        self.count += 1
        name = f"bench-{self.count}"
        take_whole(self.git, name, NOW, DEFAULT)

    def first_checkpoint(self):
        """As if none had been before it in this work tree."""
        shutil.rmtree(self.top / ".git" / "holdfast", ignore_errors=True)
        self.git = Git(self.git.place, self.environ)
        self.checkpoint()


def turns(contenders, rounds=ROUNDS):
    """The median seconds of each callable; before each call its preparation is done, off the clock."""
    times = {name: [] for name in contenders}
    for number in range(rounds):
        for name, (prepare, call) in contenders.items():
            prepare(number)
            began = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - began)
    return {name: statistics.median(rows) for name, rows in times.items()}


def twenty_changed(repository, ours, rounds=ROUNDS):
    """Each finds 20 files changed since the last look."""
    numbers = itertools.count()

    def prepare(_):
        repository.change(next(numbers))

    stash = (prepare, lambda: repository.plainly("stash", "create"))
    return turns({"stash": stash, "ours": (prepare, ours)}, rounds)


def nothing_changed(repository):
    def nothing(_):
        pass

    repository.checkpoint()
    repository.plainly("status")
    return turns({"status": (nothing, lambda: repository.plainly("status")), "ours": (nothing, repository.checkpoint)})


def rows(folder):
    """Yield (what, measured, goal, met)."""
    repository = Repository(folder / "git")
    found = nothing_changed(repository)
    ratio = found["ours"] / found["status"]
    yield "checkpoint, nothing changed / `git status`", f"{ratio:.2f} x", "<= 1.5 x", ratio <= 1.5
    found = twenty_changed(repository, repository.checkpoint)
    ratio = found["ours"] / found["stash"]
    yield "checkpoint, 20 of 10,000 files changed / `git stash create`", f"{ratio:.2f} x", "<= 3 x", ratio <= 3
    found = twenty_changed(repository, repository.first_checkpoint, rounds=7)
    ratio = found["ours"] / found["stash"]
    yield "the first checkpoint of a work tree / the same", f"{ratio:.2f} x", "", True

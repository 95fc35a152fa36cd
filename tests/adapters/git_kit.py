"""What tests of the git adapters share: a repository of their own, and plain git to look at it with."""

from __future__ import annotations

import os
import subprocess

from holdfast.adapters.probes.git_place import find_repository
from holdfast.adapters.probes.git_runner import Git


class Kit:
    """A home with an identity and a repository on `main` with one commit; `git` runs in it as a user would."""

    def __init__(self, folder):
        self.home, self.top = folder / "home", folder / "repo"
        self.home.mkdir()
        self.top.mkdir()
        self.environ = {"HOME": str(self.home), "PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.name", "Somebody")
        self.git("config", "user.email", "somebody@example.invalid")
        self.commit("first", **{"a.txt": "a\n"})

    def ask(self, *argv, at=None, environ=None, stdin=None):
        return subprocess.run(
            ["git", *argv],
            cwd=at or self.top,
            env={**self.environ, **(environ or {})},
            input=stdin,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            check=False,
        )

    def git(self, *argv, at=None, environ=None, stdin=None):
        done = self.ask(*argv, at=at, environ=environ, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout.rstrip("\n")

    def write(self, path, data="x\n"):
        target = os.path.join(self.top, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as file:
            file.write(data if isinstance(data, bytes) else data.encode())
        return target

    def commit(self, message, **files):
        for path, data in files.items():
            self.write(path, data)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def runner(self, top=None, seconds=60.0):
        return Git(find_repository(str(top or self.top)), self.environ, seconds)

"""Kills acts: in a forked child, by a `git` of our own in front of the real one, or after a while. Knows nothing of effects."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path

from holdfast.adapters.git import content, ws_gather
from holdfast.adapters.probes import git_runner

# Stands in front of git and dies, or lets its caller die, at one call. The subcommand stands behind `-C FOLDER`, if any.
WRAPPER = """#!/bin/sh
case "$1" in -C) echo "$3";; *) echo "$1";; esac >> {calls}
[ "$(wc -l < {calls})" = {at} ] || exec {git} "$@"
[ {how} = before ] && kill -9 $PPID
cat > {stdin}
case {how} in
orphan) kill -9 $PPID; sleep 0.3; {git} "$@" < {stdin}; echo > {over};;
after)  {git} "$@" < {stdin}; kill -9 $PPID;;
middle) {git} "$@" < {stdin} & sleep {pause}; kill -9 $! $PPID;;
esac
"""


class Front:
    """A folder with a `git` that strikes at its n-th call, to be put before all others on the path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.calls, self.over = folder / "calls", folder / "over"
        self.git = shutil.which("git") or ""

    def strike(self, at: int, how: str, pause: float = 0.0) -> dict[str, str]:
        """The path under which it strikes. Whoever works then is a new process, and remembers nothing of git."""
        known = (git_runner._SETTINGS, git_runner._TREES, git_runner._COMMITS, content._HELD, ws_gather._LISTED)
        for memory in known:
            memory.clear()
        for path in (self.calls, self.over):
            path.unlink(missing_ok=True)
        self.calls.touch()
        names = {"calls": self.calls, "over": self.over, "stdin": self.folder / "stdin", "git": self.git}
        names |= {"at": at, "how": how, "pause": f"{pause:.4f}"}
        (self.folder / "git").write_text(WRAPPER.format(**names))
        (self.folder / "git").chmod(0o755)
        return {"PATH": f"{self.folder}:{os.environ['PATH']}"}

    def called(self) -> list[str]:
        return self.calls.read_text().split()

    def wait_for_orphan(self) -> None:
        end = time.monotonic() + 20
        while not self.over.exists() and time.monotonic() < end:
            time.sleep(0.01)
        assert self.over.exists()


def in_child(act) -> int:
    """Do it in a forked child; its wait status. A child that is killed says nothing."""
    pid = os.fork()
    if pid == 0:
        code = 1
        with contextlib.suppress(BaseException):
            act()
            code = 0
        os._exit(code)
    return os.waitpid(pid, 0)[1]

"""Lock files that a git of ours left when it was killed. Removes none that could be anybody else's, or in use.

A lock goes only if it was made after a commit of ours was announced, stands unchanged for a while, and no git is at work
in the repository. Where that cannot be seen, it stays, and git says so.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

from holdfast.adapters.probes.git_runner import Repository

WHILE = 1.0  # seconds; a git that lives holds such a lock for a moment
_PROC = "/proc"
Stamp = tuple[int, int, int]


def clear_forsaken(place: Repository, ref: str | None, since_ns: int) -> list[str]:
    """Remove the locks on HEAD and a branch that were made since then and that nobody holds any more; which they were."""
    names = [os.path.join(place.git_dir, "HEAD.lock"), *([os.path.join(place.common, f"{ref}.lock")] if ref else [])]
    locks = {path: stamp for path in names if (stamp := _stamp(path)) is not None and stamp[2] >= since_ns}
    if not locks:
        return []
    time.sleep(WHILE)
    forsaken = [path for path, stamp in locks.items() if _stamp(path) == stamp]
    if not forsaken or is_git_at_work(place):
        return []
    for path in forsaken:
        with suppress(FileNotFoundError):
            os.unlink(path)
    return forsaken


def _stamp(path: str) -> Stamp | None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def is_git_at_work(place: Repository) -> bool:
    """Whether a git process stands in the repository; also where that cannot be told."""
    if not os.path.isdir(os.path.join(_PROC, "self")):
        return True
    return any(_is_git_in(pid, place) for pid in os.listdir(_PROC) if pid.isdigit())


def _is_git_in(pid: str, place: Repository) -> bool:
    try:
        with open(os.path.join(_PROC, pid, "comm"), "rb") as file:
            if not file.read().startswith(b"git"):
                return False
        cwd = os.path.realpath(os.readlink(os.path.join(_PROC, pid, "cwd")))
    except (FileNotFoundError, ProcessLookupError):
        return False  # it has ended
    except OSError:
        return True
    return any(cwd == folder or cwd.startswith(folder.rstrip("/") + "/") for folder in (place.top, place.common))

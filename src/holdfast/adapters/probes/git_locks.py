"""Lock files: waits for those of others, and removes what a git of ours left when it was killed. Never one that may be in use.

A lock goes only if it was made after a commit of ours was announced, stands unchanged for a while, and no git is at work
in the repository. Where that cannot be seen, it stays, and git says so.
"""

from __future__ import annotations

import os
import random
import shlex
import time
from collections.abc import Iterator
from contextlib import suppress

from holdfast.adapters.paths import real_path
from holdfast.adapters.probes.git_place import Repository
from holdfast.core.named import NamedTuple

WHILE = 1.0  # seconds; a git that lives holds such a lock for a moment
INDEX_PATIENCE = 8.0  # seconds; less than others wait for us
_PAUSES = (0.02, 0.1)
_NAMED = 3
_PROC = "/proc"
Stamp = tuple[int, int, int]


class Held(NamedTuple):
    """A lock that stays: what is known of it, and what helps."""

    sentence: str
    advice: str


def wait_for_index(place: Repository) -> Held | None:
    """Wait for another git that holds the user's index, for as long as INDEX_PATIENCE; None if nobody holds it then."""
    lock, until = f"{place.index_file}.lock", time.monotonic() + INDEX_PATIENCE
    while (stamp := _stamp(lock)) is not None:
        if time.monotonic() >= until:
            return _held(lock, stamp, place)
        time.sleep(random.uniform(*_PAUSES))
    return None


def _held(lock: str, stamp: Stamp, place: Repository) -> Held:
    age = max(0, (time.time_ns() - stamp[2]) // 10**9)
    gits = [pid for pid in _processes() if _is_git_in(pid, place)]
    who = f"git is at work here as process {', '.join(gits[:_NAMED])}" if gits else "no git is seen at work here"
    sentence = f"Somebody holds the index: {lock} has been there for {age} seconds, and {who}."
    remove = f"if nothing is at work here any more, `{shlex.join(['rm', lock])}`"
    return Held(sentence, f"Wait for it to end; or, {remove}." if gits else f"{remove[0].upper()}{remove[1:]}.")


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
    return not _can_look() or any(_is_git_in(pid, place) for pid in _processes())


def may_be_git(pid: int) -> bool:
    """Whether a process is a git; also where that cannot be told."""
    if not _can_look():
        return True
    try:
        return _is_git(str(pid))
    except (FileNotFoundError, ProcessLookupError):
        return False  # it has ended
    except OSError:
        return True


def _can_look() -> bool:
    return os.path.isdir(os.path.join(_PROC, "self"))


def _processes() -> Iterator[str]:
    with suppress(FileNotFoundError):
        yield from filter(str.isdigit, os.listdir(_PROC))


def _is_git(pid: str) -> bool:
    with open(os.path.join(_PROC, pid, "comm"), "rb") as file:
        return file.read().startswith(b"git")


def _is_git_in(pid: str, place: Repository) -> bool:
    try:
        if not _is_git(pid):
            return False
        cwd = real_path(os.readlink(os.path.join(_PROC, pid, "cwd")))
    except (FileNotFoundError, ProcessLookupError):
        return False  # it has ended
    except OSError:
        return True
    return any(cwd == folder or cwd.startswith(folder.rstrip("/") + "/") for folder in (place.top, place.common))

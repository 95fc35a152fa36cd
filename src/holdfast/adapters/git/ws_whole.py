"""Takes a snapshot and keeps it, whole: if a garbage collection took new objects away before the ref was there, begins anew.

Until a ref keeps them, `git gc --prune=now` may remove the objects of a snapshot. So the ref comes first, then the look.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

from holdfast.adapters.git.workspace import Policy, Snapshot, WorkspaceError, drop, keep, take
from holdfast.adapters.git.ws_desk import place_of
from holdfast.adapters.probes.git_locks import may_be_git
from holdfast.adapters.probes.git_runner import Git

ATTEMPTS = 4
PATIENCE = 10.0  # seconds for a collection that is going on
_PAUSE = 0.05
_MOST = 512  # a number and the name of a host
_STALE = 12 * 60 * 60.0  # seconds; nor does git believe an older note
_MISSING = "Objects of the snapshot are missing: git collected them while it was taken, or has lost some before."


class Swept(WorkspaceError):
    """A snapshot of which git no longer has everything. It is not kept."""

    advice = "Wait until no `git gc` or `git prune` is at work here, then try again; `git fsck` says what is missing."


def take_whole(git: Git, checkpoint_id: str, now: str, policy: Policy) -> Snapshot:
    for left in reversed(range(ATTEMPTS)):
        try:
            return _once(git, checkpoint_id, now, policy)
        except WorkspaceError as error:
            was_collecting = _let_collect(git)
            if not left or not (was_collecting or isinstance(error, Swept)):
                raise
    raise AssertionError


def _once(git: Git, checkpoint_id: str, now: str, policy: Policy) -> Snapshot:
    made = take(git, checkpoint_id, now, policy)
    try:
        held = keep(git, checkpoint_id, made)
    except WorkspaceError as error:
        if _is_whole(git, made):
            raise
        raise Swept(_MISSING) from error
    if made.is_new:
        _let_collect(git)
        if not _is_whole(git, made):
            drop(git, checkpoint_id, made.sha)
            raise Swept(_MISSING)
    return held


def _is_whole(git: Git, made: Snapshot) -> bool:
    """Whether git has every object that is not in HEAD too. A clone that lacks some on purpose cannot be asked."""
    if any(name == "extensions.partialclone" for _, name, _ in git.settings):
        return True
    since = ("--not", made.head) if made.head else ()
    return git.ask("rev-list", "--objects", "--quiet", made.sha, *since, "--").code == 0


def _let_collect(git: Git) -> bool:
    """Wait for a collection: what it saw before the ref was there, it may still remove. Whether there was one."""
    note, began = os.path.join(place_of(git).common, "gc.pid"), time.monotonic()
    was_there = _is_collecting(note)
    while _is_collecting(note) and time.monotonic() < began + PATIENCE:
        time.sleep(_PAUSE)
    return was_there


def _is_collecting(note: str) -> bool:
    """Whether the git that a collection names in its note is at work here: one that was killed leaves the note."""
    try:
        with open(note, encoding="ascii") as file:
            pid, host = file.read(_MOST).split()
            is_old = time.time() - os.fstat(file.fileno()).st_mtime > _STALE
        return not is_old and host == os.uname().nodename and _lives(int(pid)) and may_be_git(int(pid))
    except (OSError, ValueError, OverflowError):
        return False


def _lives(pid: int) -> bool:
    with suppress(PermissionError):  # somebody else's lives too
        os.kill(pid, 0)
    return True

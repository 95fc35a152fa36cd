"""One restore in place at a time. A git that a killed restore left at work is waited for; one that does not end is a refusal.

Such a restore marks its desk. Whoever holds the lock of a marked desk, a git alone too, may still change files.
"""

from __future__ import annotations

import fcntl
import os
import time

from holdfast.adapters.git.ws_desk import Desk, WorkspaceError, turn
from holdfast.adapters.probes.common import wait_for

PATIENCE = 60.0
_MARK = "in-place"
_PAUSE = 0.05
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class AtWork(WorkspaceError):
    """A restore in place that is not at its end."""

    advice = "Wait until it ends, then try again. Nothing of yours was changed."


def be_alone(desk: Desk) -> None:
    """Mark a desk, once no other marked one is in use."""
    until = time.monotonic() + PATIENCE
    while not _marked(desk):
        if time.monotonic() >= until:
            raise AtWork(f"Another restore is still changing files in {desk.place.top}.")
        time.sleep(_PAUSE)


def _marked(desk: Desk) -> bool:
    with turn(desk.home):
        others = [os.path.join(desk.home, name) for name in os.listdir(desk.home) if name.startswith("work-")]
        if any(_is_busy(folder) for folder in others if folder != desk.folder):
            return False
        os.mkdir(desk.path(_MARK), 0o700)  # a folder: files of a desk may be cleared away
    return True


def _is_busy(folder: str) -> bool:
    if not os.path.lexists(os.path.join(folder, _MARK)):
        return False
    try:
        fd = os.open(folder, _FOLDER)
    except FileNotFoundError:
        return False
    try:
        return not wait_for(fd, fcntl.LOCK_SH, 0.0)
    finally:
        os.close(fd)

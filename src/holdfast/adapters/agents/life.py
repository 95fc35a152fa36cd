"""Tells a dead program from a slow one: it lives while it speaks, uses the processor, or files change below its folder."""

from __future__ import annotations

import os
import time
from collections import deque

from holdfast.adapters.processes import Tree, cpu_seconds

AT_WORK = 0.01  # of the time on the processor; less is only waiting
LEFT_OUT = frozenset({".git", ".venv", "node_modules", "__pycache__"})
MAX_ENTRIES = 20_000
MAX_SECONDS = 0.5
_SHORTEST, _LONGEST = 0.2, 15.0


class Life:
    """Asked again and again whether a program is still alive. It looks rarely, and at files only when nothing else is a sign."""

    def __init__(self, tree: Tree, cwd: str, stall_after: float) -> None:
        self._tree, self._cwd, self._stall_after = tree, cwd, stall_after
        self._pause = min(_LONGEST, max(_SHORTEST, stall_after / 5))
        self._looked = self._sign = time.monotonic()
        self._sign_at = time.time()
        self._cpu, self._pids = 0.0, frozenset[int]()

    def sign(self) -> None:
        self._sign, self._sign_at = time.monotonic(), time.time()

    @property
    def quiet_for(self) -> float:
        """Seconds since the last sign of life."""
        return time.monotonic() - self._sign

    def death(self) -> str | None:
        """What shows that it is dead; None while it is not."""
        if time.monotonic() - self._looked < self._pause:
            return None
        used = self._look()
        if self.quiet_for < self._stall_after:
            return None
        if changed_since(self._cwd, self._sign_at):
            self.sign()
            return None
        count = len(self._pids)
        return (
            f"for {self.quiet_for:.0f} seconds it said nothing, changed no file, and hardly used the processor "
            f"({used:.2f} seconds of late, {count} process{'' if count == 1 else 'es'})"
        )

    def _look(self) -> float:
        """The processor time since the last look. A process that came or went is a sign of life too."""
        processes = self._tree.look()
        cpu, pids, now = cpu_seconds(processes), frozenset(one.pid for one in processes), time.monotonic()
        used, passed = abs(cpu - self._cpu), now - self._looked
        if used > AT_WORK * passed or pids != self._pids:
            self.sign()
        self._cpu, self._pids, self._looked = cpu, pids, now
        return used


def changed_since(folder: str, moment: float) -> bool:
    """Whether a file or folder below was changed after a moment. Looks at no more than a bounded number, the nearest first."""
    waiting, entries, end = deque([folder]), 0, time.monotonic() + MAX_SECONDS
    while waiting and entries < MAX_ENTRIES and time.monotonic() < end:
        try:
            with os.scandir(waiting.popleft()) as found:
                for entry in found:
                    entries += 1
                    if entry.name in LEFT_OUT:
                        continue
                    if entry.stat(follow_symlinks=False).st_mtime > moment:
                        return True
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError:
            continue
    return False

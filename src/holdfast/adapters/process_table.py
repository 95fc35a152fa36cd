"""All processes of this machine, each looked at once: its parent, its group and its start. Judges nobody and ends nobody."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from holdfast.core.lean import Later
from holdfast.core.named import NamedTuple

if TYPE_CHECKING:
    import psutil
else:
    psutil = Later("psutil")  # only where there is no /proc


class Row(NamedTuple):
    """One process, as a look at all of them tells it: its parent, its group, and when it started, as `start_time` has it.

    `is_over`: it does nothing any more, and only waits for its parent to hear of it.
    """

    parent: int
    group: int
    started: str
    is_over: bool = False

    def is_before(self, moment: str) -> bool:
        return _number(self.started) < _number(moment)


HAS_PROC = os.path.isdir("/proc/self")
_LOOKS = 3
_STAT = 4096  # more than the system has to say of one


def _number(moment: str) -> float:
    """A moment to be compared; one that nobody knows is before all others."""
    try:
        return max(0.0, float(moment))
    except ValueError:
        return 0.0


# Processes that were looked at: the number of each one's entry in /proc, which is no other's as long as it lives, and its start.
_KNOWN: dict[int, tuple[int, float]] = {}
_MANY = 10_000


def everyone(since: str = "") -> dict[int, Row]:
    """All processes, but for those that started before some moment; each is looked at once.

    There may be hundreds, and whoever ends a piece of work looks at them all: one that is known to be older is not read again.
    One that went meanwhile may have left a child that came too late for the list, so there is a look for new ones then.
    """
    rows: dict[int, Row | None] = {}
    older, first = Row(0, 0, ""), _number(since)
    for _ in range(_LOOKS):
        entries = _listed()
        fresh = {pid: older if _is_older(pid, entries[pid], first) else _row(pid) for pid in entries.keys() - rows}
        rows |= fresh
        if None not in fresh.values():
            break
    return {pid: row for pid, row in rows.items() if row not in (None, older) and _number(row.started) >= first}


def _listed() -> dict[int, int]:
    """Every process there is, with the number of its entry."""
    if not HAS_PROC:
        return dict.fromkeys(psutil.pids(), 0)
    with os.scandir("/proc") as entries:
        return {int(entry.name): entry.inode() for entry in entries if entry.name.isdecimal()}


def _is_older(pid: int, entry: int, first: float) -> bool:
    """Whether it is one that we know, and started earlier."""
    known, started = _KNOWN.get(pid, (0, 0.0))
    return entry != 0 and known == entry and started < first


def _entry(pid: int) -> int:
    try:
        return os.stat(f"/proc/{pid}").st_ino
    except OSError:
        return 0


def _row(pid: int) -> Row | None:
    if not HAS_PROC:
        try:
            process = psutil.Process(pid)
            return Row(process.ppid(), os.getpgid(pid), str(process.create_time()))
        except (OSError, psutil.Error):
            return None
    entry = _entry(pid)
    fields = proc(pid, "stat", _STAT).rpartition(b")")[2].split(None, 20)
    if len(fields) <= 19:
        return None
    if len(_KNOWN) > _MANY:
        _KNOWN.clear()
    _KNOWN[pid] = entry, float(fields[19])
    return Row(int(fields[1]), int(fields[2]), fields[19].decode(), fields[0] == b"Z")


def family(roots: Iterable[int], rows: Mapping[int, Row]) -> set[int]:
    """These and all their descendants. Nobody is older than the parent: such a one got the number of somebody else."""
    children: dict[int, list[int]] = {}
    for pid, row in rows.items():
        children.setdefault(row.parent, []).append(pid)
    found, waiting = set[int](), list(roots)
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting += [
                one for one in children.get(pid, ()) if pid in rows and not rows[one].is_before(rows[pid].started)
            ]
    return found


def proc(pid: int, name: str, most: int = 0) -> bytes:
    """What the system says of a process, in one piece of `most` bytes or all; nothing if it is gone or not ours to look at."""
    try:
        fd = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, most) if most else b"".join(iter(lambda: os.read(fd, 1 << 20), b""))
    except OSError:
        return b""
    finally:
        os.close(fd)

"""Makes files and folders durable, several at a time, and remembers which are. Nothing is promised before all of it is done.

What was synced and is still the same, by inode and times of change, need not be synced again. What was changed only just
now is not remembered: a second change within one tick of the clock would look the same. Whether the clock has moved on since,
the file system itself is asked, where we have a folder there; elsewhere enough time must have passed.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from holdfast.adapters.ledger import sync_folder

TOGETHER = 3  # syncs that are asked for at once; more threads cost more than they save
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

# What was synced here, as it was then. An object that is still the same file was written whole before it got its name.
Seen = tuple[int, int, int]  # inode, and when content and inode were changed
_SYNCED: dict[str, Seen] = {}
_MANY = 20_000
_TICK_NS = 2_000_000_000  # what is changed twice within one tick of a file system's clock can look the same
_FINE_NS = 100_000_000  # ten times what the kernel takes for a tick


def sync_objects(objects: str, since_ns: int, clock: str) -> None:
    """Make every loose object durable that was written or found again since then, and its name.

    Git was told not to sync them: it would do so one by one, at the price of a turn of the disk each. Asked for together,
    they share a few turns, and what was synced before and has not changed is left alone. `clock` is a folder of ours in the
    same repository, which is touched to see what time its file system has.
    """
    files: dict[str, Seen] = {}
    folders: dict[str, Seen] = {}
    places = (f"{objects}/{name}" for name in os.listdir(objects) if len(name) == 2)
    for folder, seen in _since(places, since_ns):
        fresh = {path: how for path, how in _since(_files(folder), since_ns) if _SYNCED.get(path) != how}
        if fresh or _SYNCED.get(folder) != seen:
            files |= fresh
            folders[folder] = seen
    if folders:
        now_ns, told_ns = time.time_ns(), _told_by(clock, objects)  # before the sync, which covers what came until now
        sync_paths([*files, *folders, objects])  # with a file its name is mostly on the disk: the folder takes no turn
        _remember(files | folders, now_ns, told_ns)


def _told_by(clock: str, beside: str) -> int:
    """The time that the file system gives to what is changed now; 0 if the two are not on the same one."""
    os.utime(clock)
    found = os.lstat(clock)
    return min(found.st_mtime_ns, found.st_ctime_ns) if found.st_dev == os.stat(beside).st_dev else 0


def sync_folders(folders: Iterable[str]) -> None:
    """Make the names in those of the folders durable that are there, one after the other, but for what already is."""
    now_ns = time.time_ns()
    for folder in folders:
        seen = _folder(folder)
        if seen is not None and _SYNCED.get(folder) != seen:
            sync_folder(folder)
            _remember({folder: seen}, now_ns)


def _folder(path: str) -> Seen | None:
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return _seen(found) if stat.S_ISDIR(found.st_mode) else None


def _remember(synced: Mapping[str, Seen], now_ns: int, told_ns: int = 0) -> None:
    """Those that were last changed at a time which no change has any more that came after the sync began."""
    if len(_SYNCED) > _MANY:
        _SYNCED.clear()
    _SYNCED.update(
        (path, seen) for path, seen in synced.items() if max(seen[1:]) < (told_ns or now_ns - _tick_of(seen))
    )


def _tick_of(seen: Seen) -> int:
    """How long the clock of a file system may stand still: where it tells parts of a microsecond, not for long."""
    return _FINE_NS if all(moment % 1000 for moment in seen[1:]) else _TICK_NS


def sync_paths(paths: Sequence[str]) -> None:
    """Sync some files and folders, several at a time. Nothing is promised of any of them before all are done."""
    waiting, failed = deque(paths), list[Exception]()

    def go_on() -> None:
        while waiting and not failed:
            try:
                sync_path(waiting.popleft())
            except IndexError:
                return  # another was quicker
            except Exception as error:  # noqa: BLE001 - it is raised where all of them are waited for
                failed.append(error)

    threads = [threading.Thread(target=go_on) for _ in range(min(TOGETHER, len(paths)) - 1)]
    for thread in threads:
        thread.start()
    try:
        go_on()
    finally:
        waiting.clear()
        for thread in threads:
            thread.join()
    if failed:
        raise failed[0]


def _files(folder: str) -> list[str]:
    try:
        return [f"{folder}/{name}" for name in os.listdir(folder)]
    except FileNotFoundError:  # a git of the user packed all of it meanwhile, durably
        return []


def _since(paths: Iterable[str], since_ns: int) -> Iterator[tuple[str, Seen]]:
    """Those that were changed since then: which file each is now, and when it was changed."""
    for path in paths:
        try:
            found = os.lstat(path)
        except FileNotFoundError:  # a temporary file of another git, or an object that was packed meanwhile
            continue
        if max(found.st_mtime_ns, found.st_ctime_ns) >= since_ns:
            yield path, _seen(found)


def _seen(found: os.stat_result) -> Seen:
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def sync_path(path: str) -> None:
    """Sync a file or a folder; one that is gone was packed meanwhile, durably, or was a draft of another git."""
    try:
        fd = os.open(path, _READ)
    except FileNotFoundError:
        return
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

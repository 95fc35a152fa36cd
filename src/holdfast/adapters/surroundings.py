"""What lies around a store on this machine: space, file system, modes, leftovers. Only `remove_drafts` changes anything."""

from __future__ import annotations

import os
import time

from holdfast.adapters.paths import real_path

FILES = ("", "-wal", "-shm", "-witness", "-lock")
OURS = (".holdfast", "holdfast")
STALE = 60.0  # seconds; making a store takes far less


def existing(folder: str) -> str:
    """The nearest folder that is there."""
    while not os.path.isdir(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    return folder


def free_bytes(folder: str) -> int | None:
    try:
        found = os.statvfs(existing(folder))
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def filesystem(folder: str) -> str | None:
    """The type of the file system under a folder, where the system says so."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            mounts = dict(_mount(line) for line in file)
    except OSError:
        return None
    path = real_path(existing(folder))
    while path not in mounts and path != "/":
        path = os.path.dirname(path)
    return mounts.get(path)


def _mount(line: str) -> tuple[str, str]:
    before, _, after = line.partition(" - ")
    return before.split(" ")[4].replace("\\040", " "), after.split(" ")[0]


def modes(place: str) -> tuple[tuple[str, int], ...]:
    """Path and mode of the store's files and of its folder; a folder that is not ours counts only if others may write."""
    folder = os.path.dirname(place)
    found = [(path, _mode(path)) for path in (folder, *(place + end for end in FILES))]
    is_ours = os.path.basename(folder) in OURS
    return tuple((path, mode) for path, mode in found if mode and (is_ours or path != folder or _is_open(mode)))


def _is_open(mode: int) -> bool:
    """Whether others may write it, or its owner may not."""
    return bool(mode & 0o022 or 0o700 & ~mode)


def foreign(place: str) -> tuple[tuple[str, int], ...]:
    """What of the store belongs to another user, and to whom. A folder that is not ours may belong to anybody."""
    folder = os.path.dirname(place)
    ours = [folder] if os.path.basename(folder) in OURS else []
    found = [(path, _owner(path)) for path in (*ours, *(place + end for end in FILES))]
    return tuple((path, uid) for path, uid in found if uid not in (None, os.geteuid()))


def _owner(path: str) -> int | None:
    try:
        return os.stat(path).st_uid
    except OSError:
        return None


def _mode(path: str) -> int:
    try:
        return os.stat(path).st_mode
    except OSError:
        return 0


def drafts(place: str) -> list[str]:
    """What an interrupted creation of this store left, old enough that nobody is still at it."""
    folder, name = os.path.split(place)
    try:
        found = [entry for entry in os.scandir(folder) if entry.name.startswith(f"{name}.new-")]
    except OSError:
        return []  # a folder that is not there, or that hides what is in it
    return sorted(entry.path for entry in found if _is_stale(entry))


def _is_stale(entry: os.DirEntry[str]) -> bool:
    return entry.is_file(follow_symlinks=False) and time.time() - entry.stat(follow_symlinks=False).st_mtime > STALE


def remove_drafts(place: str) -> list[str]:
    found = drafts(place)
    for path in found:
        os.unlink(path)
    return found

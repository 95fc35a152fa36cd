"""The folder of sidecars: writes one file whole or not at all, reads them all. Refuses links, and skips nothing in silence.

A writer holds a lock on its temporary file, and a killed one holds none: so what a killed writer left can be told from
what a living one is about to rename.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import re
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from holdfast.adapters.ledger import write_all
from holdfast.core.errors import HoldfastError
from holdfast.core.named import NamedTuple
from holdfast.core.sidecar import ENDING, MAX_BYTES, BadSidecar, Sidecar, file_name, from_bytes, from_runr, to_bytes
from holdfast.core.stops import snippet

ASIDE = ".set-aside"
MOST = 100_000  # files; more is somebody's mistake, and is said
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TEMPORARY = re.compile(r"\.[a-z0-9._-]{1,80}\.[0-9a-f]{16}\.new")
_OF_RUNR = re.compile(r"([0-9a-f]{40}|[0-9a-f]{64})\.json")


MEND, MOVE, NEWER = "mend", "move", "newer"


class Refused(NamedTuple):
    """A file in the folder that is no sidecar one could use, and why.

    What helps: MEND, `set_aside` and `remove_leftovers` take it away; MOVE, a person may; NEWER, a newer Holdfast reads it.
    """

    path: str
    why: str
    cure: str | None = None


class SidecarUnwritable(HoldfastError):
    """The mirror could not be written. The checkpoint itself stands: it is in the log and in git."""

    reason = "checkpoint_unwritable"
    advice = "Make the folder writable and free of links, then let `holdfast doctor --fix` write the file again."

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"The sidecar {path} could not be written: {problem}.")
        self.path = path
        self.problem = problem


class SidecarsUnreadable(HoldfastError):
    """The folder itself cannot be read; what is in it is not known."""

    reason = "bad_input"
    advice = "Make it a plain folder that you may read. Nothing was changed."


def write(folder: str, sidecar: Sidecar) -> str:
    """Write it under its checkpoint's id, durably, in the place of an older one; returns the path of the file."""
    name = file_name(sidecar.checkpoint_id)
    path = os.path.join(os.path.abspath(folder), name)
    data = to_bytes(sidecar)
    try:
        with _open(folder, make=True) as at:
            _refuse_odd(at, name)
            _replace(at, name, data)
    except OSError as error:
        raise SidecarUnwritable(path, error.strerror or str(error)) from error
    return path


def read_all(folder: str) -> tuple[list[Sidecar], list[Refused]]:
    """Every sidecar in the folder by name, ours and Runr's, and everything else that is in it."""
    top = os.path.abspath(folder)
    good: list[Sidecar] = []
    bad: list[Refused] = []
    try:
        with _open(folder) as at:
            for name in _names(at, top, bad):
                read = _read(at, name)
                if isinstance(read, Sidecar):
                    good.append(read)
                else:
                    bad.append(read._replace(path=os.path.join(top, name)))
    except FileNotFoundError:
        return [], []
    except OSError as error:
        raise SidecarsUnreadable(f"The folder of sidecars {top} cannot be read: {error.strerror or error}.") from error
    return good, bad


def remove_leftovers(folder: str) -> list[str]:
    """Remove what killed writers left, and return their paths. What a living one is writing is left alone."""
    try:
        with _open(folder) as at:
            gone = [name for name in sorted(os.listdir(at)) if _TEMPORARY.fullmatch(name) and _remove(at, name)]
            os.fsync(at)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise SidecarUnwritable(os.path.abspath(folder), error.strerror or str(error)) from error
    return [os.path.join(os.path.abspath(folder), name) for name in gone]


def set_aside(folder: str, false: Collection[str] = ()) -> list[str]:
    """Move sidecars that cannot be used out of the way, into a folder beside theirs, and return where they are now.

    `false` are the names of some that can be read, and are not believed. Nothing is deleted or overwritten.
    What a newer Holdfast wrote stays where it is, and so does what is no sidecar at all.
    """
    aside = os.path.abspath(folder) + ASIDE
    try:
        with _open(folder) as at:
            names = [name for name in sorted(os.listdir(at)) if name.endswith(ENDING)]
            spoiled = [name for name in names if name in false or _is_spoiled(at, name)]
            if not spoiled:
                return []
            with _open(aside, make=True) as there:
                moved = [_move(at, there, name) for name in spoiled]
                os.fsync(there)
            os.fsync(at)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise SidecarUnwritable(aside, error.strerror or str(error)) from error
    return [os.path.join(aside, name) for name in moved]


# --- the folder


@contextmanager
def _open(folder: str, make: bool = False) -> Iterator[int]:
    """The folder, reached without following a link in its own name or in that of the folder around it."""
    around, last = os.path.split(os.path.abspath(folder))
    above, middle = os.path.split(around)
    at = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in (middle, last):
            inner = _step(at, name, make)
            os.close(at)
            at = inner
        yield at
    finally:
        os.close(at)


def _step(at: int, name: str, make: bool) -> int:
    if make:
        try:
            os.mkdir(name, 0o700, dir_fd=at)
        except FileExistsError:
            return os.open(name, _FOLDER, dir_fd=at)
        os.fsync(at)
    return os.open(name, _FOLDER, dir_fd=at)


def _names(at: int, top: str, bad: list[Refused]) -> list[str]:
    names = sorted(os.listdir(at))
    if len(names) > MOST:
        bad.append(Refused(top, f"it holds {len(names):,} files; only the first {MOST:,} were read"))
    return names[:MOST]


# --- writing


def _refuse_odd(at: int, name: str) -> None:
    """What is replaced must be a file: a link or folder in its place is not our doing."""
    try:
        there = os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(there.st_mode):
        raise OSError("something that is not a plain file has its name")


def _replace(at: int, name: str, data: bytes) -> None:
    temporary, fd = _make(at, name)
    try:
        write_all(fd, data, 0)
        os.fsync(fd)
        os.rename(temporary, name, src_dir_fd=at, dst_dir_fd=at)
    except BaseException:
        _unlink(at, temporary)
        raise
    finally:
        os.close(fd)
    os.fsync(at)


def _make(at: int, name: str) -> tuple[str, int]:
    """A new temporary file, locked by us. One that was cleared away before it was locked is made anew."""
    while True:
        temporary = f".{name.removesuffix(ENDING)}.{os.urandom(8).hex()}.new"
        fd = os.open(temporary, _MAKE, 0o600, dir_fd=at)
        fcntl.flock(fd, fcntl.LOCK_EX)
        if os.fstat(fd).st_nlink:
            return temporary, fd
        os.close(fd)


def _remove(at: int, name: str) -> bool:
    """Remove a temporary file that nobody holds. A folder or pipe of that name is not one."""
    try:
        fd = os.open(name, _READ, dir_fd=at)
    except OSError:
        return False
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return False
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return _unlink(at, name)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)


def _unlink(at: int, name: str) -> bool:
    try:
        os.unlink(name, dir_fd=at)
    except FileNotFoundError:
        return False
    return True


def _is_spoiled(at: int, name: str) -> bool:
    try:
        _parse(_bytes_of(at, name), name)
    except BadSidecar as bad:
        return not bad.newer
    except OSError:
        return False
    return False


def _move(at: int, there: int, name: str) -> str:
    """Under its own name, or with a number if that is taken."""
    for number in itertools.count():
        new = f"{name}.{number}" if number else name
        try:
            os.link(name, new, src_dir_fd=at, dst_dir_fd=there, follow_symlinks=False)
        except FileExistsError:
            continue
        os.unlink(name, dir_fd=at)
        return new
    raise AssertionError


# --- reading


def _read(at: int, name: str) -> Sidecar | Refused:
    """The sidecar in a file, or why there is none."""
    if _TEMPORARY.fullmatch(name):
        return Refused(name, "it is the temporary file of a writer that is at work or was killed", MEND)
    try:
        data = _bytes_of(at, name)
        return _parse(data, name)
    except BadSidecar as bad:
        return Refused(name, bad.problem, NEWER if bad.newer else MEND if name.endswith(ENDING) else MOVE)
    except OSError as error:
        return Refused(name, snippet(f"it cannot be read: {error.strerror or error}"), MOVE)


def _parse(data: bytes, name: str) -> Sidecar:
    return (from_runr if _OF_RUNR.fullmatch(name) else from_bytes)(data, name)


def _bytes_of(at: int, name: str) -> bytes:
    fd = os.open(name, _READ, dir_fd=at)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError("it is not a plain file")
        return os.read(fd, MAX_BYTES + 1)
    finally:
        os.close(fd)

"""Puts bytes in the place of a file of the work tree, and an index in the place of the user's. Follows no link on the way."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from holdfast.adapters.git.ws_desk import NEW_INDEX, Desk, IndexFile, Stamp, WorkspaceError, make_file, stamp_of
from holdfast.adapters.ledger import read_all, sync_folder, write_all

DRAFT = ".holdfast-new-"  # and something that nobody has
_PIECE = 1 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def put_bytes(desk: Desk, path: bytes, wanted: Callable[[bytes], bytes | None]) -> None:
    """Let a regular file hold what `wanted` says of what it holds now; None means that it is right."""
    *folders, name = path.split(b"/")
    if b".." in folders or b".git" in [piece.lower() for piece in (*folders, name)]:
        raise WorkspaceError(f"{os.fsdecode(path)!r:.200} is not a file of a work tree.")
    with _folder(desk.place.top, folders) as fd:
        old, mode = _read(fd, name)
        data = wanted(old)
        if data is not None:
            _replace(desk, fd, name, data, mode)


@contextmanager
def _folder(top: str, names: list[bytes]) -> Iterator[int]:
    """A folder below the top, reached one step at a time, so that no link can lead out."""
    fd = os.open(top, _FOLDER)
    try:
        for name in names:
            inner = os.open(name, _FOLDER, dir_fd=fd)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


def _read(folder: int, name: bytes) -> tuple[bytes, int]:
    fd = os.open(name, _READ, dir_fd=folder)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise WorkspaceError(f"{os.fsdecode(name)!r:.200} is not a regular file any more.")
        return read_all(fd), stat.S_IMODE(found.st_mode)
    finally:
        os.close(fd)


def _replace(desk: Desk, folder: int, name: bytes, data: bytes, mode: int) -> None:
    draft = os.fsencode(desk.path("draft"))
    with suppress(FileNotFoundError):
        os.unlink(draft)
    fd = os.open(draft, _MAKE, 0o600)
    try:
        write_all(fd, data, 0)
        os.fchmod(fd, mode)
        os.fsync(fd)
    finally:
        os.close(fd)
    move_in(draft, folder, name)


def move_in(source: bytes, folder: int, name: bytes) -> None:
    """Put a file or link of ours in a place at once, also from another disk."""
    try:
        os.rename(source, name, dst_dir_fd=folder)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy_in(source, folder, name)


def _copy_in(source: bytes, folder: int, name: bytes) -> None:
    draft = os.fsencode(DRAFT + os.urandom(8).hex())
    try:
        _copy(source, folder, draft)
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=folder)
        raise


def _copy(source: bytes, folder: int, draft: bytes) -> None:
    if os.path.islink(source):
        os.symlink(os.readlink(source), draft, dir_fd=folder)
        return
    with open(source, "rb") as whole, open(os.open(draft, _MAKE, 0o600, dir_fd=folder), "wb") as copy:
        shutil.copyfileobj(whole, copy, _PIECE)
        os.fchmod(copy.fileno(), stat.S_IMODE(os.fstat(whole.fileno()).st_mode))
        copy.flush()
        os.fsync(copy.fileno())


def put_index(desk: Desk, index: IndexFile, expected: Stamp | None) -> None:
    """Make an index the user's, if theirs is still the expected one, by git's own rule: whoever makes index.lock may rename.

    The lock is held for a moment only. It is one file with the draft on the desk, so a later process knows it for ours.
    """
    target = desk.place.index_file
    lock, draft = target + ".lock", desk.path(NEW_INDEX)
    with suppress(FileNotFoundError):
        os.unlink(draft)
    make_file(draft, index.data, _mode_of(target))
    if index.stamp:
        os.utime(draft, ns=(index.stamp.mtime_ns, index.stamp.mtime_ns))
    sync_folder(desk.folder)
    _sync(draft)
    try:
        os.link(draft, lock)
    except FileExistsError as error:
        raise _meanwhile("another git is at work") from error
    try:
        if _stamp_at(target) != expected:
            raise _meanwhile("the index was changed")
        _swap(lock, target, bool(index.stamp))
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(lock)
        raise
    sync_folder(desk.place.git_dir)


def is_put(desk: Desk, index: IndexFile) -> bool:
    """Whether it is the one that `put_index` made the user's: then it is one file with the draft on the desk."""
    draft = _stamp_at(desk.path(NEW_INDEX))
    return draft is not None and draft == index.stamp


def _swap(lock: str, target: str, is_there: bool) -> None:
    if is_there:
        os.rename(lock, target)
        return
    with suppress(FileNotFoundError):
        os.unlink(target)
    os.unlink(lock)


def _meanwhile(what: str) -> WorkspaceError:
    return WorkspaceError(
        f"The index was not restored: meanwhile {what}.", advice="Restore again when nothing else is at work here."
    )


def _mode_of(path: str) -> int:
    try:
        return stat.S_IMODE(os.lstat(path).st_mode)
    except FileNotFoundError:
        return 0o644


def _stamp_at(path: str) -> Stamp | None:
    try:
        return stamp_of(os.lstat(path))
    except FileNotFoundError:
        return None


def _sync(path: str) -> None:
    fd = os.open(path, _READ)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

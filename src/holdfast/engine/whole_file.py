"""A file that appears whole or not at all, for its owner alone. Replaces nothing unless told to, and never what is no file."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from holdfast.core.errors import BadFile, StoreFull, StoreReadOnly

_OTHER_PLACE = "Choose another place for the file. Nothing is left of it."
_WITHOUT_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS})


@contextmanager
def whole_file(path: str, force: bool = False) -> Iterator[BinaryIO]:
    """What is written into it stands at `path` when the block ends, and nowhere if it fails."""
    folder, name = os.path.split(os.path.abspath(path))
    draft = os.path.join(folder, f".{name[:100]}.new-{os.urandom(8).hex()}")
    with file_errors(path):
        _check_free(path, force)
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            with open(fd, "wb") as file:
                yield file
                file.flush()
                os.fsync(fd)
            _publish(draft, path, force)
        finally:
            if os.path.lexists(draft):
                os.unlink(draft)
        _sync_folder(folder)


def _check_free(path: str, force: bool) -> None:
    """A file, or a link to one or to nothing, may be replaced when that is asked for.

    A folder, a device, a pipe or a socket never, nor a link to one: /dev/stdout is such a link.
    """
    if not os.path.lexists(path):
        return
    if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
        raise BadFile(path, None, "it is not a regular file", advice="Name another file, or pass - and use a pipe.")
    if not force:
        raise _exists(path)


def _publish(draft: str, path: str, force: bool) -> None:
    try:
        if not force:
            _link(draft, path)
    except FileExistsError:
        raise _exists(path) from None
    if os.path.lexists(draft):
        os.replace(draft, path)


def _link(draft: str, path: str) -> None:
    """Put the draft in its place if nothing is there. Where a file has only one name, the place is claimed first."""
    try:
        os.link(draft, path)
    except OSError as error:
        if error.errno not in _WITHOUT_LINKS:
            raise
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    else:
        os.unlink(draft)


def _exists(path: str) -> BadFile:
    return BadFile(path, None, "there is a file already", advice="Name another file, or add --force to replace it.")


def _sync_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


_FILE_ERRORS: dict[int, tuple[type[StoreFull] | type[StoreReadOnly], str]] = {
    errno.ENOSPC: (StoreFull, "the disk is full"),
    errno.EDQUOT: (StoreFull, "the quota is used up"),
    errno.EACCES: (StoreReadOnly, "the place cannot be written"),
    errno.EPERM: (StoreReadOnly, "the place cannot be written"),
    errno.EROFS: (StoreReadOnly, "the place cannot be written"),
}


@contextmanager
def file_errors(path: str, advice: str = _OTHER_PLACE) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if (known := _FILE_ERRORS.get(error.errno or 0)) is None:
            raise BadFile(path, None, f"it cannot be written ({error.strerror or error})") from error
        raise known[0](path, known[1], advice=advice) from error

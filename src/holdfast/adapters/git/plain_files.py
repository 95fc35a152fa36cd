"""Reads and replaces small files in one folder, whole or not at all. Refuses links, devices and files over a limit.

The folder is opened once and everything happens relative to it, so nobody can put another one in its place meanwhile.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from holdfast.adapters.ledger import write_all
from holdfast.core.errors import BadFile, TooLarge
from holdfast.core.named import NamedTuple

LARGEST = 8 * 1024 * 1024
DRAFT = ".holdfast-new"  # the end of the name of a file that is being written
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Plain(NamedTuple):
    """A regular file as it was found."""

    data: bytes
    found: os.stat_result


class Folder:
    """An open folder. A file in it is named by its bare name; `path` is only for sentences."""

    def __init__(self, path: str, fd: int) -> None:
        self.path, self.fd = path, fd

    def path_of(self, name: str) -> str:
        return os.path.join(self.path, name)

    def look(self, name: str) -> os.stat_result | None:
        try:
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def read(self, name: str, limit: int = LARGEST) -> Plain | None:
        """What the file holds; None if there is none. What is not a regular file is refused."""
        found = self.look(name)
        if found is None:
            return None
        if not stat.S_ISREG(found.st_mode):
            kind = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "not a regular file"
            raise BadFile(self.path_of(name), None, f"it is {kind}", advice="Put a regular file in its place.")
        fd = os.open(name, _READ, dir_fd=self.fd)
        with open(fd, "rb") as file:
            found = os.fstat(fd)
            if found.st_size > limit:
                raise TooLarge(self.path_of(name), found.st_size, limit)
            return Plain(file.read(limit + 1), found)

    def read_end(self, name: str, limit: int) -> bytes:
        """The last lines of a file that grows, as many as the limit allows; nothing if there is no regular file."""
        found = self.look(name)
        if found is None or not stat.S_ISREG(found.st_mode):
            return b""
        fd = os.open(name, _READ, dir_fd=self.fd)
        with open(fd, "rb") as file:
            start = max(0, os.fstat(fd).st_size - limit)
            file.seek(start)
            data = file.read(limit)
        return data.partition(b"\n")[2] if start else data

    def replace(self, name: str, data: bytes, old: os.stat_result | None, more: int = 0) -> None:
        """Put a whole file in the place of `old`, with its owner and mode; a new one gets what the umask allows.

        `more` are bits of the mode that it gets in any case, as far as the umask allows.
        """
        draft = f"{name}{DRAFT}"
        with suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=self.fd)  # a killed process left it
        try:
            self._write(draft, data, old, more)
            if _stamp(self.look(name)) != _stamp(old):
                raise BadFile(self.path_of(name), None, "it was changed meanwhile", advice="Try again.")
            os.rename(draft, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=self.fd)
            raise
        self.sync()

    def _write(self, draft: str, data: bytes, old: os.stat_result | None, more: int) -> None:
        fd = os.open(draft, _MAKE, 0o666 | more, dir_fd=self.fd)
        try:
            made = os.fstat(fd)
            if old is not None and stat.S_ISREG(old.st_mode):
                if (made.st_uid, made.st_gid) != (old.st_uid, old.st_gid):
                    os.fchown(fd, old.st_uid, old.st_gid)
                os.fchmod(fd, stat.S_IMODE(old.st_mode) | (made.st_mode & more))
            write_all(fd, data, 0)
            os.fsync(fd)
        finally:
            os.close(fd)

    def put_back(self, name: str, old: Plain | None) -> None:
        """Undo a `replace` that turned out to be of no use."""
        if old is None:
            self.remove(name)
        else:
            self.replace(name, old.data, self.look(name))

    def remove(self, name: str) -> None:
        os.unlink(name, dir_fd=self.fd)
        self.sync()

    def move(self, name: str, to: str) -> None:
        """Rename it, in the place of what was there."""
        os.rename(name, to, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        self.sync()

    def link(self, name: str, to: str) -> None:
        """Give it a second name; a link is not followed."""
        os.link(name, to, src_dir_fd=self.fd, dst_dir_fd=self.fd, follow_symlinks=False)
        self.sync()

    def sync(self) -> None:
        os.fsync(self.fd)


def _stamp(found: os.stat_result | None) -> tuple[int, ...] | None:
    return None if found is None else (found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns)


@contextmanager
def opened(path: str, make: bool = False) -> Iterator[Folder]:
    """The folder at `path`, which must really be one. What goes wrong in it is said in a sentence."""
    try:
        if make and not os.path.lexists(path):
            os.mkdir(path)
        fd = os.open(path, _FOLDER)
    except OSError as error:
        problem = "it is a symbolic link" if os.path.islink(path) else f"it cannot be opened ({error.strerror})"
        raise BadFile(path, None, problem, advice="Put a real folder in its place.") from error
    try:
        yield Folder(path, fd)
    except OSError as error:
        where = error.filename if isinstance(error.filename, str) else ""
        raise BadFile(os.path.join(path, where), None, f"it cannot be changed or read ({error.strerror})") from error
    finally:
        os.close(fd)

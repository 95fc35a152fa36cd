"""Writes one file whole or not at all, and says whether it was written. Refuses links, folders, devices and surprises.

What is there is known by its SHA-256. `before` is what was there when the intent was recorded, so a third content can
only be somebody else's: it is never overwritten, and a probe that meets it says `unknown`. Extended attributes are not kept.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from holdfast.adapters.ledger import sync_folder, write_all
from holdfast.adapters.probes.common import EffectError, check_key, mark_of, sure
from holdfast.core.canonical import digest
from holdfast.core.errors import UsageError
from holdfast.core.named import NamedTuple
from holdfast.core.values import Answer

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_PIECE = 1 << 20
_NOREPLACE = 1
_KINDS = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
)


class Seen(NamedTuple):
    """A regular file as it was found, or nothing (`sha256` is None)."""

    sha256: str | None = None
    mode: int | None = None
    owner: tuple[int, int] | None = None


@dataclass(frozen=True)
class FileWrite:
    """Make the file at `path` hold `data`. Below `within`, if that is given, no link is followed on the way to it.

    `before` is the SHA-256 of what the file held when the intent was recorded, None if there was no file.
    """

    policy: ClassVar[Literal["probed"]] = "probed"

    path: str
    data: bytes = field(repr=False)
    before: str | None = None
    within: str | None = None

    def __post_init__(self) -> None:
        if not os.path.isabs(self.path) or os.path.normpath(self.path) != self.path or "\0" in self.path:
            raise UsageError(
                f"{self.path!r:.200} is not an absolute path in its plain form.", advice="Use os.path.abspath."
            )
        if not isinstance(self.data, (bytes, bytearray, memoryview)):
            raise UsageError(
                f"What {self.path!r:.200} is to hold is no bytes, but a {type(self.data).__name__}.",
                advice="Encode text yourself, as in text.encode().",
            )
        if self.before is not None and not re.fullmatch("[0-9a-f]{64}", self.before):
            raise UsageError("`before` is not a SHA-256 in hex digits.", advice="`FileWrite.prepare` finds it out.")
        if self.within is not None and not self.path.startswith(os.path.join(self.within, "")):
            raise UsageError(f"{self.path!r:.200} does not lie within {self.within!r:.200}.")

    @classmethod
    def prepare(cls, path: str | os.PathLike[str], data: bytes, within: str | None = None) -> FileWrite:
        """The effect as it stands now. Keep what it `found` before the act: afterwards it cannot be found out any more."""
        effect = cls(os.path.abspath(path), data, None, within and os.path.abspath(within))
        return cls(effect.path, data, effect._look().sha256, effect.within)

    @property
    def found(self) -> dict[str, Any]:
        """What `prepare` found out, by the names under which the constructor takes it."""
        return {"before": self.before}

    @property
    def arguments(self) -> dict[str, Any]:
        new = {"sha256": digest(self.data), "bytes": len(self.data)}
        return {"path": self.path, "before": self.before, **new}

    def act(self, key: str) -> dict[str, Any]:
        """Write it, durably. What was already written is left as it is; what nobody expected is not overwritten."""
        check_key(key)
        try:
            with self._folder(make=True) as folder:
                self._act(folder, key)
        except OSError as error:
            raise EffectError(f"{self.path} could not be written: {error.strerror or error}.") from error
        return self._receipt()

    def probe(self, key: str) -> Answer:
        return sure(lambda: self._answer(key))

    # --- acting

    def _act(self, folder: int, key: str) -> None:
        seen = look_at(folder, self._name)
        temporary = self._temporary(key)
        remove(folder, temporary)
        if seen.sha256 != digest(self.data):
            if seen.sha256 != self.before:
                raise EffectError(
                    f"{self.path} is not what it was when this write was planned.",
                    advice="Somebody else wrote it. Look at it, and plan the write anew.",
                )
            self._write(folder, temporary, seen)
        os.fsync(folder)

    def _write(self, folder: int, temporary: str, seen: Seen) -> None:
        try:
            fd = os.open(temporary, _MAKE, 0o666 if seen.mode is None else 0o600, dir_fd=folder)
            try:
                write_all(fd, self.data, 0)
                keep_owner_and_mode(fd, seen)
                os.fsync(fd)
            finally:
                os.close(fd)
            if self.before is None:
                rename_to_new(folder, temporary, self._name)
            else:
                os.rename(temporary, self._name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):  # the next act knows the leftover by its name
                remove(folder, temporary)
            raise

    # --- looking

    def _answer(self, key: str) -> Answer:
        check_key(key)
        seen = self._look()
        if seen.sha256 == digest(self.data):
            self._make_durable()
            return Answer("done", "the file holds what was to be written", self._receipt())
        if seen.sha256 == self.before:
            what = "there is no file" if self.before is None else "the file holds what it held before"
            return Answer("not_done", what + self._leftover(key))
        what = "the file is gone" if seen.sha256 is None else f"the file holds something else (SHA-256 {seen.sha256})"
        return Answer("unknown", what + self._leftover(key))

    def _look(self) -> Seen:
        try:
            with self._folder() as folder:
                return look_at(folder, self._name)
        except FileNotFoundError:
            return Seen()

    def _make_durable(self) -> None:
        """What is called done must not be undone by a loss of power."""
        with self._folder() as folder:
            fd = os.open(self._name, _READ, dir_fd=folder)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
            os.fsync(folder)

    def _leftover(self, key: str) -> str:
        with contextlib.suppress(FileNotFoundError), self._folder() as folder:
            size = os.stat(self._temporary(key), dir_fd=folder, follow_symlinks=False).st_size
            return f"; {size:,} bytes of an unfinished write lie beside it"
        return ""

    def _receipt(self) -> dict[str, Any]:
        return {"path": self.path, "sha256": digest(self.data), "bytes": len(self.data)}

    # --- names and folders

    @property
    def _name(self) -> str:
        return os.path.basename(self.path)

    def _temporary(self, key: str) -> str:
        return f".holdfast-{mark_of(key, self._name)}"

    @contextmanager
    def _folder(self, make: bool = False) -> Iterator[int]:
        parent = os.path.dirname(self.path)
        fd = open_below(self.within, parent, make) if self.within else open_folder(parent, make)
        try:
            yield fd
        finally:
            os.close(fd)


def look_at(folder: int, name: str) -> Seen:
    """What is there, read whole. Anything but a regular file is refused before it is opened."""
    try:
        refuse_other_kinds(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode, name)
        fd = os.open(name, _READ, dir_fd=folder)
    except FileNotFoundError:
        return Seen()
    try:
        found = os.fstat(fd)
        refuse_other_kinds(found.st_mode, name)
        return Seen(sha256_of(fd), stat.S_IMODE(found.st_mode), (found.st_uid, found.st_gid))
    finally:
        os.close(fd)


def refuse_other_kinds(mode: int, name: str) -> None:
    if not stat.S_ISREG(mode):
        what = next((words for is_kind, words in _KINDS if is_kind(mode)), "a device")
        raise EffectError(f"{name!r:.200} is {what}, not a file.", advice="Name a regular file.")


def sha256_of(fd: int) -> str:
    sum_ = hashlib.sha256()
    while piece := os.read(fd, _PIECE):
        sum_.update(piece)
    return sum_.hexdigest()


def keep_owner_and_mode(fd: int, seen: Seen) -> None:
    """As the file it replaces, but for the bits that lend somebody's rights."""
    if seen.mode is None or seen.owner is None:
        return
    made = os.fstat(fd)
    if (made.st_uid, made.st_gid) != seen.owner:
        os.fchown(fd, *seen.owner)
    os.fchmod(fd, seen.mode & 0o777)


def remove(folder: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def rename_to_new(folder: int, old: str, new: str) -> None:
    """Rename, but never over something that appeared meanwhile."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None or rename(folder, os.fsencode(old), folder, os.fsencode(new), _NOREPLACE):
        number = errno.ENOSYS if rename is None else ctypes.get_errno()
        if number not in (errno.ENOSYS, errno.EINVAL):
            raise OSError(number, os.strerror(number), new)
        os.link(old, new, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        os.unlink(old, dir_fd=folder)


def open_folder(path: str, make: bool) -> int:
    """The folder, and with `make` its missing parents, made durably."""
    try:
        return os.open(path, _FOLDER)
    except FileNotFoundError:
        if not make:
            raise
    parent = os.path.dirname(path)
    os.close(open_folder(parent, make))
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
    sync_folder(parent)
    return os.open(path, _FOLDER)


def open_below(top: str, path: str, make: bool) -> int:
    """The folder `path`, reached from `top` without following a link."""
    fd = os.open(top, _FOLDER)
    parts = os.path.relpath(path, top).split(os.sep)
    for part in parts if path != top else ():
        try:
            below = _step_into(fd, part, make)
        finally:
            os.close(fd)
        fd = below
    return fd


def _step_into(folder: int, name: str, make: bool) -> int:
    try:
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    except FileNotFoundError:
        if not make:
            raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=folder)
    os.fsync(folder)
    return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)

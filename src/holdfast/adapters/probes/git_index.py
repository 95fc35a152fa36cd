"""Makes the tree of a commit without ever locking the user's index for longer than a rename. Refuses what it cannot read plainly.

All work is done on private copies beside the index, named after the effect. A kill leaves such a copy, which keeps
nobody from anything and which the next act removes.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from holdfast.adapters.ledger import read_all, write_all
from holdfast.adapters.probes.common import EffectError, mark_of
from holdfast.adapters.probes.git_config import filters_of_repository
from holdfast.adapters.probes.git_runner import Git
from holdfast.core.errors import UsageError

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
Stamp = tuple[int, int, int] | None


class Stage:
    """Where the tree of one commit is put together. `tip` is the commit it will stand on."""

    def __init__(self, git: Git, key: str, tip: str | None) -> None:
        assert git.place is not None
        self.git, self.tip, self.index = git, tip, git.place.index_file
        self.lock = self.index + ".lock"
        mark = mark_of(key, self.index)
        self.tree_copy, self.index_copy = (
            os.path.join(git.place.git_dir, f"holdfast-{name}-{mark}") for name in ("tree", "index")
        )

    @staticmethod
    def check_paths(paths: Sequence[str]) -> None:
        for path in paths:
            plain = path and not os.path.isabs(path) and os.path.normpath(path) == path and "\0" not in path
            if not plain or path.split(os.sep)[0] in ("..", "."):
                raise UsageError(
                    f"{path!r:.200} is not a plain path below the top of the work tree.",
                    advice="Name files relative to the top, one by one.",
                )

    def of_index(self) -> str:
        """The tree of the user's index, which is only read."""
        self._clear()
        self._refuse_locked()
        with self._private(self.index_copy):
            self._copy()
            return self.git.line("write-tree", index=self.index_copy)

    def of_paths(self, paths: Sequence[str]) -> str:
        """The tree of the tip with these files as they are now; they are then in the user's index as well."""
        self._clear()
        self._refuse_locked()
        self._refuse_strange_filters(paths)
        with self._private(self.tree_copy), self._private(self.index_copy):
            self.git("read-tree", *([self.tip] if self.tip else ["--empty"]), index=self.tree_copy)
            self._add(paths, self.tree_copy)
            tree = self.git.line("write-tree", index=self.tree_copy)
            stamp = self._copy()
            self._add(paths, self.index_copy)
            self._swap(stamp)
        return tree

    def _add(self, paths: Sequence[str], index: str) -> None:
        listing = b"".join(os.fsencode(path) + b"\0" for path in paths)
        self.git("update-index", "--add", "--remove", "-z", "--stdin", stdin=listing, index=index)

    def _refuse_strange_filters(self, paths: Sequence[str]) -> None:
        """A filter that only the repository defines is not run; and what is committed without it would be wrong."""
        strange = filters_of_repository(self.git.settings)
        listing = b"".join(os.fsencode(path) + b"\0" for path in paths)
        said = self.git("check-attr", "-z", "--stdin", "filter", stdin=listing).split(b"\0")
        for path, value in zip(said[0::3], said[2::3], strict=False):
            if os.fsdecode(value) in strange:
                raise EffectError(
                    f"{os.fsdecode(path)!r:.200} goes through the filter {os.fsdecode(value)!r:.80}, which only the "
                    "repository defines; it is not run.",
                    advice="If you trust it, define it in your own git configuration, or stage the file yourself.",
                )

    # --- the copies and the swap

    def _clear(self) -> None:
        """Remove what an earlier act of this effect left; a lock is ours if it is one file with our copy."""
        with suppress(FileNotFoundError):
            if os.path.samestat(os.lstat(self.lock), os.lstat(self.index_copy)):
                os.unlink(self.lock)
        for copy in (self.tree_copy, self.index_copy):
            for path in (copy, f"{copy}.lock"):
                with suppress(FileNotFoundError):
                    os.unlink(path)

    def _refuse_locked(self) -> None:
        if os.path.lexists(self.lock):
            raise EffectError(
                f"{self.lock} is there: another git is at work in this repository, or was killed.",
                advice="If no git is running here, remove that file.",
            )

    @contextmanager
    def _private(self, copy: str) -> Iterator[None]:
        try:
            yield
        finally:
            with suppress(FileNotFoundError):
                os.unlink(copy)

    def _copy(self) -> Stamp:
        """Copy the user's index, and tell what it was like, so that a change can be noticed."""
        try:
            fd = os.open(self.index, _READ)
        except FileNotFoundError:
            return None
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise EffectError(f"{self.index} is not a regular file.")
            data = read_all(fd)
        finally:
            os.close(fd)
        make_file(self.index_copy, data, stat.S_IMODE(found.st_mode))
        os.utime(
            self.index_copy, ns=(found.st_atime_ns, found.st_mtime_ns)
        )  # git tells racy entries by the index's age
        return stamp_of(found)

    def _swap(self, stamp: Stamp) -> None:
        """Put the copy in the place of the user's index, by git's own rules: whoever makes index.lock may rename it."""
        try:
            os.link(self.index_copy, self.lock)
        except FileExistsError:
            self._refuse_locked()
            raise
        try:
            if self._now() != stamp:
                raise EffectError("The index was changed meanwhile.", advice="Let the run go on; it will try again.")
            os.rename(self.lock, self.index)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(self.lock)
            raise

    def _now(self) -> Stamp:
        try:
            return stamp_of(os.lstat(self.index))
        except FileNotFoundError:
            return None


def stamp_of(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_ino, found.st_size, found.st_mtime_ns


def make_file(path: str, data: bytes, mode: int) -> None:
    fd = os.open(path, _MAKE, mode & 0o777)
    try:
        write_all(fd, data, 0)
    finally:
        os.close(fd)

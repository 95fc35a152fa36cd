"""Makes the tree of a commit, and lets the user's index have it once the commit is there, locked for no longer than a rename.

All work is done on private files beside the index, named after the effect. The index is touched only behind the commit. A
kill leaves such files, which keep nobody from anything; if the commit was made, `mend` finishes the index from them.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Sequence
from contextlib import suppress

from holdfast.adapters.ledger import read_all, write_all
from holdfast.adapters.probes.common import EffectError
from holdfast.adapters.probes.git_config import filters_of_repository
from holdfast.adapters.probes.git_locks import clear_forsaken, wait_for_index
from holdfast.adapters.probes.git_runner import Git, check_id
from holdfast.core.errors import UsageError
from holdfast.core.named import NamedTuple

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FILES = ("commit", "tree", "index", "before", "joined")
_LEFT = re.compile(rf"holdfast-(?:{'|'.join(_FILES)})-([0-9a-f]{{32}})(?:\.lock)?")
_ATTEMPTS, _PAUSE = 100, 0.02  # for an index that another git holds or changes
Stamp = tuple[int, int, int] | None


class Read(NamedTuple):
    """A file as it was read; without a stamp there was none."""

    data: bytes = b""
    stamp: Stamp = None
    mode: int = 0o644
    mtime_ns: int = 0


class Stage:
    """Where one commit is put together. `mark` names its files, `tip` is the commit it will stand on.

    Beside the tree there are: the user's index before, the index that it shall become, and a note of the commit.
    """

    def __init__(self, git: Git, mark: str, tip: str | None = None) -> None:
        assert git.place is not None
        self.git, self.tip, self.index = git, tip, git.place.index_file
        self.lock = self.index + ".lock"
        self.note, self.tree_copy, self.index_copy, self.before_copy, self.joined_copy = self.files = [
            os.path.join(git.place.git_dir, f"holdfast-{name}-{mark}") for name in _FILES
        ]

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
        self._refuse_locked()
        self._copy(self.index_copy, read_file(self.index))
        tree = self.git.line("write-tree", index=self.index_copy)
        self.clear()
        return tree

    def of_paths(self, paths: Sequence[str]) -> str:
        """The tree of the tip with these files as they are now. An index that has them too is laid ready for `finish`."""
        self._refuse_locked()
        self._refuse_strange_filters(paths)
        self.git("read-tree", *([self.tip] if self.tip else ["--empty"]), index=self.tree_copy)
        self._add(paths, self.tree_copy)
        tree = self.git.line("write-tree", index=self.tree_copy)
        users = read_file(self.index)
        for copy in (self.before_copy, self.index_copy):
            self._copy(copy, users)
        self._add(paths, self.index_copy)
        return tree

    def _add(self, paths: Sequence[str], index: str) -> None:
        """Put them in as they are now. What is gone goes first: a file or a link may stand where its folder was."""
        gone = {path for path in paths if not self._is_there(path)}
        left = [path for path in paths if path not in gone]
        for some, how in ((sorted(gone), ["--force-remove"]), (left, ["--add", "--remove"])):
            listing = b"".join(os.fsencode(path) + b"\0" for path in some)
            if some:
                self.git("update-index", *how, "-z", "--stdin", stdin=listing, index=index)

    def _is_there(self, path: str) -> bool:
        """Whether something is at a path, and no link on the way to it."""
        assert self.git.place is not None
        top, pieces = self.git.place.top, path.split(os.sep)
        around = (os.path.join(top, *pieces[:count]) for count in range(1, len(pieces)))
        return os.path.lexists(os.path.join(top, path)) and not any(map(os.path.islink, around))

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

    def _refuse_locked(self) -> None:
        assert self.git.place is not None
        if held := wait_for_index(self.git.place):
            raise EffectError(held.sentence, advice=held.advice)

    def _copy(self, path: str, users: Read) -> None:
        """A copy of the user's index, if there is one. Git tells racy entries by the age of an index, so it is as old."""
        if users.stamp is not None:
            make_file(path, users.data, users.mode)
            os.utime(path, ns=(users.mtime_ns, users.mtime_ns))

    # --- the user's index

    def announce(self, commit: str) -> None:
        """Say which commit is about to be made, so that whoever comes after a kill can tell what the files are for."""
        if not os.path.lexists(self.index_copy):
            return
        for path in (self.before_copy, self.index_copy):
            with suppress(FileNotFoundError):
                _sync(path)
        make_file(self.note, check_id(commit).encode(), 0o600)
        _sync(self.note)

    def finish(self) -> None:
        """Let the user's index have what was committed; what they staged meanwhile stays.

        If another git holds the index all the time, the files stay for the next act.
        """
        if not os.path.lexists(self.note):
            return
        for _ in range(_ATTEMPTS):
            if self._is_finished():
                self.clear()
                return
            time.sleep(_PAUSE)

    def _is_finished(self) -> bool:
        users = read_file(self.index)
        if users.data == read_file(self.before_copy).data:
            return self._swap(self.index_copy, users.stamp)
        rows = self._wanting()
        if not rows:
            return True
        with suppress(FileNotFoundError):
            os.unlink(self.joined_copy)
        self._copy(self.joined_copy, users)
        self.git("update-index", "-z", "--index-info", stdin=rows, index=self.joined_copy)
        self.git.ask("update-index", "-q", "--refresh", index=self.joined_copy)
        return self._swap(self.joined_copy, users.stamp)

    def _wanting(self) -> bytes:
        """What the user's index has as it was before, and the commit has otherwise, in the form that git takes it in."""
        before, after, now = (self._entries(path) for path in (self.before_copy, self.index_copy, self.index))
        gone = b"0 " + b"0" * len(self.git.line("hash-object", "-t", "tree", "--stdin"))
        rows = [
            after.get(path, [gone + b"\t" + path])
            for path in {*before, *after}
            if before.get(path) != after.get(path) and before.get(path) == now.get(path)
        ]
        return b"".join(row + b"\0" for entry in rows for row in entry)

    def _entries(self, index: str) -> dict[bytes, list[bytes]]:
        found: dict[bytes, list[bytes]] = {}
        for row in self.git("ls-files", "--stage", "-z", index=index).split(b"\0")[:-1]:
            found.setdefault(row.partition(b"\t")[2], []).append(row)
        return found

    def _swap(self, new: str, stamp: Stamp) -> bool:
        """Put it in the place of the user's index, by git's own rules: whoever makes index.lock may rename it."""
        try:
            os.link(new, self.lock)
        except FileExistsError:
            return False
        if read_file(self.index).stamp != stamp:
            os.unlink(self.lock)
            return False
        os.rename(self.lock, self.index)
        return True

    # --- leftovers

    def clear(self) -> None:
        """Remove every file of this commit, the note first; a lock is ours if it is one file with one of ours."""
        self._release()
        for path in self.files:
            for name in (path, f"{path}.lock"):
                with suppress(FileNotFoundError):
                    os.unlink(name)

    def _release(self) -> None:
        for copy in (self.index_copy, self.joined_copy):
            with suppress(FileNotFoundError):
                if os.path.samestat(os.lstat(self.lock), os.lstat(copy)):
                    os.unlink(self.lock)

    def mend(self) -> None:
        """Whoever began this was killed, or could not finish: finish it if its commit is there, else forget it."""
        self._release()
        note = read_file(self.note)
        commit = note.data.decode("ascii", "replace")
        if commit:
            assert self.git.place is not None
            clear_forsaken(self.git.place, self.git.head_ref(), note.mtime_ns)
        if commit and self.git.ask("merge-base", "--is-ancestor", check_id(commit), "HEAD").code == 0:
            self.finish()
        else:
            self.clear()


def left_behind(git: Git) -> list[Stage]:
    """The commits of this work tree that are being made, or whose makers were killed."""
    assert git.place is not None
    found = map(_LEFT.fullmatch, os.listdir(git.place.git_dir))
    return [Stage(git, mark) for mark in sorted({match[1] for match in found if match})]


def mend(git: Git) -> None:
    """Finish or forget every commit that was cut off in this work tree. Only for whoever holds the lock of the repository."""
    for stage in left_behind(git):
        stage.mend()


def read_file(path: str) -> Read:
    try:
        fd = os.open(path, _READ)
    except FileNotFoundError:
        return Read()
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise EffectError(f"{path} is not a regular file.")
        stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
        return Read(read_all(fd), stamp, stat.S_IMODE(found.st_mode), found.st_mtime_ns)
    finally:
        os.close(fd)


def make_file(path: str, data: bytes, mode: int) -> None:
    fd = os.open(path, _MAKE, mode & 0o777)
    try:
        write_all(fd, data, 0)
    finally:
        os.close(fd)


def _sync(path: str) -> None:
    fd = os.open(path, _READ)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

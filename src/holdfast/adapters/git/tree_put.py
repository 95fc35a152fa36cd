"""Brings a work tree from one tree to another, path by path. Overwrites nothing but what the first tree has there.

Every path is looked at before the first is changed: it must hold what the one or the other tree has. Then each is
replaced or removed at once, so whoever is killed in between can simply begin again. HEAD and the index stay as they are.
What is written is what a checkout would write, in real folders only. Our own folder is never touched.
"""

from __future__ import annotations

import copy
import hashlib
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from holdfast.adapters.git.content import Difference, differences
from holdfast.adapters.git.workspace import object_format
from holdfast.adapters.git.ws_convert import Conversion
from holdfast.adapters.git.ws_desk import Desk, open_desk
from holdfast.adapters.git.ws_put import move_in
from holdfast.adapters.git.ws_scan import ABSENT, GITLINK, Own, joined
from holdfast.adapters.ledger import sync_folder
from holdfast.adapters.probes.git_config import filters_of_repository
from holdfast.adapters.probes.git_runner import Git
from holdfast.adapters.syncing import sync_paths
from holdfast.core.errors import HoldfastError
from holdfast.core.named import NamedTuple

LINK, RUNS = b"120000", b"100755"
OLD, NEW = "old", "new"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PIECE = 1 << 20
_SHOWN = 5
_NOTHING: Mapping[bytes, str] = {}


class PutRefused(HoldfastError):
    """Files that hold something else than expected, so they are not overwritten."""

    reason = "dirty_worktree"
    advice = "Look at what changed there, commit it or move it away, then let the run go on."

    def __init__(self, rows: Sequence[str]) -> None:
        some = "; ".join(rows[:_SHOWN]) + (f"; and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else "")
        super().__init__(f"The files cannot be changed, and none was: {some}.")
        self.rows = tuple(rows)


class MeanwhileChanged(HoldfastError):
    """A file that somebody changed while its neighbours were being replaced."""

    reason = "dirty_worktree"
    advice = "Look at it. Nothing of it was overwritten, and the work can begin again."


class Seen(NamedTuple):
    """What is at a path: its `lstat`, or what stands in the place of one of its folders."""

    found: os.stat_result | None
    blocked: bytes | None = None

    @property
    def is_folder(self) -> bool:
        return self.found is not None and stat.S_ISDIR(self.found.st_mode)

    @property
    def stamp(self) -> tuple[int, ...] | None:
        found = self.found
        return None if found is None else (found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns)


def put_tree(
    git: Git,
    old: str,
    new: str,
    leave: Callable[[bytes], bool] = lambda path: False,
    is_torn: bool = False,
    raw: Mapping[bytes, str] = _NOTHING,
    was: Mapping[bytes, str] = _NOTHING,
) -> list[bytes]:
    """Bring the work tree from tree `old` to tree `new`; the paths in which they differ, but for those to leave alone.

    `is_torn`: somebody failed on the way to `old`, so a file that is not there may have been taken away by that.
    `raw`: files that the caller makes what they were, byte for byte, so it does not matter what a filter would write:
    path -> the id of those bytes. `was`: the same of the way to `old`.
    """
    own = Own(git)
    with open_desk(git, "put") as desk:
        if is_torn:
            desk.see_files()  # as whoever failed did
        rows = [row for row in differences(desk, old, new) if row.path not in own and not leave(row.path)]
        if rows:
            _Put(desk, old, new, rows, is_torn, raw, was).go()
    return [row.path for row in rows]


def _as_files(row: Difference) -> Difference:
    """A submodule is no file: what is in it is left alone."""
    old, new = (ABSENT if mode == GITLINK else mode for mode in (row.old_mode, row.new_mode))
    return row._replace(old_mode=old, new_mode=new)


class _Put:
    def __init__(
        self,
        desk: Desk,
        old: str,
        new: str,
        rows: Sequence[Difference],
        is_torn: bool,
        raw: Mapping[bytes, str],
        was: Mapping[bytes, str],
    ) -> None:
        self.desk, self.old, self.new, self.is_torn, self.raw, self.was = desk, old, new, is_torn, raw, was
        self.top = os.fsencode(desk.place.top)
        self.modules = [row.path for row in rows if row.new_mode == GITLINK]
        self.rows = [_as_files(row) for row in rows]
        self.paths = {row.path for row in rows}
        self.leaving = {row.path for row in self.rows if row.new_mode == ABSENT}
        self.seen = {row.path: look(self.top, row.path) for row in self.rows}
        self.format = object_format(desk.git)
        self.has_modes = desk.asks_modes() or (is_torn and desk.keeps_modes())

    def go(self) -> None:
        coming = [row.path for row in self.rows if row.new_mode != ABSENT]
        self.staged = check_out(self.desk, "index", self.new, coming)
        self._refuse_filters(self.paths.difference(self.raw))
        states = self._states()
        sync_paths([os.fsdecode(os.path.join(self.staged, path)) for path in self._files(coming)])
        for path in sorted(self.leaving, reverse=True):
            self._remove(path, is_there=states[path] == OLD)
        for path in coming:
            if states[path] == OLD:
                self._place(path)
        for path in self.modules:
            with _folder(self.top, path.split(b"/"), make=True):
                pass
        self._sync()

    def _files(self, paths: Iterable[bytes]) -> list[bytes]:
        return [path for path in paths if not os.path.islink(os.path.join(self.staged, path))]

    # --- looking

    def _refuse_filters(self, paths: Collection[bytes]) -> None:
        """What a filter of the repository would make of a file nobody knows: it is not run."""
        strange = Conversion(self.desk, 0, b"").strange(filters_of_repository(self.desk.git.settings))
        rows = [row for path, row in strange.items() if path in paths]
        if rows:
            raise PutRefused(rows)

    def _states(self) -> dict[bytes, str]:
        """Which of the two trees each path holds."""
        names = {row.path: self._names(row.path) for row in self.rows}
        unsure = [row.path for row in self.rows if not self._state(row, names[row.path]) and names[row.path]]
        if unsure:
            for path, more in self._converted(unsure).items():
                names[path] |= more
        found = {row.path: self._state(row, names[row.path]) for row in self.rows}
        wrong = [row for row in self.rows if not found[row.path]]
        if wrong:
            raise PutRefused([f"{os.fsdecode(row.path)!r} {self._why(row)}" for row in wrong])
        return {path: state for path, state in found.items() if state}

    def _names(self, path: bytes) -> set[str]:
        """The id of what a file or link holds, if there is one."""
        found = self.seen[path].found
        if found is None or not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
            return set()
        return {blob_id(os.path.join(self.top, path), self.format)}

    def _state(self, row: Difference, names: set[str]) -> str | None:
        sides = ((NEW, row.new_mode, row.new, self.raw), (OLD, row.old_mode, row.old, self.was))
        for state, mode, name, raw in sides:
            is_it = name in names or raw.get(row.path) in names
            if self._is_absent(row) if mode == ABSENT else self._has_mode(row.path, mode) and is_it:
                return state
        return OLD if self.is_torn and self.seen[row.path] == Seen(None) else None

    def _is_absent(self, row: Difference) -> bool:
        """Nothing is there that a file would replace."""
        seen = self.seen[row.path]
        if seen.blocked is not None:
            return seen.blocked in self.paths
        if seen.is_folder:
            return row.new_mode == ABSENT or not self._strangers(row.path)
        return seen.found is None

    def _strangers(self, path: bytes) -> list[bytes]:
        """Files in a folder that are not about to go."""
        place = os.path.join(self.top, path)
        below = (os.path.join(folder, name) for folder, _, names in os.walk(place) for name in names)
        links = (
            os.path.join(folder, name)
            for folder, folders, _ in os.walk(place)
            for name in folders
            if os.path.islink(os.path.join(folder, name))
        )
        return [one for one in (*below, *links) if os.path.relpath(one, self.top) not in self.leaving]

    def _has_mode(self, path: bytes, mode: bytes) -> bool:
        found = self.seen[path].found
        if found is None or stat.S_ISLNK(found.st_mode) != (mode == LINK):
            return False
        return mode == LINK or not self.has_modes or bool(found.st_mode & stat.S_IXUSR) == (mode == RUNS)

    def _converted(self, paths: Sequence[bytes]) -> dict[bytes, set[str]]:
        """What git would call files that it converts: as they are now, and as a checkout of either tree would write them."""
        files = [path for path in paths if not stat.S_ISLNK(os.lstat(os.path.join(self.top, path)).st_mode)]
        found = {path: {name} for path, name in hashed(self.desk, files).items()}
        before = [row for row in self.rows if row.path in files and row.old_mode not in (ABSENT, LINK)]
        then = check_out(self.desk, "index-old", self.old, [row.path for row in before])
        for row in self.rows:
            if row.path in found:
                sides = [(then, row.old)] if row in before else []
                sides += [(self.staged, row.new)] if row.new_mode not in (ABSENT, LINK) else []
                found[row.path] |= {name for side, name in sides if self._is_same(side, row.path)}
        return found

    def _is_same(self, side: bytes, path: bytes) -> bool:
        one, other = (blob_id(os.path.join(place, path), self.format) for place in (side, self.top))
        return one == other

    def _why(self, row: Difference) -> str:
        seen = self.seen[row.path]
        if seen.blocked is not None:
            return f"has {os.fsdecode(seen.blocked)!r} in its way"
        if seen.is_folder:
            return "is a folder with files in it"
        if seen.found is None:
            return "is not in the work tree"
        return "was changed, or is not known to git"

    # --- changing

    def _refuse_changed(self, path: bytes) -> None:
        if look(self.top, path).stamp != self.seen[path].stamp:
            raise MeanwhileChanged(f"{os.fsdecode(path)!r:.200} was changed meanwhile.")

    def _remove(self, path: bytes, is_there: bool) -> None:
        if is_there and self.seen[path].found is not None and not self.seen[path].is_folder:
            self._refuse_changed(path)
            *folders, name = path.split(b"/")
            with _folder(self.top, folders) as fd:
                os.unlink(name, dir_fd=fd)
        folder = os.path.dirname(path)
        with suppress(OSError):  # one that is not empty stays
            while folder and look(self.top, folder).is_folder:
                os.rmdir(os.path.join(self.top, folder))
                folder = os.path.dirname(folder)

    def _place(self, path: bytes) -> None:
        if self.seen[path].is_folder:
            self._clear(path)
        elif self.seen[path].blocked is None:
            self._refuse_changed(path)
        *folders, name = path.split(b"/")
        with _folder(self.top, folders, make=True) as fd:
            move_in(os.path.join(self.staged, path), fd, name)

    def _clear(self, path: bytes) -> None:
        """Remove a folder in which there are only folders."""
        place = os.path.join(self.top, path)
        with suppress(FileNotFoundError):  # it went with the last of its files
            for folder, _, _ in os.walk(place, topdown=False):
                os.rmdir(folder)

    def _sync(self) -> None:
        folders = {b""}
        for path in self.paths:
            while path := os.path.dirname(path):
                folders.add(path)
        for folder in sorted(folders):
            if look(self.top, folder).is_folder or not folder:
                sync_folder(os.fsdecode(os.path.join(self.top, folder)))


# --- pieces


def look(top: bytes, path: bytes) -> Seen:
    """What is at a path, without following a link on the way."""
    pieces = path.split(b"/")
    for count in range(1, len(pieces) + 1):
        part = b"/".join(pieces[:count])
        try:
            found = os.lstat(os.path.join(top, part))
        except (FileNotFoundError, NotADirectoryError):
            return Seen(None)
        if count < len(pieces) and not stat.S_ISDIR(found.st_mode):
            return Seen(None, part)
    return Seen(found)


def check_out(desk: Desk, index: str, tree: str, paths: Sequence[bytes]) -> bytes:
    """Some files of a tree as a checkout would write them, in a folder on the desk. Attributes are those of that tree."""
    folder = desk.path(f"{index}-files")
    os.mkdir(folder, 0o700)
    desk.run("read-tree", "--end-of-options", tree, index=desk.path(index))
    git_in(desk, folder)("checkout-index", "-z", "--stdin", stdin=joined(paths), index=desk.path(index))
    return os.fsencode(folder)


def git_in(desk: Desk, folder: str) -> Git:
    """The git of a desk that takes a folder for the work tree."""
    there = copy.copy(desk.git)
    there.place = desk.place._replace(top=folder)
    there.environment = {**desk.git.environment, "GIT_WORK_TREE": folder}
    return there


def blob_id(path: bytes, object_format: str) -> str:
    """The id of a file or link, just as it is on disk."""
    found = os.lstat(path)
    if stat.S_ISLNK(found.st_mode):
        data = os.readlink(path)
        return hashlib.new(object_format, b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
    with open(os.open(path, _READ), "rb") as file:
        digest = hashlib.new(object_format, b"blob %d\0" % found.st_size, usedforsecurity=False)
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def hashed(desk: Desk, paths: Sequence[bytes]) -> dict[bytes, str]:
    """The ids that git would give to files, after converting them."""
    plain = [path for path in paths if b"\n" not in path and not path.startswith(b'"')]
    listing = b"".join(path + b"\n" for path in plain)
    names = desk.run("hash-object", "--stdin-paths", stdin=listing).decode().split()
    found = dict(zip(plain, names, strict=True))
    rest = [path for path in paths if path not in found]
    return found | {path: desk.line("hash-object", "--end-of-options", os.fsdecode(path)) for path in rest}


@contextmanager
def _folder(top: bytes, names: Sequence[bytes], make: bool = False) -> Iterator[int]:
    """A folder below the top, reached one step at a time, so that no link can lead out."""
    fd = os.open(top, _FOLDER)
    try:
        for name in names:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=fd)
            inner = os.open(name, _FOLDER, dir_fd=fd)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)

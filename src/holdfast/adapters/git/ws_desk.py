"""A private folder for one piece of work on a repository, and git run from there. Refuses a folder that is a link or not ours.

The folder lies in `<git folder>/holdfast/`, is locked by whoever works in it and by every git it starts, and is removed
at the end. What a killed process left is removed by the next one, once nobody holds its lock any more.
"""

from __future__ import annotations

import copy
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from holdfast.adapters.ledger import read_all, write_all
from holdfast.adapters.paths import real_path
from holdfast.adapters.probes.common import EffectError, wait_for
from holdfast.adapters.probes.git_place import Repository
from holdfast.adapters.probes.git_runner import Git, complaint
from holdfast.adapters.probes.programs import Finished, Limits
from holdfast.core.errors import HoldfastError, UsageError
from holdfast.core.named import NamedTuple

HOME = "holdfast"
NEW_INDEX = "index-new"  # what is about to become the user's index; while it has a second name, that is index.lock
OUTPUT = 1 << 30  # the list of a million names must fit
PATIENCE = 60.0
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

# Said with every command here. Loose objects and our copies of the index are synced by us, all at once or not at all;
# the others keep a setting of the repository from hiding that a file was changed.
SETTINGS = {
    "core.fsync": "pack,pack-metadata,reference,none",  # git reads `none` only at the end
    "core.ignoreStat": "false",
    "core.checkStat": "default",
    "core.trustctime": "true",
    "core.safecrlf": "false",  # the bytes on disk are kept, whatever git makes of them
    "sparse.expectFilesOutsideOfPatterns": "true",  # which of them are there, we look ourselves
}
_SAID = tuple(word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}"))


class WorkspaceError(HoldfastError):
    """A snapshot that could not be taken, kept or read. Nothing of the user's was changed."""

    reason = "checkpoint_unwritable"
    advice = "Look at what git complains about, then try again. Nothing of yours was changed."


class Stamp(NamedTuple):
    """By what a replaced or rewritten file is told from the one that was read."""

    inode: int
    size: int
    mtime_ns: int


class IndexFile(NamedTuple):
    """The user's index as it was read: all its bytes and its stamp. Without a stamp there was none."""

    data: bytes = b""
    stamp: Stamp | None = None


def place_of(git: Git) -> Repository:
    if git.place is None:
        raise UsageError("There is no work tree here.", advice="Name the top of a git work tree.")
    return git.place


def holding(git: Git, lock: int) -> Git:
    """The same git, whose programs hold a lock as long as they live, even if we do not."""
    held = copy.copy(git)
    held.held = (*git.held, lock)
    return held


class Desk:
    """One private folder and a git that holds its lock."""

    def __init__(self, git: Git, folder: str, lock: int) -> None:
        self.place = place_of(git)
        self.folder = folder
        assert git.environment  # read before the copy, so that `keep` finds it read
        self.git = holding(git, lock)
        self._say(GIT_OPTIONAL_LOCKS="1")  # here the index is ours: what git learns by looking, it may note
        self.git.limits = Limits(git.limits.seconds, OUTPUT)
        self.began_ns = os.lstat(folder).st_mtime_ns

    @property
    def home(self) -> str:
        return os.path.dirname(self.folder)

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def clear(self) -> None:
        """Take every file from the desk; folders stay."""
        for entry in os.scandir(self.folder):
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)

    def write_objects_here(self) -> None:
        """From now on new objects go into the private folder, and with it away."""
        objects = self.path("objects")
        os.mkdir(objects, 0o700)
        self._say(GIT_OBJECT_DIRECTORY=objects, GIT_ALTERNATE_OBJECT_DIRECTORIES=quoted(self.place.objects))

    def see_files(self) -> None:
        """From now on what is a link on disk is one, what is a file is none, and what runs runs, whatever the repository says."""
        self._set("core.symlinks", "true")
        if not self.asks_modes() and self.keeps_modes():
            self._set("core.fileMode", "true")

    def asks_modes(self) -> bool:
        """Whether git looks at who may run a file, as the repository says."""
        said = [value.lower() for _, name, value in self.git.settings if name == "core.filemode"]
        return not said or said[-1] not in ("false", "no", "off", "0", "")

    def keeps_modes(self) -> bool:
        """Whether the disk notes that a file may be run. Where it does not, only the index knows."""
        path = self.path("mode")
        with suppress(FileExistsError):
            make_file(path, b"")
        told = []
        for mode in (0o600, 0o700):
            os.chmod(path, mode)
            told.append(stat.S_IMODE(os.lstat(path).st_mode))
        return told == [0o600, 0o700]

    def write_as_stored(self) -> None:
        """From now on no setting changes line ends on the way out: it may be another than when the files were kept."""
        self._set("core.autocrlf", "false")
        self._set("core.eol", "lf")

    def _set(self, name: str, value: str) -> None:
        number = self.git.environment["GIT_CONFIG_COUNT"]
        setting = {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
        self._say(GIT_CONFIG_COUNT=str(int(number) + 1), **setting)

    def _say(self, **more: str) -> None:
        """Variables for the commands of this desk only."""
        self.git.__dict__["environment"] = {**self.git.environment, **more}

    def ask(self, *argv: str, stdin: bytes = b"", index: str | None = None) -> Finished:
        try:
            return self.git.ask(*_SAID, *argv, stdin=stdin, index=index)
        except EffectError as error:
            raise WorkspaceError(str(error)) from error

    def run(self, *argv: str, stdin: bytes = b"", index: str | None = None) -> bytes:
        finished = self.ask(*argv, stdin=stdin, index=index)
        if finished.code:
            raise WorkspaceError(f"`git {argv[0]}` failed: {complaint(finished)}")
        return finished.out

    def line(self, *argv: str, stdin: bytes = b"", index: str | None = None) -> str:
        return os.fsdecode(self.run(*argv, stdin=stdin, index=index)).rstrip("\n")

    def lay(self, name: str, index: IndexFile) -> str:
        """A copy of an index. It is as old as the index: git tells by that age which files may have changed since."""
        path = self.path(name)
        if index.stamp:
            make_file(path, index.data)
            os.utime(path, ns=(index.stamp.mtime_ns, index.stamp.mtime_ns))
        return path


def quoted(path: str) -> str:
    """A path in a list of paths: git splits it at colons, unless it is quoted."""
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


@contextmanager
def open_desk(git: Git, name: str, home: str | None = None) -> Iterator[Desk]:
    """A private folder for the time of the block, in `home` for those who only look. What the disk refuses is said."""
    place = place_of(git)
    look_again(git)
    home = own_folder(place.git_dir) if home is None else home
    try:
        with _folder(home, name, place) as (folder, lock):
            yield Desk(git, folder, lock)
    except OSError as error:
        named = error.filename or home
        named = os.fsdecode(named) if isinstance(named, bytes) else named
        raise WorkspaceError(f"{named} cannot be read or written: {error.strerror}.") from error


def other_top(git: Git) -> str | None:
    """The folder that the user's own git takes for the work tree, if it is not the one around the git folder."""
    place = place_of(git)
    named = [value for _, name, value in git.settings if name == "core.worktree"]
    if not named or place.git_dir != place.common:  # a linked work tree is where its record says
        return None
    top = real_path(os.path.join(place.git_dir, named[-1]))
    return top if top != real_path(place.top) else None


def look_again(git: Git) -> None:
    """Forget the settings: whoever works here may have given the repository a new filter since they were read."""
    for name in ("settings", "environment"):
        git.__dict__.pop(name, None)


@contextmanager
def _folder(home: str, name: str, place: Repository) -> Iterator[tuple[str, int]]:
    with turn(home):
        sweep(home, place)
        folder, lock = _make(home, name)
    try:
        yield folder, lock
    finally:
        with suppress(FileNotFoundError):
            shutil.rmtree(folder)
        os.close(lock)


def own_folder(parent: str) -> str:
    """Our folder below a git folder, made if need be. A link there would lead our writes somewhere else."""
    home = os.path.join(parent, HOME)
    try:
        with suppress(FileExistsError):
            os.mkdir(home, 0o700)
        found = os.lstat(home)
    except OSError as error:
        raise WorkspaceError(f"{home} cannot be made: {error.strerror}.") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise WorkspaceError(f"{home} is not a folder of yours.", advice=f"Look at {home} and remove it.")
    return home


@contextmanager
def turn(folder: str, kind: int = fcntl.LOCK_EX, patience: float = PATIENCE) -> Iterator[int]:
    """The lock on a folder, for the time of the block."""
    fd = os.open(folder, _FOLDER)
    try:
        if not wait_for(fd, kind, patience):
            raise WorkspaceError(
                f"Another process keeps {folder} locked.", advice="Wait until it ends, then try again."
            )
        yield fd
    finally:
        os.close(fd)


def _make(home: str, name: str) -> tuple[str, int]:
    number = 0
    while True:
        folder = os.path.join(home, f"work-{name}-{number}")
        try:
            os.mkdir(folder, 0o700)
            break
        except FileExistsError:
            number += 1
    lock = os.open(folder, _FOLDER)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return folder, lock


def sweep(home: str, place: Repository) -> None:
    """Remove the folders of those that were killed. Only under the lock on `home`, where every folder is made."""
    for name in os.listdir(home):
        folder = os.path.join(home, name)
        if name.startswith("work-") and os.path.isdir(folder) and not os.path.islink(folder):
            _sweep_one(folder, place)


def _sweep_one(folder: str, place: Repository) -> None:
    try:
        fd = os.open(folder, _FOLDER)
    except FileNotFoundError:
        return
    try:
        if wait_for(fd, fcntl.LOCK_EX, 0.0):
            release_index(folder, place)
            with suppress(FileNotFoundError):  # whoever worked there has come to an end, and removed it
                shutil.rmtree(folder)
    finally:
        os.close(fd)


def release_index(folder: str, place: Repository) -> None:
    """Give back the lock on the user's index, if it is ours: then it is one file with our new index."""
    lock = place.index_file + ".lock"
    with suppress(FileNotFoundError):
        if os.path.samestat(os.lstat(lock), os.lstat(os.path.join(folder, NEW_INDEX))):
            os.unlink(lock)


# --- files


def read_index(place: Repository) -> IndexFile:
    """The user's index. Git replaces it as a whole, so what one open file holds is one whole index."""
    try:
        fd = os.open(place.index_file, _READ)
    except FileNotFoundError:
        return IndexFile()
    except OSError as error:
        raise WorkspaceError(f"{place.index_file} cannot be read: {error.strerror}.") from error
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise WorkspaceError(f"{place.index_file} is not a regular file.")
        return IndexFile(read_all(fd), stamp_of(found))
    finally:
        os.close(fd)


def stamp_of(found: os.stat_result) -> Stamp:
    return Stamp(found.st_ino, found.st_size, found.st_mtime_ns)


def make_file(path: str, data: bytes, mode: int = 0o600) -> None:
    fd = os.open(path, _MAKE, mode)
    try:
        write_all(fd, data, 0)
    finally:
        os.close(fd)

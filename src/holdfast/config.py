"""Where the store is and how careful its witness is: the environment and the repository around us -> one frozen Config.

Reads the environment so that nothing below has to. Starts no git process and follows no link that a repository planted.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

from holdfast.core.errors import StoreForeign, UsageError
from holdfast.core.named import NamedTuple

FILE = "holdfast.db"
FOLDER = ".holdfast"
SERVERS = ("postgresql://", "postgres://")
WITNESSES = ("lagging", "strict")
_MOST = 4096  # bytes of a .git or commondir file that can name a path


class Config(NamedTuple):
    """What the environment and the current folder decided."""

    place: str
    witness: str = "lagging"
    source: str = "home"

    @property
    def on_server(self) -> bool:
        return self.place.startswith(SERVERS)

    @property
    def files(self) -> tuple[str, ...]:
        """The file of the store, if it is one."""
        return () if self.on_server else (self.place,)

    @property
    def shown(self) -> str:
        """The place as it may be printed: an address without user, password and options."""
        if not self.on_server:
            return self.place
        scheme, _, rest = self.place.partition("://")
        before, _, after = rest.rpartition("@")
        unclear = "=" in before.partition("?")[2]  # the last @ may stand in an option, as that of a password
        return f"{scheme}://{'...' if unclear else after.partition('?')[0]}"


def environment() -> Mapping[str, str]:
    return os.environ


def load(place: str | None = None, environ: Mapping[str, str] | None = None, cwd: str | None = None) -> Config:
    """The configuration for `place` if it is given, else for the environment and the folder we are in."""
    environ = environment() if environ is None else environ
    witness = environ.get("HOLDFAST_WITNESS") or "lagging"
    if witness not in WITNESSES:
        raise UsageError(
            f"HOLDFAST_WITNESS is {witness!r:.60}.", advice=f"Set it to {' or '.join(WITNESSES)}, or leave it out."
        )
    if place is not None:
        return Config(named_place(place, "The store"), witness, "call")
    if environ.get("HOLDFAST_STORE"):
        return Config(named_place(environ["HOLDFAST_STORE"], "HOLDFAST_STORE"), witness, "HOLDFAST_STORE")
    top = repository_top(cwd or here())
    if top is not None:
        return Config(_in_repository(top), witness, "repository")
    return Config(_at_home(environ), witness, "home")


def named_place(value: str, what: str) -> str:
    """A place that a person named: a server's address, a database file, or the folder to keep one in."""
    advice = "Give a path to a .db file or a folder, or an address that begins with postgresql://."
    if not _can_be_handed_on(value):
        raise UsageError(f"{what} holds characters that no path or address can have.", advice=advice)
    if value.startswith(SERVERS):
        return value
    if "://" in value:
        raise UsageError(
            f"{what} has a scheme that Holdfast does not know: {value.partition('://')[0]!r:.60}.", advice=advice
        )
    if not value or "\0" in value:
        raise UsageError(f"{what} is not a path.", advice=advice)
    path = os.path.abspath(os.path.expanduser(value))
    kind = _kind(path)
    if kind == "other":
        raise UsageError(f"{what} is neither a file nor a folder: {path!r:.200}.", advice=advice)
    is_folder = kind == "folder" or value.endswith("/") or (kind == "missing" and not path.endswith(".db"))
    return os.path.join(path, FILE) if is_folder else path


def _can_be_handed_on(value: str) -> bool:
    """A path can hold any bytes of the system's; an address must be text. Lone surrogates are neither."""
    try:
        value.encode() if value.startswith(SERVERS) else os.fsencode(value)
    except UnicodeEncodeError:
        return False
    return True


def _kind(path: str) -> str:
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except OSError as error:
        raise UsageError(f"The place {path!r:.200} cannot be looked at ({error.strerror}).") from None
    return "folder" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"


def here() -> str:
    """The current folder."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise UsageError("The current folder no longer exists.", advice="Change to another folder.") from None


def _in_repository(top: str) -> str:
    folder = os.path.join(top, FOLDER)
    if os.path.islink(folder):
        raise StoreForeign(folder, "the folder is a symbolic link")
    return os.path.join(folder, FILE)


def _at_home(environ: Mapping[str, str]) -> str:
    data = environ.get("XDG_DATA_HOME", "")
    if not os.path.isabs(data):
        home = environ.get("HOME") or os.path.expanduser("~")
        data = os.path.join(home, ".local", "share")
    if not os.path.isabs(data):
        raise UsageError("There is no home folder to keep a store in.", advice="Set HOLDFAST_STORE to a path.")
    return os.path.join(data, "holdfast", FILE)


def repository_top(folder: str) -> str | None:
    """The main work tree of the repository around `folder`, shared by all its work trees; None outside of one."""
    while True:
        git = os.path.join(folder, ".git")
        if os.path.isfile(os.path.join(git, "HEAD")):
            return folder
        if os.path.isfile(git):
            return _top_of_linked(folder, git)
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent


def work_tree(folder: str) -> str | None:
    """The top of the work tree around `folder`, be it a linked one; None outside of one."""
    while not os.path.exists(os.path.join(folder, ".git")):
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent
    return folder


def _top_of_linked(folder: str, git: str) -> str:
    """A linked work tree belongs to the repository it names only if that repository names it back."""
    text = _first_line(git)
    if not text.startswith("gitdir: "):
        return folder
    gitdir = os.path.join(folder, text[len("gitdir: ") :])
    common = _first_line(os.path.join(gitdir, "commondir"))
    if not common or not _same(os.path.join(gitdir, _first_line(os.path.join(gitdir, "gitdir"))), git):
        return folder
    common = os.path.realpath(os.path.join(gitdir, common))
    return os.path.dirname(common) if os.path.basename(common) == ".git" else common


def _same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _first_line(path: str) -> str:
    if not os.path.isfile(path):
        return ""
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read(_MOST).partition("\n")[0].replace("\0", "")

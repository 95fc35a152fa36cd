"""One SQLite file: made whole or not at all, opened only when it is proven ours, errors named at one door.

Nothing but apsw opens the database: a second opening by other means would drop SQLite's own locks.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import apsw

from holdfast.core.errors import (
    HoldfastError,
    NewerSchema,
    StoreBroken,
    StoreBusy,
    StoreError,
    StoreForeign,
    StoreFull,
    StoreReadOnly,
    StoreUnreadable,
    TailLost,
    UsageError,
)
from holdfast.core.named import NamedTuple
from holdfast.core.sha import hexdigest
from holdfast.stores import sqlite_app
from holdfast.stores.sqlfiles import migrations
from holdfast.stores.sqlite_tables import BY_VERSION, EVENTS, SQL, TABLES, Tables

APPLICATION_ID = 0x486F6C64  # "Hold"
SCHEMA_VERSION = 2
SAFE_SQLITE = (3, 51, 3)
WAL_PAGES = 1000
READ_CACHE = 64  # KB: who reads a log comes by each page once, and the same memory is best used for the next one
_WAL_HEADER = 32
WAL_KEEP_BYTES = 64 * 1024 * 1024
LONGEST_PATH = 480  # bytes: SQLite opens no path above 512, and names its files beside ours
FINGERPRINTS = {
    1: "f528d7d2a844155dc854f80abfde4b63303a7660627cfee503a017aa67cb59ac",
    2: "8b22eb0695ea04f0933689e58f358e033b420000656aadd9ee834f3c706bb9b6",
}

_WRITE = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW
_CREATE = _WRITE | apsw.SQLITE_OPEN_CREATE
_READ = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_NOFOLLOW


def plain_path(path: str | os.PathLike[str]) -> str:
    """Where the store really is. Refuses a link in place of its folder or of any of its files, and files of other kinds."""
    folder, name = os.path.split(os.path.abspath(path))
    if os.path.islink(folder):
        raise StoreForeign(folder, "the folder is a symbolic link")
    plain = os.path.join(os.path.realpath(folder), name)
    if not _is_text(plain):
        problem = f"The path {plain!r:.300} is not valid UTF-8, and no database can be kept there."
        raise UsageError(problem, advice="Point HOLDFAST_STORE at another place. Nothing was made.")
    for end in ("", "-wal", "-shm", "-witness", "-lock"):
        try:
            mode = os.lstat(plain + end).st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise from_os(error, plain) from error
        if not stat.S_ISREG(mode):
            kind = "a symbolic link" if stat.S_ISLNK(mode) else "no ordinary file"
            raise StoreForeign(plain + end, f"it is {kind}")
    _check_names(plain)
    return plain


def _is_text(path: str) -> bool:
    try:
        return bool(path.encode())
    except UnicodeEncodeError:
        return False


def _check_names(path: str) -> None:
    """Refuse a file that has a second name: under that one its log would seem to be missing. Our own drafts may share it."""
    folder, name = os.path.split(path)
    for _ in range(3):
        try:
            names = os.stat(path).st_nlink
            if names == 1:
                return
            drafts = [other for other in os.listdir(folder) if other.startswith(f"{name}.new-")]
            ours = sum(os.path.samefile(os.path.join(folder, draft), path) for draft in drafts)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise from_os(error, path) from error
        if names <= 1 + ours:
            return
    raise StoreForeign(path, "the file has a second name (a hard link)")


def prepare_folder(folder: str) -> None:
    """Make the folder, durable and private."""
    missing = []
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for path in reversed(missing):
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            continue
        sync_folder(os.path.dirname(path))


def sync_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def create(path: str, store_id: str, created_at: str) -> None:
    """Build a whole store beside `path` and link it into place; whoever comes second keeps the first one's."""
    draft = f"{path}.new-{os.urandom(8).hex()}"
    os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    try:
        _build(draft, store_id, created_at)
        try:
            os.link(draft, path)
        except FileExistsError:
            return
        sync_folder(os.path.dirname(path))
    finally:
        os.unlink(draft)


def _build(draft: str, store_id: str, created_at: str) -> None:
    connection = apsw.Connection(draft, _CREATE)
    try:
        _all(connection, "pragma synchronous = extra")
        _all(connection, f"pragma application_id = {APPLICATION_ID}")
        _all(connection, "begin immediate")
        for version, sql in migrations("sqlite"):
            _script(connection, sql, version)
        connection.execute(SQL["new_store"], (store_id, created_at))
        connection.execute("commit")
        _all(connection, "pragma journal_mode = wal")
    finally:
        connection.close()


def _script(connection: apsw.Connection, sql: str, version: int) -> None:
    """One paragraph after the other. One with {events} in it is for each table of events in turn."""
    for paragraph in sql.split("\n\n"):
        for table in range(len(TABLES.names) if EVENTS in paragraph else 1):
            _all(connection, TABLES.filled(paragraph, table))
    _all(connection, f"pragma user_version = {int(version)}")


def migrate(connection: apsw.Connection, prove: Callable[[Tables], object]) -> None:
    """Bring an older store up to date, in one transaction; safe when many processes start at once."""
    connection.execute("begin immediate")
    try:
        found = int(connection.pragma("user_version"))
        prove(BY_VERSION[found])
        for version, sql in migrations("sqlite"):
            if version > found:
                _script(connection, sql, version)
        connection.execute("commit")
    except BaseException:
        connection.execute("rollback")
        raise


def open_for_writing(path: str, patience: float) -> tuple[apsw.Connection, int]:
    """The connection, and the version of the schema. An older one is not brought up to date before it is proven whole."""
    check_emptied(path)
    connection = _guarded(path, _WRITE, patience)
    try:
        version = _identify(connection, path)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.pragma("synchronous", "full")
        connection.pragma("wal_autocheckpoint", WAL_PAGES)
        connection.pragma("journal_size_limit", WAL_KEEP_BYTES)
    except BaseException:
        connection.close()
        raise
    return connection, version


def write_ahead(connection: apsw.Connection, path: str) -> None:
    """A copy that SQLite made by `vacuum into`, a backup for example, is not in write-ahead mode until somebody says so."""
    if connection.pragma("journal_mode") != "wal" and connection.pragma("journal_mode", "wal") != "wal":
        raise StoreForeign(path, "the database cannot be brought into write-ahead mode")


def look_first(path: str, patience: float) -> None:
    """Refuse a store that is not ours before anything of it is touched."""
    if not needs_copy(path):
        with suppress(Outdated):
            open_for_reading(path, patience).connection.close()


Stamp = tuple[int, int, int]


class Outdated(Exception):
    """A store that was opened at rest has been written since, or its index is only being made: what went wrong means nothing."""


class Unfinished(Outdated):
    """The index of the write-ahead file is not made, and must not be made by who only reads."""


class Reader(NamedTuple):
    """A connection that cannot write. `rest` is how the files of a store at rest looked before it was opened: such a
    reader takes no lock, so a writer that begins later may change the pages under its eyes."""

    connection: apsw.Connection
    path: str
    rest: tuple[Stamp | None, Stamp | None] | None
    version: int

    @property
    def tables(self) -> Tables:
        return BY_VERSION[self.version]

    def is_outdated(self) -> bool:
        """Also when an older store has been brought up to date: its events are in other tables now."""
        if self.rest is not None and self.rest != _at_rest(self.path):
            return True
        return self.version < SCHEMA_VERSION and self.connection.pragma("user_version") != self.version


def open_for_reading(path: str, patience: float, *, beside_writer: bool = False) -> Reader:
    """Without a writer of our own beside it, it touches no byte of any file."""
    check_emptied(path)
    rest = None if beside_writer else _at_rest(path)
    how = "" if beside_writer else "&readonly_shm=1" if rest is None else "&immutable=1"
    quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    connection = _guarded(f"file:{quoted}?mode=ro{how}", _READ, patience)
    try:
        reader = Reader(connection, path, rest, _identify(connection, path))
        connection.pragma("cache_size", -READ_CACHE)
        return reader
    except BaseException as error:
        connection.close()
        if isinstance(error, apsw.ReadOnlyError):  # whoever came first has not made the index yet, and we must not
            raise Unfinished from error
        raise


def _at_rest(path: str) -> tuple[Stamp | None, Stamp | None] | None:
    """How the database and its write-ahead file look; None if there are pages in the latter.

    With no more than its header SQLite cannot make a private index of it.
    """
    database, log = stamp(path), stamp(path + "-wal")
    return None if log is not None and log[1] > _WAL_HEADER else (database, log)


def stamp(path: str) -> Stamp | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def has_pages(path: str) -> bool:
    """Whether the write-ahead file holds pages."""
    return _at_rest(path) is None


def check_emptied(path: str) -> None:
    """Beside a database file of no length SQLite deletes the write-ahead file, even where it may only read."""
    found = stamp(path)
    if found is not None and found[1] == 0 and has_pages(path):
        raise TailLost(path, "the database file is empty, though its pages can still be found")


def needs_copy(path: str) -> bool:
    """A log with unmerged pages and no index of them can only be read by writing that index: read a copy instead."""
    return has_pages(path) and not os.path.exists(path + "-shm")


def _guarded(name: str, flags: int, patience: float) -> apsw.Connection:
    connection = apsw.Connection(name, flags)
    connection.set_busy_handler(_jitter(patience))
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0)
    return connection


def _jitter(patience: float) -> Callable[[int], bool]:
    """Wait a random, growing while, so that no process always comes second."""
    began = 0.0

    def wait(tries: int) -> bool:
        nonlocal began
        now = time.monotonic()
        began = now if tries == 0 else began
        if now - began > patience:
            return False
        chance = int.from_bytes(os.urandom(2), "big") / 65536
        time.sleep(0.00002 + chance * 0.0002 * min(tries + 1, 25))
        return True

    return wait


def _identify(connection: apsw.Connection, path: str) -> int:
    """The version of the schema. Refuses a database that is not a Holdfast store, or whose tables another hand has changed.

    Both are of one moment: somebody else may bring the store up to date meanwhile.
    """
    connection.execute("begin")
    try:
        return _version(connection, path)
    finally:
        if connection.in_transaction:
            connection.execute("rollback")


def _version(connection: apsw.Connection, path: str) -> int:
    if connection.pragma("application_id") != APPLICATION_ID:
        raise StoreForeign(path, "this is a database, but not a Holdfast store")
    version = int(connection.pragma("user_version"))
    if version > SCHEMA_VERSION:
        raise NewerSchema(path, version, SCHEMA_VERSION)
    if not is_sound(connection, version):
        raise StoreForeign(path, "its tables are not the ones Holdfast made (a trigger, a view or a changed table)")
    return version


def is_sound(connection: apsw.Connection, version: int = SCHEMA_VERSION) -> bool:
    """Whether our tables are as we made them, and all others are plain ones of the user."""
    rows = _all(connection, SQL["schema"])
    ours = [row for row in rows if not sqlite_app.is_plain(row)]
    if FINGERPRINTS.get(version) != _digest(ours):
        return False
    return len(ours) == len(rows) or sqlite_app.is_understood(rows, _all(connection, SQL["objects"]))


def fingerprint(connection: apsw.Connection) -> str:
    """What identifies the tables of a schema version; those of the user have no part in it."""
    return _digest([row for row in _all(connection, SQL["schema"]) if not sqlite_app.is_plain(row)])


def _digest(rows: list[tuple[Any, ...]]) -> str:
    return hexdigest(repr([row[:4] for row in rows]).encode())


def _all(connection: apsw.Connection, sql: str) -> list[tuple[Any, ...]]:
    return list(connection.execute(sql))


_DOORS: tuple[tuple[type[Exception], type[HoldfastError], str], ...] = (
    (apsw.FullError, StoreFull, "the disk is full"),
    (apsw.BusyError, StoreBusy, "the store stayed busy"),
    (apsw.LockedError, StoreBusy, "the store stayed locked"),
    (apsw.ReadOnlyError, StoreReadOnly, "the store cannot be written"),
    (apsw.NotADBError, StoreForeign, "this file is not a database"),
    (apsw.CorruptError, StoreUnreadable, "the database file is damaged"),
    (apsw.CantOpenError, StoreUnreadable, "the database file cannot be opened"),
    (apsw.IOError, StoreBroken, "an input or output error"),
)
OF_THE_FILE = tuple(kind for kind, _, _ in _DOORS)


def translate(error: Exception, path: str) -> HoldfastError:
    """The Holdfast error for what SQLite or the system said."""
    if isinstance(error, apsw.CantOpenError) and len(os.fsencode(path)) > LONGEST_PATH:
        advice = f"Point HOLDFAST_STORE at a place whose path has at most {LONGEST_PATH} bytes."
        return StoreUnreadable(path, "its path is too long for SQLite", advice=advice)
    for kind, ours, problem in _DOORS:
        if isinstance(error, kind):
            return ours(path, f"{problem} ({error})")  # type: ignore[call-arg]
    if isinstance(error, OSError):
        return from_os(error, path)
    return StoreUnreadable(path, f"{type(error).__name__}: {error}")


def from_os(error: OSError, path: str) -> StoreError:
    where = str(error.filename or path)
    if error.errno in (28, 122):
        return StoreFull(where, "the disk is full")
    if error.errno in (1, 13, 30):
        what = "written" if error.errno == 30 else "read or written"
        return StoreReadOnly(where, f"the place cannot be {what} by you ({error.strerror})")
    if error.errno == 40:
        return StoreForeign(where, "the file is a symbolic link")
    if error.errno == 20:
        return StoreForeign(where, "a file stands where its folder would be")
    return StoreBroken(where, f"an input or output error ({error.strerror})")

"""The one writing connection to a SQLite store, and the witness beside it. Trusts nothing in memory after an error."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from operator import itemgetter
from typing import Any

import apsw

from holdfast.core.errors import (
    HoldfastError,
    StoreBroken,
    StoreClosed,
    StoreReadOnly,
    StoreReplaced,
    StoreUnreadable,
    TailLost,
)
from holdfast.stores import sqlite_file
from holdfast.stores.lending import nested
from holdfast.stores.sqlite_file import SCHEMA_VERSION, translate
from holdfast.stores.sqlite_tables import SQL, TABLES, Tables
from holdfast.stores.witness import GROUPS, Sighting, Witness, sightings

LAGGING, MISSING, MADE_AGAIN = "lagging", "missing", "made again"
SHIFT = 32
SEQ = 0xFFFFFFFF
_SHORT_LOG = 64 * 4096


class Writer:
    """Opens, checks, mends and closes. Whoever writes holds `turn` and asks for the `connection`.

    `lent` is the connection while its transaction belongs to the user's statements.
    """

    def __init__(self, path: str, patience: float, strict: bool, read_only: bool) -> None:
        self.path = path
        self.read_only = read_only
        self.patience = patience
        self.strict = strict
        self.store_id = ""
        self.witness = Witness(path + "-witness")
        self.witness_state = LAGGING
        self.turn = threading.RLock()
        self.lent: apsw.Connection | None = None
        self.ready: apsw.Connection | None = None
        self.cursor: apsw.Cursor  # of the ready connection
        self.synced = 0
        self._connection: apsw.Connection | None = None
        self._broken = False
        self._refusal = ""
        self._identity: tuple[int, int] = (0, 0)

    # --- opening and closing

    def open(self, now: str) -> None:
        folder = os.path.dirname(self.path)
        sqlite_file.prepare_folder(folder)
        if os.path.exists(self.path):
            sqlite_file.look_first(self.path, self.patience)
        else:
            check_gone(self.path)
            sqlite_file.create(self.path, os.urandom(16).hex(), now)
        known = os.path.exists(self.path + "-wal")
        self._connect()
        told = self.witness.open()
        if not (known and told):
            # SQLite goes on when this fails, and then a power cut can take the whole log file with it
            sqlite_file.sync_folder(folder)
        if not told:
            self.rebuild_witness()

    def _connect(self) -> apsw.Connection:
        connection, version = sqlite_file.open_for_writing(self.path, self.patience)
        try:
            if version < SCHEMA_VERSION:
                sqlite_file.migrate(connection, lambda tables: check_witness(connection, tables, self.path))
            self.store_id, self.witness_state = check_witness(connection, TABLES, self.path)
            sqlite_file.write_ahead(connection, self.path)
            stat = os.stat(self.path)
        except BaseException:
            connection.close()
            raise
        self.witness.serve(self.store_id)
        self._identity = (stat.st_dev, stat.st_ino)
        self._connection = connection
        return connection

    def close(self) -> None:
        with self.door(), self.turn, ExitStack() as closing:
            closing.callback(self.refuse, "the store was closed")
            closing.callback(self.witness.close)
            if self._connection is not None:
                closing.callback(self.sync_witness)
                closing.callback(self._connection.close)
                closing.callback(self._shorten, self._connection)

    def abandon(self) -> None:
        """Let go of everything after an opening that failed."""
        self.witness.close()
        if self._connection is not None:
            self._connection.close()

    def _shorten(self, connection: apsw.Connection) -> None:
        """Whoever opens the store first reads the whole write-ahead log: leave a short one. Safe to fail, safe to skip."""
        with suppress(apsw.Error, OSError):
            if os.path.getsize(self.path + "-wal") > _SHORT_LOG:
                connection.set_busy_handler(None)
                connection.execute("pragma wal_checkpoint(truncate)").fetchall()

    def refuse(self, problem: str) -> None:
        """From now on every use is refused with this reason."""
        self.ready, self.lent, self._refusal = None, None, problem

    def in_child(self) -> None:
        self.turn = threading.RLock()
        self.refuse("the store was opened by another process before a fork")

    # --- use

    def check_usable(self) -> None:
        if self._refusal:
            raise StoreClosed(self.path, self._refusal)

    def check_not_lent(self) -> None:
        """Whoever has the turn and finds the connection lent is inside of the work it was lent to."""
        if self.lent is not None and self.lent.in_transaction:
            raise nested()
        self.lent = None

    def connection(self) -> apsw.Connection:
        """The connection, sound and outside of any transaction; `ready` is the same without asking."""
        self.check_usable()
        self.check_not_lent()
        if self.read_only:
            raise StoreReadOnly(self.path, "it was opened for reading")
        connection = self._mended() if self._broken else self._connection or self._connect()
        connection.authorizer = None
        roll_back(connection)
        self.ready, self.cursor = connection, connection.cursor()
        return connection

    def _mended(self) -> apsw.Connection:
        """After a failed write or sync: reopen, write every page of the log anew, look again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        connection = self._connect()
        busy = connection.execute("pragma wal_checkpoint(truncate)").fetchone()
        if busy is not None and busy[0]:
            raise apsw.BusyError("the log could not be written anew while others read it")
        self._broken = False
        return connection

    @contextmanager
    def transaction(self) -> Iterator[apsw.Connection]:
        with self.door(), self.turn:
            connection = self.connection()
            self.check_identity()
            try:
                connection.execute("begin immediate")
                yield connection
                connection.execute("commit")
            except BaseException:
                roll_back(connection)
                raise

    @contextmanager
    def door(self) -> Iterator[None]:
        """The one door for errors: what comes out is ours."""
        self.check_usable()
        try:
            yield
        except (apsw.Error, OSError) as error:
            raise self.named(error) from error
        except (UnicodeError, OverflowError) as error:
            raise StoreUnreadable(
                self.path, f"it holds what no Holdfast writes, so it was damaged ({error})"
            ) from error

    def named(self, error: Exception) -> HoldfastError:
        named = translate(error, self.path)
        if isinstance(named, StoreBroken):
            self._broken, self.ready = True, None
        return named

    def check_identity(self) -> None:
        try:
            stat = os.stat(self.path)
        except FileNotFoundError:
            advice = "Put a copy of it back if there is one. Without it, a spec goes on by its checkpoint.yaml."
            raise StoreReplaced(self.path, "the file was deleted while in use", advice=advice) from None
        if (stat.st_dev, stat.st_ino) != self._identity:
            raise StoreReplaced(self.path, "another file was put in its place while in use")

    # --- the witness

    def rebuild_witness(self) -> None:
        """Let the witness say what the log says now. For a new or lost witness, or by a person's decision."""
        heads = on_each(self.connection(), TABLES, "recent_heads", (GROUPS,))
        self.witness_state = MADE_AGAIN if heads else LAGGING
        self.witness.clear()
        newest = sorted(heads, key=itemgetter(2), reverse=True)[:GROUPS]
        self.witness.write((place, head) for place, head, _ in newest)
        self.witness.sync()

    def witness_failed(self, error: OSError) -> None:
        """It is a mirror: unless it was asked to be strict, its failure is told and the log goes on."""
        self.witness_state = f"degraded: {error.strerror}"
        if self.strict:
            raise error

    def sync_witness(self, now: int = 0) -> None:
        if not self.witness.dirty:
            return
        try:
            self.witness.sync()
            self.synced = now
        except OSError as error:
            self.witness_failed(error)


def check_witness(connection: apsw.Connection, tables: Tables, path: str) -> tuple[str, str]:
    """Every head the witness saw must be in the log, with its hash and its run. The store's id, and the state of its witness."""
    rows = list(connection.execute(SQL["store"]))
    store_id = str(rows[0][0]) if rows else ""
    if len(store_id) != 32 or not store_id.isascii():
        raise StoreUnreadable(path, "it does not say which store it is")
    seen = sightings(path + "-witness")
    for sighting in seen or ():
        if sighting.store_id != store_id:
            raise TailLost(path, "its witness belongs to another store")
        row = connection.execute(tables.of_run(sighting.place >> SHIFT, "sighted"), (sighting.place,)).fetchone()
        if row != (sighting.hash, 1):
            raise TailLost(path, _loss(sighting, row))
    return store_id, MISSING if seen is None else LAGGING


def check_gone(path: str) -> None:
    """Refuse to take a store for new that has lost its database file: SQLite would lay its old pages over another one.

    Whoever makes a store puts the database in its place before anything else, so it is looked for last.
    """
    remains = {"pages": sqlite_file.has_pages(path), "witness": sightings(path + "-witness")}
    left = [name for name, found in remains.items() if found]
    if left and not os.path.exists(path):
        raise TailLost(path, f"the database file is gone, though its {' and its '.join(left)} can still be found")


def _loss(sighting: Sighting, row: tuple[bytes, int] | None) -> str:
    event, run = f"event {sighting.place & SEQ}", f"run number {sighting.place >> SHIFT}"
    if row is not None and row[0] == sighting.hash:
        return f"{run} is gone from the list of runs, though {event} of it is here"
    return f"{event} of {run} is {'missing' if row is None else 'another one'}"


def one(connection: apsw.Connection, query: str, values: tuple[Any, ...] = (), run: int | None = None) -> Any:
    """The first row of a query, or None; of one about the events of a run, if that has a number."""
    sql = SQL[query] if run is None else TABLES.of_run(run, query)
    return connection.execute(sql, values).fetchone()


def every(connection: apsw.Connection, query: str, values: tuple[Any, ...]) -> list[Any]:
    """All rows of a query."""
    return connection.execute(SQL[query], values).fetchall()


def on_each(connection: apsw.Connection, tables: Tables, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
    """All rows of a query on every table of events."""
    return [row for sql in tables.each(query) for row in connection.execute(sql, values)]


def roll_back(connection: apsw.Connection) -> None:
    if connection.in_transaction:
        connection.execute("rollback")

"""Connections to one PostgreSQL server: borrowed, replaced when lost, their errors named at one door. Knows no table.

Connecting happens in the thread that needs the connection, so the true cause of a failure reaches the caller at once and
a restarted server is used again as soon as it answers. A lost connection is no answer: the same work is done again on a
new one, so all work given to `run` must be safe to repeat.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg.abc import RV, PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

from holdfast.core.errors import (
    StoreBroken,
    StoreBusy,
    StoreClosed,
    StoreError,
    StoreForeign,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    StoreUnreadable,
    UsageError,
)

T = TypeVar("T")
DEFAULTS: dict[str, object] = {
    "application_name": "holdfast",
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "client_encoding": "utf8",
}
FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.5
# states that say "not now": a server that stops, starts or is full, a deadlock, a serialisation failure
PASSING = ("08", "53300", "57P01", "57P02", "57P03", "57P05", "40001", "40P01")
# the longest matching beginning of an SQLSTATE decides
NAMES: dict[str, type[StoreError]] = {
    "08": StoreUnavailable,
    "28": StoreUnavailable,
    "3D": StoreUnavailable,
    "25P03": StoreUnavailable,
    "53": StoreUnavailable,
    "57P": StoreUnavailable,
    "53100": StoreFull,
    "25006": StoreReadOnly,
    "42501": StoreReadOnly,
    "40": StoreBusy,
    "55P03": StoreBusy,
    "57014": StoreBusy,
    "3F": StoreForeign,
    "42": StoreForeign,
    "58": StoreBroken,
    "XX001": StoreUnreadable,
    "XX002": StoreUnreadable,
}
RIGHTS = "Let the owner of the store grant this role the use of its schema, and of its tables what it is to do there."
ADVICE: dict[str, str] = {"42501": RIGHTS, "25006": "Use a server or a database that may be written."}


class PatientConnection(psycopg.Connection[TupleRow]):
    """A connection that gives up when the server does not answer, even if the network says that all is well."""

    answer_within: float = 15.0
    prepared: frozenset[bytes] = frozenset()
    """Names of statements that the server knows here, besides those that the driver names."""
    _hand: psycopg.Cursor[TupleRow] | None = None

    def do(self, statement: str, values: Mapping[str, Any] | None = None) -> psycopg.Cursor[TupleRow]:
        """Run one statement on the one kept cursor: a new cursor for each costs a tenth of a commit."""
        if self._hand is None:
            self._hand = self.cursor(binary=True)
        return self._hand.execute(statement, values)

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        try:
            return super().wait(gen, interval, self.answer_within if timeout is None else timeout)
        except psycopg.OperationalError as error:
            if error.sqlstate is None:
                self.pgconn.finish()
            raise


class Link:
    """At most `size` connections to one server, kept for reuse, last returned first.

    They find the tables of `schema`; without one, those that the server, the role or the address says.
    """

    def __init__(self, url: str, *, schema: str | None, size: int, patience: float, read_only: bool) -> None:
        self.patience = patience
        self._conninfo = _conninfo(url, schema, patience, read_only)
        self.place = place_of(url)
        self._idle: deque[PatientConnection] = deque()
        self._slots = threading.BoundedSemaphore(size)
        self._pid = os.getpid()
        self._closed = False
        self._random = random.Random()

    def run(self, work: Callable[[PatientConnection], T], patience: float | None = None) -> T:
        """Do the work; when the connection is lost do it again on a new one, until patience ends."""
        until = time.monotonic() + (self.patience if patience is None else patience)
        pause = 0.0
        while True:
            try:
                with self.borrow() as connection:
                    return work(connection)
            except psycopg.Error as error:
                if not passing(error) or time.monotonic() + pause >= until:
                    raise self.named(error) from error
            time.sleep(pause * self._random.uniform(0.5, 1.0))
            pause = min(max(pause * 2, FIRST_PAUSE), LONGEST_PAUSE)

    @contextmanager
    def borrow(self) -> Iterator[PatientConnection]:
        self.check_usable()
        if not self._slots.acquire(timeout=self.patience):
            raise StoreBusy(self.place, f"no connection became free within {self.patience:g} seconds")
        try:
            connection = self._idle_one() or self._connect()
            try:
                yield connection
            finally:
                self._give_back(connection)
        finally:
            self._slots.release()

    def close(self) -> None:
        self._closed = True
        if self.is_ours:
            self._drop_idle()

    @property
    def is_ours(self) -> bool:
        """Whether this process made it, and not one that it was forked from."""
        return os.getpid() == self._pid

    def named(self, error: psycopg.Error) -> StoreError:
        """The one door: an error of the driver as one of ours."""
        state = error.sqlstate or ""
        kind = next((NAMES[state[:end]] for end in (5, 3, 2) if state[:end] in NAMES), None)
        if kind is None:
            kind = StoreUnavailable if not state and isinstance(error, psycopg.OperationalError) else StoreError
        return kind(self.place, first_line(error), advice=ADVICE.get(state))

    def check_usable(self) -> None:
        if self._closed:
            raise StoreClosed(self.place, "the store was closed")
        if not self.is_ours:
            raise StoreClosed(self.place, "the store was opened by another process before a fork")

    def _idle_one(self) -> PatientConnection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _connect(self) -> PatientConnection:
        connection = PatientConnection.connect(self._conninfo, autocommit=True, prepare_threshold=0)
        connection.answer_within = max(self.patience / 2, 1.0)
        return connection

    def _give_back(self, connection: PatientConnection) -> None:
        """A connection that is not at rest is not reused; after a lost one the idle ones are suspect too."""
        lost = connection.closed
        if not lost and not self._closed and connection.info.transaction_status == TransactionStatus.IDLE:
            self._idle.append(connection)
            return
        if not self.is_ours:
            return  # a child that was forked in mid-use: closing would end the connection of its parent
        connection.close()
        if lost:
            self._drop_idle()

    def _drop_idle(self) -> None:
        while (connection := self._idle_one()) is not None:
            connection.close()


def passing(error: psycopg.Error) -> bool:
    """Is this a lost connection or a state that ends by itself?"""
    if error.sqlstate is None:
        return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
    return error.sqlstate.startswith(PASSING)


def place_of(url: str) -> str:
    """Where the store is, without the password."""
    parts = _parse(url)
    host = parts.get("host") or parts.get("hostaddr") or "local socket"
    return f"PostgreSQL {host}:{parts.get('port') or 5432}/{parts.get('dbname') or parts.get('user') or ''}"


def search_path(schema: str) -> str:
    return f"{schema},pg_temp"


def _conninfo(url: str, schema: str | None, patience: float, read_only: bool) -> str:
    given = {name: value for name, value in _parse(url).items() if value is not None}
    wait = round(min(max(patience / 3, 2), 5))
    milliseconds = int(max(patience / 3, 0.5) * 1000)
    settings = {
        **({} if schema is None else {"search_path": search_path(schema)}),
        "synchronous_commit": "on",
        "statement_timeout": milliseconds,
        "lock_timeout": milliseconds // 2,
        "idle_in_transaction_session_timeout": 60_000,
        "default_transaction_read_only": "on" if read_only else "off",
        "default_transaction_isolation": r"read\ committed",
        "client_min_messages": "warning",
        "timezone": "UTC",
    }
    ours = " ".join(f"-c {name}={value}" for name, value in settings.items())
    return make_conninfo(
        "", **{**DEFAULTS, "connect_timeout": wait, **given, "options": f"{given.get('options', '')} {ours}".strip()}
    )


def _parse(url: str) -> dict[str, Any]:
    try:
        parts = dict[str, Any](conninfo_to_dict(url))
    except psycopg.ProgrammingError:
        parts = None  # the driver's message may quote the password
    if parts is None or _is_misread(parts):
        raise UsageError(
            "The store address cannot be read as a PostgreSQL address.",
            advice="Write it as postgresql://user@host:5432/database; in a password, @ is %40 and / is %2F.",
        )
    return parts


def _is_misread(parts: Mapping[str, Any]) -> bool:
    """A password with a plain @ or / was taken for the host, the port or the database, and would be shown as such.

    A host that begins with @ is a socket without a file.
    """
    host, port, database = (str(parts.get(name) or "") for name in ("host", "port", "dbname"))
    return "@" in host[1:] or not f"0{port}".replace(",", "").isdigit() or ("@" in database and "/" in database)


def first_line(error: psycopg.Error) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".:")

"""User statements and events in one PostgreSQL transaction. Refuses statements that could end it; work is done once.

The statements run on connections of their own, so nothing that they set reaches an ordinary append. They find tables by the
search path that the server gives, less the store's schema: a table of that name must be the user's or nobody's. A
connection that is lost before the commit has changed nothing. When the answer to the commit is lost, the log says what became
of it: the events are there, or nothing is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import DataError, errors
from psycopg.pq import TransactionStatus

from holdfast.core.errors import BadInput, BadRecord, HoldfastError, StoreError, StoreUnavailable
from holdfast.ports import Append, Lease, Sql
from holdfast.stores import postgres_tables
from holdfast.stores.lending import Lent, nested, refused
from holdfast.stores.postgres_commit import Appender
from holdfast.stores.postgres_link import Link, PatientConnection, first_line, search_path
from holdfast.stores.postgres_tables import SQL

# errors that are no fault of a statement: the wire, the server, its resources, its locks
OF_THE_STORE = ("08", "25006", "25P03", "40", "53", "55P03", "57", "58", "XX")
UNANSWERED = ("08", "57P")
VERBS = frozenset(
    {
        *("alter", "analyze", "call", "comment", "create", "delete", "do", "drop", "explain", "grant", "insert"),
        *("lock", "merge", "refresh", "revoke", "select", "show", "table", "truncate", "update", "values", "with"),
    }
)
HARMLESS = frozenset(
    {"delete", "explain", "insert", "lock", "merge", "select", "show", "table", "update", "values", "with"}
)
_SPACE = " \t\n\r\f\v;("


class PostgresSql(Lent):
    """Statements one at a time, by the extended protocol, which takes no second one."""

    defined = False
    """Whether a statement may have made something that now points at our tables."""

    def __init__(self, link: Link, connection: PatientConnection) -> None:
        super().__init__()
        self._link = link
        self._connection = connection

    def _run(self, sql: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        word = first_word(sql)
        self.defined = self.defined or word not in HARMLESS
        if word not in VERBS:
            raise refused(sql, "it may not begin with this word", f"Begin with one of: {', '.join(sorted(VERBS))}.")
        with self._connection.pipeline():
            cursor = self._connection.cursor().execute(sql, values or None, prepare=False)
        if self._connection.info.transaction_status != TransactionStatus.INTRANS:
            raise refused(sql, "it ended the transaction")
        return cursor.fetchall() if cursor.description else []

    def _named(self, error: Exception, sql: str) -> HoldfastError:
        if isinstance(error, HoldfastError):
            return error
        return statement_error(self._link, error, sql)


def first_word(sql: str) -> str:
    """The word a statement begins with, behind white space and comments to the end of a line; none behind other comments."""
    rest = sql.lstrip(_SPACE)
    while rest.startswith("--"):
        lines = rest.replace("\r", "\n").partition("\n")
        rest = lines[2].lstrip(_SPACE)
    end = next((place for place, letter in enumerate(rest) if not (letter.isascii() and letter.isalpha())), len(rest))
    return rest[:end].lower()


def statement_error(link: Link, error: Exception, sql: str) -> HoldfastError:
    """A fault of the store where it is one, else of the statement."""
    if not isinstance(error, psycopg.Error):
        return refused(sql, error)
    lost = error.sqlstate is None and isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
    if lost or (error.sqlstate or "").startswith(OF_THE_STORE):
        return link.named(error)
    return refused(sql, first_line(error))


class PostgresLender:
    """Lends transactions. `lent` is for the statements, `link` for the looks at the log afterwards."""

    def __init__(self, lent: Link, link: Link, appender: Appender, schema: str) -> None:
        self._lent = lent
        self._link = link
        self._appender = appender
        self._schema = schema
        self._inside: set[int] = set()

    def check_not_inside(self) -> None:
        if self._inside and threading.get_ident() in self._inside:
            raise nested()

    def transact(self, lease: Lease, work: Callable[[Sql], Append]) -> None:
        self._appender.check_writable()
        problem = self._lent.run(lambda connection: self._attempt(connection, lease, work))
        if problem is not None:
            raise problem

    def _attempt(
        self, connection: PatientConnection, lease: Lease, work: Callable[[Sql], Append]
    ) -> BaseException | None:
        """Only the beginning may be repeated on another connection: all that comes later is given back, not raised."""
        with connection.pipeline():
            connection.execute("begin", prepare=False)
            connection.execute("reset all", prepare=False)
            connection.execute(SQL["theirs"], {"schema": self._schema}, prepare=False)
        try:
            self._perform(connection, lease, work)
        except BaseException as problem:  # noqa: BLE001 - raised by transact
            self._undo(connection)
            return problem
        return None

    def _undo(self, connection: PatientConnection) -> None:
        """But not in a forked child: there the connection is still its parent's."""
        if self._lent.is_ours:
            with suppress(psycopg.Error):
                connection.rollback()

    def _perform(self, connection: PatientConnection, lease: Lease, work: Callable[[Sql], Append]) -> None:
        append = self._lend(connection, lease, work)
        statement, values = self._appender.statement(append)
        if self._write(connection, append, statement, values):
            self._commit(connection, append, values)
        else:
            self._undo(connection)
            self._appender.explain(append, values)
        self._appender.remember(append)

    def _lend(self, connection: PatientConnection, lease: Lease, work: Callable[[Sql], Append]) -> Append:
        me = threading.get_ident()
        lent = PostgresSql(self._lent, connection)
        self._inside.add(me)
        try:
            append = lent.spend(lease, work)
        finally:
            self._inside.discard(me)
        self._lent.check_usable()
        if lent.defined:
            self._check_tables(connection)
        return append

    def _check_tables(self, connection: PatientConnection) -> None:
        """What a store refuses when it is opened is refused before it is there."""
        try:
            meddled = postgres_tables.look(connection, self._schema).meddled
        except psycopg.Error as error:
            raise self._lent.named(error) from error
        if meddled:
            raise BadInput(
                f"The work put a trigger, a rule or a reference on Holdfast's own table {meddled[0]}.",
                advice="Keep the id of a run as a plain column, without a foreign key.",
            )

    def _write(self, connection: PatientConnection, append: Append, statement: str, values: dict[str, Any]) -> bool:
        """Whether the append moved its run."""
        try:
            with connection.pipeline():
                connection.execute(SQL["ours"], {"path": search_path(self._schema)}, prepare=False)
                cursor = connection.cursor(binary=True).execute(statement, values)
        except errors.UniqueViolation:
            return False
        except DataError as error:
            place = f"Event {append.records[0].seq} of run {append.lease.run_id}"
            raise BadRecord(place, first_line(error)) from error
        except psycopg.Error as error:
            raise self._lent.named(error) from error
        return cursor.rowcount > 0

    def _commit(self, connection: PatientConnection, append: Append, values: dict[str, Any]) -> None:
        try:
            connection.commit()
        except psycopg.Error as error:
            if error.sqlstate is not None and not error.sqlstate.startswith(UNANSWERED):
                raise statement_error(self._lent, error, "commit") from error
            self._look(append, values, error)

    def _look(self, append: Append, values: dict[str, Any], error: psycopg.Error) -> None:
        """The answer was lost. The transaction held the run, so whoever gets hold of it sees what became of it."""

        def there(connection: PatientConnection) -> bool:
            connection.do(SQL["await_run"], values)
            return self._appender.why_not(connection, append, values) is None

        try:
            committed = self._link.run(there)
        except StoreError as problem:
            sentence = f"the answer to a commit was lost, and whether it was made is not known yet ({problem.problem})"
            raise StoreUnavailable(self._link.place, sentence) from error
        if not committed:
            sentence = "the connection was lost before the commit, so nothing was written"
            raise StoreUnavailable(self._link.place, sentence) from error

"""User statements and events in one SQLite transaction. Refuses statements that touch more than the user's own tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import apsw

from holdfast.core.errors import BadInput, HoldfastError
from holdfast.core.values import Append, Lease
from holdfast.stores.lending import Lent, refused
from holdfast.stores.sqlite_app import Guard
from holdfast.stores.sqlite_commit import Committer
from holdfast.stores.sqlite_file import OF_THE_FILE, is_sound
from holdfast.stores.sqlite_writer import Writer, roll_back

if TYPE_CHECKING:
    from holdfast.ports import Sql

_ALLOWED = (
    "Only tables and indexes whose names begin with app_ may be used, without transaction control, pragmas, triggers, "
    "views, virtual or temporary tables."
)


class SqliteSql(Lent):
    """Statements on the writer's own connection, watched by a guard."""

    def __init__(self, writer: Writer, connection: apsw.Connection) -> None:
        super().__init__()
        self._writer = writer
        self._connection = connection

    def _run(self, sql: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, tuple(values), can_cache=False).fetchall()

    def _named(self, error: Exception, sql: str) -> HoldfastError:
        if isinstance(error, OF_THE_FILE):
            return self._writer.named(error)
        return refused(sql, error, _ALLOWED if isinstance(error, apsw.AuthError) else "")


class Lender:
    """Lends the writer's transaction. Others wait for their turn meanwhile, in this process and in every other."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._writer = committer.writer

    def transact(self, lease: Lease, work: Callable[[Sql], Append]) -> None:
        with self._writer.turn:
            connection = self._connection()
            try:
                with self._writer.door():
                    connection.execute("begin immediate")
                append = self._lend(connection, lease, work)
                self._committer.conclude(connection, append)
            except BaseException:
                self._undo(connection)
                raise

    def _connection(self) -> apsw.Connection:
        """From here on nobody takes the connection for a ready one, whatever becomes of this transaction."""
        with self._writer.door():
            connection = self._writer.connection()
            self._writer.ready = None
            self._writer.check_identity()
        return connection

    def _lend(self, connection: apsw.Connection, lease: Lease, work: Callable[[Sql], Append]) -> Append:
        """What the work raises is its own and passes by the door; a child that it forked stops here."""
        guard, lent = Guard(), SqliteSql(self._writer, connection)
        self._writer.lent, connection.authorizer = connection, guard
        try:
            append = lent.spend(lease, work)
        finally:
            self._writer.lent = connection.authorizer = None
        with self._writer.door():
            if not connection.in_transaction:
                raise BadInput("The transaction ended before its work did.", advice=_ALLOWED)
            if guard.changed and not is_sound(connection):
                raise BadInput("The work left a table or an index that may not be in a store.", advice=_ALLOWED)
        return append

    def _undo(self, connection: apsw.Connection) -> None:
        """The guard would refuse a rollback. The door stops a forked child: there the transaction is still its parent's."""
        connection.authorizer = None
        with self._writer.door():
            roll_back(connection)

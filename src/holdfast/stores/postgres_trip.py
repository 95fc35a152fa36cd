"""Prepared statements with their values, many in one trip and one transaction. Knows no table.

A cursor for each, as the driver's own pipeline has it, takes twice the time of our own process.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from psycopg import DataError, errors
from psycopg.abc import PQGen
from psycopg.generators import fetch_many, send
from psycopg.pq import ConnStatus, ExecStatus, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult

from holdfast.core.named import NamedTuple
from holdfast.stores.postgres_link import PatientConnection

_NAMED = re.compile(r"%\((\w+)\)[sb]")
_BINARY = 1


class Statement:
    """A statement under the name that a connection prepares it by."""

    def __init__(self, name: str, sql: str) -> None:
        self.name = f"holdfast_{name}".encode()
        numbers: dict[str, str] = {}
        self.sql = _NAMED.sub(lambda found: numbers.setdefault(found[1], f"${len(numbers) + 1}"), sql).encode()
        self._names = tuple(numbers)

    def ready(self, named: Mapping[str, Any]) -> Ready:
        """It and its values as the server reads them: numbers and lists spelled out, all else byte for byte."""
        values = [named[name] for name in self._names]
        kinds = [*map(type, values)]
        sent = [_SENT[kind](value) for kind, value in zip(kinds, values, strict=True)]
        return Ready(self, sent, [*map(_FORMATS.__getitem__, kinds)])


class Ready(NamedTuple):
    statement: Statement
    values: list[bytes | None]
    formats: list[int]


def make_trip(connection: PatientConnection, every: Iterable[Ready]) -> list[int]:
    """How many rows each of them moved. An error of one of them is raised, and none has moved any."""
    return connection.wait(_made(connection, every))


def _made(connection: PatientConnection, every: Iterable[Ready]) -> PQGen[list[int]]:
    server, asked = connection.pgconn, list[bytes]()  # the name of what is prepared, or nothing for what is run
    server.enter_pipeline_mode()
    try:
        for statement, values, formats in every:
            name = statement.name
            if name not in connection.prepared and name not in asked:
                server.send_prepare(name, statement.sql)
                asked.append(name)
            server.send_query_prepared(name, values, formats, _BINARY)
            server.flush()  # the server is at work on this one while the next one is made ready
            asked.append(b"")
        server.pipeline_sync()
        yield from send(server)
        answers: list[PGresult] = []
        for _ in asked:
            answers += yield from fetch_many(server)
        yield from fetch_many(server)
    finally:
        _leave(server)
    done = zip(asked, answers, strict=False)
    connection.prepared |= {name for name, answer in done if name and answer.status == ExecStatus.COMMAND_OK}
    _check(connection, answers)
    return [answer.command_tuples or 0 for name, answer in zip(asked, answers, strict=True) if not name]


def _leave(server: PGconn) -> None:
    """Unless an answer is still on its way: such a connection is closed by whoever gave it."""
    if server.status == ConnStatus.OK and server.transaction_status != TransactionStatus.ACTIVE:
        server.exit_pipeline_mode()


def _check(connection: PatientConnection, answers: Iterable[PGresult]) -> None:
    """Raise the first error."""
    for answer in answers:
        if answer.status == ExecStatus.FATAL_ERROR:
            error = errors.error_from_result(answer)
            if isinstance(error, errors.InvalidSqlStatementName):  # somebody between us and the server forgot them
                connection.prepared = frozenset()
            raise error


def _array(values: list[Any]) -> bytes:
    text = ",".join(map(_quoted, values))
    if "\0" in text:
        raise DataError("PostgreSQL keeps no NUL in text")
    return f"{{{text}}}".encode()


def _quoted(value: object) -> str:
    text = rf"\x{value.hex()}" if isinstance(value, bytes) else str(value)
    text = text.replace("\\", r"\\").replace('"', r"\"")
    return f'"{text}"'


_SENT: dict[type, Callable[[Any], bytes | None]] = {
    bytes: bytes,
    str: str.encode,
    list: _array,
    int: b"%d".__mod__,
    float: lambda value: repr(value).encode(),
    type(None): lambda value: None,
}
_FORMATS = {kind: int(kind in (bytes, str, type(None))) for kind in _SENT}

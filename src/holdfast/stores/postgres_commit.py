"""Appends to PostgreSQL: one statement in one transaction, several in one trip. Says why an append moved nothing.

It checks the lease epoch, the expected sequence and the previous hash, moves the head and inserts the events. When the
answer is lost the same append is sent again, and its operation id keeps it once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from psycopg import DataError, errors

from holdfast.core.errors import (
    BadRecord,
    ChainBroken,
    HoldfastError,
    LeaseLost,
    OperationReused,
    SequenceConflict,
)
from holdfast.ports import Append, Lease, Projection, Record
from holdfast.stores.grouping import check_records, outcome
from holdfast.stores.postgres_link import Link, PatientConnection
from holdfast.stores.postgres_tables import SQL
from holdfast.stores.postgres_trip import Ready, Statement, make_trip

_ONE, _MANY = (Statement(name, SQL[name]) for name in ("append", "append_many"))


class Appender:
    """The appends of one store. `heads` is where it last saw its runs."""

    def __init__(self, link: Link, check_writable: Callable[[], None]) -> None:
        self.heads: dict[str, tuple[int, bytes]] = {}
        self.check_writable = check_writable
        self._link = link

    def append(self, lease: Lease, records: Sequence[Record], projection: Projection) -> None:
        self.check_writable()
        append = Append(lease, records, projection)
        statement, values = self.statement(append)

        def work(connection: PatientConnection) -> HoldfastError | None:
            try:
                moved = connection.do(statement, values).rowcount
            except errors.UniqueViolation:
                moved = 0
            except DataError as error:
                return BadRecord(f"Event {records[0].seq} of run {lease.run_id}", str(error).rstrip("."))
            return None if moved else self.why_not(connection, append, values)

        refusal = self._link.run(work)
        if refusal is not None:
            raise refusal
        self.remember(append)

    def append_all(self, appends: Sequence[Append]) -> list[Exception | None]:
        """One trip and one commit for all; what did not go in that way goes alone and learns why."""
        try:
            counts = self._together(appends) if len(appends) > 1 else [0] * len(appends)
        except HoldfastError:
            counts = [0] * len(appends)
        return [None if count else outcome(self.append, append) for append, count in zip(appends, counts, strict=True)]

    def _together(self, appends: Sequence[Append]) -> list[int]:
        """How many events of each append went in: all of it, or none."""
        self.check_writable()
        counts = self._link.run(lambda connection: make_trip(connection, map(self._ready, appends)))
        for append, count in zip(appends, counts, strict=True):
            if count:
                self.remember(append)
        return counts

    def _ready(self, append: Append) -> Ready:
        _, values = self.statement(append)
        return (_ONE if len(append.records) == 1 else _MANY).ready(values)

    def remember(self, append: Append) -> None:
        """The append is in the log: its run ends there now."""
        last = append.records[-1]
        self.heads[append.lease.run_id] = (last.seq, last.hash)

    def statement(self, append: Append) -> tuple[str, dict[str, Any]]:
        """What is sent for an append. Refuses records that no store could keep."""
        lease, records, shown = append
        check_records(lease.run_id, records)
        return SQL["append" if len(records) == 1 else "append_many"], self._values(lease, records, shown)

    def _values(self, lease: Lease, records: Sequence[Record], shown: Projection) -> dict[str, Any]:
        first, last = records[0], records[-1]
        expected = first.seq - 1
        known = self.heads.get(lease.run_id)
        values = {
            "run_id": lease.run_id, "epoch": lease.epoch, "ttl": lease.ttl,
            "expected": expected, "previous": known[1] if known and known[0] == expected else None,
            "seq": last.seq, "hash": last.hash, "at": last.at, "op": bytes.fromhex(first.op),
            "last_op": bytes.fromhex(last.op),
            **dict(zip(shown._fields, shown, strict=True)), "title": showable(shown.title),
        }  # fmt: skip
        if len(records) == 1:
            return values | {"kind": first.kind, "version": first.version, "body": _text(first)}
        return values | {
            "first_at": first.at,
            "kinds": [record.kind for record in records],
            "versions": [record.version for record in records],
            "ats": [record.at for record in records],
            "ops": [bytes.fromhex(record.op) for record in records],
            "parts": _parts(records),
            "hashes": [record.hash for record in records],
            "bodies": [_text(record) for record in records],
        }

    def explain(self, append: Append, values: dict[str, Any]) -> None:
        """Raise the reason an append moved nothing, unless these very records are already there."""
        refusal = self._link.run(lambda connection: self.why_not(connection, append, values))
        if refusal is not None:
            raise refusal

    def why_not(self, connection: PatientConnection, append: Append, values: dict[str, Any]) -> HoldfastError | None:
        """The reason an append moved nothing; None if these very records are already there."""
        lease = append.lease
        row = connection.do(SQL["standing"], values).fetchone()
        if row is None:
            return LeaseLost(lease.run_id, lease.epoch)
        epoch, leased, seq, there, used = row
        if there:
            return None
        if epoch != lease.epoch or not leased:
            return LeaseLost(lease.run_id, lease.epoch)
        if used:
            return OperationReused(values["op"].hex())
        if seq != values["expected"]:
            return SequenceConflict(lease.run_id, values["expected"], seq)
        return ChainBroken(lease.run_id, append.records[0].seq)


def _text(record: Record) -> str:
    try:
        return record.body.decode()
    except UnicodeDecodeError as error:
        raise BadRecord(f"Event {record.seq} of run {record.run_id}", f"its body is not UTF-8: {error}") from None


def showable(text: str) -> str:
    """PostgreSQL keeps no NUL and no lone surrogate in text; a list shows the replacement sign, the log is exact."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


def _parts(records: Sequence[Record]) -> list[int]:
    """The place of each record within its own operation."""
    parts: list[int] = []
    for before, record in zip((None, *records), records, strict=False):
        parts.append(parts[-1] + 1 if before is not None and before.op == record.op else 0)
    return parts

"""The shared store: one PostgreSQL schema, many machines. Durable before acknowledged; leases by the server's clock only.

An append is one statement in one transaction: it checks the lease epoch, the expected sequence and the previous hash,
moves the head and inserts the events. When the answer is lost the same append is sent again, and its operation id keeps it
once. Refuses a schema of a newer Holdfast, a database that is not UTF-8, and tables that were changed by another hand.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Self

from psycopg import DataError, errors, sql

from holdfast.core.errors import (
    BadRecord,
    ChainBroken,
    HoldfastError,
    LeaseHeld,
    LeaseLost,
    NewerSchema,
    NotFound,
    OperationReused,
    SequenceConflict,
    StoreError,
    StoreForeign,
    StoreReadOnly,
    TooLarge,
    UsageError,
)
from holdfast.core.ids import check_digest, check_id, is_id
from holdfast.ports import Append, Head, Lease, Owner, Projection, Record
from holdfast.stores import blobs
from holdfast.stores.grouping import check_records, one_by_one
from holdfast.stores.postgres_link import Link, PatientConnection
from holdfast.stores.sqlfiles import migrations, queries

SQL = queries("postgres")
MIGRATIONS = migrations("postgres")
KNOWN_VERSION = MIGRATIONS[-1][0]
LARGEST_ARTIFACT = 128 * 1024 * 1024
_GENESIS = bytes(32)
_PAGE = 512
_LAST = "\uffff"
_LOOK_FIRST = 64 * 1024
_FACTS = ("engine_version", "fsync", "full_page_writes", "synchronous_commit", "bytes", "runs", "events", "artifacts")
_TABLES = {"store", "runs", "events", "artifacts", "snapshots"}


class PostgresStore:
    """A store in the schema `schema` of a database. `read_only` changes nothing, not even an empty database."""

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 8,
        schema: str = "holdfast",
        patience: float = 30.0,
        read_only: bool = False,
    ) -> None:
        self.schema = _schema_name(schema)
        self.read_only = read_only
        self.store_id = ""
        self._leases: dict[str, Lease] = {}
        self._heads: dict[str, tuple[int, bytes]] = {}
        self._link = Link(url, schema=self.schema, size=pool_size, patience=patience, read_only=read_only)
        self.place = self._link.place
        try:
            self._link.run(self._open, patience=0.0)
        except BaseException:
            self._link.close()
            raise

    # --- opening and closing

    def _open(self, connection: PatientConnection) -> None:
        version = self._check_ours(connection)
        if version < KNOWN_VERSION:
            if self.read_only:
                raise NotFound("store", f"{self.place} schema {self.schema}")
            self._migrate(connection)

    def _check_ours(self, connection: PatientConnection) -> int:
        """The schema version, 0 if there is none yet. Writes nothing."""
        encoding, tables, meddled = _row(connection, "tables", {"schema": self.schema}) or ("nothing", [], [])
        if encoding != "UTF8":
            raise StoreForeign(self.place, f"the database is encoded in {encoding}, not in UTF8")
        if "store" not in tables:
            if _TABLES & set(tables):
                raise StoreForeign(self.place, f"the schema {self.schema} holds tables of somebody else")
            return 0
        version, self.store_id = _row(connection, "store") or (0, "")
        if version > KNOWN_VERSION:
            raise NewerSchema(f"{self.place} schema {self.schema}", version, KNOWN_VERSION)
        if meddled:
            raise StoreForeign(self.place, f"the table {meddled[0]} has a trigger or rule that is not ours")
        return int(version)

    def _migrate(self, connection: PatientConnection) -> None:
        """All missing migrations in one transaction, one process at a time."""
        with connection.transaction():
            connection.execute(SQL["migration_patience"])
            connection.execute(SQL["migration_lock"], {"schema": self.schema})
            done = self._check_ours(connection)
            if done == 0:
                connection.execute(sql.SQL(SQL["create_schema"]).format(schema=sql.Identifier(self.schema)))
            for number, script in MIGRATIONS[done:]:
                connection.execute(script, prepare=False)
                if number == 1:
                    self.store_id = secrets.token_hex(16)
                    connection.execute(SQL["new_store"], {"store_id": self.store_id})
                connection.execute(SQL["set_version"], {"version": number})

    def close(self) -> None:
        """Give every lease back, if the server can be reached; otherwise they run out by its clock."""
        with suppress(StoreError):
            for lease in list(self._leases.values()):
                self._release(lease, patience=0.0)
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    # --- leases

    def take(self, run_id: str, owner: Owner, ttl: float) -> Lease:
        check_id(run_id, "The run id")
        self._check_writable()
        values = {
            "run_id": run_id, "genesis": _GENESIS, "token": secrets.token_hex(16), "ttl": ttl,
            "host": owner.host, "boot": owner.boot_id, "pid": owner.pid, "started": owner.started,
        }  # fmt: skip
        row = self._one("take", values)
        while row is None:
            held = self._one("run", {"run_id": run_id})
            if held is not None and _head(held).held:
                raise LeaseHeld(run_id, _head(held).owner)
            row = self._one("take", values)
        epoch, seq, digest = row
        self._heads[run_id] = (seq, digest)
        self._leases[run_id] = lease = Lease(run_id, epoch, ttl)
        return lease

    def renew(self, lease: Lease) -> None:
        self._check_writable()
        if not self._change("renew", lease._asdict()):
            raise LeaseLost(lease.run_id, lease.epoch)

    def release(self, lease: Lease) -> None:
        self._check_writable()
        self._release(lease)

    def _release(self, lease: Lease, patience: float | None = None) -> None:
        self._change("release", lease._asdict(), patience)
        if self._leases.get(lease.run_id) == lease:
            del self._leases[lease.run_id]

    # --- appending

    def append(self, lease: Lease, records: Sequence[Record], projection: Projection) -> None:
        self._check_writable()
        check_records(lease.run_id, records)
        values = self._values(lease, records, projection)
        name = "append" if len(records) == 1 else "append_many"

        def work(connection: PatientConnection) -> HoldfastError | None:
            try:
                moved = connection.do(SQL[name], values).rowcount
            except errors.UniqueViolation:
                moved = 0
            except DataError as error:
                return BadRecord(f"Event {records[0].seq} of run {lease.run_id}", str(error).rstrip("."))
            return None if moved else self._why_not(connection, lease, records[0].seq, values)

        refusal = self._link.run(work)
        if refusal is not None:
            raise refusal
        self._heads[lease.run_id] = (records[-1].seq, records[-1].hash)

    def append_all(self, appends: Sequence[Append]) -> list[Exception | None]:
        """One trip and one commit for all; what did not go in that way goes alone and learns why."""
        try:
            counts = self._pipelined(appends) if len(appends) > 1 else []
        except HoldfastError:
            counts = []
        if not any(counts):
            return one_by_one(self, appends)
        alone = [append for append, count in zip(appends, counts, strict=True) if not count]
        outcomes = iter(one_by_one(self, alone))
        return [None if count else next(outcomes) for count in counts]

    def _pipelined(self, appends: Sequence[Append]) -> list[int]:
        """How many events of each append went in: all of it, or none."""
        self._check_writable()
        statements = []
        for lease, records, shown in appends:
            check_records(lease.run_id, records)
            name = "append" if len(records) == 1 else "append_many"
            statements.append((SQL[name], self._values(lease, records, shown)))

        def work(connection: PatientConnection) -> list[int]:
            with connection.pipeline():
                cursors = [connection.cursor(binary=True).execute(*statement) for statement in statements]
            return [cursor.rowcount for cursor in cursors]

        counts = self._link.run(work)
        for (lease, records, _), count in zip(appends, counts, strict=True):
            if count:
                self._heads[lease.run_id] = (records[-1].seq, records[-1].hash)
        return counts

    def _values(self, lease: Lease, records: Sequence[Record], shown: Projection) -> dict[str, Any]:
        first, last = records[0], records[-1]
        expected = first.seq - 1
        known = self._heads.get(lease.run_id)
        values = {
            "run_id": lease.run_id, "epoch": lease.epoch, "ttl": lease.ttl,
            "expected": expected, "previous": known[1] if known and known[0] == expected else None,
            "seq": last.seq, "hash": last.hash, "at": last.at, "op": bytes.fromhex(first.op),
            "last_op": bytes.fromhex(last.op),
            **shown._asdict(), "title": _shown(shown.title),
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

    def _why_not(
        self, connection: PatientConnection, lease: Lease, first: int, values: dict[str, Any]
    ) -> HoldfastError | None:
        """The reason an append moved nothing; None if these very records are already there."""
        row = _row(connection, "standing", values)
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
        return ChainBroken(lease.run_id, first)

    # --- reading

    def head(self, run_id: str) -> Head | None:
        if not is_id(run_id):
            return None
        row = self._one("run", {"run_id": run_id})
        return _head(row) if row and row[1] else None

    def heads(self, limit: int | None = None, after: str | None = None, unfinished: bool = False) -> Iterator[Head]:
        name = "unfinished_runs" if unfinished else "runs"
        before, left = after or _LAST, limit
        while left is None or left > 0:
            size = _PAGE if left is None else min(_PAGE, left)
            rows = self._all(name, {"before": before, "limit": size})
            yield from map(_head, rows)
            if len(rows) < size:
                return
            before, left = rows[-1][0], None if left is None else left - size

    def read(self, run_id: str, after: int = 0, limit: int | None = None) -> Iterator[Record]:
        left = limit if is_id(run_id) and after < 1 << 62 else 0
        while left is None or left > 0:
            size = _PAGE if left is None else min(_PAGE, left)
            rows = self._all("events", {"run_id": run_id, "after": after, "limit": size})
            yield from map(_record, rows)
            if len(rows) < size:
                return
            after, left = rows[-1][1], None if left is None else left - size

    # --- artifacts and snapshots

    def put_artifact(self, data: bytes) -> str:
        self._check_writable()
        digest = blobs.digest_of(data)
        key = {"digest": bytes.fromhex(digest)}
        if len(data) > _LOOK_FIRST and (self._one("has_artifact", key) or (False,))[0]:
            return digest
        encoding, stored = blobs.pack(data)
        if len(stored) > LARGEST_ARTIFACT:
            raise TooLarge("The artifact", len(stored), LARGEST_ARTIFACT)
        self._change("put_artifact", key | {"size": len(data), "encoding": encoding, "data": stored})
        return digest

    def get_artifact(self, digest: str) -> bytes:
        row = self._one("get_artifact", {"digest": bytes.fromhex(check_digest(digest))})
        if row is None:
            raise NotFound("artifact", digest)
        encoding, size, stored = row
        return blobs.unpack(digest, encoding, size, stored)

    def save_snapshot(self, run_id: str, seq: int, data: bytes) -> None:
        self._check_writable()
        kept = self._change("save_snapshot", {"run_id": run_id, "seq": seq, "data": data})
        if not kept and self._one("run", {"run_id": run_id}) is None:
            raise NotFound("run", run_id)

    def load_snapshot(self, run_id: str) -> tuple[int, bytes] | None:
        row = self._one("load_snapshot", {"run_id": run_id})
        return (row[0], row[1]) if row else None

    def facts(self) -> dict[str, object]:
        here = {"engine": "postgresql", "place": self.place, "schema": self.schema, "schema_version": KNOWN_VERSION}
        return {**here, "store_id": self.store_id, **dict(zip(_FACTS, self._one("facts", {}) or (), strict=True))}

    # --- statements

    def _check_writable(self) -> None:
        if self.read_only:
            raise StoreReadOnly(self.place, "it was opened for reading")

    def _one(self, name: str, values: dict[str, Any]) -> tuple[Any, ...] | None:
        return self._link.run(lambda connection: _row(connection, name, values))

    def _all(self, name: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        return self._link.run(lambda connection: connection.do(SQL[name], values).fetchall())

    def _change(self, name: str, values: dict[str, Any], patience: float | None = None) -> int:
        return self._link.run(lambda connection: connection.do(SQL[name], values).rowcount, patience)


def _row(connection: PatientConnection, name: str, values: dict[str, Any] | None = None) -> tuple[Any, ...] | None:
    return connection.do(SQL[name], values).fetchone()


def _head(row: tuple[Any, ...]) -> Head:
    run_id, seq, digest = row[:3]
    started, updated, epoch, host, boot, pid, process_started, held = row[10:]
    owner = None if host is None else Owner(host, boot, pid, process_started)
    return Head(run_id, seq, digest, Projection(*row[3:10]), started or "", updated or "", epoch, owner, held)


def _record(row: tuple[Any, ...]) -> Record:
    run_id, seq, kind, version, at, body, digest, op = row
    return Record(run_id, seq, kind, version, at, body.encode(), digest, op.hex())


def _text(record: Record) -> str:
    try:
        return record.body.decode()
    except UnicodeDecodeError as error:
        raise BadRecord(f"Event {record.seq} of run {record.run_id}", f"its body is not UTF-8: {error}") from None


def _shown(text: str) -> str:
    """PostgreSQL keeps no NUL and no lone surrogate in text; a list shows the replacement sign, the log is exact."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


def _schema_name(name: str) -> str:
    if name.isascii() and name.isidentifier() and name == name.lower() and len(name) <= 63:
        return name
    raise UsageError(f"{name!r:.80} cannot name a schema.", advice="Use up to 63 of a-z, 0-9 and '_'.")


def _parts(records: Sequence[Record]) -> list[int]:
    """The place of each record within its own operation."""
    parts: list[int] = []
    for before, record in zip((None, *records), records, strict=False):
        parts.append(parts[-1] + 1 if before is not None and before.op == record.op else 0)
    return parts

"""The shared store: one PostgreSQL schema, many machines. Durable before acknowledged; leases by the server's clock only.

Refuses a schema of a newer Holdfast, a database that is not UTF-8, and tables that were changed by another hand.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Self

from psycopg import errors, sql

from holdfast.core.errors import (
    LeaseHeld,
    LeaseLost,
    NewerSchema,
    NotFound,
    StoreError,
    StoreForeign,
    StoreReadOnly,
    StoreUnreadable,
    TooLarge,
    UsageError,
)
from holdfast.core.ids import check_digest, check_id, is_id
from holdfast.ports import Head, Lease, Message, Owner, Projection, Record
from holdfast.stores import blobs, postgres_tables
from holdfast.stores.grouping import UNLISTED, check_message
from holdfast.stores.postgres_commit import Appender, showable
from holdfast.stores.postgres_link import RIGHTS, Link, PatientConnection
from holdfast.stores.postgres_sql import PostgresLender
from holdfast.stores.postgres_tables import SQL
from holdfast.stores.sqlfiles import migrations

MIGRATIONS = migrations("postgres")
KNOWN_VERSION = MIGRATIONS[-1][0]
LARGEST_ARTIFACT = 128 * 1024 * 1024
_GENESIS = bytes(32)
_PAGE = 512
_LAST = "\uffff"
_MOST = (1 << 63) - 1
_LOOK_FIRST = 64 * 1024
_FACTS = ("engine_version", "fsync", "full_page_writes", "synchronous_commit", "bytes", "runs", "events", "artifacts")


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
        self._link = Link(url, schema=self.schema, size=pool_size, patience=patience, read_only=read_only)
        self._lent = Link(url, schema=None, size=pool_size, patience=patience, read_only=read_only)
        self._appender = Appender(self._link, self._check_writable)
        self._lender = PostgresLender(self._lent, self._link, self._appender, self.schema)
        self.append, self.append_all = self._appender.append, self._appender.append_all
        self.transact = self._lender.transact
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
        encoding, tables, meddled = postgres_tables.look(connection, self.schema)
        if encoding != "UTF8":
            raise StoreForeign(self.place, f"the database is encoded in {encoding}, not in UTF8")
        if "store" not in tables:
            if tables:
                raise StoreForeign(self.place, f"the schema {self.schema} holds tables of somebody else")
            return 0
        try:
            version, self.store_id = _row(connection, "store") or (0, "")
        except errors.UndefinedTable:  # it is there; a schema that a role may not use hides its tables
            problem = f"this role may not use the schema {self.schema}"
            raise StoreReadOnly(self.place, problem, advice=RIGHTS) from None
        if not self.store_id:
            raise StoreUnreadable(self.place, "it does not say which store it is")
        if version > KNOWN_VERSION:
            raise NewerSchema(f"{self.place} schema {self.schema}", version, KNOWN_VERSION)
        if version == KNOWN_VERSION and (missing := postgres_tables.OURS - tables):
            raise StoreForeign(self.place, f"the table {min(missing)} is gone")
        if meddled:
            raise StoreForeign(self.place, f"the table {meddled[0]} has a trigger, rule or reference that is not ours")
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
        self._lender.check_not_inside()
        with suppress(StoreError):
            for lease in list(self._leases.values()):
                self._release(lease, patience=0.0)
        self._lent.close()
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
        self._appender.heads[run_id] = (seq, digest)
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

    def strays(self) -> list[tuple[str, int, str]]:
        return [(run_id, last, UNLISTED) for run_id, last in self._all("strays", {})]

    def shortened(self) -> list[tuple[str, int, int]]:
        """Runs that once stood further than their log goes: run, events it had, events it has."""
        return self._all("shortened", {})

    def accept_loss(self, run_id: str, seq: int, projection: Projection) -> None:
        """A person's decision: a run that was cut off is as long as its log now."""
        self._check_writable()
        values = {"run_id": run_id, "seq": seq, "genesis": _GENESIS, **projection._asdict()}
        self._change("accept_loss", values | {"title": showable(projection.title)})

    # --- messages

    def post(self, run_id: str, kind: str, body: str) -> int:
        check_message(kind, body)
        self._check_writable()
        values = {"run_id": run_id, "token": secrets.token_bytes(16), "kind": kind, "body": body.encode()}
        row = self._link.run(lambda connection: _post(connection, values)) if is_id(run_id) else None
        if row is None:
            raise NotFound("run", run_id)
        return int(row[0])

    def messages(self, run_id: str, after: int = 0) -> list[Message]:
        rows = self._all("messages", {"run_id": run_id, "after": min(after, _MOST)}) if is_id(run_id) else []
        return [Message(number, kind, bytes(body).decode()) for number, kind, body in rows]

    def drop_messages(self, lease: Lease, upto: int) -> None:
        self._check_writable()
        held = self._one("drop_messages", {**lease._asdict(), "upto": min(upto, _MOST)})
        if held is None or not held[0]:
            raise LeaseLost(lease.run_id, lease.epoch)

    # --- artifacts and snapshots

    def put_artifact(self, data: bytes) -> str:
        self._check_writable()
        digest = blobs.digest_of(data)
        key = {"digest": bytes.fromhex(digest)}
        if len(data) > _LOOK_FIRST and (self._one("has_artifact", key) or (False,))[0]:
            return digest
        encoding, stored = blobs.pack(data)
        if len(stored) > LARGEST_ARTIFACT:
            raise TooLarge("The artifact", len(stored), LARGEST_ARTIFACT, advice=blobs.IN_PARTS)
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
        self._lender.check_not_inside()

    def _one(self, name: str, values: dict[str, Any]) -> tuple[Any, ...] | None:
        return self._link.run(lambda connection: _row(connection, name, values))

    def _all(self, name: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        return self._link.run(lambda connection: connection.do(SQL[name], values).fetchall())

    def _change(self, name: str, values: dict[str, Any], patience: float | None = None) -> int:
        return self._link.run(lambda connection: connection.do(SQL[name], values).rowcount, patience)


def _row(connection: PatientConnection, name: str, values: dict[str, Any] | None = None) -> tuple[Any, ...] | None:
    return connection.do(SQL[name], values).fetchone()


def _post(connection: PatientConnection, values: dict[str, Any]) -> tuple[Any, ...] | None:
    """The id of the message, left now or by an earlier try whose answer was lost; None if there is no such run."""
    try:
        return _row(connection, "post", values)
    except errors.UniqueViolation:
        return _row(connection, "posted", values)


def _head(row: tuple[Any, ...]) -> Head:
    run_id, seq, digest = row[:3]
    started, updated, epoch, host, boot, pid, process_started, held = row[10:]
    owner = None if host is None else Owner(host, boot, pid, process_started)
    return Head(run_id, seq, digest, Projection(*row[3:10]), started or "", updated or "", epoch, owner, held)


def _record(row: tuple[Any, ...]) -> Record:
    run_id, seq, kind, version, at, body, digest, op = row
    return Record(run_id, seq, kind, version, at, body.encode(), digest, op.hex())


def _schema_name(name: str) -> str:
    if name.isascii() and name.isidentifier() and name == name.lower() and len(name) <= 63:
        return name
    raise UsageError(f"{name!r:.80} cannot name a schema.", advice="Use up to 63 of a-z, 0-9 and '_'.")

"""The reference store: plain dictionaries under one lock. It says what the real stores must do; it survives nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Self

from holdfast.core.errors import (
    LeaseHeld,
    LeaseLost,
    NotFound,
    OperationReused,
    SequenceConflict,
    UsageError,
)
from holdfast.core.ids import check_digest, check_id
from holdfast.ports import Append, Head, Lease, Message, Owner, Projection, Record, Sql
from holdfast.stores import blobs
from holdfast.stores.grouping import check_message, check_records, outcome


class _Run:
    def __init__(self) -> None:
        self.records: list[Record] = []
        self.projection = Projection()
        self.epoch = 0
        self.owner: Owner | None = None
        self.until = 0.0
        self.snapshot: tuple[int, bytes] | None = None
        self.messages: list[Message] = []


class MemoryStore:
    """Give it a clock to decide when leases end; without one they never do."""

    def __init__(self, clock: Callable[[], float] = lambda: 0.0) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._runs: dict[str, _Run] = {}
        self._ops: dict[str, tuple[str, int, bytes]] = {}
        self._artifacts: dict[str, tuple[str, int, bytes]] = {}
        self._last_message = 0

    def take(self, run_id: str, owner: Owner, ttl: float) -> Lease:
        check_id(run_id, "The run id")
        with self._lock:
            run = self._runs.setdefault(run_id, _Run())
            if self._held(run):
                raise LeaseHeld(run_id, run.owner)
            run.epoch += 1
            run.owner, run.until = owner, self._clock() + ttl
            return Lease(run_id, run.epoch, ttl)

    def renew(self, lease: Lease) -> None:
        with self._lock:
            self._leased(lease).until = self._clock() + lease.ttl

    def release(self, lease: Lease) -> None:
        with self._lock:
            run = self._runs.get(lease.run_id)
            if run is not None and run.epoch == lease.epoch:
                run.owner = None

    def append(self, lease: Lease, records: Sequence[Record], projection: Projection) -> None:
        with self._lock:
            check_records(lease.run_id, records)
            first = records[0]
            there = self._ops.get(first.op)
            if self._has(records):
                return
            run = self._leased(lease)
            if there is not None:
                raise OperationReused(first.op)
            if len(run.records) != first.seq - 1:
                raise SequenceConflict(lease.run_id, first.seq - 1, len(run.records))
            run.records.extend(records)
            run.projection = projection
            run.until = self._clock() + lease.ttl
            for record in records:
                self._ops.setdefault(record.op, (record.run_id, record.seq, record.hash))

    def _has(self, records: Sequence[Record]) -> bool:
        run = self._runs.get(records[0].run_id)
        return run is not None and run.records[records[0].seq - 1 : records[-1].seq] == list(records)

    def append_all(self, appends: Sequence[Append]) -> list[Exception | None]:
        return [outcome(self.append, append) for append in appends]

    def transact(self, lease: Lease, work: Callable[[Sql], Append]) -> None:
        raise UsageError(
            "The memory store has no SQL, so no statement can share a transaction with its events.",
            advice="Use the SQLite or the PostgreSQL store.",
        )

    def _leased(self, lease: Lease) -> _Run:
        run = self._runs.get(lease.run_id)
        if run is None or run.epoch != lease.epoch or run.owner is None:
            raise LeaseLost(lease.run_id, lease.epoch)
        return run

    def _held(self, run: _Run) -> bool:
        return run.owner is not None and self._clock() < run.until

    def head(self, run_id: str) -> Head | None:
        with self._lock:
            run = self._runs.get(run_id)
            return self._head(run_id, run) if run and run.records else None

    def _head(self, run_id: str, run: _Run) -> Head:
        first, last = run.records[0], run.records[-1]
        return Head(
            run_id, last.seq, last.hash, run.projection, first.at, last.at, run.epoch, run.owner, self._held(run)
        )

    def heads(self, limit: int | None = None, after: str | None = None, unfinished: bool = False) -> Iterator[Head]:
        with self._lock:
            found = [
                self._head(run_id, run)
                for run_id, run in sorted(self._runs.items(), reverse=True)
                if run.records
                and (after is None or run_id < after)
                and not (unfinished and run.projection.status == "finished")
            ]
        yield from found[:limit]

    def read(self, run_id: str, after: int = 0, limit: int | None = None) -> Iterator[Record]:
        with self._lock:
            run = self._runs.get(run_id)
            found = run.records[after:] if run else []
        yield from found[:limit]

    def strays(self) -> list[tuple[str, int, str]]:
        return []  # events are kept in their run

    def post(self, run_id: str, kind: str, body: str) -> int:
        check_message(kind, body)
        with self._lock:
            run = self._runs.get(run_id)
            if run is None:
                raise NotFound("run", run_id)
            self._last_message += 1
            run.messages.append(Message(self._last_message, kind, body))
            return self._last_message

    def messages(self, run_id: str, after: int = 0) -> list[Message]:
        with self._lock:
            run = self._runs.get(run_id)
            return [message for message in run.messages if message.id > after] if run else []

    def drop_messages(self, lease: Lease, upto: int) -> None:
        with self._lock:
            run = self._leased(lease)
            run.messages = [message for message in run.messages if message.id > upto]

    def put_artifact(self, data: bytes) -> str:
        digest = blobs.digest_of(data)
        encoding, packed = blobs.pack(data)
        with self._lock:
            self._artifacts.setdefault(digest, (encoding, len(data), packed))
        return digest

    def get_artifact(self, digest: str) -> bytes:
        with self._lock:
            found = self._artifacts.get(check_digest(digest))
        if found is None:
            raise NotFound("artifact", digest)
        return blobs.unpack(digest, *found)

    def save_snapshot(self, run_id: str, seq: int, data: bytes) -> None:
        with self._lock:
            run = self._runs.get(run_id)
            if run is None:
                raise NotFound("run", run_id)
            if run.snapshot is None or run.snapshot[0] <= seq:
                run.snapshot = (seq, data)

    def load_snapshot(self, run_id: str) -> tuple[int, bytes] | None:
        with self._lock:
            run = self._runs.get(run_id)
            return run.snapshot if run else None

    def facts(self) -> dict[str, object]:
        return {"engine": "memory", "place": "memory", "runs": len(self._runs)}

    def close(self) -> None:
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

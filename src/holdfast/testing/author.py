"""Writes records by hand, right ones and wrong ones, for the suite that holds stores to their promises."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.core.errors import HoldfastError
from holdfast.core.events import Event, NoteRecorded, RunStarted
from holdfast.core.state import RunState, evolve, projection
from holdfast.core.wire import GENESIS, Plainly, encode
from holdfast.ports import Owner, Record, Store

SOMEBODY = Owner("somewhere", "boot-1", 11, "100")
ANOTHER = Owner("elsewhere", "boot-1", 22, "200")
AT = "2026-01-02T03:04:05.000006Z"
LONG = 600.0


class Author:
    """Writes records by hand, so that the suite can also write wrong ones."""

    def __init__(
        self, store: Store, run_id: str, ops: Iterator[str], ttl: float = LONG, owner: Owner = SOMEBODY
    ) -> None:
        self.store, self.run_id, self.ops = store, run_id, ops
        self.lease = store.take(run_id, owner, ttl)
        self.state, self.head = RunState(run_id=run_id), GENESIS

    def draft(self, *events: Event, op: str | None = None) -> list[Record]:
        op, records, head = op or next(self.ops), [], self.head
        for seq, event in enumerate(events, self.state.seq + 1):
            record, _ = encode(event, self.run_id, seq, head, AT, op, Plainly())
            records.append(record)
            head = record.hash
        return records

    def write(self, *events: Event, op: str | None = None) -> list[Record]:
        records = self.draft(*events, op=op)
        for event in events:
            evolve(self.state, event)
        self.store.append(self.lease, records, projection(self.state))
        self.head = records[-1].hash
        return records

    def begin(self) -> list[Record]:
        return self.write(RunStarted(mission_id="suite", title=self.run_id))

    def note(self, text: str = "a note", op: str | None = None) -> list[Record]:
        return self.write(NoteRecorded(text=text), op=op)

    def follow(self) -> None:
        """Stand where the log stands."""
        for record in self.store.read(self.run_id):
            self.state.seq, self.head = record.seq, record.hash
        self.state.status = "running"


def operations(start: int = 1) -> Iterator[str]:
    while True:
        yield f"{start:032x}"
        start += 1


@contextmanager
def refused(kind: type[HoldfastError]) -> Iterator[None]:
    try:
        yield
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was expected")


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run `work` in threads and raise the first problem."""
    problems: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]

"""Inside a program under a kill test: dies by SIGKILL where it is told to, and notes outside of its log what it did.

Does nothing in a process without HOLDFAST_KILLTEST. Notes are one JSON list to a line, in the order in which they happened.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from itertools import count
from typing import Any, Self, cast

import msgspec

from holdfast.core.errors import HoldfastError, UsageError
from holdfast.core.events import EffectStarted
from holdfast.core.wire import decode
from holdfast.ports import Append, Lease, Projection, Record, Sql, Store

VARIABLE = "HOLDFAST_KILLTEST"
OPEN, APPEND, COMMIT, BEGIN, END, KILL = "open", "append", "commit", "begin", "end", "kill"
BEFORE, INSIDE, AFTER, MIDDLE = "before", "inside", "after", "middle"
TRANSACTION = "transactional"
_SUBJECTS = ("step_id", "effect_key", "question_id", "sleep_id", "cursor", "reason", "mission_id")


class Order(msgspec.Struct, frozen=True):
    """What a process is told: the one store there is, where to note, and where to die (`before:3`), if at all.

    `life` counts the processes that worked on one run; `wait` are the seconds from the beginning of an act to its middle.
    """

    store: str
    notes: str
    life: int = 1
    die_at: str = ""
    wait: float = 0.0


class Note(msgspec.Struct, frozen=True, array_like=True):
    """One thing that happened. `about` names the events of an append, or is the key of the effect.

    `number` counts the appends, or the acts, of the process that may die; in others it is 0. `lasted` are the nanoseconds
    of an act that ended.
    """

    life: int
    what: str
    number: int = 0
    about: str = ""
    policy: str = ""
    lasted: int = 0


def ordered(environ: Mapping[str, str]) -> Killpoints | None:
    """The kill points of this process, if it is under a kill test."""
    text = environ.get(VARIABLE)
    return _points(text) if text else None


@cache
def _points(text: str) -> Killpoints:
    try:
        return Killpoints(msgspec.json.decode(text, type=Order))
    except msgspec.MsgspecError:
        advice = f"Only `holdfast killtest` sets {VARIABLE}; unset it to run the program by itself."
        raise UsageError(f"{VARIABLE} is not what `holdfast killtest` writes.", advice=advice) from None


def read_notes(path: str) -> list[Note]:
    """All notes that were written to their end."""
    try:
        with open(path, "rb") as file:
            lines = file.read().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    return [msgspec.json.decode(line, type=Note) for line in lines]


class Killpoints:
    """The moments of one process, counted. The first process of a life that opens a store is the one that dies."""

    def __init__(self, order: Order) -> None:
        self.place = order.store
        self._order = order
        self._file = os.open(order.notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._pid = os.getpid() if self._is_first() else 0
        self._appends = count(1)
        self._acts = count(1)
        self._going: dict[str, tuple[int, int]] = {}
        self._instead: dict[int, tuple[Store, Store]] = {}

    def _is_first(self) -> bool:
        try:
            os.close(os.open(f"{self._order.notes}.{self._order.life}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return False
        return True

    def instead_of(self, store: Store | str | None, make: Callable[[], Store]) -> AbstractContextManager[Store]:
        """A new store of the trial, in which this process may die. What stands for a store object stays open as that does."""
        if store is None or isinstance(store, str):
            return self.dying(make())
        if id(store) not in self._instead:
            self._instead[id(store)] = store, self.dying(make())
        return nullcontext(self._instead[id(store)][1])

    def dying(self, store: Store) -> Store:
        """The same store, in which this process may die."""
        self.note(OPEN)
        return cast("Store", _Dying(store, self))

    def observe(self, moment: str, key: str, policy: str) -> None:
        """An act begins or has ended."""
        if moment == BEGIN:
            self._begins(next(self._acts), key, policy)
        else:
            self._ends(*self._going.get(key, (0, time.monotonic_ns())), key, policy)

    def _begins(self, number: int, key: str, policy: str) -> None:
        self.note(BEGIN, number, key, policy)
        os.fsync(self._file)
        self.may_die(BEGIN, number, key)
        self._going[key] = number, time.monotonic_ns()
        if self._order.die_at == f"{MIDDLE}:{number}":
            alarm = threading.Timer(self._order.wait, self.may_die, (MIDDLE, number, key))
            alarm.daemon = True
            alarm.start()

    def _ends(self, number: int, began: int, key: str, policy: str) -> None:
        self.note(END, number, key, policy, time.monotonic_ns() - began)
        os.fsync(self._file)
        self.may_die(END, number, key)
        self.may_die(MIDDLE, number, key)  # it was quicker than expected

    def _is_mortal(self) -> bool:
        """A forked child is not: it shares our numbers."""
        return os.getpid() == self._pid

    @contextmanager
    def around(self, records: Sequence[Record], policy: str = "") -> Iterator[int]:
        """The moments before and after an append, with its number."""
        number, about = next(self._appends), ", ".join(map(_said, records)) or "a transaction"
        self.note(APPEND, number, about, policy)
        self.may_die(BEFORE, number, about)
        yield number
        self.may_die(AFTER, number, about)

    def may_die(self, moment: str, number: int, about: str = "") -> None:
        point = f"{moment}:{number}"
        if point == self._order.die_at and self._is_mortal():
            self.note(KILL, number, about, point)
            os.kill(self._pid, signal.SIGKILL)

    def note(self, what: str, number: int = 0, about: str = "", policy: str = "", lasted: int = 0) -> None:
        line = Note(self._order.life, what, number if self._is_mortal() else 0, about, policy, lasted)
        os.write(self._file, msgspec.json.encode(line) + b"\n")


class _Dying:
    """A store that is all its owner's, but for the moments around each append."""

    def __init__(self, store: Store, points: Killpoints) -> None:
        self._store = store
        self._points = points

    def append(self, lease: Lease, records: Sequence[Record], projection: Projection) -> None:
        with self._points.around(records):
            self._store.append(lease, records, projection)

    def append_all(self, appends: Sequence[Append]) -> list[Exception | None]:
        with self._points.around([record for append in appends for record in append.records]):
            return self._store.append_all(appends)

    def transact(self, lease: Lease, work: Callable[[Sql], Append]) -> None:
        keys: list[str] = []

        def watched(sql: Sql) -> Append:
            append = work(sql)
            keys.extend(_keys(append.records))
            self._points.may_die(INSIDE, number, ", ".join(keys))
            return append

        with self._points.around((), TRANSACTION) as number:
            self._store.transact(lease, watched)
            for key in keys:
                self._points.note(COMMIT, number, key, TRANSACTION)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self._store.close()


def _keys(records: Sequence[Record]) -> list[str]:
    return [event.effect_key for event in map(decode, records) if isinstance(event, EffectStarted)]


def _said(record: Record) -> str:
    """The kind of an event and what it is about."""
    try:
        event = decode(record)
    except HoldfastError:
        return record.kind
    subject = next((getattr(event, name) for name in _SUBJECTS if getattr(event, name, None)), "")
    return f"{record.kind} {subject}".rstrip()

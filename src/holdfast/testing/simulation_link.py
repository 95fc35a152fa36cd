"""The connection between a worker and the store in the simulation: it breaks, repeats, delays and overtakes. Decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, Self, TypeVar, cast

from holdfast.core.errors import StoreUnavailable
from holdfast.core.named import NamedTuple
from holdfast.ports import Append, Head, Lease, Message, Owner, Projection, Record, Sql
from holdfast.testing.simulation_model import Model

T = TypeVar("T")
Packet = tuple[str, Lease, tuple[Record, ...], Projection]


class Crash(BaseException):
    """The process is gone; no `except Exception` can hide it."""


def lost() -> BaseException:
    return StoreUnavailable("The simulated store", "the connection was lost")


class Fate(NamedTuple):
    """What becomes of one append: deliveries now, copies that arrive later, and how the caller learns of it."""

    now: int = 1
    late: int = 0
    end: Callable[[], BaseException] | None = None
    overtaken: bool = False


FATES = {
    "crash before append": Fate(now=0, end=Crash),
    "crash after append": Fate(end=Crash),
    "crash, append in flight": Fate(now=0, late=1, end=Crash),
    "append lost": Fate(now=0, end=lost),
    "append answer lost": Fate(end=lost),
    "append delayed": Fate(now=0, late=1, end=lost),
    "append repeated": Fate(now=2),
    "append echoed late": Fate(late=1),
    "append overtaken": Fate(overtaken=True),
}
CALLS = ("take", "renew", "release", "artifact", "snapshot")
FAULTS: dict[str, tuple[str, ...]] = {
    "append": tuple(FATES),
    **{call: (f"{call} lost", f"{call} answer lost") for call in CALLS},
    "read": ("read lost",),
    "rest": ("crash", "pause", "clock jump"),
}


class Chance(Protocol):
    """What a connection needs from the world around it."""

    model: Model

    def strike(self, at: str) -> str | None:
        """Which fault happens here, if any."""

    def count(self, fault: str) -> None:
        """The fault took effect."""

    def note(self, *words: object) -> None:
        """Write into the trace."""

    def post(self, packet: Packet) -> None:
        """Let a packet arrive later."""

    def deliver_all(self) -> None:
        """Let every packet that is on its way arrive now."""


class Link:
    """A store as one worker process sees it: over a connection that breaks, repeats and delays."""

    def __init__(self, world: Chance, name: str) -> None:
        self.world = world
        self.name = name
        self.model = world.model

    def _call(self, call: str, run_id: str, act: Callable[[], T]) -> T:
        fault = self.world.strike(call)
        self.world.note(self.name, call, run_id, fault)
        answer = act() if fault != f"{call} lost" else None
        if fault is not None:
            self.world.count(fault)
            raise lost()
        return cast(T, answer)

    def take(self, run_id: str, owner: Owner, ttl: float) -> Lease:
        return self._call("take", run_id, lambda: self.model.take(run_id, owner, ttl))

    def renew(self, lease: Lease) -> None:
        self._call("renew", lease.run_id, lambda: self.model.renew(lease))

    def release(self, lease: Lease) -> None:
        self._call("release", lease.run_id, lambda: self.model.release(lease))

    def put_artifact(self, data: bytes) -> str:
        return self._call("artifact", "", lambda: self.model.store.put_artifact(data))

    def head(self, run_id: str) -> Head | None:
        return self._call("read", run_id, lambda: self.model.store.head(run_id))

    def read(self, run_id: str, after: int = 0, limit: int | None = None) -> Iterator[Record]:
        return self._call("read", run_id, lambda: self.model.store.read(run_id, after, limit))

    def append(self, lease: Lease, records: Sequence[Record], projection: Projection) -> None:
        fault = self.world.strike("append")
        fate = Fate()
        if fault is not None:
            self.world.count(fault)
            fate = FATES[fault]
        self.world.note(self.name, "append", lease.run_id, records[0].seq, records[0].kind, fault)
        packet = (self.name, lease, tuple(records), projection)
        for _ in range(fate.late):
            self.world.post(packet)
        if fate.overtaken:
            self.world.deliver_all()
        for _ in range(fate.now):
            self.model.append(lease, records, projection)
        if fate.end is not None:
            raise fate.end()
        self.model.acknowledged(records)

    def append_all(self, appends: Sequence[Append]) -> list[Exception | None]:
        for append in appends:
            self.append(*append)
        return [None] * len(appends)

    def save_snapshot(self, run_id: str, seq: int, data: bytes) -> None:
        self._call("snapshot", run_id, lambda: self.model.store.save_snapshot(run_id, seq, data))

    def heads(self, limit: int | None = None, after: str | None = None, unfinished: bool = False) -> Iterator[Head]:
        return self.model.store.heads(limit, after, unfinished)

    def strays(self) -> list[tuple[str, int, str]]:
        return self.model.store.strays()

    def transact(self, lease: Lease, work: Callable[[Sql], Append]) -> None:
        self.model.store.transact(lease, work)

    def post(self, run_id: str, kind: str, body: str) -> int:
        return self.model.store.post(run_id, kind, body)

    def messages(self, run_id: str, after: int = 0) -> list[Message]:
        return self.model.store.messages(run_id, after)

    def drop_messages(self, lease: Lease, upto: int) -> None:
        self.model.store.drop_messages(lease, upto)

    def get_artifact(self, digest: str) -> bytes:
        return self.model.store.get_artifact(digest)

    def load_snapshot(self, run_id: str) -> tuple[int, bytes] | None:
        return self.model.store.load_snapshot(run_id)

    def facts(self) -> dict[str, object]:
        return self.model.store.facts()

    def close(self) -> None:
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

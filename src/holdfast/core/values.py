"""The values that stores and engine exchange. Imports nothing slow: every command passes through here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from holdfast.core.named import NamedTuple

SettledByProbe = Literal["done", "not_done", "unknown"]


class Owner(NamedTuple):
    """Who holds a lease. Evidence for people; liveness is decided by the lease alone."""

    host: str
    boot_id: str
    pid: int
    started: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class Lease(NamedTuple):
    """The right to append to one run. The epoch is new at every acquisition and fences out every earlier holder."""

    run_id: str
    epoch: int
    ttl: float


class Record(NamedTuple):
    """One event as it is stored: the body is a JSON object, the hash links it to the event before."""

    run_id: str
    seq: int
    kind: str
    version: int
    at: str
    body: bytes
    hash: bytes
    op: str


class Projection(NamedTuple):
    """What a list of runs shows of one run, without folding its log."""

    mission_id: str = ""
    title: str = ""
    status: str = "ready"
    stop_reason: str | None = None
    steps_done: int = 0
    steps_open: int = 0
    effects_open: int = 0


class Append(NamedTuple):
    """What a store is asked to append: under which lease, which records, and what a list shows of the run afterwards."""

    lease: Lease
    records: Sequence[Record]
    projection: Projection


class Head(NamedTuple):
    """Where a run stands: its last event, its projection, and whether somebody holds it now."""

    run_id: str
    seq: int
    hash: bytes
    projection: Projection
    started_at: str
    updated_at: str
    epoch: int
    owner: Owner | None
    held: bool


class Answer(NamedTuple):
    """What a probe saw. `unknown` is an answer; a probe that is not sure must give it."""

    settled_as: SettledByProbe
    evidence: str = ""
    receipt: Any = None


class Message(NamedTuple):
    """What somebody without the lease left for a run. Ids only grow; a run remembers the last one it heard."""

    id: int
    kind: str
    body: str

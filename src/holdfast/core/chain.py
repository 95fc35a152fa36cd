"""The chain of hashes that ties an event to the one before it. Loads no event, so that a log can be proven as it is shown.

The hash covers run id, sequence, kind, version, time and operation, so an event cannot be moved between runs, reordered or
edited.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from holdfast.core.errors import ChainBroken, SequenceGap
from holdfast.core.sha import of_many, sha256
from holdfast.core.values import Record

GENESIS = bytes(32)
_DOMAIN = b"holdfast/event/1\n"
BEGUN = sha256(_DOMAIN)  # the hash of every event begins as a copy of this: copying is quicker than beginning
_MANY = 1000  # events before this one are hashed by what is quick to load


@cache
def begun_for_many() -> Any:
    """The same, for who hashes many events."""
    return of_many()(_DOMAIN)


def _begun(seq: int) -> Any:
    return BEGUN if seq < _MANY else begun_for_many()


def chain_hash(previous: bytes, run_id: str, seq: int, kind: str, version: int, at: str, op: str, body: bytes) -> bytes:
    envelope = f"{run_id}\n{seq}\n{kind}\n{version}\n{at}\n{op}\n".encode()
    digest = _begun(seq).copy()
    digest.update(b"".join((previous, envelope, body)))
    hashed: bytes = digest.digest()
    return hashed


def check_chain(record: Record, previous: bytes, expected: int, begun: Any = None) -> bytes:
    """The hash of a record that follows from the one before it; raises otherwise. `begun` is for who knows how many come."""
    run_id, seq, kind, version, at, body, digest, op = record
    if seq != expected:
        raise SequenceGap(run_id, expected, seq)
    hashed = (begun or _begun(seq)).copy()
    hashed.update(b"".join((previous, f"{run_id}\n{seq}\n{kind}\n{version}\n{at}\n{op}\n".encode(), body)))
    if digest != hashed.digest():
        raise ChainBroken(run_id, seq)
    return digest

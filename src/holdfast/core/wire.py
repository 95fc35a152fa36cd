"""How events become records and records become events. The only place that knows old versions. Never skips a record.

Newer versions are refused with a reason; they can still be listed and exported as records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.core.chain import BEGUN, GENESIS, begun_for_many, chain_hash, check_chain
from holdfast.core.errors import BadRecord, NewerSchema, NotCanonical, TooLarge
from holdfast.core.events import KINDS, Event, Extension
from holdfast.core.ids import is_kind
from holdfast.core.named import Protocol
from holdfast.core.plain import check_plain
from holdfast.core.values import Record

__all__ = [
    "BEGUN", "EXTENSION_PREFIX", "GENESIS", "LIFTS", "MAX_EVENT_BYTES", "Plainly", "Redact", "begun_for_many", "chain_hash",
    "check_chain", "decode", "encode", "encode_body", "place", "tag",
]  # fmt: skip

MAX_EVENT_BYTES = 64 * 1024
EXTENSION_PREFIX = "x_"
_STILL_READ = f"{NewerSchema.advice} `holdfast log` and `holdfast export` still read it."


class Redact(Protocol):
    @property
    def glance(self) -> Callable[[bytes], object]:
        """Falsy for a document that surely holds no secret."""

    def body(self, body: bytes) -> bytes:
        """The same JSON document without its secrets."""


def _no(body: bytes) -> bool:
    return False


class Plainly:
    """Redacts nothing; for tests and for data that was redacted before."""

    glance = staticmethod(_no)

    def body(self, body: bytes) -> bytes:
        return body


_encode = msgspec.json.Encoder().encode
_record = tuple.__new__  # what Record(...) does in the end, without its frame: this is the hot path of every append
_TAGS = {event: (kind, event.version) for kind, event in KINDS.items()}
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


_readers: dict[
    tuple[str, int], Callable[[bytes], Event]
] = {}  # of present versions, made at first use: a hook reads few


def encode(
    event: Event,
    run_id: str,
    seq: int,
    previous: bytes,
    at: str,
    op: str,
    redact: Redact,
    begun: Any = BEGUN,
) -> tuple[Record, Event]:
    """The record of an event, and the event as a reader of that record will see it."""
    tagged = _TAGS.get(type(event))
    kind, version = tagged or tag(event)
    try:
        plain = _encode(event) if tagged and not event.data_fields else encode_body(event)
    except UnicodeEncodeError:
        raise _no_text(event) from None
    if len(plain) > MAX_EVENT_BYTES:
        raise _too_large(event, plain)
    body = _redacted(event, plain, redact) if redact.glance(plain) else plain
    envelope = f"{run_id}\n{seq}\n{kind}\n{version}\n{at}\n{op}\n".encode()
    digest = begun.copy()
    digest.update(b"".join((previous, envelope, body)))
    record = _record(Record, (run_id, seq, kind, version, at, body, digest.digest(), op))
    return record, (event if body is plain else decode(record))


def tag(event: Event) -> tuple[str, int]:
    """Kind and version of an extension."""
    if isinstance(event, Extension) and _is_extension(event.kind) and 0 < event.tagged < 1 << 31:
        return event.kind, event.tagged
    rule = f"extensions are {EXTENSION_PREFIX} and a name of a-z, 0-9 and _, at most 64 characters in all"
    raise BadRecord(type(event).__name__, f"it is no known event; {rule}")


def _is_extension(kind: str) -> bool:
    return kind.startswith(EXTENSION_PREFIX) and len(kind) > len(EXTENSION_PREFIX) and is_kind(kind)


def encode_body(event: Event) -> bytes:
    for name in event.data_fields:
        value = getattr(event, name)
        if value is not None and (type(value) is not str or not value.isascii()):
            check_plain(value, f"{type(event).__name__}.{name}")
    try:
        body = _encode(event.data if isinstance(event, Extension) else event)
    except UnicodeEncodeError:
        raise _no_text(event) from None
    if len(body) > MAX_EVENT_BYTES:
        raise _too_large(event, body)
    return body


def _redacted(event: Event, plain: bytes, redact: Redact) -> bytes:
    body = redact.body(plain)
    if len(body) > MAX_EVENT_BYTES:
        raise _too_large(event, body)
    return body


def _no_text(event: Event) -> NotCanonical:
    return NotCanonical(type(event).__name__, "the text holds a lone surrogate")


def _too_large(event: Event, body: bytes) -> TooLarge:
    advice = "Keep large content as an artifact."
    return TooLarge(f"The event {type(event).__name__}", len(body), MAX_EVENT_BYTES, advice=advice)


def decode(record: Record) -> Event:
    """The event of a record, lifted to the present version. Refuses newer and unreadable ones by name."""
    read = _readers.get(record[2:4])  # by kind and version
    try:
        return read(record[5]) if read is not None else _read_first(record)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise BadRecord(place(record), str(problem).rstrip(".")) from None


def _read_first(record: Record) -> Event:
    """The first event of its kind, one of an old version, or one that is refused."""
    known = KINDS.get(record.kind)
    if known is None:
        return _extension(record)
    if record.version > known.version:
        raise NewerSchema(place(record), record.version, known.version, advice=_STILL_READ)
    if record.version < known.version:
        lifted = record._replace(version=known.version, body=_lifted(record, known.version))
        return decode(lifted)
    read = _readers[record.kind, record.version] = msgspec.json.Decoder(known).decode
    return read(record.body)


def place(record: Record) -> str:
    return f"Event {record.seq} ({record.kind:.60}) of run {record.run_id}"


def _extension(record: Record) -> Extension:
    if not record.kind.startswith(EXTENSION_PREFIX):
        known = "the kinds in its own docs"
        raise NewerSchema(place(record), f"with {record.kind:.60}", known, advice=_STILL_READ)
    return Extension(kind=record.kind, data=_decode_object(record.body), tagged=record.version)


def _lifted(record: Record, target: int) -> bytes:
    body = _decode_object(record.body)
    for version in range(record.version, target):
        lift = LIFTS.get((record.kind, version))
        if lift is None:
            raise BadRecord(place(record), f"version {version} was never written")
        body = lift(body)
    return _encode(body)


def _checkpoint_complete_1(body: dict[str, Any]) -> dict[str, Any]:
    return body | {"sidecar_written": None}


def _as_it_was(body: dict[str, Any]) -> dict[str, Any]:
    """The next version only added fields whose absence means that nothing is known."""
    return body


LIFTS: dict[tuple[str, int], Callable[[dict[str, Any]], dict[str, Any]]] = {
    ("checkpoint_complete", 1): _checkpoint_complete_1,
    ("checkpoint_complete", 2): _as_it_was,
    ("checkpoint_started", 1): _as_it_was,
    ("note_recorded", 1): _as_it_was,
    ("run_started", 1): _as_it_was,
    ("scope_declared", 1): _as_it_was,
    ("step_started", 1): _as_it_was,
    ("step_finished", 1): _as_it_was,
    ("step_failed", 1): _as_it_was,
    ("effect_started", 1): _as_it_was,
    ("effect_finished", 1): _as_it_was,
    ("effect_settled", 1): _as_it_was,
    ("effect_settled", 2): _as_it_was,  # some of these replace a receipt already; the fold takes them
}

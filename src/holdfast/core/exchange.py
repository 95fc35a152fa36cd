"""The export file: one run as lines of JSON. Writes each line, and reads them back with every check there is.

A `Reader` refuses, with the line, whatever is not exactly what an export writes: a cut, an edit, a gap, another order,
a newer version, a value without an exact form, bytes without their hash. It keeps no line, so size is no matter.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from holdfast.core.errors import (
    ArtifactDamaged,
    BadFile,
    BadRecord,
    ChainBroken,
    HoldfastError,
    LogDamaged,
    NewerSchema,
    OperationReused,
    TooLarge,
)
from holdfast.core.ids import check_digest, check_id, check_op
from holdfast.core.mentions import mentioned
from holdfast.core.named import NamedTuple
from holdfast.core.plain import check_plain
from holdfast.core.sha import hexdigest
from holdfast.core.state import RunState, evolve
from holdfast.core.values import Record
from holdfast.core.wire import EXTENSION_PREFIX, GENESIS, MAX_EVENT_BYTES, check_chain, decode, place

FORMAT = 1
MAX_LINE = 1024 * 1024
MAX_BODY = 2 * MAX_EVENT_BYTES  # redaction may lengthen an event that was just under its limit
MAX_ARTIFACT = 256 * 1024 * 1024
MAX_ARTIFACT_LINE = MAX_ARTIFACT * 4 // 3 + 4096
ARTIFACT_START = b'{"artifact":'
PLAIN, ZSTD = "plain", "zstd"
AGAIN = "Nothing was written. Export the run again where it was recorded."

_SMALL = 256
_MAX_VERSION = 2**31 - 1
_KIND = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)
_FIELDS: dict[str, dict[str, type]] = {
    "holdfast_export": {"holdfast_export": int, "run_id": str, "events": int, "head": str},
    "seq": {"seq": int, "kind": str, "version": int, "at": str, "op": str, "hash": str, "body": dict},
    "artifact": {"artifact": str, "size": int, "encoding": str, "data": str},
    "end": {"end": bool, "events": int, "artifacts": int, "head": str},
}


class Header(NamedTuple):
    """The first line: which run, how many events, and the hash of the last."""

    run_id: str
    events: int
    head: str


class Artifact(NamedTuple):
    """The bytes an event refers to."""

    digest: str
    data: bytes


class End(NamedTuple):
    """The last line. A file without it was cut off."""

    events: int
    artifacts: int
    head: str


Item = Header | Record | Artifact | End


# --- writing


class _EventLine(msgspec.Struct):
    seq: int
    kind: str
    version: int
    at: str
    op: str
    hash: str
    body: msgspec.Raw


def header_line(header: Header) -> bytes:
    return _line({"holdfast_export": FORMAT, **header._asdict()})


def event_line(record: Record) -> bytes:
    """The line of an event. Its body stands there byte for byte, because its hash is over those bytes."""
    if b"\n" in record.body:
        raise BadRecord(place(record), "its body holds a line break")
    seq, kind, version, at, body, digest, op = record[1:]
    return msgspec.json.encode(_EventLine(seq, kind, version, at, op, digest.hex(), msgspec.Raw(body))) + b"\n"


def artifact_line(digest: str, data: bytes) -> bytes:
    if len(data) > MAX_ARTIFACT:
        raise TooLarge(f"Artifact {digest}", len(data), MAX_ARTIFACT, advice="Copy the whole store instead.")
    packed = data if len(data) <= _SMALL else _zstd().compress(data)
    encoding, stored = (ZSTD, packed) if len(packed) < len(data) else (PLAIN, data)
    text = base64.b64encode(stored).decode()
    return _line({"artifact": digest, "size": len(data), "encoding": encoding, "data": text})


def end_line(end: End) -> bytes:
    return _line({"end": True, **end._asdict()})


def _line(value: dict[str, object]) -> bytes:
    return msgspec.json.encode(value) + b"\n"


# --- reading


class _Body(msgspec.Struct):
    body: msgspec.Raw


_body_of = msgspec.json.Decoder(_Body).decode


class Reader:
    """Takes the lines of one file in order. What it returns has been proven; `state` is the fold so far."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.line = 0
        self.state = RunState()
        self.header: Header | None = None
        self.ended = False
        self.wanted: dict[str, int] = {}
        self._optional: set[str] = set()
        self._given: set[str] = set()
        self._ops: set[str] = set()
        self._op = ""
        self._head = GENESIS

    def take(self, line: bytes) -> Item:
        self.line += 1
        try:
            return self._item(line)
        except msgspec.MsgspecError as problem:
            raise self._bad(f"the line is not JSON ({problem!s:.120})") from None
        except HoldfastError as error:
            raise error if isinstance(error, BadFile) else placed(error, self.path, self.line) from None

    def finish(self) -> None:
        """After the last line: was it the end line?"""
        if self.line == 0:
            raise self._bad("the file is empty")
        if not self.ended:
            raise self._bad("the file ends here without its end line; it was cut off")

    def _bad(self, problem: str) -> BadFile:
        return BadFile(self.path, self.line or None, problem, advice=AGAIN)

    def _item(self, line: bytes) -> Item:
        if self.ended:
            raise self._bad("there is something after the end line")
        limit = MAX_ARTIFACT_LINE if line.startswith(ARTIFACT_START) else MAX_LINE
        if len(line) > limit + 1:
            raise TooLarge("The line", len(line), limit)
        value = self._object(line)
        kind = next((key for key in _FIELDS if key in value), None)
        if (kind == "holdfast_export") != (self.header is None):
            raise self._bad("this is not a Holdfast export" if self.header is None else "a second header")
        if kind is None:
            raise self._bad("this is neither an event, an artifact nor the end line")
        if kind == "holdfast_export":
            self._check_format(value["holdfast_export"])
        self._check_fields(value, _FIELDS[kind])
        return _READ[kind](self, value, line)

    def _object(self, line: bytes) -> dict[str, Any]:
        try:
            value = json.loads(line.decode(), object_pairs_hook=_pairs, parse_constant=_constant, parse_int=_integer)
        except (ValueError, RecursionError) as problem:
            raise self._bad(self._why(line, problem)) from None
        if type(value) is not dict:
            raise self._bad("the line is JSON, but not an object")
        return value

    def _why(self, line: bytes, problem: Exception) -> str:
        if isinstance(problem, _Unsound):
            return str(problem)
        if isinstance(problem, RecursionError):
            return "the line is nested too deeply"
        if not line.endswith(b"\n"):
            return "the line is cut off"
        if isinstance(problem, UnicodeDecodeError):
            return "the line is not UTF-8 text"
        return f"the line is not JSON ({problem!s:.120})"

    def _check_format(self, version: object) -> None:
        if type(version) is not int or version < 1:
            raise self._bad("the format version must be a whole number from 1")
        if version > FORMAT:
            raise NewerSchema("The export", version, FORMAT)

    def _check_fields(self, value: dict[str, Any], fields: dict[str, type]) -> None:
        if value.keys() != fields.keys():
            odd = ", ".join(sorted(f"{key:.40}" for key in value.keys() ^ fields.keys()))
            raise self._bad(f"missing or unknown fields: {odd!r}")
        for name, kind in fields.items():
            if type(value[name]) is not kind:
                raise self._bad(f"the field {name} has the wrong type")

    def _read_header(self, value: dict[str, Any], line: bytes) -> Header:
        run_id = check_id(value["run_id"], "The run id")
        self.header = Header(run_id, value["events"], check_digest(value["head"], "The hash of the head"))
        if self.header.events < 1:
            raise self._bad("an export has at least one event")
        self.state.run_id = run_id
        return self.header

    def _read_event(self, value: dict[str, Any], line: bytes) -> Record:
        assert self.header is not None
        if self._given:
            raise self._bad("an event after the artifacts")
        if self.state.seq == self.header.events:
            raise self._bad(f"more than the {self.header.events} events that the header names")
        check_plain(value["body"], "body", -1)
        record = self._record(self.header.run_id, value, bytes(_body_of(line).body))
        self._head = check_chain(record, self._head, self.state.seq + 1)
        evolve(self.state, decode(record))
        self._note_artifact(record, value["body"])
        return record

    def _record(self, run_id: str, value: dict[str, Any], body: bytes) -> Record:
        if len(body) > MAX_BODY:
            raise TooLarge("The body of the event", len(body), MAX_BODY)
        if not _KIND.fullmatch(value["kind"]):
            raise self._bad(f"the kind {value['kind']!r:.80} is not a name in snake_case")
        if not 1 <= value["version"] <= _MAX_VERSION:
            raise self._bad("the version must be a whole number from 1")
        if not _is_time(value["at"]):
            raise self._bad(f"the time {value['at']!r:.60} must look like 2026-01-02T03:04:05.678901Z")
        self._check_operation(check_op(value["op"]))
        digest = bytes.fromhex(check_digest(value["hash"], "The hash of the event"))
        return Record(run_id, value["seq"], value["kind"], value["version"], value["at"], body, digest, value["op"])

    def _check_operation(self, op: str) -> None:
        """The events of one operation stand together: one append wrote them."""
        if op != self._op and op in self._ops:
            raise OperationReused(op)
        self._ops.add(op)
        self._op = op

    def _note_artifact(self, record: Record, body: dict[str, Any]) -> None:
        self._optional.update(mentioned(record.body))
        digest = reference(body)
        if digest is not None and not record.kind.startswith(EXTENSION_PREFIX):
            self.wanted.setdefault(digest, record.seq)

    def _read_artifact(self, value: dict[str, Any], line: bytes) -> Artifact:
        self._check_events()
        digest = check_digest(value["artifact"])
        if digest in self._given:
            raise self._bad(f"artifact {digest} comes twice")
        if digest not in self.wanted and digest not in self._optional:
            raise self._bad(f"no event refers to artifact {digest}")
        self._given.add(digest)
        return Artifact(digest, _unpack(digest, value["size"], value["encoding"], value["data"]))

    def _read_end(self, value: dict[str, Any], line: bytes) -> End:
        self._check_events()
        missing = next((digest for digest in self.wanted if digest not in self._given), None)
        if missing is not None:
            raise self._bad(f"event {self.wanted[missing]} refers to artifact {missing}, which the file does not hold")
        end = End(value["events"], value["artifacts"], value["head"])
        if end != End(self.state.seq, len(self._given), self._head.hex()) or value["end"] is not True:
            raise self._bad("the end line does not agree with the lines before it")
        self.ended = True
        return end

    def _check_events(self) -> None:
        assert self.header is not None
        if self.state.seq != self.header.events:
            raise self._bad(f"the header names {self.header.events} events, but there are {self.state.seq}")
        if self._head.hex() != self.header.head:
            raise ChainBroken(self.header.run_id, self.state.seq)


_READ: dict[str, Callable[[Reader, dict[str, Any], bytes], Item]] = {
    "holdfast_export": Reader._read_header,
    "seq": Reader._read_event,
    "artifact": Reader._read_artifact,
    "end": Reader._read_end,
}


def read_artifact(line: bytes) -> Artifact:
    """One artifact line by itself, for a second look at a file that was proven before."""
    value = msgspec.json.decode(line)
    return Artifact(value["artifact"], _unpack(value["artifact"], value["size"], value["encoding"], value["data"]))


def placed(error: HoldfastError, path: str, line: int) -> HoldfastError:
    """The same error, whose sentence begins with the place in the file and whose advice fits a file."""
    error.args = (f"{path}, line {line}: {error}",)
    if isinstance(error, (LogDamaged, NewerSchema)):
        error.advice = AGAIN if isinstance(error, LogDamaged) else NewerSchema.advice
    return error


def reference(body: dict[str, Any]) -> str | None:
    """The artifact that an event of any kind or version refers to: its field `artifact`, if that is a SHA-256."""
    digest = body.get("artifact")
    return digest if isinstance(digest, str) and _is_digest(digest) else None


def _is_digest(text: str) -> bool:
    return len(text) == 64 and set(text) <= set("0123456789abcdef")


def _is_time(text: str) -> bool:
    try:
        return bool(_TIME.fullmatch(text) and datetime.fromisoformat(text))
    except ValueError:
        return False


class _Unsound(ValueError):
    """JSON that two readers would read differently."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise _Unsound(f"the key {twice!r:.60} comes twice in one object")
    return found


def _constant(text: str) -> Any:
    raise _Unsound(f"{text} is not JSON")


def _integer(text: str) -> int:
    if len(text) > 17:
        raise _Unsound("a number is beyond 2^53 and JSON readers would round it")
    return int(text)


def _unpack(digest: str, size: int, encoding: str, text: str) -> bytes:
    """Never more bytes than the line promises, never more than the limit, never other bytes."""
    if not 0 <= size <= MAX_ARTIFACT:
        raise TooLarge(f"Artifact {digest}", size, MAX_ARTIFACT)
    try:
        stored = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ArtifactDamaged(digest) from None
    unpack = _UNPACK.get(encoding)
    data = unpack(stored, size) if unpack else None
    if data is None or len(data) != size or hexdigest(data) != digest:
        raise ArtifactDamaged(digest)
    return data


def _keep(stored: bytes, size: int) -> bytes | None:
    return stored


def _inflate(stored: bytes, size: int) -> bytes | None:
    zstd = _zstd()
    try:
        data: bytes = zstd.ZstdDecompressor().decompress(stored, max_length=size + 1)
    except zstd.ZstdError:
        return None
    return data


_UNPACK: dict[str, Callable[[bytes, int], bytes | None]] = {PLAIN: _keep, ZSTD: _inflate}


def _zstd() -> Any:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd

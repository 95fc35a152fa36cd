"""The checkpoint of a step as a value, and the pure rules of the gate before it. Refuses a field that is not what it must be.

A checkpoint holds the least that is needed to go on: where (the cursor), with what (the hash of the inputs), under which
rules (strictness and scopes), and the token that asks for it. Names of cursors and scopes are open; the known ones are listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from holdfast.core.errors import BadInput, shown
from holdfast.core.events import StepCheckpointed
from holdfast.core.ids import check_digest, is_kind
from holdfast.core.inputs import compute_input_hash, utc_text
from holdfast.core.named import NamedTuple
from holdfast.core.strictness import Strictness, must_be
from holdfast.core.wire import encode_body

PRE_GENERATION_GATE, POST_CLARIFICATION, POST_GATE = "pre_generation_gate", "post_clarification", "post_gate"
CURSORS = (PRE_GENERATION_GATE, POST_CLARIFICATION, POST_GATE)
SCOPES = ("mission_local", "team_domain", "audience_domain", "spec_kitty_core")  # the nearest first
MAX_ID_BYTES = 128
MAX_BODY_BYTES = 1000  # of the event: under 1 KB

_HEX = frozenset("0123456789abcdefABCDEF")
_GROUPS = [8, 4, 4, 4, 12]


class BadCheckpoint(BadInput):
    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"The checkpoint cannot be used: its field {field} {problem}.")
        self.field = field
        self.problem = problem


class Conflict(NamedTuple):
    """Something that does not fit. A severity that is not known counts as high."""

    name: str
    severity: str | None = None
    detail: str = ""


class _Open(msgspec.Struct, frozen=True, dict=True):
    """A value that carries along the fields it does not know."""

    @property
    def extra(self) -> Mapping[str, Any]:
        extra: Mapping[str, Any] = self.__dict__.get("_extra", {})
        return extra


class ScopeRef(_Open, frozen=True):
    """Which version of a scope was in force."""

    scope: str
    version_id: str

    def __post_init__(self) -> None:
        _check_name("scope_refs.scope", self.scope)
        _check_text("scope_refs.version_id", self.version_id)


class StepCheckpoint(_Open, frozen=True, kw_only=True):
    """Where one step of one run of one mission stands. `extra` is what a newer writer added; it is not compared."""

    mission_id: str
    run_id: str
    step_id: str
    strictness: Strictness
    scope_refs: tuple[ScopeRef, ...]
    input_hash: str
    cursor: str
    retry_token: str
    timestamp: datetime

    def __post_init__(self) -> None:
        for name in ("mission_id", "run_id", "step_id"):
            _check_id(name, getattr(self, name))
        msgspec.structs.force_setattr(self, "strictness", to_strictness(self.strictness, "strictness"))
        msgspec.structs.force_setattr(self, "scope_refs", _check_refs(self.scope_refs))
        _check_hash(self.input_hash)
        _check_name("cursor", self.cursor)
        if not is_token(self.retry_token):
            raise BadCheckpoint("retry_token", "is not 36 characters of the shape 8-4-4-4-12, in hex")
        _check_time(self.timestamp)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with everything `from_dict` was given beside the nine fields."""
        refs = [{**ref.extra, "scope": ref.scope, "version_id": ref.version_id} for ref in self.scope_refs]
        known = {name: getattr(self, name) for name in FIELDS}
        changed = {"strictness": str(self.strictness), "scope_refs": refs, "timestamp": utc_text(self.timestamp)}
        return {**self.extra, **known, **changed}

    @classmethod
    def from_dict(cls, data: object) -> StepCheckpoint:
        known = _fields_of(data, FIELDS, "")
        refs = known["scope_refs"]
        if not isinstance(refs, list | tuple):
            raise BadCheckpoint("scope_refs", "is not a list")
        known |= {"scope_refs": tuple(map(_ref, refs)), "timestamp": read_time(known["timestamp"], "timestamp")}
        return _carrying(cls(**known), data, FIELDS)


FIELDS = StepCheckpoint.__struct_fields__
_Carrier = TypeVar("_Carrier", bound=_Open)


def _ref(data: object) -> ScopeRef:
    names = ("scope", "version_id")
    return _carrying(ScopeRef(**_fields_of(data, names, "scope_refs.")), data, names)


def _fields_of(data: object, names: tuple[str, ...], place: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise BadCheckpoint(place.rstrip(".") or names[0], f"is missing: this is a {type(data).__name__}, no object")
    missing = [name for name in names if name not in data]
    if missing:
        raise BadCheckpoint(place + missing[0], "is missing")
    return {name: data[name] for name in names}


def _carrying(made: _Carrier, data: Any, names: tuple[str, ...]) -> _Carrier:
    extra = {name: value for name, value in data.items() if name not in names}
    if extra:
        made.__dict__["_extra"] = extra
    return made


# --- what a field must be


def is_token(value: object) -> bool:
    """Whether it has the shape of a retry token: 8-4-4-4-12 hex digits."""
    if not isinstance(value, str) or len(value) != 36:
        return False
    groups = value.split("-")
    return [len(group) for group in groups] == _GROUPS and all(map(_HEX.issuperset, groups))


def to_strictness(value: Any, field: str) -> Strictness:
    try:
        return Strictness(value)
    except ValueError:
        raise BadCheckpoint(field, must_be(value)) from None


def read_time(value: object, field: str) -> datetime:
    """A moment from its text."""
    try:
        time = datetime.fromisoformat(_check_text(field, value))
    except ValueError:
        raise BadCheckpoint(field, f"is not a time: {shown(value, 60)}") from None
    return _check_time(time, field)


def _check_time(value: object, field: str = "timestamp") -> datetime:
    if not isinstance(value, datetime):
        raise BadCheckpoint(field, "is not a time")
    try:
        utc_text(value)
    except (ValueError, OverflowError):
        raise BadCheckpoint(field, "must be a time with a zone") from None
    return value


def _check_text(field: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise BadCheckpoint(field, "must be text that is not empty")
    if not value.isprintable():
        raise BadCheckpoint(field, "holds characters that cannot be printed")
    return value


def _check_id(field: str, value: object) -> None:
    size = len(msgspec.json.encode(_check_text(field, value))) - 2
    if size > MAX_ID_BYTES:
        raise BadCheckpoint(field, f"takes {size:,} bytes; the limit is {MAX_ID_BYTES}")


def _check_name(field: str, value: object) -> None:
    if not isinstance(value, str) or not is_kind(value):
        rule = "must be a name of a-z, 0-9 and _, at most 64 characters, that begins with a letter"
        raise BadCheckpoint(field, f"{rule}, not {shown(value, 80)}")


def _check_hash(value: object) -> None:
    try:
        check_digest(value)
    except BadInput:
        raise BadCheckpoint("input_hash", "must be 64 hex digits in lower case") from None


def _check_refs(value: object) -> tuple[ScopeRef, ...]:
    if isinstance(value, list | tuple) and all(isinstance(ref, ScopeRef) for ref in value):
        return tuple(value)
    raise BadCheckpoint("scope_refs", "must be a list of ScopeRef")


# --- as an event


def to_event(
    checkpoint: StepCheckpoint, checkpoint_id: str, inputs: str | None, expires_at: str | None
) -> StepCheckpointed:
    return StepCheckpointed(
        checkpoint_id=checkpoint_id,
        mission_id=checkpoint.mission_id,
        step_id=checkpoint.step_id,
        strictness=str(checkpoint.strictness),
        cursor=checkpoint.cursor,
        input_hash=checkpoint.input_hash,
        retry_token=checkpoint.retry_token,
        timestamp=utc_text(checkpoint.timestamp),
        scope_refs=tuple((ref.scope, ref.version_id) for ref in checkpoint.scope_refs),
        inputs=inputs,
        expires_at=expires_at,
    )


def from_event(event: StepCheckpointed, run_id: str, refs: Iterable[Iterable[str]]) -> StepCheckpoint:
    """The checkpoint of an event. `refs` stand in the event, or in the artifact that it names."""
    return StepCheckpoint(
        mission_id=event.mission_id,
        run_id=run_id,
        step_id=event.step_id,
        strictness=to_strictness(event.strictness, "strictness"),
        scope_refs=tuple(ScopeRef(*ref) for ref in refs),
        input_hash=event.input_hash,
        cursor=event.cursor,
        retry_token=event.retry_token,
        timestamp=read_time(event.timestamp, "timestamp"),
    )


def is_small(event: StepCheckpointed) -> bool:
    return len(encode_body(event)) <= MAX_BODY_BYTES


# --- the rules


def verify_input_hash(checkpoint: StepCheckpoint, current_inputs: Any) -> bool:
    """Whether these are the inputs of the checkpoint. Secrets must be gone from them, as they were then."""
    return compute_input_hash(current_inputs) == checkpoint.input_hash


_HARMLESS = frozenset({"low", "medium"})


def blocks(strictness: Strictness, severities: Iterable[str | None]) -> bool:
    """Whether conflicts close the gate. off: never; medium: high, critical and unknown ones; max: any."""
    if strictness == Strictness.OFF:
        return False
    if strictness == Strictness.MAX:
        return any(True for _ in severities)
    return any(severity not in _HARMLESS for severity in severities)

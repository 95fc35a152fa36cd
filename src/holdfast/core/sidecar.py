"""The file that mirrors a milestone: its fields, its text, and which of several is the newest. Refuses what is not wholly sound.

A sidecar is read as somebody else's text: what is missing, of the wrong type, named after another checkpoint, or
written by a newer Holdfast is refused with the reason. What was not known when it was written is absent, never made up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, NoReturn

import msgspec

from holdfast.core.errors import BadInput, shown
from holdfast.core.ids import is_id

SCHEMA_VERSION = 1
MAX_BYTES = 64 * 1024
MAX_NUMBER = 2**31 - 1
ENDING = ".json"
_SHA = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_SHAS = ("sha", "tree", "patch_id", "parent", "base")
_NUMBERS = ("milestone_index", "seq")
_IDS = ("checkpoint_id", "run_id")


class Sidecar(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One milestone as it was when it was made. `base` is the commit on which the run's first milestone was built."""

    schema_version: int
    checkpoint_id: str
    sha: str
    run_id: str
    milestone_index: int
    milestone_title: str
    created_at: str
    tree: str | None = None
    patch_id: str | None = None
    branch: str | None = None
    parent: str | None = None
    base: str | None = None
    seq: int | None = None
    tier: str | None = None
    verification_commands: tuple[str, ...] | None = None


class BadSidecar(BadInput):
    """A file that is not a sidecar one could rely on."""

    advice = "`holdfast doctor` lists such files. The log and git are asked instead; nothing was changed."

    def __init__(self, name: str, problem: str, *, newer: bool = False) -> None:
        super().__init__(f"The sidecar {shown(name)} cannot be used: {problem}.")
        self.name = name
        self.problem = problem
        self.newer = newer
        if newer:
            self.reason = "newer_schema"


def file_name(checkpoint_id: str) -> str:
    return checkpoint_id + ENDING


def is_sha(value: object) -> bool:
    return isinstance(value, str) and _SHA.fullmatch(value) is not None


def to_bytes(sidecar: Sidecar) -> bytes:
    """Readable JSON in the order of the fields. What could not be read back is not written."""
    name = file_name(sidecar.checkpoint_id)
    try:
        data = msgspec.json.format(msgspec.json.encode(sidecar), indent=2) + b"\n"
    except UnicodeEncodeError:
        raise BadSidecar(name, "it has text that is not Unicode") from None
    from_bytes(data, name)
    return data


def from_bytes(data: bytes, name: str) -> Sidecar:
    """The sidecar in a file of this name; an error that says why, if it is none."""
    value = _object(data, name)
    _check_version(value, name)
    sidecar = _typed(value, name)
    _check_values(sidecar, name)
    if name != file_name(sidecar.checkpoint_id):
        raise BadSidecar(name, f"it is about the checkpoint {shown(sidecar.checkpoint_id)}, which is not its name")
    return sidecar


def from_runr(data: bytes, name: str) -> Sidecar:
    """A sidecar of Runr, whose files are named after the commit. Its checkpoint has the id `runr-RUN-INDEX`."""
    value = _object(data, name)
    _check_version(value, name)
    known = {field: value[field] for field in _RUNR if field in value}
    known["checkpoint_id"] = runr_id(value.get("run_id"), value.get("milestone_index"))
    sidecar = _typed(known, name)
    _check_values(sidecar, name)
    if name != sidecar.sha + ENDING:
        raise BadSidecar(name, f"it is about the commit {sidecar.sha}, which is not its name")
    return sidecar


_RUNR = (
    *("schema_version", "sha", "run_id", "milestone_index", "milestone_title", "created_at"),
    *("tier", "verification_commands"),
)


def runr_id(run_id: object, index: object) -> str:
    """The id under which a milestone of Runr is known here."""
    return f"runr-{run_id}-{index}"


def by_age(sidecars: Iterable[Sidecar]) -> list[Sidecar]:
    """The newest milestone last: by index, then by event, time and id."""
    return sorted(sidecars, key=_age)


def _age(sidecar: Sidecar) -> tuple[int, int, float, str]:
    seq = -1 if sidecar.seq is None else sidecar.seq
    return sidecar.milestone_index, seq, _moment(sidecar.created_at), sidecar.checkpoint_id


def _moment(text: str) -> float:
    """The time that a text tells, in whichever offset; what tells none is older than everything."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return float("-inf")
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


# --- reading


def _object(data: bytes, name: str) -> dict[str, Any]:
    if len(data) > MAX_BYTES:
        raise BadSidecar(name, f"it is larger than {MAX_BYTES:,} bytes")
    try:
        value = json.loads(data.decode(), object_pairs_hook=_pairs, parse_constant=_constant)
    except UnicodeDecodeError:
        raise BadSidecar(name, "it is not UTF-8 text") from None
    except RecursionError:
        raise BadSidecar(name, "it is nested too deeply") from None
    except ValueError as problem:
        raise BadSidecar(name, f"it is not JSON ({problem!s:.120})") from None
    if type(value) is not dict:
        raise BadSidecar(name, "it is JSON, but not an object")
    return value


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key stands there twice")
    return value


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number that JSON has")


def _check_version(value: dict[str, Any], name: str) -> None:
    version = value.get("schema_version")
    if "schema_version" not in value:
        raise BadSidecar(name, "it has no schema_version")
    if type(version) is not int or version < 1:
        raise BadSidecar(name, f"its schema_version is {shown(version, 40)}, and not a whole number from 1")
    if version > SCHEMA_VERSION:
        said = (
            f"it was written by a newer Holdfast (schema_version {shown(version, 40)}; this one knows {SCHEMA_VERSION})"
        )
        raise BadSidecar(name, said, newer=True)


def _typed(value: dict[str, Any], name: str) -> Sidecar:
    try:
        return msgspec.convert(value, Sidecar)
    except (msgspec.ValidationError, RecursionError) as problem:
        raise BadSidecar(name, f"a field is missing or of the wrong type ({problem!s:.160})") from None


def _check_values(sidecar: Sidecar, name: str) -> None:
    for field in _IDS:
        if not is_id(getattr(sidecar, field)):
            raise BadSidecar(name, f"its {field} {shown(getattr(sidecar, field), 80)} is not an id")
    for field in _SHAS:
        value = getattr(sidecar, field)
        if value is not None and not is_sha(value):
            raise BadSidecar(name, f"its {field} {shown(value, 80)} is not 40 or 64 hex digits")
    for field in _NUMBERS:
        number = getattr(sidecar, field)
        if number is not None and not 0 <= number <= MAX_NUMBER:
            raise BadSidecar(name, f"its {field} {shown(number, 40)} is not between 0 and {MAX_NUMBER:,}")
    for text in _texts(sidecar):
        if not text.isascii() and text.encode("utf-8", "replace").decode() != text:
            raise BadSidecar(name, "it has text that is not Unicode")


def _texts(sidecar: Sidecar) -> Iterable[str]:
    alone = (sidecar.milestone_title, sidecar.created_at, sidecar.branch, sidecar.tier)
    yield from (text for text in alone if text is not None)
    yield from sidecar.verification_commands or ()

"""Which artifacts an event names. A SHA-256 may be anything: whether it is an artifact, its place or the store has to tell."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from holdfast.core.ids import SPEC, is_of_command
from holdfast.core.values import Record

_HEX = re.compile(rb"[0-9a-f]{64,}")
DIGEST_LENGTH = 64
# The keys and the words by which runs that Holdfast drives itself name what they kept; others may say `artifact`, too.
_NAMED = re.compile(
    rb'"(?:artifact|begun|output|plan|report)":"([0-9a-f]{64})"|(output: |output is |file: |)artifact ([0-9a-f]{64})(?![0-9a-f])'
)
_BASE = re.compile(rb'"step_id":"[^"]*/base"')  # it gives a commit, which has 64 digits where git uses SHA-256
_TOLD = frozenset({"effect_finished", "effect_settled", "note_recorded", "run_stopped"})
_RESULTS = _TOLD | {"step_finished"}

# What was given to a step or an effect, and by which code, is hashed and kept nowhere under that name.
_HASHES = {
    kind: msgspec.defstruct(kind, [(name, str | None, None) for name in names])
    for kind, names in {
        "step_started": ("input_hash", "code_hash"),
        "step_finished": ("input_hash", "code_hash"),
        "effect_started": ("arguments_hash", "code_hash"),
    }.items()
}


def mentioned(body: bytes) -> list[str]:
    """Every SHA-256 in an event: receipts and notes name artifacts too. Whether it is one, only a store can tell."""
    return [found.decode() for found in _HEX.findall(body) if len(found) == DIGEST_LENGTH]


def mentioned_as_kept(record: Record) -> list[str]:
    """The same, without the fields of the event itself that are no name of an artifact."""
    found = mentioned(record.body)
    shape = _HASHES.get(record.kind)
    if not found or shape is None:
        return found
    try:
        fields = msgspec.json.decode(record.body, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return found
    for value in msgspec.structs.astuple(fields):
        if value in found:
            found.remove(value)
    return found


def named(record: Record, mission_id: str) -> Iterator[tuple[str, bool]]:
    """What is called an artifact in a receipt, a note or the evidence of a stop, and whether it surely is one of ours.

    Only what Holdfast wrote itself is sure: in other runs, and in the words of agents, it may be somebody else's.
    """
    is_ours = mission_id.startswith(SPEC) or is_of_command(mission_id)
    if record.kind in (_RESULTS if is_ours else _TOLD) and not _BASE.search(record.body):
        for field, before, word in _NAMED.findall(record.body):
            yield (field or word).decode(), is_ours and bool(field or before)

"""The reader of an export, line by line: what an export would not have written is refused with its place, in full words."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.core import errors, exchange
from holdfast.core.events import Extension, RunStarted, StepFinished, StepStarted
from holdfast.core.plain import MAX_DEPTH
from holdfast.core.wire import GENESIS, Plainly, chain_hash, encode

AT = "2026-01-02T03:04:05.678901Z"
GIVEN, EXTRA = b"a result", b"a remark"
DIGEST, OTHER = (hashlib.sha256(data).hexdigest() for data in (GIVEN, EXTRA))
NAMED = "0" * 64
Line = dict[str, Any]
Edit = Callable[[list[Line]], object]


def whole() -> list[Line]:
    """An export of four events and two artifacts: lines 1, 2 to 5, 6 to 7 and 8."""
    events = (
        RunStarted(mission_id="m"),
        StepStarted(step_id="a"),
        StepFinished(step_id="a", artifact=DIGEST),
        Extension(kind="x_remark", data={"artifact": OTHER}, tagged=1),
    )
    records, head = [], GENESIS
    for seq, event in enumerate(events, 1):
        record, _ = encode(event, "r", seq, head, AT, f"{(seq + 1) // 2:032x}", Plainly())
        records.append(record)
        head = record.hash
    lines = [
        exchange.header_line(exchange.Header("r", 4, head.hex())),
        *map(exchange.event_line, records),
        exchange.artifact_line(DIGEST, GIVEN),
        exchange.artifact_line(OTHER, EXTRA),
        exchange.end_line(exchange.End(4, 2, head.hex())),
    ]
    return [json.loads(line) for line in lines]


def sealed(lines: list[Line]) -> None:
    """Computes every hash anew, as somebody can who knows the format."""
    head = GENESIS
    for line in lines:
        if "seq" in line:
            body = json.dumps(line["body"], separators=(",", ":")).encode()
            head = chain_hash(
                head, lines[0]["run_id"], line["seq"], line["kind"], line["version"], line["at"], line["op"], body
            )
            line["hash"] = head.hex()
    lines[0]["head"] = lines[-1]["head"] = head.hex()


def read(lines: list[Line]) -> tuple[exchange.Reader, list[exchange.Item]]:
    reader = exchange.Reader("run.jsonl")
    items = [reader.take(json.dumps(line, separators=(",", ":")).encode() + b"\n") for line in lines]
    reader.finish()
    return reader, items


def refused(edit: Edit, kind: type[errors.HoldfastError] = errors.BadFile) -> errors.HoldfastError:
    lines = whole()
    edit(lines)
    with pytest.raises(kind) as caught:
        read(lines)
    assert type(caught.value) is kind
    return caught.value


def put(number: int, name: str, value: object) -> Edit:
    return lambda lines: lines[number].update({name: value})


def anew(number: int, name: str, value: object) -> Edit:
    def edit(lines: list[Line]) -> None:
        lines[number][name] = value
        sealed(lines)

    return edit


def test_a_whole_file_is_read_to_its_end():
    assert exchange.Reader("run.jsonl").ended is False
    head = whole()[0]["head"]
    reader, items = read(whole())
    assert [type(item).__name__ for item in items] == [
        *("Header", "Record", "Record", "Record", "Record", "Artifact", "Artifact", "End"),
    ]
    assert items[0] == exchange.Header("r", 4, head) == reader.header
    assert items[5:7] == [exchange.Artifact(DIGEST, GIVEN), exchange.Artifact(OTHER, EXTRA)]
    assert items[7] == exchange.End(4, 2, head)
    assert (reader.state.run_id, reader.state.seq, reader.wanted, reader.ended) == ("r", 4, {DIGEST: 3}, True)


def test_sealing_anew_without_an_edit_changes_nothing():
    lines = whole()
    sealed(lines)
    assert lines == whole()


def test_only_what_an_extension_refers_to_may_be_missing():
    lines = whole()
    del lines[6]
    lines[-1]["artifacts"] = 1
    assert read(lines)[0].ended


NOT_AGREED = "line 8: the end line does not agree with the lines before it"
BAD: dict[str, tuple[Edit, str]] = {
    "no header": (lambda lines: lines.pop(0), "line 1: this is not a Holdfast export"),
    "no end": (lambda lines: lines.pop(), "line 7: the file ends here without its end line; it was cut off"),
    "a second header": (lambda lines: lines.insert(2, lines[0]), "line 3: a second header"),
    "after the end": (lambda lines: lines.append(lines[1]), "line 9: there is something after the end line"),
    "a strange line": (
        lambda lines: lines.insert(1, {"x": 1}),
        "line 2: this is neither an event, an artifact nor the end line",
    ),
    "format zero": (put(0, "holdfast_export", 0), "line 1: the format version must be a whole number from 1"),
    "format true": (put(0, "holdfast_export", True), "line 1: the format version must be a whole number from 1"),
    "no events": (put(0, "events", 0), "line 1: an export has at least one event"),
    "fewer events": (put(0, "events", 3), "line 5: more than the 3 events that the header names"),
    "more events": (put(0, "events", 5), "line 6: the header names 5 events, but there are 4"),
    "a field more": (put(2, "more", 1), "line 3: missing or unknown fields: 'more'"),
    "fields more and less": (
        lambda lines: lines[2].update({"y" * 50: lines[2].pop("at")}),
        f"line 3: missing or unknown fields: 'at, {'y' * 40}'",
    ),
    "a wrong type": (put(2, "op", 1), "line 3: the field op has the wrong type"),
    "a late event": (lambda lines: lines.insert(6, lines[4]), "line 7: an event after the artifacts"),
    "an odd kind": (put(1, "kind", "Run"), "line 2: the kind 'Run' is not a name in snake_case"),
    "a long kind": (put(1, "kind", "r" * 99), f"line 2: the kind '{'r' * 79} is not a name in snake_case"),
    "version 0": (put(1, "version", 0), "line 2: the version must be a whole number from 1"),
    "a huge version": (put(1, "version", 2**31), "line 2: the version must be a whole number from 1"),
    "no time": (put(1, "at", "now"), "line 2: the time 'now' must look like 2026-01-02T03:04:05.678901Z"),
    "no such day": (
        put(1, "at", AT.replace("01-02", "02-30")),
        "line 2: the time '2026-02-30T03:04:05.678901Z' must look like 2026-01-02T03:04:05.678901Z",
    ),
    "an artifact twice": (lambda lines: lines.insert(6, lines[5]), f"line 7: artifact {DIGEST} comes twice"),
    "a stranger": (put(5, "artifact", NAMED), f"line 6: no event refers to artifact {NAMED}"),
    "an artifact is missing": (
        lambda lines: lines.pop(5),
        f"line 7: event 3 refers to artifact {DIGEST}, which the file does not hold",
    ),
    "another end": (put(7, "head", NAMED), NOT_AGREED),
    "an end with other events": (put(7, "events", 3), NOT_AGREED),
    "an end with other artifacts": (put(7, "artifacts", 3), NOT_AGREED),
    "an end that is none": (put(7, "end", False), NOT_AGREED),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_is_not_what_an_export_writes_is_refused_with_its_place(name):
    edit, said = BAD[name]
    error = refused(edit)
    assert str(error) == f"run.jsonl, {said}."
    assert error.advice == exchange.AGAIN


NEWER = "line 1: The export was written by a newer Holdfast (version 2; this one knows up to 1)."
TYPED: dict[str, tuple[Edit, type[errors.HoldfastError], str]] = {
    "a newer format": (put(0, "holdfast_export", 2), errors.NewerSchema, NEWER),
    "a bad run id": (put(0, "run_id", "../x"), errors.InvalidId, "line 1: The run id"),
    "a head that is none": (put(0, "head", "x"), errors.InvalidId, "line 1: "),
    "a gap": (lambda lines: lines.pop(2), errors.SequenceGap, "line 3: "),
    "an edited body": (put(2, "body", {"step_id": "b"}), errors.ChainBroken, "line 3: Event 2 of run r"),
    "another head": (put(0, "head", NAMED), errors.ChainBroken, "line 6: Event 4 of run r"),
    "an odd hash": (put(1, "hash", "zz"), errors.InvalidId, "line 2: "),
    "an odd operation": (put(1, "op", "../x"), errors.InvalidId, "line 2: "),
    "a newer event": (anew(3, "version", 9), errors.NewerSchema, "line 4: Event 3"),
    "an unknown event": (anew(3, "kind", "future"), errors.NewerSchema, "line 4: Event 3"),
    "what cannot follow": (anew(2, "body", {"step_id": "a", "attempt": 7}), errors.IllegalEvent, "line 3: The event"),
    "deep data": (
        anew(4, "body", {"a": json.loads("[" * 200 + "]" * 200)}),
        errors.NotCanonical,
        "line 5: The value at body.a[",
    ),
    "no digest": (put(5, "artifact", "x"), errors.InvalidId, "line 6: "),
    "a false artifact": (put(5, "size", 3), errors.ArtifactDamaged, f"line 6: The stored bytes of artifact {DIGEST}"),
}


@pytest.mark.parametrize("name", TYPED)
def test_what_is_wrong_in_itself_keeps_its_kind_and_gains_its_place(name):
    edit, kind, said = TYPED[name]
    assert str(refused(edit, kind)).startswith(f"run.jsonl, {said}")


def test_the_advice_fits_a_file():
    assert refused(put(0, "head", NAMED), errors.ChainBroken).advice == exchange.AGAIN
    assert refused(anew(3, "version", 9), errors.NewerSchema).advice == errors.NewerSchema.advice


def test_the_events_of_one_operation_stand_together():
    first, second, third = (line["op"] for line in whole()[1:4])
    assert first == second != third
    assert first in str(refused(anew(4, "op", first), errors.OperationReused))


def raw_refused(*lines: bytes) -> str:
    reader = exchange.Reader("run.jsonl")
    with pytest.raises(errors.HoldfastError) as caught:
        for line in lines:
            reader.take(line)
        reader.finish()
    return str(caught.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"seq"', "the line is cut off."),
        (b'{"a":1,"b":2,"b":3,"a":4}\n', "the key 'b' comes twice in one object."),
        (b'{"a":NaN}\n', "NaN is not JSON."),
        (b'{"a":-Infinity}\n', "-Infinity is not JSON."),
        (b'{"a":' + b"1" * 18 + b"}\n", "a number is beyond 2^53 and JSON readers would round it."),
        (b'{"a":' + b"1" * 17 + b"}\n", "this is not a Holdfast export."),
        (b"[" * 100_000 + b"\n", "the line is nested too deeply."),
        (b'"\xff"\n', "the line is not UTF-8 text."),
        (b"[]\n", "the line is JSON, but not an object."),
        (b"{seq}\n", "the line is not JSON (Expecting property name enclosed in double quotes: line 1 column 2 (char 1))."),
    ],
)  # fmt: skip
def test_a_line_that_readers_could_read_differently_is_refused(line, said):
    assert raw_refused(line) == f"run.jsonl, line 1: {said}"


def test_an_empty_file_has_no_line_to_name():
    assert raw_refused() == "run.jsonl: the file is empty."


def test_a_line_may_be_as_long_as_the_limit_and_no_longer(monkeypatch):
    """Without its line break, which does not count."""
    monkeypatch.setattr(exchange, "MAX_LINE", 30)
    monkeypatch.setattr(exchange, "MAX_ARTIFACT_LINE", 40)
    starts = {30: b'{"a":"', 40: exchange.ARTIFACT_START + b'"'}
    for limit, start in starts.items():
        longest = start + b"x" * (limit - len(start) - 2) + b'"}'
        assert raw_refused(longest + b"\n") == "run.jsonl, line 1: this is not a Holdfast export."
        told = f"run.jsonl, line 1: The line is {limit + 2} bytes; the limit is {limit}."
        assert raw_refused(longest[:-2] + b'x"}\n') == told


def test_a_body_may_be_as_long_as_the_limit_and_no_longer(monkeypatch):
    longest = max(len(json.dumps(line["body"], separators=(",", ":"))) for line in whole() if "body" in line)
    monkeypatch.setattr(exchange, "MAX_BODY", longest)
    assert read(whole())[0].ended
    monkeypatch.setattr(exchange, "MAX_BODY", longest - 1)
    said = str(refused(lambda lines: None, errors.TooLarge))
    assert said.endswith(f": The body of the event is {longest} bytes; the limit is {longest - 1}.")


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({"artifact": DIGEST}, DIGEST),
        ({"artifact": DIGEST[:-1]}, None),
        ({"artifact": DIGEST + "0"}, None),
        ({"artifact": "X" * 64}, None),
        ({"artifact": DIGEST.upper()}, None),
        ({"artifact": 5}, None),
        ({"other": DIGEST}, None),
    ],
)
def test_an_event_refers_to_an_artifact_by_its_whole_digest(body, found):
    assert exchange.reference(body) == found


def test_a_kind_of_64_letters_and_the_highest_version_are_read():
    lines = whole()
    lines[4]["kind"] = "x_" + "a" * 62
    lines[4]["version"] = 2**31 - 1
    sealed(lines)
    assert read(lines)[0].ended


def test_a_body_may_be_nested_as_deeply_as_an_event_and_no_deeper():
    def nested(depth: int) -> Edit:
        return anew(4, "body", {"a": json.loads("[" * depth + "]" * depth)})

    lines = whole()[:6] + whole()[7:]
    nested(MAX_DEPTH + 1)(lines)
    lines[-1]["artifacts"] = 1
    assert read(lines)[0].ended
    assert str(refused(nested(MAX_DEPTH + 2), errors.NotCanonical)).startswith(
        "run.jsonl, line 5: The value at body.a[0]"
    )

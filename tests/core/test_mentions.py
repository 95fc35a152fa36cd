"""Which artifacts an event names: too many are looked up in vain, one too few is lost with the next export."""

from __future__ import annotations

import json

import pytest

from holdfast.core.mentions import mentioned, mentioned_as_kept, named
from holdfast.core.values import Record

A, B, C = "a1" * 32, "b2" * 32, "c3" * 32
OURS = ["spec.auth", "command.0123456789abcdef"]
SOMEBODYS = ["m", "spec", "specific", "command.", "command.0123456789abcdeg", "command.0123456789abcdef0"]
TOLD = ["effect_finished", "effect_settled", "note_recorded", "run_stopped"]


def record(kind: str, body: object) -> Record:
    data = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()
    return Record("r", 1, kind, 1, "2026-01-02T03:04:05.000000Z", data, b"", "0" * 32)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b"", []),
        (b"{}", []),
        (f'{{"a":"{A}","b":["{B}","{A}"]}}'.encode(), [A, B, A]),
        (f"{A} and {B}.".encode(), [A, B]),
        (f"{A[:-1]} {A}0 {A.upper()} {A}{B}".encode(), []),
        (b"\xff" + A.encode() + b"\xff", [A]),
    ],
)
def test_what_is_64_hex_digits_long_is_mentioned_and_nothing_longer_or_shorter(body, found):
    assert mentioned(body) == found


@pytest.mark.parametrize(
    ("kind", "body", "kept"),
    [
        ("step_started", {"input_hash": A, "code_hash": B, "arguments_hash": C}, [C]),
        ("step_finished", {"input_hash": A, "code_hash": B, "artifact": C}, [C]),
        ("effect_started", {"arguments_hash": A, "code_hash": B, "input_hash": C}, [C]),
        ("effect_finished", {"input_hash": A, "code_hash": B, "arguments_hash": C}, [A, B, C]),
        ("note_recorded", {"text": A, "input_hash": B}, [A, B]),
        ("step_finished", {"output": {"input_hash": C}, "input_hash": A, "code_hash": None}, [C]),
        ("step_started", {"step_id": "s"}, []),
    ],
)
def test_what_was_given_and_by_which_code_is_no_artifact_where_an_event_says_so_itself(kind, body, kept):
    assert mentioned_as_kept(record(kind, body)) == kept


def test_a_result_that_is_named_like_what_the_step_was_given_is_an_artifact_still():
    assert mentioned_as_kept(record("step_finished", {"input_hash": A, "code_hash": A, "output": A})) == [A]
    assert mentioned_as_kept(record("step_finished", {"input_hash": A, "code_hash": B, "output": [A, B]})) == [A, B]


@pytest.mark.parametrize(
    "body",
    [
        f'{{"input_hash":"{A}"'.encode(),
        f'{{"input_hash":["{A}"]}}'.encode(),
        b'{"code_hash":"\xff","input_hash":"' + A.encode() + b'"}',
        b'{"deep":' + b"[" * 100_000 + b'"' + A.encode() + b'"' + b"]" * 100_000 + b"}",
    ],
    ids=["cut off", "another shape", "no text", "too deep"],
)
def test_of_an_event_that_cannot_be_read_everything_is_looked_up(body):
    assert mentioned_as_kept(record("step_started", body)) == [A]


@pytest.mark.parametrize("mission_id", OURS)
@pytest.mark.parametrize("kind", [*TOLD, "step_finished"])
@pytest.mark.parametrize("field", ["artifact", "begun", "output", "plan", "report"])
def test_what_holdfast_wrote_under_a_name_of_its_own_surely_is_an_artifact(mission_id, kind, field):
    assert list(named(record(kind, {"receipt": {field: A}}), mission_id)) == [(A, True)]


@pytest.mark.parametrize("mission_id", OURS)
@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"output: artifact {A}", [(A, True)]),
        (f"its output is artifact {A}.", [(A, True)]),
        (f"report.json file: artifact {A}; output: artifact {B}", [(A, True), (B, True)]),
        (f"the artifact {A}", [(A, False)]),
        (f"artifact {A} and output: artifact {B}", [(A, False), (B, True)]),
        (f"artifact {A}0", []),
        (f"artifacts {A}", []),
        (f"tree {A}", []),
    ],
)
def test_in_words_it_is_sure_only_behind_the_words_that_holdfast_writes(mission_id, text, found):
    assert list(named(record("note_recorded", {"text": text}), mission_id)) == found


@pytest.mark.parametrize("mission_id", SOMEBODYS)
@pytest.mark.parametrize("kind", TOLD)
def test_in_a_run_of_somebody_else_nothing_is_sure(mission_id, kind):
    body = {"receipt": {"artifact": A}, "text": f"output: artifact {B}"}
    assert list(named(record(kind, body), mission_id)) == [(A, False), (B, False)]


def test_the_result_of_a_step_names_artifacts_only_in_a_run_of_our_own():
    done = record("step_finished", {"step_id": "s", "output": A})
    assert list(named(done, "spec.auth")) == [(A, True)]
    assert list(named(done, "m")) == []


@pytest.mark.parametrize("kind", ["step_started", "run_started", "effect_started"])
def test_an_event_that_tells_no_result_names_none(kind):
    assert [*named(record(kind, {"artifact": A}), "spec.auth"), *named(record(kind, {"artifact": A}), "m")] == []


def test_the_commit_on_which_a_task_begins_is_no_artifact():
    assert list(named(record("step_finished", {"step_id": "t1/base", "output": A}), "spec.auth")) == []
    assert list(named(record("step_finished", {"step_id": "t1/base2", "output": A}), "spec.auth")) == [(A, True)]
    assert list(named(record("step_finished", {"step_id": "base", "output": A}), "spec.auth")) == [(A, True)]

"""The lines of an export that only the core can be asked about; whole files are tested in `tests/engine/test_transfer.py`."""

from __future__ import annotations

import hashlib
import json
import tracemalloc

import pytest

from holdfast.core import exchange
from holdfast.core.errors import ArtifactDamaged, BadFile, BadRecord, TooLarge
from holdfast.core.events import RunStarted
from holdfast.core.wire import GENESIS, Plainly, encode

RECORD, _ = encode(RunStarted(mission_id="m"), "r", 1, GENESIS, "2026-01-02T03:04:05.678901Z", "0" * 32, Plainly())


def reader() -> exchange.Reader:
    made = exchange.Reader("run.jsonl")
    made.take(exchange.header_line(exchange.Header("r", 1, RECORD.hash.hex())))
    return made


def test_an_event_line_is_read_back_as_it_was():
    made = reader()
    assert made.take(exchange.event_line(RECORD)) == RECORD
    assert made.state.mission_id == "m"


@pytest.mark.parametrize("place", [b'"kind":"run_', b'"at":"2026'])
def test_text_that_one_reader_takes_and_another_refuses_is_refused(place):
    """A lone surrogate outside the body: Python's reader lets it pass."""
    line = exchange.event_line(RECORD).replace(place, place + b"\\ud800")
    with pytest.raises(BadFile, match=r"^run\.jsonl, line 2: the line is not JSON \(") as refused:
        reader().take(line)
    assert refused.value.advice == exchange.AGAIN


def test_a_body_with_a_line_break_is_not_exported():
    """Its line would be two."""
    with pytest.raises(BadRecord, match=r"^Event 1 \(run_started\) of run r .*: its body holds a line break\.$"):
        exchange.event_line(RECORD._replace(body=b'{"mission_id":\n"m"}'))


def test_an_artifact_over_the_limit_is_not_exported(monkeypatch):
    monkeypatch.setattr(exchange, "MAX_ARTIFACT", 10)
    data = b"x" * 10
    digest = hashlib.sha256(data).hexdigest()
    assert exchange.read_artifact(exchange.artifact_line(digest, data)) == exchange.Artifact(digest, data)
    with pytest.raises(TooLarge, match=f"Artifact {digest} is 11 bytes; the limit is 10") as refused:
        exchange.artifact_line(digest, b"x" * 11)
    assert refused.value.advice == "Copy the whole store instead."


# --- artifacts


def told(data: bytes, /, **edit: object) -> bytes:
    """The line of an artifact, with some of its fields changed."""
    line = exchange.artifact_line(hashlib.sha256(data).hexdigest(), data)
    return json.dumps({**json.loads(line), **edit}).encode()


@pytest.mark.parametrize("data", [b"", b"x", b"a" * 256, b"a" * 257, bytes(range(256)) * 2])
def test_an_artifact_is_read_back_as_it_was(data):
    assert exchange.read_artifact(told(data)).data == data


@pytest.mark.parametrize(("size", "encoding"), [(0, "plain"), (256, "plain"), (257, "zstd")])
def test_only_what_is_long_enough_to_gain_is_compressed(size, encoding):
    assert json.loads(told(b"a" * size))["encoding"] == encoding


@pytest.mark.parametrize(
    "edit",
    [
        {"data": "aGVs!bG8="},
        {"data": "aGVsbG8"},
        {"data": "aGVsbG8\n="},
        {"data": "aGVsbG9v"},
        {"size": 4},
        {"size": 6},
        {"encoding": "zstd"},
        {"encoding": "gzip"},
    ],
    ids=str,
)
def test_an_artifact_that_is_not_exactly_what_its_line_says_is_refused_by_name(edit):
    digest = hashlib.sha256(b"hello").hexdigest()
    with pytest.raises(ArtifactDamaged, match=digest):
        exchange.read_artifact(told(b"hello", **edit))


@pytest.mark.parametrize("size", [-1, exchange.MAX_ARTIFACT + 1])
def test_an_impossible_size_is_refused_by_name_before_anything_is_unpacked(size):
    digest = hashlib.sha256(b"hello").hexdigest()
    with pytest.raises(TooLarge, match=f"^Artifact {digest} is {size:,} bytes"):
        exchange.read_artifact(told(b"hello", size=size))


def test_no_more_is_unpacked_than_the_line_promises():
    bomb = told(bytes(8 * 1024 * 1024), size=100)
    assert len(bomb) < 10_000
    tracemalloc.start()
    with pytest.raises(ArtifactDamaged):
        exchange.read_artifact(bomb)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1024 * 1024

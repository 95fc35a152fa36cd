"""The lines of an export that only the core can be asked about; whole files are tested in `tests/engine/test_transfer.py`."""

from __future__ import annotations

import hashlib

import pytest

from holdfast.core import exchange
from holdfast.core.errors import BadFile, BadRecord, TooLarge
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

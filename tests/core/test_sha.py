"""The one SHA-256 is the same one whoever computes it."""

from __future__ import annotations

import hashlib
import sys

import pytest

from holdfast.core import sha
from holdfast.core.sha import hexdigest, of_many, sha256
from holdfast.core.wire import chain_hash


@pytest.mark.parametrize("size", [0, 1, 64 * 1024 - 1, 64 * 1024, 200_000])
def test_small_and_large_data_have_the_hash_everybody_computes(size):
    data = b"h" * size
    assert hexdigest(data) == sha256(data).hexdigest() == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(("size", "loaded"), [(0, []), (64 * 1024 - 1, []), (64 * 1024, [1]), (200_000, [1])])
def test_only_large_data_loads_what_is_quicker_for_it(monkeypatch, size, loaded):
    asked: list[int] = []
    monkeypatch.setattr(sha, "of_many", lambda: asked.append(1) or hashlib.sha256)
    hexdigest(b"h" * size)
    assert asked == loaded


def test_what_is_for_many_is_loaded_once():
    assert of_many() is of_many() is hashlib.sha256


def test_a_python_without_openssl_hashes_many_with_its_own(monkeypatch):
    monkeypatch.setitem(sys.modules, "_hashlib", None)
    assert of_many.__wrapped__()(b"h" * 9).hexdigest() == hexdigest(b"h" * 9)


@pytest.mark.parametrize("seq", [1, 999, 1000, 1001, 10**6])
def test_an_event_has_the_same_hash_early_and_late_in_a_run(seq):
    told = b"holdfast/event/1\n" + bytes(32) + f"run-1\n{seq}\nnote\n1\nat\nop\n".encode() + b"{}"
    assert chain_hash(bytes(32), "run-1", seq, "note", 1, "at", "op", b"{}") == hashlib.sha256(told).digest()

"""Hostile inputs for everything that reads what others wrote: each succeeds or is refused by name.

`make test` tries a tenth of the 82,500, `make crash-ci` all. HOLDFAST_FUZZ_SEED picks other inputs, HOLDFAST_FUZZ_SCALE
says how many.
"""

from __future__ import annotations

import os

import pytest

from tests.attacks.fuzz import TARGETS, fuzz

SEED = int(os.environ.get("HOLDFAST_FUZZ_SEED", "1"))
SCALE = float(os.environ.get("HOLDFAST_FUZZ_SCALE", "0.1"))
CHUNKS = 4


@pytest.mark.sweep
@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("target", TARGETS)
def test_foreign_bytes_are_accepted_or_refused_by_name(target, chunk, tmp_path, record_property):
    size = max(1, int(TARGETS[target].inputs * SCALE / CHUNKS))
    counts, failures = fuzz(target, SEED, range(chunk * size, (chunk + 1) * size), tmp_path)
    record_property("fuzz", (target, size))
    assert not failures, "\n" + "\n".join(map(str, failures))
    assert (counts["accepted"] and counts["refused"]) or target in ONE_WAY


# what takes anything, and refuses nothing
ONE_WAY = {"redacted_text", "redacted_bodies", "redacted_streams", "commands"}


def test_the_inputs_are_fifty_thousand():
    assert sum(target.inputs for target in TARGETS.values()) >= 50_000


def test_the_same_seed_finds_the_same(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert fuzz("exports", 7, range(60), tmp_path / "a") == fuzz("exports", 7, range(60), tmp_path / "b")

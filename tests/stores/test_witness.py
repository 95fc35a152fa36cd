"""The file of the witness: what is sighted last, what goes out in one piece, and what a torn piece leaves."""

import os
from pathlib import Path

import pytest

from holdfast.stores.witness import GROUPS, SLOT, Witness, sightings

STORE = "5" * 32


@pytest.fixture
def witness(tmp_path):
    made = Witness(str(tmp_path / "holdfast.db-witness"))
    made.serve(STORE)
    made.open()
    yield made
    made.close()


@pytest.fixture
def pieces(monkeypatch):
    """Where and how much is written from now on."""
    written = []

    def pwrite(fd, data, offset, write=os.pwrite):
        written.append((offset // SLOT, -(-len(data) // SLOT)))
        return write(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    return written


def heads(seq, *runs):
    return [((run << 32) + seq, bytes([run, seq]) * 16) for run in runs]


def seen(witness):
    return sorted((sighting.place, sighting.hash) for sighting in sightings(witness.path))


def test_the_heads_of_neighbours_go_out_in_one_piece(witness, pieces):
    witness.write(heads(1, *range(1, 9)))
    assert [length for _, length in pieces] == [8]
    assert seen(witness) == heads(1, *range(1, 9))


def test_the_two_last_heads_of_each_run_are_kept(witness):
    for seq in (1, 2, 3):
        witness.write(heads(seq, *range(1, 9)))
    assert seen(witness) == sorted(heads(2, *range(1, 9)) + heads(3, *range(1, 9)))


def test_a_run_that_was_written_alone_meanwhile_is_written_apart_and_never_over_its_newest_head(witness, pieces):
    witness.write(heads(1, 1, 2, 3))
    witness.write(heads(2, 2))
    del pieces[:]
    witness.write(heads(3, 1, 2, 3))
    assert [length for _, length in pieces] == [1, 1, 1]
    assert seen(witness) == sorted(heads(1, 1, 3) + heads(2, 2) + heads(3, 1, 2, 3))


def test_a_piece_ends_with_its_bank(witness, pieces):
    witness.write(heads(1, GROUPS - 2, GROUPS - 1, GROUPS, GROUPS + 1))
    assert [length for _, length in pieces] == [2, 2]
    assert seen(witness) == heads(1, GROUPS - 2, GROUPS - 1, GROUPS, GROUPS + 1)


def test_runs_of_one_group_share_its_two_slots(witness):
    witness.write(heads(1, 1, 1 + GROUPS))
    assert seen(witness) == heads(1, 1, 1 + GROUPS)


def test_nothing_to_say_writes_nothing(witness, pieces):
    witness.write([])
    assert pieces == [] and not witness.dirty


@pytest.mark.parametrize("torn", [*range(0, 8 * SLOT, 64), 83, 84, 85, 8 * SLOT - 1])
def test_a_torn_piece_leaves_the_heads_before_it(witness, pieces, torn):
    """However much of it came to the disk."""
    witness.write(heads(1, *range(1, 9)))
    before = bytearray(Path(witness.path).read_bytes())
    witness.write(heads(2, *range(1, 9)))
    after = Path(witness.path).read_bytes()
    start = pieces[-1][0] * SLOT
    before[start : start + torn] = after[start : start + torn]
    Path(witness.path).write_bytes(before)
    assert set(heads(1, *range(1, 9))) <= set(seen(witness)) <= set(heads(1, *range(1, 9)) + heads(2, *range(1, 9)))

"""The ledger: a line is there or it is not, wherever its writer was cut off."""

from __future__ import annotations

import pytest

from holdfast.adapters.ledger import Ledger, line_of


class Cut(BaseException):
    pass


@pytest.fixture
def path(tmp_path):
    return tmp_path / "effects.txt"


def test_a_line_that_was_written_is_found_with_the_receipt_of_its_writer(path):
    ledger = Ledger(path)
    receipts = {key: ledger.append(key) for key in ("a", "b")}
    assert path.read_bytes() == line_of("a") + line_of("b")
    for key in "ab":
        assert ledger.look(key)[::2] == ("done", receipts[key])


def test_nothing_is_found_where_nothing_was_written(path):
    assert Ledger(path).look("a").found == "not_done"
    Ledger(path).append("ab")
    assert Ledger(path).look("a").found == "not_done"
    assert not (path.parent / "other").exists()


@pytest.mark.parametrize("kept", range(len(line_of("b"))))
def test_a_line_torn_at_any_byte_was_never_written_and_is_mended(path, kept):
    path.write_bytes(line_of("a") + line_of("b")[:kept])
    ledger = Ledger(path)
    assert ledger.look("b").found == "not_done"
    assert path.read_bytes() == line_of("a") + line_of("b")[:kept]
    ledger.append("b")
    assert (path.read_bytes(), ledger.mended) == (line_of("a") + line_of("b"), int(kept > 0))


@pytest.mark.parametrize(("moment", "found"), [("half written", "not_done"), ("written", "done"), ("synced", "done")])
def test_a_writer_cut_off_at_any_moment_leaves_what_the_next_look_says(path, moment, found):
    def cut(name):
        if name == moment:
            raise Cut

    with pytest.raises(Cut):
        Ledger(path, cut).append("a")
    ledger = Ledger(path)
    assert ledger.look("a").found == found
    if found == "not_done":
        ledger.append("a")
    assert path.read_bytes() == line_of("a")


def test_a_cut_while_mending_is_mended_too(path):
    def cut(name):
        if name == "mended":
            raise Cut

    path.write_bytes(line_of("a") + b"tor")
    with pytest.raises(Cut):
        Ledger(path, cut).append("b")
    Ledger(path).append("b")
    assert path.read_bytes() == line_of("a") + line_of("b")


def test_a_damaged_line_could_be_any_so_nothing_is_known(path):
    path.write_bytes(line_of("a").replace(b"a ", b"x ") + line_of("b"))
    assert Ledger(path).look("b").found == "done"
    assert Ledger(path).look("a").found == "unknown"


@pytest.mark.parametrize("key", ["", "two words", "two\nlines", "é", "\x1b"])
def test_a_key_that_would_not_be_one_line_is_refused(path, key):
    with pytest.raises(ValueError, match="cannot be the key"):
        Ledger(path).append(key)
    assert not path.exists()


def test_a_link_is_not_followed(path):
    path.symlink_to(path.parent / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        Ledger(path).append("a")

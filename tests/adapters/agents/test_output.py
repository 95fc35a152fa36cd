"""Output is bounded and redacted before it is on disk, wherever it is cut."""

from __future__ import annotations

import random

import pytest

from holdfast.adapters.agents.output import CONTEXT, MAX_LINE, Lines, Log
from holdfast.core.redact import Redactor

SECRET = "hunter2-hunter2-hunter2"
REDACTOR = Redactor([SECRET])


def kept(path, text, most, size=1000):
    log = Log(str(path), most, REDACTOR)
    for place in range(0, len(text), size):
        log.write(text[place : place + size])
    log.close()
    return path.read_text(), log


def test_what_fits_is_kept_whole(tmp_path):
    text = "".join(f"line {number}\n" for number in range(300))
    for most in (len(text), len(text) * 10):
        assert kept(tmp_path / "log", text, most)[0] == text


def test_of_more_the_beginning_and_the_end_are_kept_and_the_gap_is_said(tmp_path):
    text = "".join(f"{number:09}\n" for number in range(100_000))
    found, log = kept(tmp_path / "log", text, 10_000)
    head, _, tail = found.partition("\n[... 990,000 characters are left out here ...]\n")
    assert text.startswith(head) and text.endswith(tail) and len(head) == len(tail) == 5000
    assert (log.said, log.dropped) == (1_000_000, 990_000)


def test_a_secret_is_found_wherever_it_stands(tmp_path):
    most = 2000
    for place in [*range(most // 2 - 40, most // 2 + 40), *range(1900, 2100, 7)]:
        text = "a " * (place // 2) + SECRET + " b" * 5000
        for size in (7, 1000, 10**6):
            found, _ = kept(tmp_path / "log", text, most, size)
            assert "hunter2" not in found.replace("[redacted:env]", ""), place


def test_a_secret_at_the_edge_of_the_end_is_found(tmp_path):
    for place in range(60):
        text = "x " * 40_000 + SECRET + " y" * (500 - 30 + place)
        assert "unter2" not in kept(tmp_path / "log", text, 1000, 997)[0]


def test_a_secret_is_not_on_disk_before_the_end_either(tmp_path):
    log = Log(str(tmp_path / "log"), 4000, REDACTOR)
    chance = random.Random(1)
    for _ in range(300):
        log.write(chance.choice(["word ", f"{SECRET} ", SECRET[:9], SECRET[9:] + "\n"]))
        if chance.random() < 0.1:
            log.save()
        assert SECRET not in (tmp_path / "log").read_text() and SECRET not in log.last_line()
    log.close()


def test_the_end_is_on_disk_while_it_still_goes_on(tmp_path):
    log = Log(str(tmp_path / "log"), 1000, REDACTOR)
    log.write("begin\n" + "x\n" * 50_000 + "newest\n")
    log.save()
    assert (tmp_path / "log").read_text().endswith("newest\n")
    log.write("more\n")
    log.close()
    assert (tmp_path / "log").read_text().endswith("newest\nmore\n")


def test_what_is_held_back_for_redaction_is_on_disk_before_it_is_known_for_good(tmp_path):
    log = Log(str(tmp_path / "log"), 100_000, REDACTOR)
    text = ""
    for number in range(2000):
        text += f"{number} {'' if number % 7 else SECRET}\n"
        log.write(text[text.rindex("\n", 0, -1) + 1 if number else 0 :])
        if number % 5 == 0:
            log.put_newest()
            assert (tmp_path / "log").read_text() == REDACTOR.text(text)
    log.close()
    assert (tmp_path / "log").read_text() == REDACTOR.text(text)


def test_the_last_line_is_the_newest_that_is_not_blank(tmp_path):
    log = Log(str(tmp_path / "log"), 1000, REDACTOR)
    assert log.last_line() == ""
    log.write("one\ntwo 10%\rtwo 90%\r\n  \n")
    assert log.last_line() == "two 90%"
    log.write("z" * 100_000)
    assert log.last_line() == "z" * 400
    log.close()


def lines_of(pieces):
    heard, written = [], []
    lines = Lines(heard.extend, written.append)
    for piece in pieces:
        lines.feed(piece)
    lines.end()
    return heard, "".join(written)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_lines_are_the_same_however_they_arrive(size):
    data = "eins\nzwölf\r\n\nüber 🐍\nend".encode()
    heard, written = lines_of([data[place : place + size] for place in range(0, len(data), size)])
    assert heard == ["eins", "zwölf", "", "über 🐍", "end"] and written == data.decode()


def test_a_line_without_an_end_is_written_whole_and_heard_in_part():
    heard, written = lines_of([b"x" * 100_000] * 30 + [b"\nnext\n"])
    assert heard == ["x" * MAX_LINE, "next"] and written == "x" * 3_000_000 + "\nnext\n"


def test_bytes_that_are_no_text_do_not_stop_it():
    heard, written = lines_of([b"\xff\xfe\x00\n", b"\xf0\x9f"])
    assert heard == ["��\0", "�"] and written == "��\0\n�"


def test_memory_is_bounded(tmp_path):
    lines = Lines(len, len)
    for _ in range(50):
        lines.feed(b"x" * 100_000)
    assert len(lines._rest) <= MAX_LINE + 100_000
    log = Log(str(tmp_path / "log"), 1000, REDACTOR)
    for _ in range(200):
        log.write("x" * 65_536)
    assert sum(map(len, log._head)) + sum(map(len, log._tail)) < 3 * (1000 + CONTEXT) + 65_536
    log.close()

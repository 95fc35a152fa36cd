"""The person at the terminal: threads that ask at the same time take turns."""

from __future__ import annotations

import os
import pty
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from time import monotonic

import pytest

from holdfast.adapters import terminal


@contextmanager
def at_a_terminal(monkeypatch):
    """The other end of it: what is written there is typed, what is read there was shown."""
    leader, follower = pty.openpty()
    with open(follower, closefd=False) as read, open(follower, "w") as write, monkeypatch.context() as here:
        here.setattr(sys, "stdin", read)
        here.setattr(sys, "stderr", write)
        yield leader
    os.close(leader)


def shown(leader, until):
    text = ""
    while until not in text:
        text += os.read(leader, 1024).decode()
    return text


def test_what_is_typed_answers_the_question_that_is_shown_not_that_of_another_thread(monkeypatch):
    waits = Event()
    with at_a_terminal(monkeypatch) as typing, ThreadPoolExecutor(2) as pool:
        first = pool.submit(terminal.prompt, "Publish?", ["yes", "no"])
        assert shown(typing, "Publish?")
        second = pool.submit(terminal.prompt, "Delete?", ["yes", "no"], None, lambda: bool(waits.set()))
        assert waits.wait(30)
        os.write(typing, b"yes\n")
        before = shown(typing, "yes\r\n").partition("yes\r\n")[0]
        os.write(typing, b"no\n")
        assert {first.result(30), second.result(30)} == {"yes", "no"}
        assert (first.result(), "Delete?" in before) == ("yes", False)


@pytest.mark.parametrize(("seconds", "is_called"), [(0.0, lambda: False), (None, lambda: True)])
def test_a_question_that_is_late_or_called_away_does_not_wait_for_its_turn(monkeypatch, seconds, is_called):
    with at_a_terminal(monkeypatch) as typing, ThreadPoolExecutor(1) as pool:
        first = pool.submit(terminal.prompt, "Publish?", ["yes", "no"])
        assert shown(typing, "Publish?")
        began = monotonic()
        assert terminal.prompt("Delete?", ["yes", "no"], seconds, is_called) is None
        assert monotonic() - began < 20
        os.write(typing, b"yes\n")
        assert first.result(30) == "yes"

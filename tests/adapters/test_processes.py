"""A look at all processes: who is older is left out, and a number that somebody else has now deceives nobody."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from holdfast.adapters import process_table, processes, system


@pytest.fixture
def child():
    process = subprocess.Popen(["/bin/sleep", "60"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def test_a_look_tells_parent_group_and_start_of_everybody(child):
    rows = processes.everyone()
    assert rows[child.pid] == (os.getpid(), child.pid, system.process_started(child.pid), False)
    assert rows[os.getpid()].started == system.process_started(os.getpid()) and os.getppid() in rows


def test_who_started_earlier_is_left_out_and_not_read_again(child, monkeypatch):
    time.sleep(0.05)
    later = subprocess.Popen(["/bin/sleep", "60"])
    try:
        since = system.process_started(later.pid)
        processes.everyone()
        read, proc = [], process_table.proc
        monkeypatch.setattr(process_table, "proc", lambda pid, *more: (read.append(pid), proc(pid, *more))[1])
        rows = processes.everyone(since)
        assert later.pid in rows and child.pid not in rows and os.getpid() not in rows
        assert later.pid in read and child.pid not in read
    finally:
        later.kill()
        later.wait()


def test_a_number_that_somebody_else_had_is_looked_at_anew(child):
    entry, started = os.stat(f"/proc/{child.pid}").st_ino, system.process_started(child.pid)
    process_table._KNOWN[child.pid] = entry + 1, 0.0  # an old one had the number
    assert processes.everyone(started)[child.pid].started == started
    assert process_table._KNOWN[child.pid] == (entry, float(started))


@pytest.mark.parametrize("moment", ["", "unknown", "nan", "-5"])
def test_a_moment_that_nobody_knows_leaves_nobody_out(child, moment):
    assert {child.pid, os.getpid(), os.getppid()} <= processes.everyone(moment).keys()


def test_the_family_is_found_and_its_group_and_one_who_carries_the_key_elsewhere(tmp_path):
    away = "import os, subprocess, sys; subprocess.Popen(['/bin/sleep', '60'], start_new_session=True)"
    ready = tmp_path / "ready"  # the one between them has ended
    begin = f"import pathlib, subprocess, sys, time; subprocess.run([sys.executable, '-c', {away!r}])"
    code = f"{begin}; pathlib.Path({str(ready)!r}).touch(); time.sleep(60)"
    environ = {**os.environ, **processes.marks("the-key", "the-run", "ours")}
    root = subprocess.Popen([sys.executable, "-c", code], env=environ, start_new_session=True)
    tree = processes.Tree(processes.identify(root.pid, "the-key", "the-run", "", "ours"))
    end = time.monotonic() + 20
    while not ready.exists() and time.monotonic() < end:
        time.sleep(0.05)
    found = {one.pid for one in tree.look(everywhere=True)}
    ended = tree.end(1.0)
    root.wait()
    assert len(found) == 2 and root.pid in found and len(ended) == 2
    assert tree.look(everywhere=True) == []


def test_whether_a_child_has_exited_is_seen_without_taking_its_status():
    process = subprocess.Popen(["/bin/sh", "-c", "exit 7"])
    end = time.monotonic() + 10
    while not processes.has_exited(process.pid) and time.monotonic() < end:
        time.sleep(0.01)
    assert processes.has_exited(process.pid) and process.wait() == 7 and processes.has_exited(process.pid)


def test_one_who_has_ended_and_whose_parent_has_not_heard_of_it_is_nobody_to_end(monkeypatch):
    process = subprocess.Popen(["/bin/sh", "-c", "exit 0"], start_new_session=True)
    tree = processes.Tree(processes.identify(process.pid, "its-key", "its-run"))
    end = time.monotonic() + 10
    while not processes.has_exited(process.pid) and time.monotonic() < end:
        time.sleep(0.01)
    assert processes.everyone()[process.pid].is_over
    looked_at = []
    monkeypatch.setattr(processes.psutil, "Process", looked_at.append)
    assert tree.look(everywhere=True) == tree.end() == []
    assert process.pid not in looked_at
    process.wait()


def test_the_eldest_is_ended_first_because_it_would_go_on_when_its_child_ends(child, monkeypatch):
    """A shell whose `sleep` is ended before it is would begin the next line of its script."""
    parent = processes.psutil.Process(os.getpid())
    told = []
    monkeypatch.setattr(processes.psutil.Process, "send_signal", lambda one, number: told.append(one.pid))
    processes._signal([processes.psutil.Process(child.pid), parent], 15)
    assert told == [parent.pid, child.pid]

"""Programs that talk much, never end, or start others: each is bounded, and nothing of it is left."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from holdfast.adapters.probes import spawning
from holdfast.adapters.probes.common import EffectError
from holdfast.adapters.probes.programs import Limits, find_program, run, search_path

ENV = {"PATH": os.environ["PATH"]}
PYTHON = sys.executable


@pytest.fixture(params=["/", None], ids=["in a folder", "the short way"])
def cwd(request):
    """Where it is started: a program that goes to its folder itself is started in another way."""
    return request.param


@pytest.fixture
def python(cwd):
    def start(code, *more, seconds=30.0, **kwargs):
        limits = Limits(seconds, kwargs.pop("output", 1 << 24))
        return run([PYTHON, "-I", "-c", code, *more], ENV, limits, cwd=cwd, **kwargs)

    return start


def test_much_goes_in_and_comes_out_without_a_standstill(python):
    data = os.urandom(3_000_000)
    finished = python(
        "import sys; d = sys.stdin.buffer.read(); sys.stderr.write('e' * 300_000); sys.stdout.buffer.write(d[::-1])",
        stdin=data,
    )
    assert (finished.code, finished.out) == (0, data[::-1]) and finished.err == b"e" * 16 * 1024


def test_a_program_that_does_not_listen_is_no_error(python):
    assert python("import os; os.close(0); print('x')", stdin=b"x" * 3_000_000).out == b"x\n"


def test_who_says_too_much_is_ended(python):
    begin = time.monotonic()
    with pytest.raises(EffectError, match="more than 1,000 bytes"):
        python("import sys, time\nwhile True: sys.stdout.write('x' * 500), sys.stdout.flush()", output=1000)
    assert time.monotonic() - begin < 10


@pytest.mark.parametrize("silent", [True, False])
def test_who_takes_too_long_is_ended_with_all_it_started(python, tmp_path, silent):
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n"
        + ("sys.stdout.close(); import os; os.close(1); os.close(2)\n" if silent else "")
        + "time.sleep(60)"
    )
    begin = time.monotonic()
    with pytest.raises(EffectError, match="more than 2 seconds"):
        python(code, seconds=2)
    assert time.monotonic() - begin < 15
    pid = int((tmp_path / "pid").read_text())
    for _ in range(100):
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            break
        time.sleep(0.02)
    else:
        pytest.fail("its child lives on")


def test_it_has_no_terminal_no_files_of_ours_and_no_environment_but_the_given(python, tmp_path):
    code = "import os; print(os.getsid(0) == os.getpid(), len(os.listdir('/proc/self/fd')), 'HOME' in os.environ)"
    with open(tmp_path / "file", "w") as file:
        os.set_inheritable(file.fileno(), True)
        assert python(code).out == b"True 4 False\n"
        assert python(code, keep=(file.fileno(),)).out == b"True 5 False\n"


def test_what_cannot_be_started_is_an_error(tmp_path, cwd):
    for argv in (["/nowhere"], [str(tmp_path)], ["a\0b"]):
        with pytest.raises(EffectError, match="cannot be started"):
            run(argv, ENV, Limits(1), cwd=cwd)


def test_it_does_not_ignore_the_signals_that_python_ignores(cwd):
    said = run(["/bin/grep", "SigIgn", "/proc/self/status"], ENV, Limits(5), cwd=cwd).out.split()[1]
    assert int(said, 16) & ((1 << 12) | (1 << 24)) == 0


def test_how_it_ended_is_told(python):
    assert python("raise SystemExit(7)").code == 7
    assert python("import os; os.kill(os.getpid(), 9)").code == -9


def test_a_lock_to_be_held_is_held_by_the_program_alone_too(python, tmp_path):
    code = "import os, sys, time; sys.stdout.write('on\\n'); sys.stdout.flush(); time.sleep(1)"
    with open(tmp_path / "lock", "w") as ours, open(tmp_path / "lock", "w") as other:
        fcntl.flock(ours, fcntl.LOCK_EX)
        with ThreadPoolExecutor(1) as pool:
            going = pool.submit(python, code, keep=(ours.fileno(),))
            time.sleep(0.5)
            ours.close()
            with pytest.raises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            assert going.result().code == 0
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_without_a_list_of_open_files_or_pipes_of_its_own_it_is_started_the_long_way(monkeypatch, tmp_path):
    monkeypatch.setattr(spawning, "_LISTED", str(tmp_path / "nowhere"))
    assert run(["/bin/echo", "x"], ENV, Limits(5), cwd=None) == (0, b"x\n", b"")
    code = "import os, sys; os.close(0); os.close(1); from holdfast.adapters.probes.programs import *; "
    code += "found = run(['/bin/echo', 'x'], {}, Limits(5), cwd=None); sys.stderr.write(repr(found.out))"
    assert run([PYTHON, "-c", code], ENV, Limits(30)).err == b"b'x\\n'"


def test_where_the_system_takes_our_children_the_end_is_seen_all_the_same():
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert run(["/bin/echo", "x"], ENV, Limits(5), cwd=None) == (0, b"x\n", b"")
    finally:
        signal.signal(signal.SIGCHLD, before)


@pytest.mark.parametrize("is_told", [True, False])
def test_a_program_that_ends_after_its_last_word_is_waited_for_and_no_longer_than_it_may_take(monkeypatch, is_told):
    if not is_told:
        monkeypatch.setattr(spawning, "_told_of", lambda pid: None)
    shell = ["/bin/sh", "-c", "echo x; exec >&- 2>&-; sleep $0; exit 3"]
    assert run([*shell, "0.2"], ENV, Limits(5), cwd=None) == (3, b"x\n", b"")
    with pytest.raises(EffectError, match="took more than"):
        run([*shell, "9"], ENV, Limits(0.2), cwd=None)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the system does not tell of an end")
def test_where_the_system_tells_of_an_end_nobody_looks_for_it_again_and_again(monkeypatch):
    monkeypatch.setattr(spawning.time, "sleep", lambda seconds: pytest.fail("it looked again"))
    assert run(["/bin/sh", "-c", "exec >&- 2>&-; sleep 0.1"], ENV, Limits(5), cwd=None).code == 0


def test_only_whole_paths_are_searched():
    assert search_path({"PATH": ".:/usr/bin::relative/x:/bin"}) == "/usr/bin:/bin"
    with pytest.raises(EffectError, match="no such-program on the path"):
        find_program("such-program", ENV)


def test_nothing_is_left_open(cwd):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        run(["/bin/true"], ENV, Limits(5), cwd=cwd)
        with pytest.raises(EffectError, match="sleep 9 took more than"):
            run(["/bin/sleep", "9"], ENV, Limits(0.05), cwd=cwd)
    assert len(os.listdir("/proc/self/fd")) == before

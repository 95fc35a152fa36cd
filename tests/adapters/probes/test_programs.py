"""Programs that talk much, never end, or start others: each is bounded, and nothing of it is left."""

from __future__ import annotations

import os
import sys
import time

import psutil
import pytest

from holdfast.adapters.probes.common import EffectError
from holdfast.adapters.probes.programs import Limits, find_program, run, search_path

ENV = {"PATH": os.environ["PATH"]}
PYTHON = sys.executable


def python(code, *more, seconds=30.0, **kwargs):
    return run([PYTHON, "-I", "-c", code, *more], ENV, Limits(seconds, kwargs.pop("output", 1 << 24)), **kwargs)


def test_much_goes_in_and_comes_out_without_a_standstill():
    data = os.urandom(3_000_000)
    finished = python(
        "import sys; d = sys.stdin.buffer.read(); sys.stderr.write('e' * 300_000); sys.stdout.buffer.write(d[::-1])",
        stdin=data,
    )
    assert (finished.code, finished.out) == (0, data[::-1]) and finished.err == b"e" * 16 * 1024


def test_a_program_that_does_not_listen_is_no_error():
    assert python("import os; os.close(0); print('x')", stdin=b"x" * 3_000_000).out == b"x\n"


def test_who_says_too_much_is_ended():
    begin = time.monotonic()
    with pytest.raises(EffectError, match="more than 1,000 bytes"):
        python("import sys, time\nwhile True: sys.stdout.write('x' * 500), sys.stdout.flush()", output=1000)
    assert time.monotonic() - begin < 10


@pytest.mark.parametrize("silent", [True, False])
def test_who_takes_too_long_is_ended_with_all_it_started(tmp_path, silent):
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


def test_it_has_no_terminal_no_files_of_ours_and_no_environment_but_the_given(tmp_path):
    code = "import os; print(os.getsid(0) == os.getpid(), len(os.listdir('/proc/self/fd')), 'HOME' in os.environ)"
    with open(tmp_path / "file", "w") as file:
        os.set_inheritable(file.fileno(), True)
        assert python(code).out == b"True 4 False\n"
        assert python(code, keep=(file.fileno(),)).out == b"True 5 False\n"


def test_what_cannot_be_started_is_an_error(tmp_path):
    for argv in (["/nowhere"], [str(tmp_path)], ["a\0b"]):
        with pytest.raises(EffectError, match="cannot be started"):
            run(argv, ENV, Limits(1))


def test_only_whole_paths_are_searched():
    assert search_path({"PATH": ".:/usr/bin::relative/x:/bin"}) == "/usr/bin:/bin"
    with pytest.raises(EffectError, match="no such-program on the path"):
        find_program("such-program", ENV)


def test_nothing_is_left_open():
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        run(["/bin/true"], ENV, Limits(5))
        with pytest.raises(EffectError):
            run(["/bin/sleep", "9"], ENV, Limits(0.05))
    assert len(os.listdir("/proc/self/fd")) == before

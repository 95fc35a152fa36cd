"""Who a process is, compared with what the kernel says of it."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from holdfast import app
from holdfast.adapters.system import process_started

HOLDER = """
import sys
from holdfast import app
from holdfast.core.events import NoteRecorded
open("/proc/self/comm", "w").write("a) S 1 (b")
log = app.start_run(app.open_store(sys.argv[1]), "mission", run_id="run-1")
print("ready", flush=True)
sys.stdin.readline()
"""
BOOT = Path("/proc/sys/kernel/random/boot_id")
pytestmark = pytest.mark.skipif(not BOOT.exists(), reason="this needs /proc")


def test_a_run_is_held_by_this_host_this_boot_this_pid_and_the_start_of_it(tmp_path):
    place = str(tmp_path / "holdfast.db")
    with subprocess.Popen([sys.executable, "-c", HOLDER, place], stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        with closing(app.open_store(place, read_only=True)) as store:
            head = store.head("run-1")
        _, _, numbers = Path(f"/proc/{process.pid}/stat").read_text().rpartition("a) S 1 (b) ")
        host = Path("/proc/sys/kernel/hostname").read_text().strip()
        assert head is not None and head.held
        assert head.owner == (host, BOOT.read_text().strip(), process.pid, numbers.split()[19])
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        assert 0 <= uptime - int(head.owner.started) / os.sysconf("SC_CLK_TCK") < 60
        process.kill()


def test_of_a_process_that_is_gone_no_start_is_known():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert process_started(process.pid) == ""

"""What these tests share: scripts for the scripted agent, orders to run, and looks at which processes are alive."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

from holdfast.adapters.agents.runner import Order
from holdfast.core.agents import profile_from
from holdfast.core.redact import Redactor
from holdfast.testing.scripted_agent import table

NO_SECRETS = Redactor()
ROOT = Path(__file__).parents[3]


def script(folder, *acts, **named):
    """A script file: the same acts for every phase and task, or by name."""
    path = folder / "script.json"
    path.write_text(json.dumps({"ledger": str(folder / "ledger"), "acts": {"*": list(acts), **named}}))
    return str(path)


def profile(folder, *acts, **named):
    return profile_from(table(script(folder, *acts, **named)), "scripted")


def run_of(folder):
    """A run that no other test has: processes are found by it, and tests run at the same time."""
    return "r-" + hashlib.sha256(str(folder).encode()).hexdigest()[:12]


def order(folder, *argv, key="k-1", env=None, **more):
    work, run_id = folder / "work", run_of(folder)
    work.mkdir(exist_ok=True)
    environ = {**os.environ, "HOLDFAST_EFFECT_KEY": key, "HOLDFAST_AGENT_RUN": run_id, **(env or {})}
    return Order(key, run_id, argv, str(work), environ, str(folder / "stage"), **{"grace": 1.0, **more})


def acting(folder, *acts, **more):
    """An order for the scripted agent."""
    start = table(script(folder, *acts))["start"]
    return order(folder, *start, **{"stdin": b"", **more})


def output(folder):
    return (folder / "stage" / "output.log").read_text()


def is_alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def wait_until(true, seconds=20.0):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def python(code, *arguments):
    """A process of its own that runs this code, with what it says to be read."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
    )


def finish(process):
    """End a process that a test started, whatever became of it."""
    if process.poll() is None:
        process.kill()
    process.wait()
    if process.stdout:
        process.stdout.close()

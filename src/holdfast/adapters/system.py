"""This machine and this moment: the time, fresh ids, and who this process is. The only place that asks for them."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Mapping
from time import time_ns

from holdfast.core.errors import UsageError
from holdfast.core.values import Owner

USER_FILE = "config.toml"
_HOMES = {"XDG_CONFIG_HOME": ".config", "XDG_STATE_HOME": os.path.join(".local", "state")}


def clock() -> Callable[[], str]:
    """A source of the time to write down, as text. A second is spelled out once; events may come thousands to a second."""
    begin = end = 0
    second = ""

    def now() -> str:
        nonlocal begin, end, second
        at = time_ns()
        if not begin <= at < end:
            begin = at // 1_000_000_000 * 1_000_000_000
            end = begin + 1_000_000_000
            second = time.strftime("%Y-%m-%dT%H:%M:%S.%%06dZ", time.gmtime(at // 1_000_000_000))
        return second % ((at - begin) // 1000)

    return now


def operations() -> Callable[[], str]:
    """A source of fresh operation ids, 32 hex digits: 80 random bits for this source, and a count."""
    pattern = os.urandom(10).hex() + "%012x"
    return map(pattern.__mod__, itertools.count(1)).__next__


def new_run_id() -> str:
    """Sortable by start, unique under any number of parallel starts."""
    from uuid_utils import uuid7

    return str(uuid7())


def new_token() -> str:
    """128 random bits in the shape of a UUID."""
    text = os.urandom(16).hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def boot_id() -> str:
    """Changes with every boot of this machine; leases never outlive it."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return "unknown-boot"


def process_started(pid: int) -> str:
    """When a process started, in the kernel's own ticks; empty if it is gone or the system does not say."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def this_process() -> Owner:
    pid = os.getpid()
    return Owner(os.uname().nodename, boot_id(), pid, process_started(pid))


def now() -> str:
    return clock()()


def user_folder(environ: Mapping[str, str], which: str) -> str:
    """Where this user keeps settings (`XDG_CONFIG_HOME`) or state (`XDG_STATE_HOME`) of Holdfast."""
    base = environ.get(which, "")
    if not os.path.isabs(base):
        base = os.path.join(environ.get("HOME") or os.path.expanduser("~"), _HOMES[which])
    if not os.path.isabs(base):
        raise UsageError("There is no home folder.", advice=f"Set {which} to a path.")
    return os.path.join(base, "holdfast")

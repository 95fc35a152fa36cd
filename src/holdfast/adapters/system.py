"""This machine and this moment: the time, fresh ids, and who this process is. The only place that asks for them."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable

from holdfast.core.values import Owner


class Clock:
    """The time to write down, as text. A second is spelled out once; events may come thousands to a second."""

    def __init__(self) -> None:
        self._begin = self._end = 0
        self._text = ""

    def __call__(self) -> str:
        now = time.time_ns()
        if not self._begin <= now < self._end:
            second = now // 1_000_000_000
            self._text = time.strftime("%Y-%m-%dT%H:%M:%S.", time.gmtime(second))
            self._begin = second * 1_000_000_000
            self._end = self._begin + 1_000_000_000
        return f"{self._text}{(now - self._begin) // 1000:06d}Z"


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
    return Clock()()

"""Which processes are ours, and how they are ended: by host, boot, pid and start time, or by the key in their environment.

A pid alone proves nothing, and what is not proved to be ours is never touched. Ending means the whole tree: descendants,
the group, those who went away into sessions of their own; politely first, and then it is made sure that none is left.
"""

from __future__ import annotations

import os
import signal
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from holdfast.adapters import system
from holdfast.adapters.ledger import sync_folder, write_all
from holdfast.adapters.process_table import HAS_PROC, Row, everyone, family, proc
from holdfast.core.lean import Later
from holdfast.core.named import NamedTuple

if TYPE_CHECKING:
    import psutil
else:
    psutil = Later("psutil")  # most work ends by itself, and nobody who lives has to be looked at

RECORD = "process.json"
KEY, RUN, NONCE = "HOLDFAST_EFFECT_KEY", "HOLDFAST_AGENT_RUN", "HOLDFAST_START"
MAX_RECORD = 64 * 1024
GRACE = 5.0
_SURE = 10.0  # seconds to wait for what was killed; only the kernel can keep it longer
_LOOK = 0.05


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """One process, told apart from every other that there was or will be. `ended` is set when all of it was seen to end."""

    host: str
    boot_id: str
    pid: int
    start_time: str
    pgid: int
    key: str
    run_id: str
    agent: str = ""
    nonce: str = ""
    ended: bool = False


class Left(NamedTuple):
    """What may be left of a dead run: the processes that are proved to be ours, or why that cannot be known."""

    identity: Identity
    ours: tuple[psutil.Process, ...]
    why: str = ""


def identify(pid: int, key: str, run_id: str, agent: str = "", nonce: str = "") -> Identity:
    """The identity of a child that has been started in a group of its own."""
    host, boot = os.uname().nodename, system.boot_id()
    return Identity(
        host=host,
        boot_id=boot,
        pid=pid,
        start_time=start_time(pid),
        pgid=pid,
        key=key,
        run_id=run_id,
        agent=agent,
        nonce=nonce,
    )


def marks(key: str, run_id: str, nonce: str) -> dict[str, str]:
    """What the environment of a process says that was started for a key."""
    return {KEY: key, RUN: run_id} | ({NONCE: nonce} if nonce else {})


def start_time(pid: int) -> str:
    """When a process started, as this system tells it; empty if there is none."""
    ticks = system.process_started(pid)
    if ticks:
        return ticks
    try:
        return str(psutil.Process(pid).create_time())
    except psutil.Error:
        return ""


def has_exited(child: int) -> bool:
    """Without taking its exit status: as long as that is not taken, nobody else can get its pid."""
    try:
        if hasattr(os, "waitid"):
            return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        return psutil.Process(child).status() == psutil.STATUS_ZOMBIE
    except (ChildProcessError, psutil.NoSuchProcess):
        return True  # whoever uses us lets the system take it


def record(folder: str, identity: Identity, *, durable: bool) -> None:
    """Write it down, so that it survives us. Whoever is to be started waits until this has returned.

    `durable`: it survives the machine, too, for those who must know then that there was a process. It itself does not.
    """
    put(folder, RECORD, msgspec.json.encode(identity), durable=durable)


def put(folder: str, name: str, data: bytes, *, durable: bool = True) -> None:
    """Write a file of the stage, whole or not at all."""
    path = os.path.join(folder, name)
    with suppress(FileNotFoundError):
        os.unlink(f"{path}.new")  # a killed process left it, or somebody planted it
    fd = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        write_all(fd, data, 0)
        if durable:
            os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(f"{path}.new", path)
    if durable:
        sync_folder(folder)


def get(folder: str, name: str, limit: int) -> bytes | None:
    """A file of the stage, up to a limit and one byte; None if there is no regular one."""
    try:
        fd = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        return None
    with open(fd, "rb") as file:
        return file.read(limit + 1)


# --- what belongs to a process


class Tree:
    """The processes of one identity. It remembers whom it saw, so that nobody escapes by leaving the family."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self._seen: dict[int, psutil.Process] = {}

    def look(self, *, everywhere: bool = False) -> list[psutil.Process]:
        """Those alive now: descendants and those seen before; `everywhere` also looks for the key in all environments."""
        rows = everyone(self.identity.start_time)
        roots = {pid for pid in (self.identity.pid, *self._seen) if self._is_still(pid, rows)}
        found = family(roots, rows)
        if everywhere:
            found |= self._group(rows) | set(carrying(self.identity, rows))
        for pid in found - self._seen.keys() - {pid for pid, row in rows.items() if row.is_over}:
            with suppress(psutil.Error):
                self._seen[pid] = psutil.Process(pid)
        self._seen = {pid: process for pid, process in self._seen.items() if _is_alive(process)}
        return list(self._seen.values())

    def _is_still(self, pid: int, rows: Mapping[int, Row]) -> bool:
        """Whether the one with this number is the one that we know by it."""
        if pid in self._seen:
            return self._seen[pid].is_running()
        return pid in rows and rows[pid].started == self.identity.start_time

    def _group(self, rows: Mapping[int, Row]) -> set[int]:
        """The members of its group, as long as its leader is there to prove that the group is still this one."""
        if not self._is_still(self.identity.pid, rows):
            return set()
        return {pid for pid, row in rows.items() if row.group == self.identity.pgid}

    def end(self, grace: float = GRACE) -> list[str]:
        """End all of it and wait until nothing is left. Says whom it ended, and who could not be."""
        found = self.look(everywhere=True)
        if not found:
            return []
        ended = {process.pid: describe(process) for process in found}
        _signal(found, signal.SIGTERM)
        left = self._wait(grace, ended)
        deadline = time.monotonic() + _SURE
        while left and time.monotonic() < deadline:
            _signal(left, signal.SIGKILL)
            left = self._wait(0.5, ended)
        return [*ended.values(), *(f"process {process.pid} cannot be ended" for process in left)]

    def _wait(self, seconds: float, ended: dict[int, str]) -> list[psutil.Process]:
        """Who is still there after so many seconds, or as soon as nobody is."""
        deadline = time.monotonic() + seconds
        while True:
            left = self.look(everywhere=True)
            for process in left:
                ended.setdefault(process.pid, describe(process))
            if not left or time.monotonic() >= deadline:
                return left
            time.sleep(_LOOK)


def carrying(identity: Identity, rows: Mapping[int, Row]) -> Iterator[int]:
    """Every process, but not this one and its ancestors, whose environment says that it belongs to this one start.

    Another start of the same work, by somebody who took the run over, is not ours to end. What was there before this start
    did not come from it, and need not be among the rows.
    """
    wanted = {
        f"{name}={value}".encode() for name, value in marks(identity.key, identity.run_id, identity.nonce).items()
    }
    ourselves = {os.getpid(), *_ancestors(rows)}
    for pid, row in rows.items():
        if pid not in ourselves and not row.is_before(identity.start_time) and _carries(pid, wanted):
            yield pid


def _ancestors(rows: Mapping[int, Row]) -> Iterator[int]:
    pid = os.getppid()
    while pid > 0:
        yield pid
        pid = rows[pid].parent if pid in rows else 0


def _carries(pid: int, wanted: set[bytes]) -> bool:
    if HAS_PROC:
        data = proc(pid, "environ")
        return all(mark in data for mark in wanted) and wanted <= set(data.split(b"\0"))
    try:
        return wanted <= {os.fsencode(f"{name}={value}") for name, value in psutil.Process(pid).environ().items()}
    except (psutil.Error, OSError):
        return False


def _is_alive(process: psutil.Process) -> bool:
    """Whether it is the same process and still does something; a zombie does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _age(process: psutil.Process) -> tuple[float, int]:
    try:
        return process.create_time(), process.pid
    except psutil.Error:
        return 0.0, process.pid  # it is gone


def _signal(processes: Iterable[psutil.Process], number: int) -> None:
    """The eldest first: one whose child ended before it would go on with what comes next."""
    for process in sorted(processes, key=_age):
        try:
            process.send_signal(number)
        except psutil.Error:
            continue


def describe(process: psutil.Process) -> str:
    try:
        return f"process {process.pid} ({process.name()})"
    except psutil.Error:
        return f"process {process.pid}"


def cpu_seconds(processes: Iterable[psutil.Process]) -> float:
    """What they and their dead children have used."""
    total = 0.0
    for process in processes:
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.Error:
            continue
    return total


# --- after the parent was killed


def left_behind(folder: str) -> Left | None:
    """What of the process that was started for this folder may still be there; None if surely nothing is."""
    identity = read_record(folder)
    if identity is None or identity.ended:
        return None
    if identity.host != os.uname().nodename:
        why = f"process {identity.pid} was started on {identity.host}, and this is {os.uname().nodename}"
        return Left(identity, (), why)
    if identity.boot_id != system.boot_id():
        return None
    ours = tuple(Tree(identity).look(everywhere=True))
    return Left(identity, ours) if ours else None


def read_record(folder: str) -> Identity | None:
    data = get(folder, RECORD, MAX_RECORD)
    try:
        return None if data is None else msgspec.json.decode(data, type=Identity)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def reap(left: Left) -> list[str]:
    """End what is proved to be ours, with all that belongs to it. What is not proved is only told."""
    return Tree(left.identity).end() if left.ours else [f"Nothing was ended: {left.why}."]

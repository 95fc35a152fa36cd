"""The fork server: an interpreter that imports a workload once and then forks a child for each job, with one fault.

It decides nothing: which points to try and what a result means is for its callers. Acknowledgements travel through a
pipe that no fault touches. A child that is silent for too long is ended and called a hang.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any

from holdfast.core.named import NamedTuple
from holdfast.testing.crashlab.shim import CLEAN, Fault, LabError, NoShim, Shim, available, library
from holdfast.testing.crashlab.workload import FolderFactory, Verdict, Workload

CHILD_TIME = 30.0
ATTACH_TIME = 5.0
PR_SET_PTRACER = 0x59616D61
BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from holdfast.testing.crashlab.server import serve; serve(int(sys.argv[2]), sys.argv[3] == 'shim')"
)


class Outcome(NamedTuple):
    """How a job ended: `end` is `done`, `raised`, `killed`, `crashed` or `hang`."""

    end: str
    detail: str
    acked: tuple[str, ...] = ()
    calls: int = 0
    fired: bool = False
    at: str = ""
    verdict: Verdict | None = None


class Job(NamedTuple):
    """One order to the server; without a time limit it is done in the server itself, without a fork."""

    what: str
    folder: str
    acked: tuple[str, ...] = ()
    fault: Fault = CLEAN
    trace: str | None = None
    tracer: tuple[str, ...] = ()
    timeout: float = 0.0


def judge(outcome: Outcome) -> Verdict:
    """The verdict of a clean check; a check that raised, crashed or hung is itself a violation."""
    return outcome.verdict or Verdict(False, "crashed", f"check {outcome.end}: {outcome.detail}")


# -- folders ---------------------------------------------------------------------------------------------------------


def scratch() -> Path:
    """A fresh empty folder, in memory where the machine has /dev/shm (a kill loses no page cache, so it is enough)."""
    memory = "/dev/shm"
    return Path(tempfile.mkdtemp(prefix="holdfast-crash-", dir=memory if os.access(memory, os.W_OK) else None))


@contextlib.contextmanager
def folder_from(factory: FolderFactory, template: Path | None = None) -> Iterator[Path]:
    """A folder for one point, a copy of the template if given, removed afterwards."""
    folder = factory().resolve()
    if template:
        shutil.copytree(template, folder, dirs_exist_ok=True, symlinks=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# -- moving a workload to another interpreter ------------------------------------------------------------------------


def hand_over(conn: Connection, workload: Workload) -> None:
    """Send a workload to another interpreter: first where its module lives, then the (picklable) object."""
    module = sys.modules[type(workload).__module__]
    conn.send((module.__name__, getattr(module, "__file__", None)))
    conn.send(workload)


def take_over(conn: Connection) -> Workload:
    """The other end of `hand_over`; a module that cannot be imported by name is loaded from its file."""
    name, file = conn.recv()
    if name == "__main__" or not importable(name):
        spec = importlib.util.spec_from_file_location("crashlab_main" if name == "__main__" else name, file)
        if not spec or not spec.loader:
            raise LabError(f"the module {name} of the workload cannot be loaded; put the workload in a module file")
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    workload: Workload = conn.recv()
    return workload


def importable(name: str) -> bool:
    """Whether a module can be imported by its name here."""
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


# -- in the server ---------------------------------------------------------------------------------------------------


def perform(workload: Workload, job: Job, ack: Callable[[str], None]) -> Verdict | None:
    """Do the job in this process."""
    folder = Path(job.folder)
    if job.what == "check":
        return workload.check(folder, job.acked)
    if job.what == "work":
        workload.work(folder, ack)
    else:
        workload.prepare(folder)
    return None


def attempt(workload: Workload, job: Job, ack: Callable[[str], None]) -> tuple[str, str, Verdict | None]:
    """Do the job and say how it ended, whatever it raised."""
    try:
        return "done", "", perform(workload, job, ack)
    except BaseException as error:
        return "raised", f"{type(error).__name__}: {error}", None


def child(shim: NoShim, workload: Workload, job: Job, out: Connection, go: Connection) -> None:
    """One forked job; acknowledgements leave through the pipe before `ack` returns."""
    os.setsid()
    if job.tracer:
        ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(-1 & 2**64 - 1), 0, 0, 0)
        go.recv()

    def ack(label: str) -> None:
        shim.mark(label)
        out.send(label)

    shim.arm(job.folder, job.fault, job.trace)
    out.send(attempt(workload, job, ack))
    os._exit(0)


def listen(source: Connection, pid: int, timeout: float) -> tuple[list[Any], bool]:
    """All messages of a child until it is gone; False if the time was over first."""
    heard: list[Any] = []
    exits = os.pidfd_open(pid)
    deadline = time.monotonic() + timeout
    waiting: list[Any] = [source, exits]
    try:
        while ready := wait(waiting, max(0.0, deadline - time.monotonic())):
            if source not in ready:
                return heard, True
            try:
                heard.append(source.recv())
            except EOFError:
                waiting = [exits]
        return heard, False
    finally:
        os.close(exits)


@contextlib.contextmanager
def traced(pid: int, command: Sequence[str]) -> Iterator[None]:
    """Attach a tracer to a child that waits; it says so itself, the kernel's TracerPid comes a moment too early."""
    with subprocess.Popen([*command, "-p", str(pid)], stderr=subprocess.PIPE) as tracer:
        said = b""
        while tracer.stderr and b" attached" not in said:
            part = os.read(tracer.stderr.fileno(), 4096) if wait([tracer.stderr.fileno()], ATTACH_TIME) else b""
            said += part
            if not part:
                tracer.kill()
                raise LabError(f"{command[0]} cannot attach to a process here: {said.decode(errors='replace').strip()}")
        yield


def supervise(shim: NoShim, workload: Workload, job: Job) -> Outcome:
    """Fork a child for the job, collect what it says, and tell how it ended."""
    source, out = Pipe(duplex=False)
    hold, go = Pipe(duplex=False)
    shim.disarm()
    pid = os.fork()
    if not pid:
        child(shim, workload, job, out, hold)
    out.close()
    try:
        with source, hold, go, traced(pid, job.tracer) if job.tracer else contextlib.nullcontext():
            go.send("go")
            heard, ended = listen(source, pid, job.timeout)
            status = bury(pid)
    except LabError as error:
        heard, ended, status = [("raised", str(error), None)], True, bury(pid)
    return outcome_of(shim, job, heard, ended, status)


def outcome_of(shim: NoShim, job: Job, heard: Sequence[Any], ended: bool, status: int) -> Outcome:
    """Put together what a child said, how it died and what the shim counted."""
    page = shim.page
    fired = page.fired > 0
    at = f"{page.op.decode()} {page.path.decode(errors='replace') or '/'}" if fired else ""
    acked = tuple(message for message in heard if isinstance(message, str))
    ending = next((message for message in heard if not isinstance(message, str)), None)
    silent = "killed" if (fired or job.tracer) and status == signal.SIGKILL else "crashed"
    end, detail, verdict = ending or (silent, f"wait status {status}", None)
    if not ended:
        end, detail = "hang", f"still running after {job.timeout:g} s"
    return Outcome(end, detail, acked, page.calls, fired, at, verdict)


def bury(pid: int) -> int:
    """End the child with all it started, and collect its status."""
    for end in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            end(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


def here(workload: Workload, job: Job) -> Outcome:
    """Do the job in the server itself: no fork, no fault, for many quick checks."""
    end, detail, verdict = attempt(workload, job, lambda label: None)
    return Outcome(end, detail, verdict=verdict)


def serve(fd: int, preloaded: bool) -> None:
    """The loop of the server process: one job in, one outcome out, until the other side hangs up."""
    os.environ.pop("LD_PRELOAD", None)
    conn = Connection(fd)
    workload = take_over(conn)
    shim = Shim() if preloaded else NoShim()
    conn.send("ready")
    with contextlib.suppress(EOFError):
        while True:
            job = conn.recv()
            conn.send(supervise(shim, workload, job) if job.timeout else here(workload, job))
    os._exit(0)


# -- in the laboratory -----------------------------------------------------------------------------------------------


class ForkServer:
    """Runs jobs of one workload in an interpreter of their own, under the shim or bare; use it in a `with`."""

    def __init__(self, workload: Workload, timeout: float = CHILD_TIME, preload: bool = True) -> None:
        can = available()
        if preload and not can:
            raise LabError(can.why)
        self.workload, self.timeout, self.preload = workload, timeout, preload
        self._start()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        self.conn = Connection(ours.detach())
        paths = json.dumps([os.path.abspath(path or os.getcwd()) for path in sys.path])
        python = os.path.realpath(sys.executable)  # the interpreter itself, not a script in front of it
        kind, extra = ("shim", {"LD_PRELOAD": str(library())}) if self.preload else ("bare", {})
        with theirs:
            command = [python, "-I", "-S", "-c", BOOT, paths, str(theirs.fileno()), kind]
            self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=os.environ | extra)
        hand_over(self.conn, self.workload)
        try:
            self.conn.recv()
        except EOFError:
            self.close()
            raise LabError("the fork server did not start; its message is on standard error") from None

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up and end the server."""
        self.conn.close()
        self.process.kill()
        self.process.wait()

    def ask(self, job: Job) -> Outcome:
        """Give one job; a server that dies or hangs over it is replaced by a new one."""
        patience = job.timeout + ATTACH_TIME + 10 if job.timeout else self.timeout
        try:
            self.conn.send(job)
            if self.conn.poll(patience):
                outcome: Outcome = self.conn.recv()
                return outcome
            failed = Outcome("hang", f"still running after {patience:g} s")
        except (EOFError, ConnectionError):
            failed = Outcome("crashed", f"the process died with {self.process.wait()}")
        self.close()
        self._start()
        return failed

    def prepare(self, folder: Path) -> None:
        """Let the workload make its store in the folder, without faults."""
        self._expect(self.ask(Job("prepare", str(folder), timeout=self.timeout)))

    def work(self, folder: Path, fault: Fault = CLEAN, trace: Path | None = None) -> Outcome:
        """Run the work in a forked child with one fault; `trace` records every changing call and acknowledgement."""
        path = str(trace) if trace else None
        return self.ask(Job("work", str(folder), fault=fault, trace=path, timeout=self.timeout))

    def clean_work(self, folder: Path, trace: Path | None = None, tracer: Sequence[str] = ()) -> Outcome:
        """Run the work with no fault; it must end well."""
        path = str(trace) if trace else None
        return self._expect(
            self.ask(Job("work", str(folder), (), Fault("count"), path, tuple(tracer), timeout=self.timeout))
        )

    def traced_work(self, folder: Path, tracer: Sequence[str]) -> Outcome:
        """Run the work in a forked child to which a tracer command was attached with `-p`."""
        return self.ask(Job("work", str(folder), tracer=tuple(tracer), timeout=self.timeout))

    def check(self, folder: Path, acked: Sequence[str], fault: Fault = CLEAN) -> Outcome:
        """Check in a forked child, with a fault in the recovery if given."""
        return self.ask(Job("check", str(folder), tuple(acked), fault, timeout=self.timeout))

    def quick_check(self, folder: Path, acked: Sequence[str]) -> Outcome:
        """Check inside the server process: quicker, for images that are only looked at once."""
        return self.ask(Job("check", str(folder), tuple(acked)))

    def _expect(self, outcome: Outcome) -> Outcome:
        if outcome.end != "done":
            raise LabError(f"the workload {self.workload.name} fails without any fault: {outcome.detail}")
        return outcome

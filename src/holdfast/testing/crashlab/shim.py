"""The fork server under the preloaded shim: runs one job of a workload per forked child, with one fault armed.

It decides nothing: which points to try and what a result means is for its callers. It refuses to start where the
shim cannot be built (`available()` says why in one line).
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
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
from typing import Any, NamedTuple

from holdfast.testing.crashlab.workload import Available, FolderFactory, Verdict, Workload

MODES = {"off": 0, "count": 1, "before": 2, "after": 3, "errno": 4, "short": 5}
CHILD_TIME = 30.0
BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from holdfast.testing.crashlab.{module} import {entry}; {entry}(int(sys.argv[2]))"
)


class Fault(NamedTuple):
    """One fault: at the n-th changing call (and, if sticky, at every later one)."""

    mode: str = "off"
    n: int = 0
    errno: int = 0
    sticky: bool = False


class Outcome(NamedTuple):
    """How a forked job ended: end is `done`, `raised`, `killed`, `crashed` or `hang`."""

    end: str
    detail: str
    acked: tuple[str, ...]
    calls: int
    fired: bool
    at: str
    verdict: Verdict | None


class LabError(RuntimeError):
    """The laboratory cannot do its work; the sentence says what to change."""


CLEAN = Fault()


@functools.cache
def available() -> Available:
    """Whether the shim can be built and preloaded here; if not, why in one line."""
    if not sys.platform.startswith("linux"):
        return Available(False, f"the shim needs Linux, this is {sys.platform}")
    if not compiler():
        return Available(False, "the shim needs a C compiler (cc, gcc or clang), none is on the path")
    try:
        library()
    except LabError as error:
        return Available(False, str(error))
    return Available(True, "")


def compiler() -> str | None:
    """The first C compiler on the path."""
    return next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)


@functools.cache
def library() -> Path:
    """The shim, compiled once per process into a private folder that goes away at exit."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-shim-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    target = folder / "shim.so"
    source = Path(__file__).with_name("shim.c")
    flags = ["-shared", "-fPIC", "-O2", "-fvisibility=hidden", "-o", str(target), str(source), "-ldl", "-lpthread"]
    built = subprocess.run([compiler() or "cc", *flags], capture_output=True, text=True, check=False)
    if built.returncode:
        raise LabError(f"the shim does not compile here: {built.stderr.strip().splitlines()[-1:]}")
    return target


def scratch() -> Path:
    """A fresh empty folder, in memory where the machine has /dev/shm (a kill loses no page cache, so it is enough)."""
    return Path(tempfile.mkdtemp(prefix="holdfast-crash-", dir=memory_folder()))


def memory_folder() -> str | None:
    """/dev/shm if it can be written, else None (the usual temp folder)."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


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


def real_python() -> str:
    """The interpreter itself, not a shim script or a link to it."""
    return os.path.realpath(sys.executable)


def interpreter(entry: str, fd: int, module: str = "shim") -> list[str]:
    """The command for a bare interpreter that sees our import path and then runs one entry of the laboratory."""
    paths = json.dumps([os.path.abspath(path or os.getcwd()) for path in sys.path])
    return [real_python(), "-I", "-S", "-c", BOOT.format(entry=entry, module=module), paths, str(fd)]


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


class Page(ctypes.Structure):
    """The counters that a killed child leaves behind."""

    _fields_ = [
        ("calls", ctypes.c_uint64),
        ("fired", ctypes.c_uint64),
        ("op", ctypes.c_char * 16),
        ("path", ctypes.c_char * 256),
    ]


class Job(NamedTuple):
    """One order to the server."""

    what: str
    folder: str
    acked: tuple[str, ...]
    fault: Fault
    trace: str | None
    timeout: float


class Shim:
    """The preloaded library as seen from inside."""

    def __init__(self) -> None:
        self.lib = ctypes.CDLL(None)
        self.lib.shim_page.restype = ctypes.POINTER(Page)
        self.page = self.lib.shim_page().contents

    def arm(self, job: Job) -> None:
        self.lib.shim_folder(os.fsencode(os.path.realpath(job.folder)))
        self.lib.shim_record(os.fsencode(job.trace) if job.trace else None)
        self.set(job.fault)

    def set(self, fault: Fault) -> None:
        self.lib.shim_set(MODES[fault.mode], ctypes.c_uint64(fault.n), fault.errno, int(fault.sticky))

    def mark(self, label: str) -> None:
        self.lib.shim_mark(label.encode())


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
    except BaseException as error:  # an injected fault may surface as anything; the caller judges it
        return "raised", f"{type(error).__name__}: {error}", None


def child(shim: Shim, workload: Workload, job: Job, out: Connection) -> None:
    """One forked job; acknowledgements leave through the pipe before `ack` returns."""
    os.setsid()

    def ack(label: str) -> None:
        shim.mark(label)
        out.send(label)

    shim.arm(job)
    ending = attempt(workload, job, ack)
    shim.lib.shim_record(None)
    out.send(ending)
    os._exit(0)


def listen(source: Connection, pid: int, timeout: float) -> tuple[list[Any], bool]:
    """All messages of a child until it is gone; False if the time was over first."""
    heard: list[Any] = []
    exits = os.pidfd_open(pid)
    deadline = time.monotonic() + timeout
    try:
        while ready := wait([source, exits], max(0.0, deadline - time.monotonic())):
            if source in ready:
                try:
                    heard.append(source.recv())
                    continue
                except EOFError:
                    ready = wait([exits], max(0.0, deadline - time.monotonic()))
            if ready:
                return heard, True
        return heard, False
    finally:
        os.close(exits)


def supervise(shim: Shim, workload: Workload, job: Job) -> Outcome:
    """Fork a child for the job, collect what it says, and tell how it ended."""
    source, out = Pipe(duplex=False)
    shim.set(CLEAN)
    pid = os.fork()
    if not pid:
        source.close()
        child(shim, workload, job, out)
    out.close()
    heard, ended = listen(source, pid, job.timeout)
    source.close()
    status = bury(pid)
    acked = tuple(message for message in heard if isinstance(message, str))
    page = shim.page
    at = f"{page.op.decode()} {page.path.decode(errors='replace') or '/'}" if page.fired else ""
    ending = next((message for message in heard if not isinstance(message, str)), None)
    end, detail, verdict = ending or (how(status, page.fired > 0), f"wait status {status}", None)
    if not ended:
        end, detail = "hang", f"still running after {job.timeout:g} s"
    return Outcome(end, detail, acked, page.calls, page.fired > 0, at, verdict)


def bury(pid: int) -> int:
    """End the child and its own process group, and collect its status."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


def how(status: int, fired: bool) -> str:
    """A child that said nothing at its end: killed by the fault, or crashed by itself."""
    return "killed" if fired and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL else "crashed"


def here(workload: Workload, job: Job) -> Outcome:
    """Do the job in the server itself: no fork, no fault, for many quick checks."""
    end, detail, verdict = attempt(workload, job, lambda label: None)
    return Outcome(end, detail, (), 0, False, "", verdict)


def serve(fd: int) -> None:
    """The loop of the server process: one job in, one outcome out, until the other side hangs up."""
    os.environ.pop("LD_PRELOAD", None)
    conn = Connection(fd)
    workload = take_over(conn)
    shim = Shim()
    conn.send("ready")
    with contextlib.suppress(EOFError):
        while True:
            job = conn.recv()
            conn.send(supervise(shim, workload, job) if job.timeout else here(workload, job))
    os._exit(0)


# -- in the laboratory -----------------------------------------------------------------------------------------------


class ForkServer:
    """A process with the shim preloaded that runs jobs of one workload; use it as a context manager."""

    def __init__(self, workload: Workload, timeout: float = CHILD_TIME) -> None:
        if not (can := available()):
            raise LabError(can.why)
        self.workload = workload
        self.timeout = timeout
        self._start()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        self.conn = Connection(ours.detach())
        with theirs:
            self.process = subprocess.Popen(
                interpreter("serve", theirs.fileno()),
                pass_fds=[theirs.fileno()],
                env={**os.environ, "LD_PRELOAD": str(library())},
            )
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

    def _ask(self, job: Job, patience: float) -> Outcome:
        try:
            self.conn.send(job)
            if self.conn.poll(patience):
                outcome: Outcome = self.conn.recv()
                return outcome
            end, detail = "hang", f"still running after {patience:g} s"
        except (EOFError, ConnectionError):
            end, detail = "crashed", f"the process died with {self.process.wait()}"
        self.close()
        self._start()
        return Outcome(end, detail, (), 0, False, "", None)

    def prepare(self, folder: Path) -> None:
        """Let the workload make its store in the folder, without faults."""
        self._expect(self._run("prepare", folder))

    def work(self, folder: Path, fault: Fault = CLEAN, trace: Path | None = None) -> Outcome:
        """Run the work in a forked child with one fault; `trace` records every changing call and acknowledgement."""
        return self._run("work", folder, (), fault, str(trace) if trace else None)

    def clean_work(self, folder: Path, trace: Path | None = None) -> Outcome:
        """Run the work with no fault; it must end well."""
        return self._expect(self.work(folder, Fault("count"), trace))

    def check(self, folder: Path, acked: Sequence[str], fault: Fault = CLEAN) -> Outcome:
        """Check in a forked child, with a fault in the recovery if given."""
        return self._run("check", folder, tuple(acked), fault)

    def quick_check(self, folder: Path, acked: Sequence[str]) -> Outcome:
        """Check inside the server process: quicker, for images that are only read once."""
        return self._ask(Job("check", str(folder), tuple(acked), CLEAN, None, 0), self.timeout)

    def _run(
        self, what: str, folder: Path, acked: tuple[str, ...] = (), fault: Fault = CLEAN, trace: str | None = None
    ) -> Outcome:
        return self._ask(Job(what, str(folder), acked, fault, trace, self.timeout), self.timeout + 15)

    def _expect(self, outcome: Outcome) -> Outcome:
        if outcome.end != "done":
            raise LabError(f"the workload {self.workload.name} fails without any fault: {outcome.detail}")
        return outcome


def judge(outcome: Outcome) -> Verdict:
    """The verdict of a clean check; a check that raised, crashed or hung is itself a violation."""
    return outcome.verdict or Verdict(False, "crashed", f"check {outcome.end}: {outcome.detail}")

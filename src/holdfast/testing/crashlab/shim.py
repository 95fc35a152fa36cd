"""The preloaded shim: builds the C library, says where it cannot work, and arms it from inside a process.

It only strikes; who runs under it and what the outcome means is decided elsewhere.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

from holdfast.core.named import NamedTuple
from holdfast.testing.crashlab.workload import Available

MODES = {"off": 0, "count": 1, "before": 2, "after": 3, "errno": 4, "short": 5}


class LabError(RuntimeError):
    """The laboratory cannot do its work; the sentence says what to change."""


class Fault(NamedTuple):
    """One fault: at the n-th changing call (and, if sticky, at every later one)."""

    mode: str = "off"
    n: int = 0
    errno: int = 0
    sticky: bool = False


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
    """The shim, compiled at first use and then kept in a private folder under the name of its hash."""
    source = Path(__file__).with_name("shim.c")
    target = private_folder() / f"shim-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}.so"
    if not target.exists():
        build(source, target)
    return target


def private_folder() -> Path:
    """A folder in the temp folder that only this user can write; anything else of that name is refused."""
    folder = Path(tempfile.gettempdir()) / f"holdfast-crashlab-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise LabError(f"{folder} is not a private folder of this user; remove it")
    return folder


def build(source: Path, target: Path) -> None:
    """Compile beside the target and move it there, so that nobody ever loads half a library."""
    beside = target.with_name(f"{os.getpid()}.so")
    flags = ["-shared", "-fPIC", "-O2", "-fvisibility=hidden", "-o", str(beside), str(source), "-ldl", "-lpthread"]
    built = subprocess.run([compiler() or "cc", *flags], capture_output=True, text=True, check=False)
    if built.returncode:
        last = built.stderr.strip().splitlines()[-1:] or ["no message"]
        raise LabError(f"the shim does not compile here: {last[0]}")
    beside.replace(target)


class Page(ctypes.Structure):
    """The counters that a killed child leaves behind in shared memory."""

    calls: int
    fired: int
    op: bytes
    path: bytes
    _fields_ = (
        ("calls", ctypes.c_uint64),
        ("fired", ctypes.c_uint64),
        ("op", ctypes.c_char * 16),
        ("path", ctypes.c_char * 256),
    )


class NoShim:
    """Stands in where nothing is preloaded: counts nothing and strikes nothing."""

    page = Page()

    def arm(self, folder: str, fault: Fault, trace: str | None) -> None:
        """Nothing to arm."""

    def disarm(self) -> None:
        """Nothing to disarm."""

    def mark(self, label: str) -> None:
        """Nothing is recorded."""


class Shim(NoShim):
    """The preloaded library as seen from inside."""

    def __init__(self) -> None:
        self.lib = ctypes.CDLL(None)
        self.lib.shim_page.restype = ctypes.POINTER(Page)
        self.page = self.lib.shim_page().contents

    def arm(self, folder: str, fault: Fault, trace: str | None) -> None:
        """Watch a folder: strike as the fault says, and record into the trace file if one is given."""
        self.lib.shim_folder(os.fsencode(os.path.realpath(folder)))
        self.lib.shim_record(os.fsencode(trace) if trace else None)
        self._set(fault)

    def disarm(self) -> None:
        """Strike and record nothing any more, and clear the counters."""
        self.lib.shim_record(None)
        self._set(CLEAN)

    def _set(self, fault: Fault) -> None:
        self.lib.shim_set(MODES[fault.mode], ctypes.c_uint64(fault.n), fault.errno, int(fault.sticky))

    def mark(self, label: str) -> None:
        """Put an acknowledgement into the trace, in its order among the calls."""
        self.lib.shim_mark(label.encode())

"""SIGKILL or KeyboardInterrupt at every bytecode of chosen source files while a workload works, one forked child per point.

The plumbing that the other techniques share lives here too: a forked child that tells its parent what it did, a workload
run under a fault, and the check in a fresh child. Nothing here opens a store in the calling process.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import random
import select
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Protocol, runtime_checkable

from holdfast.core.errors import HoldfastError
from holdfast.core.named import NamedTuple
from holdfast.testing.crashlab.workload import Report, Verdict, Workload

Tell = Callable[[str, str], None]
Typed = tuple[type[BaseException], ...]

LABORATORY = str(Path(__file__).parent) + os.sep
WHOLE = frozenset({"whole"})
WHOLE_OR_REFUSED = frozenset({"whole", "refused"})
OURS: Typed = (HoldfastError,)


@runtime_checkable
class Again(Protocol):
    """A workload that can append once more with the objects that `work` left open."""

    def again(self, ack: Callable[[str], None]) -> None: ...


# --- a child that tells -------------------------------------------------------------------------------------------------


class Ending(NamedTuple):
    """What a child told before it ended, in order, and how it ended: `exit`, `signal N` or `hung`."""

    how: str
    told: tuple[tuple[str, str], ...]

    def all(self, kind: str) -> tuple[str, ...]:
        return tuple(text for told, text in self.told if told == kind)

    def last(self, kind: str) -> str:
        return next((text for told, text in reversed(self.told) if told == kind), "")

    @property
    def acked(self) -> tuple[str, ...]:
        return self.all("ack")


def in_child(job: Callable[[Tell], None], timeout: float = 30.0) -> Ending:
    """Run the job in a forked child, which may die at any moment; what it told is kept. Silence for `timeout` s is a hang."""
    reader, writer = os.pipe()
    gc.freeze()  # so that no collection in the child touches, and thereby copies, what the parent has
    pid = os.fork()
    if pid == 0:
        _be_child(job, reader, writer)
    os.close(writer)
    try:
        data, hung = _drain(reader, timeout)
    finally:
        os.close(reader)
    return Ending(_reap(pid, hung), tuple(_parse(data)))


def _be_child(job: Callable[[Tell], None], reader: int, writer: int) -> None:
    code = 70
    try:
        os.close(reader)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        faulthandler.disable()
        sys.unraisablehook = _ignore  # a dying child is expected to stumble; its verdict is the folder it leaves

        def tell(kind: str, text: str) -> None:
            _write_all(writer, json.dumps([kind, text]).encode() + b"\n")

        code = _exit_code(job, tell)
    finally:
        os._exit(code)


def _ignore(_: object) -> None:
    return None


def _exit_code(job: Callable[[Tell], None], tell: Tell) -> int:
    try:
        job(tell)
    except BaseException as error:  # the child ends here, so the parent must hear of everything
        tell("error", _name(error))
        return 1
    return 0


def _write_all(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data) :]


def _drain(reader: int, timeout: float) -> tuple[bytes, bool]:
    parts: list[bytes] = []
    poll = select.poll()
    poll.register(reader, select.POLLIN | select.POLLHUP)
    while poll.poll(timeout * 1000):
        part = os.read(reader, 65536)
        if not part:
            return b"".join(parts), False
        parts.append(part)
    return b"".join(parts), True


def _reap(pid: int, hung: bool) -> str:
    if hung:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if hung:
        return "hung"
    return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "exit"


def _parse(data: bytes) -> Iterator[tuple[str, str]]:
    for line in data.split(b"\n")[:-1]:
        kind, text = json.loads(line)
        yield kind, text


def _name(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}: {error}"


# --- a workload under a fault --------------------------------------------------------------------------------------------


class Fault(NamedTuple):
    """How a fault begins and ends inside the working child, and in which exceptions the work may honestly end."""

    arm: Callable[[Tell], None]
    lift: Callable[[], None]
    expected: Typed = ()


def nothing() -> None:
    """The lift of a fault that ends by itself."""


def suffer(workload: Workload, folder: Path, fault: Fault, typed: Typed, timeout: float) -> Ending:
    """Let the workload work in a child under the fault; if it comes back and can, append once more with the same objects."""
    return in_child(lambda tell: _suffer(workload, folder, fault, typed, tell), timeout)


def _suffer(workload: Workload, folder: Path, fault: Fault, typed: Typed, tell: Tell) -> None:
    def ack(label: str) -> None:
        tell("ack", label)

    def work() -> None:
        try:
            fault.arm(tell)
            workload.work(folder, ack)
        finally:
            fault.lift()

    _ended("work", work, fault.expected + typed, tell)
    if isinstance(workload, Again):
        again = workload.again
        _ended("again", lambda: again(ack), typed, tell)


def _ended(what: str, job: Callable[[], None], legal: Typed, tell: Tell) -> None:
    try:
        job()
    except BaseException as error:  # any ending of a faulted workload is a result to be judged, not a failure of ours
        tell(what, type(error).__qualname__)
        if not isinstance(error, legal):
            tell("untyped", f"{what} ended with {_name(error)}")
    else:
        tell(what, "done")


def check_apart(workload: Workload, folder: Path, acked: Sequence[str], timeout: float = 30.0) -> Verdict:
    """The workload's own check, in a fresh child, so that a crash of the checker is a verdict too."""
    ending = in_child(lambda tell: tell("verdict", json.dumps(workload.check(folder, acked))), timeout)
    text = ending.last("verdict")
    if text:
        return Verdict(*json.loads(text))
    return died(ending)


def died(ending: Ending) -> Verdict:
    """The verdict over a checker that gave none."""
    return Verdict(False, "crashed", f"the check ended by {ending.how}: {ending.last('error') or 'no word'}")


def judge(workload: Workload, folder: Path, ending: Ending, allowed: frozenset[str], timeout: float) -> Verdict:
    """The verdict over one point: an untyped or endless ending is a crash, else what the check says of the folder."""
    if ending.how == "hung":
        return Verdict(False, "crashed", f"the work hung: no word for {timeout} seconds")
    if untyped := ending.last("untyped") or ending.last("error"):
        return Verdict(False, "crashed", untyped)
    verdict = check_apart(workload, folder, ending.acked, timeout)
    return verdict._replace(ok=verdict.ok and verdict.kind in allowed)


class Bench:
    """A prepared store and fresh copies of it, all in one scratch folder in memory that goes away at the end."""

    def __init__(self, workload: Workload, root: Path) -> None:
        self.workload = workload
        self.root = root
        self.template = root / "template"
        self.template.mkdir()
        ending = in_child(lambda tell: workload.prepare(self.template))
        if ending.how != "exit" or ending.last("error"):
            raise RuntimeError(f"prepare of {workload.name} ended by {ending.how}: {ending.last('error')}")

    @contextmanager
    def copy(self, source: Path | None = None) -> Iterator[Path]:
        """A fresh copy of the prepared store (or of another folder), removed afterwards."""
        folder = self.root / "copy"
        shutil.copytree(source or self.template, folder, symlinks=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder)


@contextmanager
def bench(workload: Workload, scratch: Path | None = None) -> Iterator[Bench]:
    """A bench under `scratch`, by default in memory (/dev/shm) where there is such a place."""
    with tempfile.TemporaryDirectory(prefix="crashlab-", dir=scratch or in_memory()) as root:
        yield Bench(workload, Path(root))


def in_memory() -> Path | None:
    """The machine's folder in memory, or None to let the system choose."""
    place = Path("/dev/shm")
    return place if os.access(place, os.W_OK) else None


def sample(total: int, limit: int | None, seed: int) -> list[int]:
    """The numbers 1 to `total`, or a seeded sorted choice of `limit` of them."""
    if limit is None or limit >= total:
        return list(range(1, total + 1))
    return sorted(random.Random(seed).sample(range(1, total + 1), limit))


# --- the technique -------------------------------------------------------------------------------------------------------


class Tracer:
    """Counts the bytecodes run in files under the prefixes, in all threads, and calls `fire` at one of them."""

    def __init__(
        self, prefixes: Sequence[str], point: int = 0, fire: Callable[[FrameType], None] | None = None
    ) -> None:
        self.prefixes = tuple(prefixes)
        self.point = point
        self.fire = fire
        self.seen = 0

    def start(self, threads: bool) -> None:
        sys._getframe().f_trace_opcodes = True  # from Python 3.12 on, settrace looks whether any frame wants opcodes
        if threads:
            threading.settrace(self._call)
        sys.settrace(self._call)

    def _call(self, frame: FrameType, event: str, _: Any) -> Callable[[FrameType, str, Any], Any] | None:
        name = frame.f_code.co_filename
        if not name.startswith(self.prefixes) or name.startswith(LABORATORY):
            return None
        frame.f_trace = self._step  # Python 3.13 wants it before the next line
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._step

    def _step(self, frame: FrameType, event: str, _: Any) -> Callable[[FrameType, str, Any], Any]:
        if event == "opcode":
            self.seen += 1
            if self.seen == self.point and self.fire:
                self.fire(frame)
        return self._step


def _stop_tracing() -> None:
    sys.settrace(None)
    threading.settrace(None)


def _place(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}+{frame.f_lasti}"


def _kill(frame: FrameType) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _interrupt(frame: FrameType) -> None:
    raise KeyboardInterrupt


# way -> (what happens at the point, whether other threads count, what the work may honestly end in)
WAYS: dict[str, tuple[Callable[[FrameType], None], bool, Typed]] = {
    "kill": (_kill, True, ()),
    "interrupt": (_interrupt, False, (KeyboardInterrupt,)),
}


def _fault(prefixes: Sequence[str], way: str, point: int) -> Fault:
    act, threads, expected = WAYS[way]

    def arm(tell: Tell) -> None:
        def fire(frame: FrameType) -> None:
            tell("fired", _place(frame))
            act(frame)

        Tracer(prefixes, point, fire).start(threads)

    return Fault(arm, _stop_tracing, expected)


def count_at_acks(
    workload: Workload, folder: Path, prefixes: Sequence[str], *, threads: bool = True, timeout: float = 60.0
) -> list[int]:
    """How many bytecodes of the prefixed files one undisturbed `work` in the prepared folder has run at each acknowledgement, and
    in the end: those of one append lie between two of these."""

    def job(tell: Tell) -> None:
        tracer = Tracer(prefixes)
        tracer.start(threads)
        try:
            workload.work(folder, lambda label: tell("at", str(tracer.seen)))
        finally:
            _stop_tracing()
        tell("count", str(tracer.seen))

    ending = in_child(job, timeout)
    if not ending.last("count"):
        raise RuntimeError(f"the undisturbed work of {workload.name} ended by {ending.how}: {ending.last('error')}")
    return [int(seen) for seen in (*ending.all("at"), ending.last("count"))]


def bytecode_points(
    workload: Workload,
    prefixes: Sequence[str],
    way: str = "kill",
    *,
    points: Sequence[int] | None = None,
    limit: int | None = None,
    seed: int = 0,
    typed: Typed = OURS,
    allowed: frozenset[str] = WHOLE,
    scratch: Path | None = None,
    timeout: float = 30.0,
) -> Report:
    """Kill or interrupt at each bytecode (or a seeded choice of `limit`, or exactly at `points`), then check.

    `prefixes` are the folders or files whose bytecodes count. With `interrupt` a workload that has `again` must then be
    able to append once more with the same objects, or refuse with one of `typed`.
    """
    report = Report(f"bytecode {way}", workload.name, seed)
    missed = 0
    with bench(workload, scratch) as place:
        for point in points or _chosen(place, prefixes, way, limit, seed, report):
            with place.copy() as folder:
                ending = suffer(workload, folder, _fault(prefixes, way, point), typed, timeout)
                verdict = judge(workload, folder, ending, allowed, timeout)
            where = ending.last("fired")
            missed += not where
            recipe = f"bytecode_points(workload, prefixes, {way!r}, points=[{point}])  # {where or 'not reached'}"
            report.add(verdict, point, recipe)
    if missed:
        report.note(f"{missed} points were not reached: the work does not take the same path each time")
    return report.done()


def _chosen(place: Bench, prefixes: Sequence[str], way: str, limit: int | None, seed: int, report: Report) -> list[int]:
    with place.copy() as folder:
        total = count_at_acks(place.workload, folder, prefixes, threads=WAYS[way][1])[-1]
    if not total:
        raise ValueError(f"no bytecode ran in files under {list(prefixes)}: give the folder of the sources")
    report.note(f"{total} bytecodes in one run")
    return sample(total, limit, seed)

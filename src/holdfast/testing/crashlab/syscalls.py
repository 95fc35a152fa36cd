"""Kill, fail or shorten every changing call: with the shim (quick, exact), and with strace as an independent check.

A point that hangs is a violation. A workload may raise under an injected error and lose what it did not acknowledge.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast.core.named import NamedTuple
from holdfast.testing.crashlab.disk import WRITE, read_trace
from holdfast.testing.crashlab.server import CHILD_TIME, ForkServer, Outcome, folder_from, judge, scratch
from holdfast.testing.crashlab.shim import Fault, LabError
from holdfast.testing.crashlab.workload import Available, FolderFactory, Report, Verdict, Workload

ERRNOS = ("ENOSPC", "EIO", "EDQUOT", "EROFS")
RECOVERY_FAULTS = (
    Fault("before"),
    Fault("errno", errno=errno.EIO),
    Fault("after"),
    Fault("errno", errno=errno.ENOSPC, sticky=True),
    Fault("short", sticky=True),
    Fault("errno", errno=errno.EIO, sticky=True),
)
RECOVERY_LIMIT = 500


def describe(fault: Fault) -> str:
    """A fault in a few words: `kill before call 7`, `ENOSPC sticky at call 9`."""
    if fault.mode in ("before", "after"):
        return f"kill {fault.mode} call {fault.n}"
    name = errno.errorcode.get(fault.errno, "") if fault.mode == "errno" else "short write"
    return f"{name} {'sticky' if fault.sticky else 'once'} at call {fault.n}"


class Bench:
    """A fork server, a prepared template folder and the report, for one sweep over one workload."""

    def __init__(
        self, report: Report, workload: Workload, factory: FolderFactory, recovery: bool, timeout: float
    ) -> None:
        self.report, self.workload, self.factory, self.recovery = report, workload, factory, recovery
        self.server = ForkServer(workload, timeout)
        self.stack = contextlib.ExitStack()
        self.stack.callback(self.server.close)

    def __enter__(self) -> Bench:
        with contextlib.ExitStack() as guard:
            guard.push(self.stack)
            self.template = self.stack.enter_context(folder_from(self.factory))
            self.server.prepare(self.template)
            self.kinds = self._clean_calls()
            self.stack = guard.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def _clean_calls(self) -> list[int]:
        """The kinds of the changing calls of an unharmed run; it also proves that the clean workload is whole."""
        with folder_from(self.factory, self.template) as folder, folder_from(scratch) as beside:
            outcome = self.server.clean_work(folder, beside / "trace")
            verdict = judge(self.server.check(folder, outcome.acked))
            if verdict.kind != "whole":
                what = f"{verdict.kind} without any fault: {verdict.detail}"
                raise LabError(f"the workload {self.workload.name} is {what}")
            return [op.kind for op in read_trace(beside / "trace", folder) if not op.is_mark]

    def sweep(self, faults: Sequence[Fault], points: Sequence[int] | None, limit: int | None) -> None:
        """Try every fault at every call, or the given points, or a seeded sample of at most `limit`."""
        plan = [fault._replace(n=n) for fault in faults for n in points or self._numbers(fault)]
        if limit is not None and len(plan) > limit:
            self.report.note(f"{limit} of {len(plan)} points, sampled by the seed")
            plan = sorted(random.Random(self.report.seed).sample(plan, limit))
        elif points is None:
            self._beyond(faults)
        for fault in plan:
            self.point(fault)

    def _numbers(self, fault: Fault) -> list[int]:
        return [n for n, kind in enumerate(self.kinds, 1) if fault.mode != "short" or kind == WRITE]

    def _beyond(self, faults: Sequence[Fault]) -> None:
        """A faulty run may do more calls than a clean one: go on until it ends unharmed."""
        for fault in faults:
            for n in itertools.count(len(self.kinds) + 1):
                if not self.point(fault._replace(n=n)):
                    break

    def point(self, fault: Fault) -> bool:
        """One fault, then the clean check; False if the run ended before the fault's number was reached."""
        with folder_from(self.factory, self.template) as folder:
            outcome = self.server.work(folder, fault)
            broken = _broken(outcome)
            if broken:
                self._add(broken, fault, outcome.at)
            elif outcome.fired:
                if self.recovery:
                    self._recover(folder, outcome.acked, fault)
                self._add(judge(self.server.check(folder, outcome.acked)), fault, outcome.at)
            return broken is not None or outcome.calls >= fault.n

    def _recover(self, folder: Path, acked: Sequence[str], first: Fault) -> None:
        """From this crashed state, strike the recovery itself at each of its calls, then check clean."""
        for number in range(1, RECOVERY_LIMIT):
            second = RECOVERY_FAULTS[(first.n + number) % len(RECOVERY_FAULTS)]._replace(n=number)
            with folder_from(self.factory, folder) as copy:
                outcome = self.server.check(copy, acked, second)
                if not _broken(outcome) and outcome.calls < number:
                    return
                verdict = _broken(outcome) or judge(self.server.check(copy, acked))
                if outcome.fired or not verdict.ok:
                    self._add(verdict, first, f"then {describe(second)} of the recovery, {outcome.at}")

    def _add(self, verdict: Verdict, fault: Fault, at: str) -> None:
        extra = ", faults_during_recovery=True" if at.startswith("then") else ""
        recipe = f"{_call(fault, self.workload.name)}, points=[{fault.n}]{extra}): {describe(fault)} {at}"
        self.report.add(verdict, fault.n, recipe)


def _call(fault: Fault, name: str) -> str:
    """The call that replays a fault, without its last arguments."""
    if fault.mode in ("before", "after"):
        return f"kill_everywhere({name}, when=[{fault.mode!r}]"
    errnos = [errno.errorcode[fault.errno]] if fault.mode == "errno" else []
    return f"errno_everywhere({name}, errnos={errnos}, sticky=[{fault.sticky}], short_writes={not errnos}"


def _broken(outcome: Outcome) -> Verdict | None:
    """A child that hung or died of itself breaks a promise whatever it left on disk."""
    if outcome.end in ("hang", "crashed"):
        return Verdict(False, "crashed", f"{outcome.end}: {outcome.detail}")
    return None


def kill_everywhere(
    workload: Workload,
    folder_factory: FolderFactory = scratch,
    when: Sequence[str] = ("before", "after"),
    *,
    faults_during_recovery: bool = False,
    points: Sequence[int] | None = None,
    limit: int | None = None,
    seed: int = 0,
    timeout: float = CHILD_TIME,
) -> Report:
    """SIGKILL before and after every changing call until the work ends unharmed; each time reopen and check."""
    report = Report("kill at calls" + " + recovery" * faults_during_recovery, workload.name, seed)
    with Bench(report, workload, folder_factory, faults_during_recovery, timeout) as bench:
        bench.sweep([Fault(mode) for mode in when], points, limit)
    return report.done()


def errno_everywhere(
    workload: Workload,
    folder_factory: FolderFactory = scratch,
    errnos: Sequence[str] = ERRNOS,
    *,
    sticky: Sequence[bool] = (False, True),
    short_writes: bool = True,
    faults_during_recovery: bool = False,
    points: Sequence[int] | None = None,
    limit: int | None = None,
    seed: int = 0,
    timeout: float = CHILD_TIME,
) -> Report:
    """An error or a short write at every changing call, once and for ever after; each time reopen and check."""
    report = Report("errno at calls" + " + recovery" * faults_during_recovery, workload.name, seed)
    faults = [Fault("errno", 0, getattr(errno, name), keep) for name in errnos for keep in sticky]
    faults += [Fault("short", sticky=keep) for keep in sticky if short_writes]
    with Bench(report, workload, folder_factory, faults_during_recovery, timeout) as bench:
        bench.sweep(faults, points, limit)
    return report.done()


# -- strace ----------------------------------------------------------------------------------------------------------

MUTATING = (
    *(
        "write",
        "pwrite64",
        "writev",
        "pwritev",
        "fsync",
        "fdatasync",
        "ftruncate",
        "fallocate",
        "open",
        "openat",
        "creat",
    ),
    *("rename", "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat", "rmdir", "mkdir", "mkdirat"),
)
CALL = re.compile(r"^(\d+)\s+(\w+)\(")


class Strike(NamedTuple):
    """SIGKILL before the n-th call of one syscall, counted from the begin of the work."""

    call: str
    n: int


@functools.cache
def strace_available() -> Available:
    """Whether strace is here and may trace; if not, why in one line."""
    if not sys.platform.startswith("linux"):
        return Available(False, f"strace needs Linux, this is {sys.platform}")
    strace = shutil.which("strace")
    if not strace:
        return Available(False, "strace is not installed (package strace)")
    tried = subprocess.run([strace, "-qq", "-o", "/dev/null", "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        return Available(False, f"strace may not trace here: {tried.stderr.strip()}")
    return Available(True, "")


def tracer(calls: str, output: str, *more: str) -> list[str]:
    """The strace command; `--seccomp-bpf` must stay away, with it no signal is injected."""
    return ["strace", "-f", "-o", output, "-e", "signal=none", "-e", f"trace={calls}", *more]


def strikes(server: ForkServer, template: Path, factory: FolderFactory) -> list[Strike]:
    """Every changing syscall of a clean run, counted per process and name as strace counts them."""
    with folder_from(factory, template) as folder, folder_from(scratch) as beside:
        listing = beside / "calls"
        server.clean_work(folder, tracer=tracer(",".join(f"?{name}" for name in MUTATING), str(listing)))
        return list(dict.fromkeys(_strikes(listing.read_text(errors="replace").splitlines())))


def _strikes(lines: Sequence[str]) -> Iterator[Strike]:
    seen: Counter[tuple[str, str]] = Counter()
    for found in filter(None, map(CALL.match, lines)):
        seen[found[1], found[2]] += 1
        yield Strike(found[2], seen[found[1], found[2]])


def strace_everywhere(
    workload: Workload,
    folder_factory: FolderFactory = scratch,
    *,
    points: Sequence[tuple[str, int]] | None = None,
    limit: int | None = 300,
    seed: int = 0,
    timeout: float = CHILD_TIME,
) -> Report:
    """SIGKILL before changing syscalls by strace, no shim involved: at most `limit` points, a seeded sample of all."""
    if not (can := strace_available()):
        raise LabError(can.why)
    report = Report("kill by strace", workload.name, seed)
    with folder_from(folder_factory) as template, ForkServer(workload, timeout, preload=False) as server:
        server.prepare(template)
        plan = [Strike(*point) for point in points or strikes(server, template, folder_factory)]
        if limit is not None and len(plan) > limit:
            report.note(f"{limit} of {len(plan)} points, sampled by the seed")
            plan = sorted(random.Random(seed).sample(plan, limit))
        for number, strike in enumerate(plan, 1):
            with folder_from(folder_factory, template) as folder:
                _strike(report, server, folder, strike, number)
    return report.done()


def _strike(report: Report, server: ForkServer, folder: Path, strike: Strike, number: int) -> None:
    inject = f"inject={strike.call}:signal=KILL:when={strike.n}"
    outcome = server.traced_work(folder, tracer(strike.call, "/dev/null", "-e", inject))
    recipe = f"strace_everywhere({report.workload}, points=[{tuple(strike)!r}])"
    if broken := _broken(outcome):
        report.add(broken, number, recipe)
    elif outcome.end == "killed":
        report.add(judge(server.check(folder, outcome.acked)), number, recipe)

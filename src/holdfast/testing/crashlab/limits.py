"""A resource runs out while a workload works: disk space, file size, descriptors, the right to write. Then it comes back.

Mounts need root and Linux; `available` says in one line what is missing. All mounts are made in a private mount namespace of
a forked child, so they end with it, however it ends.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from holdfast.core.named import NamedTuple
from holdfast.testing.crashlab.bytecode import (
    OURS,
    WHOLE,
    WHOLE_OR_REFUSED,
    Bench,
    Ending,
    Fault,
    Tell,
    Typed,
    bench,
    check_apart,
    in_child,
    judge,
    nothing,
    suffer,
)
from holdfast.testing.crashlab.workload import Available, Report, Verdict, Workload

ROOMS = (0, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192)
FILE_SIZES = (0, 512, 4096, 8192, 12288, 16384, 20480, 32768, 65536, 131072, 262144)
SPARE_FILES = tuple(range(16))
KILLED_AFTER = (1, 2, 3, 5, 8)
# which modes to take away -> (folder mode, file mode); None leaves it as it is
CLOSED: dict[str, tuple[int | None, int | None]] = {
    "folder": (0o555, None),
    "files": (None, 0o444),
    "both": (0o555, 0o444),
    "unreadable": (None, 0o000),
    "locked out": (0o000, None),
}
PLENTY = "size=256m"
CLONE_NEWNS = 0x20000
CAPABILITY_VERSION_3 = 0x20080522
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2


class Rules(NamedTuple):
    """What every limit technique shares: the typed errors, the legal verdicts after relief, where and how long."""

    typed: Typed = OURS
    allowed: frozenset[str] = WHOLE
    scratch: Path | None = None
    timeout: float = 30.0


RULES = Rules()


def available() -> Available:
    """Whether this process may mount a tmpfs (the techniques without a mount always work)."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return Available(False, "mounting needs root, so disk-full and read-only mounts are skipped")
    if in_child(lambda tell: own_mounts()).last("error"):
        return Available(False, "this machine does not let us mount, so disk-full and read-only mounts are skipped")
    return Available(True, "")


def run_tool(*argv: str) -> None:
    """Run a system tool; its own words become the error."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"`{' '.join(argv)}` failed: {done.stderr.strip()}")


def kernel(call: str, *arguments: object) -> None:
    """A system call that Python does not offer, by its name in the C library."""
    if getattr(ctypes.CDLL(None, use_errno=True), call)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


def own_mounts() -> None:
    """Put this process into a mount namespace of its own: nobody else sees its mounts, and they end with it."""
    kernel("unshare", CLONE_NEWNS)
    run_tool("mount", "--make-rprivate", "/")


@contextmanager
def mounted(place: Path, kind: str, options: str, source: str = "crashlab") -> Iterator[Path]:
    """A file system at `place`, unmounted at the end whatever happened."""
    place.mkdir(exist_ok=True)
    run_tool("mount", "-t", kind, "-o", options, source, str(place))
    try:
        yield place
    finally:
        run_tool("umount", str(place))


def remount(place: Path, options: str) -> None:
    """Change the options of a mount."""
    run_tool("mount", "-o", f"remount,{options}", str(place))


# --- each limit as a list of points --------------------------------------------------------------------------------------


Run = Callable[[Bench, int], tuple[Ending, Verdict]]


def _in_own_mounts(run: Run, rules: Rules) -> Run:
    """The same run in a child with mounts of its own, so that none is left even if this process is killed."""

    def apart(place: Bench, point: int) -> tuple[Ending, Verdict]:
        def job(tell: Tell) -> None:
            own_mounts()
            ending, verdict = run(place, point)
            tell("result", json.dumps([ending.how, ending.told, verdict]))

        outer = in_child(job, 4 * rules.timeout)
        if not outer.last("result"):
            raise RuntimeError(f"the laboratory itself ended by {outer.how}: {outer.last('error')}")
        how, told, verdict = json.loads(outer.last("result"))
        return Ending(how, tuple((kind, text) for kind, text in told)), Verdict(*verdict)

    return apart


def _under(
    technique: str,
    workload: Workload,
    rules: Rules,
    points: Sequence[int],
    run: Run,
    recipe: str,
) -> Report:
    report = Report(technique, workload.name)
    hit = 0
    with bench(workload, rules.scratch) as place:
        for point in points:
            ending, verdict = run(place, point)
            hit += ending.last("work") != "done"
            report.add(verdict, point, recipe.format(point))
    report.note(f"the limit was felt at {hit} of {len(points)} points")
    return report.done()


def _skipped(technique: str, workload: Workload, why: str) -> Report:
    report = Report(technique, workload.name)
    report.note(why)
    return report.done()


def full_disk(workload: Workload, rooms: Sequence[int] = ROOMS, rules: Rules = RULES) -> Report:
    """A tmpfs with so many KiB left over; after it has grown the store must hold all that was acknowledged."""
    if not (usable := available()):
        return _skipped("disk full", workload, usable.why)

    def run(place: Bench, room: int) -> tuple[Ending, Verdict]:
        with mounted(place.root / "disk", "tmpfs", PLENTY) as disk:
            folder = disk / "store"
            ending = _on_disk(workload, place, folder, room, rules)
            return ending, judge(workload, folder, ending, rules.allowed, rules.timeout)

    return _under("disk full", workload, rules, rooms, _in_own_mounts(run, rules), "full_disk(workload, [{}])")


def _on_disk(workload: Workload, place: Bench, folder: Path, room: int, rules: Rules) -> Ending:
    disk = folder.parent
    run_tool("cp", "-a", str(place.template), str(folder))
    fault = Fault(lambda tell: remount(disk, f"size={_used(disk) + room}k"), lambda: remount(disk, PLENTY))
    ending = suffer(workload, folder, fault, rules.typed, rules.timeout)
    remount(disk, PLENTY)
    return ending


def _used(disk: Path) -> int:
    facts = os.statvfs(disk)
    return (facts.f_blocks - facts.f_bfree) * facts.f_frsize // 1024


def read_only_mount(workload: Workload, killed_after: Sequence[int] = KILLED_AFTER, rules: Rules = RULES) -> Report:
    """A store left by a killed writer is looked at on a read-only mount, worked on there, and again after `remount,rw`.

    Point 0 is an idle store. While read-only the check may refuse; it may never say that less was there.
    """
    if not (usable := available()):
        return _skipped("read-only mount", workload, usable.why)

    def run(place: Bench, after: int) -> tuple[Ending, Verdict]:
        with mounted(place.root / "disk", "tmpfs", PLENTY) as disk:
            run_tool("cp", "-a", str(place.template), str(disk / "store"))
            return _read_only(workload, disk, after, rules)

    points = (0, *killed_after)
    return _under(
        "read-only mount", workload, rules, points, _in_own_mounts(run, rules), "read_only_mount(workload, [{}])"
    )


def _read_only(workload: Workload, disk: Path, after: int, rules: Rules) -> tuple[Ending, Verdict]:
    folder = disk / "store"
    killed = left_by_kill(workload, folder, after, rules.timeout)
    remount(disk, "ro")
    try:
        seen = check_apart(workload, folder, killed.acked, rules.timeout)
        ending = suffer(workload, folder, Fault(lambda tell: None, nothing), rules.typed, rules.timeout)
    finally:
        remount(disk, "rw")
    if seen.kind not in WHOLE_OR_REFUSED:
        return ending, seen._replace(ok=False, detail=f"while read-only: {seen.detail}")
    merged = ending._replace(told=killed.told + ending.told)
    return ending, judge(workload, folder, merged, rules.allowed, rules.timeout)


def left_by_kill(workload: Workload, folder: Path, after: int, timeout: float = 30.0) -> Ending:
    """Work in a prepared folder until the ack number `after`, then die by SIGKILL; 0 does not work at all."""

    def job(tell: Tell) -> None:
        told = 0

        def ack(label: str) -> None:
            nonlocal told
            told += 1
            tell("ack", label)
            if told == after:
                os.kill(os.getpid(), signal.SIGKILL)

        workload.work(folder, ack)

    return in_child(job, timeout) if after else Ending("exit", ())


def file_size(workload: Workload, sizes: Sequence[int] = FILE_SIZES, rules: Rules = RULES) -> Report:
    """No file may grow over so many bytes (RLIMIT_FSIZE)."""
    return _limited(workload, "file size", resource.RLIMIT_FSIZE, sizes, lambda size: size, rules, "file_size")


def few_files(workload: Workload, spare: Sequence[int] = SPARE_FILES, rules: Rules = RULES) -> Report:
    """Only so many more files may be opened (RLIMIT_NOFILE)."""
    return _limited(workload, "open files", resource.RLIMIT_NOFILE, spare, _above_open, rules, "few_files")


def _above_open(spare: int) -> int:
    handle = os.open(os.devnull, os.O_RDONLY)
    os.close(handle)
    return handle + spare


def _limited(
    workload: Workload,
    technique: str,
    what: int,
    points: Sequence[int],
    value: Callable[[int], int],
    rules: Rules,
    name: str,
) -> Report:
    soft, hard = resource.getrlimit(what)

    def begin(point: int) -> None:
        sys.dont_write_bytecode = True  # a module that is loaded now would be kept cut off, and break who loads it next
        resource.setrlimit(what, (value(point), hard))

    def run(place: Bench, point: int) -> tuple[Ending, Verdict]:
        fault = Fault(lambda tell: begin(point), lambda: resource.setrlimit(what, (soft, hard)))
        with place.copy() as folder:
            ending = suffer(workload, folder, fault, rules.typed, rules.timeout)
            return ending, judge(workload, folder, ending, rules.allowed, rules.timeout)

    return _under(technique, workload, rules, points, run, name + "(workload, [{}])")


def closed_modes(workload: Workload, ways: Sequence[str] = tuple(CLOSED), rules: Rules = RULES) -> Report:
    """The folder, its files or both lose their write (or all) permission; a root process gives up its override first."""

    def run(place: Bench, point: int) -> tuple[Ending, Verdict]:
        with place.copy() as folder:
            ending = _closed(workload, folder, ways[point], rules)
            return ending, judge(workload, folder, ending, rules.allowed, rules.timeout)

    recipe = f"closed_modes(workload, [{list(ways)!r}[{{}}]])"
    return _under("closed modes", workload, rules, range(len(ways)), run, recipe)


def _closed(workload: Workload, folder: Path, way: str, rules: Rules) -> Ending:
    before = {path: path.stat().st_mode & 0o7777 for path in (folder, *folder.rglob("*"))}
    for path in reversed(before):
        mode = CLOSED[way][0 if path.is_dir() else 1]
        if mode is not None:
            path.chmod(mode)
    try:
        return suffer(workload, folder, Fault(lambda tell: obey_modes(), nothing), rules.typed, rules.timeout)
    finally:
        for path, mode in before.items():
            path.chmod(mode)


def obey_modes() -> None:
    """Make this process obey file modes for good, also as root: gives up the two capabilities that override them."""
    if os.geteuid() != 0:
        return
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()
    kernel("capget", header, sets)
    kept = ~(1 << CAP_DAC_OVERRIDE | 1 << CAP_DAC_READ_SEARCH)
    for place in range(3):
        sets[place] &= kept
    kernel("capset", header, sets)


def all_limits(workload: Workload, rules: Rules = RULES) -> list[Report]:
    """Every limit with its usual points."""
    return [
        technique(workload, rules=rules)
        for technique in (full_disk, read_only_mount, file_size, few_files, closed_modes)
    ]

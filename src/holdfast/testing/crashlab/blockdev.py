"""Power loss on a real ext4: a disk that logs every write and flush, and images of what it could have held when power went.

The disk is one file served over /dev/fuse by a forked child; ext4 lives on it through a loop device. All mounts are made in a
private mount namespace of a forked child, so they end with it, however it ends. It refuses without root and Linux.
"""

from __future__ import annotations

import json
import os
import random
import select
import shutil
import signal
import socket
import stat
import struct
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from holdfast.core.named import NamedTuple
from holdfast.testing.crashlab import limits
from holdfast.testing.crashlab.bytecode import WHOLE, Ending, Tell, check_apart, in_child, in_memory
from holdfast.testing.crashlab.limits import kernel, mounted, own_mounts, run_tool
from holdfast.testing.crashlab.workload import Available, Report, Verdict, Workload

MIB = 1 << 20
SECTOR = 512
PR_SET_PDEATHSIG = 1
ENOSYS, ENOENT = 38, 2
BEGIN = "begin"
TOOLS = ("mount", "umount", "mkfs.ext4", "sync")
MKFS = ("mkfs.ext4", "-q", "-F", "-m", "0", "-J", "size=4", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard")


def available() -> Available:
    """Whether this machine can serve and mount such a disk."""
    if not (usable := limits.available()):
        return Available(False, usable.why.replace("disk-full and read-only mounts are", "power loss on ext4 is"))
    missing = [device for device in ("/dev/fuse", "/dev/loop-control") if not Path(device).exists()]
    missing += [tool for tool in TOOLS if shutil.which(tool) is None]
    return Available(
        not missing, f"{' and '.join(missing)} missing, so power loss on ext4 is skipped" if missing else ""
    )


# --- the log of a disk ---------------------------------------------------------------------------------------------------


class Entry(NamedTuple):
    """One line of the disk's log: `write` (at, data), `flush`, or `mark` (data is the label)."""

    kind: str
    at: int
    data: bytes


KINDS = ("write", "flush", "mark")
HEAD = struct.Struct("<BQI")


def read_log(path: Path) -> list[Entry]:
    """All entries that the disk has logged so far."""
    data, place, entries = path.read_bytes(), 0, []
    while place < len(data):
        kind, at, length = HEAD.unpack_from(data, place)
        place += HEAD.size
        entries.append(Entry(KINDS[kind], at, data[place : place + length]))
        place += length
    return entries


# --- the disk: one file over the kernel's FUSE protocol ------------------------------------------------------------------

ROOT, FILE = 1, 2
REQUEST = struct.Struct("<IIQQIIIHH")
REPLY = struct.Struct("<IiQ")
ATTRIBUTES = struct.Struct("<QQQQQQIIIIIIIIII")
INIT_FLAGS = 1 << 0 | 1 << 5 | 1 << 15 | 1 << 22  # async reads, big writes, async direct I/O, max_pages
DIRECT_IO = 1
MAX_WRITE = MIB
# INIT: version, readahead, flags, background 16, congestion 12, max_write, time granularity, pages, alignment, rest unused
INIT_REPLY = struct.Struct("<IIIIHHIIHH8I")


OPENED = struct.Struct("<QII")
# opcode -> the same answer always: None is no answer, bytes a body, a number an error
FIXED: dict[int, bytes | None] = {
    2: None,  # forget
    14: OPENED.pack(0, DIRECT_IO, 0),  # open the file: every write of the loop device comes straight to us
    17: struct.pack("<QQQQQIIII24x", 0, 0, 0, 0, 0, 4096, 255, 4096, 0),  # statfs
    18: b"",  # release
    25: b"",  # close, which makes nothing durable
    27: OPENED.pack(0, 0, 0),  # open the folder
    29: b"",  # release the folder
    36: None,  # interrupt
    38: b"",  # destroy
    42: None,  # forget many
}


class Disk:
    """Answers the kernel's requests for a folder with the one file `disk.img`, and logs what happens to it."""

    def __init__(self, device: int, size: int, log: int) -> None:
        self.device = device
        self.content = bytearray(size)
        self.log = log
        self.answers: dict[int, Callable[[int, bytes], bytes | int]] = {
            1: self._lookup, 3: self._attributes, 4: self._attributes, 15: self._read, 16: self._write, 20: self._flush,
            26: self._init,
        }  # fmt: skip

    def note(self, kind: str, at: int, data: bytes) -> None:
        os.writev(self.log, [HEAD.pack(KINDS.index(kind), at, len(data)), data])

    def serve_one(self) -> None:
        request = os.read(self.device, MAX_WRITE + 65536)
        _, opcode, unique, node, *_ = REQUEST.unpack_from(request)
        if opcode in self.answers:
            answer: bytes | int | None = self.answers[opcode](node, request[REQUEST.size :])
        else:
            answer = FIXED.get(opcode, ENOSYS)
        if answer is not None:
            error, body = (-answer, b"") if isinstance(answer, int) else (0, answer)
            os.write(self.device, REPLY.pack(REPLY.size + len(body), error, unique) + body)

    def _init(self, node: int, body: bytes) -> bytes:
        _, _, readahead, flags = struct.unpack_from("<IIII", body)
        zeros = (0,) * 8
        return INIT_REPLY.pack(7, 31, readahead, flags & INIT_FLAGS, 16, 12, MAX_WRITE, 1, MAX_WRITE // 4096, 0, *zeros)

    def _about(self, node: int) -> bytes:
        folder = node == ROOT
        mode = stat.S_IFDIR | 0o700 if folder else stat.S_IFREG | 0o600
        size = 0 if folder else len(self.content)
        return ATTRIBUTES.pack(node, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

    def _lookup(self, node: int, body: bytes) -> bytes | int:
        if body.rstrip(b"\0") != b"disk.img":
            return ENOENT
        return struct.pack("<QQQQII", FILE, 0, 3600, 3600, 0, 0) + self._about(FILE)

    def _attributes(self, node: int, body: bytes) -> bytes:
        return struct.pack("<QII", 3600, 0, 0) + self._about(node)

    def _read(self, node: int, body: bytes) -> bytes:
        _, at, size = struct.unpack_from("<QQI", body)
        return bytes(self.content[at : at + size])

    def _write(self, node: int, body: bytes) -> bytes:
        _, at, size = struct.unpack_from("<QQI", body)
        data = body[40 : 40 + size]
        self.content[at : at + size] = data
        self.note("write", at, data)
        return struct.pack("<II", size, 0)

    def _flush(self, node: int, body: bytes) -> bytes:
        self.note("flush", 0, b"")
        return b""


def _serve(device: int, size: int, log: int, control: socket.socket) -> None:
    """The life of the disk's process: requests of the kernel and marks of the workload, one at a time, in order."""
    try:
        kernel("prctl", PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        disk = Disk(device, size, log)
        poll = select.poll()
        poll.register(device, select.POLLIN)
        poll.register(control, select.POLLIN)
        while True:
            if device in {handle for handle, _ in poll.poll()}:
                disk.serve_one()
            else:
                disk.note("mark", 0, control.recv(65536))
                control.send(b"noted")
    finally:  # an error means that the disk was unmounted: there is nothing more to serve
        os._exit(0)


class Recorder(NamedTuple):
    """The running disk: its file, its log, and a way to put a mark into the log in order with its writes."""

    image: Path
    log: Path
    control: socket.socket

    def mark(self, label: str) -> None:
        self.control.send(label.encode())
        self.control.recv(16)


@contextmanager
def recorder(root: Path, size: int) -> Iterator[Recorder]:
    """A logging disk of `size` bytes, mounted under `root` in the caller's mount namespace."""
    place = root / "fuse"
    place.mkdir()
    log = os.open(root / "disk.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    kernel("mount", b"crashlab", os.fsencode(place), b"fuse", 0, options)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        ours.close()
        _serve(device, size, log, theirs)
    for handle in (device, log):
        os.close(handle)
    theirs.close()
    try:
        yield Recorder(place / "disk.img", root / "disk.log", ours)
    finally:
        subprocess.run(["umount", "-l", str(place)], capture_output=True, check=False)
        ours.close()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


# --- what the disk could hold after power loss ---------------------------------------------------------------------------


class Loss(NamedTuple):
    """Power goes after entry number `cut`; of the writes since the last flush only these sectors arrived."""

    cut: int
    way: str
    arrived: tuple[tuple[int, tuple[int, ...]], ...]


class Recording:
    """A disk's log from the mark `begin` on, over the content it had then."""

    def __init__(self, entries: Sequence[Entry], size: int) -> None:
        begin = next(i for i, entry in enumerate(entries) if entry.kind == "mark" and entry.data.decode() == BEGIN)
        content = bytearray(size)
        for entry in entries[:begin]:
            content[entry.at : entry.at + len(entry.data)] = entry.data if entry.kind == "write" else b""
        self.size = size
        self.entries = list(entries[begin + 1 :])
        self.base = [(at, bytes(content[at : at + 65536])) for at in range(0, size, 65536)]
        self.base = [(at, chunk) for at, chunk in self.base if chunk.strip(b"\0")]

    def acked(self, cut: int) -> list[str]:
        return [entry.data.decode() for entry in self.entries[:cut] if entry.kind == "mark"]

    def split(self, cut: int) -> tuple[list[int], list[int]]:
        """The numbers of the writes before the cut: those that a flush made durable, and those that float."""
        flushed = max((i for i in range(cut) if self.entries[i].kind == "flush"), default=-1)
        writes = [i for i in range(cut) if self.entries[i].kind == "write"]
        return [i for i in writes if i < flushed], [i for i in writes if i > flushed]

    def sectors(self, number: int) -> tuple[int, ...]:
        return tuple(range(0, len(self.entries[number].data), SECTOR))

    def build(self, loss: Loss, path: Path) -> None:
        """Write the image of this loss as a plain sparse file."""
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.ftruncate(handle, self.size)
            for at, chunk in self.base:
                os.pwrite(handle, chunk, at)
            for number in self.split(loss.cut)[0]:
                os.pwrite(handle, self.entries[number].data, self.entries[number].at)
            for entry, start in (
                (self.entries[number], start) for number, sectors in loss.arrived for start in sectors
            ):
                os.pwrite(handle, entry.data[start : start + SECTOR], entry.at + start)
        finally:
            os.close(handle)


def _arrivals(
    recording: Recording, floating: list[int], rng: random.Random, way: str
) -> Iterator[tuple[int, tuple[int, ...]]]:
    one = rng.choice(floating) if floating else -1
    for number in floating:
        sectors = recording.sectors(number)
        if way == "torn":
            yield number, tuple(at for at in sectors if rng.random() < 0.5)
        elif KEEPS[way](number == one, rng.random()):
            yield number, sectors


# way -> whether an unflushed write arrives, given whether it is the odd one out and a chance
KEEPS: dict[str, Callable[[bool, float], bool]] = {
    "none": lambda one, chance: False,
    "all": lambda one, chance: True,
    "without one": lambda one, chance: not one,
    "only one": lambda one, chance: one,
    "some": lambda one, chance: chance < 0.5,
}
LOSSES = (*KEEPS, "torn")


def losses(recording: Recording, images: int, seed: int, ways: Sequence[str] = LOSSES) -> list[Loss]:
    """Up to `images` distinct losses: half of the cuts right after a mark, where the most is promised, half anywhere."""
    rng = random.Random(seed)
    marks = [i + 1 for i, entry in enumerate(recording.entries) if entry.kind == "mark"]
    found: dict[tuple[object, ...], Loss] = {}
    for attempt in range(images * 10):
        anywhere = attempt % 2 or not marks
        cut = rng.randint(0, len(recording.entries)) if anywhere else rng.choice(marks)
        durable, floating = recording.split(cut)
        way = rng.choice(list(ways)) if floating else "none"
        arrived = tuple(_arrivals(recording, floating, rng, way))
        found.setdefault((len(durable), len(recording.acked(cut)), arrived), Loss(cut, way, arrived))
        if len(found) == images:
            break
    return list(found.values())


# --- the technique -------------------------------------------------------------------------------------------------------


def record(workload: Workload, root: Path, size: int, timeout: float) -> Recording:
    """Let the workload prepare and work on a fresh ext4 on a logging disk; call it with mounts of your own."""
    with ExitStack() as stack:
        disk = stack.enter_context(recorder(root, size))
        run_tool(*MKFS, str(disk.image))
        place = stack.enter_context(mounted(root / "live", "ext4", "loop", str(disk.image)))
        folder = place / "store"
        folder.mkdir()
        _quietly(lambda: workload.prepare(folder), "prepare", timeout)
        run_tool("sync", "-f", str(folder))
        disk.mark(BEGIN)
        _quietly(lambda: workload.work(folder, disk.mark), "work", timeout)
        entries = read_log(disk.log)
    return Recording(entries, size)


def _quietly(job: Callable[[], None], what: str, timeout: float) -> None:
    ending = in_child(lambda tell: job(), timeout)
    if ending.how != "exit" or ending.last("error"):
        raise RuntimeError(f"{what} on the logging disk ended by {ending.how}: {ending.last('error')}")


def look(workload: Workload, recording: Recording, loss: Loss, root: Path, timeout: float) -> Verdict:
    """Build the image of a loss, mount it (ext4 replays its log), and check what the workload finds."""
    image = root / "image"
    recording.build(loss, image)
    with mounted(root / "after", "ext4", "loop", str(image)) as place:
        return check_apart(workload, place / "store", recording.acked(loss.cut), timeout)


def ext4_power_loss(
    workload: Workload,
    *,
    images: int = 50,
    seed: int = 0,
    ways: Sequence[str] = LOSSES,
    size: int = 32 * MIB,
    allowed: frozenset[str] = WHOLE,
    keep: Path | None = None,
    scratch: Path | None = None,
    timeout: float = 60.0,
) -> Report:
    """Cut the power at up to `images` distinct places of one recorded run; with `keep`, violating images are saved there."""
    report = Report("power loss on ext4", workload.name, seed)
    if not (usable := available()):
        report.note(usable.why)
        return report.done()

    def job(tell: Tell) -> None:
        own_mounts()
        recording = record(workload, place, size, timeout)
        tell("note", f"logged: {dict(Counter(entry.kind for entry in recording.entries))}")
        for point, loss in enumerate(losses(recording, images, seed, ways), 1):
            verdict = look(workload, recording, loss, place, timeout)
            verdict = verdict._replace(ok=verdict.ok and verdict.kind in allowed)
            tell("point", json.dumps([verdict, _recipe(place, loss, point, seed, verdict, keep)]))

    with tempfile.TemporaryDirectory(prefix="crashlab-", dir=scratch or in_memory()) as root:
        place = Path(root)
        ending = in_child(job, timeout)
    return _reported(report, ending)


def _reported(report: Report, ending: Ending) -> Report:
    if ending.how != "exit" or ending.last("error"):
        raise RuntimeError(f"the laboratory itself ended by {ending.how}: {ending.last('error')}")
    for point, text in enumerate(ending.all("point"), 1):
        verdict, recipe = json.loads(text)
        report.add(Verdict(*verdict), point, recipe)
    for text in ending.all("note"):
        report.note(text)
    return report.done()


def _recipe(root: Path, loss: Loss, point: int, seed: int, verdict: Verdict, keep: Path | None) -> str:
    text = f"ext4_power_loss(workload, seed={seed})  # cut after entry {loss.cut}, unflushed writes kept: {loss.way}"
    if verdict.ok or keep is None:
        return text
    saved = shutil.copy(root / "image", keep / f"ext4-seed{seed}-{point}.img")
    return f"{text}; the image after the check: mount -o loop {saved}"

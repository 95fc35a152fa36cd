"""The techniques of the crash laboratory find planted bugs in a toy store, and nothing in the toy without them."""

from __future__ import annotations

import hashlib
import os
import select
import signal
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import apsw
import pytest

from holdfast.testing.crashlab import blockdev, bytecode, clocks, flips, limits, memory
from holdfast.testing.crashlab.workload import Report, Verdict

pytestmark = pytest.mark.crash

HERE = [__file__]
SLOT = struct.Struct("<Q32s")
START = bytes(32)
Apart = Callable[..., Any]


class Refused(Exception):
    """The toy will not go on with this folder."""


TYPED = (Refused, apsw.Error, OSError)
RULES = limits.Rules(typed=TYPED)


def chained(before: bytes, label: str) -> bytes:
    return hashlib.sha256(before + label.encode()).digest()


class Witness:
    """Two slots with the newest sequence number and hash; a torn or damaged slot leaves the other."""

    def __init__(self, path: Path) -> None:
        self.handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def write(self, seq: int, digest: bytes) -> None:
        body = SLOT.pack(seq, digest)
        os.pwrite(self.handle, body + struct.pack("<I", zlib.crc32(body)), seq % 2 * 512)

    def slots(self) -> Iterator[tuple[int, bytes]]:
        for at in (0, 512):
            data = os.pread(self.handle, SLOT.size + 4, at)
            if len(data) == SLOT.size + 4 and zlib.crc32(data[:-4]) == struct.unpack("<I", data[-4:])[0]:
                yield SLOT.unpack(data[:-4])

    def newest(self) -> tuple[int, bytes]:
        found = list(self.slots())
        if not found:
            raise Refused("the witness is not readable")
        return max(found)


class Toy:
    """A hash-chained log in SQLite with a witness beside it."""

    def __init__(self, folder: Path, synchronous: str = "FULL", witness: bool = True, tidy: bool = True) -> None:
        self.db = apsw.Connection(str(folder / "toy.db"))
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute(f"PRAGMA synchronous={synchronous}")
        self.db.execute("CREATE TABLE IF NOT EXISTS log(seq INTEGER PRIMARY KEY, label TEXT, hash BLOB) STRICT")
        self.witness = Witness(folder / "witness") if witness else None
        self.tidy = tidy

    def head(self) -> tuple[int, bytes]:
        return next(self.db.execute("SELECT seq, hash FROM log ORDER BY seq DESC LIMIT 1"), (0, START))

    def append(self, label: str) -> None:
        if self.tidy and self.db.in_transaction:
            self.db.execute("ROLLBACK")
        self.db.execute("BEGIN IMMEDIATE")
        seq, digest = self.head()
        new = (seq + 1, label, chained(digest, label))
        self.db.execute("INSERT INTO log VALUES(?, ?, ?)", new)
        self.db.execute("COMMIT")
        if self.witness:
            self.witness.write(seq + 1, new[2])

    def labels(self) -> list[str]:
        before, labels = START, []
        hashes = {0: START}
        for expected, (seq, label, digest) in enumerate(self.db.execute("SELECT * FROM log ORDER BY seq"), 1):
            before = hashes[seq] = chained(before, label)
            if seq != expected or digest != before:
                raise Refused(f"the chain breaks at {seq}")
            labels.append(label)
        if self.witness and hashes.get((newest := self.witness.newest())[0]) != newest[1]:
            raise Refused("the witness knows of events that the log does not have")
        return labels


class ToyWorkload:
    """Appends with the toy; the flags plant bugs."""

    name = "toy"
    appends = 3

    def __init__(self, synchronous: str = "FULL", witness: bool = True, tidy: bool = True) -> None:
        self.ways = (synchronous, witness, tidy)
        self.toy: Toy | None = None

    def prepare(self, folder: Path) -> None:
        toy = Toy(folder, *self.ways)
        if toy.witness:
            toy.witness.write(0, START)
        toy.db.close()

    def one(self, label: str, ack: Callable[[str], None]) -> None:
        assert self.toy
        self.toy.append(label)
        ack(label)

    def work(self, folder: Path, ack: Callable[[str], None]) -> None:
        self.toy = Toy(folder, *self.ways)
        for number in range(self.appends):
            self.one(f"label {number}", ack)

    def check(self, folder: Path, acked: Sequence[str]) -> Verdict:
        try:
            labels = Toy(folder, *self.ways).labels()
        except TYPED as error:
            return Verdict(True, "refused", repr(error))
        if missing := [label for label in acked if label not in labels]:
            return Verdict(False, "lost", f"{missing} not in {labels}")
        if len(set(labels)) != len(labels):
            return Verdict(False, "doubled", f"{labels}")
        return Verdict(True, "whole", "")


class Patient(ToyWorkload):
    """Appends once more after an interruption, with the same open connection."""

    def again(self, ack: Callable[[str], None]) -> None:
        if self.toy is None:
            raise Refused("it never opened")
        self.one("again", ack)


class Hasty(ToyWorkload):
    """Planted bug: acknowledges before the commit."""

    def one(self, label: str, ack: Callable[[str], None]) -> None:
        ack(label)
        super().one(label, lambda label: None)


class Deaf(ToyWorkload):
    """Planted bug: takes every failure for success."""

    appends = 12

    def one(self, label: str, ack: Callable[[str], None]) -> None:
        try:
            super().one(label, lambda label: None)
        except (apsw.Error, OSError, MemoryError):
            self.failed = True
        ack(label)


class Rude(ToyWorkload):
    """Planted bug: lets an error out that names nothing."""

    appends = 12

    def one(self, label: str, ack: Callable[[str], None]) -> None:
        try:
            super().one(label, ack)
        except TYPED as error:
            raise ZeroDivisionError from error


def kinds(report: Report) -> set[str]:
    return {violation.kind for violation in report.violations}


def clean(report: Report, points: int = 1) -> None:
    assert report.violations == []
    assert report.points >= points
    assert report.counts["whole"] > 0


# --- bytecode ------------------------------------------------------------------------------------------------------------


def test_a_kill_at_any_bytecode_of_the_toy_loses_nothing(apart: Apart) -> None:
    clean(apart(bytecode.bytecode_points, ToyWorkload(), HERE, "kill", limit=120, seed=1, typed=TYPED), 120)


def test_an_interrupt_at_any_bytecode_leaves_objects_that_work_or_refuse(apart: Apart) -> None:
    clean(apart(bytecode.bytecode_points, Patient(), HERE, "interrupt", limit=120, seed=1, typed=TYPED), 120)


def test_an_ack_before_the_commit_is_found_by_a_kill_and_can_be_replayed(apart: Apart) -> None:
    found = apart(bytecode.bytecode_points, Hasty(), HERE, "kill", limit=60, seed=1, typed=TYPED)
    assert kinds(found) == {"lost"}
    first = found.violations[0]
    replayed = apart(bytecode.bytecode_points, Hasty(), HERE, "kill", points=[first.point], typed=TYPED)
    assert [(violation.point, violation.kind) for violation in replayed.violations] == [(first.point, "lost")]
    assert "test_crashlab_points.py" in first.recipe


def test_a_transaction_left_open_by_an_interrupt_is_found(apart: Apart) -> None:
    work, typed = Patient(tidy=False), (Refused,)
    found = apart(bytecode.bytecode_points, work, HERE, "interrupt", limit=120, seed=1, typed=typed)
    assert kinds(found) == {"crashed"}
    assert "within a transaction" in found.violations[0].detail


def test_the_choice_of_points_follows_the_seed() -> None:
    assert bytecode.sample(1000, 10, 1) == bytecode.sample(1000, 10, 1) != bytecode.sample(1000, 10, 2)
    assert bytecode.sample(5, None, 1) == bytecode.sample(5, 9, 1) == [1, 2, 3, 4, 5]


def test_sources_that_never_run_are_refused() -> None:
    with pytest.raises(ValueError, match="no bytecode ran"):
        bytecode.bytecode_points(ToyWorkload(), ["/no/such/folder"], typed=TYPED)


def test_a_child_that_hangs_is_ended_and_named() -> None:
    def job(tell: bytecode.Tell) -> None:
        tell("ack", "a")
        signal.pause()

    ending = bytecode.in_child(job, timeout=0.2)
    assert (ending.how, ending.acked) == ("hung", ("a",))


def test_a_child_keeps_what_it_told_before_it_was_killed() -> None:
    def job(tell: bytecode.Tell) -> None:
        tell("ack", "a")
        os.kill(os.getpid(), signal.SIGKILL)

    ending = bytecode.in_child(job)
    assert (ending.how, ending.acked) == ("signal 9", ("a",))


def test_a_checker_that_raises_is_a_crash() -> None:
    class Blind(ToyWorkload):
        def check(self, folder: Path, acked: Sequence[str]) -> Verdict:
            raise LookupError("I see nothing")

    verdict = bytecode.check_apart(Blind(), Path("."), [])
    assert (verdict.kind, verdict.ok) == ("crashed", False)
    assert "I see nothing" in verdict.detail


# --- memory --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def can_fail_allocations() -> None:
    if not (usable := memory.available()):
        pytest.skip(usable.why)


@pytest.mark.usefixtures("can_fail_allocations")
def test_a_failed_allocation_loses_nothing(apart: Apart) -> None:
    clean(apart(memory.memory_points, Patient(), limit=150, seed=1, typed=TYPED), 150)


@pytest.mark.usefixtures("can_fail_allocations")
def test_a_swallowed_memory_error_is_found(apart: Apart) -> None:
    assert "lost" in kinds(apart(memory.memory_points, Deaf(), limit=100, seed=1, typed=TYPED))


# --- limits --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def can_mount() -> None:
    if not (usable := limits.available()):
        pytest.skip(usable.why)


@pytest.mark.root
@pytest.mark.usefixtures("can_mount")
def test_the_toy_survives_a_full_disk_and_a_read_only_one() -> None:
    for report in (limits.full_disk(Patient(), rules=RULES), limits.read_only_mount(ToyWorkload(), rules=RULES)):
        clean(report, 5)
        assert "felt at 0 " not in report.notes[-1]


@pytest.mark.root
@pytest.mark.usefixtures("can_mount")
def test_a_program_that_does_not_hear_of_a_full_disk_is_found() -> None:
    assert kinds(limits.full_disk(Deaf(), [40, 60], RULES)) == {"lost"}


@pytest.mark.root
@pytest.mark.usefixtures("can_mount")
def test_no_mount_is_left_behind() -> None:
    us = os.getpid()

    class Dying(ToyWorkload):
        def work(self, folder: Path, ack: Callable[[str], None]) -> None:
            if os.getppid() != us:
                os.kill(os.getppid(), signal.SIGKILL)

    with pytest.raises(RuntimeError, match="the laboratory itself ended by signal 9"):
        limits.full_disk(Dying(), [0], RULES)
    assert "crashlab" not in Path("/proc/self/mounts").read_text()


@pytest.mark.parametrize("technique", [limits.file_size, limits.few_files, limits.closed_modes])
def test_the_toy_survives_each_limit_of_its_process(technique: Callable[..., Report]) -> None:
    report = technique(Patient(), rules=RULES)
    clean(report, 5)
    assert "felt at 0 " not in report.notes[-1]


def test_a_program_that_does_not_hear_of_a_file_too_large_is_found() -> None:
    assert kinds(limits.file_size(Deaf(), [32768, 40000], RULES)) == {"lost"}


def test_an_error_that_names_nothing_is_found() -> None:
    found = limits.file_size(Rude(), [32768, 40000], RULES)
    assert kinds(found) == {"crashed"}
    assert "ZeroDivisionError" in found.violations[0].detail


# --- flips ---------------------------------------------------------------------------------------------------------------


def test_no_damage_to_a_crashed_store_goes_unseen(tmp_path: Path) -> None:
    toy = ToyWorkload()
    acked = flips.crashed_store(toy, tmp_path, 3)
    assert len(acked) == 3
    ways = ("flip", "cut", "zero", "remove")
    report = flips.flips(toy, tmp_path, acked, ["toy.db", "*-wal", "witness"], limit=600, ways=ways, seed=1)
    assert (report.points, report.violations) == (600, [])
    assert report.counts["whole"] and report.counts["refused"]


def test_no_damage_to_a_finished_store_goes_unseen(tmp_path: Path) -> None:
    toy = ToyWorkload()
    acked = flips.finished_store(toy, tmp_path)
    report = flips.flips(toy, tmp_path, acked, ["*"], limit=300, seed=1)
    assert (report.points, report.violations) == (300, [])


def test_without_a_witness_a_flip_in_a_leftover_wal_is_found_to_lose_the_tail(tmp_path: Path) -> None:
    toy = ToyWorkload(witness=False)
    acked = flips.crashed_store(toy, tmp_path, 3)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    found = flips.flips(toy, tmp_path, acked, ["*-wal"], limit=100, seed=1)
    assert kinds(found) == {"lost"}
    assert len(found.violations) > 50
    again = flips.flips(toy, tmp_path, acked, ["*-wal"], points=[found.violations[0].point], seed=1)
    assert again.violations == found.violations[:1]
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def test_a_checker_that_dies_of_damage_is_found_and_the_others_are_still_checked(tmp_path: Path) -> None:
    class Fragile(ToyWorkload):
        def check(self, folder: Path, acked: Sequence[str]) -> Verdict:
            if (folder / "witness").stat().st_size < 100:
                os.kill(os.getpid(), signal.SIGSEGV)
            return super().check(folder, acked)

    toy = Fragile()
    acked = flips.crashed_store(toy, tmp_path, 2)
    report = flips.flips(toy, tmp_path, acked, ["witness"], limit=40, ways=("cut",), seed=1)
    assert report.points == 40
    assert kinds(report) == {"crashed"}
    assert 0 < len(report.violations) < 40


def test_damage_needs_a_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no file with content"):
        flips.flips(ToyWorkload(), tmp_path, [], ["*-wal"])


# --- power loss on ext4 --------------------------------------------------------------------------------------------------


@pytest.fixture
def can_lose_power() -> None:
    if not (usable := blockdev.available()):
        pytest.skip(usable.why)


@pytest.mark.root
@pytest.mark.usefixtures("can_lose_power")
def test_power_loss_on_ext4_loses_nothing_that_was_flushed() -> None:
    clean(blockdev.ext4_power_loss(ToyWorkload(), images=40, seed=1), 20)


@pytest.mark.root
@pytest.mark.usefixtures("can_lose_power")
def test_a_commit_without_a_flush_is_lost_with_the_power(tmp_path: Path) -> None:
    found = blockdev.ext4_power_loss(ToyWorkload("NORMAL", witness=False), images=20, seed=1, keep=tmp_path)
    assert kinds(found) == {"lost"}
    assert list(tmp_path.glob("*.img"))


@pytest.mark.root
@pytest.mark.usefixtures("can_lose_power")
def test_a_failing_workload_leaves_no_mount_and_no_loop_device(tmp_path: Path) -> None:
    class Broken(ToyWorkload):
        def work(self, folder: Path, ack: Callable[[str], None]) -> None:
            raise LookupError("planted")

    with pytest.raises(RuntimeError, match="planted"):
        blockdev.ext4_power_loss(Broken(), images=1, scratch=tmp_path)
    assert "crashlab" not in Path("/proc/self/mounts").read_text()
    assert not [
        path for path in Path("/sys/block").glob("loop*/loop/backing_file") if str(tmp_path) in path.read_text()
    ]
    assert list(tmp_path.iterdir()) == []


def test_an_image_holds_what_was_flushed_and_only_the_chosen_rest(tmp_path: Path) -> None:
    entries = [
        blockdev.Entry("write", 0, b"o" * 512),
        blockdev.Entry("mark", 0, b"begin"),
        blockdev.Entry("write", 512, b"a" * 512),
        blockdev.Entry("flush", 0, b""),
        blockdev.Entry("mark", 0, b"first"),
        blockdev.Entry("write", 0, b"b" * 1024),
    ]
    recording = blockdev.Recording(entries, 2048)
    assert recording.split(4) == ([0], [3])
    assert (recording.acked(2), recording.acked(4)) == ([], ["first"])
    recording.build(blockdev.Loss(4, "torn", ((3, (0,)),)), tmp_path / "image")
    assert (tmp_path / "image").read_bytes() == b"b" * 512 + b"a" * 512 + bytes(1024)
    recording.build(blockdev.Loss(1, "none", ()), tmp_path / "image")
    assert (tmp_path / "image").read_bytes() == b"o" * 512 + bytes(1536)


def test_losses_are_distinct_and_follow_the_seed() -> None:
    entries = [blockdev.Entry("mark", 0, b"begin"), *(blockdev.Entry("write", at * 512, b"x" * 512) for at in range(6))]
    recording = blockdev.Recording(entries, 4096)
    some = blockdev.losses(recording, 30, 1)
    assert some == blockdev.losses(recording, 30, 1) != blockdev.losses(recording, 30, 2)
    assert len({loss.arrived for loss in some}) == len(some) > 10


# --- clocks --------------------------------------------------------------------------------------------------------------

TELLS_THE_TIME = "import sys, time\nfor line in sys.stdin: print(time.time(), time.monotonic(), flush=True)"


def ask(child: subprocess.Popen[str]) -> IO[str]:
    assert child.stdin
    assert child.stdout
    print("now?", file=child.stdin, flush=True)
    return child.stdout


def now_of(child: subprocess.Popen[str]) -> tuple[float, float]:
    wall, steady = ask(child).readline().split()
    return float(wall), float(steady)


def no_more(child: subprocess.Popen[str]) -> None:
    assert child.stdin
    child.stdin.close()


@pytest.mark.faketime
def test_a_jumping_clock_moves_the_wall_clock_of_a_running_child_and_nothing_else(tmp_path: Path) -> None:
    if not (usable := clocks.available()):
        pytest.skip(usable.why)
    clock = clocks.JumpingClock(tmp_path)

    with clock.start([sys.executable, "-c", TELLS_THE_TIME], os.environ) as child:
        before = now_of(child)
        clock.jump(10 * clocks.YEAR)
        after = now_of(child)
        clock.jump(-10 * clocks.YEAR)
        back = now_of(child)
        no_more(child)
    assert after[0] - before[0] == pytest.approx(10 * clocks.YEAR, abs=60)
    assert back[0] - before[0] == pytest.approx(-10 * clocks.YEAR, abs=60)
    assert 0 <= after[1] - before[1] < 60
    assert 0 <= back[1] - after[1] < 60


def test_a_missing_clock_library_is_named() -> None:
    assert clocks.available(["/no/such/place"]) == (False, "libfaketime is not installed, so clock jumps are skipped")


def test_a_paused_process_does_nothing_until_it_is_woken() -> None:
    with subprocess.Popen([sys.executable, "-c", TELLS_THE_TIME], stdin=-1, stdout=-1, text=True, bufsize=1) as child:
        assert now_of(child)
        with clocks.paused(child.pid):
            answers = ask(child)
            assert select.select([answers], [], [], 0.1)[0] == []
        assert answers.readline()
        no_more(child)


def test_pausing_a_process_that_is_gone_says_so() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    with pytest.raises(ProcessLookupError):
        clocks.pause(child.pid)

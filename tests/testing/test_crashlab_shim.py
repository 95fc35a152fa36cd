"""The laboratory on toy stores: the sound ones pass every technique, each planted bug is found by the named one."""

from __future__ import annotations

import errno
import hashlib
import os
import pickle
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import apsw
import pytest

from holdfast.testing.crashlab import (
    Fault,
    ForkServer,
    LabError,
    Report,
    Verdict,
    available,
    errno_everywhere,
    kill_everywhere,
    power_loss,
    power_loss_after_failed_sync,
    scratch,
    strace_available,
    strace_everywhere,
    table,
)
from holdfast.testing.crashlab.disk import (
    DATASYNC,
    MARK,
    OPEN,
    RENAME,
    SIZE,
    SYNC,
    WRITE,
    Base,
    Disk,
    Op,
    read_trace,
)
from holdfast.testing.crashlab.images import Choice, build, resolve, systematic
from holdfast.testing.crashlab.server import folder_from

EVENTS = 4
needs_shim = pytest.mark.skipif(not available(), reason=available().why)
needs_strace = pytest.mark.skipif(not strace_available(), reason=strace_available().why)


def found(labels: Sequence[str], acked: Sequence[str]) -> Verdict:
    """Every acknowledged label exactly once, and nothing twice."""
    counts = Counter(labels)
    if lost := [label for label in acked if not counts[label]]:
        return Verdict(False, "lost", f"{lost} of {list(acked)}")
    if doubled := [label for label, count in counts.items() if count > 1]:
        return Verdict(False, "doubled", str(doubled))
    return Verdict(True, "whole", f"{len(labels)} events")


class SqliteToy:
    """Events in one table. Sound with WAL and FULL; the other settings and `early_ack` are planted bugs."""

    def __init__(self, synchronous: str = "FULL", mode: str = "WAL", early_ack: bool = False) -> None:
        self.name = f"sqlite {mode} {synchronous}{' early ack' if early_ack else ''}"
        self.synchronous, self.mode, self.early_ack = synchronous, mode, early_ack

    def connect(self, folder: Path) -> apsw.Connection:
        db = apsw.Connection(str(folder / "log.db"))
        db.execute(f"pragma journal_mode={self.mode}; pragma synchronous={self.synchronous}").fetchall()
        return db

    def prepare(self, folder: Path) -> None:
        db = self.connect(folder)
        db.execute("create table event (seq integer primary key, label text, body blob)")
        db.close()

    def work(self, folder: Path, ack: Callable[[str], None]) -> None:
        db = self.connect(folder)
        for number in range(EVENTS):
            db.execute("begin immediate")
            db.execute("insert into event (label, body) values (?, randomblob(700))", (f"e{number}",))
            if self.early_ack:
                ack(f"e{number}")
            db.execute("commit")
            if not self.early_ack:
                ack(f"e{number}")
        db.close()

    def check(self, folder: Path, acked: Sequence[str]) -> Verdict:
        try:
            db = self.connect(folder)
            sound = db.execute("pragma integrity_check").fetchall()
            labels = [str(row[0]) for row in db.execute("select label from event order by seq")]
            db.close()
        except apsw.Error as error:
            return Verdict(False, "corrupt", str(error))
        return found(labels, acked) if sound == [("ok",)] else Verdict(False, "corrupt", str(sound))


class FileToy:
    """One file per event: temporary file, fsync, rename, fsync of the folder. Each named bug leaves one of them out."""

    def __init__(self, *bugs: str) -> None:
        self.name = " ".join(["files", *(f"no {bug}" for bug in bugs)])
        self.bugs = frozenset(bugs)

    def prepare(self, folder: Path) -> None:
        (folder / "events").mkdir()

    def write(self, fd: int, data: bytes) -> None:
        while data:
            done = os.write(fd, data)
            data = b"" if "loop" in self.bugs else data[done:]

    def put(self, folder: Path, label: str) -> None:
        body = label.encode() * 400
        temporary = folder / "events" / f"{label}.tmp"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            self.write(fd, hashlib.sha256(body).digest() + body)
            if "fsync" not in self.bugs:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, folder / "events" / label)
        if "folder fsync" not in self.bugs:
            self.sync_folder(folder / "events")

    def sync_folder(self, folder: Path) -> None:
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def work(self, folder: Path, ack: Callable[[str], None]) -> None:
        for number in range(EVENTS):
            self.put(folder, f"e{number}")
            ack(f"e{number}")

    def check(self, folder: Path, acked: Sequence[str]) -> Verdict:
        paths = [path for path in sorted((folder / "events").iterdir()) if path.suffix != ".tmp"]
        for path in paths:
            raw = path.read_bytes()
            if hashlib.sha256(raw[32:]).digest() != raw[:32]:
                return Verdict(False, "corrupt", f"{path.name} is torn")
        return found([path.name for path in paths], acked)


class RetryingToy(FileToy):
    """Meets a failed fsync by trying again: the second one succeeds, but the kernel has already dropped the pages."""

    def __init__(self) -> None:
        super().__init__("loop")
        self.name = "files, fsync retried"
        self.bugs = frozenset({"fsync"})

    def write(self, fd: int, data: bytes) -> None:
        super().write(fd, data)
        try:
            os.fsync(fd)
        except OSError:
            os.fsync(fd)


class RepairingToy(FileToy):
    """Its check repairs: it deletes a leftover temporary file, and with the bug it rewrites an index in place first."""

    def __init__(self, careful: bool) -> None:
        super().__init__()
        self.name = f"files with an index, {'careful' if careful else 'careless'}"
        self.careful = careful

    def check(self, folder: Path, acked: Sequence[str]) -> Verdict:
        target = folder / "index"
        labels = sorted(path.name for path in (folder / "events").iterdir() if path.suffix != ".tmp")
        if target.exists() and not target.read_text().endswith("end"):
            return Verdict(False, "corrupt", "the index is torn")
        written = folder / "index.tmp" if self.careful else target
        with open(written, "w", buffering=1) as out:
            for label in labels:
                out.write(f"{label}\n")
            out.write("end")
        if self.careful:
            os.replace(written, target)
        return super().check(folder, acked)


class SleepyToy(FileToy):
    """Waits for ever when a write fails."""

    def work(self, folder: Path, ack: Callable[[str], None]) -> None:
        try:
            super().work(folder, ack)
        except OSError:
            time.sleep(600)


class BrokenToy(FileToy):
    """Fails without any fault."""

    def work(self, folder: Path, ack: Callable[[str], None]) -> None:
        raise KeyError("always")


def kinds(report: Report) -> set[str]:
    return {violation.kind for violation in report.violations}


# -- sound stores ----------------------------------------------------------------------------------------------------


@needs_shim
@pytest.mark.parametrize("toy", [SqliteToy(), FileToy()], ids=lambda toy: toy.name)
def test_a_sound_store_survives_a_kill_before_and_after_every_call(toy: SqliteToy) -> None:
    report = kill_everywhere(toy)
    assert report.ok, str(report)
    assert report.points == report.counts["whole"] >= 2 * 4 * EVENTS


@needs_shim
@pytest.mark.parametrize("toy", [SqliteToy(), FileToy()], ids=lambda toy: toy.name)
def test_a_sound_store_survives_errors_and_short_writes_at_every_call(toy: SqliteToy) -> None:
    report = errno_everywhere(toy, limit=150, seed=1)
    assert report.ok, str(report)
    assert report.points > 100


@needs_shim
def test_a_sound_store_survives_faults_during_its_recovery() -> None:
    report = kill_everywhere(SqliteToy(), faults_during_recovery=True, limit=12, seed=2)
    assert report.ok, str(report)
    assert report.points > 3 * 12


@needs_shim
@pytest.mark.parametrize("toy", [SqliteToy(), SqliteToy("EXTRA", "DELETE"), FileToy()], ids=lambda toy: toy.name)
def test_a_sound_store_survives_power_loss_in_both_models(toy: SqliteToy) -> None:
    report = power_loss(toy, images=400, seed=3)
    assert report.ok, str(report)
    assert report.points > 20


@needs_shim
@pytest.mark.parametrize(
    ("toy", "models"), [(SqliteToy(), ["ext4"]), (FileToy(), ["ext4", "strict"])], ids=["sqlite", "files"]
)
def test_a_sound_store_survives_power_loss_after_a_failed_sync(toy: SqliteToy, models: list[str]) -> None:
    report = power_loss_after_failed_sync(toy, models=models, images=300, seed=4)
    assert report.ok, str(report)
    assert report.points > 20


@needs_shim
def test_sqlite_does_not_look_at_the_result_of_its_folder_sync() -> None:
    """Known of SQLite: only the strict model sees it, a store that must not depend on it syncs the folder itself."""
    report = power_loss_after_failed_sync(SqliteToy(), models=["strict"], images=300, seed=4)
    assert kinds(report) == {"lost"}, str(report)


@needs_strace
def test_strace_agrees_that_a_sound_store_survives() -> None:
    report = strace_everywhere(SqliteToy(), limit=30, seed=5)
    assert report.ok, str(report)
    assert report.points == 30


# -- planted bugs ----------------------------------------------------------------------------------------------------


@needs_shim
@pytest.mark.parametrize(
    ("toy", "expected"),
    [
        (SqliteToy("NORMAL"), {"lost"}),
        (SqliteToy("OFF"), {"lost"}),
        (SqliteToy("FULL", "DELETE"), {"lost"}),
        (FileToy("folder fsync"), {"lost"}),
        (FileToy("fsync"), {"corrupt"}),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_power_loss_finds_a_missing_sync(toy: SqliteToy, expected: set[str]) -> None:
    report = power_loss(toy, images=300, seed=6)
    assert expected <= kinds(report), str(report)


@needs_shim
@pytest.mark.parametrize("model", ["ext4", "strict"])
def test_each_model_finds_the_missing_folder_sync(model: str) -> None:
    assert not power_loss(FileToy("folder fsync"), models=[model], images=100).ok


@needs_shim
def test_a_kill_finds_an_acknowledgement_before_the_commit() -> None:
    assert "lost" in kinds(kill_everywhere(SqliteToy(early_ack=True), when=["before"]))


@needs_strace
def test_strace_finds_an_acknowledgement_before_the_commit() -> None:
    report = strace_everywhere(SqliteToy(early_ack=True), points=[("pwrite64", n) for n in range(8, 14)])
    assert "lost" in kinds(report), str(report)


@needs_shim
def test_a_short_write_finds_an_unchecked_write() -> None:
    report = errno_everywhere(FileToy("loop"), errnos=[], sticky=[False])
    assert "corrupt" in kinds(report), str(report)


@needs_shim
def test_a_retried_fsync_is_found_by_power_loss_after_a_failed_sync() -> None:
    assert power_loss(RetryingToy(), images=100).ok
    report = power_loss_after_failed_sync(RetryingToy(), images=300)
    assert "corrupt" in kinds(report), str(report)


@needs_shim
def test_a_fault_during_recovery_finds_a_careless_repair() -> None:
    careful = kill_everywhere(RepairingToy(True), when=["before"], points=[3, 9], faults_during_recovery=True)
    careless = kill_everywhere(RepairingToy(False), when=["before"], points=[3, 9], faults_during_recovery=True)
    assert careful.ok, str(careful)
    assert "corrupt" in kinds(careless), str(careless)


@needs_shim
def test_a_point_that_hangs_is_a_violation() -> None:
    report = errno_everywhere(SleepyToy(), errnos=["EIO"], sticky=[False], short_writes=False, points=[2], timeout=0.5)
    assert [violation.kind for violation in report.violations] == ["crashed"]
    assert "still running" in report.violations[0].detail


# -- replay and report -----------------------------------------------------------------------------------------------


@needs_shim
def test_a_violation_can_be_replayed_by_its_point_and_seed() -> None:
    toy = SqliteToy("NORMAL")
    first = power_loss(toy, images=200, seed=7, models=["strict"])
    again = power_loss(toy, images=200, seed=7, models=["strict"], only=[first.violations[0].point])
    assert again.violations == first.violations[:1]


@needs_shim
def test_the_same_seed_tries_the_same_points() -> None:
    toy = FileToy("loop")
    one, two = (errno_everywhere(toy, limit=25, seed=8) for _ in range(2))
    assert one.counts == two.counts
    assert one.violations == two.violations


@needs_shim
def test_a_workload_that_fails_by_itself_is_refused() -> None:
    with pytest.raises(LabError, match="fails without any fault: KeyError"):
        kill_everywhere(BrokenToy())


def test_a_table_counts_and_tells_how_to_replay() -> None:
    report = Report("kill at calls", "toy", seed=3)
    report.add(Verdict(True, "whole", ""), 1, "one")
    report.add(Verdict(True, "refused", "store_unreadable"), 2, "two")
    report.add(Verdict(False, "lost", "e1"), 3, "kill_everywhere(toy, points=[3])")
    report.note("2 of 3 points")
    text = table([report.done()])
    assert text.splitlines()[2].split()[:9] == ["kill", "at", "calls", "toy", "3", "3", "1", "1", "1"]
    assert "VIOLATION kill at calls point 3 seed 3: lost: e1 | replay: kill_everywhere(toy, points=[3])" in text
    assert "2 of 3 points" in text


def test_a_verdict_of_an_illegal_kind_is_a_violation_even_if_called_ok() -> None:
    report = Report("x", "toy")
    report.add(Verdict(True, "lost", "e1"), 1, "recipe")
    assert not report.ok


# -- the shim itself -------------------------------------------------------------------------------------------------


@needs_shim
def test_a_kill_before_a_call_leaves_it_undone_and_after_leaves_it_done() -> None:
    with ForkServer(FileToy()) as server:
        sizes = []
        for mode in ("before", "after"):
            with folder_from(scratch) as folder:
                server.prepare(folder)
                outcome = server.work(folder, Fault(mode, 2))
                assert (outcome.end, outcome.at, outcome.acked) == ("killed", "write /events/e0.tmp", ())
                sizes.append((folder / "events/e0.tmp").stat().st_size)
        assert sizes == [0, 32 + 2 * 400]


@needs_shim
def test_acknowledgements_arrive_although_the_child_was_killed_right_after() -> None:
    with ForkServer(FileToy()) as server, folder_from(scratch) as folder:
        server.prepare(folder)
        assert server.work(folder, Fault("before", 6)).acked == ("e0",)


@needs_shim
@pytest.mark.parametrize(("sticky", "end"), [(False, "done"), (True, "raised")])
def test_an_error_strikes_once_or_for_ever(sticky: bool, end: str) -> None:
    with ForkServer(RetryingToy()) as server, folder_from(scratch) as folder:
        server.prepare(folder)
        outcome = server.work(folder, Fault("errno", 3, errno.EIO, sticky))
        assert (outcome.end, outcome.at) == (end, "fsync /events/e0.tmp")
        assert ("Errno 5" in outcome.detail) == sticky


@needs_shim
def test_a_trace_holds_calls_data_and_acknowledgements_in_order() -> None:
    with ForkServer(FileToy()) as server, folder_from(scratch) as folder, folder_from(scratch) as beside:
        server.prepare(folder)
        server.clean_work(folder, beside / "trace")
        ops = read_trace(beside / "trace", folder)
    assert [op.kind for op in ops[:6]] == [OPEN, WRITE, SYNC, RENAME, SYNC, MARK]
    assert ops[1].data.endswith(b"e0" * 400)
    assert (ops[3].path, ops[3].other) == ("events/e0.tmp", "events/e0")
    assert ops[5].data == b"e0"


def test_the_toys_can_be_sent_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(SqliteToy())).name == "sqlite WAL FULL"


# -- the models ------------------------------------------------------------------------------------------------------


def op(
    kind: int, path: str = "", data: bytes = b"", *, ino: int = 0, number: int = 0, other: str = "", error: int = 0
) -> Op:
    return Op(kind, error, ino, number, path, other, data)


def images(model: str, ops: Sequence[Op], base: Base | None = None) -> list[dict[str, bytes]]:
    """All systematic images at the end of a made-up trace."""
    disk = Disk(model, base or {})
    for each in ops:
        disk.apply(each)
    built = [build(disk, resolve(disk, Choice(len(ops), how, item), 0))[0] for how, item in systematic(disk)]
    return [{path: bytes(content or b"") for path, content in image.items()} for image in built]


NEW_FILE = [op(OPEN, "a", ino=7), op(WRITE, "a", b"data", ino=7), op(SYNC, "a", ino=7)]


def test_a_synced_new_file_is_certain_on_ext4_and_its_name_is_not_in_the_strict_model() -> None:
    assert images("ext4", NEW_FILE) == [{"a": b"data"}]
    assert {} in images("strict", NEW_FILE)
    assert images("strict", [*NEW_FILE, op(SYNC, "")]) == [{"a": b"data"}]


def test_unsynced_writes_are_lost_in_any_part() -> None:
    base: Base = {"a": (7, b"....")}
    writes = [op(WRITE, "a", b"1", ino=7), op(WRITE, "a", b"2", ino=7, number=2)]
    seen = {image["a"] for image in images("ext4", writes, base)}
    assert seen == {b"....", b"1...", b"..2.", b"1.2."}


def test_names_keep_their_order_on_ext4() -> None:
    base: Base = {"a": (7, b"old"), "b": (8, b"new")}
    moves = [op(RENAME, "a", other="c"), op(RENAME, "b", other="a")]
    assert {tuple(image) for image in images("ext4", moves, base)} == {("a", "b"), ("b", "c"), ("a", "c")}
    assert ("a",) in {tuple(image) for image in images("strict", moves, base)}


def test_a_large_write_is_torn_between_sectors_only() -> None:
    base: Base = {"a": (7, bytes(2048))}
    seen = {image["a"] for image in images("strict", [op(WRITE, "a", b"x" * 2048, ino=7)], base)}
    halves = {b"x" * 1024 + bytes(1024), bytes(1024) + b"x" * 1024, b"x" * 512 + bytes(1536)}
    assert seen == halves | {bytes(2048), b"x" * 2048}


def test_a_dropped_truncation_on_ext4_drops_what_was_written_after_it() -> None:
    base: Base = {"a": (7, b"long old")}
    ops = [op(SIZE, "a", ino=7), op(WRITE, "a", b"new", ino=7)]
    assert {image["a"] for image in images("ext4", ops, base)} == {b"long old", b"", b"new"}
    assert b"newg old" in {image["a"] for image in images("strict", ops, base)}


def test_a_failed_sync_loses_its_pages_for_good_unless_they_are_written_again() -> None:
    base: Base = {"a": (7, bytes(8192))}
    lost = [op(WRITE, "a", b"x", ino=7), op(DATASYNC, "a", ino=7, error=5), op(DATASYNC, "a", ino=7)]
    assert images("ext4", lost, base)[0]["a"] == bytes(8192)
    saved = [*lost[:2], op(WRITE, "a", b"y", ino=7, number=9), op(DATASYNC, "a", ino=7)]
    assert images("ext4", saved, base)[0]["a"][:10] == b"x" + bytes(8) + b"y"


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(LabError, match="choose one of ext4, strict"):
        Disk("zfs", {})

"""Bugs planted on purpose: a laboratory that does not find them proves nothing with its zeros."""

import multiprocessing
import os
import signal
import time

import apsw
import pytest

from holdfast.core.errors import HoldfastError
from holdfast.core.events import NoteRecorded
from holdfast.engine.log import RunLog
from holdfast.stores import sqlite_commit
from holdfast.testing import crashlab
from holdfast.testing.crashlab import bytecode, flips
from tests.crash import live_planted
from tests.crash.campaign import SOURCES
from tests.crash.live_points import at_moments
from tests.crash.workloads import (
    AckBeforeCommit,
    LaxWitness,
    LazySync,
    LogWork,
    NoChain,
    NoFence,
    NoFolderSync,
    NoSync,
    NoWitness,
    SplitBatch,
    Swallowed,
    UnsureWriter,
    world,
)

pytestmark = pytest.mark.crash


def killed(work):
    return crashlab.kill_everywhere(work, limit=60, seed=1)


def power_cut(work):
    return crashlab.power_loss(work, images=400, seed=1)


def failing(work):
    return crashlab.errno_everywhere(work, limit=60, seed=1)


def interrupted(work):
    return bytecode.bytecode_points(work, SOURCES, "interrupt", limit=40, seed=1)


def damaged(work, files, tmp_path):
    tmp_path.mkdir(exist_ok=True)
    acked = flips.crashed_store(LogWork(12), tmp_path, 12)
    return flips.flips(work, tmp_path, acked, files, limit=120, ways=("flip",), seed=1)


PLANTED = [
    (killed, AckBeforeCommit),
    (power_cut, LazySync),
    (power_cut, NoSync),
    (power_cut, NoFolderSync),
    (power_cut, LaxWitness),
    (killed, SplitBatch),
    (failing, Swallowed),
    (interrupted, UnsureWriter),
]


@pytest.mark.parametrize(("technique", "bug"), PLANTED, ids=lambda item: item.__name__)
def test_the_laboratory_finds(technique, bug, skip_or_fail, apart):
    skip_or_fail(crashlab.available())
    report = apart(technique, bug())
    assert report.violations or report.counts["refused"]  # after a crash a refusal is a finding too


@pytest.mark.parametrize("bug", live_planted.PLANTED, ids=lambda bug: bug.__name__)
def test_the_laboratory_finds_in_a_live_run(bug):
    assert at_moments(bug(), 30, seed=1, until_found=True).violations


def test_the_laboratory_finds_a_missing_witness(tmp_path):
    assert damaged(NoWitness(), ["holdfast.db-wal"], tmp_path / "planted").violations
    assert not damaged(LogWork(), ["holdfast.db-wal"], tmp_path / "sound").violations


def test_the_laboratory_finds_an_unread_chain(tmp_path):
    tmp_path.mkdir(exist_ok=True)
    acked = flips.finished_store(LogWork(40), tmp_path)
    connection = apsw.Connection(str(tmp_path / ".holdfast" / "holdfast.db"))
    connection.execute("pragma wal_checkpoint(truncate)").fetchall()
    connection.close()
    options = {"limit": 150, "ways": ("flip",), "seed": 1}
    assert flips.flips(NoChain(), tmp_path, acked, ["holdfast.db"], **options).violations
    assert not flips.flips(LogWork(), tmp_path, acked, ["holdfast.db"], **options).violations


def write_on(work, folder, ready):
    log = RunLog(work.open(folder), "run-a", world(7), ttl=0.3)
    log.record(NoteRecorded(text="by the first"))
    ready.put("ready")
    time.sleep(0.25)
    while True:
        try:
            log.record(NoteRecorded(text="by the first"))
        except HoldfastError:
            ready.put("refused")
            return
        time.sleep(0.25)  # stopped here, outside a commit: in one it would hold the file's own lock


def zombie_writes(work, folder):
    """Stop a holder past its lease, take over, wake it: how many of its events come after the take-over?"""
    work.prepare(folder)
    context = multiprocessing.get_context("spawn")
    ready = context.Queue()
    zombie = context.Process(target=write_on, args=(work, folder, ready))
    zombie.start()
    try:
        ready.get(timeout=30)
        os.kill(zombie.pid, signal.SIGSTOP)
        time.sleep(0.5)
        with work.open(folder) as store:
            log = RunLog(store, "run-a", world(8), ttl=60.0)
            taken_at = log.state.seq
            os.kill(zombie.pid, signal.SIGCONT)
            time.sleep(0.8)
            return sum(b"by the first" in record.body for record in store.read("run-a", after=taken_at))
    finally:
        zombie.kill()
        zombie.join(30)


def test_the_laboratory_finds_a_missing_fence(tmp_path, monkeypatch):
    with monkeypatch.context() as undone:
        undone.setattr(sqlite_commit, "TABLES", sqlite_commit.TABLES)
        assert zombie_writes(NoFence(), tmp_path / "planted") > 0
    assert zombie_writes(LogWork(), tmp_path / "sound") == 0

"""Threads that append at the same time: one commits for all who wait, and nobody waits for somebody who is gone."""

from __future__ import annotations

import os
import threading

import pytest

from holdfast.core.errors import BadRecord, StoreClosed
from holdfast.core.events import NoteRecorded
from holdfast.engine.log import verify_run
from tests.stores.test_sqlite import begun, open_at

PATIENCE = 30


@pytest.fixture
def store(tmp_path):
    with open_at(tmp_path) as store:
        yield store


@pytest.fixture
def committing(store, monkeypatch):
    """The sizes of the groups that were committed; the next one waits until it may go on."""
    return Committing(store._committer, monkeypatch)


class Committing:
    def __init__(self, committer, monkeypatch):
        self.sizes, self.waits, self.goes_on = [], threading.Event(), threading.Event()
        self.strike = None
        self._commit = committer._commit
        monkeypatch.setattr(committer, "_commit", self)

    def __call__(self, group):
        self.waits.set()
        assert self.goes_on.wait(PATIENCE)
        self.sizes.append(len(group))
        if self.strike is not None:
            strike, self.strike = self.strike, None
            raise strike
        self._commit(group)


def in_thread(work):
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def all_end(threads):
    for thread in threads:
        thread.join(PATIENCE)
    return not any(thread.is_alive() for thread in threads)


def until(condition):
    for _ in range(int(PATIENCE * 1000)):
        if condition():
            return True
        threading.Event().wait(0.001)
    return False


def waiting_behind_one(store, committing, count=7):
    """One append on its way, and others in the queue behind it."""
    logs = [begun_after(store, committing, number) for number in range(count + 1)]
    committing.goes_on.clear()
    committing.waits.clear()
    first = in_thread(lambda: record_twice(logs[0]))
    assert committing.waits.wait(PATIENCE)
    others = [in_thread(lambda log=log: log.record(NoteRecorded(text="x"))) for log in logs[1:]]
    assert until(lambda: len(store._committer.queue) == count + 1)
    return logs, [first, *others]


def record_twice(log):
    """Two events are more than the usual append: they go through the queue."""
    log.record(NoteRecorded(text="a"), NoteRecorded(text="b"))


def begun_after(store, committing, number):
    committing.goes_on.set()
    return begun(store, f"run-{number}", number)


def test_those_who_wait_are_committed_together(store, committing):
    logs, threads = waiting_behind_one(store, committing)
    committing.sizes.clear()
    committing.goes_on.set()
    assert all_end(threads)
    assert committing.sizes == [1, 7]
    assert all(verify_run(store, log.run_id).findings == () for log in logs)


def test_a_leader_that_is_interrupted_leaves_nobody_waiting(store, committing, monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda told: None)
    logs, threads = waiting_behind_one(store, committing)
    committing.strike = KeyboardInterrupt()
    committing.goes_on.set()
    assert all_end(threads)
    assert [store.head(log.run_id).seq for log in logs] == [1, *[2] * 7]
    logs[0].record(NoteRecorded(text="and again"))
    assert all(verify_run(store, log.run_id).findings == () for log in logs)


def test_an_append_from_inside_of_a_commit_of_the_same_thread_does_not_wait_for_itself(store):
    log, other = begun(store, "run-1", 1), begun(store, "run-2", 2)
    committer = store._committer
    commit, seen = committer._commit, []

    def nested(group):
        committer._commit = commit
        seen.append(other.record(NoteRecorded(text="inside")).seq)
        commit(group)

    committer._commit = nested
    assert all_end([in_thread(lambda: record_twice(log))])
    assert seen == [2] and store.head("run-1").seq == 3


def test_a_forked_child_does_not_wait_for_the_threads_of_its_parent(store, committing):
    idle = begun_after(store, committing, 9)
    _, threads = waiting_behind_one(store, committing, count=1)
    pid = os.fork()
    if pid == 0:
        committing.goes_on.set()
        try:
            record_twice(idle)
        except StoreClosed:
            os._exit(7)
        os._exit(8)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    committing.goes_on.set()
    assert all_end(threads)


def test_eight_threads_write_everything_once(store):
    logs = [begun(store, f"run-{number}", number) for number in range(8)]

    def write(log):
        for number in range(60):
            log.record(NoteRecorded(text=str(number)))

    assert all_end([in_thread(lambda log=log: write(log)) for log in logs])
    assert [store.head(log.run_id).seq for log in logs] == [61] * 8
    assert all(verify_run(store, log.run_id).findings == () for log in logs)


def single(log, **more):
    """An append of one usual event."""
    draft = log.draft(NoteRecorded(text="x"))
    return draft._replace(records=[draft.records[0]._replace(**more)]) if more else draft


def test_one_that_is_at_fault_does_not_spoil_its_neighbours(store):
    logs = [begun(store, f"run-{number}", number) for number in range(3)]
    for log in logs:
        log.record(NoteRecorded(text="warm"))
    faults = [{"version": 1 << 70}, {"body": b"\xff"}, {"op": "no hex"}]
    for log, fault in zip(logs, faults, strict=True):
        bad = single(log, **fault)
        others = [other for other in logs if other is not log]
        good = [single(other) for other in others]
        outcomes = store.append_all([good[0], bad, good[1]])
        assert (outcomes[0], outcomes[2]) == (None, None)
        assert isinstance(outcomes[1], BadRecord)
        for other, append in zip(others, good, strict=True):
            other.confirm(append)
    assert [store.head(log.run_id).seq for log in logs] == [4, 4, 4]
    assert all(verify_run(store, log.run_id).findings == () for log in logs)


def test_thousands_at_once_are_many_commits(store):
    appends = [single(begun(store, f"run-{number}", number)) for number in range(80)]
    appends += [appends[0]] * 3000  # the same append repeated is done once
    assert store.append_all(appends) == [None] * len(appends)
    assert all(store.head(f"run-{number}").seq == 2 for number in range(80))

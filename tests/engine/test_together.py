"""Coroutines that record at the same time share commits, and each gets its own outcome."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.core.errors import IllegalEvent, LeaseLost, StoreBroken
from holdfast.core.events import NoteRecorded, RunStarted, StepFinished, StepStarted
from holdfast.engine import together
from holdfast.engine.log import RunLog, verify_run
from holdfast.engine.together import Together
from holdfast.stores.sqlite import SqliteStore
from tests.crash.workloads import world


@pytest.fixture
def store(tmp_path):
    with SqliteStore(tmp_path / ".holdfast" / "holdfast.db", boot_id="boot-1") as store:
        yield store


def begun(store, number):
    log = RunLog(store, f"run-{number}", world(number))
    log.record(RunStarted(mission_id="m"))
    return log


@pytest.fixture(params=[0.0, 10.0], ids=["slow disk", "quick disk"], autouse=True)
def disk(request, monkeypatch):
    monkeypatch.setattr(together, "QUICK", request.param)


async def write(shared, log, count):
    for number in range(count):
        await shared.record(log, NoteRecorded(text=str(number)))


def test_eight_runs_share_their_commits(store):
    logs = [begun(store, number) for number in range(8)]
    groups = []
    append_all = store.append_all
    store.append_all = lambda appends: (groups.append(len(appends)), append_all(appends))[1]

    async def everything():
        shared = Together(store)
        await asyncio.gather(*(write(shared, log, 20) for log in logs))

    asyncio.run(everything())
    assert sum(groups) == 160
    assert len(groups) < 60
    for log in logs:
        assert store.head(log.run_id).seq == 21
        assert verify_run(store, log.run_id).findings == ()


def test_one_log_has_one_append_on_its_way_at_a_time(store):
    log = begun(store, 1)

    async def everything():
        shared = Together(store)
        await asyncio.gather(*(shared.record(log, NoteRecorded(text=str(number))) for number in range(20)))

    asyncio.run(everything())
    assert store.head("run-1").seq == 21
    assert verify_run(store, "run-1").findings == ()


def test_what_is_recorded_never_waits_for_the_threads_of_others(store):
    log = begun(store, 1)

    async def everything():
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        shared = Together(store)

        def in_a_thread():
            return asyncio.run_coroutine_threadsafe(shared.record(log, NoteRecorded(text="a")), loop).result(20)

        await asyncio.to_thread(in_a_thread)

    asyncio.run(everything())
    assert store.head("run-1").seq == 2


def test_each_gets_its_own_outcome(store):
    good, fenced, wrong = (begun(store, number) for number in range(3))
    store.release(fenced.lease)

    async def everything():
        shared = Together(store)
        return await asyncio.gather(
            shared.record(good, NoteRecorded(text="fine")),
            shared.record(fenced, NoteRecorded(text="fenced")),
            shared.record(wrong, StepFinished(step_id="never-begun")),
            return_exceptions=True,
        )

    outcomes = asyncio.run(everything())
    assert outcomes[0].seq == 2
    assert isinstance(outcomes[1], LeaseLost)
    assert isinstance(outcomes[2], IllegalEvent)
    assert [store.head(f"run-{number}").seq for number in range(3)] == [2, 1, 1]


def test_a_store_that_fails_tells_everyone(store, monkeypatch):
    logs = [begun(store, number) for number in range(2)]

    def fail(appends):
        raise StoreBroken("here", "the disk is gone")

    async def everything():
        shared = Together(store)
        writes = (shared.record(log, NoteRecorded(text="x")) for log in logs)
        with monkeypatch.context() as broken:
            broken.setattr(store, "append_all", fail)
            failed = await asyncio.gather(*writes, return_exceptions=True)
        await asyncio.gather(*(shared.record(log, NoteRecorded(text="again")) for log in logs))
        return failed

    assert all(isinstance(outcome, StoreBroken) for outcome in asyncio.run(everything()))
    assert [store.head(f"run-{number}").seq for number in range(2)] == [2, 2]


def test_a_caller_that_gives_up_does_not_stop_the_others(store):
    logs = [begun(store, number) for number in range(2)]

    async def everything():
        shared = Together(store)
        given_up = asyncio.create_task(shared.record(logs[0], NoteRecorded(text="given up")))
        other = asyncio.create_task(shared.record(logs[1], NoteRecorded(text="goes on")))
        await asyncio.sleep(0)
        given_up.cancel()
        await other
        with pytest.raises(asyncio.CancelledError):
            await given_up
        await shared.record(logs[0], NoteRecorded(text="and again"))

    asyncio.run(everything())
    assert all(verify_run(store, f"run-{number}").findings == () for number in range(2))
    assert store.head("run-1").seq == 2


def slow_down(store, monkeypatch):
    """A disk that is waited for elsewhere, and takes a while."""
    monkeypatch.setattr(together, "QUICK", 0.0)
    append_all = store.append_all
    store.append_all = lambda appends: (time.sleep(0.05), append_all(appends))[1]


@pytest.mark.parametrize("wait", [0.0, 0.02], ids=["before it is sent", "while it is on its way"])
def test_a_caller_that_gives_up_can_go_on_with_the_same_log(store, monkeypatch, wait):
    slow_down(store, monkeypatch)
    log = begun(store, 1)

    async def everything():
        shared = Together(store)
        given_up = asyncio.create_task(shared.record(log, NoteRecorded(text="given up")))
        await asyncio.sleep(wait)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        await shared.record(log, NoteRecorded(text="and again"))

    asyncio.run(everything())
    assert verify_run(store, "run-1").findings == ()
    assert [record.body for record in store.read("run-1")][-1] == b'{"text":"and again"}'


def test_what_is_on_its_way_for_nobody_any_more_is_read_from_the_log(store, monkeypatch):
    slow_down(store, monkeypatch)
    log = begun(store, 1)

    async def everything():
        shared = Together(store)
        given_up = asyncio.create_task(shared.record(log, StepStarted(step_id="on its way")))
        await asyncio.sleep(0.02)
        for _ in range(2):  # the second one does not even wait for what was sent
            given_up.cancel()
            await asyncio.sleep(0)
        log.draft(StepStarted(step_id="never written"))
        await asyncio.sleep(0.1)

    asyncio.run(everything())
    assert list(log.state.steps) == ["on its way"]
    log.record(NoteRecorded(text="and on"))
    assert verify_run(store, "run-1").findings == ()


def test_a_caller_that_gives_up_its_place_lets_those_behind_it_go_on(store):
    log = begun(store, 1)

    async def everything():
        shared = Together(store)
        first, second, third = (
            asyncio.create_task(shared.record(log, NoteRecorded(text=text))) for text in ("first", "second", "third")
        )
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait_for(asyncio.gather(first, third), 30)
        with pytest.raises(asyncio.CancelledError):
            await second

    asyncio.run(everything())
    assert [record.body for record in store.read("run-1")][1:] == [b'{"text":"first"}', b'{"text":"third"}']
    assert not log.busy and verify_run(store, "run-1").findings == ()


@pytest.mark.parametrize("ticks", [1, 2], ids=["while it waits", "when it has the turn"])
def test_a_caller_that_gives_up_its_turn_hands_it_on(store, ticks):
    log = begun(store, 1)

    async def everything():
        shared = Together(store)
        given_up = asyncio.create_task(shared.alone(log, lambda: log.record(NoteRecorded(text="never"))))
        behind = asyncio.create_task(shared.record(log, NoteRecorded(text="behind it")))
        for _ in range(ticks):
            await asyncio.sleep(0)
        assert (log in shared._lent) is (ticks == 2)
        given_up.cancel()
        await asyncio.wait_for(behind, 30)
        with pytest.raises(asyncio.CancelledError):
            await given_up

    asyncio.run(everything())
    assert [record.body for record in store.read("run-1")][1:] == [b'{"text":"behind it"}']
    assert not log.busy and verify_run(store, "run-1").findings == ()


def test_what_fails_alone_gives_its_turn_back(store):
    log = begun(store, 1)

    async def everything():
        shared = Together(store)
        alone = shared.alone(log, lambda: log.record(StepFinished(step_id="never-begun")))
        return await asyncio.gather(alone, shared.record(log, NoteRecorded(text="after")), return_exceptions=True)

    failed, state = asyncio.run(asyncio.wait_for(everything(), 30))
    assert isinstance(failed, IllegalEvent) and state.seq == 2


def test_what_is_done_alone_waits_for_its_turn_and_those_behind_it_wait_for_it(store):
    log = begun(store, 1)

    async def everything():
        shared = Together(store)
        writes = [shared.record(log, NoteRecorded(text=str(number))) for number in range(3)]
        alone = shared.alone(log, lambda: log.record(NoteRecorded(text="alone")).seq)
        done = await asyncio.gather(writes[0], alone, *writes[1:])
        return done[1]

    assert asyncio.run(everything()) == 3
    assert [record.body for record in store.read("run-1")][2] == b'{"text":"alone"}'
    assert verify_run(store, "run-1").findings == ()


@pytest.mark.parametrize("failure", ["the store", "the event"])
def test_who_failed_sees_the_log_as_it_is_though_others_wait(store, monkeypatch, failure):
    log = begun(store, 1)

    def fail(appends):
        raise StoreBroken("here", "the disk is gone")

    async def failing(shared):
        event = NoteRecorded(text="never") if failure == "the store" else StepFinished(step_id="never-begun")
        try:
            await shared.record(log, event)
        except (StoreBroken, IllegalEvent):
            monkeypatch.undo()
            return log.state.seq, store.head("run-1").seq

    async def everything():
        shared = Together(store)
        if failure == "the store":
            monkeypatch.setattr(store, "append_all", fail)
        return await asyncio.gather(failing(shared), shared.record(log, NoteRecorded(text="waits")))

    (seen, there), state = asyncio.run(everything())
    assert seen == there == 1 and state.seq == 2
    assert verify_run(store, "run-1").findings == ()


def test_two_that_share_a_log_do_not_wait_for_each_other_for_ever(store):
    log = begun(store, 1)

    async def everything():
        first, second = Together(store), Together(store)
        return await asyncio.wait_for(
            asyncio.gather(
                first.record(log, NoteRecorded(text="a")),
                second.record(log, NoteRecorded(text="b")),
                return_exceptions=True,
            ),
            30,
        )

    asyncio.run(everything())
    assert verify_run(store, "run-1").findings == ()

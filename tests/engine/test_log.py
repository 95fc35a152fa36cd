"""The writer of a run: redacted, folded and durable before it returns, and never sure of what it did not see written."""

import pytest

from holdfast.core.errors import (
    IllegalEvent,
    LeaseHeld,
    LeaseLost,
    NewerSchema,
    NotCanonical,
    NotFound,
    StoreUnavailable,
    TooLarge,
)
from holdfast.core.events import (
    NoteRecorded,
    RunFinished,
    RunResumed,
    RunStarted,
    StepFinished,
    StepStarted,
)
from holdfast.core.redact import Redactor
from holdfast.core.state import seal, snapshot
from holdfast.core.wire import GENESIS, chain_hash
from holdfast.engine.log import SNAPSHOT_EVERY, RunLog, read_head, read_state, verify_run
from holdfast.ports import Projection, Record
from holdfast.stores.memory import MemoryStore
from tests.crash.workloads import AT, world


@pytest.fixture
def store():
    return MemoryStore()


def begun(store, seed=1, **options):
    log = RunLog(store, "run-1", world(seed), **options)
    log.record(RunStarted(mission_id="m"))
    return log


class Failing:
    """Lets an append through, or not, and says that it cannot know."""

    def __init__(self, store, written):
        self.append_really, self.written, self.failures = store.append, written, 1
        store.append = self.append

    def append(self, lease, records, projection):
        if self.failures == 0:
            return self.append_really(lease, records, projection)
        self.failures -= 1
        if self.written:
            self.append_really(lease, records, projection)
        raise StoreUnavailable("memory", "the answer was lost")


@pytest.mark.parametrize("written", [True, False])
def test_a_writer_that_does_not_know_looks_before_it_goes_on(store, written):
    log = begun(store)
    Failing(store, written)
    with pytest.raises(StoreUnavailable):
        log.record(NoteRecorded(text="perhaps"))
    assert log.state.notes == int(written)
    log.record(NoteRecorded(text="surely"))
    texts = [record.body for record in store.read("run-1", after=1)]
    assert texts == [b'{"text":"perhaps"}'] * written + [b'{"text":"surely"}']
    assert verify_run(store, "run-1").findings == ()


def test_an_event_that_cannot_follow_is_refused_before_anything_is_written(store):
    log = begun(store)
    with pytest.raises(IllegalEvent):
        log.record(NoteRecorded(text="fine by itself"), StepFinished(step_id="never-begun"))
    assert log.state.notes == 0
    assert store.head("run-1").seq == 1
    log.record(StepStarted(step_id="a"))
    assert log.state.seq == 2


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (NoteRecorded(text="x" * 1_000_000), TooLarge),
        (NoteRecorded(text="\ud800"), NotCanonical),
        (StepFinished(step_id="a", output=float("nan")), NotCanonical),
        (StepFinished(step_id="a", output={"n": 2**53 + 1}), NotCanonical),
        (StepFinished(step_id="a", output={1: "a"}), NotCanonical),
    ],
)
def test_what_cannot_be_stored_exactly_is_refused_with_its_place(store, event, error):
    log = begun(store)
    log.record(StepStarted(step_id="a"))
    with pytest.raises(error):
        log.record(event)
    assert store.head("run-1").seq == 2
    log.record(NoteRecorded(text="and on it goes"))


def test_secrets_are_gone_before_the_hash_and_the_fold(store):
    secret = "gh" + "p_" + "a1B2" * 9
    log = begun(store, redact=Redactor([secret]))
    log.record(StepStarted(step_id="a"))
    state = log.record(StepFinished(step_id="a", output={"env": f"TOKEN={secret}"}))
    assert secret not in repr(state)
    assert secret.encode() not in b"".join(record.body for record in store.read("run-1"))
    assert snapshot(state) == snapshot(read_state(store, "run-1"))
    assert verify_run(store, "run-1").findings == ()


class Searching(Redactor):
    """Counts what it was asked to search."""

    def __init__(self, values=()):
        super().__init__(values)
        self.searched, search = [], self.glance
        self.glance = lambda body: self.searched.append(body) or search(body)


def resumed(log, **other):
    said = {"epoch": log.lease.epoch, "was": log.state.stop_reason or log.state.status}
    return RunResumed(**{**said, **other})


def test_to_go_on_says_nothing_that_the_log_does_not_say_so_nothing_is_searched(store):
    begun(store).close()
    redact = Searching()
    with RunLog(store, "run-1", world(2), redact) as log:
        log.record(resumed(log))
        log.record(resumed(log), resumed(log))
        assert redact.searched == []
        log.record(NoteRecorded(text="new"))
    assert redact.searched == [b'{"text":"new"}']


@pytest.mark.parametrize("field", ["was", "source"])
def test_to_go_on_with_other_words_is_searched_like_everything_else(store, field):
    secret = "xK9vQ2mZ7pL4tR8w"
    with begun(store, redact=Searching([secret])) as log:
        log.record(resumed(log, **{field: secret}))
        log.record(resumed(log, **{field: secret}), resumed(log, epoch=7))
    assert len(log.redact.searched) >= 3
    assert secret.encode() not in b"".join(record.body for record in store.read("run-1"))


def test_recording_nothing_changes_nothing(store):
    log = begun(store)
    log.record()
    assert store.head("run-1").seq == 1
    assert log.record(NoteRecorded(text="next")).seq == 2


def test_a_second_writer_is_refused_and_a_lost_lease_stops_the_first(store):
    log = begun(store)
    with pytest.raises(LeaseHeld):
        RunLog(store, "run-1", world(2))
    store.release(log.lease)
    RunLog(store, "run-1", world(2)).record(NoteRecorded(text="mine now"))
    with pytest.raises(LeaseLost):
        log.record(NoteRecorded(text="too late"))


def test_a_log_that_cannot_be_read_is_not_kept_locked(store):
    lease = store.take("run-1", world().owner, 60.0)
    body = b"{}"
    digest = chain_hash(GENESIS, "run-1", 1, "from_the_future", 1, AT, "0" * 32, body)
    store.append(lease, [Record("run-1", 1, "from_the_future", 1, AT, body, digest, "0" * 32)], Projection())
    store.release(lease)
    for _ in range(2):
        with pytest.raises(NewerSchema):
            RunLog(store, "run-1", world(2))


def test_a_run_at_rest_leaves_a_sealed_snapshot(store):
    with begun(store) as log:
        log.record(RunFinished())
    seq, data = store.load_snapshot("run-1")
    assert seq == 2
    assert data == seal(read_state(store, "run-1"), store.head("run-1").hash)


def test_a_long_run_leaves_a_snapshot_and_a_hook_starts_from_it(store):
    with begun(store) as log:
        log.record(*(NoteRecorded(text=str(number)) for number in range(SNAPSHOT_EVERY + 1)))
    with RunLog(store, "run-1", world(2), trust_snapshot=True) as log:
        assert log._began == SNAPSHOT_EVERY + 2
        assert snapshot(log.state) == snapshot(read_state(store, "run-1"))
        log.record(NoteRecorded(text="from a hook"))
    assert verify_run(store, "run-1").findings == ()


@pytest.mark.parametrize("damage", [lambda data: data[:-2] + b"9}", lambda data: b"", lambda data: b"{}"])
def test_a_snapshot_whose_seal_does_not_hold_is_not_believed(store, damage):
    with begun(store) as log:
        log.record(RunFinished())
    seq, data = store.load_snapshot("run-1")
    store.save_snapshot("run-1", seq, damage(data))
    state, _, began = read_head(store, "run-1", trust_snapshot=True)
    assert (state.status, began) == ("finished", 0)
    assert len(verify_run(store, "run-1").findings) == 1


def test_without_trust_everything_is_proven(store):
    with begun(store) as log:
        log.record(RunFinished())
    assert read_head(store, "run-1")[2] == 0


def test_a_run_that_is_not_there_is_not_found(store):
    with pytest.raises(NotFound):
        read_state(store, "run-9")
    with pytest.raises(NotFound):
        verify_run(store, "run-9")

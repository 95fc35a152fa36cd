"""A fork goes on from any event of another run, repeats nothing that was done, and leaves the original alone."""

from __future__ import annotations

import itertools
from contextlib import closing

import pytest

import holdfast
from holdfast.core import events as e
from holdfast.core.errors import BadInput, InvalidId, NewerSchema, NotFound
from holdfast.core.plan import resume_plan
from holdfast.core.redact import Redactor
from holdfast.core.state import FINISHED, STOPPED, snapshot
from holdfast.core.wire import chain_hash, decode
from holdfast.engine.fork import Forked, fork
from holdfast.engine.log import RunLog, read_state, verify_run
from holdfast.engine.people import cancel
from holdfast.ports import Record
from holdfast.stores.memory import MemoryStore
from tests.crash.workloads import AT, world

LONG: tuple[e.Event, ...] = (
    e.RunStarted(mission_id="m", title="t", plan=("a", "b"), input_hash="h", strictness="medium"),
    e.StepStarted(step_id="a", arguments={"x": [1]}),
    e.StepFinished(step_id="a", output={"y": 2}),
    e.EffectStarted(effect_key="mail-1", step_id="mail", policy="keyed", arguments_hash="1"),
    e.EffectFinished(effect_key="mail-1", receipt={"id": 1}),
    e.EffectStarted(effect_key="pay-1", step_id="pay", arguments_hash="2"),
    e.QuestionAsked(question_id="q", text="Go?"),
    e.RunStopped(reason="awaiting_answer"),
    e.QuestionAnswered(question_id="q", answer="yes", message_id=7),
    e.RunResumed(epoch=2, was="awaiting_answer"),
    e.Extension(kind="x_tool", data={"z": 1}, tagged=3),
    e.SleepStarted(sleep_id="nap", until=AT),
    e.StepCheckpointed(
        checkpoint_id="c", mission_id="m", step_id="b", strictness="max", cursor="gate", input_hash="h",
        retry_token="t", timestamp=AT,
    ),
    e.StepFinished(step_id="b", input_hash="h2", output=3),
    e.EffectSettled(effect_key="pay-1", settled_as="unknown", evidence="?"),
    e.RunStopped(reason="effect_unknown"),
    e.EffectSettled(effect_key="pay-1", settled_as="done", by="person"),
    e.NoteRecorded(text="n"),
)  # fmt: skip
_seeds = itertools.count(1)


def another_process():
    return world(next(_seeds))


@pytest.fixture
def store():
    return MemoryStore()


def written(store, *events, run_id="run-1"):
    with RunLog(store, run_id, another_process()) as log:
        log.record(*events)


def forked(store, at=None, run_id="run-1", new_id="fork-1", redact=None):
    return fork(store, run_id, new_id, another_process(), redact or Redactor(), at)


def events_of(store, run_id):
    return [decode(record) for record in store.read(run_id)]


def made_of(run_id, at):
    diagnosis = f"Made of run {run_id} up to its event {at}; it has not gone on yet."
    return e.RunStopped(reason="forked", diagnosis=diagnosis)


def picture(store, run_id="run-1"):
    return list(store.read(run_id)), store.head(run_id), store.messages(run_id), store.load_snapshot(run_id)


def parts(state):
    """What was done and what is open, without where in the log it stands."""
    plain = holdfast.fold([]).__struct_fields__
    shown = {name: getattr(state, name) for name in plain if name not in ("run_id", "seq", "forked_from", "heard")}
    rest = ("status", "stop_reason", "diagnosis")
    built = {name: value for name, value in shown.items() if name not in rest}
    for group in ("steps", "effects", "checkpoints"):
        built[group] = {name: {**vars_of(one), "seq": 0} for name, one in built[group].items()}
    return built


def vars_of(one):
    return {name: getattr(one, name) for name in one.__struct_fields__}


@pytest.mark.parametrize("at", range(1, len(LONG) + 1))
def test_from_every_event_a_fork_is_what_the_run_was_there(store, at):
    written(store, *LONG)
    before = picture(store)
    made = forked(store, at)
    assert picture(store) == before
    state = read_state(store, "fork-1")
    assert (state.status, state.stop_reason, state.forked_from) == (STOPPED, "forked", "run-1")
    ends, left = (e.EffectFinished, e.EffectSettled), holdfast.fold(LONG[:at]).effects_open
    known = [event for event in LONG[at:] if isinstance(event, ends) and event.effect_key in left]
    then = holdfast.fold([*LONG[:at], *known])
    assert parts(state) == parts(then)
    after = (*(["mail-1"] if at < 4 else []), *(["pay-1"] if at < 6 else []))
    assert made == Forked("fork-1", "run-1", at, state.seq, tuple(then.effects_open), after)
    assert verify_run(store, "fork-1").findings == ()
    assert resume_plan(state).verdict in ("go", "ask")
    assert not store.head("fork-1").held


def test_all_events_are_taken_over_but_the_last_rest(store):
    written(store, *LONG)
    assert forked(store).forked_at == len(LONG)
    first, *others = events_of(store, "fork-1")
    assert first == e.RunStarted(
        mission_id="m", title="t", plan=("a", "b"), input_hash="h", strictness="medium", forked_from="run-1",
        forked_at=len(LONG),
    )  # fmt: skip
    expected = [event for event in LONG[1:] if event != e.RunStopped(reason="effect_unknown")]
    expected[expected.index(LONG[8])] = e.QuestionAnswered(question_id="q", answer="yes")
    assert others == [*expected, made_of("run-1", len(LONG))]


def test_a_fork_is_written_in_one_append(store):
    written(store, *LONG)
    forked(store)
    assert len({record.op for record in store.read("fork-1")}) == 1


@pytest.mark.parametrize(
    "ending",
    [
        (e.RunFinished(),),
        (e.RunFinished(), e.NoteRecorded(text="afterwards"), e.Extension(kind="x_tool", data={})),
        (e.RunStopped(reason="step_failed"),),
        (e.RunStopped(reason="unstorable"), e.NoteRecorded(text="afterwards")),
        (e.CancelRequested(), e.RunStopped(reason="cancelled")),
        (e.RunStopped(reason="sleeping"), e.RunResumed(), e.CancelRequested(), e.RunStopped(reason="cancelled")),
    ],
    ids=lambda ending: " ".join(type(event).__name__ for event in ending),
)
def test_a_run_at_rest_becomes_one_that_can_go_on(store, ending):
    written(store, e.RunStarted(mission_id="m"), *ending)
    assert read_state(store, "run-1").status in (STOPPED, FINISHED)
    forked(store)
    state = read_state(store, "fork-1")
    assert (state.status, state.stop_reason, state.cancelling) == (STOPPED, "forked", False)
    assert resume_plan(state).verdict == "go"
    assert state.notes == read_state(store, "run-1").notes


def test_a_cancelled_run_goes_on_as_a_fork(store):
    written(store, *LONG[:3])
    cancel(store, "run-1", "enough", another_process(), Redactor())
    forked(store)
    assert resume_plan(read_state(store, "fork-1")).verdict == "go"


def test_an_open_effect_stays_open_and_a_done_one_done_under_their_keys(store):
    written(store, *LONG[:6])
    assert forked(store).effects_open == ("pay-1",)
    state = read_state(store, "fork-1")
    assert {key: effect.status for key, effect in state.effects.items()} == {"mail-1": "done", "pay-1": "started"}
    assert state.effects["mail-1"].receipt == {"id": 1}


def started(key, policy="keyed"):
    return e.EffectStarted(effect_key=key, step_id=key, policy=policy, arguments_hash="1")


def test_what_became_of_an_open_effect_is_taken_over(store):
    first = (e.RunStarted(mission_id="m"), *map(started, ("a", "b", "c", "d")), started("r", "read"))
    later = (
        e.EffectFinished(effect_key="a", receipt={"id": 1}),
        e.EffectSettled(effect_key="b", settled_as="unknown"),
        e.EffectSettled(effect_key="b", settled_as="done", by="person"),
        e.EffectFailed(effect_key="c", error="no"),
        started("c"),
        e.EffectFinished(effect_key="c"),
        e.EffectSettled(effect_key="r", settled_as="abandoned", by="policy"),
    )
    written(store, *first, *later)
    made = forked(store, len(first))
    state = read_state(store, "fork-1")
    statuses = {key: effect.status for key, effect in state.effects.items()}
    assert statuses == {"a": "done", "b": "done", "c": "failed", "d": "started", "r": "started"}
    assert state.effects["a"].receipt == {"id": 1}
    assert (made.effects_open, made.effects_after) == (("d", "r"), ("c",))


def test_what_was_begun_after_the_event_is_named_unless_it_is_known_not_to_be_done(store):
    later = (
        started("done"), e.EffectFinished(effect_key="done"), started("open"), started("looked", "read"),
        started("failed"), e.EffectFailed(effect_key="failed", error="no"),
        started("never"), e.EffectSettled(effect_key="never", settled_as="not_done"),
    )  # fmt: skip
    written(store, e.RunStarted(mission_id="m"), *later)
    assert forked(store, 1).effects_after == ("done", "open")


def test_damage_after_the_event_does_not_stand_in_the_way(store):
    written(store, e.RunStarted(mission_id="m"), started("a"), e.EffectFinished(effect_key="a"))
    rows = list(store.read("run-1"))
    read = store.read
    store.read = lambda run_id, **place: (
        row._replace(body=b"{") if row.seq == len(rows) else row for row in read(run_id, **place)
    )
    assert forked(store, 2).effects_open == ("a",)


def test_a_fork_hears_messages_of_its_own_only(store):
    written(store, e.RunStarted(mission_id="m"))
    for _ in range(3):
        store.post("run-1", "cancel", "x")
    written(store, e.QuestionAsked(question_id="q", text="?"))
    with RunLog(store, "run-1", another_process()) as log:
        log.record(e.QuestionAnswered(question_id="q", answer="a", message_id=2))
    forked(store)
    assert read_state(store, "fork-1").heard == 0
    assert store.messages("fork-1") == []
    assert len(store.messages("run-1")) == 3


def test_a_fork_of_a_fork_names_the_run_it_was_made_from(store):
    written(store, *LONG[:3])
    forked(store, 2)
    forked(store, 1, run_id="fork-1", new_id="fork-2")
    assert events_of(store, "fork-2") == [
        e.RunStarted(
            mission_id="m", title="t", plan=("a", "b"), input_hash="h", strictness="medium", forked_from="fork-1",
            forked_at=1,
        ),
        made_of("fork-1", 1),
    ]  # fmt: skip


def test_a_live_run_can_be_forked_and_goes_on_beside_it(store):
    with RunLog(store, "run-1", another_process()) as log:
        log.record(*LONG[:3])
        forked(store)
        log.record(e.NoteRecorded(text="still mine"))
    assert read_state(store, "fork-1").notes == 0
    assert read_state(store, "run-1").notes == 1


@pytest.mark.parametrize("at", [0, -1, 4, 10**9])
def test_an_event_that_does_not_exist_is_refused(store, at):
    written(store, *LONG[:3])
    with pytest.raises(NotFound, match="event") as caught:
        forked(store, at)
    assert "1 to 3" in caught.value.advice
    assert store.head("fork-1") is None


def test_a_run_that_does_not_exist_is_refused(store):
    with pytest.raises(NotFound):
        forked(store)
    assert store.head("fork-1") is None


def test_an_id_that_is_taken_or_none_is_refused(store):
    written(store, *LONG[:3])
    written(store, e.RunStarted(mission_id="other"), run_id="fork-1")
    before = picture(store, "fork-1")
    with pytest.raises(BadInput, match="is here already"):
        forked(store)
    with pytest.raises(BadInput, match="is here already"):
        forked(store, new_id="run-1")
    assert picture(store, "fork-1") == before
    with pytest.raises(InvalidId):
        forked(store, new_id="../x")


def test_an_event_that_this_version_cannot_read_is_not_copied(store):
    written(store, *LONG[:2])
    head, this = store.head("run-1"), another_process()
    op, body = this.new_op(), b'{"text":"from the future"}'
    hash_ = chain_hash(head.hash, "run-1", 3, "note_recorded", 99, AT, op, body)
    lease = store.take("run-1", this.owner, 30.0)
    store.append(lease, [Record("run-1", 3, "note_recorded", 99, AT, body, hash_, op)], head.projection)
    store.release(lease)
    with pytest.raises(NewerSchema):
        forked(store)
    assert store.head("fork-1") is None


def test_what_is_a_secret_by_now_does_not_reach_the_fork(store):
    secret = "hunter2-" + "x" * 20
    written(store, e.RunStarted(mission_id="m"), e.NoteRecorded(text=secret))
    forked(store, redact=Redactor([secret]))
    assert secret.encode() not in b"".join(record.body for record in store.read("fork-1"))
    assert verify_run(store, "fork-1").findings == ()


# --- with a live run


def pipeline(place, done, *, run_id=None, key="mail-{to}"):
    def work(what):
        done.append(what)
        return f"did {what}"

    def mail(to):
        done.append(f"mail {to}")
        return {"id": to}

    with holdfast.run("m", store=place, run_id=run_id) as run:
        first = run.step("first", work, "first")
        receipt = run.effect("mail", mail, "eve", key=key)
        second = run.step("second", work, "second")
    return first, receipt, second


def forked_file(place, at):
    with closing(holdfast.open_store(place)) as store:
        before = list(store.read("run-1"))
        fork(store, "run-1", "fork-1", another_process(), Redactor(), at)
        assert list(store.read("run-1")) == before


def place_of(kind, place):
    with closing(holdfast.open_store(place, read_only=True)) as store:
        return next(record.seq for record in store.read("run-1") if record.kind == kind)


@pytest.fixture(autouse=True)
def nobody_at_the_terminal(monkeypatch):
    monkeypatch.setattr("holdfast.adapters.terminal.is_there", lambda: False)
    for name in ("HOLDFAST_RUN", "HOLDFAST_YES", "HOLDFAST_PLAN", "HOLDFAST_STRICTNESS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("key", ["mail-{to}", None], ids=["named", "derived"])
def test_a_resumed_fork_does_only_what_came_after_its_event(tmp_path, key):
    place, done = str(tmp_path / "holdfast.db"), []
    result = pipeline(place, done, run_id="run-1", key=key)
    assert done == ["first", "mail eve", "second"]
    forked_file(place, place_of("effect_finished", place))
    assert pipeline(place, done, run_id="fork-1", key=key) == result
    assert done == ["first", "mail eve", "second", "second"]


def test_a_fork_of_a_finished_run_repeats_nothing(tmp_path):
    place, done = str(tmp_path / "holdfast.db"), []
    pipeline(place, done, run_id="run-1")
    forked_file(place, None)
    pipeline(place, done, run_id="fork-1")
    assert done == ["first", "mail eve", "second"]


def test_a_fork_that_was_asked_for_takes_the_place_of_the_run_that_the_code_names(tmp_path, monkeypatch):
    place, done = str(tmp_path / "holdfast.db"), []
    pipeline(place, done, run_id="run-1")
    with closing(holdfast.open_store(place)) as store:
        forked(store, at=place_of("effect_finished", place))
        forked(store, run_id="fork-1", new_id="fork-2")
    monkeypatch.setenv("HOLDFAST_RUN", "fork-2")
    pipeline(place, done, run_id="run-1")
    pipeline(place, done, run_id="run-2")  # another one is none of its business
    assert done == ["first", "mail eve", "second", "second", "first", "mail eve", "second"]
    with closing(holdfast.open_store(place, read_only=True)) as store:
        states = {run_id: read_state(store, run_id).status for run_id in ("run-1", "fork-1", "fork-2", "run-2")}
    assert states == {"run-1": "finished", "fork-1": "stopped", "fork-2": "finished", "run-2": "finished"}


def test_snapshots_are_of_their_own_run(tmp_path):
    place = str(tmp_path / "holdfast.db")
    pipeline(place, [], run_id="run-1")
    forked_file(place, None)
    with closing(holdfast.open_store(place)) as store:
        assert verify_run(store, "run-1").findings == verify_run(store, "fork-1").findings == ()
        assert snapshot(read_state(store, "run-1")) != snapshot(read_state(store, "fork-1"))


def test_an_id_that_is_taken_in_the_last_moment_is_refused(store):
    written(store, *LONG[:3])
    take = store.take

    def late(*arguments):
        store.take = take
        written(store, e.RunStarted(mission_id="other"), run_id="fork-1")
        return take(*arguments)

    store.take = late
    with pytest.raises(BadInput, match="is here already"):
        forked(store)
    assert read_state(store, "fork-1").mission_id == "other"
    assert not store.head("fork-1").held

"""What a log means: which event may follow which, what each does, and that a fold is the same however often it is done."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core import errors
from holdfast.core.events import (
    EVENTS,
    KIND_OF,
    BudgetSpent,
    CancelRequested,
    CheckpointAbandoned,
    CheckpointComplete,
    CheckpointResumed,
    CheckpointSidecarWriteFailed,
    CheckpointStarted,
    DriftFound,
    EffectFailed,
    EffectFinished,
    EffectSettled,
    EffectStarted,
    EnvironmentSeen,
    Event,
    Extension,
    GateBlocked,
    MilestoneIndexCorrected,
    NoteRecorded,
    QuestionAnswered,
    QuestionAsked,
    QuestionExpired,
    ResumeCheckpointSelected,
    RunFinished,
    RunResumed,
    RunStarted,
    RunStopped,
    ScopeDeclared,
    SleepEnded,
    SleepStarted,
    SnapshotKept,
    SnapshotSettled,
    StepCheckpointed,
    StepFailed,
    StepFinished,
    StepStarted,
)
from holdfast.core.state import (
    FINISHED,
    LEGAL,
    READY,
    RUNNING,
    SCHEMA_VERSION,
    STATUSES,
    STOPPED,
    RunState,
    evolve,
    fold,
    projection,
    read_snapshot,
    seal,
    snapshot,
    unseal,
)
from holdfast.core.values import Projection
from holdfast.core.wire import GENESIS, Plainly, decode, encode

START = RunStarted(mission_id="m", title="t", plan=("a", "b"), input_hash="h")
MARK = StepCheckpointed(
    checkpoint_id="c1", mission_id="m", step_id="a", strictness="medium", cursor="post_gate", input_hash="h",
    retry_token="t", timestamp="2026-01-02T03:04:05Z",
)  # fmt: skip
OPEN: tuple[Event, ...] = (
    START,
    StepStarted(step_id="a"),
    EffectStarted(effect_key="k", step_id="a", arguments_hash="1"),
    MARK,
    QuestionAsked(question_id="q", text="Well?", choices=("yes", "no")),
    SleepStarted(sleep_id="z", until="2026-01-02T03:04:05Z"),
    SnapshotKept(checkpoint_id="k1", snapshot="5" * 40, repo="/r", paths=2),
    EnvironmentSeen(artifact="7" * 64, repo="/r"),
)
KEPT = SnapshotKept(checkpoint_id="k1", snapshot="5" * 40, repo="/r", paths=2)
BEGUN = CheckpointStarted(
    checkpoint_id="w", repo="/r", index=0, title="first", branch="refs/heads/main", parent="p", base="p"
)
WAYS: dict[str, tuple[Event, ...]] = {
    READY: (),
    RUNNING: OPEN,
    STOPPED: (*OPEN, RunStopped(reason="cancelled", diagnosis="d")),
    FINISHED: (START, KEPT, RunFinished()),
}
SAMPLES: dict[type[Event], Event] = {
    RunStarted: START,
    RunResumed: RunResumed(),
    RunStopped: RunStopped(reason="cancelled"),
    RunFinished: RunFinished(),
    StepStarted: StepStarted(step_id="b"),
    StepFinished: StepFinished(step_id="a", output={"x": 1}),
    StepFailed: StepFailed(step_id="a", error="e"),
    EffectStarted: EffectStarted(effect_key="l", step_id="a"),
    EffectFinished: EffectFinished(effect_key="k", receipt=7),
    EffectFailed: EffectFailed(effect_key="k", error="e"),
    EffectSettled: EffectSettled(effect_key="k", settled_as="done"),
    CheckpointStarted: BEGUN,
    CheckpointComplete: CheckpointComplete(checkpoint_id="c", cursor="b"),
    CheckpointAbandoned: CheckpointAbandoned(checkpoint_id="w", why="gone"),
    CheckpointSidecarWriteFailed: CheckpointSidecarWriteFailed(checkpoint_id="w", path="/r/w.json", error="full"),
    ResumeCheckpointSelected: ResumeCheckpointSelected(source="log", sha="5" * 40, index=0),
    MilestoneIndexCorrected: MilestoneIndexCorrected(previous=1, corrected_to=2, reason="state_behind_checkpoint"),
    SnapshotKept: SnapshotKept(checkpoint_id="k2", snapshot="6" * 40, repo="/r"),
    SnapshotSettled: SnapshotSettled(checkpoint_id="k1", settled_as="restored"),
    EnvironmentSeen: EnvironmentSeen(artifact="7" * 64, repo="/r"),
    ScopeDeclared: ScopeDeclared(repo="/r", allow=("src/**",)),
    StepCheckpointed: MARK,
    GateBlocked: GateBlocked(step_id="a", strictness="max", conflicts=1),
    CheckpointResumed: CheckpointResumed(checkpoint_id="c1", retry_token="t"),
    DriftFound: DriftFound(drift="code", subject="a", verdict="go"),
    QuestionAsked: QuestionAsked(question_id="r", text="Really?"),
    QuestionAnswered: QuestionAnswered(question_id="q", answer="yes"),
    QuestionExpired: QuestionExpired(question_id="q"),
    SleepStarted: SleepStarted(sleep_id="y", until="2026-01-02T03:04:05Z"),
    SleepEnded: SleepEnded(sleep_id="z"),
    CancelRequested: CancelRequested(),
    BudgetSpent: BudgetSpent(tokens=5),
    NoteRecorded: NoteRecorded(text="n"),
    Extension: Extension(kind="x_a", data={}),
}
ALLOWED: set[tuple[type[Event], str]] = {
    (RunStarted, READY),
    (RunResumed, RUNNING), (RunResumed, STOPPED),
    (RunStopped, RUNNING), (RunFinished, RUNNING),
    (StepStarted, RUNNING), (StepFinished, RUNNING), (StepFailed, RUNNING),
    (StepFinished, STOPPED), (StepFailed, STOPPED),
    (EffectStarted, RUNNING), (EffectFinished, RUNNING), (EffectFailed, RUNNING),
    (EffectFinished, STOPPED), (EffectFailed, STOPPED),
    (EffectSettled, RUNNING), (EffectSettled, STOPPED),
    *((kind, status) for status in (RUNNING, STOPPED) for kind in (
        CheckpointStarted, CheckpointComplete, CheckpointAbandoned, CheckpointSidecarWriteFailed,
        ResumeCheckpointSelected, MilestoneIndexCorrected, SnapshotKept, SnapshotSettled)),
    (CheckpointSidecarWriteFailed, FINISHED), (SnapshotSettled, FINISHED),
    (EnvironmentSeen, RUNNING), (ScopeDeclared, RUNNING),
    (StepCheckpointed, RUNNING), (GateBlocked, RUNNING), (CheckpointResumed, RUNNING),
    (DriftFound, RUNNING), (QuestionAsked, RUNNING), (QuestionExpired, RUNNING),
    (QuestionAnswered, RUNNING), (QuestionAnswered, STOPPED),
    (SleepStarted, RUNNING), (SleepEnded, RUNNING), (CancelRequested, RUNNING), (BudgetSpent, RUNNING),
    (NoteRecorded, RUNNING), (NoteRecorded, STOPPED), (NoteRecorded, FINISHED),
    (Extension, RUNNING), (Extension, STOPPED), (Extension, FINISHED),
}  # fmt: skip


def after(*events: Event) -> RunState:
    return fold(events)


# --- what may follow what


def test_every_event_has_a_row_in_the_table():
    assert LEGAL.keys() == SAMPLES.keys() == {*EVENTS, Extension}


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("kind", SAMPLES, ids=lambda kind: kind.__name__)
def test_each_pair_of_event_and_status_is_allowed_or_refused(kind, status):
    """A run with open work cannot finish, so that pair is asked of one without."""
    way = (START,) if kind is RunFinished and status == RUNNING else WAYS[status]
    if kind is CheckpointAbandoned and status in (RUNNING, STOPPED):
        way = (*way, BEGUN)
    state = after(*way)
    before = snapshot(state)
    assert state.status == status
    if (kind, status) in ALLOWED:
        seq = state.seq
        assert evolve(state, SAMPLES[kind]).seq == seq + 1
        expected = LEGAL[kind][status]
        assert state.status == (status if expected is None else expected)
    else:
        with pytest.raises(errors.IllegalEvent, match=f"the run is {status}") as caught:
            evolve(state, SAMPLES[kind])
        assert snapshot(state) == before
        assert (caught.value.reason, caught.value.kind) == ("bad_input", KIND_OF.get(kind, "Extension"))


REFUSED: dict[str, tuple[Event, tuple[Event, ...], str]] = {
    "a step twice": (StepStarted(step_id="a"), (), "attempt 2, not 1"),
    "an attempt left out": (StepStarted(step_id="a", attempt=3), (), "attempt 2, not 3"),
    "a first attempt that is not the first": (StepStarted(step_id="z", attempt=2), (), "attempt 1, not 2"),
    "a finished step again": (StepStarted(step_id="a", attempt=2), (StepFinished(step_id="a"),), "already finished"),
    "the end of a step that never began": (StepFinished(step_id="z"), (), "not open"),
    "the end of another attempt": (StepFinished(step_id="a", attempt=2), (), "not open"),
    "two ends of one step": (StepFinished(step_id="a"), (StepFinished(step_id="a"),), "not open"),
    "a failure after the end": (StepFailed(step_id="a"), (StepFinished(step_id="a"),), "not open"),
    "an effect twice": (EffectStarted(effect_key="k", step_id="a", arguments_hash="1"), (), "is started"),
    "a key with other arguments": (EffectStarted(effect_key="k", step_id="a", arguments_hash="2"), (), "other arguments"),
    "a failed key with other arguments": (
        EffectStarted(effect_key="k", step_id="a", arguments_hash="2"), (EffectFailed(effect_key="k"),), "other arguments"),
    "an effect that was done": (
        EffectStarted(effect_key="k", step_id="a", arguments_hash="1"), (EffectFinished(effect_key="k"),), "is done"),
    "an effect that was abandoned": (
        EffectStarted(effect_key="k", step_id="a", arguments_hash="1"),
        (EffectSettled(effect_key="k", settled_as="abandoned"),), "is abandoned"),
    "an effect of unknown outcome": (
        EffectStarted(effect_key="k", step_id="a", arguments_hash="1"),
        (EffectSettled(effect_key="k", settled_as="unknown"),), "is unknown"),
    "the end of an effect that never began": (EffectFinished(effect_key="z"), (), "not open"),
    "two ends of one effect": (EffectFinished(effect_key="k"), (EffectFinished(effect_key="k"),), "not open"),
    "a failure of an effect that was done": (EffectFailed(effect_key="k"), (EffectFinished(effect_key="k"),), "not open"),
    "settling what is settled": (
        EffectSettled(effect_key="k", settled_as="not_done"), (EffectSettled(effect_key="k", settled_as="done"),), "not open"),
    "a step that ends unannounced as a later attempt": (
        StepFinished(step_id="z", attempt=2, input_hash="h"), (), "attempt 1, not 2"),
    "a finished step that ends once more, unannounced": (
        StepFinished(step_id="a", attempt=2, input_hash="h"), (StepFinished(step_id="a"),), "already finished"),
    "a token of no checkpoint": (CheckpointResumed(checkpoint_id="c1", retry_token="other"), (), "belongs to no checkpoint"),
    "a checkpoint that is not there": (CheckpointResumed(checkpoint_id="c9", retry_token="t"), (), "belongs to no checkpoint"),
    "a token twice": (
        CheckpointResumed(checkpoint_id="c1", retry_token="t"), (CheckpointResumed(checkpoint_id="c1", retry_token="t"),),
        "used before"),
    "a question twice": (QuestionAsked(question_id="q", text="Well?"), (), "asked before"),
    "an answer to nothing": (QuestionAnswered(question_id="r", answer="yes"), (), "never asked"),
    "an answer that was not offered": (QuestionAnswered(question_id="q", answer="maybe"), (), "one of yes, no"),
    "a second answer": (
        QuestionAnswered(question_id="q", answer="no"), (QuestionAnswered(question_id="q", answer="yes"),), "already answered"),
    "an answer that came too late": (
        QuestionAnswered(question_id="q", answer="no"), (QuestionExpired(question_id="q"),), "has expired"),
    "a sleep twice": (SleepStarted(sleep_id="z", until="2027-01-01T00:00:00Z"), (), "begun before"),
    "the end of a sleep that never began": (SleepEnded(sleep_id="y"), (), "not going on"),
    "two ends of one sleep": (SleepEnded(sleep_id="z"), (SleepEnded(sleep_id="z"),), "not going on"),
    "less than nothing spent": (BudgetSpent(tokens=-1), (), "less than nothing"),
    "less than no money spent": (BudgetSpent(money=-0.5), (), "less than nothing"),
    "the end of a run with open work": (RunFinished(), (), "still open: a, k"),
    "the end of a run with an open effect": (RunFinished(), (StepFinished(step_id="a"),), "still open: k"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_an_event_that_cannot_follow_is_refused_and_changes_nothing(name):
    event, then, problem = REFUSED[name]
    state = after(*OPEN, *then)
    before = snapshot(state)
    with pytest.raises(errors.IllegalEvent, match=problem):
        evolve(state, event)
    assert snapshot(state) == before


# --- what each does


def test_a_step_that_was_not_announced_is_done_by_its_end_alone():
    state = after(START, StepFinished(step_id="a", output=5, input_hash="h", code_hash="c"))
    step = state.steps["a"]
    assert (step.status, step.output, step.input_hash, step.code_hash, step.seq) == ("finished", 5, "h", "c", 2)
    assert (state.steps_done, state.spent.attempts, state.steps_open) == (1, 1, {})


def test_a_step_that_failed_may_end_unannounced_at_its_next_attempt():
    failed = (StepStarted(step_id="a"), StepFailed(step_id="a", error="e", retry_at="2026-01-02T03:04:05Z"))
    assert after(START, *failed).steps["a"].retry_at == "2026-01-02T03:04:05Z"
    assert after(START, *failed, StepFinished(step_id="a", attempt=2, input_hash="h")).steps["a"].status == "finished"


def test_accepted_changes_open_a_step_again():
    done = (START, StepFinished(step_id="a", input_hash="h"))
    accepted = DriftFound(drift="arguments", subject="a", verdict="go")
    state = after(*done, accepted)
    assert (state.steps["a"].status, state.steps_done) == ("reopened", 0)
    assert after(*done, accepted, StepFinished(step_id="a", attempt=2, input_hash="i")).steps_done == 1
    for other in (
        DriftFound(drift="arguments", subject="a", verdict="refuse"),
        DriftFound(drift="code", subject="a", verdict="go"),
        DriftFound(drift="arguments", subject="other", verdict="go"),
    ):
        assert after(*done, other).steps["a"].status == "finished"


def test_an_answer_that_is_accepted_for_another_question_remembers_which():
    asked = (START, QuestionAsked(question_id="q", text="Well?"))
    accepted = DriftFound(drift="arguments", subject="q", verdict="go", now="n")
    assert after(*asked).questions["q"].accepted is None
    assert after(*asked, accepted).questions["q"].accepted == "n"
    for other in (msgspec.structs.replace(accepted, verdict="refuse"), msgspec.structs.replace(accepted, drift="code")):
        assert after(*asked, other).questions["q"].accepted is None


def said(settled_as="done", by="person", receipt=None):
    return EffectSettled(effect_key="k", settled_as=settled_as, by=by, receipt=receipt)


@pytest.mark.parametrize(
    "before", [said(receipt=1), said(by="probe", receipt=1), EffectFinished(effect_key="k", artifact="a")]
)
def test_a_person_may_replace_the_receipt_of_an_effect_that_is_done(before):
    state = after(START, EffectStarted(effect_key="k", step_id="s"), before, said(receipt=2))
    effect = state.effects["k"]
    assert (effect.status, effect.receipt, effect.artifact, state.effects_open) == ("done", 2, None, {})


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (said(receipt=1), said(by="probe", receipt=2)),
        (said(receipt=1), said("not_done")),
        (said(receipt=1), said("unknown")),
        (said("abandoned"), said(receipt=2)),
        (said("not_done"), said(receipt=2)),
    ],
)
def test_nothing_else_of_what_is_known_is_said_again(before, now):
    with pytest.raises(errors.IllegalEvent, match="not open"):
        after(START, EffectStarted(effect_key="k", step_id="s"), before, now)


def test_accepted_inputs_are_those_of_the_run_from_then_on():
    assert after(START, DriftFound(drift="inputs", subject="the run", verdict="go", now="n")).input_hash == "n"
    assert after(START, DriftFound(drift="inputs", subject="the run", verdict="ask", now="n")).input_hash == "h"


def test_questions_sleeps_wishes_and_budgets_are_kept():
    state = after(
        *OPEN,
        QuestionAnswered(question_id="q", answer="no", message_id=7),
        SleepEnded(sleep_id="z"),
        BudgetSpent(tokens=5, money=0.25),
        BudgetSpent(tokens=1),
        CancelRequested(message_id=9),
    )
    assert state.questions["q"].answer == "no" and state.sleeps == {"z": None}
    assert (state.spent.tokens, state.spent.money, state.cancelling, state.heard) == (6, 0.25, True, 9)


def test_the_latest_checkpoint_of_a_step_is_the_one_that_counts():
    newer = msgspec.structs.replace(MARK, checkpoint_id="c2", retry_token="u")
    state = after(START, MARK, newer)
    assert (state.checkpoints["a"].checkpoint_id, state.checkpoints["a"].seq, state.cursor) == ("c2", 3, "post_gate")
    with pytest.raises(errors.IllegalEvent, match="no checkpoint"):
        evolve(state, CheckpointResumed(checkpoint_id="c1", retry_token="t"))


def test_a_step_may_be_tried_again_after_it_failed_or_was_cut_off():
    state = after(
        START, StepStarted(step_id="a"), StepFailed(step_id="a", error="e"), StepStarted(step_id="a", attempt=2)
    )
    assert (state.steps["a"].attempt, state.steps_open, state.steps_done) == (2, {"a": 2}, 0)
    state = after(
        START,
        StepStarted(step_id="a"),
        RunResumed(),
        StepStarted(step_id="a", attempt=2),
        StepFinished(step_id="a", attempt=2),
    )
    assert (state.steps["a"].status, state.steps_open, state.steps_done) == ("finished", {}, 1)


@pytest.mark.parametrize("then", [EffectFailed(effect_key="k"), EffectSettled(effect_key="k", settled_as="not_done")])
def test_a_failed_effect_frees_its_key(then):
    state = after(*OPEN, then, EffectStarted(effect_key="k", step_id="a", arguments_hash="1"))
    assert state.effects_open == {"k": "started"}


def test_an_effect_of_unknown_outcome_stays_open_until_it_is_settled():
    state = after(*OPEN, EffectSettled(effect_key="k", settled_as="unknown", evidence="no answer"))
    assert state.effects_open == {"k": "unknown"}
    evolve(state, EffectSettled(effect_key="k", settled_as="done", by="person"))
    assert (state.effects_open, state.effects["k"].status) == ({}, "done")


def test_a_stop_is_remembered_until_the_run_goes_on():
    state = after(*WAYS[STOPPED])
    assert (state.stop_reason, state.diagnosis, state.status) == ("cancelled", "d", STOPPED)
    evolve(state, RunResumed())
    assert (state.stop_reason, state.diagnosis, state.status, state.resumes) == (None, "", RUNNING, 1)


def test_the_projection_shows_what_the_state_holds():
    state = after(*OPEN, EffectFinished(effect_key="k"), StepFinished(step_id="a"), StepStarted(step_id="b"))
    assert projection(state) == Projection("m", "t", RUNNING, None, 1, 1, 0)
    assert projection(RunState()) == Projection()


def test_an_extension_means_nothing_to_the_state():
    one, other = after(*OPEN), after(*OPEN, SAMPLES[Extension])
    other.seq -= 1
    assert snapshot(one) == snapshot(other)


def test_two_states_share_nothing():
    one, other = RunState(), RunState()
    fold(OPEN, one)
    assert (other.steps, other.effects, other.steps_open, other.effects_open) == ({}, {}, {}, {})


# --- the fold

steps = st.sampled_from(["a", "b", "c"])
some_events = st.one_of(
    st.just(START),
    st.builds(RunResumed),
    st.builds(RunStopped, reason=st.sampled_from(["cancelled", "interrupted"])),
    st.builds(RunFinished),
    st.builds(StepStarted, step_id=steps, attempt=st.integers(1, 3)),
    st.builds(StepFinished, step_id=steps, attempt=st.integers(1, 3), output=st.integers(0, 9)),
    st.builds(StepFailed, step_id=steps, attempt=st.integers(1, 3)),
    st.builds(EffectStarted, effect_key=steps, step_id=steps, arguments_hash=st.sampled_from(["1", "1", "2"])),
    st.builds(EffectFinished, effect_key=steps),
    st.builds(EffectFailed, effect_key=steps),
    st.builds(
        EffectSettled, effect_key=steps, settled_as=st.sampled_from(["done", "not_done", "unknown", "abandoned"])
    ),
    st.builds(CheckpointComplete, checkpoint_id=steps),
    st.builds(CheckpointStarted, checkpoint_id=steps, repo=st.just("/r"), index=st.none() | st.integers(0, 3)),
    st.builds(CheckpointAbandoned, checkpoint_id=steps),
    st.builds(SnapshotKept, checkpoint_id=steps, snapshot=st.just("5"), repo=st.just("/r")),
    st.builds(SnapshotSettled, checkpoint_id=steps, settled_as=st.sampled_from(["restored", "dropped"])),
    st.builds(ScopeDeclared, repo=st.just("/r"), allow=st.just(("src/**",))),
    st.builds(NoteRecorded, text=st.text(st.characters(exclude_categories=["Cs"]), max_size=5)),
    st.just(SAMPLES[Extension]),
)
logs = st.lists(some_events, max_size=60).map(lambda events: [START, *events])


def recordable(events: list[Event], state: RunState | None = None) -> list[Event]:
    """What a writer would have kept of these: each folded before it is appended."""
    state = RunState() if state is None else state
    kept = []
    for event in events:
        before = snapshot(state)
        try:
            evolve(state, event)
        except errors.IllegalEvent:
            assert snapshot(state) == before
        else:
            kept.append(event)
    return kept


@given(logs)
def test_a_refused_event_leaves_the_state_alone_and_what_was_kept_folds_to_the_same(events):
    state = RunState()
    kept = recordable(events, state)
    assert snapshot(fold(kept)) == snapshot(state)
    assert state.seq == len(kept)


@settings(max_examples=30)
@given(logs)
def test_a_hundred_replays_are_identical(events):
    kept = recordable(events)
    assert len({snapshot(fold(kept)) for _ in range(100)}) == 1


@given(logs, st.integers(0, 60))
def test_a_fold_may_go_on_from_a_snapshot_anywhere(events, cut):
    kept = recordable(events)
    resumed = read_snapshot(snapshot(fold(kept[:cut])))
    assert snapshot(fold(kept[cut:], resumed)) == snapshot(fold(kept))


@given(logs)
def test_the_counts_are_those_of_the_parts(events):
    state = fold(recordable(events))
    assert state.steps_done == sum(1 for step in state.steps.values() if step.status == "finished")
    assert set(state.steps_open) == {name for name, step in state.steps.items() if step.status == "started"}
    assert state.effects_open == {
        name: effect.status for name, effect in state.effects.items() if effect.status in ("started", "unknown")
    }


@given(logs)
def test_a_log_that_went_over_the_wire_folds_to_the_same_state(events):
    kept = recordable(events)
    head, seen = GENESIS, []
    for seq, event in enumerate(kept, 1):
        record, _ = encode(event, "r", seq, head, "2026-01-02T03:04:05.678901Z", "0" * 32, Plainly())
        head = record.hash
        seen.append(decode(record))
    assert snapshot(fold(seen)) == snapshot(fold(kept))


# --- snapshots


def test_a_snapshot_says_its_version_and_reads_back():
    state = after(*OPEN)
    written = json.loads(snapshot(state))
    assert written["schema_version"] == SCHEMA_VERSION == "1.0.0"
    assert snapshot(read_snapshot(snapshot(state))) == snapshot(state)


def changed(edit: Callable[[dict], object]) -> bytes:
    data = json.loads(snapshot(after(*OPEN)))
    edit(data)
    return json.dumps(data).encode()


def test_a_snapshot_without_a_version_is_legacy_and_readable():
    state = read_snapshot(changed(lambda data: data.pop("schema_version")))
    assert state.schema_version == "0.0.0"
    assert (state.mission_id, state.seq) == ("m", len(OPEN))


def test_an_old_snapshot_with_fewer_fields_is_readable():
    assert read_snapshot(b'{"mission_id":"m"}') == RunState(schema_version="0.0.0", mission_id="m")


@pytest.mark.parametrize("version", ["1.0.1", "1.1.0", "1.99.99"])
def test_a_newer_minor_version_is_read_and_what_is_unknown_passed_over(version):
    state = read_snapshot(changed(lambda data: data.update(schema_version=version, came_later=[1])))
    assert (state.schema_version, state.seq) == (version, len(OPEN))


@pytest.mark.parametrize("version", ["2.0.0", "2", "10.0.0"])
def test_a_newer_major_version_is_refused_as_newer(version):
    with pytest.raises(errors.NewerSchema) as caught:
        read_snapshot(changed(lambda data: data.update(schema_version=version)), "state.json")
    assert str(caught.value).startswith("state.json was written by a newer Holdfast")
    assert (caught.value.reason, caught.value.found, caught.value.known) == ("newer_schema", version, "1.0.0")


BROKEN = {
    "nothing": b"",
    "not JSON": b"x",
    "cut off": b'{"schema_version":"1.0.0"',
    "a list": b"[]",
    "null": b"null",
    "not UTF-8": b'{"title":"\xff"}',
    "a version that is none": b'{"schema_version":"new"}',
    "a version that is null": b'{"schema_version":null}',
    "an empty version": b'{"schema_version":""}',
    "a wrong type": b'{"seq":"1"}',
    "steps that are none": b'{"steps":{"a":1}}',
    "brackets without end": b'{"a":' + b"[" * 200_000,
    "conflict markers": b'<<<<<<< ours\n{"seq":1}\n=======\n{"seq":2}\n>>>>>>> theirs\n',
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_snapshot_that_is_none_is_refused_by_type(name):
    with pytest.raises(errors.BadFile, match=r"^state\.json: it is no run state: .") as caught:
        read_snapshot(BROKEN[name], "state.json")
    assert (caught.value.path, caught.value.line) == ("state.json", None)


def test_a_snapshot_without_a_name_is_called_the_snapshot():
    with pytest.raises(errors.BadFile, match=r"^The snapshot: it is no run state"):
        read_snapshot(b"")


@given(st.binary(max_size=60))
def test_any_bytes_are_a_snapshot_or_refused_by_type(data):
    try:
        read_snapshot(data)
    except (errors.BadFile, errors.NewerSchema):
        return


@pytest.mark.parametrize("name", ["steps_open", "effects_open"])
def test_a_snapshot_that_calls_open_what_it_does_not_know_is_refused(name):
    value: dict[str, object] = {"steps_open": {"z": 1}, "effects_open": {"z": "started"}}
    with pytest.raises(errors.BadFile, match=r"^state\.json: it is no run state: it calls a step or an effect open"):
        read_snapshot(json.dumps({name: value[name]}).encode(), "state.json")


# --- seals

HEAD = bytes(range(32))


def test_a_sealed_snapshot_is_a_line_with_its_hash_and_the_state():
    state = after(*OPEN)
    line, _, data = seal(state, HEAD).partition(b"\n")
    assert line == hashlib.sha256(b"holdfast/snapshot/1\n" + HEAD + snapshot(state)).hexdigest().encode()
    assert data == snapshot(state)
    assert snapshot(unseal(seal(state, HEAD), HEAD)) == snapshot(state)


@pytest.mark.parametrize("place", [0, 63, 64, 65, -1])
def test_a_sealed_snapshot_that_was_changed_is_refused(place):
    sealed = bytearray(seal(after(*OPEN), HEAD))
    sealed[place] ^= 1
    with pytest.raises(errors.BadFile, match="The snapshot: its seal does not hold") as caught:
        unseal(bytes(sealed), HEAD)
    assert (caught.value.path, caught.value.line) == ("The snapshot", None)


@pytest.mark.parametrize("sealed", [b"", b"\n", b"{}", b"0" * 64 + b"\n{}"])
def test_what_has_no_seal_is_refused(sealed):
    with pytest.raises(errors.BadFile, match="its seal does not hold"):
        unseal(sealed, HEAD)


def test_a_seal_holds_for_one_event_only():
    with pytest.raises(errors.BadFile, match="belongs to another log"):
        unseal(seal(after(*OPEN), HEAD), bytes(32))


def test_a_seal_is_over_all_that_follows_its_line():
    data = snapshot(after(*OPEN)).replace(b",", b",\n")
    line = hashlib.sha256(b"holdfast/snapshot/1\n" + HEAD + data).hexdigest().encode()
    assert snapshot(unseal(line + b"\n" + data, HEAD)) == snapshot(after(*OPEN))

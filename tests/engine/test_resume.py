"""Checkpoints in the log: blocked, found and resumed from their cursor, over sessions and crashes (behaviours 29-37, 41-44)."""

from __future__ import annotations

import itertools
import multiprocessing
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.checkpoint import SCOPES, BadCheckpoint, Conflict, ScopeRef, verify_input_hash
from holdfast.core.errors import (
    ArtifactDamaged,
    HoldfastError,
    LeaseHeld,
    LeaseLost,
    NewerSchema,
    NotCanonical,
    NotFound,
    StoreBroken,
    StoreFull,
    StoreUnavailable,
    UsageError,
)
from holdfast.core.events import (
    CancelRequested,
    CheckpointResumed,
    GateBlocked,
    NoteRecorded,
    RunFinished,
    RunResumed,
    RunStarted,
    RunStopped,
    StepCheckpointed,
    StepFinished,
    StepStarted,
)
from holdfast.core.inputs import MISSING, compute_input_hash
from holdfast.core.redact import Redactor
from holdfast.core.stops import exit_code, is_known
from holdfast.core.strictness import Strictness
from holdfast.core.wire import chain_hash, decode
from holdfast.engine.log import RunLog, read_state, verify_run
from holdfast.engine.resume import (
    REFUSALS,
    BlockedByConflict,
    Context,
    CursorUnknown,
    InputChanged,
    NotResumable,
    ResumeMiddleware,
    TokenRefused,
    checkpoint,
    gate,
    load_latest,
)
from holdfast.ports import Projection, Record
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore
from tests.crash.workloads import world

MISSION = "041-glossary"
INPUTS = {"prompt": "a glossary", "terms": ["one", "two"], "options": {"depth": 2}}
HIGH = [Conflict("workspace", "high", "two senses")]
REFS = tuple(ScopeRef(scope, f"v{number}") for number, scope in enumerate(SCOPES))
NAMES = ("extraction", "semantic_check", "post_clarification", "pre_generation_gate", "post_gate")
SEEDS = itertools.count(1000)


def token(number=0):
    return f"{number:08x}-0000-4000-8000-{number:012x}"


def tokens(start=1):
    return map(token, itertools.count(start)).__next__


class Place:
    """A store that outlives its sessions."""

    def __init__(self, folder):
        self.folder = folder
        self.clock = 0.0
        self.store = MemoryStore(lambda: self.clock) if folder is None else None

    @contextmanager
    def opened(self):
        if self.store is not None:
            yield self.store
        else:
            with open_at(self.folder) as store:
                yield store

    @contextmanager
    def session(self, run_id="run-1", mission=MISSION, redact=None):
        with self.opened() as store, RunLog(store, run_id, world(next(SEEDS)), redact) as log:
            if log.state.seq == 0:
                log.record(RunStarted(mission_id=mission))
            yield log


def open_at(folder):
    return SqliteStore(folder / ".holdfast" / "holdfast.db", boot_id="boot-1")


@pytest.fixture(params=["memory", "sqlite"])
def place(request, tmp_path):
    return Place(None if request.param == "memory" else tmp_path)


@pytest.fixture
def log():
    with Place(None).session(redact=Redactor()) as log:
        yield log


def context(**changed):
    return Context(**({"mission_id": MISSION, "step_id": "specify", "inputs": INPUTS, "scope_refs": REFS} | changed))


class Pipeline:
    """Stages that count, with the gate before the last one."""

    def __init__(self, log, conflicts=(), new_token=None, **options):
        self.log, self.conflicts, self.options = log, conflicts, options
        self.new_token = new_token or tokens()
        self.calls, self.seen = [], []

    def stages(self):
        plain = {name: self.stage(name) for name in NAMES}
        return plain | {"pre_generation_gate": self.generation_gate}

    def stage(self, name):
        def work(context):
            self.calls.append(name)
            self.seen.append(context)
            return context

        return work

    def generation_gate(self, context):
        self.calls.append("pre_generation_gate")
        self.seen.append(context)
        gate(self.log, self.conflicts, context, new_token=self.new_token, **self.options)
        return context

    def run(self, retry_token=None, confirm=None, now=None, **changed):
        options = {} if confirm is None else {"confirm": confirm}
        return ResumeMiddleware(self.log, self.stages(), now=now, **options).run(context(**changed), retry_token)


def blocked(log, conflicts=HIGH, **options):
    """The error of a run that was blocked at its gate."""
    changed = options.pop("changed", {})
    with pytest.raises(BlockedByConflict) as error:
        Pipeline(log, conflicts, **options).run(**changed)
    return error.value


def events(log_or_store, run_id="run-1"):
    store = log_or_store.store if isinstance(log_or_store, RunLog) else log_or_store
    return [decode(record) for record in store.read(run_id)]


def of(kind, log):
    return [event for event in events(log) if isinstance(event, kind)]


def later(**delta):
    moment = datetime.fromisoformat("2026-01-02T03:04:05.000006Z") + timedelta(**delta)
    return lambda: moment.isoformat().replace("+00:00", "Z")


# --- the gate


def test_the_checkpoint_stands_before_the_block(place):
    """Behaviour 41: in sequence, and in one append, so that neither is there without the other."""
    with place.session() as log:
        error = blocked(log)
        told = events(log)
        assert [type(event) for event in told] == [RunStarted, StepCheckpointed, GateBlocked]
        assert told[2].checkpoint_id == told[1].checkpoint_id
        assert (told[2].conflicts, told[2].strictness, told[2].resumable) == (1, "medium", True)
        ops = [record.op for record in log.store.read("run-1")]
        assert ops[1] == ops[2]
        assert error.retry_token == told[1].retry_token == token(1)
        assert (error.resumable, error.conflicts, error.reason) == (True, tuple(HIGH), "awaiting_answer")
        assert token(1) in error.advice


@pytest.mark.parametrize(
    ("strictness", "severity", "closed"),
    [("off", "critical", False), ("medium", "low", False), ("medium", "strange", True), ("max", "low", True)],
)
def test_an_open_gate_writes_nothing(log, strictness, severity, closed):
    """Behaviours 39 and 41."""
    before = log.state.seq
    try:
        gate(log, [Conflict("x", severity)], context(strictness=Strictness(strictness)), new_token=tokens())
        assert not closed
    except BlockedByConflict:
        assert closed
    assert (log.state.seq - before) == (2 if closed else 0)


def test_the_block_names_a_few_of_its_conflicts():
    error = BlockedByConflict([Conflict(f"term {number}\x1b[2J") for number in range(9)], None)
    assert "9 conflict(s): term 0?[2J, " in str(error)
    assert str(error).endswith("and 4 more.")


class Failing:
    """A store whose disk is full from the n-th write on; `lies` writes and then loses the answer."""

    def __init__(self, store, problem, *, artifacts=False, appends=False, lies=False):
        self.store, self.problem, self.lies = store, problem, lies
        self.really = store.append, store.put_artifact
        if appends:
            store.append = self.append
        if artifacts:
            store.put_artifact = self.put_artifact

    def append(self, *arguments):
        if self.lies:
            self.heal()
            self.store.append(*arguments)
        raise self.problem

    def put_artifact(self, data):
        raise self.problem

    def heal(self):
        self.store.append, self.store.put_artifact = self.really


@pytest.mark.parametrize(
    "problem", [StoreFull("disk", "full"), StoreBroken("disk", "sick"), StoreUnavailable("db", "away")]
)
@pytest.mark.parametrize("where", ["artifacts", "appends"])
def test_a_checkpoint_that_cannot_be_written_still_blocks_and_says_so(place, problem, where):
    """Behaviour 42."""
    with place.session() as log:
        failing = Failing(log.store, problem, **{where: True})
        error = blocked(log)
        failing.heal()
        assert (error.resumable, error.retry_token, error.checkpoint) == (False, None, None)
        assert error.reason == "checkpoint_unwritable"
        assert "Resume will not be possible" in str(error)
        assert str(problem) in str(error)
        assert error.__cause__ is problem
        assert of(StepCheckpointed, log) == []
        assert [(event.resumable, event.checkpoint_id) for event in of(GateBlocked, log)] == (
            [(False, None)] if where == "artifacts" else []
        )
        assert verify_run(log.store, "run-1").findings == ()


def test_an_append_whose_answer_was_lost_is_looked_up(place):
    """Behaviour 42: what was written is not called lost, and what is on record is not given up."""
    with place.session() as log:
        Failing(log.store, StoreUnavailable("db", "the answer was lost"), appends=True, lies=True)
        error = blocked(log)
        assert (error.resumable, error.retry_token) == (True, token(1))
        assert len(of(GateBlocked, log)) == 1
        assert Pipeline(log).run(token(1)).resumed_from_checkpoint


def test_a_store_that_cannot_even_be_read_still_leaves_the_gate_closed(log):
    """Behaviour 42: whether the checkpoint was written cannot be known, so it is not promised."""
    problem = StoreBroken("disk", "gone")

    def gone(*arguments, **options):
        raise problem

    failing = Failing(log.store, problem, appends=True)
    log.store.read = gone
    error = blocked(log)
    failing.heal()
    del log.store.read
    assert (error.resumable, error.reason) == (False, "checkpoint_unwritable")


@pytest.mark.parametrize("inputs", [{"a": {1}}, {"a": float("nan")}])
def test_inputs_that_cannot_be_kept_do_not_open_the_gate(log, inputs):
    """Behaviour 42."""
    error = blocked(log, changed={"inputs": inputs})
    assert isinstance(error.__cause__, NotCanonical)
    assert [event.resumable for event in of(GateBlocked, log)] == [False]


def test_a_lost_lease_is_said_as_such():
    """Whoever lost the run has nothing to say about it, not even that it is blocked."""
    place = Place(None)
    with place.session() as log:
        place.clock += 1000
        with place.session() as other:
            before = other.state.seq
            with pytest.raises(LeaseLost):
                gate(log, HIGH, context(), new_token=tokens())
            assert place.store.head("run-1").seq == before


def test_a_gate_of_another_mission_is_refused(log):
    with pytest.raises(UsageError, match="belongs to mission"):
        gate(log, [], context(mission_id="other"), new_token=tokens())


# --- recording


def test_a_checkpoint_is_read_back_as_it_was(place):
    """Behaviour 38: in another session, with all four scopes."""
    with place.session() as log:
        made = checkpoint(
            log,
            step_id="specify",
            cursor="post_clarification",
            inputs=INPUTS,
            strictness=Strictness.MAX,
            scope_refs=REFS,
            new_token=tokens(7),
        )
    with place.opened() as store:
        found = load_latest(store, "run-1", MISSION, "specify")
        assert found == made
        assert (found.scope_refs, found.strictness, found.retry_token) == (REFS, Strictness.MAX, token(7))
        assert found.input_hash == compute_input_hash(INPUTS)
        assert verify_input_hash(found, INPUTS)
        assert store.get_artifact(found.input_hash) == msgspec.json.encode(INPUTS, order="sorted")


TEXT = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1)
IDS = TEXT.filter(str.isprintable)
ANY_INPUTS = st.dictionaries(
    st.text(max_size=20), st.text() | st.integers() | st.lists(st.text(max_size=9)), max_size=20
)
ANY_REFS = st.lists(st.builds(ScopeRef, st.from_regex("[a-z][a-z0-9_]{0,63}", fullmatch=True), IDS), max_size=30)


@settings(max_examples=150)
@given(
    IDS, IDS, st.from_regex("[a-z][a-z0-9_]{0,63}", fullmatch=True), ANY_INPUTS, ANY_REFS, st.none() | st.floats(1, 1e9)
)
def test_the_event_stays_under_1_kb_whatever_it_is_about(mission, step_id, cursor, inputs, refs, lifetime):
    """Behaviour 44: looked at as it is stored. What does not fit is refused, and nothing is written."""
    place = Place(None)
    with place.session(mission=mission) as log:
        options = {"step_id": step_id, "cursor": cursor, "inputs": inputs, "lifetime": lifetime}
        try:
            made = checkpoint(log, scope_refs=refs, new_token=tokens(), **options)
        except (BadCheckpoint, NotCanonical):
            assert log.state.seq == 1
            return
        records = list(place.store.read("run-1", after=1))
        assert [len(record.body) < 1024 for record in records] == [True]
        assert load_latest(place.store, "run-1", mission, step_id) == made
        assert made.scope_refs == tuple(refs)


@pytest.mark.parametrize("count", [0, 3, 40, 20_000])
def test_many_scopes_and_large_inputs_go_to_artifacts(place, count):
    """Behaviour 44: more scopes than any event could hold, and inputs of a megabyte."""
    refs = tuple(ScopeRef("team_domain", f"version-{number}") for number in range(count))
    with place.session() as log:
        error = blocked(log, changed={"scope_refs": refs, "inputs": {"text": "x" * 1_000_000}})
        assert max(len(record.body) for record in log.store.read("run-1")) < 1024
        assert of(StepCheckpointed, log)[0].refs is None or count > 3
    with place.session() as log:
        after = Pipeline(log).run(error.retry_token, inputs={"text": "x" * 1_000_000}, scope_refs=())
        assert after.scope_refs == refs


@pytest.mark.parametrize("lifetime", [0, -1, float("nan"), float("inf"), 1e300])
def test_a_lifetime_that_is_none_is_refused(log, lifetime):
    with pytest.raises(UsageError, match="cannot live"):
        checkpoint(log, step_id="a", cursor="b", inputs={}, new_token=tokens(), lifetime=lifetime)
    assert log.state.seq == 1


# --- secrets

SECRET = "gh" + "p_" + "a1B2" * 9


def test_secrets_are_nowhere_and_the_token_survives(place):
    """Behaviour 29: redacted before hashing and before any write."""
    redact = Redactor([SECRET])
    with place.session(redact=redact) as log:
        error = blocked(log, changed={"inputs": {"env": f"TOKEN={SECRET}", "password": "correct horse", "n": 1}})
        assert of(StepCheckpointed, log)[0].retry_token == error.retry_token == token(1)
        kept = log.store.get_artifact(of(StepCheckpointed, log)[0].inputs)
        assert SECRET.encode() not in kept
        assert b"correct horse" not in kept
        assert b'"n":1' in kept
    with place.session(redact=redact) as log:
        with pytest.raises(InputChanged) as changed:
            Pipeline(log).run(token(1), inputs={"env": f"TOKEN={SECRET}2", "password": "battery", "n": SECRET})
        assert SECRET not in str(changed.value)
        assert "battery" not in str(changed.value)
        assert list(changed.value.difference.changes) == ["n"]
        assert "[redacted" in changed.value.difference.changes["n"].new


def test_a_secret_that_was_exchanged_is_no_change(place):
    """The hash is of the redacted inputs."""
    with place.session(redact=Redactor()) as log:
        blocked(log, changed={"inputs": {"api_key": "old-key-1234"}})
        assert Pipeline(log).run(token(1), inputs={"api_key": "new-key-5678"}).resumed_from_checkpoint


@pytest.mark.parametrize("changed", [{"step_id": f"step {SECRET}"}, {"scope_refs": (ScopeRef("team_domain", SECRET),)}])
def test_a_name_that_would_be_redacted_is_refused(log, changed):
    error = blocked(log, changed=changed)
    assert isinstance(error.__cause__, UsageError)
    assert SECRET not in str(error)


def test_a_token_that_is_also_a_secret_is_refused_before_the_work(place):
    """It stood in an environment variable called a token: its use could not be recorded."""
    with place.session() as log:
        blocked(log)
    with place.session(redact=Redactor([token(1)])) as log:
        assert why_refused(log, token(1)) == "secret"


# --- loading


def test_there_is_nothing_to_load(place):
    with place.session() as log:
        assert load_latest(log.store, "run-1", MISSION, "specify") is None
        assert load_latest(log.store, "run-2", MISSION, "specify") is None


def test_the_latest_is_the_last_by_sequence_whatever_the_clock_says(place):
    """Behaviour 43."""
    with place.session() as log:
        for number, days in enumerate((0, 9, -9)):
            options = {"step_id": "specify", "cursor": "post_gate", "inputs": {"n": number}}
            last = checkpoint(log, new_token=tokens(number), now=later(days=days), **options)
        checkpoint(log, step_id="other", cursor="post_gate", inputs={}, new_token=tokens(9), now=later(days=99))
        assert last.timestamp < datetime.fromisoformat(of(StepCheckpointed, log)[0].timestamp)
    with place.opened() as store:
        assert load_latest(store, "run-1", MISSION, "specify") == last


def test_repeated_blocks_keep_separate_records(place):
    """Behaviour 43."""
    for number in range(1, 4):
        with place.session() as log:
            blocked(log, new_token=tokens(number), changed={"inputs": {"n": number}})
    with place.session() as log:
        told = of(StepCheckpointed, log)
        assert [event.retry_token for event in told] == [token(1), token(2), token(3)]
        assert len({event.checkpoint_id for event in told}) == 3
        assert len(of(GateBlocked, log)) == 3
        assert load_latest(log.store, "run-1", MISSION, "specify").retry_token == token(3)
        assert why_refused(log, token(1), inputs={"n": 1}) == "superseded"
        assert Pipeline(log).run(token(3), inputs={"n": 3}).retry_token == token(3)


def test_lookup_is_bound_to_mission_and_run_and_step(place):
    """Behaviour 35: the same step, in two runs of one mission and a run of another."""
    where = {"run-1": MISSION, "run-2": MISSION, "run-3": "other"}
    made = {}
    for number, (run_id, mission) in enumerate(where.items(), 1):
        with place.session(run_id, mission) as log:
            made[run_id] = blocked(log, new_token=tokens(number), changed={"mission_id": mission}).checkpoint
    with place.opened() as store:
        for run_id, mission, step_id in itertools.product(where, {MISSION, "other"}, ("specify", "plan")):
            found = load_latest(store, run_id, mission, step_id)
            right = where[run_id] == mission and step_id == "specify"
            assert found == (made[run_id] if right else None)
    with place.session("run-1") as log:
        assert why_refused(log, token(2)) == "run"
        assert why_refused(log, token(3)) == "run"
        assert why_refused(log, token(3), mission_id="other") == "mission"


def from_the_future(place, version):
    """A record that a newer Holdfast put after everything else."""
    with place.session() as log:
        last = list(log.store.read("run-1"))[-1]
        body = of(StepCheckpointed, log)[-1]
        body = msgspec.json.encode(msgspec.structs.replace(body, checkpoint_id="newer"))
        envelope = (last.run_id, last.seq + 1, "step_checkpointed", version, last.at)
        op = f"{next(SEEDS):032x}"
        record = Record(*envelope, body, chain_hash(last.hash, *envelope, op, body), op)
        log.store.append(log.lease, [record], Projection(mission_id=MISSION, status="running"))


def test_a_newer_checkpoint_is_refused_and_no_older_one_used_instead(place):
    """Behaviour 43: newer_schema."""
    with place.session() as log:
        blocked(log)
    from_the_future(place, StepCheckpointed.version + 1)
    with place.opened() as store:
        with pytest.raises(NewerSchema) as refused:
            load_latest(store, "run-1", MISSION, "specify")
        assert refused.value.reason == "newer_schema"
        with pytest.raises(NewerSchema):
            RunLog(store, "run-1", world(next(SEEDS)))


def test_an_unknown_cursor_is_refused_and_no_older_one_used_instead(place):
    """Behaviour 43: cursor_unknown."""
    with place.session() as log:
        blocked(log)
        checkpoint(log, step_id="specify", cursor="from_tomorrow", inputs=INPUTS, new_token=tokens(2))
        with pytest.raises(CursorUnknown) as refused:
            load_latest(log.store, "run-1", MISSION, "specify", cursors=NAMES)
        assert (refused.value.cursor, refused.value.reason) == ("from_tomorrow", "cursor_unknown")
        assert load_latest(log.store, "run-1", MISSION, "specify").cursor == "from_tomorrow"
        before, pipeline = log.state.seq, Pipeline(log)
        with pytest.raises(CursorUnknown, match="from_tomorrow"):
            pipeline.run(token(2))
        assert (log.state.seq, pipeline.calls) == (before, [])
        assert why_refused(log, token(1)) == "superseded"


# --- resuming


@pytest.mark.parametrize("empty", [None, ""])
def test_without_a_token_all_stages_run_afresh(place, empty):
    with place.session() as log:
        blocked(log)
        pipeline = Pipeline(log)
        stale = context(retry_token=token(5), cursor="post_gate", resumed_from_checkpoint=True)
        after = ResumeMiddleware(log, pipeline.stages()).run(stale, empty)
        assert pipeline.calls == list(NAMES)
        assert (after.resumed_from_checkpoint, after.retry_token) == (False, None)
        assert [seen.cursor for seen in pipeline.seen] == list(NAMES)


def test_resume_in_another_session_goes_on_from_the_cursor(place):
    """Behaviours 32 and 34: no prompt, and what stands before the gate is not done again."""
    with place.session() as log:
        first = Pipeline(log, HIGH)
        with pytest.raises(BlockedByConflict) as error:
            first.run(strictness=Strictness.MAX)
        assert first.calls == list(NAMES[:4])
    with place.session() as log:
        second = Pipeline(log)
        after = second.run(error.value.retry_token, confirm=never, scope_refs=(), strictness=Strictness.OFF)
        assert second.calls == list(NAMES[3:])
        restored = second.seen[0]
        assert (restored.strictness, restored.scope_refs) == (Strictness.MAX, REFS)
        assert (restored.cursor, restored.retry_token) == ("pre_generation_gate", token(1))
        assert restored.resumed_from_checkpoint
        assert after.cursor == "post_gate"
        told = of(CheckpointResumed, log)
        assert [(event.retry_token, event.accepted) for event in told] == [(token(1), False)]
        assert read_state(log.store, "run-1").checkpoints["specify"].used


def never(difference):
    raise AssertionError("nobody should be asked")


@pytest.mark.parametrize("cursor", NAMES)
def test_the_cursor_decides_where_work_continues(place, cursor):
    """Behaviour 34: for every place it can stand at."""
    with place.session() as log:
        checkpoint(log, step_id="specify", cursor=cursor, inputs=INPUTS, new_token=tokens())
    with place.session() as log:
        pipeline = Pipeline(log)
        pipeline.run(token(1))
        assert pipeline.calls == list(NAMES[NAMES.index(cursor) :])


def test_a_conflict_that_is_still_there_blocks_again_and_keeps_the_token(place):
    """Behaviours 33 and 43: the token of the first block is good until the conflict is gone."""
    with place.session() as log:
        first = blocked(log)
    for times in (1, 2, 3):
        with place.session() as log:
            pipeline = Pipeline(log, HIGH, new_token=tokens(50))
            with pytest.raises(BlockedByConflict) as again:
                pipeline.run(first.retry_token)
            assert pipeline.calls == ["pre_generation_gate"]
            assert again.value.retry_token == first.retry_token
            told = of(StepCheckpointed, log)
            assert len({event.checkpoint_id for event in told}) == len(told) == times + 1
            assert len(of(GateBlocked, log)) == times + 1
            assert of(CheckpointResumed, log) == []
    with place.session() as log:
        pipeline = Pipeline(log)
        pipeline.run(first.retry_token)
        assert pipeline.calls == ["pre_generation_gate", "post_gate"]
        assert of(CheckpointResumed, log)[0].checkpoint_id == of(StepCheckpointed, log)[-1].checkpoint_id
        assert why_refused(log, first.retry_token) == "used"


def test_a_stage_may_put_another_checkpoint_in_the_place_of_the_resumed_one(log):
    """Then that one counts, and nothing is recorded as used that was not."""
    blocked(log)

    def replace(context):
        checkpoint(log, step_id="specify", cursor="post_gate", inputs=context.inputs, new_token=tokens(8))
        return context

    pipeline = Pipeline(log)
    ResumeMiddleware(log, pipeline.stages() | {"pre_generation_gate": replace}).run(context(), token(1))
    assert of(CheckpointResumed, log) == []
    assert why_refused(log, token(1)) == "superseded"
    again = Pipeline(log)
    again.run(token(8))
    assert again.calls == ["post_gate"]


def test_a_stage_that_moves_the_cursor_on_keeps_the_token(log):
    """The same token then asks for the later place."""
    blocked(log)

    def forward(context):
        options = {"step_id": "specify", "inputs": context.inputs, "new_token": tokens(8)}
        checkpoint(log, cursor="post_gate", token=context.retry_token, **options)
        raise Crash

    with pytest.raises(Crash):
        ResumeMiddleware(log, Pipeline(log).stages() | {"pre_generation_gate": forward}).run(context(), token(1))
    pipeline = Pipeline(log)
    pipeline.run(token(1))
    assert pipeline.calls == ["post_gate"]
    assert why_refused(log, token(1)) == "used"


# --- changed inputs

CHANGED = {"prompt": "a glossary", "terms": ["one", "three"], "options": {}}
NEW_HASH = compute_input_hash(CHANGED)


class Asked:
    def __init__(self, answer):
        self.answer, self.differences = answer, []

    def __call__(self, difference):
        self.differences.append(difference)
        return self.answer


@pytest.mark.parametrize("answer", ["nobody is there", False, None, "no", 1])
def test_changed_inputs_are_refused_unless_somebody_says_yes(place, answer):
    """Behaviours 29, 30 and 31: the default is No, and a refusal has its own exit code and writes nothing."""
    confirm = None if answer == "nobody is there" else Asked(answer)
    with place.session() as log:
        blocked(log)
    with place.session() as log:
        before, pipeline = log.state.seq, Pipeline(log)
        with pytest.raises(InputChanged) as refused:
            pipeline.run(token(1), confirm=confirm, inputs=CHANGED)
        assert (log.state.seq, pipeline.calls) == (before, [])
        assert refused.value.reason == "input_changed"
        assert exit_code(refused.value.reason) == 40
        difference = refused.value.difference
        assert (difference.old_hash, difference.new_hash) == (compute_input_hash(INPUTS)[:16], NEW_HASH[:16])
        assert difference.changes == {"options.depth": ("2", MISSING), "terms[1]": ('"two"', '"three"')}
        assert f'{NEW_HASH[:16]}): options.depth: 2 -> (missing); terms[1]: "two" -> "three"' in str(refused.value)
        assert NEW_HASH not in str(refused.value)
        assert confirm is None or len(confirm.differences) == 1
        assert Pipeline(log).run(token(1)).resumed_from_checkpoint


def test_accepted_inputs_are_on_record_before_anything_is_done_with_them(place):
    """Behaviour 29: the next session compares with what was accepted."""
    asked = Asked(True)
    with place.session() as log:
        blocked(log, lifetime=60)
    with place.session() as log:
        pipeline = Pipeline(log)
        stages = pipeline.stages() | {"post_gate": crash}
        with pytest.raises(Crash):
            ResumeMiddleware(log, stages, asked).run(context(inputs=CHANGED), token(1))
        assert len(asked.differences) == 1
        old, new = of(StepCheckpointed, log)
        assert (new.input_hash, new.retry_token, new.cursor) == (NEW_HASH, token(1), old.cursor)
        assert (new.expires_at, new.scope_refs) == (old.expires_at, old.scope_refs)
        assert new.checkpoint_id != old.checkpoint_id
    with place.session() as log:
        with pytest.raises(InputChanged) as refused:
            Pipeline(log).run(token(1))
        assert refused.value.difference.old_hash == NEW_HASH[:16]
        Pipeline(log).run(token(1), confirm=never, inputs=CHANGED)
    with place.session() as log:
        assert why_refused(log, token(1), inputs=CHANGED) == "used"


def test_that_changed_inputs_were_accepted_is_recorded(log):
    blocked(log)
    Pipeline(log).run(token(1), confirm=Asked(True), inputs=CHANGED)
    assert [event.accepted for event in of(CheckpointResumed, log)] == [True]


def test_inputs_that_were_not_kept_are_compared_by_their_hashes(log):
    """What changed is then unknown, and is called so."""
    blocked(log)
    log.store._artifacts.clear()
    with pytest.raises(InputChanged, match="not kept"):
        Pipeline(log).run(token(1), inputs=CHANGED)
    assert Pipeline(log).run(token(1)).resumed_from_checkpoint


def test_kept_inputs_that_were_damaged_are_not_believed(log):
    blocked(log)
    name = of(StepCheckpointed, log)[0].inputs
    encoding, size, data = log.store._artifacts[name]
    log.store._artifacts[name] = (encoding, size, data.replace(b"two", b"six"))
    with pytest.raises(ArtifactDamaged):
        Pipeline(log).run(token(1), confirm=Asked(True), inputs=CHANGED)


# --- refused tokens


def test_a_token_that_is_in_use_resumes_nothing_in_another_thread_and_can_be_used_again_after_an_error(place):
    with place.session() as log:
        blocked(log)
        going, ended = threading.Event(), threading.Event()

        class Slow(Pipeline):
            def stage(self, name):
                work = super().stage(name)
                return lambda context: (going.set(), ended.wait(30), work(context))[2]

        class Failing(Pipeline):
            def stage(self, name):
                return lambda context: 1 / 0

        with pytest.raises(ZeroDivisionError):
            Failing(log).run(token(1))
        slow = Slow(log)
        with ThreadPoolExecutor() as pool:
            first = pool.submit(slow.run, token(1))
            assert going.wait(30)
            try:
                assert [why_refused(log, token(1)) for _ in range(2)] == ["in_use"] * 2
            finally:
                ended.set()
            first.result(30)
        assert slow.calls == ["pre_generation_gate", *NAMES[NAMES.index("pre_generation_gate") + 1 :]]
        assert why_refused(log, token(1)) == "used"


def why_refused(log, retry_token, now=None, **changed):
    """Why a token is refused, after showing that nothing ran and nothing was written."""
    before, pipeline = log.state.seq, Pipeline(log)
    with pytest.raises(TokenRefused) as refused:
        pipeline.run(retry_token, confirm=never, now=now, **changed)
    assert refused.value.reason == "token_refused"
    assert REFUSALS[refused.value.why] in str(refused.value)
    assert (log.state.seq, pipeline.calls) == (before, [])
    return refused.value.why


@pytest.mark.parametrize(
    "bad", ["x" * 36, token(1)[:-1], token(1) + "0", " ", "../../etc", "\ud800", token(1)[1:] + "g"]
)
def test_a_token_of_another_shape_is_refused(log, bad):
    """Behaviour 37."""
    blocked(log)
    assert why_refused(log, bad) == "shape"


def test_a_token_is_good_for_one_mission_run_and_step(place):
    """Behaviour 36."""
    with place.session() as log:
        blocked(log)
        blocked(log, new_token=tokens(2), changed={"step_id": "plan"})
        assert why_refused(log, token(1), step_id="plan") == "step"
        assert why_refused(log, token(2)) == "step"
        assert why_refused(log, token(1), step_id="nothing") == "step"
        assert why_refused(log, token(9)) == "run"
        assert why_refused(log, token(1), mission_id="other") == "mission"
        assert Pipeline(log).run(token(1)).retry_token == token(1)
        assert Pipeline(log).run(token(2), step_id="plan").retry_token == token(2)


def test_an_expired_token_is_refused_and_one_that_is_not_is_used(place):
    """Behaviour 36."""
    with place.session() as log:
        blocked(log, lifetime=60.0)
        assert of(StepCheckpointed, log)[0].expires_at == "2026-01-02T03:05:05.000006Z"
        assert why_refused(log, token(1), now=later(seconds=60)) == "expired"
        assert why_refused(log, token(1), now=later(days=400)) == "expired"
        assert Pipeline(log).run(token(1), now=later(seconds=59.9)).resumed_from_checkpoint


def test_a_used_token_is_refused(place):
    """Behaviour 36."""
    with place.session() as log:
        blocked(log)
        Pipeline(log).run(token(1))
        assert why_refused(log, token(1)) == "used"
    with place.session() as log:
        assert why_refused(log, token(1)) == "used"


def test_a_finished_step_is_not_resumed(log):
    """Behaviour 36."""
    log.record(StepStarted(step_id="specify"))
    blocked(log)
    log.record(StepFinished(step_id="specify"))
    assert why_refused(log, token(1)) == "finished"


@pytest.mark.parametrize("error", [TokenRefused, InputChanged, CursorUnknown, NotResumable, BlockedByConflict])
def test_every_reason_is_in_the_registry(error):
    assert is_known(error.reason)
    assert is_known("checkpoint_unwritable")
    assert issubclass(error, HoldfastError)


def resume_at_once(folder, name, barrier, seen, report):
    """One of two processes with the same token. The winner stays in its stage until the loser has been turned away."""

    def work(context):
        with open(folder / "work", "a", encoding="utf-8") as file:
            file.write(f"{name}\n")
        assert seen.wait(60)
        return context

    with open_at(folder) as store:
        barrier.wait(60)
        for _ in range(2000):
            try:
                with RunLog(store, "run-1", world(name)) as log:
                    ResumeMiddleware(log, {"pre_generation_gate": work}).run(context(), token(1))
                    report.put((name, "done"))
                return
            except LeaseHeld:
                seen.set()
                time.sleep(0.02)
            except TokenRefused as refused:
                report.put((name, refused.why))
                return


@pytest.mark.slow
def test_of_two_processes_with_one_token_one_wins(tmp_path):
    """Behaviour 36: while one is at work the other is turned away by the lease, and afterwards the token is used."""
    with Place(tmp_path).session() as log:
        blocked(log)
    spawning = multiprocessing.get_context("spawn")
    barrier, seen, report = spawning.Barrier(2), spawning.Event(), spawning.Queue()
    both = [spawning.Process(target=resume_at_once, args=(tmp_path, n, barrier, seen, report)) for n in (71, 72)]
    for process in both:
        process.start()
    try:
        told = dict(report.get(timeout=120) for _ in both)
    finally:
        for process in both:
            process.join(60)
            process.kill()
    assert sorted(told.values()) == ["done", "used"]
    assert seen.is_set()
    winner = next(name for name, what in told.items() if what == "done")
    assert (tmp_path / "work").read_text(encoding="utf-8") == f"{winner}\n"
    with open_at(tmp_path) as store:
        assert verify_run(store, "run-1").findings == ()


def test_a_process_that_lost_the_run_begins_no_further_stage():
    """Behaviour 36: it was stopped for longer than its lease."""
    place = Place(None)
    with place.session() as log:
        blocked(log)
        pipeline = Pipeline(log)

        def sleepy(context):
            place.clock += 1000
            with place.session() as other:
                other.record(NoteRecorded(text="mine now"))
            return context

        with pytest.raises(LeaseLost):
            ResumeMiddleware(log, pipeline.stages() | {"pre_generation_gate": sleepy}).run(context(), token(1))
        assert pipeline.calls == []


# --- the run around it


def test_a_stopped_run_is_woken_only_when_the_token_is_good(place):
    with place.session() as log:
        blocked(log)
        log.record(RunStopped(reason="awaiting_answer"))
    with place.session() as log:
        assert why_refused(log, token(9)) == "run"
        with pytest.raises(InputChanged):
            Pipeline(log).run(token(1), inputs=CHANGED)
        assert log.state.status == "stopped"
        Pipeline(log).run(token(1))
        assert [type(event) for event in events(log)][-2:] == [RunResumed, CheckpointResumed]
        assert of(RunResumed, log)[0].was == "awaiting_answer"


def test_scopes_that_are_lost_are_missed_before_anything_is_written(log):
    refs = tuple(ScopeRef("team_domain", f"version-{number}") for number in range(90))
    blocked(log, changed={"scope_refs": refs})
    log.record(RunStopped(reason="awaiting_answer"))
    log.store._artifacts.clear()
    with pytest.raises(NotFound):
        Pipeline(log).run(token(1))
    assert log.state.status == "stopped"


def test_a_fresh_run_wakes_a_stopped_one(log):
    log.record(RunStopped(reason="user_stopped"))
    Pipeline(log).run()
    assert log.state.status == "running"


@pytest.mark.parametrize("retry_token", [None, token(1)])
def test_a_run_that_is_finished_or_not_begun_is_refused(retry_token):
    place = Place(None)
    with RunLog(place.store, "run-9", world(next(SEEDS))) as log, pytest.raises(UsageError, match="not been started"):
        Pipeline(log).run(retry_token)
    with place.session() as log:
        blocked(log)
        log.record(RunFinished())
        with pytest.raises(NotResumable) as refused:
            Pipeline(log).run(retry_token)
        assert refused.value.reason == "not_resumable"


@pytest.mark.parametrize("token_given", [True, False])
def test_a_run_that_was_cancelled_is_not_woken_by_a_token(token_given):
    place = Place(None)
    with place.session() as log:
        given = blocked(log).retry_token
        log.record(CancelRequested(), RunStopped(reason="cancelled"))
    with place.session() as log:
        before = log.state.seq
        with pytest.raises(NotResumable, match="stopped for cancelled, which is for good") as refused:
            Pipeline(log).run(given if token_given else None)
        assert "holdfast fork" in refused.value.advice and log.state.seq == before


def test_a_fresh_run_of_another_mission_is_refused(log):
    with pytest.raises(UsageError, match="belongs to mission"):
        Pipeline(log).run(mission_id="other")


@pytest.mark.parametrize("result", [None, {}, "context"])
def test_a_stage_that_loses_the_context_is_named(log, result):
    with pytest.raises(UsageError, match="stage first returned"):
        ResumeMiddleware(log, {"first": lambda context: result}).run(context())


@pytest.mark.parametrize("name", ["", "Extraction", "a b", "x" * 65])
def test_a_stage_must_have_a_name_that_a_cursor_can_have(log, name):
    """Otherwise it could be blocked but never resumed."""
    with pytest.raises(UsageError, match="no cursor can have"):
        ResumeMiddleware(log, {"first": crash, name: crash})


def test_an_error_of_a_stage_goes_through_and_the_token_stays(log):
    """It was not used up, and what stands before the cursor is still not done again."""
    blocked(log)

    def fail(context):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ResumeMiddleware(log, Pipeline(log).stages() | {"post_gate": fail}).run(context(), token(1))
    pipeline = Pipeline(log)
    pipeline.run(token(1))
    assert pipeline.calls == ["pre_generation_gate", "post_gate"]


def test_a_stage_may_end_the_run(log):
    blocked(log)

    def finish(context):
        log.record(RunFinished())
        return context

    ResumeMiddleware(log, Pipeline(log).stages() | {"post_gate": finish}).run(context(), token(1))
    assert log.state.status == "finished"


# --- killed anywhere


class Crash(BaseException):
    """The process dies here. No `except Exception` can hide it."""


def crash(context):
    raise Crash


class Dying:
    """A store whose process dies before or after one write of an effort, counted over all its sessions."""

    def __init__(self, store, effort):
        self.inner, self.effort, self.dead = store, effort, False

    def append(self, *arguments):
        return self.write(self.inner.append, *arguments)

    def put_artifact(self, *arguments):
        return self.write(self.inner.put_artifact, *arguments)

    def write(self, really, *arguments):
        self.alive()
        self.effort.writes += 1
        dying = self.effort.writes == self.effort.at
        if dying and self.effort.when == "before":
            self.die()
        done = really(*arguments)
        if dying:
            self.die()
        return done

    def die(self):
        self.dead = True
        raise Crash

    def alive(self):
        if self.dead:
            raise Crash

    def __getattr__(self, name):
        self.alive()
        return getattr(self.inner, name)


class Effort:
    """Somebody who starts the pipeline again and again, in new processes, until it is done."""

    def __init__(self, place, at=0, when="before"):
        self.place, self.at, self.when = place, at, when
        self.calls, self.solved, self.writes, self.crashes = [], False, 0, 0

    def until_done(self):
        for _ in range(9):
            try:
                with self.place.opened() as store:
                    self.once(Dying(store, self))
                return
            except Crash:
                self.crashes += 1
                self.place.clock += 1000
            except BlockedByConflict as error:
                assert error.resumable
                self.solved = True
        raise AssertionError("never done")

    def once(self, store):
        log = RunLog(store, "run-1", world(next(SEEDS)))
        try:
            if log.state.seq == 0:
                log.record(RunStarted(mission_id=MISSION))
            self.work(log)
        finally:
            if not store.dead:
                log.close()

    def work(self, log):
        known = log.state.checkpoints.get("specify")
        if known is not None and known.used:
            return
        pipeline = Pipeline(log, () if self.solved else HIGH, new_token=tokens(next(SEEDS)))
        pipeline.calls = self.calls
        changed = {"inputs": CHANGED} if self.solved else {}
        pipeline.run(known.retry_token if known else None, confirm=Asked(True), **changed)


CLEAN = dict.fromkeys(NAMES, 1) | {"pre_generation_gate": 2}
FROM_THE_START = dict.fromkeys(NAMES, 2) | {"pre_generation_gate": 3, "post_gate": 1}
AGAIN = {"pre_generation_gate": 3}
# What is executed how often when the process dies at a write. Until the checkpoint is written there is no cursor.
KILLED = {
    (1, "before", "the run is started"): CLEAN,
    (1, "after", "the run is started"): CLEAN,
    (2, "before", "inputs"): FROM_THE_START,
    (2, "after", "inputs"): FROM_THE_START,
    (3, "before", "checkpoint and block"): FROM_THE_START,
    (3, "after", "checkpoint and block"): CLEAN | AGAIN,
    (4, "before", "accepted inputs"): CLEAN,
    (4, "after", "accepted inputs"): CLEAN,
    (5, "before", "checkpoint of the accepted inputs"): CLEAN,
    (5, "after", "checkpoint of the accepted inputs"): CLEAN,
    (6, "before", "token used"): CLEAN | AGAIN | {"post_gate": 2},
    (6, "after", "token used"): CLEAN,
}


@pytest.mark.parametrize(("at", "when", "what"), list(KILLED))
def test_killed_at_any_write_only_what_follows_the_cursor_is_done_again(place, at, when, what):
    """Behaviours 34 and 36: no crash loses the token, and what stands before the cursor is not executed again."""
    effort = Effort(place, at, when)
    effort.until_done()
    assert effort.crashes == 1
    assert {name: effort.calls.count(name) for name in NAMES} == KILLED[at, when, what]
    with place.opened() as store:
        assert len(of(CheckpointResumed, store)) == 1
        assert len({event.retry_token for event in of(StepCheckpointed, store)}) == 1
        assert verify_run(store, "run-1").findings == ()


def test_every_write_of_an_effort_is_one_of_those(place):
    effort = Effort(place)
    effort.until_done()
    assert effort.writes == max(at for at, _, _ in KILLED) == 6
    assert {name: effort.calls.count(name) for name in NAMES} == CLEAN

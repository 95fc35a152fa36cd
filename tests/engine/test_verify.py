"""`verify` proves chain, head, list, snapshot and artifacts, names the first bad event, and leaves everything as it is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast import app
from holdfast.cli.main import perform
from holdfast.core import errors, stops
from holdfast.core.events import (
    EffectFinished,
    EffectSettled,
    EffectStarted,
    Event,
    Extension,
    NoteRecorded,
    RunFinished,
    RunStarted,
    StepFinished,
    StepStarted,
)
from holdfast.core.values import Owner, Projection
from holdfast.engine.log import RunLog, World, verify_run
from holdfast.engine.transfer import check_artifacts
from holdfast.ports import Head, Record
from holdfast.stores.memory import MemoryStore

RUN = "run-1"
Damage = Callable[[MemoryStore], object]


def a_world() -> World:
    number = iter(range(1, 10_000))
    return World(lambda: "2026-01-02T03:04:05.678901Z", lambda: f"{next(number):032x}", Owner("h", "b", 1, "1"))


@pytest.fixture
def store() -> MemoryStore:
    """A run of six events at rest, with a snapshot and an artifact."""
    store = MemoryStore()
    with RunLog(store, RUN, a_world()) as log:
        log.record(RunStarted(mission_id="m"))
        log.record(StepStarted(step_id="a"))
        log.record(StepFinished(step_id="a", artifact=store.put_artifact(b"bytes" * 100)))
        log.record(Extension(kind="x_other", data={"artifact": "0" * 64}))
        log.record(NoteRecorded(text="n"))
        log.record(RunFinished())
    return store


def edit(seq: int, **fields: object) -> Damage:
    def damage(store: MemoryStore) -> None:
        records = store._runs[RUN].records
        records[seq - 1] = records[seq - 1]._replace(**fields)  # type: ignore[arg-type]

    return damage


def remove(seq: int) -> Damage:
    return lambda store: store._runs[RUN].records.pop(seq - 1)


def spoil_artifact(store: MemoryStore) -> None:
    digest, (encoding, size, data) = next(iter(store._artifacts.items()))
    store._artifacts[digest] = (encoding, size, data[:-1] + b"?")


def findings(store: MemoryStore) -> list[tuple[int | None, str]]:
    found = (*verify_run(store, RUN).findings, *check_artifacts(store, RUN))
    return [(finding.seq, finding.reason) for finding in found]


def test_a_whole_run_has_no_findings(store):
    found = verify_run(store, RUN)
    assert (found.run_id, found.events, found.findings) == (RUN, 6, ())
    assert check_artifacts(store, RUN) == ()


def test_a_run_that_is_not_here_is_not_found(store):
    with pytest.raises(errors.NotFound):
        verify_run(store, "other")


DAMAGED: dict[str, tuple[Damage, list[tuple[int | None, str]]]] = {
    "an edited body": (edit(2, body=b'{"step_id":"b"}'), [(2, "log_damaged")]),
    "an edited hash": (edit(3, hash=bytes(32)), [(3, "log_damaged")]),
    "an edited time": (edit(5, at="2027-01-01T00:00:00.000000Z"), [(5, "log_damaged")]),
    "the first event of two is named": (
        lambda store: (edit(5, at="x")(store), edit(2, at="x")(store)), [(2, "log_damaged")]),
    "a gap": (remove(4), [(4, "log_damaged")]),
    "the first event gone": (remove(1), [(1, "log_damaged")]),
    "a list that shows something else": (
        lambda store: setattr(store._runs[RUN], "projection", Projection("other")), [(6, "log_damaged")]),
    "an artifact gone": (lambda store: store._artifacts.clear(), [(3, "log_damaged")]),
    "an artifact spoiled": (spoil_artifact, [(3, "log_damaged")]),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_found_and_its_first_event_named(store, name):
    damage, expected = DAMAGED[name]
    damage(store)
    assert findings(store) == expected


@pytest.mark.parametrize("data", [b"{}", b"x", b'{"schema_version":"9.0.0"}', b'{"seq":6}'])
def test_a_snapshot_that_is_not_the_fold_is_no_damage_of_the_log(store, data):
    store._runs[RUN].snapshot = (6, data)
    (finding,) = verify_run(store, RUN).findings
    assert (finding.seq, stops.is_known(finding.reason)) == (6, False)


def test_what_an_extension_calls_an_artifact_need_not_be_one(store):
    assert check_artifacts(store, RUN) == ()


def told(mission: str, *events: Event) -> list[tuple[int | None, str, bool]]:
    """What is found in a run of this mission whose artifacts are all gone."""
    store = MemoryStore()
    with RunLog(store, RUN, a_world()) as log:
        log.record(RunStarted(mission_id=mission), EffectStarted(effect_key="k", step_id="a"), *events)
    found = check_artifacts(store, RUN)
    assert all(finding.run_id == RUN for finding in found)
    return [(finding.seq, finding.reason, KEPT in finding.problem) for finding in found]


KEPT = "ab" * 32
IN_A_RECEIPT = EffectFinished(effect_key="k", receipt={"exit_code": 0, "tries": [{"output": KEPT}]})
BY_A_PROBE = EffectSettled(effect_key="k", settled_as="done", receipt={"report": KEPT})
IN_EVIDENCE = EffectSettled(effect_key="k", settled_as="not_done", evidence=f"none; its output is artifact {KEPT}")
IN_A_NOTE = NoteRecorded(text=f"a: failed; output: artifact {KEPT}")
IN_WORDS = NoteRecorded(text=f"the agent speaks of artifact {KEPT}")


@pytest.mark.parametrize("event", [IN_A_RECEIPT, BY_A_PROBE, IN_EVIDENCE, IN_A_NOTE])
@pytest.mark.parametrize("mission", ["spec.auth", "command.0123456789abcdef"])
def test_a_missing_artifact_that_only_a_receipt_or_a_note_of_ours_names_is_damage(mission, event):
    assert told(mission, event, NoteRecorded(text="x")) == [(3, "log_damaged", True)]


@pytest.mark.parametrize("event", [IN_A_RECEIPT, BY_A_PROBE, IN_EVIDENCE, IN_A_NOTE, IN_WORDS])
def test_what_somebody_elses_words_call_an_artifact_is_named_but_no_damage(event):
    assert told("m", event) == [(3, "unknown_artifact", True)]
    assert not stops.is_known("unknown_artifact")


def test_the_words_of_an_agent_are_no_damage_but_what_is_needed_later_is():
    assert told("spec.auth", IN_WORDS) == [(3, "unknown_artifact", True)]
    assert told("spec.auth", IN_WORDS, IN_A_RECEIPT) == [(4, "log_damaged", True)]


def test_a_hash_that_nothing_calls_an_artifact_is_none():
    hashes = EffectFinished(effect_key="k", receipt={"sha256": KEPT, "outputs": KEPT, "said": f'"output":"{KEPT}"'})
    result = StepFinished(step_id="b", output=KEPT, input_hash=KEPT, code_hash=KEPT)
    longer = NoteRecorded(text=f"artifact {KEPT}0")
    assert told("m", hashes, result, longer) == []
    assert told("spec.auth", hashes, longer) == []


def test_the_commit_that_a_batch_is_built_on_is_no_artifact_also_where_git_uses_sha_256():
    assert told("spec.auth", StepFinished(step_id="batch-1/base", output=KEPT, input_hash=KEPT)) == []
    assert told("spec.auth", StepFinished(step_id="batch-1/begin", output=KEPT, input_hash=KEPT)) == [
        (3, "log_damaged", True)
    ]


# --- the command


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with two runs, where the command line finds it."""
    monkeypatch.setenv("HOLDFAST_STORE", str(tmp_path / "here"))
    store = app.open_store()
    for name in ("run-1", "run-2"):
        with app.start_run(store, "m", run_id=name) as log:
            log.record(StepStarted(step_id="a"))
            log.record(StepFinished(step_id="a", artifact=store.put_artifact(b"bytes" * 100)))
            log.record(NoteRecorded(text="one"))
            log.record(NoteRecorded(text="two"))
    store.close()
    return tmp_path / "here" / "holdfast.db"


def alter(place: Path, *statements: str) -> None:
    import apsw

    connection = apsw.Connection(str(place))
    for statement in statements:
        list(connection.execute(statement))
    connection.close()


def every_byte(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("arguments", [[], ["--all"], ["run-1"], ["--json"], ["run-2", "--json"]])
def test_a_whole_store_is_said_to_be_whole_and_not_touched(place, capsys, arguments):
    before = every_byte(place.parent)
    assert perform(["verify", *arguments]) == 0
    assert every_byte(place.parent) == before
    out = capsys.readouterr().out
    assert json.loads(out)["ok"] is True if "--json" in arguments else "As they were written" in out


def test_damage_is_shown_with_run_and_event_and_leaves_with_its_exit_code(place, capsys):
    alter(place, f'update events_2 set body = \'{{"text":"?"}}\' where place = {2 << 32 | 4}')
    before = every_byte(place.parent)
    assert perform(["verify"]) == stops.exit_code("log_damaged")
    assert every_byte(place.parent) == before
    out = capsys.readouterr().out
    assert "run run-2, event 4:" in out
    assert "written: 1 of 2 runs" in out


def test_a_run_beside_a_damaged_one_is_whole(place, capsys):
    alter(place, f"update events_2 set body = 'x' where place = {2 << 32 | 4}")
    assert perform(["verify", "run-1"]) == 0


def test_findings_are_told_to_programs_as_well(place, capsys):
    alter(place, "delete from artifacts")
    code = perform(["verify", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["schema_version"] == 1
    assert told["ok"] is False
    assert told["exit_code"] == code == stops.exit_code("log_damaged")
    assert [(run["run_id"], run["findings"][0]["seq"], run["findings"][0]["severity"]) for run in told["runs"]] == [
        ("run-2", 3, "fail"),
        ("run-1", 3, "fail"),
    ]


def test_a_drifted_snapshot_is_a_warning_and_exit_code_0(place, capsys):
    alter(place, "insert into snapshots (run_no, seq, data) values (1, 3, x'7b7d')")
    assert perform(["verify"]) == 0
    out = capsys.readouterr().out
    assert "warn" in out
    assert "written: 1 of 2 runs" in out


def test_a_lost_tail_is_refused_with_its_own_exit_code(place, capsys):
    alter(place, f"delete from events_2 where place = {2 << 32 | 5}")
    assert perform(["verify"]) == stops.exit_code("tail_lost")
    assert "lost the end of its log" in capsys.readouterr().err


@pytest.mark.parametrize("where", ["true", "run_no = 1", "run_no = 2"])
def test_a_run_that_is_gone_from_the_list_is_refused_with_its_own_exit_code(place, capsys, where):
    alter(place, f"delete from runs where {where}")
    before = every_byte(place.parent)
    for command in (["verify"], ["status"], ["doctor"]):
        assert perform(command) == stops.exit_code("tail_lost")
        assert every_byte(place.parent) == before
        said = "".join(capsys.readouterr())
        assert "is gone from the list of runs" in said
        assert "Put the newer copy" in said


@pytest.mark.parametrize(
    ("where", "left", "whole"), [("true", (1, 2), 0), ("run_no = 1", (1,), 1), ("run_no = 2", (2,), 1)]
)
def test_a_run_that_is_gone_from_the_list_is_named_without_a_witness_too(place, capsys, where, left, whole):
    alter(place, f"delete from runs where {where}")
    place.with_name("holdfast.db-witness").unlink()
    before = every_byte(place.parent)
    assert perform(["verify"]) == stops.exit_code("log_damaged")
    assert every_byte(place.parent) == before
    out = capsys.readouterr().out
    assert f"As they were written: {whole} of 2 runs" in out
    for number in left:
        assert f"run number {number}, event 5: Its events are here" in out
    assert perform(["verify", "--json"]) == stops.exit_code("log_damaged")
    told = json.loads(capsys.readouterr().out)
    assert [run["run_id"] for run in told["runs"] if run["findings"]] == [f"number {number}" for number in left]


def test_a_lost_run_is_still_named_when_new_ones_have_come(place, capsys):
    alter(place, "delete from runs")
    place.with_name("holdfast.db-witness").unlink()
    with app.open_store() as store, app.start_run(store, "m", run_id="run-3") as log:
        log.record(NoteRecorded(text="new"))
    assert perform(["verify"]) == stops.exit_code("log_damaged")
    assert "As they were written: 1 of 3 runs" in capsys.readouterr().out
    assert perform(["verify", "run-3"]) == 0
    assert perform(["status"]) == 0


def test_a_run_without_any_of_its_events_is_named(place, capsys):
    alter(place, "delete from events_1")
    place.with_name("holdfast.db-witness").unlink()
    assert perform(["verify"]) == stops.exit_code("log_damaged")
    assert "run run-1, event 0: It was at event 5, and has no events now." in capsys.readouterr().out


def test_the_worst_finding_decides_the_exit_code(place, capsys):
    alter(
        place,
        "insert into snapshots (run_no, seq, data) values (1, 3, x'7b7d')",
        f"update events_2 set hash = zeroblob(32) where place = {2 << 32 | 2}",
    )
    assert perform(["verify", "--json"]) == stops.exit_code("log_damaged")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [(["run-9"], "not_found"), (["../x"], "bad_input"), (["run-1", "--all"], "usage_error")],
)
def test_what_cannot_be_verified_is_refused_by_reason(place, capsys, arguments, reason):
    assert perform(["verify", *arguments]) == stops.exit_code(reason)
    assert capsys.readouterr().err


# --- export and import on the command line


def test_a_run_travels_by_command(place, tmp_path, monkeypatch, capsys):
    file = tmp_path / "run.jsonl"
    assert perform(["export", "run-1", str(file)]) == 0
    monkeypatch.setenv("HOLDFAST_STORE", str(tmp_path / "there"))
    assert perform(["import", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.partition("\n")[2])["outcome"] == "new"
    assert perform(["import", str(file)]) == 0
    assert "here already" in capsys.readouterr().out
    assert perform(["verify", "--all"]) == 0
    again = tmp_path / "again.jsonl"
    assert perform(["export", "run-1", str(again)]) == 0
    assert again.read_bytes() == file.read_bytes()


def test_a_bad_file_makes_no_store_and_leaves_with_its_exit_code(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOLDFAST_STORE", str(tmp_path / "nowhere"))
    (tmp_path / "bad.jsonl").write_text('{"holdfast_export":2}\n')
    assert perform(["import", str(tmp_path / "bad.jsonl")]) == stops.exit_code("newer_schema")
    assert "line 1" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()


def test_a_bad_file_and_a_known_one_leave_the_store_untouched(place, tmp_path, capsys):
    file = tmp_path / "run.jsonl"
    perform(["export", "run-1", str(file)])
    bad = tmp_path / "bad.jsonl"
    bad.write_bytes(file.read_bytes()[:-10])
    before = every_byte(place.parent)
    assert perform(["import", str(bad)]) == stops.exit_code("bad_input")
    assert perform(["import", str(file)]) == 0
    assert every_byte(place.parent) == before


def test_an_export_does_not_replace_a_file_unless_forced(place, tmp_path, capsys):
    file = tmp_path / "kept"
    file.write_text("precious")
    assert perform(["export", "run-1", str(file)]) == stops.exit_code("bad_input")
    assert file.read_text() == "precious"
    assert perform(["export", "run-1", str(file), "--force", "--json"]) == 0


def test_an_export_to_a_pipe_is_the_file(place, tmp_path, capsysbinary):
    perform(["export", "run-1", str(tmp_path / "run.jsonl")])
    capsysbinary.readouterr()
    assert perform(["export", "run-1", "-"]) == 0
    assert capsysbinary.readouterr().out == (tmp_path / "run.jsonl").read_bytes()


def test_json_and_the_export_itself_do_not_share_a_pipe(place, capsys):
    assert perform(["export", "run-1", "-", "--json"]) == stops.exit_code("usage_error")


class Moving(MemoryStore):
    """A store whose run goes on between any two looks at it."""

    log: RunLog | None = None

    def go_on(self) -> None:
        log, self.log = self.log, None
        if log is not None:
            log.record(NoteRecorded(text="meanwhile"))
            self.save_snapshot(RUN, log.state.seq, b"of a state that the walk does not reach")
            self.log = log

    def head(self, run_id: str) -> Head | None:
        found = super().head(run_id)
        self.go_on()
        return found

    def read(self, run_id: str, after: int = 0, limit: int | None = None) -> Iterator[Record]:
        self.go_on()
        return super().read(run_id, after, limit)


def test_a_run_that_is_being_written_is_not_accused():
    store = Moving()
    log = RunLog(store, RUN, a_world())
    log.record(RunStarted(mission_id="m"), NoteRecorded(text="n"))
    store.log = log
    found = verify_run(store, RUN)
    assert (found.events, found.findings) == (2, ())
    assert log.state.seq > 3


def test_events_behind_a_head_that_stays_are_accused(store, monkeypatch):
    head = store.head(RUN)
    with RunLog(store, RUN, a_world()._replace(new_op=lambda: "f" * 32)) as log:
        log.record(NoteRecorded(text="more"))
    monkeypatch.setattr(store, "head", lambda run_id: head)
    (finding,) = verify_run(store, RUN).findings
    assert (finding.seq, finding.reason) == (7, errors.LogDamaged.reason)
    assert "says event 6, its log ends at 7" in finding.problem

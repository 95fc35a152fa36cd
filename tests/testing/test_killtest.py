"""The kill test's own counting: which points there are, what counts as repeated, lost or different; and a store that dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

import holdfast
from holdfast import app
from holdfast.core.errors import UsageError
from holdfast.testing.killcount import Baseline, Trial, Verdict, acts_of, compare, is_sound, judge, tally
from holdfast.testing.killlook import Effect, Left, look
from holdfast.testing.killpoints import VARIABLE, Note, Order, ordered, read_notes
from holdfast.testing.killtest import Point, named, points_of, sampled, spread

KEY = "k" * 40


def left(**changes):
    whole = Left(
        runs={"m": ("finished", None)},
        run_ids=["run-1"],
        steps={"m: step one": "finished 1"},
        effects={"m: effect pay": [Effect(KEY, "done", "once", "done 7")]},
        names={KEY: "pay"},
        hashes=frozenset({b"1", b"2"}),
    )
    return whole._replace(**changes)


BEGUN, ENDED = Note(1, "begin", 1, KEY, "once"), Note(1, "end", 1, KEY, "once", 1000)
BASE = Baseline(left(), 0)


def judged(*notes, base=BASE, looks=None, codes=(-9, 0), rested=True, **changes):
    return judge(base, Trial("end:1", codes, looks or [Left(), left(**changes)], notes, rested))


def kinds(verdict):
    return [fault.kind for fault in verdict.faults]


# --- points


def test_points_come_before_and_after_every_append_and_around_every_act():
    notes = [Note(1, "open"), Note(1, "append", 1, "run_started m"), BEGUN, ENDED]
    assert [point.name for point in points_of(notes)] == ["before:1", "after:1", "begin:1", "end:1"]


def test_only_a_long_act_has_a_middle_and_only_a_transaction_an_inside():
    notes = [Note(1, "append", 1, "", "transactional"), BEGUN, Note(1, "end", 1, KEY, "once", 50_000_000)]
    assert points_of(notes) == [
        Point("before:1"),
        Point("inside:1"),
        Point("after:1"),
        Point("begin:1"),
        Point("middle:1", 0.025),
        Point("end:1"),
    ]


def test_an_act_that_raised_has_no_end_and_other_processes_have_no_points():
    assert [point.name for point in points_of([BEGUN])] == ["begin:1"]
    assert points_of([Note(1, "append", 0, "run_started m"), Note(1, "begin", 0, KEY, "once")]) == []


def test_points_are_spread_evenly_or_chosen_by_seeded_chance():
    points = [Point(f"before:{number}") for number in range(1, 101)]
    assert [point.name for point in spread(points, 4)] == ["before:25", "before:50", "before:75", "before:100"]
    assert spread(points, 100) == spread(points, 1000) == points
    assert sampled(points, 5, 7) == sampled(points, 5, 7) != sampled(points, 5, 8)
    assert len({*sampled(points, 5, 7)}) == 5 and sampled(points, 1000, 7) == points


def test_a_point_that_is_not_there_is_refused_with_those_that_are():
    assert named([Point("end:1", 0.1)], ["end:1"]) == [Point("end:1", 0.1)]
    with pytest.raises(UsageError, match="end:2") as refused:
        named([Point("end:1")], ["end:2"])
    assert "end:1" in refused.value.advice


# --- counting


def test_a_trial_that_ends_as_the_baseline_has_no_faults():
    verdict = judged(BEGUN, ENDED, Note(1, "kill", 1, KEY, "end:1"))
    assert (verdict.faults, verdict.ended, verdict.again, verdict.trusted) == ([], "as the baseline", 0, 0)
    assert verdict.where == "after the act of effect pay, before its outcome was recorded"
    assert tally([verdict], 1).sound


@pytest.mark.parametrize("policy", ["once", "probed"])
def test_an_act_that_ended_twice_under_one_key_was_repeated(policy):
    notes = [BEGUN, ENDED, Note(2, "begin", 1, KEY, policy), Note(2, "end", 1, KEY, policy)]
    assert kinds(judged(*notes)) == ["effect_repeated"]


def test_a_transaction_that_was_committed_twice_was_repeated():
    commit = Note(1, "commit", 1, KEY, "transactional")
    effects = {"m: effect pay": [Effect(KEY, "done", "transactional", "done 7")]}
    assert kinds(judged(commit, effects=effects)) == []
    assert kinds(judged(commit, commit, effects=effects)) == ["effect_repeated"]


@pytest.mark.parametrize("policy", ["pure", "read", "idempotent", "keyed"])
def test_an_act_that_may_run_again_is_counted_and_is_no_fault(policy):
    notes = [Note(life, what, 1, KEY, policy) for life in (1, 2) for what in ("begin", "end")]
    verdict = judged(*notes)
    assert (kinds(verdict), verdict.again) == ([], 1)


def test_a_kill_at_the_door_of_an_act_is_no_beginning():
    notes = [
        BEGUN,
        Note(1, "kill", 1, KEY, "begin:1"),
        Note(2, "begin", 1, KEY, "keyed"),
        Note(2, "end", 1, KEY, "keyed"),
    ]
    assert acts_of(notes)[KEY] == ("keyed", 1, 1)
    assert judged(*notes).again == 0


def test_done_and_never_begun_is_lost_but_cut_off_and_called_done_is_only_trusted():
    assert kinds(judged()) == ["effect_lost"]
    assert kinds(judged(BEGUN, Note(1, "kill", 1, KEY, "begin:1"))) == ["effect_lost"]
    verdict = judged(BEGUN, Note(1, "kill", 1, KEY, "middle:1"))
    assert (kinds(verdict), verdict.trusted) == ([], 1)


def test_an_effect_under_two_keys_was_done_twice():
    twice = [Effect(key, "done", "keyed", "done 7") for key in ("a", KEY)]
    notes = [Note(1, what, 1, key, "keyed") for key in ("a", KEY) for what in ("begin", "end")]
    assert kinds(judged(*notes, effects={"m: effect pay": twice})) == ["effect_repeated"]


def test_what_the_baseline_has_and_the_trial_has_not_is_lost():
    assert kinds(judged(BEGUN, ENDED, steps={})) == ["step_lost"]
    assert kinds(judged(BEGUN, ENDED, effects={})) == ["effect_lost"]
    assert kinds(judged(BEGUN, ENDED, looks=[left(hashes=frozenset({b"1", b"x"})), left()])) == ["event_lost"]


def test_a_step_that_ended_twice_was_repeated():
    assert kinds(judged(BEGUN, ENDED, steps_again=["m: step one"])) == ["step_repeated"]


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": {"m: step one": "finished 2"}},
        {"steps": {"m: step one": "finished 1", "m: step two": "finished 1"}},
        {"effects": {"m: effect pay": [Effect(KEY, "done", "once", "done null")]}},
        {"runs": {"m": ("stopped", "input_changed")}},
        {"runs": {"m": ("finished", None), "m#2": ("finished", None)}},
        {"codes": (-9, 1)},
    ],
)
def test_results_endings_and_exit_codes_may_not_differ(changes):
    verdict = judged(BEGUN, ENDED, **changes)
    assert kinds(verdict) == ["differs"]
    assert not tally([verdict], 1).sound


def test_a_run_that_waits_for_a_word_about_an_effect_is_blocked_and_no_failure():
    unknown = {"m: effect pay": [Effect(KEY, "unknown", "once", "unknown null")]}
    stopped = {"m": ("stopped", "effect_unknown")}
    verdict = judged(BEGUN, ENDED, runs=stopped, effects=unknown, steps={}, codes=(-9, 85))
    assert (verdict.ended, kinds(verdict)) == ("blocked", [])
    counts = tally([verdict], 1)
    assert counts.sound and (counts.blocked, counts.finished) == (1, 0)


def test_a_blocked_run_may_still_have_repeated_or_changed_something():
    stopped = {"m": ("stopped", "effect_unknown")}
    again = [BEGUN, ENDED, Note(2, "begin", 1, KEY, "once"), Note(2, "end", 1, KEY, "once")]
    verdict = judged(*again, runs=stopped, steps={"m: step one": "finished 2"}, codes=(-9, 85))
    assert kinds(verdict) == ["effect_repeated", "differs"]


def test_a_program_that_does_not_come_to_rest_is_a_failure():
    verdict = judged(BEGUN, ENDED, rested=False, codes=(-9, None))
    assert (verdict.ended, kinds(verdict)) == ("not at rest", ["stuck"])


def test_what_two_undisturbed_runs_disagree_about_is_not_compared_but_names_are():
    other = left(steps={"m: step one": "finished 2", "m: step new": "finished 1"})
    unstable, shifting = compare(left(), other)
    assert (unstable, shifting) == ({"m: step one"}, {"m: step new"})
    assert kinds(judged(BEGUN, ENDED, base=BASE._replace(unstable=unstable), steps={"m: step one": "finished 9"})) == []


def test_a_failed_check_is_a_failure():
    trial = Trial("end:1", (-9, 0), [Left(), left()], [BEGUN, ENDED], complaint="exit code 1. Its last line: two mails")
    assert kinds(judge(BASE, trial)) == ["check_failed"]


@pytest.mark.parametrize("kind", ["effects_repeated", "steps_lost", "differ", "stuck", "checks_failed"])
def test_every_bad_count_makes_the_test_fail(kind):
    whole = tally([Verdict("end:1", "", True, 2, "blocked")], 1)
    assert whole.sound and not whole._replace(**{kind: 1}).sound


def test_names_of_chance_make_the_test_fail_and_results_of_chance_only_if_it_is_to_be_exact():
    counts = tally([judged(BEGUN, ENDED)], 1)
    assert is_sound(BASE, counts, exact=True)
    assert not is_sound(BASE._replace(shifting=frozenset({"m: step maybe"})), counts, exact=False)
    chancy = BASE._replace(unstable=frozenset({"m: step one"}))
    assert is_sound(chancy, counts, exact=False) and not is_sound(chancy, counts, exact=True)


# --- what a store holds


def test_run_ids_keys_and_folders_have_the_same_text_in_every_trial(tmp_path, monkeypatch):
    texts = []
    for name in ("one", "two"):
        place = str(tmp_path / name / "holdfast.db")
        with holdfast.run("m", store=place) as run:
            run.step("where", lambda run=run, place=place: [run.run_id, place, "x" * 40_000])
            run.effect("tell", lambda key: {"key": key}, policy="keyed")
        with app.reading(place) as store:
            texts.append(look(store, str(tmp_path / name)).texts)
    assert texts[0] == texts[1] and texts[0]["m: effect tell"] == 'done {"key":"(key of tell)"}'
    assert "(run m)" in texts[0]["m: step where"] and "(folder)/holdfast.db" in texts[0]["m: step where"]


# --- dying

PROGRAM = """
import sys
from holdfast import app, config
from holdfast.core.events import EffectFinished, EffectStarted, NoteRecorded, RunStarted
from holdfast.testing.killpoints import ordered
points = ordered(config.environment())
with points.dying(app.open_store(points.place)) as store, app.write_run(store, "run-1") as log:
    log.record(RunStarted(mission_id="m"))
    def work(sql):
        sql.execute("create table app_t (x)")
        return [EffectStarted(effect_key="k", step_id="pay", policy="transactional"), EffectFinished(effect_key="k")]
    log.transact(work)
    both = log.draft(NoteRecorded(text="one"))
    assert store.append_all([both]) == [None]
    log.confirm(both)
"""
LENGTHS = {
    "before:1": 0, "after:1": 1, "before:2": 1, "inside:2": 1, "after:2": 3, "before:3": 3, "after:3": 4, "before:4": 4,
}  # fmt: skip


def live(folder, die_at="", **changes):
    order = Order(str(folder / "holdfast.db"), str(folder / "notes"), 1, die_at)
    environ = {**os.environ, VARIABLE: json.dumps({name: getattr(order, name) for name in order.__struct_fields__})}
    return subprocess.run([sys.executable, "-c", changes.get("program", PROGRAM)], env=environ, timeout=60).returncode


@pytest.mark.crash
@pytest.mark.parametrize("point", LENGTHS)
def test_a_store_dies_around_every_kind_of_append(tmp_path, point):
    survives = point == "before:4"
    assert live(tmp_path, point) == (0 if survives else -signal.SIGKILL)
    with app.reading(str(tmp_path / "holdfast.db")) as store:
        head = store.head("run-1")
        assert (0 if head is None else head.seq) == LENGTHS[point]
    killed = [note for note in read_notes(str(tmp_path / "notes")) if note.what == "kill"]
    assert [note.policy for note in killed] == ([] if survives else [point])


@pytest.mark.crash
def test_only_the_first_process_of_a_life_dies(tmp_path):
    (tmp_path / "notes.1").touch()
    assert live(tmp_path, "before:1") == 0
    assert {note.number for note in read_notes(str(tmp_path / "notes"))} == {0}


def test_without_the_variable_nothing_is_wrapped_and_with_nonsense_in_it_nothing_runs(monkeypatch, tmp_path):
    assert ordered({}) is None
    with pytest.raises(UsageError, match=VARIABLE):
        ordered({VARIABLE: "{}"})


def test_runs_that_share_a_store_object_share_what_stands_for_it(tmp_path):
    points = ordered({VARIABLE: json.dumps({"store": str(tmp_path / "trial.db"), "notes": str(tmp_path / "notes")})})
    with app.open_store(str(tmp_path / "mine.db")) as mine, app.open_store(points.place) as trial:
        with points.instead_of(mine, lambda: trial) as first, points.instead_of(mine, lambda: trial) as second:
            assert first is second is not mine
        assert first.head("run-1") is None  # it is still open
        with points.instead_of("a.db", lambda: trial) as other:
            assert other is not first


def test_the_variable_wins_over_the_store_that_a_program_names(monkeypatch, tmp_path):
    order = {"store": str(tmp_path / "trial.db"), "notes": str(tmp_path / "notes")}
    monkeypatch.setenv(VARIABLE, json.dumps(order))
    with app.open_store(str(tmp_path / "mine.db")) as mine, holdfast.run("m", store=mine, run_id="run-1"):
        pass
    with holdfast.run("m", store=str(tmp_path / "other.db"), run_id="run-2") as run:
        run.effect("tell", lambda: 1, policy="read")
    with app.reading(str(tmp_path / "trial.db")) as store:
        assert {head.run_id for head in store.heads()} == {"run-1", "run-2"}
    with app.reading(str(tmp_path / "mine.db")) as store:
        assert list(store.heads()) == []
    assert not (tmp_path / "other.db").exists()
    assert [note.what for note in read_notes(str(tmp_path / "notes"))] == [
        "open", "append", "append", "open", "append", "append", "begin", "end", "append", "append",
    ]  # fmt: skip

"""`holdfast demo effects` as a user runs it: real processes, real kills; and its table, which must be able to say no."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.core import stops
from holdfast.engine.demo import cues_of, key_of, keys_of, plan_of
from holdfast.testing.demo import ChildFailed, Kept, Killer, Look, kills_of, repeated, tally

ZERO = ("steps_repeated", "effects_twice", "effects_lost", "events_lost")
README = Path(__file__).parents[2] / "README.md"


def demo(*options):
    command = [sys.executable, "-m", "holdfast", "demo", "effects", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.crash
def test_a_small_demo_loses_and_doubles_nothing():
    done = demo("--kills", "4", "--steps", "10", "--seed", "7", "--json")
    counts = json.loads(done.stdout)["demo"]
    assert done.returncode == 0, done.stderr
    assert {name: counts[name] for name in ZERO} == dict.fromkeys(ZERO, 0)
    assert (counts["steps_done"], counts["kills"], counts["sound"]) == (10, 4, True)
    assert counts["verify"]["findings"] == []
    assert counts["events_acknowledged"] > 20
    said = [json.loads(line) for line in done.stderr.splitlines()]
    assert {line["moment"] for line in said} == {"note"}
    assert sum(line["text"].startswith("kill ") for line in said) == 4


@pytest.mark.crash
def test_a_probe_that_lies_is_caught_by_the_table():
    done = demo("--kills", "12", "--steps", "12", "--seed", "7", "--lying-probe")
    row = re.search(r"effects done twice +(\d+)", done.stdout)
    assert row is not None and int(row.group(1)) > 0
    assert "a promise was broken" in done.stdout
    assert done.returncode == stops.exit_code("internal_error") != 0


@pytest.mark.crash
def test_a_kept_folder_holds_the_store_and_every_effect_once(tmp_path):
    folder = tmp_path / "kept"
    done = demo("--kills", "1", "--steps", "6", "--seed", "1", "--keep", str(folder))
    assert done.returncode == 0, done.stderr
    keys = [line.split()[0] for line in (folder / "effects.txt").read_text().splitlines()]
    assert keys == list(keys_of(6))
    again = demo("--kills", "1", "--keep", str(folder))
    assert again.returncode == stops.exit_code("usage_error")
    assert "not empty" in again.stderr


# --- the counting, without processes

PLAN, KEYS = plan_of(6), keys_of(6)


def killer_with(looks=(), acknowledged=None):
    killer = Killer(lambda child: [], Look, lambda killer: None)
    killer.looks += looks
    killer.acknowledged = acknowledged or {}
    return killer


def kept(**changes):
    whole = Kept(True, 6, {1: "one", 2: "two"}, frozenset(KEYS), list(KEYS), [(0, step) for step in PLAN])
    return whole._replace(**changes)


def count(killer, left):
    return tally(killer, left, PLAN, KEYS, 0)


def test_a_whole_run_counts_as_sound():
    assert count(killer_with(acknowledged={1: {"one"}, 2: {"two"}}), kept()).sound


@pytest.mark.parametrize("heard", [{3: {"three"}}, {2: {"other"}}, {2: {"two", "other"}}])
def test_an_acknowledged_event_that_is_missing_or_replaced_is_lost(heard):
    assert count(killer_with(acknowledged=heard), kept()).events_lost == 1


def test_a_line_too_many_and_a_line_too_few_are_seen():
    assert count(killer_with(), kept(written=[*KEYS, KEYS[0]])).effects_twice == 1
    assert count(killer_with(), kept(written=KEYS[1:])).effects_lost == 1
    assert count(killer_with(), kept(written=KEYS[1:], finished=False)).effects_lost == 1
    assert not count(killer_with(), kept(written=KEYS[1:])).sound


def test_only_a_step_whose_end_was_on_record_counts_as_repeated():
    looks = [Look(), Look(finished=frozenset({"step-001"}))]
    assert repeated(looks, [(0, "step-001"), (0, "step-002"), (1, "step-002")]) == set()
    assert repeated(looks, [(0, "step-001"), (1, "step-001")]) == {"step-001"}
    assert repeated(looks, [(1, "step-002"), (1, "step-002")]) == {"step-002"}


def test_an_unfinished_run_is_not_sound():
    assert not count(killer_with(), kept(steps_done=5)).sound


def test_the_same_seed_gives_the_same_kills_and_some_come_at_the_start():
    kills = kills_of(25, 7, cues_of(40))
    assert kills == kills_of(25, 7, cues_of(40)) != kills_of(25, 8, cues_of(40))
    assert {kill.cue == 0 for kill in kills} == {True, False}


def test_a_child_that_fails_by_itself_is_an_error_and_not_a_kill():
    killer = Killer(lambda child: [sys.executable, "-c", "raise SystemExit('no')"], Look, lambda killer: None)
    with pytest.raises(ChildFailed, match="no"):
        killer.go([])


def test_every_effect_of_the_plan_has_its_own_key():
    assert len(set(keys_of(40))) == 32
    assert set(keys_of(40)) < {key_of(step_id) for step_id in plan_of(40)}


# --- the README


def test_the_python_in_the_readme_runs_as_it_stands(tmp_path):
    source = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert source is not None
    done = subprocess.run(
        [sys.executable, "-c", source.group(1)], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")

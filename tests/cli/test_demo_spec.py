"""`holdfast demo` as a user runs it: a real repository, agent and kills; and its table, which must be able to say no."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest

from holdfast.cli.demo_spec import rows, surroundings
from holdfast.core import stops
from holdfast.testing import demo_counts as counts
from holdfast.testing.demo import ChildFailed
from holdfast.testing.demo_counts import Left, Look, begun_again, tally
from holdfast.testing.demo_spec import KINDS, MARK, Ears, Kill, Life, carrying, check_end, kills_of, undisturbed
from holdfast.testing.workshop import BATCHES, TASKS, build

MUST_BE_ZERO = counts.Tally._fields[counts.Tally._fields.index("implemented_twice") :]
HOLDFAST = [sys.executable, "-m", "holdfast", "demo"]
PATIENCE = 100.0


def demo(*options):
    return subprocess.run([*HOLDFAST, *options], capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.mark.crash
def test_a_spec_survives_kills_of_all_its_processes(tmp_path):
    done = demo("--kills", "5", "--seed", "5", "--keep", str(tmp_path / "kept"), "--json")
    told = json.loads(done.stdout)["demo"]
    assert done.returncode == 0, done.stderr
    assert {name: told[name] for name in MUST_BE_ZERO} == dict.fromkeys(MUST_BE_ZERO, 0)
    assert (told["implemented"], told["commits"], told["kills"], told["sound"]) == (8, 4, 5, True)
    assert len(told["log"]) == 2 + len(BATCHES)
    assert told["checkpoint"]["completed"] == [task.id for task in TASKS]
    said = [json.loads(line) for line in done.stderr.splitlines()]
    assert sum(line["text"].startswith("kill ") for line in said) == 5
    again = demo("--keep", str(tmp_path / "kept"))
    assert again.returncode == stops.exit_code("usage_error")
    assert "not empty" in again.stderr


@pytest.mark.crash
def test_an_agent_that_does_everything_again_is_caught_by_the_table():
    done = demo("--kills", "1", "--seed", "1", "--lying-agent")
    assert done.returncode == stops.exit_code("internal_error") != 0, done.stdout + done.stderr
    row = re.search(r"tasks implemented twice +(\d+)", done.stdout)
    assert row is not None and int(row.group(1)) > 0
    assert re.search(r"the same tree as undisturbed +no", done.stdout)
    assert "a promise was broken" in done.stdout


@pytest.mark.crash
def test_an_interruption_leaves_no_process_and_no_folder(tmp_path):
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen([*HOLDFAST, "--kills", "1"], stderr=subprocess.PIPE, env=environ, text=True)
    assert wait_for(lambda: len(working_below(tmp_path)) >= 3)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said.splitlines()[-1]) == (stops.exit_code("user_stopped"), "holdfast: Stopped.")
    assert working_below(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def working_below(folder):
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd().startswith(str(folder)) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE
    while not (met := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return met


def test_options_of_the_other_demo_stand_behind_its_name():
    done = demo("--kills", "3", "effects", "--steps", "4")
    assert done.returncode == stops.exit_code("usage_error")
    assert "stand behind `effects`" in done.stderr


# --- killing


def test_a_kill_reaches_one_who_left_the_family(tmp_path):
    away = "import subprocess, sys; print(subprocess.Popen(sys.argv[1:], start_new_session=True).pid, file=sys.stderr)"
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    with Life([sys.executable, "-c", away, *sleep], str(tmp_path), os.environ, "m-1") as life:
        left = int(next(life.lines()))
        assert wait_for(lambda: [process.pid for process in carrying("m-1")] == [left])
        assert life.kill() == 0
        assert carrying("m-1") == []


def test_a_process_of_another_mark_is_left_alone(tmp_path):
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    other = subprocess.Popen(sleep, env={**os.environ, MARK: "m-3"})
    try:
        with Life(sleep, str(tmp_path), os.environ, "m-2"):
            assert wait_for(lambda: carrying("m-2"))
        assert [process.pid for process in carrying("m-3")] == [other.pid]
    finally:
        other.kill()
        other.wait()


def test_the_same_seed_gives_the_same_kills_over_all_kinds_and_batches():
    kills = kills_of(12, 7)
    assert kills == kills_of(12, 7) != kills_of(12, 8)
    assert {kill.kind for kill in kills} == set(KINDS)
    assert [kill.batch for kill in kills] == [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]
    assert kills_of(0, 7) == []


def told(what, name, **more):
    return json.dumps({"moment": what, "name": name, **more})


def test_moments_are_placed_and_one_that_was_missed_is_not_waited_for():
    ears = Ears()
    for line in (told("batch", "batch-1"), told("start", "batch-1/T1/test", phase="test"), "no json", "[]"):
        ears.hear(line)
    assert (ears.batch, ears.last) == (1, "writing tests")
    assert not ears.is_at(Kill(1, "merging", 0.0))
    assert not ears.is_at(Kill(2, "writing tests", 0.0))
    ears.hear(told("end", "batch-1/T2/implement"))
    assert ears.last == "between stages"
    ears.hear(told("end", "batch-1/T1/implement"))
    assert ears.last == "merging"
    ears.hear(told("note", "", text="checkpoint.yaml is written"))
    assert ears.is_at(Kill(1, "committing", 0.0)) and ears.is_at(Kill(1, "merging", 0.0))
    ears.hear(told("start", "batch-final/review-1/x", phase="review"))
    assert (ears.batch, ears.last) == (5, "reviewing")


# --- counting

OWN = {"NOTES.md": (b"mine", 0o100644, 1)}
KILLS = {"kills_asked": 1, "kills": 1, "kills_at_work": 0, "processes_left": 0}
TREE = {"kit/words.py": b"words", "NOTES.md": b"mine"}


def line(act, task="T1", phase="implement", path="kit/words.py"):
    return {"act": act, "task": task, "phase": phase, "path": path}


def whole(**changes):
    left = Left(
        ledger=[line("append", task.id, path=task.file) for task in TASKS],
        commits=["1/4", "2/4", "3/4", "4/4"],
        tree=TREE,
        texts={task.id: task.code for task in TASKS},
        events={1: "one", 2: "two"},
        own=dict.fromkeys((*counts.OWN, counts.SETTINGS), (b"mine", 33188, 1)),
        unclean=[],
        trees=0,
        findings=0,
    )
    return left._replace(**changes)


def count(left, looks=(), kills=KILLS, wanted=TREE):
    return tally(list(looks), left, wanted, OWN, kills)


def test_a_whole_run_counts_as_sound():
    seen = Look(events={1: "one"}, cut=("T1",), own=OWN)
    counted = count(whole(), [seen])
    assert counted.sound
    assert (counted.implemented, counted.commits, counted.edits_kept) == (8, 4, 1)


@pytest.mark.parametrize(
    ("left", "looks", "kills", "name"),
    [
        (whole(ledger=[*whole().ledger, line("append")]), [], KILLS, "implemented_twice"),
        (whole(ledger=[*whole().ledger, line("finish"), line("start")]), [], KILLS, "begun_again"),
        (whole(commits=["1/4", "2/4", "3/4", "4/4", "4/4"]), [], KILLS, "commits_twice"),
        (whole(tree={}), [], KILLS, "files_lost"),
        (whole(own=whole().own | {"private.txt": (None, 0, 0)}), [], KILLS, "files_lost"),
        (whole(own={}), [], KILLS, "own_touched"),
        (whole(), [Look(own={"NOTES.md": (b"mine", 0o100644, 2)})], KILLS, "own_touched"),
        (whole(events={1: "one", 2: "other"}), [Look(events={2: "two"}, own=OWN)], KILLS, "events_lost"),
        (whole(events={1: "one"}), [Look(events={2: "two"}, own=OWN)], KILLS, "events_lost"),
        (whole(), [], KILLS | {"processes_left": 1}, "processes_left"),
        (whole(trees=1), [], KILLS, "work_trees_left"),
        (whole(findings=1), [], KILLS, "findings"),
        (whole(tree=TREE | {"kit/words.py": b"twice"}), [], KILLS, "differences"),
        (whole(tree=TREE | {"stray": b""}), [], KILLS, "differences"),
        (whole(unclean=["?? stray"]), [], KILLS, "differences"),
    ],
)
def test_each_promise_that_is_broken_is_seen(left, looks, kills, name):
    counted = count(left, looks, kills)
    assert getattr(counted, name) == 1 and not counted.sound


def test_what_is_missing_is_seen():
    assert not count(whole(ledger=[])).sound
    assert not count(whole(commits=["1/4"])).sound
    lost = count(whole(texts=dict.fromkeys(whole().texts, "")), [Look(cut=("T1",), own=OWN)])
    assert (lost.edits_cut, lost.edits_kept, lost.sound) == (1, 0, False)


def test_work_that_was_cut_off_may_be_begun_again():
    assert begun_again([line("start"), line("start"), line("finish")]) == set()


def test_every_figure_has_a_row():
    shown = {str(cell) for row in rows(count(whole())) for cell in row}
    assert {"tasks implemented twice", "files of the user touched", "processes left behind", "yes"} <= shown


def test_a_half_written_file_is_found_in_the_work_tree_of_its_task(tmp_path):
    environ = surroundings(str(tmp_path), os.environ)
    shop = build(str(tmp_path), environ)
    counts.furnish(shop, environ)
    assert counts.cut_off(shop) == ()
    tree = tmp_path / "project" / ".holdfast" / "worktrees" / "run" / "1-1" / "kit"
    tree.mkdir(parents=True)
    (tree / "words.py").write_text(counts.half_of(TASKS[0]))
    assert counts.cut_off(shop) == ("T1",)
    seen = counts.git(shop, environ, "status", "--porcelain", "--ignored").decode().split()
    assert seen == ["??", ".holdfast/", "!!", "private.txt"]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"run": {"stop_reason": "stalled", "signals": [{"snippet": "no word"}]}}, "It ended with 3: stalled: no word"),
        ({"error": {"reason": "not_found", "message": "No."}}, "It ended with 3: not_found: No."),
        ("text", 'It ended with 3: "text"'),
    ],
)
def test_a_run_that_stops_by_itself_is_an_error_that_says_why(tmp_path, said, told):
    shop = build(str(tmp_path), surroundings(str(tmp_path), os.environ))
    source = f"import sys; print({json.dumps(said)!r}); sys.exit(3)"
    life = undisturbed(shop, [sys.executable, "-c", source], os.environ)
    with life, pytest.raises(ChildFailed) as failed:
        check_end(life, "It")
    assert str(failed.value) == told

"""A task that a person sets aside when its batch has begun: asked about once, then left out, and nothing of it is lost."""

from __future__ import annotations

import pytest

from tests.pipeline.kit import CHAIN, QUICK, SPEC, TWO, build, is_stop, report, review, wait_for, write
from tests.pipeline.test_truth import BLOCKED, LONG, cut_off

CHECKPOINT = f"specs/active/{SPEC}/checkpoint.yaml"
TASKS = f"specs/active/{SPEC}/tasks.yaml"
WORDS = [write("kit/words.py", "WORDS = 1\n"), report(implementation_files=["kit/words.py"])]
COUNT = [write("kit/count.py", "COUNT = 1\n"), report(implementation_files=["kit/count.py"])]
HALF = write("kit/count.py", "HALF = 1\n")


def set_aside(project, name, word):
    """A person's edit: another status for the last task of the file, or none of it any more."""
    before, _, row = project.read(TASKS).partition(f"  - id: {name}\n")
    changed = f"  - id: {name}\n{row.replace('in_progress', word)}" if word else ""
    project.write(TASKS, before + changed)


def drop(project, name):
    before, row, after = project.read(TASKS).partition(f"  - id: {name}\n")
    project.write(TASKS, before + row + after.replace("in_progress", "dropped", 1))


@pytest.mark.parametrize("word", ["dropped", "Deferred", ""])
def test_a_blocked_task_that_a_person_sets_aside_is_left_out(tmp_path, word):
    project = build(tmp_path, CHAIN, {"implement/T1": WORDS, "implement/T3": [BLOCKED, COUNT]}, QUICK)
    is_stop(project, project.run(), "worker_blocked")
    set_aside(project, "T3", word)
    handed = is_stop(project, project.resume(), "insufficient_evidence")
    assert "T3 is" in str(handed["signals"]) and "to leave that out" in str(handed["signals"])
    assert project.resume().code == 0
    assert project.starts("implement/T3") == 1
    assert word in project.read(TASKS) and project.read(TASKS).count("completed") == 1
    assert any("T3 is left out" in text for text in project.notes()), project.notes()


def test_what_is_put_right_again_is_done(tmp_path):
    project = build(tmp_path, CHAIN, {"implement/T1": WORDS, "implement/T3": [BLOCKED, COUNT]}, QUICK)
    is_stop(project, project.run(), "worker_blocked")
    set_aside(project, "T3", "dropped")
    is_stop(project, project.resume(), "insufficient_evidence")
    project.write(TASKS, project.read(TASKS).replace("dropped", "pending"))
    assert project.resume().code == 0
    assert project.starts("implement/T3") == 2 and project.read(TASKS).count("completed") == 2


def test_side_by_side_the_other_task_is_committed_and_the_tree_of_this_one_stays(tmp_path):
    both = [write("kit/shared.py", "X = '{task}'\n"), report(implementation_files=["kit/shared.py"])]
    project = build(tmp_path, TWO, {"implement/T1": both, "implement/T2": both}, QUICK)
    is_stop(project, project.run(), "merge_conflict")
    set_aside(project, "T2", "dropped")
    is_stop(project, project.resume(), "insufficient_evidence")
    assert project.resume().code == 0
    assert project.git("show", "HEAD:kit/shared.py") == "X = 'T1'\n"
    assert "T2" not in project.git("log", "-1", "--format=%B")
    (tree,) = (project.top / ".holdfast" / "worktrees").glob("*/1-2")
    assert (tree / "kit/shared.py").read_text() == "X = 'T2'\n"
    assert any(str(tree) in text for text in project.notes()), project.notes()


@pytest.mark.parametrize("parallel", [1, 2])
def test_work_that_was_cut_off_is_settled_and_nobody_goes_on_with_it(tmp_path, parallel):
    spec = {**CHAIN, "T2": ("kit/mean.py", ("T1",))}
    acts = {"implement/T1": WORDS, "implement/T3": [HALF, LONG]}
    project = build(tmp_path, spec, acts, (*QUICK, f"parallel = {parallel}"))
    process = project.start("run", SPEC, "--yes")
    wait_for(lambda: project.acts("implement/T3", "write") and project.ended("batch-2/T2/implement"))
    cut_off(project, process)
    drop(project, "T3")
    is_stop(project, project.resume(), "insufficient_evidence")
    answer = project.resume()
    assert answer.code == 0, answer
    assert project.starts("implement/T3") == 1 and project.starts("implement/T2") == 1
    assert [path for path in project.top.rglob("kit/count.py") if path.read_text() == HALF["text"]]


@pytest.mark.parametrize("phase", ["review", "fix"])
def test_a_review_or_fix_that_was_cut_off_of_a_task_that_is_left_out_does_not_stay_open(tmp_path, phase):
    high = {"severity": "high", "location": "kit/count.py:1", "description": "It is wrong"}
    acts = {
        "implement/T1": WORDS,
        "implement/T3": COUNT,
        "review/batch-2/1": [review(high)],
        f"{phase}/batch-2/1": [HALF, LONG],
    }
    project = build(tmp_path, CHAIN, acts, QUICK)
    process = project.start("run", SPEC, "--yes")
    wait_for(lambda: project.acts(f"{phase}/batch-2/1", "write"))
    cut_off(project, process)
    drop(project, "T3")
    is_stop(project, project.resume(), "insufficient_evidence")
    answer = project.resume()
    assert answer.code == 0, answer
    assert project.starts(f"{phase}/batch-2/1") == 1


def test_a_task_whose_id_begins_like_that_of_another_leaves_it_alone(tmp_path):
    spec = {"T1": ("kit/words.py", ()), "T1/implement": ("kit/mean.py", ())}
    done = [write("kit/mean.py", "MEAN = 1\n"), report(implementation_files=["kit/mean.py"])]
    acts = {"implement/T1": [HALF, LONG], "implement/T1/implement": [[done[0], LONG], done]}
    project = build(tmp_path, spec, acts, (*QUICK, "parallel = 2"))
    process = project.start("run", SPEC, "--yes")
    wait_for(lambda: all(project.acts(f"implement/{name}", "write") for name in spec))
    cut_off(project, process)
    drop(project, "T1")
    is_stop(project, project.resume(), "insufficient_evidence")
    answer = project.resume()
    assert answer.code == 0, answer
    assert project.starts("implement/T1") == 1 and project.starts("implement/T1/implement") == 2


def test_nothing_waits_for_the_limit_of_a_task_that_is_left_out(tmp_path):
    told = {"do": "limit", "text": "You've hit your usage limit. Try again in 2h 13m."}
    acts = {"implement/T1": WORDS, "implement/T2": [told], "implement/T3": BLOCKED}
    project = build(tmp_path, {**CHAIN, "T2": ("kit/mean.py", ("T1",))}, acts, (*QUICK, "parallel = 1"))
    assert is_stop(project, project.run("--no-wait"), "quota_wait")["resumes_at"]
    drop(project, "T2")
    is_stop(project, project.resume(), "insufficient_evidence")
    assert is_stop(project, project.resume(), "worker_blocked").get("resumes_at") is None
    assert "has to wait" not in project.holdfast("resume", SPEC, "--plan").out


def test_what_was_merged_before_its_task_was_set_aside_is_said_to_be_in_the_work_tree(tmp_path):
    mean = [write("kit/mean.py", "MEAN = 1\n"), report(implementation_files=["kit/mean.py"])]
    acts = {"implement/T1": WORDS, "implement/T2": mean, "review/batch-1/1": [[review(verdict="reject")]]}
    project = build(tmp_path, TWO, acts, QUICK)
    is_stop(project, project.run(), "review_rejected")
    drop(project, "T2")
    is_stop(project, project.resume(), "insufficient_evidence")
    assert project.resume().code == 0
    assert project.git("show", "HEAD:kit/mean.py") == "MEAN = 1\n"
    assert any("T2 is left out" in text and "merged of it before" in text for text in project.notes()), project.notes()


def test_a_kill_before_the_stop_asks_again(tmp_path):
    project = build(tmp_path, CHAIN, {"implement/T1": WORDS, "implement/T3": [BLOCKED, COUNT]}, QUICK)
    is_stop(project, project.run(), "worker_blocked")
    set_aside(project, "T3", "dropped")
    project.killed("on:after step_finished batch-2/aside-1", "whole", ("resume", SPEC, "--yes"), ())
    assert len(project.hits) == 1
    is_stop(project, project.resume(), "insufficient_evidence")
    assert project.resume().code == 0 and project.starts("implement/T3") == 1


def word(project, name, old, new):
    """A person's edit of one status."""
    before, row, after = project.read(TASKS).partition(f"  - id: {name}\n")
    project.write(TASKS, before + row + after.replace(old, new, 1))


def test_a_task_that_a_person_calls_blocked_is_not_begun_and_those_behind_it_wait(tmp_path):
    last = [write("kit/last.py", "LAST = 1\n"), report(implementation_files=["kit/last.py"])]
    mean = [write("kit/mean.py", "MEAN = 1\n"), report(implementation_files=["kit/mean.py"])]
    spec = {**TWO, "T3": ("kit/count.py", ("T1",)), "T9": ("kit/last.py", ("T2",))}
    acts = {"implement/T1": WORDS, "implement/T2": mean, "implement/T3": COUNT, "implement/T9": last}
    project = build(tmp_path, spec, acts, QUICK)
    word(project, "T2", "pending", "blocked")
    project.commit()
    shown = project.holdfast("run", SPEC, "--plan")
    assert "T2 is blocked, and T9 waits for it." in shown.out, shown
    handed = is_stop(project, project.run(), "tasks_blocked")
    assert "T2 is blocked, and T9 waits for it" in str(handed["signals"]) and f"{TASKS}, and resume" in str(handed)
    assert handed["next_actions"][0]["command"].startswith("holdfast resume "), handed
    assert [project.starts(f"implement/{name}") for name in spec] == [1, 0, 1, 0]
    assert project.read(TASKS).count("completed") == 2 and project.read(TASKS).count("blocked") == 1
    checkpoint = project.read(CHECKPOINT)
    assert "next_batch: null" not in checkpoint and "T2" in checkpoint.partition("next_batch:")[2]
    is_stop(project, project.resume(), "tasks_blocked")
    word(project, "T2", "blocked", "pending")
    assert project.resume().code == 0
    assert [project.starts(f"implement/{name}") for name in spec] == [1, 1, 1, 1]
    assert "next_batch: null" in project.read(CHECKPOINT)


def test_a_task_of_a_begun_batch_that_a_person_calls_blocked_is_asked_about_and_comes_later(tmp_path):
    project = build(tmp_path, CHAIN, {"implement/T1": WORDS, "implement/T3": [BLOCKED, COUNT]}, QUICK)
    is_stop(project, project.run(), "worker_blocked")
    set_aside(project, "T3", "blocked")
    is_stop(project, project.resume(), "insufficient_evidence")
    is_stop(project, project.resume(), "tasks_blocked")
    assert project.starts("implement/T3") == 1 and "blocked" in project.read(TASKS)
    word(project, "T3", "blocked", "pending")
    assert project.resume().code == 0 and project.starts("implement/T3") == 2


def test_a_batch_of_which_nothing_is_left_is_in_the_checkpoint_all_the_same(tmp_path):
    last = [write("kit/last.py", "LAST = 1\n"), report(implementation_files=["kit/last.py"])]
    spec = {"T1": ("kit/words.py", ()), "T3": ("kit/words.py", ()), "T9": ("kit/words.py", ())}
    acts = {"implement/T1": WORDS, "implement/T3": [BLOCKED, COUNT], "implement/T9": [BLOCKED, last]}
    project = build(tmp_path, spec, acts, QUICK)
    is_stop(project, project.run(), "worker_blocked")
    drop(project, "T3")
    is_stop(project, project.resume(), "insufficient_evidence")
    is_stop(project, project.resume(), "worker_blocked")
    checkpoint = project.read(CHECKPOINT)
    assert "last_batch: 2" in checkpoint and "T3" not in checkpoint, checkpoint
    assert "number: 3" in checkpoint.partition("next_batch:")[2] and "T9" in checkpoint.partition("next_batch:")[2]
    assert project.resume().code == 0
    assert "last_batch: 3" in project.git("show", f"HEAD:{CHECKPOINT}")

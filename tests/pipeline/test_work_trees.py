"""Tasks side by side, and the main work tree beside them: nothing vanishes untold, and nothing of a person's is taken unasked."""

from __future__ import annotations

import os
import shutil
import signal

import pytest

from tests.pipeline.kit import NOTHING, QUICK, SPEC, TWO, build, carrying, end, is_stop, report, wait_for, write
from tests.pipeline.test_truth import cut_off, shell

TASKS = f"specs/active/{SPEC}/tasks.yaml"
DONE = [write("kit/words.py", "WORDS = 1\n"), report(implementation_files=["kit/words.py"])]
OTHER = [write("kit/mean.py", "MEAN = 1\n"), report(implementation_files=["kit/mean.py"])]
LONG = {"do": "sleep", "seconds": 60}
HALF = {"do": "half", "path": "kit/half.py", "text": "HALF = 1\n#the rest\n"}


def tree_of(project, place):
    return project.top / ".holdfast" / "worktrees" / project.run_id / f"1-{place}"


def cut_off_with_one_done(project):
    """T1 has reported, and T2 was in the middle of its work."""
    process = project.start("run", SPEC, "--yes")
    wait_for(lambda: project.has_run and project.ended("batch-1/T1/implement") and project.acts("implement/T2", "half"))
    cut_off(project, process)


# --- what git ignores


def test_what_git_ignores_in_the_tree_of_a_task_is_told_and_kept(tmp_path):
    make = shell(
        "echo 'data/' >> .gitignore; mkdir -p data kit/__pycache__; echo mine > data/x.db; touch kit/__pycache__/a.pyc"
    )
    project = build(tmp_path, TWO, {"implement/T1": [make, *DONE]}, QUICK)
    assert project.run().code == 0
    aside = tree_of(project, "1").parent / "ignored" / "1-1"
    assert (aside / "data" / "x.db").read_text() == "mine\n" and os.listdir(aside) == ["data"]
    merged, kept = (text for text in project.notes() if "data/" in text)
    assert "git ignores data/ of T1" in merged and str(aside) in kept
    assert len(project.git("worktree", "list").splitlines()) == 1


# --- the spec's own files


def test_an_agent_that_marks_its_own_task_is_no_conflict(tmp_path):
    mark = shell(f"sed -i '0,/pending/s//completed/' {TASKS}")
    project = build(tmp_path, TWO, {"implement/T1": [mark, *DONE]}, QUICK)
    assert project.run().code == 0
    assert any(f"T1 changed {TASKS}" in text and "left out" in text for text in project.notes()), project.notes()
    assert project.read(TASKS).count("completed") == 2


@pytest.mark.parametrize("junk", ["checkpoint: [junk\n", "checkpoint: {last_batch: 99, mine: 1}\n"])
def test_a_checkpoint_that_an_agent_writes_in_its_own_tree_is_left_out(tmp_path, junk):
    path = f"specs/active/{SPEC}/checkpoint.yaml"
    project = build(tmp_path, TWO, {"implement/T1": [write(path, junk), *DONE]}, QUICK)
    answer = project.run()
    assert answer.code == 0, answer
    assert any(f"T1 changed {path}" in text and "left out" in text for text in project.notes()), project.notes()
    said = project.git("show", f"HEAD:{path}")
    assert "last_batch: 1\n" in said and "mine" not in said


def test_a_conflict_with_a_person_is_not_said_to_be_one_of_two_tasks(tmp_path):
    project = build(tmp_path, TWO, {"implement/T1": [{"do": "sleep", "seconds": 1}, *DONE]}, QUICK)
    process = project.start("run", SPEC, "--yes")
    wait_for(lambda: project.starts("implement/T1"))
    project.write("kit/words.py", "MINE\n")
    process.communicate(timeout=50)
    handed = project.handoff()
    assert handed["stop_reason"] == "merge_conflict" and "a task and a person" in handed["diagnosis"]
    assert "the work tree" in str(handed["signals"]) and project.read("kit/words.py") == "MINE\n"


# --- a person's files


def test_a_file_of_a_person_is_not_committed_with_a_parallel_batch_unasked(tmp_path):
    project = build(tmp_path, TWO, {"implement/T1": [{"do": "sleep", "seconds": 1}, *DONE]}, QUICK)
    project.write("before.txt", "part of it\n")
    process = project.start("run", SPEC, "--yes", "--allow-dirty")
    wait_for(lambda: project.starts("implement/T1"))
    project.write("notes.txt", "mine\n")
    project.git("add", "notes.txt")
    project.git("commit", "-q", "-m", "mine", "--", "notes.txt")
    project.write("secret.env", "PASSWORD=1\n")
    process.communicate(timeout=50)
    assert process.returncode == 4 and "secret.env changed" in str(project.handoff()["signals"])
    assert "before.txt" not in str(project.handoff()["signals"])
    told = next(text for text in project.notes() if "refs/heads/main" in text)
    assert "by one of them or by a person" in told
    assert len(project.subjects) == 2
    assert project.resume().code == 0
    assert any("secret.env, which no task made, becomes part" in text for text in project.notes()), project.notes()
    assert "before.txt" in project.git("show", "--stat", "HEAD") and "secret.env" in project.git(
        "show", "--stat", "HEAD"
    )


def test_a_file_that_its_owner_moved_away_is_not_asked_about_again(tmp_path):
    project = build(tmp_path, TWO, {"implement/T1": [{"do": "sleep", "seconds": 1}, *DONE]}, QUICK)
    process = project.start("run", SPEC, "--yes")
    wait_for(lambda: project.starts("implement/T1"))
    project.write("secret.env", "PASSWORD=1\n")
    process.communicate(timeout=50)
    assert process.returncode == 4
    (project.top / "secret.env").unlink()
    assert project.resume().code == 0
    assert "secret.env" not in project.git("log", "--stat") and project.starts("implement/T1") == 1


# --- trees that are gone


def test_a_task_whose_work_tree_is_gone_is_done_again_and_only_after_a_stop(tmp_path):
    acts = {"implement/T1": DONE, "implement/T2": [[HALF, LONG], OTHER]}
    project = build(tmp_path, TWO, acts, QUICK)
    cut_off_with_one_done(project)
    shutil.rmtree(tree_of(project, "1").parent)
    handed = is_stop(project, project.resume(), "insufficient_evidence")
    assert "batch-1/T1/implement: the work tree" in str(handed["signals"])
    assert any("batch-1/T2/implement: the work tree" in text and "begins anew" in text for text in project.notes())
    assert project.resume().code == 0
    assert (project.starts("implement/T1"), project.starts("implement/T2")) == (2, 2)
    assert project.git("show", "HEAD:kit/words.py") == "WORDS = 1\n"
    assert project.git("show", "HEAD:kit/mean.py") == "MEAN = 1\n"


def test_work_that_was_cut_off_in_a_tree_that_is_gone_does_not_stay_open(tmp_path):
    tests = [write("tests/test_any.py", NOTHING), report(test_files=["tests/test_any.py"])]
    acts = {"test/T1": tests, "test/T2": tests, "implement/T1": [[HALF, LONG], DONE], "implement/T2": OTHER}
    project = build(tmp_path, TWO, acts, ('phases = ["test", "implement", "review"]',))
    process = project.start("run", SPEC, "--yes")
    wait_for(lambda: project.acts("implement/T1", "half") and project.ended("batch-1/T2/implement"))
    cut_off(project, process)
    shutil.rmtree(tree_of(project, "1"))
    is_stop(project, project.resume(), "insufficient_evidence")
    answer = project.resume()
    assert answer.code == 0, answer
    settled = [one for one in project.events() if type(one).__name__ == "EffectSettled"]
    assert {one.settled_as for one in settled} == {"not_done"} and "its work tree is gone" in settled[0].evidence
    assert project.starts("implement/T1") == 2 and project.starts("implement/T2") == 1


def test_a_repository_that_was_moved_goes_on_in_the_trees_of_its_tasks(tmp_path):
    acts = {"implement/T1": DONE, "implement/T2": [[HALF, LONG], OTHER]}
    project = build(tmp_path, TWO, acts, QUICK)
    cut_off_with_one_done(project)
    project.top = project.top.rename(project.top.with_name("moved to"))
    answer = project.resume()
    assert answer.code == 0, answer
    assert (project.starts("implement/T1"), project.starts("implement/T2")) == (1, 2)
    assert "kit/half.py" in project.git("show", "--stat", "HEAD")


def test_a_work_tree_that_is_damaged_and_then_moved_away_is_no_end(tmp_path):
    away = [DONE[0], shell("mv .git ../git"), DONE[1]]
    project = build(tmp_path, TWO, {"implement/T1": [away, DONE]}, QUICK)
    assert project.run().code not in (0, 65)
    shutil.move(tree_of(project, "1"), tmp_path / "moved")
    assert project.resume().code == 0 or project.resume().code == 0, project.handoff()
    assert project.git("show", "HEAD:kit/words.py") == "WORDS = 1\n" and project.starts("implement/T1") == 2


# --- cancelled


@pytest.mark.parametrize("how", ["live", "at rest", "orphans"])
def test_a_cancelled_run_leaves_no_work_tree_in_which_nobody_works(tmp_path, how):
    project = build(tmp_path, TWO, {"implement/T1": [HALF, LONG], "implement/T2": [LONG]}, QUICK)
    process = project.start("run", SPEC, "--yes")
    wait_for(lambda: project.acts("implement/T1", "half") and project.starts("implement/T2"))
    if how == "at rest":
        end(process)
    elif how == "orphans":
        end(process, signal.SIGKILL)
    answer = project.holdfast("cancel", project.run_id)
    assert answer.code == 0, answer
    told = answer.out if how != "live" else process.communicate(timeout=30)[1].decode()
    if how == "orphans":
        assert (
            f"`git worktree remove --force {tree_of(project, '1')}` removes it" in told
            and tree_of(project, "1").exists()
        )
        for pid in carrying(project.run_id):
            os.kill(pid, signal.SIGKILL)
        return
    assert len(project.git("worktree", "list").splitlines()) == 1 and not tree_of(project, "1").exists()
    shown = told.partition("`git diff ")[2].partition("`")[0]
    assert "+HALF = 1\n" in project.git("diff", *shown.split()) and told.count("git diff") == 1

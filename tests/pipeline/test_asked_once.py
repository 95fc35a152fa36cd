"""What a run asks once counts as asked only if it stopped for it; and what shows that work was done is not called nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from tests.pipeline.kit import CHAIN, ONE, QUICK, SPEC, TWO, build, is_stop, report, review, wait_for, write
from tests.pipeline.test_truth import cut_off, shell
from tests.pipeline.test_work_trees import HALF, LONG, OTHER, cut_off_with_one_done, tree_of

TASKS = f"specs/active/{SPEC}/tasks.yaml"
DONE = [write("kit/words.py", "WORDS = 1\n"), report(implementation_files=["kit/words.py"])]
TEST = "tests/test_words.py"


def killed_after(project, mark, verb="run"):
    answer = project.killed(f"on:after step_finished {mark}", "whole", (verb, SPEC, "--yes"), ())
    assert project.hits == [f"after step_finished {mark}"], answer


def stops_and_goes_on(project, reason, said):
    """What the mark stands for is a stop still, and once."""
    assert said in str(is_stop(project, project.resume(), reason)["signals"])
    assert len(project.subjects) == 1 and project.resume().code == 0


# --- killed between the mark and the stop


def test_a_persons_file_is_asked_about_after_a_kill(tmp_path):
    main = "$(git rev-parse --path-format=absolute --git-common-dir)/.."
    acts = {"implement/T1": [shell(f"echo mine > {main}/private.txt"), *DONE]}
    project = build(tmp_path, TWO, acts, QUICK)
    killed_after(project, "batch-1/meanwhile-1")
    stops_and_goes_on(project, "dirty_worktree", "needs no --allow-dirty")
    assert "private.txt" in project.git("show", "--stat", "HEAD")


def test_a_claim_about_a_task_is_asked_about_after_a_kill(tmp_path):
    project = build(tmp_path, CHAIN, {"implement/T1": [shell(f"sed -i '/id: T3/,$d' {TASKS}"), *DONE]}, QUICK)
    killed_after(project, "batch-1/claims-1")
    stops_and_goes_on(project, "insufficient_evidence", "T3 is gone")


def test_a_lost_work_tree_is_told_after_a_kill(tmp_path):
    project = build(tmp_path, TWO, {"implement/T1": DONE, "implement/T2": [[HALF, LONG], OTHER]}, QUICK)
    cut_off_with_one_done(project)
    shutil.rmtree(tree_of(project, "1").parent)
    killed_after(project, "batch-1/T1/lost-1", "resume")
    stops_and_goes_on(project, "insufficient_evidence", "batch-1/T1/implement: the work tree")
    assert project.starts("implement/T1") == 2


def test_work_that_is_gone_is_told_after_a_kill(tmp_path):
    acts = {"implement/T1": DONE, "review/batch-1/1": [[LONG], [review()]], "review/*": [review()]}
    project = build(tmp_path, ONE, acts, QUICK)
    process = project.start("run", SPEC, "--yes")
    wait_for(lambda: project.starts("review/batch-1/1"))
    cut_off(project, process)
    (project.top / "kit/words.py").unlink()
    killed_after(project, "batch-1/gone-1", "resume")
    stops_and_goes_on(project, "insufficient_evidence", "kit/words.py was reported")


def test_a_commit_outside_of_the_scope_is_told_after_a_kill(tmp_path):
    own = shell("mkdir -p secret; echo x > secret/x; git add -A secret; git commit -qm own -- secret")
    project = build(tmp_path, ONE, {"implement/T1": [own, *DONE]}, QUICK, more='\n[scope]\ndeny = ["secret/**"]\n')
    killed_after(project, "batch-1/gate-1/outside-1")
    assert "secret/x" in str(is_stop(project, project.resume(), "guard_violation")["signals"])


# --- what counts as a change


def test_side_by_side_an_implementer_may_change_what_the_tester_wrote(tmp_path):
    acts = {
        "test/T1": [write(TEST, "import unittest\n"), report(test_files=[TEST])],
        "implement/T1": [write(TEST, "import unittest  # more\n"), report(implementation_files=[TEST])],
        "test/T2": [write("kit/mean.py", "MEAN = 1\n"), report(test_files=["tests/test_mean.py"])],
        "implement/T2": [report(implementation_files=["kit/mean.py"])],
    }
    project = build(tmp_path, TWO, acts)
    handed = is_stop(project, project.run(), "insufficient_evidence")
    assert "T2/implement: it reports success, changed no file" in str(handed["signals"])
    assert "T1/implement" not in str(handed["signals"])


def test_a_document_beside_the_spec_is_a_change(tmp_path):
    path = f"specs/active/{SPEC}/design.md"
    acts = {"implement/T1": [write(path, "the design\n"), report(implementation_files=[path])]}
    project = build(tmp_path, {"T1": (path, ())}, acts, QUICK)
    assert project.run().code == 0 and project.git("show", f"HEAD:{path}") == "the design\n"


@pytest.mark.parametrize("is_there", [True, False])
def test_an_ignored_file_that_is_reported_and_there_is_a_change(tmp_path, is_there):
    made = [write("local.env", "A=1\n")] if is_there else []
    acts = {"implement/T1": [*made, report(implementation_files=["./local.env", "../x", "/etc/hostname"])]}
    project = build(tmp_path, ONE, acts, QUICK)
    project.write(".gitignore", project.read(".gitignore") + "*.env\n")
    project.commit()
    assert project.run().code == (0 if is_there else 12)


def test_the_output_of_tests_is_evidence(tmp_path):
    acts = {"implement/T1": [report(implementation_files=["kit/words.py"], test_output="1 passed")]}
    assert build(tmp_path, ONE, acts, QUICK).run().code == 0


def test_a_claim_without_evidence_is_no_dead_end(tmp_path):
    acts = {"implement/T1": [report(implementation_files=["kit/words.py"])]}
    project = build(tmp_path, ONE, acts, QUICK)
    handed = is_stop(project, project.run(), "insufficient_evidence")
    assert "look once more, and what it says then counts" in str(handed["signals"])
    assert project.resume().code == 0 and project.starts("implement/T1") == 2
    assert any("let go on, so it counts" in text for text in project.notes()), project.notes()


def test_a_claim_that_nobody_was_told_of_is_a_stop(tmp_path):
    acts = {"implement/T1": [report(implementation_files=["kit/words.py"])]}
    project = build(tmp_path, ONE, acts, QUICK)
    project.killed_on("after effect_finished")
    is_stop(project, project.resume(), "insufficient_evidence")
    assert project.resume().code == 0


# --- telling


def test_from_another_work_tree_a_run_is_named_with_its_own(tmp_path):
    project = build(tmp_path, ONE, {"implement/T1": [report(status="blocked", blocked_reason="a key")]}, QUICK)
    is_stop(project, project.run(), "worker_blocked")
    second = project.folder / "second"
    project.git("worktree", "add", "-q", "-b", "other", str(second))
    command = [sys.executable, "-m", "holdfast", "resume", SPEC]
    done = subprocess.run(command, cwd=second, env=project.environ(), stdin=subprocess.DEVNULL, capture_output=True)
    said = done.stderr.decode()
    assert done.returncode == 65 and f"cd {project.top} && holdfast resume {project.run_id}" in said, said


def test_a_file_that_the_scope_leaves_is_said_to_be_in_no_commit(tmp_path):
    more = '\n[scope]\nallow = ["kit/**", "specs/**", "tests/**"]\n'
    project = build(tmp_path, ONE, {"implement/T1": DONE}, QUICK, more=more)
    project.write("private.txt", "mine\n")
    assert project.run("--allow-dirty").code == 0
    (told,) = project.notes()
    assert len(project.subjects) == 2 and "private.txt was there" in told and "is in no commit of this run" in told


def test_where_ignored_files_are_kept_is_known_before_they_are_moved(tmp_path):
    acts = {"implement/T1": [shell("echo 'data/' >> .gitignore; mkdir data; echo mine > data/x.db"), *DONE]}
    project = build(tmp_path, TWO, acts, QUICK)
    project.killed_on("before step_finished batch-1/trees")
    assert project.resume().code == 0
    told = next(text for text in project.notes() if "kept aside in" in text)
    folder = told.rpartition("kept aside in ")[2]
    assert os.path.exists(os.path.join(folder, "1-1", "data", "x.db")), told

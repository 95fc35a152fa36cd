"""What a commit claims was so when it was made: checked as it is, within the scope, and with the work in it."""

from __future__ import annotations

import json
import os
import shlex
import signal
from contextlib import suppress

import pytest

from tests.pipeline.kit import (
    CHAIN,
    NOTHING,
    ONE,
    QUICK,
    SPEC,
    TWO,
    build,
    carrying,
    is_stop,
    report,
    review,
    wait_for,
    write,
)

DONE = [write("kit/words.py", "WORDS = 1\n"), report(implementation_files=["kit/words.py"])]
BLOCKED = [report(status="blocked", blocked_reason="for a test")]
LONG = {"do": "sleep", "seconds": 60}
TASKS = f"specs/active/{SPEC}/tasks.yaml"


def shell(text):
    return {"do": "run", "argv": ["sh", "-c", text]}


def cut_off(project, process):
    """SIGKILL for the run and everything that it started."""
    process.kill()
    for pid in [pid for run_id in project.run_ids() for pid in carrying(run_id)]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.communicate()


def test_checks_are_made_anew_when_a_person_changed_files_since(tmp_path):
    checks = 'tier1 = [["sh", "-c", "test -e ../quick || sleep 60"]]\n'
    settings = (*QUICK, "max_fix_rounds = 0")
    project = build(
        tmp_path, CHAIN, {"implement/T1": DONE, "implement/T3": BLOCKED}, settings, checks=checks + "timeout = 2"
    )
    is_stop(project, project.run(), "verification_timeout")
    project.write("tests/test_nothing.py", "import nothing_of_that_name\n")
    (project.folder / "quick").touch()
    is_stop(project, project.resume(), "verification_failed")
    assert "nothing_of_that_name" not in project.git("log", "-p")
    project.write("tests/test_nothing.py", NOTHING)
    project.write("kit/words.py", "WORDS = 2\n")
    is_stop(project, project.resume(), "worker_blocked")  # the next batch
    assert project.git("show", "HEAD:kit/words.py") == "WORDS = 2\n"


def test_work_that_is_gone_when_a_run_goes_on_is_a_stop_and_then_a_decision(tmp_path):
    acts = {"implement/T1": DONE, "review/batch-1/1": [[LONG], [review()]], "review/*": [review()]}
    project = build(tmp_path, ONE, acts, QUICK)
    process = project.start("run", SPEC, "--yes")
    wait_for(lambda: project.starts("review/batch-1/1"))
    cut_off(project, process)
    project.git("checkout", "-q", ".")
    project.git("clean", "-fdq")
    answer = project.resume()
    is_stop(project, answer, "insufficient_evidence")
    assert "kit/words.py was reported" in answer.err + json.dumps(project.notes())
    assert project.resume().code == 0


def test_a_file_outside_of_the_scope_that_an_agent_committed_itself_is_told(tmp_path):
    own = shell("mkdir -p secret; echo x > secret/x; git add -A secret; git commit -qm own -- secret")
    acts = {"implement/T1": [[own, LONG], DONE]}
    project = build(tmp_path, ONE, acts, (*QUICK, "parallel = 1"), more='\n[scope]\ndeny = ["secret/**"]\n')
    process = project.start("run", SPEC, "--yes")
    wait_for(lambda: project.acts("implement/T1", "run"))
    cut_off(project, process)
    answer = project.resume()
    is_stop(project, answer, "guard_violation")
    assert project.git("log", "--format=%s", "-1").strip() == "own"


def test_what_a_reviewer_changed_before_it_was_cut_off_is_told(tmp_path):
    edit = shell("echo 'BACKDOOR = 1' >> kit/words.py")
    acts = {"implement/T1": DONE, "review/batch-1/1": [[edit, LONG], [review()]], "review/*": [review()]}
    project = build(tmp_path, ONE, acts, QUICK)
    process = project.start("run", SPEC, "--yes")
    wait_for(lambda: project.acts("review/batch-1/1", "run"))
    cut_off(project, process)
    assert project.resume().code == 0
    assert any("kit/words.py changed since reviewers began" in text for text in project.notes()), project.notes()


def test_a_work_tree_of_a_task_that_was_destroyed_is_no_end_for_good(tmp_path):
    away = [write("kit/words.py", "WORDS = 1\n"), shell("rm -rf .git"), report(implementation_files=["kit/words.py"])]
    project = build(tmp_path, TWO, {"implement/T1": away}, (*QUICK, "parallel = 2"))
    answer = project.run()
    assert answer.code not in (0, 65), answer
    data = json.loads(next((project.top / ".holdfast" / "runs").glob("*/stop.json")).read_text())
    assert data["resumable"], data


# --- what nobody told before


def test_refs_that_reviewers_and_fixers_moved_are_told(tmp_path):
    high = {"severity": "high", "location": "kit/words.py:1", "description": "It is wrong"}
    acts = {
        "implement/T1": DONE,
        "review/batch-1/1": [shell("git tag by-reviewer"), review(high)],
        "review/*": [review()],
        "fix/*": [
            shell("echo 'F = 1' > fix.py; git add -A; git commit -qm own; git tag by-fixer"),
            report(resolved=["H001"]),
        ],
    }
    project = build(tmp_path, ONE, acts, QUICK)
    assert project.run().code == 0
    told = [(text.partition(":")[0], text) for text in project.notes() if "while agents were at work" in text]
    assert [name for name, _ in told] == ["batch-1/review-1", "batch-1/fix-1", "batch-1/fix-1"]
    assert "refs/tags/by-reviewer was made" in told[0][1] and "refs/heads/main was moved" in told[1][1]
    assert "refs/tags/by-fixer was made" in told[2][1]


@pytest.mark.parametrize("cut", [False, True])
def test_a_task_that_an_agent_took_out_is_a_stop_and_then_a_decision(tmp_path, cut):
    """Also if the process dies right after the batch was reviewed: nobody has seen it yet."""
    acts = {"implement/T1": [shell(f"sed -i '/id: T3/,$d' {TASKS}"), *DONE]}
    project = build(tmp_path, CHAIN, acts, QUICK)
    if cut:
        project.killed_on("after step_finished batch-1/gate-1")
    answer = project.resume() if cut else project.run()
    handed = is_stop(project, answer, "insufficient_evidence")
    assert "T3 is gone" in str(handed["signals"]) and len(project.subjects) == 1
    assert project.resume().code == 0
    assert any("T3 is gone" in text for text in project.notes()) and project.starts("implement/T3") == 0


def test_a_task_that_was_taken_out_and_is_put_back_is_done(tmp_path):
    acts = {"implement/T1": [shell(f"cp {TASKS} ../tasks; sed -i '/id: T3/,$d' {TASKS}"), *DONE]}
    project = build(tmp_path, CHAIN, acts, QUICK)
    is_stop(project, project.run(), "insufficient_evidence")
    project.write(TASKS, (project.folder / "tasks").read_text())
    assert project.resume().code == 0
    assert project.starts("implement/T3") == 1 and len(project.subjects) == 3


def test_a_correction_by_hand_in_the_final_review_is_committed_and_told(tmp_path):
    checks = 'tier2 = [["grep", "-q", "BY_HAND", "kit/words.py"]]\n'
    project = build(tmp_path, ONE, {"implement/T1": DONE}, (*QUICK, "max_fix_rounds = 0"), checks=checks)
    is_stop(project, project.run(), "verification_failed")
    project.write("kit/words.py", "BY_HAND = 1\n")
    assert project.resume().code == 0
    assert project.git("show", "HEAD:kit/words.py") == "BY_HAND = 1\n" and project.git("status", "--porcelain") == ""
    assert any("kit/words.py differs from the last commit" in text for text in project.notes()), project.notes()


def test_what_the_last_checks_write_is_committed_and_told(tmp_path):
    checks = 'tier2 = [["sh", "-c", "echo formatted >> kit/words.py"]]\n'
    project = build(tmp_path, ONE, {"implement/T1": DONE}, QUICK, checks=checks)
    assert project.run().code == 0
    assert project.git("show", "HEAD:kit/words.py") == "WORDS = 1\nformatted\n"
    assert project.subjects[0].endswith("final review") and project.git("status", "--porcelain") == ""
    assert any("kit/words.py differs from the last commit" in text for text in project.notes()), project.notes()


@pytest.mark.parametrize(("kind", "way"), [("amend", "settle"), ("reset", "settle"), ("reset", "run")])
def test_a_commit_that_a_person_changed_before_it_was_recorded(tmp_path, kind, way):
    project = build(tmp_path, CHAIN, {"implement/T1": DONE}, QUICK)
    project.killed_on("before checkpoint_complete text-kit: batch 1 of 2")
    change = (
        ("commit", "-q", "--amend", "-m", "nicer words") if kind == "amend" else ("reset", "-q", "--soft", "HEAD~1")
    )
    project.git(*change)
    handed = is_stop(project, project.resume(), "effect_unknown")
    assert (
        "was on main once and is not now"
        in handed["signals"][0]["snippet"] + project.holdfast("show", project.run_id).out
    )
    command = next(one["command"] for one in handed["next_actions"] if f"holdfast {way} " in one["command"])
    project.holdfast("trust", "--yes")
    if way == "settle":
        answer = project.holdfast(*shlex.split(command.replace("--not-done", "--done"))[1:])
        assert answer.code == 65 and "taken anew" in answer.err
    answer = project.holdfast(*shlex.split(command)[1:])
    assert answer.code == 0, answer
    if way == "settle":
        assert project.resume().code == 0
    assert (project.starts("implement/T1"), project.starts("implement/T3")) == (1, 1)
    assert project.git("show", "HEAD:kit/words.py") == "WORDS = 1\n" and project.git("status", "--porcelain") == ""
    assert ("nicer words" in project.subjects) == (kind == "amend")

"""A run that was stopped goes on: what changed meanwhile is seen and told, and nothing is decided silently."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest

from holdfast.core import stops
from holdfast.core.events import CancelRequested, DriftFound, EffectStarted, StepFinished
from tests.pipeline.kit import CHAIN, ONE, QUICK, SPEC, build, carrying, end, is_stop, report, review, wait_for, write

TASKS = f"specs/active/{SPEC}/tasks.yaml"
NEEDS = f"specs/active/{SPEC}/dependencies.yaml"
CHECKPOINT = f"specs/active/{SPEC}/checkpoint.yaml"
DONE = [write("kit/words.py", "WORDS = 1\n"), report(implementation_files=["kit/words.py"])]
BLOCKED = [report(status="blocked", blocked_reason="for a test")]
SLOW = [{"do": "half", "path": "kit/words.py", "text": "HALF = 1\n#the rest\n"}, {"do": "sleep", "seconds": 60}]
MORE = "  - id: T9\n    content: One more\n    status: pending\n"
BETWEEN = "after step_finished batch-1/closed"


def going(tmp_path, *turns, settings=(), spec=ONE):
    """A run in a process of its own, whose agent is in the middle of its first turn."""
    project = build(tmp_path, spec, {"implement/T1": [SLOW, *turns]}, (*QUICK, *settings))
    process = project.start("run", SPEC, "--yes")
    wait_for(lambda: project.acts("implement/T1", "half"))
    return project, process


# --- the plan


def test_tasks_that_changed_while_nothing_was_begun_are_planned_anew_and_shown(tmp_path):
    """Behaviour 58."""
    project = build(tmp_path, CHAIN, {"implement/T9": [write("kit/more.py", "MORE = 1\n"), report()]}, QUICK)
    project.killed_on("after step_finished batch-2/plan")
    project.write(TASKS, project.read(TASKS) + MORE)
    project.write(
        NEEDS, project.read(NEEDS).replace("- id: T3\n", "- id: T9\n        file: kit/more.py\n      - id: T3\n")
    )
    answer = project.resume("--allow-dirty")
    assert answer.code == 0, answer
    assert "T9" in answer.err and any(text.startswith("tasks.yaml:") and "T9" in text for text in project.notes())
    assert "batch 2 of 2: T3, T9" in answer.err, answer.err
    assert project.starts("implement/T9") == 1 and len(project.subjects) == 3


def test_a_batch_that_was_begun_stays_as_it_was_planned(tmp_path):
    """Behaviour 58, the other half."""
    acts = {"implement/T1": [BLOCKED, DONE], "implement/T9": [write("kit/more.py", "MORE = 1\n"), report()]}
    project = build(tmp_path, ONE, acts, QUICK)
    is_stop(project, project.run(), "worker_blocked")
    project.write(TASKS, project.read(TASKS) + MORE)
    answer = project.resume()
    assert answer.code == 0, answer
    order = [line["task"] for line in project.ledger() if line["phase"] == "implement" and line["act"] == "finish"]
    assert order == ["T1", "T1", "T9"] and len(project.subjects) == 3
    plans = [
        event.step_id for event in project.events() if isinstance(event, StepFinished) and "/plan" in event.step_id
    ]
    assert plans == ["batch-1/plan", "batch-2/plan", "batch-3/plan"]


# --- the branch and the commits


def test_another_branch_is_two_choices_and_never_a_checkout(tmp_path):
    """Behaviour 59: check the old one out, or accept this one."""
    project = build(tmp_path, CHAIN, settings=QUICK)
    assert project.holdfast("trust", "--yes").code == 0
    project.killed_on(BETWEEN)
    project.git("switch", "-q", "-c", "other")
    answer = project.holdfast("resume", SPEC)
    handed = is_stop(project, answer, "branch_differs")
    assert "check that branch out again, or accept this one" in str(handed["signals"])
    assert project.git("branch", "--show-current") == "other\n" and project.starts("implement/T3") == 0
    assert project.resume().code == 0
    assert project.git("branch", "--show-current") == "other\n"
    assert len(project.subjects) == 3 and len(project.git("log", "--format=%s", "main").splitlines()) == 2


def test_the_old_branch_checked_out_again_is_gone_on_with_unasked(tmp_path):
    project = build(tmp_path, CHAIN, settings=QUICK)
    assert project.holdfast("trust", "--yes").code == 0
    project.killed_on(BETWEEN)
    project.git("switch", "-q", "-c", "other")
    assert project.holdfast("resume", SPEC).code == stops.exit_code("branch_differs")
    project.git("switch", "-q", "main")
    assert project.holdfast("resume", SPEC).code == 0


@pytest.mark.parametrize("how", ["as it is", "a commit on top", "amended", "rebased"])
def test_the_commit_of_a_checkpoint_is_found_again(tmp_path, how):
    """Behaviours 60 and 61: in a new clone, where no log is, the checkpoint's own commit is told from what git has."""
    project = build(tmp_path, CHAIN, settings=QUICK)
    project.killed_on(BETWEEN)
    project.git("reset", "-q", "--hard")
    if how == "a commit on top":
        project.write("other.txt", "1\n")
        project.commit()
    elif how == "amended":
        project.git("commit", "-q", "--amend", "-m", "reworded", "--no-edit")
    elif how == "rebased":
        project.git("rebase", "-q", "--root", "--force-rebase")
    built_on = project.git("rev-parse", "HEAD^{/The spec}").strip() if how != "rebased" else ""
    clone = project.folder / "clone"
    project.git("clone", "-q", str(project.top), str(clone))
    project.top = clone
    answer = project.run()
    assert answer.code == 0, answer
    assert project.starts("implement/T1") == 1 == project.starts("implement/T3")
    assert "batch 2 of 2: T3" in answer.err
    told = [text for text in project.notes() if "last_commit" in text or "checkpoint" in text]
    assert told, project.notes()
    assert built_on in project.git("log", "-p", "--format=%H", "--", CHECKPOINT)


def test_work_that_the_base_branch_changed_too_is_a_stop_with_choices(tmp_path):
    """Behaviour 72: without an overlap it is one line, and the run goes on."""
    project = build(tmp_path, CHAIN, {"implement/T1": DONE}, QUICK)
    assert project.holdfast("trust", "--yes").code == 0
    project.git("switch", "-q", "-c", "feature")
    project.killed_on(BETWEEN)
    elsewhere(project, "readme.txt")
    project.script({"implement/T3": [BLOCKED, [write("kit/count.py", "COUNT = 1\n"), report()]]})
    assert project.holdfast("resume", SPEC).code == stops.exit_code("worker_blocked")
    elsewhere(project, "kit/words.py")
    answer = project.holdfast("resume", SPEC)
    handed = is_stop(project, answer, "drift_refused")
    assert "kit/words.py" in str(handed["signals"]) and "rebase on it, proceed" in str(handed["signals"])
    assert project.starts("implement/T3") == 1
    assert project.resume().code == 0
    assert [event.subject for event in project.events() if isinstance(event, DriftFound) and event.drift == "base"]


def test_an_approved_plan_is_gone_on_with_also_behind_a_batch_that_is_over(tmp_path):
    project = build(tmp_path, CHAIN, {"implement/T1": DONE}, QUICK)
    assert project.holdfast("trust", "--yes").code == 0
    project.killed_on(BETWEEN)
    ways = project.holdfast("resume", SPEC, "--plan", "--json").data["next_actions"]
    (approved,) = [way for way in ways if "--approve" in way]
    answer = project.holdfast(*approved.split()[1:])
    assert answer.code == 0, answer
    assert project.starts("implement/T1") == 1 and len(project.subjects) == 3


def test_the_plan_of_a_spec_decides_as_its_resume_does(tmp_path):
    project = build(tmp_path, CHAIN, {"implement/T1": DONE}, QUICK)
    assert project.holdfast("trust", "--yes").code == 0
    project.git("switch", "-q", "-c", "feature")
    project.script({"implement/T3": [[write("kit/count.py", "C = 1\n"), *BLOCKED], BLOCKED]})
    assert project.holdfast("run", SPEC).code == stops.exit_code("worker_blocked")
    planned = project.holdfast("resume", SPEC, "--plan", "--json").data
    assert planned["plan"]["verdict"] == "go", planned  # what agents left in the middle of a batch is taken as it is
    assert project.holdfast("resume", SPEC).code == stops.exit_code("worker_blocked")
    elsewhere(project, "kit/words.py")
    planned = project.holdfast("resume", SPEC, "--plan", "--json").data
    assert (planned["plan"]["verdict"], planned["plan"]["why"]) == ("ask", "the repository differs: base")
    assert planned["next_actions"] == [f"holdfast resume {project.run_id} --approve {planned['plan']['plan_id']}"]
    assert project.holdfast("resume", SPEC).code == stops.exit_code("drift_refused")
    ways = project.holdfast("resume", SPEC, "--plan", "--json").data["next_actions"]
    assert f"holdfast resume {project.run_id} --yes" in ways
    (approved,) = [way for way in ways if "--approve" in way]
    assert project.holdfast(*approved.split()[1:]).code == stops.exit_code("worker_blocked")


def elsewhere(project, path):
    """Somebody changes a file on main, and pushes it there."""
    place = project.folder / "elsewhere"
    project.git("worktree", "add", "-q", str(place), "main")
    (place / path).parent.mkdir(exist_ok=True)
    (place / path).write_text("by somebody else\n")
    project.git("-C", str(place), "add", "-A")
    project.git("-C", str(place), "commit", "-q", "-m", f"somebody changed {path}")
    project.git("worktree", "remove", "--force", str(place))


# --- ended by a person


def test_ctrl_c_ends_the_agent_and_a_resume_goes_on_with_its_edits(tmp_path):
    """Behaviours 69 and 70: what was begun comes first, its edits are kept, and its successor is told of them."""
    project, process = going(tmp_path, DONE)
    answer = end(process, signal.SIGINT)
    assert answer.code == 130, answer
    assert project.handoff()["stop_reason"] == "user_stopped"
    assert carrying(project.run_id) == [] and project.read("kit/words.py") == "HALF = 1\n"
    assert project.resume().code == 0
    starts = [event.step_id for event in project.events() if isinstance(event, EffectStarted)]
    assert starts[0] == "batch-1/T1/implement" and project.starts("implement/T1") == 2
    told = next(text for text in project.prompts() if text.startswith("# Implement"))
    assert "You are continuing work that was interrupted" in told and "+HALF = 1" in told


def test_cancelled_from_another_terminal(tmp_path):
    project, process = going(tmp_path)
    began = time.monotonic()
    assert project.holdfast("cancel", project.run_id).code == 0
    process.communicate(timeout=30)
    assert process.returncode == stops.exit_code("cancelled")
    assert time.monotonic() - began < 20 and carrying(project.run_id) == []
    assert project.handoff()["stop_reason"] == "cancelled"
    assert any(isinstance(event, CancelRequested) for event in project.events())
    assert len(project.subjects) == 1


def test_two_at_once(tmp_path):
    project, process = going(tmp_path, DONE)
    try:
        before = project.ledger()
        for verb in ("run", "resume"):
            answer = project.holdfast(verb, SPEC, "--yes")
            assert answer.code == stops.exit_code("lease_held"), answer
        assert project.ledger() == before and process.poll() is None and len(project.run_ids()) == 1
    finally:
        end(process, signal.SIGINT)


def test_a_person_can_be_asked_before_half_done_work_is_gone_on_with(tmp_path):
    project, process = going(tmp_path, DONE, settings=('on_interrupted = "ask"',))
    end(process, signal.SIGKILL)
    is_stop(project, project.resume(), "awaiting_answer")
    assert project.starts("implement/T1") == 1 and carrying(project.run_id) == []
    assert project.holdfast("answer", project.run_id, "continue").code == 0
    assert project.resume().code == 0
    assert project.starts("implement/T1") == 2


def test_a_person_who_is_asked_may_stop_it(tmp_path):
    project, process = going(tmp_path, DONE, settings=('on_interrupted = "ask"',))
    end(process, signal.SIGKILL)
    assert project.resume().code == stops.exit_code("awaiting_answer")
    assert project.holdfast("answer", project.run_id, "stop").code == 0
    is_stop(project, project.resume(), "user_stopped")
    assert project.starts("implement/T1") == 1


def test_who_stopped_it_once_is_asked_again_when_the_run_is_resumed(tmp_path):
    project, process = going(tmp_path, DONE, settings=('on_interrupted = "ask"',))
    end(process, signal.SIGKILL)
    for answer, stop in (("stop", "user_stopped"), ("continue", None)):
        is_stop(project, project.resume(), "awaiting_answer")
        assert project.holdfast("answer", project.run_id, answer).code == 0
        if stop is not None:
            is_stop(project, project.resume(), stop)
    assert project.resume().code == 0
    assert project.starts("implement/T1") == 2


def test_each_interruption_is_asked_about(tmp_path):
    project, process = going(tmp_path, SLOW, DONE, settings=('on_interrupted = "ask"',))
    end(process, signal.SIGKILL)
    is_stop(project, project.resume(), "awaiting_answer")
    assert project.holdfast("answer", project.run_id, "continue").code == 0
    process = project.start("resume", SPEC, "--yes")
    wait_for(lambda: project.starts("implement/T1") == 2)
    end(process, signal.SIGKILL)
    is_stop(project, project.resume(), "awaiting_answer")
    assert project.holdfast("answer", project.run_id, "continue").code == 0
    assert project.resume().code == 0
    assert project.starts("implement/T1") == 3


def test_work_whose_report_was_delivered_is_not_asked_about(tmp_path):
    late = [{"do": "sleep", "seconds": 2}, *DONE]
    project = build(tmp_path, ONE, {"implement/T1": late}, (*QUICK, 'on_interrupted = "ask"'))
    process = project.start("run", SPEC, "--yes")
    wait_for(lambda: project.starts("implement/T1"))
    end(process, signal.SIGKILL)
    wait_for(lambda: project.acts("implement/T1", "finish"))
    assert project.resume().code == 0
    assert project.starts("implement/T1") == 1


@pytest.mark.parametrize(("said", "starts"), [("--not-done", 2), ("--done", 1)])
def test_work_that_may_go_on_on_another_machine_is_for_a_person_to_settle(tmp_path, said, starts):
    """Both commands that are advised lead on: the work is gone on with, or counts as done and is reviewed."""
    project, process = going(tmp_path, DONE)
    end(process, signal.SIGKILL)
    for pid in carrying(project.run_id):
        os.kill(pid, signal.SIGKILL)
    (record,) = (project.top / ".holdfast" / "runs").glob("*/stages/*/process.json")
    record.write_text(json.dumps({**json.loads(record.read_text()), "host": "elsewhere"}))
    handed = is_stop(project, project.resume(), "effect_unknown")
    assert "elsewhere" in str(handed["signals"]) and project.starts("implement/T1") == 1
    key = next(event.effect_key for event in project.events() if isinstance(event, EffectStarted))
    assert project.holdfast("settle", project.run_id, key, said).code == 0
    answer = project.resume()
    assert answer.code == 0, answer
    assert project.starts("implement/T1") == starts
    assert project.git("show", "HEAD:kit/words.py") == ("WORDS = 1\n" if starts == 2 else "HALF = 1\n")


# --- nothing left


def test_a_finished_spec_is_reviewed_once_more_as_a_whole(tmp_path):
    project = build(tmp_path, ONE, {"implement/T1": DONE}, QUICK)
    assert project.run().code == 0
    answer = project.run()
    assert answer.code == 0 and "final review" in answer.err and "batch 1" not in answer.err
    assert len(project.run_ids()) == 2 and len(project.subjects) == 2
    assert (project.starts("implement/T1"), project.starts("review/batch-final/1")) == (1, 2)


def test_a_finding_of_the_final_review_is_fixed_and_committed(tmp_path):
    high = {"severity": "high", "location": "kit/words.py:1", "description": "Late"}
    fixed = [write("kit/words.py", "WORDS = 3\n"), report(resolved=["H001"])]
    acts = {"implement/T1": DONE, "review/batch-final/1": [review(high)], "fix/*": fixed}
    project = build(tmp_path, ONE, acts, QUICK)
    assert project.run().code == 0
    assert project.subjects[0].endswith("final review") and len(project.subjects) == 3
    assert project.git("show", "HEAD:kit/words.py") == "WORDS = 3\n" and project.git("status", "--porcelain") == ""


def test_what_is_unfinished_is_listed_and_resumed_by_the_name_of_its_spec(tmp_path):
    project = build(tmp_path, ONE, {"implement/T1": [BLOCKED, DONE]}, QUICK)
    is_stop(project, project.run(), "worker_blocked")
    (row,) = project.holdfast("resume", "--json").data["unfinished"]
    assert (row["run_id"], row["reason"]) == (project.run_id, "worker_blocked")
    assert project.holdfast("resume", SPEC, "--plan", "--json").data["plan"]["run_id"] == project.run_id
    assert project.starts("implement/T1") == 1
    assert project.resume().code == 0
    answer = project.resume()
    assert answer.code in (stops.exit_code("not_found"), stops.exit_code("not_resumable")), answer


def test_a_mirror_with_marks_of_a_conflict_is_refused_before_any_work_and_written_anew_without_it(tmp_path):
    """Behaviour 18."""
    project = build(tmp_path, CHAIN, {}, QUICK)
    project.killed_on("after step_finished batch-1/closed")
    was = project.read(CHECKPOINT)
    project.write(CHECKPOINT, f"<<<<<<< ours\n{was}=======\n{was}>>>>>>> theirs\n")
    before = len(project.ledger())
    answer = project.resume("--allow-dirty")
    assert answer.code == stops.exit_code("bad_input") and "checkpoint.yaml" in answer.err and "line" in answer.err
    assert "move it away" in answer.err and len(project.ledger()) == before
    (project.top / CHECKPOINT).unlink()
    answer = project.resume("--allow-dirty")
    assert answer.code == 0, answer
    assert "last_batch" in project.read(CHECKPOINT) and "<<<<" not in project.read(CHECKPOINT)

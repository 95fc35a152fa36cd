"""What people who tried to break it found, each as a test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from holdfast.adapters.specs import SpecFolder
from holdfast.core import stops
from holdfast.engine.pipeline import batches, tasks
from tests.pipeline import kit
from tests.pipeline.kit import (
    CHAIN,
    ONE,
    QUICK,
    SPEC,
    TWO,
    build,
    carrying,
    end,
    is_stop,
    report,
    review,
    wait_for,
    write,
)

TASKS = f"specs/active/{SPEC}/tasks.yaml"
NEEDS = f"specs/active/{SPEC}/dependencies.yaml"
CHECKPOINT = f"specs/active/{SPEC}/checkpoint.yaml"
DONE = [write("kit/words.py", "WORDS = 1\n"), report(implementation_files=["kit/words.py"])]
CLAIM = f"import re; t = open('{TASKS}').read(); open('{TASKS}', 'w').write(t.replace('pending', 'completed'))"
SLOW = [{"do": "half", "path": "kit/words.py", "text": "HALF = 1\n#the rest\n"}, {"do": "sleep", "seconds": 60}]
HIGH = {"severity": "high", "location": "kit/words.py:1", "description": "It is wrong"}
MEDIUM = {"severity": "medium", "location": "kit/words.py:1", "description": "It could be nicer"}


def test_an_agent_cannot_declare_other_tasks_complete(tmp_path):
    claim = [{"do": "run", "argv": [sys.executable, "-c", CLAIM]}, *DONE]
    project = build(tmp_path, CHAIN, {"implement/T1": claim}, QUICK)
    handed = is_stop(project, project.run(), "insufficient_evidence")
    assert "T3 is completed now" in str(handed["signals"])
    assert project.starts("implement/T3") == 0
    assert project.resume().code == 0  # a person saw it and lets it stand
    assert any("T3 is completed now" in text for text in project.notes())


REOPEN = {"do": "run", "argv": ["sed", "-i", "0,/completed/s//pending/", TASKS]}
COUNTED = [write("kit/count.py", "C = 1\n"), report(implementation_files=["kit/count.py"])]
AGAIN = [write("kit/words.py", "WORDS = 2\n"), report(implementation_files=["kit/words.py"])]


@pytest.mark.parametrize("is_right", [False, True])
def test_an_agent_cannot_have_a_task_done_again(tmp_path, is_right):
    acts = {"implement/T1": [DONE, AGAIN], "implement/T3": [REOPEN, *COUNTED]}
    project = build(tmp_path, CHAIN, acts, QUICK)
    handed = is_stop(project, project.run(), "insufficient_evidence")
    assert "T1 is pending now, and was complete when batch-2 was planned" in str(handed["signals"])
    assert project.starts("implement/T1") == 1 and len(project.subjects) == 2
    if not is_right:
        project.write(TASKS, project.read(TASKS).replace("pending", "completed"))
    assert project.resume().code == 0
    assert project.starts("implement/T1") == (2 if is_right else 1)
    assert project.git("show", f"HEAD:{TASKS}").count("completed") == 2


def test_nor_can_one_who_fixes_what_the_last_review_found(tmp_path):
    acts = {
        "implement/T1": DONE,
        "implement/T3": COUNTED,
        "review/batch-final/1": [review(HIGH)],
        "review/*": [review()],
        "fix/*": [REOPEN, *AGAIN],
    }
    project = build(tmp_path, CHAIN, acts, QUICK)
    handed = is_stop(project, project.run(), "insufficient_evidence")
    assert "T1 is pending now" in str(handed["signals"]) and len(project.subjects) == 3
    project.git("checkout", "-q", "--", TASKS)
    assert project.resume().code == 0
    assert project.git("show", f"HEAD:{TASKS}").count("completed") == 2 and len(project.subjects) == 4


def test_a_batch_that_is_over_is_not_done_again_when_the_phases_change(tmp_path):
    acts = {
        "implement/T1": DONE,
        "implement/T3": [[report(status="blocked")], [write("kit/count.py", "C = 1\n"), report()]],
    }
    project = build(tmp_path, CHAIN, acts, QUICK)
    is_stop(project, project.run(), "worker_blocked")
    project.write(
        "holdfast.toml", project.read("holdfast.toml").replace(QUICK[0], 'phases = ["test", "implement", "review"]')
    )
    assert project.resume("--allow-dirty").code == 0
    assert project.starts("test/T1") == 0 and project.starts("implement/T1") == 1


def test_two_specs_in_one_work_tree_are_not_run_at_once(tmp_path):
    project = build(tmp_path, ONE, {"implement/T1": [SLOW, DONE]}, QUICK)
    for name in ("tasks.yaml", "dependencies.yaml"):
        project.write(f"specs/active/other/{name}", project.read(f"specs/active/{SPEC}/{name}"))
    project.commit()
    process = project.start("run", SPEC, "--yes")
    wait_for(lambda: project.acts("implement/T1", "half"))
    try:
        answer = project.holdfast("run", "other", "--yes")
        assert answer.code == stops.exit_code("file_collision") and project.run_id in answer.err
    finally:
        end(process)


def test_specs_of_one_name_at_two_places_are_two(tmp_path):
    project = build(tmp_path, ONE, {"implement/T1": [[report(status="blocked")], DONE]}, QUICK)
    is_stop(project, project.run(), "worker_blocked")
    for name in ("tasks.yaml", "dependencies.yaml"):
        project.write(f"scopes/{SPEC}/{name}", project.read(f"specs/active/{SPEC}/{name}"))
    project.commit()
    answer = project.resume()
    assert answer.code == 65 and "There are 2 specs called" in answer.err and "Give the path of one." in answer.err
    assert project.holdfast("run", f"scopes/{SPEC}", "--yes").code == 0
    assert len(project.run_ids()) == 2


def test_another_work_tree_has_runs_of_its_own(tmp_path):
    project = build(tmp_path, ONE, {"implement/T1": [[report(status="blocked")], DONE]}, QUICK)
    is_stop(project, project.run(), "worker_blocked")
    project.git("worktree", "add", "-q", "-b", "beside", str(tmp_path / "beside"))
    command = [sys.executable, "-m", "holdfast", "run", SPEC, "--yes"]
    done = subprocess.run(command, cwd=tmp_path / "beside", env=project.environ(), capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert len(project.run_ids()) == 2


def test_a_reviewer_that_is_cut_off_by_a_cancel_has_not_reviewed(tmp_path):
    hang = [{"do": "sleep", "seconds": 60}, review()]
    settings = (*QUICK, 'reviewers = ["scripted", "second"]')
    project = build(tmp_path, ONE, {"implement/T1": DONE}, settings, others={"second": {"review/*": hang}})
    process = project.start("run", SPEC, "--yes")
    wait_for(lambda: project.starts("review/batch-1/1", "second"))
    time.sleep(0.5)
    assert project.holdfast("cancel", project.run_id).code == 0
    process.communicate(timeout=30)
    assert process.returncode == stops.exit_code("cancelled")
    assert not [
        one for one in project.events() if getattr(one, "step_id", "") == "batch-1/gate-1" and hasattr(one, "output")
    ]


@pytest.mark.parametrize(("said", "starts"), [("--abandon", 2), ("--done", 1), ("--not-done", 2)])
def test_what_a_person_says_of_a_stage_is_taken_at_its_word(tmp_path, said, starts):
    project = build(tmp_path, ONE, {"implement/T1": [SLOW, DONE]}, QUICK)
    process = project.start("run", SPEC, "--yes")
    wait_for(lambda: project.acts("implement/T1", "half"))
    end(process, signal.SIGKILL)
    key = next(one.effect_key for one in project.events() if type(one).__name__ == "EffectStarted")
    assert project.holdfast("settle", project.run_id, key, said).code == 0
    assert project.resume().code == 0
    assert project.starts("implement/T1") == starts and carrying(project.run_id) == []


def test_a_check_that_somebody_settled_is_run_all_the_same(tmp_path):
    program = "import os, time; time.sleep(0 if os.path.exists('now') else 60)"
    check = f"tier1 = [{json.dumps([sys.executable, '-c', program])}]"
    project = build(tmp_path, ONE, {"implement/T1": DONE}, QUICK, checks=check)
    process = project.start("run", SPEC, "--yes")
    wait_for(
        lambda: (
            project.has_run and any(str(getattr(one, "step_id", "")).endswith("tier1-1") for one in project.events())
        )
    )
    end(process, signal.SIGKILL)
    key = [one.effect_key for one in project.events() if type(one).__name__ == "EffectStarted"][-1]
    assert project.holdfast("settle", project.run_id, key, "--done").code == 0
    project.write("now", "")
    assert project.resume().code == 0


def test_a_watcher_who_goes_away_does_not_stop_the_run(tmp_path):
    project = build(tmp_path, ONE, {"implement/T1": DONE}, QUICK)
    process = project.start("run", SPEC, "--yes")
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    process.stderr.close()
    assert process.wait(timeout=60) == 0
    assert len(project.subjects) == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_closed_terminal_ends_the_agent_and_is_on_record(tmp_path, number):
    project = build(tmp_path, ONE, {"implement/T1": [SLOW, DONE]}, QUICK)
    process = project.start("run", SPEC, "--yes")
    wait_for(lambda: project.acts("implement/T1", "half"))
    handed = is_stop(project, end(process, number), "user_stopped")
    assert carrying(project.run_id) == [] and handed["resume_command"]
    assert project.resume().code == 0


def test_a_plan_of_a_command_is_not_made_by_running_it(tmp_path):
    project = build(tmp_path, ONE, {}, QUICK)
    answer = project.holdfast("run", "--plan", "--", "touch", "made")
    assert answer.code == stops.exit_code("usage_error") and not (project.top / "made").exists()


def test_needs_that_cannot_be_read_are_no_freedom(tmp_path):
    project = build(tmp_path, CHAIN, {}, QUICK)
    project.write(NEEDS, "T3: [T1\n")
    answer = project.run("--allow-dirty")
    assert answer.code == stops.exit_code("bad_input") and "dependencies.yaml" in answer.err
    assert project.ledger() == []


def test_what_a_person_adds_to_a_blocked_task_reaches_the_next_attempt(tmp_path):
    acts = {"implement/T1": [[report(status="blocked", blocked_reason="which colour?")], DONE]}
    project = build(tmp_path, ONE, acts, QUICK)
    is_stop(project, project.run(), "worker_blocked")
    project.write(TASKS, project.read(TASKS).replace("    status:", "    description: make it red\n    status:"))
    assert project.resume().code == 0
    assert any("make it red" in text and "which colour?" in text for text in project.prompts())


def test_the_agent_that_was_chosen_is_still_the_one_after_a_stop(tmp_path):
    others = {"second": {"implement/T1": [[report(status="blocked")], DONE]}}
    project = build(tmp_path, ONE, {"implement/T1": DONE}, QUICK, others=others)
    is_stop(project, project.run("--agent", "second"), "worker_blocked")
    assert project.resume().code == 0
    assert project.starts("implement/T1", "second") == 2 and project.ledger() == []


def test_ctrl_c_while_a_reviewer_waits_for_its_limit(tmp_path):
    limit = [{"do": "limit", "text": "You've hit your usage limit. Try again in 2h 13m."}]
    project = build(tmp_path, ONE, {"implement/T1": DONE, "review/*": limit}, QUICK)
    process = project.start("run", SPEC, "--yes")
    wait_for(lambda: project.has_run and "SleepStarted" in project.kinds())
    began = time.monotonic()
    assert end(process).code == stops.exit_code("user_stopped")
    assert time.monotonic() - began < 10


def test_what_is_found_again_keeps_its_id(tmp_path):
    first = {
        "review/batch-1/1": [review(HIGH, MEDIUM)],
        "review/*": [review(MEDIUM)],
        "fix/*": [report(resolved=["H001"])],
    }
    project = build(tmp_path, ONE, {"implement/T1": DONE, **first}, QUICK)
    assert project.run().code == 0
    text = project.read(f"specs/active/{SPEC}/checkpoint.yaml")
    assert text.count("M001") == 1 and "M002" not in text


def test_an_id_means_the_same_finding_in_every_file(tmp_path):
    other = {**MEDIUM, "description": "It is slow"}
    first = {
        "implement/T3": [write("kit/count.py", "C = 1\n"), report(implementation_files=["kit/count.py"])],
        "review/batch-1/1": [review(MEDIUM)],
        "review/batch-2/1": [review(MEDIUM, other)],
        "review/*": [review(other)],
    }
    project = build(tmp_path, CHAIN, {"implement/T1": DONE, **first}, QUICK)
    path = f"specs/active/{SPEC}/review.yaml"
    project.write(path, "issues:\n  medium:\n    - {id: M004, description: old, status: resolved}\n")
    project.commit()
    assert project.run().code == 0
    spec = SpecFolder(f"specs/active/{SPEC}", str(project.top)).read()
    said = [(one.id, one.batch, one.description) for one in spec.checkpoint.deferred]
    assert said == [("M005", "1", MEDIUM["description"]), ("M006", "2", other["description"])]
    assert [(one.id, one.batch, one.description) for one in spec.deferred] == said
    assert project.read(path).count("id: ") == 5  # the old one, and each of the two in both of its lists


@pytest.mark.parametrize("where", ["a new run", "a new clone"])
def test_what_a_checkpoint_carries_on_keeps_its_id_where_no_log_is(tmp_path, where):
    other = {**MEDIUM, "description": "It is slow"}
    acts = {
        "implement/T3": [write("kit/count.py", "C = 1\n"), report(implementation_files=["kit/count.py"])],
        "review/batch-1/1": [[review(MEDIUM)], [review(MEDIUM, other)]],
        "review/*": [review(MEDIUM)],
    }
    project = build(tmp_path, CHAIN, {"implement/T1": DONE, **acts}, QUICK)
    project.killed_on("after step_finished batch-1/closed")
    carried = project.read(CHECKPOINT).partition("deferred_issues:")[2].partition("# Who")[0]
    if where == "a new clone":
        project.git("clone", "-q", ".", str(tmp_path / "clone"))
        project.top = tmp_path / "clone"
    assert project.run("--new").code == 0
    spec = SpecFolder(f"specs/active/{SPEC}", str(project.top)).read()
    said = [(one.id, one.batch, one.description) for one in spec.checkpoint.deferred]
    assert said == [("M001", "1", MEDIUM["description"]), ("M002", "2", other["description"])]
    assert carried.rstrip() in project.read(CHECKPOINT)
    assert sorted(spec.reviewed) == ["M001", "M001", "M002", "M002"]  # in both lists of review.yaml


def test_a_plan_of_an_earlier_version_carries_nothing_on():
    assert batches.carried({"number": "1", "tasks": []}) == {}


def test_what_was_resolved_by_hand_and_is_found_again_is_another_finding(tmp_path):
    acts = {
        "implement/T3": [write("kit/count.py", "C = 1\n"), report(implementation_files=["kit/count.py"])],
        "review/*": [review(MEDIUM)],
    }
    project = build(tmp_path, CHAIN, {"implement/T1": DONE, **acts}, QUICK)
    project.killed_on("after step_finished batch-1/closed")
    text = project.read(CHECKPOINT)
    project.write(
        CHECKPOINT, text.replace("      reviewer: scripted", "      reviewer: scripted\n      status: resolved")
    )
    assert project.run("--new", "--allow-dirty").code == 0
    deferred = SpecFolder(f"specs/active/{SPEC}", str(project.top)).read().checkpoint.deferred
    assert [(one.id, one.status) for one in deferred] == [("M001", "resolved"), ("M002", "deferred")]


def test_a_task_that_was_not_begun_when_another_failed_is_not_begun(tmp_path):
    spec = {**TWO, "T9": ("kit/last.py", ())}
    acts = {name: [{"do": "crash", "code": 3}] for name in ("implement/T1", "implement/T2")}
    project = build(tmp_path, spec, acts, QUICK)
    is_stop(project, project.run(), "worker_failed")
    assert project.starts("implement/T9") == 0


def test_a_start_of_somebody_else_is_not_ours_to_end():
    from holdfast.adapters import processes

    environ = {**os.environ, **processes.marks("the-key", "the-run", "theirs")}
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"], env=environ)
    try:
        theirs = processes.identify(other.pid, "the-key", "the-run", "", "theirs")
        wait_for(lambda: list(processes.carrying(theirs, processes.everyone())))
        ours = processes.identify(os.getpid(), "the-key", "the-run", "", "ours")
        assert list(processes.carrying(ours, processes.everyone())) == []
    finally:
        other.kill()
        other.wait()


def test_a_name_that_a_task_shares_with_ours_is_no_clash(tmp_path):
    spec = {"review-1": ("kit/words.py", ()), "merge": ("kit/mean.py", ())}
    acts = {f"implement/{name}": [write(f"kit/{name}.py", "X = 1\n"), report()] for name in spec}
    project = build(tmp_path, spec, acts, QUICK)
    assert project.run().code == 0


def test_an_agent_is_not_told_where_the_log_is(tmp_path):
    look = [
        {"do": "run", "argv": [sys.executable, "-c", "import os; open('kit/env', 'w').write(str(sorted(os.environ)))"]}
    ]
    project = build(tmp_path, ONE, {"implement/T1": [*look, *DONE]}, QUICK)
    assert project.run(HOLDFAST_STORE=project.store, HOLDFAST_YES="1").code == 0
    seen = project.read("kit/env")
    assert "HOLDFAST_AGENT_RUN" in seen and "HOLDFAST_STORE" not in seen and "HOLDFAST_YES" not in seen
    assert kit.SPEC in project.subjects[0]


def test_an_interrupt_while_workers_are_started_waits_for_those_that_are(monkeypatch):
    halted, ended, begun = threading.Event(), [], []

    class Desk:
        halt = staticmethod(halted.set)

    class Thread(threading.Thread):
        def start(self):
            begun.append(self)
            if len(begun) == 2:
                raise KeyboardInterrupt
            super().start()

    def job():
        assert halted.wait(30)
        time.sleep(0.1)
        ended.append(1)

    monkeypatch.setattr(tasks.threading, "Thread", Thread)
    with pytest.raises(KeyboardInterrupt):
        tasks.together(Desk, [job] * 3, "worker", 3)
    assert ended == [1]

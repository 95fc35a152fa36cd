"""What a commit claims was so when it was made: checked as it is, within the scope, and with the work in it."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress

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

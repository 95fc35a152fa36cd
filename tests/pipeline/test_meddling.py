"""Others have their hands in it: agents that use git themselves, people who edit files meanwhile, signals at any time."""

from __future__ import annotations

import shutil
import signal

import pytest

from holdfast.core import stops
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
CHECKPOINT, REVIEW = (f"specs/active/{SPEC}/{name}.yaml" for name in ("checkpoint", "review"))
HEADED = (
    "# ours\ncheckpoint:\n  branch: main\n  decisions: [keep me]   # by hand\n  deferred_issues:\n    - human item\n"
)
DONE = [write("kit/words.py", "WORDS = 1\n"), report(implementation_files=["kit/words.py"])]
HANG = [{"do": "half", "path": "kit/half.py", "text": "HALF = 1\n#the rest\n"}, {"do": "sleep", "seconds": 60}]


def git(*arguments):
    return {"do": "run", "argv": ["git", *arguments]}


# --- agents with git


def test_an_agent_that_commits_by_itself_loses_nothing(tmp_path):
    alone = [DONE[0], git("add", "-A"), git("commit", "-q", "-m", "by the agent"), DONE[1]]
    project = build(tmp_path, CHAIN, {"implement/T1": alone}, QUICK)
    answer = project.run()
    assert answer.code == 0, answer
    assert project.git("show", "HEAD:kit/words.py") == "WORDS = 1\n" and project.git("status", "--porcelain") == ""
    assert project.subjects[0].endswith("batch 2 of 2") and "by the agent" in project.subjects


def test_an_agent_that_checks_another_branch_out_is_stopped_after(tmp_path):
    """Nothing is committed to a branch that nobody chose; the work is there, and counts once the branch is right again."""
    astray = [DONE[0], git("switch", "-q", "-c", "elsewhere"), DONE[1]]
    project = build(tmp_path, ONE, {"implement/T1": astray}, QUICK)
    handed = is_stop(project, project.run(), "branch_differs")
    assert "elsewhere" in str(handed["signals"]) and len(project.subjects) == 1
    project.git("switch", "-q", "main")
    assert project.resume().code == 0
    assert project.starts("implement/T1") == 1 and project.git("show", "main:kit/words.py") == "WORDS = 1\n"


def test_a_check_that_leaves_another_branch_behind_is_stopped_after(tmp_path):
    checks = 'tier1 = [["sh", "-c", "test -e ../seen || git switch -q -c elsewhere; touch ../seen"]]'
    project = build(tmp_path, ONE, {"implement/T1": DONE}, QUICK, checks=checks)
    handed = is_stop(project, project.run(), "branch_differs")
    assert "elsewhere" in str(handed["signals"]) and len(project.subjects) == 1
    project.git("switch", "-q", "main")
    assert project.resume().code == 0
    assert (
        project.git("show", "main:kit/words.py") == "WORDS = 1\n"
        and len(project.git("log", "--format=%H", "elsewhere").split()) == 1
    )


def test_an_agent_that_stashes_is_told_of(tmp_path):
    project = build(
        tmp_path,
        ONE,
        {"implement/T1": [DONE[0], git("stash", "-u", "-q"), write("kit/other.py", "O = 1\n"), DONE[1]]},
        QUICK,
    )
    assert project.run().code == 0
    assert any("refs/stash" in text for text in project.notes()), project.notes()
    assert project.git("show", "stash^3:kit/words.py") == "WORDS = 1\n"


@pytest.mark.parametrize("taken_away", [git("stash", "-u", "-q"), {"do": "run", "argv": ["rm", "kit/words.py"]}])
def test_work_of_a_task_that_another_agent_takes_away_is_no_work_that_is_done(tmp_path, taken_away):
    other = [taken_away, write("kit/mean.py", "MEAN = 1\n"), report(implementation_files=["kit/mean.py"])]
    project = build(tmp_path, TWO, {"implement/T1": DONE, "implement/T2": other}, (*QUICK, "parallel = 1"))
    handed = is_stop(project, project.run(), "insufficient_evidence")
    assert "T1: kit/words.py was reported and there" in str(handed["signals"]) and len(project.subjects) == 1
    (project.top / "kit/words.py").write_text("WORDS = 1\n")
    assert project.resume().code == 0
    assert project.git("show", "HEAD:kit/words.py") == "WORDS = 1\n" and project.starts("implement/T1") == 1


def test_a_repository_that_an_agent_made_within_is_told_of_and_not_called_committed(tmp_path):
    inner = [write("sub/x.txt", "x\n"), git("init", "-q", "sub"), git("-C", "sub", "add", "-A")]
    project = build(tmp_path, ONE, {"implement/T1": [*inner, git("-C", "sub", "commit", "-qm", "inner"), *DONE]}, QUICK)
    assert project.run().code == 0
    told = [text for text in project.notes() if "sub/" in text]
    assert any("is a repository of its own, and is in no commit of this one" in text for text in told), project.notes()
    assert not any("committed with the review" in text for text in told), told


def test_work_in_a_submodule_that_nobody_committed_there_is_told_with_the_batch(tmp_path):
    inside = write("sub/x.txt", "changed\n")
    done = [inside, report(implementation_files=["sub/x.txt"])]
    project = build(tmp_path, ONE, {"implement/T1": done}, QUICK)
    inner = str(tmp_path / "inner")
    project.git("init", "-q", inner)
    (tmp_path / "inner" / "x.txt").write_text("x\n")
    project.git("-C", inner, "add", "-A")
    project.git("-C", inner, "commit", "-q", "-m", "inner")
    project.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", inner, "sub")
    project.commit()
    assert project.run().code == 0
    (told,) = [text for text in project.notes() if "sub: it is a submodule" in text]
    assert told.startswith("batch-1: the commit is without ") and "(x.txt)" in told


def test_an_agent_that_deletes_the_log_is_told_of_as_such(tmp_path):
    project = build(tmp_path, ONE, {"implement/T1": [*DONE, git("clean", "-fdxq", ".holdfast")]}, QUICK)
    answer = project.run()
    assert answer.code == stops.exit_code("store_replaced"), answer
    assert "was deleted while in use" in answer.err and "checkpoint.yaml" in answer.err
    assert project.read("kit/words.py") == "WORDS = 1\n" and len(project.subjects) == 1
    project.script({"implement/T1": [write("kit/words.py", "WORDS = 2\n"), DONE[1]]})
    assert project.run("--allow-dirty").code == 0


# --- people with an editor


def test_tasks_that_cannot_be_read_for_a_while_are_no_end_for_good(tmp_path):
    project = build(tmp_path, CHAIN, settings=QUICK)
    project.killed_on("after step_finished batch-1/closed")
    before = project.read(TASKS)
    project.write(TASKS, before + "  - id: [\n")
    answer = project.resume("--allow-dirty")
    assert answer.code == stops.exit_code("bad_input"), answer
    assert "tasks.yaml" in answer.err
    project.write(TASKS, before)
    answer = project.resume()
    assert answer.code == 0, answer
    assert len(project.subjects) == 3 and project.starts("implement/T1") == 1


def test_tasks_that_are_broken_while_an_agent_works_are_put_right_and_gone_on_with(tmp_path):
    broken = [{"do": "append", "path": TASKS, "text": "  - id: [\n"}, *DONE]
    project = build(tmp_path, CHAIN, {"implement/T1": broken}, QUICK)
    handed = is_stop(project, project.run(), "step_failed")
    assert "tasks.yaml" in str(handed["signals"])
    project.write(TASKS, project.read(TASKS).removesuffix("  - id: [\n"))
    answer = project.resume()
    assert answer.code == 0, answer
    assert project.starts("implement/T1") == 1 and len(project.subjects) == 3


def test_an_edit_of_a_person_between_two_batches_is_not_committed_unasked(tmp_path):
    project = build(tmp_path, CHAIN, settings=QUICK)
    assert project.holdfast("trust", "--yes").code == 0
    project.killed_on("after step_finished batch-1/closed")
    project.write("notes.txt", "mine\n")
    is_stop(project, project.holdfast("resume", SPEC), "dirty_worktree")
    assert project.read("notes.txt") == "mine\n"
    (project.top / "notes.txt").unlink()
    assert project.holdfast("resume", SPEC).code == 0


def test_the_files_of_holdfast_may_be_lost_and_the_spec_still_goes_on(tmp_path):
    """Without a log the mirrors in git are enough: what is complete is not done again."""
    project = build(tmp_path, CHAIN, settings=QUICK)
    project.killed_on("after step_finished batch-1/closed")
    shutil.rmtree(project.top / ".holdfast")
    answer = project.run()
    assert answer.code == 0, answer
    assert (project.starts("implement/T1"), project.starts("implement/T3")) == (1, 1)
    assert len(project.subjects) == 3


def test_from_a_folder_within(tmp_path):
    project = build(tmp_path, ONE, {"implement/T1": DONE}, QUICK)
    top, project.top = project.top, project.top / "kit"
    answer = project.run()
    project.top = top
    assert answer.code == 0, answer
    assert len(project.subjects) == 2


# --- signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_two_agents_work_side_by_side(tmp_path, number):
    acts = {"implement/T1": [HANG, DONE], "implement/T2": [HANG, [write("kit/mean.py", "MEAN = 1\n"), report()]]}
    project = build(tmp_path, TWO, acts, QUICK)
    process = project.start("run", SPEC, "--yes")
    wait_for(lambda: project.acts("implement/T1", "half") and project.acts("implement/T2", "half"))
    answer = end(process, number)
    if number == signal.SIGINT:
        assert answer.code == 130 and carrying(project.run_id) == []
        assert project.handoff()["stop_reason"] == "user_stopped"
    answer = project.resume()
    assert answer.code == 0, answer
    assert carrying(project.run_id) == [] and len(project.subjects) == 2
    assert (project.starts("implement/T1"), project.starts("implement/T2")) == (2, 2)


def test_ctrl_c_while_a_limit_is_waited_for(tmp_path):
    limit = [{"do": "limit", "text": "You've hit your usage limit. Try again in 2h 13m."}]
    project = build(tmp_path, ONE, {"implement/T1": [limit, DONE]}, QUICK)
    process = project.start("run", SPEC, "--yes")
    wait_for(lambda: project.has_run and "SleepStarted" in project.kinds())
    assert end(process, signal.SIGINT).code == 130
    is_stop(project, project.run("--no-wait"), "quota_wait")
    assert project.starts("implement/T1") == 1


def test_ctrl_c_while_a_check_runs(tmp_path):
    slow = 'tier1 = [["sh", "-c", "test -e ../quick || sleep 60"]]'
    project = build(tmp_path, ONE, {"implement/T1": DONE}, QUICK, checks=slow)
    process = project.start("run", SPEC, "--yes")
    wait_for(
        lambda: project.has_run and any("tier1" in (getattr(one, "step_id", None) or "") for one in project.events())
    )
    wait_for(lambda: carrying(project.run_id))
    assert end(process, signal.SIGINT).code == 130
    assert carrying(project.run_id) == []
    (project.folder / "quick").touch()
    assert project.resume().code == 0
    assert project.starts("implement/T1") == 1 == project.starts("review/batch-1/1")


# --- the checkpoint and the review

TAKEN = {
    "removed": ({"do": "run", "argv": ["rm", CHECKPOINT]}, "all of it, human item"),
    "broken": (write(CHECKPOINT, "checkpoint: a: b\n"), "all of it, human item"),
    "emptied": (write(CHECKPOINT, HEADED.replace("keep me", "")), "decisions"),
    "stripped": (write(CHECKPOINT, "# x\ncheckpoint:\n  deferred_issues: [another]\n"), "decisions, human item"),
    "dumped": (
        write(CHECKPOINT, "checkpoint: {decisions: [keep me], deferred_issues: [human item]}\n"),
        "its comments",
    ),
}


@pytest.mark.parametrize("how", TAKEN)
def test_what_goes_out_of_the_checkpoint_while_agents_are_at_work_is_put_back_and_told(tmp_path, how):
    act, said = TAKEN[how]
    project = build(tmp_path, ONE, {"implement/T1": [act, *DONE]}, QUICK)
    project.write(CHECKPOINT, HEADED)
    project.commit()
    answer = project.run()
    assert answer.code == 0, answer
    assert project.git("show", f"HEAD:{CHECKPOINT}").startswith(HEADED[:-1])
    (told,) = [text for text in project.notes() if "while agents were at work" in text]
    assert told.startswith(f"checkpoint.yaml: {said} went out of it") and "is put back" in told
    assert (how == "removed") == ("artifact" not in told)
    if how != "removed":
        assert project.artifact(told.rpartition(" ")[2]) == act["text"].encode()


@pytest.mark.parametrize("cut", ["stop", "kill"])
def test_it_is_put_back_also_where_the_work_is_cut_off(tmp_path, cut):
    last = report(status="blocked") if cut == "stop" else {"do": "sleep", "seconds": 60}
    project = build(tmp_path, ONE, {"implement/T1": [[TAKEN["removed"][0], write("kit/half", ""), last], DONE]}, QUICK)
    project.write(CHECKPOINT, HEADED)
    project.commit()
    if cut == "kill":
        process = project.start("run", SPEC, "--yes")
        wait_for((project.top / "kit" / "half").exists)
        end(process, signal.SIGKILL)
        assert not (project.top / CHECKPOINT).exists()
    else:
        is_stop(project, project.run(), "worker_blocked")
        assert project.read(CHECKPOINT) == HEADED
        project.write(CHECKPOINT, HEADED.replace("  decisions: [keep me]   # by hand\n", ""))  # a person may do so now
    assert project.resume().code == 0
    kept = project.git("show", f"HEAD:{CHECKPOINT}")
    assert kept.startswith("# ours\n") and "human item" in kept and ("decisions" in kept) == (cut == "kill")
    assert sum("while agents were at work" in text for text in project.notes()) == 1


def test_so_is_the_review(tmp_path):
    low = {"severity": "low", "location": "kit/words.py:1", "description": "hm", "task": "T1"}
    acts = {
        "implement/T1": [write(REVIEW, "issues: []\n"), *DONE],
        "review/batch-1/1": [review(low)],
        "review/*": [review()],
    }
    project = build(tmp_path, ONE, acts, QUICK)
    before = "ours: {a: b}\nissues:\n  low:\n    - id: L001\n      description: old\n"
    project.write(REVIEW, before)
    project.commit()
    assert project.run().code == 0
    kept = project.git("show", f"HEAD:{REVIEW}")
    assert kept.startswith(before) and "id: L002" in kept
    assert any(text.startswith("review.yaml: ours, issues went out") for text in project.notes()), project.notes()

"""A spec in a new clone: no log, only what its files and git know. Going on is the same command, and as careful."""

from __future__ import annotations

import json
import re
import shlex

import pytest

from holdfast.core import stops
from holdfast.core.events import ResumeCheckpointSelected
from tests.pipeline.kit import CHAIN, ONE, QUICK, SPEC, build, report, write
from tests.pipeline.test_truth import BLOCKED

COUNT = [write("kit/count.py", "COUNT = 1\n"), report(implementation_files=["kit/count.py"])]
CHECKPOINT = f"specs/active/{SPEC}/checkpoint.yaml"


@pytest.fixture
def clone(tmp_path):
    """A clone of a project of which one batch was done, on the branch `feature`."""
    project = build(tmp_path, CHAIN, {"implement/T3": [BLOCKED, COUNT]}, QUICK)
    project.git("switch", "-q", "-c", "feature")
    assert project.run().code == stops.exit_code("worker_blocked")
    project.git("clone", "-q", str(project.top), str(project.folder / "clone"))
    project.top = project.folder / "clone"
    assert project.holdfast("trust", "--yes").code == 0
    return project


def test_resume_goes_on_by_the_checkpoint(clone):
    shown = clone.holdfast("resume")
    assert shown.code == 0 and f"holdfast resume specs/active/{SPEC}" in shown.out, shown
    assert clone.holdfast("resume", "--json").data["specs"] == [
        {"path": f"specs/active/{SPEC}", "last_batch": "1", "next": f"holdfast resume specs/active/{SPEC}"}
    ]
    before = clone.git("status", "--short")
    assert "T3" in clone.holdfast("resume", SPEC, "--plan").out and clone.git("status", "--short") == before
    assert clone.holdfast("resume", SPEC, "--approve", "abc").code == stops.exit_code("plan_changed")
    answer = clone.holdfast("resume", SPEC)
    assert answer.code == 0, answer
    assert clone.starts("implement/T1") == 1 and "last_batch: 2" in clone.read(CHECKPOINT)
    assert clone.holdfast("resume", "--json").data["specs"] == []
    (chosen,) = [one for one in clone.events() if isinstance(one, ResumeCheckpointSelected)]
    assert (chosen.source, chosen.confidence) == ("checkpoint_yaml", "weak") and chosen.why in clone.notes()
    assert chosen.was == clone.git("rev-parse", "HEAD~2").strip(), "the commit that its batch was built on"


def test_a_run_that_begins_without_a_checkpoint_names_none(tmp_path):
    project = build(tmp_path, ONE, settings=QUICK)
    assert project.run().code == 0 and "ResumeCheckpointSelected" not in project.kinds()


def test_everything_complete_is_a_final_review(clone):
    assert clone.holdfast("resume", SPEC).code == 0
    clone.git("clone", "-q", str(clone.top), str(clone.folder / "second"))
    clone.top = clone.folder / "second"
    answer = clone.holdfast("resume", SPEC, "--yes")
    assert answer.code == 0 and "final review" in answer.err, answer
    assert clone.starts("review/batch-final/1") == 2


@pytest.mark.parametrize("verb", ["run", "resume"])
def test_another_branch_than_that_of_the_checkpoint_is_two_choices(clone, verb):
    clone.git("switch", "-q", "-c", "other")
    answer = clone.holdfast(verb, SPEC, "--json")
    error = answer.data["error"]
    assert (answer.code, error["reason"]) == (stops.exit_code("branch_differs"), "branch_differs"), answer
    back, on = (shlex.split(command) for command in error["advice"].split("`")[1::2])
    assert clone.git("branch", "--show-current") == "other\n" and clone.starts("implement/T3") == 1
    assert on[0] == "holdfast" and back == ["git", "switch", "feature"]
    clone.git(*back[1:])
    clone.git("switch", "-q", "other")
    assert clone.holdfast(*on[1:]).code == 0
    assert "branch: other" in clone.read(CHECKPOINT)


def test_a_branch_that_is_no_more_is_told(clone):
    clone.git("switch", "-q", "-c", "other")
    clone.git("branch", "-q", "-D", "feature")
    clone.git("remote", "remove", "origin")
    assert clone.holdfast("resume", SPEC).code == 0
    assert any("feature" in text for text in clone.notes()), clone.notes()


def test_a_checkpoint_that_nobody_can_read_is_named_with_its_line_and_what_to_do(clone):
    clone.write(CHECKPOINT, clone.read(CHECKPOINT).replace("last_batch: 1", "last_batch: `1"))
    line = next(at for at, text in enumerate(clone.read(CHECKPOINT).splitlines(), 1) if "`1" in text)
    shown = clone.holdfast("resume")
    assert f"{CHECKPOINT}, line {line}:" in shown.out and "Mend that line" in shown.out, shown
    (row,) = clone.holdfast("resume", "--json").data["specs"]
    assert f"line {line}" in row["problem"] and row["next"] == f"holdfast resume specs/active/{SPEC}"
    for more in ((), ("--plan",)):
        error = clone.holdfast("resume", SPEC, *more, "--json").data["error"]
        assert f"{CHECKPOINT}, line {line}:" in error["message"] and "move the file away" in error["advice"], error
    (clone.top / CHECKPOINT).unlink()
    assert clone.holdfast("run", SPEC, "--yes").code == 0
    assert clone.starts("implement/T1") == 1 and "last_batch: 1" in clone.read(CHECKPOINT)


def test_a_spec_that_never_ran_is_not_called_a_missing_store(tmp_path):
    project = build(tmp_path, CHAIN, settings=QUICK)
    answer = project.holdfast("resume", SPEC, "--json")
    error = json.loads(answer.out)["error"]
    assert answer.code == stops.exit_code("not_found") and "no run" in error["message"], answer
    assert f"`holdfast run {SPEC}`" in error["advice"]


BEGUN = """\
checkpoint:
  last_batch: 0
  phase_cursor: {batch: 1, phase: implementer, status: in_progress, tasks: [T1], reports: [{agent: codex}]}
  incomplete_stages:
    - batch: 1
      task: T1
      phase: implementer
      agent: codex
      status: in_progress
      evidence: {pre_dispatch: {git_status: clean}}
    - {batch: 2, task: T3, phase: tester, status: failed}
"""


def test_stages_that_a_checkpoint_calls_incomplete_are_told_briefed_and_brought_to_their_end(tmp_path):
    project = build(tmp_path, CHAIN, {"implement/T3": [BLOCKED, COUNT]}, QUICK)
    project.write(CHECKPOINT, BEGUN)
    project.commit()
    said = "T1: codex began implementer (in_progress) of batch 1, and no valid end of that is told"
    assert said in project.holdfast("resume", SPEC, "--plan").out
    assert project.holdfast("run", SPEC, "--plan", "--json").data["begun"][0] == said
    assert project.resume().code == stops.exit_code("worker_blocked")
    assert f"checkpoint.yaml: {said}" in project.notes()
    (one,) = [text for text in project.prompts() if text.startswith("# Implement: T1")]
    assert "You are continuing work" in one and f"- by checkpoint.yaml, {said}" in one
    (one,) = [text for text in project.prompts() if text.startswith("# Implement: T3")]
    assert "somebody began tester (failed) of batch 2" in one
    kept = project.git("show", f"HEAD:{CHECKPOINT}")
    assert "  incomplete_stages:\n    - {batch: 2, task: T3, phase: tester, status: failed}\n" in kept
    assert "  phase_cursor:\n    batch: 1\n    phase: complete\n    status: completed\n    tasks: [T1]\n" in kept
    assert project.resume().code == 0
    kept = project.git("show", f"HEAD:{CHECKPOINT}")
    assert "  incomplete_stages: []\n" in kept and "    batch: 2\n    phase: complete\n" in kept
    earlier = kept.partition("  earlier_incomplete_stages:\n")[2]
    assert earlier.startswith("    - batch: 1\n      task: T1\n") and "status: completed\n      evidence:" in earlier
    assert "  earlier_phase_cursor:\n    - {batch: 1, phase: implementer, status: in_progress" in kept


def test_a_run_of_a_spec_that_only_mirrors_know_is_gone_on_with_by_its_spec(clone):
    clone.write("notes.md", "mine\n")
    clone.commit()  # what it is nobody knows, so what is found is not sure
    (row,) = clone.holdfast("resume", "--json").data["mirrored"]
    assert (row["spec"], row["other"], row["sure"]) == (f"specs/active/{SPEC}", None, False)
    for shown in (clone.holdfast("resume").out, clone.holdfast("resume", row["run_id"]).out):
        (command,) = {line.strip() for line in shown.splitlines() if line.startswith("  holdfast")}
        assert command == row["next"] and "COMMAND" not in shown, shown
    answer = clone.holdfast(*shlex.split(command)[1:])
    assert answer.code == 0, answer
    (row,) = clone.holdfast("resume", "--json").data["mirrored"]
    assert row["other"] == clone.run_id and row["next"] == f"holdfast show {clone.run_id}"
    assert f"run {clone.run_id} is here:\n  {row['next']}" in clone.holdfast("resume").out
    assert clone.holdfast(*shlex.split(row["next"])[1:]).code == 0


def test_of_several_specs_the_newest_comes_first_by_what_its_checkpoint_says(clone):
    """Behaviour 74: in a clone the times of all files are the same."""
    for name, when in (("alpha", "2020-01-01T00:00:00Z"), ("beta", "2020-01-02T00:00:00Z"), ("gamma", "once")):
        for file in ("tasks.yaml", "dependencies.yaml"):
            clone.write(f"specs/active/{name}/{file}", clone.read(f"specs/active/{SPEC}/{file}"))
        said = re.sub("timestamp: .*", f"timestamp: {when}", clone.read(CHECKPOINT))
        clone.write(f"specs/active/{name}/checkpoint.yaml", said)
    rows = clone.holdfast("resume", "--json").data["specs"]
    assert [row["path"].rpartition("/")[2] for row in rows] == [SPEC, "beta", "alpha", "gamma"]
    assert [row["newest"] for row in rows] == [True, False, False, False]
    shown = clone.holdfast("resume").out
    assert f"is done (written {rows[0]['written']}, the newest):\n  holdfast resume specs/active/{SPEC}\n" in shown
    assert shown.count("the newest") == 1 and "is done (written 2020-01-02T00:00:00Z):" in shown

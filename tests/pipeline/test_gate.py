"""Between the work of a batch and its commit: reviewers, checks and guards, and what stops there."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from holdfast.core.events import EffectStarted, StepFinished
from tests.pipeline.kit import CHAIN, ONE, QUICK, SPEC, TWO, build, carrying, is_stop, report, review, wait_for, write

HIGH = {"severity": "high", "location": "kit/words.py:1", "description": "It is wrong"}
MEDIUM = {"severity": "medium", "location": "kit/words.py:2", "description": "It could be shorter", "task": "T1"}
FIXED = [write("kit/words.py", "WORDS = 2\n"), report(resolved=["H001"])]
IMPLEMENTED = [write("kit/words.py", "WORDS = 1\n"), report(implementation_files=["kit/words.py"])]


def decisions(project, batch=1):
    steps = [one for one in project.events() if isinstance(one, StepFinished)]
    return [one.output["verdict"] for one in steps if one.step_id.startswith(f"batch-{batch}/gate-")]


# --- reviews


def test_high_is_fixed_now_and_medium_is_carried_on(tmp_path):
    """Behaviour 63: with its id, its task, its place and its reviewer."""
    acts = {"implement/T1": IMPLEMENTED, "review/batch-1/1": [review(HIGH, MEDIUM)], "fix/*": FIXED}
    project = build(tmp_path, CHAIN, acts, QUICK)
    assert project.run().code == 0
    assert decisions(project) == ["fix", "through"]
    assert project.git("show", "HEAD~1:kit/words.py") == "WORDS = 2\n"
    for commit in ("HEAD~1", "HEAD"):
        text = project.git("show", f"{commit}:specs/active/text-kit/checkpoint.yaml")
        for line in ("id: M001", "batch: 1", "task: T1", 'location: "kit/words.py:2"', "reviewer: scripted"):
            assert line in text
        assert "H001" not in text
    assert len(project.subjects) == 3


def test_the_same_finding_after_a_fix_is_a_loop(tmp_path):
    acts = {"implement/T1": IMPLEMENTED, "review/*": [review(HIGH)], "fix/*": FIXED}
    project = build(tmp_path, ONE, acts, QUICK)
    handed = is_stop(project, project.run(), "review_loop_detected")
    assert project.starts("fix/batch-1/1") == 1 and decisions(project) == ["fix", "halt"]
    assert "a fix did not change that" in str(handed["signals"])
    assert len(project.subjects) == 1
    project.script({"review/*": [review()]})
    assert project.resume().code == 0
    assert project.starts("implement/T1") == 1 and len(project.subjects) == 2


def test_findings_that_never_end_stop_after_the_rounds_that_are_allowed(tmp_path):
    rounds = {
        f"review/batch-1/{n}": [review({**HIGH, "description": f"Wrong for the {n}th time"})] for n in range(1, 9)
    }
    project = build(
        tmp_path, ONE, {"implement/T1": IMPLEMENTED, "fix/*": FIXED, **rounds}, (*QUICK, "max_fix_rounds = 2")
    )
    is_stop(project, project.run(), "review_loop_detected")
    assert decisions(project) == ["fix", "fix", "halt"]


def test_a_reviewer_who_wants_none_of_it_stops_the_run(tmp_path):
    project = build(tmp_path, ONE, {"implement/T1": IMPLEMENTED, "review/*": [review(verdict="reject")]}, QUICK)
    is_stop(project, project.run(), "review_rejected")
    assert project.acts("fix/batch-1/1", "start") == 0


REVIEWERS = 'reviewers = ["scripted", "second"]'


def test_only_reviewers_that_are_not_content_review_again(tmp_path):
    """Behaviours 66 and 71: one no is a no, the same finding is one, and who was content is not asked again."""
    acts = {"implement/T1": IMPLEMENTED, "review/batch-1/1": [review(MEDIUM)], "fix/*": FIXED}
    second = {"review/batch-1/1": [review(HIGH, {**MEDIUM, "severity": "low"})]}
    project = build(tmp_path, ONE, acts, (*QUICK, REVIEWERS), others={"second": second})
    assert project.run().code == 0
    assert decisions(project) == ["fix", "through"]
    assert (project.starts("review/batch-1/2"), project.starts("review/batch-1/2", "second")) == (0, 1)
    first = next(one for one in project.events() if isinstance(one, StepFinished) and one.step_id == "batch-1/gate-1")
    found = {one["id"]: one["reviewers"] for one in first.output["findings"]}
    assert found == {"H001": ["second"], "M001": ["scripted", "second"]}


def test_what_the_spec_says_of_its_reviewers_stays(tmp_path):
    said = "    reviewers:\n      - {type: scripted, model: opus, effort: high} # ours\n"
    project = build(tmp_path, ONE, {"implement/T1": IMPLEMENTED}, QUICK)
    project.write("specs/active/text-kit/checkpoint.yaml", f"checkpoint:\n  review_config:\n{said}")
    project.commit()
    assert project.run().code == 0
    assert said in project.git("show", "HEAD:specs/active/text-kit/checkpoint.yaml")


CHECKPOINT = "specs/active/text-kit/checkpoint.yaml"


@pytest.mark.parametrize(
    ("named", "missing", "reviewed"),
    [
        (["openai/gpt-5.2-codex", "codex"], "'openai/gpt-5.2-codex', 'codex'", "scripted"),
        (["openai/gpt-5.2-codex", "second"], "'openai/gpt-5.2-codex'", "second"),
        (["second"], "", "second"),
    ],
    ids=["nobody knows them", "one of them is defined", "defined by the settings"],
)
def test_who_reviews_is_told_where_the_spec_wants_others(tmp_path, named, missing, reviewed):
    said = f"checkpoint:\n  review_config:\n    reviewers: [{', '.join(named)}] # ours\n"
    project = build(tmp_path, ONE, {"implement/T1": IMPLEMENTED}, QUICK, others={"second": {}})
    project.write(CHECKPOINT, said)
    project.commit()
    answer = project.run()
    assert answer.code == 0, answer
    who = ("scripted", "second")
    assert [project.starts("review/batch-1/1", name) for name in who] == [reviewed == name for name in who]
    told = f"The spec wants {missing} to review, and the settings choose or define no such agent that is installed"
    assert (f"{told}: {reviewed} will." in answer.err) == bool(missing), answer.err
    written = project.git("show", f"HEAD:{CHECKPOINT}")
    assert written.startswith(said), "what the spec wants stays as it is"
    assert (f"  reviewed_by:\n    - {reviewed}\n" in written) == bool(missing), written


def test_an_agent_that_is_named_for_every_phase_reviews_too(tmp_path):
    project = build(tmp_path, ONE, {"implement/T1": IMPLEMENTED}, QUICK, others={"second": {}})
    project.write(CHECKPOINT, "checkpoint: {review_config: {reviewers: [second]}}\n")
    project.commit()
    assert project.run("--agent", "scripted").code == 0
    assert (project.starts("review/batch-1/1"), project.starts("review/batch-1/1", "second")) == (1, 0)
    assert "  reviewed_by:\n    - scripted\n" in project.git("show", f"HEAD:{CHECKPOINT}")


def test_one_reviewer_is_enough_when_the_others_fail(tmp_path):
    """Behaviour 66."""
    crash = [{"do": "crash", "code": 3}]
    acts = {"implement/T1": IMPLEMENTED, "review/*": crash}
    project = build(tmp_path, ONE, acts, (*QUICK, REVIEWERS), others={"second": {}})
    assert project.run().code == 0
    assert any("scripted did not review" in text for text in project.notes())
    assert "  reviewed_by:\n    - second\n" in project.git("show", f"HEAD:{CHECKPOINT}")


def test_a_kill_among_reviewers_asks_only_the_one_that_had_not_delivered(tmp_path):
    """Behaviour 71, after a crash: only what is not on record is asked for."""
    acts = {"implement/T1": IMPLEMENTED, "review/batch-1/1": [[{"do": "sleep", "seconds": 60}], [review()]]}
    project = build(tmp_path, ONE, acts, (*QUICK, REVIEWERS), others={"second": {}})
    process = project.start("run", "text-kit", "--yes")
    wait_for(lambda: project.acts("review/batch-1/1", "finish", "second") and project.starts("review/batch-1/1"))
    wait_for(lambda: project.ended("batch-1/review-1/second"))
    process.kill()
    process.communicate()
    assert project.resume().code == 0
    assert (project.starts("review/batch-1/1"), project.starts("review/batch-1/1", "second")) == (2, 1)


def test_a_reviewer_that_was_cut_off_and_is_named_no_more_leaves_nothing_open(tmp_path):
    acts = {"implement/T1": IMPLEMENTED, "review/batch-1/1": [{"do": "sleep", "seconds": 60}]}
    project = build(tmp_path, ONE, acts, QUICK, others={"second": {}})
    process = project.start("run", "text-kit", "--yes")
    wait_for(lambda: project.starts("review/batch-1/1"))
    process.kill()
    process.communicate()
    project.write("holdfast.toml", project.read("holdfast.toml").replace("[run]", '[run]\nreviewers = ["second"]', 1))
    answer = project.resume()
    assert answer.code == 0, answer
    assert (project.starts("review/batch-1/1"), project.starts("review/batch-1/1", "second")) == (1, 1)
    assert not carrying(project.run_id)


def test_a_review_that_somebody_settled_by_hand_is_asked_for_again(tmp_path):
    """Nobody can vouch for a review: without its report there is nothing to go by."""
    project = build(tmp_path, ONE, {"implement/T1": IMPLEMENTED}, QUICK)
    project.killed_on("after effect_started batch-1/review-1/scripted")
    key = next(one.effect_key for one in project.events() if getattr(one, "step_id", "") == "batch-1/review-1/scripted")
    assert project.holdfast("settle", project.run_id, key, "--done").code == 0
    assert project.resume().code == 0
    assert project.starts("review/batch-1/1") == 1 and len(project.ended("batch-1/review-1/scripted (2)")) == 1


def test_a_reviewer_sees_what_is_uncommitted_and_untracked(tmp_path):
    """Behaviour 62."""
    more = [write("kit/new one.py", "UNTRACKED = 1\n"), write("kit/__init__.py", "UNCOMMITTED = 1\n"), *IMPLEMENTED]
    project = build(tmp_path, ONE, {"implement/T1": more}, QUICK)
    assert project.run().code == 0
    told = next(text for text in project.prompts() if text.startswith("# Review: T1 of"))
    assert "+UNTRACKED = 1" in told and "+UNCOMMITTED = 1" in told and "kit/new one.py" in told


def test_a_reviewer_that_edits_and_checks_out_is_put_right(tmp_path):
    """Behaviour 75: what it wiped is back, what it wrote is kept aside, and the log says so."""
    wipe = [
        {"do": "run", "argv": ["git", "checkout", "--", "."]},
        {"do": "run", "argv": ["git", "clean", "-fdq", "kit"]},
        write("kit/mine.py", "a reviewer's own idea\n"),
        review(),
    ]
    more = [write("kit/__init__.py", "KEPT = 1\n"), *IMPLEMENTED]
    project = build(tmp_path, ONE, {"implement/T1": more, "review/batch-1/1": wipe}, QUICK)
    assert project.run().code == 0
    assert project.git("show", "HEAD:kit/__init__.py") == "KEPT = 1\n"
    assert project.git("show", "HEAD:kit/words.py") == "WORDS = 1\n"
    assert "kit/mine.py" not in project.tree() and not (project.top / "kit/mine.py").exists()
    (note,) = [text for text in project.notes() if "was put back" in text]
    assert "kit/mine.py" in note and "kit/words.py" in note
    kept = note.rpartition("holdfast restore ")[2].rstrip("`")
    assert project.holdfast("restore", kept, "--into", str(tmp_path / "kept")).code == 0
    assert (tmp_path / "kept" / "kit" / "mine.py").read_text() == "a reviewer's own idea\n"


# --- checks


def check(text):
    return f"tier1 = [[{sys.executable!r}, '-c', {text!r}]]"


PASSES_WHEN_FIXED = (
    check(  # reads the text: a compiled module of the same second and size would be taken for the new one
        "import sys; text = open('kit/words.py').read(); print('saw', text.split()[-1]); sys.exit('2' not in text)"
    )
)


@pytest.mark.parametrize(
    ("when", "wanted"),
    [
        ("always", {"1": ["tier0", "tier1"], "2": ["tier0", "tier1"], "3": ["tier0", "tier1"]}),
        ("risk", {"1": ["tier0", "tier1"], "2": ["tier0"], "3": ["tier0", "tier1"]}),
        ("last", {"1": ["tier0"], "2": ["tier0"], "3": ["tier0", "tier1"]}),
    ],
)
def test_each_batch_is_verified_by_the_tiers_that_the_settings_say_and_all_run_at_the_end(tmp_path, when, wanted):
    """Batches: T1 and T2 side by side, T3, T4. The milestone of each says how far it was verified."""
    spec = {**TWO, "T3": ("kit/count.py", ("T1",)), "T4": ("kit/list.py", ("T3",))}
    tiers = f'tier1_when = "{when}"\ntier1 = [["true"]]\ntier2 = [["true"]]\n'
    project = build(tmp_path, spec, {"review/*": [review()]}, QUICK, checks=tiers)
    assert project.run().code == 0
    ran: dict[str, list[str]] = {}
    for event in project.events():
        if isinstance(event, EffectStarted) and "/verify-" in event.step_id:
            batch, _, tier = event.step_id.split("/")
            ran.setdefault(batch.removeprefix("batch-"), []).append(tier.removesuffix("-1"))
    assert ran == {**wanted, "final": ["tier0", "tier1", "tier2"]}
    sidecars = [json.loads(path.read_text()) for path in (project.top / ".holdfast" / "checkpoints").glob("*.json")]
    told = {one["milestone_index"]: one["tier"] for one in sidecars}
    assert [told[index] for index in sorted(told)] == [tiers[-1] for tiers in wanted.values()]


def test_a_check_that_fails_is_fixed_and_passes(tmp_path):
    project = build(tmp_path, ONE, {"implement/T1": IMPLEMENTED, "fix/*": FIXED}, QUICK, checks=PASSES_WHEN_FIXED)
    assert project.run().code == 0
    assert decisions(project) == ["fix", "through"]
    told = next(text for text in project.prompts() if text.startswith("# Fix"))
    assert "saw 1" in told and "exit code 1" in told
    assert project.git("show", "HEAD:kit/words.py") == "WORDS = 2\n"


def test_a_check_that_never_passes_stops_the_run_and_a_person_puts_it_right(tmp_path):
    useless = [report(resolved=[])]
    project = build(tmp_path, ONE, {"implement/T1": IMPLEMENTED, "fix/*": useless}, QUICK, checks=PASSES_WHEN_FIXED)
    handed = is_stop(project, project.run(), "verification_failed")
    assert "saw 1" in str(handed["signals"]) and len(project.subjects) == 1
    project.write("kit/words.py", "WORDS = 2\n")
    assert project.resume().code == 0
    assert project.git("show", "HEAD:kit/words.py") == "WORDS = 2\n" and project.starts("implement/T1") == 1


def test_a_check_that_takes_too_long(tmp_path):
    slow = check("import os, time; time.sleep(0 if os.path.exists('../quick') else 60)") + '\ntimeout = "1s"'
    project = build(tmp_path, ONE, {"implement/T1": IMPLEMENTED}, QUICK, checks=slow)
    is_stop(project, project.run(), "verification_timeout")
    (project.folder / "quick").touch()
    assert project.resume().code == 0


def test_a_check_whose_program_is_not_there_is_no_failure_of_an_agent(tmp_path):
    project = build(tmp_path, ONE, {"implement/T1": IMPLEMENTED}, QUICK, checks='tier1 = ["./check-it"]')
    handed = is_stop(project, project.run(), "verification_failed")
    assert handed["primary_diagnosis"] == "verification_tool_missing" and "check-it" in str(handed["signals"])
    project.write("check-it", "#!/bin/sh\n")
    (project.top / "check-it").chmod(0o755)
    assert project.resume().code == 0
    assert project.starts("implement/T1") == 1 and project.starts("fix/batch-1/1") == 0


# --- scope, and work side by side


def test_what_is_out_of_scope_stops_the_run_before_it_is_committed(tmp_path):
    out = [write("elsewhere.py", "OUT = 1\n"), *IMPLEMENTED]
    project = build(tmp_path, ONE, {"implement/T1": out}, QUICK, more='\n[scope]\nallow = ["kit/**"]\n')
    handed = is_stop(project, project.run(), "guard_violation")
    assert "elsewhere.py" in str(handed["signals"])
    assert len(project.subjects) == 1 and project.read("elsewhere.py") == "OUT = 1\n"
    assert project.starts("review/batch-1/1") == 0
    (project.top / "elsewhere.py").unlink()
    assert project.resume().code == 0
    assert project.starts("implement/T1") == 1


DENIED = '\n[scope]\ndeny = ["specs/**"]\n'


@pytest.mark.parametrize("spec", [CHAIN, TWO], ids=["one after the other", "side by side"])
def test_what_the_run_writes_of_its_spec_is_no_violation_where_specs_are_denied(tmp_path, spec):
    """Behaviour 150. `deny = ["specs/**"]` keeps agents out of specs, not the run that marks its tasks."""
    project = build(tmp_path, spec, {"review/*": [review(MEDIUM)]}, QUICK, more=DENIED)
    answer = project.run()
    assert answer.code == 0, answer
    folder = f"specs/active/{SPEC}"
    first = project.git("rev-list", "--max-parents=0", "HEAD").strip()
    committed = project.git("diff", "--name-only", first, "HEAD", "--", folder).split()
    assert committed == [f"{folder}/{name}" for name in ("checkpoint.yaml", "review.yaml", "tasks.yaml")]
    assert project.git("status", "--porcelain") == ""


def test_what_an_agent_changes_beside_the_runs_own_files_is_a_violation_where_specs_are_denied(tmp_path):
    out = [write(f"specs/active/{SPEC}/notes.md", "mine\n"), *IMPLEMENTED]
    project = build(tmp_path, ONE, {"implement/T1": out}, QUICK, more=DENIED)
    handed = is_stop(project, project.run(), "guard_violation")
    assert "notes.md" in str(handed["signals"]) and "tasks.yaml" not in str(handed["signals"])
    assert project.holdfast("checkpoint", "--commit", "mine", project.run_id).code == 2
    (project.top / f"specs/active/{SPEC}/notes.md").unlink()
    answer = project.holdfast("checkpoint", "--commit", "mine", project.run_id)
    assert answer.code == 0, answer  # by the log, also a visitor of the run knows which files are its own
    assert project.resume().code == 0


def test_two_tasks_that_changed_the_same_lines_are_a_stop_with_both_results_kept(tmp_path):
    mine = [write("kit/shared.py", "WHO = 1\n"), *IMPLEMENTED]
    theirs = [write("kit/shared.py", "WHO = 2\n"), write("kit/mean.py", "MEAN = 1\n"), report()]
    project = build(tmp_path, TWO, {"implement/T1": mine, "implement/T2": theirs}, QUICK)
    handed = is_stop(project, project.run(), "merge_conflict")
    assert "kit/shared.py" in str(handed["signals"]), handed
    assert project.git("status", "--porcelain", "kit") == ""
    trees = [Path(line.split()[0], "kit/shared.py") for line in project.git("worktree", "list").splitlines()[1:]]
    assert sorted(path.read_text() for path in trees) == ["WHO = 1\n", "WHO = 2\n"]
    trees[1].write_text("WHO = 1\n")
    answer = project.resume()
    assert answer.code == 0, answer
    assert project.git("show", "HEAD:kit/shared.py") == "WHO = 1\n"
    assert (project.starts("implement/T1"), project.starts("implement/T2")) == (1, 1)
    assert len(project.git("worktree", "list").splitlines()) == 1

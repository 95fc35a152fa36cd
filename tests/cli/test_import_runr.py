"""`holdfast import .runr`: the runs of another program, with their milestones; twice changes nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked import holdfast_says


def holdfast(cwd, *words, code=0):
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    environ["HOLDFAST_STORE"] = str(Path(cwd) / "store" / "holdfast.db")
    for who in ("AUTHOR", "COMMITTER"):
        environ |= {f"GIT_{who}_NAME": "A. User", f"GIT_{who}_EMAIL": "user@example.org"}
    done = holdfast_says(words, cwd, environ)
    assert code is None or done.returncode == code, done.stderr
    return done.stdout


def small_folder(top):
    """A folder of the same shape, written for this test."""
    run = top / ".runr" / "runs" / "20260104120000"
    run.mkdir(parents=True)
    state = {"run_id": "20260104120000", "phase": "STOPPED", "milestone_index": 1, "stop_reason": "guard_violation",
             "milestones": [{"goal": "first part"}, {"goal": "second part"}]}  # fmt: skip
    (run / "state.json").write_text(json.dumps(state))
    events = [
        {"seq": 1, "timestamp": "2026-01-04T12:00:00Z", "type": "run_started", "payload": {"a": 1}, "source": "cli"}
    ]
    (run / "timeline.jsonl").write_text("".join(json.dumps(one) + "\n" for one in events) + '{"seq": 2, "ty')
    sidecars = top / ".runr" / "checkpoints"
    sidecars.mkdir()
    sha = "ab" * 20
    sidecar = {"schema_version": 1, "sha": sha, "run_id": "20260104120000", "milestone_index": 0,
               "milestone_title": "first part", "created_at": "2026-01-04T12:01:00Z", "tier": "tier0"}  # fmt: skip
    (sidecars / f"{sha}.json").write_text(json.dumps(sidecar))
    return top / ".runr"


def test_a_run_comes_in_with_its_milestone_and_its_stop_and_a_torn_line_is_named(tmp_path):
    folder = small_folder(tmp_path)
    told = json.loads(holdfast(tmp_path, "import", str(folder), "--json"))
    assert [(one["run_id"], one["new"], one["milestones"]) for one in told["runs"]] == [
        ("runr-20260104120000", True, 1)
    ]
    assert any("timeline.jsonl" in one["path"] and one["line"] == 2 for one in told["problems"])
    state = json.loads(holdfast(tmp_path, "show", "runr-20260104120000", "--json"))["state"]
    assert (state["status"], state["stop_reason"], state["plan"]) == (
        "stopped",
        "guard_violation",
        ["first part", "second part"],
    )
    (made,) = state["workspaces"].values()
    assert (made["index"], made["title"], made["commit"]) == (0, "first part", "ab" * 20)
    assert (made["created_at"], made["tier"]) == ("2026-01-04T12:01:00Z", "tier0")
    again = json.loads(holdfast(tmp_path, "import", str(folder), "--json"))
    assert [one["new"] for one in again["runs"]] == [False]
    assert json.loads(holdfast(tmp_path, "verify", "--json"))


def test_a_folder_that_is_none_of_its_own_is_refused(tmp_path):
    holdfast(tmp_path, "import", str(tmp_path), code=65)
    assert not (tmp_path / "store").exists()


def test_every_folder_of_the_corpus_comes_in(tmp_path, corpus):
    folders = sorted((corpus / "runr-runs").glob("*/dot-runr"))
    assert folders
    for number, folder in enumerate(folders):
        place = tmp_path / str(number)
        place.mkdir()
        shutil.copytree(folder, place / ".runr")
        told = json.loads(holdfast(place, "import", ".runr", "--json"))
        assert told["runs"], folder
        holdfast(place, "verify")


# --- where its milestones are, by what its commits say


RUN = "20260104120000"
OURS = f"runr-{RUN}"


def git(cwd, *argv):
    who = ("-c", "user.name=A. User", "-c", "user.email=user@example.org")
    done = subprocess.run(["git", *who, *argv], cwd=cwd, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(top, subject):
    with (top / "work.txt").open("a") as file:
        file.write(subject + "\n")
    git(top, "add", "work.txt")
    git(top, "commit", "-q", "-m", subject)
    return git(top, "rev-parse", "HEAD")


@pytest.fixture
def taken_in(tmp_path):
    """A repository with a run of Runr that left no sidecar, and what its commits are to say."""

    def make(*subjects):
        folder = small_folder(tmp_path)
        shutil.rmtree(folder / "checkpoints")
        git(tmp_path, "init", "-q", "-b", "main")
        (tmp_path / ".gitignore").write_text(".runr/\n.holdfast/\nstore/\n*.py\n")
        git(tmp_path, "add", ".gitignore")
        git(tmp_path, "commit", "-q", "-m", "first")
        shas = [commit(tmp_path, subject) for subject in subjects]
        holdfast(tmp_path, "import", ".runr")
        return tmp_path, shas

    return make


def test_the_sidecar_of_a_milestone_that_came_in_says_what_runr_and_git_know(tmp_path):
    folder = small_folder(tmp_path)
    git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / ".gitignore").write_text(".runr/\n.holdfast/\nstore/\n")
    git(tmp_path, "add", ".gitignore")
    git(tmp_path, "commit", "-q", "-m", "first")
    sha = commit(tmp_path, "chore(runr): checkpoint 20260104120000 milestone 0")
    (old,) = (folder / "checkpoints").iterdir()
    known = json.loads(old.read_text()) | {"sha": sha, "verification_commands": ["true"]}
    old.rename(old.with_name(f"{sha}.json")).write_text(json.dumps(known))
    holdfast(tmp_path, "import", ".runr")
    assert "Wrote the sidecar" in holdfast(tmp_path, "doctor", "--fix", code=None)
    (made,) = (json.loads(path.read_text()) for path in (tmp_path / ".holdfast" / "checkpoints").iterdir())
    kept = ("sha", "created_at", "tier", "verification_commands")
    assert [made[name] for name in kept] == [known[name] for name in kept]
    assert (made["tree"], made["parent"]) == (
        git(tmp_path, "rev-parse", "HEAD^{tree}"),
        git(tmp_path, "rev-parse", "HEAD~1"),
    )
    assert made["patch_id"]


def position_of(top, *words):
    (there,) = json.loads(holdfast(top, "resume", OURS, "--plan", "--json", *words))["repositories"]
    return there["checkpoint"]


def chosen_in(top, run_id):
    events = map(json.loads, holdfast(top, "log", run_id, "--json").splitlines())
    (chosen,) = [one["body"] for one in events if one["kind"] == "resume_checkpoint_selected"]
    return chosen


def test_subjects_that_name_the_run_by_its_old_id_are_found(taken_in):
    top, shas = taken_in(f"chore(runr): checkpoint {RUN} milestone 0", f"chore(runr): checkpoint {RUN} milestone 1")
    found = position_of(top)
    assert (found["source"], found["confidence"]) == ("git_log_run_specific", "strong")
    assert (found["sha"], found["index"]) == (shas[1], 1)
    (said,) = [
        one
        for one in json.loads(holdfast(top, "doctor", "--json", code=None))["findings"]
        if one["check"] == "imported"
    ]
    assert said["level"] == "ok" and shas[1][:12] in said["sentence"]


def test_subjects_that_name_no_run_are_the_last_resort_and_said_to_be_weak(taken_in):
    top, shas = taken_in("chore(agent): checkpoint milestone 1", "chore(agent): checkpoint milestone 2", "more")
    found = position_of(top)
    assert (found["source"], found["confidence"]) == ("git_log_legacy", "weak")
    assert (found["sha"], found["index"]) == (shas[1], 2) and "it may be another run's" in found["why"]
    (said,) = [
        one
        for one in json.loads(holdfast(top, "doctor", "--json", code=None))["findings"]
        if one["check"] == "imported"
    ]
    assert (said["level"], said["fix"]) == ("warn", f"holdfast resume {OURS} --plan")
    assert "git_log_legacy, weak" in said["sentence"]


@pytest.mark.parametrize(
    "other", ["chore(runr): checkpoint 20250101000000 milestone 7", "chore(runr): checkpoint 2026 milestone 7"]
)
def test_the_checkpoint_of_another_run_is_never_taken(taken_in, other):
    top, _ = taken_in("chore(agent): checkpoint milestone 1", other)
    found = position_of(top)
    assert (found["source"], found["sha"]) == ("none", None)
    assert any("names another run too" in choice for choice in found["choices"])


def test_a_run_of_ours_takes_subjects_without_a_run_only_if_that_is_asked_for(taken_in):
    top, shas = taken_in("chore(agent): checkpoint milestone 0")
    program = top / "program.py"
    program.write_text(
        "import os, holdfast\n"
        "with holdfast.run('mission', run_id='run-1') as run:\n"
        "    run.workspace('.')\n"
        "    if not os.environ.get('HOLDFAST_LEGACY'): os._exit(9)\n"
    )
    holdfast(top, "resume", OURS, "--plan")
    environ = {**os.environ, "HOLDFAST_STORE": str(top / "store" / "holdfast.db")}
    assert subprocess.run([sys.executable, str(program)], cwd=top, env=environ, check=False).returncode == 9
    for words, source in (((), "none"), (("--legacy",), "git_log_legacy")):
        (there,) = json.loads(holdfast(top, "resume", "run-1", "--plan", "--json", *words))["repositories"]
        assert there["checkpoint"]["source"] == source, words
    holdfast(top, "resume", "run-1", "--legacy", "--", sys.executable, str(program))
    chosen = chosen_in(top, "run-1")
    assert (chosen["source"], chosen["confidence"], chosen["sha"]) == ("git_log_legacy", "weak", shas[0])


def test_a_run_that_goes_on_here_says_where_it_found_its_last_milestone(taken_in, tmp_path):
    top, shas = taken_in(f"chore(runr): checkpoint {RUN} milestone 3")
    program = top / "program.py"
    program.write_text(
        f"import holdfast\nwith holdfast.run('{OURS}') as run:\n"
        "    place = run.workspace('.')\n    open('work.txt', 'a').write('more')\n    place.milestone('the next')\n"
    )
    holdfast(top, "resume", OURS, "--", sys.executable, str(program))
    chosen = chosen_in(top, OURS)
    assert (chosen["source"], chosen["sha"], chosen["index"]) == ("git_log_run_specific", shas[0], 3)

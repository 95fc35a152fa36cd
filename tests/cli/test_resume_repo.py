"""What `holdfast resume` says of a repository that differs: each command that it names helps, and nothing is done twice."""

from __future__ import annotations

import os
import shlex
import sys

import pytest

from tests.cli.test_checkpoint import environ, holdfast, home, repo, run, told

__all__ = ["environ", "home", "repo"]  # fixtures

WORK = """
import os, signal, sys, holdfast
with holdfast.run('mission') as run:
    place = run.workspace('.')
    for name in 'abc':
        open(name + '.txt', 'w').write(name)
        place.milestone('part ' + name)
        if name == sys.argv[1]: os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def killed(repo, environ, tmp_path):
    """A run that was killed after its second milestone; the run and its program."""
    (tmp_path / "work.py").write_text(WORK)
    holdfast(repo, environ, "init")
    run([sys.executable, str(tmp_path / "work.py"), "b"], repo, environ, code=-9)
    (row,) = told(repo, environ, "resume")["unfinished"]
    return row["run_id"], [sys.executable, str(tmp_path / "work.py"), "none"]


def subjects(top, environ):
    return run(["git", "log", "--format=%s"], top, environ).splitlines()


def ways(top, environ, run_id):
    return told(top, environ, "resume", run_id, "--plan")["next_actions"]


# --- what helps


def test_on_another_branch_the_advice_is_to_go_back(repo, environ, killed):
    run(["git", "switch", "-q", "-c", "other"], repo, environ)
    back, approve = ways(repo, environ, killed[0])
    assert back == "git switch main" and "--approve" in approve
    run(shlex.split(back), repo, environ)
    assert ways(repo, environ, killed[0])[0] == f"holdfast resume {killed[0]} -- COMMAND"
    holdfast(repo, environ, "resume", killed[0], "--", *killed[1])


def test_for_a_lost_milestone_and_a_clean_tree_nothing_is_to_be_kept_aside(repo, environ, killed):
    run(["git", "reset", "-q", "--hard", "HEAD~1"], repo, environ)
    (approve,) = ways(repo, environ, killed[0])
    assert "--approve" in approve
    holdfast(repo, environ, *shlex.split(approve)[1:-1], *killed[1])


def test_uncommitted_work_can_be_kept_aside(repo, environ, killed):
    (repo / "half.txt").write_text("half")
    aside, _ = ways(repo, environ, killed[0])
    assert aside == f"holdfast resume {killed[0]} --snapshot -- COMMAND"


# --- a run without a log


def lose_log(repo):
    for path in (repo / ".holdfast").glob("holdfast.db*"):
        path.unlink()


def test_a_run_without_a_log_whose_last_milestone_is_lost_asks_before_it_goes_on(repo, environ, killed):
    run(["git", "reset", "-q", "--hard", "HEAD~1"], repo, environ)
    lose_log(repo)
    (known,) = told(repo, environ, "resume", killed[0])["mirrored"]
    assert (known["milestone"], known["source"], known["confidence"], known["sure"]) == (0, "sidecar", "certain", False)
    assert known["checkpoint_id"] and "milestone 1" in known["why"]
    text = holdfast(repo, environ, "resume")
    assert "by sidecar, certain" in text and "was not found" in text and "--yes -- COMMAND" in text
    holdfast(repo, environ, "resume", killed[0], "--", *killed[1], code=41)
    assert subjects(repo, environ)[0] == "checkpoint: part a"
    holdfast(repo, environ, "resume", killed[0], "--yes", "--", *killed[1])
    assert subjects(repo, environ)[:2] == ["checkpoint: part c", "checkpoint: part b"]


def test_a_run_without_a_log_that_was_squashed_goes_on_behind_its_squash(repo, environ, killed):
    run(["git", "reset", "-q", "--soft", "HEAD~2"], repo, environ)
    run(["git", "commit", "-q", "-m", "feature (#12)"], repo, environ)
    lose_log(repo)
    (known,) = told(repo, environ, "resume", killed[0])["mirrored"]
    assert (known["milestone"], known["source"], known["sure"]) == (1, "squash", True)
    holdfast(repo, environ, "resume", killed[0], "--", *killed[1])
    assert subjects(repo, environ)[:2] == ["checkpoint: part c", "feature (#12)"], "nothing is made a second time"


def test_a_run_without_a_log_that_is_elsewhere_is_unknown_with_choices(repo, environ, killed):
    run(["git", "switch", "-q", "-c", "other", "HEAD~2"], repo, environ)
    lose_log(repo)
    text = holdfast(repo, environ, "resume")
    assert "is unknown" in text and "which is on main" in text
    holdfast(repo, environ, "resume", killed[0], "--", *killed[1], code=41)


# --- a clone without its history


def test_a_plan_that_would_be_refused_says_so(repo, environ, killed):
    (repo / "new.txt").write_text("uncommitted\n")
    strict = {**environ, "HOLDFAST_STRICTNESS": "max"}
    plan = told(repo, strict, "resume", killed[0], "--plan")["plan"]
    assert (plan["verdict"], plan["why"]) == ("refuse", "the repository differs: tree")
    assert "verdict    refuse: the repository differs: tree" in holdfast(repo, strict, "resume", killed[0], "--plan")
    assert told(repo, environ, "resume", killed[0], "--plan")["plan"]["verdict"] == "ask"


def test_an_agent_that_the_settings_name_is_part_of_the_environment(repo, environ, tmp_path):
    (repo / "holdfast.toml").write_text('[agents.mine]\nstart = ["./mine", "{prompt}"]\n')
    (repo / "mine").write_text("#!/bin/sh\n")
    (repo / "mine").chmod(0o755)
    holdfast(repo, environ, "init")
    run(["git", "add", "-A"], repo, environ)
    run(["git", "commit", "-qm", "an agent"], repo, environ)
    (tmp_path / "work.py").write_text(WORK)
    run([sys.executable, str(tmp_path / "work.py"), "a"], repo, environ, code=-9)
    (row,) = told(repo, environ, "resume")["unfinished"]
    os.utime(repo / "mine", (1, 1))
    (entry,) = told(repo, environ, "resume", row["run_id"], "--plan")["repositories"]
    (drift,) = entry["drift"]
    assert drift["drift"] == "environment" and drift["lines"][0].startswith("agent:mine changed from ")


def test_what_is_changed_inside_of_a_submodule_is_listed(repo, environ, tmp_path):
    run(["git", "init", "-q", str(tmp_path / "lib")], repo, environ)
    run(["git", "commit", "-q", "--allow-empty", "-m", "lib"], tmp_path / "lib", environ)
    allowed = ["git", "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(tmp_path / "lib"), "sub"]
    run(allowed, repo, environ)
    run(["git", "commit", "-qm", "sub"], repo, environ)
    holdfast(repo, environ, "init")
    (tmp_path / "work.py").write_text(WORK)
    run([sys.executable, str(tmp_path / "work.py"), "a"], repo, environ, code=-9)
    (row,) = told(repo, environ, "resume")["unfinished"]
    (repo / "sub" / "mine").write_text("1")
    (entry,) = told(repo, environ, "resume", row["run_id"], "--plan")["repositories"]
    said = "sub: it is a submodule, and 1 changed files in it are not kept (mine)"
    assert said in entry["uncommitted"] and said in holdfast(repo, environ, "resume", row["run_id"], "--plan")


def shallow(repo, environ, tmp_path):
    clone = tmp_path / "clone"
    run(["git", "clone", "-q", "--depth", "1", f"file://{repo}", str(clone)], tmp_path, environ)
    return clone


def test_in_a_shallow_clone_old_milestones_are_not_made_again(repo, environ, tmp_path, killed):
    run_id, command = killed
    clone = shallow(repo, environ, tmp_path)
    assert told(clone, environ, "resume")["shallow"] and told(clone, environ, "resume", run_id)["shallow"]
    assert "git fetch --unshallow" in holdfast(clone, environ, "resume")
    holdfast(clone, environ, "resume", run_id, "--", *command, code=41)
    assert subjects(clone, environ) == ["checkpoint: part b"]
    run(["git", "fetch", "-q", "--unshallow"], clone, environ)
    holdfast(clone, environ, "resume", run_id, "--", *command)
    assert subjects(clone, environ)[:4] == ["checkpoint: part c", "checkpoint: part b", "checkpoint: part a", "first"]


@pytest.mark.parametrize("later", [False, True])
def test_nor_with_a_log_whose_repository_is_gone(repo, environ, tmp_path, killed, later):
    """At the last milestone the clone is recognised; behind it, nobody can tell, until its history is there."""
    run_id, command = killed
    if later:
        run(["git", "commit", "-q", "--allow-empty", "-m", "later"], repo, environ)
    clone = shallow(repo, environ, tmp_path)
    os.rename(repo / ".holdfast", tmp_path / "store")
    os.rename(repo, tmp_path / "elsewhere")
    environ["HOLDFAST_STORE"] = str(tmp_path / "store")
    if later:
        deepen, _ = ways(clone, environ, run_id)
        holdfast(clone, environ, "resume", run_id, "--", *command, code=41)
        assert deepen == "git fetch --unshallow" and subjects(clone, environ) == ["later"]
        run(["git", "fetch", "-q", "--unshallow", f"file://{tmp_path / 'elsewhere'}"], clone, environ)
    holdfast(clone, environ, "resume", run_id, "--", *command)
    assert len([line for line in subjects(clone, environ) if line.startswith("checkpoint: ")]) == 3 - (not later)
    assert subjects(clone, environ)[0] == "checkpoint: part c"


def test_nor_if_the_repository_still_stands_where_it_stood(repo, environ, tmp_path, killed):
    run(["git", "commit", "-q", "--allow-empty", "-m", "later"], repo, environ)
    clone = shallow(repo, environ, tmp_path)
    environ["HOLDFAST_STORE"] = str(repo / ".holdfast")
    holdfast(clone, environ, "resume", killed[0], "--", *killed[1], code=41)
    assert subjects(clone, environ) == ["later"]


def test_a_run_that_a_shallow_clone_does_not_show_is_told_to_be_perhaps_further_back(repo, environ, tmp_path, killed):
    run(["git", "commit", "-q", "--allow-empty", "-m", "later"], repo, environ)
    clone = shallow(repo, environ, tmp_path)
    holdfast(clone, environ, "resume", killed[0], code=66)
    (fetch,) = [line for line in holdfast(clone, environ, "resume").split("`") if line.startswith("git ")]
    run(shlex.split(fetch), clone, environ)
    assert told(clone, environ, "resume", killed[0])["mirrored"][0]["run_id"] == killed[0]


TWO = """
import os, signal, sys, holdfast
with holdfast.run('mission', run_id='two') as run:
    for name in sys.argv[2:]:
        open(name + '/new.txt', 'w').write(name)
        run.workspace(name).milestone('part ' + name)
        if name == sys.argv[1]: os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("order", ["repo clone", "clone repo"])
def test_a_shallow_clone_of_something_else_is_no_reason_to_ask(repo, environ, tmp_path, order):
    run(["git", "init", "-q", "origin"], tmp_path, environ)
    for subject in ("first", "its own"):
        run(["git", "commit", "-q", "--allow-empty", "-m", subject], tmp_path / "origin", environ)
    clone = shallow(tmp_path / "origin", environ, tmp_path)
    environ["HOLDFAST_STORE"] = str(tmp_path / "store")
    work = [sys.executable, "-c", TWO]
    run([*work, repo.name, repo.name], tmp_path, environ, code=-9)
    run([*work, "none", *(repo.name if name == "repo" else name for name in order.split())], tmp_path, environ)
    assert subjects(clone, environ) == ["checkpoint: part clone", "its own"]

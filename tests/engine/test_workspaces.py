"""Checkpoints of a repository in a run: taken once, told truly, mended after a kill, compared when the run goes on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import holdfast
from holdfast.cli import repo as cli_repo
from holdfast.core.errors import UsageError
from holdfast.core.subjects import with_trailers
from holdfast.engine.stopping import Stopped
from holdfast.engine.workspaces import Workspaces


class Crash(BaseException):
    """The process is gone: nothing that follows is written."""


def git(repo, *argv, check=True):
    done = subprocess.run(["git", *argv], cwd=repo, capture_output=True, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done.stdout.decode().rstrip("\n")


@pytest.fixture(autouse=True)
def nobody_at_the_terminal(monkeypatch):
    monkeypatch.setattr("holdfast.adapters.terminal.is_there", lambda: False)
    for name in ("HOLDFAST_RUN", "HOLDFAST_YES", "HOLDFAST_PLAN", "HOLDFAST_STRICTNESS", "HOLDFAST_SNAPSHOT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def repo(tmp_path):
    top = tmp_path / "work"
    top.mkdir()
    git(top, "init", "-q", "-b", "main")
    git(top, "config", "user.name", "A. User")
    git(top, "config", "user.email", "user@example.org")
    (top / "readme.txt").write_text("hello\n")
    (top / ".gitignore").write_text(".holdfast/\n*.log\n")
    git(top, "add", "-A")
    git(top, "commit", "-q", "-m", "first")
    git(top, "switch", "-q", "-c", "work")
    return top


def opened(repo, **options):
    return holdfast.run("mission", store=str(repo / ".holdfast"), run_id="run-1", **options)


def crash(run):
    """Leave as a kill would: the run gets no chance to say anything."""
    run._life.end = lambda *_: iter(())
    raise Crash


def kinds(repo):
    with holdfast.open_store(str(repo / ".holdfast"), read_only=True) as store:
        return [record.kind for record in store.read("run-1")]


def bodies(repo, kind):
    with holdfast.open_store(str(repo / ".holdfast"), read_only=True) as store:
        return [json.loads(record.body) for record in store.read("run-1") if record.kind == kind]


def state_of(repo):
    with holdfast.open_store(str(repo / ".holdfast"), read_only=True) as store:
        return holdfast.read_state(store, "run-1")


def sidecars(repo):
    folder = repo / ".holdfast" / "checkpoints"
    return {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}


def user_side(repo):
    """All that is the user's: HEAD, branches, index, stash, and every file with its mode."""
    files = {
        str(path.relative_to(repo)): (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in sorted(repo.rglob("*"))
        if not {".git", ".holdfast"} & set(path.relative_to(repo).parts)
    }
    refs = git(repo, "for-each-ref", "refs/heads", "refs/tags", "refs/stash")
    return files, refs, (repo / ".git" / "HEAD").read_bytes(), (repo / ".git" / "index").read_bytes()


def test_a_snapshot_keeps_the_workspace_and_touches_nothing_of_the_users(repo):
    (repo / "new file.txt").write_text("untracked\n")
    (repo / "readme.txt").write_text("changed\n")
    before = user_side(repo)
    with opened(repo) as run:
        mark = run.workspace(str(repo)).snapshot("before the refactoring")
    assert user_side(repo) == before
    assert git(repo, "show", f"refs/holdfast/checkpoints/{mark.checkpoint_id}:new file.txt") == "untracked"
    assert git(repo, "show", f"{mark.snapshot}:readme.txt") == "changed"
    assert (mark.commit, mark.index, mark.sidecar_written) == (None, None, None)
    assert kinds(repo)[1:-1] == ["environment_seen", "checkpoint_started", "checkpoint_complete"]


def test_a_milestone_is_one_commit_with_trailers_and_a_sidecar(repo):
    with opened(repo) as run:
        place = run.workspace(str(repo))
        (repo / "a.txt").write_text("a\n")
        mark = place.milestone("part a", tier="tier1", verification_commands=["make test"])
    message = git(repo, "log", "-1", "--format=%B")
    assert "part a" in message.splitlines()[0]
    assert "Holdfast-Run: run-1" in message and f"Holdfast-Checkpoint: {mark.checkpoint_id}" in message
    assert git(repo, "status", "--porcelain") == ""
    said = sidecars(repo)[mark.checkpoint_id]
    assert said["schema_version"] == 1 and said["sha"] == mark.commit == git(repo, "rev-parse", "HEAD")
    assert (said["milestone_index"], said["milestone_title"], said["tier"]) == (0, "part a", "tier1")
    assert said["verification_commands"] == ["make test"] and said["branch"] == "refs/heads/work"
    assert said["tree"] == git(repo, "rev-parse", "HEAD^{tree}")
    assert bodies(repo, "checkpoint_complete")[0]["sidecar_written"] is True


def test_two_milestones_on_one_commit_are_two_sidecars(repo):
    with opened(repo) as run:
        place = run.workspace(str(repo))
        (repo / "a.txt").write_text("a\n")
        first, second = place.milestone("part a"), place.milestone("nothing to do")
    assert first.commit == second.commit and (first.index, second.index) == (0, 1)
    assert {one["milestone_index"] for one in sidecars(repo).values()} == {0, 1}
    assert "tier" not in sidecars(repo)[second.checkpoint_id]


def test_what_was_taken_is_not_taken_again_when_the_run_goes_on(repo):
    def body(run):
        place = run.workspace(str(repo))
        (repo / "a.txt").write_text("a\n")
        return place.snapshot("s"), place.milestone("part a")

    with pytest.raises(Crash), opened(repo) as run:
        first = body(run)
        crash(run)
    with opened(repo) as run:
        assert body(run) == first
    assert kinds(repo).count("checkpoint_complete") == 2
    assert len(git(repo, "log", "--format=%H", "main..work").split()) == 1
    (selected,) = bodies(repo, "resume_checkpoint_selected")
    assert (selected["source"], selected["index"], selected["sha"]) == ("log", 0, first[1].commit)


def test_a_sidecar_that_cannot_be_written_is_an_event_and_the_run_goes_on(repo):
    (repo / ".holdfast").mkdir(mode=0o700)
    (repo / ".holdfast" / "checkpoints").write_text("in the way")
    with opened(repo) as run:
        (repo / "a.txt").write_text("a\n")
        mark = run.workspace(str(repo)).milestone("part a")
    assert mark.sidecar_written is False
    (failed,) = bodies(repo, "checkpoint_sidecar_write_failed")
    assert failed["path"] == str(repo / ".holdfast" / "checkpoints" / f"{mark.checkpoint_id}.json")
    assert bodies(repo, "checkpoint_complete")[0]["sidecar_written"] is False
    assert state_of(repo).status == "finished"


def interrupted_in(repo, monkeypatch, name):
    """A run that is gone when the adapter's function of this name is called."""
    from holdfast.adapters.git.repo import GitWorkspace

    def gone(*_, **__):
        raise Crash

    with pytest.raises(Crash), opened(repo) as run:
        place = run.workspace(str(repo))
        (repo / "a.txt").write_text("a\n")
        with monkeypatch.context() as patched:
            patched.setattr(GitWorkspace, name, gone)
            try:
                place.milestone("part a")
            except Crash:
                crash(run)


@pytest.mark.parametrize(("name", "ending"), [
    ("snapshot", "checkpoint_abandoned"), ("commit", "checkpoint_abandoned"), ("write_sidecar", "checkpoint_complete"),
])  # fmt: skip
def test_the_next_start_completes_what_was_made_or_gives_it_up(repo, monkeypatch, name, ending):
    interrupted_in(repo, monkeypatch, name)
    assert state_of(repo).checkpoint_open is not None
    with opened(repo, policies={"tree": "warn"}) as run:
        place = run.workspace(str(repo))
        assert ending in kinds(repo)
        mark = place.milestone("part a")
    assert mark.index == 0 and git(repo, "log", "--format=%H", "main..work").split() == [mark.commit]
    assert git(repo, "show", f"{mark.commit}:a.txt") == "a"
    assert list(sidecars(repo)) == [mark.checkpoint_id]


def test_work_in_the_tree_that_no_checkpoint_knows_is_listed_and_refused(repo):
    with pytest.raises(Crash), opened(repo) as run:
        run.workspace(str(repo)).snapshot("s")
        crash(run)
    (repo / "by hand.txt").write_text("mine\n")
    with pytest.raises(Stopped) as stop, opened(repo) as run:
        run.workspace(str(repo))
    assert stop.value.reason == "dirty_worktree" and stop.value.code == 4
    assert any("by hand.txt" in line for line in stop.value.evidence)
    assert (repo / "by hand.txt").read_text() == "mine\n"


def test_with_a_snapshot_it_is_kept_aside_and_pending_until_it_is_dealt_with(repo, monkeypatch):
    with pytest.raises(Crash), opened(repo) as run:
        run.workspace(str(repo)).snapshot("s")
        crash(run)
    (repo / "by hand.txt").write_text("mine\n")
    monkeypatch.setenv("HOLDFAST_SNAPSHOT", "1")
    with opened(repo) as run:
        run.workspace(str(repo))
    ((kept, sha),) = state_of(repo).kept_aside.items()
    assert git(repo, "show", f"{sha}:by hand.txt") == "mine"
    assert git(repo, "rev-parse", f"refs/holdfast/checkpoints/{kept}") == sha


def test_files_that_are_as_the_last_checkpoint_kept_them_are_no_drift(repo):
    with pytest.raises(Crash), opened(repo) as run:
        place = run.workspace(str(repo))
        (repo / "half.txt").write_text("half done\n")
        place.snapshot("s")
        crash(run)
    with opened(repo) as run:
        run.workspace(str(repo))
    assert "drift_found" not in kinds(repo)


def test_another_branch_is_asked_about_and_refused_when_nobody_is_there(repo):
    with pytest.raises(Crash), opened(repo) as run:
        run.workspace(str(repo)).snapshot("s")
        crash(run)
    git(repo, "switch", "-q", "main")
    with pytest.raises(Stopped) as stop, opened(repo) as run:
        run.workspace(str(repo))
    assert stop.value.reason == "branch_differs"
    assert git(repo, "branch", "--show-current") == "main", "it is never switched in silence"


def test_a_changed_lockfile_is_named_when_the_run_goes_on(repo):
    (repo / "uv.lock").write_text("one\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "lock")
    with pytest.raises(Crash), opened(repo) as run:
        run.workspace(str(repo)).snapshot("s")
        crash(run)
    (repo / "uv.lock").write_text("two\n")
    git(repo, "commit", "-q", "-am", "lock again")
    told = []
    with opened(repo) as run:
        run._book.options = run._book.options._replace(tell=told.append)
        run.workspace(str(repo))
    assert any("uv.lock" in line for line in told)


def test_a_file_out_of_scope_stops_the_run_before_the_commit(repo):
    with pytest.raises(Stopped) as stop, opened(repo) as run:
        place = run.workspace(str(repo), allow=["src/**"], deny=["src/secret/**"])
        (repo / "src").mkdir()
        (repo / "src" / "ok.py").write_text("1\n")
        (repo / "outside.txt").write_text("1\n")
        (repo / "noise.log").write_text("1\n")
        place.milestone("part a")
    assert stop.value.reason == "guard_violation" and stop.value.code == 2
    violation, passed = stop.value.evidence
    assert violation.startswith("outside.txt: ") and passed.startswith("1 ignored file ") and "noise.log" in passed
    assert git(repo, "log", "--format=%H", "main..work") == ""


def tracked_in(repo, *paths):
    for path in paths:
        (repo / path).parent.mkdir(exist_ok=True)
        (repo / path).write_text(f"{path}\n" * 9)
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "more")


@pytest.mark.parametrize(
    ("allow", "deny", "change", "wrong"),
    [
        (["src/**"], [], ["git", "mv", "src/a", "doc/a"], ["doc/a"]),  # a rename counts where it goes to
        (["src/**"], [], ["git", "mv", "doc/b", "src/b"], ["doc/b"]),  # and where it comes from
        ([], ["doc/**"], ["mv", "doc/b", "src/b"], ["doc/b"]),
        (["src/**"], [], ["rm", "doc/b"], ["doc/b"]),  # a deletion counts
        (["src/**"], ["src/a"], ["rm", "src/a"], ["src/a"]),  # deny beats allow
        ([], ["src/**"], ["rm", "doc/b"], []),  # an empty allow means all
        (["src/**"], [], ["mv", "src/a", "src/c"], []),
    ],
)
def test_what_a_scope_allows_in_a_repository(repo, allow, deny, change, wrong):
    tracked_in(repo, "src/a", "doc/b")
    with contextlib.suppress(Stopped), opened(repo) as run:
        place = run.workspace(str(repo), allow=allow, deny=deny)
        subprocess.run(change, cwd=repo, check=True)
        place.milestone("part a")
    stops = [stop for body in bodies(repo, "run_stopped") for stop in body["evidence"]]
    assert [line.partition(": ")[0] for line in stops] == wrong
    assert (git(repo, "log", "-1", "--format=%s") == "more") == bool(wrong)


def test_ignored_files_out_of_scope_are_counted_told_once_and_written_down(repo):
    said = []
    with opened(repo) as run:
        run._book.options = run._book.options._replace(tell=said.append)
        (repo / "before.log").write_text("not the run's doing\n")
        place = run.workspace(str(repo), allow=["src/**"])
        (repo / "src").mkdir()
        for name in ("a", "b"):
            (repo / "src" / name).write_text("1\n")
            (repo / "noise.log").write_text("1\n")
            (repo / os.fsdecode(b"\xff.log")).write_text("1\n")
            assert place.milestone(name).ignored_outside == 2
        assert place.snapshot("later").ignored_outside == 0
    assert len(said) == 1 and said[0].startswith("2 ignored files ") and "noise.log" in said[0]
    first, *_ = bodies(repo, "checkpoint_complete")
    (row,) = first["left_out"]
    assert row.startswith("2 ignored files ") and "before.log" not in row


def test_a_milestone_names_pipes_and_sockets(repo):
    os.mkfifo(repo / "pipe")
    with opened(repo) as run:
        assert run.workspace(str(repo)).milestone("a").left_out == ("pipe: it is a pipe",)
    assert bodies(repo, "checkpoint_complete")[0]["left_out"] == ["pipe: it is a pipe"]


def test_a_milestone_that_git_lost_is_said_to_be_ahead(repo):
    with pytest.raises(Crash), opened(repo) as run:
        place = run.workspace(str(repo))
        for name in ("a", "b"):
            (repo / f"{name}.txt").write_text(name)
            place.milestone(f"part {name}")
        crash(run)
    git(repo, "reset", "-q", "--hard", "HEAD~1")
    with pytest.raises(Stopped) as stop, opened(repo) as run:
        run.workspace(str(repo))
    assert stop.value.reason == "drift_refused" and any("milestone 1 (part b)" in line for line in stop.value.evidence)
    (fixed,) = bodies(repo, "milestone_index_corrected")
    assert (fixed["reason"], fixed["previous"], fixed["corrected_to"]) == ("state_ahead_of_checkpoint", 2, 1)


def test_a_scope_is_a_list_and_a_folder_without_a_repository_is_refused(repo, tmp_path):
    with opened(repo) as run:
        with pytest.raises(UsageError):
            run.workspace(str(repo), allow="src/**")
        with pytest.raises(holdfast.HoldfastError, match="git work tree"):
            run.workspace(str(tmp_path))


def test_a_worktree_uses_the_store_and_the_sidecars_of_its_repository(repo, tmp_path):
    other = tmp_path / "linked"
    git(repo, "worktree", "add", "-q", "-b", "side", str(other))
    with opened(repo) as run:
        (other / "b.txt").write_text("b\n")
        mark = run.workspace(str(other)).milestone("part b")
    assert list(sidecars(repo)) == [mark.checkpoint_id]
    git(repo, "worktree", "remove", "--force", str(other))
    assert git(repo, "rev-parse", f"refs/holdfast/checkpoints/{mark.checkpoint_id}") == mark.snapshot
    assert Path(os.path.join(repo, ".holdfast", "checkpoints", f"{mark.checkpoint_id}.json")).exists()


def test_what_was_there_before_the_scope_was_declared_is_not_the_runs_doing(repo):
    (repo / "mine.txt").write_text("before the run\n")
    with opened(repo) as run:
        place = run.workspace(str(repo), allow=["src/**"])
        (repo / "src").mkdir()
        (repo / "src" / "ok.py").write_text("1\n")
        assert place.milestone("part a").index == 0
    with pytest.raises(Stopped) as stop, holdfast.run("m2", store=str(repo / ".holdfast"), run_id="run-2") as run:
        place = run.workspace(str(repo), allow=["src/**"])
        (repo / "mine.txt").write_text("changed by the run\n")
        place.milestone("part b")
    assert any("mine.txt" in line for line in stop.value.evidence)


def commit_both(repo):
    (repo / "src").mkdir(exist_ok=True)
    (repo / "src" / "ok.py").write_text("1\n")
    (repo / "secret.txt").write_text("s\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "the agent's own commit")


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_what_an_earlier_process_committed_outside_of_the_scope_stays_a_violation_until_it_is_undone(repo, end):
    with pytest.raises((Crash, Stopped)), opened(repo) as run:
        place = run.workspace(str(repo), allow=["src/**"])
        commit_both(repo)
        if end == "killed":
            crash(run)
        place.milestone("part a")
    for _ in range(2):
        with pytest.raises(Stopped) as stop, opened(repo) as run:
            run.workspace(str(repo), allow=["src/**"]).milestone("part a")
        assert stop.value.reason == "guard_violation"
        assert [line.split(":")[0] for line in stop.value.evidence] == ["secret.txt"]
    git(repo, "rm", "-q", "secret.txt")
    git(repo, "commit", "-qm", "taken back")
    with opened(repo) as run:
        assert run.workspace(str(repo), allow=["src/**"]).milestone("part a").index == 0


@pytest.mark.parametrize("how", ["merge", "rebase"])
def test_what_comes_from_the_base_branch_between_two_processes_is_not_the_runs_doing(repo, how):
    with pytest.raises(Crash), opened(repo) as run:
        place = run.workspace(str(repo), allow=["src/**"])
        (repo / "src").mkdir()
        (repo / "src" / "ok.py").write_text("1\n")
        place.milestone("part a")
        crash(run)
    git(repo, "switch", "-q", "main")
    (repo / "theirs.txt").write_text("theirs\n")
    git(repo, "add", "theirs.txt")
    git(repo, "commit", "-qm", "theirs")
    git(repo, "switch", "-q", "work")
    git(repo, *(["merge", "-q", "--no-edit", "main"] if how == "merge" else ["rebase", "-q", "main"]))
    with pytest.raises(Stopped), opened(repo) as run:
        place = run.workspace(str(repo), allow=["src/**"])
        (repo / "src" / "more.py").write_text("2\n")
        place.milestone("part a")
        assert place.milestone("part b").index == 1
        (repo / "theirs.txt").write_text("changed by the run\n")
        place.milestone("part c")


def on_main(repo, name, text):
    git(repo, "switch", "-q", "main")
    (repo / name).write_text(text)
    git(repo, "add", name)
    git(repo, "commit", "-qm", f"{name} on main")
    git(repo, "switch", "-q", "work")


def test_nor_is_it_when_the_base_branch_has_moved_on_since(repo):
    with pytest.raises(Crash), opened(repo) as run:
        run.workspace(str(repo), allow=["src/**"])
        crash(run)
    on_main(repo, "theirs.txt", "one\n")
    git(repo, "merge", "-q", "--no-edit", "main")
    on_main(repo, "theirs.txt", "two\n")
    with opened(repo) as run:
        run.workspace(str(repo), allow=["src/**"]).milestone("part a")


def test_a_push_does_not_make_a_violation_vanish(repo, tmp_path):
    git(tmp_path, "init", "-q", "--bare", "there")
    git(repo, "remote", "add", "origin", str(tmp_path / "there"))
    with pytest.raises(Stopped), opened(repo) as run:
        place = run.workspace(str(repo), allow=["src/**"])
        commit_both(repo)
        place.milestone("part a")
    git(repo, "push", "-q", "-u", "origin", "work")
    with pytest.raises(Stopped) as stop, opened(repo) as run:
        run.workspace(str(repo), allow=["src/**"]).milestone("part a")
    assert stop.value.reason == "guard_violation"


@pytest.fixture
def colleague(repo, tmp_path):
    """A clone of where the branch of the run is pushed to, which pushes a file outside of the run's scope."""
    git(tmp_path, "init", "-q", "--bare", "there")
    git(repo, "remote", "add", "origin", str(tmp_path / "there"))
    git(repo, "push", "-q", "-u", "origin", "work")
    git(tmp_path, "clone", "-q", "-b", "work", str(tmp_path / "there"), str(tmp_path / "other"))

    def pushes(name="theirs.txt"):
        git(tmp_path / "other", "pull", "-q")
        (tmp_path / "other" / name).write_text("theirs\n")
        git(tmp_path / "other", "add", "-A")
        author = ("-c", "user.name=B", "-c", "user.email=b@example.org")
        git(tmp_path / "other", *author, "commit", "-qm", name)
        git(tmp_path / "other", "push", "-q")

    return pushes


@pytest.mark.parametrize("how", [("--ff-only",), ("--no-rebase", "--no-edit"), ("--rebase",)])
def test_what_a_pull_brings_through_the_upstream_of_the_branch_is_not_the_runs_doing(repo, colleague, how):
    with pytest.raises(Crash), opened(repo) as run:
        place = run.workspace(str(repo), allow=["src/**"])
        if how != ("--ff-only",):
            (repo / "src").mkdir()
            (repo / "src" / "ok.py").write_text("1\n")
            place.milestone("part a")
        crash(run)
    colleague()
    git(repo, "pull", "-q", *how)
    with pytest.raises(Stopped) as stop, opened(repo) as run:
        place = run.workspace(str(repo), allow=["src/**"])
        made = place.milestone("part b")
        (repo / "theirs.txt").write_text("changed by the run\n")
        place.milestone("part c")
    assert stop.value.reason == "guard_violation" and "theirs.txt" in str(stop.value.evidence)
    assert made.commit == git(repo, "rev-parse", "HEAD")


@pytest.mark.parametrize("log", ["kept", "lost"])
@pytest.mark.parametrize("push", [("origin", "work"), ("URL", "work")])
def test_a_violation_that_was_pushed_does_not_come_back_as_somebody_elses(repo, colleague, tmp_path, push, log):
    with pytest.raises(Crash), opened(repo) as run:
        run.workspace(str(repo), allow=["src/**"])
        commit_both(repo)
        crash(run)
    git(repo, "push", "-q", *(str(tmp_path / "." / "there" / ".") if word == "URL" else word for word in push))
    colleague()
    if log == "lost":
        (repo / ".git" / "logs" / "HEAD").unlink()
    git(repo, "pull", "-q", "--ff-only")
    with pytest.raises(Stopped) as stop, opened(repo) as run:
        run.workspace(str(repo), allow=["src/**"]).milestone("part a")
    assert stop.value.reason == "guard_violation"
    assert ("theirs.txt" in str(stop.value.evidence)) == (log == "lost")  # nobody can tell whose it is


def test_a_person_can_say_that_a_commit_outside_of_the_scope_is_theirs(repo):
    with pytest.raises(Crash), opened(repo) as run:
        run.workspace(str(repo), allow=["src/**"])
        crash(run)
    commit_both(repo)
    for accept in (True, False):  # once is enough
        with pytest.raises(Crash), opened(repo, accept=accept) as run:
            place = run.workspace(str(repo), allow=["src/**"])
            (repo / "src" / f"{accept}.py").write_text("2\n")
            place.milestone(f"part {accept}")
            crash(run)
    (found,) = bodies(repo, "drift_found")
    assert (found["drift"], found["subject"], found["by"]) == ("commit", "the scope", "yes")


def test_what_a_milestone_committed_under_one_scope_is_not_judged_by_the_next(repo):
    with opened(repo) as run:
        for name in ("docs", "src"):
            place = run.workspace(str(repo), allow=[f"{name}/**"])
            (repo / name).mkdir()
            (repo / name / "a.txt").write_text("1\n")
            assert place.milestone(f"part {name}").commit == git(repo, "rev-parse", "HEAD")


def test_milestones_of_one_run_in_two_work_trees_are_no_strangers_to_each_other(repo, tmp_path):
    with pytest.raises(Crash), opened(repo) as run:
        three_milestones(run, repo)
        git(repo, "worktree", "add", "-q", "-b", "other", str(tmp_path / "other"))
        three_milestones(run, tmp_path / "other", "d")
        crash(run)
    with opened(repo) as run:
        three_milestones(run, repo)
        three_milestones(run, tmp_path / "other", "d")
    assert "drift_found" not in kinds(repo)


def test_a_base_branch_that_moves_while_the_run_works_is_still_told_when_it_goes_on(repo):
    with pytest.raises(Crash), opened(repo) as run:
        place = run.workspace(str(repo))
        (repo / "shared.txt").write_text("ours\n")
        place.milestone("part a")
        tip = git(repo, "commit-tree", "-p", "main", "-m", "theirs", git(repo, "rev-parse", "work^{tree}"))
        git(repo, "update-ref", "refs/heads/main", tip)
        (repo / "more.txt").write_text("ours\n")
        place.milestone("part b")
        crash(run)
    told = []
    with opened(repo, tell=told.append) as run:
        run.workspace(str(repo))
    assert any("shared.txt was changed there too" in line for line in told)


def test_a_milestone_whose_process_died_behind_its_commit_was_already_taken(repo, monkeypatch):
    (repo / "a.txt").write_text("a\n")
    with pytest.raises(Crash), opened(repo) as run:
        place = run.workspace(str(repo))
        monkeypatch.setattr(Workspaces, "_complete", lambda self, *rest: crash(run))
        place.milestone("part a")
    monkeypatch.undo()
    with opened(repo) as run:
        assert run.workspace(str(repo)).milestone("part a").commit == git(repo, "rev-parse", "HEAD")
    (said,) = bodies(repo, "milestone_index_corrected")
    assert (said["reason"], said["previous"], said["corrected_to"]) == ("already_checkpointed", 0, 1)
    assert said["sha"] == git(repo, "rev-parse", "HEAD")


def test_work_that_a_killed_run_left_before_its_first_checkpoint_is_listed_refused_and_kept_aside(repo, monkeypatch):
    (repo / "mine.txt").write_text("there before the run\n")
    for left in (False, True):
        with pytest.raises(Crash), opened(repo) as run:  # what was there first is no reason to ask
            run.workspace(str(repo))
            if left:
                (repo / "half.txt").write_text("half writ")
            crash(run)
    with pytest.raises(Stopped) as stop, opened(repo) as run:
        run.workspace(str(repo))
    assert stop.value.reason == "dirty_worktree" and any("half.txt" in line for line in stop.value.evidence)
    monkeypatch.setenv("HOLDFAST_SNAPSHOT", "1")
    os.mkfifo(repo / "pipe")
    (repo / "big.bin").write_bytes(b"")
    os.truncate(repo / "big.bin", 101 << 20)
    told = []
    with opened(repo, tell=lambda *lines: told.extend(lines)) as run:
        run.workspace(str(repo))
    (kept,) = bodies(repo, "snapshot_kept")
    assert git(repo, "show", f"{kept['snapshot']}:half.txt") == "half writ"
    (line,) = [line for line in told if "is kept" in line]
    assert "not kept: big.bin: it is 105,906,176 bytes" in line


@pytest.fixture
def older_log(repo, tmp_path):
    """A run with three milestones, whose log is a copy from after the first."""
    with pytest.raises(Crash), opened(repo) as run:
        three_milestones(run, repo, "a")
        crash(run)
    shutil.copytree(repo / ".holdfast", tmp_path / "copy", ignore=shutil.ignore_patterns("checkpoints"))
    with pytest.raises(Crash), opened(repo) as run:
        made = three_milestones(run, repo)
        crash(run)
    for path in (repo / ".holdfast").glob("holdfast.db*"):
        path.unlink()
    shutil.copytree(tmp_path / "copy", repo / ".holdfast", dirs_exist_ok=True)
    return made


@pytest.mark.parametrize("mirrors", ["sidecars and git", "git alone"])
def test_an_old_copy_of_the_log_is_told_and_nothing_is_made_twice(repo, older_log, mirrors):
    if mirrors == "git alone":
        shutil.rmtree(repo / ".holdfast" / "checkpoints")
    with pytest.raises(Stopped) as stop, opened(repo) as run:
        run.workspace(str(repo))
    assert stop.value.reason == "drift_refused"
    assert any("milestone 2 is in this repository, and not in the log" in line for line in stop.value.evidence)
    with opened(repo, accept=True) as run:
        assert [mark.commit for mark in three_milestones(run, repo)] == [mark.commit for mark in older_log]
    (said,) = bodies(repo, "milestone_index_corrected")
    assert (said["reason"], said["previous"], said["corrected_to"]) == ("state_behind_checkpoint", 1, 3)
    assert git(repo, "log", "--format=%s", "main..").splitlines() == [f"checkpoint: part {name}" for name in "cba"]


def test_a_milestone_that_a_log_without_any_does_not_know_is_told_and_asked_about(repo):
    with pytest.raises(Crash), opened(repo) as run:
        run.workspace(str(repo))
        crash(run)
    forged = with_trailers("checkpoint: part a", "run-1", "0190b0c0-0000-7000-8000-000000000001", 0)
    (repo / "a.txt").write_text("not the work of this run")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", forged)
    before = kinds(repo)
    with pytest.raises(Stopped) as stop, opened(repo) as run:
        run.workspace(str(repo))
    assert stop.value.reason == "drift_refused"
    assert any("milestone 0 is in this repository, and the log has none" in line for line in stop.value.evidence)
    assert not {"checkpoint_started", "milestone_index_corrected"} & set(kinds(repo)[len(before) :])
    with opened(repo, accept=True) as run:
        (mark,) = three_milestones(run, repo, "a")
    assert mark.commit == git(repo, "rev-parse", "HEAD") and mark.index == 0
    (said,) = bodies(repo, "milestone_index_corrected")
    assert (said["reason"], said["previous"], said["corrected_to"]) == ("state_behind_checkpoint", 0, 1)
    with opened(repo) as run:
        run.workspace(str(repo))  # it is asked once


def test_a_run_without_a_log_asks_before_it_goes_on_from_what_is_not_its_last_milestone(repo):
    with pytest.raises(Crash), opened(repo) as run:
        three_milestones(run, repo)
        crash(run)
    git(repo, "reset", "-q", "--hard", "HEAD~1")
    for path in (repo / ".holdfast").glob("holdfast.db*"):
        path.unlink()
    with pytest.raises(Stopped) as stop, opened(repo) as run:
        run.workspace(str(repo))
    assert stop.value.reason == "drift_refused" and any("milestone 2" in line for line in stop.value.evidence)


def test_what_was_there_when_the_run_came_is_no_reason_to_ask_wherever_head_is(repo):
    (repo / "mine.txt").write_text("there before the run\n")
    with pytest.raises(Crash), opened(repo) as run:
        run.workspace(str(repo))
        crash(run)
    git(repo, "commit", "-q", "--allow-empty", "-m", "by hand")
    on_main(repo, "theirs.txt", "one\n")
    git(repo, "merge", "-q", "--no-edit", "main")
    with opened(repo) as run:
        run.workspace(str(repo))
    assert "drift_found" not in kinds(repo)


def test_a_pattern_that_cannot_be_understood_is_refused_when_it_is_declared(repo):
    with opened(repo) as run:
        with pytest.raises(UsageError):
            run.workspace(str(repo), allow=["src/{a,b}"])
        assert "scope_declared" not in kinds(repo)


def three_milestones(run, repo, names=("a", "b", "c")):
    place = run.workspace(str(repo))
    marks = []
    for name in names:
        (repo / f"{name}.txt").write_text(name)
        marks.append(place.milestone(f"part {name}"))
    return marks


@pytest.mark.parametrize("mirrors", ["sidecars and git", "git alone"])
def test_a_run_whose_log_is_lost_goes_on_from_its_mirrors(repo, tmp_path, mirrors):
    with pytest.raises(Crash), opened(repo) as run:
        made = three_milestones(run, repo, ("a", "b"))
        crash(run)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--no-local", "-b", "work", str(repo), str(clone))
    git(clone, "config", "user.name", "A. User")
    git(clone, "config", "user.email", "user@example.org")
    if mirrors == "sidecars and git":
        (clone / ".holdfast").mkdir(mode=0o700)
        (repo / ".holdfast" / "checkpoints").rename(clone / ".holdfast" / "checkpoints")
    with opened(clone) as run:
        marks = three_milestones(run, clone)
    assert [mark.commit for mark in marks[:2]] == [mark.commit for mark in made]
    assert [mark.index for mark in marks] == [0, 1, 2]
    assert len(git(clone, "log", "--format=%H", "origin/HEAD..work").split()) in (1, 3)
    assert git(clone, "log", "--format=%s", "-3").splitlines() == [f"checkpoint: part {name}" for name in "cba"]
    (selected,) = bodies(clone, "resume_checkpoint_selected")
    assert selected["source"] == ("sidecar" if mirrors == "sidecars and git" else "git_log_run_specific")
    assert selected["index"] == 1 and selected["sha"] == made[1].commit


def test_what_a_sidecar_tells_of_a_milestone_comes_into_the_log_that_takes_it_over(repo):
    with pytest.raises(Crash), opened(repo) as run:
        (repo / "a.txt").write_text("a")
        run.workspace(str(repo)).milestone("part a", tier="tier1", verification_commands=["make test"])
        crash(run)
    (written,) = bodies(repo, "checkpoint_started")
    for path in (repo / ".holdfast").glob("holdfast.db*"):
        path.unlink()
    with opened(repo) as run:
        run.workspace(str(repo))
    (taken,) = bodies(repo, "checkpoint_started")
    told = ("created_at", "tier", "verification_commands")
    assert [taken.get(name) for name in told] == [written[name] for name in told]
    assert taken["tier"] == "tier1" and taken["created_at"]


def test_a_secret_in_a_title_or_a_command_reaches_neither_git_nor_a_file(repo, monkeypatch):
    secret = "ghp_" + "a1B2" * 9
    with opened(repo) as run:
        (repo / "a.txt").write_text("a\n")
        mark = run.workspace(str(repo)).milestone(
            f"with {secret}", verification_commands=[f"curl -H 'token: {secret}'"]
        )
    assert secret not in git(repo, "log", "-1", "--format=%B") and "redacted" in git(repo, "log", "-1", "--format=%B")
    assert (
        secret not in json.dumps(sidecars(repo)) and "redacted" in sidecars(repo)[mark.checkpoint_id]["milestone_title"]
    )
    with opened(repo) as run:
        assert run.workspace(str(repo)).milestone(f"with {secret}") == mark


def test_coroutines_take_checkpoints_too(repo):
    async def main():
        async with holdfast.arun("mission", store=str(repo / ".holdfast"), run_id="run-1") as run:
            place = await run.workspace(str(repo), allow=["*.txt"])
            first = await place.snapshot("s")
            (repo / "a.txt").write_text("a\n")
            return first, await place.milestone("part a")

    first, mark = asyncio.run(main())
    assert git(repo, "rev-parse", "HEAD") == mark.commit and first.snapshot != mark.snapshot
    assert state_of(repo).status == "finished"


def test_a_branch_whose_name_is_no_text_is_refused_by_name(repo):
    subprocess.run([b"git", b"switch", b"-q", b"-c", b"caf\xe9"], cwd=repo, check=True)
    with opened(repo) as run, pytest.raises(UsageError, match="not UTF-8"):
        run.workspace(str(repo)).snapshot("s")


def test_a_run_that_comes_back_to_another_work_tree_of_its_repository_is_asked_about_the_branch(repo, tmp_path):
    other = tmp_path / "linked"
    git(repo, "worktree", "add", "-q", "-b", "side", str(other))
    with pytest.raises(Crash), opened(repo) as run:
        three_milestones(run, other, ("a",))
        crash(run)
    git(repo, "worktree", "remove", "--force", str(other))
    with pytest.raises(Stopped) as stop, opened(repo) as run:
        run.workspace(str(repo))
    assert stop.value.reason == "branch_differs"


def test_a_repository_that_was_moved_is_the_same_one(repo, tmp_path):
    with pytest.raises(Crash), opened(repo) as run:
        made = three_milestones(run, repo, ("a", "b"))
        crash(run)
    moved = tmp_path / "moved"
    repo.rename(moved)
    with opened(moved) as run:
        marks = three_milestones(run, moved)
    assert [one.commit for one in marks[:2]] == [one.commit for one in made] and marks[2].index == 2
    assert {one.repo for one in state_of(moved).workspaces.values()} == {str(moved)}


def test_what_was_there_before_and_is_out_of_scope_is_left_where_it_is(repo):
    (repo / "notes.txt").write_text("mine\n")
    (repo / "readme.txt").write_text("half written\n")
    with opened(repo) as run:
        place = run.workspace(str(repo), allow=["src/**"], deny=["notes.txt"])
        (repo / "src").mkdir()
        for name in ("one", "two"):
            (repo / "src" / f"{name}.py").write_text(name)
            place.milestone(name)
    assert git(repo, "show", "--name-only", "--format=", "HEAD") == "src/two.py"
    assert sorted(git(repo, "status", "--porcelain").splitlines()) == [" M readme.txt", "?? notes.txt"]


def test_what_a_rebase_brings_is_not_the_runs_doing(repo):
    with pytest.raises(Crash), opened(repo) as run:
        place = run.workspace(str(repo), allow=["src/**"])
        (repo / "src").mkdir()
        (repo / "src" / "a.py").write_text("a")
        place.milestone("part a")
        crash(run)
    git(repo, "switch", "-q", "main")
    (repo / "upstream.txt").write_text("theirs\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "upstream")
    git(repo, "switch", "-q", "work")
    git(repo, "rebase", "-q", "main")
    with opened(repo) as run:
        place = run.workspace(str(repo), allow=["src/**"])
        assert place.milestone("part a").index == 0
        (repo / "src" / "b.py").write_text("b")
        assert place.milestone("part b").index == 1
    (selected,) = bodies(repo, "resume_checkpoint_selected")
    assert selected["source"] == "git_log_run_specific" and selected["was"]


def test_a_nested_repository_is_left_out_of_a_milestone_and_named(repo):
    inner = repo / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    git(inner, "-c", "user.name=x", "-c", "user.email=x@y", "commit", "-q", "--allow-empty", "-m", "x")
    (repo / "a.txt").write_text("a\n")
    with opened(repo) as run:
        mark = run.workspace(str(repo)).milestone("part a")
    assert any(line.startswith("inner") for line in mark.left_out)
    assert git(repo, "show", "--name-only", "--format=", mark.commit) == "a.txt"


def test_two_repositories_in_one_run_do_not_disturb_each_other(repo, tmp_path):
    second = tmp_path / "second"
    git(tmp_path, "clone", "-q", "--no-local", "-b", "work", str(repo), str(second))
    for name, value in (("user.name", "A. User"), ("user.email", "user@example.org")):
        git(second, "config", name, value)

    def work(run):
        places = {top: run.workspace(str(top)) for top in (repo, second)}
        marks = []
        for top, place in places.items():
            (top / "a.txt").write_text(top.name)
            marks.append(place.milestone(f"part a of {top.name}"))
        return marks

    with pytest.raises(Crash), opened(repo) as run:
        first = work(run)
        crash(run)
    with opened(repo) as run:
        assert work(run) == first
    assert [one.index for one in first] == [0, 0]
    assert "drift_found" not in kinds(repo)


def test_threads_take_checkpoints_one_after_the_other(repo):
    with opened(repo) as run:
        place = run.workspace(str(repo))
        with ThreadPoolExecutor(6) as pool:
            marks = list(pool.map(place.snapshot, [f"s{number}" for number in range(6)]))
    assert len({mark.checkpoint_id for mark in marks}) == 6


def test_a_milestone_needs_a_branch_and_an_identity_before_anything_is_begun(repo, monkeypatch):
    with opened(repo) as run:
        place = run.workspace(str(repo))
        (repo / "a.txt").write_text("a\n")
        git(repo, "switch", "-q", "--detach")
        with pytest.raises(holdfast.HoldfastError, match="No branch"):
            place.milestone("part a")
        git(repo, "switch", "-q", "work")
        before = (repo / ".git" / "index").read_bytes()
        git(repo, "config", "--unset", "user.email")
        git(repo, "config", "user.useConfigOnly", "true")
        monkeypatch.setenv("HOME", str(repo.parent))
        with pytest.raises(holdfast.HoldfastError):
            run.workspace(str(repo)).milestone("part b")
        assert (repo / ".git" / "index").read_bytes() == before
        assert "checkpoint_started" not in kinds(repo)


def test_an_error_after_the_commit_does_not_make_it_undone(repo, monkeypatch):
    from holdfast.adapters.probes.git_runner import Git

    def broken(self, ref):
        raise OSError(5, "Input/output error")

    with opened(repo) as run:
        place = run.workspace(str(repo))
        (repo / "a.txt").write_text("a\n")
        with monkeypatch.context() as patched:
            patched.setattr(Git, "sync", broken)
            with contextlib.suppress(OSError, holdfast.HoldfastError):
                place.milestone("part a")
        place.snapshot("after")
    assert "checkpoint_abandoned" not in kinds(repo)
    (made,) = [one for one in state_of(repo).workspaces.values() if one.commit]
    assert made.commit == git(repo, "rev-parse", "HEAD")


def test_an_index_that_was_used_is_refused(repo):
    with opened(repo) as run:
        place = run.workspace(str(repo))
        (repo / "a.txt").write_text("a\n")
        assert place.milestone("part a", index=4).index == 4
        with pytest.raises(UsageError, match="5 or more"):
            place.milestone("part b", index=4)


def test_going_on_twice_in_one_process_asks_once(repo):
    with pytest.raises(Crash), opened(repo) as run:
        run.workspace(str(repo)).snapshot("s")
        crash(run)
    with opened(repo) as run:
        run.workspace(str(repo))
        (repo / "mine.txt").write_text("of this run\n")
        run.workspace(str(repo))
    assert state_of(repo).status == "finished"


@pytest.mark.parametrize("gone", [False, True])
def test_a_checkpoint_that_was_cut_off_in_another_repository_is_mended_there(repo, tmp_path, monkeypatch, gone):
    second = tmp_path / "second"
    git(tmp_path, "clone", "-q", "--no-local", "-b", "work", str(repo), str(second))
    for name, value in (("user.name", "A. User"), ("user.email", "user@example.org")):
        git(second, "config", name, value)
    from holdfast.adapters.git.repo import GitWorkspace

    def dies(*_, **__):
        raise Crash

    with pytest.raises(Crash), opened(repo) as run:
        run.workspace(str(repo)).snapshot("first")
        place = run.workspace(str(second))
        (second / "b.txt").write_text("b")
        with monkeypatch.context() as patched:
            patched.setattr(GitWorkspace, "write_sidecar", dies)
            try:
                place.milestone("part b")
            except Crash:
                crash(run)
    if gone:
        second.rename(tmp_path / "elsewhere")
    with opened(repo) as run:
        run.workspace(str(repo))
        assert ("checkpoint_abandoned" in kinds(repo)) == gone
        if not gone:
            assert run.workspace(str(second)).milestone("part b").commit == git(second, "rev-parse", "HEAD")
    assert git(second if not gone else tmp_path / "elsewhere", "log", "--format=%s", "-2").count("part b") == 1


def test_commands_of_a_verification_are_a_list(repo):
    with opened(repo) as run, pytest.raises(UsageError, match="a list"):
        run.workspace(str(repo)).milestone("part a", verification_commands="make test")


def test_a_base_branch_that_changed_the_same_file_is_named_until_it_is_merged(repo):
    with pytest.raises(Crash), opened(repo) as run:
        place = run.workspace(str(repo))
        (repo / "readme.txt").write_text("ours\n")
        place.milestone("part a")
        crash(run)
    other = repo.parent / "main-tree"
    git(repo, "worktree", "add", "-q", str(other), "main")
    (other / "readme.txt").write_text("theirs\n")
    (other / "only theirs.txt").write_text("x\n")
    git(other, "add", "-A")
    git(other, "commit", "-q", "-m", "meanwhile")
    told = []
    with opened(repo) as run:
        run._book.options = run._book.options._replace(tell=told.append)
        run.workspace(str(repo))
    assert told == ["refs/heads/main: readme.txt was changed there too"]
    (found,) = bodies(repo, "drift_found")
    assert (found["drift"], found["verdict"]) == ("base", "go")


@pytest.mark.parametrize("name", ["trunk", "of-our-own/production"])
@pytest.mark.parametrize("when", ["before the run goes on", "while it works"])
def test_a_base_branch_that_moved_and_was_renamed_is_named_all_the_same(repo, when, name):
    def moves():
        on_main(repo, "readme.txt", "theirs\n")
        git(repo, "branch", "-m", "main", name)

    with pytest.raises(Crash), opened(repo) as run:
        place = run.workspace(str(repo))
        if when == "while it works":
            moves()
        (repo / "readme.txt").write_text("ours\n")
        place.milestone("ours")
        crash(run)
    if when == "before the run goes on":
        moves()
    for _ in range(2):
        with pytest.raises(Stopped) as stop, opened(repo, policies={"base": "refuse"}) as run:
            run.workspace(str(repo))
        assert stop.value.reason == "drift_refused"
        assert any("readme.txt was changed there too" in line for line in stop.value.evidence), stop.value.evidence


def test_a_base_branch_that_was_merged_is_no_drift(repo):
    with pytest.raises(Crash), opened(repo) as run:
        three_milestones(run, repo, ("a",))
        crash(run)
    git(repo, "switch", "-q", "main")
    git(repo, "merge", "-q", "--ff-only", "work")
    git(repo, "switch", "-q", "work")
    with opened(repo) as run:
        run.workspace(str(repo))
    assert "drift_found" not in kinds(repo)


def test_what_is_staged_and_taken_back_in_the_tree_is_nothing_to_commit(repo):
    (repo / "readme.txt").write_text("staged\n")
    git(repo, "add", "readme.txt")
    (repo / "readme.txt").write_text("hello\n")
    head = git(repo, "rev-parse", "HEAD")
    with opened(repo) as run:
        assert run.workspace(str(repo)).milestone("nothing in the end").commit == head


# --- ignored files, a store in the work tree, and threads


def test_ignored_files_are_kept_where_a_pattern_names_them_and_their_change_is_no_drift(repo):
    (repo / "a.txt").write_text("half done\n")
    (repo / "build.log").write_text("one\n")
    (repo / "other.log").write_text("other\n")
    with contextlib.suppress(Crash), opened(repo) as run:
        mark = run.workspace(str(repo), ignored=["build.*"]).snapshot("before")
        crash(run)
    assert mark.ignored == ("build.log",)
    assert git(repo, "show", f"{mark.snapshot}:build.log") == "one"
    assert "other.log" not in git(repo, "ls-tree", "--name-only", mark.snapshot)
    (repo / "build.log").write_text("two\n")
    with opened(repo) as run:
        assert run.workspace(str(repo)).snapshot("before").checkpoint_id == mark.checkpoint_id
    assert "drift_found" not in kinds(repo)


def test_a_milestone_keeps_ignored_files_in_its_snapshot_and_not_in_its_commit(repo):
    (repo / "build.log").write_text("one\n")
    (repo / "a.txt").write_text("a\n")

    async def main():
        async with holdfast.arun("mission", store=str(repo / ".holdfast"), run_id="run-1") as run:
            place = await run.workspace(str(repo), ignored=["*.log"])
            return await place.milestone("part a")

    mark = asyncio.run(main())
    assert mark.ignored == ("build.log",)
    assert "build.log" in git(repo, "ls-tree", "--name-only", mark.snapshot).split()
    assert "build.log" not in git(repo, "ls-tree", "--name-only", mark.commit).split()


def test_patterns_of_ignored_files_are_a_list_that_can_be_understood(repo):
    with opened(repo) as run:
        for wrong in ("*.log", ["../x"]):
            with pytest.raises(UsageError):
                run.workspace(str(repo), ignored=wrong)


@pytest.mark.parametrize("way", ["environment", "call"])
def test_a_store_in_the_work_tree_is_neither_kept_nor_committed_nor_out_of_scope(repo, monkeypatch, way):
    place = repo / "state" / "log.db"
    if way == "environment":
        monkeypatch.setenv("HOLDFAST_STORE", str(place))
    store = None if way == "environment" else str(place)
    with holdfast.run("mission", store=store, run_id="run-1") as run:
        work = run.workspace(str(repo), allow=["a.txt"], ignored=["**"])
        (repo / "a.txt").write_text("a\n")
        first, second = work.snapshot("before"), work.milestone("part a")
        beside = {name.removeprefix("log.db") for name in os.listdir(repo / "state")}
    assert {"", "-wal", "-witness"} <= beside
    for sha in (first.snapshot, second.snapshot, second.commit):
        assert git(repo, "ls-tree", "-r", "--name-only", sha, "state") == "", sha
    with holdfast.open_store(str(place), read_only=True) as opened_store:
        assert holdfast.read_state(opened_store, "run-1").status == "finished"


def test_mirrors_of_a_lost_log_do_not_claim_to_be_complete_where_a_milestone_lost_its_name(repo, tmp_path):
    with opened(repo) as run:
        place = run.workspace(str(repo))
        for name in ("a", "b"):
            (repo / f"{name}.txt").write_text(f"{name}\n")
            place.milestone(f"part {name}")
    git(repo, "commit", "-q", "--amend", "-m", "Part b, reworded")
    shutil.rmtree(repo / ".holdfast")
    with pytest.raises(Stopped) as stop, opened(repo) as run:
        run.workspace(str(repo))
    assert stop.value.reason == "drift_refused"
    with opened(repo, accept=True) as run:
        run.workspace(str(repo))
    (chosen,) = bodies(repo, "resume_checkpoint_selected")
    assert (chosen["index"], chosen["confidence"]) == (0, "weak")
    assert "1 later commit names no milestone" in chosen["why"]


def test_milestones_of_many_threads_in_one_work_tree_commit_each_file_once_and_lose_none(repo):
    """Each commits whatever is there by then, so a milestone may hold the files of another thread, and that one's none."""

    def work(number):
        (repo / f"{number}.txt").write_text(f"{number}\n")
        return place.milestone(f"part {number}")

    with opened(repo) as run:
        place = run.workspace(str(repo))
        with ThreadPoolExecutor(6) as pool:
            marks = list(pool.map(work, range(6)))
    assert git(repo, "status", "--porcelain") == ""
    added = git(repo, "log", "--format=", "--name-only", "--diff-filter=A", "main..work").split()
    assert sorted(added) == [f"{number}.txt" for number in range(6)]
    assert sorted(mark.index for mark in marks) == list(range(6)) and len(sidecars(repo)) == 6
    for number, mark in enumerate(marks):
        assert git(repo, "show", f"{mark.commit}:{number}.txt") == str(number), (
            "what it had written is in its milestone"
        )


def test_a_run_comes_to_uncommitted_files_whose_names_are_no_text(repo):
    names = [os.path.join(os.fsencode(repo), name) for name in (b"before\xff", b"later\xfe")]
    Path(os.fsdecode(names[0])).write_text("there before\n")
    with pytest.raises(Crash), opened(repo) as run:
        run.workspace(str(repo))
        crash(run)
    with opened(repo) as run:  # what was there when it came is no drift
        place = run.workspace(str(repo))
        Path(os.fsdecode(names[1])).write_text("of the run\n")
        place.milestone("both")
    assert git(repo, "ls-files", "before*", "later*") == '"before\\377"\n"later\\376"'


# --- another run of the same store


def equal_work(repo, run_id, branch):
    """A run that stops behind a milestone on a branch of its own; which one, nobody can tell by what it changes."""
    git(repo, "switch", "-q", "-c", branch, "main")
    with contextlib.suppress(Crash), holdfast.run("mission", store=str(repo / ".holdfast"), run_id=run_id) as run:
        place = run.workspace(str(repo))
        (repo / "f.txt").write_text("the same\n")
        place.milestone("part")
        crash(run)


def test_the_equal_work_of_a_run_that_only_its_log_knows_is_never_taken(repo, monkeypatch):
    monkeypatch.chdir(repo)
    equal_work(repo, "run-1", "mine")
    equal_work(repo, "run-2", "theirs")
    git(repo, "commit", "-q", "--amend", "-m", "Another message")
    shutil.rmtree(repo / ".holdfast" / "checkpoints")
    with pytest.raises(Stopped), opened(repo, policies={"branch": "ignore"}) as run:
        run.workspace(str(repo))
    (found,) = bodies(repo, "resume_checkpoint_selected")
    assert found["confidence"] == "weak", found
    position = cli_repo.find(cli_repo.at(str(repo)), state_of(repo))
    assert (position.sha, position.confidence) == (found["sha"], "weak")

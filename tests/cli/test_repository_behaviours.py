"""What a user sees of a repository: what doctor finds, previews that agree with themselves, own files that are no trouble."""

from __future__ import annotations

import json
import os
import sys

import pytest

from holdfast.cli import doctor_repo, doctor_tree
from holdfast.cli import repo as repository
from holdfast.core.stops import exit_code
from tests.cli.test_checkpoint import environ, holdfast, home, repo, run, told
from tests.forked import holdfast_says

__all__ = ["environ", "home", "repo"]  # fixtures

SHA = "ab" * 20
SIDECAR = {"schema_version": 1, "checkpoint_id": "c1", "sha": SHA, "run_id": "r", "milestone_index": 0,
           "milestone_title": "t", "created_at": "2026-01-01T00:00:00Z"}  # fmt: skip
BAD = {
    "bad json": ("c1.json", "{"),
    "another version": ("c1.json", json.dumps({**SIDECAR, "schema_version": 99})),
    "another name": ("c2.json", json.dumps(SIDECAR)),
    "a sha that is none": ("c1.json", json.dumps({**SIDECAR, "sha": "HEAD"})),
    "below zero": ("c1.json", json.dumps({**SIDECAR, "milestone_index": -1})),
    "not a number": ("c1.json", json.dumps({**SIDECAR, "milestone_index": float("nan")})),
}


def findings(repo, environ, check):
    done = holdfast_says(["doctor", "--json"], repo, environ)
    return [one for one in json.loads(done.stdout)["findings"] if one["check"] == check]


def test_doctor_says_of_each_sidecar_why_it_is_not_used_and_puts_it_aside(repo, environ):
    holdfast(repo, environ, "init")
    folder = repo / ".holdfast" / "checkpoints"
    folder.mkdir(parents=True)
    for what, (name, text) in BAD.items():
        (folder / name).write_text(text)
        (said,) = [one for one in findings(repo, environ, "sidecars") if "is not used" in one["sentence"]]
        assert name in said["sentence"] and said["sentence"].count(":") >= 1
        assert said["fix"] == ("" if what == "another version" else "holdfast doctor --fix")
        (folder / name).unlink()
    (folder / "c1.json").write_text(json.dumps(SIDECAR))
    said = [one["sentence"] for one in findings(repo, environ, "sidecars")]
    assert any("no log here knows it" in one for one in said), "another run's"
    assert {one["level"] for one in findings(repo, environ, "sidecars") if "no log here" in one["sentence"]} == {"ok"}
    assert any("git no longer has" in one for one in said), "dangling"


@pytest.mark.parametrize(
    ("where", "text", "level"),
    [
        (".gitignore", ".holdfast/\n", "ok"),
        (".gitignore", ".*\n", "ok"),
        (".git/info/exclude", ".holdfast/\n", "ok"),
        ("../home/.config/git/ignore", ".holdfast\n", "ok"),
        (".gitignore", ".holdfast/*\n!.holdfast/checkpoints\n", "warn"),
        (".gitignore", "", "warn"),
    ],
)
def test_doctor_says_whether_our_folder_is_ignored_whoever_says_so(repo, environ, where, text, level):
    path = repo / where
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    (said,) = findings(repo, environ, "ignored")
    assert said["level"] == level


def test_doctor_names_a_worktree_that_is_gone_and_its_advice_helps(repo, environ, tmp_path):
    run(["git", "worktree", "add", "-q", str(tmp_path / "other")], repo, environ)
    assert findings(repo, environ, "worktrees") == []
    run(["rm", "-r", str(tmp_path / "other")], repo, environ)
    (said,) = findings(repo, environ, "worktrees")
    assert str(tmp_path / "other") in said["sentence"]
    run(["sh", "-c", said["fix"]], repo, environ)
    assert findings(repo, environ, "worktrees") == []


@pytest.mark.parametrize("stand", ["main", "moved", "moved far"])
def test_a_worktree_that_was_moved_is_found_again_with_what_is_staged_in_it(repo, environ, tmp_path, stand):
    other = tmp_path / "other"
    run(["git", "worktree", "add", "-q", str(other)], repo, environ)
    (other / "staged.txt").write_text("staged\n")
    run(["git", "add", "staged.txt"], other, environ)
    far = tmp_path / "far" / "away"
    moved = far / "moved" if stand == "moved far" else tmp_path / "moved there"
    far.mkdir(parents=True)
    other.rename(moved)
    (moved / "sub").mkdir()
    if stand == "moved far":
        (said,) = findings(repo, environ, "worktrees")
        assert "If you moved it, run `git worktree repair` in it" in said["sentence"]
    standing = repo if stand == "main" else moved / "sub"
    (said,) = findings(standing, environ, "worktrees")
    assert said["level"] == "warn"
    run(["sh", "-c", said["fix"]], standing, environ)
    assert findings(repo, environ, "worktrees") == findings(moved, environ, "worktrees") == []
    assert run(["git", "diff", "--cached", "--name-only"], moved, environ) == "staged.txt\n"


def test_doctor_says_of_a_submodule_that_it_takes_no_checkpoints_there(repo, environ, tmp_path):
    within = ["git", "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(repo), "within"]
    run(["git", "init", "-q", str(tmp_path / "outer")], tmp_path, environ)
    run(within, tmp_path / "outer", environ)
    (said,) = findings(tmp_path / "outer" / "within", environ, "repository")
    assert said["level"] == "ok" and "does not name it back" in said["sentence"]


@pytest.mark.parametrize(
    "closed", [".git", ".git/objects", ".git/refs/holdfast/checkpoints", ".holdfast", ".holdfast/checkpoints"]
)
def test_doctor_names_a_folder_that_cannot_be_written(repo, environ, monkeypatch, closed):
    for name in [name for name in os.environ if name.startswith(("HOLDFAST_", "GIT_"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(repo)
    closed = str(repo / closed)
    os.makedirs(closed, exist_ok=True)
    monkeypatch.setattr(doctor_tree.os, "access", lambda path, mode: path != closed)
    (said,) = doctor_tree.writable(repository.here())
    assert (said.level, said.sentence) == ("warn", f"{closed} cannot be read and written.") and said.fix.startswith(
        "chmod "
    )


def test_a_sidecar_that_is_missing_from_a_closed_folder_is_written_as_advised(repo, environ, monkeypatch):
    holdfast(repo, environ, "init")
    (repo / "a.txt").write_text("a\n")
    mark = told(repo, environ, "checkpoint", "--commit", "a")
    folder = repo / ".holdfast" / "checkpoints"
    (folder / f"{mark['checkpoint_id']}.json").unlink()
    for name in [name for name in os.environ if name.startswith(("HOLDFAST_", "GIT_"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(repo)
    monkeypatch.setattr(doctor_tree.os, "access", lambda path, mode: path != str(folder))
    (said,) = [one for one in doctor_repo.findings(()) if one.check == "sidecars"]
    assert said.fix == f"chmod u+rwx {folder} && holdfast doctor --fix"
    monkeypatch.setattr(doctor_repo.sidecars, "_open", refuse)
    (said,) = [one for one in doctor_repo.findings(()) if one.check == "sidecars"]
    assert (said.fix, "cannot be read" in said.sentence) == (f"chmod u+rwx {folder}", True)


def refuse(*given):
    raise PermissionError(13, "Permission denied")


def test_a_preview_says_the_same_in_words_and_in_json(repo, environ):
    holdfast(repo, environ, "init")
    program = repo / ".git" / "program.py"
    program.write_text(
        "import os, signal, holdfast\n"
        "with holdfast.run('m', run_id='run-1') as run:\n"
        "    place = run.workspace('.')\n"
        "    open('done.txt', 'w').write('done')\n"
        "    place.snapshot('done')\n"
        "    open('half.txt', 'w').write('half')\n"
        "    os.remove('done.txt')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    run([sys.executable, str(program)], repo, environ, code=-9)
    (mark,) = told(repo, environ, "checkpoint", "--list")["checkpoints"]
    words = ("restore", mark["checkpoint_id"], "--in-place", "--preview")
    changes = told(repo, environ, *words)["changes"]
    assert [one["path"] for one in changes] == ["done.txt", "half.txt"]
    assert holdfast(repo, environ, *words).splitlines() == [f"{one['kind']:10} {one['path']}" for one in changes]
    plan, text = told(repo, environ, "resume", "run-1", "--plan"), holdfast(repo, environ, "resume", "run-1", "--plan")
    (there,) = plan["repositories"]
    facts = [plan["plan"]["plan_id"], plan["plan"]["why"], there["repository"], there["checkpoint"]["why"]]
    facts += [line for one in there["drift"] for line in one["lines"]] + plan["next_actions"]
    assert there["drift"] and [fact for fact in facts if fact not in text] == []


def test_what_holdfast_itself_writes_never_trips_its_own_guards(repo, environ):
    holdfast(repo, environ, "init", "--hooks")
    program = repo / ".git" / "program.py"
    program.write_text(
        "import os, holdfast\n"
        "with holdfast.run('m', run_id='run-1') as run:\n"
        "    place = run.workspace('.', allow=['src/**'], deny=['.holdfast/**'])\n"
        "    os.mkdir('src')\n"
        "    open('src/a.txt', 'w').write('a')\n"
        "    place.snapshot('first')\n"
        "    place.milestone('second')\n"
    )
    run([sys.executable, str(program)], repo, environ)
    committed = run(["git", "diff-tree", "-r", "--name-only", "HEAD~1", "HEAD"], repo, environ).split()
    assert committed == ["src/a.txt"]
    (repo / ".gitignore").unlink()  # not even where nothing is ignored
    program.write_text(
        program.read_text().replace("run-1", "run-2").replace("mkdir('src')", "getcwd()").replace("'a')", "'b')")
    )
    run([sys.executable, str(program)], repo, environ)


@pytest.mark.parametrize("before", [None, b"*.log\r\n", b"*.log"])
def test_what_init_writes_in_the_middle_of_a_run_is_neither_a_violation_nor_in_a_milestone(repo, environ, before):
    if before is not None:
        (repo / ".gitignore").write_bytes(before)
        run(["git", "add", "-A"], repo, environ)
        run(["git", "commit", "-qm", "rules"], repo, environ)
    run([sys.executable, str(scoped(repo))], repo, environ)
    committed = run(["git", "diff-tree", "-r", "--name-only", "HEAD~1", "HEAD"], repo, environ).split()
    assert committed == ["src/a.txt"]
    left = run(["git", "status", "--short"], repo, environ)
    assert ".gitignore" in left and "holdfast.toml" in left


@pytest.mark.parametrize("more", ["open('.gitignore', 'a').write('x')", "open('holdfast.toml', 'a').write('[run]')"])
def test_more_than_init_writes_is_a_violation_as_ever(repo, environ, more):
    run([sys.executable, str(scoped(repo, more))], repo, environ, code=exit_code("guard_violation"))


def scoped(repo, more=""):
    program = repo / ".git" / "program.py"
    program.write_text(
        "import os, subprocess, sys, holdfast\n"
        "with holdfast.run('m') as run:\n"
        "    place = run.workspace('.', allow=['src/**'])\n"
        "    subprocess.run([sys.executable, '-m', 'holdfast', 'init', '--config'], check=True)\n"
        "    os.mkdir('src')\n"
        "    open('src/a.txt', 'w').write('a')\n"
        f"    {more}\n"
        "    place.milestone('first')\n"
    )
    return program


def test_a_store_survives_the_worktrees_that_used_it(repo, environ, tmp_path):
    holdfast(repo, environ, "init")
    trees = [tmp_path / f"tree{number}" for number in range(2)]
    for tree in trees:
        run(["git", "worktree", "add", "-q", str(tree)], repo, environ)
        (tree / "new.txt").write_text(tree.name)
    marks = [told(tree, environ, "checkpoint", tree.name)["checkpoint_id"] for tree in trees]
    for tree in trees:
        run(["git", "worktree", "remove", "--force", str(tree)], repo, environ)
    assert sorted(one["checkpoint_id"] for one in told(repo, environ, "checkpoint", "--list")["checkpoints"]) == sorted(
        marks
    )
    assert {one["title"] for one in told(repo, environ, "checkpoint", "--list")["checkpoints"]} == {"tree0", "tree1"}
    holdfast(repo, environ, "restore", marks[0], "--into", str(tmp_path / "again"))
    assert (tmp_path / "again" / "new.txt").read_text() == "tree0"

"""What a user sees of a repository: what doctor finds, previews that agree with themselves, own files that are no trouble."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from holdfast.cli import doctor_tree
from holdfast.cli import repo as repository
from tests.cli.test_checkpoint import environ, holdfast, home, repo, run, told

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
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "doctor", "--json"], cwd=repo, env=environ, capture_output=True, check=False
    )
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


def test_doctor_names_a_folder_that_cannot_be_written(repo, environ, monkeypatch):
    for name in [name for name in os.environ if name.startswith(("HOLDFAST_", "GIT_"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(repo)
    closed = str(repo / ".git" / "objects")
    monkeypatch.setattr(doctor_tree.os, "access", lambda path, mode: path != closed)
    (said,) = doctor_tree.writable(repository.here())
    assert (said.level, said.sentence) == ("warn", f"{closed} cannot be written.") and said.fix.startswith("chmod ")


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

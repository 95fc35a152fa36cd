"""Every verb in a repository that tries to run its own programs: 0 of them run, in 30 commands and more."""

from __future__ import annotations

import json
import os

import pytest

from tests.adapters.probes.test_git_hostile import canaries, fired, hostile, program  # noqa: F401 - fixtures
from tests.forked import holdfast_says

CHECKPOINT = "CHECKPOINT"
COMMANDS = (
    ["init"], ["init", "--json"], ["init", "--hooks"], ["init", "--remove-hooks"], ["doctor"], ["doctor", "--json"],
    ["checkpoint", "one"], ["checkpoint", "two", "--json"], ["checkpoint", "--list"], ["checkpoint", "--list", "--json"],
    ["checkpoint", "--commit", "milestone"], ["checkpoint", "--commit", "again", "--json"], ["show", CHECKPOINT],
    ["show", CHECKPOINT, "--json"], ["show", CHECKPOINT, "--diff"], ["show", CHECKPOINT, "--diff", "--json"],
    ["restore", CHECKPOINT], ["restore", CHECKPOINT, "--into", "INTO"], ["restore", CHECKPOINT, "--in-place", "--preview"],
    ["restore", CHECKPOINT, "--in-place"], ["restore", CHECKPOINT, "--in-place", "--json"], ["checkpoint", "three"],
    ["doctor", "--fix"], ["doctor", "--fix", "--json"], ["status"], ["status", "--json"], ["resume"], ["resume", "--json"],
    ["verify"], ["checkpoint", "--drop", CHECKPOINT], ["checkpoint", "--list"], ["doctor"],
)  # fmt: skip


def test_no_program_of_the_repository_runs_in_any_of_the_verbs(hostile, environ, canaries, tmp_path, record_property):  # noqa: F811
    environ = {**environ, "HOLDFAST_STORE": str(tmp_path / "store" / "holdfast.db"), "PATH": os.environ["PATH"]}
    mark = holdfast_says(["checkpoint", "first", "--json"], hostile, environ)
    assert mark.returncode == 0, mark.stderr
    checkpoint_id = json.loads(mark.stdout)["checkpoint_id"]
    codes = {}
    for number, words in enumerate(COMMANDS):
        named = [
            checkpoint_id if word == CHECKPOINT else str(tmp_path / "into") if word == "INTO" else word
            for word in words
        ]
        done = holdfast_says(named, hostile, environ)
        assert "Traceback" not in done.stderr, (words, done.stderr)
        codes[number, " ".join(words)] = done.returncode
        assert fired(canaries) == [], words
    assert len(COMMANDS) >= 30
    refused = {words: code for (_, words), code in codes.items() if code}
    record_property("told", f"programs run by {len(COMMANDS)} commands in a hostile repository: 0; refused: {refused}")
    assert len(refused) < len(COMMANDS) // 3, refused


@pytest.mark.parametrize("name", ["--output=pwned", "-x", "--upload-pack=touch pwned"])
def test_names_that_look_like_options_are_names(repo, git, environ, tmp_path, name):
    environ = {**environ, "HOLDFAST_STORE": str(tmp_path / "store" / "holdfast.db"), "PATH": os.environ["PATH"]}
    (repo / name.replace("/", "_")).write_text("a file\n")
    git(repo, "update-ref", f"refs/heads/{name.replace(' ', '_')}", "main")
    git(repo, "symbolic-ref", "HEAD", f"refs/heads/{name.replace(' ', '_')}")
    mark = holdfast_says(["checkpoint", "--json", "--", name], repo, environ)
    assert mark.returncode == 0, mark.stderr
    checkpoint_id = json.loads(mark.stdout)["checkpoint_id"]
    shown = holdfast_says(["show", checkpoint_id, "--diff"], repo, environ)
    assert shown.returncode == 0 and "a file" in shown.stdout
    back = holdfast_says(["restore", checkpoint_id, "--into", str(tmp_path / "into")], repo, environ)
    assert back.returncode == 0, back.stderr
    assert (tmp_path / "into" / name.replace("/", "_")).read_text() == "a file\n"
    assert not [path for path in tmp_path.rglob("*pwned*") if path.name == "pwned"]

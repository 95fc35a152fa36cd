"""`holdfast trust`: shown, asked, bound to what was shown, and never given by silence."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.core.stops import exit_code
from tests.cli.conftest import Shell

UNTRUSTED = exit_code("untrusted")
COMMANDS = "[verify]\ntier0 = ['make test']\n"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    made = tmp_path / "repo"
    made.mkdir()
    subprocess.run(["git", "init", "-q", str(made)], check=True)
    (made / "holdfast.toml").write_text(COMMANDS)
    return made


@pytest.fixture
def trust(holdfast: Shell, repo: Path, monkeypatch):
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    return lambda *arguments, cwd=repo: holdfast("trust", *arguments, cwd=cwd)


def is_listed(holdfast: Shell) -> bool:
    return (holdfast.home / ".local" / "state" / "holdfast" / "trusted.json").exists()


def at_terminal(holdfast: Shell, repo: Path, typed: str, change: str = "") -> tuple[int, str]:
    """Run it on a terminal of its own, change the file once the question stands, type, and read everything."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "holdfast", "trust"]
    process = subprocess.Popen(
        command, env=holdfast.environment(), cwd=repo, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    said = b""
    try:
        while b"[y/N]" not in said:
            said += os.read(ours, 4096)
        if change:
            (repo / "holdfast.toml").write_text(change)
        os.write(ours, typed.encode())
        while True:
            try:
                said += os.read(ours, 4096)
            except OSError:  # everybody has closed the other side
                break
        return process.wait(timeout=30), said.decode()
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_silence_is_no(holdfast, trust):
    answer = trust()
    assert answer.code == UNTRUSTED and not is_listed(holdfast)
    assert "not trusted yet" in answer.out and "verify.tier0: make test" in answer.out
    assert "verify.tier0 make test" in answer.err and "`holdfast trust`" in answer.err
    refused = trust("--json")
    assert refused.code == UNTRUSTED and refused.data["error"]["reason"] == "untrusted"


def test_yes_is_remembered_until_the_content_changes(trust, repo):
    assert trust("--yes").code == 0 and trust().code == 0
    (repo / "holdfast.toml").write_text("[verify]\ntier0 = ['make evil']\n")
    answer = trust()
    assert answer.code == UNTRUSTED
    assert "  + verify.tier0: make evil\n  - verify.tier0: make test\n" in answer.out
    (repo / "holdfast.toml").write_text(COMMANDS + "# a remark\n")
    assert "what they name is the same" in trust("--show").out
    (repo / "holdfast.toml").write_text(COMMANDS)
    assert trust().code == 0


@pytest.mark.parametrize(
    ("typed", "code"), [("y\n", 0), ("yes\n", 0), ("\n", UNTRUSTED), ("n\n", UNTRUSTED), ("\x04", UNTRUSTED)]
)
def test_a_terminal_is_asked_and_no_is_the_default(holdfast, trust, repo, typed, code):
    assert at_terminal(holdfast, repo, typed)[0] == code
    assert is_listed(holdfast) == (code == 0)
    assert trust().code == code


def test_what_is_trusted_is_what_was_shown(holdfast, trust, repo):
    evil = "[verify]\ntier0 = ['make evil']\n"
    assert at_terminal(holdfast, repo, "y\n", change=evil)[0] == 0
    assert "- verify.tier0: make test" in trust().out
    (repo / "holdfast.toml").write_text(COMMANDS)
    assert trust().code == 0


def test_escape_codes_reach_no_terminal(holdfast, trust, repo):
    (repo / "holdfast.toml").write_text('[verify]\ntier0 = [["make", "\\u001b[2J\\u202e\\nholdfast: trusted"]]\n')
    code, said = at_terminal(holdfast, repo, "n\n")
    assert code == UNTRUSTED and "\x1b" not in said and "\u202e" not in said
    assert "\nholdfast: trusted" not in said.replace("\r", "")
    shown = trust("--show")
    assert "\x1b" not in shown.out and r"\x1b[2J\u202e\nholdfast: trusted" in shown.out


def test_showing_remembers_nothing(holdfast, trust):
    data = trust("--show", "--json").data
    assert (data["before"], data["trusted"]) == ("unknown", False) and not is_listed(holdfast)
    assert data["acts"] == [{"file": "holdfast.toml", "where": "verify.tier0", "text": "make test"}]
    assert trust("--yes", "--json").data["trusted"] is True
    assert trust("--show", "--json").data["trusted"] is True


def test_a_change_in_json(trust, repo):
    trust("--yes")
    (repo / "holdfast.toml").write_text("[verify]\ntier0 = ['make evil']\n")
    data = trust("--show", "--json").data
    assert ([act["text"] for act in data["added"]], [act["text"] for act in data["removed"]]) == (
        ["make evil"],
        ["make test"],
    )


def test_a_linked_work_tree_has_its_own_file_and_its_own_trust(trust, repo, tmp_path):
    git = ["git", "-C", str(repo), "-c", "user.name=x", "-c", "user.email=x"]
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    subprocess.run([*git, "worktree", "add", "-q", "-b", "other", str(tmp_path / "linked")], check=True)
    trust("--yes")
    (tmp_path / "linked" / "holdfast.toml").write_text(COMMANDS)
    (tmp_path / "linked" / "below").mkdir()
    assert trust(cwd=tmp_path / "linked" / "below").code == UNTRUSTED


def test_forgetting(trust):
    assert "it was not trusted" in trust("--forget").out
    trust("--yes")
    assert "trusted no more" in trust("--forget").out and trust().code == UNTRUSTED
    assert trust("--forget", "--json").data["forgotten"] is False


def test_a_repository_that_names_nothing_has_nothing_to_trust(holdfast, trust, repo):
    (repo / "holdfast.toml").write_text("[run]\nparallel = 1\n")
    assert trust().code == 0 and "nothing to trust" in trust().out
    (repo / "holdfast.toml").unlink()
    assert trust("--yes").code == 0 and not is_listed(holdfast)


def test_a_damaged_list_is_said(holdfast, trust):
    trust("--yes")
    (holdfast.home / ".local" / "state" / "holdfast" / "trusted.json").write_text("{")
    answer = trust()
    assert answer.code == UNTRUSTED and "it is damaged" in answer.err
    assert trust("--yes").code == 0 and trust().code == 0


def test_what_makes_no_sense_is_refused(holdfast, trust, repo):
    assert trust("--yes", "--forget").code == exit_code("usage_error")
    assert trust(cwd=holdfast.home).code == exit_code("usage_error")
    (repo / "holdfast.toml").write_text("[verify]\ntier0 = 'make'\n")
    answer = trust("--yes")
    assert answer.code == exit_code("bad_input") and "holdfast.toml, line 2: verify.tier0" in answer.err


def test_the_list_is_json_for_its_owner_alone(holdfast, trust, repo):
    trust("--yes")
    path = holdfast.home / ".local" / "state" / "holdfast" / "trusted.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(json.loads(path.read_text())["repositories"]) == [str(repo)]

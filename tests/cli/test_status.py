"""`holdfast status` tells which runs live, which were interrupted and why the others rest; it makes nothing."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from holdfast import app
from holdfast.core.events import RunStopped


def test_without_a_store_it_says_so_and_makes_nothing(holdfast, tmp_path):
    answer = holdfast("status")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("Nothing here yet.")
    assert not holdfast.place.parent.exists()
    assert list(holdfast.home.iterdir()) == []


def test_without_a_store_the_json_has_no_runs(holdfast):
    assert holdfast("status", "--json").data["runs"] == []


def test_a_run_that_nobody_holds_is_interrupted(holdfast, writer):
    process = writer("worker-1")
    assert holdfast("status", "--json").data["runs"][0]["status"] == "running"
    process.kill()
    process.wait()
    run = holdfast("status", "--json").data["runs"][0]
    assert (run["status"], run["held"], run["resumable"]) == ("interrupted", False, True)
    assert "interrupted" in holdfast("status").out


def test_a_running_run_is_shown_with_its_owner(holdfast, writer):
    process = writer("worker-1")
    out = holdfast("status").out
    assert "running" in out and f"process {process.pid} on " in out


def test_unfinished_runs_come_first_and_newest_first_among_them(holdfast, make_run):
    for run_id, ending in [("a1", "stopped"), ("a2", "finished"), ("a3", "stopped"), ("a4", "finished")]:
        make_run(run_id, ending=ending)
    shown = [run["run_id"] for run in holdfast("status", "--json").data["runs"]]
    assert shown == ["a3", "a1", "a4", "a2"]


def test_the_limit_is_kept_and_the_rest_is_announced(holdfast, make_run):
    for number in range(4):
        make_run(f"run-{number}", steps=0)
    answer = holdfast("status", "--limit", "3")
    assert len(answer.out.splitlines()) == 1 + 3 + 1
    assert "holdfast status --all" in answer.out
    assert holdfast("status", "--limit", "3", "--json").data["more"] is True
    everything = holdfast("status", "--all", "--json").data
    assert (len(everything["runs"]), everything["more"]) == (4, False)


def test_one_run_is_explained_with_commands_that_help(holdfast, make_run):
    make_run("run-1", ending="stopped")
    out = holdfast("status", "run-1").out
    assert "awaiting_answer" in out
    assert "holdfast show run-1" in out
    data = holdfast("status", "run-1", "--json").data
    assert (data["schema_version"], data["run"]["stop_reason"]) == (1, "awaiting_answer")


@pytest.mark.parametrize("part", ["aaaa-1111", "aaaa", "1111"])
def test_a_run_is_found_by_its_beginning_or_its_end(holdfast, make_run, part):
    make_run("aaaa-1111")
    make_run("bbbb-2222")
    assert holdfast("status", part, "--json").data["run"]["run_id"] == "aaaa-1111"


def test_a_part_that_fits_two_runs_is_refused_with_both(holdfast, make_run):
    make_run("aaaa-1111")
    make_run("aaaa-2222")
    answer = holdfast("status", "aaaa")
    assert answer.code == 62
    assert "aaaa-1111" in answer.err and "aaaa-2222" in answer.err


def test_an_exact_id_wins_over_longer_ones(holdfast, make_run):
    make_run("aaaa")
    make_run("aaaa-2")
    assert holdfast("status", "aaaa", "--json").data["run"]["run_id"] == "aaaa"


def test_three_characters_are_too_few_to_name_a_run(holdfast, make_run):
    make_run("aaaa-1111")
    assert holdfast("status", "aaa").code == 66


@pytest.mark.parametrize("bad", ["../../etc/passwd", "..", ".", "/etc", "a\\b", "A-run", "run%2e", "x" * 65, "ｒｕｎ"])
def test_an_id_outside_the_grammar_is_refused(holdfast, make_run, bad):
    make_run("aaaa-1111")
    answer = holdfast("status", bad)
    assert answer.code == 65
    assert "is not a valid id" in answer.err


def test_stored_text_cannot_reach_the_terminal(holdfast, make_run):
    make_run("run-1", title="\x1b]52;c;aGk=\x07\x1b[31mred\u202egnp.exe\n\x9b2Jnext\x85line", mission="m")
    for arguments in (["status"], ["status", "run-1"], ["log", "run-1"], ["show", "run-1"], ["show", "run-1", "1"]):
        out = holdfast(*arguments).out
        assert all(letter.isprintable() or letter == "\n" for letter in out), arguments
        assert "\\x1b]52;c;aGk=\\x07" in out and "\\u202e" in out
    for arguments in (["status", "--json"], ["log", "run-1", "--json"], ["show", "run-1", "--json"]):
        out = holdfast(*arguments).out
        assert out.isascii() and "\x1b" not in out, arguments


def test_the_quick_way_and_the_parsed_way_say_the_same(holdfast, make_run):
    make_run("run-1", ending="finished")
    assert holdfast("status", "--json").data == holdfast("status", "--limit", "20", "--json").data


def on_a_terminal(holdfast, *arguments: str, **environ: str) -> str:
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "holdfast", *arguments]
    env = holdfast.environment(TERM="xterm-256color", COLUMNS="120", **environ)
    process = subprocess.Popen(command, env=env, cwd=holdfast.home, stdout=follower, stderr=follower)
    os.close(follower)
    said = b""
    while chunk := _read(leader):
        said += chunk
    os.close(leader)
    assert process.wait() == 0
    return said.decode()


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 65536)
    except OSError:
        return b""


def test_colour_needs_a_terminal_and_respects_no_color(holdfast, make_run):
    make_run("run-1")
    assert "\x1b[" not in holdfast("status").out
    assert "\x1b[33m" in on_a_terminal(holdfast, "status")
    assert "\x1b[33m" not in on_a_terminal(holdfast, "status", NO_COLOR="1")
    assert "\x1b[" not in on_a_terminal(holdfast, "status", "run-1", NO_COLOR="1")


def test_markup_in_a_title_is_not_interpreted_on_a_terminal(holdfast, make_run):
    make_run("run-1", title="[bold]x[/bold] :bomb:")
    assert "[bold]x[/bold] :bomb:" in on_a_terminal(holdfast, "status", NO_COLOR="1")


def test_worktrees_share_the_store_of_their_repository(holdfast, tmp_path: Path):
    top = tmp_path / "repo"
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run([*git, "init", "-q", str(top)], check=True)
    subprocess.run([*git, "-C", str(top), "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    subprocess.run([*git, "-C", str(top), "worktree", "add", "-q", str(tmp_path / "tree")], check=True)
    for folder in (top, tmp_path / "tree"):
        data = holdfast("status", "--json", cwd=folder, HOLDFAST_STORE="").data
        assert data["store"] == str(top / ".holdfast" / "holdfast.db")


def test_a_run_with_an_effect_of_unknown_outcome_is_shown_with_commands_that_can_be_typed(holdfast, make_run):
    make_run("run-1", ending="open")
    with closing(app.open_store(str(holdfast.place))) as store, app.write_run(store, "run-1") as log:
        log.record(RunStopped(reason="effect_unknown"))
    actions = holdfast("status", "run-1", "--json").data["run"]["next_actions"]
    assert actions[:2] == ["holdfast settle run-1 --done mail-1", "holdfast settle run-1 --not-done mail-1"]
    assert holdfast(*actions[0].split()[1:]).code == 0


def test_a_run_that_its_process_left_unfinished_is_not_said_to_have_been_killed(holdfast, make_run):
    make_run("run-1", ending="")
    shown = holdfast("status", "run-1").out
    assert "interrupted" in shown
    assert "its own code left it" in shown

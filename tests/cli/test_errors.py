"""How the command line fails: one sentence, advice that parses, an exit code of the registry, never a traceback."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import click
import pytest

from holdfast import app, config
from holdfast.cli.main import perform
from holdfast.cli.output import escape
from holdfast.cli.verbs import VERBS, cli
from holdfast.core import errors, stops
from holdfast.engine import health

ROOT = Path(__file__).parents[2]
LATER = {"checkpoint", "deps", "diagnose", "gc", "init", "note", "run", "serve", "worker"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-verb"],
        ["status", "--no-such-option"],
        ["status", "--limit", "x"],
        ["status", "a", "b"],
        ["log"],
        ["completion", "tcsh"],
        ["--nope"],
    ],
)
def test_a_command_that_is_not_understood_leaves_with_the_registrys_code(holdfast, arguments):
    answer = holdfast(*arguments)
    assert answer.code == stops.exit_code("usage_error") == 64
    assert answer.err.startswith("holdfast: ") and len(answer.err.splitlines()) == 2
    assert answer.out == ""


def test_a_near_miss_is_answered_with_the_right_word(holdfast):
    assert "Did you mean status?" in holdfast("statsu").err


def test_without_arguments_the_help_is_shown(holdfast):
    answer = holdfast()
    assert answer.code == 0
    assert all(verb in answer.out for verb in VERBS)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("verify", 100),
        ("verify --json", 100),
        ("show nobody --json", 66),
        ("show nobody 2>&1", 66),
        ("doctor --nope 2>&1", 64),
        ("status", 0),
    ],
)
def test_a_reader_that_has_gone_changes_no_exit_code(holdfast, make_run, words, code, unbuffered):
    make_run("run-1")
    connection = apsw.Connection(str(holdfast.place))
    connection.execute("update events_1 set body = '{}' where place % (1 << 32) = 2")
    connection.close()
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", *words.removesuffix(" 2>&1").split()],
        stdout=writer,
        stderr=writer if "2>&1" in words else subprocess.DEVNULL,
        env=holdfast.environment(PYTHONUNBUFFERED=unbuffered),
        check=False,
    )
    os.close(writer)
    assert done.returncode == code


def test_an_error_is_also_json_when_asked(holdfast, make_run):
    make_run("run-1")
    answer = holdfast("log", "nobody", "--json")
    assert answer.code == 66
    error = answer.data["error"]
    assert answer.data["schema_version"] == 1
    assert (error["reason"], error["exit_code"]) == ("not_found", 66)
    assert "nobody" in error["message"] and error["advice"]
    assert "nobody" in answer.err
    assert len(answer.out.splitlines()) == 1, "a program that reads lines reads this one too"


@pytest.mark.parametrize(
    ("place", "code"), [("mysql://x/y", 64), ("/dev/null", 64), ("postgresql://127.0.0.1:1/x?connect_timeout=1", 72)]
)
def test_a_place_that_cannot_be_a_store_is_named(holdfast, place, code):
    if place.startswith("postgresql"):
        pytest.importorskip("psycopg")
    answer = holdfast("status", HOLDFAST_STORE=place)
    assert answer.code == code
    assert "Traceback" not in answer.err


def test_a_path_that_is_no_text_is_refused_before_anything_is_made(holdfast, tmp_path):
    place = str(tmp_path / "bad\udcff" / "holdfast.db")
    for verb in ("status", "verify"):
        answer = holdfast(verb, HOLDFAST_STORE=place)
        assert answer.code == 64 and "bad" in answer.err and "not valid UTF-8" in answer.err
    with pytest.raises(errors.UsageError, match="not valid UTF-8"):
        app.open_store(place)
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_a_password_in_an_address_is_never_shown(holdfast):
    pytest.importorskip("psycopg")
    place = "postgresql://user:hunter2hunter2@127.0.0.1:1/x?connect_timeout=1"
    for arguments in (["status", "--json"], ["doctor", "--json"]):
        answer = holdfast(*arguments, HOLDFAST_STORE=place)
        assert "hunter2" not in answer.out + answer.err


@pytest.mark.parametrize("password", ["hunt?er2", "hunt@er2", "hunt/er2", "hu?nt@er2", "hunt#er2", "a@hunt?er2"])
def test_no_part_of_an_odd_password_is_shown(holdfast, password):
    pytest.importorskip("psycopg")
    place = f"postgresql://user:{password}@127.0.0.1:1/x?connect_timeout=1"
    assert config.Config(place).shown == "postgresql://127.0.0.1:1/x"
    answer = holdfast("status", HOLDFAST_STORE=place)
    assert answer.code in (64, 72)
    assert not {"hunt", "er2"} & set(re.findall("hunt|er2", answer.out + answer.err))


def test_a_bad_witness_setting_is_refused(holdfast):
    answer = holdfast("status", HOLDFAST_WITNESS="sometimes")
    assert answer.code == 64
    assert "lagging or strict" in answer.err


def test_a_linked_store_folder_in_a_repository_is_refused(holdfast, tmp_path):
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    (tmp_path / "repo" / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / "secret").mkdir()
    (tmp_path / "repo" / ".holdfast").symlink_to(tmp_path / "secret")
    answer = holdfast("status", cwd=tmp_path / "repo", HOLDFAST_STORE="")
    assert answer.code == 78
    assert list((tmp_path / "secret").iterdir()) == []


BROKEN = """
import sys
from holdfast.cli import main, overview
from holdfast import cli
def bad(*arguments, **options):
    raise {error}
sys.modules["holdfast.cli.main"].show_status = bad
main(["status"])
"""


def fails_with(holdfast, error: str, **environ: str) -> subprocess.CompletedProcess[str]:
    program = BROKEN.format(error=error)
    return subprocess.run(
        [sys.executable, "-c", program], env=holdfast.environment(**environ), capture_output=True, text=True
    )


def test_the_unexpected_is_one_line_and_an_internal_error(holdfast):
    done = fails_with(holdfast, "ZeroDivisionError('by \\x1b[0m zero')")
    assert done.returncode == stops.exit_code("internal_error") == 90
    assert done.stderr.splitlines()[0] == "holdfast: ZeroDivisionError: by \\x1b[0m zero"
    assert "Traceback" not in done.stderr


def test_a_traceback_is_shown_on_request(holdfast):
    assert "Traceback" in fails_with(holdfast, "ZeroDivisionError()", HOLDFAST_DEBUG="1").stderr


def test_an_interruption_leaves_with_its_own_code(holdfast):
    done = fails_with(holdfast, "KeyboardInterrupt")
    assert done.returncode == stops.exit_code("user_stopped") == 128 + signal.SIGINT
    assert "Traceback" not in done.stderr


def test_a_reader_that_left_is_no_error(holdfast, make_run):
    make_run("run-1")
    for verb in ("status", "stops", "show run-1", "log run-1", "status --all --json", "doctor"):
        command = f"{shlex.quote(sys.executable)} -m holdfast {verb} | true; exit ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", command], env=holdfast.environment(), capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), verb


def test_text_that_the_terminal_cannot_show_does_not_stop_a_command(holdfast, make_run):
    make_run("run-1", title="日本語 \u2713")
    answer = holdfast("status", PYTHONIOENCODING="ascii", PYTHONUTF8="0", LC_ALL="C")
    assert answer.code == 0
    assert "\\u65e5" in answer.out


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ünïcode 日本", "plain ünïcode 日本"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x1b[31m\x9b\x07\x00\x7f", "\\x1b[31m\\x9b\\x07\\x00\\x7f"),
        ("\u202e\u2066\u200b\ufeff\u2028", "\\u202e\\u2066\\u200b\\ufeff\\u2028"),
        ("\ud800\U000e0041", "\\ud800\\U000e0041"),
    ],
)
def test_escaped_text_is_one_harmless_line(text, shown):
    assert escape(text) == shown
    assert escape("x" * 50, 10) == "xxxxxxx..."


# --- every command that is printed as advice parses


def understood(line: str) -> None:
    """Parse a command line down to its verb's own parameters, without running it."""
    words = shlex.split(line, comments=True)
    assert words[0] == "holdfast", line
    try:
        with cli.make_context("holdfast", words[1:]) as context:
            _, verb, rest = cli.resolve_command(context, [*context._protected_args, *context.args])
            assert verb is not None, line
            verb.make_context(verb.name, list(rest), parent=context)
    except click.exceptions.Exit as left:
        assert left.exit_code == 0, line


def quoted_commands(text: str) -> Iterator[str]:
    for found in re.findall(r"`(holdfast [^`]*)`", text):
        yield found.replace("RUN", "run-1")


def all_errors() -> Iterator[type[errors.HoldfastError]]:
    waiting = [errors.HoldfastError]
    while waiting:
        yield (kind := waiting.pop())
        waiting += kind.__subclasses__()


MISSING = {
    "holdfast log": " run-1",
    "holdfast show": " run-1",
    "holdfast export": " run-1 FILE",
    "holdfast import": " FILE",
}


def test_the_advice_of_every_error_parses():
    lines = [line for kind in all_errors() for line in quoted_commands(kind.advice)]
    assert lines
    for line in lines:
        understood(line + MISSING.get(line, ""))


def test_the_next_actions_of_every_stop_parse():
    for stop in stops.all_stops():
        for line in stops.next_actions(stop.code, "run-1"):
            understood(line)


def test_the_fixes_of_doctor_parse():
    source = Path(health.__file__).read_text()
    lines = re.findall(r'"(holdfast [^"{]*)"', source)
    assert len(lines) >= 4
    for line in lines:
        understood(line)


def test_every_verb_is_documented_with_its_options():
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    for name in VERBS:
        assert f"## holdfast {name}" in page, name
        verb = cli.get_command(click.Context(cli), name)
        assert verb is not None and verb.help, name
        for option in verb.params:
            if isinstance(option, click.Option) and not option.hidden:
                assert max(option.opts, key=len) in page.partition(f"## holdfast {name}")[2].partition("\n## ")[0], (
                    name,
                    option.opts,
                )


def documented_commands() -> Iterator[tuple[str, str]]:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for page in pages:
        for block in re.findall(r"```[a-z]*\n(.*?)```", page.read_text(), re.DOTALL) if page.exists() else []:
            for line in block.splitlines():
                command = line.strip().removeprefix("$ ")
                if command.startswith("holdfast "):
                    yield str(page.relative_to(ROOT)), re.split(r" [|>&] | {2,}#| {3,}", command)[0]


def test_every_command_in_the_docs_parses():
    commands = list(documented_commands())
    assert commands
    for page, line in commands:
        if line.split()[1] in LATER or "[" in line or "|" in line:
            continue
        try:
            understood(line)
        except click.ClickException as error:
            pytest.fail(f"{page}: {line}: {error.format_message()}")


def test_perform_returns_the_code_of_a_verb(capsys):
    assert perform(["stops", "complete"]) == 0
    assert perform(["stops", "nothing_known"]) == 66
    assert "complete" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("export run-1 - >&-", "usage_error"),
        ("show run-1 1 --raw >&-", "usage_error"),
        ("export run-1 - >/dev/full", "store_full"),
        ("log run-1 >/dev/full", "store_full"),
        ("status --json >/dev/full", "store_full"),
        ("run -- echo said >/dev/full", "store_full"),
    ],
)
def test_output_that_goes_nowhere_is_no_success(holdfast, make_run, command, reason):
    make_run("run-1")
    line = f"{sys.executable} -m holdfast {command}"
    done = subprocess.run(
        ["/bin/sh", "-c", line], env=holdfast.environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == stops.exit_code(reason), done.stderr
    assert done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["log nobody", "log nobody --json", "resume nobody -- true"])
@pytest.mark.parametrize("stderr", ["2>/dev/full", "2>&-", "2>&1 >/dev/null | true"])
def test_an_error_that_nobody_hears_has_its_exit_code_all_the_same(holdfast, make_run, command, stderr, tmp_path):
    make_run("run-1")
    line = f"{{ sleep 0.3; {sys.executable} -m holdfast {command}; echo $? >&7; }} 7>{tmp_path / 'code'} {stderr}"
    subprocess.run(["/bin/sh", "-c", line], env=holdfast.environment(), stdout=subprocess.DEVNULL, check=True)
    assert (tmp_path / "code").read_text() == f"{stops.exit_code('not_found')}\n"


def test_an_export_whose_reader_goes_away_is_no_success(holdfast, make_run):
    make_run("run-1", steps=2000)
    process = holdfast.start("export", "run-1", "-")
    assert process.stdout is not None and process.stderr is not None
    assert "holdfast_export" in process.stdout.readline()
    process.stdout.close()
    with process.stderr:
        said = process.stderr.read()
    assert process.wait(timeout=20) == stops.exit_code("bad_input")
    assert "standard output" in said and "Traceback" not in said

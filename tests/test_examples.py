"""The examples as a new user tries them: started, killed by hand at random moments, started again."""

from __future__ import annotations

import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import holdfast
from holdfast.core.agents import shipped
from holdfast.core.settings import read
from holdfast.spec_agents import known_profiles
from holdfast.testing.scripted_agent import read_ledger

EXAMPLES = Path(__file__).parent.parent / "examples"
TRANSLATE = EXAMPLES / "translate.py"
SPEC = EXAMPLES / "spec"
GUIDE = Path(__file__).parent.parent / "docs" / "howto" / "run.md"
CHAPTERS = 8


def start(book, pause):
    command = [sys.executable, str(TRANSLATE), str(book), str(pause)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=book.parent)


def is_finished(book):
    if not (book / "holdfast.db").exists():
        return False
    with holdfast.open_store(str(book / "holdfast.db"), read_only=True) as store:
        return any(head.projection.status == "finished" for head in store.heads())


def published(book):
    """How often the book was published, over all runs, of which there is one."""
    with holdfast.open_store(str(book / "holdfast.db"), read_only=True) as store:
        assert len(list(store.heads())) == 1
    return (book / "published.txt").read_text().count("---")


@pytest.mark.parametrize("seed", range(3))
def test_the_example_survives_kills(tmp_path, seed):
    chance = random.Random(seed)
    book = tmp_path / "book"
    said, kills = [], 0
    ended = False
    while not ended:
        process = start(book, 0.1 if kills < 4 else 0.0)
        time.sleep(0.25 + chance.random() * 0.5)
        if kills < 4:
            process.send_signal(signal.SIGKILL)
        out, _ = process.communicate(timeout=60)
        said += out.splitlines()
        kills += process.returncode == -signal.SIGKILL
        assert process.returncode in (0, -signal.SIGKILL), out
        ended = process.returncode == 0
    assert kills > 0 and published(book) == 1
    with holdfast.open_store(str(book / "holdfast.db"), read_only=True) as store:
        heads = list(store.heads())
        finished = [record for record in store.read(heads[0].run_id) if record.kind == "step_finished"]
        assert holdfast.verify_run(store, heads[0].run_id).findings == ()
    assert len(finished) == CHAPTERS + 1
    assert sum(line.startswith("translating") for line in said) <= CHAPTERS + kills


def test_the_example_survives_a_kill_after_its_last_event_and_one_start_too_many(tmp_path):
    book = tmp_path / "book"
    process = start(book, 0.01)
    while not is_finished(book):
        assert process.poll() in (None, 0)
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    for _ in range(2):
        again = start(book, 0.01)
        out, _ = again.communicate(timeout=60)
        assert (again.returncode, out.startswith("done: run "), published(book)) == (0, True, 1), out


def test_the_example_passes_our_own_crash_tester(tmp_path):
    (tmp_path / "world").mkdir()
    command = [
        sys.executable,
        "-m",
        "holdfast",
        "killtest",
        "--world",
        "world",
        "--",
        sys.executable,
        str(TRANSLATE),
        "book",
    ]
    done = subprocess.run([*command, "0"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_about_the_example_shows_its_code_and_commands_that_work(tmp_path):
    page = (EXAMPLES.parent / "docs" / "howto" / "durable-steps.md").read_text()
    shown = re.findall(r"^```py\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert len(shown) == 2 and all(block in TRANSLATE.read_text() for block in shown)
    start(tmp_path / "book", 0).communicate(timeout=60)
    commands = re.findall(r"^HOLDFAST_STORE=book holdfast (.*)$", page, re.MULTILINE)
    for words in commands:
        command = [sys.executable, "-m", "holdfast", *shlex.split(words)]
        environ = os.environ | {"HOLDFAST_STORE": "book"}
        done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
        assert (done.returncode, "moby-dick" in done.stdout or "run_started" in done.stdout) == (0, True), done
    assert len(commands) == 2


def test_the_example_is_short():
    assert len(TRANSLATE.read_text().splitlines()) <= 55


# --- a spec


def at_home(home):
    """A user who never configured git, and trusts nothing yet."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "GIT_", "XDG_"))}
    return kept | {"HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": str(home / "none")}


@pytest.mark.crash
def test_the_spec_is_run_killed_and_resumed_by_the_commands_that_are_printed(tmp_path):
    environ = at_home(tmp_path)
    made = subprocess.run(
        ["sh", str(SPEC / "try.sh"), str(tmp_path / "new")], env=environ, capture_output=True, text=True, check=True
    )
    enter, trust, run, resume = (shlex.split(line, comments=True) for line in made.stdout.splitlines())
    top = Path(enter[1])

    def typed(*words):
        return subprocess.run(words, cwd=top, env=environ, capture_output=True, text=True, timeout=60, check=False)

    assert typed(*trust).returncode != 0  # nobody is there to be asked
    assert typed(*trust, "--yes").returncode == 0
    with subprocess.Popen(run, cwd=top, env=environ, text=True, stderr=subprocess.PIPE) as first:
        assert any("batch-1/T1/implement" in line for line in first.stderr)
        time.sleep(0.4)
        first.kill()
    done = typed(*resume)
    assert (done.returncode, done.stdout.partition(":")[0]) == (0, "finished"), done.stderr
    assert "batch-1/T1/test" not in done.stderr
    log = subprocess.run(["git", "log", "--format=%s"], cwd=top, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"batch (\d) of 2", log) == ["2", "1"]
    ends = [line["task"] for line in read_ledger(str(tmp_path / "new" / "ledger.jsonl")) if line["act"] == "finish"]
    assert sorted(task for task in ends if task.startswith("T")) == ["T1", "T1", "T2", "T2", "T3", "T3"]


def test_the_example_refuses_a_folder_that_is_there(tmp_path):
    done = subprocess.run(["sh", str(SPEC / "try.sh"), str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "Name a new folder" in done.stderr


@pytest.mark.parametrize("commented", [True, False])
def test_the_settings_to_copy_are_allowed_with_and_without_their_comments(commented):
    text = (SPEC / "holdfast.toml").read_text()
    shown = text if commented else re.sub(r"^# (?=\[|\w+ = )", "", text, flags=re.MULTILINE)
    values = read(shown.encode(), "holdfast.toml").values
    assert ("agents" in values) is not commented
    assert values["run"]["agent"] == "codex"


def test_the_guide_has_a_row_for_every_agent_and_settings_that_are_allowed():
    guide = GUIDE.read_text()
    assert re.findall(r"^\| `(\w+)` \| `\1 ", guide, re.MULTILINE) == list(shipped())
    blocks = re.findall(r"```toml\n(.*?)```", guide, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        assert known_profiles(read(block.encode(), "holdfast.toml").values.get("agents", {}))


def test_the_spec_the_table_and_the_agent_of_the_guide_are_enough(tmp_path):
    """What a newcomer copies from the guide: its spec, its table of an agent, and the agent."""
    guide, top, environ = GUIDE.read_text(), tmp_path / "project", at_home(tmp_path)
    (spec,) = re.findall(r"```yaml\n# (specs/\S+)\n(.*?)```", guide, re.DOTALL)
    (agent,) = re.findall(r"```sh\n(.*?)```", guide, re.DOTALL)
    table = re.findall(r"```toml\n(.*?)```", guide, re.DOTALL)[1]
    files = {spec[0]: spec[1], "holdfast.toml": f'[run]\nagent = "mine"\n\n{table}', "../bin/my-agent": agent}
    for name, text in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    (top / "../bin/my-agent").chmod(0o755)
    environ |= {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{environ['PATH']}"}
    author = ["-c", "user.name=You", "-c", "user.email=you@localhost"]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], [*author, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", *words], cwd=top, env=environ, check=True)
    environ |= {f"GIT_{who}_{what}": "you@localhost" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    command = [sys.executable, "-m", "holdfast", "run", "auth-system", "--yes"]
    done = subprocess.run(command, cwd=top, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.partition(":")[0]) == (0, "finished"), done.stderr
    assert {path.name for path in top.iterdir()} >= {"AUTH-1.txt", "AUTH-2.txt", "test-AUTH-1", "test-AUTH-2"}
    assert not (top / "prompt.txt").exists()


def test_the_example_says_what_it_needs_first(tmp_path):
    (tmp_path / "examples").mkdir()
    shutil.copytree(SPEC, tmp_path / "examples" / "spec")
    environ = {**os.environ, "PATH": "/usr/bin:/bin", "PYTHONPATH": ""}
    command = ["sh", str(tmp_path / "examples" / "spec" / "try.sh"), str(tmp_path / "new")]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, f"First `make setup` in {tmp_path}.\n")

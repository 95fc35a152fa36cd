"""What the two most frequent paths load: `holdfast status`, and recording one event as a hook does."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

SLOW = {
    "_hashlib", "asyncio", "backports.zstd", "click", "dataclasses", "inspect", "msgspec", "psycopg", "re2", "rfc8785", "rich",
    "typing_extensions", "uuid_utils",
}  # fmt: skip
# all that recording may load beyond what Python itself has loaded: the libraries it needs, and the small parts of Python
TO_RECORD = {
    "apsw", "binascii", "collections", "contextlib", "datetime", "decimal", "encodings", "errno", "fcntl", "holdfast",
    "importlib", "math", "msgspec", "numbers", "re2", "struct", "threading", "typing", "uuid", "warnings", "zlib",
}  # fmt: skip
ROOMS_TO_RECORD = {"adapters", "app", "config", "core", "engine", "stores"}
NOT_TO_RECORD = {"_hashlib", "asyncio", "click", "psycopg", "rich", "uuid_utils", "rfc8785"}

STATUS = """
import json, sys
from holdfast.cli.main import perform
code = perform(sys.argv[1:])
print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)
"""
NOTHING = """
import json, sys
print(json.dumps([0, sorted(sys.modules)]), file=sys.stderr)
"""
RECORD = """
import json, sys
from holdfast import app
from holdfast.core.events import NoteRecorded
app.record("run-1", NoteRecorded(text="from a hook"))
print(json.dumps([0, sorted(sys.modules)]), file=sys.stderr)
"""
RESUME = """
import json, sys, holdfast

def work(number):
    return number

with holdfast.run("mission", run_id="run-1") as run:
    for number in range(4):
        run.step(f"step-{number}", work, number)
    print(json.dumps([0, sorted(sys.modules)]), file=sys.stderr)
    raise SystemExit(0)
"""
NOT_TO_GO_ON = NOT_TO_RECORD | {
    "holdfast.core.checkpoint", "holdfast.core.plan", "holdfast.core.redact", "holdfast.engine.effects", "holdfast.engine.marks",
    "holdfast.ports", "holdfast.testing", "inspect", "re2", "signal",
}  # fmt: skip


def loaded(holdfast, program: str, *arguments: str) -> set[str]:
    """What it has loaded in the end, measured without what `make coverage` puts into each process."""
    environ = {name: value for name, value in holdfast.environment().items() if not name.startswith("COVERAGE_")}
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    code, modules = json.loads(done.stderr)
    assert code == 0
    return set(modules)


@pytest.mark.parametrize("arguments", [["status"], ["status", "--json"]])
def test_status_loads_nothing_slow(holdfast, make_run, arguments):
    make_run("run-1")
    modules = loaded(holdfast, STATUS, *arguments)
    assert "holdfast.stores.sqlite" in modules
    assert SLOW & modules == set()


def test_status_with_options_loads_the_parser_and_nothing_else(holdfast, make_run):
    make_run("run-1")
    assert SLOW & loaded(holdfast, STATUS, "status", "--all") <= {"click", "inspect"}


def test_recording_one_event_loads_no_command_line_and_no_server(holdfast, make_run):
    make_run("run-1")
    modules = loaded(holdfast, RECORD)
    assert "msgspec" in modules
    assert NOT_TO_RECORD & modules == set()
    assert [line for line in holdfast("log", "run-1").out.splitlines() if "from a hook" in line]


def test_recording_one_event_loads_what_it_needs_and_nothing_else(holdfast, make_run):
    make_run("run-1")
    modules = loaded(holdfast, RECORD) - loaded(holdfast, NOTHING)
    packages = {name.partition(".")[0] for name in modules}
    assert {name for name in packages if not name.startswith("_")} <= TO_RECORD
    assert {name.split(".")[1] for name in modules if name.startswith("holdfast.")} <= ROOMS_TO_RECORD
    assert {name for name in modules if name.startswith(("holdfast.engine.", "holdfast.adapters."))} == {
        "holdfast.adapters.system", "holdfast.engine.log",
    }  # fmt: skip
    assert {"importlib.metadata", "importlib.resources"} & modules == set()


def test_a_run_goes_on_to_its_first_new_step_with_little(holdfast):
    subprocess.run([sys.executable, "-c", RESUME], env=holdfast.environment(), check=True)
    modules = loaded(holdfast, RESUME, "again")
    assert "holdfast.engine.steps" in modules
    assert NOT_TO_GO_ON & modules == set()


def test_a_verb_loads_only_itself(holdfast, make_run):
    make_run("run-1")
    modules = loaded(holdfast, STATUS, "log", "run-1")
    assert {name for name in modules if name.startswith("holdfast.cli.")} <= {
        "holdfast.cli.log", "holdfast.cli.main", "holdfast.cli.output", "holdfast.cli.overview", "holdfast.cli.render",
        "holdfast.cli.verbs",
    }  # fmt: skip
    assert {"msgspec", "rich", "psycopg"} & modules == set()


def test_running_a_spec_loads_nothing_that_is_slow_and_not_needed(holdfast):
    program = "from holdfast.cli.loading import load; import json, sys; load('holdfast.spec_run'); "
    program += "print(json.dumps([0, sorted(sys.modules)]), file=sys.stderr)"
    modules = loaded(holdfast, program)
    assert "holdfast.adapters.processes" in modules
    assert {"asyncio", "click", "dataclasses", "inspect", "psutil", "psycopg", "rich", "socket"} & modules == set()


def test_importing_the_package_loads_none_of_it(holdfast):
    program = "import json, sys, holdfast; print(json.dumps([0, sorted(sys.modules)]), file=sys.stderr)"
    assert {name for name in loaded(holdfast, program) if name.startswith("holdfast.")} == set()

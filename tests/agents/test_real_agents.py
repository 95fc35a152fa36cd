"""Two real agents are driven end to end, killed in the middle of a tool call and resumed; no effect of a tool happens twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import datetime

import psutil
import pytest

from holdfast.adapters.processes import read_record
from holdfast.testing.model_server import ModelServer, Turn
from tests.agents.work import KEY, PROGRAMS, ROOT, agents, ask

DONE = {"codex": Turn(say="FINISHED"), "mini": Turn(run="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")}
SECONDS = 120  # of the tool call that is cut off
SOON = int(time.time()) + 7200
PATIENCE = 90  # a loaded machine takes long to start an agent


class Installed:
    """Whether an agent is there."""

    def __init__(self, agent):
        self.program = PROGRAMS[agent]
        self.why = f"{agent} is not installed; `sh tools/install-agents` installs it where npm and pip can"

    def __bool__(self):
        return os.access(self.program, os.X_OK)


@pytest.fixture(params=["codex", "mini"])
def agent(request, skip_or_fail):
    skip_or_fail(Installed(request.param))
    return request.param


@pytest.fixture
def codex(skip_or_fail):
    skip_or_fail(Installed("codex"))
    return "codex"


def turns(folder, agent, seconds):
    """Three steps, each of which leaves a line in the ledger, then a report."""
    ledger = folder / "ledger"
    desk = agents(folder, "http://127.0.0.1:1")
    report = json.dumps({"report_id": desk.report_id(KEY), "status": "success", "implementation_files": ["a.py"]})
    return [
        Turn(run=f"echo step1 >> {ledger}"),
        Turn(run=f"echo step2begin >> {ledger}; sleep {seconds}; echo step2end >> {ledger}"),
        Turn(run=f"echo step3 >> {ledger}; echo 'x = 1' > a.py"),
        Turn(run=f"echo '{report}' > {desk.stage(KEY)}/report.json"),
        DONE[agent],
    ]


def ledger_of(folder):
    path = folder / "ledger"
    return path.read_text().split() if path.exists() else []


def test_it_works_and_reports(tmp_path, agent):
    with ModelServer(turns(tmp_path, agent, 0)) as server:
        answered = ask(tmp_path, agent, server.url, "- Do the three steps.")
        assert answered.report is not None and answered.report.implementation_files == ("a.py",), answered
        assert [one.turn for one in server.asked] == [0, 1, 2, 3, 4]
        assert "- Do the three steps." in json.dumps(server.asked[0].body)
    assert ledger_of(tmp_path) == ["step1", "step2begin", "step2end", "step3"]
    assert (tmp_path / "work" / "a.py").read_text() == "x = 1\n"
    assert bool(answered.session) == (agent == "codex") and bool(answered.tokens) == (agent == "codex")


def start_and_kill(folder, agent, url, whole_tree):
    """Kill -9 in the middle of the second step: this side alone, or with everything that it started."""
    command = [sys.executable, "-m", "tests.agents.work", str(folder), agent, url, "Do the three steps."]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as parent:
        end = time.monotonic() + PATIENCE
        while "step2begin" not in ledger_of(folder):
            assert parent.poll() is None and time.monotonic() < end, "the second step never began"
            time.sleep(0.02)
        below = psutil.Process(parent.pid).children(recursive=True)
        for process in [psutil.Process(parent.pid), *(below if whole_tree else ())]:
            process.kill()
    if whole_tree:
        psutil.wait_procs(below, 10)
    return below


def killed_and_resumed(folder, agent, whole_tree):
    """What is left after the kill is looked at, and the agent goes on: in its session, or by the brief."""
    brief = "Proved done: step1. Begun, and nobody knows how far it came: step2. Do not begin it again."
    reads = (lambda request: 2 if brief in request else 0) if agent == "mini" else (lambda request: 0)
    with ModelServer(turns(folder, agent, SECONDS), reads) as server:
        below = start_and_kill(folder, agent, server.url, whole_tree)
        desk = agents(folder, server.url)
        left = desk.left(KEY, "implement")
        assert left.report is None and left.unsure is None and left.agent == agent
        assert bool(left.session) == (agent == "codex") and bool(left.evidence) == (not whole_tree)
        assert not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in below)
        asked = len(server.asked)
        answered = ask(folder, agent, server.url, f"Go on. {brief}", left.session)
        assert answered.report is not None and answered.report.status == "success", answered
        assert [one.turn for one in server.asked[asked:]] == [2, 3, 4], "no turn of the model is paid for twice"
    assert ledger_of(folder) == ["step1", "step2begin", "step3"]
    assert answered.session == left.session and read_record(desk.stage(KEY)).ended


def test_after_a_kill_of_the_whole_tree_in_a_tool_call_nothing_happens_twice(tmp_path, agent, record_property):
    killed_and_resumed(tmp_path, agent, whole_tree=True)
    record_property("told", f"{agent}: killed in the middle of a tool call, resumed; no effect of a tool twice")


def test_an_agent_that_outlived_us_is_ended_before_it_is_resumed(tmp_path, codex):
    killed_and_resumed(tmp_path, codex, whole_tree=False)


@pytest.mark.parametrize(
    ("turn", "trouble"),
    [
        (Turn(status=429, error={"type": "usage_limit_reached", "plan_type": "pro", "resets_at": SOON}), "quota"),
        (Turn(say="slow down", status=429, headers={"Retry-After": "90"}), "rate_limit"),
        (Turn(say="Incorrect API key provided", status=401), "auth"),
        (Turn(say="bad gateway", status=502), "network"),
    ],
)
def test_what_a_provider_refuses_is_understood(tmp_path, codex, turn, trouble):
    with ModelServer([turn]) as server:
        answered = ask(tmp_path, codex, server.url, "Do it.")
    assert (answered.report, answered.trouble) == (None, trouble), answered.output.decode()
    if trouble == "quota":
        assert SOON <= datetime.fromisoformat(answered.resets_at).timestamp() < SOON + 60


def test_a_session_that_is_gone_is_started_anew(tmp_path, codex):
    with ModelServer(turns(tmp_path, codex, 0)) as server:
        answered = ask(tmp_path, codex, server.url, "Do it.", "01a1e55d-47b6-7fc3-98af-af2670d11321")
    assert answered.report is not None and answered.session not in (None, "01a1e55d-47b6-7fc3-98af-af2670d11321")

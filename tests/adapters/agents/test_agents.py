"""An agent gets its work, its report is read, its complaint understood; and what a dead process left is found after it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from datetime import UTC, datetime

import msgspec
import pytest

from holdfast.adapters.agents.agents import Agents
from holdfast.adapters.agents.installed import find_program, is_there
from holdfast.adapters.agents.runner import CannotStart
from holdfast.adapters.agents.work import zone
from holdfast.adapters.processes import read_record
from holdfast.core.agents import profile_from, shipped_profile
from holdfast.core.errors import NotFound
from holdfast.core.limits import MAX_EVIDENCE
from holdfast.core.redact import Redactor
from holdfast.core.reports import instructions
from holdfast.ports.spec import Ask, Left
from holdfast.testing.scripted_agent import read_ledger, table
from tests.adapters.agents.kit import NO_SECRETS, finish, is_alive, profile, python, run_of, script, wait_until

SUCCESS = {"do": "report", "with": {"status": "success", "implementation_files": ["{task}.py"]}}


class Desk:
    """Agents of one run in a temporary folder, with one that plays a script."""

    def __init__(self, folder, *acts, redactor=NO_SECRETS, environ=None, **named):
        self.folder = folder
        (folder / "work").mkdir(exist_ok=True)
        profiles = {"scripted": profile(folder, *acts, **named)}
        self.agents = Agents(profiles, run_of(folder), str(folder / "stages"), environ or os.environ, redactor)
        self.lines = []

    def ask(self, key="k-1", should_stop=lambda: False, **more):
        wanted = Ask(key, "implement", "scripted", "Do it.", str(self.folder / "work"), "T1", timeout=30.0)
        return self.agents.ask(wanted._replace(**more), self.lines.append, should_stop)

    @property
    def ledger(self):
        return [line["act"] for line in read_ledger(str(self.folder / "ledger"))]

    def stage(self, name, key="k-1"):
        return os.path.join(self.agents.stage(key), name)

    def text(self, name, key="k-1"):
        with open(self.stage(name, key)) as file:
            return file.read()


def test_work_is_done_and_reported(tmp_path):
    desk = Desk(
        tmp_path, {"do": "write", "path": "{task}.py", "text": "x = 1\n"}, {"do": "say", "text": "cost: 0.25"}, SUCCESS
    )
    answered = desk.ask()
    assert answered.report.status == "success" and answered.report.implementation_files == ("T1.py",)
    assert (answered.trouble, answered.why, answered.ended_by, answered.money) == (None, "", "exit", 0.25)
    assert answered.session.startswith("scripted-") and answered.session.encode() in answered.output
    assert (tmp_path / "work" / "T1.py").read_text() == "x = 1\n" and desk.text("prompt.txt") == "Do it."


def test_a_report_may_come_in_the_output_and_an_echo_of_the_prompt_is_not_one(tmp_path):
    desk = Desk(tmp_path, {"do": "echo"}, {**SUCCESS, "to": "output"}, {"do": "echo"})
    prompt = "Do it.\n" + desk.agents.report_instructions("implement", "k-1")
    assert desk.ask(prompt=prompt).report.status == "success"
    silent = Desk(tmp_path, {"do": "echo"})
    answered = silent.ask("k-2", prompt=prompt)
    assert answered.report is None and answered.trouble is None and answered.why


def test_the_instructions_name_the_place_and_the_id_of_this_key(tmp_path):
    agents = Desk(tmp_path).agents
    told = agents.report_instructions("review", "k-1")
    assert told == instructions("review", agents.report_id("k-1"), os.path.join(agents.stage("k-1"), "report.json"))
    assert agents.report_id("k-1") != agents.report_id("k-2") and agents.stage("k-1") != agents.stage("../k-1")


def test_an_old_report_is_never_taken(tmp_path):
    desk = Desk(
        tmp_path, [SUCCESS], [{"do": "say", "text": "nothing"}], **{"*": [[SUCCESS], [{"do": "say", "text": "no"}]]}
    )
    assert desk.ask("k-1").report is not None
    assert desk.ask("k-1").report is None, "the file of the first try is gone before the second begins"
    wrong = Desk(tmp_path, {**SUCCESS, "id": "another"})
    assert "report_id" in wrong.ask("k-9").why


@pytest.mark.parametrize(
    ("acts", "trouble", "words"),
    [
        ([{"do": "limit"}], "quota", "usage limit"),
        ([{"do": "limit", "text": "ERROR: 429 Too Many Requests. Retry-After: 60"}], "rate_limit", "429"),
        ([{"do": "limit", "text": "Error: Not logged in"}], "auth", "logged in"),
        ([{"do": "limit", "text": "Error: connect ECONNREFUSED 127.0.0.1:1"}], "network", "ECONNREFUSED"),
        ([{"do": "say", "text": "boom"}, {"do": "crash", "code": 3}], "crash", "boom"),
        ([{"do": "crash", "signal": signal.SIGSEGV}], "crash", "SIGSEGV"),
        ([{"do": "say", "text": "Rate limit exceeded is now handled."}], None, "no report"),
    ],
)
def test_what_went_wrong_is_told_by_its_kind(tmp_path, acts, trouble, words):
    answered = Desk(tmp_path, *acts).ask()
    assert (answered.report, answered.trouble) == (None, trouble) and words in answered.why
    assert (answered.resets_at is not None) == (trouble in ("quota", "rate_limit"))


def test_a_usage_limit_says_when_it_ends(tmp_path):
    answered = Desk(tmp_path, {"do": "limit"}).ask()
    wait = datetime.fromisoformat(answered.resets_at) - datetime.now(UTC)
    assert 7900 < wait.total_seconds() < 8000


def test_a_report_counts_although_the_agent_then_failed(tmp_path):
    answered = Desk(tmp_path, SUCCESS, {"do": "crash", "code": 1}).ask()
    assert answered.report is not None and answered.trouble is None
    answered = Desk(tmp_path, SUCCESS, {"do": "hang"}).ask("k-2", stall_after=1.0)
    assert answered.report is not None and answered.ended_by == "stalled"


def test_one_that_is_ended_says_so(tmp_path):
    began = time.monotonic()
    answered = Desk(tmp_path, {"do": "hang"}).ask(should_stop=lambda: time.monotonic() - began > 0.3)
    assert (answered.ended_by, answered.trouble) == ("stopped", None) and "asked to stop" in answered.why


def test_it_goes_on_with_its_session_and_starts_anew_if_that_is_gone(tmp_path):
    desk = Desk(tmp_path, SUCCESS)
    assert desk.ask(session="s-7").session == "s-7"
    gone = [{"do": "complain", "text": "Error: session s-7 does not exist"}, {"do": "crash"}]
    desk = Desk(tmp_path, **{"*": [gone, [SUCCESS]], "implement/T2": [gone, [SUCCESS]]})
    answered = desk.ask("k-2", task="T2", session="s-7")
    assert answered.report is not None and answered.session.startswith("scripted-")


def test_what_an_agent_counts_over_a_whole_session_is_counted_once(tmp_path):
    lists = [
        [{"do": "say", "text": f"cost: {cost}"}, SUCCESS, {"do": "crash", "code": 0}] for cost in (0.25, 0.75, 0.5)
    ]
    mine = {**table(script(tmp_path, **{"*": lists})), "whole_session": ["money"]}
    (tmp_path / "work").mkdir()
    agents = Agents({"x": profile_from(mine, "x")}, run_of(tmp_path), str(tmp_path / "stages"), os.environ, NO_SECRETS)
    asked = Ask("k-1", "implement", "x", "Do it.", str(tmp_path / "work"), "T1")
    first = agents.ask(asked, print, bool)
    again = agents.ask(asked._replace(session=first.session), print, bool)
    other = agents.ask(asked._replace(session="another"), print, bool)
    assert (first.money, again.money, other.money) == (0.25, 0.5, 0.5)


def test_an_old_document_of_an_agent_is_not_read_again(tmp_path):
    stages = tmp_path / "stages"
    code = 'test -e "$1/doc" && exit 3; echo \'{"cost": 0.5}\' > "$1/doc"; test -e once && exit 1; touch once'
    mine = {"start": ["sh", "-c", code, "{prompt}", "{folder}"], "output": "json", "output_file": "{folder}/doc"}
    (tmp_path / "work").mkdir()
    profiles = {"x": profile_from({**mine, "money": [{"path": "cost"}]}, "x")}
    agents = Agents(profiles, run_of(tmp_path), str(stages), os.environ, NO_SECRETS)
    asked = Ask("k-1", "implement", "x", "Do it.", str(tmp_path / "work"), "T1")
    assert agents.ask(asked, print, bool).money == 0.5
    assert "exited with 1" in agents.ask(asked, print, bool).why


def test_only_what_means_something_is_shown_of_an_agent_that_talks_to_programs(tmp_path):
    acts = [{"do": "say", "text": "at: hunter2-hunter2"}, {"do": "sleep", "seconds": 0.4}, SUCCESS]
    mine = {**table(script(tmp_path, *acts)), "progress": [{"after": "at: "}]}
    (tmp_path / "work").mkdir()
    redactor, lines = Redactor(["hunter2-hunter2"]), []
    agents = Agents({"x": profile_from(mine, "x")}, run_of(tmp_path), str(tmp_path / "stages"), os.environ, redactor)
    agents.ask(Ask("k-1", "implement", "x", "Do it.", str(tmp_path / "work"), "T1"), lines.append, bool)
    assert lines == ["[redacted:env]"]


def test_secrets_are_on_no_file_and_in_no_answer(tmp_path):
    secret = "hunter2-hunter2"
    acts = [
        {"do": "say", "text": f"key {secret}"},
        {"do": "report", "with": {"status": "blocked", "blocked_reason": f"no {secret}"}},
        {"do": "complain", "text": f"Error: {secret}"},
    ]
    desk = Desk(tmp_path, *acts, redactor=Redactor([secret]))
    answered = desk.ask(prompt=f"Use {secret}.")
    assert answered.report.blocked_reason == "no [redacted:env]" and secret not in repr(answered) + repr(desk.lines)
    for folder, _, files in os.walk(tmp_path / "stages"):
        for name in files:
            with open(os.path.join(folder, name)) as file:
                assert secret not in file.read(), name


def test_a_secret_in_what_an_agent_ended_with_is_taken_out_before_that_is_cut_short(tmp_path):
    secret = "gh" + "p_" + "a1B2c3D4e5" * 3 + "F6g7H8"
    said = f"Error: {'x' * (MAX_EVIDENCE - 30)} {secret} is not known"
    answered = Desk(tmp_path, {"do": "complain", "text": said}, {"do": "crash"}).ask()
    assert answered.why.endswith("xxx [redacted:github_token")
    assert secret[:6] not in repr(answered)


def test_a_broken_report_is_redacted_too(tmp_path):
    secret = "hunter2-hunter2"
    command = ["sh", "-c", f'echo "{{ {secret}" > "$HOLDFAST_REPORT"']
    desk = Desk(tmp_path, {"do": "run", "argv": command}, redactor=Redactor([secret]))
    assert desk.ask().report is None and secret not in desk.text("report.json")


def test_what_an_agent_wrote_without_a_report_that_counts_is_handed_on_redacted_and_bounded(tmp_path, monkeypatch):
    secret, stages = "hunter2-hunter2", tmp_path / "stages"
    wrote = f'echo "{{ {secret}" > "$HOLDFAST_REPORT"; echo \'{{"a": "{secret}"}}\' > "$1/doc"; kill -9 $$'
    code = f"test -e once && exit 1; touch once; {wrote}"
    mine = {"start": ["sh", "-c", code, "{prompt}", "{folder}"], "output": "json", "output_file": "{folder}/doc"}
    (tmp_path / "work").mkdir()
    profiles, redactor = {"x": profile_from(mine, "x")}, Redactor([secret])
    agents = Agents(profiles, run_of(tmp_path), str(stages), os.environ, redactor)
    asked = Ask("k-1", "implement", "x", "Do it.", str(tmp_path / "work"), "T1")
    wanted = (("report.json", b"{ [redacted:env]\n"), ("doc", b'{"a": "[redacted:env]"}\n'))
    assert agents.ask(asked, print, bool).files == agents.left("k-1", "implement").files == wanted
    monkeypatch.setattr("holdfast.adapters.agents.work.MAX_KEPT", 4)
    assert [data[:6] for _, data in agents.left("k-1", "implement").files] == [b"{ [r\n[", b'{"a"\n[']
    assert agents.ask(asked, print, bool).files == (), "what an earlier try wrote is not this one's"
    assert agents.left("k-2", "implement").files == ()


def test_what_an_agent_wrote_beside_a_report_that_counts_is_no_loose_end(tmp_path):
    desk = Desk(tmp_path, SUCCESS)
    assert (desk.ask().files, desk.agents.left("k-1", "implement").files) == ((), ())


def test_its_environment_is_the_users_without_what_is_ours(tmp_path):
    mine = {
        "HOLDFAST_RUN": "x",
        "HOLDFAST_YES": "1",
        "HOLDFAST_PLAN": "p",
        "GIT_DIR": "/x",
        "MINE": "kept",
        "HOLDFAST_STORE": "s",
    }
    command = ["sh", "-c", "env > env.txt"]
    desk = Desk(tmp_path, {"do": "run", "argv": command}, SUCCESS, environ={**os.environ, **mine})
    desk.ask(key="k\0-1", task="T\0 1")
    told = dict(line.split("=", 1) for line in (tmp_path / "work" / "env.txt").read_text().splitlines() if "=" in line)
    ours = {"HOLDFAST_RUN", "HOLDFAST_YES", "HOLDFAST_PLAN", "HOLDFAST_STORE", "GIT_DIR", "HOLDFAST_GATE"}
    assert not ours & told.keys()
    assert (told["MINE"], told["HOLDFAST_AGENT_RUN"]) == ("kept", run_of(tmp_path))
    assert (told["HOLDFAST_PHASE"], told["HOLDFAST_TASK"], told["HOLDFAST_EFFECT_KEY"]) == ("implement", "T 1", "k-1")
    assert told["HOLDFAST_REPORT_ID"] == desk.agents.report_id("k\0-1") and told["PWD"] == str(tmp_path / "work")


def test_an_unknown_agent_or_a_missing_program_is_said(tmp_path):
    desk = Desk(tmp_path)
    with pytest.raises(NotFound):
        desk.ask(agent="nobody")
    with pytest.raises(CannotStart, match="no such program"):
        find_program("holdfast-no-such-agent", "/", os.environ)
    (tmp_path / "work" / "tool").write_text("#!/bin/sh\n")
    os.chmod(tmp_path / "work" / "tool", 0o755)
    assert find_program("./tool", str(tmp_path / "work"), os.environ).endswith("work/./tool")
    with pytest.raises(CannotStart):
        find_program("tool", str(tmp_path / "work"), {"PATH": ".:" + os.environ["PATH"]})


def test_whether_an_agent_is_there_and_which(tmp_path):
    mine = table(script(tmp_path))
    assert is_there(profile_from(mine, "mine"), os.environ) == "scripted-agent 1"
    assert is_there(profile_from({**mine, "version": []}, "mine"), os.environ) == "unknown"
    assert (
        is_there(profile_from({**mine, "version": ["x", "-c", "raise SystemExit(1)"]}, "mine"), os.environ) == "unknown"
    )
    assert is_there(profile_from({"start": ["holdfast-no-such", "{prompt}"]}, "mine"), os.environ) is None
    assert is_there(shipped_profile("codex"), {"PATH": str(tmp_path)}) is None


def test_a_version_that_never_comes_does_not_keep_us(tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.adapters.agents.installed.PATIENCE", 0.3)
    mine = {"start": ["sleep", "{prompt}"], "version": ["sleep", "60"]}
    began = time.monotonic()
    assert is_there(profile_from(mine, "mine"), os.environ) == "unknown" and time.monotonic() - began < 10


def test_zones():
    assert zone("") is not None and zone("Nowhere/At_All") is None and zone("../etc/passwd") is None


# --- after a kill

PARENT = """
import json, sys
from pathlib import Path
from tests.adapters.agents.test_agents import Desk

folder, acts = Path(sys.argv[1]), json.loads(sys.argv[2])
print(Desk(folder, *acts).ask(), flush=True)
"""


def killed(folder, *acts, when):
    """Work whose parent was killed at a moment, as a new process finds it."""
    parent = python(PARENT, folder, json.dumps(acts))
    desk = Desk(folder, *acts)
    try:
        wait_until(lambda: when(desk))
    finally:
        finish(parent)
    return desk


def test_nothing_was_begun():
    assert Agents({}, "r", "/nowhere/at/all", {}, NO_SECRETS).left("k", "test") == Left()


def test_a_killed_run_leaves_its_session_and_its_agent_is_ended(tmp_path):
    acts = ({"do": "half", "path": "a.py", "text": "x = 1\ny = 2\n"}, {"do": "hang"})
    noted = lambda desk: os.path.exists(desk.stage("session.json")) and "scripted-" in desk.text("session.json")  # noqa: E731
    desk = killed(tmp_path, *acts, when=lambda desk: "half" in desk.ledger and noted(desk))
    pid = read_record(desk.agents.stage("k-1")).pid
    assert is_alive(pid)
    left = desk.agents.left("k-1", "implement")
    assert not is_alive(pid) and f"process {pid}" in left.evidence[0] and left.unsure is None and left.report is None
    assert left.session == f"scripted-{pid}" and left.agent == "scripted"
    assert (tmp_path / "work" / "a.py").read_text() == "x = 1\n", "its half-done edits are kept"


def test_a_report_that_was_delivered_before_the_kill_counts(tmp_path):
    for number, to in enumerate(("file", "output")):
        folder = tmp_path / str(number)
        folder.mkdir()
        flood = {"do": "flood", "bytes": 20_000}  # what is held back for redaction comes to disk with more
        acts = ({**SUCCESS, "to": to}, flood, {"do": "write", "path": "b", "text": ""}, {"do": "hang"})
        desk = killed(
            folder, *acts, when=lambda desk: "write" in desk.ledger and os.path.getsize(desk.stage("output.log")) > 0
        )
        left = desk.agents.left("k-1", "implement")
        assert left.report.status == "success" and len(left.evidence) == 1, to


def test_an_answer_that_comes_before_the_edits_counts_only_at_the_end_of_them(tmp_path):
    said = {**SUCCESS, "to": "output"}
    for number, (acts, counts) in enumerate((([said], True), ([said, {"do": "crash", "code": 1}], False))):
        folder = tmp_path / str(number)
        folder.mkdir()
        desk = Desk(folder, *acts)
        late = msgspec.structs.replace(profile(folder, *acts), edits_last=True)
        desk.agents = Agents({"scripted": late}, run_of(folder), str(folder / "stages"), os.environ, NO_SECRETS)
        assert (desk.ask().report is not None) == counts and "END_JSON" in desk.text("output.log")
        left = desk.agents.left("k-1", "implement")
        assert left.report is None and "END_JSON" in left.tail, (
            "who comes later cannot know whether it came to the edits"
        )


def test_another_hosts_work_is_not_touched(tmp_path):
    desk = Desk(tmp_path, SUCCESS)
    desk.ask()
    record = json.loads(desk.text("process.json")) | {"host": "elsewhere", "ended": False}
    with open(desk.stage("process.json"), "w") as file:
        json.dump(record, file)
    assert "elsewhere" in desk.agents.left("k-1", "implement").unsure


def test_damaged_notes_are_no_notes(tmp_path):
    desk = Desk(tmp_path, {"do": "say", "text": "hi"})
    desk.ask()
    assert desk.agents.left("k-1", "implement").tail.endswith("hi")
    for data in ("{", "[]", '{"agent": "gone", "session": 5}'):
        with open(desk.stage("session.json"), "w") as file:
            file.write(data)
        left = desk.agents.left("k-1", "implement")
        assert (left.session, left.report, left.tail) == (None, None, "")
    shutil.rmtree(desk.agents.stage("k-1"))
    assert desk.agents.left("k-1", "implement") == Left()


# --- the scripted agent itself


def test_work_that_was_finished_under_a_key_is_only_reported_again(tmp_path):
    desk = Desk(tmp_path, {"do": "append", "path": "log", "text": "once\n"}, SUCCESS)
    assert desk.ask().report == desk.ask().report
    assert (tmp_path / "work" / "log").read_text() == "once\n" and desk.ledger == ["start", "append", "finish", "start"]
    desk.ask("another")
    assert (tmp_path / "work" / "log").read_text() == "once\n" * 2


def test_acts_done_before_a_kill_are_not_done_again_under_the_same_key(tmp_path):
    acts = (
        {"do": "append", "path": "log", "text": "once\n"},
        {"do": "sleep", "seconds": 0.6},
        {"do": "delete", "path": "x"},
        SUCCESS,
    )
    desk = killed(tmp_path, *acts, when=lambda desk: "append" in desk.ledger)
    desk.agents.left("k-1", "implement")
    assert desk.ask().report is not None and (tmp_path / "work" / "log").read_text() == "once\n"


def test_a_script_is_chosen_by_phase_and_task_and_may_change_with_every_start(tmp_path):
    named = {
        "implement/T1": [[{"do": "say", "text": "one"}], [{"do": "say", "text": "two"}]],
        "test/*": [{"do": "spin", "seconds": 0.1}],
    }
    desk = Desk(tmp_path, **named)
    outputs = [desk.ask(f"k-{number}").output.split()[-1] for number in range(3)]
    assert outputs == [b"one", b"two", b"two"] and desk.ask("k-9", kind="test", task="T9").ended_by == "exit"
    del named["implement/T1"]
    (tmp_path / "script.json").write_text(json.dumps({"ledger": str(tmp_path / "ledger"), "acts": named}))
    assert "no acts for implement/T1" in desk.ask("k-8").why

"""`holdfast run SPEC` with real agents, killed with its whole tree in the middle of a tool call, resumed: nothing done twice."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from datetime import datetime
from itertools import takewhile
from pathlib import Path

import psutil
import pytest

from holdfast.testing import scripted_agent, workshop
from holdfast.testing.model_server import Asked, ModelServer, Turn
from tests.adapters.agents.kit import is_alive
from tests.agents.test_real_agents import DONE, Installed
from tests.agents.tool import FILES, HOLD, LINES, told
from tests.agents.work import CODEX, PROGRAMS, codex_table, mini_table
from tests.pipeline import kit

TOOL = Path(__file__).with_name("tool.py")
ACTS = {"Implement": ("first", "slow", "rest", "report"), "Review": ("report",)}
PATIENCE = 90  # a loaded machine takes long to start an agent
MOMENT = 0.6  # into the tool call; until then what the agent said is on disk
REVIEWERS = {"codex": "codex", "mini": "reviewer"}
BRIEF = "You are continuing work that was interrupted"
SPEC = {"T1": (FILES["T1"], ()), "T2": (FILES["T2"], ("T1",))}
CHECK = [
    sys.executable,
    "-c",
    "import pathlib; [compile(one.read_text(), one, 'exec') for one in pathlib.Path('kit').glob('*.py')]",
]


def is_shown(act, said):
    """A tool said that it is done, or the difference in the brief holds what it writes."""
    line = LINES.get(act, "").strip()
    return f"[done {act}]" in said or (line and BRIEF in said and f"+{line}" in said)


class Sensible(ModelServer):
    """A model without memory that goes by what it is told, and by nothing else.

    Whoever is told that work was interrupted looks at what is there first; what a tool or the evidence shows as done is not
    done again. This shows our side, that the model is told enough; not that every model obeys.
    """

    def __init__(self, agent, folder):
        super().__init__([])
        self.agent, self.folder, self.refusal = agent, folder, None

    def turn(self, path, number, body):
        if not body.get("tools"):
            return Turn(say="scripted")
        self.asked.append(Asked(path, number, body))
        return self.refusal or self.next_turn(json.dumps(body))

    def next_turn(self, said):
        if BRIEF in said and "[looked]" not in said:
            return self.call("look")
        job = re.search(r"# (Implement|Review): ", said)[1]
        todo = [act for act in ACTS[job] if not is_shown(act, said)]
        return self.call(todo[0]) if todo else DONE[self.agent]

    def call(self, act):
        return Turn(run=f"{sys.executable} {TOOL} {self.folder} {act}")


class Site(kit.Project):
    """A repository with a spec of two batches, and the agent that does all of it."""

    def __init__(self, folder, agent, url):
        super().__init__(folder)
        self.zone = "UTC"
        (self.home / ".codex").mkdir(parents=True)
        (self.home / ".codex" / "config.toml").write_text(CODEX.format(url=url))
        for name, text in kit.spec_files(SPEC).items():
            self.write(f"{workshop.FOLDER}/{name}", text)
        for name, text in {"kit/__init__.py": "", ".gitignore": "__pycache__/\n"}.items():
            self.write(name, text)
        table = codex_table() if agent == "codex" else mini_table(self.home, url)
        self.write("holdfast.toml", settings(folder, agent, table))
        self.git("init", "-q", "-b", "main")
        self.commit("The spec")

    def environ(self):
        path = os.pathsep.join([*(str(program.parent) for program in PROGRAMS.values()), os.environ["PATH"]])
        ours = {"PATH": path, "OPENAI_API_KEY": "none", "PYTHONPYCACHEPREFIX": "", "TZ": self.zone}
        return {**super().environ(), **ours}

    def acted(self, at):
        return [(one["phase"], one["task"], one["act"]) for one in told(self.folder) if one["at"] == at]

    def kill_in(self, *act):
        """SIGKILL of the run and all below it in the middle of this act, which is held. The environment that the act had."""
        hold = self.folder / f"{HOLD}-{act[1]}"
        hold.touch()
        process = self.start("run", kit.SPEC, "--yes")
        try:
            kit.wait_for(lambda: process.poll() is not None or act in self.acted("begun"), PATIENCE)
            time.sleep(MOMENT)
            assert process.poll() is None, process.communicate()
            below = psutil.Process(process.pid).children(recursive=True)
            return next(one.environ() for one in reversed(below) if str(TOOL) in one.cmdline())
        finally:
            end_tree(process)
            hold.unlink()


def end_tree(process):
    """SIGKILL, the parent first, and nothing of it is left."""
    below = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    for one in (process, *below):
        one.kill()
    process.communicate()
    psutil.wait_procs(below, 10)
    assert not any(is_alive(one.pid) for one in below)


def settings(folder, agent, table):
    tables = {agent: table}
    if agent == "mini":  # takes seconds to start, so it only does the work; codex reviews its own
        script = folder / "reviews.json"
        script.write_text(json.dumps({"ledger": str(folder / "reviews"), "acts": {"*": [kit.review()]}}))
        tables["reviewer"] = scripted_agent.table(str(script))
    lines = ["[run]", f'agent = "{agent}"', f'reviewers = ["{REVIEWERS[agent]}"]']
    lines += ['phases = ["implement", "review"]', "[verify]", f"tier0 = [{json.dumps(CHECK)}]"]
    for name, own in tables.items():
        lines += [f"[agents.{name}]", *(f"{key} = {workshop._toml(value)}" for key, value in own.items())]
    return "\n".join(lines) + "\n"


@pytest.fixture(params=["codex", "mini"])
def agent(request, skip_or_fail):
    skip_or_fail(Installed(request.param))
    return request.param


@pytest.fixture
def codex(skip_or_fail):
    skip_or_fail(Installed("codex"))
    return "codex"


def everything(agent):
    """Every act of the spec in its order; those of a review have the place of the review for their task."""
    reviews = REVIEWERS[agent] == agent
    for number, task in enumerate(SPEC, 1):
        yield from (("implement", task, act) for act in ACTS["Implement"])
        yield from [("review", f"batch-{number}/1", "report")] * reviews
    yield from [("review", "batch-final/1", "report")] * reviews


def is_finished(site, agent, answer):
    """The run is complete: each act done once, one commit for each batch, the right tree, a sound log, and nobody left."""
    assert answer.code == 0, answer
    assert site.acted("done") == list(everything(agent))
    assert site.subjects == [*(f"checkpoint: text-kit: batch {number} of 2" for number in (2, 1)), "The spec"]
    assert [site.git("show", f"HEAD:{FILES[task]}") for task in SPEC] == ["FIRST = 1\nREST = 2\n"] * 2
    assert site.git("status", "--porcelain") == "" and not kit.carrying(site.run_id)
    assert site.holdfast("verify").code == 0


def test_killed_in_a_tool_call_and_resumed_it_does_nothing_twice(tmp_path, agent, record_property):
    with Sensible(agent, tmp_path / "work") as model:
        site = Site(tmp_path / "work", agent, model.url)
        environ = site.kill_in("implement", "T2", "slow")
        assert (environ["HOLDFAST_PHASE"], environ["HOLDFAST_TASK"]) == ("implement", "T2")
        assert environ["HOLDFAST_AGENT_RUN"] == site.run_id and environ["HOLDFAST_EFFECT_KEY"]
        assert kit.carrying(site.run_id) == []
        done, asked = site.acted("done"), len(model.asked)
        assert done == list(takewhile(lambda act: act != ("implement", "T2", "slow"), everything(agent)))
        is_finished(site, agent, site.resume())
        first = model.asked[asked]
    again = [one for one in site.acted("begun") if site.acted("begun").count(one) > 1]
    assert set(again) == {("implement", "T2", "slow")}, "only what was cut off is begun again"
    is_told(agent, first)
    record_property(
        "told", f"holdfast run with {agent}: killed with its whole tree in a tool call, resumed; nothing twice"
    )


def is_told(agent, asked):
    """What the model knows when it goes on: codex has its turns before the kill, mini only the brief with its evidence."""
    calls, prompt = HISTORY[agent](asked.body)
    assert calls == (["first", "slow"] if agent == "codex" else [])
    known, _, unknown = prompt[prompt.index(BRIEF) :].partition("Unknown:")
    assert "kit/count.py was changed since this work began" in known and "no report of batch-2/T2/implement" in known
    assert "commands that your predecessor ran" in unknown and "+FIRST = 1" in unknown
    assert LAST_WORDS[agent] in unknown, "the end of what was said before the kill"


def codex_history(body):
    calls = [json.loads(item["arguments"])["cmd"] for item in body["input"] if item["type"] == "function_call"]
    return [call.split()[-1] for call in calls], body["input"][-1]["content"][0]["text"]


def mini_history(body):
    return [call for one in body["messages"] for call in one.get("tool_calls") or ()], body["messages"][-1]["content"]


HISTORY = {"codex": codex_history, "mini": mini_history}
LAST_WORDS = {"codex": ' slow\'","aggregated_output":"","exit_code":null', "mini": "[done first]"}


def test_a_usage_limit_rests_until_it_resets_and_then_goes_on(tmp_path, codex):
    with Sensible(codex, tmp_path / "work") as model:
        site = Site(tmp_path / "work", codex, model.url)
        now = int(time.time())
        limit = {"type": "usage_limit_reached", "plan_type": "pro", "resets_at": now + 1}
        model.refusal = Turn(status=429, error=limit)
        site.zone = zone_ending(now + 12)
        handed = kit.is_stop(site, site.run("--no-wait"), "quota_wait")
        said = re.search(r"until (\S+Z)", handed["signals"][0]["snippet"])[1]
        resets = datetime.fromisoformat(said).timestamp()
        assert now + 1 <= resets <= now + 12 and site.acted("begun") == [] and len(model.asked) == 1
        model.refusal = None
        is_finished(site, codex, site.resume())
        assert time.time() >= resets


def zone_ending(moment):
    """A time zone in which a minute ends then: codex tells a reset by its minute, and no test should wait for a whole one."""
    return f"TEST-00:00:{-moment % 60:02}"

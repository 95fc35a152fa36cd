"""Small real projects to run, and what stands in them afterwards. Everything is asked from outside: files, git, processes."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from holdfast import app
from holdfast.cli.verbs import VERBS
from holdfast.core import stops
from holdfast.core.errors import HoldfastError
from holdfast.core.wire import decode
from holdfast.testing import scripted_agent, workshop
from holdfast.testing.scripted_agent import read_ledger
from tests import forked

SPEC = workshop.SPEC
KILLER = Path(__file__).with_name("killer.py")
VOLATILE = re.compile(r"^ *(timestamp|last_commit|tasks_digest):.*$", re.M)
Acts = Mapping[str, Any]
Spec = Mapping[str, tuple[str, Sequence[str]]]  # id: its file, and what it needs

ONE: Spec = {"T1": ("kit/words.py", ())}
TWO: Spec = {"T1": ("kit/words.py", ()), "T2": ("kit/mean.py", ())}
CHAIN: Spec = {"T1": ("kit/words.py", ()), "T3": ("kit/count.py", ("T1",))}
FOUR: Spec = {
    **TWO,
    "T3": ("kit/count.py", ("T1",)),
    "T5": ("kit/top.py", ("T3",)),
    "T9": ("kit/last.py", ("T5",)),
}  # batches: T1 and T2 side by side, T3, T5 with a fix, T9
NOTHING = "import unittest\n\n\nclass Test(unittest.TestCase):\n    def test(self):\n        pass\n"
CHECK = """
# unittest, which takes longer to load than all else here, only for tests that test something
import glob, sys
if any(open(name).read() != sys.argv[1] for name in glob.glob("tests/test_*.py")):
    import unittest
    unittest.main(None, argv=["unittest", "discover", "-q", "-t", ".", "-s", "tests"])
"""
QUICK = ('phases = ["implement", "review"]',)


def report(**fields: Any) -> dict[str, Any]:
    return {"do": "report", "with": {"status": "success", **fields}}


def review(*issues: Mapping[str, Any], verdict: str = "") -> dict[str, Any]:
    wrong = any(issue["severity"] in ("high", "critical") for issue in issues)
    verdict = verdict or ("request_changes" if wrong else "approve")
    return {"do": "report", "with": {"verdict": verdict, "gates": workshop.PASS, "issues": list(issues)}}


def write(path: str, text: str) -> dict[str, Any]:
    return {"do": "write", "path": path, "text": text}


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


class Project:
    """One repository with a spec, its scripted agents, and a home of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.top = folder / "project"
        self.home = folder / "home"
        self.store_at: Path | None = None  # where it is not in the project

    # --- processes

    def environ(self, **more: str) -> dict[str, str]:
        dropped = ("HOLDFAST_", "GIT_", "XDG_", "PYTHONDONTWRITEBYTECODE")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        author = {f"GIT_{who}_{what}": "a@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        ours = {"HOME": str(self.home), "NO_COLOR": "1", "GIT_CONFIG_NOSYSTEM": "1", "PYTHONPYCACHEPREFIX": CACHE}
        return {**kept, **author, **ours, **more}

    def holdfast(self, *arguments: str, **environ: str) -> Answer:
        done = forked.holdfast(arguments, self.top, self.environ(**environ))
        return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())

    def run(self, *options: str, **environ: str) -> Answer:
        return self.holdfast("run", SPEC, "--yes", *options, **environ)

    def resume(self, *options: str, **environ: str) -> Answer:
        return self.holdfast("resume", SPEC, "--yes", *options, **environ)

    def start(self, *arguments: str, **environ: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "holdfast", *arguments],
            cwd=self.top,
            env=self.environ(**environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def killed(self, mode: str, reach: str, first: Sequence[str], again: Sequence[str]) -> Answer:
        """What became of it after deaths at chosen events; `hits` names them."""
        done = subprocess.run(
            [sys.executable, KILLER, self.folder / "hits", mode, reach, *first, "--", *again],
            cwd=self.top,
            env=self.environ(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=900,
        )
        return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())

    def killed_on(self, moment: str) -> None:
        """A run that died here, with all that belonged to it, and was not gone on with."""
        answer = self.killed(f"on:{moment}", "whole", ("run", SPEC, "--yes"), ())
        assert len(self.hits) == 1, answer

    @property
    def hits(self) -> list[str]:
        path = self.folder / "hits"
        return path.read_text().splitlines() if path.exists() else []

    def git(self, *arguments: str) -> str:
        command = ["git", *arguments]
        done = subprocess.run(command, cwd=self.top, env=self.environ(), check=True, capture_output=True)
        return done.stdout.decode()

    # --- files

    def write(self, path: str, text: str) -> None:
        whole = self.top / path
        whole.parent.mkdir(parents=True, exist_ok=True)
        whole.write_text(text)

    def read(self, path: str) -> str:
        return (self.top / path).read_text()

    def commit(self, message: str = "by hand") -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD").strip()

    def script(self, acts: Acts, agent: str = workshop.AGENT) -> None:
        """From now on, this is what the agent does, beside what it did."""
        path = self.folder / ("script.json" if agent == workshop.AGENT else f"{agent}.json")
        known = json.loads(path.read_text())
        path.write_text(json.dumps({**known, "acts": {**known["acts"], **acts}}))

    def tree(self) -> dict[str, str]:
        """The files of the last commit, without what no two runs have in common."""
        names = self.git("ls-tree", "-r", "--name-only", "HEAD").splitlines()
        texts = {name: self.git("show", f"HEAD:{name}") for name in names if name != "holdfast.toml"}
        return {name: VOLATILE.sub("", text) for name, text in texts.items()}

    @property
    def subjects(self) -> list[str]:
        return self.git("log", "--format=%s").splitlines()

    # --- what the agents really did

    def ledger(self, agent: str = workshop.AGENT) -> list[dict[str, Any]]:
        name = "ledger.jsonl" if agent == workshop.AGENT else f"{agent}.jsonl"
        return read_ledger(str(self.folder / name))

    def starts(self, stage: str, agent: str = workshop.AGENT) -> int:
        return self.acts(stage, "start", agent)

    def acts(self, stage: str, act: str, agent: str = workshop.AGENT) -> int:
        return sum(f"{line['phase']}/{line['task']}" == stage and line["act"] == act for line in self.ledger(agent))

    # --- the log

    @property
    def store(self) -> str:
        return str(self.store_at or self.top / ".holdfast" / "holdfast.db")

    def run_ids(self) -> list[str]:
        with closing(app.open_store(self.store, read_only=True)) as store:
            return sorted(head.run_id for head in store.heads())

    @property
    def run_id(self) -> str:
        return self.run_ids()[-1]

    @property
    def has_run(self) -> bool:
        return Path(f"{self.store}-witness").exists() and bool(self.run_ids())

    def events(self) -> list[Any]:
        with closing(app.open_store(self.store, read_only=True)) as store:
            return [decode(record) for record in store.read(self.run_id)]

    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.events()]

    def notes(self) -> list[str]:
        return [event.text for event in self.events() if type(event).__name__ == "NoteRecorded"]

    def ended(self, step: str) -> list[Any]:
        """The events that end this effect with success, by its name."""
        events = self.events()
        keys = {one.effect_key for one in events if type(one).__name__ == "EffectStarted" and one.step_id == step}
        return [
            one
            for one in events
            if type(one).__name__ in ("EffectFinished", "EffectSettled")
            and one.effect_key in keys
            and getattr(one, "settled_as", "done") == "done"
        ]

    def artifact(self, digest: str) -> bytes:
        with closing(app.open_store(self.store, read_only=True)) as store:
            return store.get_artifact(digest)

    def prompts(self) -> list[str]:
        """What agents were told, of each stage the last time."""
        return [path.read_text() for path in (self.top / ".holdfast" / "runs").glob("*/stages/*/prompt.txt")]

    def handoff(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.top / ".holdfast" / "runs" / self.run_id / "stop.json").read_text())
        return found


CACHE = ""
STARTED: list[tuple[Project, subprocess.Popen[bytes]]] = []


def end_all() -> None:
    """End what a test started and did not see to its end, with the agents of its runs."""
    for project, process in STARTED:
        process.kill()
        process.communicate()
        for pid in [pid for run_id in project.run_ids() for pid in carrying(run_id)] if project.has_run else ():
            os.kill(pid, signal.SIGKILL)
    STARTED.clear()


def keep_bytecode(folder: Path) -> None:
    """Where the processes of these tests keep their compiled modules."""
    global CACHE
    CACHE = str(folder)


# --- building


def acts_of(spec: Spec) -> dict[str, Any]:
    """For tasks that the workshop does not know: a module that says what it is."""
    made: dict[str, Any] = {}
    for name, (file, _) in spec.items():
        if f"implement/{name}" not in workshop.script(0):
            made[f"test/{name}"] = [report(test_files=[])]
            made[f"implement/{name}"] = [write(file, f"NAME = {name!r}\n"), report(implementation_files=[file])]
    return made


def build(
    folder: Path,
    spec: Spec = FOUR,
    acts: Acts | None = None,
    settings: Sequence[str] = (),
    more: str = "",
    others: Mapping[str, Acts] | None = None,
    checks: str = "",
) -> Project:
    """A project with these tasks. `checks` and `more` are text for [verify] and for the end of holdfast.toml; `others` are
    further agents with their acts."""
    project = Project(folder / "work")
    project.home.mkdir(parents=True)
    folder = project.folder
    workshop.build(str(folder), project.environ(), acts={**acts_of(spec), **(acts or {})}, settings=settings)
    for name, text in spec_files(spec).items():
        project.write(f"{workshop.FOLDER}/{name}", text)
    project.write("tests/test_nothing.py", NOTHING)
    tests = json.dumps([sys.executable, "-I", "-S", "-B", "-c", CHECK, NOTHING])
    toml = re.sub(r"(?m)^tier0 = .*", lambda _: f"tier0 = [{tests}]", project.read("holdfast.toml"))
    toml = toml.replace("[verify]", f"[verify]\n{checks}")
    for name, script in (others or {}).items():
        path = folder / f"{name}.json"
        whole = {**workshop.script(0), **acts_of(spec), **script}
        path.write_text(json.dumps({"ledger": str(folder / f"{name}.jsonl"), "acts": whole}))
        table = "\n".join(f"{key} = {workshop._toml(value)}" for key, value in scripted_agent.table(str(path)).items())
        toml += f"\n[agents.{name}]\n{table}\n"
    project.write("holdfast.toml", toml + more)
    project.git("add", "-A")
    project.git("commit", "-q", "--amend", "-m", "The spec")
    return project


def spec_files(spec: Spec) -> dict[str, str]:
    tasks, needs = ["tasks:"], ["phases:", "  - id: 1", "    name: Everything", "    tasks:"]
    for name, (file, wanted) in spec.items():
        tasks += [f"  - id: {name}", f"    content: Write {file}", "    status: pending"]
        needs += [f"      - id: {name}", f"        file: {file}", f"        depends_on: [{', '.join(wanted)}]"]
    return {"tasks.yaml": "\n".join(tasks) + "\n", "dependencies.yaml": "\n".join(needs) + "\n"}


# --- looking


def wait_for(fact: Callable[[], Any], seconds: float = 20.0) -> Any:
    """What it gives as soon as that is true. A store that is just being made cannot be read yet."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with suppress(HoldfastError):
            if found := fact():
                return found
        time.sleep(0.02)
    raise AssertionError("it did not come about")


def carrying(run_id: str) -> list[int]:
    """The processes that carry a run in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"HOLDFAST_AGENT_RUN={run_id}".encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def end(process: subprocess.Popen[bytes], number: int = signal.SIGINT) -> Answer:
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    return Answer(process.returncode, out.decode(), err.decode())


def is_stop(project: Project, answer: Answer, reason: str) -> dict[str, Any]:
    """The run rests for this reason: exit code, log and handoff agree, and every command that is advised can be parsed."""
    assert answer.code == stops.exit_code(reason), (answer.code, answer.out, answer.err)
    handed = project.handoff()
    assert (handed["stop_reason"], handed["exit_code"]) == (reason, answer.code)
    assert 1 <= len(handed["next_actions"]) <= 3
    for action in handed["next_actions"]:
        name, verb, *arguments = shlex.split(action["command"])
        assert name == "holdfast"
        import_module(f"holdfast.cli.{VERBS[verb][0]}").command.make_context(verb, arguments)
    return handed

"""A coding agent without a model: a real process that does what its script says, and writes down each thing it really did.

    python -m holdfast.testing.scripted_agent --script FILE [--resume SESSION]      (the prompt comes on standard input)

The script is JSON: `{"ledger": PATH, "acts": {"implement/T1": [...], "test/*": [...], "*": [...]}}`. Phase and task come from
HOLDFAST_PHASE and HOLDFAST_TASK; the best match is played. A list of lists is played one per start, the last one for ever.
`{task}`, `{phase}` and `{key}` in its texts are replaced. One act is `{"do": NAME, ...}`; the names are in `ACTS`.

Every act that changes something is one line of the ledger, appended and synced after it was done. An act that the ledger has
under the same effect key is not done again; what had come to its end under that key is only reported. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

Act = Mapping[str, Any]
LIMIT = "You've hit your usage limit. Try again in 2h 13m."
CHANGES = ("write", "append", "delete", "half", "run")  # acts that count


def table(script: str) -> dict[str, Any]:
    """The `[agents.NAME]` table of an agent that plays this script."""
    start = [sys.executable, "-I", "-S", os.path.abspath(__file__), "--script", script]
    return {
        "start": start,
        "prompt_by": "stdin",
        "resume": [*start, "--resume", "{session}"],
        "session": [{"after": "session: ", "which": "first"}],
        "money": [{"after": "cost: ", "which": "sum"}],
        "version": [*start[:4], "--version"],
        "trust": "It does what its script says.",
    }


def read_ledger(path: str) -> list[dict[str, Any]]:
    """What was really done, in order. A torn last line was not written."""
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
        return [json.loads(line) for line in file if line.endswith(b"\n")]
    return []


class Agent:
    def __init__(self, script: Mapping[str, Any], environ: Mapping[str, str], prompt: str) -> None:
        self.script, self.environ, self.prompt = script, environ, prompt
        self.phase, self.task = environ.get("HOLDFAST_PHASE", ""), environ.get("HOLDFAST_TASK", "")
        self.key = environ.get("HOLDFAST_EFFECT_KEY", "")
        self.ledger = script["ledger"]

    def play(self, session: str) -> None:
        mine = [line for line in read_ledger(self.ledger) if line["key"] == self.key]
        starts = sum(line["act"] == "start" for line in self._of_task())
        known = {line["n"] for line in mine if line["act"] in CHANGES} if self.key else set()
        finished = bool(self.key) and any(line["act"] == "finish" for line in mine)
        self.record("start")
        _tell(f"session: {session}")
        for number, act in self._acts(starts):
            if finished and act["do"] != "report":
                continue
            if number not in known:
                ACTS[act["do"]](self, {**act, "n": number})
        if not finished:
            self.record("finish")

    def record(self, act: str, number: str = "", path: str = "") -> None:
        line = {"key": self.key, "phase": self.phase, "task": self.task, "act": act, "n": number, "path": path}
        fd = os.open(self.ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, json.dumps({**line, "pid": os.getpid()}).encode() + b"\n")
            os.fsync(fd)
        finally:
            os.close(fd)

    def text(self, text: str) -> str:
        for name, value in (("{task}", self.task), ("{phase}", self.phase), ("{key}", self.key)):
            text = text.replace(name, value)
        return text

    def _of_task(self) -> list[dict[str, Any]]:
        return [line for line in read_ledger(self.ledger) if (line["phase"], line["task"]) == (self.phase, self.task)]

    def _acts(self, starts: int) -> Sequence[tuple[str, Act]]:
        """What to play at this start, each act with its number in the script."""
        table = self.script["acts"]
        for name in (f"{self.phase}/{self.task}", f"{self.phase}/*", f"*/{self.task}", "*"):
            if name in table:
                lists = table[name] if table[name] and isinstance(table[name][0], list) else [table[name]]
                turn = min(starts, len(lists) - 1)
                return [(f"{turn}.{number}", act) for number, act in enumerate(lists[turn])]
        raise SystemExit(f"The script has no acts for {self.phase}/{self.task}.")


def _tell(text: str, stream: TextIO | None = None) -> None:
    stream = stream or sys.stdout
    stream.write(f"{text}\n")
    stream.flush()


# --- what it can do


def _write(agent: Agent, act: Act) -> None:
    _put(agent, act, "w", agent.text(act["text"]))


def _append(agent: Agent, act: Act) -> None:
    _put(agent, act, "a", agent.text(act["text"]))


def _half(agent: Agent, act: Act) -> None:
    """The first half of a text, as an agent leaves it that is cut off in the middle."""
    text = agent.text(act["text"])
    _put(agent, act, "w", text[: len(text) // 2])


def _put(agent: Agent, act: Act, mode: str, text: str) -> None:
    path = agent.text(act["path"])
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, mode, encoding="utf-8") as file:
        file.write(text)
    agent.record(act["do"], act["n"], path)


def _delete(agent: Agent, act: Act) -> None:
    path = agent.text(act["path"])
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    agent.record("delete", act["n"], path)


def _run(agent: Agent, act: Act) -> None:
    subprocess.run([agent.text(item) for item in act["argv"]], check=False)
    agent.record("run", act["n"])


def _say(agent: Agent, act: Act) -> None:
    _tell(agent.text(act["text"]))


def _complain(agent: Agent, act: Act) -> None:
    _tell(agent.text(act["text"]), sys.stderr)


def _echo(agent: Agent, act: Act) -> None:
    """Says the prompt again, as some agents do."""
    _tell(agent.prompt)


def _flood(agent: Agent, act: Act) -> None:
    piece = act.get("text", "x" * 79 + "\n").encode() * 1000
    for _ in range(int(act["bytes"]) // len(piece) + 1):
        sys.stdout.buffer.write(piece)
    sys.stdout.flush()


def _sleep(agent: Agent, act: Act) -> None:
    time.sleep(act["seconds"])


def _hang(agent: Agent, act: Act) -> None:
    while True:
        time.sleep(3600)


def _spin(agent: Agent, act: Act) -> None:
    """Works without a word: uses the processor, says and writes nothing."""
    end = time.monotonic() + act["seconds"]
    while time.monotonic() < end:
        sum(range(10_000))


def _crash(agent: Agent, act: Act) -> None:
    sys.stdout.flush()
    if "signal" in act:
        os.kill(os.getpid(), act["signal"])
    os._exit(act.get("code", 1))


def _limit(agent: Agent, act: Act) -> None:
    _tell(act.get("text", LIMIT), sys.stderr)
    os._exit(act.get("code", 1))


def _report(agent: Agent, act: Act) -> None:
    """`with` is the report; `to` is file (default), output or both; `id` replaces the right report_id."""
    given = json.loads(agent.text(json.dumps(act["with"])))
    body = json.dumps({"report_id": act.get("id", agent.environ.get("HOLDFAST_REPORT_ID", "")), **given})
    if act.get("to", "file") in ("file", "both"):
        path = agent.environ["HOLDFAST_REPORT"]
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            file.write(body)
        os.replace(f"{path}.new", path)
    if act.get("to") in ("output", "both"):
        _tell(f"BEGIN_JSON\n{body}\nEND_JSON")


def _grandchild(agent: Agent, act: Act) -> None:
    """Starts a process that outlives this one; `away` in a session of its own, `quiet` without our pipes."""
    quiet = subprocess.DEVNULL if act.get("quiet") else None
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", f"import time; time.sleep({act['seconds']})"],
        stdout=quiet,
        stderr=quiet,
        start_new_session=bool(act.get("away")),
    )
    _tell(f"grandchild: {child.pid}")


def _ignore(agent: Agent, act: Act) -> None:
    """Is deaf to the polite way of being ended."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _close(agent: Agent, act: Act) -> None:
    """Closes its output and lives on."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)


ACTS: dict[str, Callable[[Agent, Act], None]] = {
    "write": _write,
    "append": _append,
    "half": _half,
    "delete": _delete,
    "run": _run,
    "say": _say,
    "complain": _complain,
    "echo": _echo,
    "flood": _flood,
    "sleep": _sleep,
    "hang": _hang,
    "spin": _spin,
    "crash": _crash,
    "limit": _limit,
    "report": _report,
    "grandchild": _grandchild,
    "ignore": _ignore,
    "close": _close,
}


def main(arguments: Sequence[str]) -> int:
    if "--version" in arguments:
        _tell("scripted-agent 1")
        return 0
    with open(arguments[arguments.index("--script") + 1], encoding="utf-8") as file:
        script = json.load(file)
    agent = Agent(script, os.environ, sys.stdin.read())
    session = arguments[arguments.index("--resume") + 1] if "--resume" in arguments else f"scripted-{os.getpid()}"
    agent.play(session)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

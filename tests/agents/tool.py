"""What the scripted model has a real agent run in its shell: tool.py FOLDER ACT. Acts by the phase and task in its environment.

Every act is in the ledger when it begins and when it is done, and says so. `look` is no act: it tells what the ledger holds.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

FILES = {"T1": "kit/words.py", "T2": "kit/count.py"}
LINES = {"first": "FIRST = 1\n", "slow": "", "rest": "REST = 2\n"}
GATES = ("correctness", "style", "performance", "security", "architecture")
LEDGER, HOLD = "ledger.jsonl", "hold"
SECONDS = 25.0  # of a tool call that is held


def tell(folder: Path, act: str, at: str) -> None:
    """One line, in one write, at the end of the ledger."""
    named = {"phase": os.environ["HOLDFAST_PHASE"], "task": os.environ["HOLDFAST_TASK"]}
    line = json.dumps({**named, "act": act, "at": at}) + "\n"
    fd = os.open(folder / LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, line.encode())
    os.close(fd)


def told(folder: Path) -> list[dict[str, str]]:
    path = folder / LEDGER
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def look(folder: Path) -> None:
    mine = [one for one in told(folder) if one["task"] == os.environ["HOLDFAST_TASK"]]
    done = [one["act"] for one in mine if one["at"] == "done"]
    for act in done:
        print(f"[done {act}]")
    for act in dict.fromkeys(one["act"] for one in mine if one["act"] not in done):
        print(f"[only begun {act}]")
    print("[looked]")


def perform(folder: Path, act: str) -> None:
    tell(folder, act, "begun")
    if act == "report":
        report()
    elif act in LINES:
        with open(FILES[os.environ["HOLDFAST_TASK"]], "a") as file:
            file.write(LINES[act])
    if act == "slow" and (folder / f"{HOLD}-{os.environ['HOLDFAST_TASK']}").exists():
        time.sleep(SECONDS)
    tell(folder, act, "done")
    print(f"[done {act}]")


def report() -> None:
    shapes: dict[str, dict[str, Any]] = {
        "implement": {"status": "success", "implementation_files": [FILES.get(os.environ["HOLDFAST_TASK"], "")]},
        "review": {"verdict": "approve", "gates": dict.fromkeys(GATES, "pass"), "issues": []},
    }
    answer = {"report_id": os.environ["HOLDFAST_REPORT_ID"], **shapes[os.environ["HOLDFAST_PHASE"]]}
    Path(os.environ["HOLDFAST_REPORT"]).write_text(json.dumps(answer))


if __name__ == "__main__":
    place, wanted = Path(sys.argv[1]), sys.argv[2]
    look(place) if wanted == "look" else perform(place, wanted)

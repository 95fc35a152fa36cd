"""A small real project for demonstrations and tests: a git repository, a spec of eight tasks in four batches, and an agent.

The agent is `scripted_agent`: a real process that writes real files and tests, needs no key, and keeps a ledger of all that
it did, so that somebody else can count.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.core.named import NamedTuple
from holdfast.testing import scripted_agent

SPEC = "text-kit"
FOLDER = f"specs/active/{SPEC}"
AGENT = "scripted"
AGENT_FILE = os.path.abspath(scripted_agent.__file__)


class Task(NamedTuple):
    id: str
    title: str
    file: str
    needs: tuple[str, ...]
    code: str
    test: str


TASKS = (
    Task("T1", "Split a text into words", "kit/words.py", (),
         "def words(text):\n    return [word.strip('.,;:!?').lower() for word in text.split()]\n",
         "assert words('Hold fast, hold.') == ['hold', 'fast', 'hold']"),
    Task("T2", "The mean of numbers", "kit/mean.py", (),
         "def mean(numbers):\n    return sum(numbers) / len(numbers)\n",
         "assert mean([1, 2, 6]) == 3"),
    Task("T3", "Count words", "kit/count.py", ("T1",),
         "from kit.words import words\n\n\ndef count(text):\n    found = {}\n    for word in words(text):\n"
         "        found[word] = found.get(word, 0) + 1\n    return found\n",
         "assert count('a b a') == {'a': 2, 'b': 1}"),
    Task("T4", "How far numbers spread", "kit/spread.py", ("T2",),
         "from kit.mean import mean\n\n\ndef spread(numbers):\n    middle = mean(numbers)\n"
         "    return max(abs(number - middle) for number in numbers)\n",
         "assert spread([1, 2, 6]) == 3"),
    Task("T5", "The words that are used most", "kit/top.py", ("T3",),
         "from kit.count import count\n\n\ndef top(text, number):\n    found = count(text)\n"
         "    return sorted(found, key=lambda word: (-found[word], word))[:number]\n",
         "assert top('b a b c', 2) == ['b', 'a']"),
    Task("T6", "The length of words in figures", "kit/lengths.py", ("T3", "T4"),
         "from kit.count import count\nfrom kit.mean import mean\nfrom kit.spread import spread\n\n\ndef lengths(text):\n"
         "    sizes = [len(word) for word in count(text)]\n    return {'mean': mean(sizes), 'spread': spread(sizes)}\n",
         "assert lengths('aa bbbb') == {'mean': 3, 'spread': 1}"),
    Task("T7", "A report in one line", "kit/report.py", ("T5", "T6"),
         "from kit.lengths import lengths\nfrom kit.top import top\n\n\ndef report(text):\n"
         "    return f\"{' '.join(top(text, 3))}; mean length {lengths(text)['mean']:.1f}\"\n",
         "assert report('aa bb aa') == 'aa bb; mean length 2.0'"),
    Task("T8", "Everything under one roof", "kit/all.py", ("T5", "T6"),
         "from kit.lengths import lengths\nfrom kit.top import top\n\nEVERYTHING = (lengths, top)\n",
         "assert len(EVERYTHING) == 2"),
)  # fmt: skip
BATCHES = (("T1", "T2"), ("T3", "T4"), ("T5", "T6"), ("T7", "T8"))
_NAMES = {"T1": "words", "T2": "mean", "T3": "count", "T4": "spread", "T5": "top", "T6": "lengths", "T7": "report"}
_CHECK = (
    "import unittest\n\nfrom {module} import {name}\n\n\n"
    "class Test(unittest.TestCase):\n    def test(self):\n        {line}\n"
)
PASS = dict.fromkeys(("correctness", "style", "performance", "security", "architecture"), "pass")


class Workshop(NamedTuple):
    """Where everything is. `script` and `ledger` are outside of the repository, as a real agent's own files would be."""

    top: str
    script: str
    ledger: str


def build(
    folder: str, environ: Mapping[str, str], *, pause: float = 0.0, acts: Mapping[str, Any] | None = None,
    settings: Sequence[str] = (),
) -> Workshop:  # fmt: skip
    """Make it all in a new folder. `pause`: seconds that the agent takes in the middle of each piece of work."""
    shop = Workshop(*(os.path.join(folder, name) for name in ("project", "script.json", "ledger.jsonl")))
    os.makedirs(os.path.join(shop.top, "kit"))
    os.makedirs(os.path.join(shop.top, "tests"))
    for path in ("kit/__init__.py", "tests/__init__.py"):
        write(shop, path, "")
    write(shop, ".gitignore", "__pycache__/\n")
    write(shop, "holdfast.toml", toml(shop, settings))
    for name, text in spec_files().items():
        write(shop, f"{FOLDER}/{name}", text)
    with open(shop.script, "w", encoding="utf-8") as file:
        json.dump({"ledger": shop.ledger, "acts": {**script(pause), **(acts or {})}}, file, indent=1)
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "The spec"]):
        subprocess.run(["git", *command], cwd=shop.top, env=dict(environ), check=True, stdin=subprocess.DEVNULL)
    return shop


def write(shop: Workshop, path: str, text: str) -> None:
    whole = os.path.join(shop.top, path)
    os.makedirs(os.path.dirname(whole), exist_ok=True)
    with open(whole, "w", encoding="utf-8") as file:
        file.write(text)


def toml(shop: Workshop, more: Sequence[str] = ()) -> str:
    table = scripted_agent.table(shop.script)
    check = [sys.executable, "-m", "unittest", "discover", "-q", "-t", ".", "-s", "tests"]
    lines = ["[run]", f'agent = "{AGENT}"', *more, "", "[verify]", f"tier0 = [{json.dumps(check)}]", ""]
    lines += [f"[agents.{AGENT}]", *(f"{key} = {_toml(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


def spec_files() -> dict[str, str]:
    tasks = [f"spec: {SPEC}", "code: T", f"next_id: {len(TASKS) + 1}", "tasks:"]
    needs = ["phases:", "  - id: 1", "    name: Everything", "    tasks:"]
    for task in TASKS:
        tasks += [f"  - id: {task.id}", f"    content: {task.title}", "    status: pending"]
        needs += [
            f"      - id: {task.id}",
            f"        file: {task.file}",
            f"        depends_on: [{', '.join(task.needs)}]",
        ]
    return {"tasks.yaml": "\n".join(tasks) + "\n", "dependencies.yaml": "\n".join(needs) + "\n"}


def script(pause: float) -> dict[str, Any]:
    """What the agent does for each task and phase; a reviewer who finds something to put off, and once something to fix."""
    rest: list[dict[str, Any]] = [{"do": "sleep", "seconds": pause}] if pause else []
    acts: dict[str, Any] = {}
    for task in TASKS:
        test = f"tests/test_{task.id.lower()}.py"
        module, name = task.file.removesuffix(".py").replace("/", "."), _NAMES.get(task.id, "EVERYTHING")
        check = _CHECK.format(module=module, name=name, line=task.test.replace("assert ", "self.assertTrue(", 1) + ")")
        acts[f"test/{task.id}"] = [
            *rest,
            {"do": "write", "path": test, "text": check},
            report(status="success", test_files=[test], failure_output="ImportError"),
        ]
        acts[f"implement/{task.id}"] = [
            {"do": "half", "path": task.file, "text": task.code},
            *rest,
            {"do": "write", "path": task.file, "text": task.code},
            report(status="success", implementation_files=[task.file], test_output="OK"),
        ]
    naming = {
        "severity": "medium",
        "location": "kit/words.py:2",
        "description": "The marks could have a name of their own",
    }
    missing = {"severity": "high", "location": "kit/top.py:1", "description": "A docstring is missing"}
    acts["review/*"] = [*rest, _review()]
    acts["review/batch-2/1"] = [*rest, _review({**naming, "task": "T1"})]
    acts["review/batch-3/1"] = [*rest, _review(missing)]
    fixed = '"""The words that are used most."""\n\n' + TASKS[4].code
    acts["fix/*"] = [
        *rest,
        {"do": "write", "path": "kit/top.py", "text": fixed},
        report(status="success", resolved=["H001"]),
    ]
    return acts


def _review(*issues: Mapping[str, Any]) -> dict[str, Any]:
    wrong = any(issue["severity"] in ("high", "critical") for issue in issues)
    return report(verdict="request_changes" if wrong else "approve", gates=PASS, issues=list(issues))


def report(**fields: Any) -> dict[str, Any]:
    return {"do": "report", "with": fields}

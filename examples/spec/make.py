"""Makes a small repository in a new folder: the spec beside this file, and an agent that follows a script and needs no key.

    python examples/spec/make.py FOLDER

Then it prints what to type. Kill the run wherever you like: it goes on where it was.
"""

import json
import os
import shutil
import subprocess
import sys
from typing import Any

from holdfast.testing.workshop import PASS, Workshop, report, toml, write

HERE = os.path.dirname(os.path.abspath(__file__))
PAUSE: dict[str, Any] = {"do": "sleep", "seconds": 1.0}
WORK = {
    "T1": ("greet", "greet('Ada') == 'Hello, Ada!'", "def greet(name='world'):\n    return f'Hello, {name}!'\n"),
    "T2": (
        "names",
        "names('Ada, Grace and Barbara') == ['Ada', 'Grace', 'Barbara']",
        "import re\n\n\ndef names(line):\n    return re.split(r', | and ', line)\n",
    ),
    "T3": (
        "everybody",
        "everybody('Ada and Grace') == ['Hello, Ada!', 'Hello, Grace!']",
        "from hello.greet import greet\nfrom hello.names import names\n\n\ndef everybody(line):\n"
        "    return [greet(name) for name in names(line)]\n",
    ),
}
TEST = """import unittest

from hello.{name} import {name}


class Test(unittest.TestCase):
    def test(self):
        self.assertTrue({check})
"""


def script() -> dict[str, list[dict[str, Any]]]:
    """What the agent does in each phase of each task."""
    acts: dict[str, list[dict[str, Any]]] = {"review/*": [PAUSE, report(verdict="approve", gates=PASS, issues=[])]}
    for task, (name, check, code) in WORK.items():
        test, file = f"tests/test_{name}.py", f"hello/{name}.py"
        acts[f"test/{task}"] = [
            {"do": "say", "text": f"I write {test}"}, PAUSE,
            {"do": "write", "path": test, "text": TEST.format(name=name, check=check)},
            report(status="success", test_files=[test], failure_output="ImportError"),
        ]  # fmt: skip
        acts[f"implement/{task}"] = [
            {"do": "say", "text": f"I write {file}"}, {"do": "half", "path": file, "text": code}, PAUSE,
            {"do": "write", "path": file, "text": code},
            report(status="success", implementation_files=[file], test_output="OK"),
        ]  # fmt: skip
    return acts


def git(shop: Workshop, *arguments: str) -> bool:
    return subprocess.run(["git", "-C", shop.top, *arguments], stdout=subprocess.DEVNULL).returncode == 0


def make(folder: str) -> Workshop:
    os.makedirs(folder)
    shop = Workshop(
        *(os.path.join(os.path.abspath(folder), name) for name in ("project", "script.json", "ledger.jsonl"))
    )
    shutil.copytree(os.path.join(HERE, "specs"), os.path.join(shop.top, "specs"))
    for path in ("hello/__init__.py", "tests/__init__.py"):
        write(shop, path, "")
    write(shop, ".gitignore", "__pycache__/\n")
    write(shop, "holdfast.toml", toml(shop))
    with open(shop.script, "w", encoding="utf-8") as file:
        json.dump({"ledger": shop.ledger, "acts": script()}, file, indent=1)
    git(shop, "init", "-q", "-b", "main")
    if not git(shop, "config", "user.email"):
        git(shop, "config", "user.name", "You")
        git(shop, "config", "user.email", "you@localhost")
    git(shop, "add", "-A")
    git(shop, "commit", "-q", "-m", "A spec of three tasks")
    return shop


def main() -> None:
    if len(sys.argv) != 2 or os.path.exists(sys.argv[1]):
        sys.exit("Name a new folder: python examples/spec/make.py FOLDER")
    shop = make(sys.argv[1])
    holdfast = shutil.which("holdfast") or os.path.join(os.path.dirname(sys.executable), "holdfast")
    print(f"cd {shop.top}")
    print(f"{holdfast} trust                # what its files would run; say yes")
    print(f"{holdfast} run greeting         # kill it whenever you like, also with kill -9")
    print(f"{holdfast} resume greeting      # it goes on; what is done is not done again")


if __name__ == "__main__":
    main()

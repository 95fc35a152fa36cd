"""One entry of the campaign in a process of its own: forking a small process is cheap, forking a test runner is not.

`python -m tests.crash.alone NAME POINTS SEED` prints what it found as one line of JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from holdfast.testing.crashlab import table
from tests.crash.campaign import CAMPAIGN, Entry

ROOT = Path(__file__).resolve().parent.parent.parent


class Found(NamedTuple):
    """What an entry counted, and the violations as a table that replays them."""

    points: int
    counts: dict[str, int]
    violations: int
    told: str


def alone(entry: Entry, seed: int) -> Found:
    command = [sys.executable, "-m", "tests.crash.alone", entry.name, str(entry.points), str(seed)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return Found(**json.loads(done.stdout.splitlines()[-1]))


def main(name: str, points: str, seed: str) -> None:
    entry = next(entry for entry in CAMPAIGN if entry.name == name)
    report = entry.run(int(points), int(seed))
    print(json.dumps(Found(report.points, report.counts, len(report.violations), table([report]))._asdict()))


if __name__ == "__main__":
    main(*sys.argv[1:])

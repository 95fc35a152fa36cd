"""Holds the floor under what must not break: coverage_floor.py [DATA FILE]. Names every file and line below it.

The core is covered whole, branch by branch; by 95 %, each by itself, the stores and the files of the engine that run
somebody's code, or that prove, move or judge a log.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CORE = "src/holdfast/core"
ENGINE = "src/holdfast/engine"
STORES = "src/holdfast/stores"
ENGINE_FILES = (
    "arrival", "async_run", "book", "budgets", "checkpoints", "decorators", "drifting", "effects", "fork", "forms", "health",
    "keeper", "life", "log", "marks", "people", "resume", "retelling", "run", "runner", "steps", "stopping", "together",
    "transfer", "waits", "whole_file", "workspaces",
)  # fmt: skip
CORE_FLOOR, ENGINE_FLOOR, STORES_FLOOR = 100.0, 95.0, 95.0
LOWER = {f"{STORES}/postgres_sql.py": 90.0}  # what it does when its server goes away in mid-word is met by chance


def floors() -> dict[str, float]:
    core = {f"{CORE}/{path.name}": CORE_FLOOR for path in sorted((ROOT / CORE).glob("*.py"))}
    stores = {f"{STORES}/{path.name}": STORES_FLOOR for path in sorted((ROOT / STORES).glob("*.py"))}
    return core | stores | {f"{ENGINE}/{name}.py": ENGINE_FLOOR for name in ENGINE_FILES} | LOWER


def measured(data_file: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "coverage", "json", "--data-file", data_file, "-o", "-", "--quiet"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"There is nothing to read in {data_file}: {done.stdout.strip() or done.stderr.strip()}")
    files: dict[str, Any] = json.loads(done.stdout)["files"]
    return files


def below(name: str, floor: float, found: dict[str, Any] | None) -> str | None:
    """The line that says how far a file is below its floor."""
    if found is None:
        return f"{name}: was not run at all"
    percent = found["summary"]["percent_covered"]
    if percent >= floor:
        return None
    branches = [f"{start}->{end if end > 0 else 'exit'}" for start, end in found.get("missing_branches", [])]
    missing = ", ".join([*map(str, found["missing_lines"]), *branches])
    return f"{name}: {percent:.1f} % of {floor:g} % ({missing})"


def main() -> int:
    files = measured(sys.argv[1] if len(sys.argv) > 1 else ".coverage")
    wanted = floors()
    low = [line for name, floor in wanted.items() if (line := below(name, floor, files.get(name)))]
    for line in low:
        print(line)
    print(f"{len(wanted) - len(low)} of {len(wanted)} files are covered as they must be.")
    return 1 if low else 0


if __name__ == "__main__":
    raise SystemExit(main())

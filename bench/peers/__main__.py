"""`make bench-peers`: Holdfast beside LangGraph, DBOS and bare SQL, as ratios of one run. Exits 1 when a goal is missed."""

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

from bench.peers import fresh, growth, steps, together

PARTS = {
    "sqlite": steps.sqlite_rows,
    "together": together.rows,
    "postgres": steps.postgres_rows,
    "resume": fresh.peer_rows,
    "growth": growth.rows,
    "length": fresh.length_rows,
}


def main():
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"any of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--folder", type=Path, help="where to write; the disk matters (default: here)")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no part is called {', '.join(sorted(unknown))}")
    os.environ.update(LANGSMITH_TRACING="false", LANGCHAIN_TRACING_V2="false")  # nothing is sent anywhere
    folder = Path(tempfile.mkdtemp(prefix=".bench-", dir=options.folder or Path.cwd()))
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before the first measurement")
    try:
        return report(row for part in options.parts or PARTS for row in PARTS[part](folder))
    finally:
        shutil.rmtree(folder)


def report(rows):
    missed = 0
    for what, measured, goal, met in rows:
        missed += not met
        print(f"{what:76} {measured:>24}  {goal:>8}  {'' if met else 'MISSED'}".rstrip(), flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tests.crash [--full] [--seed N] [--only WORDS]`: the whole campaign, with a table at the end."""

import argparse
import sys
import time

from holdfast.testing.crashlab import table
from tests.crash.campaign import CAMPAIGN


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--full", action="store_true", help="the release sizes; hours on two cores")
    parser.add_argument("--scale", type=float, default=None, help="times the sizes of `make test`")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="replays a campaign")
    parser.add_argument("--only", default="", help="entries whose name holds these words")
    options = parser.parse_args()
    reports = [report for entry in CAMPAIGN if options.only in entry.name for report in run(entry, options)]
    print(table(reports))
    print(f"seed {options.seed}; {sum(report.points for report in reports)} points")
    return 1 if any(report.violations for report in reports) else 0


def run(entry, options):
    available = entry.available()
    if not available:
        print(f"{entry.name}: left out: {available.why}", flush=True)
        return
    points = entry.full if options.full else entry.points
    points = max(1, int(entry.points * options.scale)) if options.scale else points
    print(f"{entry.name}: {points} points ...", flush=True)
    report = entry.run(points, options.seed)
    report.technique = entry.name
    yield report


if __name__ == "__main__":
    sys.exit(main())

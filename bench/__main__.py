"""`make bench`: every speed goal as a row, measured in this run on this machine. Exits 1 when a goal is missed."""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from bench import append, git, git_history, group, pipeline, postgres, shape, specs, start


def rows(folder):
    """Yield (what, measured, goal, met)."""
    bare, ours = append.sqlite_append(folder)
    ratio = ours.wall_us / bare.wall_us
    yield "SQLite: one durable 1 KB event / bare insert-and-commit", f"{ratio:.2f} x", "<= 1.3 x", ratio <= 1.3
    extra = ours.cpu_us - bare.cpu_us
    yield "SQLite: CPU above the bare insert-and-commit", f"{extra:.0f} us", "<= 60 us", extra <= 60
    yield "a page written and synced on this disk", f"{append.sync_of_the_disk(folder):.0f} us", "", True
    yield from group_rows("SQLite", group.eight_against_one(str(folder / "group" / "holdfast.db")))
    size = shape.bytes_per_event(folder)
    yield "SQLite: bytes on disk per 1 KB event", f"{size:,.0f}", "<= 1,536", size <= 1536
    first, last = shape.flat_cost(folder)
    yield "cost per event at 100,000 / at 1", f"{last / first:.2f} x", "<= 1.25 x", last / first <= 1.25
    fold = shape.fold_ten_thousand()
    yield "fold of 10,000 events", f"{fold:.0f} ms", "<= 60 ms", fold <= 60
    short, long = shape.open_and_head(folder)
    yield "open + head, run of 100,000 / run of 10", f"{long / short:.2f} x", "<= 3 x", long / short <= 3
    nothing, status, record = start.fresh_process(folder)
    yield "`holdfast status` / `python -c pass`, CPU", f"{status / nothing:.1f} x", "<= 6 x", status / nothing <= 6
    yield (
        "one event from a fresh process / `python -c pass`, CPU",
        f"{record / nothing:.1f} x",
        "<= 6 x",
        record / nothing <= 6,
    )
    bare, ours = postgres.postgres_append()
    ratio = ours.wall_us / bare.wall_us
    yield "PostgreSQL: one durable 1 KB event / bare insert-and-commit", f"{ratio:.2f} x", "<= 1.3 x", ratio <= 1.3
    yield from group_rows("PostgreSQL", postgres.postgres_group())


def group_rows(engine, rates):
    one, eight, threads, coroutine = rates
    yield f"{engine}: 8 runs in one process / one run", f"{eight / one:.1f} x", ">= 3 x", eight / one >= 3
    yield f"{engine}: the same / one run in a coroutine", f"{eight / coroutine:.1f} x", "", True
    yield f"{engine}: 8 runs in threads / one run", f"{threads / one:.1f} x", "", True


PARTS = (rows, git.rows, git_history.rows, specs.rows, pipeline.rows)


def main():
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--folder", type=Path, help="where to write; the disk matters (default: here)")
    parser.add_argument("parts", nargs="*", help="only these, by the names of their files (default: all)")
    options = parser.parse_args()
    parts = [part for part in PARTS if not options.parts or part.__module__.rpartition(".")[2] in options.parts]
    folder = Path(tempfile.mkdtemp(prefix=".bench-", dir=options.folder or Path.cwd()))
    missed = 0
    try:
        print(f"{'':60} {'measured':>10}  {'goal':>10}")
        for what, measured, goal, met in (row for part in parts for row in part(folder)):
            missed += not met
            print(f"{what:60} {measured:>10}  {goal:>10}  {'' if met else 'MISSED'}", flush=True)
    finally:
        shutil.rmtree(folder)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

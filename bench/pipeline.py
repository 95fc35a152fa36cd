"""What `holdfast run` itself uses for one task: its own CPU, without that of agents, tests and git, which are processes."""

import os
import statistics
import subprocess
import sys
import tempfile

TRIES = 3
ONE_RUN = """
import os, sys, time
from holdfast.cli.loading import load
spec_run = load("holdfast.spec_run")
os.chdir(sys.argv[1])
wish = spec_run.Wish("text-kit", yes=True, parallel=int(sys.argv[2]))
result = spec_run.perform(wish, spec_run.prepare(wish), lambda moment: None)
assert result.exit_code == 0, result.handed
print(time.process_time())
"""


def overhead(parallel):
    """Milliseconds of CPU for each of the eight tasks of the demonstration, start of the program included."""
    from holdfast.testing import workshop

    found = []
    for _ in range(TRIES):
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            names = {
                f"GIT_{who}_{what}": "bench@example.org"
                for who in ("AUTHOR", "COMMITTER")
                for what in ("NAME", "EMAIL")
            }
            kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
            kept.pop("PYTHONDONTWRITEBYTECODE", None)  # every start after the first has compiled modules
            environ = {**kept, **names, "HOME": folder, "XDG_STATE_HOME": folder}
            shop = workshop.build(os.path.join(folder, "shop"), environ)
            command = [sys.executable, "-c", ONE_RUN, shop.top, str(parallel)]
            done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
            found.append(1000 * float(done.stdout) / len(workshop.TASKS))
    return statistics.median(found)


def rows(folder):
    """Yield (what, measured, goal, met)."""
    alone, beside = overhead(1), overhead(2)
    yield "`holdfast run`: own CPU for one task, one after the other", f"{alone:.0f} ms", "<= 150 ms", alone <= 150
    yield "`holdfast run`: own CPU for one task, two at a time", f"{beside:.0f} ms", "<= 150 ms", beside <= 150

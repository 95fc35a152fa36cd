"""Finding a milestone among 10,000 commits, against one plain `git log` over them."""

import statistics
import subprocess
import time

from holdfast.adapters.git.history import find
from holdfast.adapters.probes.git_place import find_repository
from holdfast.adapters.probes.git_runner import Git
from holdfast.core.position import Known
from holdfast.core.subjects import with_trailers

COMMITS, BACK = 10_000, 9_000
RUN, ID = "bench-run", "019f0a00-0000-7000-8000-000000000001"
WORDS = "Some words about why this was needed and what it does.\nAnother line, for good measure."


def history(folder):
    """A repository of 10,000 commits, of which one, 9,000 back, is a milestone. Returns that one's id."""
    folder.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", "-b", "main", "."], cwd=folder, check=True)
    orders = "".join(order(number) for number in range(COMMITS))
    subprocess.run(["git", "fast-import", "--quiet"], cwd=folder, input=orders.encode(), check=True)
    shown = ["git", "rev-parse", f"main~{BACK}"]
    return subprocess.run(shown, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def order(number):
    message = f"Change number {number}\n\n{WORDS}\n"
    if number == COMMITS - 1 - BACK:
        message = with_trailers(message, RUN, ID, 3)
    who = f"committer A <a@b.invalid> {1_700_000_000 + number} +0000"
    file = f"M 100644 inline f{number % 50}\ndata {len(str(number))}\n{number}\n"
    return f"commit refs/heads/main\n{who}\ndata {len(message.encode())}\n{message}{file}\n"


def timed(call):
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def rows(folder, rounds=15):
    """Yield (what, measured, goal, met)."""
    place = folder / "history"
    sha = history(place)
    record = Known(ID, RUN, 3, "t", sha, None, None, None, None, None, "log")

    def plain():
        subprocess.run(["git", "log", "main"], cwd=place, check=True, stdout=subprocess.DEVNULL)

    def search(records, source):
        position = find(Git(find_repository(str(place))), RUN, records)
        assert (position.sha, position.index, position.source) == (sha, 3, source), position

    contenders = {
        "git log": plain,
        "there": lambda: search([record], "log"),
        "trailer": lambda: search([], "git_log_run_specific"),
    }
    times = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, call in contenders.items():
            times[name].append(timed(call))
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, what in (("there", "its commit is recorded"), ("trailer", f"only a trailer, {BACK:,} commits back")):
        ratio = medians[name] / medians["git log"]
        yield f"a milestone among 10,000 commits / git log: {what}", f"{ratio:.2f} x", "<= 2 x", ratio <= 2

"""Eight runs at once in one process, as steps per second. Everybody is taken at the better way: threads or coroutines."""

from statistics import median

from bench.peers.child import children
from bench.peers.table import at_least, in_turns, ratio, told

RUNS, STEPS, ROUNDS = 8, 50, 5
CONTENDERS = {"Holdfast": "ours_together", "LangGraph": "langgraph", "DBOS": "dbos"}
WAYS = ("threads", "coroutines")
GOAL = 5


def rows(folder):
    what = f"SQLite, {RUNS} runs at once"
    with children(CONTENDERS, "sqlite", {name: str(folder / "together" / name) for name in CONTENDERS}) as contenders:
        rates = measured(contenders)
    for (name, way), found in rates.items():
        yield told(f"{what}: {name} in {way}", f"{median(found):,.0f} steps/s")
    for peer in ("LangGraph", "DBOS"):
        ours, theirs = (max((rates[name, way] for way in WAYS), key=median) for name in ("Holdfast", peer))
        yield at_least(f"{what}: Holdfast / {peer}", ratio(ours, theirs), GOAL)


def measured(contenders):
    """The rates of each contender in each way, round by round; the first round warms up."""
    rates = {(name, way): [] for name in contenders for way in WAYS}
    for order in in_turns(rates, ROUNDS + 1):
        for name, way in order:
            rates[name, way].append(contenders[name](way, RUNS, STEPS))
    return {key: found[1:] for key, found in rates.items()}

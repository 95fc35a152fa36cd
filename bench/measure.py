"""Measuring side by side: contenders take turns in short rounds, so the machine's moods hit all of them alike."""

import statistics
import time
from typing import NamedTuple


class Timing(NamedTuple):
    wall_us: float
    cpu_us: float


def side_by_side(contenders, rounds=80, repeats=40, warm_up=800):
    """Median wall time and mean CPU time of one call, in microseconds, for each named callable."""
    for call in contenders.values():
        for _ in range(warm_up):
            call()
    walls = {name: [] for name in contenders}
    cpus = dict.fromkeys(contenders, 0.0)
    order = list(contenders.items())
    for _ in range(rounds):
        order.reverse()  # whoever comes second meets what the first one left behind
        for name, call in order:
            cpus[name] += _one_round(call, repeats, walls[name])
    return {
        name: Timing(statistics.median(walls[name]) * 1e6, cpus[name] / (rounds * repeats) * 1e6) for name in contenders
    }


def _one_round(call, repeats, walls):
    cpu = time.process_time()
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        walls.append(time.perf_counter() - began)
    return time.process_time() - cpu

"""Many runs of Holdfast at once in one process: each in a thread of its own, or all in one event loop with `holdfast.arun`."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import holdfast
from bench.peers.ours import FILE, steps_of
from bench.peers.work import rate, text


def sqlite(place):
    store, numbers = holdfast.open_store(os.path.join(place, FILE)), count()

    def one(run_id, steps):
        with holdfast.run("bench", store=store, run_id=run_id) as run:
            steps_of(run, text, 0, steps)

    def in_threads(runs, steps):
        with ThreadPoolExecutor(runs) as pool:
            list(pool.map(one, [f"bench-{next(numbers)}" for _ in range(runs)], [steps] * runs))

    def in_coroutines(runs, steps):
        asyncio.run(all_at_once(store, [f"bench-{next(numbers)}" for _ in range(runs)], steps))

    return {
        "threads": lambda runs, steps: rate(in_threads, runs, steps),
        "coroutines": lambda runs, steps: rate(in_coroutines, runs, steps),
        "close": store.close,
    }


async def all_at_once(store, run_ids, steps):

    async def one(run_id):
        async with holdfast.arun("bench", store=store, run_id=run_id) as run:
            for number in range(steps):
                await run.step(f"step-{number}", text, number)

    await asyncio.gather(*(one(run_id) for run_id in run_ids))

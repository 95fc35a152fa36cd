"""Holdfast as its documentation shows it: `with holdfast.run(...) as run: run.step(...)`. Loads only what one run needs."""

import os
from contextlib import ExitStack
from itertools import count

import holdfast
from bench.peers.work import Stamps, first_new_step, text

FILE = "holdfast.db"


class Interrupted(Exception):
    """What a run is left with when it does not end."""


class Seeded:
    """The step of the seeded run: the same code when it is resumed, which then ends at the first new step."""

    resumed = False

    @staticmethod
    def work(number):
        return first_new_step(number) if Seeded.resumed else text(number)


class LongRun:
    """A run that stays open and gets more steps."""

    def __init__(self, store, stack):
        self.store, self.stack, self.stamps = store, stack, Stamps()
        self.run, self.done = None, 0

    def lengthen(self, steps):
        self.run = self.run or self.stack.enter_context(holdfast.run("bench", store=self.store, run_id="bench-long"))
        steps_of(self.run, self.stamps.work, self.done, self.done + steps)
        self.done += steps
        return self.stamps.take()


def steps_of(run, work, first, last):
    for number in range(first, last):
        run.step(f"step-{number}", work, number)


def sqlite(place):
    store = holdfast.open_store(os.path.join(place, FILE))

    def settings():
        mode, synchronous = (store._writer._connection.pragma(name) for name in ("journal_mode", "synchronous"))
        return f"{holdfast.__version__}, journal_mode {mode}, synchronous {synchronous}"

    return {**actions(store), "settings": settings}


def postgres(url):
    return {**actions(holdfast.open_store(url)), "settings": lambda: holdfast.__version__}


def actions(store):
    stamps, numbers, stack = Stamps(), count(), ExitStack()
    stack.callback(store.close)

    def burst(steps):
        with holdfast.run("bench", store=store, run_id=f"bench-{next(numbers)}") as run:
            steps_of(run, stamps.work, 0, steps)
        return stamps.take()

    return {
        "burst": burst,
        "seed": lambda steps: seed(store, steps),
        "lengthen": LongRun(store, stack).lengthen,
        "close": stack.close,
    }


def seed(store, steps):
    """A run that is cut off after `steps` steps; called again with more, it goes on."""
    try:
        with holdfast.run("bench", store=store, run_id="seeded") as run:
            steps_of(run, Seeded.work, 0, steps)
            raise Interrupted
    except Interrupted:
        return


def resume(place, steps):
    Seeded.resumed = True
    with holdfast.run("bench", store=os.path.join(place, FILE), run_id="seeded") as run:
        steps_of(run, Seeded.work, 0, steps + 1)

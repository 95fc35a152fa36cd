"""One contender in a process of its own, so that no one's threads and garbage collections are charged to another."""

import multiprocessing
import traceback
from contextlib import contextmanager
from importlib import import_module

SPAWN = multiprocessing.get_context("spawn")
SECONDS = 300


class Child:
    """Calls the actions of a contender, one at a time."""

    def __init__(self, module, store, place):
        self.name = f"{module} on {store}"
        self.pipe, theirs = SPAWN.Pipe()
        self.process = SPAWN.Process(target=serve, args=(theirs, module, store, place), daemon=True)
        self.process.start()
        theirs.close()

    def __call__(self, action, *values):
        self.pipe.send((action, values))
        if not self.pipe.poll(SECONDS):
            raise RuntimeError(f"{self.name} did not answer {action} within {SECONDS} s.")
        done, result = self.pipe.recv()
        if not done:
            raise RuntimeError(f"{self.name} failed at {action}:\n{result}")
        return result

    def close(self):
        try:
            self("close")
        finally:
            self.process.join(20)
            self.process.kill()


@contextmanager
def children(modules, store, places):
    """A child for each named module, open until the end of the block."""
    opened = {}
    try:
        for name, module in modules.items():
            opened[name] = Child(module, store, places[name])
        yield opened
    finally:
        for child in opened.values():
            child.close()


def serve(pipe, module, store, place):
    """The loop of a child: perform the action asked for, answer (True, result) or (False, traceback)."""
    contender, actions = import_module(f"bench.peers.{module}"), None
    action = ""
    while action != "close":
        action, values = pipe.recv()
        try:
            if actions is None:
                actions = contender.sqlite(place) if store == "sqlite" else contender.postgres(place)
            pipe.send((True, actions[action](*values)))
        except Exception:
            pipe.send((False, traceback.format_exc()))

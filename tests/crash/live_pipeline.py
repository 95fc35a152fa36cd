"""What the live run of the laboratory does: steps and effects of every policy, one pipeline for threads and for coroutines."""

from __future__ import annotations

import asyncio
import inspect
import json
import random
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from holdfast.engine.forms import MAX_INLINE
from tests.crash.live_world import BARE, GUARDED, KEYED, PROBED, TILL

LONGEST_DRAFT = 0.0  # seconds

# name of the effect: where it shows in the world, and under which label
TRACES = {
    **{f"charge/{n}": (KEYED, f"charge-{n}") for n in range(3)},
    **{f"till/{n}": (TILL, f"till-{n}") for n in range(3)},
    **{f"mail/{n}": (PROBED, f"mail-{n}") for n in range(3)},
    **{f"ship/{n}": (GUARDED, f"ship-{n}") for n in range(2)},
    **{f"bare/{n}": (BARE, f"bare-{n}") for n in range(3)},
    "outer/mail": (PROBED, "mail-in-outer"),
    "side/charge": (KEYED, "side-charge"),
    "side/mail": (PROBED, "side-mail"),
    "side/bare": (BARE, "side-bare"),
}


# --- the pipeline


def outline(topic):
    return [f"{topic}-{letter}" for letter in "abcd"]


def draft(chapter):
    time.sleep(random.uniform(0.0, LONGEST_DRAFT))
    return {"chapter": chapter, "words": len(chapter)}


def large(letter):
    return letter * (MAX_INLINE + 1000)


def total(results):
    return json.dumps(results, sort_keys=True)


async def pipeline(run, world):
    """Thirty-odd steps and effects. `run` is one of the faces below."""
    found = {"outline": await run.step("outline", outline, "topic")}
    found["drafts"] = await run.side_by_side(
        *(partial(run.step, f"draft/{chapter}", draft, chapter) for chapter in found["outline"])
    )

    async def outer(n):
        inner = [await run.step(f"inner/{number}", draft, f"inner{number}") for number in range(n)]
        mailed = await run.effect("outer/mail", world.send, "mail-in-outer", policy="probed", probe=world.was_sent)
        return [inner, mailed]

    found["outer"] = await run.step("outer", outer, 2)
    found["pure"] = await run.effect("pure", len, "abc", policy="pure")
    found["read"] = await run.effect("read", str.upper, "abc", policy="read")
    found["put"] = await run.effect("put", world.put, "set", policy="idempotent")
    await run.checkpoint("half_way")
    for number in range(3):
        found[f"charge/{number}"] = await run.effect(
            f"charge/{number}", world.charge, f"charge-{number}", policy="keyed", key="{label}" if number else None
        )
        found[f"till/{number}"] = await run.effect(
            f"till/{number}", world.pay_in, f"till-{number}", policy="transactional"
        )
        found[f"mail/{number}"] = await run.effect(
            f"mail/{number}", world.send, f"mail-{number}", policy="probed", probe=world.was_sent
        )
        found[f"bare/{number}"] = await run.effect(
            f"bare/{number}", world.bare, f"bare-{number}", policy="once" if number else None
        )
    for number in range(2):
        found[f"ship/{number}"] = await run.effect(
            f"ship/{number}", world.ship, f"ship-{number}", policy="once", probe=world.was_shipped
        )
    found["large"] = len(await run.step("large", large, "s"))
    found["large effect"] = len(await run.effect("large effect", large, "e", policy="read"))
    found["side"] = await run.side_by_side(
        partial(run.step, "side/step", draft, "side"),
        partial(run.effect, "side/charge", world.charge, "side-charge", policy="keyed"),
        partial(run.effect, "side/mail", world.send, "side-mail", policy="probed", probe=world.was_sent),
        partial(run.effect, "side/bare", world.bare, "side-bare", policy="once"),
    )
    found["again"] = [await run.step(f"last/{number}", draft, f"last{number}") for number in range(4)]
    return await run.step("total", total, found)


# --- the two faces


class Threads:
    """The pipeline for ordinary code. Nothing it awaits ever waits, so no event loop is needed."""

    def __init__(self, run, ack):
        self._run, self._ack = run, ack

    async def step(self, name, work, *args):
        value = self._run.step(name, ended(work) if inspect.iscoroutinefunction(work) else work, *args)
        self._ack(f"step:{name}")
        return value

    async def effect(self, name, act, *args, **options):
        value = self._run.effect(name, act, *args, **options)
        self._ack(f"effect:{name}")
        return value

    async def checkpoint(self, cursor):
        self._run.checkpoint(cursor)

    async def side_by_side(self, *calls):
        with ThreadPoolExecutor(len(calls)) as pool:
            return list(pool.map(lambda call: end(call()), calls))


class Coroutines:
    """The same in an event loop."""

    def __init__(self, run, ack):
        self._run, self._ack = run, ack

    async def step(self, name, work, *args):
        value = await self._run.step(name, work, *args)
        self._ack(f"step:{name}")
        return value

    async def effect(self, name, act, *args, **options):
        value = await self._run.effect(name, act, *args, **options)
        self._ack(f"effect:{name}")
        return value

    async def checkpoint(self, cursor):
        await self._run.checkpoint(cursor)

    async def side_by_side(self, *calls):
        return list(await asyncio.gather(*(call() for call in calls)))


def end(coroutine):
    """The result of a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise RuntimeError("it waits for something")


def ended(work):
    return lambda *args: end(work(*args))


def names_of(kind: str) -> list[str]:
    return [name for name, (of, _) in TRACES.items() if of == kind]

"""A live run for the laboratory: steps and effects of every policy, resumed until it rests, and judged from outside.

The same pipeline runs for ordinary code with threads and for coroutines. `work` starts or goes on, `check` goes on to the
end; an effect that nobody knows the outcome of is settled as a person would: by looking.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apsw

import holdfast
from holdfast.adapters import terminal
from holdfast.app import redactor, write_run
from holdfast.core.errors import HoldfastError
from holdfast.core.events import EffectSettled
from holdfast.engine import keeper, steps
from holdfast.engine.log import verify_run
from holdfast.live import arun, run
from holdfast.ports import Store
from holdfast.testing.crashlab.workload import Verdict
from tests.crash import live_pipeline
from tests.crash.live_pipeline import TRACES, Coroutines, Threads, end, names_of, pipeline
from tests.crash.live_world import BARE, EXACTLY_ONCE, TILL, World

MISSION = "live"
NOBODY = {"confirm": lambda title, lines: False, "prompt": lambda text, choices: None}
LONG = 600.0  # seconds of a lease: nothing is renewed while a point is tried
RESUMES = 12  # each bare effect may need a person once
PLAN = "moment"  # a file in the folder: the moment at which to die
OURS = ("HOLDFAST_RUN", "HOLDFAST_YES", "HOLDFAST_PLAN", "HOLDFAST_STRICTNESS", "HOLDFAST_STORE", "HOLDFAST_WITNESS")

redactor({})  # what it loads and compiles, a forked process need not


class Broken(Exception):
    """A promise that did not hold: the kind of the verdict, and a sentence."""

    def __init__(self, kind: str, sentence: str) -> None:
        super().__init__(sentence)
        self.kind = kind


# --- the workload


class Moments:
    """Counts moments over the life of a process, and ends it at a certain one."""

    def __init__(self, deadly: int = 0) -> None:
        self.count, self.deadly = 0, deadly
        self._lock = threading.Lock()

    def __call__(self, name: str) -> None:
        with self._lock:
            self.count += 1
            if self.count == self.deadly:
                os.kill(os.getpid(), signal.SIGKILL)


class Timed:
    """A store that says when an append begins and when it has been acknowledged."""

    def __init__(self, store: Store, moment: Callable[[str], None]) -> None:
        self._store, self._moment = store, moment

    def __getattr__(self, name):
        return getattr(self._store, name)

    def _told(self, call, *args):
        self._moment("begin")
        value = call(*args)
        self._moment("end")
        return value

    def append(self, *args):
        return self._told(self._store.append, *args)

    def append_all(self, *args):
        return self._told(self._store.append_all, *args)

    def transact(self, *args):
        return self._told(self._store.transact, *args)

    def put_artifact(self, *args):
        return self._told(self._store.put_artifact, *args)


class LiveWork:
    """A live run in a SQLite store."""

    name = "live run"
    mark = "?"

    def __init__(self, coroutines: bool = False) -> None:
        self.coroutines = coroutines

    # --- where it lives

    def open(self, folder: Path) -> Store:
        return holdfast.open_store(str(folder / ".holdfast" / "holdfast.db"), environ={})

    def run_id(self, folder: Path) -> str:
        return "run-live"

    def till(self, folder: Path) -> Counter[str]:
        """The rows in the user's own table, read past the store."""
        place = folder / ".holdfast" / "holdfast.db"
        if not place.exists():
            return Counter()
        connection = apsw.Connection(str(place))
        try:
            there = connection.execute("select 1 from sqlite_master where name = 'app_till'").fetchall()
            rows = connection.execute("select label from app_till").fetchall() if there else []
        finally:
            connection.close()
        return Counter(str(label) for (label,) in rows)

    def plant(self) -> None:
        """A planted bug changes the engine here, in the process that works and in the one that checks."""

    # --- what the laboratory asks for

    def prepare(self, folder: Path) -> None:
        """An empty store, and the ending of a run that nothing disturbs."""
        with tempfile.TemporaryDirectory(prefix="live-") as aside:
            undisturbed = LiveWork()
            with undisturbed.open(Path(aside)) as store:
                (folder / "expected").write_text(undisturbed.live(store, Path(aside), Moments(), lambda label: None))
        (folder / "world").mkdir()
        with self.open(folder):
            pass

    def work(self, folder: Path, ack: Callable[[str], None]) -> None:
        self.plant()
        plan = folder / PLAN
        moments = Moments(int(plan.read_text()) if plan.exists() else 0)
        with self.open(folder) as store:
            self.live(store, folder, moments, ack)
        ack(f"moments:{moments.count}")

    def check(self, folder: Path, acked: Sequence[str]) -> Verdict:
        self.plant()
        try:
            with self.open(folder) as store:
                self.judge(store, folder, acked)
        except Broken as broken:
            return Verdict(False, broken.kind, str(broken))
        except HoldfastError as error:
            return Verdict(True, "refused", f"{error.reason}: {error}")
        return Verdict(True, "whole", "")

    # --- running

    def live(self, store: Store, folder: Path, moments: Moments, ack: Callable[[str], None]) -> str:
        for name in OURS:
            os.environ.pop(name, None)
        lock = threading.Lock()

        def say(label: str) -> None:
            with lock:
                ack(label)

        timed, run_id = Timed(store, moments), self.run_id(folder)
        world = World(folder, run_id, self.mark, moments)
        options: dict[str, Any] = {"store": timed, "run_id": run_id, "ttl": LONG, "strictness": "max", **NOBODY}
        terminal.tell = lambda text: None
        if self.coroutines:
            return asyncio.run(self.live_later(world, say, options))
        with run(MISSION, **options) as live:
            return str(end(pipeline(Threads(live, say), world)))

    async def live_later(self, world, say, options) -> str:
        async with arun(MISSION, **options) as live:
            return str(await pipeline(Coroutines(live, say), world))

    # --- judging

    def judge(self, store: Store, folder: Path, acked: Sequence[str]) -> None:
        run_id = self.run_id(folder)
        with write_run(store, run_id) as log:
            state = log.state  # under the lease nobody else can still be writing
        open_before = self.look(state, folder, acked) if state.seq else set()
        ending, asked = self.resume(store, folder)
        missed = open_before - asked
        if missed:
            raise Broken("corrupt", f"nobody was asked about {sorted(missed)[0]}, and nobody can know")
        if ending != (folder / "expected").read_text():
            raise Broken("corrupt", "the run ended with another result")
        self.look_at_the_end(store, folder, holdfast.read_state(store, run_id))

    def resume(self, store: Store, folder: Path) -> tuple[str, set[str]]:
        """Go on until it rests. Whoever is asked looks at the world, and says what is there."""
        asked: set[str] = set()
        for _ in range(RESUMES):
            before = self.counted(folder)
            try:
                return self.live(store, folder, Moments(), lambda label: None), asked
            except holdfast.Stopped as stop:
                if stop.reason != "effect_unknown":
                    raise Broken("corrupt", f"the run stopped: {stop}") from None
            asked |= self.settle(store, folder, before)
        raise Broken("corrupt", "the run does not come to its end")

    def settle(self, store: Store, folder: Path, before: dict[str, Counter[str]]) -> set[str]:
        now, names = self.counted(folder), set()
        with write_run(store, self.run_id(folder)) as log:
            for key, status in list(log.state.effects_open.items()):
                name = log.state.effects[key].step_id
                kind, label = TRACES.get(name, ("", ""))
                if kind != BARE:
                    raise Broken("corrupt", f"{name} is {status}, though it can be repeated or looked at")
                done = now[BARE][label]
                if status == "unknown" and done != before[BARE][label]:
                    raise Broken("doubled", f"{name} was repeated, and then called unknown")
                receipt = {"line": label} if done else None
                log.record(
                    EffectSettled(effect_key=key, settled_as="done" if done else "not_done", by="lab", receipt=receipt)
                )
                names.add(name)
        return names

    # --- looking

    def counted(self, folder: Path) -> dict[str, Counter[str]]:
        return {**World(folder, self.run_id(folder), self.mark).count(), TILL: self.till(folder)}

    def look(self, state, folder: Path, acked: Sequence[str]) -> set[str]:
        """What a crash left: nothing doubled, nothing lost, nothing said that is not so. Gives the effects to ask about."""
        world = self.counted(folder)
        effects = {effect.step_id: effect.status for effect in state.effects.values()}
        for name, (kind, label) in TRACES.items():
            self.compare(name, kind, world[kind][label], effects.get(name))
        for label in acked:
            what, _, name = label.partition(":")
            step = state.steps.get(name)
            if (what == "step" and (step is None or step.status != "finished")) or (
                what == "effect" and effects.get(name) != "done"
            ):
                raise Broken("lost", f"{label} was acknowledged and is gone")
        return {name for name, status in effects.items() if status == "started" and TRACES.get(name, ("",))[0] == BARE}

    def compare(self, name: str, kind: str, done: int, status: str | None) -> None:
        """What was done, against what the log says."""
        if done > 1:
            raise Broken("doubled", f"{name} was done {done} times")
        if done and status is None:
            raise Broken("corrupt", f"{name} was done, and the log knows nothing of it")
        if status == "done" and not done:
            raise Broken("lost", f"the log calls {name} done, and it was not")
        if status in ("failed", "not_done", "abandoned") and done:
            raise Broken("corrupt", f"the log calls {name} {status}, and it was done")
        if kind == TILL and bool(done) != (status == "done"):
            raise Broken("corrupt", f"{name} was not committed with its event")

    def look_at_the_end(self, store: Store, folder: Path, state) -> None:
        self.look(state, folder, ())
        world = self.counted(folder)
        missing = [label for kind, label in TRACES.values() if not world[kind][label]]
        if missing:
            raise Broken("lost", f"{missing[0]} was never done, and the run is {state.status}")
        wrong = [kind for kind in EXACTLY_ONCE if sum(world[kind].values()) != len(names_of(kind))]
        if wrong:
            raise Broken("doubled", f"something {wrong[0]} was done under another name")
        statuses = {effect.status for effect in state.effects.values()}
        if state.status != "finished" or statuses != {"done"}:
            raise Broken("corrupt", f"the run is {state.status} with effects {sorted(statuses)}")
        findings = verify_run(store, state.run_id).findings
        if findings:
            raise Broken("corrupt", findings[0].problem)


class Hasty(LiveWork):
    """Every step counts as long: another thread announces it while it runs, or comes too late for that."""

    name = "live run, announced steps"

    def plant(self) -> None:
        steps.LONG, keeper.LISTEN, live_pipeline.LONGEST_DRAFT = 0.0, 0.001, 0.006

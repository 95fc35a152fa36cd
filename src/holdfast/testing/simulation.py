"""A small world in one thread: seeded workers, a clock that only the seed moves, faults, and a model that checks every answer.

The store and the log writer under test are given by the caller; everything else is made here from the seed alone, so the
same seed is the same story. It looks at no real clock and waits for nothing. `docs/reference/simulation.md` tells the rules.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Generator
from typing import Protocol

from holdfast.core.errors import (
    HoldfastError,
    IllegalEvent,
    LeaseHeld,
    LeaseLost,
    SequenceConflict,
    StoreUnavailable,
)
from holdfast.core.events import (
    CheckpointComplete,
    EffectFinished,
    EffectSettled,
    EffectStarted,
    Event,
    NoteRecorded,
    Policy,
    RunFinished,
    RunResumed,
    RunStarted,
    RunStopped,
    StepFailed,
    StepFinished,
    StepStarted,
)
from holdfast.core.named import NamedTuple
from holdfast.core.state import FINISHED, READY, RUNNING, STOPPED, RunState
from holdfast.ports import Lease, Owner, Store
from holdfast.testing.simulation_link import FAULTS, Crash, Link, Packet
from holdfast.testing.simulation_model import Clocks, Model, Violation, must

TTL = 5.0
QUIET = 40.0  # when the faults stop
DEADLINE = QUIET + 40 * TTL  # when every run must have ended
DECADE = 10 * 365 * 86400.0
JUMPS = (-DECADE, -3600.0, -TTL, 0.0, TTL, 3600.0, DECADE)
POLICIES: tuple[Policy, ...] = ("pure", "probed", "probed", "keyed", "once")

Life = Generator[float, None, None]
Trace = list[tuple[object, ...]]


class Log(Protocol):
    """The writer under test."""

    run_id: str
    lease: Lease

    @property
    def state(self) -> RunState: ...
    def record(self, *events: Event) -> RunState: ...
    def renew(self) -> None: ...
    def close(self) -> None: ...


class Hands(NamedTuple):
    """What a writer needs from outside: the time to write down, fresh operation ids, who it is, how long a lease lasts."""

    now: Callable[[], str]
    new_op: Callable[[], str]
    owner: Owner
    ttl: float


class Subject(NamedTuple):
    """What is under test. Only a test of the simulation itself makes careless workers, who act without a look at the lease."""

    make_store: Callable[[Clocks], Store]
    open_log: Callable[[Store, str, Hands], Log]
    careful: bool = True


class Outcome(NamedTuple):
    seed: int
    violation: str | None
    faults: Counter[str]
    facts: Counter[str]
    trace: Trace

    @property
    def digest(self) -> str:
        return hashlib.sha256(repr(self.trace).encode()).hexdigest()


class Task(NamedTuple):
    """One scripted step. `joined` records the ends of effect and step in one append; `fails` makes the first attempt fail."""

    step_id: str
    policy: Policy
    joined: bool
    fails: bool
    product: bytes | None


class Outside:
    """The world that effects touch: it counts, and deduplicates only where a key was promised."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()

    def act(self, key: str, policy: Policy) -> None:
        if not (policy == "keyed" and self.done[key]):
            self.done[key] += 1


class Worker:
    """One process with a small engine: it looks at the state, makes the next move and records it. Killed at any line."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.random = world.random
        self.name = f"worker-{number}"
        self.link = Link(world, self.name)
        self.hands = Hands(world.clocks.text, world.new_op, Owner("host", "boot", number, str(number)), TTL)

    def live(self) -> Life:
        while unfinished := self.world.unfinished():
            try:
                log = self.world.subject.open_log(self.link, self.random.choice(unfinished), self.hands)
            except (LeaseHeld, StoreUnavailable):
                yield self.random.uniform(1, TTL)
                continue
            yield from self._drive(log)

    def _drive(self, log: Log) -> Life:
        fresh = True
        while True:
            yield self._moment()
            try:
                state = self.world.model.look(log.run_id, log.state)
                if state.status == FINISHED or self.random.random() < 0.03:
                    return log.close()
                if fresh and state.status == RUNNING:
                    self._record(log, RunResumed(epoch=log.lease.epoch))
                fresh = False
                if self.random.random() < 0.1:
                    self._record(log, NoteRecorded(text=self.world.new_op()))
                yield from self._move(log, state)
            except LeaseLost:
                return None
            except (StoreUnavailable, SequenceConflict, IllegalEvent) as error:
                self.world.note(self.name, "met", type(error).__name__)
                if self.random.random() < 0.3:
                    return None

    def _moment(self) -> float:
        return self.random.uniform(0.05, 0.6)

    def _record(self, log: Log, *events: Event) -> None:
        self.world.model.recorded(log.run_id, log.record(*events))

    def _move(self, log: Log, state: RunState) -> Life:
        tasks = self.world.script[log.run_id]
        task = next(
            (t for t in tasks if t.step_id not in state.steps or state.steps[t.step_id].status != "finished"), None
        )
        if state.status == READY:
            self._record(log, RunStarted(mission_id="mission", plan=tuple(t.step_id for t in tasks)))
        elif state.status == STOPPED:
            self._record(log, *self._answers(state), RunResumed(epoch=log.lease.epoch))
        elif state.effects_open:
            self._settle(log, next(iter(state.effects_open)), state)
        elif task is None:
            self._record(log, RunFinished())
        else:
            yield from self._advance(log, state, task)

    def _answers(self, state: RunState) -> list[Event]:
        return [self._found(key, "person") for key in state.effects_open]

    def _found(self, key: str, by: str) -> EffectSettled:
        return EffectSettled(effect_key=key, settled_as="done" if self.world.outside.done[key] else "not_done", by=by)

    def _settle(self, log: Log, key: str, state: RunState) -> None:
        policy = state.effects[key].policy
        if policy == "once":
            unknown = EffectSettled(effect_key=key, settled_as="unknown")
            self._record(log, unknown, RunStopped(reason="effect_unknown"))
        elif policy == "probed":
            self._record(log, self._found(key, "probe"))
        else:
            self.world.outside.act(key, policy)
            self._record(log, EffectFinished(effect_key=key))

    def _advance(self, log: Log, state: RunState, task: Task) -> Life:
        step, effect = state.steps.get(task.step_id), state.effects.get(f"{log.run_id}.{task.step_id}")
        if step is None or step.status == "failed":
            self._record(log, StepStarted(step_id=task.step_id, attempt=step.attempt + 1 if step else 1))
        elif task.fails and step.attempt == 1:
            self._record(log, StepFailed(step_id=task.step_id, error="as scripted"))
        elif task.policy == "pure" or (effect is not None and effect.status == "done"):
            self._record(log, *self._ending(task, step.attempt))
        else:
            yield from self._perform(log, task, step.attempt)

    def _ending(self, task: Task, attempt: int) -> list[Event]:
        kept = self.link.put_artifact(task.product) if task.product is not None else None
        finished = StepFinished(step_id=task.step_id, attempt=attempt, output={"ok": True}, artifact=kept)
        return [finished, CheckpointComplete(checkpoint_id=f"after-{task.step_id}", step_id=task.step_id)]

    def _perform(self, log: Log, task: Task, attempt: int) -> Life:
        """Intent, act, outcome. Between the look at the lease and an act that no key protects, nothing may come."""
        key = f"{log.run_id}.{task.step_id}"
        self._record(log, EffectStarted(effect_key=key, step_id=task.step_id, policy=task.policy, arguments_hash=key))
        yield self._moment()
        if task.policy != "keyed" and self.world.subject.careful:
            log.renew()
        self.world.outside.act(key, task.policy)
        yield self._moment()
        self._record(log, EffectFinished(effect_key=key), *(self._ending(task, attempt) if task.joined else ()))


class World:
    """Everything that happens in one seed, in the order of the virtual clock."""

    def __init__(self, seed: int, subject: Subject, jumps: bool) -> None:
        self.random = random.Random(seed)
        self.subject = subject
        self.jumps = JUMPS if jumps else (0.0,) * len(JUMPS)
        self.clocks = Clocks()
        self.outside = Outside()
        self.script = {f"run-{n}": self._tasks() for n in range(self.random.randint(1, 3))}
        self.model = Model(subject.make_store(self.clocks), self.clocks, list(self.script))
        self.rate = self.random.choice((0.0, 0.05, 0.1, 0.15, 0.2, 0.3))
        self.menu = {at: [kind for kind in kinds if self.random.random() < 0.7] for at, kinds in FAULTS.items()}
        self.faults: Counter[str] = Counter()
        self.trace: Trace = []
        self.queue: list[tuple[float, int, Callable[[], None]]] = []
        self.numbers = itertools.count(1)
        self.flying: dict[int, Packet] = {}

    def _tasks(self) -> list[Task]:
        chance = self.random.random
        products = [b"product %d" % n if chance() < 0.4 else None for n in range(self.random.randint(1, 3))]
        return [
            Task(f"step-{n}", self.random.choice(POLICIES), chance() < 0.5, chance() < 0.2, product)
            for n, product in enumerate(products)
        ]

    def new_op(self) -> str:
        return f"{next(self.numbers):032x}"

    def unfinished(self) -> list[str]:
        return [run_id for run_id, run in self.model.runs.items() if run.state.status != FINISHED]

    def note(self, *words: object) -> None:
        self.trace.append((self.clocks.time, *words))

    def strike(self, at: str) -> str | None:
        """Which fault happens here, if any."""
        often = self.rate * (0.35 if at == "rest" else 1)
        if self.clocks.time > QUIET or not self.menu[at] or self.random.random() >= often:
            return None
        return self.random.choice(self.menu[at])

    def count(self, fault: str) -> None:
        self.faults[fault] += 1

    def later(self, delay: float, act: Callable[[], None]) -> None:
        heapq.heappush(self.queue, (self.clocks.time + delay, next(self.numbers), act))

    def post(self, packet: Packet) -> None:
        number = next(self.numbers)
        self.flying[number] = packet
        self.later(self.random.uniform(0.1, 3 * TTL), lambda: self.deliver(number))

    def deliver_all(self) -> None:
        for number in list(self.flying):
            self.deliver(number)

    def deliver(self, number: int) -> None:
        packet = self.flying.pop(number, None)
        if packet is None:
            return
        name, lease, records, shown = packet
        try:
            self.model.append(lease, records, shown)
            self.note(name, "late append", lease.run_id, records[0].seq)
        except HoldfastError as error:
            self.note(name, "late append", lease.run_id, records[0].seq, type(error).__name__)

    def spawn(self, delay: float) -> None:
        worker = Worker(self, next(self.numbers))
        self.later(delay, lambda: self.step(worker, worker.live()))

    def step(self, worker: Worker, life: Life) -> None:
        fault = self.strike("rest")
        self.note(worker.name, "wakes", fault)
        if fault is not None:
            self.count(fault)
        if fault == "clock jump":
            self.clocks.skew = self.random.choice(self.jumps)
        try:
            if fault == "crash":
                raise Crash
            delay = next(life)
        except StopIteration:
            return
        except Crash:
            self.spawn(self.random.uniform(0, TTL))
            return
        pause = self.random.uniform(1.1, 3) * TTL if fault == "pause" else 0.0
        self.later(delay + pause, lambda: self.step(worker, life))

    def run(self) -> None:
        for _ in range(self.random.randint(2, 4)):
            self.spawn(self.random.uniform(0, 1))
        while self.queue:
            self.clocks.time, _, act = heapq.heappop(self.queue)
            if self.clocks.time > DEADLINE:
                raise Violation(f"{', '.join(self.unfinished())}: not ended long after the faults did")
            act()
        self.model.finish()
        for run_id, tasks in self.script.items():
            for task in tasks:
                self._inspect(run_id, task)

    def _inspect(self, run_id: str, task: Task) -> None:
        done = self.outside.done[f"{run_id}.{task.step_id}"]
        wanted = 0 if task.policy == "pure" else 1
        must(done == wanted, "the {} effect of {} {} was done {} times", task.policy, run_id, task.step_id, done)
        step = self.model.runs[run_id].state.steps[task.step_id]
        kept = self.model.store.get_artifact(step.artifact) if step.artifact is not None else None
        must(kept == task.product, "the artifact of {} {} is not what was put there", run_id, task.step_id)


def simulate(seed: int, subject: Subject, jumps: bool = True) -> Outcome:
    """One story, from its seed. Anything the code under test raises and should not is a violation too."""
    world = World(seed, subject, jumps)
    violation = None
    try:
        world.run()
    except Violation as broken:
        violation = str(broken)
    except Exception as error:
        violation = f"{type(error).__name__}: {error}"
    return Outcome(seed, violation, world.faults, world.model.facts, world.trace)

"""What the laboratory breaks: real logs in a real SQLite store, with planted bugs to prove that it would notice."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast.core.errors import HoldfastError
from holdfast.core.events import Extension, NoteRecorded, RunStarted, StepFinished, StepStarted
from holdfast.core.wire import decode
from holdfast.engine.log import RunLog, World, verify_run
from holdfast.ports import Owner, Store
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.crashlab.workload import Verdict

RUNS = ("run-a", "run-b")
AT = "2026-01-02T03:04:05.000006Z"


def world(seed: int = 0) -> World:
    """Fixed time, counted operation ids: the same work is the same bytes."""
    count = itertools.count(1)
    return World(lambda: AT, lambda: f"{seed:016x}{next(count):016x}", Owner("lab", "boot-1", 1, "1"))


class LogWork:
    """Two runs, some batches, an artifact and a snapshot, each acknowledged by its label."""

    name = "log"

    def __init__(self, events: int = 4, witness: str = "lagging", open_in_work: bool = True) -> None:
        self.events = events
        self.witness = witness
        self.open_in_work = open_in_work

    def open(self, folder: Path) -> SqliteStore:
        return SqliteStore(folder / ".holdfast" / "holdfast.db", boot_id="boot-1", witness=self.witness, patience=5.0)

    def prepare(self, folder: Path) -> None:
        if not self.open_in_work:
            return
        with self.open(folder) as store:
            self.begin(store)

    def begin(self, store: Store) -> None:
        for number, run_id in enumerate(RUNS):
            with RunLog(store, run_id, world(number)) as log:
                log.record(RunStarted(mission_id="lab"))

    def work(self, folder: Path, ack: Callable[[str], None]) -> None:
        store = self.open(folder)
        if not self.open_in_work:
            self.begin(store)
        logs = [RunLog(store, run_id, world(100 + number)) for number, run_id in enumerate(RUNS)]
        for number in range(self.events):
            log = logs[number % len(logs)]
            label = f"{log.run_id}:{number}"
            self.append(log, label, number, ack)
        digest = store.put_artifact(b"kept by its hash " * 40)
        ack(f"artifact:{digest}")
        for log in logs:
            log.close()
        store.close()

    def append(self, log: RunLog, label: str, number: int, ack: Callable[[str], None]) -> None:
        if number % 3 == 2:
            log.record(
                StepStarted(step_id=label),
                NoteRecorded(text=label),
                StepFinished(step_id=label, output={"label": label}),
            )
        else:
            log.record(NoteRecorded(text=label), Extension(kind="x_lab", data={"pad": "p" * 400}))
        ack(label)

    def check(self, folder: Path, acked: Sequence[str]) -> Verdict:
        try:
            with self.open(folder) as store:
                verdict = self.look(store, acked)
                if verdict.ok:
                    self.go_on(store)
            return verdict
        except HoldfastError as error:
            return Verdict(True, "refused", f"{error.reason}: {error}")

    def look(self, store: Store, acked: Sequence[str]) -> Verdict:
        found: Counter[str] = Counter()
        for head in store.heads():
            verification = verify_run(store, head.run_id)
            if verification.findings:
                finding = verification.findings[0]
                return Verdict(True, "refused", f"{finding.reason}: {finding.problem}")
            found.update(self.labels(store, head.run_id))
        doubled = [label for label, times in found.items() if times > 1]
        if doubled:
            return Verdict(False, "doubled", f"{doubled[0]} is there {found[doubled[0]]} times")
        for label in acked:
            if label.startswith("artifact:"):
                store.get_artifact(label.removeprefix("artifact:"))
            elif label not in found:
                return Verdict(False, "lost", f"{label} was acknowledged and is gone")
        return Verdict(True, "whole", "")

    def labels(self, store: Store, run_id: str) -> list[str]:
        events = (decode(record) for record in store.read(run_id))
        return [event.text for event in events if isinstance(event, NoteRecorded) and ":" in event.text]

    def go_on(self, store: Store) -> None:
        """The store is not only readable: the next run appends to it."""
        with RunLog(store, "run-after", world(999)) as log:
            if log.state.seq == 0:
                log.record(RunStarted(mission_id="after"))


class AckBeforeCommit(LogWork):
    name = "planted: acknowledged before the commit"

    def append(self, log: RunLog, label: str, number: int, ack: Callable[[str], None]) -> None:
        ack(label)
        log.record(NoteRecorded(text=label))


class LazySync(LogWork):
    """The database does not wait for the disk."""

    name = "planted: synchronous=NORMAL"
    pragma = "normal"

    def open(self, folder: Path) -> SqliteStore:
        store = super().open(folder)
        store._writing().pragma("synchronous", self.pragma)
        return store


class NoSync(LazySync):
    name = "planted: synchronous=OFF"
    pragma = "off"

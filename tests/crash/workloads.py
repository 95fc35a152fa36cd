"""What the laboratory breaks: real logs in a real SQLite store, with planted bugs to prove that it would notice."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast.core.errors import HoldfastError
from holdfast.core.events import Extension, NoteRecorded, RunStarted, StepFinished, StepStarted
from holdfast.core.wire import decode
from holdfast.engine.log import RunLog, World, read_head, verify_run
from holdfast.ports import Owner, Store
from holdfast.stores import sqlite_commit, sqlite_file
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite_tables import TABLES, Tables
from holdfast.stores.witness import sightings
from holdfast.testing.crashlab.workload import Verdict

RUNS = ("run-a", "run-b")
PAD = b'{"pad":"' + b"p" * 400 + b'"}'
AT = "2026-01-02T03:04:05.000006Z"


def world(seed: int = 0) -> World:
    """Fixed time, counted operation ids: the same work is the same bytes."""
    count = itertools.count(1)
    return World(lambda: AT, lambda: f"{seed:016x}{next(count):016x}", Owner("lab", "boot-1", 1, "1"))


class LogWork:
    """Two runs, lone events and batches, an artifact and a snapshot, each acknowledged by its label."""

    name = "log"

    def __init__(self, events: int = 4, witness: str = "lagging", open_in_work: bool = True) -> None:
        self.events = events
        self.witness = witness
        self.open_in_work = open_in_work
        self.logs: list[RunLog] = []

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
        self.logs = logs = [RunLog(store, run_id, world(100 + number)) for number, run_id in enumerate(RUNS)]
        for number in range(self.events):
            log = logs[number % len(logs)]
            label = f"{log.run_id}:{number}"
            self.append(log, label, number, ack)
        digest = store.put_artifact(b"kept by its hash " * 40)
        ack(f"artifact:{digest}")
        for log in logs:
            log.close()
        store.close()

    def again(self, ack: Callable[[str], None]) -> None:
        """Append once more with whatever an interruption left open."""
        for log in self.logs:
            label = f"{log.run_id}:again"
            log.record(NoteRecorded(text=label))
            ack(label)

    def append(self, log: RunLog, label: str, number: int, ack: Callable[[str], None]) -> None:
        if number % 3 == 2:
            log.record(
                StepStarted(step_id=label),
                NoteRecorded(text=label),
                StepFinished(step_id=label, output={"label": label}),
            )
        elif number % 4 == 3:
            log.record(NoteRecorded(text=label))
        else:
            log.record(NoteRecorded(text=label), Extension(kind="x_lab", data={"pad": "p" * 400}))
        ack(label)

    def check(self, folder: Path, acked: Sequence[str]) -> Verdict:
        seen = self.seen(folder)  # what opening the store may write anew
        try:
            with self.open(folder) as store:
                verdict = self.look(store, acked)
                if verdict.ok and self.witness == "strict":
                    verdict = self.witnessed(store, acked, seen)
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
            if head.projection.steps_open:
                return Verdict(False, "corrupt", f"half of a batch of {head.run_id} is there")
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

    def seen(self, folder: Path) -> set[bytes]:
        """The heads that the witness remembers."""
        return {sighting.hash for sighting in sightings(str(folder / ".holdfast" / "holdfast.db-witness")) or ()}

    def witnessed(self, store: Store, acked: Sequence[str], seen: set[bytes]) -> Verdict:
        """A strict witness was on the disk before the acknowledgement: it knows the last one of each run, or a later head."""
        for head in store.heads():
            unseen = ""
            for record in store.read(head.run_id):
                event = decode(record)
                unseen = event.text if isinstance(event, NoteRecorded) and event.text in acked else unseen
                unseen = "" if record.hash in seen else unseen
            if unseen:
                return Verdict(False, "lost", f"{unseen} was acknowledged and the strict witness does not know of it")
        return Verdict(True, "whole", "")

    def labels(self, store: Store, run_id: str) -> list[str]:
        events = (decode(record) for record in store.read(run_id))
        return [event.text for event in events if isinstance(event, NoteRecorded) and ":" in event.text]

    def go_on(self, store: Store) -> None:
        """The store is not only readable: the next run appends to it."""
        with RunLog(store, "run-after", world(999)) as log:
            if log.state.seq == 0:
                log.record(RunStarted(mission_id="after"))


class Lone(LogWork):
    """One event to an append, as most are. The third and later appends take the short way."""

    name = "log, one event at a time"

    def append(self, log: RunLog, label: str, number: int, ack: Callable[[str], None]) -> None:
        log.record(NoteRecorded(text=label))
        ack(label)


class Crowd(LogWork):
    """Runs that are written in one commit, by one call and by threads: a fault hits all of them and may lose none."""

    name = "log, many at once"

    def work(self, folder: Path, ack: Callable[[str], None]) -> None:
        store = self.open(folder)
        self.logs = logs = [RunLog(store, run_id, world(100 + number)) for number, run_id in enumerate(RUNS)]
        for number in range(self.events):
            labels = [f"{log.run_id}:{number}" for log in logs]
            self.together(store, logs, labels, ack)
        other = threading.Thread(target=self.append, args=(logs[0], "run-a:thread", 2, ack))
        other.start()
        try:
            self.append(logs[1], "run-b:main", 2, ack)
        finally:
            other.join()
        for log in logs:
            log.close()
        store.close()

    def together(self, store: Store, logs: list[RunLog], labels: list[str], ack: Callable[[str], None]) -> None:
        drafts = [log.draft(NoteRecorded(text=label)) for log, label in zip(logs, labels, strict=True)]
        outcomes = store.append_all(drafts)
        for log, draft, label, problem in zip(logs, drafts, labels, outcomes, strict=True):
            if problem is None:
                log.confirm(draft)
                ack(label)


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
        store._writer.connection().pragma("synchronous", self.pragma)
        return store


class NoSync(LazySync):
    name = "planted: synchronous=OFF"
    pragma = "off"


class NoFolderSync(LogWork):
    """The new database is linked into its folder, and the folder is left to chance."""

    name = "planted: no folder sync"

    def __init__(self) -> None:
        super().__init__(open_in_work=False)

    def work(self, folder: Path, ack: Callable[[str], None]) -> None:
        sqlite_file.sync_folder = lambda folder: None
        super().work(folder, ack)


class NoWitness(LogWork):
    """A lost tail is a perfectly good shorter log."""

    name = "planted: no witness"

    def open(self, folder: Path) -> SqliteStore:
        (folder / ".holdfast" / "holdfast.db-witness").unlink(missing_ok=True)
        return super().open(folder)


class LaxWitness(LogWork):
    """The witness is said to be strict, and nobody waits for it."""

    name = "planted: a strict witness that lags"

    def __init__(self) -> None:
        super().__init__(witness="strict")

    def open(self, folder: Path) -> SqliteStore:
        store = super().open(folder)
        store._writer.strict = False
        return store


class NoChain(LogWork):
    """Events are believed without their hash."""

    name = "planted: no chain"

    def look(self, store: Store, acked: Sequence[str]) -> Verdict:
        wanted = set(acked)
        pads = (record for head in store.heads() for record in store.read(head.run_id) if record.kind == "x_lab")
        if any(record.body != PAD for record in pads):
            return Verdict(False, "corrupt", "an event says what was never written")
        texts = [text for head in store.heads() for text in self.labels(store, head.run_id)]
        strange = [text for text in texts if text not in wanted]
        if strange:
            return Verdict(False, "corrupt", f"{strange[0]} was never written")
        missing = [label for label in wanted if label not in texts and not label.startswith("artifact:")]
        return Verdict(False, "lost", missing[0]) if missing else Verdict(True, "whole", "")


class UnsureWriter(LogWork):
    """After an interruption the writer believes its memory instead of reading the log again."""

    name = "planted: trusts its memory after an interruption"

    def work(self, folder: Path, ack: Callable[[str], None]) -> None:
        RunLog._reload = _reload_only_once  # type: ignore[method-assign, assignment]
        super().work(folder, ack)


def _reload_only_once(log: RunLog) -> None:
    if not hasattr(log, "_began"):
        log._state, log._head, log._began = read_head(log.store, log.run_id)
    log._sure = True


class Swallowed(LogWork):
    """An error of the disk is shrugged off and the event counted as written."""

    name = "planted: a failed append is acknowledged"

    def append(self, log: RunLog, label: str, number: int, ack: Callable[[str], None]) -> None:
        try:
            log.record(NoteRecorded(text=label))
        except HoldfastError:
            log._sure = False
        ack(label)


class Stubborn(LogWork):
    """A caller that asks again after an error, and believes what it then reads."""

    name = "log, asking again after errors"

    def append(self, log: RunLog, label: str, number: int, ack: Callable[[str], None]) -> None:
        try:
            super().append(log, label, number, ack)
        except HoldfastError:
            log._sure = False
            log._reload()
            if label in self.labels(log.store, log.run_id):
                ack(label)
            else:
                super().append(log, label, number, ack)


class Insistent(LogWork):
    """A caller that sends the very same append again after an error: its operation id keeps it once."""

    name = "log, sending again after errors"

    def append(self, log: RunLog, label: str, number: int, ack: Callable[[str], None]) -> None:
        draft = log.draft(NoteRecorded(text=label))
        try:
            log.store.append(*draft)
        except HoldfastError:
            log.store.append(*draft)
        log.confirm(draft)
        ack(label)


class SplitBatch(LogWork):
    """Events that belong together are committed one by one."""

    name = "planted: a batch in several commits"

    def append(self, log: RunLog, label: str, number: int, ack: Callable[[str], None]) -> None:
        log.record(StepStarted(step_id=label), NoteRecorded(text=label))
        log.record(StepFinished(step_id=label))
        ack(label)


class Unfenced(Tables):
    def filled(self, sql: str, table: int) -> str:
        return super().filled(sql, table).replace("and epoch = ?11", "and ?11 > 0")


class NoFence(LogWork):
    """The lease epoch is not looked at when an event is written."""

    name = "planted: no fence"

    def open(self, folder: Path) -> SqliteStore:
        setattr(sqlite_commit, "TABLES", Unfenced(TABLES.names))  # noqa: B010 - a defect that is planted
        return super().open(folder)

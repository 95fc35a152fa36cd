"""Is this set-up sound? Checks on a store and on what was seen around it; each answers with findings. Changes nothing.

A finding is ok, warn or fail, says one sentence, and names the command that helps where there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

from holdfast.core.errors import HoldfastError, LogDamaged, NotFound, StoreBusy, StoreUnreadable, TailLost
from holdfast.core.named import NamedTuple
from holdfast.engine.log import SNAPSHOT_DRIFT, verify_run
from holdfast.ports import Head, Store

OK, WARN, FAIL = "ok", "warn", "fail"
SAFE_SQLITE = (3, 51, 3)
NETWORK = frozenset(
    {"nfs", "nfs3", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "fuse.sshfs"}
)
LOW_BYTES, FULL_BYTES = 1 << 30, 64 << 20
CLOCK_SLACK = 60.0
RECENT = 200
NAMED = 5
SHOW_TIME = "date -u"
ACCEPT = "holdfast doctor --fix --accept-loss"
BACKUP = "Keep the files as they are, and put a backup of the store in their place."
ADVICE = {
    TailLost.reason: f"Put the newer copy of the store back, or go on without what is lost: `{ACCEPT}`.",
    LogDamaged.reason: BACKUP,
    StoreUnreadable.reason: BACKUP,
    StoreBusy.reason: "Wait until the process that is writing has ended, then look again.",
}
DURABLE = {"fsync": "on", "full_page_writes": "on"}


class Finding(NamedTuple):
    check: str
    level: str
    sentence: str
    fix: str = ""
    reason: str | None = None


class Seen(NamedTuple):
    """What was seen around the store: files with their modes, space, time. None means it cannot be known here."""

    place: str
    now: str
    free_bytes: int | None = None
    filesystem: str | None = None
    modes: tuple[tuple[str, int], ...] = ()
    drafts: tuple[str, ...] = ()
    foreign: tuple[tuple[str, int], ...] = ()


Check = Callable[[Store, Seen], Iterator[Finding]]


def examine(store: Store | None, problem: HoldfastError | None, seen: Seen) -> Iterator[Finding]:
    """Every finding, the same one once. Without a store only what was seen around it is judged."""
    told: set[str] = set()
    for finding in look(store, problem, seen):
        if finding.sentence not in told:
            told.add(finding.sentence)
            yield finding


def look(store: Store | None, problem: HoldfastError | None, seen: Seen) -> Iterator[Finding]:
    if problem is not None:
        yield unopened(problem, seen)
    if store is not None:
        yield from attempt(opened, store, seen)
    for around in AROUND:
        yield from around(seen)
    if store is not None:
        for check in INSIDE:
            yield from attempt(check, store, seen)


def unopened(problem: HoldfastError, seen: Seen) -> Finding:
    if isinstance(problem, NotFound):
        return Finding("store", OK, f"There is no store at {seen.place} yet; the first run makes one.")
    return failed("store", problem)


def opened(store: Store, seen: Seen) -> Iterator[Finding]:
    facts = store.facts()
    yield Finding("store", OK, f"{seen.place} opens: {facts['runs']} runs, {facts['events']} events.")


def attempt(check: Check, store: Store, seen: Seen) -> Iterator[Finding]:
    """What a check cannot read is a finding too."""
    try:
        yield from check(store, seen)
    except HoldfastError as problem:
        yield failed("store", problem)


def failed(check: str, problem: HoldfastError) -> Finding:
    fix = ACCEPT if isinstance(problem, TailLost) else ""
    return Finding(check, FAIL, f"{problem} {what_to_do(problem)}".rstrip(), fix, problem.reason)


def what_to_do(problem: HoldfastError) -> str:
    """The advice of whoever is already looking with doctor: never to look with doctor."""
    return ADVICE.get(problem.reason, problem.advice)


# --- around the store


def disk(seen: Seen) -> Iterator[Finding]:
    if seen.free_bytes is None:
        return
    free = f"{seen.free_bytes / (1 << 30):.1f} GiB are free."
    if seen.free_bytes < FULL_BYTES:
        yield Finding("disk", FAIL, f"The disk is nearly full: {free}", reason="store_full")
    elif seen.free_bytes < LOW_BYTES:
        yield Finding("disk", WARN, f"The disk is filling up: {free}")
    else:
        yield Finding("disk", OK, free)


def filesystem(seen: Seen) -> Iterator[Finding]:
    if seen.filesystem is None:
        return
    if seen.filesystem in NETWORK:
        sentence = (
            f"The store is on a network file system ({seen.filesystem}), whose locks and flushes cannot be relied on."
        )
        yield Finding("file system", WARN, sentence)
    else:
        yield Finding("file system", OK, f"The store is on a local file system ({seen.filesystem}).")


def modes(seen: Seen) -> Iterator[Finding]:
    """Nobody else may read the files, nobody else may write the folder; and you may do both."""
    wrong = [(path, mode, wanted) for path, mode in seen.modes if (wanted := rights(mode)) & ~mode or mode & 0o077]
    for path, mode, wanted in wrong:
        if mode & 0o1000:
            shared = (
                f"The folder {path} is shared: others may keep files there, too. Keep the store in one of your own."
            )
            yield Finding("modes", WARN, shared)
            continue
        who = "Others may use" if mode & 0o077 else "You may not change"
        yield Finding("modes", WARN, f"{who} {path} (mode {mode & 0o777:o}).", f"chmod {wanted:o} {quoted(path)}")
    for path, uid in seen.foreign[:1]:
        more = len(seen.foreign) - 1
        said = f"and {more} more belong" if more else "belongs"
        yield Finding(
            "modes", WARN, f"{path} {said} to another user (uid {uid}), who may read the store and change it."
        )
    if seen.modes and not wrong and not seen.foreign:
        yield Finding("modes", OK, "Only you may read the store.")


def rights(mode: int) -> int:
    """What its owner needs: of a folder also to enter it."""
    return 0o700 if mode & 0o40000 else 0o600


def drafts(seen: Seen) -> Iterator[Finding]:
    if seen.drafts:
        named = ", ".join(seen.drafts[:NAMED])
        yield Finding(
            "drafts", WARN, f"A store that was never finished was left behind: {named}.", "holdfast doctor --fix"
        )


def quoted(path: str) -> str:
    return "'" + path.replace("'", "'\\''") + "'"


# --- inside the store


def engine(store: Store, seen: Seen) -> Iterator[Finding]:
    facts = store.facts()
    name, version = facts["engine"], str(facts["engine_version"])
    if name == "sqlite" and numbers(version) < SAFE_SQLITE:
        sentence = f"SQLite {version} can damage a database that two processes write; {'.'.join(map(str, SAFE_SQLITE))} is safe."
        yield Finding("engine", FAIL, sentence, reason="store_unreadable")
        return
    yield Finding("engine", OK, f"{name} {version} is safe to use.")
    for setting, wanted in DURABLE.items():
        if facts.get(setting, wanted) != wanted:
            yield Finding(
                "engine",
                FAIL,
                f"The server runs with {setting} = {facts[setting]}: events can be lost.",
                reason="store_io",
            )


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def witness(store: Store, seen: Seen) -> Iterator[Finding]:
    state = str(store.facts().get("witness", ""))
    if state == "missing":
        sentence = "The head witness is missing, so a lost end of the log would not be noticed."
        yield Finding("witness", WARN, sentence, "holdfast doctor --fix")
    elif state.startswith("degraded"):
        yield Finding(
            "witness",
            WARN,
            f"The head witness cannot be written ({state.partition(': ')[2]}).",
            "holdfast doctor --fix",
        )
    elif state:
        yield Finding("witness", OK, "The log holds every head that the witness saw.")


def clock(store: Store, seen: Seen) -> Iterator[Finding]:
    """The first and the last event of each recent run; what lies between is not read for it."""
    newest = max((at for head in store.heads(limit=RECENT) for at in (head.started_at, head.updated_at)), default="")
    behind = seconds(seen.now, newest) if newest else 0.0
    if behind is None:
        yield Finding("clock", WARN, "An event carries a time that cannot be read.", "holdfast verify --all")
    elif behind > CLOCK_SLACK:
        sentence = (
            f"The clock is {behind:,.0f} s behind an event. Order and leases do not depend on it, times do. "
            "If this is not the right time, set it; if it is, a clock ran ahead then, and this goes away by itself."
        )
        yield Finding("clock", WARN, sentence, SHOW_TIME)
    else:
        yield Finding("clock", OK, f"The clock is not behind the first or the last event of the last {RECENT} runs.")


def seconds(earlier: str, later: str) -> float | None:
    try:
        return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()
    except (ValueError, TypeError):
        return None


def owners(store: Store, seen: Seen) -> Iterator[Finding]:
    """Runs whose process died with the lease in its hand. That harms nothing, and only its program can go on with one."""
    gone = [head for head in store.heads(unfinished=True) if is_interrupted(head)]
    for head in gone[:NAMED]:
        sentence = f"Run {head.run_id} was interrupted after event {head.seq}; its owner was {head.owner}."
        more = f"It goes on when it is started again; `holdfast resume {head.run_id}` says from where."
        yield Finding("owners", OK, f"{sentence} {more}")
    if len(gone) > NAMED:
        yield Finding("owners", OK, f"{len(gone) - NAMED} more runs were interrupted; `holdfast resume` lists them.")
    if not gone:
        yield Finding("owners", OK, "No run has lost its owner.")


def is_interrupted(head: Head) -> bool:
    return head.projection.status == "running" and not head.held and head.owner is not None


def snapshots(store: Store, seen: Seen) -> Iterator[Finding]:
    drifted = list(drifted_snapshots(store))
    for run_id in drifted[:NAMED]:
        sentence = f"The snapshot of run {run_id} is not the fold of its log."
        yield Finding("snapshots", WARN, sentence, "holdfast doctor --fix")
    if not drifted:
        yield Finding("snapshots", OK, f"The snapshots of the last {RECENT} runs agree with their logs.")


def tails(store: Store, seen: Seen) -> Iterator[Finding]:
    """Of the recent runs, those that once stood further than their log goes."""
    short = [head for head in store.heads(limit=RECENT) if next(store.read(head.run_id, head.seq - 1, 1), None) is None]
    for head in short:
        sentence = f"Run {head.run_id} was at event {head.seq}, which is gone from its log."
        yield Finding("tails", FAIL, sentence, ACCEPT, TailLost.reason)
    if not short:
        yield Finding("tails", OK, f"The last {RECENT} runs are as long as they ever were.")


def runs(store: Store, seen: Seen) -> Iterator[Finding]:
    """A run that was recorded must be listed, and a run that is listed must have been recorded."""
    strays = store.strays()
    for run_id, last, damage in strays[:NAMED]:
        sentence = f"Run {run_id}, event {last}: {damage}. {BACKUP}"
        yield Finding("runs", FAIL, sentence, "" if last else ACCEPT, LogDamaged.reason)
    if len(strays) > NAMED:
        yield Finding("runs", FAIL, f"{len(strays) - NAMED} more runs are lost.", "holdfast verify", LogDamaged.reason)
    if not strays:
        yield Finding("runs", OK, "Every run that has events is listed.")


def drifted_snapshots(store: Store) -> Iterator[str]:
    """Of the recent runs, those whose cached state differs from the fold."""
    for head in store.heads(limit=RECENT):
        kept = store.load_snapshot(head.run_id)
        if kept is None:
            continue
        findings = verify_run(store, head.run_id).findings
        if kept[0] > head.seq or any(finding.reason == SNAPSHOT_DRIFT for finding in findings):
            yield head.run_id


AROUND: tuple[Callable[[Seen], Iterator[Finding]], ...] = (disk, filesystem, modes, drafts)
INSIDE: tuple[Check, ...] = (engine, witness, clock, runs, owners, tails, snapshots)

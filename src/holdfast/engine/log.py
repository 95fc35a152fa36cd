"""The writer and the readers of one run's log. An event is redacted, folded and durable before `record` returns.

A `RunLog` that failed in mid-append does not guess: it reads the log again before it writes anything more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import BadFile, HoldfastError, LogDamaged, NewerSchema, NotFound, TailLost, UsageError
from holdfast.core.events import Event, RunResumed
from holdfast.core.named import NamedTuple
from holdfast.core.state import FINISHED, STOPPED, RunState, evolve, projection, seal, snapshot, unseal
from holdfast.core.values import Append, Head, Lease, Owner, Projection, Record
from holdfast.core.wire import BEGUN, GENESIS, Plainly, Redact, begun_for_many, check_chain, decode, encode

if TYPE_CHECKING:
    from holdfast.ports import Sql, Store

TTL = 30.0
LONGEST_TTL = 1_000_000  # seconds, eleven days: a process that died must leave its run to another one some day
SNAPSHOT_EVERY = 500
FEW = 32  # events that a process records before the quicker hash is worth loading
_MANY = 800  # events that it takes as long to hash by what is there as to load the quicker hash for them
SNAPSHOT_DRIFT = "snapshot_drift"
AT_REST = (STOPPED, FINISHED)
_PLAINLY = Plainly()

_tuple = tuple.__new__  # what a NamedTuple does in the end, without its frame


class World(NamedTuple):
    """What a log needs from outside: the time to write down, fresh operation ids, and who we are."""

    now: Callable[[], str]
    new_op: Callable[[], str]
    owner: Owner


class RunLog:
    """The one writer of a run, for as long as its lease holds."""

    def __init__(
        self,
        store: Store,
        run_id: str,
        world: World,
        redact: Redact | None = None,
        ttl: float = TTL,
        *,
        trust_snapshot: bool = False,
    ) -> None:
        self.store = store
        self.run_id = run_id
        self.world = world
        self._new_op, self._now = world.new_op, world.now
        self.redact = redact if redact is not None else _PLAINLY
        _check_ttl(ttl)
        self.lease: Lease = store.take(run_id, world.owner, ttl)
        self._trust_snapshot = trust_snapshot
        self._sure = self.busy = False
        self._begun, self._few = BEGUN, FEW
        self._state, self._head = RunState(run_id=run_id), GENESIS
        try:
            self._reload()
        except HoldfastError:
            store.release(self.lease)
            raise

    @property
    def state(self) -> RunState:
        """The fold of the log, without anything whose append failed. While it is `busy`, with what is on its way."""
        if not (self._sure or self.busy):
            self._reload()
        return self._state

    @property
    def head(self) -> bytes:
        """The hash of the last event."""
        return self._head if self.state.seq else GENESIS

    def record(self, *events: Event) -> RunState:
        """Append events, all or none, and return the state after them. Durable when this returns."""
        if len(events) != 1 or not self._sure:
            append = self.draft(*events)
            if append.records:
                self.store.append(*append)
            return self.confirm(append)
        # the same for the usual event, with nothing called that need not be: this is the hot path of every run
        self._sure = False
        state = self._state
        if self._few:
            self._count()
        event = events[0]
        redact = self.redact if type(event) is not RunResumed else self._redact_for(event)
        record, seen = encode(
            event, self.run_id, state.seq + 1, self._head, self._now(), self._new_op(), redact, self._begun
        )
        evolve(state, seen)
        self.store.append(self.lease, (record,), projection(state))
        self._head = record.hash
        self._sure = True
        return state

    def _redact_for(self, event: RunResumed) -> Redact:
        """What says only what this log says already brings no secret in, so a run is resumed without a search for any."""
        said = RunResumed(epoch=self.lease.epoch, was=self._state.stop_reason or self._state.status)
        return _PLAINLY if event == said else self.redact

    def _count(self) -> None:
        self._few -= 1
        if not self._few:
            self._begun = begun_for_many()

    def draft(self, *events: Event) -> Append:
        """The append of these events, redacted, folded and ready. Whoever gets it written must `confirm` it."""
        if not self._sure:
            self._reload()
        self._sure = False
        op, at, begun = self._new_op(), self._now(), begun_for_many()
        state, head = self._state, self._head
        records: list[Record] = []
        for event in events:
            redact = self.redact if type(event) is not RunResumed else self._redact_for(event)
            record, seen = encode(event, self.run_id, state.seq + 1, head, at, op, redact, begun)
            evolve(state, seen)
            records.append(record)
            head = record.hash
        return _tuple(Append, (self.lease, records, projection(state)))

    def confirm(self, append: Append) -> RunState:
        """The store has acknowledged it: what was drafted is now the log."""
        if append.records:
            self._head = append.records[-1].hash
        self._sure = True
        return self._state

    def transact(self, work: Callable[[Sql], Iterable[Event]]) -> RunState:
        """Run somebody's SQL and append the events it returns, in one transaction."""
        drafted: list[Append] = []

        def inside(sql: Sql) -> Append:
            drafted.append(self.draft(*work(sql)))
            return drafted[-1]

        self.store.transact(self.lease, inside)
        return self.confirm(drafted[-1])

    def renew(self) -> None:
        self.store.renew(self.lease)

    def close(self) -> None:
        """Keep a snapshot of a run at rest and give the lease back."""
        try:
            if self._sure and (self._state.status in AT_REST or self._state.seq - self._began > SNAPSHOT_EVERY):
                self.store.save_snapshot(self.run_id, self._state.seq, seal(self._state, self._head))
        finally:
            self.store.release(self.lease)

    def _reload(self) -> None:
        self._state, self._head, self._began = read_head(self.store, self.run_id, trust_snapshot=self._trust_snapshot)
        self._sure = True

    def __enter__(self) -> RunLog:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()


def chained(records: Iterable[Record], previous: bytes = GENESIS, after: int = 0) -> Iterator[Record]:
    """The records, each proven to follow from the one before it."""
    for record in records:
        after += 1
        previous = check_chain(record, previous, after)
        yield record


def read_head(store: Store, run_id: str, *, trust_snapshot: bool = False) -> tuple[RunState, bytes, int]:
    """The state of a run, the hash of its last event, and the event the proof began at.

    Everything is read and proven; with `trust_snapshot` only what came after a snapshot whose seal holds. Raises TailLost if
    the run was further than its log goes.
    """
    known = store.head(run_id)
    state, head, began = read_what_is_left(store, run_id, known, trust_snapshot=trust_snapshot)
    check_reached(known, state)
    return state, head, began


def check_reached(known: Head | None, state: RunState) -> None:
    """Refuse a log that ends before the head that was known when its reading began."""
    if known is not None and state.seq < known.seq:
        raise TailLost(f"Run {known.run_id}", f"it was at event {known.seq} and now ends at {state.seq}")


def read_what_is_left(
    store: Store, run_id: str, known: Head | None = None, *, trust_snapshot: bool = False
) -> tuple[RunState, bytes, int]:
    """The same, of as many events as there are."""
    state, head = (trust_snapshot and _from_snapshot(store, run_id)) or (RunState(run_id=run_id), GENESIS)
    began = state.seq
    begun = begun_for_many() if known is not None and known.seq - began > _MANY else BEGUN
    return state, _followed(state, head, store.read(run_id, after=began), begun), began


def _followed(state: RunState, head: bytes, records: Iterable[Record], begun: Any) -> bytes:
    """Fold records, each proven to follow from the one before it; the hash of the last.

    What `check_chain` does stands here once more, with nothing called: a resumed run comes by here with every event.
    """
    copy = begun.copy
    for record in records:
        run_id, seq, kind, version, at, body, digest, op = record
        hashed = copy()
        hashed.update(b"".join((head, f"{run_id}\n{seq}\n{kind}\n{version}\n{at}\n{op}\n".encode(), body)))
        if seq != state.seq + 1 or digest != hashed.digest():
            check_chain(record, head, state.seq + 1, begun)  # says what is wrong
        head = digest
        evolve(state, decode(record))
    return head


def _from_snapshot(store: Store, run_id: str) -> tuple[RunState, bytes] | None:
    """A snapshot is a cache: one that cannot be used is as good as none."""
    kept = store.load_snapshot(run_id)
    event = next(store.read(run_id, after=kept[0] - 1, limit=1), None) if kept else None
    if kept is None or event is None:
        return None
    try:
        state = unseal(kept[1], event.hash)
    except (BadFile, NewerSchema):
        return None
    return (state, event.hash) if state.seq == event.seq and state.run_id == run_id else None


def read_state(store: Store, run_id: str) -> RunState:
    state, _, _ = read_head(store, run_id)
    if state.seq == 0:
        raise NotFound("run", run_id)
    return state


class Finding(NamedTuple):
    """One thing that is not as it should be, and where."""

    run_id: str
    seq: int | None
    problem: str
    reason: str


class Verification(NamedTuple):
    run_id: str
    events: int
    findings: tuple[Finding, ...]


def verify_run(store: Store, run_id: str) -> Verification:
    """Walk the chain, fold the log, and compare head, projection and snapshot with it. Writes nothing.

    What is written meanwhile is not accused: the walk ends at the head it began with.
    """
    head = store.head(run_id)
    if head is None:
        raise NotFound("run", run_id)
    findings: list[Finding] = []
    state, last = RunState(run_id=run_id), GENESIS
    kept = store.load_snapshot(run_id)
    try:
        for record in chained(store.read(run_id, limit=head.seq)):
            last = record.hash
            evolve(state, decode(record))
            if kept is not None and record.seq == kept[0]:
                findings += _compare_snapshot(state, last, kept[1])
    except HoldfastError as error:
        findings.append(Finding(run_id, state.seq + 1, str(error), error.reason))
        return Verification(run_id, state.seq, tuple(findings))
    if (head.seq, head.hash) != (state.seq, last):
        problem = f"the run's head says event {head.seq}, its log ends at {state.seq}"
        findings.append(Finding(run_id, state.seq, problem, LogDamaged.reason))
    elif _listed(head.projection) != _listed(projection(state)):
        findings.append(Finding(run_id, state.seq, "the list of runs shows something else", LogDamaged.reason))
    return Verification(run_id, state.seq, (*findings, *_look_beyond(store, head)))


def _listed(shown: Projection) -> Projection:
    """A title as every store can list it: PostgreSQL keeps no NUL in text."""
    return shown._replace(title=shown.title.replace("\0", "\ufffd"))


def _look_beyond(store: Store, head: Head) -> list[Finding]:
    """Events behind the head were written meanwhile, or by nobody: then the head of now does not reach them either."""
    last = max((record.seq for record in store.read(head.run_id, after=head.seq)), default=head.seq)
    now = head if last == head.seq else store.head(head.run_id) or head
    problem = f"the run's head says event {now.seq}, its log ends at {last}"
    return [] if now.seq >= last else [Finding(head.run_id, last, problem, LogDamaged.reason)]


def _compare_snapshot(state: RunState, head: bytes, sealed: bytes) -> list[Finding]:
    try:
        same, problem = snapshot(unseal(sealed, head)) == snapshot(state), "the snapshot is not the fold of the log"
    except HoldfastError as error:
        same, problem = False, str(error)
    return [] if same else [Finding(state.run_id, state.seq, problem, SNAPSHOT_DRIFT)]


def _check_ttl(ttl: object) -> None:
    if not isinstance(ttl, int | float) or isinstance(ttl, bool) or not 0 < ttl <= LONGEST_TTL:
        raise UsageError(
            f"The ttl of a lease is a number of seconds above 0 and up to {LONGEST_TTL}, not {ttl!r}.",
            advice=f"Leave it out for {TTL:g} seconds, after which another process may take over from one that died.",
        )

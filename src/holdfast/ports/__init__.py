"""What the engine needs from the world, as promises in sentences. Imports nothing slow: every command passes through here.

What running a spec needs besides is in `ports.spec`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from holdfast.core.named import Protocol
from holdfast.core.values import Append, Head, Lease, Message, Owner, Projection, Record

if TYPE_CHECKING:
    from holdfast.core.guards import Touched
    from holdfast.core.position import Known
    from holdfast.core.repo_drift import Seen
    from holdfast.core.sidecar import Sidecar

__all__ = [
    "Append",
    "Head",
    "Lease",
    "Message",
    "Owner",
    "Projection",
    "Record",
    "Snapshot",
    "Sql",
    "Store",
    "Workspace",
]


class Sql(Protocol):
    """The store's own database, lent for one transaction: to one thread, until the work that got it returns."""

    def execute(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows. Placeholders are the database's own: `?` on SQLite, `%s` on PostgreSQL.

        Raises BadInput if the database refuses it; a transaction in which a statement failed is not committed.
        """


class Store(Protocol):
    """The log, leases and artifacts of many runs. `holdfast.testing.store_suite` holds every store to these sentences."""

    def take(self, run_id: str, owner: Owner, ttl: float) -> Lease:
        """Acquire the right to write, by the database's clock. An unknown run begins at sequence 0. Raises LeaseHeld."""

    def renew(self, lease: Lease) -> None:
        """Extend by the lease's own length. Raises LeaseLost."""

    def release(self, lease: Lease) -> None:
        """Give the right back. A lease that was lost is left alone."""

    def append(self, lease: Lease, records: Sequence[Record], projection: Projection) -> None:
        """Write records of one or more operations, all or none, and return only when they are durable.

        Raises LeaseLost, SequenceConflict, OperationReused or a StoreError. The same append repeated is done once.
        """

    def append_all(self, appends: Sequence[Append]) -> list[Exception | None]:
        """Several appends in as few commits as the store can. Each is done, or refused by its own error."""

    def transact(self, lease: Lease, work: Callable[[Sql], Append]) -> None:
        """Commit the statements of `work` and the append it returns in one transaction: both, or neither. Durable on return.

        `work` is called once. What it raises is raised, after everything was undone; so is what `append` would refuse. If
        the append is already there the statements are undone too: they were committed with it. Inside of `work` this
        store only reads. Raises UsageError if the store has no SQL.
        """

    def head(self, run_id: str) -> Head | None:
        """Where a run stands, or None. Never writes."""

    def heads(self, limit: int | None = None, after: str | None = None, unfinished: bool = False) -> Iterator[Head]:
        """Runs with at least one event, newest id first, those before `after`. Never writes."""

    def read(self, run_id: str, after: int = 0, limit: int | None = None) -> Iterator[Record]:
        """Events of one run in sequence, as stored. Never writes."""

    def strays(self) -> list[tuple[str, int, str]]:
        """What is here of runs that `heads` cannot list though they have been: run, its last event, the damage. Never writes."""

    def post(self, run_id: str, kind: str, body: str) -> int:
        """Leave a message for a run, without a lease; durable on return. Its id is greater than that of any before it.

        Raises NotFound, BadInput for a bad kind or text that is no text, TooLarge for a body over 16 KiB.
        """

    def messages(self, run_id: str, after: int = 0) -> list[Message]:
        """The messages of a run with a greater id, in order; none for an unknown run. Cheap. Never writes."""

    def drop_messages(self, lease: Lease, upto: int) -> None:
        """Forget the messages up to this id, which the log has taken in. Raises LeaseLost."""

    def put_artifact(self, data: bytes) -> str:
        """Keep bytes under their SHA-256 and return it. The same bytes are kept once."""

    def get_artifact(self, digest: str) -> bytes:
        """The bytes of a digest, checked. Raises NotFound or ArtifactDamaged."""

    def save_snapshot(self, run_id: str, seq: int, data: bytes) -> None:
        """Keep a cache of the state at `seq`. Losing it loses nothing."""

    def load_snapshot(self, run_id: str) -> tuple[int, bytes] | None:
        """The newest cached state, or None."""

    def facts(self) -> dict[str, object]:
        """What doctor shows: engine, versions, place, size."""

    def close(self) -> None:
        """Release what is held. Leases of this store end with it."""

    def __enter__(self) -> Self:
        """The store itself."""

    def __exit__(self, *problem: object) -> None:
        """Close."""


class Snapshot(Protocol):
    """A workspace as it was: the commit that holds it, its tree, and what it could not hold, each with the reason."""

    @property
    def sha(self) -> str: ...
    @property
    def tree(self) -> str: ...
    @property
    def left_out(self) -> tuple[str, ...]: ...
    @property
    def ignored(self) -> tuple[str, ...]:
        """The ignored files that it holds."""


class Workspace(Protocol):
    """One work tree of a repository. Whatever it does, the user's HEAD, index, stash, hooks and files stay as they are,
    but for `commit`, which adds one commit to the branch that is checked out."""

    @property
    def top(self) -> str:
        """Its top folder."""

    def where(self) -> tuple[str | None, str | None]:
        """The commit of HEAD (None before the first one) and the full name of its branch (None when detached)."""

    def has(self, commit: str) -> bool:
        """Whether this repository has the commit."""

    def changed(self) -> list[str]:
        """What is not committed, one line for each path. Raises if that cannot be told; never empty for that reason."""

    def snapshot(self, checkpoint_id: str, now: str) -> Snapshot:
        """Keep the workspace under this id, which is a new one; durable on return."""

    def kept(self, checkpoint_id: str) -> Snapshot | None:
        """What is kept under this id, if anything."""

    def drop(self, checkpoint_id: str) -> None:
        """Let go of what is kept under this id."""

    def check_committable(self, branch: str | None) -> None:
        """Raise if no commit could be made here: no branch, no identity, an unfinished merge. Changes nothing."""

    def commit(
        self, checkpoint_id: str, message: str, branch: str | None, parent: str | None, leave: Collection[str]
    ) -> str:
        """Commit all changes but those to `leave`, once per id, and return the commit; HEAD's where nothing changed."""

    def committed(self, checkpoint_id: str, message: str, branch: str | None, parent: str | None) -> str | None:
        """The commit that `commit` made for this id; None if it surely made none. Raises if that cannot be known."""

    def tree_of(self, commit: str) -> str: ...

    def patch_id(self, commit: str) -> str | None:
        """What the commit changed, as a digest that survives a rebase; None where it changed nothing."""

    def write_sidecar(self, sidecar: Sidecar) -> None:
        """Write the mirror of a milestone. Raises OSError or a HoldfastError."""

    def sidecar_path(self, checkpoint_id: str) -> str:
        """Where that mirror is, as an absolute path."""

    def odd_files(self) -> list[str]:
        """Pipes, sockets and devices, which no snapshot or commit can hold: a row for each, with what it is."""

    def touched(self, base: str | None) -> tuple[list[Touched], str]:
        """Everything that changed since `base`, and how ignored files were told apart."""

    def common(self, commit: str) -> str | None:
        """The commit at which the history of HEAD and that of another commit part; None if they have none in common."""

    def latest(self, commits: Sequence[str]) -> str | None:
        """Of the places where the histories of these commits and of HEAD part, the one that is nearest to HEAD."""

    def made_by_init(self, since: str | None, paths: Collection[str]) -> frozenset[str]:
        """Those of these paths that differ from then only by what `holdfast init` writes."""

    def renamed(self, before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
        """Base branches of which only the earlier fingerprint knows the old name: by the new one, the commit recorded then."""

    def brought(self, since: str) -> frozenset[str]:
        """Paths that changed since then only by commits of base branches, which a merge or a rebase brought."""

    def recovered(self, run_id: str) -> tuple[list[Known], tuple[str, ...]]:
        """Milestones of a run that mirrors name, by index, up to the last that is in the history of HEAD; each where it is
        now, or as it was. And, if the last of them is not sure, what to say of it. Writes nothing.
        """

    def look(
        self,
        run_id: str,
        records: Sequence[Known],
        before: Mapping[str, str] | None,
        snapshots: Sequence[str],
        given_up: Sequence[str],
        base: str | None,
        *,
        legacy: bool = False,
        imported: bool = False,
    ) -> Seen:
        """One look, for a run with these milestones that began at `base` in that environment. Writes nothing.

        `legacy`: where nothing else is found, subjects that name no run count as well. `imported`: so do those of Runr.
        What is uncommitted is as it was kept if one of the `snapshots`, or of those `given_up` by their id, holds it.
        """

    def is_shallow(self) -> bool:
        """Whether the history was cut off when it was cloned, so that nobody can say what is not in it."""

    def unexplained(self, commit: str) -> int:
        """How many commits that changed something came after this one, up to HEAD, and say nothing of a checkpoint."""

    def environment(self, before: Mapping[str, str] = ...) -> dict[str, str]:
        """Interpreter, package managers, lockfiles, agents and base branches, those of `before` too, as names and digests."""

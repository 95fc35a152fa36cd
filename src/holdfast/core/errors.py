"""Every error Holdfast raises: a sentence, the data behind it, a stop reason and advice. Nothing here decides or prints.

HoldfastError
  UsageError            a call or command that cannot be understood
  BadInput              something handed to us that is not what it must be
    InvalidId           an id outside the grammar
    NotCanonical        a value without a canonical JSON form
    TooLarge            a value over a stated limit
    BadRecord           an event record that cannot be read
    BadFile             a file that cannot be read as what it claims to be
  NotFound              no such run, event or artifact
  NewerSchema           written by a newer Holdfast
  IllegalEvent          an event that cannot follow the state it meets
  LogDamaged            the log is not what was written
    ChainBroken         an event that does not follow from the one before it
    SequenceGap         a missing or repeated sequence number
    TailLost            the witness knows of events that the log no longer has
    ArtifactDamaged     stored bytes that no longer have their hash
  LeaseError
    LeaseHeld           somebody else may write
    LeaseLost           we may no longer write
  AppendRefused
    SequenceConflict    the log is not where the writer thought
    OperationReused     an operation id that belongs to another append
  StoreError
    StoreUnreadable     not a store, or a damaged one
    StoreForeign        a database that is not ours, or was changed by another hand
    StoreReplaced       the file under us is no longer the file we opened
    StoreBusy           no turn to write within the time allowed
    StoreFull           no space left
    StoreReadOnly       the place cannot be written
    StoreBroken         an input/output error; what was in flight is unknown until the store is reopened
    StoreUnavailable    the server cannot be reached
    StoreClosed         used after close, or in a forked child
"""

from __future__ import annotations

from typing import Any


def shown(value: object, limit: int = 120) -> str:
    """A foreign value in a sentence, cut short. Its own `repr` may raise anything; a huge number's does."""
    try:
        return f"{value!r:.{limit}}"
    except Exception:  # noqa: BLE001
        return f"({type(value).__name__})"


class HoldfastError(Exception):
    """Something went wrong."""

    reason = "internal_error"
    advice = ""

    def __init__(self, message: str, *, advice: str | None = None) -> None:
        super().__init__(message)
        if advice is not None:
            self.advice = advice

    def __reduce__(self) -> Any:
        """So that it passes from a worker to its pool, whatever its constructor takes."""
        return _made_again, (type(self), self.args, self.__dict__)


def _made_again(kind: type[HoldfastError], args: tuple[Any, ...], data: dict[str, Any]) -> HoldfastError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(data)
    return error


class UsageError(HoldfastError):
    reason = "usage_error"


class BadInput(HoldfastError):
    reason = "bad_input"


class InvalidId(BadInput):
    advice = "Ids are 1 to 64 characters of a-z, 0-9, '.', '_' and '-', and begin with a letter or a digit."

    def __init__(self, what: str, value: object) -> None:
        super().__init__(f"{what} {shown(value)} is not a valid id.")
        self.value = value


class NotCanonical(BadInput):
    advice = "Pass plain data: objects with text keys, lists, text, numbers, true, false and null."

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"The value at {path} has no canonical JSON form: {problem}.")
        self.path = path
        self.problem = problem


class TooLarge(BadInput):
    reason = "too_large"

    def __init__(self, what: str, size: int, limit: int, *, advice: str | None = None) -> None:
        super().__init__(f"{what} is {size:,} bytes; the limit is {limit:,}.", advice=advice)
        self.size = size
        self.limit = limit


class BadRecord(BadInput):
    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"{place} cannot be read as an event: {problem}.")
        self.place = place
        self.problem = problem


class BadFile(BadInput):
    def __init__(self, path: str, line: int | None, problem: str, *, advice: str | None = None) -> None:
        place = f"{path}, line {line}" if line else path
        super().__init__(f"{place}: {problem}.", advice=advice)
        self.path = path
        self.line = line
        self.problem = problem


class NotFound(HoldfastError):
    reason = "not_found"
    advice = "`holdfast status` lists what is here."

    def __init__(self, what: str, name: str) -> None:
        super().__init__(f"There is no {what} {name!r:.120} here.")
        self.name = name


class NewerSchema(HoldfastError):
    reason = "newer_schema"
    advice = "Use a newer Holdfast for this. Nothing was changed."

    def __init__(self, what: str, found: int | str, known: int | str, *, advice: str | None = None) -> None:
        sentence = f"{what} was written by a newer Holdfast (version {found}; this one knows up to {known})."
        super().__init__(sentence, advice=advice)
        self.found = found
        self.known = known


class IllegalEvent(HoldfastError):
    reason = "bad_input"
    advice = "Nothing was recorded. `holdfast show RUN` says where the run stands."

    def __init__(self, kind: str, problem: str) -> None:
        super().__init__(f"The event {kind} cannot be recorded now: {problem}.")
        self.kind = kind
        self.problem = problem


class LogDamaged(HoldfastError):
    reason = "log_damaged"
    advice = (
        "`holdfast verify` names the first bad event. Nothing was changed; keep the files and restore from a backup."
    )


class ChainBroken(LogDamaged):
    def __init__(self, run_id: str, seq: int) -> None:
        super().__init__(f"Event {seq} of run {run_id} does not follow from the event before it.")
        self.run_id = run_id
        self.seq = seq


class SequenceGap(LogDamaged):
    def __init__(self, run_id: str, expected: int, found: int) -> None:
        super().__init__(f"Run {run_id} should go on with event {expected}, but has {found}.")
        self.run_id = run_id
        self.expected = expected
        self.found = found


class TailLost(LogDamaged):
    reason = "tail_lost"
    advice = (
        "Acknowledged events are missing from this store: it was cut, rolled back or restored from an older copy. "
        "Put the newer copy back, or accept the loss with `holdfast doctor --fix --accept-loss`."
    )

    def __init__(self, place: str, detail: str) -> None:
        super().__init__(f"{place} has lost the end of its log: {detail}.")
        self.place = place


class ArtifactDamaged(LogDamaged):
    def __init__(self, digest: str) -> None:
        super().__init__(f"The stored bytes of artifact {digest} no longer have that hash.")
        self.digest = digest


class LeaseError(HoldfastError):
    pass


class LeaseHeld(LeaseError):
    reason = "lease_held"
    advice = "Wait until it ends or its lease runs out; `holdfast status` shows who holds it."

    def __init__(self, run_id: str, holder: object) -> None:
        super().__init__(f"Run {run_id} is being written by {holder}.")
        self.run_id = run_id
        self.holder = holder


class LeaseLost(LeaseError):
    reason = "lease_lost"
    advice = "Another process has taken this run over. Nothing was written; do not go on here."

    def __init__(self, run_id: str, epoch: int) -> None:
        super().__init__(f"The lease on run {run_id} (epoch {epoch}) was lost.")
        self.run_id = run_id
        self.epoch = epoch


class AppendRefused(HoldfastError):
    reason = "conflict"


class SequenceConflict(AppendRefused):
    advice = "Read the run again, then append behind its last event."

    def __init__(self, run_id: str, expected: int, found: int) -> None:
        super().__init__(f"Run {run_id} is at event {found}, not at {expected}; nothing was written.")
        self.run_id = run_id
        self.expected = expected
        self.found = found


class OperationReused(AppendRefused):
    advice = "Give every append an operation id of its own."

    def __init__(self, op: str) -> None:
        super().__init__(f"Operation {op} has been used for another append; nothing was written.")
        self.op = op


class StoreError(HoldfastError):
    reason = "store_unreadable"

    def __init__(self, place: str, problem: str, *, advice: str | None = None) -> None:
        super().__init__(f"{place}: {problem}.", advice=advice)
        self.place = place
        self.problem = problem


class StoreUnreadable(StoreError):
    advice = "`holdfast doctor` says what is wrong. Nothing was changed."


class StoreForeign(StoreError):
    reason = "store_foreign"
    advice = "Point HOLDFAST_STORE at another place, or move this file away. Nothing was changed."


class StoreReplaced(StoreError):
    reason = "store_replaced"
    advice = "Do not move or delete a store that is in use. Start again; what was acknowledged is in the file that was opened."


class StoreBusy(StoreError):
    reason = "store_busy"
    advice = "Another process is writing for very long. Try again; `holdfast doctor` shows who."


class StoreFull(StoreError):
    reason = "store_full"
    advice = "Free some space and resume. Nothing that was acknowledged is lost."


class StoreReadOnly(StoreError):
    reason = "store_read_only"
    advice = "Make the folder readable and writable for you, or set HOLDFAST_STORE to another place."


class StoreBroken(StoreError):
    reason = "store_io"
    advice = "Check the disk. Nothing that was acknowledged is lost; resume when the disk is well."


class StoreUnavailable(StoreError):
    reason = "store_unavailable"
    advice = "Check that the server is running and reachable, then resume."


class StoreClosed(StoreError):
    reason = "internal_error"
    advice = "Open the store again in this process."

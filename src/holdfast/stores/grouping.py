"""What stores do alike with what they get: an append by itself where there is no better way, and a look first."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.errors import BadInput, BadRecord, HoldfastError, TooLarge, shown
from holdfast.core.ids import check_op, is_kind
from holdfast.core.named import Protocol
from holdfast.core.values import Append, Lease, Projection, Record

MAX_MESSAGE = 16 * 1024
UNLISTED = "its events are here, but the list of runs lacks it"


class Appends(Protocol):
    """How a store appends."""

    def __call__(self, lease: Lease, records: Sequence[Record], projection: Projection) -> None: ...


def outcome(append: Appends, each: Append) -> Exception | None:
    """Why it did not go in; None if it did."""
    try:
        append(*each)
    except HoldfastError as error:
        return error
    return None


def check_records(run_id: str, records: Sequence[Record]) -> None:
    """Refuse an append that no store could keep as it is."""
    if not records:
        raise BadRecord(f"An append to run {run_id:.80}", "it holds no record")
    for record in records:
        check_op(record.op)
        try:
            record.body.decode()
        except UnicodeDecodeError:
            raise BadRecord(f"Event {record.seq} of run {run_id:.80}", "its body is not UTF-8") from None
        if record.run_id != run_id or not 0 < record.version < 1 << 31 or len(record.hash) != 32:
            raise BadRecord(f"Event {record.seq} of run {run_id:.80}", "its run, version or hash cannot be")


def check_message(kind: object, body: object) -> None:
    """Refuse a message that no store could keep as it is."""
    if not (isinstance(kind, str) and is_kind(kind)):
        raise BadInput(f"{shown(kind)} is not a kind of message.", advice="Use up to 64 of a-z, 0-9 and '_'.")
    if not isinstance(body, str):
        raise BadInput(f"The body of a message is text, not {shown(body)}.")
    try:
        size = len(body.encode())
    except UnicodeEncodeError as error:
        raise BadInput(f"The body of a message holds half a character at {error.start}.") from None
    if size > MAX_MESSAGE:
        raise TooLarge("The message", size, MAX_MESSAGE, advice="Keep long text as an artifact and send its digest.")

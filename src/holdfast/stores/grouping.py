"""What stores do alike when they append: one after the other where there is no better way, and the look at what they get."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.errors import BadRecord, HoldfastError
from holdfast.core.ids import check_op
from holdfast.ports import Append, Record, Store


def one_by_one(store: Store, appends: Sequence[Append]) -> list[Exception | None]:
    return [_outcome(store, append) for append in appends]


def _outcome(store: Store, append: Append) -> Exception | None:
    try:
        store.append(*append)
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

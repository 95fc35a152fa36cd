"""Appending several at a time, for stores that have no better way than one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.errors import HoldfastError
from holdfast.ports import Append, Store


def one_by_one(store: Store, appends: Sequence[Append]) -> list[Exception | None]:
    return [_outcome(store, append) for append in appends]


def _outcome(store: Store, append: Append) -> Exception | None:
    try:
        store.append(*append)
    except HoldfastError as error:
        return error
    return None

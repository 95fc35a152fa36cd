"""What the suites for stores share: how a store is made, opened and written to. Holds no promise itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.ports import Store
from holdfast.testing.author import LONG, Author, operations


class StoreBase:
    """A suite gets its stores from here."""

    placeholder = ""
    """What stands for a value in a statement of the store's SQL; empty if the store has none."""

    def make_store(self, folder: Path) -> Store:
        """A fresh, empty store."""
        raise NotImplementedError

    def let_lease_end(self, store: Store) -> None:
        """Make a lease of 0.05 seconds run out by the database's clock."""
        threading.Event().wait(0.12)

    @contextmanager
    def store(self, folder: Path) -> Iterator[Store]:
        store = self.make_store(folder)
        try:
            yield store
        finally:
            store.close()

    def author(self, store: Store, run_id: str = "run-1", start: int = 1, ttl: float = LONG) -> Author:
        return Author(store, run_id, operations(start), ttl)

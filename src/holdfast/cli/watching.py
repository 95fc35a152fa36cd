"""A store whose events are read with a bar on the error output: reading a long log takes seconds. Writes nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, cast

from holdfast import app
from holdfast.cli.render import counter
from holdfast.core.state import RunState
from holdfast.engine.log import read_state
from holdfast.ports import Head, Record, Store


class Watching:
    """The store, with a bar that moves as a log is read from its beginning for the first time."""

    def __init__(self, store: Store, steps: Iterator[int]) -> None:
        self._store = store
        self._steps = steps
        self._seen: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def read(self, run_id: str, after: int = 0, limit: int | None = None) -> Iterator[Record]:
        records = self._store.read(run_id, after, limit)
        if after or run_id in self._seen:
            return records
        self._seen.add(run_id)
        return self._counted(records)

    def _counted(self, records: Iterator[Record]) -> Iterator[Record]:
        for record in records:
            next(self._steps)
            yield record


@contextmanager
def watching(store: Store, label: str, total: int | None = None) -> Iterator[Store]:
    with closing(counter(label, total)) as steps:
        yield cast("Store", Watching(store, steps))


@contextmanager
def opened(head: Head) -> Iterator[Store]:
    """The store to write to, whose run is read with a bar before it is written."""
    with closing(app.open_store()) as store, watching(store, "Reading", head.seq) as seen:
        yield seen


def read_watched(store: Store, head: Head) -> RunState:
    """The state of a run."""
    with watching(store, "Reading", head.seq) as seen:
        return read_state(seen, head.run_id)

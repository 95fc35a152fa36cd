"""What the logs of other runs here know of milestones, so that equal work of theirs is not taken for ours. Reads only."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.core.errors import HoldfastError
from holdfast.core.position import Known
from holdfast.core.repo_drift import records
from holdfast.engine.log import read_head
from holdfast.ports import Store


def milestones_of_others(store: Store, run_id: str) -> Iterator[Known]:
    """A log that cannot be read says nothing here; `holdfast verify` names it."""
    for head in store.heads():
        if head.run_id != run_id:
            try:
                state = read_head(store, head.run_id, trust_snapshot=True)[0]
            except HoldfastError:
                continue
            yield from records(state)

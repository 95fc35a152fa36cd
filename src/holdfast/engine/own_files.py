"""The files of a spec that its run writes itself. Whatever the scope of the run says, they are the run's own doing."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.guards import Touched
from holdfast.core.ids import SPEC
from holdfast.engine.book import Book
from holdfast.engine.drifting import read_artifact


def of_spec(path: str) -> tuple[str, ...]:
    """The tasks first, then the mirrors."""
    return tuple(f"{path}/{name}" for name in ("tasks.yaml", "checkpoint.yaml", "review.yaml"))


def written_by_others(book: Book, touched: Iterable[Touched]) -> list[Touched]:
    """Without what the run of a spec writes. By the log, so that whoever looks at its scope sees the same."""
    state = book.state
    given = read_artifact(book, state.inputs) if state.mission_id.startswith(SPEC) else None
    path = given.get("path") if isinstance(given, dict) else None
    own = frozenset(of_spec(path)) if isinstance(path, str) else frozenset()
    return [one for one in touched if not {one.path, one.was or one.path} <= own]

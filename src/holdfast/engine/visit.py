"""A run that is visited, not continued: one act is added to its log, and it rests as it rested. Never resumes anything."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Self

from holdfast.core.shapes import FINISHED
from holdfast.engine.book import Book, Options, drive
from holdfast.engine.drifting import Drifting
from holdfast.engine.log import RunLog
from holdfast.engine.repository import Repository, open_repository
from holdfast.engine.stopping import NotResumable


class VisitedBook(Book):
    """A book to which things may be added while its run rests, but not once it is finished."""

    replays = False

    def must_go_on(self) -> None:
        if self.state.status == FINISHED:
            raise NotResumable(self.log.run_id, "it is finished")


class Visit:
    """What a visitor may do: take checkpoints of a repository for the run."""

    def __init__(self, log: RunLog, options: Options) -> None:
        self._book = VisitedBook(log, options, lambda: None, time.sleep)
        self._drifting = Drifting(self._book)

    def workspace(
        self, path: str = ".", *, allow: Sequence[str] = (), deny: Sequence[str] = (), ignored: Sequence[str] = ()
    ) -> Repository:
        made: Repository = drive(open_repository(self._book, self._drifting, drive, path, allow, deny, ignored))
        return made

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: Any) -> None:
        self._book.log.close()

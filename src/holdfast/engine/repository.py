"""A work tree in the hands of a run's author. One face for ordinary code and for coroutines, which await what it gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.core.errors import UsageError
from holdfast.core.guards import Scope, check
from holdfast.engine.book import Book, Part
from holdfast.engine.drifting import Drifting
from holdfast.engine.workspaces import Workspaces


class Repository:
    """The work tree of a repository, in a run. Every method gives a `Mark`, or what to await for it."""

    def __init__(self, parts: Workspaces, drive: Callable[[Part], Any]) -> None:
        self._parts = parts
        self._drive = drive

    def snapshot(self, name: str) -> Any:
        """Keep HEAD, index and files as they are, under a ref of ours. Nothing of yours is touched. Done once per name."""
        return self._drive(self._parts.snapshot(name))

    def milestone(
        self,
        title: str,
        *,
        index: int | None = None,
        tier: str | None = None,
        verification_commands: Sequence[str] | None = None,
        body: str = "",
    ) -> Any:
        """Keep it, and commit everything to the branch, with trailers and a sidecar. Done once per title.

        `body` stands in the commit message below the title.
        """
        return self._drive(self._parts.milestone(title, index, tier, verification_commands, body))

    def outside(self, since: str) -> list[str]:
        """What was touched since a commit, whoever committed it, that the scope does not allow: a line each."""
        return self._parts.outside(since)

    def check_scope(self) -> Any:
        """Stop the run if something was touched that its scope does not allow."""
        return self._drive(self._parts.check_scope())


def open_repository(
    book: Book,
    drifting: Drifting,
    drive: Callable[[Part], Any],
    path: str,
    allow: Sequence[str],
    deny: Sequence[str],
    ignored: Sequence[str],
) -> Part:
    """The work tree around a path, mended and compared with what the log knows."""
    options = book.options
    if options.open_workspace is None:
        raise UsageError("This run was opened without a way to open a repository.")
    scope = _scope(allow, deny)
    check(_scope(ignored, ()) or Scope())
    workspace = options.open_workspace(path, ignored, book.log.store)
    parts = Workspaces(book, drifting, workspace)
    yield from parts.begin(scope)
    return Repository(parts, drive)


def _scope(allow: Sequence[str], deny: Sequence[str]) -> Scope | None:
    for patterns in (allow, deny):
        if isinstance(patterns, str):
            raise UsageError("Patterns are given as a list.", advice="Write ['src/**'], not 'src/**'.")
    return Scope(tuple(allow), tuple(deny)) if allow or deny else None

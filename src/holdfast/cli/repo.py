"""What the verbs about repositories share: the work tree we are in, and the checkpoint that a person means. Only looks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial

from holdfast import app, config
from holdfast.adapters.git.repo import GitWorkspace
from holdfast.adapters.git.workspace import kept
from holdfast.adapters.git.ws_scan import KEPT_AS_IT_IS
from holdfast.cli.output import escape
from holdfast.core.errors import HoldfastError, NotFound, UsageError
from holdfast.core.named import NamedTuple
from holdfast.core.position import BY_CONTENT, Position
from holdfast.core.repo_drift import not_ours, records
from holdfast.core.shapes import RunState, WorkspaceState
from holdfast.core.subjects import is_imported
from holdfast.engine.log import read_head

SHORTEST = 4


class AmbiguousCheckpoint(UsageError):
    reason = "ambiguous_id"

    def __init__(self, text: str, found: list[str]) -> None:
        super().__init__(f"More than one checkpoint is called {text:.64}: {', '.join(found[:5])}.")
        self.advice = "Give more of the id."


def here() -> GitWorkspace:
    """The work tree around the current folder."""
    return at(config.here())


def at(path: str) -> GitWorkspace:
    """The work tree around a path. The store is no part of it."""
    return GitWorkspace(path, config.environment(), own=config.load().files, agents=app.own_agents)


def find_checkpoint(place: GitWorkspace, text: str) -> str:
    """The snapshot whose id is `text`, or whose id alone begins or ends with it."""
    known = kept(place.git)
    if text in known:
        return text
    found = [one for one in known if len(text) >= SHORTEST and (one.startswith(text) or one.endswith(text))]
    if not found:
        missing = NotFound("checkpoint", text)
        missing.advice = "`holdfast checkpoint --list` lists what is kept here."
        raise missing
    if len(found) > 1:
        raise AmbiguousCheckpoint(text, found)
    return found[0]


def about_file(row: str, otherwise: str) -> str:
    """A line about a file that a snapshot holds not at all, or not as git would."""
    return f"{'Kept' if row.endswith(KEPT_AS_IT_IS) else otherwise}: {escape(row)}"


def find(place: GitWorkspace, state: RunState, checkpoint_id: str | None = None) -> Position:
    """Where a milestone of a run is in the history of HEAD, by every kind of evidence there is: the last one, or this one."""
    known = [*records(state), *place.known()]
    imported = is_imported(state.run_id, state.mission_id)
    search = partial(place.find, state.run_id, checkpoint_id=checkpoint_id, legacy=imported, imported=imported)
    position = search(known)
    if position.source not in BY_CONTENT:
        return position
    others = (one for other in states() if other.run_id != state.run_id for one in records(other))
    return search([*known, *not_ours(state, others)])


def logged(checkpoint_id: str) -> tuple[RunState, WorkspaceState] | None:
    """What a log here says of a checkpoint; None if none does, or there is no log."""
    for state in states():
        made = state.workspaces.get(checkpoint_id)
        if made is not None:
            return state, made
    return None


class Logs(NamedTuple):
    """The state of every run here, newest first, why the log of a run cannot be read, and the runs that are at work."""

    states: list[RunState]
    unread: dict[str, HoldfastError]
    held: set[str]


def states(unfinished: bool = False) -> Iterator[RunState]:
    """The state of every run here, newest first. A log that cannot be read says nothing here; `holdfast verify` names it."""
    yield from read_logs(unfinished).states


def read_logs(unfinished: bool = False) -> Logs:
    """Reads only; without a store there are none. The store is closed by then: whoever gets these may write."""
    found = Logs([], {}, set())
    try:
        store = app.open_store(read_only=True)
    except NotFound:
        return found
    with closing(store):
        for head in store.heads(unfinished=unfinished):
            found.held.update([head.run_id] if head.held else ())
            try:
                found.states.append(read_head(store, head.run_id, trust_snapshot=True)[0])
            except HoldfastError as problem:
                found.unread[head.run_id] = problem
    return found

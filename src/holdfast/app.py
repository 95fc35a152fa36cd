"""The composition root: the only file that knows every concrete class. Decides nothing, prints nothing.

What is slow to load (the events, a server's driver) is loaded by the call that needs it: `holdfast status` needs neither.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from holdfast import config
from holdfast.adapters import system
from holdfast.core.errors import HoldfastError, InvalidId, NotFound, UsageError
from holdfast.core.ids import SPEC, check_id
from holdfast.core.missions import mission_of_spec
from holdfast.core.values import Head
from holdfast.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from holdfast.core.events import Event
    from holdfast.core.redact import Redactor
    from holdfast.core.state import RunState
    from holdfast.engine.log import RunLog, World
    from holdfast.ports import Store, Workspace
    from holdfast.stores.postgres import PostgresStore

SHORTEST = 4  # characters that name a run by its beginning or its end
_CANDIDATES = 6


class AmbiguousRun(UsageError):
    reason = "ambiguous_id"

    def __init__(self, text: str, candidates: list[str]) -> None:
        shown = ", ".join(candidates[: _CANDIDATES - 1]) + (", ..." if len(candidates) >= _CANDIDATES else "")
        super().__init__(f"More than one run is called {text}: {shown}.", advice="Give more of the id.")
        self.candidates = candidates


def open_store(
    place: str | os.PathLike[str] | None = None, *, read_only: bool = False, environ: Mapping[str, str] | None = None
) -> Store:
    """The store at `place` (a file, a folder or an address), else the one that belongs to where we are."""
    return open_configured(config.load(None if place is None else os.fspath(place), environ), read_only=read_only)


def strictness() -> str | None:
    """How strict the configuration wants a run: the environment, else the settings, which are loaded where there are any."""
    environ = config.environment()
    said = environ.get("HOLDFAST_STRICTNESS")
    if said:
        return said
    try:
        top = config.work_tree(os.getcwd())
        files = [os.path.join(system.user_folder(environ, "XDG_CONFIG_HOME"), system.USER_FILE)]
    except (OSError, UsageError):
        return None  # without a folder to look in there are no settings
    if not any(map(os.path.exists, files + ([os.path.join(top, "holdfast.toml")] if top else []))):
        return None
    settings = _slow("settings")
    return str(settings.load(top, environ).settings.run.strictness)


def open_configured(where: config.Config, *, read_only: bool = False) -> Store:
    if where.on_server:
        store: Store = _slow("stores.postgres").PostgresStore(where.place, read_only=read_only)
        return store
    return SqliteStore(
        where.place, boot_id=system.boot_id(), witness=where.witness, read_only=read_only, now=system.now()
    )


@contextmanager
def reading(place: str | None = None) -> Iterator[Store]:
    """The store, opened so that nothing can be written, and closed again. Raises NotFound if there is none."""
    with closing(open_store(place, read_only=True)) as store:
        yield store


def find_run(store: Store, text: str) -> Head:
    """The run whose id is `text`, or whose id alone begins or ends with it."""
    check_id(text, "The run")
    head = store.head(text)
    if head is not None:
        return head
    found: list[Head] = []
    for head in store.heads() if len(text) >= SHORTEST else ():
        if head.run_id.startswith(text) or head.run_id.endswith(text):
            found.append(head)
        if len(found) == _CANDIDATES:
            break
    if not found:
        raise NotFound("run", text)
    if len(found) > 1:
        raise AmbiguousRun(text, [head.run_id for head in found])
    return found[0]


def newest_run(store: Store, text: str) -> Head:
    """The run that `find_run` finds; else the newest one of the mission or spec that is called `text`."""
    try:
        return find_run(store, text)
    except (NotFound, InvalidId):
        meant = (text, SPEC + text, mission_of_spec(text))
        for head in store.heads():
            if head.projection.mission_id in meant:
                return head
        raise


def open_workspace(path: str, ignored: Sequence[str] = (), store: Store | None = None) -> Workspace:
    """The git work tree around a path. Raises if there is none. Neither the store nor the configured one is a part of it."""
    own = (*config.load().files, *([store.path] if isinstance(store, SqliteStore) else []))
    made: Workspace = _slow("adapters.git.repo").GitWorkspace(path, config.environment(), ignored, own, own_agents)
    return made


def own_agents(top: str) -> dict[str, str]:
    """The agents that the settings of a repository and of its user name, by their program. None where those cannot be read."""
    try:
        tables = _slow("settings").load(top, config.environment()).settings.agents
    except HoldfastError:
        return {}
    starts = {name: table.get("start") for name, table in tables.items()}
    return {name: str(start[0]) for name, start in starts.items() if isinstance(start, (list, tuple)) and start}


def now() -> str:
    return system.now()


def world() -> World:
    made: World = _slow("engine.log").World(system.clock(), system.operations(), system.this_process())
    return made


def redactor(environ: Mapping[str, str] | None = None) -> Redactor:
    values = _slow("core.redact").secret_values(config.environment() if environ is None else environ)
    return _redactor(tuple(values))


@lru_cache(maxsize=4)
def _redactor(values: tuple[str, ...]) -> Redactor:
    """One for all runs of this process: it is slow to make, and quicker with everything it has seen."""
    made: Redactor = _slow("core.redact").Redactor(values)
    return made


class _RedactLater:
    """The redactor of a run, made when there is something to search: until its first new event there is not.

    It goes by the environment of now: a program may take a secret out of there before it uses it.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = dict(environ)

    def __getattr__(self, name: str) -> Any:
        made = redactor(self._environ)
        self.glance, self.body = made.glance, made.body
        return getattr(made, name)


def write_run(store: Store, run_id: str, *, trust_snapshot: bool = False, ttl: float = 30.0) -> RunLog:
    """The writer of a run: takes its lease, redacts what it records."""
    log = _slow("engine.log").RunLog
    redact = _RedactLater(config.environment())
    made: RunLog = log(store, run_id, world(), redact, ttl, trust_snapshot=trust_snapshot)
    return made


def start_run(
    store: Store,
    mission_id: str,
    *,
    title: str = "",
    plan: tuple[str, ...] = (),
    input_hash: str | None = None,
    run_id: str | None = None,
) -> RunLog:
    """A new run of a mission, its first event recorded; the caller closes it."""
    log = write_run(store, system.new_run_id() if run_id is None else run_id)
    started = _slow("core.events").RunStarted
    try:
        log.record(started(mission_id=mission_id, title=title, plan=plan, input_hash=input_hash))
    except BaseException:
        log.close()
        raise
    return log


def record(run_id: str, *events: Event, place: str | None = None) -> RunState:
    """What a hook does: open, take the lease, append, close. The events are durable when this returns."""
    with closing(open_store(place)) as store, write_run(store, run_id, trust_snapshot=True) as log:
        return log.record(*events)


def set_witness_aside(where: config.Config) -> list[str]:
    """Move the witness away, so that the next writer makes a new one from the log; the old one is kept beside it.

    With the database gone or emptied, what is left of it goes the same way: its pages belong to no other one.
    """
    is_there = not where.on_server and os.path.lexists(where.place) and os.path.getsize(where.place) > 0
    ends = () if where.on_server else ("-witness",) if is_there else ("", "-witness", "-wal")
    mark = f"kept-{system.now()[:19].replace(':', '')}-{os.urandom(3).hex()}"
    moved = {path: f"{path}.{mark}" for end in ends if os.path.lexists(path := where.place + end)}
    for path, kept in moved.items():
        os.rename(path, kept)
    return list(moved.values())


def accept_losses(store: Store) -> Iterator[tuple[str, int, int]]:
    """Let runs that were cut off be as long as their logs are now: run, events it had, events it has."""
    kept = cast("SqliteStore | PostgresStore", store)
    for run_id, had, has in kept.shortened():
        state, _, _ = _slow("engine.log").read_what_is_left(store, run_id)
        kept.accept_loss(run_id, has, _slow("core.state").projection(state))
        yield run_id, had, has


def has_store(where: config.Config) -> bool:
    """Whether there is a store, sound or not, or what is left of one. Writes nothing."""
    if not where.on_server:
        return any(os.path.lexists(where.place + end) for end in ("", "-wal", "-witness"))
    try:
        open_configured(where, read_only=True).close()
    except NotFound:
        return False
    return True


def _slow(name: str) -> Any:
    return import_module(f"holdfast.{name}")

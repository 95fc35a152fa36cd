"""`holdfast.run` and `holdfast.arun`: open the store, find the run that is to go on or begin a new one, and hand it over.

The composition of a live run; decides only which run is meant. What the environment says comes from `config`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any

import holdfast.core.lean  # noqa: F401 - before msgspec
from holdfast import app, config  # isort: split

from holdfast.adapters import system, terminal
from holdfast.core.drift import DRIFTS, POLICIES, Policy
from holdfast.core.errors import UsageError
from holdfast.core.events import RunStarted
from holdfast.core.ids import check_id
from holdfast.core.retry import Budget, check_budget
from holdfast.core.shapes import FINISHED
from holdfast.core.stops import is_resumable
from holdfast.core.strictness import Strictness, effective_strictness
from holdfast.core.wire import decode
from holdfast.engine.book import Options
from holdfast.engine.run import Run

if TYPE_CHECKING:
    from holdfast.engine.async_run import AsyncRun
    from holdfast.engine.visit import Visit
    from holdfast.ports import Store
    from holdfast.testing.killpoints import Killpoints

Confirm = Callable[[str, Sequence[str]], bool]
Prompt = Callable[[str, Sequence[str]], "str | None"]
Tell = Callable[[str], None]
_HAD = set[str]()  # what `holdfast resume` asked this process for, and it has had


@contextmanager
def run(
    mission_id: str,
    *,
    inputs: Mapping[str, Any] | None = None,
    run_id: str | None = None,
    new: bool = False,
    store: Store | str | os.PathLike[str] | None = None,
    title: str = "",
    strictness: Strictness | str | None = None,
    policies: Mapping[str, Policy] | None = None,
    budget: Budget | None = None,
    confirm: Confirm | None = None,
    prompt: Prompt | None = None,
    accept: bool | None = None,
    tell: Tell | None = None,
    ttl: float = 30.0,
) -> Iterator[Run]:
    """A run of a mission: the unfinished one if there is one, else a new one. Durable from its first event on."""
    options, given = _options(strictness, policies, budget, confirm, prompt, accept, tell), _named(inputs)
    with _store(store) as opened:
        chosen = which_run(opened, mission_id, run_id, new)
        log = app.write_run(opened, chosen, ttl=ttl)
        options = _meant(options, chosen, run_id)
        with Run(log, options, mission_id, given, title) as live:
            yield live


@asynccontextmanager
async def arun(
    mission_id: str,
    *,
    inputs: Mapping[str, Any] | None = None,
    run_id: str | None = None,
    new: bool = False,
    store: Store | str | os.PathLike[str] | None = None,
    title: str = "",
    strictness: Strictness | str | None = None,
    policies: Mapping[str, Policy] | None = None,
    budget: Budget | None = None,
    confirm: Confirm | None = None,
    prompt: Prompt | None = None,
    accept: bool | None = None,
    tell: Tell | None = None,
    ttl: float = 30.0,
) -> AsyncIterator[AsyncRun]:
    """The same for coroutines. Runs of one event loop that are given the same store object share their commits."""
    options, given = _options(strictness, policies, budget, confirm, prompt, accept, tell), _named(inputs)
    with _store(store) as opened:
        chosen = which_run(opened, mission_id, run_id, new)
        log = app.write_run(opened, chosen, ttl=ttl)
        options = _meant(options, chosen, run_id)
        face = import_module("holdfast.engine.async_run").AsyncRun  # asyncio is slow to load
        async with face(log, options, mission_id, given, title) as live:
            yield live


def visit(store: Store, run_id: str) -> Visit:
    """A run that rests, opened for one act beside its own code. Raises LeaseHeld while it is going on."""
    face = import_module("holdfast.engine.visit").Visit  # rarely needed
    made: Visit = face(app.write_run(store, run_id), _options(None, None, None, None, None, None, None))
    return made


def which_run(store: Store, mission_id: str, run_id: str | None, new: bool) -> str:
    """The one that was asked for, here or by `holdfast resume`; else the newest of the mission that can go on; else a new one.

    What `holdfast resume` asked for is asked for once: where this process has had it, a block that wants a new one, or comes
    after its end, is for another run.
    """
    check_id(mission_id, "The mission id")
    asked = config.environment().get("HOLDFAST_RUN")
    if run_id is not None:
        named = check_id(run_id, "The run id")
        return asked if asked and _is_fork(store, check_id(asked, "HOLDFAST_RUN"), named) else named
    if asked:
        known = store.head(check_id(asked, "HOLDFAST_RUN"))
        had = asked in _HAD and known is not None and (new or known.projection.status == FINISHED)
        if known is not None and known.projection.mission_id == mission_id and not had:
            return asked
        if known is None and not new:
            return asked  # it has no log here, but may have left mirrors
    if not new:
        for head in store.heads(unfinished=True):
            shown = head.projection
            if shown.mission_id == mission_id and (shown.stop_reason is None or is_resumable(shown.stop_reason)):
                return head.run_id
    return system.new_run_id()


def _meant(options: Options, chosen: str, named: str | None) -> Options:
    """What was said of the run that `holdfast resume` asked for is not said of another one."""
    asked = config.environment().get("HOLDFAST_RUN")
    if chosen == asked:
        _HAD.add(chosen)
    approved = options.approved if asked in (None, "", chosen) else None
    return options._replace(recover=chosen in (named, asked), approved=approved)


def _is_fork(store: Store, asked: str, named: str) -> bool:
    """Whether a run was made of the one that the code names, perhaps over other forks: it takes its place."""
    known, origin = set[str](), asked
    while origin != named and origin not in known:
        known.add(origin)
        first = next(iter(store.read(origin, limit=1)), None)
        if first is None or not isinstance(begun := decode(first), RunStarted) or begun.forked_from is None:
            return False
        origin = begun.forked_from
    return origin == named


def _store(store: Store | str | os.PathLike[str] | None) -> Any:
    store = os.fspath(store) if isinstance(store, os.PathLike) else store
    points = _kill_points(config.environment())
    if points is not None:
        return points.instead_of(store, lambda: app.open_store(points.place))
    return app.open_store(store) if store is None or isinstance(store, str) else nullcontext(store)


def _kill_points(environ: Mapping[str, str]) -> Killpoints | None:
    """Only a process under `holdfast killtest` has any, and loads what they need."""
    if not environ.get("HOLDFAST_KILLTEST"):
        return None
    points: Killpoints | None = import_module("holdfast.testing.killpoints").ordered(environ)
    return points


def _options(
    strictness: Strictness | str | None,
    policies: Mapping[str, Policy] | None,
    budget: Budget | None,
    confirm: Confirm | None,
    prompt: Prompt | None,
    accept: bool | None,
    tell: Tell | None,
) -> Options:
    environ = config.environment()
    points = _kill_points(environ)
    limits = Budget() if budget is None else budget
    check_budget(limits)
    somebody = terminal.is_there()
    return Options(
        strictness=effective_strictness(call=strictness, config=app.strictness() if strictness is None else None),
        policies={
            **({"tree": "warn"} if environ.get("HOLDFAST_ALLOW_DIRTY") == "1" else {}),
            **_checked(policies or {}),
        },
        budget=limits,
        confirm=confirm or (terminal.confirm if somebody else None),
        prompt=_patient(prompt) if prompt else (terminal.prompt if somebody else None),
        accept=environ.get("HOLDFAST_YES") == "1" if accept is None else accept,
        approved=environ.get("HOLDFAST_PLAN") or None,
        tell=tell or terminal.tell,
        new_token=system.new_token,
        observe=None if points is None else points.observe,
        open_workspace=app.open_workspace,
        new_id=system.new_run_id,
        keep_aside=environ.get("HOLDFAST_SNAPSHOT") == "1",
        legacy=environ.get("HOLDFAST_LEGACY") == "1",
    )


def _patient(prompt: Prompt) -> Callable[[str, Sequence[str], float | None, Callable[[], bool]], str | None]:
    """The caller's own way to ask takes the time it takes; an answer that comes too late, or after another, does not count."""
    return lambda question, choices, seconds, is_called: prompt(question, choices)


def _named(inputs: Mapping[str, Any] | None) -> dict[str, Any]:
    if inputs is not None and not isinstance(inputs, Mapping):
        raise UsageError(
            f"The inputs of a run are an object, not a {type(inputs).__name__}.", advice="Name each input."
        )
    return dict(inputs or {})


def _checked(policies: Mapping[str, Policy]) -> Mapping[str, Policy]:
    for drift, policy in policies.items():
        if drift not in DRIFTS or policy not in POLICIES:
            raise UsageError(
                f"There is no drift policy {drift}: {policy!r:.40}.",
                advice=f"Drift is one of {', '.join(DRIFTS)}; a policy one of {', '.join(POLICIES)}.",
            )
    return policies

"""Reads what Runr left in a `.runr/` or `.agent/` folder, as plain data. Runs nothing, follows no link, believes no type.

A file that is missing, torn, too large or not what it claims to be costs only itself: what is wrong is said in
`problems`, with file and line, and the rest is read. Fields that are not known here are left alone.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from holdfast.adapters.git.plain_files import Folder, opened
from holdfast.adapters.runr_shapes import (
    STATE,
    Problem,
    RunrEvent,
    RunrFolder,
    RunrOrchestration,
    RunrRun,
    RunrScope,
    decoded,
    event_of,
    items,
    lines,
    milestones_of,
    planned,
    scope_of,
    text,
    track_of,
)
from holdfast.core.errors import BadFile, HoldfastError, NotFound
from holdfast.core.sidecar import MAX_BYTES, BadSidecar, Sidecar, from_runr

LARGEST = 8 * 1024 * 1024  # bytes of one JSON file
LARGEST_TIMELINE = 256 * 1024 * 1024
MOST = 10_000  # runs, sidecars or orchestrations in one folder
MOST_EVENTS = 200_000
MOST_PROBLEMS = 1000
CONFIGS = ("runr.config.json", "agent.config.json")
NOT_RUNS = frozenset({"ux-breadcrumbs.jsonl"})  # what Runr itself puts among its runs
_OF_A_RUN = ("state.json", "timeline.jsonl", "plan.md", "config.snapshot.json")
_T = TypeVar("_T")


def read(folder: str) -> list[RunrRun]:
    """The runs in the folder, by their ids. What was wrong with each stands in its `problems`."""
    return list(look(folder).runs)


def look(folder: str) -> RunrFolder:
    """All that can be read in the folder. Refuses what is not a folder of Runr's."""
    path = os.path.abspath(folder)
    if not os.path.lexists(path):
        raise NotFound("folder", folder)
    with opened(path) as top:
        if not any(top.look(name) for name in ("runs", "checkpoints", "orchestrations", *CONFIGS)):
            raise BadFile(
                path, None, "there is nothing of Runr's in it", advice="Name the folder .runr or .agent itself."
            )
        return _Look(top).all()


class _Look:
    """One look into one folder, and everything that went wrong on the way."""

    def __init__(self, top: Folder) -> None:
        self._top = top
        self._problems: list[Problem] = []

    def all(self) -> RunrFolder:
        scope = next((scope for name in CONFIGS if (scope := self._config(self._top, name))), None)
        sidecars = [one for one in self._each("checkpoints", self._sidecar) if one]
        common = self._taken()
        runs = [one for one in self._each("runs", lambda inside, name: self._run(inside, name, scope, sidecars)) if one]
        known = {run.run_id for run in runs}
        orchestrations = [one for one in self._each("orchestrations", self._orchestration) if one]
        return RunrFolder(
            path=self._top.path,
            runs=tuple(runs),
            strays=tuple(one for one in sidecars if one.run_id not in known),
            orchestrations=tuple(orchestrations),
            scope=scope,
            active=text((self._json(self._top, "active.json") or {}).get("run_id")),
            problems=(*common, *self._taken()),
        )

    # --- what went wrong

    def _taken(self) -> tuple[Problem, ...]:
        """The problems since the last time."""
        taken, self._problems = tuple(self._problems), []
        return taken

    def _note(self, path: str, why: str, line: int | None = None) -> None:
        if len(self._problems) < MOST_PROBLEMS:
            self._problems.append(Problem(path, why, line))
        elif len(self._problems) == MOST_PROBLEMS:
            self._problems.append(Problem(path, "there are more problems than are listed here"))

    def _tried(self, path: str, act: Callable[[], _T]) -> _T | None:
        """What came of it; what cannot be read is noted and is nothing."""
        try:
            return act()
        except HoldfastError as error:
            self._note(path, error.problem if isinstance(error, (BadFile, BadSidecar)) else str(error))
            return None

    # --- folders and files

    def _each(self, folder: str, act: Callable[[Folder, str], _T]) -> list[_T]:
        """Do it for every name in a folder below the top."""
        if self._top.look(folder) is None:
            return []
        path = self._top.path_of(folder)

        def inside() -> list[_T]:
            with opened(path) as found:
                names = sorted(os.listdir(found.fd))
                if len(names) > MOST:
                    self._note(path, f"only {MOST} of its {len(names)} entries were read")
                return [act(found, name) for name in names[:MOST]]

        return self._tried(path, inside) or []

    def _json(self, inside: Folder, name: str, limit: int = LARGEST) -> dict[str, Any] | None:
        """The object in a file; None if there is no file, or nothing that could be read."""
        path = inside.path_of(name)
        plain = self._tried(path, lambda: inside.read(name, limit))
        if plain is None:
            return None
        found = decoded(plain.data)
        if isinstance(found, str):
            self._note(path, found)
            return None
        return found

    def _config(self, inside: Folder, name: str) -> RunrScope | None:
        scope = (self._json(inside, name) or {}).get("scope")
        return scope_of(scope) if isinstance(scope, dict) else None

    # --- sidecars

    def _sidecar(self, inside: Folder, name: str) -> Sidecar | None:
        if name == "index.json":
            return None
        path = inside.path_of(name)
        if not name.endswith(".json"):
            self._note(path, "it is not a sidecar")
            return None
        plain = self._tried(path, lambda: inside.read(name, MAX_BYTES))
        return plain and self._tried(path, lambda: from_runr(plain.data, name))

    # --- runs

    def _run(self, runs: Folder, name: str, scope: RunrScope | None, sidecars: Sequence[Sidecar]) -> RunrRun | None:
        path = runs.path_of(name)
        found = runs.look(name)
        if name in NOT_RUNS or found is None:
            return None
        if not stat.S_ISDIR(found.st_mode):
            what = (
                "a symbolic link, which is not followed" if stat.S_ISLNK(found.st_mode) else "not the folder of a run"
            )
            self._note(path, f"it is {what}")
            return None
        kept = self._taken()
        run = self._tried(path, lambda: self._inside_run(path, name, scope, sidecars))
        mine = self._taken()
        self._problems = [*kept, *(mine if run is None else ())]
        return run and msgspec.structs.replace(run, problems=mine)

    def _inside_run(self, path: str, name: str, scope: RunrScope | None, sidecars: Sequence[Sidecar]) -> RunrRun | None:
        with opened(path) as inside:
            if not any(inside.look(file) for file in _OF_A_RUN):
                self._note(path, "it holds nothing of a run")
                return None
            found = self._json(inside, "state.json")
            state, events = found or {}, self._timeline(inside)
            if found is not None and state.get("run_id") != name:
                self._note(inside.path_of("state.json"), f"it names another run: {text(state.get('run_id'))!r:.80}")
            fields = self._fields(inside, state)
            plan = milestones_of(fields.pop("milestones") or planned(events))
            return RunrRun(
                run_id=name,
                path=path,
                has_state=found is not None,
                **fields,
                milestones=tuple(one.title for one in plan),
                plan=plan,
                scope=self._scope(inside, state) or scope,
                task=self._task(inside),
                environment=self._json(inside, "env.fingerprint.json") or {},
                timeline=tuple(events),
                sidecars=tuple(one for one in sidecars if one.run_id == name),
            )

    def _scope(self, inside: Folder, state: Mapping[str, Any]) -> RunrScope | None:
        locked = state.get("scope_lock")
        return scope_of(locked) if isinstance(locked, dict) else self._config(inside, "config.snapshot.json")

    def _fields(self, inside: Folder, state: Mapping[str, Any]) -> dict[str, Any]:
        """The plain fields of the state; one of another type is noted and counts as unknown."""
        found: dict[str, Any] = {}
        for field, (key, kind) in STATE.items():
            value = state.get(key)
            if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
                self._note(inside.path_of("state.json"), f"`{key}` is not what it should be")
                value = None
            found[field] = value
        return found

    def _task(self, inside: Folder) -> str | None:
        if inside.look("artifacts") is None:
            return None

        def content() -> str | None:
            with opened(inside.path_of("artifacts")) as artifacts:
                plain = artifacts.read("task.md", LARGEST)
            return plain and plain.data.decode("utf-8", "replace")

        return self._tried(inside.path_of("artifacts"), content)

    def _timeline(self, inside: Folder) -> list[RunrEvent]:
        path = inside.path_of("timeline.jsonl")
        plain = self._tried(path, lambda: inside.read("timeline.jsonl", LARGEST_TIMELINE))
        found: list[RunrEvent] = []
        for number, line in lines(plain.data if plain else b""):
            if len(found) == MOST_EVENTS:
                self._note(path, f"only the first {MOST_EVENTS} events were read", number)
                break
            event = event_of(line, number)
            if isinstance(event, str):
                self._note(path, event, number)
            else:
                found.append(event)
        return found

    # --- orchestrations

    def _orchestration(self, folder: Folder, name: str) -> RunrOrchestration | None:
        path = folder.path_of(name)

        def inside() -> dict[str, Any] | None:
            with opened(path) as found:
                return self._json(found, "state.json")

        state = self._tried(path, inside)
        if not state:
            return None
        tracks = [track for track in items(state.get("tracks")) if isinstance(track, dict)]
        return RunrOrchestration(
            orchestrator_id=text(state.get("orchestrator_id")) or name,
            path=path,
            status=text(state.get("status")),
            started_at=text(state.get("started_at")),
            ended_at=text(state.get("ended_at")),
            tracks=tuple(map(track_of, tracks)),
        )

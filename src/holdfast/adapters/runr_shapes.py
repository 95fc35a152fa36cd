"""What Runr's files say, as plain data: one class for each thing, and how it is made of JSON. Believes no type, reads no file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.core.named import NamedTuple
from holdfast.core.sidecar import Sidecar

LONGEST_LINE = 1024 * 1024
LONGEST_TITLE = 200


class Problem(NamedTuple):
    """Something that could not be read: where, and why. The line is known for files of lines."""

    path: str
    why: str
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.path}{'' if self.line is None else f', line {self.line}'}: {self.why}"


class RunrMilestone(msgspec.Struct, frozen=True):
    title: str
    files_expected: tuple[str, ...] = ()
    done_checks: tuple[str, ...] = ()
    risk_level: str | None = None


class RunrEvent(msgspec.Struct, frozen=True):
    type: str
    line: int
    seq: int | None = None
    at: str | None = None
    source: str | None = None
    payload: dict[str, Any] = {}


class RunrScope(msgspec.Struct, frozen=True):
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class RunrRun(msgspec.Struct, frozen=True):
    """One run. Its milestones are known by their titles; `plan` has more of them. Without a state they come from the timeline."""

    run_id: str
    path: str
    has_state: bool = False
    phase: str | None = None
    last_successful_phase: str | None = None
    milestone_index: int | None = None
    milestones: tuple[str, ...] = ()
    plan: tuple[RunrMilestone, ...] = ()
    stop_reason: str | None = None
    last_error: str | None = None
    started_at: str | None = None
    updated_at: str | None = None
    repo_path: str | None = None
    branch: str | None = None
    checkpoint_sha: str | None = None
    scope: RunrScope | None = None
    task: str | None = None
    environment: dict[str, Any] = {}
    timeline: tuple[RunrEvent, ...] = ()
    sidecars: tuple[Sidecar, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def title(self) -> str:
        """The first line of its task, without the marks of a heading."""
        lines = (line.lstrip("# \t").strip() for line in (self.task or "").splitlines())
        return next(filter(None, lines), self.run_id)[:LONGEST_TITLE]


class RunrStep(msgspec.Struct, frozen=True):
    task_path: str
    run_id: str | None = None
    status: str | None = None


class RunrTrack(msgspec.Struct, frozen=True):
    name: str
    status: str | None = None
    steps: tuple[RunrStep, ...] = ()


class RunrOrchestration(msgspec.Struct, frozen=True):
    orchestrator_id: str
    path: str
    status: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    tracks: tuple[RunrTrack, ...] = ()


class RunrFolder(msgspec.Struct, frozen=True):
    """Everything that was found. `strays` are sidecars of runs that are not here; `active` is the run Runr calls running."""

    path: str
    runs: tuple[RunrRun, ...] = ()
    strays: tuple[Sidecar, ...] = ()
    orchestrations: tuple[RunrOrchestration, ...] = ()
    scope: RunrScope | None = None
    active: str | None = None
    problems: tuple[Problem, ...] = ()


# field of RunrRun: key in state.json and its type
STATE: dict[str, tuple[str, type]] = {
    "phase": ("phase", str),
    "last_successful_phase": ("last_successful_phase", str),
    "milestone_index": ("milestone_index", int),
    "stop_reason": ("stop_reason", str),
    "last_error": ("last_error", str),
    "started_at": ("started_at", str),
    "updated_at": ("updated_at", str),
    "repo_path": ("repo_path", str),
    "branch": ("current_branch", str),
    "checkpoint_sha": ("checkpoint_commit_sha", str),
    "milestones": ("milestones", list),
}


def decoded(data: bytes) -> dict[str, Any] | str:
    """The JSON object, or why there is none."""
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        return f"it is not JSON: {str(error)[:200]}"
    return found if isinstance(found, dict) else "it is JSON, but not an object"


def lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    start, number = 0, 0
    while start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        number += 1
        if data[start:end].strip():
            yield number, data[start:end]
        start = end + 1


def event_of(line: bytes, number: int) -> RunrEvent | str:
    """The event in a line, or why there is none."""
    if len(line) > LONGEST_LINE:
        return f"the line is {len(line):,} bytes; the limit is {LONGEST_LINE:,}"
    found = decoded(line)
    if isinstance(found, str):
        return found
    kind, seq, payload = found.get("type"), found.get("seq"), found.get("payload")
    if not isinstance(kind, str):
        return "it has no `type`"
    return RunrEvent(
        type=kind,
        line=number,
        seq=seq if isinstance(seq, int) and not isinstance(seq, bool) else None,
        at=text(found.get("timestamp")),
        source=text(found.get("source")),
        payload=payload if isinstance(payload, dict) else {},
    )


def planned(events: Sequence[RunrEvent]) -> object:
    """The milestones that were planned last, as the timeline has them."""
    plans = [event.payload.get("milestones") for event in events if event.type == "plan_generated"]
    return plans[-1] if plans else None


def milestones_of(found: object) -> tuple[RunrMilestone, ...]:
    return tuple(_milestone(one) for one in items(found))


def _milestone(found: object) -> RunrMilestone:
    """One milestone; one that cannot be understood keeps its place, without a title."""
    if not isinstance(found, dict):
        return RunrMilestone(text(found) or "")
    titles = [text(found.get(key)) for key in ("goal", "title", "name")]
    return RunrMilestone(
        next(filter(None, titles), ""),
        texts(found.get("files_expected")),
        texts(found.get("done_checks")),
        text(found.get("risk_level")),
    )


def scope_of(found: Mapping[str, Any]) -> RunrScope:
    return RunrScope(texts(found.get("allowlist")), texts(found.get("denylist")))


def track_of(found: Mapping[str, Any]) -> RunrTrack:
    steps = [step for step in items(found.get("steps")) if isinstance(step, dict)]
    return RunrTrack(
        name=text(found.get("name")) or text(found.get("id")) or "",
        status=text(found.get("status")),
        steps=tuple(map(_step, steps)),
    )


def _step(found: Mapping[str, Any]) -> RunrStep:
    result = found.get("result")
    status = result.get("status") if isinstance(result, dict) else None
    return RunrStep(text(found.get("task_path")) or "", text(found.get("run_id")), text(status))


def text(found: object) -> str | None:
    return found if isinstance(found, str) else None


def items(found: object) -> list[Any]:
    return found if isinstance(found, list) else []


def texts(found: object) -> tuple[str, ...]:
    return tuple(one for one in items(found) if isinstance(one, str))

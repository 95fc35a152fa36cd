"""The stop registry: what a reason means, what to do next, and whether a run may go on by itself.

Every exit code, resume decision and diagnosis comes from here; nothing else compares stop reasons. None ever raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from holdfast.core.ids import is_id
from holdfast.core.named import NamedTuple
from holdfast.core.stop_table import ALIASES, FAMILIES, STOPS, UNKNOWN, Family, Stop

BY_CODE = {stop.code: stop for stop in STOPS}
CONFIDENCE_BY_EVIDENCE = (0.7, 0.9, 0.95)
SNIPPET = 200


class Diagnosis(NamedTuple):
    """Why a run stopped, on what evidence, and the commands that help."""

    code: str
    title: str
    diagnosis: str
    confidence: float
    evidence: tuple[str, ...]
    next_actions: tuple[str, ...]


class Limits(NamedTuple):
    """How often, how soon and until which repetition a run may resume by itself. Delays are seconds; the last one stays."""

    max_resumes: int = 3
    delays: tuple[float, ...] = (30.0, 120.0, 300.0)
    loop_after: int = 2


LIMITS = Limits()


class AutoResume(NamedTuple):
    """Whether to resume without a person, after how many seconds, and the sentence that says why."""

    outcome: Literal["scheduled", "skipped", "exhausted", "loop_detected"]
    delay: float
    attempt: int
    why: str

    @property
    def resume(self) -> bool:
        return self.outcome == "scheduled"


def lookup(code: str) -> Stop:
    """The stop of a code or of another program's name for it. An unknown one keeps its name and exits with 1."""
    return BY_CODE.get(ALIASES.get(code, code)) or UNKNOWN._replace(code=code)


def lookup_shipped(name: str, payload: Mapping[str, object]) -> Stop:
    """The stop of a foreign record, whose guard violation may say in its payload that only lockfiles were touched."""
    stop = lookup(name)
    guard = payload.get("guard")
    found = guard if isinstance(guard, Mapping) else payload
    lockfiles_only = bool(found.get("lockfile_violations")) and not found.get("scope_violations")
    return BY_CODE["lockfile_violation"] if stop.code == "guard_violation" and lockfiles_only else stop


def exit_code(code: str) -> int:
    return lookup(code).exit_code


def is_known(code: str) -> bool:
    return code in BY_CODE or code in ALIASES


def is_resumable(code: str) -> bool:
    """Whether the same run can go on from its cursor once the cause is dealt with."""
    return lookup(code).resumable


def is_auto_resumable(code: str) -> bool:
    """Whether the run may go on without a person."""
    return lookup(code).auto_resumable


def aliases_of(code: str) -> tuple[str, ...]:
    """Every other name of a code, or of the code an alias stands for, sorted."""
    target = lookup(code).code
    return tuple(sorted(alias for alias, known in ALIASES.items() if known == target))


def all_stops() -> tuple[Stop, ...]:
    """Every stop, by exit code."""
    return tuple(sorted(STOPS, key=lambda stop: stop.exit_code))


def families() -> tuple[Family, ...]:
    return FAMILIES


def next_actions(code: str, run_id: str | None = None) -> tuple[str, ...]:
    """The commands that help, ready to run. Without a run that is safe to print, only those that need none."""
    actions = lookup(code).next_actions
    if run_id is not None and is_id(run_id):
        return tuple(action.replace("{run}", run_id) for action in actions)
    return tuple(action for action in actions if "{run}" not in action)


def diagnose(code: str, evidence: Iterable[str] = (), run_id: str | None = None) -> Diagnosis:
    """What the registry says of a stop, followed by the evidence. Evidence is data: joined on, never interpreted."""
    stop = lookup(code)
    given = tuple(evidence)
    said = "; ".join(map(snippet, given))
    text = f"{stop.sentence} Evidence: {said}" if said else stop.sentence
    confidence = CONFIDENCE_BY_EVIDENCE[min(len(given), 2)] if is_known(code) else 0.5
    return Diagnosis(stop.code, stop.title, text, confidence, given, next_actions(code, run_id))


def snippet(text: str) -> str:
    """One short line of somebody else's text, without characters that move a terminal's cursor or hide others."""
    line = " ".join(text[: 4 * SNIPPET].split())
    shown = "".join(letter if letter.isprintable() else "?" for letter in line[:SNIPPET])
    return shown + "..." if len(line) > SNIPPET or len(text) > 4 * SNIPPET else shown


def auto_resume(
    code: str,
    fingerprint: str,
    history: Sequence[tuple[str, str]],
    limits: Limits = LIMITS,
    wait: float = 0.0,
) -> AutoResume:
    """Decide about a run that stopped for `code`.

    `history` holds (code, fingerprint) of each stop it resumed from by itself since a person last did; the fingerprint
    says where the run stood, so the same one twice means no progress. `wait` is the time until the stop's own due time.
    A stop that waits by its nature is not held against the run.
    """
    stop = lookup(code)
    if not stop.auto_resumable:
        return AutoResume("skipped", 0.0, 0, "A stop with reason " + snippet(stop.code) + " needs a person.")
    past = [(lookup(reason), mark) for reason, mark in history]
    repeats = 1 + sum(1 for seen, mark in past if (seen.code, mark) == (stop.code, fingerprint))
    if repeats >= limits.loop_after:
        return AutoResume("loop_detected", 0.0, 0, f"{stop.code} came {repeats} times at the same place.")
    if stop.family == "waiting":
        return AutoResume("scheduled", max(0.0, wait), 0, stop.title + ".")
    return spend_attempt(stop, sum(1 for seen, _ in past if seen.family != "waiting"), limits, wait)


def spend_attempt(stop: Stop, used: int, limits: Limits, wait: float) -> AutoResume:
    if used >= limits.max_resumes:
        of_them = (
            f"All {limits.max_resumes} automatic resumes are" if limits.max_resumes != 1 else "The automatic resume is"
        )
        return AutoResume("exhausted", 0.0, used, f"{of_them} used up.")
    delay = limits.delays[min(used, len(limits.delays) - 1)] if limits.delays else 0.0
    why = f"{stop.title}: automatic resume {used + 1} of {limits.max_resumes}."
    return AutoResume("scheduled", max(delay, wait), used + 1, why)


def markdown() -> str:
    """The reference page. It is made from the table alone, so it cannot say something else."""
    sections = [PAGE_HEAD, *map(family_section, FAMILIES), alias_section()]
    return "\n".join(sections)


def family_section(family: Family) -> str:
    span = str(family.low) if family.low == family.high else f"{family.low}-{family.high}"
    rows = [stop_row(stop) for stop in all_stops() if stop.family == family.name]
    head = f"## {family.name} ({span})\n\n{family.meaning}\n"
    return "\n".join([head, *TABLE_HEAD, *(rows or [stop_row(UNKNOWN._replace(code="any other"))]), ""])


def stop_row(stop: Stop) -> str:
    actions = "<br>".join(f"`{action.replace('{run}', 'RUN')}`" for action in stop.next_actions)
    name = f"`{stop.code}`" if is_known(stop.code) else stop.code
    resume = "by itself" if stop.auto_resumable else "yes" if stop.resumable else "no"
    return f"| {stop.exit_code} | {name} | {stop.title} | {resume} | {stop.sentence} | {actions} |"


def alias_section() -> str:
    rows = [f"| `{alias}` | `{code}` |" for alias, code in sorted(ALIASES.items())]
    return "\n".join([ALIAS_HEAD, *rows, ""])


TABLE_HEAD = ("| exit | reason | title | resume | diagnosis | next |", "|---:|---|---|---|---|---|")

PAGE_HEAD = """\
# Stop reasons

<!-- Made from the registry. Do not edit: change `src/holdfast/core/stop_table.py` and make the page again with
     python -c "from holdfast.core import stops; print(stops.markdown(), end='')" > docs/reference/stops.md -->

Why a run is at rest. One table drives the exit code of the process, whether the run can be resumed, the diagnosis and
the commands that are suggested. `holdfast stops` prints it, and `holdfast stops CODE` prints one row of it.

*resume* says whether the same run can go on from its cursor once the cause is dealt with: `no`, `yes` (a person
does it), or `by itself`, after a delay that grows, a limited number of times, and never twice from the same place.

Some exit codes have another meaning in a shell as well: 124 is what `timeout` returns, 126 and 127 are "not
executable" and "not found", and from 128 on the code may be a signal's number plus 128. Where
that matters, read `--json` instead.
"""

ALIAS_HEAD = """\
## Other names

Names that other programs use for the same thing. They are understood wherever a reason is read; none is ever written.

| name | reason |
|---|---|"""

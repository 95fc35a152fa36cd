"""How a run comes to rest in the middle of somebody's code: an exception that no `except Exception` swallows.

Left uncaught it ends the process with the exit code that the registry gives to the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.events import RunStopped
from holdfast.core.plain import check_text
from holdfast.core.stops import diagnose, exit_code, is_resumable


class Stopped(SystemExit):
    """The run is at rest, and the log says why."""

    def __init__(self, run_id: str, reason: str, evidence: Sequence[str] = ()) -> None:
        found = diagnose(reason, tuple(evidence))
        super().__init__(exit_code(reason))
        self.run_id = run_id
        self.reason = reason
        self.evidence = tuple(evidence)
        self.diagnosis = found.diagnosis

    def __reduce__(self) -> Any:
        return type(self), (self.run_id, self.reason, self.evidence)

    def __str__(self) -> str:
        further = f" `holdfast resume {self.run_id} --plan` shows what comes next." if is_resumable(self.reason) else ""
        end = "" if self.diagnosis.endswith((".", "?", "!")) else "."
        return f"Run {self.run_id} stopped: {self.reason}. {self.diagnosis}{end}{further}"


class NotResumable(HoldfastError):
    reason = "not_resumable"

    def __init__(self, run_id: str, why: str) -> None:
        advice = f"`holdfast fork {run_id}` makes a new run of what it had done."
        super().__init__(f"Run {run_id} cannot go on: {why}.", advice=advice)
        self.run_id = run_id


class PlanChanged(HoldfastError):
    reason = "plan_changed"

    def __init__(self, run_id: str, approved: str, present: str) -> None:
        super().__init__(
            f"Plan {approved:.40} of run {run_id} was approved, and what would be done now is plan {present}."
        )
        self.advice = f"Look at it with `holdfast resume {run_id} --plan`. Nothing was written."
        self.present = present


class NameClash(HoldfastError):
    reason = "name_clash"
    advice = "Give each its own name, for instance with the id of what it works on: f'draft/{chapter.id}'."

    def __init__(self, name: str, first: str, second: str) -> None:
        super().__init__(f"The name {name!r:.120} is used twice in one run: at {first} and at {second}.")
        self.name, self.first, self.second = name, first, second


def stopped(reason: str, *evidence: str) -> RunStopped:
    check_text("The reason of a stop", reason)
    return RunStopped(reason=reason, diagnosis=diagnose(reason, evidence).diagnosis, evidence=evidence)

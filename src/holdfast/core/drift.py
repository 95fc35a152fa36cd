"""What to do when the world is not what the log knew. Tables and one decision; never looks at the world itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from holdfast.core.events import Drift, Verdict
from holdfast.core.strictness import Strictness

Policy = Literal["ignore", "warn", "ask", "refuse"]
DRIFTS: tuple[Drift, ...] = (
    *("inputs", "arguments", "code", "vanished", "plan"),
    *("commit", "branch", "tree", "base", "environment"),
)
POLICIES: tuple[Policy, ...] = ("ignore", "warn", "ask", "refuse")

# off never blocks, medium asks where it matters, max refuses on any drift
DEFAULTS: dict[Strictness, dict[Drift, Policy]] = {
    Strictness.OFF: dict.fromkeys(DRIFTS, "warn"),
    Strictness.MEDIUM: {
        "inputs": "ask",
        "arguments": "ask",
        "code": "warn",
        "vanished": "warn",
        "plan": "ask",
        "commit": "ask",
        "branch": "ask",
        "tree": "ask",
        "base": "warn",
        "environment": "warn",
    },
    Strictness.MAX: dict.fromkeys(DRIFTS, "refuse"),
}
STOP: dict[Drift, str] = {
    "inputs": "input_changed",
    "arguments": "input_changed",
    "code": "code_changed",
    "vanished": "code_changed",
    "plan": "plan_changed",
    "commit": "drift_refused",
    "branch": "branch_differs",
    "tree": "dirty_worktree",
    "base": "drift_refused",
    "environment": "drift_refused",
}
# what a person can do about a stop for it, where that is not plain
CHOICES: dict[Drift, tuple[str, ...]] = {
    "branch": ("choices: check that branch out again, or accept this one with --yes",),
    "base": ("choices: rebase on it, proceed as it is with --yes, or abort with `holdfast cancel`",),
}
VERDICTS: dict[Policy, Verdict] = {"ignore": "go", "warn": "go", "ask": "ask", "refuse": "refuse"}


def policy_for(drift: Drift, strictness: Strictness, own: Mapping[str, Policy] | None = None) -> Policy:
    """The caller's own policy for this kind of drift, else what the strictness says."""
    return (own or {}).get(drift) or DEFAULTS[strictness][drift]

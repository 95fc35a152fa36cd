"""What a run does next, as pure answers. `next_move` looks at the state alone; it never acts, waits or guesses.

An interrupted step is one more kind of next move, so resume needs no program of its own:

    the run is at rest                 -> Rest
    an effect has no known outcome     -> Settle it before anything else
    a step of the plan is not finished -> Begin it, as its next attempt
    nothing is left                    -> Finish
"""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.core.events import Policy
from holdfast.core.state import FINISHED, READY, STOPPED, RunState

Remedy = Literal["again", "ask", "block"]

AT_REST = frozenset({READY, STOPPED, FINISHED})

# What settles an effect that was started and has no outcome: without a probe, and with one.
REMEDIES: dict[Policy, tuple[Remedy, Remedy]] = {
    "pure": ("again", "again"),
    "read": ("again", "again"),
    "idempotent": ("again", "again"),
    "keyed": ("again", "again"),
    "transactional": ("block", "ask"),
    "probed": ("block", "ask"),
    "once": ("block", "ask"),
}


class Rest(msgspec.Struct, frozen=True):
    """Nothing may be done: the run has not begun, is stopped, or is finished."""


class Settle(msgspec.Struct, frozen=True):
    """Find out what became of an effect."""

    effect_key: str


class Begin(msgspec.Struct, frozen=True):
    """Execute a step. `place` is where it stands in the plan; everything before it is finished."""

    step_id: str
    attempt: int
    place: int


class Finish(msgspec.Struct, frozen=True):
    """Say that the plan is done."""


Move = Rest | Settle | Begin | Finish


def next_move(state: RunState, since: int = 0) -> Move:
    """The one next move. `since` is a place in the plan before which every step is known to be finished."""
    if state.status in AT_REST:
        return Rest()
    if state.effects_open:
        return Settle(next(iter(state.effects_open)))
    for place in range(since, len(state.plan)):
        step = state.steps.get(state.plan[place])
        if step is None or step.status != "finished":
            return Begin(state.plan[place], 1 if step is None else step.attempt + 1, place)
    return Finish()


def remedy(recorded: Policy, present: Policy, has_probe: bool) -> Remedy:
    """How to settle an open effect. If its policy changed since it was started, nothing can be taken for granted."""
    return REMEDIES[recorded if recorded == present else "once"][has_probe]

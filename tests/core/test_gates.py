"""Which gates a log leaves closed: one that blocked stays so until something went on behind it, and no other gate is touched."""

from __future__ import annotations

import pytest

from holdfast.core import events as e
from holdfast.core.gates import Gate, see

BLOCKED, OTHER = (e.GateBlocked(step_id=name, strictness="max", conflicts=1) for name in ("g", "h"))
LATER = e.GateBlocked(step_id="g", strictness="medium", conflicts=2)
RESUMED, DONE = e.RunResumed(), e.StepFinished(step_id="g")


def marked(step_id: str) -> e.StepCheckpointed:
    return e.StepCheckpointed(
        checkpoint_id="c",
        mission_id="m",
        step_id=step_id,
        strictness="max",
        cursor="pre_generation_gate",
        input_hash="0" * 64,
        retry_token="t",
        timestamp="2026-01-02T03:04:05.000000Z",
    )


@pytest.mark.parametrize(
    ("events", "known"),
    [
        ((), {}),
        ((BLOCKED,), {"g": Gate(BLOCKED, True)}),
        ((BLOCKED, LATER), {"g": Gate(LATER, True)}),
        ((BLOCKED, OTHER), {"g": Gate(BLOCKED, True), "h": Gate(OTHER, True)}),
        ((BLOCKED, OTHER, RESUMED), {"g": Gate(BLOCKED, False), "h": Gate(OTHER, False)}),
        ((BLOCKED, RESUMED, LATER), {"g": Gate(LATER, True)}),
        ((BLOCKED, OTHER, marked("g")), {"g": Gate(BLOCKED, False), "h": Gate(OTHER, True)}),
        ((marked("g"),), {}),
        ((marked("g"), BLOCKED), {"g": Gate(BLOCKED, True)}),
        ((BLOCKED, OTHER, DONE), {"h": Gate(OTHER, True)}),
        ((BLOCKED, DONE, BLOCKED), {"g": Gate(BLOCKED, True)}),
        ((DONE, RESUMED), {}),
        ((BLOCKED, e.StepStarted(step_id="g"), e.NoteRecorded(text="g")), {"g": Gate(BLOCKED, True)}),
    ],
)
def test_a_gate_is_known_as_the_log_left_it(events, known):
    gates: dict[str, Gate] = {}
    for event in events:
        see(gates, event)
    assert gates == known

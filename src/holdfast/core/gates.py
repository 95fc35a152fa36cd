"""Which gates a log leaves closed. An open gate writes nothing: that one was passed is only known by what came after."""

from __future__ import annotations

from holdfast.core.events import Event, GateBlocked, RunResumed, StepCheckpointed, StepFinished
from holdfast.core.named import NamedTuple


class Gate(NamedTuple):
    """The last block of a gate. `is_closed`: nothing has gone on since, so it has not decided again."""

    blocked: GateBlocked
    is_closed: bool = True


def see(gates: dict[str, Gate], event: Event) -> None:
    """Add an event to what is known of the gates of a run, by the step they stand before."""
    if isinstance(event, GateBlocked):
        gates[event.step_id] = Gate(event)
    elif isinstance(event, RunResumed):
        gates.update({name: gate._replace(is_closed=False) for name, gate in gates.items()})
    elif isinstance(event, StepCheckpointed) and event.step_id in gates:
        gates[event.step_id] = gates[event.step_id]._replace(is_closed=False)
    elif isinstance(event, StepFinished):
        gates.pop(event.step_id, None)

"""Writes docs/reference/events.md from the events themselves: `python tools/events_page.py > docs/reference/events.md`."""

from __future__ import annotations

import inspect
import sys

import msgspec

from holdfast.core.events import KINDS, Event
from holdfast.core.state import LEGAL

HEAD = """# Events

<!-- Made from the events. Do not edit: change `src/holdfast/core/events.py` and run
     python tools/events_page.py > docs/reference/events.md -->

Every fact that a log can hold. The kind is what is stored; the class is what Python uses. A field in brackets may be left out.
Kinds that begin with `x_` are extensions: anyone may write them, and they mean nothing to the state.
"""


def page() -> str:
    return HEAD + "".join(section(kind, event) for kind, event in KINDS.items())


def section(kind: str, event: type[Event]) -> str:
    fields = msgspec.structs.fields(event)
    listed = ", ".join(field.name if field.required else f"[{field.name}]" for field in fields)
    when = ", ".join(sorted(LEGAL[event]))
    said = f"{inspect.cleandoc(event.__doc__)}\n\n" if event.__doc__ and event.__doc__ != Event.__doc__ else ""
    facts = f"Class `{event.__name__}`, version {event.version}. Fields: {listed}. While the run is: {when}."
    return f"\n## `{kind}`\n\n{said}{facts}\n"


if __name__ == "__main__":
    sys.stdout.write(page())

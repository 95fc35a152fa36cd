"""What the missions are called that Holdfast itself goes on with. Reads no folder."""

from __future__ import annotations

from holdfast.core.ids import SPEC, is_id
from holdfast.core.sha import hexdigest


def mission_of_spec(name: str) -> str:
    """The mission of the spec whose folder is called so: its name where that can be one, else with what makes it unique."""
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name.lower()).strip("-")
    mission = f"{SPEC}{plain or 'spec'}"
    if name == plain and is_id(mission):
        return mission
    return f"{SPEC}{plain[:40] or 'spec'}-{hexdigest(name.encode('utf-8', 'surrogateescape'))[:8]}"

"""What is written down of a session, so that it survives us: whose it is, its id, and what was counted of it already."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from holdfast.adapters import processes
from holdfast.adapters.agents.output import SHOWN
from holdfast.adapters.agents.runner import Ears
from holdfast.core.agent_output import Listener, Said
from holdfast.core.agents import Profile
from holdfast.core.redact import Redactor

SESSION = "session.json"


class Note(msgspec.Struct, frozen=True):
    agent: str = ""
    session: str | None = None
    counted: dict[str, float] = {}


def note_down(folder: str, note: Note) -> None:
    processes.put(folder, SESSION, msgspec.json.encode(note))


def noted(folder: str) -> Note:
    """What was written down; nothing if that cannot be read."""
    try:
        return msgspec.json.decode(processes.get(folder, SESSION, processes.MAX_RECORD) or b"{}", type=Note)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Note()


def counted_before(folder: str, session: str | None) -> dict[str, float]:
    """What was counted before of the session that goes on."""
    note = noted(folder)
    if session is None or note.session != session:
        return {}
    return note.counted


def only_new(said: Said, profile: Profile, counted: Mapping[str, float], notes: Notes) -> Said:
    """Only what is new, where an agent counts over the whole session; and a note of what it has named by now."""
    now = dict(counted)
    if "tokens" in profile.whole_session and said.tokens is not None:
        now["tokens"] = said.tokens
        said = said._replace(tokens=max(0, said.tokens - int(counted.get("tokens", 0))))
    if "money" in profile.whole_session and said.money is not None:
        now["money"] = said.money
        said = said._replace(money=max(0.0, said.money - counted.get("money", 0.0)))
    notes.put(Note(profile.name, said.session, now))
    return said


class Notes:
    """Writes the id of a session down as soon as it is heard, so that it survives us; and knows what to show of the output."""

    def __init__(self, listener: Listener, folder: str, profile: Profile, last: Note) -> None:
        self._listener, self._folder, self._profile, self._last = listener, folder, profile, last

    def hear(self, lines: Sequence[str], is_error: bool) -> None:
        for line in lines:
            self._listener.hear(line, is_error)
        heard = self._listener.session
        if heard is not None and heard != self._last.session:
            self.put(Note(self._profile.name, heard, {}))

    def put(self, note: Note) -> None:
        """Write it down, unless it is what we wrote down last."""
        if note != self._last:
            note_down(self._folder, note)
            self._last = note

    def telling(self, ears: Ears, redactor: Redactor) -> Callable[[str], None]:
        """Shows the line itself, or what it means where lines are events for programs."""

        def tell(line: str) -> None:
            shown = redactor.text(self._listener.progress).partition("\n")[0][:SHOWN]
            if shown:
                ears.on_output(shown)

        return tell if self._profile.progress else ears.on_output

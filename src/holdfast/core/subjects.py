"""What a commit message says of a checkpoint: our trailers, and the subjects of Runr and its forerunner. Believes no quote.

Trailers count only in the last paragraph, and only if every line of it is a trailer, the continuation of one, or the
line that `git cherry-pick -x` adds. A subject counts only as the whole first line. What is said twice and differently is
not said at all: a message that two milestones were squashed into names neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from holdfast.core.errors import BadInput
from holdfast.core.ids import check_id, is_id
from holdfast.core.named import NamedTuple
from holdfast.core.sidecar import MAX_NUMBER, runr_id

RUN, CHECKPOINT, MILESTONE = "Holdfast-Run", "Holdfast-Checkpoint", "Holdfast-Milestone"

Kind = Literal["trailer", "run_specific", "legacy"]

_TRAILER = re.compile(r"([A-Za-z0-9][A-Za-z0-9-]*)[ \t]*:(.*)", re.DOTALL)
_PICKED = re.compile(r"\(cherry picked from commit [0-9a-f]{4,64}\)")
_MOST = 200  # no value of ours is longer; a longer one is none of ours, and need not be kept whole
_NUMBER = r"(0|[1-9][0-9]{0,9})"
_INDEX = re.compile(_NUMBER)
_SUBJECTS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("run_specific", re.compile(rf"chore\(runr\): checkpoint (\S{{1,64}}) milestone {_NUMBER}")),
    ("legacy", re.compile(rf"chore\(agent\): checkpoint() milestone {_NUMBER}")),
)
_INDENT = "    "  # before each line of a message that `git merge --squash` joins
_OURS = (RUN.lower(), CHECKPOINT.lower(), MILESTONE.lower())
_STRANGERS = {
    "entire-checkpoint": "it names a checkpoint of Entire, which has neither a run nor a milestone",
    "runr-checkpoint": "it marks a checkpoint of Runr without a milestone",
    "runr-intervention": "it records an intervention in a run of Runr, not a milestone",
    "runr-run-id": "it belongs to a run of Runr, but names no milestone",
}


_IMPORTED = "runr-"
PREFIX = "checkpoint: "  # of the subject of a milestone; its title follows


class Said(NamedTuple):
    """What one commit message says. The title is its subject line."""

    run_id: str | None
    checkpoint_id: str | None
    index: int | None  # type: ignore[assignment]  # a tuple has a method of this name; nobody calls it here
    title: str
    kind: Kind


def read_message(message: str) -> Said | None:
    """The checkpoint that a message names, if it names one."""
    return _read(message)[0]


def explain(message: str) -> str:
    """Why a message names the checkpoint it names, or none, as the end of a sentence."""
    return _read(message)[1]


def names_in(message: str) -> frozenset[tuple[str, str | None]]:
    """Every run that a message names, with its checkpoints: its own, and those whose messages a squash joined in it."""
    named: dict[str, set[str]] = {}
    lines = [line.rstrip() for line in message.split("\n")]
    for text in ("\n".join(lines), "\n".join(line.removeprefix(_INDENT) for line in lines)):
        for paragraph in text.split("\n\n"):
            _collect(_trailers(paragraph.strip("\n").split("\n")) or (), named)
    for line in lines:
        if match := _SUBJECTS[0][1].fullmatch(line.strip().removeprefix("* ")):
            named.setdefault(match[1], set()).add(runr_id(match[1], match[2]))
    return frozenset((run_id, one) for run_id, found in named.items() if is_id(run_id) for one in found or (None,))


def _collect(trailers: Iterable[tuple[str, str]], named: dict[str, set[str]]) -> None:
    run_id = None
    for key, value in trailers:
        if key == _OURS[0]:
            run_id = value
            named.setdefault(value, set())
        elif key == _OURS[1] and run_id is not None:
            named[run_id].add(value)


def with_trailers(message: str, run_id: str, checkpoint_id: str, index: int) -> str:
    """The message with our trailers as its last words, so that nothing it quotes can be taken for them."""
    body = message.strip()
    if not body:
        raise BadInput("A milestone cannot be committed without a message.", advice="Give it a title.")
    if not 0 <= index <= MAX_NUMBER:
        raise BadInput(f"{index!r:.40} cannot be the number of a milestone.", advice="Count milestones from 0.")
    values = (check_id(run_id, "The run id"), check_id(checkpoint_id, "The checkpoint id"), str(index))
    block = "\n".join(f"{name}: {value}" for name, value in zip((RUN, CHECKPOINT, MILESTONE), values, strict=True))
    theirs = _trailers(_last_paragraph(_lines(body)))
    joined = theirs is not None and not any(key in _OURS for key, _ in theirs)
    return f"{body}\n{'' if joined else chr(10)}{block}\n"


# --- runs of Runr


def imported_id(run_id: str) -> str:
    """The id under which a run of Runr is taken in."""
    return f"{_IMPORTED}{run_id}".lower()


def is_imported(run_id: str, mission_id: str) -> bool:
    """Whether a run was taken in from Runr: it is its own mission, and has such an id."""
    return run_id == mission_id and run_id.startswith(_IMPORTED)


def as_imported(said: Said, run_id: str) -> Said:
    """What a message says, with the id of the imported run if its subject names just that run."""
    named = said.kind == "run_specific" and said.run_id is not None and imported_id(said.run_id) == run_id
    return said._replace(run_id=run_id) if named else said


# --- reading


def _read(message: str) -> tuple[Said | None, str]:
    lines = _lines(message)
    if not lines:
        return None, "it is empty"
    trailers = _trailers(_last_paragraph(lines)) or []
    ours = [(key, value) for key, value in trailers if key in _OURS]
    if ours:
        return _from_trailers(lines, ours)
    return _from_subject(lines, dict(trailers))


def _lines(message: str) -> list[str]:
    """Without blank lines at both ends, and without blanks at the ends of lines."""
    lines = [line.rstrip() for line in message.split("\n")]
    first = next((number for number, line in enumerate(lines) if line), len(lines))
    while lines and not lines[-1]:
        lines.pop()
    return lines[first:]


def _last_paragraph(lines: Sequence[str]) -> Sequence[str]:
    """The lines after the last blank one; none, if there is no blank one: then they are the subject."""
    for number in range(len(lines) - 1, -1, -1):
        if not lines[number]:
            return lines[number + 1 :]
    return ()


def _trailers(lines: Sequence[str]) -> list[tuple[str, str]] | None:
    """Keys in lower case with their values; None if the lines are not a block of trailers."""
    found: list[tuple[str, str]] = []
    for line in lines:
        if line[:1] in (" ", "\t") and found:
            found[-1] = (found[-1][0], f"{found[-1][1]} {line.strip()}"[:_MOST])
        elif match := _TRAILER.fullmatch(line):
            found.append((match[1].lower(), match[2].strip()[:_MOST]))
        elif not _PICKED.fullmatch(line):
            return None
    return found or None


def _from_trailers(lines: list[str], ours: list[tuple[str, str]]) -> tuple[Said | None, str]:
    values = dict(ours)
    if len(set(ours)) != len(values):
        return None, "its trailers name two different checkpoints, as after a squash"
    run_id, checkpoint_id, index = (values.get(key) for key in _OURS)
    if any(value is not None and not is_id(value) for value in (run_id, checkpoint_id)) or not _is_index(index):
        return None, "its trailers are damaged"
    if run_id is None and checkpoint_id is None:
        return None, "its trailers name neither a run nor a checkpoint"
    said = Said(run_id, checkpoint_id, None if index is None else int(index), lines[0], "trailer")
    if any(_is_higher(said, block) for block in _earlier_blocks(lines)):
        return None, "it holds the trailers of a later milestone too, as after a squash"
    return said, "its trailers name it"


def _is_index(text: str | None) -> bool:
    return text is None or (_INDEX.fullmatch(text) is not None and int(text) <= MAX_NUMBER)


def _earlier_blocks(lines: Sequence[str]) -> Iterator[Mapping[str, str]]:
    """Paragraphs before the last one that are blocks of trailers: what a squash leaves of the messages it joined."""
    block: list[str] = []
    for line in lines[: len(lines) - len(_last_paragraph(lines))]:
        if line:
            block.append(line)
        else:
            yield dict(_trailers(block) or ())
            block = []


def _is_higher(said: Said, block: Mapping[str, str]) -> bool:
    run_id, checkpoint_id, index = (block.get(key) for key in _OURS)
    if run_id != said.run_id or checkpoint_id is None or index is None or not _is_index(index):
        return False
    return said.index is not None and int(index) > said.index


def _from_subject(lines: list[str], trailers: Mapping[str, str]) -> tuple[Said | None, str]:
    if len(lines) == 1 or not lines[1]:
        for kind, pattern in _SUBJECTS:
            if match := pattern.fullmatch(lines[0]):
                return _said(kind, match[1] or None, int(match[2]), lines[0])
    for key, why in _STRANGERS.items():
        if key in trailers:
            return None, why
    return None, "neither its subject nor its trailers name one"


def _said(kind: Kind, run_id: str | None, index: int, title: str) -> tuple[Said | None, str]:
    if index > MAX_NUMBER or not (run_id is None or is_id(run_id)):
        return None, "its subject is damaged"
    checkpoint_id = None if run_id is None else runr_id(run_id, index)
    return Said(run_id, checkpoint_id, index, title, kind), "its subject names it"

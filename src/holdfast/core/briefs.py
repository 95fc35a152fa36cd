"""What an agent is told: its task, what is known of work that was begun before, and how to answer. Text is data here.

Whatever comes from files, reports or output stands in a fence that it cannot close. A brief never says more than is
known: what is proved done, what is proved not done, and what nobody can say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.core.named import NamedTuple
from holdfast.core.reports import Kind
from holdfast.core.review import Finding

CHARACTERS = 4  # of a token, roughly; a budget is no promise to the last letter

JOBS: dict[Kind, str] = {
    "test": (
        "Write the tests for this task, and only tests. They must fail now, for the reason that the task is not done. "
        "Do not write the implementation."
    ),
    "implement": "Do this task, completely, so that its tests pass. Change nothing that the task does not need.",
    "review": (
        "Review the changes below. Do not change any file. Report what is wrong with its severity and place; "
        "critical and high are fixed at once, medium is put off, so choose with care."
    ),
    "fix": "Put right what the findings below say, and nothing else. Name the ids of those that you put right.",
}
RULES = (
    "Work in the current folder only. Do not commit, do not switch branches, do not stash, do not reset or check out "
    "files with git, and leave .holdfast/ and the spec's own YAML files alone: that is done for you."
)


class Brief(NamedTuple):
    """What is known when work goes on that somebody began before."""

    done: Sequence[str] = ()
    not_done: Sequence[str] = ()
    unknown: Sequence[str] = ()
    evidence: str = ""


class Work(NamedTuple):
    """One piece of work for an agent."""

    kind: Kind
    spec: str
    tasks: Sequence[tuple[str, str, str]]  # id, title, further text
    files: Sequence[str] = ()
    before: Sequence[str] = ()  # what earlier phases of the task left
    findings: Sequence[Finding] = ()
    trouble: str = ""  # output of a verification that failed
    changes: str = ""  # the diff that a reviewer is to see
    brief: Brief | None = None


def prompt(work: Work, how_to_report: str, tokens: int) -> str:
    """Everything an agent gets to read. `tokens` bounds what is only there to help: evidence, output and diff."""
    parts = [f"# {work.kind.capitalize()}: {_ids(work)} of {_line(work.spec)}", JOBS[work.kind], RULES]
    parts += [_task(*task) for task in work.tasks]
    if work.files:
        parts.append("## Files\n\n" + _list(work.files))
    if work.before:
        parts.append("## Done before you\n\n" + _list(work.before))
    if work.brief is not None:
        parts.append(resume_brief(work.brief, tokens))
    if work.findings:
        parts.append("## Findings\n\n" + "\n".join(map(_finding, work.findings)))
    if work.trouble:
        parts.append("## A check fails\n\n" + fenced(shortened(work.trouble, tokens)))
    if work.changes:
        parts.append("## Changes\n\n" + fenced(shortened(work.changes, tokens * 4)))
    return "\n\n".join((*parts, how_to_report)).replace("\0", "")


def resume_brief(brief: Brief, tokens: int) -> str:
    """What a successor has to know, within a budget."""
    parts = ["## You are continuing work that was interrupted\n\nLook at what is there before you change anything."]
    for title, lines in (("Proved done", brief.done), ("Proved not done", brief.not_done), ("Unknown", brief.unknown)):
        if lines:
            parts.append(f"{title}:\n{_list(lines)}")
    text = shortened("\n\n".join(parts), tokens)
    room = tokens - len(text) // CHARACTERS
    if brief.evidence and room > 0:
        text += "\n\nEvidence: what differs in the work tree now, and the last words of your predecessor:\n\n"
        text += fenced(shortened(brief.evidence, room))
    return text


def joined(known: Brief, told: Brief | None) -> Brief:
    """What is known, and what somebody told besides."""
    if told is None:
        return known
    return known._replace(not_done=(*known.not_done, *told.not_done), unknown=(*known.unknown, *told.unknown))


def unreadable_report(why: str, how_to_report: str) -> str:
    """Asks an agent again whose answer could not be read."""
    return (
        f"Your report could not be read.\n\n{fenced(why)}\n\n"
        "Do not repeat any work and do not change any file. Only report what you have done.\n\n" + how_to_report
    )


def fenced(text: str) -> str:
    """The text between fences that are longer than any in it."""
    longest = max((len(run) for run in _runs_of_ticks(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def shortened(text: str, tokens: int) -> str:
    """The beginning and the end, if it is too long, and how much is missing between them."""
    most = max(tokens, 0) * CHARACTERS
    data = text.encode("utf-8", "replace")
    if len(data) <= most:
        return text
    half = most // 2
    first, last = (part.decode("utf-8", "ignore") for part in (data[:half], data[len(data) - half :]))
    return f"{first}\n[... {len(text) - len(first) - len(last)} characters left out ...]\n{last}"


def _runs_of_ticks(text: str) -> Iterable[str]:
    return (run for run in "".join(letter if letter == "`" else " " for letter in text).split(" ") if run)


def _ids(work: Work) -> str:
    return ", ".join(_line(task_id) for task_id, _, _ in work.tasks) or "everything"


def _task(task_id: str, title: str, text: str) -> str:
    return f"## Task {_line(task_id)}\n\n" + fenced("\n\n".join(filter(None, (title, text))))


def _finding(one: Finding) -> str:
    place = f" at {_line(one.location)}" if one.location else ""
    said = "\n\n".join(filter(None, (one.description, one.suggestion and f"Suggestion: {one.suggestion}")))
    return f"{one.id}, {one.severity}{place}:\n{fenced(said)}"


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {_line(line)}" for line in lines)


def _line(text: str) -> str:
    return " ".join(text.split())

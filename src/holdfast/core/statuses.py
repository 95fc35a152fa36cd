"""What people call the state of a task and the weight of a finding. A word that is not known is never guessed to mean done."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from holdfast.core.spec import Severity, Status

_SPELLINGS: dict[Status, str] = {
    "pending": "pending todo to_do open new not_started not_yet_created planned ready backlog draft waiting_for_ideas",
    "in_progress": "in_progress inprogress started active doing wip working plan_drafted revision_ready",
    "awaiting_review": "awaiting_review in_review needs_review review plan_pending_review review_submitted draft_complete",
    "blocked": "blocked stuck on_hold",
    "complete": "complete completed done finished approved review_round_approved final_approved",
    "deferred": "deferred postponed later",
    "dropped": "dropped descoped canceled cancelled abandoned discarded wont_do removed",
}
_WEIGHTS: dict[Severity, str] = {
    "critical": "critical",
    "high": "high important major blocker",
    "medium": "medium moderate minor",
    "low": "low info note nit trivial",
}
_STATUS = {word: status for status, words in _SPELLINGS.items() for word in words.split()}
_SEVERITY = {word: weight for weight, words in _WEIGHTS.items() for word in words.split()}
_OWN: dict[Status, str] = {status: status for status in _SPELLINGS} | {"complete": "completed"}


@lru_cache(maxsize=256)
def status(text: str) -> Status | None:
    """The one word for a status in any spelling, or None when nobody knows it."""
    return _STATUS.get(re.sub("_[0-9]+(?=_)", "", _plain(text)))


def severity(text: str) -> Severity:
    """The one word for how much a finding weighs. Of two (`low-medium`) the heavier; what nobody knows is not made light of."""
    found = {_SEVERITY.get(word) for word in re.split("[^a-z]+", text.casefold())}
    return next((weight for weight in _WEIGHTS if weight in found), "high")


def spelling(wanted: Status, said: Sequence[str]) -> str:
    """How a file that says these statuses would say this one: its own word if it has one, else in its own manner."""
    words = Counter(said)
    known = [word for word, _ in words.most_common() if status(word) == wanted]
    return known[0] if known else _in_manner(_OWN[wanted], [word for word in words if status(word)])


def _in_manner(word: str, said: Sequence[str]) -> str:
    letters = "".join(said)
    between = next((sign for sign in "_- " if sign in letters), "_")
    joined = word.replace("_", between)
    if not letters or letters.islower():
        return joined
    if letters.isupper():
        return joined.upper()
    return joined.title() if between == " " and all(one.istitle() for one in said) else joined.capitalize()


def _plain(text: str) -> str:
    return re.sub("[^a-z0-9]+", "_", text.casefold().replace("'", "")).strip("_")

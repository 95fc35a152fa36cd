"""What people call the state of a task and the weight of a finding."""

from __future__ import annotations

import pytest

from holdfast.core.statuses import severity, spelling, status

REAL = {
    "pending": ("pending", "draft", "waiting-for-ideas", "not yet created", "TODO"),
    "in_progress": ("in_progress", "in-progress", "In Progress", "plan-drafted", "revision-1-ready"),
    "awaiting_review": ("awaiting_review", "plan-pending-review", "review-submitted", "draft-complete"),
    "blocked": ("blocked",),
    "complete": ("complete", "completed", "done", "Done ", "approved", "review-round-2-approved", "final-approved"),
    "deferred": ("deferred",),
    "dropped": ("descoped", "canceled", "cancelled", "won't do"),
}


@pytest.mark.parametrize(("canonical", "said"), [(name, word) for name, words in REAL.items() for word in words])
def test_a_known_spelling_has_one_meaning(canonical, said):
    assert status(said) == canonical


@pytest.mark.parametrize("said", ["", "almost done", "done?no", "complete-ish", "compléted", "undone"])
def test_an_unknown_one_is_never_taken_for_done(said):
    assert status(said) is None


@pytest.mark.parametrize(
    ("wanted", "said", "word"),
    [
        ("complete", ["pending", "done"], "done"),
        ("complete", ["completed", "done", "completed"], "completed"),
        ("complete", ["pending"], "completed"),
        ("complete", [], "completed"),
        ("in_progress", ["not-started", "done"], "in-progress"),
        ("in_progress", ["in_progress"], "in_progress"),
        ("in_progress", ["pending", "to-do", "to_do"], "in_progress"),
        ("complete", ["PENDING"], "COMPLETED"),
        ("awaiting_review", ["Pending", "strange"], "Awaiting_review"),
        ("in_progress", ["To Do", "Done"], "In Progress"),
        ("in_progress", ["To do", "Done"], "In progress"),
        ("in_progress", ["to do"], "in progress"),
    ],
)
def test_a_status_is_said_in_the_words_of_the_file(wanted, said, word):
    assert spelling(wanted, said) == word


@pytest.mark.parametrize(
    ("said", "weight"),
    [
        ("CRITICAL", "critical"),
        ("important", "high"),
        ("major", "high"),
        ("blocker", "high"),
        ("moderate", "medium"),
        ("minor", "medium"),
        ("nit", "low"),
        ("low-medium", "medium"),
        ("catastrophic", "high"),
        ("", "high"),
    ],
)
def test_a_finding_weighs_at_least_what_its_word_may_mean(said, weight):
    assert severity(said) == weight

"""What is gone from a spec's files that nobody but their people wrote."""

from __future__ import annotations

import pytest

from holdfast.core.spec_besides import lost, lost_of_checkpoint

BODY = {
    "branch": "main",
    "mine": {"a": "b", "c": []},
    "tasks": {"pending": [{"id": "T1", "owner": "ada"}, {"id": "T2", "name": "x"}, "T3"]},
    "next_batch": {"number": "2", "title": "two", "tasks": [{"id": "T1", "extra": "x"}]},
    "review_config": {"reviewers": ["one"], "effort": "high"},
    "deferred_issues": [{"id": "M1", "description": "d", "ticket": "A-1"}, "a sentence"],
}


def changed(**fields):
    return {key: value for key, value in {**BODY, **fields}.items() if value is not None}


@pytest.mark.parametrize(
    ("now", "gone"),
    [
        (BODY, []),
        (changed(branch=None, mine={"a": "other"}), []),
        (changed(mine=None), ["mine"]),
        (changed(mine="word"), ["mine"]),
        (changed(tasks={"completed": [{"id": "T1", "owner": "eve"}]}), []),
        (changed(tasks={"pending": ["T1", "T2"]}), ["T1"]),
        (changed(tasks={"pending": [{"id": "T1"}, {"id": "T2", "owner": "eve"}]}), ["owner"]),
        (changed(next_batch={"number": "3"}), ["title", "T1"]),
        (changed(review_config={"reviewers": ["two"]}), ["effort"]),
        (changed(deferred_issues=["a sentence"]), []),
        (changed(deferred_issues=[{"id": "M1", "description": "d"}]), ["ticket"]),
        ({}, ["mine", "T1", "title", "effort"]),
    ],
)
def test_what_a_checkpoint_said_besides_is_missed(now, gone):
    assert lost_of_checkpoint({"checkpoint": BODY}, {"checkpoint": now}) == gone
    assert lost_of_checkpoint(BODY, now) == gone
    assert lost_of_checkpoint({"checkpoint": BODY, "more": "x"}, {"checkpoint": now}) == ["more", *gone]


@pytest.mark.parametrize(
    ("before", "now", "gone"),
    [
        ({"a": ["x", {"id": "1", "b": "c"}]}, {"a": [{"id": "1", "b": "d"}, "y", "x"]}, []),
        ({"a": ["x", {"id": "1", "b": "c"}, {"q": "r"}]}, {"a": [{"id": "1"}]}, ["a", "b", "a"]),
        ({"a": ["x", {"id": "1"}]}, {"a": "x"}, ["a", "1"]),
        ({"a": "x"}, {"a": None}, ["a"]),
        ({"a": None, "b": []}, {}, []),
    ],
)
def test_a_list_misses_its_items_and_a_word_may_change(before, now, gone):
    assert list(lost(before, now)) == gone

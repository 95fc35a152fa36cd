"""Two fingerprints: every difference is named, and none is made up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.fingerprint import TIMES, comparable, differences, make

FACTS = st.dictionaries(st.text("abc:", min_size=1, max_size=3), st.text("xy", max_size=2), max_size=6)


def test_each_difference_is_named_in_order():
    before = {"python": "CPython 3.11", "lockfile:b": "1", "tool:npm": "/usr/bin/npm"}
    now = {"python": "CPython 3.12", "lockfile:a": "2", "tool:npm": "/usr/bin/npm"}
    assert differences(before, now) == [
        "lockfile:a was added: 2",
        "lockfile:b was removed; it was 1",
        "python changed from CPython 3.11 to CPython 3.12",
    ]


def test_when_it_was_taken_does_not_matter():
    assert {"created_at"} <= TIMES
    assert differences({"created_at": "1", "a": "x"}, {"created_at": "2", "updated_at": "3", "a": "x"}) == []
    assert differences({"lockfile:created_at": "1"}, {}) == ["lockfile:created_at was removed; it was 1"]


def test_an_empty_value_is_not_the_same_as_none():
    assert differences({"a": ""}, {}) == ["a was removed; it was nothing"]
    assert differences({}, {"a": ""}) == ["a was added: nothing"]
    assert differences({"a": ""}, {"a": ""}) == []


def test_digests_are_shown_by_their_beginning_and_long_values_cut():
    one, other = "a" * 64, "b" * 64
    assert differences({"x": one}, {"x": other}) == ["x changed from aaaaaaaaaaaa to bbbbbbbbbbbb"]
    assert differences({}, {"x": f"/bin/agent {one}"}) == ["x was added: /bin/agent aaaaaaaaaaaa"]
    assert len(differences({}, {"x": "y" * 10_000})[0]) < 200
    assert differences({}, {"x": "G" * 64}) == [f"x was added: {'G' * 64}"]
    assert differences({}, {"x": "X" * 64}) == [f"x was added: {'X' * 64}"]


def test_a_value_is_shown_as_it_is_up_to_a_length():
    assert differences({}, {"x": "a  b\tc"}) == ["x was added: a  b\tc"]
    whole, longer = "y" * 160, "y" * 161
    assert differences({"x": whole}, {"x": longer}) == [f"x changed from {whole} to {whole}..."]


def test_an_older_fingerprint_is_not_held_against_what_it_never_looked_for():
    now = {"fingerprint": "2", "python": "3.12", "lockfile:a": "1", "lockfile:b": "2", "agent:mine": "/bin/mine"}
    assert comparable({"lockfile:a": "0"}, now) == {"python": "3.12", "lockfile:a": "1"}
    assert comparable({"fingerprint": "1"}, now) == now


@given(FACTS, FACTS)
def test_there_is_one_sentence_for_each_name_that_differs_and_no_other(before, now):
    differing = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    found = differences(before, now)
    assert len(found) == len(differing)
    assert all(sentence.startswith(f"{name} ") for name, sentence in zip(differing, found, strict=True))
    assert bool(found) == (before != now)


@given(FACTS)
def test_the_order_of_the_facts_does_not_matter(facts):
    assert list(make(facts)) == sorted(facts)
    assert make(dict(reversed(facts.items()))) == make(facts) == facts

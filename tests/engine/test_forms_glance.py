"""What a step is given, at a glance: the same as by the closer look, or nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.canonical import canonical
from holdfast.engine import forms

VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.binary(), st.lists(st.integers())
)


@given(st.lists(VALUES, max_size=4), st.permutations(["a", "b", "ö", "z"]))
def test_a_glance_sees_what_the_closer_look_sees(values, names):
    seen = forms.at_a_glance(tuple(names), tuple(values))
    if seen is None:
        return
    arguments, clean, has_text = seen
    assert arguments == forms.named("step s", tuple(names), tuple(values), {})
    assert list(map(type, arguments.values())) == list(map(type, values))
    assert clean == canonical(arguments)
    assert has_text == any(isinstance(value, str) for value in values)


@pytest.mark.parametrize("value", [0, -5, 2**53 - 1, 1 - 2**53, "", "plain text", None])
def test_what_most_steps_are_given_needs_no_closer_look(value):
    arguments, clean, has_text = forms.at_a_glance(("first", "more"), (value,))
    assert (arguments, clean) == ({"first": value}, canonical({"first": value}))
    assert has_text == isinstance(value, str)


@pytest.mark.parametrize(
    "value", [2**53, -(2**53), True, 0.5, 5.0, "ß", "\ud800", [], {}, (), b"", object(), "x" * 5000]
)
def test_all_else_does(value):
    assert forms.at_a_glance(("first",), (value,)) is None


def test_so_does_more_than_there_are_names_for_and_a_name_that_sorts_otherwise():
    assert forms.at_a_glance((), (1,)) is None
    assert forms.at_a_glance(("größe",), (1,)) is None
    assert forms.at_a_glance((), ()) == ({}, b"{}", False)

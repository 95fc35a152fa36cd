"""Keys of effects: gaps are filled with plain data from the arguments, and whatever cannot be a key is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import UsageError
from holdfast.core.keys import LONGEST, business_key

ORDER = {"order": {"id": 7, "lines": [{"sku": "x1"}, {"sku": "x2"}], "to": "a@example.org"}, "n": -3, "empty": ""}


@pytest.mark.parametrize(
    ("template", "key"),
    [
        ("order-{order.id}", "order-7"),
        ("{n}", "-3"),
        ("{order.to}", "a@example.org"),
        ("{order.lines.0.sku}/{order.lines.1.sku}", "x1/x2"),
        ("{n}{n}", "-3-3"),
        ("x{empty}y", "xy"),
        ("no gap at all", "no gap at all"),
    ],
)
def test_each_gap_is_filled_from_the_arguments(template, key):
    assert business_key(template, ORDER) == key


def test_a_list_of_arguments_is_read_by_place():
    assert business_key("{0}-{1}", ["a", "b"]) == "a-b"
    assert business_key("{0.name}", ({"name": "b"},)) == "b"


@pytest.mark.parametrize(
    "path",
    [
        "missing",
        "order",
        "order.lines",
        "order.missing",
        "order.id.real",
        "order.to.0",
        "order.lines.2.sku",
        "order.lines.first",
        "order.lines.0",
        "order.lines.9",
        "n.numerator",
    ],
)
def test_a_gap_without_text_or_whole_number_is_refused_by_name(path):
    with pytest.raises(UsageError) as refused:
        business_key("k-{" + path + "}", ORDER)
    assert str(refused.value) == (
        f"The key {'k-{' + path + '}'!r} names {path}, and the effect was given no text or whole number there."
    )
    assert refused.value.advice == "Name an argument by the name of its parameter, or one of its fields."


@pytest.mark.parametrize("value", [None, True, False, 1.5, [], {}, ["a"]])
def test_a_value_that_has_no_one_text_is_refused(value):
    with pytest.raises(UsageError, match="no text or whole number"):
        business_key("{v}", {"v": value})


@pytest.mark.parametrize("arguments", [None, "text", 5, [], {}])
def test_arguments_without_names_fill_no_gap(arguments):
    with pytest.raises(UsageError, match="no text or whole number"):
        business_key("{a}", arguments)
    with pytest.raises(UsageError, match="no text or whole number"):
        business_key("{0}", arguments)


@pytest.mark.parametrize(
    "template",
    ["", "a\nb", "\x1b[31m", "{", "}", "a{b c}", "{a!r}", "{a:>9}", "{a[0]}", "{}", "{.a}", "{a.}", "{a..b}"],
)
def test_what_is_no_key_is_refused(template):
    with pytest.raises(UsageError, match="cannot be the key of an effect") as refused:
        business_key(template, {"a": "x"})
    assert refused.value.advice == "A key is 1 to 200 printable characters."


@pytest.mark.parametrize("value", ["a\nb", "{", "}", "\u202e", "{a}"])
def test_what_fills_a_gap_must_be_fit_for_a_key_too_and_is_not_filled_again(value):
    with pytest.raises(UsageError, match="cannot be the key of an effect"):
        business_key("k-{a}", {"a": value})


def test_a_key_may_be_as_long_as_its_limit_and_no_longer():
    assert LONGEST == 200
    assert business_key("k{a}", {"a": "x" * 199}) == "k" + "x" * 199
    assert business_key("{a}", {"a": "x"}) == "x"
    with pytest.raises(UsageError) as refused:
        business_key("k{a}", {"a": "x" * 200})
    assert len(str(refused.value)) < 200


def test_a_long_template_is_cut_short_in_the_sentence():
    with pytest.raises(UsageError) as refused:
        business_key("x" * 1000 + "{a}", {})
    assert len(str(refused.value)) < 300


def test_nothing_is_evaluated():
    class Trap(dict):
        def __missing__(self, key):
            raise AssertionError(key)

    with pytest.raises(UsageError, match="no text or whole number"):
        business_key("{__class__}", Trap())
    with pytest.raises(UsageError, match="no text or whole number"):
        business_key("{a.__len__}", {"a": "text"})


@given(st.text(max_size=30), st.dictionaries(st.text(max_size=5), st.text(max_size=5) | st.integers() | st.none()))
def test_any_template_gives_a_key_that_can_be_typed_or_a_typed_refusal(template, arguments):
    try:
        key = business_key(template, arguments)
    except UsageError:
        return
    assert 0 < len(key) <= LONGEST and key.isprintable() and not set(key) & set("{}")


def test_a_template_that_is_no_text_is_refused():
    with pytest.raises(UsageError, match="The key of an effect is text, not 5"):
        business_key(5, ORDER)

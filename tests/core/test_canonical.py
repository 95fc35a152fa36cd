"""One value has one canonical form and one digest; what has no exact form is refused with the path to it."""

from __future__ import annotations

import json
import math
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import IntEnum, StrEnum
from pathlib import Path

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import canonical as module
from holdfast.core.canonical import canonical, digest, digest_of, is_simple
from holdfast.core.errors import NotCanonical, TooLarge
from holdfast.core.plain import MAX_DEPTH, are_surely_plain, check_plain

EXACT = 2**53 - 1


def double(bits: str) -> float:
    return float(struct.unpack(">d", bytes.fromhex(bits))[0])


VECTORS = [
    ({}, "{}"),
    ([], "[]"),
    ("", '""'),
    (None, "null"),
    (True, "true"),
    (0, "0"),
    (-0.0, "0"),
    (EXACT, "9007199254740991"),
    (-EXACT, "-9007199254740991"),
    ({"b": 1, "a": 2}, '{"a":2,"b":1}'),
    ({"a": {"d": 1, "c": [3, 2, 1]}}, '{"a":{"c":[3,2,1],"d":1}}'),
    ({"10": 1, "9": 2, "1": 3}, '{"1":3,"10":1,"9":2}'),
    ({"": 1, " ": 2}, '{"":1," ":2}'),
    ("\u0000\u0001\u0007\u001f", '"\\u0000\\u0001\\u0007\\u001f"'),
    ("\b\t\n\f\r", '"\\b\\t\\n\\f\\r"'),
    ('"\\/', '"\\"\\\\/"'),
    ("\u007f\u0080\u2028\u2029", '"\u007f\u0080\u2028\u2029"'),
    ("€$é", '"€$é"'),
    ("\U0001f600", '"\U0001f600"'),
    # keys are sorted by UTF-16 code units: an emoji (D83D...) comes before U+FB33
    ({"\ufb33": 1, "\U0001f600": 2, "\u20ac": 3, "1": 4}, '{"1":4,"\u20ac":3,"\U0001f600":2,"\ufb33":1}'),
    (1.5, "1.5"),
    (0.1, "0.1"),
    (100.0, "100"),
    (1e21, "1e+21"),
    (1e20, "100000000000000000000"),
    (123456789012345680000.0, "123456789012345680000"),
    (1e-6, "0.000001"),
    (1e-7, "1e-7"),
    (1.7976931348623157e308, "1.7976931348623157e+308"),
    (5e-324, "5e-324"),
    (double("4340000000000001"), "9007199254740994"),
    (double("44b52d02c7e14af5"), "9.999999999999997e+22"),
    (double("44b52d02c7e14af6"), "1e+23"),
    (double("3eb0c6f7a0b5ed8d"), "0.000001"),
    (double("41b3de4355555554"), "333333333.33333325"),
    (double("becbf647612f3696"), "-0.0000033333333333333333"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "expected"), VECTORS, ids=[expected[:30] for _, expected in VECTORS])
def test_the_canonical_form_is_the_one_of_rfc_8785(value, expected):
    assert canonical(value) == expected.encode()


def test_the_digest_is_the_sha_256_of_the_form():
    assert digest(b"{}") == digest_of({}) == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


# --- choices


def test_a_tuple_is_a_list():
    assert digest_of({"a": (1, (2,))}) == digest_of({"a": [1, [2]]})


def test_five_and_five_point_zero_are_the_same_number():
    assert digest_of(5) == digest_of(5.0)


def test_true_one_and_the_text_one_are_three_things():
    assert len({digest_of(value) for value in (True, 1, "1", "true", None, "null", 0, False)}) == 8


def test_composed_and_decomposed_letters_are_two_texts():
    assert digest_of("\u00e9") != digest_of("e\u0301")
    assert digest_of({"\u00e9": 1}) != digest_of({"e\u0301": 1})


def test_the_keys_1_and_text_1_never_meet():
    with pytest.raises(NotCanonical, match="the key 1 is a int, not text"):
        canonical({1: "x", "1": "y"})
    with pytest.raises(NotCanonical):
        canonical({1: "x"})


# --- refusals


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Text(str):
    pass


REFUSED = [
    (float("nan"), r"\$", "NaN"),
    ([1, float("inf")], r"\$\[1\]", "infinity"),
    ({"a": {"b": -math.inf}}, r"\$\.a\.b", "infinity"),
    (2**53, r"\$", "2\\^53"),
    (2**53 + 1, r"\$", "2\\^53"),
    ([-(2**53)], r"\$\[0\]", "2\\^53"),
    (10**400, r"\$", "2\\^53"),
    ("\ud800", r"\$", "surrogate"),
    ({"a": ["x", "y\udfffz"]}, r"\$\.a\[1\]", "surrogate"),
    ({"\ud800": 1}, r"\$", "surrogate"),
    ({None: 1}, r"\$", "not text"),
    ({True: 1}, r"\$", "not text"),
    ({1.5: 1}, r"\$", "not text"),
    ({("a",): 1}, r"\$", "not text"),
    ({b"a": 1}, r"\$", "not text"),
    ({Text("a"): 1}, r"\$", "not text"),
    (b"bytes", r"\$", "bytes"),
    ({1, 2}, r"\$", "set"),
    (datetime(2026, 1, 2, tzinfo=UTC), r"\$", "datetime"),
    (datetime(2026, 1, 2), r"\$", "datetime"),
    (date(2026, 1, 2), r"\$", "date"),
    (Path("/"), r"\$", "Path"),
    (Decimal("1.0"), r"\$", "Decimal"),
    (1j, r"\$", "complex"),
    (object(), r"\$", "object"),
    (Colour.RED, r"\$", "Colour"),
    (Level.LOW, r"\$", "Level"),
    (Text("a"), r"\$", "Text"),
    ({"f": print}, r"\$\.f", "builtin"),
    (NotImplemented, r"\$", "NotImplemented"),
]


@pytest.mark.parametrize(
    ("value", "path", "problem"), REFUSED, ids=[f"{number}-{problem}" for number, (_, _, problem) in enumerate(REFUSED)]
)
def test_what_has_no_exact_form_is_refused_with_its_path(value, path, problem):
    with pytest.raises(NotCanonical, match=rf"The value at {path} has no canonical JSON form: .*{problem}") as caught:
        canonical(value)
    assert caught.value.reason == "bad_input"
    assert caught.value.advice


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_is_called_so(value):
    with pytest.raises(NotCanonical) as caught:
        check_plain([value])
    assert (caught.value.path, caught.value.problem) == ("$[0]", "NaN and infinity are not JSON")


def nested(depth: int) -> object:
    value: object = 1
    for level in range(depth):
        value = [value] if level % 2 else {"k": value}
    return value


def test_data_may_be_nested_to_the_limit_and_no_deeper():
    assert canonical(nested(MAX_DEPTH))
    with pytest.raises(NotCanonical, match="nested more than 100 deep"):
        canonical(nested(MAX_DEPTH + 1))


def test_data_that_contains_itself_is_refused():
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(NotCanonical, match="nested"):
        canonical(loop)


def test_a_form_over_the_limit_is_refused(monkeypatch):
    monkeypatch.setattr(module, "MAX_BYTES", 100)
    assert canonical("a" * 98)
    with pytest.raises(TooLarge) as caught:
        canonical("a" * 99)
    assert (caught.value.size, caught.value.limit) == (101, 100)


# --- properties

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-EXACT, EXACT)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4), max_leaves=20
)


@given(values)
def test_reading_the_form_back_gives_the_same_value_and_the_same_form(value):
    again = json.loads(canonical(value), parse_int=float)  # every number is a double, as in RFC 8785
    assert again == value
    assert canonical(again) == canonical(value)


@given(st.dictionaries(keys, values, max_size=6), st.randoms())
def test_the_order_of_keys_is_no_matter(value, chance):
    items = list(value.items())
    chance.shuffle(items)
    assert digest_of(dict(items)) == digest_of(value)


@given(values, values)
def test_two_values_share_a_digest_only_if_they_are_equal(one, other):
    same = digest_of(one) == digest_of(other)
    assert same == (typed(one) == typed(other))


def typed(value: object) -> object:
    """The value with what Python confuses told apart: true is not 1, and 1 is 1.0."""
    if isinstance(value, dict):
        return {key: typed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [typed(item) for item in value]
    return (isinstance(value, bool), value)


@given(st.recursive(scalars | st.floats() | st.integers() | st.text() | st.binary(max_size=3), st.lists, max_leaves=8))
def test_a_value_is_written_or_refused_by_type_and_nothing_else(value):
    try:
        check_plain(value)
    except NotCanonical:
        with pytest.raises(NotCanonical):
            canonical(value)
    else:
        assert json.loads(canonical(value), parse_int=float) == value


_SIMPLE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(max_codepoint=127), max_size=6), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(_SIMPLE)
def test_simple_data_has_the_same_form_by_the_short_way(value):
    assert is_simple(value)
    assert canonical(value) == rfc8785.dumps(value)


@pytest.mark.parametrize("value", [1.5, [1.0], {"a": {"b": (2.5,)}}, {"\u00fc": 1}, [{"a\U0001f600": 1}]])
def test_data_that_is_not_simple_goes_the_long_way(value):
    assert not is_simple(value)
    assert canonical(value) == rfc8785.dumps(value)


@pytest.mark.parametrize("values", [[], ["a", "", 0, None], [2**53 - 1, -(2**53 - 1)]])
def test_short_plain_values_are_known_without_a_closer_look(values):
    assert are_surely_plain(values)


@pytest.mark.parametrize("value", ["é", "\ud800", 2**53, -(2**53), 1.0, True, [], {}, b"a", Text("a"), Level.LOW])
def test_one_value_that_is_not_so_simple_calls_for_a_closer_look(value):
    assert not are_surely_plain([value])
    assert not are_surely_plain(["a", value, "b"])

"""Input hashes: one hash for one meaning, a clear refusal for the rest, and what changed, key by key (behaviours 21-29, 31)."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import unicodedata
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, ClassVar, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import canonical as canonical_module
from holdfast.core import inputs as module
from holdfast.core.errors import BadInput, NotCanonical, TooLarge
from holdfast.core.inputs import (
    MISSING,
    SHOWN,
    Change,
    Difference,
    TooManyInputs,
    canonical_inputs,
    compute_input_diff,
    compute_input_hash,
    plain_inputs,
    short_hash,
    utc_text,
)
from holdfast.core.plain import MAX_DEPTH
from holdfast.core.redact import Redactor

SCALARS = st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False) | st.text()
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)
INPUTS = st.dictionaries(TEXT, VALUES, max_size=5)


# --- one hash


def reordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(list(value))}
    return [reordered(item) for item in value] if isinstance(value, list) else value


@given(INPUTS)
def test_the_order_of_keys_does_not_matter_at_any_depth(inputs):
    """Behaviour 21."""
    assert compute_input_hash(inputs) == compute_input_hash(reordered(inputs))


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ({}, "{}"),
        ({"b": {"d": [1, {"f": 1, "e": 2}], "c": 0}, "a": 1}, '{"a":1,"b":{"c":0,"d":[1,{"e":2,"f":1}]}}'),
        ({"имя": "日本", "e": "\U0001f600"}, '{"e":"\U0001f600","имя":"日本"}'),
        ({"n": None, "t": True, "f": False, "x": 0.1}, '{"f":false,"n":null,"t":true,"x":0.1}'),
    ],
)
def test_the_hash_is_sha256_of_the_canonical_text(inputs, text):
    """Behaviour 21: nesting, unicode, None and bool have one form, pinned here as text."""
    assert canonical_inputs(inputs) == text.encode()
    assert compute_input_hash(inputs) == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": None}, {}),
        ({"a": 1}, {"a": True}),
        ({"a": 0}, {"a": False}),
        ({"a": None}, {"a": False}),
        ({"a": "1"}, {"a": 1}),
        ({"a": []}, {"a": {}}),
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"a": "x"}, {"a": "x "}),
    ],
)
def test_what_means_something_else_has_another_hash(one, other):
    """Behaviour 21."""
    assert compute_input_hash(one) != compute_input_hash(other)


@pytest.mark.parametrize("inputs", [{1: "a"}, {"a": {2.5: 1}}, {None: 1}, {"x": 1, 2: 1}, {b"a": 1}, {("a",): 1}])
def test_keys_that_are_no_text_are_refused_so_1_and_text_1_never_meet(inputs):
    """Behaviour 22."""
    with pytest.raises(NotCanonical, match="not text"):
        compute_input_hash(inputs)


def test_a_tuple_is_a_list_and_5_is_5_point_0():
    """Behaviour 23: the choice, as documented."""
    assert compute_input_hash({"a": (1, (2,))}) == compute_input_hash({"a": [1, [2]]})
    assert compute_input_hash({"a": 5}) == compute_input_hash({"a": 5.0})
    assert compute_input_hash({"a": 5}) != compute_input_hash({"a": 5.5})


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_nan_and_infinity_are_refused_with_their_place(number):
    """Behaviour 24."""
    with pytest.raises(NotCanonical, match="not JSON") as refused:
        compute_input_hash({"a": [{"b": number}]})
    assert refused.value.path == "$.a[0].b"


@dataclass
class Point:
    x: int
    y: Any = 0
    seen: ClassVar[int] = 3


@dataclass(slots=True)
class Slotted:
    name: str
    points: list[Point] = field(default_factory=list)


class Shape(msgspec.Struct):
    name: str
    at: Point | None = None


class Nothing(msgspec.Struct):
    pass


class Colour(Enum):
    RED = "red"
    PAIR = (1, 2)


class Level(IntEnum):
    HIGH = 3


class Mode(StrEnum):
    FAST = "fast"


ZONE = timezone(timedelta(hours=5, minutes=30))

FORMS = [
    (Point(1, [2]), {"x": 1, "y": [2]}),
    (Slotted("a", [Point(1)]), {"name": "a", "points": [{"x": 1, "y": 0}]}),
    (Shape("s", Point(1)), {"name": "s", "at": {"x": 1, "y": 0}}),
    (Nothing(), {}),
    (OrderedDict(b=1, a=2), {"a": 2, "b": 1}),
    (Colour.RED, "red"),
    (Colour.PAIR, [1, 2]),
    (Level.HIGH, 3),
    (Mode.FAST, "fast"),
    (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05.000000Z"),
    (datetime(2026, 1, 2, 8, 34, 5, 6, tzinfo=ZONE), "2026-01-02T03:04:05.000006Z"),
    (datetime(999, 1, 2, tzinfo=UTC), "0999-01-02T00:00:00.000000Z"),
    (date(2026, 1, 2), "2026-01-02"),
    (PurePosixPath("a/b c"), "a/b c"),
    (PureWindowsPath("a\\b"), "a/b"),
    (Path("/tmp"), "/tmp"),
]


@pytest.mark.parametrize(("value", "form"), FORMS, ids=lambda value: type(value).__name__)
def test_these_have_a_form_of_their_own(value, form):
    """Behaviour 25."""
    assert plain_inputs({"a": [value]}) == {"a": [form]}
    assert compute_input_hash({"a": value}) == compute_input_hash({"a": form})


def test_a_dataclass_or_a_struct_may_be_the_inputs():
    """Behaviour 25."""
    assert compute_input_hash(Point(1)) == compute_input_hash(Shape("s", None).at or {"x": 1, "y": 0})


class NoZone(tzinfo):
    def utcoffset(self, when):
        raise RuntimeError("no idea")


class Broken:
    __slots__ = ("name",)


@dataclass
class Unset:
    name: str = field(init=False)


class Pair(NamedTuple):
    a: int


class Odd:
    def __fspath__(self):
        return "odd"


class OddPath(Odd):
    def as_posix(self):
        raise OSError


class Text(str):
    __slots__ = ()


REFUSED = [
    (datetime(2026, 1, 2), "no time zone", "zone"),
    (datetime(2026, 1, 2, tzinfo=NoZone()), "no idea", "zone"),  # type: ignore[abstract]
    (datetime.min.replace(tzinfo=timezone(timedelta(hours=1))), "no known moment", "zone"),
    (b"abc", "bytes", "SHA-256"),
    (bytearray(b"abc"), "bytes", "SHA-256"),
    (memoryview(b"abc"), "bytes", "SHA-256"),
    ({1, 2}, "a set has no order", "sorted list"),
    (frozenset("a"), "a set has no order", "sorted list"),
    (Odd(), "Odd", "as text"),
    (OddPath(), "OddPath cannot be read", "plain data"),
    (Unset(), "Unset cannot be read", "plain data"),
    (time(1, 2), "time", "plain data"),
    (timedelta(1), "timedelta", "plain data"),
    (Decimal("1.5"), "Decimal", "plain data"),
    (Pair(1), "Pair", "plain data"),
    (Point, "type", "plain data"),
    (Broken(), "Broken", "plain data"),
    (Text("a"), "Text", "plain data"),
    (object(), "object", "plain data"),
    (lambda: None, "function", "plain data"),
    (2**53, "2^53", "plain data"),
]


@pytest.mark.parametrize(("value", "problem", "advice"), REFUSED, ids=lambda value: type(value).__name__)
def test_what_has_no_form_is_refused_with_its_place_and_advice(value, problem, advice):
    """Behaviour 25: a clear error, never a crash."""
    with pytest.raises(NotCanonical) as refused:
        compute_input_hash({"deep": [0, {"here": value}]})
    assert refused.value.path == "$.deep[1].here"
    assert problem in str(refused.value)
    assert advice in refused.value.advice
    assert refused.value.reason == "bad_input"


@pytest.mark.parametrize("inputs", [[1], "text", None, 5, {1, 2}, datetime(2026, 1, 1, tzinfo=UTC)])
def test_inputs_must_be_an_object(inputs):
    with pytest.raises(NotCanonical):
        compute_input_hash(inputs)


@pytest.mark.parametrize("inputs", [{"a": "\ud800"}, {"\udfff": 1}, {"a": [Point(1, "\ud83d")]}, {"a": Path("\udcff")}])
def test_a_lone_surrogate_is_refused(inputs):
    """Behaviour 26."""
    with pytest.raises(NotCanonical, match="lone surrogate"):
        compute_input_hash(inputs)


def test_composed_and_decomposed_text_differ():
    """Behaviour 27: the choice, as documented. Text is taken as it is."""
    text = "Zürich"
    composed, decomposed = unicodedata.normalize("NFC", text), unicodedata.normalize("NFD", text)
    assert compute_input_hash({"a": composed}) != compute_input_hash({"a": decomposed})
    assert compute_input_hash({composed: 1}) != compute_input_hash({decomposed: 1})


def nested(depth, wrap):
    value: Any = 1
    for _ in range(depth):
        value = wrap(value)
    return {"a": value}


@pytest.mark.parametrize("wrap", [lambda v: [v], lambda v: {"k": v}, lambda v: Point(1, v)])
def test_deep_nesting_ends_with_a_limit_error(wrap):
    """Behaviour 28."""
    assert len(compute_input_hash(nested(90, wrap))) == 64
    for depth in (101, 5000, 100_000):
        with pytest.raises(NotCanonical, match="nested more than"):
            compute_input_hash(nested(depth, wrap))


def test_inputs_that_hold_themselves_end_with_a_limit_error():
    """Behaviour 28."""
    loop: dict[str, Any] = {}
    loop["me"] = [loop]
    point = Point(1, [])
    point.y.append(point)
    for inputs in (loop, {"a": point}):
        with pytest.raises(NotCanonical, match="nested more than"):
            compute_input_hash(inputs)


def test_lists_that_multiply_end_with_a_limit_error(monkeypatch):
    """Behaviour 28: eighteen small lists stand for 2^18 values."""
    monkeypatch.setattr(module, "MAX_VALUES", 10_000)
    bomb: list[Any] = ["x"]
    for _ in range(18):
        bomb = [bomb, bomb]
    with pytest.raises(TooManyInputs) as refused:
        compute_input_hash({"a": bomb})
    assert refused.value.reason == "too_large"
    assert "10,000" in str(refused.value)


def test_very_large_inputs_finish_or_end_with_a_limit_error(monkeypatch):
    """Behaviour 28."""
    assert compute_input_hash({"a": list(range(50_000)), "b": "x" * 1_000_000})
    monkeypatch.setattr(canonical_module, "MAX_BYTES", 1000)
    with pytest.raises(TooLarge):
        compute_input_hash({"a": "x" * 1000})


@given(st.dictionaries(st.text() | st.integers(), SCALARS | st.binary() | st.sets(st.integers()), max_size=3))
def test_anything_gives_a_hash_or_a_typed_error(inputs):
    """Behaviours 22-26."""
    try:
        assert len(compute_input_hash(inputs)) == 64
    except BadInput as refused:
        assert refused.advice


def test_redacting_the_canonical_text_gives_the_hash_of_the_redacted_inputs():
    """The engine redacts the text, a caller may redact the data: the hash is the same."""
    inputs = {"b": {"password": "hunter2 is long", "n": 1e20}, "a": ["token=abcd1234efgh5678", "é\n"]}
    redact = Redactor()
    redacted = redact.body(canonical_inputs(inputs))
    assert b"hunter2" not in redacted
    assert hashlib.sha256(redacted).hexdigest() == compute_input_hash(redact.value(inputs))


def test_a_short_hash_has_16_characters():
    """Behaviour 31."""
    whole = compute_input_hash({})
    assert short_hash(whole) == whole[:16]
    assert len(short_hash(whole)) == 16


# --- what changed


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ({"a": 1}, {"a": 1}, {}),
        ({"a": 1}, {"a": 2}, {"a": ("1", "2")}),
        ({}, {"a": None}, {"a": (MISSING, "null")}),
        ({"a": "(missing)"}, {}, {"a": ('"(missing)"', MISSING)}),
        ({"a": 1}, {"a": "1"}, {"a": ("1", '"1"')}),
        ({"a": 1}, {"a": True}, {"a": ("1", "true")}),
        ({"a": 0.0}, {"a": False}, {"a": ("0", "false")}),
        ({"a": 5}, {"a": 5.0}, {}),
        ({"a": (1, 2)}, {"a": [1, 2]}, {}),
        ({"a": [1, 2]}, {"a": [1]}, {"a[1]": ("2", MISSING)}),
        ({"a": {"b": [0, 0, {"c": 1}]}}, {"a": {"b": [0, 0, {"c": 2}]}}, {"a.b[2].c": ("1", "2")}),
        ({"a": {"b": 1}}, {"a": [1]}, {"a": ('{"b":1}', "[1]")}),
        ({"a": {}}, {"a": []}, {"a": ("{}", "[]")}),
        ({"b": 1, "a": 1}, {"a": 2, "c": 3}, {"a": ("1", "2"), "b": ("1", MISSING), "c": (MISSING, "3")}),
        ({"x": {"a b": 1}}, {"x": {"a b": 2}}, {'x["a b"]': ("1", "2")}),
        ({"a.b": 1, "a": {"b": 1}}, {"a.b": 2, "a": {"b": 3}}, {"a.b": ("1", "3"), '["a.b"]': ("1", "2")}),
        ({"max-depth": 1, "имя": 1}, {"max-depth": 2, "имя": 2}, {"max-depth": ("1", "2"), "имя": ("1", "2")}),
        ({"": 1}, {"": 2}, {'[""]': ("1", "2")}),
        ({"p": Point(1)}, {"p": {"x": 2, "y": 0}}, {"p.x": ("1", "2")}),
    ],
)
def test_what_changed_is_named_with_both_values(old, new, changes):
    """Behaviour 29: paths, old and new value, and the side that is missing."""
    assert compute_input_diff(old, new) == changes


@given(INPUTS, INPUTS)
def test_there_are_changes_exactly_when_the_hashes_differ(old, new):
    """Behaviour 29: never an empty list of changes for another hash, nor a change for the same one."""
    assert bool(compute_input_diff(old, new)) == (compute_input_hash(old) != compute_input_hash(new))


@given(INPUTS)
def test_inputs_that_were_written_and_read_back_have_not_changed(inputs):
    """Behaviour 29: large floats look like whole numbers in the canonical form."""
    assert compute_input_diff(json.loads(canonical_inputs(inputs)), inputs) == {}


@pytest.mark.parametrize("number", [1e20, 123456789012345680000.0, 2.0**60, -(2.0**70), 1.7976931348623157e308])
def test_a_large_float_read_back_is_the_same_number(number):
    assert compute_input_diff(json.loads(canonical_inputs({"a": [number]})), {"a": [number]}) == {}
    assert list(compute_input_diff(json.loads(canonical_inputs({"a": [number]})), {"a": [1]})) == ["a[0]"]


def test_long_values_are_cut_short_where_they_differ():
    """Behaviour 29: truncated, and yet one sees the difference."""
    same = "x" * 500
    change = compute_input_diff({"a": same + "old"}, {"a": same + "new"})["a"]
    assert change == Change('...xxxxxxxxxxxxxxxxxxxxold"', '...xxxxxxxxxxxxxxxxxxxxnew"')
    long = compute_input_diff({"a": "a" * 10_000}, {"a": "b" * 10_000})["a"]
    assert long.old == '"' + "a" * (SHOWN - 1) + "..."
    grown = compute_input_diff({"a": same}, {"a": same + "!"})["a"]
    assert grown.old != grown.new
    assert max(map(len, grown)) <= SHOWN + 6
    removed = compute_input_diff({"a": same}, {})["a"]
    assert removed.new == MISSING


def test_shown_values_and_paths_cannot_move_a_terminals_cursor():
    """Behaviour 29: somebody else's text is shown to a person."""
    evil = "\x1b[2J\u202e\u0085\x07"
    difference = Difference("a", "b", compute_input_diff({evil: evil}, {evil: "x"}))
    line = difference.lines()[0]
    assert line.isprintable()


def test_a_difference_has_one_line_a_change_and_says_how_many_more():
    """Behaviours 29 and 31."""
    changes = compute_input_diff({str(n): 0 for n in range(30)}, {})
    told = Difference("0" * 16, "1" * 16, changes).lines(4)
    assert told[0] == '["0"]: 0 -> (missing)'
    assert told[4:] == ["and 26 more"]
    assert len(Difference("", "", changes).lines(30)) == 30
    assert "not kept" in Difference("", "", None).lines()[0]


def test_the_forms_do_not_change_what_they_are_made_from():
    inputs = {"a": [Point(1)], "b": {"c": (1,)}}
    before = dataclasses.asdict(inputs["a"][0])
    plain = plain_inputs(inputs)
    plain["a"].append(2)
    plain["b"]["c"].append(2)
    assert inputs["b"] == {"c": (1,)}
    assert len(inputs["a"]) == 1
    assert dataclasses.asdict(inputs["a"][0]) == before


# --- the very words


@dataclass
class Unreadable:
    colour: str = "red"

    def __getattribute__(self, name):
        if name == "colour":
            raise LookupError("no")
        return object.__getattribute__(self, name)


class Nowhere(PurePosixPath):
    def as_posix(self):
        return None


class Wordy(tzinfo):
    def utcoffset(self, moment):
        return None

    dst = tzname = utcoffset

    def __repr__(self):
        return "Wordy" * 30


class Deep(Enum):
    BYTES = b"x"


NAIVE = datetime(2026, 1, 2, 3, 4, 5)
ZONE_ADVICE = "Give the time a zone, for example with `datetime.now(UTC)`."
SAID: list[tuple[Any, str, str, str]] = [
    ([1], "$", "the inputs are a list, not an object", "Give each input a name."),
    ("text", "$", "the inputs are a str, not an object", "Give each input a name."),
    ({"a": b"x"}, "$.a", "bytes have no JSON form", "Pass their SHA-256, or decode them to text."),
    ({"a": [{1}]}, "$.a[0]", "a set has no order", "Pass a sorted list."),
    ({"a": Deep.BYTES}, "$.a", "bytes have no JSON form", "Pass their SHA-256, or decode them to text."),
    ({"a": Nowhere("/")}, "$.a", "a Nowhere is not plain data", "Pass the path as text."),
    ({"a": Unreadable()}, "$.a", "a Unreadable cannot be read (LookupError)", NotCanonical.advice),
    ({"a": NAIVE}, "$.a", f"the time {NAIVE!r} is no known moment: it has no time zone", ZONE_ADVICE),
    (
        {"a": NAIVE.replace(tzinfo=Wordy())},
        "$.a",
        f"the time {NAIVE.replace(tzinfo=Wordy())!r:.60} is no known moment: it has no time zone",
        ZONE_ADVICE,
    ),
]


@pytest.mark.parametrize(("value", "path", "problem", "advice"), SAID, ids=range(len(SAID)))
def test_a_refusal_says_where_why_and_what_to_do(value, path, problem, advice):
    with pytest.raises(NotCanonical) as refused:
        plain_inputs(value)
    assert (refused.value.path, refused.value.problem, refused.value.advice) == (path, problem, advice)


@pytest.mark.parametrize("value", [float("nan"), 2**53, "\ud800"])
def test_plain_inputs_have_an_exact_form(value):
    with pytest.raises(NotCanonical, match=r"The value at \$\.a "):
        plain_inputs({"a": value})


def test_a_class_is_no_record_even_if_its_objects_are():
    for kind in (Unreadable, Change, type("Made", (msgspec.Struct,), {})):
        with pytest.raises(NotCanonical, match=r"a (type|StructMeta) is not plain data"):
            plain_inputs({"a": kind})


def nested_lists(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_inputs_may_be_nested_to_the_limit_and_no_deeper():
    assert plain_inputs({"a": nested_lists(MAX_DEPTH - 1)})
    with pytest.raises(NotCanonical) as refused:
        plain_inputs({"a": nested_lists(MAX_DEPTH)})
    assert refused.value.problem == "it is nested more than 100 deep"
    assert refused.value.path == "$.a" + "[0]" * MAX_DEPTH


def test_the_count_of_values_is_exact(monkeypatch):
    monkeypatch.setattr(module, "MAX_VALUES", 4)
    assert plain_inputs({"a": 1, "b": 2, "c": 3}) == {"a": 1, "b": 2, "c": 3}
    with pytest.raises(TooManyInputs, match="The inputs hold more than 4 values") as refused:
        plain_inputs({"a": 1, "b": 2, "c": 3, "d": 4})
    assert refused.value.limit == 4


def test_an_enum_counts_as_one_level_of_nesting():
    class Level(Enum):
        ONE = 1

    def inside(depth: int) -> Any:
        value: Any = Level.ONE
        for _ in range(depth):
            value = [value]
        return {"a": value}

    assert plain_inputs(inside(MAX_DEPTH - 2))
    with pytest.raises(NotCanonical, match="nested"):
        plain_inputs(inside(MAX_DEPTH - 1))


def test_an_enum_that_holds_enums_without_end_comes_to_an_end():
    class Loop(Enum):
        SELF = "x"

    setattr(Loop.SELF, "_value_", [Loop.SELF])  # noqa: B010
    with pytest.raises(NotCanonical, match="nested more than 100 deep"):
        plain_inputs({"a": Loop.SELF})


def test_what_is_not_kept_is_said():
    assert Difference("", "", None).lines() == ["what changed is not known: the inputs of the checkpoint are not kept"]


def test_a_name_with_dashes_is_a_plain_word_and_others_stand_in_quotes():
    assert list(compute_input_diff({}, {"-": 1, "a-b": 1, "1a": 1, "a b": 1})) == [
        "-",
        '["1a"]',
        '["a b"]',
        "a-b",
    ]


def changed(old: str, new: str) -> Change:
    return compute_input_diff({"a": old}, {"a": new})["a"]


def test_a_long_text_is_shown_from_twenty_letters_before_the_first_that_differs():
    """The texts are shown as JSON, so the quote is the first of their letters."""
    for same, begin in ((58, 0), (59, 0), (60, 41), (61, 42)):
        old, new = '"' + "x" * same + "o" + "y" * 100 + '"', '"' + "x" * same + "n" + "y" * 100 + '"'
        dots = "..." if begin else ""
        expected = Change(*(dots + text[begin : begin + SHOWN] + "..." for text in (old, new)))
        assert changed(old[1:-1], new[1:-1]) == expected


def test_a_text_that_just_fits_is_shown_whole():
    assert changed("x" * 78, "y" * 78) == ('"' + "x" * 78 + '"', '"' + "y" * 78 + '"')
    assert changed("x" * 79, "y" * 79) == ('"' + "x" * 79 + "...", '"' + "y" * 79 + "...")
    assert changed("\u202e", "b") == ('"?"', '"b"')


def test_the_zone_of_the_machine_is_no_matter(monkeypatch):
    import time as clock

    monkeypatch.setenv("TZ", "XYZ-09")
    clock.tzset()
    try:
        assert utc_text(datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)) == "2026-01-02T03:04:05.000006Z"
    finally:
        monkeypatch.undo()
        clock.tzset()


def test_a_number_is_taken_for_a_float_only_beyond_what_is_exact():
    big = 2.0**60
    assert compute_input_diff({"a": big}, {"a": int(big)}) == {}
    assert compute_input_diff({"a": -big}, {"a": -int(big)}) == {}
    assert compute_input_diff({"a": 2**53 - 1}, {"a": 2**53 - 2}) != {}
    for beyond in (2**1023, 2**1024):
        with pytest.raises(NotCanonical, match="beyond 2"):
            compute_input_diff({"a": beyond}, {})

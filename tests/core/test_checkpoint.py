"""The checkpoint of a step as a value: nine fields, each checked; and the pure rules of the gate (behaviours 37-40, 45)."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.canonical import canonical
from holdfast.core.checkpoint import (
    CURSORS,
    FIELDS,
    MAX_BODY_BYTES,
    MAX_ID_BYTES,
    SCOPES,
    BadCheckpoint,
    ScopeRef,
    StepCheckpoint,
    blocks,
    from_event,
    is_small,
    is_token,
    read_time,
    to_event,
    verify_input_hash,
)
from holdfast.core.errors import UsageError
from holdfast.core.events import StepCheckpointed
from holdfast.core.inputs import compute_input_hash
from holdfast.core.strictness import Strictness, effective_strictness

TOKEN = "01234567-89ab-cdef-0123-456789abcdef"
HASH = "0123456789abcdef" * 4
AT = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
GOOD: dict[str, Any] = {
    "mission_id": "041-glossary",
    "run_id": "run-1",
    "step_id": "specify",
    "strictness": Strictness.MEDIUM,
    "scope_refs": (ScopeRef("mission_local", "v1"), ScopeRef("team_domain", "2026.1")),
    "input_hash": HASH,
    "cursor": "pre_generation_gate",
    "retry_token": TOKEN,
    "timestamp": AT,
}


def made(**changed):
    return StepCheckpoint(**(GOOD | changed))


# --- the nine fields


def test_it_has_exactly_the_nine_fields_of_the_seed():
    assert tuple(GOOD) == FIELDS
    assert len(FIELDS) == 9


def test_it_cannot_be_changed():
    for name in FIELDS:
        with pytest.raises(AttributeError):
            setattr(made(), name, GOOD[name])
    with pytest.raises(AttributeError):
        ScopeRef("team_domain", "v1").scope = "other"
    assert hash(made()) == hash(made())


def test_a_list_of_scopes_becomes_a_tuple_and_text_becomes_a_strictness():
    checkpoint = made(scope_refs=[ScopeRef("team_domain", "v1")], strictness="max")
    assert checkpoint.scope_refs == (ScopeRef("team_domain", "v1"),)
    assert checkpoint.strictness is Strictness.MAX


ID: list[Any] = ["", None, 5, "a\nb", "\ud800", "x" * 129]
BAD: dict[str, list[Any]] = {
    "mission_id": ID,
    "run_id": ID,
    "step_id": ID,
    "strictness": ["", "Max", "strict", None, False, 1],
    "scope_refs": [None, "team_domain", [("team_domain", "v1")], {}, 5],
    "input_hash": [HASH[:-1], HASH + "0", HASH.upper(), "g" * 64, "", None, HASH.encode()],
    "cursor": ["", "Post", "a b", "1st", "a-b", "x" * 65, "../a", None, 5],
    "timestamp": [
        datetime(2026, 1, 2),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),
        "2026-01-02T03:04:05Z",
        None,
        0,
    ],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_a_field_that_is_not_what_it_must_be_is_refused_by_name(name, value):
    with pytest.raises(BadCheckpoint) as refused:
        made(**{name: value})
    assert refused.value.field == name
    assert refused.value.reason == "bad_input"


@pytest.mark.parametrize(
    "token",
    [
        "x" * 36,
        "0" * 36,
        TOKEN[:-1],
        TOKEN + "0",
        TOKEN.replace("-", ""),
        TOKEN.replace("0", "g", 1),
        "0123456-789ab-cdef-0123-456789abcdef",
        "01234567_89ab_cdef_0123_456789abcdef",
        "{" + TOKEN[:-2] + "}",
        " " + TOKEN[:-1],
        "０1234567-89ab-cdef-0123-456789abcde",
        "",
        None,
        5,
    ],
)
def test_a_token_of_another_shape_is_refused(token):
    """Behaviour 37."""
    assert not is_token(token)
    with pytest.raises(BadCheckpoint, match="retry_token"):
        made(retry_token=token)


@given(st.uuids())
def test_every_uuid_is_a_token(uuid):
    """Behaviour 37."""
    assert is_token(str(uuid))
    assert is_token(str(uuid).upper())


@pytest.mark.parametrize("scope", ["", "Team", "a b", None, "x" * 65])
def test_a_scope_has_a_name(scope):
    with pytest.raises(BadCheckpoint, match=r"scope_refs\.scope"):
        ScopeRef(scope, "v1")


@pytest.mark.parametrize("version", ["", None, 5, "a\x1b[2J"])
def test_a_scope_has_a_version(version):
    with pytest.raises(BadCheckpoint, match=r"scope_refs\.version_id"):
        ScopeRef("team_domain", version)


# --- as a dict


@pytest.mark.parametrize(("cursor", "scope", "strictness"), [*itertools.product(CURSORS, SCOPES, Strictness)])
def test_each_cursor_scope_and_strictness_survives_a_round_trip(cursor, scope, strictness):
    """Behaviour 38: as a dict, as JSON, and as an event."""
    checkpoint = made(cursor=cursor, scope_refs=(ScopeRef(scope, "v1"),), strictness=strictness)
    assert StepCheckpoint.from_dict(json.loads(json.dumps(checkpoint.to_dict()))) == checkpoint
    event = to_event(checkpoint, "c1", None, None)
    assert from_event(event, "run-1", event.scope_refs) == checkpoint


def test_names_are_open():
    """Behaviour 38: a cursor or scope that nobody listed is as good as one that was."""
    checkpoint = made(cursor="after_lunch_2", scope_refs=(ScopeRef("company_wide", "7"),))
    assert StepCheckpoint.from_dict(checkpoint.to_dict()) == checkpoint


def test_it_is_plain_data():
    data = made().to_dict()
    assert canonical(data)
    assert data["timestamp"] == "2026-01-02T03:04:05.000006Z"
    assert data["scope_refs"][0] == {"scope": "mission_local", "version_id": "v1"}


def test_a_time_of_another_zone_is_the_same_moment():
    zone = timezone(timedelta(hours=-7))
    assert StepCheckpoint.from_dict(made(timestamp=AT.astimezone(zone)).to_dict()) == made()


def test_fields_that_are_not_known_survive_a_round_trip():
    """Behaviour 45: at the top and inside a scope."""
    data = made().to_dict() | {"added_later": {"deep": [1, None]}, "schema_version": 7}
    data["scope_refs"][1]["colour"] = "blue"
    checkpoint = StepCheckpoint.from_dict(data)
    assert checkpoint.to_dict() == data
    assert StepCheckpoint.from_dict(checkpoint.to_dict()).to_dict() == data
    assert checkpoint.extra == {"added_later": {"deep": [1, None]}, "schema_version": 7}
    assert checkpoint == made()
    assert made().extra == {}


@pytest.mark.parametrize("name", FIELDS)
def test_a_missing_field_is_named(name):
    """Behaviour 45."""
    data = made().to_dict()
    del data[name]
    with pytest.raises(BadCheckpoint, match="is missing") as refused:
        StepCheckpoint.from_dict(data)
    assert refused.value.field == name


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("value", [None, 5, 1.5, True, [1], {"a": 1}, "", "\ud800"])
def test_a_field_of_another_type_is_named(name, value):
    """Behaviour 45: never a crash, whatever stands there."""
    with pytest.raises(BadCheckpoint) as refused:
        StepCheckpoint.from_dict(made().to_dict() | {name: value})
    assert refused.value.field.split(".")[0] == name


@pytest.mark.parametrize("data", [[], None, "text", 5, [made().to_dict()]])
def test_what_is_no_object_is_refused(data):
    with pytest.raises(BadCheckpoint):
        StepCheckpoint.from_dict(data)


@pytest.mark.parametrize(
    "ref",
    [None, [], "team_domain", {"scope": "team_domain"}, {"version_id": "v1"}, {"scope": 1, "version_id": "v"}],
)
def test_a_scope_that_is_none_is_refused(ref):
    with pytest.raises(BadCheckpoint, match="scope_refs"):
        StepCheckpoint.from_dict(made().to_dict() | {"scope_refs": [ref]})


@pytest.mark.parametrize("time", ["2026-01-02T03:04:05", "2026-01-02", "yesterday", "99999-01-01T00:00:00Z"])
def test_a_time_without_a_zone_or_sense_is_refused(time):
    with pytest.raises(BadCheckpoint, match="timestamp"):
        StepCheckpoint.from_dict(made().to_dict() | {"timestamp": time})


@given(st.dictionaries(st.sampled_from(FIELDS), st.none() | st.integers() | st.text() | st.lists(st.text())))
def test_any_dict_gives_a_checkpoint_or_a_typed_error(changed):
    try:
        assert StepCheckpoint.from_dict(made().to_dict() | changed)
    except BadCheckpoint as refused:
        assert refused.field.split(".")[0] in FIELDS


NAMES = "must be a name of a-z, 0-9 and _, at most 64 characters, that begins with a letter"
SAID: list[tuple[dict[str, Any], str, str]] = [
    ({"mission_id": ""}, "mission_id", "must be text that is not empty"),
    ({"run_id": 5}, "run_id", "must be text that is not empty"),
    ({"step_id": "a\nb"}, "step_id", "holds characters that cannot be printed"),
    ({"step_id": "x" * 1129}, "step_id", "takes 1,129 bytes; the limit is 128"),
    ({"strictness": "x" * 50}, "strictness", "must be off, medium or max, not '" + "x" * 39),
    ({"scope_refs": "team"}, "scope_refs", "must be a list of ScopeRef"),
    ({"input_hash": "x"}, "input_hash", "must be 64 hex digits in lower case"),
    ({"cursor": "X" * 100}, "cursor", f"{NAMES}, not '" + "X" * 79),
    ({"retry_token": "x"}, "retry_token", "is not 36 characters of the shape 8-4-4-4-12, in hex"),
    ({"timestamp": "now"}, "timestamp", "is not a time"),
    ({"timestamp": datetime(2026, 1, 2)}, "timestamp", "must be a time with a zone"),
]
READ: list[tuple[Any, str, str]] = [
    ({"scope_refs": 5}, "scope_refs", "is not a list"),
    ({"scope_refs": [5]}, "scope_refs", "is missing: this is a int, no object"),
    ({"scope_refs": [{"scope": "team_domain"}]}, "scope_refs.version_id", "is missing"),
    ({"scope_refs": [{"scope": "?", "version_id": "v"}]}, "scope_refs.scope", f"{NAMES}, not '?'"),
    ({"scope_refs": [{"scope": "a", "version_id": ""}]}, "scope_refs.version_id", "must be text that is not empty"),
    ({"timestamp": "n" * 100}, "timestamp", "is not a time: '" + "n" * 59),
    ({"timestamp": 5}, "timestamp", "must be text that is not empty"),
    ({"timestamp": "2026-01-02T03:04:05"}, "timestamp", "must be a time with a zone"),
]


@pytest.mark.parametrize(("changed", "field", "problem"), SAID)
def test_a_refusal_names_the_field_and_says_what_it_must_be(changed, field, problem):
    with pytest.raises(BadCheckpoint) as refused:
        made(**changed)
    assert str(refused.value) == f"The checkpoint cannot be used: its field {field} {problem}."
    assert (refused.value.field, refused.value.problem) == (field, problem)


@pytest.mark.parametrize(("changed", "field", "problem"), READ)
def test_a_refusal_of_what_was_read_says_the_same(changed, field, problem):
    with pytest.raises(BadCheckpoint) as refused:
        StepCheckpoint.from_dict(made().to_dict() | changed)
    assert (refused.value.field, refused.value.problem) == (field, problem)


@pytest.mark.parametrize("data", [[], None])
def test_what_is_no_object_misses_its_first_field(data):
    with pytest.raises(BadCheckpoint) as refused:
        StepCheckpoint.from_dict(data)
    problem = f"is missing: this is a {type(data).__name__}, no object"
    assert (refused.value.field, refused.value.problem) == ("mission_id", problem)


@pytest.mark.parametrize("value", ["", "yesterday", "2026-01-02"])
def test_a_time_is_refused_under_the_name_that_it_was_read_under(value):
    with pytest.raises(BadCheckpoint) as refused:
        read_time(value, "expires_at")
    assert refused.value.field == "expires_at"


# --- as an event


def test_an_event_holds_every_field_of_its_checkpoint():
    event = to_event(made(), "c1", HASH, "2027-01-02T03:04:05.000006Z")
    assert event == StepCheckpointed(
        checkpoint_id="c1",
        mission_id="041-glossary",
        step_id="specify",
        strictness="medium",
        cursor="pre_generation_gate",
        input_hash=HASH,
        retry_token=TOKEN,
        timestamp="2026-01-02T03:04:05.000006Z",
        scope_refs=(("mission_local", "v1"), ("team_domain", "2026.1")),
        inputs=HASH,
        expires_at="2027-01-02T03:04:05.000006Z",
    )
    assert type(event.strictness) is str
    assert from_event(event, "run-1", event.scope_refs) == made()


@pytest.mark.parametrize(("name", "value"), [("strictness", "very"), ("timestamp", "yesterday"), ("cursor", "?")])
def test_an_event_that_is_no_checkpoint_is_refused_by_field(name, value):
    event = msgspec.structs.replace(to_event(made(), "c1", None, None), **{name: value})
    with pytest.raises(BadCheckpoint) as refused:
        from_event(event, "run-1", event.scope_refs)
    assert refused.value.field == name


def test_an_event_is_small_up_to_its_limit():
    event = to_event(made(scope_refs=()), "", None, None)
    room = MAX_BODY_BYTES - len(msgspec.json.encode(event))
    assert is_small(msgspec.structs.replace(event, checkpoint_id="c" * room))
    assert not is_small(msgspec.structs.replace(event, checkpoint_id="c" * (room + 1)))


IDS = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=40).filter(
    lambda text: text.isprintable() and len(msgspec.json.encode(text)) - 2 <= MAX_ID_BYTES
)


@given(IDS, IDS, st.from_regex("[a-z][a-z0-9_]{0,63}", fullmatch=True))
def test_an_event_without_scopes_is_always_small(mission_id, step_id, cursor):
    """Behaviour 44: the longest ids, and everything that may stand there."""
    checkpoint = made(mission_id=mission_id, step_id=step_id, cursor=cursor, scope_refs=())
    event = to_event(checkpoint, "c" * 36, HASH, "2026-01-02T03:04:05.000006Z")
    assert is_small(msgspec.structs.replace(event, refs=HASH))


def test_the_longest_ids_still_fit():
    """Behaviour 44."""
    longest = "\\" * (MAX_ID_BYTES // 2)
    checkpoint = made(mission_id=longest, step_id=longest, cursor="c" * 64, scope_refs=())
    event = to_event(checkpoint, "c" * 36, HASH, "2026-01-02T03:04:05.000006Z")
    whole = msgspec.json.encode(msgspec.structs.replace(event, refs=HASH))
    assert len(whole) <= MAX_BODY_BYTES < 1024
    with pytest.raises(BadCheckpoint, match="the limit is 128"):
        made(step_id=longest + "x")


def test_many_scopes_do_not_fit():
    """Behaviour 44: they go to an artifact."""
    many = made(scope_refs=[ScopeRef("team_domain", f"v{n}") for n in range(40)])
    assert not is_small(to_event(many, "c1", None, None))


# --- the rules


def test_the_hash_says_whether_the_inputs_are_those_of_the_checkpoint():
    inputs = {"b": 1, "a": {"c": [1, 2]}}
    checkpoint = made(input_hash=compute_input_hash(inputs))
    assert verify_input_hash(checkpoint, {"a": {"c": [1, 2]}, "b": 1})
    for other in ({"b": 1}, {**inputs, "d": None}, {"b": 2, "a": inputs["a"]}, {}):
        assert not verify_input_hash(checkpoint, other)


UNKNOWN = (None, "", "HIGH", "blocker", "severe")


@pytest.mark.parametrize("severity", ["low", "medium", "high", "critical", *UNKNOWN])
def test_who_blocks_what(severity):
    """Behaviour 39: off never; medium high, critical and unknown; max any."""
    assert not blocks(Strictness.OFF, [severity])
    assert blocks(Strictness.MEDIUM, [severity]) == (severity not in ("low", "medium"))
    assert blocks(Strictness.MAX, [severity])
    assert blocks(Strictness.MEDIUM, ["low", severity]) == blocks(Strictness.MEDIUM, [severity])


@pytest.mark.parametrize("strictness", Strictness)
def test_no_conflict_never_blocks(strictness):
    """Behaviour 39."""
    assert not blocks(strictness, [])


LEVELS = ("call", "step", "mission", "config")


@pytest.mark.parametrize("given_levels", [*itertools.product((True, False), repeat=4)])
def test_the_nearest_strictness_wins(given_levels):
    """Behaviour 40: call > step > mission > config > medium, for every combination."""
    values = {
        level: ("max", "off")[at % 2] for at, (level, on) in enumerate(zip(LEVELS, given_levels, strict=True)) if on
    }
    nearest = next(iter(values.values()), "medium")
    assert effective_strictness(**values) == nearest


def test_each_level_can_loosen_and_tighten():
    """Behaviour 40."""
    assert effective_strictness("off", "max", "max", "max") is Strictness.OFF
    assert effective_strictness(None, "max", "off", "off") is Strictness.MAX
    assert effective_strictness(None, None, "off", "max") is Strictness.OFF
    assert effective_strictness(None, None, None, "max") is Strictness.MAX
    assert effective_strictness() is Strictness.MEDIUM


@pytest.mark.parametrize("value", ["", "on", "Max", False, 0])
@pytest.mark.parametrize("level", LEVELS)
def test_a_strictness_that_is_none_is_refused_and_not_skipped(level, value):
    """Behaviour 40: a typing error must not loosen a gate."""
    told = rf"^The strictness of the {level} must be off, medium or max, not {value!r}\.$"
    with pytest.raises(UsageError, match=told):
        effective_strictness(**{level: value})

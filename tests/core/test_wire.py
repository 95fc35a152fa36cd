"""Every event goes to its record and back; old ones are lifted, newer ones refused by name, and no edit goes unseen."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core import wire
from holdfast.core.errors import BadRecord, ChainBroken, NewerSchema, NotCanonical, SequenceGap, TooLarge
from holdfast.core.events import (
    EVENTS,
    KIND_OF,
    KINDS,
    CheckpointComplete,
    EffectFinished,
    EffectSettled,
    EffectStarted,
    Event,
    Extension,
    NoteRecorded,
    RunStarted,
    ScopeDeclared,
    StepFinished,
    StepStarted,
    snake,
)
from holdfast.core.state import fold
from holdfast.core.values import Record
from holdfast.core.wire import GENESIS, MAX_EVENT_BYTES, Plainly, check_chain, decode, encode, encode_body

AT, OP = "2026-01-02T03:04:05.678901Z", "0" * 32


def sealed(event: Event, seq: int = 1, previous: bytes = GENESIS, run_id: str = "r") -> Record:
    return encode(event, run_id, seq, previous, AT, OP, Plainly())[0]


def raw(kind: str, version: int, body: bytes) -> Record:
    return Record("r", 1, kind, version, AT, body, bytes(32), OP)


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=10,
)


def is_writable(value: object) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return not (isinstance(value, int | float) and not abs(value) <= 2**53)


# --- there and back


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_every_event_survives_the_round_trip(kind, tries):
    @settings(max_examples=tries.limit(15) or 100)
    @given(st.data())
    def check(data):
        fields = {field.name: field for field in msgspec.structs.fields(kind)}
        made = {
            name: data.draw(plain if name in kind.data_fields else st.from_type(field.type).filter(is_writable), name)
            for name, field in fields.items()
        }
        event = kind(**made)
        record = sealed(event)
        assert decode(record) == event
        assert (record.kind, record.version) == (snake(kind.__name__), kind.version)
        assert check_chain(record, GENESIS, 1) == record.hash
        assert isinstance(json.loads(record.body), dict)

    check()


@given(st.dictionaries(text, plain, max_size=4), st.integers(1, 2**31 - 1))
def test_an_extension_is_kept_as_it_is_with_its_version(data, version):
    event = Extension(kind="x_anything", data=data, tagged=version)
    record = sealed(event)
    assert (record.kind, record.version) == ("x_anything", version)
    assert decode(record) == event


def test_the_wire_tag_is_the_name_in_snake_case():
    assert KIND_OF[CheckpointComplete] == "checkpoint_complete"
    assert set(KINDS) == {snake(event.__name__) for event in EVENTS}
    assert all(kind.version >= 1 for kind in EVENTS)


def test_what_is_left_at_its_default_takes_no_space():
    assert sealed(StepStarted(step_id="a")).body == b'{"step_id":"a"}'


def test_the_same_event_has_the_same_bytes():
    event = StepFinished(step_id="a", output={"b": 1, "a": [1.5, None]})
    assert {sealed(event) for _ in range(100)} == {sealed(event)}


class Shout:
    def glance(self, body: bytes) -> bool:
        return True

    def body(self, body: bytes) -> bytes:
        return body.replace(b"secret", b"[hidden]")


def test_what_is_written_and_returned_and_hashed_is_the_redacted_event():
    record, seen = encode(NoteRecorded(text="a secret"), "r", 1, GENESIS, AT, OP, Shout())
    assert b"secret" not in record.body
    assert seen == decode(record) == NoteRecorded(text="a [hidden]")
    assert check_chain(record, GENESIS, 1)


class Swell:
    def glance(self, body: bytes) -> bool:
        return True

    def body(self, body: bytes) -> bytes:
        return body.replace(b"x", b"[hidden]")


def test_an_event_that_redaction_makes_too_large_is_refused():
    event = NoteRecorded(text="x" * (MAX_EVENT_BYTES // 8))
    with pytest.raises(TooLarge, match="The event NoteRecorded is") as caught:
        encode(event, "r", 1, GENESIS, AT, OP, Swell())
    assert (caught.value.limit, caught.value.advice) == (MAX_EVENT_BYTES, "Keep large content as an artifact.")
    assert caught.value.size > MAX_EVENT_BYTES


def test_an_event_that_redaction_leaves_at_the_limit_is_written():
    room = MAX_EVENT_BYTES - len(encode_body(NoteRecorded(text="[hidden]")))
    record, _ = encode(NoteRecorded(text="secret" + "a" * room), "r", 1, GENESIS, AT, OP, Shout())
    assert len(record.body) == MAX_EVENT_BYTES


def test_the_first_event_of_a_kind_that_a_process_reads_is_read_like_every_other(monkeypatch):
    monkeypatch.setattr(wire, "_readers", {})
    for event in (StepStarted(step_id="a"), StepStarted(step_id="b"), NoteRecorded(text="c")):
        assert decode(sealed(event)) == event
    with pytest.raises(BadRecord):
        decode(raw("step_finished", StepFinished.version, b"{}"))


# --- old, newer and unknown


def test_a_checkpoint_of_version_1_is_lifted_and_invents_no_past():
    lifted = decode(raw("checkpoint_complete", 1, b'{"checkpoint_id":"c","cursor":"x"}'))
    assert lifted == CheckpointComplete(checkpoint_id="c", cursor="x", sidecar_written=None)


def test_a_scope_of_version_1_does_not_know_at_which_commit_it_was_declared():
    lifted = decode(raw("scope_declared", 1, b'{"repo":"/r","allow":["src/**"],"before":"b"}'))
    assert lifted == ScopeDeclared(repo="/r", allow=("src/**",), before="b", since=None)


OLD_SETTLED = {
    1: b'{"effect_key":"k","settled_as":"done","evidence":"seen","by":"person"}',
    2: b'{"effect_key":"k","settled_as":"done","evidence":"seen","by":"person","receipt":{"id":7}}',
}


@pytest.mark.parametrize("version", OLD_SETTLED)
def test_a_settlement_of_an_old_version_still_folds_also_if_it_replaces_a_receipt(version):
    first = [RunStarted(mission_id="m"), EffectStarted(effect_key="k", step_id="a")]
    settled = decode(raw("effect_settled", version, OLD_SETTLED[version]))
    assert fold([*first, settled]).effects["k"].receipt == {1: None, 2: {"id": 7}}[version]
    replaced = fold([*first, EffectFinished(effect_key="k", receipt="wrong"), settled]).effects["k"]
    assert (replaced.status, replaced.evidence) == ("done", "seen")


def test_who_does_not_know_that_receipts_are_replaced_is_told_that_a_newer_holdfast_wrote_it(monkeypatch):
    replaced = sealed(EffectSettled(effect_key="k", settled_as="done", by="person", receipt=7))
    monkeypatch.setattr(EffectSettled, "version", 2)  # the last one before them
    monkeypatch.setattr(wire, "_readers", {})
    with pytest.raises(NewerSchema):
        decode(replaced)


def test_a_note_of_version_1_is_of_nobody_knows_which_step():
    lifted = decode(raw("note_recorded", 1, b'{"author":"me","text":"half way"}'))
    assert lifted == NoteRecorded(text="half way", author="me", step_id=None)


def test_every_old_version_of_every_event_can_be_lifted():
    for kind, event in KINDS.items():
        assert {(kind, version) for version in range(1, event.version)} <= wire.LIFTS.keys()


def test_no_lift_is_left_for_a_version_that_is_present_or_unknown():
    assert all(1 <= version < KINDS[kind].version for kind, version in wire.LIFTS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_newer_version_is_refused_by_name(kind):
    newer = KINDS[kind].version + 1
    with pytest.raises(NewerSchema, match=rf"Event 1 \({kind}\) of run r") as caught:
        decode(raw(kind, newer, b"{}"))
    assert (caught.value.found, caught.value.known) == (newer, KINDS[kind].version)
    assert caught.value.reason == "newer_schema"


def test_an_unknown_kind_is_refused_as_newer_and_named():
    with pytest.raises(NewerSchema, match="future_happened"):
        decode(raw("future_happened", 1, b"{}"))


def test_a_record_that_cannot_be_read_can_still_be_listed_and_proven():
    future = raw("future_happened", 9, b'{"x":1}')
    digest = wire.chain_hash(GENESIS, "r", 1, future.kind, 9, AT, OP, future.body)
    future = future._replace(hash=digest)
    assert check_chain(future, GENESIS, 1) == digest
    assert "future_happened" in wire.place(future)


@pytest.mark.parametrize("version", [0, -1, -(10**9)])
def test_a_version_that_was_never_written_is_refused(version):
    with pytest.raises(BadRecord, match="never written"):
        decode(raw("step_started", version, b'{"step_id":"a"}'))


BODIES = {
    "not JSON": b"x",
    "empty": b"",
    "cut off": b'{"step_id":"a"',
    "a list": b"[]",
    "a number": b"1",
    "null": b"null",
    "a missing field": b"{}",
    "a wrong type": b'{"step_id":1}',
    "an unknown field": b'{"step_id":"a","more":1}',
    "NaN": b'{"step_id":"a","attempt":NaN}',
    "a fraction for a whole number": b'{"step_id":"a","attempt":1.5}',
    "text for a number": b'{"step_id":"a","attempt":"1"}',
    "not UTF-8": b'{"step_id":"\xff"}',
    "a lone surrogate": b'{"step_id":"\\ud800"}',
    "something after it": b'{"step_id":"a"} {}',
    "brackets without end": b'{"step_id":' + b"[" * 100_000,
    "a constructor of another serialiser": b'{"lc":2,"type":"constructor","id":["os","system"],"args":["true"]}',
    "a pickle": b"\x80\x04\x95\x00cos\nsystem\n.",
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_is_not_the_event_is_refused_with_its_place(name):
    with pytest.raises(BadRecord, match=r"Event 1 \(step_started\) of run r") as caught:
        decode(raw("step_started", 1, BODIES[name]))
    assert caught.value.reason == "bad_input"


@pytest.mark.parametrize(
    "name", ["not JSON", "empty", "a list", "null", "not UTF-8", "a lone surrogate", "brackets without end"]
)
@pytest.mark.parametrize(("kind", "version"), [("x_mine", 1), ("checkpoint_complete", 1)])
def test_the_same_holds_for_extensions_and_old_versions(kind, version, name):
    with pytest.raises(BadRecord):
        decode(raw(kind, version, BODIES[name]))


@given(st.binary(max_size=60), st.sampled_from([*KINDS, "x_mine", "other"]), st.integers(-2, 4))
def test_any_bytes_are_read_or_refused_by_type(body, kind, version):
    try:
        assert isinstance(decode(raw(kind, version, body)), Event)
    except (BadRecord, NewerSchema) as error:
        assert "Event 1" in str(error)


NEWER = "Use a newer Holdfast for this. Nothing was changed. `holdfast log` and `holdfast export` still read it."
SAID: list[tuple[str, int, bytes, str, str]] = [
    ("step_started", 2, b'{"step_id":1}', "cannot be read as an event: Expected `str`, got `int` - at `$.step_id`.", ""),
    ("step_started", 2, b"{", "cannot be read as an event: Input data was truncated.", ""),
    ("step_started", 0, b"{}", "cannot be read as an event: version 0 was never written.", ""),
    ("x_mine", 1, b"[]", "cannot be read as an event: Expected `object`, got `array`.", ""),
    ("step_started", 3, b"{}", "was written by a newer Holdfast (version 3; this one knows up to 2).", NEWER),
    ("came_later", 1, b"{}",
     "was written by a newer Holdfast (version with came_later; this one knows up to the kinds in its own docs).", NEWER),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "version", "body", "sentence", "advice"), SAID)
def test_a_refusal_says_where_why_and_what_to_do(kind, version, body, sentence, advice):
    with pytest.raises((BadRecord, NewerSchema)) as caught:
        decode(raw(kind, version, body))
    assert str(caught.value) == f"Event 1 ({kind}) of run r {sentence}"
    assert caught.value.advice == advice


def test_a_long_kind_is_cut_short_in_a_sentence():
    with pytest.raises(NewerSchema) as caught:
        decode(raw("k" * 1000, 1, b"{}"))
    assert f"({'k' * 60}) of" in str(caught.value) and f"with {'k' * 60};" in str(caught.value)


# --- what cannot be written


UNWRITABLE = [
    StepFinished(step_id="a", output=float("nan")),
    StepFinished(step_id="a", output=2**53 + 1),
    StepFinished(step_id="a", output={1: "x", "1": "y"}),
    StepFinished(step_id="a", output="\ud800"),
    StepFinished(step_id="a", output=b"bytes"),
    StepFinished(step_id="a", output=object()),
    EffectFinished(effect_key="k", receipt={"deep": {1, 2}}),
    Extension(kind="x_a", data={"n": float("inf")}),
    NoteRecorded(text="\udfff"),
    RunStarted(mission_id="m", title="\ud83d"),
]


@pytest.mark.parametrize("event", UNWRITABLE, ids=lambda event: ascii(event)[:60])
def test_data_without_an_exact_form_is_not_written(event):
    with pytest.raises(NotCanonical):
        sealed(event)


@pytest.mark.parametrize(
    ("event", "path", "problem"),
    [
        (NoteRecorded(text="\udfff"), "NoteRecorded", "the text holds a lone surrogate"),
        (StepFinished(step_id="a", output="\ud800"), "StepFinished.output", "the text holds a lone surrogate"),
    ],
    ids=["a field", "data"],
)
def test_a_text_that_cannot_be_written_is_told_with_its_place(event, path, problem):
    with pytest.raises(NotCanonical) as caught:
        sealed(event)
    assert (caught.value.path, caught.value.problem) == (path, problem)


def test_an_event_over_the_limit_is_refused_and_told_where_to_go():
    room = MAX_EVENT_BYTES - len(sealed(NoteRecorded(text="")).body)
    assert len(sealed(NoteRecorded(text="a" * room)).body) == MAX_EVENT_BYTES
    with pytest.raises(TooLarge) as caught:
        sealed(NoteRecorded(text="a" * (room + 1)))
    assert "artifact" in caught.value.advice
    assert (caught.value.reason, caught.value.limit) == ("too_large", MAX_EVENT_BYTES)


@pytest.mark.parametrize("kind", ["mine", "", "run_started", "X_a", "x_", "x_A", "x_" + "a" * 63])
def test_an_extension_must_say_that_it_is_one(kind):
    with pytest.raises(BadRecord) as caught:
        sealed(Extension(kind=kind, data={}))
    assert (caught.value.place, caught.value.problem) == (
        "Extension",
        "it is no known event; extensions are x_ and a name of a-z, 0-9 and _, at most 64 characters in all",
    )


def test_the_name_of_an_extension_has_at_least_one_letter_and_at_most_64_characters_in_all():
    for kind in ("x_a", "x_" + "a" * 62):
        assert sealed(Extension(kind=kind, data={})).kind == kind


@pytest.mark.parametrize("tagged", [0, -1, 1 << 31, 1 << 40])
def test_the_version_of_an_extension_is_a_whole_number_from_1_that_every_store_can_hold(tagged):
    with pytest.raises(BadRecord, match="no known event"):
        sealed(Extension(kind="x_a", data={}, tagged=tagged))
    assert sealed(Extension(kind="x_a", data={}, tagged=(1 << 31) - 1)).version == (1 << 31) - 1


def test_an_event_of_another_class_is_no_event():
    class Strange(Event, frozen=True):
        pass

    with pytest.raises(BadRecord, match="Strange cannot be read as an event: it is no known event"):
        sealed(Strange())


@pytest.mark.parametrize(
    "kind", ["x_", "x_a b", "x_a\nb", "x_\x1b[2J", "x_../../etc", "x_\u202e", "x_" + "a" * 200, "x_A"]
)
def test_the_kind_of_an_extension_is_a_name_in_snake_case(kind):
    """It is hashed between line breaks, printed, and written into files."""
    with pytest.raises(BadRecord):
        sealed(Extension(kind=kind, data={}))


# --- the chain


def a_chain(length: int = 4, run_id: str = "r") -> list[Record]:
    records: list[Record] = []
    previous = GENESIS
    for seq in range(1, length + 1):
        records.append(sealed(NoteRecorded(text=f"{seq}"), seq, previous, run_id))
        previous = records[-1].hash
    return records


def walk(records: list[Record]) -> bytes:
    previous = GENESIS
    for expected, record in enumerate(records, 1):
        previous = check_chain(record, previous, expected)
    return previous


def test_the_hash_is_the_documented_one():
    import hashlib

    head = f"r\n1\nnote_recorded\n2\n{AT}\n{OP}\n".encode()
    expected = hashlib.sha256(b"holdfast/event/1\n" + bytes(32) + head + b'{"text":"1"}').digest()
    assert a_chain(1)[0].hash == expected


@pytest.mark.parametrize("seq", [1, 999, 1000, 1001, 10**9])
def test_the_hash_is_made_the_same_way_however_many_events_there_are(seq):
    import hashlib

    record = sealed(NoteRecorded(text="1"), seq)
    head = f"r\n{seq}\nnote_recorded\n2\n{AT}\n{OP}\n".encode()
    assert record.hash == hashlib.sha256(b"holdfast/event/1\n" + bytes(32) + head + record.body).digest()
    assert wire.chain_hash(GENESIS, "r", seq, "note_recorded", 2, AT, OP, record.body) == record.hash
    assert check_chain(record, GENESIS, seq) == record.hash


EDITS = {
    "run_id": "s", "kind": "note_recorder", "version": 3, "at": "2026-01-02T03:04:05.678902Z", "op": "1" * 32,
    "body": b'{"text":"two"}', "hash": bytes(32),
}  # fmt: skip


@pytest.mark.parametrize("field", EDITS)
@pytest.mark.parametrize("index", range(4))
def test_an_edit_of_any_field_of_any_event_is_seen(field, index):
    records = a_chain()
    records[index] = records[index]._replace(**{field: EDITS[field]})
    with pytest.raises(ChainBroken) as caught:
        walk(records)
    assert (caught.value.run_id, caught.value.seq) == (records[index].run_id, index + 1)


def test_a_gap_a_repeat_and_another_order_are_seen_with_the_number():
    records = a_chain()
    for edited, expected, found in (
        (records[1:], 1, 2),
        (records[:1] + records[2:], 2, 3),
        ([records[0], records[0]], 2, 1),
        ([records[0], records[2], records[1]], 2, 3),
    ):
        with pytest.raises(SequenceGap) as caught:
            walk(edited)
        assert (caught.value.run_id, caught.value.expected, caught.value.found) == ("r", expected, found)


def test_an_event_cannot_move_to_another_run_or_place():
    ours, theirs = a_chain(run_id="r"), a_chain(run_id="s")
    with pytest.raises(ChainBroken):
        walk([ours[0], theirs[1]._replace(run_id="r")])
    with pytest.raises(ChainBroken):
        walk([ours[0], ours[2]._replace(seq=2)])


@given(st.data())
def test_no_flipped_bit_of_a_body_goes_unseen(data):
    records = a_chain()
    index = data.draw(st.integers(0, 3))
    body = bytearray(records[index].body)
    body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    records[index] = records[index]._replace(body=bytes(body))
    with pytest.raises(ChainBroken):
        walk(records)


def test_nothing_is_taken_out_where_nothing_is_to_be_redacted():
    assert Plainly().body(b"a secret") == b"a secret" and not Plainly().glance(b"a secret")


def test_a_body_by_itself_is_that_of_the_record_and_is_refused_like_it():
    for event in (NoteRecorded(text="é"), Extension(kind="x_mine", data={"n": 1})):
        assert encode_body(event) == sealed(event).body
    room = MAX_EVENT_BYTES - len(encode_body(NoteRecorded(text="")))
    assert len(encode_body(NoteRecorded(text="a" * room))) == MAX_EVENT_BYTES
    with pytest.raises(TooLarge) as caught:
        encode_body(NoteRecorded(text="a" * (room + 1)))
    assert (caught.value.size, caught.value.limit) == (MAX_EVENT_BYTES + 1, MAX_EVENT_BYTES)
    with pytest.raises(NotCanonical, match="lone surrogate"):
        encode_body(NoteRecorded(text="\ud800"))

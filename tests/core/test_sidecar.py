"""A sidecar says what was known and no more; whatever is not wholly sound is refused with the reason."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import shown
from holdfast.core.sidecar import MAX_BYTES, BadSidecar, Sidecar, by_age, from_bytes, from_runr, to_bytes

ID = "019f0a00-0000-7000-8000-000000000001"
NAME = f"{ID}.json"
SHA, TREE = "a" * 40, "b" * 40
LEAST = {
    "schema_version": 1,
    "checkpoint_id": ID,
    "sha": SHA,
    "run_id": "run-1",
    "milestone_index": 2,
    "milestone_title": "three",
    "created_at": "2026-01-02T03:04:05Z",
}


def sidecar(**more):
    return Sidecar(**{**LEAST, **more})


def text_of(**more):
    return json.dumps({**LEAST, **more}).encode()


def test_optional_fields_are_absent_when_they_are_not_known():
    assert json.loads(to_bytes(sidecar())) == LEAST
    assert list(json.loads(to_bytes(sidecar()))) == list(LEAST), "and the order of the rest is fixed"


def test_optional_fields_are_there_when_they_are_known():
    known = {"tree": TREE, "patch_id": SHA, "branch": "refs/heads/x", "parent": TREE, "base": TREE, "seq": 7}
    known |= {"tier": "tier1", "verification_commands": ["make test", "true"]}
    told = json.loads(to_bytes(sidecar(**{**known, "verification_commands": ("make test", "true")})))
    assert told == {**LEAST, **known}


def test_the_text_is_readable_ends_with_a_newline_and_is_the_same_every_time():
    data = to_bytes(sidecar(milestone_title="Größe"))
    assert data == to_bytes(from_bytes(data, f"{ID}.json"))
    assert data.startswith(b'{\n  "schema_version": 1,\n') and data.endswith(b"}\n")
    assert "Größe".encode() in data


WRONG = {
    "not JSON": (b"{", "not JSON"),
    "cut off": (to_bytes(sidecar())[:-9], "not JSON"),
    "empty": (b"", "not JSON"),
    "not UTF-8": (b'{"a": "\xff"}', "not UTF-8"),
    "not an object": (b"[1]", "not an object"),
    "nested deeply": (b"[" * 60_000, "too deeply"),
    "NaN": (text_of(milestone_index=float("nan")), "NaN"),
    "infinite": (text_of(milestone_index=float("inf")), "Infinity"),
    "key twice": (b'{"schema_version": 1, "schema_version": 1}', "twice"),
    "no version": (json.dumps({"checkpoint_id": ID}).encode(), "no schema_version"),
    "version in words": (text_of(schema_version="1"), "schema_version is '1'"),
    "version true": (text_of(schema_version=True), "schema_version is True"),
    "version 0": (text_of(schema_version=0), "schema_version is 0"),
    "newer": (text_of(schema_version=999), "newer Holdfast"),
    "other checkpoint": (text_of(checkpoint_id="other"), "not its name"),
    "index below zero": (text_of(milestone_index=-1), "milestone_index -1"),
    "index huge": (text_of(milestone_index=10**30), "milestone_index"),
    "index with a point": (text_of(milestone_index=1.5), "milestone_index"),
    "index as text": (text_of(milestone_index="1"), "milestone_index"),
    "index true": (text_of(milestone_index=True), "milestone_index"),
    "a number of 5,000 digits": (text_of().replace(b'"milestone_index": 2', b'"milestone_index": ' + b"9" * 5000), "JSON"),
    "sha short": (text_of(sha="abc123"), "sha 'abc123'"),
    "sha upper case": (text_of(sha="A" * 40), "40 or 64 hex"),
    "sha an option": (text_of(sha="--output=/tmp/x"), "40 or 64 hex"),
    "tree odd": (text_of(tree="x"), "tree 'x'"),
    "run a path": (text_of(run_id="../../etc"), "run_id '../../etc'"),
    "title a number": (text_of(milestone_title=3), "milestone_title"),
    "title not Unicode": (text_of(milestone_title="\ud800"), "not Unicode"),
    "no title": (json.dumps({k: v for k, v in LEAST.items() if k != "milestone_title"}).encode(), "milestone_title"),
    "commands not a list": (text_of(verification_commands="make"), "verification_commands"),
    "seq below zero": (text_of(seq=-1), "seq -1"),
    "too large": (text_of(milestone_title="x" * MAX_BYTES), "larger than 65,536"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_not_sound_is_refused_with_the_reason(case):
    data, why = WRONG[case]
    with pytest.raises(BadSidecar) as caught:
        from_bytes(data, NAME)
    assert why in caught.value.problem
    assert str(caught.value) == f"The sidecar {shown(NAME)} cannot be used: {caught.value.problem}."
    assert (caught.value.name, caught.value.newer) == (NAME, case == "newer")
    assert caught.value.reason == ("newer_schema" if case == "newer" else "bad_input")
    assert len(str(caught.value)) < 500


def test_a_field_that_this_version_does_not_know_is_left_alone():
    assert from_bytes(text_of(colour="green"), f"{ID}.json") == sidecar()


def test_what_could_not_be_read_back_is_not_written():
    for wrong in ({"sha": "x"}, {"milestone_index": -1}, {"milestone_title": "\udcff"}, {"checkpoint_id": "../x"}):
        with pytest.raises(BadSidecar):
            to_bytes(sidecar(**wrong))
    with pytest.raises(BadSidecar) as caught:
        to_bytes(sidecar(milestone_title="\udcff"))
    assert (caught.value.name, caught.value.problem) == (NAME, "it has text that is not Unicode")


LONG = "x" * 200
EXACT = {
    "not UTF-8": (b"\xff", "it is not UTF-8 text"),
    "nested": (b"[" * 60_000, "it is nested too deeply"),
    "a list": (b"[]", "it is JSON, but not an object"),
    "a key twice": (b'{"a": 1, "a": 1}', "it is not JSON (a key stands there twice)"),
    "no version": (b"{}", "it has no schema_version"),
    "version": (
        text_of(schema_version=LONG),
        f"its schema_version is {shown(LONG, 40)}, and not a whole number from 1",
    ),
    "newer": (
        text_of(schema_version=10**60),
        f"it was written by a newer Holdfast (schema_version {shown(10**60, 40)}; this one knows 1)",
    ),
    "id": (text_of(run_id="/" + LONG), f"its run_id {shown('/' + LONG, 80)} is not an id"),
    "sha": (text_of(sha=LONG), f"its sha {shown(LONG, 80)} is not 40 or 64 hex digits"),
    "number": (
        text_of(milestone_index=10**60),
        f"its milestone_index {shown(10**60, 40)} is not between 0 and 2,147,483,647",
    ),
    "text": (text_of(milestone_title="\ud800"), "it has text that is not Unicode"),
    "other": (text_of(checkpoint_id="other"), "it is about the checkpoint 'other', which is not its name"),
}


@pytest.mark.parametrize("case", EXACT)
def test_the_reason_is_a_plain_sentence_that_shows_no_more_than_a_piece(case):
    data, problem = EXACT[case]
    with pytest.raises(BadSidecar) as caught:
        from_bytes(data, NAME)
    assert caught.value.problem == problem


def test_the_largest_file_and_the_largest_number_are_read():
    data = text_of(milestone_index=2**31 - 1, seq=2**31 - 1)
    assert from_bytes(data.ljust(MAX_BYTES), NAME).seq == 2**31 - 1
    with pytest.raises(BadSidecar, match="larger than"):
        from_bytes(data.ljust(MAX_BYTES + 1), NAME)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_sidecar_or_refused(data):
    try:
        from_bytes(data, f"{ID}.json")
    except BadSidecar as bad:
        assert bad.problem


TEXTS = st.text(max_size=40).filter(lambda text: text.encode("utf-8", "replace").decode() == text)


@given(st.builds(sidecar, milestone_title=TEXTS, created_at=TEXTS, milestone_index=st.integers(0, 2**31 - 1),
                 seq=st.none() | st.integers(0, 2**31 - 1), branch=st.none() | TEXTS,
                 verification_commands=st.none() | st.lists(TEXTS, max_size=3).map(tuple)))  # fmt: skip
def test_what_is_written_is_read_back(one):
    assert from_bytes(to_bytes(one), f"{ID}.json") == one


# --- which of several


def many(*rows):
    return [
        sidecar(checkpoint_id=name, milestone_index=index, seq=seq, created_at=at, **more)
        for name, index, seq, at, more in rows
    ]


def newest(*rows):
    return by_age(many(*rows))[-1].checkpoint_id


def test_the_highest_milestone_wins_and_not_the_latest_file():
    assert newest(("late", 1, 9, "2026-02", {}), ("high", 2, 3, "2026-01", {})) == "high"


def test_ties_go_by_event_then_time_then_id():
    assert newest(("a", 1, 5, "2026-02-02", {}), ("b", 1, 6, "2026-01-01", {})) == "b"
    assert newest(("a", 1, 5, "2026-02-02", {}), ("b", 1, 5, "2026-01-01", {})) == "a"
    assert newest(("a", 1, 5, "2026-01-01", {}), ("b", 1, 5, "2026-01-01", {})) == "b"
    assert newest(("a", 1, None, "2026-09-09", {}), ("b", 1, 0, "2026-01-01", {})) == "b"


def test_times_are_compared_as_times_whatever_their_offset():
    early, late = "2026-01-01T11:00:00+02:00", "2026-01-01T10:00:00Z"
    assert newest(("b", 1, 5, early, {}), ("a", 1, 5, late, {})) == "a"
    assert newest(("b", 1, 5, "2026-01-01T09:59:59", {}), ("a", 1, 5, late, {})) == "a", "without an offset it is UTC"
    assert newest(("b", 1, 5, "yesterday", {}), ("a", 1, 5, "0001-01-01T00:00:00+14:00", {})) == "a"


def test_a_time_without_an_offset_is_utc_wherever_the_machine_stands(monkeypatch):
    monkeypatch.setenv("TZ", "EST5")
    time.tzset()
    try:
        assert newest(("b", 1, 5, "2026-01-01T09:59:59", {}), ("a", 1, 5, "2026-01-01T10:00:00Z", {})) == "a"
    finally:
        monkeypatch.undo()
        time.tzset()


# --- Runr's


def runr(**more):
    known = {key: LEAST[key] for key in LEAST if key != "checkpoint_id"}
    return json.dumps({**known, "run_id": "20261115221914", **more}).encode()


def test_a_sidecar_of_runr_is_read_as_one_of_ours():
    read = from_runr(runr(tier="tier0", verification_commands=["true"]), f"{SHA}.json")
    assert read == sidecar(
        checkpoint_id="runr-20261115221914-2",
        run_id="20261115221914",
        tier="tier0",
        verification_commands=("true",),
    )
    assert read.tree is None and read.patch_id is None and read.seq is None, "what Runr does not know is not made up"


def test_a_sidecar_of_runr_is_held_to_the_same_rules():
    for data, why in (
        (runr(schema_version=999), "newer"), (runr(milestone_index=-1), "milestone_index"), (runr(sha=TREE), "not its name"),
        (runr(run_id="../x"), "is not an id"), (runr(run_id=7), "run_id"), (b"{", "not JSON"),
        (runr(milestone_index=None), "milestone_index"), (runr(checkpoint_id="forged", run_id="x" * 64), "is not an id"),
    ):  # fmt: skip
        with pytest.raises(BadSidecar) as caught:
            from_runr(data, f"{SHA}.json")
        assert why in caught.value.problem
        assert caught.value.name == f"{SHA}.json"


def test_a_sidecar_of_runr_cannot_bring_fields_of_ours():
    read = from_runr(runr(checkpoint_id=ID, tree="not even hex", seq=99), f"{SHA}.json")
    assert (read.checkpoint_id, read.tree, read.seq) == ("runr-20261115221914-2", None, None)


class Corpus(msgspec.Struct, frozen=True):
    path: str | None
    why: str = "HOLDFAST_CORPUS does not name the folder of real files"

    def __bool__(self):
        return self.path is not None and os.path.isdir(self.path)


def test_every_sidecar_that_runr_really_wrote_is_read(skip_or_fail):
    corpus = Corpus(os.environ.get("HOLDFAST_CORPUS"))
    skip_or_fail(corpus)
    files = sorted(Path(corpus.path).glob("runr-runs/*/dot-runr/checkpoints/*.json"))
    assert len(files) >= 8
    for file in files:
        read, told = from_runr(file.read_bytes(), file.name), json.loads(file.read_bytes())
        assert {name: getattr(read, name) for name in told if name != "verification_commands"} == {
            name: value for name, value in told.items() if name != "verification_commands"
        }
        assert read.verification_commands == tuple(told["verification_commands"])

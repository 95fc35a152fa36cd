"""Ids name a thing and never a path; what is outside the grammar is refused by type, with the value."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.system import new_run_id, operations
from holdfast.core.errors import InvalidId
from holdfast.core.ids import COMMAND, check_digest, check_id, check_op, is_id, is_kind, is_of_command

GOOD = ["a", "0", "run-1", "2026.01.02_x", "a" * 64, "018f-0000", "z.z"]
BAD = [
    "", ".", "..", "../x", "a/b", "/etc/passwd", "a\\b", "c:", "C:\\x", "a..b", "-rf", "--help", "_a", ".git", "A", "Run",
    "a b", "a\n", "\na", "a\0", "a\x1b[2J", "a%2e%2e", "~", "$HOME", "a;b", "a'", 'a"', "a`b", "a*", "é", "ı", "ａ", "a\u202e",
    "a\u200b", "\ud800", "a" * 65, "a" * 10_000, None, 1, 1.5, True, b"a", ["a"], ("a",), {"a": 1},
]  # fmt: skip


@pytest.mark.parametrize("value", GOOD)
def test_a_plain_name_is_an_id(value):
    assert is_id(value)
    assert check_id(value) == value


@pytest.mark.parametrize("value", BAD, ids=lambda value: ascii(value)[:30])
def test_anything_else_is_refused(value):
    assert not is_id(value)
    with pytest.raises(InvalidId) as caught:
        check_id(value, "The run id")
    assert caught.value.value is value
    assert caught.value.reason == "bad_input"
    assert str(caught.value).startswith("The run id ")
    assert len(str(caught.value)) < 300


@given(st.text(max_size=80))
def test_an_id_never_leaves_the_folder_it_is_joined_to(text):
    if is_id(text):
        assert os.path.normpath(os.path.join("/top/folder", text)) == f"/top/folder/{text}"
        assert text.isascii() and text.isprintable() and text == text.lower()


@given(st.from_regex(r"[a-z0-9][a-z0-9_-]{0,63}", fullmatch=True))
def test_the_grammar_is_what_the_advice_says(text):
    assert is_id(text)


DIGEST, OP = "0123456789abcdef" * 4, "0123456789abcdef" * 2
OTHERS = [
    "",
    "0",
    DIGEST[:-1],
    DIGEST + "0",
    DIGEST.upper(),
    "g" * 64,
    "../" + DIGEST[3:],
    "٠" * 64,
    "٠" * 32,
    None,
    5,
    b"0" * 64,
]


def test_a_digest_is_sixty_four_and_an_operation_thirty_two_hex_digits():
    assert check_digest(DIGEST) == DIGEST
    assert check_op(OP) == OP


@pytest.mark.parametrize("value", OTHERS, ids=lambda value: ascii(value)[:30])
@pytest.mark.parametrize("check", [check_digest, check_op])
def test_other_digests_and_operations_are_refused(check, value):
    with pytest.raises(InvalidId):
        check(value)


def test_new_run_ids_are_ids_and_sort_by_start():
    made = [new_run_id() for _ in range(1000)]
    assert all(map(is_id, made))
    assert sorted(set(made)) == made


def test_operations_of_two_processes_and_of_one_never_meet():
    one, other = operations(), operations()
    made = [make() for _ in range(500) for make in (one, other)]
    assert len(set(made)) == 1000
    assert [check_op(op) for op in made] == made


def test_a_mission_of_a_command_is_its_prefix_and_sixteen_hex_digits():
    assert is_of_command("command.0123456789abcdef")
    assert is_of_command(COMMAND + "f" * 16)


@pytest.mark.parametrize(
    "mission_id",
    ["", COMMAND, "f" * 16, "command.line", "command-0123456789abcdef", COMMAND + "f" * 15, COMMAND + "f" * 17,
     COMMAND + "g" * 16, COMMAND + "F" * 16, "my." + COMMAND + "f" * 16, COMMAND * 2 + "f" * 16, "spec." + "f" * 16],
)  # fmt: skip
def test_a_mission_that_only_begins_or_ends_like_it_is_somebodys_own(mission_id):
    assert not is_of_command(mission_id)


@pytest.mark.parametrize("value", ["a", "z", "step_started", "x_1", "a_", "a" * 64])
def test_a_kind_is_a_name_in_snake_case(value):
    assert is_kind(value)


@pytest.mark.parametrize("value", ["", "_a", "1a", "A", "aB", "a-b", "a.b", "a b", "a\n", "é", "a" * 65])
def test_what_is_no_kind(value):
    assert not is_kind(value)


def test_a_refusal_names_what_it_is_about():
    for check, start in ((check_digest, "The artifact digest '?' is"), (check_op, "The operation id '?' is")):
        with pytest.raises(InvalidId) as caught:
            check("?")
        assert str(caught.value).startswith(start)
    with pytest.raises(InvalidId, match=r"^The id '\.' is not a valid id"):
        check_id(".")

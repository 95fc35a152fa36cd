"""The search for secrets, part by part and built anew each time: what the glance asks for, what is found, and from where on."""

from __future__ import annotations

import base64
import re
import string

import pytest

from holdfast.core import secret_search
from holdfast.core.secret_forms import raw
from holdfast.core.secret_rules import PHRASES, TOKENS
from holdfast.core.secret_search import KINDS, SecretSearch, Span, _letter_start

TOKEN = "gh" + "p_" + "a1B2c3D4e5" * 3
VALUE = "Tr0ub4dor/&3 horse"
LONG = "".join(f"{number:04d}-part/" for number in range(14))
RANKS = len(TOKENS) + len(PHRASES)


def spans(text: str | bytes, *values: str) -> list[Span]:
    return SecretSearch(values).spans(text if isinstance(text, bytes) else raw(text))


def seen(text: str | bytes, *values: str) -> list[tuple[bytes, str, int]]:
    """What is taken, as what, and where its proof begins."""
    data = text if isinstance(text, bytes) else raw(text)
    return [(data[one.start : one.end], one.kind, one.reach) for one in spans(data, *values)]


def one_of(chars: str) -> str:
    """A character that a rule allows in its tokens, and a digit or small letter where it can be."""
    return next(char for char in "7a" + string.printable if re.fullmatch(f"[{chars}]", char))


def b64(text: str) -> str:
    return base64.b64encode(raw(text)).decode()


# --- the glance ---


HEADS = {head: rule for rule in TOKENS for head in rule.heads}


def test_the_glance_asks_for_a_head_and_a_little_of_the_token_and_no_less():
    glance = SecretSearch([]).glance
    for head, rule in HEADS.items():
        few = min(rule.least, 10) if head.isalpha() else 4
        char = one_of(rule.chars)
        assert glance(raw(head + char * few)), head
        if not any(head.startswith(other) for other in HEADS if other != head):
            assert not glance(raw(head + char * (few - 1))), head
            assert not glance(raw(head + "\n" + char * 20)), head


@pytest.mark.parametrize("text", ["ghp_a.%b", "SGx" + "a" * 30, "hvs-" + "a" * 30, "1Q-" + "a" * 40])
def test_the_marks_of_a_head_mean_themselves(text):
    assert bool(SecretSearch([]).glance(raw(text))) == text.startswith("ghp_")


@pytest.mark.parametrize(
    "text",
    [
        "password=",
        "password :",
        '"password" : ',
        '"name":"password",',
        '{"value":"x","name":"password"}',
        " --token x",
        '"pass": ',
        '"secrets":',
        r"\u0041",
        r"\u007a",
        r"\u0009",
        r"\u000d",
        r"https:\/\/",
        r"a\fb",
        "://a:b@c",
        "hooks.slack.com",
        b64("x " + TOKEN),
    ],
)
def test_the_glance_sees_what_calls_for_a_closer_look(text):
    assert SecretSearch([]).glance(raw(text)) and SecretSearch([]).look(raw(text))


@pytest.mark.parametrize(
    "text", ["", "password", "the password is", r"\u00e9", r"\u0001", r"a\nb", "--token", "passing"]
)
def test_the_glance_sees_nothing_in_words(text):
    assert not SecretSearch([]).glance(raw(text))
    assert spans(text) == []


def test_the_glance_and_the_look_see_the_beginning_of_a_known_value_in_each_form():
    search = SecretSearch([VALUE])
    for text in (VALUE, VALUE[:10], b64(VALUE), b64("x" + VALUE), b64("xx" + VALUE), b64(VALUE)[:12], "Tr0ub4dor%2f"):
        assert search.glance(raw(text)) and search.look(raw(text)), text
    for text in (VALUE[:9], VALUE[1:], b64(VALUE)[:8]):
        assert not search.glance(raw(text)) and not search.look(raw(text)), text
    assert not SecretSearch([]).glance(raw(VALUE))


def test_a_look_that_finds_nothing_after_a_glance_gives_nothing():
    text = "ghp_%%%%"
    assert SecretSearch([]).glance(raw(text)) and not SecretSearch([]).look(raw(text))
    assert spans(text) == []


# --- tokens ---


def test_a_token_is_found_from_the_length_of_its_rule_on():
    search = SecretSearch([])
    for head, rule in HEADS.items():
        rank = TOKENS.index(rule)
        if rule.tail in ("", r"\b"):
            token = head + one_of(rule.chars) * rule.least
            found = [one for one in search.spans(raw(f"a ({token}) b")) if one.rank == rank]
            assert found == [Span(3, 3 + len(token), rule.kind, rank, 2 if rule.edge else 3)], head
            assert not [one for one in search.spans(raw(f"a ({token[:-1]}) b")) if one.rank == rank], head


def test_a_token_that_could_be_part_of_a_word_is_one_only_where_a_word_begins():
    search = SecretSearch([])
    for rule in TOKENS:
        if rule.edge and rule.tail in ("", r"\b"):
            token = rule.heads[0] + one_of(rule.chars) * rule.least
            assert rule.kind not in {one.kind for one in search.spans(raw(f"x{token}"))}, rule.kind
            for before in ("", " ", "\\n", ":", "é"):
                assert rule.kind in {one.kind for one in search.spans(raw(before + token))}, (rule.kind, before)


def test_a_token_needs_no_edge_where_its_head_says_enough():
    assert seen(f"x{TOKEN}y") == [(raw(TOKEN + "y"), "github_token", 1)]


def test_the_proof_of_a_token_begins_with_the_whole_letter_before_it():
    key = "AK" + "IA" + "Z2" * 8
    for before, reach in (("", 0), (" ", 0), ("é", 0), ("x€", 1), ("xy😀", 2), ("\n", 0)):
        assert seen(f"{before}{key}") == [(raw(key), "aws_access_key_id", reach)], before


def test_bytes_that_belong_to_no_letter_are_gone_back_over_to_the_beginning_at_most():
    assert [_letter_start(b"\x80\x80\x80a", place) for place in range(4)] == [0, 0, 0, 3]
    assert [_letter_start(b"a\xc3\xa9", place) for place in range(3)] == [0, 1, 1]
    assert _letter_start(b"\xff\xbf", 1) == 0 and _letter_start(b"a\x7f", 1) == 1 and _letter_start(b"a\xc0", 1) == 1


# --- phrases and what they are checked for ---


def test_a_user_with_a_password_is_one_only_in_a_command_of_curl_shortly_before():
    assert seen("curl -u bob:hunter2 x")[0][:2] == (b"hunter2", "basic_auth")
    gap = "y" * (400 - len("curl") - len(" -u bob:"))
    assert seen(f"curl{gap} -u bob:hunter2")[0][0] == b"hunter2"
    assert seen(f"curl{gap}y -u bob:hunter2") == []
    assert seen("tool -u bob:hunter2 curl") == []
    assert seen("x" * 300 + " -u bob:hunter2") == []


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        (b64("bob:hunter2"), True),
        (b64("bob:hunter2!!"), True),
        (b64("bob-hunter2"), False),
        (b64("bób:hunter2"), False),
        (b64("bob:\thunter2"), False),
        (b64("bob:hunt\x17"), False),
        (b64("bob:hunte") + "c=", True),
    ],
)
def test_basic_is_followed_by_a_user_and_a_password_or_by_a_word(text, is_one):
    assert seen(f"basic {text}") == ([(raw(text), "basic_auth", 0)] if is_one else [])


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("abcdefgh1jkl", True),
        ("abcdefghijkl", False),
        ("a" * 31, False),
        ("a" * 32, True),
        ("1" * 31, False),
    ],
)
def test_bearer_is_followed_by_what_looks_random_or_is_long(text, is_one):
    assert seen(f"sent bearer {text}") == ([(raw(text), "bearer_token", 5)] if is_one else [])


def test_a_reference_to_a_secret_is_none():
    assert seen("Authorization: Bearer {token}") == [] == seen("https://bob:${PASSWORD}@h.example")
    assert seen("https://bob:hunter2@h.example") == [(b"hunter2", "url_password", 5)]
    assert seen("Authorization: key k3k9") == [(b"k3k9", "authorization", 0)]


def test_bytes_that_are_no_text_are_a_password_too():
    assert seen(b"https://bob:\xff\xfe@h.example") == [(b"\xff\xfe", "url_password", 5)]
    assert seen(b"docker login -p \xff\xfe") == [(b"\xff\xfe", "password", 0)]


def test_an_address_whose_user_is_gone_has_no_password_by_that():
    assert seen("https://[redacted:env]@h.example") == []
    assert seen("https://[redacted:env]:hunter2@h.example")[0][:2] == (b"hunter2", "url_password")


def test_the_next_word_of_a_sentence_is_no_argument():
    assert seen("docker login -p is not safe") == [] == seen("docker login -p None")
    assert seen("docker login -p hunter2") == [(b"hunter2", "password", 0)]
    assert seen("docker login -p 12345") == [(b"12345", "password", 0)]
    assert seen("docker login -p /run/pw") == []


# --- exact values ---


def test_a_known_value_is_found_whole_in_each_form():
    assert seen(f"x {VALUE} y", VALUE) == [(raw(VALUE), "env", 2)]
    assert spans(f"x {VALUE} y", VALUE) == [Span(2, 2 + len(VALUE), "env", RANKS, 2)]
    assert seen("x Tr0ub4dor%2F%263%20horse y", VALUE) == [(b"Tr0ub4dor%2F%263%20horse", "env", 2)]
    assert seen(f"x {VALUE[:-1]} y", VALUE) == []
    assert seen(f"<{b64(VALUE)}>", VALUE) == [(raw(b64(VALUE)), "env", 1)]


def test_each_part_of_a_long_value_is_found_by_itself():
    first, second = LONG[:64], LONG[64:]
    assert len(second) >= 64
    assert [found for found, *_ in seen(f"{first}|{second}", LONG)] == [raw(first), raw(second)]
    assert [found for found, *_ in seen(f"x {second}", LONG)] == [raw(second)]


def test_of_more_values_each_is_found():
    assert seen("alpha-1-beta and gamma-2-delta", "gamma-2-delta", "alpha-1-beta") == [
        (b"alpha-1-beta", "env", 0),
        (b"gamma-2-delta", "env", 17),
    ]


# --- names, fields, base64 ---


def test_a_value_beside_a_name_is_found_and_its_proof_begins_with_the_name():
    assert spans("set db_password=hunter2 now") == [Span(16, 23, "password", RANKS + 1, 4)]
    assert spans("run --password hunter2 now") == [Span(15, 22, "password", RANKS + 1, 6)]
    assert spans('{"pass": "a1b2c3d4"}') == [Span(10, 18, "password", RANKS + 1, 1)]
    assert spans('{"secrets": ["a1b2c3d4", "e5f6g7h8"]}') == [
        Span(14, 22, "secret", RANKS + 1, 1),
        Span(26, 34, "secret", RANKS + 1, 1),
    ]


def test_of_a_list_all_strings_are_taken_and_of_a_string_only_itself():
    assert [found for found, *_ in seen('{"secrets": "a1b2c3d4", "user-1": "e5f6g7h8"}')] == [b"a1b2c3d4"]
    assert [found for found, *_ in seen('{"secrets": ["a1b2c3d4"], "x": "e5f6g7h8"}')] == [b"a1b2c3d4"]


def test_each_name_is_judged_from_where_the_last_value_ended():
    assert [found for found, *_ in seen('password="a1"password="b2"')] == [b"a1", b"b2"]
    assert [found for found, *_ in seen('password="' * 5)] == [b"password=", b"password="]
    assert [found for found, *_ in seen("x password=a1,token=b2b2b2b2")] == [b"a1", b"b2b2b2b2"]
    assert [found for found, *_ in seen("--password --token hunter2")] == [b"hunter2"]


def test_a_secret_inside_base64_is_taken_with_all_around_it():
    encoded = b64(f"x {TOKEN} y")
    assert spans(f"<{encoded}>") == [Span(1, 1 + len(encoded), "github_token", RANKS, 1)]
    assert seen(f"<{b64('x no secret at all, only words')}>") == []
    begun = b64("x ghp_ is how some of them begin, and no more")
    assert SecretSearch([]).look(raw(begun)) and seen(f"<{begun}> <{encoded}>") == [
        (raw(encoded), "github_token", len(begun) + 4)
    ]


def test_base64_that_holds_more_kinds_is_named_by_one_of_them_always():
    both = b64(f" {TOKEN} " + "npm" + "_" + "Z9y8X7w6V5" * 4)
    assert [kind for _, kind, _ in seen(both)] == ["github_token"]


def test_what_is_decoded_is_named_by_its_most_telling_secret():
    search = SecretSearch([VALUE])
    assert search.kind_of(raw(f"{VALUE} password=hunter2 {TOKEN}")) == "github_token"
    assert search.kind_of(raw(f"password=hunter2 {VALUE}")) == "env"
    assert search.kind_of(raw("token=a1b2c3d4 password=hunter2")) == "token"
    assert search.kind_of(raw("password=hunter2 token=a1b2c3d4")) == "password"
    assert search.kind_of(b"nothing") is None and search.kind_of(b"") is None


def test_what_only_a_reader_of_json_can_judge_is_looked_at_and_left():
    for text in (r"\u0041", r"a\/b", '{"name":"password","value":"hunter2"}'):
        assert SecretSearch([]).look(raw(text)) and spans(text) == []


def test_base64_inside_base64_is_left():
    assert SecretSearch([]).kind_of(raw(b64(f"x {TOKEN} y"))) is None
    assert seen(b64(f"x {b64(f'x {TOKEN} y')} y")) == []


def test_what_is_found_is_told_in_the_order_of_its_places():
    text = f"password=hunter2 {TOKEN} {VALUE} -u"
    assert [kind for _, kind, _ in seen(text, VALUE)] == ["password", "github_token", "env"]


def test_every_kind_of_the_tables_is_known():
    assert {rule.kind for rule in (*TOKENS, *PHRASES)} | {"env", "tangled", "password", "token"} <= KINDS


def test_bytes_are_searched_as_bytes_and_a_large_pattern_is_compiled():
    assert seen(b"\xff\xc3" + raw(TOKEN) + b"\x80") == [(raw(TOKEN), "github_token", 2)]
    many = [f"value-{number:04d}-{'abcdefgh'[number % 8] * 9}" for number in range(400)]
    assert seen(f"x {many[399]}", *many) == [(raw(many[399]), "env", 2)]


def test_a_pattern_that_re2_does_not_know_is_refused_and_nothing_is_written_about_it(capfd):
    with pytest.raises(Exception, match=r"backreference|escape"):
        secret_search.compiled(r"(a)\1")
    assert capfd.readouterr() == ("", "")

"""The forms in which a known text may hide, each for itself: the pattern finds that form and nothing beside it."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus

import pytest
import re2

from holdfast.core.secret_forms import (
    BASE64_RUN,
    PIECE,
    HeadsInBase64,
    base64_forms,
    bytes_pattern,
    certain,
    decode,
    flexible,
    pieces,
    raw,
    text_pattern,
)

TEXT = "a b/c\"d'e\\f\ng\th&i<j>k_l-m+n"
STRANGE = "ü\U0001f600\ud800\r\b\f"


def finds(pattern: str, data: bytes | str) -> bool:
    """Whether the whole of the bytes is what the pattern means."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    found = re2.compile(pattern.encode("ascii"), options)
    return found.fullmatch(data if isinstance(data, bytes) else raw(data)) is not None


# --- one text in its forms


@pytest.mark.parametrize("length", [0, 1, PIECE - 1, PIECE, 2 * PIECE - 1, 2 * PIECE, 3 * PIECE + 5])
def test_the_pieces_of_a_value_are_the_value_and_none_is_short(length):
    value = "".join(chr(97 + number % 26) for number in range(length))
    found = pieces(value)
    assert "".join(found) == value
    assert len(found) == max(1, length // PIECE)
    assert all(PIECE <= len(piece) < 2 * PIECE for piece in found) or length < PIECE


@pytest.mark.parametrize("text", [TEXT, STRANGE, "plain_09"])
def test_a_text_is_found_as_it_is_and_in_json_at_any_depth(text):
    once = json.dumps(text)[1:-1]
    twice = json.dumps(once)[1:-1]
    assert all(finds(flexible(text), form) for form in (text, once, twice, json.dumps(twice)[1:-1]))


@pytest.mark.parametrize("text", [TEXT, STRANGE[:-4]])
def test_a_text_is_found_percent_encoded_by_any_encoder(text):
    plain = frozenset(b"abcdefghijklmn_")
    everything = "".join(chr(byte) if byte in plain else f"%{byte:02X}" for byte in raw(text))
    for form in (quote(text), quote(text, safe=""), quote_plus(text), everything, everything.lower()):
        assert finds(flexible(text), form), form


def test_a_text_is_found_with_the_entities_of_markup():
    assert finds(flexible('&<>"'), "&amp;&lt;&gt;&quot;")


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("a.b", "axb"), ("a b", "a-b"), ("a_b", "a-b"), ("A", "a"), ("a", "%61"), ("-", "+"), ("x", "\\x"), (" ", "\\+"),
        ("ab", "aXXb"), ("n", "\n"), ("-", "\\-"), (" ", "\\ "), ("=", "XX="), ("/", "&amp;"),
    ],
)  # fmt: skip
def test_another_text_is_not_taken_for_it(text, other):
    assert not finds(flexible(text), other)


@pytest.mark.parametrize(
    ("char", "forms"),
    [
        ("é", [b"\xc3\xa9", b"%c3%a9", b"%C3%A9", b"\\u00e9", b"\\U00E9", b"\\\\u00e9"]),
        ("\n", [b"\n", b"%0a", b"\\n", b"\\\\n", b"\\u000a"]),
        ('"', [b'"', b'\\"', b'\\\\\\"', b"%22", b"\\u0022", b"&quot;"]),
        ("'", [b"'", b"\\'", b"%27", b"\\u0027"]),
        ("/", [b"/", b"\\/", b"%2f", b"%2F"]),
        ("\\", [b"\\", b"\\\\", b"%5c"]),
        (" ", [b" ", b"+", b"%20"]),
        ("\U0001f600", [b"\\ud83d\\ude00", b"\\\\uD83D\\\\uDE00", b"%f0%9f%98%80"]),
        ("\ud800", [b"\\ud800"]),
    ],
)
def test_every_form_of_one_character_is_known(char, forms):
    assert [form for form in forms if not finds(flexible(char), form)] == []


# --- base64


@pytest.mark.parametrize("shift", [0, 1, 2])
@pytest.mark.parametrize("text", [b"password", b"a", b"hello world!", b"\xff\xfe\xfb\xef"])
def test_what_is_certain_stands_in_the_base64_of_anything_around_it(text, shift):
    known = certain(text, shift)
    for before in (bytes(shift), b"\xff" * shift, b"q" * shift):
        for after in (b"", b"\0\0", b"\xff\xff"):
            encoded = base64.b64encode(before + text + after).decode()
            assert encoded[(0, 2, 3)[shift] :].startswith(known)
    assert len(known) == (shift + len(text)) * 8 // 6 - (0, 2, 3)[shift], "and as much of it as is certain"


@pytest.mark.parametrize("before", ["", "a", "ab", "abc"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_text_is_found_inside_base64_at_every_alignment(before, encode):
    text = "s~s?cret?>>value~"
    encoded = encode(f"{before}{text}".encode()).decode().rstrip("=")
    wrapped = "\n".join(encoded[place : place + 5] for place in range(0, len(encoded), 5))
    forms = [
        encoded,
        wrapped,
        wrapped.replace("\n", "\r\n"),
        wrapped.replace("\n", "\\n"),
        wrapped.replace("\n", "\\\\r\\\\n"),
        quote(encoded, safe=""),
        encoded.replace("/", "\\/"),
    ]
    for form in forms:
        assert any(re2.search(pattern, form) for pattern in base64_forms(text)), form


def test_letters_digits_and_underscores_have_one_form_only():
    assert flexible("aZ_09") == "aZ_09"


def test_the_characters_around_what_is_certain_go_with_it():
    shifted = base64_forms("secret")[1]
    assert finds(shifted, base64.b64encode(b"xsecret").rstrip(b"=")[1:])
    assert not finds(shifted, b"!" + base64.b64encode(b"xsecret").rstrip(b"=")[2:])


def test_a_limit_shortens_what_is_asked_for():
    encoded = base64.b64encode(b"secret value")
    assert finds(base64_forms("secret value", 4)[0], encoded[:4])
    assert not finds(base64_forms("secret value", 4)[0], encoded[:3])
    assert not finds(base64_forms("secret value")[0], encoded[:4])
    assert len(base64_forms("secret value")) == 3


@pytest.mark.parametrize("data", [b"", b"a", b"ab", b"abc", b"\xff\xfe\xfd\xfc"])
def test_base64_is_decoded_in_either_alphabet_without_padding(data):
    assert decode(base64.b64encode(data).rstrip(b"=")) == data
    assert decode(base64.urlsafe_b64encode(data).rstrip(b"=")) == data


def test_a_last_character_without_a_whole_byte_is_dropped():
    assert decode(b"YWJjZ") == b"abc"


# --- heads of secrets in base64


def heads() -> HeadsInBase64:
    return HeadsInBase64(("tok_", "key-", "~~??>>"))


@pytest.mark.parametrize("before", [b"", b"a", b"ab", b"abc", b"abcd"])
@pytest.mark.parametrize("head", [b"tok_", b"key-", b"~~??>>"])
def test_a_run_with_a_head_is_decoded_from_where_it_stands(before, head):
    secret = head + b"0123456789abcdef"
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        run = encode(before + secret)
        for form in (run, run[:8] + b"\n" + run[8:], run[:8] + b"\\\\r\\n" + run[8:], run[:8] + b" \t" + run[8:]):
            assert any(secret in text for text in heads().decoded(form))
        assert re2.search(heads().trigger(), run.decode())


def test_a_run_is_decoded_once_for_each_alignment_of_a_head():
    run = base64.b64encode(b"tok_12345678" * 3)
    assert list(heads().decoded(run)) == [b"tok_12345678" * 3]
    both = base64.b64encode(b"tok_12345678") + b"A" + base64.b64encode(b"tok_12345678")
    assert len(list(heads().decoded(both))) == 2
    assert list(heads().decoded(base64.b64encode(b"nothing of that kind"))) == []


@pytest.mark.parametrize("tail", [b"", b"x", b"xy", b"xyz", b"ab\x17"])
@pytest.mark.parametrize("before", [b"", b"a", b"ab"])
def test_a_run_is_decoded_to_its_last_byte_with_and_without_padding(before, tail):
    run = base64.b64encode(before + b"tok_12345678" + tail)
    assert list(heads().decoded(run)) == list(heads().decoded(run.rstrip(b"="))) == [before + b"tok_12345678" + tail]


def test_a_head_calls_for_eight_characters_after_it():
    run = base64.b64encode(b"tok_12" + b"345678")
    head = certain(b"tok_", 0)
    assert re2.search(heads().trigger(), run[: len(head) + 8].decode())
    assert not re2.search(heads().trigger(), run[: len(head) + 7].decode())


def test_a_run_of_base64_is_long_or_has_long_lines():
    assert finds(BASE64_RUN, "A" * 12) and finds(BASE64_RUN, "A" * 12 + "==")
    assert not finds(BASE64_RUN, "A" * 11)
    assert finds(BASE64_RUN, "A" * 60 + "\r\n" + "B")
    assert not finds(BASE64_RUN, "A" * 59 + "\r\n" + "B")


def test_patterns_are_compiled_once_and_as_they_are_meant():
    assert text_pattern(r"\w") is text_pattern(r"\w") and not text_pattern(r"\w").match("é")
    assert bytes_pattern(b".").match(b"\n")

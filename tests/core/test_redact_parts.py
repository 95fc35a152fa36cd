"""Redaction part by part: how spans become placeholders, what stands under which name, and where a stream is cut."""

from __future__ import annotations

import json

import pytest

from holdfast.core import redact
from holdfast.core.redact import HOLD, WINDOW, Redactor
from holdfast.core.secret_search import Span

TOKEN = "gh" + "p_" + "a1B2c3D4e5" * 3
GONE = "[redacted:github_token]"
VALUE = "Tr0ub4dor-horse"
PASSWORD = "[redacted:password]"


PLAIN = Redactor()


def both(value: object, *values: str) -> object:
    """What becomes of plain data, which is the same as what becomes of its JSON."""
    redactor = Redactor(values) if values else PLAIN
    clean = redactor.value(value)
    assert json.loads(redactor.body(json.dumps(value).encode())) == json.loads(json.dumps(clean))
    return clean


# --- values and placeholders ---


@pytest.mark.parametrize(
    ("value", "is_used"),
    [
        ("a-b7", True),
        ("ab7", False),
        ("redacted", False),
        ("[redacted:env]", False),
        ("token][red", False),
        (VALUE, True),
    ],
)
def test_a_value_is_used_when_it_has_four_characters_and_no_placeholder_holds_it(value, is_used):
    assert Redactor([value]).text(f"<{value}>") == ("<[redacted:env]>" if is_used else f"<{value}>")


def test_what_is_a_placeholder_is_left_and_what_only_looks_like_one_is_not():
    redactor = Redactor()
    for value in ("[redacted:env]", "[redacted:env][redacted:password]"):
        assert redactor.value({"password": value}) == {"password": value}
    for value in ("[redacted:env]x", "[redacted:nothing]", "x[redacted:env]"):
        assert redactor.value({"password": value}) == {"password": PASSWORD}


def test_a_text_is_redacted_until_nothing_more_is_found_and_taken_whole_where_that_does_not_end():
    for steps, is_tangled in ((6, False), (7, True)):
        values = ["start-0-value", *(f"[redacted:env]step{number}" for number in range(steps))]
        text = values[0] + "".join(f"step{number}" for number in range(steps))
        assert Redactor(values).text(f"x {text}") == ("[redacted:tangled]" if is_tangled else "x [redacted:env]")


def test_what_is_clean_comes_back_as_the_same_object():
    redactor = Redactor()
    for text in ("plain", "ghp_%%%%", "\ud800", ""):
        assert redactor.text(text) is text
        assert redactor.value(text) is text
    for body in (b'{"a":"b"}', b'{"a":"ghp_%%%%"}', b'{"a":"x\\/y"}', b'{"password":"none"}'):
        assert redactor.body(body) is body


def test_letters_that_have_no_bytes_stay_where_they_are():
    assert Redactor().text(f"\ud800{TOKEN}\n\udfff") == f"\ud800{GONE}\n\udfff"
    assert both([f"\ud800 {TOKEN}\n\udfff"]) == [f"\ud800 {GONE}\n\udfff"]


# --- spans that touch and overlap ---


@pytest.mark.parametrize(
    ("spans", "merged"),
    [
        ([(0, 3, "a", 1)], [(0, 3, "a")]),
        ([(0, 3, "a", 1), (5, 7, "b", 0)], [(0, 3, "a"), (5, 7, "b")]),
        ([(0, 3, "a", 1), (3, 7, "a", 1)], [(0, 3, "a"), (3, 7, "a")]),
        ([(0, 3, "env", 1), (3, 7, "env", 1)], [(0, 7, "env")]),
        ([(0, 3, "env", 1), (3, 7, "a", 1)], [(0, 3, "env"), (3, 7, "a")]),
        ([(0, 3, "a", 1), (3, 7, "env", 1)], [(0, 3, "a"), (3, 7, "env")]),
        ([(0, 3, "env", 1), (4, 7, "env", 1)], [(0, 3, "env"), (4, 7, "env")]),
        ([(0, 3, "a", 1), (2, 7, "b", 0)], [(0, 7, "b")]),
        ([(0, 3, "b", 0), (2, 7, "a", 1)], [(0, 7, "b")]),
        ([(0, 9, "a", 1), (2, 7, "b", 2)], [(0, 9, "a")]),
        ([(0, 3, "b", 1), (2, 5, "a", 1)], [(0, 5, "a")]),
        ([(0, 3, "c", 2), (2, 5, "b", 1), (4, 8, "d", 3), (9, 10, "e", 0)], [(0, 8, "b"), (9, 10, "e")]),
        ([(0, 3, "c", 2), (4, 8, "d", 3), (7, 9, "e", 4)], [(0, 3, "c"), (4, 9, "d")]),
    ],
)
def test_spans_that_overlap_become_one_and_the_lowest_rank_names_it(spans, merged):
    assert list(redact._merged([Span(start, end, kind, rank, start) for start, end, kind, rank in spans])) == merged


def test_what_stands_between_and_around_spans_stays():
    spans = [Span(1, 3, "env", 0, 1), Span(5, 6, "token", 0, 5)]
    assert redact._replaced(b"abcdefgh", spans) == b"a[redacted:env]de[redacted:token]gh"


# --- what stands under a name ---


def test_a_string_goes_by_its_name_its_shape_or_not_at_all():
    redactor = Redactor()
    assert redactor.field("password", b"hunter2") == PASSWORD.encode()
    assert redactor.field("password", b"none") == b"none"
    assert redactor.field("password", TOKEN.encode()) == GONE.encode()
    assert redactor.field("password", f"{TOKEN} x".encode()) == PASSWORD.encode()
    assert redactor.field("pass", b"a1b2c3d4") == PASSWORD.encode()
    assert redactor.field("password", b"\xff\xfe") == PASSWORD.encode()
    for name in (None, "", "colour"):
        assert redactor.field(name, b"hunter2") == b"hunter2"
        assert redactor.field(name, f"x {TOKEN}".encode()) == f"x {GONE}".encode()


def test_every_shape_of_plain_data_is_walked_and_all_but_strings_stay():
    value = {"a": [TOKEN, 1, None, True, 2.5, (TOKEN, b"x")], 7: {"password": "hunter2"}, None: TOKEN}
    assert PLAIN.value(value) == {
        "a": [GONE, 1, None, True, 2.5, (GONE, b"x")],
        7: {"password": PASSWORD},
        None: GONE,
    }
    assert PLAIN.value((TOKEN,)) == (GONE,)
    assert PLAIN.value({"password": ("hunter2",), 7: "hunter3"}) == {"password": (PASSWORD,), 7: "hunter3"}
    assert PLAIN.value(5) == 5 and PLAIN.value(TOKEN) == GONE


def test_a_list_stands_under_the_name_of_its_field_and_an_object_in_it_does_not():
    assert both({"password": ["hunter2", ["hunter3", {"x": "hunter4", "y": ["z"]}], {"password": "hunter5"}]}) == {
        "password": [PASSWORD, [PASSWORD, {"x": "hunter4", "y": ["z"]}], {"password": PASSWORD}]
    }
    assert both({"password": {"x": "hunter2"}, "y": ["hunter3"]}) == {"password": {"x": "hunter2"}, "y": ["hunter3"]}
    assert both([{"password": "hunter2"}, "hunter3"]) == [{"password": PASSWORD}, "hunter3"]


# --- pairs ---


@pytest.mark.parametrize("key", ["name", "key", "header"])
def test_a_value_stands_under_the_name_beside_it(key):
    assert both({key: "DB_PASSWORD", "value": "hunter2", "x": "hunter3"}) == {
        key: "DB_PASSWORD", "value": PASSWORD, "x": "hunter3"
    }  # fmt: skip
    assert both({"value": "hunter2", key: "DB_PASSWORD"}) == {"value": PASSWORD, key: "DB_PASSWORD"}
    assert both({key: "HOME", "value": "hunter2"}) == {key: "HOME", "value": "hunter2"}
    assert both({key: 5, "value": "hunter2"}) == {key: 5, "value": "hunter2"}
    assert both({key: "DB_PASSWORD", "value": ["hunter2"]}) == {key: "DB_PASSWORD", "value": ["hunter2"]}
    assert both({key: "DB_PASSWORD", "values": "hunter2"}) == {key: "DB_PASSWORD", "values": "hunter2"}
    assert both({key: "DB_PASSWORD", "value": 5}) == {key: "DB_PASSWORD", "value": 5}


def test_of_more_names_beside_a_value_the_first_kind_counts():
    told = {"header": "password", "key": "password", "name": "colour", "value": "hunter2"}
    assert both(told) == told
    assert both({"header": "colour", "name": "password", "value": "hunter2"})["value"] == PASSWORD
    assert both({"name": 5, "key": "password", "value": "hunter2"})["value"] == PASSWORD
    assert both({"key": "colour", "header": "password", "value": "hunter2"})["value"] == "hunter2"


def test_a_value_that_has_a_shape_of_its_own_beside_a_name_keeps_its_kind():
    assert both({"name": "password", "value": TOKEN}) == {"name": "password", "value": GONE}
    assert both({"name": "password", "value": VALUE}, VALUE) == {"name": "password", "value": "[redacted:env]"}


def test_pairs_inside_each_other_have_each_their_own_name():
    inner = {"name": "DB_PASSWORD", "value": "hunter2"}
    clean = {"name": "DB_PASSWORD", "value": PASSWORD}
    assert both({"name": "HOME", "env": [inner], "value": "hunter3"}) == {
        "name": "HOME",
        "env": [clean],
        "value": "hunter3",
    }
    assert both({"name": "password", "of": {"name": "HOME"}, "value": "hunter2"})["value"] == PASSWORD


RANDOM = "k3k9-41xq-zz"


@pytest.mark.parametrize(
    ("items", "clean"),
    [
        (["password", RANDOM], ["password", PASSWORD]),
        (["colour", RANDOM], ["colour", RANDOM]),
        (["password", RANDOM, "x"], ["password", RANDOM, "x"]),
        (["x", "password", RANDOM], ["x", "password", RANDOM]),
        (["password", RANDOM, 5], ["password", RANDOM, 5]),
        (["password", 5, RANDOM], ["password", 5, RANDOM]),
        ([5, RANDOM], [5, RANDOM]),
        (["password", [RANDOM]], ["password", [RANDOM]]),
        ([["password", RANDOM], ["a", "b"]], [["password", PASSWORD], ["a", "b"]]),
        ([["password", RANDOM], RANDOM], [["password", PASSWORD], RANDOM]),
        ([], []),
        (["password"], ["password"]),
        (["--password", "hunter2", "hunter3"], ["--password", PASSWORD, "hunter3"]),
        (["--password", 5, "hunter2"], ["--password", 5, "hunter2"]),
        (["--password", ["hunter2"], "hunter3"], ["--password", ["hunter2"], "hunter3"]),
        (["--password", {"x": "hunter2"}, "hunter3"], ["--password", {"x": "hunter2"}, "hunter3"]),
        (["--password", None, "hunter2"], ["--password", None, "hunter2"]),
        (["-p", "hunter2"], ["-p", "hunter2"]),
        (["docker", "login", "-p", "hunter2"], ["docker", "login", "-p", PASSWORD]),
        (["/opt" * 40 + "/docker", "login", "-p", "hunter2"], ["/opt" * 40 + "/docker", "login", "-p", PASSWORD]),
        (["docker", "login", "-x", "hunter2"], ["docker", "login", "-x", "hunter2"]),
        (["docker", 5, "login", "-p", "hunter2"], ["docker", 5, "login", "-p", "hunter2"]),
        (["docker", "login", 5, "-p", "hunter2"], ["docker", "login", 5, "-p", "hunter2"]),
        (["docker", "login", ["x"], "-p", "hunter2"], ["docker", "login", ["x"], "-p", "hunter2"]),
        (["docker", "run", "-p", "80:80"], ["docker", "run", "-p", "80:80"]),
        ([["docker", "login"], "-p", "hunter2"], [["docker", "login"], "-p", "hunter2"]),
        (["--" + "x" * 69 + "password", "hunter2", "y"], ["--" + "x" * 69 + "password", PASSWORD, "y"]),
        (["--" + "x" * 70 + "password", "hunter2", "y"], ["--" + "x" * 70 + "password", "hunter2", "y"]),
    ],
)
def test_in_a_list_what_stands_behind_a_name_or_a_flag_goes(items, clean):
    assert both(items) == clean
    assert both({"argv": items}) == {"argv": clean}


# --- JSON bytes ---


@pytest.mark.parametrize(
    ("body", "clean"),
    [
        (b'"password"', b'"password"'),
        (b'{"password":"hunter2"', b'{"password":"[redacted:password]"'),
        (b'}]{"password":"hunter2"}', b'}]{"password":"[redacted:password]"}'),
        (b'{"password":"hunter2"}}}{"a":"hunter3"}', b'{"password":"[redacted:password]"}}}{"a":"hunter3"}'),
        (b'{"password" : "hunter2" , "a" : "b"}', b'{"password" : "[redacted:password]" , "a" : "b"}'),
        (b'{"password":5,"a":"hunter2"}', b'{"password":5,"a":"hunter2"}'),
        (b'{"a":1,"password":"hunter2","b":2}', b'{"a":1,"password":"[redacted:password]","b":2}'),
        (b'{"":"hunter2","password":"x1"}', b'{"":"hunter2","password":"[redacted:password]"}'),
        (b'{"p\\u0061ssword":"hunter2"}', b'{"p\\u0061ssword":"[redacted:password]"}'),
        (b'{"password":"hun\\u0074er2"}', b'{"password":"[redacted:password]"}'),
        (b'{"password":"\\ud800"}', b'{"password":"[redacted:password]"}'),
        (b'{"a\\q":"b","password":"\\q"}', b'{"a\\q":"b","password":"[redacted:password]"}'),
        (b'{"a":"x\\"y","password":"hunter2"}', b'{"a":"x\\"y","password":"[redacted:password]"}'),
        (b'["password","k3k9-41xq-zz"', b'["password","k3k9-41xq-zz"'),
        (b'["p\\u0061ssword","k3k9-41xq-z\\u007a"]', b'["p\\u0061ssword","[redacted:password]"]'),
    ],
)
def test_strings_are_replaced_where_they_stand_and_nothing_else_is_rewritten(body, clean):
    assert PLAIN.body(body) == clean


def test_what_is_replaced_is_written_as_it_would_be_read():
    token = TOKEN.encode()
    assert PLAIN.body('{"a":"é \\" '.encode() + token + b'"}') == f'{{"a":"é \\" {GONE}"}}'.encode()
    assert PLAIN.body(b'{"a":"\\n\\u00e9 ' + token + b'"}') == f'{{"a":"\\né {GONE}"}}'.encode()
    assert PLAIN.body(b'{"a":"\\ud800\\u00e9 ' + token + b'"}') == f'{{"a":"\\ud800\\u00e9 {GONE}"}}'.encode()
    assert PLAIN.body(b'{"a":"\xff ' + token + b'"}') == f'{{"a":"\ufffd {GONE}"}}'.encode()
    assert PLAIN.body(b'{"a":"\\q\xff ' + token + b'"}') == f'{{"a":"\\\\q\ufffd {GONE}"}}'.encode()
    assert PLAIN.body(b'{"\xff":"\n","a":"\t ' + token + b'"}') == b'{"\xff":"\n","a":"\\t ' + GONE.encode() + b'"}'


def test_a_document_may_be_a_string_and_what_cannot_be_read_is_kept_to_its_end():
    assert PLAIN.body(f'"{TOKEN}"'.encode()) == f'"{GONE}"'.encode()
    assert PLAIN.body(f'{{"a":"\\q {TOKEN} z"}}'.encode()) == f'{{"a":"\\\\q {GONE} z"}}'.encode()


def test_a_line_end_in_a_string_with_an_escape_is_read_too():
    assert PLAIN.body(b'{"a":"\\u0041\n ' + TOKEN.encode() + b'"}') == f'{{"a":"A\\n {GONE}"}}'.encode()


# --- streams ---


def streamed(text: str, size: int, *values: str) -> list[str]:
    stream = (Redactor(values) if values else PLAIN).stream()
    return [*(stream.feed(text[place : place + size]) for place in range(0, len(text), size)), stream.flush()]


def test_nothing_is_given_back_before_the_window_is_full_and_then_all_but_what_is_held():
    stream = PLAIN.stream()
    assert stream.feed("x" * (WINDOW - 1)) == ""
    assert stream.feed("x") == "x" * (WINDOW - HOLD)
    assert stream.held() == "x" * HOLD
    assert stream.feed("") == "" and stream.feed("y") == ""
    assert stream.flush() == "x" * HOLD + "y"
    assert stream.held() == "" == stream.flush()


def test_much_at_once_is_given_back_window_by_window():
    stream = PLAIN.stream()
    given = stream.feed("x" * 50_000)
    assert given == "x" * len(given) and 0 <= 50_000 - len(given) < WINDOW
    assert given + stream.flush() == "x" * 50_000


def test_what_is_held_is_told_clean():
    stream = PLAIN.stream()
    stream.feed(f"x {TOKEN}")
    assert stream.held() == f"x {GONE}" == stream.held() == stream.flush()


@pytest.mark.parametrize(
    ("before", "cut"),
    [
        ("x" * WINDOW, WINDOW - HOLD),
        ("é" * WINDOW, 2 * (WINDOW - HOLD)),
        ("x" * 10 + "\n" + "x" * WINDOW, 11),
        ("x" * 10 + " " + "x" * WINDOW, 11),
        ("x" * 10 + "\n" + "x" * 10 + " " + "x" * WINDOW, 11),
        (" " + "x" * WINDOW, 1),
        ("\n" + "x" * WINDOW, 1),
        ("x\nx x\n" + "x" * WINDOW, 6),
        ("x x " + "x" * WINDOW, 4),
        ("x" * (WINDOW - HOLD - 1) + "\n" + "x" * HOLD, WINDOW - HOLD),
        ("x" * (WINDOW - HOLD) + "\n" + "x" * (HOLD - 1), WINDOW - HOLD),
    ],
)
def test_a_stream_is_cut_after_a_line_or_a_word_before_what_is_held(before, cut):
    assert redact._even_cut(before[:WINDOW]) == cut


@pytest.mark.parametrize(
    ("spans", "cut"),
    [
        ([], 10),
        ([(2, 10, 2)], 10),
        ([(10, 14, 10)], 10),
        ([(8, 14, 8)], 14),
        ([(8, 14, 10)], 10),
        ([(12, 14, 9)], 14),
        ([(8, 20, 5)], 5),
        ([(8, 20, 10)], 10),
        ([(8, 20, 5), (3, 7, 2)], 2),
        ([(8, 20, 5), (3, 5, 2)], 5),
        ([(8, 14, 7), (12, 20, 11)], 7),
        ([(8, 14, 7), (12, 19, 11)], 19),
        ([(12, 14, 1), (8, 20, 5)], 1),
        ([(8, 16, 7), (9, 12, 8)], 16),
        ([(8, 20, 5), (3, 20, 2)], 2),
        ([(8, 20, 0)], 0),
    ],
)
def test_a_cut_is_moved_out_of_every_secret(spans, cut):
    found = [Span(start, end, "env", 0, reach) for start, end, reach in spans]
    assert redact._cut(b"x" * 20, 10, found) == cut


def test_a_secret_over_the_end_of_the_window_is_held_with_its_proof():
    text = "x" * 3000 + " password=" + "q7" * 2000 + " end\n" + "y" * WINDOW
    for size in (1, 4000, len(text)):
        assert "".join(streamed(text, size)) == "x" * 3000 + f" password={PASSWORD} end\n" + "y" * WINDOW


LONG = "q7" * WINDOW


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (f"password={LONG} end", f"password={PASSWORD} end"),
        (f"password={LONG},end", f"password={PASSWORD},end"),
        (f'password="{LONG}, and {LONG}" end', f'password="{PASSWORD}" end'),
        (f"password='{LONG} [x]' end", f"password='{PASSWORD}' end"),
        (f"password=`{LONG} [x]` end", f"password=`{PASSWORD}` end"),
        (f'password="{LONG}\nend', f'password="{PASSWORD}\nend'),
        ("gh" + f"p_{LONG} end", f"{GONE} end"),
        (f"é {'gh'}p_{LONG} end", f"é {GONE} end"),
        ("gh" + f"p_{LONG}", GONE),
        (f'"secrets": ["a1b2c3d4", "{LONG}"] end', '"secrets": ["[redacted:secret]", "[redacted:secret]"] end'),
        (f"password={LONG} password={LONG} end", f"password={PASSWORD} password={PASSWORD} end"),
        (
            "-----BEGIN RSA PRIVATE" + " KEY-----\n" + "Ab1+" * WINDOW + "\n-----END RSA PRIVATE" + " KEY-----, end",
            "[redacted:private_key], end",
        ),
    ],
)
@pytest.mark.parametrize("size", [700, WINDOW, 10**6])
def test_the_rest_of_a_secret_longer_than_the_window_is_dropped_up_to_its_end(text, clean, size):
    assert "".join(streamed(text, size)) == clean


KEY = "-----BEGIN RSA PRIVATE" + " KEY-----\n" + "Ab1+" * 2500 + "\n-----END RSA PRIVATE" + " KEY-----"


@pytest.mark.parametrize(
    "before", ["password=", "x" * 3000 + "\npassword=", "x" * 3000 + "\nSECRET=", f"{TOKEN} token: "]
)
def test_a_secret_that_begins_inside_another_and_is_longer_than_the_window_goes_whole(before):
    clean = PLAIN.text(before + KEY)
    assert clean.endswith("[redacted:private_key]")
    for size in (1000, 10**6):
        assert "".join(streamed(f"{before}{KEY}, end", size)) == f"{clean}, end"


def test_a_secret_whose_proof_stands_behind_it_is_taken_wherever_the_stream_is_cut():
    for offset in range(WINDOW - HOLD - 40, WINDOW - HOLD + 10):
        text = "x" * offset + "§https://bob:hunter2hunter2@h.example/" + "x" * WINDOW
        assert "".join(streamed(text, 10**6)) == text.replace("hunter2hunter2", "[redacted:url_password]"), offset


def test_what_is_dropped_is_forgotten_with_the_stream():
    stream = PLAIN.stream()
    stream.feed(f"password={LONG}")
    stream.flush()
    assert stream.feed("word") + stream.flush() == "word"


def test_letters_are_never_cut_in_two():
    text = "\ud800é€😀" * 5000
    assert "".join(streamed(text, 999)) == text

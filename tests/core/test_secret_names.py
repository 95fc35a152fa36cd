"""Which names hold secrets, which values beside them are none, and where in a text a value begins and ends: each by itself."""

from __future__ import annotations

import pytest

from holdfast.core.secret_forms import raw
from holdfast.core.secret_names import (
    ASSIGN,
    FLAG,
    Assignment,
    assigned,
    flagged,
    harmless,
    is_argument,
    is_flag,
    kind_of_field,
    looks_random,
    name_kind,
    names_its_value,
    quoted_end,
    secret_values,
    shown,
)
from holdfast.core.secret_search import compiled

UUID = "01890a5d-ac96-774b-bcce-b302099a8057"
ULID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("password", "password"),
        ("db_pass", "password"),
        ("pass", None),
        ("password_2", "password"),
        ("passwordProd", "password"),
        ("access_token", "token"),
        ("accessToken", "token"),
        ("x_github_token", "token"),
        ("token", "weak_token"),
        ("handoff_token", "weak_token"),
        ("mintoken", "counted_token"),
        ("next_token", "counted_token"),
        ("max-token", "counted_token"),
        ("_auth", "secret"),
        ("use_auth", None),
        ("tokens", None),
        ("secret_access_key", "aws_secret_key"),
        ("secret_key", "api_key"),
        ("ssh_key", "private_key"),
        ("key", None),
        ("", None),
    ],
)
def test_a_name_promises_a_kind_or_nothing(name, kind):
    assert name_kind(name) == kind == name_kind.__wrapped__(name)


KINDS = ("password", "token", "weak_token", "counted_token", "credential", "private_key", "secret")
HARMLESS = {
    "": KINDS,
    "none": KINDS,
    "****": KINDS,
    "${TOKEN}": KINDS,
    "<your token>": KINDS,
    "%(token)s": KINDS,
    "Bearer {x}": KINDS,
    "hunter2": ("counted_token",),
    "two words": ("counted_token",),
    UUID: ("weak_token", "counted_token"),
    UUID.upper(): ("weak_token", "counted_token"),
    ULID: ("weak_token", "counted_token"),
    "1234567890": ("weak_token", "counted_token"),
    "12345": tuple(kind for kind in KINDS if kind != "password"),
    "^1.2.3": tuple(kind for kind in KINDS if kind != "password"),
    "/etc/key": ("password", "counted_token", "credential", "private_key"),
    "~/key": ("password", "counted_token", "credential", "private_key"),
    "C:\\key": ("password", "counted_token", "credential", "private_key"),
}


@pytest.mark.parametrize("value", HARMLESS)
def test_which_value_is_harmless_under_which_kind_of_name(value):
    assert tuple(kind for kind in KINDS if harmless(kind, value)) == HARMLESS[value]


def test_a_very_long_value_is_never_harmless():
    assert harmless("password", "x" * 2000) and not harmless("password", "x" * 2001)
    assert not harmless("counted_token", "x" * 2001)


def test_a_field_is_known_by_the_end_of_its_name_and_by_its_value():
    assert kind_of_field("password", "hunter2") == "password"
    assert kind_of_field("password", "none") is None is kind_of_field("colour", "hunter2")
    assert kind_of_field("token", "hunter2") == "token" == kind_of_field("access_token", "hunter2")
    assert kind_of_field("x" * 500 + "_password", "hunter2") == "password"
    assert kind_of_field("_auth", "hunter2") == "secret"
    assert kind_of_field("x" * 75 + "_auth", "hunter2") is None
    assert kind_of_field("_auth" + "x" * 76, "hunter2") is None


def test_a_kind_that_only_the_rules_tell_apart_is_shown_as_the_one_it_is():
    assert [shown(kind) for kind in ("token", "weak_token", "counted_token", "secret", "cookie")] == [
        "token",
        "token",
        "token",
        "secret",
        "cookie",
    ]


RANDOM = "k3k9-41xq-zz"


@pytest.mark.parametrize(
    ("name", "value", "is_pair"),
    [
        ("password", RANDOM, True),
        ("x" * 72 + "password", RANDOM, True),
        ("x" * 73 + "password", RANDOM, False),
        ("my password", RANDOM, False),
        ("password", f"Bearer {RANDOM}", True),
        ("password", f"BASIC  {RANDOM}", True),
        ("password", f"the {RANDOM}", False),
        ("password", "passphrase", False),
        ("password", "k3k9-41", False),
        ("retry_token", UUID, False),
        ("colour", RANDOM, False),
    ],
)
def test_two_texts_are_a_name_and_its_value(name, value, is_pair):
    assert names_its_value(name, value) is is_pair


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("--password", True),
        ("-password", True),
        ("--api-key", True),
        ("password", False),
        ("--my password", False),
        ("--colour", False),
        ("--" + "x" * 69 + "password", True),
        ("--" + "x" * 70 + "password", False),
    ],
)
def test_a_flag_takes_a_secret(text, is_one):
    assert is_flag(text) is is_one


@pytest.mark.parametrize(
    ("value", "is_random"),
    [
        ("abcdefg1", True),
        ("abcdef1", False),
        ("abcdefgh", False),
        ("12345678", False),
        ("2026-01-02T03:04", False),
        ("12:34 abcd", False),
        ("https://a1.example", False),
        ("/home/bob1/x", False),
        ("C:\\bob1\\x", False),
        ("äöü12345", True),
    ],
)
def test_what_looks_random(value, is_random):
    assert looks_random(value) is is_random


# --- the end of a quoted value ---


@pytest.mark.parametrize(
    ("text", "opening", "value"),
    [
        (b'abc" d"', b'"', b"abc"),
        (b"abc' d", b"'", b"abc"),
        (b"a'bc\" d", b'"', b"a'bc"),
        (b'a\\"bc" d', b'"', b'a\\"bc'),
        (b'abc\\\\" d', b'"', b"abc\\\\"),
        (b'abc\\" d', b'\\"', b"abc"),
        (b'a"b\\" d', b'\\"', b'a"b'),
        (b'a\\\\\\"bc\\" d', b'\\"', b'a\\\\\\"bc'),
        (b'abc\\\\\\" d', b'\\\\\\"', b"abc"),
        (b'abc\\" d\\\\\\"', b'\\\\\\"', b'abc\\" d'),
        (b'abc\\\\\\\\\\" d', b'\\"', b"abc\\\\\\\\"),
        (b'abc\nd"', b'"', b"abc"),
        (b'abc\\\\\nd"', b'"', b"abc\\\\"),
        (b"abc", b'"', b"abc"),
        (b"", b'"', b""),
        (b'" d', b'"', b""),
    ],
)
def test_a_quoted_value_ends_at_a_quote_escaped_as_deeply_or_with_its_line(text, opening, value):
    assert (b"???" + text)[3 : quoted_end(b"???" + text, 3, opening)] == value


# --- an assignment ---


def judged(text: str | bytes, floor: int = 0) -> Assignment | None:
    data = text if isinstance(text, bytes) else raw(text)
    match = compiled(ASSIGN).search(data, floor)
    assert match is not None
    return assigned(data, [match.span(group) for group in range(6)], floor)


def told(text: str | bytes, floor: int = 0) -> tuple[str, str, str, str] | None:
    """The name, the value, its kind, and what is read on with."""
    found, data = judged(text, floor), text if isinstance(text, bytes) else raw(text)
    if found is None:
        return None
    parts = data[found.reach : found.start], data[found.start : found.end], raw(found.kind), data[found.after :]
    name, value, kind, rest = (part.decode("utf-8", "replace") for part in parts)
    return name, value, kind, rest


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("db.my-x_password=hunter2 y", ("db.my-x_password=", "hunter2", "password", " y")),
        ("é password=hunter2", ("password=", "hunter2", "password", "")),
        ('password="hunter2" y', ('password="', "hunter2", "password", " y")),
        ("password = 'hunter2' y", ("password = '", "hunter2", "password", " y")),
        ('password=rb"hunter2" y', ('password=rb"', "hunter2", "password", " y")),
        ("password: str = 'hunter2' y", ("password: str = '", "hunter2", "password", " y")),
        ("token='a1b2c3' y", ("token='", "a1b2c3", "token", " y")),
        ('{"password": "never closed', ('password": "', "never closed", "password", "")),
    ],
)
def test_a_value_is_taken_with_its_name_as_its_proof(text, found):
    assert told(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "next_auth=hunter2",
        'password = "PassWord"',
        "password='none'",
        'password = ""',
        "token == '('",
        "token='12345'",
        'next_token="hunter2"',
        'input("Your password: ")',
        "getpass('Password: ')",
        "x = `the password: `",
    ],
)
def test_a_quoted_value_that_is_none_stays(text):
    assert told(text) is None


def test_a_quote_after_a_name_opens_a_value_unless_a_string_with_the_same_quote_was_opened_before_it():
    assert told("input('Your password: \"hunter2\"')") == ('password: "', "hunter2", "password", "')")
    assert told('("Your password": "hunter2")') == ('password": "', "hunter2", "password", ")")
    assert told('"' + " a" * 31 + ' password: "hunter2"') == ('password: "', "hunter2", "password", "")
    assert told('"' + "a " * 30 + 'password: "hunter2"') is None
    assert told('("' + "a " * 25 + 'my_own_very_long_name_of_a_password: "hunter2"') is None
    assert told('(\\"Your password": \\"hunter2\\")') == ('password": \\"', "hunter2", "password", ")")
    assert told('x"Your password: "hunter2"') == ('password: "', "hunter2", "password", "")
    assert told("print('password: ' + b'hunter2')") is None
    assert told('print("password: b"hunter2"') is None
    assert told('("Your password: "hunter2"', 2) == ('password: "', "hunter2", "password", "")


def test_a_name_reaches_eighty_characters_back_and_never_over_what_was_read():
    assert told("x" * 100 + "password=hunter2") == ("x" * 80 + "password=", "hunter2", "password", "")
    assert told("x" * 20 + "password=hunter2", 15) == ("xxxxxpassword=", "hunter2", "password", "")
    assert told("use_auth='hunter2'", 3) == ("_auth='", "hunter2", "secret", "")
    assert told("a_password=hunter2", 1) == ("_password=", "hunter2", "password", "")


def test_after_a_quoted_value_nothing_more_than_its_closing_quote_is_passed_over():
    assert told('password=Rb"hunter2",token=x') == ('password=Rb"', "hunter2", "password", ",token=x")
    assert told('password=\\"hunter2\\",token=x') == ('password=\\"', "hunter2", "password", ",token=x")
    assert told('password=\\"hunter2\ntoken=x') == ('password=\\"', "hunter2", "password", "\ntoken=x")
    assert told('password="hunter2\ntoken=x') == ('password="', "hunter2", "password", "\ntoken=x")


# --- a value without quotes ---


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("password=hunter2,x", "hunter2,x"),
        ("x password=hunter2,x", "hunter2"),
        ("PASSWORD=a;b(c) d", "a;b(c)"),
        ("x PASSWORD=a;b(c) d", "a"),
        ("password=f(x,y) d", None),
        ("password=hunter2) d", "hunter2"),
        ("password = hunter2,x", "hunter2"),
        ("export password=hunter2,x", "hunter2,x"),
        ("\n  password=hunter2,x", "hunter2,x"),
        ("a\\n password=hunter2,x", "hunter2,x"),
        ("a\\npassword=hunter2", "hunter2"),
        ("- password=hunter2,x", "hunter2,x"),
        ("password=hunter2.", "hunter2"),
        ("password=hunterX", "hunterX"),
        ("password=a,bX", "a,bX"),
        ("password=f(x).y", None),
        ("password=12345", "12345"),
        ("password=/etc/pw", None),
        (f"token={UUID}", None),
        ("password=hunter2?!:.", "hunter2"),
        ("password=[redacted:env]x y", "[redacted:env]x"),
        ("password==hunter2", "hunter2"),
        ("password := hunter2", "hunter2"),
        ("password: hunter2", "hunter2"),
        ("password: hunter\n", "hunter"),
        ("password: hunter # a note", "hunter"),
        ("password: hunter, user: bob", "hunter"),
        ("password: hunter bob", None),
        ("the password: hunter", None),
        ("the password: hunter22", "hunter22"),
        ("the password: hunter2", None),
        ("the password=hunter", "hunter"),
        ("password=", None),
        ("password= ", None),
        ("password=<your password>", None),
        ("password=<your password", "<your"),
        ("cookie=hunter2", None),
        ("self.password=user", None),
        ("self.password=the_user", None),
        ("self.password=hunter2", "hunter2"),
        ("x self.password=user", None),
        ("self.x password=hunter", "hunter"),
        ("this.password=user", None),
        ("cls.password=user", None),
        ("myself.password=hunter", "hunter"),
        ("password=none", None),
        ("password=str", None),
        ("PASSWORD=str", "str"),
        ("PASSWORD=none", None),
        ("x PASSWORD=str", None),
        ("password=get(x)", None),
        ("password=names[0]", None),
        ("x password=a{b}", None),
        ("password=my_token", None),
        ("password=os.environ", None),
        ("PASSWORD=os.environ", "os.environ"),
        ("token=abc12", None),
        ("token=abc123", "abc123"),
    ],
)
def test_a_value_without_quotes_is_taken_or_not(text, value):
    found = told(text)
    assert (found and found[1]) == value
    if found:
        assert found[3] == text[text.index(value, len(text) - len(found[3]) - len(value)) + len(value) :]


def test_bytes_that_are_no_text_are_a_value():
    assert told(b"password=\xff\xfe\xfd") == ("password=", "���", "password", "")
    assert told(b"password='\xff\xfe\xfd'") == ("password='", "���", "password", "")
    assert told(b"the password: \xff\xfe\xfd") is None


def test_a_line_begins_where_the_line_says_so_and_not_with_what_was_read():
    assert told("x\n" + "a_" * 40 + "password=hunter2,x") is not None
    assert told("password=hunter2,x", 0) == ("password=", "hunter2,x", "password", "")


# --- a flag ---


def flag(text: str | bytes) -> tuple[str, str, str] | None:
    data = text if isinstance(text, bytes) else raw(text)
    match = compiled(FLAG).search(data, 0)
    assert match is not None
    found = flagged(data, [match.span(group) for group in range(3)], 0)
    if found is None:
        return None
    rest = data[found.after :].decode("utf-8", "replace")
    assert data[found.start :].startswith((b"hunter2", b"a1b2c3", b"\xff"))
    return data[found.reach : found.end].decode("utf-8", "replace"), found.kind, rest


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("run --password hunter2 now", ("password hunter2", "password", " now")),
        ("--my-token hunter2", ("my-token hunter2", "token", "")),
        ("--token 'a1b2c3' x", ("token 'a1b2c3", "token", " x")),
        ("--password hunter2, x", ("password hunter2", "password", ", x")),
        ("['--password', 'hunter2']", ("password', 'hunter2", "password", "]")),
        ("--password --verbose", None),
        ("--password -v", None),
        ("--password ", None),
        ("--password ,", None),
        ("--use_auth kerberos", None),
        ("--next-token hunter2", None),
        ("--password is not", None),
        ("--password THE. best", None),
        ("--password none", None),
        ("--password string", None),
        ("--password 'none'", None),
        ("--" + "x" * 90 + "password hunter2", ("x" * 90 + "password hunter2", "password", "")),
        (b"--password \xff\xfe", ("password ��", "password", "")),
    ],
)
def test_the_word_after_a_flag_is_taken_or_not(text, found):
    assert flag(text) == found


@pytest.mark.parametrize(
    ("value", "is_one"),
    [
        ("hunter2", True),
        ("the", False),
        ("The.", False),
        ("the:", False),
        ("string", False),
        ("", False),
        ("1.2", True),
    ],
)
def test_the_next_word_of_a_sentence_is_no_argument(value, is_one):
    assert is_argument("password", value) is is_one
    assert is_argument("secret", "1.2") is False


# --- the environment ---

WORTH = "k3k9-41xq-zz"


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("TOKEN", True),
        ("my_token_x", True),
        ("CLIENTSECRET", True),
        ("DBPASSWORD", True),
        ("PASSWD", True),
        ("PASSPHRASE", True),
        ("CREDENTIALS", True),
        ("MYAPIKEY", True),
        ("DB_PASS", True),
        ("PASS_DB", True),
        ("X_KEY", True),
        ("X_KEY2", True),
        ("KEY2_X", False),
        ("A_KEYX", False),
        ("X_KEYS", True),
        ("AUTH", True),
        ("SENTRY_DSN", True),
        ("A_COOKIE_B", True),
        ("GH_PAT", True),
        ("KEYBOARD", False),
        ("PWD", False),
        ("OLDPWD", False),
        ("MY_PWD", True),
        ("oldpwd", False),
        ("TOKEN_PATH", False),
        ("TOKEN_FILE", False),
        ("TOKEN_URL", False),
        ("TOKEN_NAME", False),
        ("TOKEN_ID", False),
        ("TOKEN_TTL", False),
        ("SSH_AUTH_SOCK", False),
        ("TOKEN_URLS", True),
        ("HOME", False),
    ],
)
def test_a_variable_holds_a_secret_by_its_name(name, is_secret):
    assert secret_values({name: WORTH}) == ([WORTH] if is_secret else [])


@pytest.mark.parametrize(
    ("value", "is_worth_it"),
    [
        ("abcdefg1", True),
        ("abcdef1", False),
        ("abcdefgh", False),
        ("12345678", False),
        ("12:34:56.7", False),
        ("/home/bob1", False),
        ("https://a.example/x1", False),
        ("https://bob:x1@a.example", True),
        ("some-common-words", False),
        ("${SOME_NAME}", False),
        ("$SOMENAME1", False),
        ("a b1 c d e", True),
    ],
)
def test_a_value_is_looked_for_unless_ordinary_text_holds_it(value, is_worth_it):
    assert secret_values({"TOKEN": value}) == ([value] if is_worth_it else [])


def test_values_are_told_once_and_in_order():
    found = secret_values({"A_TOKEN": "zz-1234-zz", "B_TOKEN": "aa-1234-aa", "C_TOKEN": "zz-1234-zz", "HOME": WORTH})
    assert found == ["aa-1234-aa", "zz-1234-zz"]

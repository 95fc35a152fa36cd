"""Names that hold secrets only where data is: which they are, which values under them are none, and where a text holds them."""

from __future__ import annotations

import json

import pytest

from holdfast.core.redact import Redactor
from holdfast.core.secret_fields import LOGIN, command_after, in_text, kind_in_data
from holdfast.core.secret_names import Assignment

SECRET = "a1b2c3d4"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("pass", "password"),
        ("PASS", "password"),
        ("passwords", "password"),
        ("db_passwords", "password"),
        ("secrets", "secret"),
        ("CLIENT_SECRETS", "secret"),
        ("api_keys", "api_key"),
        ("apiKeys", "api_key"),
        ("private_keys", "private_key"),
        ("secret_access_keys", "aws_secret_key"),
        ("secret_keys", "api_key"),
        ("tokens", None),
        ("cookies", None),
        ("bypass", None),
        ("passes", None),
        ("secret", None),
        ("secretss", None),
        ("secrets_of", None),
        ("", None),
    ],
)
def test_a_name_holds_secrets_where_it_is_a_field(name, kind):
    assert kind_in_data(name, SECRET) == kind


@pytest.mark.parametrize(
    "value",
    [
        "",
        "None",
        "***",
        "${DB_PASSWORD}",
        "str",
        "required",
        "passed",
        "FAIL",
        "skipped",
        "100 %",
        "99.5%",
        "3 of 4",
        "12/12 tests",
        "5 tests passed",
        "DB_PASSWORD",
        "A_B2",
        "db_password",
        "the_client_secret",
        "/etc/passwd",
    ],
)
def test_what_is_no_secret_under_such_a_name_stays(value):
    assert kind_in_data("pass", value) is None


@pytest.mark.parametrize("value", [SECRET, "two words", "Passed!", "A2", "A_b", "1234567", "password-1", "1.23456"])
def test_all_else_under_such_a_name_is_one(value):
    assert kind_in_data("pass", value) == "password"


def test_the_name_of_a_secret_is_told_by_its_last_eighty_characters():
    assert kind_in_data("pass", "x" * 72 + "_token") is None
    assert kind_in_data("pass", "y" * 200 + "_db_password") is None
    assert kind_in_data("pass", "password" + "_" + "z" * 80) == "password"
    assert kind_in_data("pass", "dbpassword") == "password"


def found(text: bytes, is_list: bool, place: int = 0, name: tuple[int, int] = (1, 5)) -> list[Assignment]:
    return list(in_text(text, 7, name, is_list, place))


def test_one_string_is_taken_from_quote_to_quote_and_what_comes_after_it_is_left():
    text = b'"pass": "a1b2c3d4", "e5f6g7h8"'
    assert found(text, False, 7) == [Assignment(7, 9, 17, "password", 18)]
    assert found(text, True, 7) == [Assignment(7, 9, 17, "password", 18), Assignment(7, 21, 29, "password", 30)]


def test_of_a_list_what_is_no_secret_is_passed_over_and_the_rest_goes():
    text = b'"pass": "passed", \'e5f6g7h8\'\n,"q1'
    assert found(text, True, 7) == [
        Assignment(7, 19, 27, "password", 28),
        Assignment(7, 31, 33, "password", 34),
    ]
    assert found(text, False, 7) == []


def test_a_list_ends_where_no_string_follows():
    text = b'"pass": "a1b2c3d4"], "e5f6g7h8"'
    assert [one.start for one in found(text, True, 7)] == [9]
    assert found(b'"pass": 5', True, 7) == [] == found(b'"pass"', False, 6)


def test_a_string_that_is_escaped_in_a_text_ends_at_a_quote_escaped_as_deeply():
    text = rb"\"pass\": [\"a1b2\\\"c3\",\n \"e5f6g7h8\"]"
    taken = [text[one.start : one.end] for one in found(text, True, 11, (2, 6))]
    assert taken == [rb"a1b2\\\"c3", b"e5f6g7h8"]


def test_bytes_that_are_no_text_are_a_secret_too():
    text = b'"pass": "\xff\xfe\xff"'
    assert found(text, False, 7) == [Assignment(7, 9, 12, "password", 13)]


@pytest.mark.parametrize(
    ("items", "reached"),
    [
        (["docker", "login"], True),
        (["/usr/bin/docker", "login", "-u", "bob"], True),
        (["podman", "login"], True),
        (["nerdctl", "login"], True),
        (["buildah", "login"], True),
        (["sshpass"], True),
        (["/usr/bin/sshpass", "x"], True),
        (["sudo", "docker", "login"], True),
        (["docker", "run", "login"], False),
        (["docker", "/bin/login"], False),
        (["login"], False),
        (["docker"], False),
        (["dockerd", "login"], False),
        (["docker/", "login"], False),
        (["docker", "podman", "login"], True),
    ],
)
def test_a_command_takes_a_password_once_it_is_about_to_sign_in(items, reached):
    command = ""
    for item in items:
        command = command_after(command, item)
    assert (command == LOGIN) == reached


def test_what_leads_nowhere_begins_anew():
    engine = command_after("", "/usr/bin/docker")
    assert engine == command_after("", "docker") not in ("", LOGIN)
    assert command_after(engine, "run") == "" == command_after("", "login")
    assert command_after(command_after(command_after(engine, "--config"), "x"), "run") == ""
    assert command_after(LOGIN, "anything") == LOGIN


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("<password>Tr0ub4dor&amp;3</password>", "<password>[redacted:password]</password>"),
        (
            "<server><id>a</id><passphrase>harbour</passphrase>",
            "<server><id>a</id><passphrase>[redacted:password]</passphrase>",
        ),
        ("<soap:ApiKey>a1b2c3d4</soap:ApiKey>", "<soap:ApiKey>[redacted:api_key]</soap:ApiKey>"),
        (
            r'{"xml": "<db_password>a1b2c3<\/db_password>"}',
            r'{"xml": "<db_password>[redacted:password]<\/db_password>"}',
        ),
        ("<access_token>é-a1b2c3d4</access_token>", "<access_token>[redacted:token]</access_token>"),
    ],
)
def test_a_secret_between_two_tags_goes_and_the_tags_stay(text, clean):
    redactor = Redactor()
    assert redactor.text(text) == clean
    assert redactor.text(clean) == clean
    assert redactor.body(json.dumps({"said": text}).encode()) == json.dumps({"said": clean}).encode()
    stream = redactor.stream()
    assert "".join(stream.feed(letter) for letter in "x " * 4050 + text) + stream.flush() == "x " * 4050 + clean


@pytest.mark.parametrize(
    "text",
    [
        "<password>${env.DB_PASSWORD}</password>",
        "<Password>Password</Password>",
        "<password>Enter your password</password>",
        "<password></password>",
        "usage: login <user> <password>",
        "def read(self, key: Optional[Token]) -> Token: ...",
        "if token>5 and secret</x",
        "<max_tokens>4096</max_tokens><next_token>a1b2c3d4e5</next_token>",
        "impl From<Secret> for Option<Token> { }",
        "List<Token>tokens = new ArrayList<Token>();",
    ],
)
def test_tags_around_no_secret_stay_as_they_are(text):
    assert Redactor().text(text) == text


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (
            "next=https%3A%2F%2Fh%2F%3Ftoken%3Da1b2c3d4e5%26a%3D1&b=2",
            "next=https%3A%2F%2Fh%2F%3Ftoken%3D[redacted:token]%26a%3D1&b=2",
        ),
        ("password%3da1b2%40c3d4", "password%3d[redacted:password]"),
        ("u=%253Fpassword%253Da1b2c3d4", "u=%253Fpassword%253D[redacted:password]"),
        ("%7B%22password%22%3A+%22a1b2c3d4%22%7D", "%7B%22password%22%3A+%22[redacted:password]%22%7D"),
        (
            "- name: API_KEY\n  value: a1b2c3d4\n- name: x\n",
            "- name: API_KEY\n  value: [redacted:api_key]\n- name: x\n",
        ),
        ("- name: 'DB_PASSWORD'\n  value: 'two words'\n", "- name: 'DB_PASSWORD'\n  value: '[redacted:password]'\n"),
        ('[{"name": "DB_PASSWORD", "value": "a1b2"}]', '[{"name": "DB_PASSWORD", "value": "[redacted:password]"}]'),
        (
            r"{\"name\":\"DB_PASSWORD\", \"value\":\"a1b2\"}",
            r"{\"name\":\"DB_PASSWORD\", \"value\":\"[redacted:password]\"}",
        ),
    ],
)
def test_a_secret_in_an_encoded_address_or_in_a_pair_of_name_and_value_goes(text, clean):
    redactor = Redactor()
    assert redactor.text(text) == clean
    assert redactor.text(clean) == clean
    assert redactor.body(json.dumps({"said": text}).encode()) == json.dumps({"said": clean}).encode()
    stream = redactor.stream()
    assert "".join(stream.feed(letter) for letter in "x " * 4050 + text) + stream.flush() == "x " * 4050 + clean


@pytest.mark.parametrize(
    "text",
    [
        "next_token%3Da1b2c3d4e5%26max_tokens%3D4096",
        "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Atoken%3Ajwt",
        "password%3D",
        "- name: API_KEY\n  valueFrom:\n    secretKeyRef:\n      name: keys\n",
        "- name: API_KEY\n  value: ${API_KEY}\n",
        "- name: token\n  value: token\n",
        "name: PASSWORD\nvalue:\nother: x",
        "the token% of all",
    ],
)
def test_names_without_a_secret_beside_them_stay(text):
    assert Redactor().text(text) == text

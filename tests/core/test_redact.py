"""Secrets go, everything else stays: every kind, through every door, in every disguise. No secret-like literal stands here."""

from __future__ import annotations

import base64
import json
import random
import re
import string
import time
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.core import secret_rules
from holdfast.core.redact import HOLD, KINDS, WINDOW, Redactor, secret_values
from holdfast.core.secret_search import _FEW, SecretSearch

WORD = string.ascii_letters + string.digits
SLUG = WORD + "_-"
HEX = "0123456789abcdef"
UPPER = string.ascii_uppercase + string.digits
B32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"


def made(alphabet: str, length: int, seed: str = "") -> str:
    chance = random.Random(f"{alphabet}{length}{seed}")
    return "".join(chance.choice(alphabet) for _ in range(length))


def b64(data: bytes | str) -> str:
    return base64.b64encode(data.encode() if isinstance(data, str) else data).decode()


def url64(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def pem(name: str = "RSA ") -> str:
    body = b64(random.Random(name).randbytes(600))
    lines = "\n".join(body[i : i + 64] for i in range(0, len(body), 64))
    return f"-----BEGIN {name}PRIVATE" + f" KEY-----\n{lines}\n-----END {name}PRIVATE" + " KEY-----"


JWT = ".".join(["ey" + "J" + url64('{"alg":"HS256"}')[3:], url64('{"sub":"1234567890","name":"x"}'), made(SLUG, 43)])

# kind, the canary; each is put together from parts
TOKENS = {
    "aws_access_key_id": "AK" + "IA" + made(B32, 16),
    "github_token": "gh" + "p_" + made(WORD, 36),
    "github_fine_grained": "github" + "_pat_" + made(WORD, 22) + "_" + made(WORD, 59),
    "github_oauth": "gh" + "o_" + made(WORD, 36),
    "github_app": "gh" + "s_" + made(WORD, 36),
    "github_refresh": "gh" + "r_" + made(WORD, 76),
    "gitlab_token": "gl" + "pat-" + made(SLUG, 20),
    "slack_token": "xo" + "xb-" + made(string.digits, 12) + "-" + made(WORD, 24),
    "stripe_key": "sk" + "_live_" + made(WORD, 24),
    "webhook_secret": "wh" + "sec_" + made(WORD, 32),
    "anthropic_key": "sk-" + "ant-api03-" + made(SLUG, 93) + "AA",
    "openrouter_key": "sk-" + "or-v1-" + made(HEX, 64),
    "openai_key": "sk-" + "proj-" + made(SLUG, 80),
    "google_api_key": "AI" + "za" + made(SLUG, 35),
    "google_oauth_secret": "GOC" + "SPX-" + made(SLUG, 28),
    "google_oauth_token": "ya" + "29." + made(SLUG, 120),
    "google_refresh_token": "1/" + "/0" + made(SLUG, 60),
    "jwt": JWT,
    "npm_token": "npm" + "_" + made(WORD, 36),
    "pypi_token": "pypi" + "-AgEIcHlwaS5vcmc" + made(SLUG, 120),
    "sendgrid_key": "SG" + "." + made(SLUG, 22) + "." + made(SLUG, 43),
    "twilio_key": "S" + "K" + made(HEX, 32),
    "huggingface_token": "hf" + "_" + made(WORD, 34),
    "digitalocean_token": "dop" + "_v1_" + made(HEX, 64),
    "databricks_token": "da" + "pi" + made(HEX, 32),
    "telegram_token": made("123456789", 10) + ":A" + "A" + made(SLUG, 33),
    "discord_token": "M" + made(WORD, 25) + "." + made(WORD, 6) + "." + made(SLUG, 38),
    "mailgun_key": "ke" + "y-" + made(HEX, 32),
    "mailchimp_key": made(HEX, 32) + "-us" + "12",
    "square_token": "sq0" + "atp-" + made(SLUG, 22),
    "shopify_token": "shp" + "at_" + made(HEX, 32),
    "vault_token": "hv" + "s." + made(SLUG, 90),
    "doppler_token": "dp" + ".pt." + made(WORD, 43),
    "linear_key": "lin" + "_api_" + made(WORD, 40),
    "notion_token": "nt" + "n_" + made(WORD, 46),
    "docker_token": "dckr" + "_pat_" + made(SLUG, 27),
    "atlassian_token": "ATA" + "TT3" + made(SLUG, 180),
    "bitbucket_token": "AT" + "BB" + made(WORD, 32),
    "age_secret_key": "AGE-SECRET" + "-KEY-1" + made(UPPER, 58),
    "postman_key": "PM" + "AK-" + made(HEX, 24) + "-" + made(HEX, 34),
    "grafana_token": "gl" + "sa_" + made(WORD, 32) + "_" + made(HEX, 8),
    "newrelic_key": "NR" + "AK-" + made(UPPER, 27),
    "sentry_token": "snt" + "rys_" + made(WORD, 80),
    "replicate_token": "r" + "8_" + made(WORD, 37),
    "groq_key": "gs" + "k_" + made(WORD, 52),
    "xai_key": "xa" + "i-" + made(WORD, 80),
    "perplexity_key": "pp" + "lx-" + made(WORD, 48),
    "nvidia_key": "nv" + "api-" + made(SLUG, 64),
    "langsmith_key": "lsv2" + "_pt_" + made(HEX, 32) + "_" + made(HEX, 10),
    "cloudflare_key": "v1" + ".0-" + made(HEX, 24) + "-" + made(HEX, 146),
    "flyio_token": "fm" + "2_" + made(WORD, 120),
    "netlify_token": "nf" + "p_" + made(WORD, 40),
    "heroku_key": "HRKU" + "-AA" + made(SLUG, 58),
    "rubygems_key": "ruby" + "gems_" + made(HEX, 48),
    "crates_token": "ci" + "o" + made(WORD, 32),
    "pulumi_token": "pu" + "l-" + made(HEX, 40),
    "planetscale_token": "psc" + "ale_tkn_" + made(WORD, 43),
    "supabase_key": "sb" + "_secret_" + made(SLUG, 31),
    "airtable_token": "pa" + "t" + made(WORD, 14) + "." + made(HEX, 64),
    "figma_token": "fi" + "gd_" + made(SLUG, 40),
    "dropbox_token": "s" + "l." + made(SLUG, 135),
    "hubspot_token": "pat" + "-na1-" + "-".join(made(HEX, n, str(n)) for n in (8, 4, 4, 4, 12)),
    "tailscale_key": "ts" + "key-auth-" + made(WORD, 12) + "-" + made(WORD, 32),
    "onepassword_token": "ops" + "_eyJ" + made(WORD, 200),
    "buildkite_token": "bk" + "ua_" + made(HEX, 40),
    "circleci_token": "CCI" + "PAT_" + made(WORD, 22) + "_" + made(HEX, 40),
    "brevo_key": "xkey" + "sib-" + made(HEX, 64) + "-" + made(WORD, 16),
    "artifactory_key": "AK" + "Cp" + made(WORD, 69),
    "contentful_token": "CF" + "PAT-" + made(SLUG, 43),
    "terraform_token": "." + "atlasv1." + made(SLUG, 67),
    "prefect_key": "pn" + "u_" + made(WORD, 36),
    "azure_client_secret": made("123456789", 1) + "Q" + "~" + made(WORD, 34),
    "private_key": pem(),
}
WITHOUT_A_FIXED_BEGINNING = {"telegram_token", "discord_token", "mailchimp_key", "twilio_key"}
SECRET = made(WORD, 24, "phrase") + "7"
HOOK = made(WORD, 9) + "/" + made(WORD, 9, "b") + "/" + made(WORD, 24, "c")
# kind, text, the part that must go
PHRASES = {
    "slack_webhook": ("https://hooks." + "slack.com/services/" + HOOK, HOOK),
    "discord_webhook": ("https://discord" + ".com/api/webhooks/123456/" + SECRET * 3, SECRET),
    "teams_webhook": ("https://x.webhook" + ".office.com/webhookb2/" + made(HEX, 36), made(HEX, 36)),
    "putty_key": ("Private-" + f"Lines: 2\n{made(WORD, 64)}\n{made(WORD, 64, 'x')}\n", made(WORD, 64)),
    "azure_storage_key": ("AccountName=x;Account" + "Key=" + b64(made(WORD, 64)) + ";", b64(made(WORD, 64))),
    "azure_sas": ("https://a.example/c?sv=1&s" + "ig=" + made(WORD, 44), made(WORD, 44)),
    "aws_signature": ("https://a.example/?X-Amz-" + "Signature=" + made(HEX, 64), made(HEX, 64)),
    "url_password": (f"postgres://bob:{SECRET}@db.example:5432/app", SECRET),
    "authorization": (f"Authorization: Bearer {SECRET}", SECRET),
    "bearer_token": (f"sent bearer {SECRET} and more", SECRET),
    "basic_auth": (f"Basic {b64('bob:' + SECRET)}", b64("bob:" + SECRET)),
    "cookie": (f"Cookie: session={SECRET}; theme=dark", SECRET),
    "seed_phrase": ("seed phrase: " + " ".join(["zebra"] * 12), "zebra zebra"),
    "password": (f"password={SECRET}", SECRET),
    "api_key": (f"api_key: {SECRET}", SECRET),
    "token": (f"deploy --token {SECRET} now", SECRET),
    "secret": (f"CLIENT_SECRET={SECRET}", SECRET),
    "credential": (f'creds = "{SECRET}"', SECRET),
    "aws_secret_key": (f"aws_secret_access_key = {made(WORD + '/+', 40)}", made(WORD + "/+", 40)),
}
# The same for further shapes of a kind that has one above.
MORE = {
    "netrc": ("password", f"machine api.example login bob password {SECRET}", SECRET),
    "netrc over lines": ("password", f"machine api.example\n  login bob\n  account x\n  password {SECRET}", SECRET),
    "netrc without a user": ("password", f"machine api.example password {SECRET}", SECRET),
    "netrc of all others": ("password", f"default login bob password {SECRET}", SECRET),
    "a field called pass": ("password", f'{{"user": "bob", "pass": "{SECRET}"}}', SECRET),
    "a list of secrets": ("secret", f'{{"secrets": ["DB_PASSWORD", "{SECRET}"]}}', SECRET),
    "docker login": ("password", f"docker login -p {SECRET}", SECRET),
    "docker login with a user": ("password", f"docker login -u bob -p {SECRET} registry.example", SECRET),
    "docker login over lines": ("password", f"docker login -u bob \\\n  -p {SECRET}", SECRET),
    "docker login, long": ("password", f"docker login --password={SECRET} -u bob", SECRET),
    "docker login as a list": ("password", f"['docker', 'login', '-u', 'bob', '-p', '{SECRET}']", SECRET),
    "docker login behind options": ("password", f"docker --config ~/d -D login -p {SECRET}", SECRET),
    "docker login behind options over lines": ("password", f"docker \\\n --tls \\\n login -p {SECRET}", SECRET),
    "docker login behind options as a list": ("password", f"['docker', '-c', 'x', 'login', '-p', '{SECRET}']", SECRET),
    "docker login, two words": ("password", f"docker login -p 'two {SECRET}' registry.example", SECRET),
    "docker login, two words in a string": ("password", rf'"docker login -p \"two {SECRET}\" x"', SECRET),
    "docker login, two words as a list": ("password", f"['docker', 'login', '-p', 'two {SECRET}']", SECRET),
    "sshpass, two words": ("password", f"sshpass -p 'two {SECRET}' ssh x", SECRET),
    "curl, two words": ("basic_auth", f"curl -u 'bob:two {SECRET}' https://a.example", SECRET),
    "a token as user": ("url_password", f"https://{made(HEX, 40)}@git.example/a.git", made(HEX, 40)),
    "a token as user, with a password": ("url_password", f"https://{made(HEX, 40)}:x@git.example/a", made(HEX, 40)),
    "a token as password": ("url_password", f"https://oauth2:{made(HEX, 40)}@git.example/a", made(HEX, 40)),
    "a token behind its name": ("url_password", f"https://x-access-token:{made(HEX, 40)}@git.example", made(HEX, 40)),
}
CANARIES = {**{kind: (token, token) for kind, token in TOKENS.items()}, **PHRASES}
EXACT = 'Tr0ub4dor/&3 "q" \\ + =é'
REDACTOR = Redactor([EXACT])


def each_canary() -> pytest.MarkDecorator:
    every = [*((kind, text, secret) for kind, (text, secret) in CANARIES.items()), *MORE.values()]
    return pytest.mark.parametrize(("kind", "text", "secret"), every, ids=[*CANARIES, *MORE])


def test_every_kind_has_a_canary():
    assert KINDS - set(CANARIES) == {"env", "tangled"}
    assert len(KINDS) >= 35


# --- every door ---


@each_canary()
def test_a_secret_leaves_text_and_names_its_kind(kind, text, secret):
    clean = REDACTOR.text(f"before {text}\nafter")
    assert secret not in clean
    assert f"[redacted:{kind}]" in clean
    assert clean.startswith("before ") and clean.endswith("after")
    assert REDACTOR.text(clean) == clean


@each_canary()
@pytest.mark.parametrize("ascii_only", [True, False])
def test_a_secret_leaves_json_bytes_and_the_shape_stays(kind, text, secret, ascii_only):
    document = {"b": [1, 2.50, {"note": f"é {text}\nafter"}], "a": None, "n": 2**60}
    body = json.dumps(document, ensure_ascii=ascii_only).encode()
    clean = REDACTOR.body(body)
    assert json.dumps(secret)[1:-1].encode() not in clean
    read = json.loads(clean)
    assert list(read) == ["b", "a", "n"] and read["b"][:2] == [1, 2.5] and read["n"] == 2**60
    assert f"[redacted:{kind}]" in read["b"][2]["note"]
    assert REDACTOR.body(clean) == clean


@each_canary()
def test_a_secret_leaves_nested_data(kind, text, secret):
    value = {"a": [{"b": (text, 1, None, True)}], "c": 2.5}
    clean = REDACTOR.value(value)
    assert secret not in repr(clean)
    assert clean["c"] == 2.5 and clean["a"][0]["b"][1:] == (1, None, True)
    assert f"[redacted:{kind}]" in clean["a"][0]["b"][0]
    assert REDACTOR.value(clean) == clean


@each_canary()
def test_a_secret_leaves_json_inside_a_json_string(kind, text, secret):
    inner = json.dumps({"out": f"{text}\n"})
    for depth in range(3):
        clean = REDACTOR.body(json.dumps({"result": inner}).encode()).decode()
        longest = max(secret.split("\n"), key=len)
        assert longest not in clean, depth
        inner = json.dumps(inner)


@each_canary()
def test_a_secret_split_anywhere_in_a_stream_is_caught(kind, text, secret):
    whole = f"before {text}\nafter"
    expected = REDACTOR.text(whole)
    for cut in range(len(whole) + 1):
        stream = REDACTOR.stream()
        assert stream.feed(whole[:cut]) + stream.feed(whole[cut:]) + stream.flush() == expected


@pytest.mark.parametrize("kind", ["github_token", "password", "url_password", "token", "authorization", "basic_auth"])
@pytest.mark.parametrize("filler", ["§", "word, ", "§§§§\n"])
def test_a_secret_at_the_edge_of_the_window_is_caught(kind, filler):
    text, secret = CANARIES[kind]
    for offset in (*range(WINDOW - HOLD - 60, WINDOW - HOLD + 5), *range(WINDOW - 60, WINDOW + 5)):
        whole = (filler * WINDOW)[:offset] + " " + text + "\n" + (filler * WINDOW)[:WINDOW]
        stream = REDACTOR.stream()
        clean = stream.feed(whole) + stream.flush()
        assert clean == whole.replace(secret, f"[redacted:{kind}]")


@pytest.mark.parametrize("kind", sorted(set(TOKENS) - WITHOUT_A_FIXED_BEGINNING))
@pytest.mark.parametrize("before", ["", "x", "yy", "user:"])
def test_a_token_inside_base64_is_found_at_every_alignment(kind, before):
    secret = TOKENS[kind]
    edge = " " if before else ""
    for encoded in (b64(f"{before}{edge}{secret} tail"), url64(f"{before}{edge}{secret} tail")):
        clean = REDACTOR.text(f"data: {encoded}.")
        assert clean == f"data: [redacted:{kind}]."
        assert REDACTOR.value({"x": encoded}) == {"x": f"[redacted:{kind}]"}


def test_base64_that_follows_other_characters_of_its_alphabet_is_found():
    for before in ("/", "a/", "ab/", "abc/"):
        encoded = b64("x " + TOKENS["github_token"] + " tail")
        assert REDACTOR.text(f"see {before}{encoded} now") == "see [redacted:github_token] now"


def test_base64_wrapped_over_lines_is_found():
    encoded = base64.encodebytes(("x" * 30 + " " + TOKENS["github_token"] + " " + "y" * 200).encode()).decode()
    assert REDACTOR.text(f"begin\n{encoded}end") == "begin\n[redacted:github_token]\nend"


# --- exact values ---


def disguises(value: str):
    yield value
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield json.dumps(json.dumps(value))[3:-3]
    yield json.dumps(value)[1:-1].replace("/", "\\/")
    yield from (quote(value), quote(value, safe=""), quote_plus(value), quote(value).replace("%C3%A9", "%c3%a9"))


@pytest.mark.parametrize("index", range(9))
def test_an_exact_value_is_found_in_every_disguise(index):
    form = list(disguises(EXACT))[index]
    assert REDACTOR.text(f"<{form}>") == "<[redacted:env]>"
    assert json.loads(REDACTOR.body(json.dumps({"x": f"<{form}>"}).encode())) == {"x": "<[redacted:env]>"}


@pytest.mark.parametrize("before", ["", "a", "ab", "abc", "user:"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode, base64.encodebytes])
@pytest.mark.parametrize("value", [EXACT, made(WORD, 8), made(string.printable[:90], 300), made(WORD, 3000)], ids=len)
def test_an_exact_value_inside_base64_is_found_at_every_alignment(before, encode, value):
    encoded = encode(f"{before}{value} and a tail".encode()).decode()
    clean = Redactor([value]).text(encoded)
    assert "[redacted:env]" in clean
    rest = "".join(clean.split()).replace("[redacted:env]", "!")
    assert all(len(piece) < 32 for piece in rest.split("!"))


def test_a_long_value_with_lines_is_found_whole_and_in_parts():
    value = pem("EC ")
    redactor = Redactor([value])
    assert redactor.text(f"k={value}.") == "k=[redacted:private_key]."
    value = "\n".join(made(string.printable[:90], 70, str(n)) for n in range(80))
    redactor = Redactor([value])
    assert redactor.text(f"<{value}>") == "<[redacted:env]>"
    assert "[redacted:env]" in redactor.text(value[:200])
    stream = redactor.stream()
    clean = "".join(stream.feed(f"<{value}>"[i : i + 7]) for i in range(0, len(value) + 2, 7)) + stream.flush()
    assert clean.replace("[redacted:env]", "") == "<>"


def test_overlapping_values_leave_nothing_of_either():
    redactor = Redactor(["alpha-bravo-1", "bravo-1-charlie"])
    assert redactor.text("x alpha-bravo-1-charlie y") == "x [redacted:env] y"


@pytest.mark.parametrize("value", ["redacted", "[redacted:env]", "github_token", "", "abc"])
def test_a_value_that_would_eat_the_placeholders_is_ignored(value):
    text = f"see {TOKENS['github_token']} {value}"
    assert Redactor([value]).text(text) == f"see [redacted:github_token] {value}"


def test_values_come_only_from_secret_names_and_only_when_telling():
    good = {
        "GITHUB_TOKEN": "q" + SECRET,
        "db_password": "hunter2-hunter2",
        "MY_API_KEY": "k" + SECRET,
        "AWS_SECRET_ACCESS_KEY": "s" + SECRET,
        "Deploy_Pat": "p" + SECRET,
        "STRIPE_KEY2": "2" + SECRET,
        "AUTH_FOR_STAGING": "a" + SECRET,
        "mytokens": "m" + SECRET,
    }
    bad = {
        "PATH": "/usr/bin:/bin",
        "HOME": "/root",
        "PWD": "/work/space",
        "SSH_KEY_PATH": "/home/a/.ssh/id",
        "TOKEN_COUNT": "12345678",
        "SECRET_MODE": "disabled",
        "KEY_FILE": "/etc/key.pem",
        "USE_TOKEN": "true",
        "SHORT_TOKEN": "abc123",
        "KEYBOARD": "us-intl-1x2y3z",
        "KEY2_LAYOUT": "us-intl-1x2y3z",
        "OLDPWD": "work-1x2y3z",
        "COMPAT": "yes-1x2y3z",
        "TOKENIZERS_PARALLELISM": "false",
        "SECRET_NAME": "prod-db-1x",
        "AUTH_URL": "https://login.example/x1",
        "API_KEY": "${OTHER}",
    }
    assert secret_values({**good, **bad}) == sorted(good.values())
    assert secret_values({}) == []


# --- structure ---


SECRET_NAMES = [
    "password",
    "PASSWORD",
    "db_password",
    "token",
    "access_token",
    "accessToken",
    "api_key",
    "apiKey",
    "API-KEY",
    "x-api-key",
    "secret",
    "client_secret",
    "authorization",
    "Authorization",
    "private_key",
    "passphrase",
    "credentials",
    "aws_secret_access_key",
    "cookie",
    "DB_PASS",
    "SECRET_KEY",
    "token_2",
    "GITHUB_TOKEN_PROD",
    "connectionString",
    "userPassword",
    "pass",
    "Pass",
    "passwd",
    "pwd",
    "secrets",
    "client_secrets",
    "passwords",
    "apiKeys",
]


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_a_string_under_a_secret_name_is_replaced_whole(name):
    clean = REDACTOR.value({name: "two words", "n": {name: ["x y", 5, None]}})
    assert list(clean) == [name, "n"]
    assert clean[name].startswith("[redacted:") and clean["n"][name][0].startswith("[redacted:")
    assert clean["n"][name][1:] == [5, None]
    body = json.dumps({name: "two words", "n": {name: ["x y", 5, None]}}).encode()
    assert json.loads(REDACTOR.body(body)) == clean


def test_a_known_shape_under_a_secret_name_keeps_its_own_kind():
    assert REDACTOR.value({"token": TOKENS["npm_token"]}) == {"token": "[redacted:npm_token]"}
    assert REDACTOR.value({"token": TOKENS["npm_token"] + " and"}) == {"token": "[redacted:token]"}


@pytest.mark.parametrize("name", ["x-api-key", "Authorization", "PRIVATE-TOKEN", "DB_PASSWORD"])
@pytest.mark.parametrize("value", ["k3k9-41xq-zz", "Bearer k3k9-41xq-zz"])
def test_a_name_and_its_value_in_a_list_of_two_are_understood(name, value):
    data = {"headers": [["accept", "text/html5"], [name, value], [name, value]]}
    clean = Redactor().value(data)
    assert "k3k9" not in repr(clean)
    assert clean["headers"][0] == ["accept", "text/html5"]
    assert [pair[0] for pair in clean["headers"]] == ["accept", name, name]
    for body in (json.dumps(data).encode(), json.dumps(data, indent=1).encode()):
        assert json.loads(Redactor().body(body)) == clean
    assert Redactor().value(clean) == clean


@pytest.mark.parametrize(
    "items",
    [
        ["password", "email"],
        ["token", "user_id"],
        ["reset password", "task 12: send a mail"],
        ["password", "k3k9-41xq-zz", "email"],
        ["api_key", 12345678],
        ["k3k9-41xq-zz", "password"],
        ["retry_token", "0b5a1d4e-3a55-4c1f-9d1b-0f4f5ad0c9aa"],
    ],
)
def test_two_names_beside_each_other_are_no_pair(items):
    assert Redactor().value({"required": items}) == {"required": items}
    body = json.dumps({"required": items}).encode()
    assert Redactor().body(body) == body


@pytest.mark.parametrize("order", [("name", "value"), ("value", "name")])
def test_a_pair_of_name_and_value_is_understood(order):
    pair = {"name": "DB_PASSWORD", "value": "hunter2"}
    data = [{key: pair[key] for key in order}, {"name": "HOME", "value": "/root"}]
    clean = REDACTOR.value(data)
    assert clean[0]["value"] == "[redacted:password]" and clean[0]["name"] == "DB_PASSWORD" and clean[1] == data[1]
    assert json.loads(REDACTOR.body(json.dumps(data).encode())) == clean


@pytest.mark.parametrize(
    "argv",
    [
        ["docker", "login", "-u", "bob", "-p", "hunter2", "registry.example"],
        ["/usr/bin/podman", "login", "-p", "hunter2"],
        ["docker", "--config", "x", "--tls", "-l=info", "login", "-p", "hunter2"],
        ["sshpass", "-p", "hunter2", "ssh", "-p", "22"],
    ],
)
def test_the_password_among_the_arguments_of_a_command_is_taken(argv):
    clean = REDACTOR.value({"argv": argv})
    assert "hunter2" not in repr(clean) and "[redacted:password]" in clean["argv"]
    assert json.loads(REDACTOR.body(json.dumps({"argv": argv}).encode())) == clean
    assert REDACTOR.value(clean) == clean


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("docker login -p 'two words' a.example", "docker login -p '[redacted:password]' a.example"),
        ("""x 'docker login -p "two words" a' 'b c'""", """x 'docker login -p "[redacted:password]" a' 'b c'"""),
        ("sh -c 'sshpass -p hunter2 ssh x'", "sh -c 'sshpass -p [redacted:password] ssh x'"),
        ("curl -u 'bob:two words' 'a b'", "curl -u 'bob:[redacted:basic_auth]' 'a b'"),
    ],
)
def test_a_quoted_argument_of_a_command_goes_up_to_its_own_quote(text, clean):
    assert REDACTOR.text(text) == clean


def test_an_address_without_its_user_keeps_its_form_and_loses_its_password():
    known = Redactor(["Tr0ub4dor3"])
    assert known.text("https://Tr0ub4dor3@h.example") == "https://[redacted:env]@h.example"
    gone = "https://[redacted:env]:[redacted:url_password]@h.example"
    assert REDACTOR.text("https://[redacted:env]:hunter2@h.example") == gone == REDACTOR.text(gone)


@pytest.mark.parametrize(
    "flag", ["--password", "--token", "--api-key", "--client-secret", "-password", "--registry-token"]
)
def test_the_argument_after_a_secret_flag_is_taken(flag):
    argv = ["tool", flag, "hunter2", "--verbose", "hunter3"]
    assert REDACTOR.value(argv)[2].startswith("[redacted:")
    assert REDACTOR.value(argv)[3:] == argv[3:]
    assert json.loads(REDACTOR.body(json.dumps(argv).encode())) == REDACTOR.value(argv)
    assert "hunter2" not in REDACTOR.text(" ".join(argv)) and "hunter3" in REDACTOR.text(" ".join(argv))
    assert "hunter2" not in REDACTOR.text(f"{flag}=hunter2 -v")
    assert "hunter2" not in REDACTOR.text(repr(argv)) and "hunter3" in REDACTOR.text(repr(argv))


@pytest.mark.parametrize(
    "text",
    [
        "password=hunter2",
        "PASSWORD=hunter2",
        "export DB_PASSWORD=hunter2",
        "password: hunter2",
        "  password: hunter2\n  user: bob",
        '{"password": "hunter2"}',
        '{"password":"hunter2","a":1}',
        "{'password': 'hunter2'}",
        r"{\"password\": \"hunter2\"}",
        r'"{\\\"password\\\":\\\"hunter2\\\"}"',
        'password = "hunter2"',
        "password => 'hunter2'",
        "password := `hunter2`",
        "https://a.example/?password=hunter2&x=1",
        "config['password'] = 'hunter2'",
        "DB_PASS=hunter2",
        "secret_key='hunter2'",
        "password: str = 'hunter2'",
        "curl -u bob:hunter2 https://a.example",
        "sshpass -p hunter2 ssh x",
        "https://bob:hunter2@a.example/",
        "https://:hunter2@a.example/",
        r"https:\/\/bob:hunter2@a.example",
        "https%3A%2F%2Fbob%3Ahunter2%40a.example",
        "Authorization: hunter2",
        "authorization: token hunter2",
        "-H 'Authorization: Bearer hunter2'",
        "apiKey: 'hunter2'",
        "Server=x;Password=hunter2;User=y",
        "line one\\npassword=hunter2\\nline",
        "remote: git+ssh://bob:hunter2@host/x",
        'password="hun\\"hunter2"',
        "PASSWORD=x&;(hunter2",
        'password="never closed hunter2',
        "PGPASSWORD=hunter2 psql -h x",
        "API key: hunter2hunter2",
        "--password --token hunter2",
        'password: "a", token: "hunter2"',
        'password: hunter2, x="y"',
        'password="a"password="hunter2"',
        "spring.datasource.password=hunter2",
    ],
)
def test_an_assignment_to_a_secret_name_is_taken(text):
    clean = REDACTOR.text(text)
    assert "hunter2" not in clean and "[redacted:" in clean
    assert REDACTOR.text(clean) == clean
    assert "hunter2" not in REDACTOR.body(json.dumps({"out": text}).encode()).decode()


@pytest.mark.parametrize("before", ["\x1f", "\b", "\f", "é", "\n", "€", "😀"])
def test_a_token_right_after_an_escaped_character_is_found_in_json_bytes(before):
    for kind in ("aws_access_key_id", "mailgun_key", "twilio_key"):
        body = json.dumps([before + TOKENS[kind]]).encode()
        assert json.loads(REDACTOR.body(body)) == [f"{before}[redacted:{kind}]"]


def test_a_quote_that_closes_one_value_never_opens_the_next():
    clean = REDACTOR.text('password="' * 41)
    assert clean == 'password="[redacted:password]"' * 20 + 'password="'


@pytest.mark.parametrize(
    "text",
    [
        'f(password=rb"hunter1",token="hunter2")',
        "password = Rb'hunter1'\npwd = 'hunter2'",
        'password=\\"hunter1\npwd=hunter2',
        'password=\\\\\\"hunter1\ntoken="hunter2"',
    ],
)
def test_a_secret_right_behind_a_quoted_one_is_taken_however_that_was_opened(text):
    clean = REDACTOR.text(text)
    assert "hunter" not in clean and clean.count("[redacted:") == 2
    assert REDACTOR.text(clean) == clean


def test_user_and_host_of_an_address_stay():
    assert (
        REDACTOR.text("postgres://bob:hunter2@db.example:5432/app")
        == "postgres://bob:[redacted:url_password]@db.example:5432/app"
    )
    assert REDACTOR.text("https://bob:p@ss@h/x") == "https://bob:[redacted:url_password]@h/x"


def test_an_escaped_plain_character_hides_nothing():
    token = TOKENS["github_token"]
    hidden = "".join(f"\\u{ord(c):04x}" for c in token)
    assert REDACTOR.body(f'{{"x": "{hidden}"}}'.encode()) == b'{"x": "[redacted:github_token]"}'
    assert REDACTOR.body(rb'{"x": "https:\/\/bob:hunter2@h"}') == b'{"x": "https://bob:[redacted:url_password]@h"}'


@pytest.mark.parametrize("name", ["RSA ", "", "EC ", "OPENSSH ", "ENCRYPTED "])
def test_a_private_key_block_goes_whole(name):
    key = pem(name)
    assert REDACTOR.text(f"a\n{key}\nb") == "a\n[redacted:private_key]\nb"
    assert REDACTOR.text(json.dumps(f"a\n{key}\nb")) == '"a\\n[redacted:private_key]\\nb"'
    assert REDACTOR.text(key[:300]) == "[redacted:private_key]"
    assert b64(key)[40:80] not in REDACTOR.text(b64(key))
    public = key.replace("PRIVATE", "PUBLIC")
    assert REDACTOR.text(public) == public


ROWS = {
    "numbered": lambda at, line: f"{at:6}\t{line}",
    "found": lambda at, line: f"keys/id_rsa:{at}:{line}",
    "read by a tool": lambda at, line: f"{at:6}→{line}",
    "taken away": lambda at, line: f"-{line}",
    "quoted": lambda at, line: f"> {line}",
    "a remark": lambda at, line: f"# {line}",
    "of a container": lambda at, line: f"web_1  | {line}",
    "with its time": lambda at, line: f"2026-01-02T03:04:05.123456789Z {line}",
    "painted": lambda at, line: f"\x1b[32m{line}\x1b[0m",
    "with the line ends of another system": lambda at, line: f"{at} {line}\r",
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("name", ["RSA ", "OPENSSH "])
def test_a_private_key_whose_lines_stand_behind_something_goes_whole(name, row):
    key = pem(name)
    if name == "RSA ":  # encrypted
        key = key.replace("-----\n", f"-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,{made(HEX, 32)}\n\n", 1)
    shown = "\n".join(row(at, line) for at, line in enumerate(key.split("\n"), 1))
    text = f"$ cat id_rsa\n{shown}\n{'the rest stays, also ' + made(HEX, 64)}\n"
    parts = [line[-20:] for line in key.split("\n")[1:-1] if ":" not in line and line]
    for form in (text, json.dumps(text), json.dumps(json.dumps(text))):
        clean = REDACTOR.text(form)
        assert "[redacted:private_key]" in clean
        assert not [part for part in parts if part in clean]
        assert f"the rest stays, also {made(HEX, 64)}" in clean
        assert REDACTOR.text(clean) == clean
        cut = REDACTOR.text(form[: len(form) // 2])
        assert not [part for part in parts if part in cut]


def test_a_percent_encoded_private_key_goes_whole():
    for encode in (quote, quote_plus):
        text = f"user=me&key={encode(pem(), safe='')}&end=1"
        assert REDACTOR.text(text) == "user=me&key=[redacted:private_key]&end=1"


def test_what_stands_behind_the_mention_of_a_private_key_stays():
    begin = "-----BEGIN RSA PRIVATE" + " KEY-----"
    for text in (
        f"The file begins with `{begin}`.\nIts lines have 64 characters each, and commit {made(HEX, 40)} adds one.\n",
        f'    if text.startswith("{begin}"):\n        return "a key"  # src/holdfast/core/secret_rules.py\n',
        f"1: {begin}\n2: ...\n3: the end\n",
    ):
        assert REDACTOR.text(text) == text.replace(begin, "[redacted:private_key]")


# --- what must stay ---

UUID = "01890a5d-ac96-774b-bcce-b302099a8057"
HARMLESS = [
    made(HEX, 40),
    f"https://git.example/a/commit/{made(HEX, 40)}",
    f"https://git.example/a.git@{made(HEX, 40)}",
    f"git+https://git.example/a.git@{made(HEX, 40)}#egg=a",
    "machine learning password manager",
    "the default login password field",
    "docker login -p flag is not safe",
    "docker login --password-stdin",
    "docker run --name login -p 8080:80 image",
    "docker --config x run --name login -p 8080:80 image",
    '["docker", "--config", "x", "run", "--name", "login", "-p", "8080:80"]',
    "the first pass: a1b2c3d4",
    '<a accesskey="p" href="index.html">',
    "<button accessKey={'s'}>",
    "secrets:\n  my_cert:\n    file: ./cert.pem",
    '{"secrets": ["DB_PASSWORD", "db_password"], "pass": "passed"}',
    '{"bypass": "a1b2c3d4", "compass": "north", "tokens": ["a1b2c3d4"]}',
    *(
        f'{{"pass": "{count}"}}'
        for count in ("3", "0.98", "100%", "12/12", "2 of 3", "5 passed", "7 of 8 tests", "all")
    ),
    made(HEX, 64),
    made(HEX, 7),
    made(HEX, 12),
    made(HEX, 32),
    f"commit {made(HEX, 40)}\nAuthor: A <a@b.example>",
    f"sha256:{made(HEX, 64)}",
    f"sha512-{b64(random.Random(5).randbytes(64))}",
    f"sha1-{b64(random.Random(6).randbytes(20))}",
    UUID,
    UUID.upper(),
    "01ARZ3NDEKTSV4RRFFQ69G5FAV",
    "2026-01-02T03:04:05.678901Z",
    "2026-01-02 03:04:05+00:00",
    "/home/bob/projects/token/secret_key.py",
    "src/holdfast/core/secret_names.py:12:3: E501",
    "C:\\Users\\bob\\password.txt",
    "run-01890a5d",
    "task-0123456789abcdefghijklmnop",
    "the token budget is small",
    "tokens: 1234",
    "max_tokens=4096",
    "max_tokens: 4096",
    "token_count: 99",
    '"max_tokens": 4096',
    "input_tokens: 12, output_tokens: 34",
    "Enter your password to continue.",
    "The password is wrong: try again.",
    "a secret of success: work",
    "Invalid password: please retry",
    "idempotency_key: abc-1-2",
    "primary_key: user_id1",
    "key: value",
    "effect_key=step-1/attempt-2",
    f"retry_token={UUID}",
    f'"retry_token": "{UUID}"',
    "next_page_token: abcDEF123456",
    "public_key = abc123def456",
    "token=token",
    "f(token=token, password=password)",
    "password=self.password,",
    "token = get_token()",
    "password: str",
    "password: str | None = None",
    "token: Optional[str] = None",
    "password = os.environ['DB_PASSWORD']",
    "TOKEN=$GITHUB_TOKEN",
    "TOKEN=${GITHUB_TOKEN}",
    "password: ${{ secrets.PW }}",
    "password=<your password>",
    "password=",
    'password=""',
    "password: ********",
    "--password",
    "use --token to sign in",
    "--token-file x.txt",
    "--max-tokens 5",
    "https://a.example:8080/x@v1",
    "git@github.com:a/b.git",
    "ssh://git@host:22/x",
    "https://bob@host/",
    "http://h:80/?mail=a@b.example",
    "pip install a@b",
    "Basic authentication is off",
    "bearer of good news and tidings",
    "Bearer authentication",
    "mid-sk-word",
    "sk-learn",
    "npm_config_registry=x",
    "AKIA",
    "ghp_",
    "eyJ.eyJ",
    "a.b.c",
    "xoxo-hugs",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "docker run -u 1000:1000 x",
    "sort -u a:b",
    "PWD=/work/main",
    "OLDPWD=/work/main",
    "GOOGLE_APPLICATION_CREDENTIALS=/etc/gcp.json",
    "credentials: include",
    "Token::new()",
    "type Token = string;",
    "tokenizer: fast",
    "passwordless: yes1234567",
    "secrets: inherit",
    "authorization: required",
    b64(b"plain text, nothing to hide here"),
    "getpass('Password: ')",
    'input("Your password: ") + x',
    'if token == "(":',
    "self.password = user",
    'PASSWORD = "PASSWORD"',
    "jsonwebtoken: ^8.5.1",
    '"tough-cookie": "npm:^4.0.0"',
    "_highs_to_scipy_status_message_of_things",
    'headers["Authorization"] = "Bearer " + x',
    "SERVER_AUTH = '1.3.6.1'",
    "pass: 12, fail: 0",
    "compass=north",
    "0.1.2-beta+build.5",
    "abc" * 100,
    "é" * 50,
    "https://example.com/?sig=abc",
    "x-us1",
    "\ud800 lone",
    "\x00\x01",
]


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_stays(text):
    assert REDACTOR.text(text) == text
    assert REDACTOR.value({"x": [text]}) == {"x": [text]}
    body = json.dumps({"x": [text], "y": 1.0}).encode()
    assert REDACTOR.body(body) == body
    stream = REDACTOR.stream()
    assert stream.feed(text) + stream.flush() == text


def test_fields_that_only_sound_secret_stay():
    value = {
        "retry_token": UUID,
        "token_count": 5,
        "max_tokens": 10,
        "tokens": ["the", "cat"],
        "key": "abc",
        "primary_key": "id9",
        "idempotency_key": "a1b2c3d4e5",
        "effect_key": "step-9",
        "next_page_token": "CAUQAA1234",
        "eos_token": "</s>",
        "password": None,
        "secret": True,
        "token": "",
        "token_type": "bearer",
        "public_key": "ssh-ed25519 AAAAC3",
        "commit": made(HEX, 40),
        "password_file": "/run/pw",
        "author": "x",
        "authorized": "yes",
        "secretary": "Ann",
        "lease_token": UUID,
        "handoff_token": UUID,
        "plan_token": "01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "seen_token": "1234567",
        "token_id": "t-1",
        "cookie_policy": "strict",
        "passed": "all",
        "input_hash": made(HEX, 64),
    }
    assert REDACTOR.value(value) == value
    body = json.dumps(value).encode()
    assert REDACTOR.body(body) == body


def test_a_clean_body_comes_back_as_the_same_object():
    body = b'{"a":"b","n":1e400,"big":9007199254740993}'
    assert REDACTOR.body(body) is body
    text = "nothing here"
    assert REDACTOR.text(text) is text


def test_numbers_blanks_and_repeated_keys_are_kept_to_the_byte():
    token = TOKENS["github_token"]
    body = f'{{ "a" : 1.50,"a":-0.0 , "x":"{token}", "n":9007199254740993, "e":1E5, "é":"\\u00e9" }}'.encode()
    assert REDACTOR.body(body) == body.replace(token.encode(), b"[redacted:github_token]")


def test_lone_surrogates_do_no_harm():
    token = TOKENS["github_token"]
    assert REDACTOR.text(f"\ud800 {token} \udfff") == "\ud800 [redacted:github_token] \udfff"
    clean = REDACTOR.body(json.dumps({"x": f"\ud800 {token}"}).encode())
    assert json.loads(clean) == {"x": "\ud800 [redacted:github_token]"}
    assert REDACTOR.value(["\udcff password=hunter2"]) == ["\udcff password=[redacted:password]"]


# --- properties ---

CLEAN = st.text(max_size=40)
SOME_CANARY = st.sampled_from([text for text, _ in CANARIES.values()])
FRAGMENT = st.sampled_from(
    [
        "\x1f",
        "\t",
        "\x0c",
        "\r\n",
        "-u bob:",
        "curl ",
        "password",
        "token",
        "api_key",
        "=",
        ":",
        '"',
        "\\",
        "'",
        " ",
        "\n",
        "\\n",
        "--",
        "[redacted:env]",
        "[redacted:",
        "]",
        "://",
        "@",
        "Bearer ",
        "Basic ",
        "{",
        "}",
        ",",
        "eyJ",
        ".",
        "-----BEGIN RSA PRIVATE KEY-----",
        "é",
        "\ud800",
        "sk-",
        "a",
        "7",
        EXACT,
    ]
)
LOOSE = st.lists(st.one_of(CLEAN, FRAGMENT), max_size=8).map("".join)
MIXED = st.lists(st.one_of(CLEAN, SOME_CANARY, FRAGMENT, FRAGMENT), max_size=12).map("".join)
TREE = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), MIXED),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.sampled_from([*SECRET_NAMES, "name", "value", "x"]), MIXED), inner, max_size=4),
    ),
    max_leaves=12,
)
OFTEN = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def shape(value: object) -> object:
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value]
    return "text" if isinstance(value, str) else value


@OFTEN
@given(TREE)
def test_json_bytes_keep_their_shape_and_agree_with_plain_data(value):
    expected = REDACTOR.value(value)
    assert shape(expected) == shape(value)
    for ascii_only in (True, False):
        body = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
        clean = REDACTOR.body(body)
        assert json.loads(clean) == expected
        assert REDACTOR.body(clean) == clean


@OFTEN
@given(MIXED)
def test_redacting_twice_changes_nothing_more(text):
    once = REDACTOR.text(text)
    assert REDACTOR.text(once) == once


@OFTEN
@given(st.lists(LOOSE, max_size=6), st.data())
def test_no_canary_survives_any_surroundings(parts, data):
    name = data.draw(st.sampled_from(sorted(TOKENS)))
    text = " ".join([*parts, TOKENS[name], *parts])
    clean = REDACTOR.text(text)
    assert TOKENS[name] not in clean
    assert TOKENS[name] not in json.loads(REDACTOR.body(json.dumps([text]).encode()))[0]


@OFTEN
@given(MIXED, st.lists(st.integers(0, 400), max_size=8))
def test_a_stream_does_not_depend_on_its_chunks(text, cuts):
    stream = REDACTOR.stream()
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    out = "".join(stream.feed(text[a:b]) for a, b in pairwise(places)) + stream.flush()
    assert out == REDACTOR.text(text)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.integers(1, 9000), min_size=1, max_size=30))
def test_a_long_stream_does_not_depend_on_its_chunks(seed, sizes):
    chance = random.Random(seed)
    words = [
        "word ",
        "line\n",
        "x" * 300,
        "\n",
        *(f" {text} " for text, _ in CANARIES.values()),
        'password="',
        "-----BEGIN RSA PRIVATE" + " KEY-----\n" + "A" * 9000,
    ]
    text = "".join(chance.choice(words) for _ in range(120))
    whole = REDACTOR.stream()
    expected = whole.feed(text) + whole.flush()
    out: list[str] = []
    chunked, place = REDACTOR.stream(), 0
    while place < len(text):
        size = sizes[len(out) % len(sizes)]
        out.append(chunked.feed(text[place : place + size]))
        place += size
    assert "".join(out) + chunked.flush() == expected
    for kind in ("github_token", "npm_token", "jwt", "stripe_key"):
        assert TOKENS[kind] not in expected


# --- cost ---

ADVERSARIAL = {
    "letters": "a",
    "quotes": '"',
    "backslashes": "\\",
    "openings": 'password="',
    "deep openings": 'password=\\\\\\"',
    "unclosed": "password='\"",
    "heads": "ghp_",
    "pem": "-----BEGIN RSA PRIVATE KEY-----",
    "pem words": "-----BEGIN PRIVATE KEY----- A",
    "dots": "eyJabcdefgh.",
    "urls": "://a:b",
    "ats": "://a:@",
    "base64": b64("ghp_" * 9),
    "flags": "--password ",
    "elements": "<token>x",
    "coded": "token%3D%22",
    "pairs": 'name: "token", value: "',
    "names": "token",
    "name runs": "a_password_",
    "equals": "password=",
    "bearer": "bearer ",
    "tokens": "gh" + "p_" + made(WORD, 36) + " ",
    "braces": "{[",
    "placeholders": "[redacted:env]",
    "percent": "%3a%2f%2fa%3a",
    "discord": "M" + "a" * 25 + ".",
    "assignments": "password=x ",
    "exact": EXACT,
    "netrc": "machine a.b login c ",
    "netrc gaps": "machine " + " " * 20,
    "docker": "docker login ",
    "docker arguments": "docker login -u a ",
    "docker options": "docker -a b ",
    "open arguments": "sshpass -p 'a ",
    "fields": '"pass": "',
    "lists": '"secrets": ["',
    "items": '"secrets": ["a1", ',
    "hex users": "://" + made(HEX, 40),
    "users that are gone": "://[redacted:env]:",
}


def spent(text: str) -> float:
    begin = time.process_time()
    REDACTOR.text(text)
    REDACTOR.body(json.dumps([text]).encode())
    return time.process_time() - begin


@pytest.mark.parametrize("name", sorted(ADVERSARIAL))
def test_the_cost_grows_with_the_length_and_no_faster(name):
    unit = ADVERSARIAL[name]
    small, large = (unit * (size // len(unit)) for size in (15_000, 150_000))
    ratios = (spent(large) / max(spent(small), 0.0005) for _ in range(3))
    assert any(ratio < 30 for ratio in ratios)


def test_a_text_that_never_comes_to_rest_is_taken_whole():
    chained = made(WORD, 12) + ("AK" + "IA" + made(B32, 16)) * 3
    clean = Redactor([chained[:12]]).text(chained)
    assert Redactor([chained[:12]]).text(clean) == clean


def test_values_that_grow_out_of_each_others_placeholders_end_in_one():
    values = [made(WORD, 12), *(f"[redacted:env]step{number}" for number in range(20))]
    chained = values[0] + "".join(f"step{number}" for number in range(20))
    assert Redactor(values).text("before " + chained) == "[redacted:tangled]"
    assert Redactor(values).text("before " + chained[:27]) == "before [redacted:env]"


def test_bytes_that_are_no_text_and_escapes_that_are_none_hide_nothing():
    token = TOKENS["github_token"].encode()
    assert REDACTOR.body(b'{"a":"\\x %b"}' % token) == b'{"a":"\\\\x [redacted:github_token]"}'
    assert REDACTOR.body(b'{"a":"\xff %b"}' % token) == '{"a":"\ufffd [redacted:github_token]"}'.encode()
    assert REDACTOR.body(b'{"a":"\xff","b":"%b"}' % token) == b'{"a":"\xff","b":"[redacted:github_token]"}'


def test_a_quoted_argument_after_a_secret_flag_goes_and_its_quotes_stay():
    value = made(WORD, 12)
    assert REDACTOR.text(f"run --password '{value}' now") == "run --password '[redacted:password]' now"
    assert REDACTOR.text("run --password --verbose") == "run --password --verbose"


def test_a_flag_that_switches_a_way_to_sign_in_is_no_secret():
    assert REDACTOR.text("run --use_auth kerberos5x now") == "run --use_auth kerberos5x now"


def test_a_secret_longer_than_the_window_goes_whole_and_the_rest_stays():
    for opening, closing in (("gh" + "p_", " end"), ('password="', '" end'), ("password=", " end")):
        whole = f"start\n{opening}{'q7' * 3 * WINDOW}{closing}"
        stream = REDACTOR.stream()
        clean = stream.feed(whole) + stream.flush()
        assert (
            "q7q7" not in clean
            and clean.startswith("start\n")
            and clean.endswith("end")
            and clean.count("[redacted:") == 1
        )


def test_a_stream_holds_back_no_more_than_its_window():
    stream = REDACTOR.stream()
    given_back = sum(len(stream.feed("plain words\n")) for _ in range(5000))
    assert 5000 * 12 - given_back <= WINDOW


def test_the_page_lists_every_kind():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "redaction.md").read_text("utf-8")
    listed = page.split("<!-- kinds: begin -->")[1].split("<!-- kinds: end -->")[0]
    assert set(re.findall(r"`(\w+)`", listed)) == KINDS


# --- the glance ---

_SEARCH = SecretSearch(["correct horse battery staple"])


@given(st.data())
@settings(max_examples=400)
def test_the_glance_misses_nothing_that_the_closer_look_would_find(data):
    lead = data.draw(st.sampled_from(_SEARCH._leads))
    seen = data.draw(st.from_regex(lead.trigger.encode("ascii")))
    assert not _SEARCH.look(seen) or _SEARCH.glance(seen)


@pytest.mark.parametrize(
    "said", ['{"patch_id":"5dcabe0c55bd"}', "see path/to/a.file", "a pattern", "cio_x.y", "dapi/calls"]
)
def test_words_that_a_token_could_begin_with_call_for_no_closer_look(said):
    assert not _SEARCH.glance(said.encode())


def test_every_rule_is_within_what_the_glance_asks_for():
    for rule in secret_rules.TOKENS:
        allowed = set(re.findall(f"[{rule.chars}]", "".join(map(chr, range(256)))))
        assert rule.least >= _FEW
        assert all(re.match(f"[{secret_rules.ANY_TOKEN}]", char) for char in allowed), rule.kind

"""Which names hold secrets (`password`, `api_key`, `--token`), and where their values stand in text.

It judges names and the values beside them. It knows no token shapes; those are in `secret_rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from holdfast.core.named import NamedTuple
from holdfast.core.secret_forms import bytes_pattern, text_pattern

JOIN = "[_. -]?"

# Order matters: the first kind whose pattern ends the name wins.
NAMES: tuple[tuple[str, str], ...] = (
    ("aws_secret_key", f"secret{JOIN}access{JOIN}key"),
    (
        "api_key",
        f"(?:api|access|secret|auth|license|app|application|consumer|subscription|admin|role|account){JOIN}key",
    ),
    ("private_key", f"(?:private|ssh|deploy|signing|signature|encryption|encrypt|master|hmac|cipher|crypto){JOIN}key"),
    ("password", f"pass(?:word|wd|phrase|code)|pwd|[_-]pass|user{JOIN}pass|[_-]pw"),
    ("token", "token"),
    ("secret", f"secret|connection{JOIN}string|conn{JOIN}str|seed{JOIN}phrase|mnemonic|_auth"),
    ("credential", "credentials?|creds"),
    ("authorization", "authorization"),
    ("cookie", "cookie"),
)
KINDS = tuple(kind for kind, _ in NAMES)

_ENDINGS = (
    "[0-9]{1,3}|base|value|prod|production|dev|staging|test|live|old|new|current|previous|primary|secondary|ci|main"
    "|raw|plain|plaintext|b64|base64"
)
_ANY = "|".join(pattern for _, pattern in NAMES)
NAME = f"(?i:(?:{_ANY})(?:{JOIN}(?:{_ENDINGS}))?)"

GAP = r"(?:\s|\\+[nrt])"
_OPEN = r"[bBrRfFuU]{0,2}\\{0,15}[\"'`]"
_TYPE = r"[A-Za-z_][A-Za-z_.]{0,30}(?:\[[A-Za-z_., ]{0,30}\])?(?: \| [A-Za-z]{1,10})?"
ASSIGN_END = rf"[\"'`\\\])]*{GAP}*[:=]"
PAIR_END = r"\s*\"\s*[,}]"
ASSIGN = (
    rf"({NAME})\\{{0,15}}[\"'`]?[\])]?{GAP}{{0,4}}"
    rf"(?::[ ]{{0,4}}{_TYPE}[ ]{{0,4}}=[ ]{{0,4}}({_OPEN})|(=>|:=|={{1,3}}|:)({GAP}{{0,4}})({_OPEN})?)"
)
_FLAG_EDGE = r"(?:^|[\s\"'`,(\[=]|\\+[nrtbf]|\\u[0-9a-fA-F]{4})"
FLAG_TRIGGER = rf"{_FLAG_EDGE}--?[A-Za-z0-9_-]*(?:{NAME})[\"'\\]*(?:[\s,]|\\+[nrt])"
FLAG = rf"{_FLAG_EDGE}--?([A-Za-z0-9_-]*(?:{NAME}))\\{{0,15}}[\"']?(?:[\s,]|\\+[nrt]){{1,4}}({_OPEN})?"


Groups: TypeAlias = Sequence[tuple[int, int]]


class Assignment(NamedTuple):
    """Where a name begins, where the secret beside it begins and ends, and where to read on."""

    reach: int
    start: int
    end: int
    kind: str
    after: int


Judge: TypeAlias = Callable[[bytes, Groups, int], Assignment | None]


_BACK = 80  # how far a name may reach
_LONG = 2000  # longer values are never harmless
_KIND_OF = [(kind, f"(?i)(?:{pattern})$") for kind, pattern in NAMES]
_ENDING = f"(?i){JOIN}(?:{_ENDINGS})$"
_SIGN_IN = (
    r"(?i)(?:^|[_.-]|(?<=[a-z0-9])(?=[A-Z]))(?:access|auth|api|bearer|refresh|session|id|csrf|xsrf|secret|personal|private|"
    r"oauth2?|bot|deploy|security|user|app|service|github|gitlab|gh|npm|pypi|slack|hf|vault|registry|publish|admin|"
    r"login|client|device|master|write|read|pat)[_.-]?token$"
)
_PAGING = (
    r"(?i)(?:next|prev|previous|page|continuation|pagination|sync|cursor|start|starting|resume|max|min|num|stop|eos|bos|pad|"
    r"unk|mask|sep|cls|special|first|last|input|output|prompt|completion|cancel|cancellation|request|fencing|fence|"
    r"lease|claim|per|retry|of)[_.-]?token$"
)


@lru_cache(maxsize=1024)
def name_kind(name: str) -> str | None:
    """The kind of secret that a name promises, or None. `weak_token` is a token that may also be a harmless id."""
    if name[-5:].lower() == "_auth" and len(name) > 5:
        return None
    for candidate in (name, text_pattern(_ENDING).sub("", name)):
        for kind, pattern in _KIND_OF:
            if text_pattern(pattern).search(candidate):
                return _token_kind(candidate) if kind == "token" else kind
    return None


def _token_kind(name: str) -> str:
    if text_pattern(_SIGN_IN).search(name):
        return "token"
    return "counted_token" if text_pattern(_PAGING).search(name) else "weak_token"


_ID = (
    r"(?i:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"  # UUID
    r"|[0-7][0-9A-HJKMNP-TV-Z]{25}"  # ULID
    r"|[0-9][0-9_,.]*"
)
_SMALL = (
    r"[0-9]{1,5}|(?:npm:|workspace:)?[~^<>=v]*[0-9]+(?:\.[0-9x*]+){1,3}(?:[.+-][\w.+-]{0,20})?"  # a number, a version
)
_NOTHING = r"(?i:none|null|nil|true|false|undefined|unset|empty|hidden|masked|redacted|n/a)|[*.xX•#-]+|…+"
JUST_A_WORD = (
    r"(?i:str|string|bytes|bool|boolean|int|integer|number|any|object|optional|required|missing|invalid|unknown|yes|no|"
    r"incomplete|secretstr|secretbytes|on|off|ok|enabled|disabled|include|omit|same-origin|inherit|password|passwd|secret|token|credentials?|"
    r"api[_-]?key|bearer|basic|digest)"
)
_REFERENCE = (
    r"\$\{?[A-Za-z_][\w.:-]*\}?|\$\{\{[^}]*\}\}|\$\(.*|%[A-Za-z_]\w*%"
    r"|%\(?\w*\)?[sdr]|\{\{?[^{}]*\}?\}|<[^<>]*>|\[[A-Za-z _-]*\]"
    r"|(?i:bearer|basic|token)\s*(?:%s|[{$<].*)?"
)
_CODE = (
    r"(?i:[a-z_][a-z_]*(?:\.[a-z_][a-z_]*)+"
    r"|[a-z_]*(?:password|passwd|token|secret|key|pass|pw|pwd|cred|creds|credentials|auth|value|default|arg|env)s?)"
)
_PATH = r"(?:~|\.{0,2})/[\w./ @+-]*|[A-Za-z]:\\.*"
_STOP_WORDS = frozenset(
    [
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "been",
        "but",
        "by",
        "can",
        "for",
        "from",
        "has",
        "have",
        "if",
        "in",
        "into",
        "is",
        "it",
        "its",
        "may",
        "must",
        "no",
        "not",
        "of",
        "on",
        "or",
        "over",
        "per",
        "so",
        "than",
        "that",
        "the",
        "then",
        "this",
        "to",
        "use",
        "used",
        "using",
        "value",
        "was",
        "when",
        "where",
        "which",
        "will",
        "with",
        "flag",
        "option",
        "argument",
        "before",
        "after",
    ]
)
_DATE = r"\d{4}-\d\d-\d\d.*|\d\d?:\d\d.*|https?:.*"


def harmless(kind: str, value: str) -> bool:
    """Is this value, standing beside a secret-named name, no secret after all?"""
    if len(value) > _LONG:
        return False
    if not value or kind == "counted_token" or text_pattern(f"{_NOTHING}|{_REFERENCE}").fullmatch(value):
        return True
    if kind == "weak_token" and text_pattern(_ID).fullmatch(value):
        return True
    if kind != "password" and text_pattern(_SMALL).fullmatch(value):
        return True
    return kind in ("credential", "private_key", "password") and text_pattern(_PATH).fullmatch(value) is not None


def kind_of_field(name: str, value: str) -> str | None:
    """The kind to replace a whole string field with, or None when the field is no secret."""
    kind = name_kind(name[-_BACK:])
    return None if kind is None or harmless(kind, value) else shown(kind)


_ONE_WORD = r"(?i:(?:bearer|basic|token|digest) +)?\S+"


def names_its_value(name: str, value: str) -> bool:
    """`["X-Api-Key", "f3k9-..."]` is a name and its value; two names beside each other, or two sentences, are not."""
    return (
        len(name) <= _BACK
        and " " not in name
        and text_pattern(_ONE_WORD).fullmatch(value) is not None
        and looks_random(value)
        and kind_of_field(name, value) is not None
    )


def is_flag(text: str) -> bool:
    """Is this the command-line flag that takes a secret as its next argument?"""
    return text.startswith("-") and len(text) < 80 and " " not in text and name_kind(text) is not None


def shown(kind: str) -> str:
    return "token" if kind.endswith("_token") else kind


_NAME_BEFORE = rb"[A-Za-z0-9_.-]*$"
_LINE_LEAD = rb"(?:^|[\n]|\\+n)[\s+>*#-]*(?:(?:export|set|setx|ENV|env|ARG|declare -x)\s+)?$"
_PREFIXES = b"bBrRfFuU"  # of a string in a line of code
_QUOTES = rb"(\\*)([\"'`\n])"
_STRING_LEAD = rb"(?:^|[\s(\[{=,+])(\\*[\"'`])[A-Za-z ]{0,60}$"
_BLANK_TO_FILL = rb"<[A-Za-z0-9 _.-]{1,60}>"
_UNTIL_SPACE = rb"[^\s]+"
_UNTIL_MARK = rb"(?:\[redacted:[a-z0-9_]+\]|[^\s\"'`,;&|<>(){}\[\]\\])+"
_BLANK_TO_END = rb"[ \t\r]*(?:$|\n|\\+[nr]|#|[,;}])"


def _named(data: bytes, floor: int, start: int, end: int) -> tuple[int, str | None]:
    """Where the whole name around the matched ending begins, and its kind."""
    found = bytes_pattern(_NAME_BEFORE).search(data[max(floor, start - _BACK) : start])
    reach = start - (len(found.group()) if found else 0)
    return reach, name_kind(data[reach:end].decode("ascii"))


def quoted_end(data: bytes, start: int, opening: bytes) -> int:
    """The end of a quoted value. A quote closes when it is escaped as deeply as the opening one; a line end closes too."""
    quote, depth = opening[-1:], opening.count(b"\\")
    for found in bytes_pattern(_QUOTES).finditer(data, start):
        if found.group(2) == b"\n":
            return found.end(1)
        if found.group(2) == quote and len(found.group(1)) % (2 * depth + 2) == depth:
            return found.end(1) - depth
    return len(data)


def assigned(data: bytes, groups: Groups, floor: int) -> Assignment | None:
    """Judge one match of ASSIGN; nothing before `floor` belongs to it."""
    reach, kind = _named(data, floor, *groups[1])
    if kind is None:
        return None
    opening = groups[5] if groups[5][0] >= 0 else groups[2]
    if opening[0] >= 0:
        name = (reach, groups[1][1])
        return None if _is_prompt(data, floor, name, opening) else _quoted(data, name, opening, kind)
    return _unquoted(data, reach, groups, kind)


def _quoted(data: bytes, name: tuple[int, int], opening: tuple[int, int], kind: str) -> Assignment | None:
    start = opening[1]
    end = quoted_end(data, start, data[opening[0] : start])
    value = data[start:end].decode("utf-8", "replace")
    named_alike = data[name[0] : name[1]].lower() == data[start:end].lower()
    if named_alike or harmless(kind, value) or _is_tiny(kind, value):
        return None
    closing = data[opening[0] : start].lstrip(_PREFIXES)
    return Assignment(name[0], start, end, shown(kind), end + len(closing) if data.startswith(closing, end) else end)


_SHORTEST = {"weak_token": 6, "api_key": 2}


def _is_tiny(kind: str, value: str) -> bool:
    """`token == "("` is a parser at work, and `accesskey="p"` is the letter of a menu."""
    return len(value) < _SHORTEST.get(kind, 0)


def _is_prompt(data: bytes, floor: int, name: tuple[int, int], opening: tuple[int, int]) -> bool:
    """In `input("Your password: ")` the quote after the name closes a string."""
    quote = data[opening[0] : opening[1]].lstrip(_PREFIXES)
    found = bytes_pattern(_STRING_LEAD).search(data[max(floor, name[0] - _BACK) : name[0]])
    return found is not None and found.group(1) == quote and quote[-1:] not in data[name[1] : opening[0]]


def _unquoted(data: bytes, reach: int, groups: Groups, kind: str) -> Assignment | None:
    start = groups[4][1]
    equals = b"=" in data[groups[3][0] : groups[3][1]]
    at_line_start = bytes_pattern(_LINE_LEAD).search(data[max(0, reach - _BACK) : reach]) is not None
    shouted = data[reach : groups[1][1]].isupper()
    setting = equals and at_line_start and groups[4][0] == start and (shouted or _is_setting(data, start))
    found = bytes_pattern(_UNTIL_SPACE if setting else _UNTIL_MARK).match(data, start)
    if (
        found is None
        or kind == "cookie"
        or _is_attribute(data, reach, groups[1][1], found.group())
        or bytes_pattern(_BLANK_TO_FILL).match(data, start)
    ):
        return None
    value = found.group().rstrip(b".:!?")
    if _is_ordinary(data, found.end(), kind, value.decode("utf-8", "replace"), setting and shouted):
        return None
    alone = at_line_start and bytes_pattern(_BLANK_TO_END).match(data, found.end()) is not None
    if not equals and not alone and not looks_random(value.decode("utf-8", "replace")):
        return None
    return Assignment(reach, start, start + len(value), shown(kind), start + len(value))


def _is_attribute(data: bytes, reach: int, end: int, value: bytes) -> bool:
    """`self.password = user` hands on a name."""
    return data[reach:end].startswith((b"self.", b"this.", b"cls.")) and value.replace(b"_", b"a").isalpha()


def _is_setting(data: bytes, start: int) -> bool:
    """A line like `key=value` of a settings file, not a line of code: the value runs to the next blank."""
    found = bytes_pattern(_UNTIL_SPACE).match(data, start)
    return found is not None and found.group()[-1:] not in b",;)]}" and b"(" not in found.group()


def _is_ordinary(data: bytes, end: int, kind: str, value: str, literal: bool) -> bool:
    if harmless(kind, value) or _is_tiny(kind, value):
        return True
    return not literal and (text_pattern(JUST_A_WORD).fullmatch(value) is not None or _is_code(data, end, value))


def _is_code(data: bytes, end: int, value: str) -> bool:
    return data[end : end + 1] in (b"(", b"[", b"{") or text_pattern(_CODE).fullmatch(value) is not None


def looks_random(value: str) -> bool:
    """Letters and digits mixed, long enough, and neither a time nor an address."""
    mixed = any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
    return (
        len(value) >= 8
        and mixed
        and not text_pattern(_DATE).fullmatch(value)
        and not text_pattern(_PATH).fullmatch(value)
    )


def flagged(data: bytes, groups: Groups, floor: int) -> Assignment | None:
    """Judge one match of FLAG: `--password x`."""
    kind = name_kind(data[max(groups[1][0], groups[1][1] - _BACK) : groups[1][1]].decode("ascii"))
    if kind is None:
        return None
    if groups[2][0] >= 0:
        return _quoted(data, groups[1], groups[2], kind)
    end = groups[0][1]
    found = bytes_pattern(_UNTIL_MARK).match(data, end)
    if found is None or found.group()[:1] == b"-":
        return None
    if not is_argument(kind, found.group().decode("utf-8", "replace")):
        return None
    return Assignment(groups[1][0], end, found.end(), shown(kind), found.end())


def is_argument(kind: str, value: str) -> bool:
    """Is this, behind a flag or a word that takes a secret, the secret, and not the next word of a sentence?"""
    ordinary = text_pattern(JUST_A_WORD).fullmatch(value) or value.lower().rstrip(".:") in _STOP_WORDS
    return not (ordinary or harmless(kind, value))


_ENV_PARTS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "APIKEY")
_ENV_WORDS = frozenset(("PASS", "PWD", "PW", "KEY", "KEYS", "CRED", "CREDS", "AUTH", "DSN", "COOKIE", "PAT"))
_ENV_PLACES = ("_PATH", "_FILE", "_DIR", "_URL", "_URI", "_HOST", "_PORT", "_SOCK")
_ENV_FACTS = ("_NAME", "_ID", "_TYPE", "_TTL", "_COUNT", "_LIMIT", "_ENABLED")
_ENV_COMMON = (
    r"\d[\d.,:_-]*|[A-Za-z]+|(?:~|\.{0,2})/[^\s]*|[A-Za-z]:\\.*|[a-z][a-z0-9+.-]*://[^@\s]*|[a-z]+(?:[-_ ][a-z]+)*"
)


def secret_values(environ: Mapping[str, str]) -> list[str]:
    """The values of secret-named variables: at least 8 characters, and not so common that ordinary text holds them."""
    return sorted({value for name, value in environ.items() if _is_secret_name(name.upper()) and _worth(value)})


def _is_secret_name(name: str) -> bool:
    if name == "PWD" or name.endswith((*_ENV_PLACES, *_ENV_FACTS)):
        return False
    *words, last = name.split("_")
    return any(part in name for part in _ENV_PARTS) or not _ENV_WORDS.isdisjoint([*words, last.rstrip("0123456789")])


def _worth(value: str) -> bool:
    return (
        len(value) >= 8
        and not text_pattern(_ENV_COMMON).fullmatch(value)
        and not text_pattern(_REFERENCE).fullmatch(value)
    )

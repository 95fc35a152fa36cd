"""Names that hold secrets only where data is: the key `pass`, lists like `secrets`, elements of XML, pairs of a name and a
value, names in an encoded address, the `-p` of `docker login`.

In a sentence or a line of code they are ordinary words, and stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from holdfast.core.secret_forms import bytes_pattern, text_pattern
from holdfast.core.secret_names import (
    GAP,
    JUST_A_WORD,
    NAME,
    NAMES,
    Assignment,
    harmless,
    kind_of_field,
    name_kind,
    quoted_end,
)

_LISTED = [(kind, pattern) for kind, pattern in NAMES if kind in ("aws_secret_key", "api_key", "private_key")]
_LISTED += [(kind, pattern) for kind, pattern in NAMES if kind in ("password", "secret")]
_LISTS = "(?:" + "|".join(pattern for _, pattern in _LISTED) + ")s"
_COLON = rf"\\*[\"']{GAP}*:"
FIELD_TRIGGER = rf"(?i:[\"']pass|{_LISTS}){_COLON}"
FIELD = rf"(?i:[\"'](pass|[a-z0-9_.-]*{_LISTS})){_COLON}{GAP}*(\[?)"
_ITEM = rb"(?:[\s,]|\\+[nrt])*(\\*[\"'])"
_OUTCOME = (
    r"(?i:pass(?:ed)?|fail(?:ed|ure)?|skip(?:ped)?|warn(?:ing)?|error|all|[0-9]{1,3}(?:\.[0-9]{1,4})?(?: ?%)?|"
    r"[0-9]{1,5}(?: ?(?:/|of) ?[0-9]{1,5})?(?: (?:tests?|checks?|cases?|passed|ok)){1,2}|[0-9]{1,5} ?(?:/|of) ?[0-9]{1,5})"
)
_VARIABLE = r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+"


def kind_in_data(name: str, value: str) -> str | None:
    """The kind to replace a string with that stands under a name, or in a list under it; None when it is no secret."""
    kind = _kind(name)
    if kind is None or harmless(kind, value) or text_pattern(f"{JUST_A_WORD}|{_OUTCOME}|{_VARIABLE}").fullmatch(value):
        return None
    return None if "_" in value and name_kind(value[-80:]) is not None else kind  # the name of a secret


@lru_cache(maxsize=1024)
def _kind(name: str) -> str | None:
    if name.lower() == "pass":
        return "password"
    return next((kind for kind, pattern in _LISTED if text_pattern(f"(?i)(?:{pattern})s$").search(name)), None)


def in_text(data: bytes, reach: int, name: tuple[int, int], is_list: bool, place: int) -> Iterator[Assignment]:
    """The secrets under a name in JSON that stands in a text: one string, or those of a list."""
    word = data[name[0] : name[1]].decode("ascii")
    while opening := bytes_pattern(_ITEM).match(data, place):
        end = quoted_end(data, opening.end(), opening.group(1))
        kind = kind_in_data(word, data[opening.end() : end].decode("utf-8", "replace"))
        place = end + len(opening.group(1))
        if kind is not None:
            yield Assignment(reach, opening.end(), end, kind, place)
        if not is_list:
            return


ELEMENT_END = r">[^<>\s]"
ELEMENT = rf"<(?:[A-Za-z0-9_.-]+:)?([A-Za-z0-9_.-]*{NAME})>([^<>\s]+)<\\*/"
_CODED = "%(?:25)?"  # once or twice
QUERY_END = rf"{_CODED}(?:3[dD]|22)"
QUERY = (
    rf"([A-Za-z0-9_.-]*{NAME})(?:{_CODED}3[dD]|{_CODED}22{_CODED}3[aA](?:{_CODED}20|\+)*{_CODED}22)"
    rf"((?:[A-Za-z0-9._~!*()+-]|{_CODED}(?:[013-9a-fA-F][0-9a-fA-F]|2[013-57-9a-fA-F]))+)"
)
_QUOTE = r"\\*[\"']?"
PAIR_NEXT = rf"{_QUOTE},?{GAP}+{_QUOTE}value{_QUOTE}:"
PAIR = rf"name{_QUOTE}:{GAP}*{_QUOTE}([A-Za-z0-9_.-]*{NAME}){PAIR_NEXT}[ ]*({_QUOTE})"
_UNQUOTED = rb"[^\s\"'\\,}]*"


def in_pair(data: bytes, reach: int, name: tuple[int, int], opening: tuple[int, int]) -> Assignment | None:
    """`name: DB_PASSWORD` and under it `value: ...`, as containers are given variables, or both in one line of JSON."""
    start, quote = opening[1], data[slice(*opening)]
    plain = bytes_pattern(_UNQUOTED).match(data, start)
    end = plain.end() if plain else start
    if quote.endswith((b'"', b"'")):
        end = quoted_end(data, start, quote)
    return _named(data, reach, name, (start, end))


def in_query(data: bytes, reach: int, name: tuple[int, int], value: tuple[int, int]) -> Assignment | None:
    """`next=https%3A%2F%2Fhost%2F%3Ftoken%3D...`: an address, or JSON, inside of another."""
    return _named(data, reach, name, value)


def _named(data: bytes, reach: int, name: tuple[int, int], value: tuple[int, int]) -> Assignment | None:
    text = data[slice(*value)].decode("utf-8", "replace")
    kind = kind_of_field(data[slice(*name)].decode("ascii"), text)
    return None if kind is None else Assignment(reach, *value, kind, value[1])


def in_element(data: bytes, reach: int, name: tuple[int, int], value: tuple[int, int]) -> Assignment | None:
    """`<password>...</password>`: one word between the two. Several words are a sentence about it."""
    is_its_name = data[slice(*name)].lower() == data[slice(*value)].lower()
    return None if is_its_name else _named(data, reach, name, value)


_ENGINES = frozenset({"docker", "podman", "nerdctl", "buildah"})
_ENGINE, _OPTION, LOGIN = "engine", "option", "login"


def command_after(before: str, item: str) -> str:
    """How far a list of arguments has come towards a command whose `-p` takes a password: LOGIN when it has."""
    name = item.rpartition("/")[2]
    if before == LOGIN or name == "sshpass" or (before and item == LOGIN):
        return LOGIN
    if before and item.startswith("-"):
        return _OPTION  # the next one may be its value
    return _ENGINE if name in _ENGINES or before == _OPTION else ""

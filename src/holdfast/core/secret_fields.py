"""Names that hold secrets only where data is: the key `pass`, lists like `secrets`, elements of XML, the `-p` of `docker login`.

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


def in_element(data: bytes, reach: int, name: tuple[int, int], value: tuple[int, int]) -> Assignment | None:
    """`<password>...</password>`: one word between the two. Several words are a sentence about it."""
    word, text = data[slice(*name)].decode("ascii"), data[slice(*value)].decode("utf-8", "replace")
    kind = None if word.lower() == text.lower() else kind_of_field(word, text)
    return None if kind is None else Assignment(reach, *value, kind, value[1])


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

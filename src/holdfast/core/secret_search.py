"""Finds secrets in bytes: a glance, then a closer look that names the searches it calls for, then only those.

It finds and never replaces. Every search is linear in the bytes. The glance misses nothing that the look would find: it
asks for the same with less after it. A process that only ever glances, as a hook does, builds nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import re2

from holdfast.core import secret_fields, secret_names
from holdfast.core.named import NamedTuple
from holdfast.core.secret_forms import BASE64_RUN, HeadsInBase64, base64_forms, bytes_pattern, decode, flexible, pieces
from holdfast.core.secret_names import ASSIGN, ASSIGN_END, FLAG, FLAG_TRIGGER, NAME, PAIR_END, harmless, looks_random
from holdfast.core.secret_rules import ANY_TOKEN, EDGE, PHRASES, RAW_EDGE, TOKENS, TokenRule

_SHAPES = [(rule.kind, rule.heads) for rule in TOKENS] + [(rule.kind, rule.heads) for rule in PHRASES]
KINDS = frozenset([kind for kind, _ in _SHAPES] + [*secret_names.KINDS, "env", "tangled"])
_ENOUGH = 10  # characters of a token that the look asks for
_FEW = 4  # and those that the glance asks for
_ESCAPES = r"\\u00(?:[2-7]|0[9aAcCdD])|\\[/f]"
_HEADS = HeadsInBase64(tuple(head for _, heads in _SHAPES for head in heads if len(head) > 2))


class Span(NamedTuple):
    """Bytes `start` to `end` are secret; `reach` is where the proof begins; where spans overlap the lowest rank names them."""

    start: int
    end: int
    kind: str
    rank: int
    reach: int


if TYPE_CHECKING:
    from typing import Protocol
else:
    Protocol = object  # only the type checker reads them


class Match(Protocol):
    def span(self, group: int = 0) -> tuple[int, int]: ...


class Pattern(Protocol):
    def finditer(self, text: bytes) -> Iterator[Match]: ...
    def search(self, text: bytes, _place: int, /) -> Match | None: ...


class PatternSet(Protocol):
    def Add(self, pattern: bytes) -> int: ...
    def Compile(self) -> None: ...
    def Match(self, text: bytes) -> list[int] | None: ...


class Lead(NamedTuple):
    """A trigger that is cheap to look for in any bytes, and the search that follows when it is seen."""

    trigger: str
    find: Callable[[bytes], Iterable[Span]]


Beside: TypeAlias = Callable[[bytes, int, "tuple[int, int]", "tuple[int, int]"], "secret_names.Assignment | None"]
# what follows a name, the whole of it, and who judges it
_BESIDE: tuple[tuple[str, str, Beside], ...] = (
    (secret_fields.ELEMENT_END, secret_fields.ELEMENT, secret_fields.in_element),
    (secret_fields.QUERY_END, secret_fields.QUERY, secret_fields.in_query),
    (secret_fields.PAIR_NEXT, secret_fields.PAIR, secret_fields.in_pair),
)
_ENDS = [end for end, _, _ in _BESIDE]
Look: TypeAlias = Callable[[bytes], "list[int] | None"]
Check: TypeAlias = Callable[[bytes, int, int], bool]


def _options() -> Any:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # bytes are bytes: broken UTF-8 can hide nothing
    options.log_errors = False
    options.max_mem = 64 << 20
    return options


@cache
def compiled(pattern: str) -> Pattern:
    return cast(Pattern, re2.compile(pattern.encode("ascii"), _options()))


def _matcher(patterns: Iterable[str]) -> Look:
    """Which of the patterns stand somewhere in the bytes; falsy: none."""
    found = cast(PatternSet, re2.Set.SearchSet(_options()))
    for pattern in patterns:
        found.Add(pattern.encode("ascii"))
    found.Compile()
    plain = getattr(found, "_set", None)  # the same without a Python call around it, as long as there is one
    return found.Match if plain is None else cast(Look, plain.Match)


class SecretSearch:
    """Knows the rules and the exact values; `spans` lists what it finds."""

    def __init__(self, values: Iterable[str]) -> None:
        self._values = tuple(values)
        self.glance = _matcher([_glance(self._values)])  # falsy: nothing here can be a secret

    @cached_property
    def _leads(self) -> list[Lead]:
        leads = [*_rule_leads(), *_value_leads(self._values), *_name_leads(), *_structure_leads()]
        return [*leads, _base64_lead(self.kind_of)]

    @cached_property
    def look(self) -> Look:
        return _matcher(lead.trigger for lead in self._leads)

    def spans(self, data: bytes) -> list[Span]:
        if not self.glance(data):
            return []
        return sorted(span for hit in self.look(data) or () for span in self._leads[hit].find(data))

    def kind_of(self, data: bytes) -> str | None:
        """The kind of the most telling secret in decoded bytes."""
        found = [
            span for hit in self.look(data) or () if hit < len(self._leads) - 1 for span in self._leads[hit].find(data)
        ]
        return min(found, key=lambda span: (span.rank, span.start)).kind if found else None


def _glance(values: Iterable[str]) -> str:
    heads = "|".join(_literal(head) for rule in TOKENS for head in rule.heads if not head.isalpha())
    words = [f"{head}{_begun(rule)}" for rule in TOKENS for head in rule.heads if head.isalpha()]
    names = f"{NAME}(?:{'|'.join([ASSIGN_END, PAIR_END, *_ENDS])})"
    tokens = "|".join([f"(?:{heads})[{ANY_TOKEN}]{{{_FEW}}}", *words])
    phrases = dict.fromkeys(rule.trigger for rule in PHRASES)
    known = [lead.trigger for lead in _value_leads(values)]
    told = [names, FLAG_TRIGGER, secret_fields.FIELD_TRIGGER]
    return "|".join([tokens, *phrases, *known, *told, _ESCAPES, _HEADS.trigger()])


# --- rules ---


def _rule_leads() -> Iterator[Lead]:
    rules = [*map(_token_pattern, TOKENS), *((r.kind, r.trigger, r.pattern, r.check, r.to_quote) for r in PHRASES)]
    for rank, (kind, trigger, pattern, check, to_quote) in enumerate(rules):
        yield Lead(trigger, _rule_finder(kind, rank, pattern, CHECKS[check], to_quote))


def _token_pattern(rule: TokenRule) -> tuple[str, str, str, str, bool]:
    heads = "(?:" + "|".join(map(_literal, rule.heads)) + ")"
    edge, raw_edge = (EDGE, RAW_EDGE) if rule.edge else ("", "")
    trigger = f"{raw_edge}{heads}{_begun(rule)}"
    return rule.kind, trigger, f"{edge}({heads}[{rule.chars}]{{{rule.least},}}{rule.tail})", "", False


def _begun(rule: TokenRule) -> str:
    """What follows the head in as much of a token as is asked for before it is searched. Of a word it is asked at a glance:
    `pat` begins not only tokens, but every path and patch."""
    return f"[{rule.chars}]{{{min(rule.least, _ENOUGH)}}}"


def _literal(text: str) -> str:
    return text.replace(".", r"\.").replace("-", r"\-")


def _rule_finder(kind: str, rank: int, pattern: str, check: Check, to_quote: bool) -> Callable[[bytes], Iterator[Span]]:
    def find(data: bytes) -> Iterator[Span]:
        for match in compiled(pattern).finditer(data):
            start, end = match.span(1)
            end = _to_quote(data, start, end) if to_quote else end
            if check(data, start, end):
                yield Span(start, end, kind, rank, _letter_start(data, match.span()[0]))

    return find


_OPENED = rb"(\\*[\"'`])[^\s\"'`]*$"


def _to_quote(data: bytes, start: int, end: int) -> int:
    """Where an argument ends that begins at `start` or, like `"user:password"`, a little before it."""
    opened = bytes_pattern(_OPENED).search(data[max(0, start - 80) : start])
    return end if opened is None else max(end, secret_names.quoted_end(data, start, opened.group(1)))


def _letter_start(data: bytes, place: int) -> int:
    """The byte before a token may be the last one of a letter; the proof begins with the whole letter."""
    while place > 0 and data[place] & 0xC0 == 0x80:
        place -= 1
    return place


def _after_curl(data: bytes, start: int, end: int) -> bool:
    return b"curl" in data[max(0, start - 400) : start]


def _user_and_password(data: bytes, start: int, end: int) -> bool:
    text = decode(data[start:end].rstrip(b"="))
    return b":" in text and text.isascii() and text.decode("ascii").isprintable()


def _random(data: bytes, start: int, end: int) -> bool:
    return end - start >= 32 or looks_random(data[start:end].decode("ascii"))


def _not_reference(data: bytes, start: int, end: int) -> bool:
    return not harmless("authorization", data[start:end].decode("utf-8", "replace"))


def _not_placeholder(data: bytes, start: int, end: int) -> bool:
    """`://[redacted:env]@` is an address whose user is gone, and has no password."""
    return not data[:start].endswith(b"[redacted:") and _not_reference(data, start, end)


def _argument(data: bytes, start: int, end: int) -> bool:
    return secret_names.is_argument("password", data[start:end].decode("utf-8", "replace"))


def _always(data: bytes, start: int, end: int) -> bool:
    return True


CHECKS: dict[str, Check] = {
    "": _always,
    "after_curl": _after_curl,
    "user_and_password": _user_and_password,
    "random": _random,
    "not_reference": _not_reference,
    "not_placeholder": _not_placeholder,
    "argument": _argument,
}
_VALUE_RANK = len(TOKENS) + len(PHRASES)
_NAME_RANK = _VALUE_RANK + 1


# --- exact values ---


def _value_leads(values: Iterable[str]) -> Iterator[Lead]:
    parts = sorted({part for value in values for part in pieces(value)})
    if not parts:
        return
    triggers = [form for part in parts for form in (flexible(part[:_ENOUGH]), *base64_forms(part, _ENOUGH))]
    patterns = [form for part in parts for form in (flexible(part), *base64_forms(part))]

    def find(data: bytes) -> Iterator[Span]:
        for pattern in patterns:
            for match in compiled(pattern).finditer(data):
                start, end = match.span()
                yield Span(start, end, "env", _VALUE_RANK, start)

    yield Lead("|".join(triggers), find)


# --- names with a value beside them ---


def _name_leads() -> Iterator[Lead]:
    yield Lead(NAME + ASSIGN_END, _assignments)
    yield Lead(FLAG_TRIGGER, _flags)
    yield Lead(secret_fields.FIELD_TRIGGER, _fields)
    for end, pattern, judge in _BESIDE:
        yield Lead(NAME + end, partial(_beside, pattern, judge))


def _assignments(data: bytes) -> Iterator[Span]:
    return _judged(ASSIGN, 6, secret_names.assigned, data)


def _flags(data: bytes) -> Iterator[Span]:
    return _judged(FLAG, 3, secret_names.flagged, data)


def _fields(data: bytes) -> Iterator[Span]:
    for match in compiled(secret_fields.FIELD).finditer(data):
        (reach, place), name, listed = match.span(), match.span(1), match.span(2)
        for found in secret_fields.in_text(data, reach, name, listed[0] < listed[1], place):
            yield Span(found.start, found.end, found.kind, _NAME_RANK, found.reach)


def _beside(pattern: str, judge: Beside, data: bytes) -> Iterator[Span]:
    for match in compiled(pattern).finditer(data):
        found = judge(data, match.span()[0], match.span(1), match.span(2))
        if found:
            yield Span(found.start, found.end, found.kind, _NAME_RANK, found.reach)


def _judged(pattern: str, groups: int, judge: secret_names.Judge, data: bytes) -> Iterator[Span]:
    """Each match is judged from where the last value ended, so a quote that closes one value never opens the next."""
    place = 0
    while match := compiled(pattern).search(data, place):
        found = judge(data, [match.span(group) for group in range(groups)], place)
        place = max(found.after if found else 0, match.span()[1] - 1)
        if found and found.start < found.end:
            yield Span(found.start, found.end, found.kind, _NAME_RANK, found.reach)


# --- what only a reader of JSON can judge, and base64 ---


def _structure_leads() -> Iterator[Lead]:
    """Seen in JSON bytes these call for a full reading: escaped plain characters and blanks, and name/value pairs."""
    yield Lead(_ESCAPES, _nothing)
    yield Lead(NAME + PAIR_END, _nothing)


def _nothing(data: bytes) -> Iterator[Span]:
    return iter(())


def _base64_lead(kind_of: Callable[[bytes], str | None]) -> Lead:
    def find(data: bytes) -> Iterator[Span]:
        for match in compiled(BASE64_RUN).finditer(data):
            start, end = match.span()
            kinds = {kind for text in _HEADS.decoded(data[start:end]) if (kind := kind_of(text))}
            if kinds:
                yield Span(start, end, min(kinds), _VALUE_RANK, start)

    return Lead(_HEADS.trigger(), find)

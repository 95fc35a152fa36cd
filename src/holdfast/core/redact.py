"""Takes secrets out of text, JSON bytes, plain data and streams, before anything is hashed or written.

Pure and deterministic. What it finds becomes `[redacted:<kind>]`; doing it twice changes nothing more. It never
touches keys, numbers, hashes or ids, and it finds no secret whose shape, name or value it does not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from holdfast.core.secret_fields import LOGIN, command_after, kind_in_data
from holdfast.core.secret_forms import bytes_pattern, raw, text_pattern
from holdfast.core.secret_names import is_flag, kind_of_field, names_its_value, secret_values
from holdfast.core.secret_search import KINDS, SecretSearch, Span

__all__ = ["JSON", "KINDS", "Redactor", "StreamRedactor", "secret_values"]

JSON: TypeAlias = Any
SHORTEST_VALUE = 4
PASSES = 8
WINDOW = 8192
HOLD = 4096


def placeholder(kind: str) -> bytes:
    return b"[redacted:%b]" % kind.encode("ascii")


_ALL_PLACEHOLDERS = b"".join(map(placeholder, sorted(KINDS)))
_PLACEHOLDERS = rb"(?:\[redacted:(?:" + "|".join(sorted(KINDS)).encode("ascii") + rb")\])+"


def _is_placeholder(data: bytes) -> bool:
    return data.startswith(b"[redacted:") and bytes_pattern(_PLACEHOLDERS).fullmatch(data) is not None


class Redactor:
    """Redacts what the rules know, and the exact values it is given."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._search = SecretSearch(sorted({value for value in values if _usable(value)}))
        self.glance = self._search.glance

    def text(self, text: str) -> str:
        data = raw(text)
        clean = self.data(data)
        return text if clean is data else clean.decode("utf-8", "surrogatepass")

    def body(self, body: bytes) -> bytes:
        """JSON bytes with the same keys, structure and numbers; only string values change.

        Bytes that are no text become U+FFFD in a string that changes, and stay in one that does not.
        """
        return _Body(self, body).redacted() if self.glance(body) and self._search.look(body) else body

    def value(self, value: JSON) -> JSON:
        return self._value(value, None)

    def stream(self) -> StreamRedactor:
        return StreamRedactor(self)

    def data(self, data: bytes) -> bytes:
        """One text as bytes, redacted until nothing more is found. The same object when nothing is."""
        for _ in range(PASSES):
            spans = self.spans(data)
            if not spans:
                return data
            data = _replaced(data, spans)
        return placeholder("tangled")

    def spans(self, data: bytes) -> list[Span]:
        found = self._search.spans(data)
        return [span for span in found if not _is_placeholder(data[span.start : span.end])]

    def field(self, name: str | None, data: bytes) -> bytes:
        """A string that stands under a name: as text, and whole when the name is that of a secret."""
        clean = self.data(data)
        kind = _kind(name, data.decode("utf-8", "replace")) if name else None
        return clean if kind is None or _is_placeholder(clean) else placeholder(kind)

    def _value(self, value: JSON, name: str | None) -> JSON:
        if isinstance(value, str):
            data = raw(value)
            clean = self.field(name, data)
            return value if clean is data else clean.decode("utf-8", "surrogatepass")
        if isinstance(value, dict):
            return self._object(value)
        if isinstance(value, list):
            return list(self._items(value, name))
        return tuple(self._items(value, name)) if isinstance(value, tuple) else value

    def _object(self, value: dict[Any, JSON]) -> dict[Any, JSON]:
        pair = _pair_name(value)
        return {key: self._member(key, item, pair) for key, item in value.items()}

    def _member(self, key: object, item: JSON, pair: str | None) -> JSON:
        clean = self._value(item, key if isinstance(key, str) else None)
        return self._value(clean, pair) if pair and key in _PAIR_VALUES and isinstance(item, str) else clean

    def _items(self, items: Sequence[JSON], name: str | None) -> Iterator[JSON]:
        flag: str | None = None
        command = ""
        pair = len(items) == 2 and all(isinstance(item, str) for item in items) and names_its_value(*items)
        for item in items:
            yield self._value(item, flag if flag and isinstance(item, str) else name)
            command = command_after(command, item) if isinstance(item, str) else ""
            flag = (item if pair else _flag(item, command)) if isinstance(item, str) else None


def _kind(name: str, value: str) -> str | None:
    return kind_of_field(name, value) or kind_in_data(name, value)


def _flag(item: str, command: str) -> str | None:
    """The name of what stands behind this argument, if that is a secret."""
    if command == LOGIN and item == "-p":
        return "--password"
    return item if is_flag(item) else None


def _usable(value: str) -> bool:
    """A value that the placeholders themselves hold would be replaced for ever."""
    return len(value) >= SHORTEST_VALUE and raw(value) not in _ALL_PLACEHOLDERS


_PAIR_NAMES = ("name", "key", "header")
_PAIR_VALUES = ("value",)


def _pair_name(value: dict[Any, JSON]) -> str | None:
    """`{"name": "DB_PASSWORD", "value": ...}`: the name of the value."""
    return next((name for key in _PAIR_NAMES if isinstance(name := value.get(key), str)), None)


def _replaced(data: bytes, spans: list[Span]) -> bytes:
    """Overlapping spans become one; the lowest rank names it. Parts of one value that touch become one too."""
    parts: list[bytes] = []
    last = 0
    for start, end, kind in _merged(spans):
        parts += (data[last:start], placeholder(kind))
        last = end
    return b"".join([*parts, data[last:]])


def _merged(spans: list[Span]) -> Iterator[tuple[int, int, str]]:
    start, end, kind, rank, _ = spans[0]
    for span in spans[1:]:
        if span.start < end or (span.start == end and span.kind == kind == "env"):
            end = max(end, span.end)
            rank, kind = min((rank, kind), (span.rank, span.kind))
        else:
            yield start, end, kind
            start, end, kind, rank, _ = span
    yield start, end, kind


# --- JSON bytes ---

_JSON_TOKEN = rb'"(?:[^"\\]++|\\.)*+"|[{}\[\],:]'


class _Frame:
    """An open object or array: the name its strings stand under, and a name/value pair that is being collected."""

    __slots__ = ("command", "commas", "flag", "is_object", "key", "name", "pair_name", "pair_value", "said", "strings")

    def __init__(self, is_object: bool, name: str | None) -> None:
        self.is_object = is_object
        self.name = name
        self.key: str | None = None
        self.flag: str | None = None
        self.command = ""
        self.said = False  # a string, since the last comma
        self.pair_name: tuple[int, str] | None = None
        self.pair_value: tuple[int, int] | None = None
        self.commas = 0
        self.strings: list[tuple[int, int]] = []


class _Body:
    """One walk over the tokens of a JSON document. Strings are replaced where they stand; nothing else is rewritten."""

    def __init__(self, redactor: Redactor, body: bytes) -> None:
        self.redactor = redactor
        self.body = body
        self.frames = [_Frame(False, None)]
        self.edits: dict[tuple[int, int], bytes] = {}

    def redacted(self) -> bytes:
        for found in bytes_pattern(_JSON_TOKEN).finditer(self.body):
            mark = found.group()
            if mark[:1] == b'"':
                self._string(found.start(), found.end())
            else:
                self._mark(mark)
        return self._edited() if self.edits else self.body

    def _mark(self, mark: bytes) -> None:
        frame = self.frames[-1]
        if mark in b"{[":
            self.frames.append(_Frame(mark == b"{", frame.key if frame.is_object else frame.name))
        elif mark in b"}]":
            self._close()
        elif mark == b",":
            frame.key = None
            frame.commas += 1
            if not frame.said:
                frame.flag, frame.command = None, ""
            frame.said = False

    def _close(self) -> None:
        frame = self.frames.pop() if len(self.frames) > 1 else self.frames[0]
        if frame.pair_name and frame.pair_value:
            self._replace(frame.pair_value, frame.pair_name[1])
        if not frame.is_object and frame.commas == 1 and len(frame.strings) == 2:
            self._two(*frame.strings)

    def _two(self, first: tuple[int, int], second: tuple[int, int]) -> None:
        name = _text(self.body[slice(*first)])
        if names_its_value(name, _text(self.body[slice(*second)])):
            self._replace(second, name)

    def _string(self, start: int, end: int) -> None:
        frame = self.frames[-1]
        if frame.is_object and frame.key is None:
            frame.key = _text(self.body[start:end])
        elif frame.is_object:
            self._member(frame, frame.key or "", start, end)
        else:
            self._replace((start, end), frame.flag or frame.name)
            frame.strings += [(start, end)] if len(frame.strings) < 3 else []
            item = _text(self.body[start:end])
            frame.command = command_after(frame.command, item)
            frame.flag = _flag(item, frame.command)
            frame.said = True

    def _member(self, frame: _Frame, key: str, start: int, end: int) -> None:
        if key in _PAIR_NAMES:
            chosen = (_PAIR_NAMES.index(key), _text(self.body[start:end]))
            frame.pair_name = min(frame.pair_name or chosen, chosen)
        if key in _PAIR_VALUES:
            frame.pair_value = (start, end)
        self._replace((start, end), key)

    def _replace(self, place: tuple[int, int], name: str | None) -> None:
        token = self.body[place[0] : place[1]]
        data = raw(_text(token)) if b"\\" in token else token[1:-1]
        clean = self.redactor.field(name, data)
        if clean is not data:
            self.edits[place] = _quoted(clean)

    def _edited(self) -> bytes:
        parts: list[bytes] = []
        last = 0
        for (start, end), text in sorted(self.edits.items()):
            parts += (self.body[last:start], text)
            last = end
        return b"".join([*parts, self.body[last:]])


def _text(token: bytes) -> str:
    if b"\\" not in token:
        return token[1:-1].decode("utf-8", "replace")
    import json

    try:
        return str(json.loads(token, strict=False))
    except ValueError:
        return token[1:-1].decode("utf-8", "replace")


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


def _quoted(data: bytes) -> bytes:
    import json

    text = _decoded(data)
    try:
        return json.dumps(text, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(text).encode("ascii")


# --- streams ---

_AFTER = {"private_key": r"[A-Za-z0-9+/=\s\\-]*"}
_AFTER_QUOTE = r"[^\"'`\n]*"
_AFTER_WORD = r"[^\s\"'`,;&|<>(){}\[\]]*"


class StreamRedactor:
    """Redacts text that arrives in chunks. What it gives back depends on the text alone, never on where it was cut.

    It works whenever exactly WINDOW characters are waiting, and keeps the last HOLD of them until more is known.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._waiting = ""
        self._dropping: str | None = None

    def feed(self, chunk: str) -> str:
        out: list[str] = []
        while chunk:
            chunk = self._drop(chunk)
            room = WINDOW - len(self._waiting)
            self._waiting, chunk = self._waiting + chunk[:room], chunk[room:]
            if len(self._waiting) == WINDOW:
                out.append(self._release())
        return "".join(out)

    def flush(self) -> str:
        rest, self._waiting, self._dropping = self.held(), "", None
        return rest

    def held(self) -> str:
        """What is held back, as it would be given if nothing more came."""
        return self._redactor.text(self._waiting)

    def _drop(self, chunk: str) -> str:
        """The rest of a secret that is longer than the window."""
        if self._dropping is None:
            return chunk
        found = text_pattern(self._dropping).match(chunk)
        rest = chunk[found.end() :] if found else chunk
        if rest:
            self._dropping = None
        return rest

    def _release(self) -> str:
        data = raw(self._waiting)
        spans = self._redactor.spans(data)
        cut = _cut(data, _even_cut(self._waiting), spans)
        if cut == 0:
            return self._drop_from(data, spans)
        head, self._waiting = data[:cut], data[cut:].decode("utf-8", "surrogatepass")
        return self._clean(head, [span for span in spans if span.end <= cut])

    def _drop_from(self, data: bytes, spans: list[Span]) -> str:
        *_, (start, _, kind) = _merged(spans)
        quoted = data[start - 1 : start] in (b'"', b"'", b"`") if start else False
        self._dropping = _AFTER.get(kind, _AFTER_QUOTE if quoted else _AFTER_WORD)
        self._waiting = ""
        return self._clean(data[:start], [span for span in spans if span.end <= start]) + placeholder(kind).decode(
            "ascii"
        )

    def _clean(self, head: bytes, spans: list[Span]) -> str:
        """What was found while it was whole goes first: its proof may stand behind the cut."""
        known = _replaced(head, spans) if spans else head
        return self._redactor.data(known).decode("utf-8", "surrogatepass")


def _even_cut(waiting: str) -> int:
    """Where to cut, in bytes: after the last line end or blank before the part that is held back, else just before it."""
    free = waiting[: WINDOW - HOLD]
    place = max(free.rfind("\n") + 1, 0) or max(free.rfind(" ") + 1, 0) or len(free)
    return len(raw(free[:place]))


def _cut(data: bytes, cut: int, spans: list[Span]) -> int:
    """Move the cut out of every secret and its proof: behind it, or before it when it may go on after the window."""
    for begin, end in _reaches(spans):
        if begin < cut < end:
            return begin if end == len(data) else end
    return cut


def _reaches(spans: list[Span]) -> list[tuple[int, int]]:
    """Where secrets stand with their proofs. Those that overlap are one: a cut out of the first would be inside the next."""
    found: list[tuple[int, int]] = []
    for span in sorted(spans, key=lambda span: span.reach):
        if found and span.reach < found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], span.end)
        else:
            found.append((span.reach, span.end))
    return found

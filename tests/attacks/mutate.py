"""Seeded damage: how bytes, lines, JSON fields and plain values go wrong. The same chance gives the same damage."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from holdfast.core.wire import GENESIS, chain_hash

TEXTS = (
    "",
    " ",
    ".",
    "..",
    "../../etc/passwd",
    "/",
    "C:\\x",
    "a\\b",
    "con",
    "a%2e%2e%2f",
    "\0",
    "a\0b",
    "\ud800",
    "x\udc80",
    "\udfff\ud800",
    "\ud83d\ude00",
    "\u202eevil\u2066",
    "\x1b]52;c;aGk=\x07",
    "\x1b[2J\x9b1m",
    "\u200b\ufeff\u2028\x85",
    "line\r\nline",
    "e\u0301\u00e9",
    "\U000e0041",
    "{0.__class__}",
    "%s%n${x}{{y}}",
    "'; drop table events; --",
    "' or 1=1 --",
    "=cmd|' /C x'!A0",
    '!!python/object/apply:os.system ["x"]',
    "cos\nsystem\n(S'x'\ntR.",
    "NaN",
    "1e999",
    "9" * 400,
    "--help",
    "-",
    "a" * 64,
    "a" * 65,
    "é" * 300,
    "x" * 70_000,
    "0" * 32,
    "f" * 64,
    "2026-01-02T03:04:05.678901Z",
    "9999-99-99T99:99:99.999999Z",
    "run_started",
    "x_note",
)
NUMBERS: tuple[Any, ...] = (
    0, 1, -1, 2, 255, 2**31 - 1, 2**31, 2**32, 2**32 + 1, -(2**31), 2**53 - 1, 2**53, 2**53 + 1, 2**62, 2**63 - 1,
    2**63, -(2**63), 2**64, 10**30, 10**400, 1.5, -0.0, 5e-324, 1.7e308, float("nan"), float("inf"), float("-inf"),
    True, False, None,
)  # fmt: skip
NAMES = ("", "seq", "kind", "body", "artifact", "end", "holdfast_export", "step_id", "__class__", "lc", "\ud800", "a\0")
FRAGMENTS = (
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\xc0\x80",
    b"\0",
    b"\xef\xbb\xbf",
    b"NaN",
    b"-Infinity",
    b"1e999",
    b"9" * 400,
    b"1" * 5000,
    b"[" * 3000,
    b'{"a":' * 1200,
    b"[" * 900 + b"]" * 900,
    b"[" * 960 + b"]" * 960,
    b'{"a":' * 930 + b"1" + b"}" * 930,
    b"\\ud800",
    b"\\u0000",
    b"\\u202e",
    b"\x1b[2J",
    b"\r\n",
    b"\n",
    b'"',
    b"\\",
    b",",
    b"{}",
    b'"a":1,"a":2',
    b"\x80\x04\x95",
    b"x" * 70_000,
)


DEEP = 900


def text(chance: Random, texts: Sequence[str] = TEXTS) -> str:
    """A hostile text, or two grown together, or random characters."""
    dice = chance.random()
    if dice < 0.6:
        return chance.choice(texts)
    if dice < 0.8:
        return chance.choice(texts)[:200] + chance.choice(texts)[:200]
    spans = ((0, 0x20), (0x20, 0x7F), (0x80, 0x250), (0x2000, 0x2070), (0xD7F0, 0xE010), (0x1F600, 0x1F650))
    return "".join(chr(chance.randrange(*chance.choice(spans))) for _ in range(chance.randrange(40)))


def of_system(hostile: str) -> str:
    """The same text as a system could hand it over, in an argument or a variable: no NUL, only escaped bytes as surrogates."""
    return hostile.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape").replace("\0", "")


def value(chance: Random, depth: int = 0) -> Any:
    """A hostile value that JSON text can express, one way or another."""
    dice = chance.random()
    if dice < 0.35:
        return text(chance)
    if dice < 0.7 or depth > 3:
        return chance.choice(NUMBERS)
    if dice < 0.75:
        return nested(chance.choice((50, 99, 100, 101, 400, DEEP)), chance.random() < 0.5)
    if dice < 0.88:
        return [value(chance, depth + 1) for _ in range(chance.randrange(4))]
    return {
        text(chance) if chance.random() < 0.5 else chance.choice(NAMES): value(chance, depth + 1)
        for _ in range(chance.randrange(4))
    }


def nested(depth: int, as_list: bool) -> Any:
    inner: Any = 1
    for _ in range(depth):
        inner = [inner] if as_list else {"a": inner}
    return inner


def _flip(data: bytearray, place: int, chance: Random) -> None:
    data[place : place + 1] = bytes([(data[place] if place < len(data) else 0) ^ (1 << chance.randrange(8))])


def _put(data: bytearray, place: int, chance: Random) -> None:
    data[place : place + 1] = bytes([chance.randrange(256)])


def _cut(data: bytearray, place: int, chance: Random) -> None:
    del data[place:]


def _drop(data: bytearray, place: int, chance: Random) -> None:
    del data[place : place + chance.randrange(1, 40)]


def _repeat(data: bytearray, place: int, chance: Random) -> None:
    piece = data[place : place + chance.randrange(1, 60)]
    data[place:place] = piece * chance.choice((1, 2, 30))


def _insert(data: bytearray, place: int, chance: Random) -> None:
    data[place:place] = chance.choice(FRAGMENTS)


def _overwrite(data: bytearray, place: int, chance: Random) -> None:
    piece = chance.choice(FRAGMENTS)[:64]
    data[place : place + len(piece)] = piece


def _splice(data: bytearray, place: int, chance: Random) -> None:
    other = chance.randrange(len(data) + 1)
    data[place:] = data[other:]


BYTES: tuple[Callable[[bytearray, int, Random], None], ...] = (
    _flip, _flip, _put, _cut, _drop, _repeat, _insert, _insert, _overwrite, _splice,
)  # fmt: skip


def damaged(data: bytes, chance: Random) -> bytes:
    """One to three wounds anywhere in the bytes."""
    wounded = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        chance.choice(BYTES)(wounded, chance.randrange(len(wounded) + 1), chance)
    return bytes(wounded)


def shuffled(lines: list[bytes], chance: Random) -> list[bytes]:
    """Lines dropped, doubled, moved, joined, emptied or damaged."""
    lines = list(lines)
    one, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    way = chance.randrange(8)
    if way == 0:
        del lines[one]
    elif way == 1:
        lines.insert(other, lines[one])
    elif way == 2:
        lines[one], lines[other] = lines[other], lines[one]
    elif way == 3:
        chance.shuffle(lines)
    elif way == 4:
        lines[one] = lines[one].rstrip(b"\n")
    elif way == 5:
        lines.insert(one, chance.choice((b"\n", b"\r\n", b"{}\n", b"[]\n", b"null\n", b'"x"\n', b"\xff\n")))
    elif way == 6:
        del lines[one:]
    else:
        lines[one] = damaged(lines[one], chance)
    return lines


def as_text(value: Any) -> str:
    """JSON as no honest writer writes it: NaN, lone surrogates, numbers of any length."""
    try:
        return json.dumps(value, ensure_ascii=False) if _sound(value) else json.dumps(value)
    except RecursionError:
        return "[" * DEEP + "1" + "]" * DEEP


def _sound(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def misfit(document: dict[str, Any], chance: Random) -> str:
    """The JSON of an object in which one field, at some depth, is wrong, missing, doubled or renamed."""
    pairs = list(document.items())
    at = chance.randrange(len(pairs)) if pairs else 0
    name, held = pairs[at] if pairs else ("a", 1)
    way = chance.randrange(7)
    if way == 0 and pairs:
        del pairs[at]
    elif way == 1:
        pairs.append((name, value(chance)))
    elif way == 2 and pairs:
        pairs[at] = (chance.choice(NAMES), held)
    elif way == 3:
        pairs.append((text(chance), value(chance)))
    elif way >= 5 and isinstance(held, dict):
        inner = misfit(held, chance)
        return "{" + ",".join(f"{as_text(k)}:{inner if k == name else as_text(v)}" for k, v in pairs) + "}"
    else:
        pairs[at : at + 1] = [(name, value(chance))]
    return "{" + ",".join(f"{as_text(key)}:{as_text(held)}" for key, held in pairs) + "}"


def resealed(lines: list[bytes]) -> list[bytes]:
    """The same lines with a chain that holds, so that what was planted in them is read and not only its hash."""
    run_id, head, out = "", GENESIS, []
    for line in lines:
        try:
            document = json.loads(line)
            run_id = document.get("run_id", run_id)
            if "seq" in document:
                body = line[line.index(b'"body":') + 7 : line.rindex(b"}")]
                seq, kind, version, at, op = (document[name] for name in ("seq", "kind", "version", "at", "op"))
                head = chain_hash(head, run_id, seq, kind, version, at, op, body)
                line = line.replace(document["hash"].encode(), head.hex().encode())
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            pass
        out.append(line)
    old = _head_of(lines[0])
    return [line.replace(old, head.hex().encode()) if old else line for line in out]


def _head_of(line: bytes) -> bytes:
    try:
        found = json.loads(line)["head"]
        return found.encode() if len(found) == 64 else b""
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return b""

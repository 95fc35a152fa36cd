"""How what a step is given and gives back becomes plain data, and plain data becomes what was declared. Never pickles.

A value that could not be read back is refused with the place and a way out; nothing becomes None or text in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from types import CodeType, FunctionType, ModuleType
from typing import Any, get_type_hints

import msgspec

from holdfast.core.canonical import digest, encode_sorted
from holdfast.core.errors import HoldfastError, NotCanonical, TooLarge, UsageError, shown
from holdfast.core.named import NamedTuple
from holdfast.core.plain import EXACT, are_surely_plain, check_plain

MAX_INLINE = 32 * 1024
MAX_ARGUMENTS = 4 * 1024
MAX_OUTPUT = 16 * 1024 * 1024
_ATOMS = frozenset({str, int, float, bool, type(None)})
CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR = 0x20, 0x80, 0x200  # as `inspect` has them, which is slow to load
_tuple = tuple.__new__  # what a NamedTuple does in the end, without its frame
_NO_KEYS = frozenset({"IntType", "FloatType", "BoolType", "NoneType", "TupleType", "VarTupleType", "FrozenSetType"})
_LOOSE = frozenset({Any, object, dict, list, str, int, float, bool, None, type(None), "return"})


class Unstorable(HoldfastError):
    """A value that could not be read back."""

    reason = "unstorable"
    advice = (
        "Use plain data (text, numbers, lists, objects with text keys), or declare a dataclass or msgspec.Struct as the "
        "return type. What a step merely uses, such as a client, belongs in a closure or functools.partial."
    )

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(f"{what} cannot be stored: {problem}.")
        self.what = what
        self.problem = problem


class BadReceipt(HoldfastError):
    """What is on record as the receipt of an effect is not what its act declares. `replace` is the command that helps."""

    reason = "unstorable"

    def __init__(self, name: str, receipt: Any, problem: str, replace: str) -> None:
        super().__init__(f"The receipt {shown(receipt, 80)} on record for effect {name} cannot be used: {problem}.")
        self.advice = (
            f"The effect is not done again. Say the right one with `{replace}`, or let the return type of its act allow "
            "this one as well, for instance by a default for a field that is new, and resume."
        )


class BadResult(HoldfastError):
    """What is on record as the result of a step is not what its function declares now."""

    reason = "unstorable"
    advice = (
        "The step is not done again by itself. Let the return type of its function allow this one as well, for instance by a "
        "default for a field that is new, and resume; or give the step another name, and it is done anew."
    )

    def __init__(self, name: str, stored: Any, problem: str) -> None:
        super().__init__(f"The result {shown(stored, 80)} on record for step {name} cannot be used: {problem}.")


class Form(NamedTuple):
    """A value as it is kept, and as everybody gets to see it, now and after any restart."""

    stored: Any
    seen: Any


class Shape(NamedTuple):
    """What the engine knows of a function before it calls it. `declared` is a text if its results can never be stored."""

    names: tuple[str, ...]
    declared: Any
    code_hash: str | None


def shape_of(work: Callable[..., Any]) -> Shape:
    """Its open parameters (not the object of a method, nor what a partial holds), its declared result, its source."""
    if type(work) is FunctionType:
        return _shape(work)
    taken = 0
    while isinstance(work, partial):
        taken += len(work.args)
        work = work.func
    inner = getattr(work, "__func__", None)
    if inner is not None:
        taken, work = taken + 1, inner
    try:
        names, declared, source = _shape(work)
    except TypeError:  # it has no hash, as an object that can be called may
        names, declared, source = _shape.__wrapped__(work)
    return Shape(names[taken:], declared, source)


@lru_cache(maxsize=1024)
def _shape(work: Callable[..., Any]) -> Shape:
    code = getattr(work, "__code__", None)
    names = code.co_varnames[: code.co_argcount] if isinstance(code, CodeType) else ()
    return Shape(names, _declared_type(work), _source_hash(work))


def given(
    what: str, work: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], lent: bool = False
) -> dict[str, Any]:
    """The arguments by name, as plain data. What is `lent` to the function is its first parameter, and none of them."""
    return named(what, shape_of(work).names[lent:], args, kwargs)


def named(what: str, names: tuple[str, ...], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The same for a function whose parameters are known."""
    if not kwargs and len(args) <= len(names) and are_surely_plain(args):
        return dict(zip(names, args))  # noqa: B905 - there may be more names
    given: dict[str, Any] = {}
    for at, value in enumerate(args):
        given[names[at] if at < len(names) else str(at)] = value if type(value) in _ATOMS else _plain(value)
    for name, value in kwargs.items():  # one that can only be given by position may have the name of another
        given[name if name not in given else f"**{name}"] = value if type(value) in _ATOMS else _plain(value)
    try:
        check_plain(given)
    except NotCanonical as error:
        raise Unstorable(f"The argument {error.path.removeprefix('$.')} of {what}", error.problem) from None
    return given


def copied(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Arguments as they are now, whatever is done to the given ones afterwards."""
    from copy import deepcopy

    return deepcopy((args, kwargs))


def at_a_glance(names: tuple[str, ...], args: tuple[Any, ...]) -> tuple[dict[str, Any], bytes, bool] | None:
    """Small numbers and short plain text by name, their canonical form, and whether there is text: what `named` and `canonical`
    would give, in one pass. Every step that is done already comes by here. None for all else, which needs a closer look.
    """
    if len(args) > len(names):
        return None
    given, has_text = {}, False
    for name, value in zip(names, args):  # noqa: B905 - there may be more names
        kind = type(value)
        if kind is str:
            has_text = True
            if not value.isascii():
                return None
        elif not (-EXACT <= value <= EXACT if kind is int else value is None):
            return None
        given[name] = value
    clean = encode_sorted(given)  # ASCII, if the names are
    return (given, clean, has_text) if clean.isascii() and len(clean) <= MAX_ARGUMENTS else None


def result(what: str, value: Any, declared: Any) -> Form:
    """What a step gave back, checked, and as a later run would read it."""
    if declared is not None:
        return _declared(what, value, declared)
    kind = type(value)
    if kind is str and value.isascii():
        return _tuple(Form, (value, value))  # the usual one
    atom = kind in _ATOMS
    if not atom and _is_record(value):
        raise Unstorable(f"The result of {what}", f"a {type(value).__name__} needs a declared return type")
    try:
        check_plain(value)
    except NotCanonical as error:
        raise Unstorable(f"The result of {what} at {error.path}", error.problem) from None
    return _tuple(Form, (value, value) if atom else (again(value), again(value)))


def _declared(what: str, value: Any, declared: Any) -> Form:
    try:
        stored = msgspec.to_builtins(value)
        check_plain(stored)
        return Form(stored, read(what, again(stored), declared))
    except (TypeError, NotImplementedError, UnicodeEncodeError, RecursionError) as error:
        raise Unstorable(f"The result of {what}", str(error).rstrip(".")) from None
    except NotCanonical as error:
        raise Unstorable(f"The result of {what} at {error.path}", error.problem) from None


def read(what: str, stored: Any, declared: Any) -> Any:
    """Stored plain data as what was declared."""
    if declared is None:
        return stored
    try:
        return msgspec.convert(stored, declared)
    except msgspec.ValidationError as error:
        problem = f"it is not the declared {_named(declared)}: {str(error).rstrip('.')}"
        raise Unstorable(f"The result of {what}", problem) from None


def again(value: Any) -> Any:
    """A copy, as JSON gives it back: tuples are lists, and nobody's later change reaches the log."""
    return value if type(value) in _ATOMS else msgspec.json.decode(msgspec.json.encode(value))


def kept(given: dict[str, Any]) -> dict[str, Any]:
    """Arguments that nobody changes any more, whatever the work does to what it was given."""
    return given if _ATOMS.issuperset(map(type, given.values())) else dict(again(given))


def check_size(what: str, body: bytes) -> None:
    if len(body) > MAX_OUTPUT:
        advice = "Write it to a file and give back its path, or let several steps give back a part each."
        raise TooLarge(f"The result of {what}", len(body), MAX_OUTPUT, advice=advice)


def declared_result(what: str, work: Callable[..., Any]) -> Any:
    """The declared return type if it says more than plain data; None otherwise. Refuses one that can never be stored."""
    found = shape_of(work).declared
    if isinstance(found, str):
        raise Unstorable(f"The result of {what}", found)
    return found


def _declared_type(work: Callable[..., Any]) -> Any:
    if "return" not in getattr(work, "__annotations__", {}):
        return None
    try:
        declared = get_type_hints(work, include_extras=True).get("return")
    except Exception:  # noqa: BLE001 - a hint that cannot be read says nothing
        return None
    if declared in _LOOSE:
        return None
    return _storable(declared)


def _storable(declared: Any) -> Any:
    """The type itself, or the sentence that says why it will not do."""
    try:
        msgspec.json.Decoder(declared)
        kinds = msgspec.inspect.type_info(declared)
    except (TypeError, NotImplementedError) as error:
        return f"its declared type {_named(declared)} has no JSON form ({str(error).splitlines()[0].rstrip('.')})"
    part = next(_formless(kinds, set()), None)
    if part is None:
        return declared
    return f"its declared type {_named(declared)} has no JSON form" + (f" ({part})" if part != _named(declared) else "")


def _formless(kind: Any, seen: set[int]) -> Iterator[str]:
    """The parts of a type, however deep, that have no JSON form."""
    if id(kind) in seen:
        return
    seen.add(id(kind))
    if isinstance(kind, msgspec.inspect.CustomType) and kind.cls is not object:
        yield _named(kind.cls)
    if isinstance(getattr(kind, "key_type", None), tuple(getattr(msgspec.inspect, name) for name in _NO_KEYS)):
        yield "keys that are not text"
    for name in kind.__struct_fields__:
        parts = getattr(kind, name)
        for part in parts if isinstance(parts, tuple) else (parts,):
            if isinstance(part, (msgspec.inspect.Type, msgspec.inspect.Field)):
                yield from _formless(part, seen)


def _named(declared: Any) -> str:
    return getattr(declared, "__name__", None) or shown(declared, 80)


def _plain(value: Any) -> Any:
    if _is_record(value):
        try:
            return msgspec.to_builtins(value, order="deterministic")  # a set has another order in every process
        except TypeError:
            return value  # the check that follows names the place
    return value


def _is_record(value: Any) -> bool:
    kind = type(value)
    return isinstance(value, msgspec.Struct) or hasattr(kind, "__dataclass_fields__")


def _inner(work: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(work, partial):
        work = work.func
    return getattr(work, "__func__", work)


def takes_key(work: Callable[..., Any], given: int = 0) -> bool:
    """Whether it has a parameter called `key` for the effect's key, which none of so many arguments by position fills."""
    while isinstance(work, partial):
        if "key" in work.keywords:
            return False
        given, work = given + len(work.args), work.func
    code = getattr(_inner(work), "__code__", None)
    if not isinstance(code, CodeType):
        return False
    filled = min(given + hasattr(work, "__func__"), code.co_argcount)
    open_ones = slice(max(filled, code.co_posonlyargcount), code.co_argcount + code.co_kwonlyargcount)
    return "key" in code.co_varnames[open_ones]


def check_call(what: str, call: partial[Any]) -> None:
    """Refuse what a function cannot be called with, before anything says that it was. Others know that by themselves."""
    inner = _inner(call)
    if type(inner) is not FunctionType or hasattr(inner, "__signature__"):
        return
    from inspect import signature  # slow to load

    try:
        signature(call.func, follow_wrapped=False).bind(*call.args, **call.keywords)
    except TypeError as error:
        raise UsageError(f"{what} cannot be called with what it is given: {error}.") from None


def check_begun(what: str, work: Any, awaited: bool) -> None:
    """Refuse what a call does not begin: a coroutine has to be `awaited`, and a generator to be asked for more."""
    code = getattr(_inner(work), "__code__", None)
    later = CO_GENERATOR | CO_ASYNC_GENERATOR | (0 if awaited else CO_COROUTINE)
    if isinstance(code, CodeType) and code.co_flags & later:
        raise UsageError(
            f"Calling {what} does nothing yet: it is a coroutine or a generator.",
            advice="Give an ordinary function; for coroutines there is `async with holdfast.arun(...)`.",
        )


# --- the code of a step


def code_hash(work: Callable[..., Any]) -> str | None:
    """A digest of the source text of a function; None if it has none that can be read."""
    return shape_of(work).code_hash


def _source_hash(work: Any) -> str | None:
    """Of the function, of all that it says it wraps, and of what an object does when it is called."""
    found, seen = [], list[Any]()
    while work is not None and not any(work is one for one in seen):
        seen.append(work)
        code = getattr(work, "__code__", None)
        if code is None and callable(work) and not hasattr(work, "__wrapped__"):
            code = getattr(type(work).__call__, "__code__", None)
        found.append(_code_hash(code) if isinstance(code, CodeType) else None)
        work = getattr(work, "__wrapped__", None)
        work = work if work is None else _inner(work)
    whole = list(filter(None, found))
    return digest("".join(whole).encode())[:32] if len(whole) > 1 else whole[0] if whole else None


@cache
def _code_hash(code: CodeType) -> str | None:
    text = _lines(code.co_filename)[code.co_firstlineno - 1 : _last_line(code)]
    if not text:
        return None
    indent = len(text[0]) - len(text[0].lstrip())
    return digest("".join(line[indent:] if line[:indent].isspace() else line for line in text).encode())[:32]


def keep_source(code: CodeType | ModuleType | None) -> None:
    """Read its file while that still is what runs: somebody may edit it before a step of it begins."""
    path = getattr(code, "co_filename", None) or getattr(code, "__file__", None)
    if path is not None:
        _lines(path)


_SHARED = ("<string>", "<stdin>")  # what many texts are called: linecache may know another one


@lru_cache(maxsize=64)
def _lines(path: str) -> Sequence[str]:
    """The lines of a source file. Most are plain ASCII files; what else there is, linecache knows, but is slow to load."""
    if path in _SHARED:
        return []
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.readlines()
    except (OSError, ValueError):
        lines = []
    if lines and all(map(str.isascii, lines)):
        return lines
    from linecache import getlines

    return getlines(path)


def _last_line(code: CodeType) -> int:
    own = max((end or line or 0 for line, end, _, _ in code.co_positions()), default=0)
    inner = [_last_line(const) for const in code.co_consts if isinstance(const, CodeType)]
    return max(own, code.co_firstlineno, *inner) if inner else max(own, code.co_firstlineno)

"""The grammar of ids and operation ids. Refuses anything that could name a path or hide in a terminal."""

from __future__ import annotations

from holdfast.core.errors import InvalidId

SPEC = "spec."  # the missions that Holdfast itself goes on with are called that and the name of their spec
COMMAND = "command."  # and those of `holdfast run -- COMMAND` that and a digest of its words and its folder
_FIRST = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_REST = _FIRST | frozenset("._-")
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz")
_WORD = _FIRST | {"_"}
_HEX = frozenset("0123456789abcdef")


def is_id(value: object) -> bool:
    return (
        isinstance(value, str)
        and 1 <= len(value) <= 64
        and value[0] in _FIRST
        and _REST.issuperset(value)
        and ".." not in value
    )


def check_id(value: object, what: str = "The id") -> str:
    if isinstance(value, str) and is_id(value):
        return value
    raise InvalidId(what, value)


def check_digest(value: object, what: str = "The artifact digest") -> str:
    if isinstance(value, str) and len(value) == 64 and _HEX.issuperset(value):
        return value
    raise InvalidId(what, value)


def is_of_command(mission_id: str) -> bool:
    """Whether it is a mission of `holdfast run -- COMMAND`, and not one of somebody's own that only begins like it."""
    words = mission_id.removeprefix(COMMAND)
    return len(words) == 16 and mission_id.startswith(COMMAND) and _HEX.issuperset(words)


def check_op(value: object) -> str:
    if isinstance(value, str) and len(value) == 32 and _HEX.issuperset(value):
        return value
    raise InvalidId("The operation id", value)


def is_kind(value: str) -> bool:
    """Kinds stand in the hashed text and on terminals: lower case, digits and underscores, at most 64."""
    return 1 <= len(value) <= 64 and value[0] in _LETTERS and _WORD.issuperset(value)

"""Loads msgspec without what it does not need: `typing_extensions`, and the `platform` of which `uuid` asks one word.

Its parts for other formats and for schemas, and what those load, are loaded when somebody asks them for something. A hook starts
a process for every event, and all of this is a fifth of its time. It also compiles the word Foo, to see whether that can be done:
Python makes a hundred classes before it compiles its first text, and this one would be the only one. What is loaded already is
left alone, and while other threads run nothing is hidden from them: then msgspec loads as it likes.
"""

import _thread
import sys
import typing
from importlib import import_module
from posix import uname
from types import ModuleType, SimpleNamespace
from typing import Any


class Later(ModuleType):
    """Stands for a module until something of it is wanted."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)


def _compile(text: str, *how: Any) -> Any:
    return None if text == "Foo" else compile(text, *how)


if "msgspec" not in sys.modules and _thread._count() == 0:
    _hidden: dict[str, Any] = {"typing_extensions": None}
    if "uuid" not in sys.modules:
        _hidden["platform"] = SimpleNamespace(system=lambda: uname().sysname)
    _hidden |= {name: Later(name) for name in ("textwrap", "msgspec.inspect", "msgspec.toml", "msgspec.yaml")}
    _hidden = {name: instead for name, instead in _hidden.items() if name not in sys.modules}
    sys.modules.update(_hidden)
    vars(typing)["compile"] = _compile  # its module finds this before the one of Python
    try:
        import msgspec  # noqa: F401
    finally:
        del vars(typing)["compile"]
        for _name in _hidden:
            del sys.modules[_name]

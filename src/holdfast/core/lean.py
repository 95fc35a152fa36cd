"""Loads msgspec without what it does not need: `typing_extensions`, and the `platform` of which `uuid` asks one word.

Its parts for other formats and for schemas, and what those load, are loaded when somebody asks them for something. A hook starts
a process for every event, and all of this is a fifth of its time. What is loaded already is left alone, and while other threads
run nothing is hidden from them: then msgspec loads as it likes.
"""

import _thread
import sys
from importlib import import_module
from posix import uname
from types import ModuleType, SimpleNamespace
from typing import Any


class Later(ModuleType):
    """Stands for a module until something of it is wanted."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)


if "msgspec" not in sys.modules and _thread._count() == 0:
    _hidden: dict[str, Any] = {"typing_extensions": None}
    if "uuid" not in sys.modules:
        _hidden["platform"] = SimpleNamespace(system=lambda: uname().sysname)
    _hidden |= {name: Later(name) for name in ("textwrap", "msgspec.inspect", "msgspec.toml", "msgspec.yaml")}
    _hidden = {name: instead for name, instead in _hidden.items() if name not in sys.modules}
    sys.modules.update(_hidden)
    try:
        import msgspec  # noqa: F401
    finally:
        for _name in _hidden:
            del sys.modules[_name]

"""Loads msgspec without what it does not need: `typing_extensions`, and the `platform` of which `uuid` asks one word.

A hook starts a process for every event, and these modules and what they load are a sixth of its time. What is loaded
already is left alone, and while other threads run nothing is hidden from them: then msgspec loads as it likes.
"""

import _thread
import sys
from posix import uname
from types import SimpleNamespace

if "msgspec" not in sys.modules and _thread._count() == 0:
    _hidden = {"typing_extensions": None}
    if "uuid" not in sys.modules:
        _hidden["platform"] = SimpleNamespace(system=lambda: uname().sysname)  # type: ignore[assignment]
    _hidden = {name: instead for name, instead in _hidden.items() if name not in sys.modules}
    sys.modules.update(_hidden)  # type: ignore[arg-type]
    try:
        import msgspec  # noqa: F401
    finally:
        for _name in _hidden:
            del sys.modules[_name]

"""Loads msgspec without what it does not need: `typing_extensions`, and the `platform` of which `uuid` asks one word.

A hook starts a process for every event, and these modules and what they load are a sixth of its time. While other
threads run nothing is hidden from them: then msgspec loads as it likes.
"""

import _thread
import sys
from posix import uname
from types import SimpleNamespace

_HIDDEN = {"typing_extensions": None, "platform": SimpleNamespace(system=lambda: uname().sysname)}

if not _HIDDEN.keys() & sys.modules.keys() and not {"msgspec", "uuid"} & sys.modules.keys() and _thread._count() == 0:
    sys.modules.update(_HIDDEN)  # type: ignore[arg-type]
    try:
        import msgspec  # noqa: F401
    finally:
        for _name in _HIDDEN:
            del sys.modules[_name]

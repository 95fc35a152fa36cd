"""Loads msgspec without `typing_extensions`, which it prefers to `typing` and does not need since Python 3.11.

A hook starts a process for every event, and those two modules and what they load are a seventh of its time. While other
threads run nothing is hidden from them: then msgspec loads as it likes.
"""

import _thread
import sys

_HIDDEN = "typing_extensions"

if _HIDDEN not in sys.modules and "msgspec" not in sys.modules and _thread._count() == 0:
    sys.modules[_HIDDEN] = None  # type: ignore[assignment]
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules[_HIDDEN]

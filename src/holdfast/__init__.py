"""Holdfast: long agent runs that survive crashes. A run is a log of events; everything else is a mirror of the log.

Importing this package is free: each public name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.app import open_store
    from holdfast.core.errors import HoldfastError
    from holdfast.core.redact import Redactor
    from holdfast.core.state import RunState, fold
    from holdfast.engine.log import RunLog, read_state, verify_run

__version__ = "0.1.0"

_HOMES = {
    "HoldfastError": "holdfast.core.errors",
    "Redactor": "holdfast.core.redact",
    "RunLog": "holdfast.engine.log",
    "RunState": "holdfast.core.state",
    "fold": "holdfast.core.state",
    "open_store": "holdfast.app",
    "read_state": "holdfast.engine.log",
    "verify_run": "holdfast.engine.log",
}

__all__ = [
    "HoldfastError",
    "Redactor",
    "RunLog",
    "RunState",
    "fold",
    "open_store",
    "read_state",
    "verify_run",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    return getattr(import_module(home), name)

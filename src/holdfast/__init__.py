"""Holdfast: long agent runs that survive crashes. A run is a log of events; everything else is a mirror of the log.

Importing this package is free: each public name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.app import open_store
    from holdfast.core.checkpoint import Conflict, ScopeRef, StepCheckpoint
    from holdfast.core.errors import HoldfastError
    from holdfast.core.redact import Redactor
    from holdfast.core.retry import Budget, Retry
    from holdfast.core.state import RunState, fold
    from holdfast.core.strictness import Strictness
    from holdfast.core.values import Answer
    from holdfast.engine.decorators import current_run, effect, step
    from holdfast.engine.log import RunLog, read_state, verify_run
    from holdfast.engine.resume import ResumeMiddleware
    from holdfast.engine.stopping import Stopped
    from holdfast.live import arun, run

__version__ = "0.1.0"

_HOMES = {
    "Answer": "holdfast.core.values",
    "Budget": "holdfast.core.retry",
    "Conflict": "holdfast.core.checkpoint",
    "HoldfastError": "holdfast.core.errors",
    "Redactor": "holdfast.core.redact",
    "ResumeMiddleware": "holdfast.engine.resume",
    "Retry": "holdfast.core.retry",
    "RunLog": "holdfast.engine.log",
    "RunState": "holdfast.core.state",
    "ScopeRef": "holdfast.core.checkpoint",
    "StepCheckpoint": "holdfast.core.checkpoint",
    "Stopped": "holdfast.engine.stopping",
    "Strictness": "holdfast.core.strictness",
    "arun": "holdfast.live",
    "current_run": "holdfast.engine.decorators",
    "effect": "holdfast.engine.decorators",
    "fold": "holdfast.core.state",
    "open_store": "holdfast.app",
    "read_state": "holdfast.engine.log",
    "run": "holdfast.live",
    "step": "holdfast.engine.decorators",
    "verify_run": "holdfast.engine.log",
}

__all__ = [
    "Answer",
    "Budget",
    "Conflict",
    "HoldfastError",
    "Redactor",
    "ResumeMiddleware",
    "Retry",
    "RunLog",
    "RunState",
    "ScopeRef",
    "StepCheckpoint",
    "Stopped",
    "Strictness",
    "arun",
    "current_run",
    "effect",
    "fold",
    "open_store",
    "read_state",
    "run",
    "step",
    "verify_run",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    return getattr(import_module(home), name)

"""Loads what a verb needs, where that is much. Leaves alone a collector that somebody else has switched off."""

from __future__ import annotations

import gc
from importlib import import_module
from typing import Any


def load(name: str) -> Any:
    """A module that loads two hundred others. None of that is ever garbage, and the collector need not search it for some."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        return import_module(name)
    finally:
        if was_on:
            gc.freeze()
            gc.enable()

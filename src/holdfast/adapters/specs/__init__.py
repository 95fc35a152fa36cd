"""Specs as people write them: read into the one model of `core.spec`, and written back without touching the rest."""

from holdfast.adapters.specs.folder import SpecFolder, find, named

__all__ = ["SpecFolder", "find", "named"]

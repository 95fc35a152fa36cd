"""The effects that Holdfast ships, each an `act` with the `probe` that says what became of it. A probe never writes or guesses.

Each name is loaded when it is first used: who writes files needs no HTTP.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.adapters.probes.common import EffectError
    from holdfast.adapters.probes.files import FileWrite
    from holdfast.adapters.probes.git import GitBranch, GitCommit, GitPush, GitTag
    from holdfast.adapters.probes.http import HttpRequest
    from holdfast.adapters.probes.packages import PackageInstall

_HOMES = {
    "EffectError": "common",
    "FileWrite": "files",
    "GitBranch": "git",
    "GitCommit": "git",
    "GitPush": "git",
    "GitTag": "git",
    "HttpRequest": "http",
    "PackageInstall": "packages",
}

__all__ = [
    "EffectError",
    "FileWrite",
    "GitBranch",
    "GitCommit",
    "GitPush",
    "GitTag",
    "HttpRequest",
    "PackageInstall",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)

"""What git ignores in the work tree of a task: named, and moved aside before the tree goes, so that nothing vanishes untold.

What programs make anew whenever they run goes with the tree, without a word.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from itertools import count

from holdfast.adapters.probes.git_runner import Git

FOLDER = "ignored"  # no task has this name
REBUILT = frozenset(
    {
        *(b"__pycache__", b".hypothesis", b".mypy_cache", b".nox", b".pytest_cache", b".ruff_cache", b".tox"),
        *(b".venv", b"venv", b"build", b"dist", b"node_modules", b"target"),
    }
)
_LISTED = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")


def ignored(git: Git, links: Collection[str]) -> list[bytes]:
    """The files and folders that git ignores, as it names them, without our links and without what is made anew."""
    assert git.place is not None
    ours, top = {os.fsencode(path) for path in links}, os.fsencode(git.place.top)
    found = [path for path in git(*_LISTED).split(b"\0") if path and path not in ours]
    return _outermost([path for path in found if not _is_rebuilt(path) and _has_more(os.path.join(top, path))])


def _outermost(paths: Sequence[bytes]) -> list[bytes]:
    """Without what is in a folder that is listed too."""
    folders = {path for path in paths if path.endswith(b"/")}
    return [path for path in paths if not any(path != folder and path.startswith(folder) for folder in folders)]


def _is_rebuilt(path: bytes) -> bool:
    return path.endswith(b".pyc") or not REBUILT.isdisjoint(path.split(b"/"))


def _has_more(path: bytes) -> bool:
    """Whether a file, or a folder all the way down, is anything else than what is made anew."""
    if os.path.islink(path) or not os.path.isdir(path):
        return True
    for _, folders, files in os.walk(path):
        folders[:] = [name for name in folders if name not in REBUILT]
        if any(not _is_rebuilt(name) for name in files):
            return True
    return False


def move_aside(top: str, paths: Sequence[bytes], home: str, name: str) -> str:
    """Move them to a folder that was not there before, and give its path. If it was killed, the rest goes to another one."""
    places = (os.path.join(home, FOLDER, name if number == 1 else f"{name}-{number}") for number in count(1))
    place = next(place for place in places if not os.path.lexists(place))
    for path in paths:
        target = os.path.join(os.fsencode(place), path.rstrip(b"/"))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.rename(os.path.join(os.fsencode(top), path.rstrip(b"/")), target)
    return place

"""Pipes, sockets, devices and hidden repositories in a work tree: git does not see them, so they are looked for by hand.

Opens nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from contextlib import suppress

from holdfast.adapters.git.ignoring import check_ignore
from holdfast.adapters.git.ws_desk import place_of
from holdfast.adapters.git.ws_gather import why_no_file
from holdfast.adapters.git.ws_scan import Own, shown
from holdfast.adapters.probes.git_runner import Git

_REPOSITORY = "it is a repository of its own"
_MANY = 2000  # entries that are looked at before git is asked which folders need no look
_IGNORED = ("ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z")


def odd_files(git: Git) -> list[str]:
    """One row for each, with what it is. What git ignores and what is in a repository of its own is left away."""
    top, own = os.fsencode(place_of(git).top), Own(git)
    seen = _below(top, frozenset(), _MANY)
    if seen is None:
        # git names a folder also if just all the files in it are ignored: that one is looked into
        named = [path[:-1] for path in git.ask(*_IGNORED).out.split(b"\0") if path.endswith(b"/")]
        seen = _below(top, _ignored(git, named)) or {}
    found = {path: why for path, why in seen.items() if path not in own and why != _REPOSITORY}
    found |= dict.fromkeys(_hidden(git, [path for path, why in seen.items() if why == _REPOSITORY]), _REPOSITORY)
    ignored = _ignored(git, found)
    return sorted(shown(path, why) for path, why in found.items() if path not in ignored)


def _hidden(git: Git, folders: Collection[bytes]) -> list[bytes]:
    """The git folders in folders that git takes for folders like any other: it lists files in them, and not just the folder."""
    argv = ("ls-files", "--cached", "--others", "-z", "--")
    listed = git(*argv, *map(os.fsdecode, folders)).split(b"\0") if folders else []
    insides = {folder: folder + b"/" for folder in folders}
    return [
        os.path.join(folder, b".git")
        for folder, inside in insides.items()
        if any(path.startswith(inside) and path != inside for path in listed)
    ]


def _ignored(git: Git, paths: Collection[bytes]) -> frozenset[bytes]:
    said = check_ignore(git, map(os.fsdecode, paths)).out.split(b"\0") if paths else []
    return frozenset(path.removeprefix(b"./") for path in said)


def _below(top: bytes, left_away: frozenset[bytes], most: int = sys.maxsize) -> dict[bytes, str] | None:
    """What is odd, by its path; None if there are more entries than `most`."""
    found: dict[bytes, str] = {}
    folders, count = [b""], 0
    for inside in folders:
        entries = _entries(os.path.join(top, inside))
        count += len(entries)
        if count > most:
            return None
        if inside and any(entry.name == b".git" for entry in entries):
            found[inside] = _REPOSITORY
            continue
        for entry in entries:
            if entry.is_file(follow_symlinks=False) or entry.is_symlink():
                continue
            path = os.path.join(inside, entry.name)
            if entry.is_dir(follow_symlinks=False):
                folders += [path] if entry.name != b".git" and path not in left_away else []
            else:
                with suppress(FileNotFoundError):
                    found[path] = why_no_file(entry.stat(follow_symlinks=False).st_mode)
    return found


def _entries(folder: bytes) -> list[os.DirEntry[bytes]]:
    with suppress(OSError):  # a folder that cannot be opened is named by whoever looks at its files
        return list(os.scandir(folder))
    return []

"""Folders that cannot be looked into. Git says that there are some, but cuts and mangles their names, so we look ourselves."""

from __future__ import annotations

import os

from holdfast.adapters.git.ignoring import check_ignore
from holdfast.adapters.git.ws_desk import place_of
from holdfast.adapters.probes.git_runner import Git

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LONGEST = 4000  # bytes of a path that git can be asked about


def closed_folders(git: Git) -> dict[bytes, str]:
    """Each by its path, with the reason. What git ignores is left away."""
    found: dict[bytes, str] = {}
    top = os.open(place_of(git).top, _FOLDER)
    try:
        folders = [b"."]
        for folder in folders:  # by the path from the top, as git does it: the whole path may be too long
            try:
                folders += _inside(top, folder)
            except FileNotFoundError:
                continue
            except OSError as error:
                found[folder.removeprefix(b"./")] = error.strerror or "unknown"
    finally:
        os.close(top)
    asked = [os.fsdecode(path) for path in found if len(path) < _LONGEST]
    said = check_ignore(git, asked).out.split(b"\0") if asked else []
    ignored = {path.removeprefix(b"./") for path in said}
    return {path: why for path, why in found.items() if path not in ignored}


def _inside(top: int, folder: bytes) -> list[bytes]:
    fd = os.open(folder, _FOLDER, dir_fd=top)
    try:
        with os.scandir(fd) as entries:
            names = [os.fsencode(entry.name) for entry in entries if entry.is_dir(follow_symlinks=False)]
    finally:
        os.close(fd)
    return [os.path.join(folder, name) for name in names if name != b".git"]

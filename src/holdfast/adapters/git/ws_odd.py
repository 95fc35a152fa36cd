"""Pipes, sockets and devices in a work tree: git does not see them at all, so they are looked for by hand. Opens nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from holdfast.adapters.git.ignoring import check_ignore
from holdfast.adapters.git.ws_desk import place_of
from holdfast.adapters.git.ws_gather import why_no_file
from holdfast.adapters.git.ws_scan import Own, shown
from holdfast.adapters.probes.git_runner import Git


def odd_files(git: Git) -> list[str]:
    """One row for each, with what it is. What git ignores and what is in a repository of its own is left away."""
    top, own = os.fsencode(place_of(git).top), Own(git)
    found = {path: why for path, why in _below(top, b"") if path not in own}
    said = check_ignore(git, map(os.fsdecode, found)).out.split(b"\0") if found else []
    ignored = {path.removeprefix(b"./") for path in said}
    return sorted(shown(path, why) for path, why in found.items() if path not in ignored)


def _below(top: bytes, inside: bytes) -> Iterator[tuple[bytes, str]]:
    try:
        entries = list(os.scandir(os.path.join(top, inside)))
    except OSError:
        return  # a folder that cannot be opened is named by whoever looks at its files
    if inside and any(entry.name == b".git" for entry in entries):
        return
    for entry in entries:
        path = os.path.join(inside, entry.name)
        if entry.is_dir(follow_symlinks=False):
            if entry.name != b".git":
                yield from _below(top, path)
        elif not entry.is_symlink() and not entry.is_file(follow_symlinks=False):
            with suppress(FileNotFoundError):
                yield path, why_no_file(entry.stat(follow_symlinks=False).st_mode)

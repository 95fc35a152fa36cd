"""What `holdfast doctor` sees of the folder of sidecars itself: files that are none, or that it cannot be read. Only looks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial

from holdfast.adapters.git import sidecars
from holdfast.adapters.git.repo import GitWorkspace
from holdfast.cli.doctor_tree import FIX, away, is_closed, listed, opening
from holdfast.core.sidecar import Sidecar
from holdfast.engine.health import OK, WARN, Finding


def refused(place: GitWorkspace) -> Iterator[Finding]:
    """Files in the folder of sidecars that are none; or the folder itself, if it cannot be read."""
    try:
        _, spoiled = sidecars.read_all(place.sidecars)
    except sidecars.SidecarsUnreadable as problem:
        yield Finding("sidecars", WARN, str(problem), out_of_the_way(place))
        return
    for level, files in by_level(spoiled).items():
        yield from listed("sidecars", files, partial(unused, place), level)


def out_of_the_way(place: GitWorkspace) -> str:
    """What makes the folder of sidecars readable: to open it or the one around it, or to move away what is no folder."""
    around = os.path.dirname(place.sidecars)
    closed = [folder for folder in (around, place.sidecars) if is_closed(folder)]
    if closed:
        return opening(closed[0])
    is_folder = os.path.isdir(around) and not os.path.islink(around)
    return away(place.sidecars if is_folder else around)


def by_level(spoiled: Sequence[sidecars.Refused]) -> dict[str, list[sidecars.Refused]]:
    """What a newer Holdfast wrote is no trouble; everything else is."""
    return {level: [one for one in spoiled if (one.cure == sidecars.NEWER) == (level == OK)] for level in (WARN, OK)}


def usable(place: GitWorkspace) -> list[Sidecar] | None:
    """The sidecars that can be used; None if the folder cannot be read. Both are told by `refused`."""
    try:
        return sidecars.read_all(place.sidecars)[0]
    except sidecars.SidecarsUnreadable:
        return None


def unused(place: GitWorkspace, one: sidecars.Refused) -> tuple[str, str]:
    said = f"{one.path} is not used: {one.why}."
    if one.cure == sidecars.NEWER:
        return f"{said} It does no harm, and a newer Holdfast can read it.", ""
    return said, FIX if one.cure == sidecars.MEND else away(
        one.path, os.path.dirname(place.sidecars)
    ) if one.cure else ""

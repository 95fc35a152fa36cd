"""Writes a handoff beside the run, for people and agents that look for files: stop.json and stop.md, or complete.*.

They are mirrors: whole or absent, never followed by links, and a failure is returned for the log, never raised.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from holdfast.adapters.git.plain_files import Folder, opened
from holdfast.core.errors import HoldfastError
from holdfast.core.handoff import Handoff, file_stem, to_json, to_markdown
from holdfast.core.ids import check_id
from holdfast.core.named import NamedTuple

STEMS = ("stop", "complete")
ENDINGS = (".md", ".json")


class Written(NamedTuple):
    """The files that are there now, and what went wrong if something did."""

    paths: tuple[str, ...] = ()
    problem: str = ""


def folder_of(main: str, run_id: str) -> str:
    return os.path.join(main, ".holdfast", "runs", check_id(run_id, "The run"))


def write(main: str, handed: Handoff) -> Written:
    """Both files, the JSON last; those of an earlier rest are gone before. `main` is the main work tree."""

    def put(folder: Folder) -> tuple[str, ...]:
        _remove(folder)
        stem = file_stem(handed)
        for ending, data in (
            (".md", to_markdown(handed).encode()),
            (".json", to_json(handed)),
        ):
            folder.replace(stem + ending, data, folder.look(stem + ending))
        return tuple(folder.path_of(stem + ending) for ending in ENDINGS)

    return _within(main, handed.run_id, put, make=True)


def gone(main: str, run_id: str) -> Written:
    """The run goes on: what an earlier stop left must not be read as if it were of now."""
    if not os.path.lexists(folder_of(main, run_id)):
        return Written()
    return _within(main, run_id, _remove, make=False)


def _remove(folder: Folder) -> tuple[str, ...]:
    """The JSON first, so that no program reads one that a person can no longer see explained."""
    for name in (stem + ending for stem in STEMS for ending in reversed(ENDINGS)):
        with suppress(FileNotFoundError):
            folder.remove(name)
    return ()


def _within(main: str, run_id: str, act: Callable[[Folder], tuple[str, ...]], make: bool) -> Written:
    """Do it in the folder of the run. Every folder on the way has to be a real one."""
    path = folder_of(main, run_id)
    try:
        for step in (os.path.dirname(os.path.dirname(path)), os.path.dirname(path)):
            with opened(step, make):
                pass
        with opened(path, make) as folder:
            return Written(act(folder))
    except (HoldfastError, OSError) as error:
        return Written((), str(error))

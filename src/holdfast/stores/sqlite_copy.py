"""A private copy of a SQLite store, for who may not write the index that reading it takes. Never a copy of two moments."""

from __future__ import annotations

import os
from contextlib import suppress

from holdfast.core.errors import StoreError
from holdfast.stores.sqlite_file import (
    Outdated,
    Unfinished,
    check_emptied,
    from_os,
    has_pages,
    needs_copy,
    open_for_reading,
    stamp,
)


def copy_if_needed(path: str, patience: float, is_last: bool) -> str | None:
    """The folder of a copy, if the store itself cannot be read; at the last look also if nobody finishes its index.

    Then no other connection of this process may be open: closing a file that was copied would drop its locks.
    """
    check_emptied(path)
    if needs_copy(path):
        return copy_aside(path)
    if is_last and has_pages(path):
        with suppress(Outdated):
            return _copy_unfinished(path, patience)
    return None


def copy_aside(path: str) -> str:
    """A private copy of a store, `copy.db` in a folder of its own. Nothing is left of one that fails.

    Raises Outdated if the store was written meanwhile.
    """
    import shutil
    import tempfile

    try:
        folder = tempfile.mkdtemp(prefix="holdfast-read-")
        copy = os.path.join(folder, "copy.db")
        before = stamp(path), stamp(path + "-wal")
        try:
            for end in ("", "-wal"):
                os.close(os.open(copy + end, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
                shutil.copyfile(path + end, copy + end)
            if before != (stamp(path), stamp(path + "-wal")):
                raise Outdated
        except BaseException:
            remove_copy(folder)
            raise
    except OSError as error:
        if error.filename in (path, path + "-wal") and error.filename2 is None:
            raise
        raise _no_copy(error, tempfile.tempdir or "No temporary folder") from error
    return folder


def _copy_unfinished(path: str, patience: float) -> str:
    """Nothing is written before the index is made, so a store whose index is unmade before and after was copied at one moment."""
    _check_unfinished(path, patience)
    folder = copy_aside(path)
    try:
        _check_unfinished(path, patience)
    except BaseException:
        remove_copy(folder)
        raise
    return folder


def _check_unfinished(path: str, patience: float) -> None:
    try:
        open_for_reading(path, patience).connection.close()
    except Unfinished:
        return
    raise Outdated


def _no_copy(error: OSError, folder: str) -> StoreError:
    advice = "This store can only be read as a copy. Set TMPDIR to a folder with room for it. Nothing was changed."
    problem = f"the store could not be copied there to be read ({error.strerror})"
    return type(from_os(error, folder))(str(folder), problem, advice=advice)


def remove_copy(folder: str) -> None:
    import shutil

    shutil.rmtree(folder)

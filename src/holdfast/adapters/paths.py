"""Where a path leads once every link on the way is followed, as `os.path.realpath` says it, in one question to the kernel.

That one asks for every folder on the way: a run of eight tasks asked ten thousand times. Where the kernel cannot say it in
full - nothing is there, or it lies outside of what we see, or /proc is missing - it is asked as before.
"""

from __future__ import annotations

import os
import sys

from holdfast.core.errors import BadInput, shown

_LOOK = os.O_PATH | os.O_CLOEXEC if sys.platform == "linux" else None
_GONE = " (deleted)"  # said behind the old name of what has none any more; a name may end like this, too


def real_path(path: str) -> str:
    """The path without links, dots and doubled slashes. What is missing at its end is left as it is."""
    return _kernels(path) or os.path.realpath(path)


def meant_path(path: str) -> str:
    """The same of a path that somebody wrote down, which may be none."""
    try:
        return real_path(path)
    except ValueError as problem:
        raise BadInput(f"{shown(path)} is no path: {problem}.") from None


def _kernels(path: str) -> str | None:
    if _LOOK is None:
        return None
    try:
        fd = os.open(path, _LOOK)
        try:
            said = os.readlink(f"/proc/self/fd/{fd}")
        finally:
            os.close(fd)
    except OSError:
        return None
    return said if said[:1] == "/" and not said.endswith(_GONE) else None

"""Looks into the submodules of a work tree, by the same guarded git, and says what of them a snapshot does not hold."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from holdfast.adapters.git.ws_scan import STATUS, Own, changes_of, parse_status, shown
from holdfast.adapters.paths import real_path
from holdfast.adapters.probes.git_place import Repository
from holdfast.adapters.probes.git_runner import Git
from holdfast.core.errors import HoldfastError
from holdfast.core.stops import snippet

_LONGEST = 4096
_SAMPLE = 3
_MANY = 1000


def strangers(git: Git, gitlinks: Iterable[bytes]) -> list[str]:
    """A row for each submodule whose own files are not as its commit has them, or that cannot be looked into."""
    rows = []
    for path in gitlinks:
        assert git.place is not None
        top = os.path.join(git.place.top, os.fsdecode(path))
        if why := _why(git, git.place, top) if os.path.lexists(os.path.join(top, ".git")) else _why_without_git(top):
            rows.append(shown(path, why))
    return rows


def _why_without_git(top: str) -> str | None:
    """Git takes no look at all into the folder of a submodule that was not checked out, or whose git folder is gone."""
    if os.path.islink(top):
        return None
    walk = ((folder, (*names, *filter(_is_link_in(folder), folders))) for folder, folders, names in os.walk(top))
    inside = (os.path.relpath(os.path.join(folder, name), top) for folder, names in walk for name in names)
    found = sorted(islice(inside, _MANY + 1))
    count = f"{len(found)}" if len(found) <= _MANY else f"more than {_MANY}"
    return (
        f"it is a submodule without a git folder, and {count} files in it are not kept ({_some(found)})"
        if found
        else None
    )


def _is_link_in(folder: str) -> Callable[[str], bool]:
    return lambda name: os.path.islink(os.path.join(folder, name))


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SAMPLE])


def _why(outer: Git, around: Repository, top: str) -> str | None:
    place = _place(around, top)
    if place is None:
        return "it is a submodule whose git folder lies elsewhere, so it was not looked into"
    try:
        git = Git(place, outer.given, outer.limits.seconds)
        finished = git.ask(*STATUS)
    except (HoldfastError, OSError) as error:
        return f"it is a submodule that cannot be looked into ({snippet(str(error))})"
    if finished.code:
        return "it is a submodule in which `git status` fails, so it was not looked into"
    changes = changes_of(parse_status(finished, Own(git)))
    some = _some([change.path for change in changes])
    return f"it is a submodule, and {len(changes)} changed files in it are not kept ({some})" if changes else None


def _place(outer: Repository, top: str) -> Repository | None:
    """Its git folder is in its own top, or among the modules of the repository around it."""
    git = os.path.join(top, ".git")
    if real_path(top) != os.path.abspath(top) or os.path.islink(git):
        return None
    if os.path.isdir(git):
        return None if os.path.lexists(os.path.join(git, "commondir")) else Repository(top, git, git)
    if not os.path.isfile(git):
        return None
    with open(git, encoding="utf-8", errors="surrogateescape") as file:
        said = file.read(_LONGEST).partition("\n")[0].replace("\0", "")
    folder = real_path(os.path.join(top, said.removeprefix("gitdir: ")))
    modules = {os.path.join(real_path(outer.common), "modules"), os.path.join(outer.git_dir, "modules")}
    inside = any(folder.startswith(module + os.sep) for module in modules)
    plain = inside and os.path.isdir(folder) and not os.path.lexists(os.path.join(folder, "commondir"))
    return Repository(top, folder, folder) if plain else None

"""Everything that changed since a commit: committed, staged, not staged, untracked, ignored. Only looks, at what is there.

What cannot be told apart is kept: if git cannot say which files are ignored, none is taken for one. Files behind
`assume-unchanged` or `skip-worktree` are looked at too; what is inside of a submodule or a nested repository is not. Our own
files are never among them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from holdfast.adapters.git.ignoring import RULE, check_ignore
from holdfast.adapters.git.plain_files import opened
from holdfast.adapters.git.ws_scan import Own
from holdfast.adapters.probes.common import EffectError
from holdfast.adapters.probes.git_runner import Git, complaint
from holdfast.adapters.probes.programs import Limits
from holdfast.core.errors import HoldfastError
from holdfast.core.guards import Touched
from holdfast.core.settings import FILE, TEMPLATE

CHECKED = "git check-ignore"
MOST = 256 * 1024 * 1024  # bytes of one listing; some two million paths
KINDS = {
    "A": "added",
    "M": "changed",
    "D": "deleted",
    "T": "changed type",
    "R": "renamed",
    "C": "copied",
    "U": "unmerged",
}
_NAMES = ("-z", "-M", "--name-status", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty")
_GONE = "gone"


def touched(git: Git, base: str | None) -> tuple[list[Touched], str]:
    """What differs from `base` (None: from nothing at all), and how ignored files were told apart."""
    git = _patient(git)
    found = dict.fromkeys([*_committed(git, base), *_staged(git, base), *_unstaged(git)])
    others = _paths(git("ls-files", "--others", "-z"))
    ignored, how = _ignored(git, others)
    found.update(dict.fromkeys(Touched(path, kind="untracked", ignored=path in ignored) for path in others))
    own = Own(git)
    return [one._replace(mark=_mark(git, one.path)) for one in found if os.fsencode(one.path) not in own], how


def made_by_init(git: Git, base: str | None, paths: Iterable[str]) -> frozenset[str]:
    """Those of the paths that `holdfast init` alone made what they are: its line at the end of `.gitignore`, or its file."""
    return frozenset(
        path for path in paths if (made := _BY_INIT.get(path)) and made(_blob(git, base, path), _now(git, path))
    )


def _is_with_rule(before: bytes | None, now: bytes | None) -> bool:
    """By lines: git may have changed the ends of all of them."""
    return now is not None and now.splitlines() == [*(before or b"").splitlines(), RULE]


def _is_template(before: bytes | None, now: bytes | None) -> bool:
    return before is None and now is not None and now == TEMPLATE.encode()


_BY_INIT = {".gitignore": _is_with_rule, FILE: _is_template}


def _blob(git: Git, base: str | None, path: str) -> bytes | None:
    finished = git.ask("cat-file", "blob", f"{base}:{path}") if base is not None else None
    return finished.out if finished is not None and finished.code == 0 else None


def _now(git: Git, path: str) -> bytes | None:
    assert git.place is not None
    try:
        with opened(git.place.top) as folder:
            found = folder.read(path)
    except HoldfastError:
        return None
    return None if found is None else found.data


def between(git: Git, old: str, new: str) -> list[Touched]:
    """What differs between two commits or trees, such as two snapshots."""
    said = _patient(git)("diff-tree", "-r", *_NAMES, "--end-of-options", old, new, "--")
    return parse(said)


def _patient(git: Git) -> Git:
    """The same git, with patience for long listings."""
    more = Git(git.place, git.given, git.limits.seconds)
    more.own = git.own
    more.limits = Limits(git.limits.seconds, MOST)
    return more


def _committed(git: Git, base: str | None) -> list[Touched]:
    head = _head(git)
    if head is None:
        return []
    return between(git, _nothing(git) if base is None else git.resolve(base), head)


def _staged(git: Git, base: str | None) -> list[Touched]:
    against = _head(git) or (_nothing(git) if base is None else git.resolve(base))
    return parse(git("diff-index", "--cached", *_NAMES, "--end-of-options", against, "--"))


def _unstaged(git: Git) -> list[Touched]:
    hidden = _hidden(git)
    with _all_seen(git, hidden) as index:
        return parse(git("diff", *_NAMES, "--", index=index))


def _head(git: Git) -> str | None:
    finished = git.ask("rev-parse", "--verify", "--quiet", "--end-of-options", "HEAD^{commit}")
    return None if finished.code else finished.out.decode().strip()


def _nothing(git: Git) -> str:
    """The id of the empty tree, which every repository knows."""
    return git.line("hash-object", "-t", "tree", "--stdin")


def parse(listing: bytes) -> list[Touched]:
    """The output of `--name-status -z`: a letter, perhaps with a number, then one path, or two for a rename."""
    fields = iter(_paths(listing))
    found = []
    for letter in fields:
        kind = KINDS.get(letter[:1], "changed")
        first = next(fields)
        found.append(Touched(next(fields), first, kind) if letter[:1] in "RC" else Touched(first, kind=kind))
    return found


def _paths(listing: bytes) -> list[str]:
    return [os.fsdecode(path) for path in listing.split(b"\0")[:-1]]


def _mark(git: Git, path: str) -> str:
    assert git.place is not None
    try:
        found = os.lstat(os.path.join(git.place.top, path))
    except (FileNotFoundError, NotADirectoryError):
        return _GONE
    return f"{found.st_mode:o} {found.st_size} {found.st_mtime_ns} {found.st_ino}"


# --- ignored files


def _ignored(git: Git, paths: Sequence[str]) -> tuple[frozenset[str], str]:
    """Which of the paths are ignored, and who said so. Without an answer, none of them is."""
    if not paths:
        return frozenset(), CHECKED
    try:
        finished = check_ignore(git, paths)
        if finished.code not in (0, 1):
            raise EffectError(complaint(finished))
    except HoldfastError as error:
        return frozenset(), f"{CHECKED} failed ({error}); every file counts as not ignored"
    return frozenset(path.removeprefix("./") for path in _paths(finished.out)), CHECKED


# --- files that git was told not to look at


def _hidden(git: Git) -> dict[str, list[str]]:
    """Tracked files that git was told not to look at, by the option that makes it look again.

    One that is to be skipped and is not there either is left out of the work tree on purpose (a sparse checkout).
    """
    assert git.place is not None
    found: dict[str, list[str]] = {"--no-assume-unchanged": [], "--no-skip-worktree": []}
    for line in _paths(git("ls-files", "-v", "-z")):
        tag, path = line[0], line[2:]
        if tag.islower():
            found["--no-assume-unchanged"].append(path)
        if tag in "Ss" and os.path.lexists(os.path.join(git.place.top, path)):
            found["--no-skip-worktree"].append(path)
    return {option: paths for option, paths in found.items() if paths}


@contextmanager
def _all_seen(git: Git, hidden: dict[str, list[str]]) -> Iterator[str | None]:
    """An index in which nothing is hidden: the user's own if that is so, else a copy that is thrown away."""
    assert git.place is not None
    if not hidden:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-", dir=git.given.get("TMPDIR")) as folder:
        copy = os.path.join(folder, "index")
        shutil.copy2(git.place.index_file, copy)
        for option, paths in hidden.items():
            listing = b"".join(os.fsencode(path) + b"\0" for path in paths)
            git("update-index", option, "-z", "--stdin", stdin=listing, index=copy)
        yield copy

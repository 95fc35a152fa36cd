"""What `holdfast doctor` sees of a repository itself: can git read it, ignore rules, rights, work trees, hooks. Only looks.

What stops one check is a finding of its own, with the reason and what to do, and the other checks go on.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from holdfast.adapters.git import hooks, ignoring, worktrees, ws_intent
from holdfast.adapters.git.repo import GitWorkspace
from holdfast.adapters.probes.common import EffectError
from holdfast.adapters.probes.git_place import find_repository
from holdfast.adapters.probes.git_runner import Git, complaint
from holdfast.core.errors import BadFile, HoldfastError
from holdfast.engine.health import FAIL, OK, WARN, Finding, what_to_do

FIX = "holdfast doctor --fix"
NAMED = 5
CURES = (
    (
        re.compile(r"dubious ownership in repository at '([^']+)'"),
        "It belongs to somebody else. If you trust them, tell git so.",
        "git config --global --add safe.directory {}",
    ),
    (re.compile(r"bad config"), "Mend that line by hand, or take it out.", ""),
    (
        re.compile(r"not a git repository: '([^']+)'"),
        "Its HEAD, `objects` or `refs` are not as git makes them: the file HEAD is a line like `ref: refs/heads/main`.",
        "",
    ),
)
WRITTEN = ("holdfast", "objects", "refs", "refs/holdfast", "refs/holdfast/checkpoints")  # in the git folder
Item = TypeVar("Item")


def attempt(check: str, look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """What a check finds; what it cannot read is a finding too."""
    try:
        yield from look()
    except (HoldfastError, OSError) as problem:
        yield stopped(check, problem)


def stopped(check: str, problem: HoldfastError | OSError) -> Finding:
    """Why a check came to no end, and what to do about it."""
    if isinstance(problem, OSError):
        problem = BadFile(str(problem.filename or "A file"), None, problem.strerror or str(problem))
    said, advice, fix, reason = f"{str(problem).rstrip('.')}.", what_to_do(problem), "", problem.reason
    if isinstance(problem, EffectError):  # what git could not do here is no effect of a run
        advice, fix = cure(said, "" if advice == EffectError.advice else advice)
        reason = BadFile.reason
    return Finding(check, FAIL, f"{said} {advice}".rstrip(), fix, reason)


def cure(said: str, otherwise: str) -> tuple[str, str]:
    """What helps against a complaint of git's, in words and as a command."""
    for sign, advice, fix in CURES:
        if found := sign.search(said):
            return advice, fix.format(*map(shlex.quote, found.groups()))
    return otherwise, ""


def listed(
    check: str, items: Sequence[Item], say: Callable[[Item], tuple[str, str]], level: str = WARN
) -> Iterator[Finding]:
    """A finding for each of the first few, and how many more there are."""
    for item in items[:NAMED]:
        sentence, fix = say(item)
        yield Finding(check, level, sentence, fix)
    if len(items) > NAMED:
        yield Finding(check, level, f"And {len(items) - NAMED} more like that.", say(items[NAMED])[1])


def away(path: str, folder: str | None = None) -> str:
    """A command that puts something out of the way, beside itself or into a folder, and overwrites nothing."""
    names = (f"{os.path.basename(path)}.aside{number}" for number in ("", *range(1, 1000)))
    targets = (os.path.join(folder or os.path.dirname(path), name) for name in names)
    return shlex.join(["mv", path, next(target for target in targets if not os.path.lexists(target))])


# --- the repository and its index


def unusable(top: str, problem: HoldfastError | OSError) -> Finding:
    """Why the folder that holds `.git` is no work tree of which checkpoints can be taken."""
    if worktrees.is_moved(top):
        said = f"{top} is a work tree that was moved, and git looks for it in its old place."
        return Finding("worktrees", WARN, said, shlex.join(["git", "-C", top, "worktree", "repair"]))
    if worktrees.is_submodule(top) or os.path.islink(os.path.join(top, ".git")):
        return Finding("repository", OK, f"No checkpoints of files can be taken here: {problem}")
    return stopped("repository", problem)


def readable(place: GitWorkspace) -> Iterator[Finding]:
    """Nothing is found where git can read the repository; otherwise git says why it cannot."""
    place.git("rev-parse", "--git-dir")
    yield from ()


def is_readable(place: GitWorkspace) -> bool:
    return not list(attempt("repository", partial(readable, place)))


def placed(place: GitWorkspace) -> Iterator[Finding]:
    """A repository may say that its work tree is elsewhere. Nobody is led there by it, but git looks there."""
    said = [value for scope, name, value in place.git.settings if (scope, name) == ("local", "core.worktree")]
    there = os.path.realpath(os.path.join(place.place.common, said[-1])) if said else place.main
    if there != place.main:
        files = saying(place, "core.worktree")
        told = (
            f"git takes {there} for the work tree, as core.worktree says in {' and '.join(files)}; "
            f"Holdfast takes {place.main}, which holds .git."
        )
        unsay = (shlex.join(["git", "config", "--file", file, "--unset-all", "core.worktree"]) for file in files)
        yield Finding("work tree", WARN, told, " && ".join(unsay))


def saying(place: GitWorkspace, name: str) -> list[str]:
    """The files in which a setting of the repository stands: its own, or others that it includes."""
    own = os.path.join(place.place.common, "config")
    said = place.git("config", "--file", own, "--includes", "--show-origin", "-z", "--get-all", name).split(b"\0")
    return [*dict.fromkeys(os.fsdecode(origin).removeprefix("file:") for origin in said[0:-1:2])]


def indexes(place: GitWorkspace) -> Iterator[Finding]:
    """The index of the main work tree, where our files are, and of the one we are in."""
    trees = {git.place: git for git in (ignoring.main_tree(place.git), place.git) if git is not None}
    yield from (problem for git in trees.values() if (problem := broken_index(git)))


def broken_index(git: Git) -> Finding | None:
    assert git.place is not None
    finished = git.ask("ls-files", "-z", "--", ignoring.FOLDER)
    if not finished.code:
        return None
    top, index = git.place.top, git.place.index_file
    said = (
        f"git cannot read {index}: {complaint(finished)}. "
        "It can be made anew from HEAD; what was staged is lost, and which files were in conflict."
    )
    again = ["git", "-C", top, "reset", "--quiet", "--", "."]  # for all paths: without any, it would end a merge
    return Finding("index", WARN, said, f"{away(index)} && {shlex.join(again)}")


def ignored(place: GitWorkspace) -> Iterator[Finding]:
    main = ignoring.main_tree(place.git)
    if main is None or broken_index(main) is None:
        yield from tracked(place)
    try:
        seen = ignoring.look(place.git)
    except HoldfastError as problem:
        yield Finding("ignored", WARN, str(problem), away(os.path.join(place.main, ".holdfast")))
        return
    if seen.ignored:
        yield Finding("ignored", OK, f"git ignores .holdfast/ ({seen.by}).")
    else:
        said = "git does not ignore .holdfast/, so it may be committed by accident."
        plain = ignoring.why_not(place.git) is None
        yield Finding("ignored", WARN, said, "holdfast init" if plain else "holdfast init --exclude")


def tracked(place: GitWorkspace) -> Iterator[Finding]:
    """Our files in the index of the main work tree. Taken out of it by force: that leaves the files where they are."""
    for path in ignoring.tracked(place.git)[:1]:
        out = ["git", "-C", place.main, "rm", "-r", "-f", "--quiet", "--cached", ignoring.FOLDER]
        yield Finding("ignored", WARN, f"git tracks {path}, which is Holdfast's own.", shlex.join(out))


def writable(place: GitWorkspace) -> Iterator[Finding]:
    common = place.place.common
    ours = (os.path.dirname(place.sidecars), place.sidecars)
    every = (*ours, common, *(os.path.join(common, name) for name in WRITTEN))
    closed = [folder for folder in every if is_closed(folder)]
    fixed = [folder for folder in closed if is_read_only(folder)]
    if fixed:
        said = (
            f"{fixed[0]} is on a file system that is mounted read-only. Nothing can be kept there until it is writable."
        )
        yield Finding("writable", WARN, said)
    for folder in closed:
        if folder not in fixed:
            yield Finding("writable", WARN, f"{folder} cannot be read and written.", opening(folder))


def is_closed(folder: str) -> bool:
    return os.path.isdir(folder) and not os.access(folder, os.R_OK | os.W_OK | os.X_OK)


def is_read_only(folder: str) -> bool:
    return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)


def opening(folder: str) -> str:
    """A command that lets us in; none where no permission would."""
    return "" if is_read_only(folder) else shlex.join(["chmod", "u+rwx", folder])


# --- work trees and hooks


def trees(place: GitWorkspace) -> Iterator[Finding]:
    yield from listed(
        "worktrees", worktrees.orphans(place.git), lambda one: (f"The worktree {one.path}: {one.why}.", one.fix)
    )
    begun = ws_intent.unfinished(place.git)
    yield from listed(
        "worktrees", begun, lambda one: (f"A restore into {one.path or 'a new folder'} was cut off.", FIX)
    )
    yield from listed(
        "worktrees",
        ws_intent.unindexed(place.git),
        lambda one: (f"A restore into {one.path} was cut off: all files are there, but its index is not.", FIX),
    )
    yield from listed("worktrees", ws_intent.doubtful(place.git), lambda one: (half_made(one.path), ""))


def half_made(path: str) -> str:
    """Somebody may have worked in it since, so what takes it away is for whoever has looked into it."""
    remove = shlex.join(["git", "worktree", "remove", "--force", path])
    return (
        f"A restore into {path} was cut off, and it cannot be told whether somebody uses that folder since. It is left "
        f"alone; some files may be missing in it. If nothing in it is yours, `{remove}` and then `{FIX}` take it away."
    )


def hooked(place: GitWorkspace) -> Iterator[Finding]:
    try:
        seen = [hooks.sight(git) for git in with_hooks(place)]
    except HoldfastError as problem:
        yield Finding("hooks", OK, f"Holdfast's hooks cannot be here: {problem}")
        return
    changed = [(name, one) for one in seen for name in one.changed]
    yield from listed(
        "hooks",
        changed,
        lambda it: (f"The hook {it[0]} was changed since Holdfast put it there.", hooks_again(place, it[1])),
    )
    missing = [one for one in seen if one.missing and any(other.was_here for other in seen)]
    yield from listed(
        "hooks",
        missing,
        lambda one: (
            f"In {one.folder} there is no {' and no '.join(one.missing)} of Holdfast's, so its hooks do not work in {one.top}.",
            hooks_again(place, one),
        ),
    )


def with_hooks(place: GitWorkspace) -> list[Git]:
    """Git in each work tree that has hooks of its own: in one of them, unless their place is relative."""
    if not hooks.is_for_each_tree(place.git):
        return [place.git]
    tops = [one.path for one in worktrees.list_worktrees(place.git) if worktrees.is_tree(one.path)]
    return [Git(find_repository(top), place.git.given, place.git.limits.seconds) for top in tops]


def hooks_again(place: GitWorkspace, one: hooks.Sight) -> str:
    """A command that puts our hooks into a work tree, whatever stands there."""
    steps = [away(path) for path in one.in_the_way]
    if not os.path.isdir(one.folder):
        steps.append(shlex.join(["mkdir", "-p", one.folder]))
    if one.top != place.top:
        steps.append(shlex.join(["cd", one.top]))
    return " && ".join([*steps, f"holdfast init --hooks{' --force' * bool(one.changed)}"])


CHECKS: dict[str, Callable[[GitWorkspace], Iterator[Finding]]] = {
    "work tree": placed,
    "index": indexes,
    "ignored": ignored,
    "worktrees": trees,
    "hooks": hooked,
}


def look(place: GitWorkspace) -> Iterator[Finding]:
    """Everything about the repository itself. Where git cannot read it, that and what can be seen without git."""
    yield from attempt("writable", partial(writable, place))
    broken = list(attempt("repository", partial(readable, place)))
    yield from broken
    for name, check in {} if broken else CHECKS.items():
        yield from attempt(name, partial(check, place))

"""Keeps `.holdfast/` of the main work tree out of commits. Asks git what is ignored; never reads a pattern itself."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Literal

from holdfast.adapters.git.plain_files import Folder, Plain, opened
from holdfast.adapters.probes.common import EffectError, hold
from holdfast.adapters.probes.git_place import find_repository
from holdfast.adapters.probes.git_runner import Git, complaint
from holdfast.adapters.probes.programs import Finished
from holdfast.core.errors import BadFile, HoldfastError
from holdfast.core.named import NamedTuple

FOLDER = ".holdfast"
RULE = b".holdfast/"
OWN = (
    f"{FOLDER}/",
    *(f"{FOLDER}/holdfast.db{end}" for end in ("", "-wal", "-shm", "-witness", "-lock")),
    f"{FOLDER}/checkpoints/x.json",
)
Where = Literal["gitignore", "exclude"]
INSTEAD = "Save it as plain text, or let `holdfast init --exclude` put the line into .git/info/exclude."
_ANYWHERE = "the store is not in a work tree"


class Ignored(NamedTuple):
    """Whether git leaves all our own files alone, and by which rule: `file:line pattern`, in git's own words.

    Where they are not ignored, `by` is the rule that says so (one with `!`), or None where git names none: about a
    folder it does so only if the folder is there.
    """

    ignored: bool
    by: str | None


def main_tree(git: Git) -> Git | None:
    """Git in the main work tree, where the store is; None if the repository has none."""
    place = git.place
    assert place is not None
    if place.git_dir == place.common:
        return git
    if os.path.basename(place.common) != ".git":
        return None
    return Git(find_repository(os.path.dirname(place.common)), git.given, git.limits.seconds)


def look(git: Git) -> Ignored:
    """Whether every own file would be ignored, whether it is there or not."""
    main = main_tree(git)
    if main is None:
        return Ignored(True, _ANYWHERE)
    folder, *rules = _rules(main, (FOLDER, *OWN))
    against = [rule for rule in rules if rule is None or not rule.ignored]
    if not against:
        return Ignored(True, rules[0] and rules[0].by)
    said = (rule.by for rule in (folder, *against) if rule and not rule.ignored)
    return Ignored(False, next(said, None))


def _rules(git: Git, paths: Sequence[str]) -> list[Ignored | None]:
    """For each path the rule that decides, as git says."""
    finished = check_ignore(git, paths, "--verbose", "--non-matching")
    fields = finished.out.split(b"\0")[:-1]
    if finished.code not in (0, 1) or len(fields) != 4 * len(paths):
        raise EffectError(
            f"`git check-ignore` failed: {complaint(finished)}",
            advice=f"Look at {FOLDER} and at the ignore rules of this repository; {FOLDER} must not be a link.",
        )
    said = [os.fsdecode(field) for field in fields]
    return [_rule(*said[at : at + 3]) for at in range(0, len(said), 4)]


def check_ignore(git: Git, paths: Iterable[str], *options: str) -> Finished:
    """Let git say which of the paths its rules ignore. `./` before a name keeps one that begins with `:` from being magic."""
    listing = b"".join(b"./" + os.fsencode(path) + b"\0" for path in paths)
    command = ("--no-literal-pathspecs", "check-ignore", *options, "-z", "--no-index", "--stdin")
    return git.ask(*command, stdin=listing)


def _rule(source: str, line: str, pattern: str) -> Ignored | None:
    if not pattern:
        return None
    return Ignored(not pattern.startswith("!"), f"{source}:{line} {pattern}")


def left_out(git: Git, paths: Sequence[str]) -> list[str]:
    """Those of these paths from the top of the work tree that no commit will hold: ignored, and not tracked."""
    ignored = [os.fsdecode(path).removeprefix("./") for path in check_ignore(git, paths).out.split(b"\0") if path]
    known = git("ls-files", "-z", "--", *ignored).split(b"\0") if ignored else []
    return [path for path in ignored if os.fsencode(path) not in known]


def tracked(git: Git) -> list[str]:
    """Own files that git tracks, which is a mistake: no ignore rule keeps them out of a commit."""
    main = main_tree(git)
    if main is None:
        return []
    return [os.fsdecode(path) for path in main("ls-files", "-z", "--", FOLDER).split(b"\0") if path]


def add_rule(git: Git, where: Where = "gitignore") -> bool:
    """Add the line `.holdfast/` in its place, in the style of the file. False, and nothing written, if git ignores it now."""
    main = main_tree(git)
    if main is None or look(main).ignored:
        return False
    assert main.place is not None
    folder, name = _file(main, where)
    with hold(main.place.common), opened(folder, make=where == "exclude") as inside:
        if look(main).ignored:  # somebody did it while we waited
            return False
        _add(main, inside, name)
    return True


def _add(main: Git, inside: Folder, name: str) -> None:
    """Add the line; if it turns out to be of no use, take it back and say so."""
    old = _readable(inside, name)
    inside.replace(name, with_rule(old.data if old else b""), old and old.found)
    now = look(main)
    if not now.ignored:
        inside.put_back(name, old)
        raise BadFile(
            inside.path_of(name),
            None,
            f"a line `{RULE.decode()}` here does not help: {now.by or 'a .gitignore'} takes it back",
            advice=f"Remove the rule with `!` that speaks of {FOLDER}. Nothing was changed.",
        )


def _readable(inside: Folder, name: str) -> Plain | None:
    """The file, in which git would understand another line. In one of two bytes to a character it would not."""
    old = inside.read(name)
    if old is not None and b"\0" in old.data:
        raise BadFile(
            inside.path_of(name), None, "it is not plain text, so git understands no line of it", advice=INSTEAD
        )
    return old


def why_not(git: Git) -> str | None:
    """Why no line can be added to `.gitignore`; None if one can."""
    main = main_tree(git)
    if main is None:
        return _ANYWHERE
    folder, name = _file(main, "gitignore")
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"{folder} cannot be written"
    try:
        with opened(folder) as inside:
            _readable(inside, name)
    except HoldfastError as problem:
        return str(problem)
    return None


def _file(main: Git, where: Where) -> tuple[str, str]:
    assert main.place is not None
    if where == "gitignore":
        return main.place.top, ".gitignore"
    return os.path.join(main.place.common, "info"), "exclude"


def with_rule(data: bytes) -> bytes:
    """The lines with ours at the end. They keep their line ends, and a last line without one stays so."""
    end = b"\r\n" if data.count(b"\r\n") * 2 > data.count(b"\n") else b"\n"
    if not data or data.endswith(b"\n"):
        return data + RULE + end
    return data + end + RULE


def init(git: Git, where: Where = "gitignore") -> list[str]:
    """Set the ignore rule up. What it did, in sentences; nothing if all was well."""
    main = main_tree(git)
    if main is None or not add_rule(main, where):
        return []
    return [f"Added `{RULE.decode()}` to {os.path.join(*_file(main, where))}."]

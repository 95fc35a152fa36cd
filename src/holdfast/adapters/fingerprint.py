"""Takes the fingerprint of a work tree's environment. Starts no program but git, follows no link out of the tree.

    python, platform, libc      what runs us, and on what
    tool:<name>                 a package manager or toolchain on the path: where it is, its size and time
    agent:<name>                an agent that ships or that settings name: where it is, and a digest of size and time
    lockfile:<path>             every lockfile that git tracks, and those at the top that it does not: SHA-256
    pin:<path>                  files that choose the version of a toolchain: SHA-256

Programs are not asked for their version: that is slow, and a program on somebody's path can do anything. So one that
was installed anew counts as changed even if it is the same version.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from holdfast.adapters.paths import real_path
from holdfast.adapters.probes.git_place import find_repository
from holdfast.adapters.probes.git_runner import Git
from holdfast.adapters.probes.programs import Limits, search_path
from holdfast.core.fingerprint import VERSION, Fingerprint, make

AGENTS = ("codex", "claude", "gemini", "opencode", "aider", "mini")
TOOLS = (
    *("python", "python3", "pip", "uv", "poetry", "pipenv", "pdm", "conda", "pixi"),
    *("node", "npm", "pnpm", "yarn", "bun", "deno"),
    *("cargo", "rustc", "go", "ruby", "bundle", "php", "composer", "java", "mvn", "gradle", "dotnet", "swift", "mix"),
    *("git", "make"),
)
LOCKFILES = frozenset(
    {
        *(
            "package-lock.json",
            "npm-shrinkwrap.json",
            "pnpm-lock.yaml",
            "yarn.lock",
            "bun.lock",
            "bun.lockb",
            "deno.lock",
        ),
        *("uv.lock", "poetry.lock", "pdm.lock", "pylock.toml", "Pipfile.lock", "conda-lock.yml", "pixi.lock"),
        *("Cargo.lock", "go.sum", "go.work.sum", "Gemfile.lock", "gems.locked", "composer.lock"),
        *("gradle.lockfile", "buildscript-gradle.lockfile", "packages.lock.json", "paket.lock"),
        *("Package.resolved", "Podfile.lock", "pubspec.lock", "mix.lock", "rebar.lock", "flake.lock"),
        *(
            "stack.yaml.lock",
            "cabal.project.freeze",
            "conan.lock",
            "Chart.lock",
            ".terraform.lock.hcl",
            "MODULE.bazel.lock",
        ),
    }
)
LOCKFILE_PATTERNS = ("requirements*.txt", "constraints*.txt", "pylock.*.toml")
# of what git tracks: a name by which people and tools call a lockfile, whichever tool it is for
TRACKED_PATTERNS = (
    *("*.lock", "*.locked", "*.lockfile", "*.lock.json", "*-lock.json", "*lock.yaml", "*lock.yml", "*.lock.hcl"),
    *("*.resolved", "*.freeze", "cpanfile.snapshot", "Manifest.toml", "dub.selections.json"),
    *("requirements/*.txt", "*/requirements/*.txt"),
)
PINS = frozenset(
    {
        *(".python-version", ".node-version", ".nvmrc", ".ruby-version", ".java-version", ".go-version"),
        *(".tool-versions", "mise.toml", ".mise.toml", "rust-toolchain", "rust-toolchain.toml", "global.json"),
    }
)
LARGEST = 64 * 1024 * 1024  # bytes of one file that are read; of a larger one size and time count
TOTAL = 1024 * 1024 * 1024
COUNT = 5000
_REMEMBERED = 20_000  # paths
_LISTING = 256 * 1024 * 1024
_PIECE = 1 << 20
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def take(
    top: str, environ: Mapping[str, str], agents: Sequence[str] = AGENTS, own: Mapping[str, str] | None = None
) -> Fingerprint:
    """The fingerprint of the environment in which a run works in this work tree. `own`: further agents, by their program."""
    path = search_path(environ)
    programs = {**dict(zip(agents, agents, strict=True)), **(own or {})}
    facts = dict(_machine())
    facts.update((f"tool:{name}", text) for name in TOOLS if (text := _tool(name, path)))
    facts.update((f"agent:{name}", text) for name, program in programs.items() if (text := _agent(program, path, top)))
    facts.update(_files(real_path(top), environ))
    return make(facts)


_NAMES = {"cpython": "CPython", "pypy": "PyPy"}  # as `platform` has them, which is slow to load


def _machine() -> Iterator[tuple[str, str]]:
    yield VERSION, "2"
    program = _text(real_path(sys.executable)) if sys.executable else "embedded"
    yield "python", f"{_NAMES.get(sys.implementation.name, sys.implementation.name)} {sys.version.split()[0]} {program}"
    system = os.uname()
    yield "platform", f"{system.sysname} {system.machine}"
    if libc := _libc():
        yield "libc", libc


def _libc() -> str | None:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):  # another system, another libc
        return None


# --- programs


def _which(name: str, path: str) -> str | None:
    """As `shutil.which`, with one question for each folder: forty names in ten folders are looked for again and again."""
    for folder in path.split(os.pathsep) if os.sep not in name else ("",):
        place = os.path.join(folder, name)
        if os.access(place, os.X_OK) and not os.path.isdir(place):
            return place
    return None


def _found(name: str, path: str) -> tuple[str, os.stat_result] | None:
    place = _which(name, path)
    if place is None:
        return None
    place = real_path(place)
    try:
        return place, os.stat(place)
    except FileNotFoundError:  # removed this moment
        return None


def _tool(name: str, path: str) -> str | None:
    found = _found(name, path)
    return found and f"{_text(found[0])} size {found[1].st_size} mtime_ns {found[1].st_mtime_ns}"


def _agent(program: str, path: str, top: str) -> str | None:
    found = _found(os.path.join(top, program) if os.sep in program else program, path)
    if found is None:
        return None
    digest = hashlib.sha256(f"{found[1].st_size} {found[1].st_mtime_ns}".encode()).hexdigest()
    return f"{_text(found[0])} {digest}"


def _text(path: str) -> str:
    """A path as text that can be stored: bytes that are not UTF-8 are written as escapes."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


# --- files


def _files(top: str, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    wanted = [(kind, path) for path, is_tracked in _paths(top, environ).items() if (kind := _kind(path, is_tracked))]
    budget = TOTAL
    for kind, path in wanted[:COUNT]:
        said, spent = _content(top, path, min(LARGEST, budget))
        budget -= spent
        yield f"{kind}:{_text(path)}", said
    if len(wanted) > COUNT:
        yield "lockfiles:not_read", f"{len(wanted) - COUNT} more than {COUNT}"


def _paths(top: str, environ: Mapping[str, str]) -> dict[str, bool]:
    """What git tracks, and what lies at the top; the top first. With whether it is tracked."""
    git = Git(find_repository(top), environ)
    git.limits = Limits(git.limits.seconds, _LISTING)
    tracked = {os.fsdecode(path) for path in git("ls-files", "-z").split(b"\0") if path}
    every = sorted({*tracked, *os.listdir(top)}, key=lambda path: (path.count("/"), path))
    return {path: path in tracked for path in every}


@lru_cache(maxsize=_REMEMBERED)  # git tells the same files again with every milestone
def _kind(path: str, is_tracked: bool) -> str | None:
    name = os.path.basename(path)
    if name in LOCKFILES or _NAMED(name) or (is_tracked and (_CALLED(name) or _CALLED(path))):
        return "lockfile"
    return "pin" if name in PINS else None


def _any_of(patterns: Iterable[str]) -> Callable[[str], re.Match[str] | None]:
    return re.compile("|".join(map(fnmatch.translate, patterns))).match


_NAMED, _CALLED = _any_of(LOCKFILE_PATTERNS), _any_of(TRACKED_PATTERNS)


def _content(top: str, path: str, limit: int) -> tuple[str, int]:
    """What stands for the content of a file, and how many bytes were read for it."""
    whole = os.path.join(top, path)
    folder = os.path.dirname(whole)
    if real_path(folder) != folder:
        return "behind a link", 0
    if os.path.islink(whole):
        return f"link to {_text(os.readlink(whole))}", 0
    try:
        fd = os.open(whole, _READ)
    except (FileNotFoundError, NotADirectoryError):
        return "missing", 0
    except OSError as error:
        return f"not readable ({error.strerror})", 0
    try:
        return _digest(fd, limit)
    finally:
        os.close(fd)


def _digest(fd: int, limit: int) -> tuple[str, int]:
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        return "not a regular file", 0
    if found.st_size > limit:
        return f"not read: size {found.st_size} mtime_ns {found.st_mtime_ns}", 0
    digest, read = hashlib.sha256(), 0
    while read <= limit and (piece := os.read(fd, _PIECE)):
        digest.update(piece)
        read += len(piece)
    return digest.hexdigest(), read

"""The only way git is started: nothing that a repository says is executed. Refuses a git that would not hear that.

The environment is made anew, arguments are lists, a name that a caller chose stands behind `--end-of-options` or goes
in through stdin. Time and output are bounded. What git can be talked into, and how it is kept from it: `git_config`.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Mapping, Sequence

from holdfast.adapters.probes.common import EffectError
from holdfast.adapters.probes.git_config import (
    ENVIRONMENT,
    FIXED,
    KEPT,
    KEPT_FOR_REMOTES,
    LOCAL,
    Setting,
    overrides,
    parse_settings,
)
from holdfast.adapters.probes.git_place import ID, Repository, is_detached, plain_head, read_configs, stands
from holdfast.adapters.probes.programs import Finished, Limits, find_program, run, search_path
from holdfast.adapters.remembering import Few
from holdfast.adapters.syncing import sync_folders
from holdfast.core.errors import UsageError
from holdfast.core.stops import snippet

OLDEST = (2, 31)  # the first that takes settings from numbered variables; an older one would not hear our overrides
SECONDS = 60.0
_NO_FOLDER = b"fatal: cannot change to "
_USER = re.compile(r"://[^/@\s]+@")

# What git said of the settings in these very files: the same bytes mean the same, as long as none of them names another file.
_REMEMBERED = 64
_SETTINGS = Few[object, tuple[Setting, ...]](_REMEMBERED)
_KNOWN_GIT = "/usr/bin/git" if sys.platform == "linux" else ""  # whose system settings are in /etc/gitconfig
_INCLUDES = ("include.", "includeif.")
_fsencode = functools.lru_cache(4096)(os.fsencode)

# What an id means never changes: by the repository, for all of its work trees, and the id.
_TREES = Few[tuple[str, str], str](1000)
_COMMITS = Few[tuple[str, str], None](1000)


class Git:
    """Git in one repository, or in none. `held` are locks that the programs it starts shall hold too.

    `own` are files of ours by their whole paths; what is in the work tree of them and beside them is no part of it.
    """

    def __init__(
        self, place: Repository | None, environ: Mapping[str, str] | None = None, seconds: float = SECONDS
    ) -> None:
        self.place = place
        self.given = os.environ if environ is None else environ
        self.program = find_program("git", self.given)
        self.limits = Limits(seconds)
        self.held: tuple[int, ...] = ()
        self.own: tuple[str, ...] = ()
        self._encoded: tuple[dict[str, str], dict[bytes, bytes]] = {}, {}
        check_version(self.program, search_path(self.given))

    @functools.cached_property
    def settings(self) -> tuple[Setting, ...]:
        """All that the user and the repository configured. Reading it starts nothing."""
        self._check_owner()
        files = self._files()
        key = (self.program, self.place and self.place.common, files)  # its work trees share all but the files
        if files is not None and key in _SETTINGS:
            return _SETTINGS[key]
        listing = self._run(["config", "--list", "--show-scope", "-z"], self._unset()).out
        found = tuple(parse_settings(listing))
        whole = self.place is None or any(scope == "local" for scope, _, _ in found)  # else git saw no repository here
        includes = any(name.lower().startswith(_INCLUDES) for _, name, _ in found)
        if files is not None and whole and not includes and files == self._files():
            _SETTINGS[key] = found
        return found

    def _files(self) -> tuple[bytes, ...] | None:
        """What git's settings are read from; None where we do not know that for sure."""
        is_known = self.program == _KNOWN_GIT and (self.place is None or stands(self.place))
        return read_configs(self.place, self.given) if is_known else None

    @functools.cached_property
    def environment(self) -> dict[str, str]:
        self._encoded = _told(tuple(self._around().items()), self.settings, self._tells_case())
        return self._encoded[0]

    def _bytes(self) -> dict[bytes, bytes]:
        """The environment, encoded once: every start would encode its hundred names and values again."""
        said, (before, encoded) = self.environment, self._encoded
        if before is not said:  # a copy of us got another one, which is mostly the same
            known = encoded if before.keys() <= said.keys() else {}
            new = said.items() - before.items() if known else said.items()
            self._encoded = said, {**known, **{_fsencode(name): _fsencode(value) for name, value in new}}
        return self._encoded[1]

    def _tells_case(self) -> bool:
        """Where the disk tells `A` from `a`, git must too, whatever a repository from another machine says: or files hide."""
        return self.place is not None and not os.path.lexists(os.path.join(self.place.git_dir, "hEAD"))

    def _around(self) -> dict[str, str]:
        """All that git is told but settings."""
        kept = {name: self.given[name] for name in KEPT if name in self.given}
        return {**kept, **ENVIRONMENT, "PATH": search_path(self.given), **self._where()}

    def _unset(self) -> dict[str, str]:
        """The environment of a git that reads the settings."""
        return {**self._around(), **numbered({**FIXED, **LOCAL})}

    def _where(self) -> dict[str, str]:
        if self.place is None:
            return {"GIT_DIR": "/dev/null"}
        return {"GIT_DIR": self.place.git_dir, "GIT_WORK_TREE": self.place.top}

    def _check_owner(self) -> None:
        """Naming the git folder keeps git from asking whose it is; so let git ask, if it is not ours."""
        place = self.place
        if place is None or all(os.stat(path).st_uid == os.geteuid() for path in place):
            return
        environment = {name: value for name, value in self._unset().items() if name not in self._where()}
        environment["GIT_CEILING_DIRECTORIES"] = os.path.dirname(place.top)
        self._run(["rev-parse", "--git-dir"], environment)

    # --- running

    def __call__(self, *argv: str, stdin: bytes = b"", index: str | None = None) -> bytes:
        """What git says; a failure is an error."""
        return self._checked(argv, self.ask(*argv, stdin=stdin, index=index)).out

    def ask(self, *argv: str, stdin: bytes = b"", index: str | None = None) -> Finished:
        """Run it, whatever its exit code."""
        environment = self._bytes() if index is None else {**self._bytes(), b"GIT_INDEX_FILE": os.fsencode(index)}
        finished = run(self._argv(argv), environment, self.limits, cwd=None, stdin=stdin, keep=self.held)
        if finished.code and finished.err.startswith(_NO_FOLDER):  # it has looked at nothing, so this is no answer
            raise EffectError(f"git cannot be started: {complaint(finished)}")
        return finished

    def _argv(self, argv: Sequence[str]) -> list[str]:
        return [self.program, "-C", "/" if self.place is None else self.place.top, *argv]

    def _run(self, argv: Sequence[str], environment: Mapping[str, str]) -> Finished:
        return self._checked(argv, run(self._argv(argv), environment, self.limits, cwd=None))

    def _checked(self, argv: Sequence[str], finished: Finished) -> Finished:
        if finished.code:
            raise EffectError(f"`git {argv[0]}` failed: {complaint(finished)}")
        return finished

    # --- looking

    def line(self, *argv: str, stdin: bytes = b"", index: str | None = None) -> str:
        return self(*argv, stdin=stdin, index=index).decode("utf-8", "surrogateescape").rstrip("\n")

    def value_of(self, ref: str) -> str | None:
        """The object a ref points at; None if there is no such ref."""
        argv = ("for-each-ref", "--format=%(refname) %(objectname)", "--end-of-options", ref)
        finished = self._checked(argv, self.ask(*argv))
        if ref.encode() in finished.err:
            raise EffectError(f"The ref {ref} cannot be read: {complaint(finished)}")
        rows = (line.split(b" ") for line in finished.out.splitlines())
        return {name: value.decode() for name, value in rows}.get(ref.encode())

    def head_ref(self) -> str | None:
        """The branch that HEAD stands on, by its full name; None if it stands on no branch."""
        if self.place is not None and (plain := plain_head(self.place)):
            return plain[1]
        if self.place is not None and is_detached(self.place):
            return None
        return os.fsdecode(self.ask("symbolic-ref", "--quiet", "HEAD").out.rstrip(b"\n")) or None

    def resolve(self, name: str) -> str:
        """The commit that a name means here and now."""
        finished = self.ask("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        if finished.code:
            raise EffectError(f"There is no commit {name!r:.120} in this repository.")
        return check_id(finished.out.decode().strip())

    def commit_of(self, name: str) -> str:
        """As `resolve`, but what is the id of a commit is asked once: it never means another, though it may be gone since."""
        if self._key(name) in _COMMITS:
            return name
        commit = self.resolve(name)
        _COMMITS[self._key(commit)] = None
        return commit

    def _key(self, sha: str) -> tuple[str, str]:
        return self.place.common if self.place else "", sha

    def tree_of(self, commit: str) -> str:
        """The tree of a commit, which git is asked for once."""
        key = self._key(check_id(commit))
        tree = _TREES.get(key)
        if tree is None:
            tree = self.line("rev-parse", "--verify", "--end-of-options", f"{commit}^{{tree}}")
            self.know_tree(commit, tree)
        return tree

    def know_tree(self, commit: str, tree: str) -> str:
        """Remember the tree of a commit that git has just made or named; gives the commit."""
        _TREES[self._key(commit)] = tree
        return commit

    def contains(self, tip: str, commit: str) -> bool:
        """Whether a commit is in the history of another."""
        finished = self.ask("merge-base", "--is-ancestor", commit, tip)
        if finished.code not in (0, 1):
            raise EffectError(f"`git merge-base` failed: {complaint(finished)}")
        return finished.code == 0

    def body_of(self, object_id: str, kind: str) -> bytes:
        return self("cat-file", kind, object_id)

    # --- changing

    def move(self, ref: str, new: str, old: str | None, reason: str) -> None:
        """Let a ref point at `new` if it still points at `old` (None: if it does not exist), all or nothing."""
        order = f"create {ref}\0{new}\0" if old is None else f"update {ref}\0{new}\0{old}\0"
        self("update-ref", "--no-deref", "-m", reason, "--stdin", "-z", stdin=order.encode())

    def sync(self, ref: str) -> None:
        """Make the names durable under which git put objects and refs; it syncs their contents itself."""
        assert self.place is not None
        objects = [os.path.join(self.place.objects, name) for name in os.listdir(self.place.objects) if len(name) == 2]
        sync_folders((*objects, self.place.objects, *_up(self.place.common, ref), self.place.common))


@functools.lru_cache(_REMEMBERED)
def _told(
    around: tuple[tuple[str, str], ...], settings: tuple[Setting, ...], tells_case: bool
) -> tuple[dict[str, str], dict[bytes, bytes]]:
    """The environment of a git in a repository with these settings, and the same as bytes. Neither is ever changed."""
    case = {"core.ignorecase": "false"} if tells_case else {}
    said = {**dict(around), **numbered({**FIXED, **LOCAL, **overrides(settings), **case})}
    return said, {_fsencode(name): _fsencode(value) for name, value in said.items()}


class RemoteGit(Git):
    """Git that talks to another repository. Of this one it sees no setting, and with no `place` nothing at all."""

    def __init__(self, environ: Mapping[str, str] | None, seconds: float, protocols: Sequence[str]) -> None:
        super().__init__(None, environ, seconds)
        self.protocols = protocols
        self.objects_of: dict[str, str] = {"GIT_DIR": "/dev/null"}

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: self.given[name] for name in (*KEPT, *KEPT_FOR_REMOTES) if name in self.given}
        closed = {**ENVIRONMENT, "GIT_ALLOW_PROTOCOL": ":".join(self.protocols)}
        return {**kept, **closed, "PATH": search_path(self.given), **self.objects_of, **numbered(FIXED)}


def _up(top: str, ref: str) -> list[str]:
    """The folders of a ref and of its log, from the inside out."""
    folders = []
    for path in (ref, os.path.join("logs", ref)):
        while path := os.path.dirname(path):
            folders.append(os.path.join(top, path))
    return folders


def numbered(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings as environment variables: a name may hold `=`, which `-c name=value` could not say."""
    said = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (name, value) in enumerate(settings.items()):
        said |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return said


@functools.cache
def version_of(program: str, path: str) -> tuple[int, int]:
    """Which git a program is; nothing that git is, if it does not say so."""
    finished = run([program, "version"], {"PATH": path, "LC_ALL": "C"}, Limits(SECONDS))
    found = re.search(rb"(\d+)\.(\d+)", finished.out)
    return (0, 0) if finished.code or not found else (int(found[1]), int(found[2]))


def check_version(program: str, path: str) -> None:
    if version_of(program, path) < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        raise EffectError(f"{program} is not git {wanted} or newer.", advice=f"Install git {wanted} or newer.")


def check_place(repo: str) -> None:
    if not os.path.isabs(repo):
        raise UsageError(f"{repo!r:.200} is not an absolute path.", advice="Name the repository by its whole path.")


def check_id(value: str) -> str:
    if not ID.fullmatch(value):
        raise EffectError(f"{value!r:.80} is not the full id of an object.", advice="`prepare` finds it out.")
    return value


_GOOD_REFS: set[tuple[str, str]] = set()  # by the program that called them good


def check_ref(git: Git, ref: str) -> None:
    """Refuse what git would not take for the name of a ref, and what would be taken for something else."""
    if (git.program, ref) in _GOOD_REFS:
        return
    if "\0" in ref or git.ask("check-ref-format", ref).code:
        raise EffectError(f"{ref!r:.120} cannot be the name of a branch or tag.")
    if len(_GOOD_REFS) < _REMEMBERED:
        _GOOD_REFS.add((git.program, ref))


def complaint(finished: Finished) -> str:
    """What git complained about, in one line, without the user or password of an address."""
    said = finished.err.decode("utf-8", "replace").partition("usage: git")[0]  # nobody asked how it is used
    text = _USER.sub("://", said).strip() or f"exit code {finished.code}"
    return snippet(text)

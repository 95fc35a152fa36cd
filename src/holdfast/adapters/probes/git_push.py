"""Pushes one commit to one ref of another repository, if that ref is where it was expected. Never overwrites anybody's work.

The push runs in a git folder of its own that only borrows the objects, so no setting of the repository is in force.
The probe asks the remote, from no repository at all. A remote that a repository's configuration names may not be a
folder of this machine: its hooks would run here. Name such a folder by its path.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from holdfast.adapters.paths import real_path
from holdfast.adapters.probes.common import EffectError, check_key, mark_of, sure
from holdfast.adapters.probes.git_place import Repository, find_repository
from holdfast.adapters.probes.git_runner import SECONDS, Git, RemoteGit, check_id, check_place, check_ref, complaint
from holdfast.core.errors import UsageError
from holdfast.core.values import Answer

PROTOCOLS = ("https", "ssh", "http", "git")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
_SCHEME = re.compile(r"([a-z]+)://[^-].*", re.DOTALL)
_SCP = re.compile(r"[^-/:][^/:]*:(?!:|//).+", re.DOTALL)
_SHA1 = "[core]\n\trepositoryformatversion = 0\n\tbare = true\n"
_SHA256 = "[core]\n\trepositoryformatversion = 1\n\tbare = true\n[extensions]\n\tobjectFormat = sha256\n"
Environ = Mapping[str, str] | None


@dataclass(frozen=True)
class GitPush:
    """Let `ref` of the `remote` be at `commit`. `before` is where it was, None if it did not exist there.

    The remote is a name from the repository's configuration, an address, or an absolute path. `rewrite` allows a
    commit that does not contain what was there before. Remote-tracking branches are not updated.
    """

    policy: ClassVar[Literal["probed"]] = "probed"

    repo: str
    remote: str
    ref: str
    commit: str
    before: str | None = None
    rewrite: bool = False
    environ: Environ = field(default=None, repr=False, compare=False)
    seconds: float = field(default=SECONDS, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_place(self.repo)
        for value in (self.commit, self.before or self.commit):
            check_id(value)
        if not self.ref.startswith("refs/") or not self.remote or "\0" in self.remote:
            raise UsageError("The ref must begin with refs/, and the remote must have a name.")

    @classmethod
    def prepare(
        cls, repo: str, remote: str, branch: str, commit: str | None = None, environ: Environ = None
    ) -> GitPush:
        """The effect as it stands now: the branch as it is here, against what the remote has. Asks the remote."""
        git = Git(find_repository(repo), environ)
        ref = f"refs/heads/{branch}"
        effect = cls(real_path(repo), remote, ref, git.resolve(commit or ref), environ=environ)
        return cls(effect.repo, remote, ref, effect.commit, effect._remote_value(git), environ=environ)

    @property
    def found(self) -> dict[str, Any]:
        """What `prepare` found out, by the names under which the constructor takes it."""
        return {"commit": self.commit, "before": self.before}

    @property
    def arguments(self) -> dict[str, Any]:
        what = {"ref": self.ref, "commit": self.commit, "before": self.before, "rewrite": self.rewrite}
        return {"repo": self.repo, "remote": self.remote, **what}

    def act(self, key: str) -> dict[str, Any]:
        """Push it. Whether the remote took it is its own word; if it is already there, nothing is sent."""
        check_key(key)
        git = self._git()
        if self._remote_value(git) == self.commit:
            return self._receipt()
        self._check_commits(git)
        finished = self._push(git, key)
        if finished and self._remote_value(git) != self.commit:
            raise EffectError(f"The push to {self.ref} was refused: {finished}", advice="Fetch, and plan it anew.")
        return self._receipt()

    def probe(self, key: str) -> Answer:
        return sure(lambda: self._answer(key))

    def _answer(self, key: str) -> Answer:
        check_key(key)
        now = self._remote_value(self._git())
        where = "does not exist there" if now is None else f"is at {now} there"
        if now == self.commit:
            return Answer("done", f"{self.ref} {where}", self._receipt())
        if now == self.before:
            return Answer("not_done", f"{self.ref} {where}")
        return Answer("unknown", f"{self.ref} {where}; somebody else pushed")

    def _receipt(self) -> dict[str, Any]:
        return {"ref": self.ref, "commit": self.commit}

    # --- here

    def _git(self) -> Git:
        git = Git(find_repository(self.repo), self.environ, self.seconds)
        check_ref(git, self.ref)
        return git

    def _check_commits(self, git: Git) -> None:
        git.resolve(self.commit)
        if self.before is not None and not self.rewrite:
            git.resolve(self.before)
            if not git.contains(self.commit, self.before):
                raise EffectError(
                    f"{self.commit} does not contain {self.before}, which the remote has.",
                    advice="Merge or rebase first; or pass rewrite=True if the remote's history is to be replaced.",
                )

    # --- there

    def _remote_git(self, git: Git) -> tuple[RemoteGit, str]:
        address, is_named = address_of(git, self.remote)
        protocol = protocol_of(address)
        allowed = PROTOCOLS if is_named else (*PROTOCOLS, "file")
        if protocol not in allowed:
            raise EffectError(
                f"The remote {self.remote!r:.80} is reached by {protocol!r}, which is not allowed here.",
                advice="Use https or ssh. A folder of this machine must be named by its path, not by a remote's name.",
            )
        protocols = ("file",) if protocol == "file" else PROTOCOLS
        return RemoteGit(self.environ, self.seconds, protocols), address

    def _remote_value(self, git: Git) -> str | None:
        remote, address = self._remote_git(git)
        argv = ("--upload-pack=git-upload-pack", "--quiet", "--end-of-options", address, self.ref)
        finished = remote.ask("ls-remote", *argv)
        if finished.code:
            raise EffectError(f"The remote {self.remote!r:.80} does not answer: {complaint(finished)}")
        rows = (line.split("\t") for line in finished.out.decode("utf-8", "replace").splitlines())
        values = [row[0] for row in rows if row[1:] == [self.ref]]
        return check_id(values[0]) if values else None

    def _push(self, git: Git, key: str) -> str:
        """Send it; what git complained about, or nothing if the remote took it."""
        assert git.place is not None
        remote, address = self._remote_git(git)
        lease = f"--force-with-lease={self.ref}:{self.before or ''}"
        quiet = ("--porcelain", "--no-verify", "--no-signed", "--no-follow-tags", "--no-recurse-submodules")
        with lent_objects(git.place, key, len(self.commit) == 64) as environment:
            remote.objects_of = environment
            pack = "--receive-pack=git-receive-pack"
            order = f"{self.commit}:{self.ref}"
            finished = remote.ask("push", *quiet, lease, pack, "--end-of-options", address, order)
        said = finished._replace(err=finished.out + finished.err)
        return complaint(said) if finished.code else ""


def address_of(git: Git, remote: str) -> tuple[str, bool]:
    """Where a remote is, and whether it was the repository that said so."""
    if not _NAME.fullmatch(remote):
        return remote, False
    names = {name: f"remote.{remote}.{name}" for name in ("pushurl", "url")}
    found = [[value for _, key, value in git.settings if key == name] for name in names.values()]
    addresses = found[0] or found[1]
    if len(addresses) != 1:
        raise EffectError(f"The remote {remote!r:.80} has {len(addresses)} addresses, not one.")
    return addresses[0], True


def protocol_of(address: str) -> str:
    """How an address is reached. Refuses what could be read as an option or as a helper program."""
    if found := _SCHEME.fullmatch(address):
        return found[1]
    if os.path.isabs(address):
        return "file"
    if _SCP.fullmatch(address):
        return "ssh"
    raise EffectError("The address of the remote is neither a URL, nor host:path, nor an absolute path.")


@contextmanager
def lent_objects(place: Repository, key: str, is_sha256: bool) -> Iterator[dict[str, str]]:
    """A git folder without a history or a setting of its own, which sees the objects of a repository."""
    folder = os.path.join(place.common, f"holdfast-push-{mark_of(key, place.common)}")
    os.makedirs(os.path.join(folder, "refs"), mode=0o700, exist_ok=True)
    for name, text in (("HEAD", "ref: refs/heads/none\n"), ("config", _SHA256 if is_sha256 else _SHA1)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
    shallow = os.path.join(place.common, "shallow")
    environment = {"GIT_DIR": folder, "GIT_OBJECT_DIRECTORY": place.objects}
    try:
        yield environment | ({"GIT_SHALLOW_FILE": shallow} if os.path.isfile(shallow) else {})
    finally:
        shutil.rmtree(folder, ignore_errors=True)

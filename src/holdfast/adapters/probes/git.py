"""Commits, branches and tags: each made by one compare-and-swap of a ref, and found again. Never touches HEAD, stash or hooks.

All of an act but one command is preparation that nobody sees. That one moves the ref if it is still where the act
found it, so an act that is repeated cannot do its work twice. Behind it, a commit only brings the user's index up to date.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from holdfast.adapters.paths import real_path
from holdfast.adapters.probes.common import EffectError
from holdfast.adapters.probes.git_commit import CommitEffect
from holdfast.adapters.probes.git_place import find_repository
from holdfast.adapters.probes.git_push import GitPush
from holdfast.adapters.probes.git_ref import TRAILER, Environ, RefEffect, check_message, with_trailer
from holdfast.adapters.probes.git_runner import SECONDS, Git, check_id, check_place
from holdfast.core.canonical import digest, digest_of
from holdfast.core.values import Answer

__all__ = ["GitBranch", "GitCommit", "GitPush", "GitTag"]


# --- commit


@dataclass(frozen=True)
class GitCommit(CommitEffect):
    """A commit on `branch`: of the index as it is, or of the files in `paths` as they are in the work tree.

    `before` is the commit the branch was at, None if it had none; the probe looks at what came after it. A path is
    relative to the top and names one file, which is added, changed or removed. Commits are not signed.
    """

    policy: ClassVar[Literal["probed"]] = "probed"

    repo: str
    message: str
    branch: str
    before: str | None
    paths: Sequence[str] | None = None
    allow_empty: bool = False
    environ: Environ = field(default=None, repr=False, compare=False)
    seconds: float = field(default=SECONDS, repr=False, compare=False)

    @classmethod
    def prepare(cls, repo: str, message: str, paths: Sequence[str] | None = None, environ: Environ = None) -> GitCommit:
        """The effect as it stands now, on the branch that is checked out. Keep what it `found` before the act."""
        git = Git(find_repository(repo), environ)
        ref = git.head_ref() or ""
        if not ref.startswith("refs/heads/"):
            raise EffectError("No branch is checked out here.", advice="`git switch` to a branch first.")
        branch = ref.removeprefix("refs/heads/")
        return cls(real_path(repo), message, branch, git.value_of(ref), paths, environ=environ)

    @property
    def found(self) -> dict[str, Any]:
        """What `prepare` found out, by the names under which the constructor takes it."""
        return {"branch": self.branch, "before": self.before}

    @property
    def arguments(self) -> dict[str, Any]:
        paths = None if self.paths is None else digest_of(sorted(self.paths))
        what = {"message_sha256": digest(self.message.encode()), "paths_sha256": paths}
        return {"repo": self.repo, "branch": self.branch, "before": self.before, **what}


# --- branch and tag


@dataclass(frozen=True)
class GitBranch(RefEffect):
    """The branch `name` at `commit`. `before` is where it was, None if it did not exist; a branch in use is not moved."""

    policy: ClassVar[Literal["probed"]] = "probed"

    repo: str
    name: str
    commit: str
    before: str | None = None
    environ: Environ = field(default=None, repr=False, compare=False)
    seconds: float = field(default=SECONDS, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_place(self.repo)
        for value in (self.commit, self.before or self.commit):
            check_id(value)

    @classmethod
    def prepare(cls, repo: str, name: str, at: str = "HEAD", environ: Environ = None) -> GitBranch:
        git = Git(find_repository(repo), environ)
        before = git.value_of(f"refs/heads/{name}")
        return cls(real_path(repo), name, git.resolve(at), before, environ)

    @property
    def ref(self) -> str:
        return f"refs/heads/{self.name}"

    @property
    def found(self) -> dict[str, Any]:
        """What `prepare` found out, by the names under which the constructor takes it."""
        return {"commit": self.commit, "before": self.before}

    @property
    def arguments(self) -> dict[str, Any]:
        return {"repo": self.repo, "branch": self.name, "commit": self.commit, "before": self.before}

    def _act(self, git: Git, key: str) -> dict[str, Any]:
        answer = self._look(git, key)
        if answer.settled_as == "unknown":
            raise self._refuse(answer)
        if answer.settled_as == "not_done":
            git.resolve(self.commit)
            self._refuse_if_in_use(git)
            git.move(self.ref, self.commit, self.before, f"{TRAILER}: {key}")
        return self._receipt()

    def _refuse_if_in_use(self, git: Git) -> None:
        trees = git.line("worktree", "list", "--porcelain").splitlines()
        if f"branch {self.ref}" in trees or git.head_ref() == self.ref:
            raise EffectError(f"The branch {self.name} is checked out.", advice="Move it where it is checked out.")

    def _look(self, git: Git, key: str) -> Answer:
        now = git.value_of(self.ref)
        if now == self.commit:
            return Answer("done", f"{self.name} is at {now}", self._receipt())
        was_ours = self._in_log(git, key)
        where = "does not exist" if now is None else f"is at {now}"
        if now == self.before and not was_ours:
            return Answer("not_done", f"{self.name} {where}")
        if was_ours and now is not None and git.contains(now, self.commit):
            return Answer("done", f"{self.name} was made by this effect and has moved on to {now}", self._receipt())
        return Answer("unknown", f"{self.name} {where}")

    def _in_log(self, git: Git, key: str) -> bool:
        quiet = ("--no-show-signature", "--no-decorate", "--no-notes", "--no-mailmap")
        finished = git.ask("log", "--walk-reflogs", *quiet, "--format=tformat:%gs", self.ref, "--")
        return finished.code == 0 and f"{TRAILER}: {key}" in finished.out.decode("utf-8", "replace").splitlines()

    def _receipt(self) -> dict[str, Any]:
        return {"branch": self.name, "commit": self.commit}


@dataclass(frozen=True)
class GitTag(RefEffect):
    """The new tag `name` at `commit`: annotated if it has a message, else only a name. It is never moved."""

    policy: ClassVar[Literal["probed"]] = "probed"

    repo: str
    name: str
    commit: str
    message: str | None = None
    environ: Environ = field(default=None, repr=False, compare=False)
    seconds: float = field(default=SECONDS, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_place(self.repo)
        check_id(self.commit)
        if self.message is not None:
            check_message(self.message)

    @classmethod
    def prepare(
        cls, repo: str, name: str, at: str = "HEAD", message: str | None = None, environ: Environ = None
    ) -> GitTag:
        git = Git(find_repository(repo), environ)
        return cls(real_path(repo), name, git.resolve(at), message, environ)

    @property
    def ref(self) -> str:
        return f"refs/tags/{self.name}"

    @property
    def found(self) -> dict[str, Any]:
        """What `prepare` found out, by the names under which the constructor takes it."""
        return {"commit": self.commit}

    @property
    def arguments(self) -> dict[str, Any]:
        message = None if self.message is None else digest(self.message.encode())
        return {"repo": self.repo, "tag": self.name, "commit": self.commit, "message_sha256": message}

    def _act(self, git: Git, key: str) -> dict[str, Any]:
        answer = self._look(git, key)
        if answer.settled_as == "unknown":
            raise self._refuse(answer)
        if answer.settled_as == "not_done":
            git.resolve(self.commit)
            target = self.commit if self.message is None else self._annotate(git, key)
            git.move(self.ref, target, None, f"{TRAILER}: {key}")
        return self._receipt()

    def _annotate(self, git: Git, key: str) -> str:
        tagger = git("var", "GIT_COMMITTER_IDENT").rstrip(b"\n")
        said = self._head() + b"tagger " + tagger + b"\n\n" + with_trailer(self.message or "", key)
        return check_id(git.line("mktag", stdin=said))

    def _head(self) -> bytes:
        return f"object {self.commit}\ntype commit\ntag {self.name}\n".encode()

    def _look(self, git: Git, key: str) -> Answer:
        now = git.value_of(self.ref)
        if now is None:
            return Answer("not_done", f"there is no tag {self.name}")
        if self._is_it(git, now, key):
            return Answer("done", f"the tag {self.name} is there", self._receipt())
        return Answer("unknown", f"there is another tag {self.name}, at {now}")

    def _is_it(self, git: Git, now: str, key: str) -> bool:
        if self.message is None:
            return now == self.commit
        with suppress(EffectError):  # a lightweight tag of that name has no body
            head, _, said = git.body_of(now, "tag").partition(b"\n\n")
            return head.startswith(self._head()) and said == with_trailer(self.message, key)
        return False

    def _receipt(self) -> dict[str, Any]:
        return {"tag": self.name, "commit": self.commit}

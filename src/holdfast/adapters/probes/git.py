"""Commits, branches and tags: each made by one compare-and-swap of a ref, and found again. Never touches HEAD, stash or hooks.

All of an act but its last command is preparation that nobody sees. The last one moves the ref if it is still where
the act found it, so an act that is repeated cannot do its work twice.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

from holdfast.adapters.probes.common import PATIENCE, EffectError, at_rest, check_key, hold, sure
from holdfast.adapters.probes.git_index import Stage
from holdfast.adapters.probes.git_push import GitPush
from holdfast.adapters.probes.git_runner import (
    SECONDS,
    Git,
    Repository,
    check_id,
    check_place,
    check_ref,
    find_repository,
)
from holdfast.core.canonical import digest, digest_of
from holdfast.core.errors import UsageError
from holdfast.core.values import Answer

__all__ = ["GitBranch", "GitCommit", "GitPush", "GitTag"]

TRAILER = "Holdfast-Effect"
_TRAILER_LINE = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*: \S.*")
_UNFINISHED = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply")
Environ = Mapping[str, str] | None


def with_trailer(message: str, key: str) -> bytes:
    """The message with the line that names the effect, in the block of trailers if there is one."""
    body = message.strip()
    last = body.split("\n\n")[-1]
    is_block = last != body and all(_TRAILER_LINE.fullmatch(line) for line in last.splitlines())
    return f"{body}{'' if is_block else chr(10)}\n{TRAILER}: {key}\n".encode()


def check_message(message: str) -> None:
    if not message.strip() or "\0" in message or message.encode("utf-8", "replace").decode() != message:
        raise UsageError("The message is empty or holds characters that git does not keep.")
    if f"{TRAILER.lower()}:" in message.lower():
        raise UsageError(f"The message already has a line {TRAILER}.", advice="Leave it out; it is added.")


def waiting_for(place: Repository, ref: str) -> str:
    """A few words about the lock files that a killed git left, for the end of a sentence."""
    locks = place.locks(ref)
    return f"; {', '.join(locks)} is left by a git that runs or was killed" if locks else ""


def refuse_unfinished(place: Repository) -> None:
    """Raise while a merge, rebase, pick or revert is going on: a commit now would become a part of it."""
    unfinished = [name for name in _UNFINISHED if os.path.lexists(os.path.join(place.git_dir, name))]
    if unfinished:
        raise EffectError(f"A merge or rebase is not finished ({unfinished[0]}).", advice="Finish or abort it.")


class NothingToCommit(EffectError):
    """The tree would be that of the parent."""


class _Ref(ABC):
    """What the effects on one ref of a repository share."""

    repo: str
    environ: Environ
    seconds: float

    @property
    @abstractmethod
    def ref(self) -> str: ...

    @abstractmethod
    def _act(self, git: Git, key: str) -> dict[str, Any]: ...

    @abstractmethod
    def _look(self, git: Git, key: str) -> Answer: ...

    def _git(self) -> Git:
        git = Git(find_repository(self.repo), self.environ, self.seconds)
        check_ref(git, self.ref)
        return git

    def act(self, key: str) -> dict[str, Any]:
        """Do it, unless it is done. Refuses to begin where anything is not as it was when it was planned."""
        check_key(key)
        git = self._git()
        assert git.place is not None
        with hold(git.place.common, PATIENCE) as lock:
            git.held = (lock,)
            receipt = self._act(git, key)
            git.sync(self.ref)
        return receipt

    def probe(self, key: str) -> Answer:
        return sure(lambda: self._answer(key))

    def _answer(self, key: str) -> Answer:
        check_key(key)
        git = self._git()
        assert git.place is not None
        if not at_rest(git.place.common):
            return Answer("unknown", "a git process of this or another effect is still at work in the repository")
        answer = self._look(git, key)
        if answer.settled_as == "done":
            git.sync(self.ref)
            return answer
        return answer._replace(evidence=answer.evidence + waiting_for(git.place, self.ref))

    def _refuse(self, answer: Answer) -> EffectError:
        return EffectError(f"{self.ref} is not what it was when this was planned: {answer.evidence}.")


# --- commit


class _Found(NamedTuple):
    """Commits that name an effect: those that are exactly it, and those that say more or less."""

    exact: list[str]
    other: list[str]


@dataclass(frozen=True)
class GitCommit(_Ref):
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

    def __post_init__(self) -> None:
        check_place(self.repo)
        check_message(self.message)
        if self.before is not None:
            check_id(self.before)
        if self.paths is not None:
            Stage.check_paths(self.paths)

    @classmethod
    def prepare(cls, repo: str, message: str, paths: Sequence[str] | None = None, environ: Environ = None) -> GitCommit:
        """The effect as it stands now, on the branch that is checked out. Keep what it `found` before the act."""
        git = Git(find_repository(repo), environ)
        ref = git.head_ref() or ""
        if not ref.startswith("refs/heads/"):
            raise EffectError("No branch is checked out here.", advice="`git switch` to a branch first.")
        branch = ref.removeprefix("refs/heads/")
        return cls(os.path.realpath(repo), message, branch, git.value_of(ref), paths, environ=environ)

    @property
    def ref(self) -> str:
        return f"refs/heads/{self.branch}"

    @property
    def found(self) -> dict[str, Any]:
        """What `prepare` found out, by the names under which the constructor takes it."""
        return {"branch": self.branch, "before": self.before}

    @property
    def arguments(self) -> dict[str, Any]:
        paths = None if self.paths is None else digest_of(sorted(self.paths))
        what = {"message_sha256": digest(self.message.encode()), "paths_sha256": paths}
        return {"repo": self.repo, "branch": self.branch, "before": self.before, **what}

    def _act(self, git: Git, key: str) -> dict[str, Any]:
        tip = git.value_of(self.ref)
        answer = self._judge(git, key, tip)
        if answer.settled_as == "done":
            return dict(answer.receipt)
        if answer.settled_as == "unknown":
            raise self._refuse(answer)
        self._check_place(git)
        stage = Stage(git, key, tip)
        tree = stage.of_index() if self.paths is None else stage.of_paths(self.paths)
        if not self.allow_empty and tree == (git.line("rev-parse", f"{tip}^{{tree}}") if tip else None):
            raise NothingToCommit("There is nothing to commit.", advice="Pass allow_empty=True if that is meant.")
        parents = ("-p", tip) if tip else ()
        commit = git.line("commit-tree", tree, *parents, "-F", "-", stdin=with_trailer(self.message, key))
        git.move(self.ref, check_id(commit), tip, f"{TRAILER}: {key}")
        return self._receipt(commit)

    def _check_place(self, git: Git) -> None:
        assert git.place is not None
        if git.head_ref() != self.ref:
            raise EffectError(f"The branch {self.branch} is not checked out.", advice=f"`git switch {self.branch}`.")
        refuse_unfinished(git.place)

    def _look(self, git: Git, key: str) -> Answer:
        return self._judge(git, key, git.value_of(self.ref))

    def _judge(self, git: Git, key: str, tip: str | None) -> Answer:
        if tip is None:
            is_new = self.before is None
            return Answer("not_done" if is_new else "unknown", f"there is no branch {self.branch}")
        found = self._search(git, key, tip)
        if found.exact:
            return Answer("done", f"{TRAILER} names it in {', '.join(found.exact)}", self._receipt(found.exact[0]))
        if found.other:
            return Answer("unknown", f"{found.other[0]} names this effect, but its message is another")
        return self._judge_absent(git, key, tip)

    def _judge_absent(self, git: Git, key: str, tip: str) -> Answer:
        """Not on the branch; but was it once?"""
        was = self._named(git, key, ("--walk-reflogs", self.ref))
        if was.exact or was.other:
            return Answer("unknown", f"{(was.exact + was.other)[0]} was on {self.branch} once and is not now")
        if self.before is not None and not git.contains(tip, self.before):
            return Answer("unknown", f"{self.branch} was rewritten; {self.before} is no longer in it")
        return Answer("not_done", f"no commit of {self.branch} names it")

    def _search(self, git: Git, key: str, tip: str) -> _Found:
        since = () if self.before is None else (f"^{self.before}",)
        return self._named(git, key, ("--topo-order", "--reverse", tip, *since))

    def _named(self, git: Git, key: str, where: Sequence[str]) -> _Found:
        line = f"{TRAILER}: {key}"
        listing = git.line("rev-list", "--fixed-strings", f"--grep={line}", *where, "--")
        found = _Found([], [])
        for commit in dict.fromkeys(listing.split()):
            said = git.body_of(check_id(commit), "commit").partition(b"\n\n")[2]
            if said == with_trailer(self.message, key):
                found.exact.append(commit)
            elif line.encode() in said.splitlines():
                found.other.append(commit)
        return found

    def _receipt(self, commit: str) -> dict[str, Any]:
        return {"commit": commit, "branch": self.branch}


# --- branch and tag


@dataclass(frozen=True)
class GitBranch(_Ref):
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
        return cls(os.path.realpath(repo), name, git.resolve(at), before, environ)

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
class GitTag(_Ref):
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
        return cls(os.path.realpath(repo), name, git.resolve(at), message, environ)

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

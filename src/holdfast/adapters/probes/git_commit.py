"""One commit, made by one compare-and-swap of its branch, and found again: what `GitCommit` and our own milestones share.

Apart from `git`, because loading what makes `GitCommit` a dataclass takes longer than a commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from holdfast.adapters.probes.common import PATIENCE, EffectError, hold, mark_of
from holdfast.adapters.probes.git_index import Stage, left_behind, mend
from holdfast.adapters.probes.git_place import find_repository
from holdfast.adapters.probes.git_ref import TRAILER, Environ, RefEffect, check_message, refuse_unfinished, with_trailer
from holdfast.adapters.probes.git_runner import SECONDS, Git, check_id, check_place
from holdfast.core.named import NamedTuple
from holdfast.core.values import Answer


class NothingToCommit(EffectError):
    """The tree would be that of the parent."""


class _Found(NamedTuple):
    """Commits that name an effect: those that are exactly it, and those that say more or less."""

    exact: list[str]
    other: list[str]


class CommitEffect(RefEffect):
    """A commit on `branch`, as `GitCommit` says."""

    def __init__(
        self,
        repo: str,
        message: str,
        branch: str,
        before: str | None,
        paths: Sequence[str] | None = None,
        allow_empty: bool = False,
        environ: Environ = None,
        seconds: float = SECONDS,
    ) -> None:
        self.repo, self.message, self.branch, self.before, self.paths = repo, message, branch, before, paths
        self.allow_empty, self.environ, self.seconds = allow_empty, environ, seconds
        self.__post_init__()

    def __post_init__(self) -> None:
        check_place(self.repo)
        check_message(self.message)
        if self.before is not None:
            check_id(self.before)
        if self.paths is not None:
            Stage.check_paths(self.paths)

    @property
    def ref(self) -> str:
        return f"refs/heads/{self.branch}"

    def _answer(self, key: str) -> Answer:
        """As for every ref. If it is done, but the act was cut off before the index had it, that is finished here."""
        answer = super()._answer(key)
        git = Git(find_repository(self.repo), self.environ, self.seconds)
        if answer.settled_as == "done" and git.place is not None and left_behind(git):
            with suppress(EffectError), hold(git.place.common, PATIENCE) as lock:  # if others are at work, they will
                git.held = (lock,)
                mend(git)
        return answer

    def _act(self, git: Git, key: str) -> dict[str, Any]:
        mend(git)
        tip = git.value_of(self.ref)
        answer = self._judge(git, key, tip)
        if answer.settled_as == "done":
            return dict(answer.receipt)
        if answer.settled_as == "unknown":
            raise self._refuse(answer)
        self._check_place(git)
        assert git.place is not None
        stage = Stage(git, mark_of(key, git.place.index_file), tip)
        try:
            commit = self._write(git, key, stage)
        except BaseException:
            stage.clear()
            raise
        stage.announce(commit)
        git.move(self.ref, commit, tip, f"{TRAILER}: {key}")
        stage.finish()
        return self._receipt(commit)

    def _write(self, git: Git, key: str, stage: Stage) -> str:
        """The commit as an object that nothing refers to yet."""
        tip = stage.tip
        tree = stage.of_index() if self.paths is None else stage.of_paths(self.paths)
        if not self.allow_empty and tree == (git.tree_of(tip) if tip else None):
            raise NothingToCommit("There is nothing to commit.", advice="Pass allow_empty=True if that is meant.")
        parents = ("-p", tip) if tip else ()
        commit = git.line("commit-tree", tree, *parents, "-F", "-", stdin=with_trailer(self.message, key))
        return git.know_tree(check_id(commit), tree)

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
        if self.before not in (None, tip) and not git.contains(tip, self.before):
            return Answer("unknown", f"{self.branch} was rewritten; {self.before} is no longer in it")
        return Answer("not_done", f"no commit of {self.branch} names it")

    def _search(self, git: Git, key: str, tip: str) -> _Found:
        if tip == self.before:
            return _Found([], [])
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

"""The repository that the tasks of a spec are worked in: `ports.Ground`, kept by git. Decides nothing about batches."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress

from holdfast.adapters import system
from holdfast.adapters.git import commits, merging, review_diff, trees
from holdfast.adapters.git.repo import GitWorkspace
from holdfast.adapters.probes.common import EffectError
from holdfast.core.errors import HoldfastError, UsageError


class GitGround:
    """The main work tree of a run, and those of its parallel tasks. `link`: ignored paths that these share with it."""

    def __init__(self, workspace: GitWorkspace, run_id: str, link: Sequence[str], environ: Mapping[str, str]) -> None:
        self._workspace = workspace
        self._trees = trees.TaskTrees(workspace, run_id)
        self._link = link
        self._environ = environ
        self.top = workspace.top

    def where(self) -> tuple[str | None, str | None]:
        return self._workspace.where()

    def open(self, name: str, base: str) -> str:
        path = self._trees.open(name, base)
        for one in self._link:
            with suppress(UsageError):  # what git does not ignore is in the work tree anyway
                self._trees.link(name, [one])
        return path

    def collect(self, name: str) -> str:
        return self._trees.collect(name)

    def bring_in(self, base: str, ours: str, theirs: Sequence[tuple[str, str]]) -> list[str]:
        merged = merging.merge(self._workspace.git, base, ours, theirs)
        return merging.put(self._workspace, ours, merged.commit)

    def close(self, name: str) -> str | None:
        left = self._trees.close(name)
        return None if left is None else f"The work tree {left.path} is kept: {left.why}."

    def refs(self) -> Mapping[str, str]:
        return self._trees.refs_now()

    def moved(self, before: Mapping[str, str]) -> list[str]:
        return trees.refs_moved(before, self._trees.refs_now())

    def last_commit(self, text: str, file: str) -> str:
        return commits.classify(self._workspace, text, file, self._workspace.known()).sentence

    def changed(self, cwd: str, since: str) -> list[str]:
        return [file.path for file in review_diff.diff(self._at(cwd), since, 0).files]

    def diff(self, cwd: str, since: str, limit: int) -> str:
        return review_diff.diff(self._at(cwd), since, limit).text

    def undo(self, before: str) -> tuple[list[str], str]:
        if not trees.changed_behind(self._workspace, before):
            return [], ""
        kept = system.new_run_id()
        return trees.undo(self._workspace, before, kept, system.now()), kept

    def _at(self, cwd: str) -> GitWorkspace:
        same = os.path.realpath(cwd) == os.path.realpath(self.top)
        return self._workspace if same else GitWorkspace(cwd, self._environ)


class NoGround(HoldfastError):
    """A place where no spec can be run."""

    reason = "bad_input"


def around(path: str, environ: Mapping[str, str]) -> GitWorkspace:
    """The work tree around a folder. Raises NoGround where there is none."""
    try:
        return GitWorkspace(path, environ)
    except EffectError as error:
        advice = "Specs are run in the work tree of a git repository; `git init` makes one."
        raise NoGround(str(error), advice=advice) from error


def check_commits(workspace: GitWorkspace) -> None:
    """Refuse a work tree in which the first batch could not be committed."""
    commit, branch = workspace.where()
    if branch is None:
        raise NoGround("No branch is checked out, so there is none to commit to.", advice="First `git switch -c NAME`.")
    if commit is None:
        raise NoGround("The branch has no commit yet, so nothing can be built on it.", advice="Make a first commit.")

"""The repository that the tasks of a spec are worked in: `ports.spec.Ground`, kept by git. Decides nothing about batches."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Literal

from holdfast.adapters import system
from holdfast.adapters.git import commits, merging, ref_moves, review_diff, task_ignored, trees
from holdfast.adapters.git.ignoring import left_out
from holdfast.adapters.git.repo import GitWorkspace
from holdfast.adapters.git.tree_put import blob_id
from holdfast.adapters.git.workspace import changed, object_format
from holdfast.adapters.paths import real_path
from holdfast.adapters.probes.common import EffectError
from holdfast.adapters.processes import left_behind
from holdfast.core.errors import HoldfastError, UsageError


class GitGround:
    """The main work tree of a run, and those of its parallel tasks. `link`: ignored paths that these share with it."""

    def __init__(self, workspace: GitWorkspace, run_id: str, link: Sequence[str], environ: Mapping[str, str]) -> None:
        self._workspace = workspace
        self._trees = trees.TaskTrees(workspace, run_id)
        self._link = link
        self._environ = environ
        self.top = workspace.top

    @cached_property
    def _format(self) -> str:
        return object_format(self._workspace.git)

    def where(self) -> tuple[str | None, str | None]:
        return self._workspace.where()

    def open(self, name: str, base: str) -> str:
        path = self._trees.open(name, base)
        for one in self._link:
            with suppress(UsageError):  # what git does not ignore is in the work tree anyway
                self._trees.link(name, [one])
        return path

    def path(self, name: str) -> str:
        return self._trees.path_of(name)

    def standing(self, name: str) -> Literal["open", "gone", "none"]:
        return self._trees.standing(name)

    def collect(self, name: str) -> str:
        return self._trees.collect(name)

    def ignored(self, name: str) -> list[str]:
        return self._trees.ignored(name)

    @property
    def aside(self) -> str:
        return os.path.join(self._trees.folder, task_ignored.FOLDER)

    def content(self, cwd: str, paths: Sequence[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for path in _inside(cwd, paths):
            with suppress(OSError):
                found[path] = blob_id(os.fsencode(os.path.join(cwd, path)), self._format)
        return found

    def committed(self, commit: str, paths: Sequence[str]) -> dict[str, str]:
        said = self._workspace.git("ls-tree", "-r", "-z", "--full-tree", commit, "--", *paths) if paths else b""
        rows = (row.split(b"\t", 1) for row in said.split(b"\0") if row)
        return {os.fsdecode(path): facts.split()[2].decode() for facts, path in rows}

    def present(self, cwd: str, paths: Sequence[str]) -> list[str]:
        return _inside(cwd, paths)

    def ignores(self, cwd: str, paths: Sequence[str]) -> list[str]:
        there = _inside(cwd, paths)
        return left_out(self._at(cwd).git, there) if there else []

    def bring_in(
        self,
        base: str,
        ours: str,
        theirs: Sequence[tuple[str, str]],
        kept: Collection[str],
        own: Collection[str],
    ) -> tuple[list[str], list[tuple[str, str]]]:
        merged = merging.merge(self._workspace.git, base, ours, theirs, kept, own)
        return merging.put(self._workspace, ours, merged.commit), list(merged.left_out)

    def close(self, name: str) -> str | None:
        left = self._trees.close(name)
        return None if left is None else left.sentence

    def refs(self) -> Mapping[str, str]:
        return self._trees.refs_now()

    def moved(self, before: Mapping[str, str]) -> list[str]:
        return ref_moves.refs_moved(before, self._trees.refs_now())

    def last_commit(self, text: str, file: str) -> str:
        return commits.classify(self._workspace, text, file, self._workspace.known()).sentence

    def uncommitted(self, cwd: str) -> list[str]:
        return [change.path for change in changed(self._at(cwd).git)]

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
        same = real_path(cwd) == real_path(self.top)
        return self._workspace if same else GitWorkspace(cwd, self._environ)


def _inside(cwd: str, paths: Sequence[str]) -> list[str]:
    """Those of the paths at which something is, as they are named from the folder; none that leads out of it."""
    inside = [os.path.relpath(os.path.join(cwd, path), cwd) for path in paths if "\0" not in path]
    return [path for path in inside if path[:3] != "../" and os.path.lexists(os.path.join(cwd, path))]


def put_away(workspace: GitWorkspace, run_id: str, stages: str) -> list[str]:
    """Remove the work trees of a run that does not go on, after what is in them was kept as commits: a sentence for each.

    None is removed while somebody may be at work in them; `stages` is the folder that names the processes of the run.
    """
    made = trees.TaskTrees(workspace, run_id)
    if not os.path.isdir(made.folder):
        return []
    folders = [entry.path for entry in os.scandir(stages)] if os.path.isdir(stages) else []
    alive = [
        left.why or f"process {left.identity.pid} of the run may be at work in it"
        for left in map(left_behind, folders)
        if left is not None
    ]
    return [sentence for left in made.left() for sentence in _put_away(made, left, alive)]


def _put_away(made: trees.TaskTrees, left: trees.Left, alive: Sequence[str]) -> list[str]:
    remove = f"`git worktree remove --force {shlex.quote(left.path)}` removes it."
    if alive:
        return [f"The work tree {left.path} is still there: {alive[0]}. {remove}"]
    try:
        found = made.about(made.collect(left.name)) if made.standing(left.name) == "open" else None
        worth = found if found is not None and made.holds_work(found) else None
        still = made.close(left.name, keep=worth is not None)
    except HoldfastError as error:
        return [f"The work tree {left.path} is still there: {error} {remove}"]
    said = []
    if worth is not None:
        said.append(f"`git diff {worth.base} {worth.sha}` shows what was in the work tree {left.path}.")
    if still is not None:
        said.append(f"{still.sentence} {remove}" if still.path == left.path else still.sentence)
    return said


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
    try:
        workspace.check_committable(branch)
    except EffectError as error:
        raise NoGround(str(error), advice="Nothing was begun. Put that right first.") from error

"""A work tree for each of the tasks that run at the same time, and what is in it as a commit. Never loses what was not collected.

The work tree of a task is at `<main work tree>/.holdfast/worktrees/<run>/<task>`, detached at a commit. What it holds is
collected as a commit under `refs/holdfast/trees/<run>/<task>/`. A folder without a record of ours is refused by its name.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Literal

import msgspec

from holdfast.adapters.git import task_moved, task_record
from holdfast.adapters.git.content import Content, content_of, looking
from holdfast.adapters.git.guarding import changed_behind, undo
from holdfast.adapters.git.history_log import wide
from holdfast.adapters.git.ignoring import check_ignore
from holdfast.adapters.git.plain_files import Folder, opened
from holdfast.adapters.git.repo import GitWorkspace
from holdfast.adapters.git.task_ignored import ignored, move_aside
from holdfast.adapters.git.task_place import TreeRefused, is_worktree, link, plain, registered
from holdfast.adapters.git.task_record import Record, check_name
from holdfast.adapters.git.workspace import NotASnapshot, object_format, sync
from holdfast.adapters.git.ws_desk import (
    Desk,
    WorkspaceError,
    holding,
    look_again,
    open_desk,
    own_folder,
    turn,
)
from holdfast.adapters.git.ws_objects import IDENTITY, Maker, parse_commit
from holdfast.adapters.git.ws_refs import change_ref
from holdfast.adapters.git.ws_scan import shown
from holdfast.adapters.paths import real_path
from holdfast.adapters.probes.common import EffectError
from holdfast.adapters.probes.git_place import find_repository
from holdfast.adapters.probes.git_runner import Git, check_id, complaint
from holdfast.core.errors import NotFound, UsageError
from holdfast.core.named import NamedTuple

__all__ = ["Collected", "Left", "TaskTrees", "TreeRefused", "changed_behind", "undo"]

REFS = "refs/holdfast/trees/"
SECONDS = 900.0  # a checkout of many files takes its time
_NONE = b"none"
_SHOWN = 8


class Left(NamedTuple):
    """A task's work tree, or what git ignored in it, that is still there, and why."""

    name: str
    path: str
    why: str

    @property
    def sentence(self) -> str:
        return f"{self.path} is kept: {self.why}."


class Collected(NamedTuple):
    """What a task had made. `head` is where the agent had moved HEAD to, None if it stood at `base`."""

    sha: str
    tree: str
    base: str
    head: str | None
    left_out: tuple[str, ...]


class TaskTrees:
    """The work trees of the tasks of one run. `folder` is where those of all runs are."""

    def __init__(self, workspace: GitWorkspace, run_id: str, folder: str | None = None) -> None:
        self.workspace, self.git = workspace, workspace.git
        self.run_id = check_name(run_id, "The run id")
        root = real_path(folder) if folder else os.path.join(workspace.main, ".holdfast", "worktrees")
        self.folder = os.path.join(root, self.run_id)
        self._known: dict[str, Collected] = {}  # those that were collected here, by their ids

    def path_of(self, name: str) -> str:
        return os.path.join(self.folder, check_name(name, "The name of the task"))

    def _read(self, records: Folder, name: str) -> Record | None:
        return task_moved.read(records, name, self.path_of(name), self.git)

    @contextmanager
    def _turn(self) -> Iterator[tuple[Folder, Git]]:
        """One at a time for each run, and until the last git of one that was killed has ended."""
        look_again(self.git)
        home = os.path.join(own_folder(self.workspace.place.common), "trees", self.run_id)
        try:
            os.makedirs(home, 0o700, exist_ok=True)
            with opened(home) as records, turn(home, patience=SECONDS) as lock:
                git = holding(self.git, lock)
                git.limits = git.limits._replace(seconds=max(SECONDS, git.limits.seconds))
                yield records, git
        except OSError as error:
            raise WorkspaceError(f"{error.filename or home} cannot be read or written: {error.strerror}.") from error

    # --- opening

    def open(self, name: str, base: str) -> str:
        """The work tree of a task, at commit `base`. One that is there already is given back with all its edits."""
        path, base = self.path_of(name), check_id(base)
        with self._turn() as (records, git):
            record = self._read(records, name)
            if record is None or record.base != base:
                base = self.git.commit_of(base)
            if record is None:
                self._refuse_strangers(path)
                record = Record(self.run_id, name, base, os.fsencode(path), "making")
            self._check(record, base)
            if record.state == "open" and os.path.lexists(path):
                self._there(record)
                return path
            task_record.write(records, msgspec.structs.replace(record, state="making", links={}))
            self._take_away(git, record)
            self._add(git, path, base)
            task_record.write(records, msgspec.structs.replace(record, state="open", links={}))
        return path

    def standing(self, name: str) -> Literal["open", "gone", "none"]:
        """Whether the work tree was given to somebody, and something is still in its place."""
        with self._turn() as (records, _):
            record = self._read(records, name)
        if record is None or record.state != "open":
            return "none"
        return "open" if os.path.lexists(record.path) else "gone"

    def _refuse_strangers(self, path: str) -> None:
        os.makedirs(self.folder, exist_ok=True)
        if real_path(self.folder) != self.folder:
            raise TreeRefused(f"{self.folder} leads somewhere else by a link.", advice="Put a real folder there.")
        if os.path.lexists(path):
            raise TreeRefused(f"{path} is already there, and is not a work tree of run {self.run_id}.")

    def _check(self, record: Record, base: str) -> None:
        path = self.path_of(record.name)
        if (record.run_id, record.path) != (self.run_id, os.fsencode(path)):
            raise TreeRefused(f"The work tree of task {record.name} is at {os.fsdecode(record.path)}, not at {path}.")
        if record.base != base:
            raise TreeRefused(
                f"The work tree {path} was begun at {record.base}, not at {base}.",
                advice="Collect and close it first.",
            )

    def _there(self, record: Record) -> Git:
        """Git in the work tree of a task, which must be one of this repository."""
        path = os.fsdecode(record.path)
        try:
            place = find_repository(path)
        except EffectError as error:
            raise TreeRefused(f"{path} is not the work tree of task {record.name} any more: {error}") from error
        if os.path.islink(path) or place.top != path or place.common != self.workspace.place.common:
            raise TreeRefused(f"{path} is not a work tree of this repository any more.")
        if not os.path.lexists(os.path.join(place.git_dir, _mark(record))):
            raise TreeRefused(f"{path} is a work tree that somebody else made.")
        return Git(place, self.git.given, max(SECONDS, self.git.limits.seconds))

    def _add(self, git: Git, path: str, base: str) -> None:
        os.makedirs(self.folder, exist_ok=True)
        finished = git.ask("worktree", "add", "--quiet", "--detach", "--end-of-options", path, base)
        if finished.code:
            raise WorkspaceError(f"`git worktree add` failed: {complaint(finished)}")
        with opened(find_repository(path).git_dir) as inside:
            inside.replace(f"holdfast-{self.run_id}-{os.path.basename(path)}", b"", None)

    def _opened(self, records: Folder, name: str) -> Record:
        record = self._read(records, check_name(name, "The name of the task"))
        if record is None or record.state != "open":
            raise NotFound("open work tree of task", name)
        self._check(record, record.base)
        return record

    # --- links

    def link(self, name: str, paths: Iterable[str]) -> list[str]:
        """Let ignored files and folders of the main work tree be there too, by links. Where something is, it stays."""
        wanted = [path for path in map(plain, paths) if os.path.lexists(os.path.join(self.workspace.top, path))]
        if not wanted:
            return []
        with self._turn() as (records, _):
            record = self._opened(records, name)
            there = self._there(record)
            self._refuse_tracked(record, wanted)
            links = {path: os.fsencode(os.path.join(self.workspace.top, path)) for path in wanted}
            if not links.items() <= record.links.items():
                task_record.write(records, msgspec.structs.replace(record, links={**record.links, **links}))
            return [path for path, target in links.items() if link(_top(there), path, target)]

    def _refuse_tracked(self, record: Record, paths: list[str]) -> None:
        finished = check_ignore(self.git, paths)
        if finished.code not in (0, 1):
            raise EffectError(f"`git check-ignore` failed: {complaint(finished)}")
        ignored = {os.fsdecode(path).removeprefix("./") for path in finished.out.split(b"\0")}
        for path in paths:
            tracked = self.git("ls-files", "-z", "--", path) or self.git("ls-tree", "-z", record.base, "--", path)
            if path not in ignored or tracked:
                raise UsageError(
                    f"{path!r:.200} is not ignored by git, so it is not linked into the work trees of tasks.",
                    advice="Link only what git ignores, such as .venv or node_modules.",
                )

    # --- collecting

    def collect(self, name: str) -> str:
        """A commit on `base` that holds every file as it is now but ignored ones. It is kept until `close`."""
        with self._turn() as (records, _):
            record = self._opened(records, name)
            with open_desk(self._there(record), "collect") as desk:
                found = content_of(desk, record.base, record.links)
                sha = _commit(desk, record, found)
                sync(desk)
            self._keep(name, sha)
        self._known[sha] = Collected(sha, found.tree, record.base, _moved(record, found), found.left_out)
        return self.git.know_tree(sha, found.tree)

    def _keep(self, name: str, sha: str) -> None:
        ref = f"{self._refs(name)}{sha}"
        change_ref(self.git, ref, lambda held: held.move(ref, sha, None, "a task"), sha)
        self._drop(name, [one for one in self._collected(name) if one != sha])

    def _refs(self, name: str) -> str:
        return f"{REFS}{self.run_id}/{name}/"

    def _collected(self, name: str) -> list[str]:
        return self.git.line("for-each-ref", "--format=%(objectname)", "--end-of-options", self._refs(name)).split()

    def _drop(self, name: str, shas: Iterable[str]) -> None:
        for sha in shas:
            ref = f"{self._refs(name)}{sha}"
            order = f"delete {ref}\0{sha}\0".encode()
            change_ref(self.git, ref, _deleting(order), None)

    def about(self, sha: str) -> Collected:
        """What a collected commit says of itself."""
        if sha in self._known:
            return self._known[sha]
        commit = parse_commit(self.git.body_of(check_id(sha), "commit"))
        if not commit.author.startswith(IDENTITY + b" ") or "Holdfast-Task" not in commit.trailers:
            raise NotASnapshot(f"{sha} is not a commit that was collected from a task.")
        head = commit.trailers.get("Holdfast-Head", _NONE)
        rows = json.loads(commit.message.split(b"\n")[2])
        return Collected(sha, commit.tree, commit.parents[0], None if head == _NONE else head.decode(), tuple(rows))

    def holds_work(self, found: Collected) -> bool:
        """Whether it is anything else than the commit that it was begun at."""
        return found.head is not None or found.tree != self.workspace.tree_of(found.base)

    # --- closing

    def ignored(self, name: str) -> list[str]:
        """What git ignores in an open work tree, and no program makes anew: it is never collected."""
        with self._turn() as (records, _):
            record = self._opened(records, name)
            return [os.fsdecode(path) for path in ignored(self._there(record), record.links)]

    def close(self, name: str, *, keep: bool = False) -> Left | None:
        """Remove the work tree, and unless they are to be kept the commits that were collected of it.

        If it holds more than those it stays, and why is returned. What git ignores in it is moved, and where is returned.
        """
        path = self.path_of(name)
        with self._turn() as (records, git):
            record = self._read(records, name)
            if record is None:
                if os.path.lexists(path):
                    raise TreeRefused(f"{path} is not a work tree of run {self.run_id}, so it is not removed.")
                return None
            self._check(record, record.base)
            is_there = record.state == "open" and os.path.lexists(path)
            collected = self._collected(name)
            why = self._uncollected(record, collected) if is_there else None
            if why:
                return Left(name, path, why)
            aside = self._aside(record) if is_there else None
            self._take_away(git, record)
            if not keep:
                self._drop(name, collected)
            records.remove(name + task_record.END)
            with suppress(OSError):
                os.rmdir(self.folder)
        return aside

    def _aside(self, record: Record) -> Left | None:
        found, path = ignored(self._there(record), record.links), os.fsdecode(record.path)
        if not found:
            return None
        some = ", ".join(os.fsdecode(one) for one in found[:_SHOWN])
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        return Left(
            record.name, move_aside(path, found, self.folder, record.name), f"it holds what git ignores: {some}{more}"
        )

    def _uncollected(self, record: Record, collected: Iterable[str]) -> str | None:
        """Why something would be lost with the work tree; None if nothing would."""
        with looking(self._there(record)) as desk:
            found = content_of(desk, record.base, record.links)
        rows = [
            *found.left_out,
            *(shown(path, "it is a repository of its own") for path in found.inner if _is_repository(record, path)),
        ]
        if rows:
            return f"it holds what cannot be collected ({rows[0]})"
        if _moved(record, found) is None and found.tree == self.workspace.tree_of(record.base):
            return None
        known = map(self.about, collected)
        if (found.tree, _moved(record, found)) in [(one.tree, one.head) for one in known]:
            return None
        return "it holds changes that were not collected"

    def _take_away(self, git: Git, record: Record) -> None:
        """Remove what is there of a work tree in which nobody works: a half-made one, or one whose content is kept."""
        path = os.fsdecode(record.path)
        common = self.workspace.place.common
        away = os.path.join(self.folder, f"~{record.name}")  # no task has such a name
        if os.path.lexists(path):
            if not is_worktree(common, path):
                raise TreeRefused(f"{path} is not the work tree that was begun there.")
            os.rename(path, away)
        if os.path.lexists(away):
            shutil.rmtree(away)
        for folder in registered(common, path):
            shutil.rmtree(folder)

    def left(self) -> list[Left]:
        """The work trees of this run that were not closed."""
        with self._turn() as (records, _):
            found = [self._read(records, name) for name in task_record.names(records)]
        return [Left(one.name, os.fsdecode(one.path), _why(one)) for one in found if one]

    # --- refs

    def refs_now(self) -> dict[str, str]:
        """Where every branch, tag and other ref is, and HEAD of the main work tree. Ours are not among them."""
        said = wide(self.git)("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        theirs = (line for line in said if not line.startswith(b"refs/holdfast/"))  # ours are thousands in a long run
        head, branch = self.workspace.where()
        return {**dict(os.fsdecode(line).rsplit(" ", 1) for line in theirs), "HEAD": branch or head or ""}


# --- pieces


def _mark(record: Record) -> str:
    """A file in the git folder of the work tree, by which the one that we made is told from another in its place."""
    return f"holdfast-{record.run_id}-{record.name}"


def _top(git: Git) -> str:
    assert git.place is not None
    return git.place.top


def _why(record: Record) -> str:
    if record.state == "making":
        return "it was not made to the end"
    return "it is open" if os.path.lexists(record.path) else "its folder is gone"


def _moved(record: Record, found: Content) -> str | None:
    return None if found.head in (record.base, None) else found.head


def _is_repository(record: Record, path: bytes) -> bool:
    return os.path.lexists(os.path.join(record.path, path, b".git"))


def _commit(desk: Desk, record: Record, found: Content) -> str:
    """The same content makes the same commit. Where the agent committed, its commits are kept as a second parent."""
    head = _moved(record, found)
    trailers = {"Run": record.run_id, "Task": record.name, "Head": head or _NONE.decode()}
    lines = [f"Task {record.name} of run {record.run_id}", "", json.dumps(found.left_out), ""]
    message = "\n".join([*lines, *(f"Holdfast-{name}: {value}" for name, value in trailers.items()), ""])
    maker = Maker(object_format(desk.git))
    sha = maker.commit(found.tree, [record.base, *([head] if head else [])], 0, message.encode())
    desk.run("unpack-objects", "-q", stdin=maker.pack())
    return sha


def _deleting(order: bytes) -> Callable[[Git], object]:
    return lambda held: held("update-ref", "--no-deref", "--stdin", "-z", stdin=order)

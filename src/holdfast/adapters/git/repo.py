"""One work tree, as the engine wants it: every promise of `ports.Workspace`, kept by git. Starts git only through `Git`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from holdfast.adapters import fingerprint
from holdfast.adapters.git import history, hooks, sidecars, touched, workspace
from holdfast.adapters.git.history_log import read_line
from holdfast.adapters.git.workspace import Change
from holdfast.adapters.probes.git import GitCommit
from holdfast.adapters.probes.git_runner import Git, find_repository
from holdfast.core.errors import HoldfastError, UsageError
from holdfast.core.guards import Touched
from holdfast.core.position import Commit, Known
from holdfast.core.repo_drift import BASE, Seen
from holdfast.core.sidecar import Sidecar
from holdfast.core.subjects import PREFIX

BASES = ("refs/remotes/origin/HEAD", "refs/heads/main", "refs/heads/master")


class CommitUnknown(HoldfastError):
    """Whether a milestone was committed cannot be told."""

    reason = "effect_unknown"
    advice = "Look at `git log`, then put the branch where it should be and let the run go on."


class GitWorkspace:
    """A work tree, by the path of any folder in it. The main work tree holds the sidecars of all of them."""

    def __init__(self, path: str, environ: Mapping[str, str], policy: workspace.Policy | None = None) -> None:
        place = find_repository(top_of(path))
        self.git = Git(place, environ)
        self.top = place.top
        self.main = os.path.dirname(place.common)
        self.sidecars = os.path.join(self.main, ".holdfast", "checkpoints")
        self._environ = environ
        self._policy = policy or workspace.Policy()

    # --- the workspace

    def where(self) -> tuple[str | None, str | None]:
        branch = self.git.head_ref()
        for name, what in ((branch or "", "branch"), (self.top, "folder")):
            if not is_text(name):
                raise UsageError(f"The name of the {what} {name!r:.120} is not UTF-8, and a log holds only text.")
        finished = self.git.ask("rev-parse", "--verify", "--quiet", "--end-of-options", "HEAD^{commit}")
        return (None if finished.code else finished.out.decode().strip()), branch

    def snapshot(self, checkpoint_id: str, now: str) -> workspace.Snapshot:
        known = self.kept(checkpoint_id)
        if known is not None:
            return known
        return workspace.keep(self.git, checkpoint_id, workspace.take(self.git, checkpoint_id, now, self._policy))

    def kept(self, checkpoint_id: str) -> workspace.Snapshot | None:
        return workspace.read(self.git, checkpoint_id) if checkpoint_id in workspace.kept(self.git) else None

    def drop(self, checkpoint_id: str) -> None:
        sha = workspace.kept(self.git).get(checkpoint_id)
        if sha is not None:
            workspace.drop(self.git, checkpoint_id, sha)

    # --- milestones

    def _order(self, message: str, branch: str | None, parent: str | None, paths: Sequence[str] | None) -> GitCommit:
        name = (branch or "").removeprefix("refs/heads/")
        return GitCommit(self.top, message, name, parent, paths, environ=self._environ)

    def commit(self, checkpoint_id: str, message: str, branch: str | None, parent: str | None) -> str:
        changes = workspace.changed(self.git)
        if branch is None:
            GitCommit.prepare(self.top, message, environ=self._environ)  # says what is wrong and what to do
        if not changes and parent is not None:
            return parent
        paths = sorted({path for change in changes for path in (change.path, change.was) if path})
        receipt = self._order(message, branch, parent, paths).act(checkpoint_id)
        return str(receipt["commit"])

    def committed(self, checkpoint_id: str, message: str, branch: str | None, parent: str | None) -> str | None:
        answer = self._order(message, branch, parent, None).probe(checkpoint_id)
        if answer.settled_as == "unknown":
            raise CommitUnknown(f"Whether checkpoint {checkpoint_id} was committed is not known: {answer.evidence}.")
        return str(answer.receipt["commit"]) if answer.settled_as == "done" else None

    def tree_of(self, commit: str) -> str:
        return self.git.line("rev-parse", "--verify", "--end-of-options", f"{commit}^{{tree}}")

    def patch_id(self, commit: str) -> str | None:
        return history.patch_id_of(self.git, commit)

    def write_sidecar(self, sidecar: Sidecar) -> None:
        sidecars.write(self.sidecars, sidecar)

    def sidecar_path(self, checkpoint_id: str) -> str:
        return os.path.join(self.sidecars, f"{checkpoint_id}.json")

    def touched(self, base: str | None) -> tuple[list[Touched], str]:
        return touched.touched(self.git, base)

    # --- looking

    def known(self) -> list[Known]:
        """What the sidecars know of milestones, of any run. Mirrors that cannot be read know nothing; `doctor` names them."""
        try:
            read, _ = sidecars.read_all(self.sidecars)
        except sidecars.SidecarsUnreadable:
            return []
        return [
            Known(
                checkpoint_id=one.checkpoint_id,
                run_id=one.run_id,
                index=one.milestone_index,
                title=one.milestone_title,
                sha=one.sha,
                tree=one.tree,
                patch_id=one.patch_id,
                parent=one.parent,
                branch=one.branch,
                base=one.base,
                source="sidecar",
            )
            for one in read
        ]

    def mirrored(self, run_id: str | None = None) -> list[Known]:
        """Milestones in the history of HEAD that a sidecar or a commit's own trailers name, by run and index."""
        line = read_line(self.git, "HEAD")
        if line is None:
            return []
        named = {
            one.said.checkpoint_id: _from_trailers(one)
            for one in reversed(line.commits)
            if one.said is not None and one.said.kind == "trailer" and one.said.checkpoint_id is not None
        }
        there = {one.checkpoint_id: one for one in self.known() if one.sha in line.place}
        every = {**named, **there}.values()
        return sorted((one for one in every if run_id in (None, one.run_id)), key=lambda one: (one.run_id, one.index))

    def look(
        self, run_id: str, records: Sequence[Known], before: Mapping[str, str] | None, snapshot: str | None
    ) -> Seen:
        head, branch = self.where()
        changed = workspace.changed(self.git)
        environment = self.environment()
        mine = [one for one in self.known() if one.run_id == run_id]
        rewrites = hooks.read_rewrites(self.git)
        position = history.find(self.git, run_id, [*records, *mine], rewrites=rewrites, allow_legacy=False)
        base, overlap = self._overlap(before or {}, environment, records)
        return Seen(
            head,
            branch,
            snapshot is not None and head is not None and self._is_as_kept(head, snapshot, changed),
            tuple(f"{change.kind}: {change.path}" for change in changed),
            position,
            {name: value for name, value in environment.items() if not name.startswith(BASE)},
            overlap,
            base,
        )

    def _is_as_kept(self, head: str, snapshot: str, changed: Sequence[Change]) -> bool:
        """Whether the same files are changed, to the same contents. Nothing is written to find out."""
        listed = self.git.ask("diff-tree", "-r", "-z", "--no-renames", "--end-of-options", head, snapshot)
        if listed.code:
            return False
        rows = listed.out.split(b"\0")[:-1]
        kept = {os.fsdecode(path): row.split(b" ") for row, path in zip(rows[::2], rows[1::2], strict=True)}
        now = {path for change in changed for path in (change.path, change.was) if path}
        return now == set(kept) and all(self._same(path, row[1], row[3].decode()) for path, row in kept.items())

    def _same(self, path: str, mode: bytes, blob: str) -> bool:
        whole = os.path.join(self.top, path)
        if mode == b"000000":
            return not os.path.lexists(whole)
        if mode == b"120000":
            link = os.fsencode(os.readlink(whole)) if os.path.islink(whole) else b""
            return self.git.line("hash-object", "--stdin", stdin=link) == blob
        if os.path.islink(whole) or not os.path.isfile(whole) or "\n" in path:
            return False
        return self.git.line("hash-object", "--stdin-paths", stdin=os.fsencode(path) + b"\n") == blob

    def environment(self) -> dict[str, str]:
        taken = fingerprint.take(self.top, self._environ)
        for ref in BASES:
            sha = self.git.ask("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
            if sha.code == 0 and ref != self.git.head_ref():
                return {**taken, f"{BASE}{ref}": sha.out.decode().strip()}
        return taken

    def _overlap(
        self, before: Mapping[str, str], now: Mapping[str, str], records: Sequence[Known]
    ) -> tuple[str | None, tuple[str, ...]]:
        """Files that the base branch changed since the run began, and the run as well."""
        for name, was in before.items():
            tip = now.get(name, was)
            if name.startswith(BASE) and tip != was and self.git.ask("cat-file", "-e", was).code == 0:
                theirs = set(self._names(was, tip))
                first = next((one.base for one in records if one.base), None)
                seen = [one for one in self.touched(first)[0] if not one.ignored]
                ours = {path for one in seen for path in (one.path, one.was) if path}
                return name.removeprefix(BASE), tuple(sorted(theirs & ours))
        return None, ()

    def _names(self, old: str, new: str) -> list[str]:
        out = self.git("diff-tree", "-r", "-z", "--name-only", "--no-renames", "--end-of-options", old, new)
        return [os.fsdecode(name) for name in out.split(b"\0") if name]


def is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _from_trailers(commit: Commit) -> Known:
    said = commit.said
    assert said is not None and said.checkpoint_id is not None
    return Known(
        checkpoint_id=said.checkpoint_id,
        run_id=said.run_id or "",
        index=said.index or 0,
        title=said.title.removeprefix(PREFIX),
        sha=commit.sha,
        tree=commit.tree,
        patch_id=None,
        parent=commit.parents[0] if commit.parents else None,
        branch=None,
        base=None,
        source="git_log_run_specific",
    )


def top_of(path: str) -> str:
    """The top of the work tree around a path."""
    folder = os.path.realpath(path)
    while not os.path.lexists(os.path.join(folder, ".git")):
        parent = os.path.dirname(folder)
        if parent == folder:
            return os.path.realpath(path)
        folder = parent
    return folder

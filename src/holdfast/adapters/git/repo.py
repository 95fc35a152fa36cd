"""One work tree, as the engine wants it: every promise of `ports.Workspace`, kept by git. Starts git only through `Git`."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from holdfast.adapters import fingerprint
from holdfast.adapters.git import history, hooks, mirrors, pulling, sidecars, touched, workspace, ws_odd
from holdfast.adapters.git.history_log import fork_of, is_shallow, read_line
from holdfast.adapters.git.ws_desk import own_folder, turn
from holdfast.adapters.git.ws_scan import LIST, parse_flags
from holdfast.adapters.git.ws_submodules import strangers
from holdfast.adapters.git.ws_whole import take_whole
from holdfast.adapters.paths import meant_path
from holdfast.adapters.probes.common import EffectError
from holdfast.adapters.probes.git_commit import CommitEffect, NothingToCommit
from holdfast.adapters.probes.git_place import find_repository, plain_head
from holdfast.adapters.probes.git_ref import refuse_unfinished
from holdfast.adapters.probes.git_runner import Git
from holdfast.core.errors import HoldfastError, UsageError
from holdfast.core.guards import Touched
from holdfast.core.position import Known, Position
from holdfast.core.repo_drift import BASE, Seen
from holdfast.core.sidecar import Sidecar, by_age, is_sha
from holdfast.core.subjects import CHECKPOINT

REPOSITORY = "repository"  # a change that is a repository of its own, which no commit of ours can hold
BASES = (
    "refs/remotes/origin/HEAD",
    *(f"refs/heads/{name}" for name in ("main", "master", "develop", "trunk")),
)
_TIP = "%(refname) %(objectname) %(upstream)"


class CommitUnknown(HoldfastError):
    """Whether a milestone was committed cannot be told."""

    reason = "effect_unknown"
    advice = "Look at `git log`, then put the branch where it should be and let the run go on."


class GitWorkspace:
    """A work tree, by the path of any folder in it. The main work tree holds the sidecars of all of them.

    `ignored` are patterns of ignored files that snapshots hold too; `own` is a store that may lie in the work tree;
    `agents` knows the agents that its settings name, and their programs.
    """

    def __init__(
        self,
        path: str,
        environ: Mapping[str, str],
        ignored: Sequence[str] = (),
        own: Sequence[str] = (),
        agents: Callable[[str], Mapping[str, str]] = lambda _: {},
    ) -> None:
        self.place = place = find_repository(top_of(path))
        self.git = Git(place, environ)
        self.git.own = tuple(own)
        self.top = place.top
        is_plain = os.path.basename(place.common) == ".git"  # work trees of a bare repository share its own folder
        self.main = os.path.dirname(place.common) if is_plain else place.common
        self.sidecars = os.path.join(self.main, ".holdfast", "checkpoints")
        self._environ = environ
        self._agents = agents
        self._policy = workspace.Policy(tuple(ignored))

    # --- the workspace

    def where(self) -> tuple[str | None, str | None]:
        commit, branch = self._head()
        for name, what in ((branch or "", "branch"), (self.top, "folder")):
            if not is_text(name):
                raise UsageError(f"The name of the {what} {name!r:.120} is not UTF-8, and a log holds only text.")
        return commit, branch

    def has_branch(self, name: str) -> bool:
        """Whether `git switch` finds a branch of this name, here or at a remote."""
        own, theirs = f"refs/heads/{name}", f"refs/remotes/*/{name}"
        found = self.git.ask("for-each-ref", "--format=%(refname)", own, theirs).out.decode("utf-8", "replace")
        return any(ref == own or not ref.startswith("refs/heads/") for ref in found.splitlines())

    def _head(self) -> tuple[str | None, str | None]:
        """Commit and branch: from their files, or by one call of git where there is a commit."""
        if plain := plain_head(self.place):
            return plain
        both = self.git.ask("rev-parse", "HEAD^{commit}", "--symbolic-full-name", "HEAD")
        lines = both.out.splitlines()
        if both.code or len(lines) != 2:
            return None, self.git.head_ref()
        return lines[0].decode(), None if lines[1] == b"HEAD" else os.fsdecode(lines[1])

    def snapshot(self, checkpoint_id: str, now: str) -> workspace.Snapshot:
        return take_whole(self.git, checkpoint_id, now, self._policy)

    def kept(self, checkpoint_id: str) -> workspace.Snapshot | None:
        return workspace.read(self.git, checkpoint_id) if checkpoint_id in workspace.kept(self.git) else None

    def drop(self, checkpoint_id: str) -> None:
        sha = workspace.kept(self.git).get(checkpoint_id)
        if sha is not None:
            workspace.drop(self.git, checkpoint_id, sha)

    # --- milestones

    def _order(self, message: str, branch: str | None, parent: str | None, paths: Sequence[str] | None) -> CommitEffect:
        name = (branch or "").removeprefix("refs/heads/")
        return CommitEffect(self.top, message, name, parent, paths, environ=self._environ)

    def check_committable(self, branch: str | None) -> None:
        if branch is None or not branch.startswith("refs/heads/"):
            raise EffectError("No branch is checked out here.", advice="`git switch` to a branch first.")
        for ident in ("GIT_AUTHOR_IDENT", "GIT_COMMITTER_IDENT"):
            self.git("var", ident)
        refuse_unfinished(self.place)

    def commit(
        self, checkpoint_id: str, message: str, branch: str | None, parent: str | None, leave: Collection[str]
    ) -> str:
        with turn(own_folder(self.place.common)):  # others make milestones here too, of what is there then
            changes = [one for one in workspace.changed(self.git) if one.kind != REPOSITORY]
            paths = sorted({path for one in changes for path in (one.path, one.was) if path and path not in leave})
            tip = self.where()[0]
            if not paths and tip is not None:
                return tip
            try:
                return str(self._order(message, branch, parent, paths).act(checkpoint_id)["commit"])
            except NothingToCommit:
                if tip is None:
                    raise
                return tip

    def committed(self, checkpoint_id: str, message: str, branch: str | None, parent: str | None) -> str | None:
        if branch is None:
            return None  # it could not have been
        answer = self._order(message, branch, parent, None).probe(checkpoint_id)
        if answer.settled_as == "done":
            return str(answer.receipt["commit"])
        if answer.settled_as == "not_done" or not self._carriers(checkpoint_id):
            return None
        raise CommitUnknown(f"Whether checkpoint {checkpoint_id} was committed is not known: {answer.evidence}.")

    def _carriers(self, checkpoint_id: str) -> list[str]:
        """Commits that name a checkpoint, wherever git still has them."""
        line = f"--grep=^{CHECKPOINT}: {checkpoint_id}$"
        return self.git.line("rev-list", "--all", "--reflog", line, "--").split()

    def tree_of(self, commit: str) -> str:
        return self.git.tree_of(commit)

    def patch_id(self, commit: str) -> str | None:
        return history.patch_id_of(self.git, commit)

    def write_sidecar(self, sidecar: Sidecar) -> None:
        sidecars.write(self.sidecars, sidecar)

    def sidecar_path(self, checkpoint_id: str) -> str:
        return os.path.join(self.sidecars, f"{checkpoint_id}.json")

    def odd_files(self) -> list[str]:
        return ws_odd.odd_files(self.git)

    def touched(self, base: str | None) -> tuple[list[Touched], str]:
        return touched.touched(self.git, base)

    def made_by_init(self, since: str | None, paths: Collection[str]) -> frozenset[str]:
        return touched.made_by_init(self.git, since, paths)

    def common(self, commit: str) -> str | None:
        return fork_of(self.git, commit, "HEAD") if self.has(commit) else None

    def latest(self, commits: Sequence[str]) -> str | None:
        forks = [fork for fork in map(self.common, dict.fromkeys(commits)) if fork is not None]
        best = forks[0] if forks else None
        for fork in forks[1:]:
            best = fork if best is not None and self.git.contains(fork, best) else best
        return best

    def brought(self, since: str) -> frozenset[str]:
        loose = {path for one in workspace.changed(self.git) for path in (one.path, one.was)}
        mine, others = self._own_and_others()
        commits = self._listed(f"{since}..HEAD", "--not", *others) - pulling.pulled(self.git, mine, since)
        return frozenset(self._names(since, "HEAD")) - pulling.changed_in(self.git, commits) - loose

    def _listed(self, *argv: str) -> set[str]:
        return set(self.git("rev-list", "--no-merges", *argv, "--").decode().split())

    def _own_and_others(self) -> tuple[list[str], list[str]]:
        """The refs that this very branch was pushed to or comes from; and the tips of the other base branches."""
        here = (self.git.head_ref() or "").removeprefix("refs/heads/")
        tips = self._bases()
        mine = [ref for ref in tips if here and ref.endswith(f"/{here}")]
        return mine, [tip for tip in tips.values() if tip not in {tips[ref] for ref in mine}]

    # --- looking

    def known(self) -> list[Known]:
        """What the sidecars know of milestones, of any run, the newest last. What cannot be read knows nothing; see `doctor`."""
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
                created_at=one.created_at,
                tier=one.tier,
                verification_commands=tuple(one.verification_commands or ()),
            )
            for one in by_age(read)
        ]

    def recovered(self, run_id: str) -> tuple[list[Known], tuple[str, ...]]:
        for one in self.only_mirrored(only=run_id):
            return one.known, () if one.is_sure else (one.position.why, *one.position.choices)
        return [], ()

    def only_mirrored(
        self, leave: Collection[str] = (), only: str | None = None, most: int | None = None
    ) -> list[mirrors.Mirrored]:
        """What mirrors alone tell of each run, but for those that are left out, or of the newest `most` of them."""
        line = read_line(self.git, "HEAD")
        if line is None:
            return []
        known = self.known()
        runs = [one for one in mirrors.runs_in(line, known) if one not in leave and only in (None, one)]
        newest = {one.run_id: place for place, one in enumerate(known)}
        chosen = sorted(runs, key=lambda run_id: newest.get(run_id, -1))[-most:] if most else runs
        return mirrors.look(self.git, line, known, hooks.read_rewrites(self.git), sorted(chosen))

    def look(
        self,
        run_id: str,
        records: Sequence[Known],
        before: Mapping[str, str] | None,
        snapshots: Sequence[str],
        given_up: Sequence[str],
        base: str | None,
        *,
        legacy: bool = False,
        imported: bool = False,
    ) -> Seen:
        head, branch = self.where()
        changed, environment = self.changed(), self.environment(before or {})
        theirs = {(one.checkpoint_id, one.sha) for one in records}
        more = [one for one in self.known() if (one.checkpoint_id, one.sha) not in theirs]
        position = self.find(run_id, [*records, *more], legacy=legacy, imported=imported)
        ref, overlap = self._overlap(before or {}, environment, base)
        return Seen(
            head,
            branch,
            bool(changed) and self._is_as_kept(snapshots, given_up),
            tuple(changed),
            position,
            {name: value for name, value in environment.items() if not name.startswith(BASE)},
            overlap,
            ref,
            tuple(self._in_submodules()),
        )

    def find(
        self, run_id: str, records: Sequence[Known], checkpoint_id: str | None = None, *, legacy: bool, imported: bool
    ) -> Position:
        """Where a milestone is in the history of HEAD, by every kind of evidence there is: the last one, or this one."""
        rewrites = hooks.read_rewrites(self.git)
        return history.find(
            self.git,
            run_id,
            records,
            rewrites=rewrites,
            allow_legacy=legacy,
            imported=imported,
            checkpoint_id=checkpoint_id,
        )

    def is_shallow(self) -> bool:
        return is_shallow(self.git)

    def unexplained(self, commit: str) -> int:
        line = read_line(self.git, "HEAD")
        return 0 if line is None else line.unexplained(commit)

    def changed(self) -> list[str]:
        return [f"{change.kind}: {change.path}" for change in workspace.changed(self.git)]

    def _in_submodules(self) -> list[str]:
        """What is changed inside of submodules, where git status is not told to look: a row for each of them."""
        if not os.path.lexists(os.path.join(self.top, ".gitmodules")):
            return []
        return strangers(self.git, parse_flags(self.git(*LIST)).gitlinks)

    def has(self, commit: str) -> bool:
        return self.git.ask("cat-file", "-e", f"{commit}^{{commit}}").code == 0

    def present(self, commits: Iterable[str]) -> frozenset[str]:
        """Those of the commits that git has."""
        names = sorted(set(filter(is_sha, commits)))
        asked = "".join(f"{name}^{{commit}}\n" for name in names).encode()
        said = self.git("cat-file", "--batch-check", stdin=asked).splitlines() if names else []
        return frozenset(name for name, line in zip(names, said, strict=True) if line.split()[1:2] == [b"commit"])

    def _is_as_kept(self, snapshots: Sequence[str], given_up: Sequence[str]) -> bool:
        """Whether the work tree is just what one of the snapshots holds. Ignored files never count: git calls them no change."""
        refs = workspace.kept(self.git)
        candidates = [*snapshots, *(refs[name] for name in given_up if name in refs)]
        trees = {workspace.plain_tree_of(self.git, sha) for sha in candidates if self.has(sha)}
        return bool(trees) and workspace.tree_now(self.git) in trees

    def environment(self, before: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
        known = [name.removeprefix(BASE) for name in before if name.startswith(f"{BASE}refs/heads/")]
        bases = {f"{BASE}{ref}": tip for ref, tip in self._bases(known).items()}
        return {**fingerprint.take(self.top, self._environ, own=self._agents(self.top)), **bases}

    def _bases(self, known: Sequence[str] = ()) -> dict[str, str]:
        """The branches that work comes from and goes back to, or once did, each with its commit; not the one checked out."""
        here = self.git.head_ref()
        found = self._tips([*BASES, *known, *([here] if here else [])])
        gone = {*known} - {ref for ref, _, _ in found}
        if new := [*filter(None, (pulling.renamed_to(self.git, ref) for ref in gone))]:
            found += self._tips(new)
        tips = {ref: tip for ref, tip, _ in found if ref != here}
        upstream = next((theirs for ref, _, theirs in found if ref == here), "")
        tip = self.git.value_of(upstream) if upstream else None
        return tips if tip is None else {**tips, upstream: tip}

    def _tips(self, names: Sequence[str]) -> list[list[str]]:
        """Name, commit and upstream of those of the branches that are there."""
        rows = self.git("for-each-ref", f"--format={_TIP}", "--end-of-options", *names)
        return [os.fsdecode(row).split(" ") for row in rows.splitlines()]

    def _overlap(
        self, before: Mapping[str, str], now: Mapping[str, str], base: str | None
    ) -> tuple[str | None, tuple[str, ...]]:
        """Files that a base branch changed since the run began, and the run as well. What is merged is no overlap."""
        before = {**before, **self.renamed(before, now)}
        moved = {name: was for name, was in before.items() if name.startswith(BASE) and now.get(name, was) != was}
        for name, was in moved.items() if base is not None else ():
            tip = now[name]
            if not self.has(was) or self.git.contains("HEAD", tip):
                continue
            seen = [one for one in self.touched(base)[0] if not one.ignored]
            ours = {path for one in seen for path in (one.path, one.was) if path}
            if both := ours & set(self._names(was, tip)):
                return name.removeprefix(BASE), tuple(sorted(both))
        return None, ()

    def renamed(self, before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
        gone = [tip for name, tip in before.items() if name.startswith(BASE) and name not in now and self.has(tip)]
        new = [name for name in now if name.startswith(BASE) and name not in before] if gone else []
        return {name: tip for name in new for tip in gone if self.git.contains(now[name], tip)}

    def _names(self, old: str, new: str) -> list[str]:
        out = self.git("diff-tree", "-r", "-z", "--name-only", "--no-renames", "--end-of-options", old, new)
        return [os.fsdecode(name) for name in out.split(b"\0") if name]


def is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def top_of(path: str) -> str:
    """The top of the work tree around a path; the path itself, if there is none."""
    place = meant_path(path)
    around = list(_upwards(place))
    top = next((folder for folder in around if os.path.lexists(os.path.join(folder, ".git"))), None)
    bare = next((folder for folder in around if _is_bare(folder)), None)
    if top is None and bare is not None:
        raise EffectError(
            f"{bare} is a bare repository: it has no work tree.",
            advice="Go to one of its work trees. `git worktree add FOLDER` makes one.",
        )
    return top or place


def _upwards(folder: str) -> Iterator[str]:
    yield folder
    while (parent := os.path.dirname(folder)) != folder:
        folder = parent
        yield folder


def _is_bare(folder: str) -> bool:
    parts = [os.path.join(folder, name) for name in ("objects", "refs")]
    return all(map(os.path.isdir, parts)) and os.path.isfile(os.path.join(folder, "HEAD"))

"""The workspace as a commit: HEAD, branch, index, work tree and untracked files. Changes nothing of the user's.

A snapshot has the work tree as its tree and two parents: the commit of HEAD, and a commit that holds what is beside the
work tree. That one has in its tree

    index       the user's index, byte for byte
    staged      what the index says, as a tree, if HEAD says something else; or, if it has conflicts,
    stages      everything that it has and HEAD has not, by the number of the side
    left_out    what this snapshot does not cover, one path and reason each
    present     what is on disk although the index says it need not be
    modes       permissions that are narrower than usual
    raw         the bytes on disk of the files that git converts on the way in and out
    ignored     the paths of ignored files that it holds, because they were asked for

so that one ref keeps all of it from being collected. Its trailer `Holdfast-Exact` says up to which size `raw` has every
file that needs it, and that links were told from files that stand for them; older snapshots do not say so. Refuses a ref
that points at something else than it should.
"""

from __future__ import annotations

import os
from tempfile import TemporaryDirectory

from holdfast.adapters.git import ws_facts, ws_modes
from holdfast.adapters.git.ws_desk import (
    Desk,
    WorkspaceError,
    look_again,
    open_desk,
    place_of,
)
from holdfast.adapters.git.ws_facts import REFS, Facts, object_format
from holdfast.adapters.git.ws_gather import Gathered, Policy, gather
from holdfast.adapters.git.ws_objects import IDENTITY, Commit, Maker, NotASnapshot, parse_commit, seconds_of
from holdfast.adapters.git.ws_refs import change_ref
from holdfast.adapters.git.ws_scan import GITLINK, STATUS, Change, Own, changes_of, joined, parse_status
from holdfast.adapters.probes.common import EffectError
from holdfast.adapters.probes.git_runner import Git, check_id, complaint
from holdfast.adapters.syncing import sync_objects
from holdfast.core import ids
from holdfast.core.errors import InvalidId, NotFound
from holdfast.core.named import NamedTuple

__all__ = [
    "DEFAULT",
    "REFS",
    "Change",
    "NotASnapshot",
    "Parts",
    "Policy",
    "Snapshot",
    "WorkspaceError",
    "changed",
    "check_checkpoint_id",
    "diff",
    "drop",
    "keep",
    "kept",
    "object_format",
    "plain_tree_of",
    "read",
    "read_parts",
    "take",
    "take_at",
    "tree_now",
]

EARLIER_NS = 60 * 10**9  # what others wrote in the last minute may not be on the disk yet
_SYNCED: dict[
    tuple[int, int], int
] = {}  # by the folder of objects: until when, by its clock, all of them are on the disk
DEFAULT = Policy()
_NONE = b"none"


class Snapshot(NamedTuple):
    """A workspace as it was. `left_out` names what is not covered, each with its reason, `ignored` what was ignored and is.

    `is_new`: it is not the one that was kept before.
    """

    sha: str
    tree: str
    head: str | None
    branch: str | None
    ref: str | None
    left_out: tuple[str, ...]
    ignored: tuple[str, ...] = ()
    is_new: bool = True


# --- taking


def take(git: Git, checkpoint_id: str, now: str, policy: Policy = DEFAULT) -> Snapshot:
    """Make the objects of a snapshot, durably. Nothing refers to them until `keep`."""
    check_checkpoint_id(checkpoint_id)
    seconds = seconds_of(now)
    with open_desk(git, checkpoint_id) as desk:
        return take_at(desk, checkpoint_id, seconds, policy)


def take_at(desk: Desk, checkpoint_id: str, seconds: int, policy: Policy) -> Snapshot:
    """The same, on a desk: its private index then holds what the snapshot has."""
    desk.see_files()
    found = gather(desk, policy)
    facts = found.facts
    if facts and _is_same(facts, found):
        ws_facts.refresh(desk, facts)
        return Snapshot(facts.sha, facts.tree, facts.head, facts.branch, None, found.left_out, is_new=False)
    maker = Maker(object_format(desk.git))
    held = _held(desk, maker, found)
    beside = _beside(maker, held, found, seconds, policy.largest)
    parents = [*([found.head] if found.head else []), beside]
    sha = maker.commit(found.tree, parents, seconds, _message(checkpoint_id, found))
    desk.run("unpack-objects", "-q", stdin=maker.pack())
    desk.git.know_tree(sha, found.tree)
    sync(desk, facts)
    if found.reusable:
        _remember(desk, found, checkpoint_id, sha, beside, held)
    ignored = tuple(map(os.fsdecode, found.ignored))
    return Snapshot(sha, found.tree, found.head, found.branch, None, found.left_out, ignored)


def tree_now(git: Git, policy: Policy = DEFAULT) -> str:
    """The tree that a snapshot would have now, without ignored files. Writes no object into the repository."""
    with TemporaryDirectory(prefix="holdfast-") as home, open_desk(git, "tree", home) as desk:
        desk.write_objects_here()
        desk.see_files()
        return gather(desk, policy).plain_tree


def plain_tree_of(git: Git, sha: str) -> str | None:
    """The tree of a snapshot without ignored files, to compare with `tree_now`; None if it is no snapshot of ours."""
    try:
        commit = _ours(git, sha)
    except NotASnapshot:
        return None
    return commit.trailers.get("Holdfast-Plain", commit.tree.encode()).decode("ascii", "replace")


def _is_same(facts: Facts, found: Gathered) -> bool:
    before = (facts.tree, facts.head, facts.branch, tuple(facts.left_out), facts.raw, facts.modes)
    now = (found.tree, found.head, found.branch, found.left_out, _raw_as_text(found), _modes_as_text(found))
    return before == now


def _raw_as_text(found: Gathered) -> dict[str, list[str]]:
    return {os.fsdecode(path): [mode.decode(), name] for path, (mode, name) in found.raw.items()}


def _modes_as_text(found: Gathered) -> dict[str, int]:
    return {os.fsdecode(path): mode for path, mode in found.modes.items()}


def _held(desk: Desk, maker: Maker, found: Gathered) -> dict[str, list[str]]:
    """What is kept beside the work tree: name -> kind and id. The index of the last snapshot is not stored again."""
    names = ("index", "staged", "stages", "present")
    held = {name: row for name, row in found.facts.held.items() if name in names} if found.facts else {}
    if not found.facts:
        held |= _index_of(desk, maker, found)
        if found.present:
            held["present"] = ["blob", maker.blob(joined(found.present))]
    if found.left_out:
        held["left_out"] = ["blob", maker.blob(joined(map(os.fsencode, found.left_out)))]
    if found.ignored:
        held["ignored"] = ["blob", maker.blob(joined(found.ignored))]
    if found.modes:
        held["modes"] = ["blob", maker.blob(ws_modes.written(found.modes))]
    if found.raw:
        rows = [(mode, name.encode(), path) for path, (mode, name) in found.raw.items()]
        held["raw"] = ["tree", _tree_of(desk, "raw", rows)]
    return held


def _index_of(desk: Desk, maker: Maker, found: Gathered) -> dict[str, list[str]]:
    if not found.users.stamp:
        return {}
    held = {"index": ["blob", maker.blob(found.users.data)]}
    if found.scan.is_as_head:
        return held
    if not found.scan.conflicts:
        private = desk.lay("staged", found.users)
        return held | {"staged": ["tree", desk.line("write-tree", "--missing-ok", index=private)]}
    rows = [
        (mode, blob, b"%d/%s" % (stage, entry.path))
        for entry in found.scan.staged
        for stage, mode, blob in entry.blobs
        if mode != GITLINK
    ]
    return held | {"stages": ["tree", _tree_of(desk, "stages", rows)]}


def _tree_of(desk: Desk, name: str, rows: list[tuple[bytes, bytes, bytes]]) -> str:
    index = desk.path(name)
    listing = b"".join(b"%s %s\t%s\0" % row for row in rows)
    desk.run("update-index", "-z", "--index-info", stdin=listing, index=index)
    return desk.line("write-tree", "--missing-ok", index=index)


def _beside(maker: Maker, held: dict[str, list[str]], found: Gathered, seconds: int, largest: int) -> str:
    if found.facts and held == found.facts.held:
        return found.facts.beside
    tree = maker.tree({name: (kind, target) for name, (kind, target) in held.items()})
    age = found.users.stamp.mtime_ns if found.users.stamp else 0
    trailers = b"Holdfast-Index-Mtime: %d\nHoldfast-Exact: %d\n" % (age, largest)
    return maker.commit(tree, [], seconds, b"What is beside the work tree\n\n" + trailers)


def _message(checkpoint_id: str, found: Gathered) -> bytes:
    rows = {
        "Checkpoint": checkpoint_id.encode(),
        "Head": (found.head or "").encode() or _NONE,
        "Branch": os.fsencode(found.branch or "") or _NONE,
    }
    if found.ignored:
        rows["Plain"] = found.plain_tree.encode()
    trailers = b"".join(b"Holdfast-%s: %s\n" % (name.encode(), value) for name, value in rows.items())
    return b"Workspace of checkpoint %s\n\n%s" % (checkpoint_id.encode(), trailers)


def sync(desk: Desk, facts: Facts | None = None) -> None:
    """Ours, and what the user's own git wrote lately without syncing it: what is made of them stands on both.

    What was there when the last desk was laid out is on the disk; where the clock was set back since, nobody knows when that was.
    """
    folder = os.stat(desk.place.objects)
    place = folder.st_dev, folder.st_ino
    known = _SYNCED.get(place, 0)
    known = known if known <= desk.began_ns else 0
    since = max(desk.began_ns - EARLIER_NS, facts.synced_ns if facts else 0, known)
    os.utime(desk.folder)
    is_clock_back = os.lstat(desk.folder).st_mtime_ns < desk.began_ns
    sync_objects(desk.place.objects, 0 if is_clock_back else min(since, desk.began_ns), desk.folder)
    _SYNCED[place] = desk.began_ns


def _remember(
    desk: Desk, found: Gathered, checkpoint_id: str, sha: str, beside: str, held: dict[str, list[str]]
) -> None:
    """Leave the private index to the next snapshot."""
    index = desk.path("index")
    if not os.path.lexists(index):
        return
    facts = Facts(
        key=found.key,
        checkpoint_id=checkpoint_id,
        sha=sha,
        tree=found.tree,
        head=found.head,
        branch=found.branch,
        beside=beside,
        held=held,
        left_out=list(found.left_out),
        gitlinks=[os.fsdecode(path) for path in found.gitlinks],
        raw=_raw_as_text(found),
        modes=_modes_as_text(found),
        rules=found.rules,
        saved="",
        saved_sha256=ws_facts.digest_of_file(index),
        synced_ns=desk.began_ns,
    )
    ws_facts.save(desk, facts)


# --- refs


def check_checkpoint_id(value: str) -> str:
    if ids.check_id(value, "The checkpoint id").endswith((".", ".lock")):
        raise InvalidId("The checkpoint id", value)
    return value


def keep(git: Git, checkpoint_id: str, snapshot: Snapshot) -> Snapshot:
    """Let the ref of a checkpoint point at its snapshot. Doing it again is nothing; another snapshot is refused."""
    ref = REFS + check_checkpoint_id(checkpoint_id)
    change_ref(git, ref, lambda held: held.move(ref, check_id(snapshot.sha), None, "a checkpoint"), snapshot.sha)
    return snapshot._replace(ref=ref)


def drop(git: Git, checkpoint_id: str, sha: str) -> None:
    """Remove the ref of a checkpoint if it still points there; one that is gone is gone."""
    ref = REFS + check_checkpoint_id(checkpoint_id)
    order = f"delete {ref}\0{check_id(sha)}\0".encode()
    change_ref(git, ref, lambda held: held("update-ref", "--no-deref", "--stdin", "-z", stdin=order), None)


def kept(git: Git) -> dict[str, str]:
    """The snapshot of each checkpoint that has one: id -> commit."""
    place_of(git)
    said = git("for-each-ref", "--format=%(refname) %(objectname)", "--end-of-options", REFS)
    rows = (line.decode("utf-8", "surrogateescape").split(" ") for line in said.splitlines())
    return {name.removeprefix(REFS): sha for name, sha in rows}


# --- reading


class Parts(NamedTuple):
    """A snapshot, taken apart: what its commit says and what is kept beside its tree (name -> id).

    `exact`: it knows of every file up to this size whether it was on disk as git writes it. None: nobody noted that.
    """

    snapshot: Snapshot
    beside: dict[str, str]
    index_mtime_ns: int
    exact: int | None


def read(git: Git, checkpoint_id: str) -> Snapshot:
    """The snapshot of a checkpoint, as its ref has it. A commit that is not one of ours is refused."""
    return read_parts(git, checkpoint_id).snapshot


def read_parts(git: Git, checkpoint_id: str) -> Parts:
    ref = REFS + check_checkpoint_id(checkpoint_id)
    sha = git.value_of(ref)
    if sha is None:
        raise NotFound("snapshot of checkpoint", checkpoint_id)
    commit = _ours(git, sha)
    head, branch = (_or_none(commit, name) for name in ("Holdfast-Head", "Holdfast-Branch"))
    if commit.parents[:-1] != ((head,) if head else ()):
        raise NotASnapshot(f"{sha} says that HEAD was at {head}, but does not stand on it.")
    beside = parse_commit(git.body_of(commit.parents[-1], "commit"))
    age, exact = (_number(beside, name) for name in ("Holdfast-Index-Mtime", "Holdfast-Exact"))
    held = _entries(git, beside.tree)
    snapshot = Snapshot(
        sha, commit.tree, head, branch, ref, _rows(git, held.get("left_out")), _rows(git, held.get("ignored"))
    )
    return Parts(snapshot, held, age or 0, exact)


def _number(commit: Commit, name: str) -> int | None:
    value = commit.trailers.get(name, b"")
    return int(value) if value.isdigit() else None


def _rows(git: Git, blob: str | None) -> tuple[str, ...]:
    body = b"" if blob is None else git.body_of(blob, "blob")
    return tuple(os.fsdecode(row) for row in body.split(b"\0") if row)


def _ours(git: Git, sha: str) -> Commit:
    try:
        commit = parse_commit(git.body_of(sha, "commit"))
    except EffectError as error:
        raise NotASnapshot(f"{sha} cannot be read as a commit: {error}") from error
    named = commit.trailers.get("Holdfast-Checkpoint", b"")
    if not commit.author.startswith(IDENTITY + b" ") or not ids.is_id(named.decode("ascii", "replace")):
        raise NotASnapshot(f"{sha} is not a snapshot that Holdfast made.")
    if not 1 <= len(commit.parents) <= 2:
        raise NotASnapshot(f"{sha} has {len(commit.parents)} parents, and a snapshot has one or two.")
    return commit


def _or_none(commit: Commit, name: str) -> str | None:
    value = commit.trailers.get(name, _NONE)
    return None if value == _NONE else os.fsdecode(value)


def _entries(git: Git, tree: str) -> dict[str, str]:
    rows = (row.split(b"\t", 1) for row in git("ls-tree", "-z", tree).split(b"\0") if row)
    return {os.fsdecode(name): facts.split(b" ")[2].decode() for facts, name in rows}


def diff(git: Git, checkpoint_id: str, against: str | None = None) -> bytes:
    """What a snapshot changes in its own HEAD, or in another commit, as a patch that `git apply` takes."""
    snapshot = read(git, checkpoint_id)
    base = git.resolve(against) if against is not None else snapshot.head
    base = base or Maker(object_format(git)).name_of("tree", b"")
    argv = ("diff-tree", "-r", "-p", "--binary", "--full-index", "--no-ext-diff", "--no-textconv", "--no-color")
    return git(*argv, "--no-renames", "--end-of-options", base, snapshot.tree)


def changed(git: Git) -> list[Change]:
    """What `git status` would list. A failure of git is an error, never a clean tree."""
    place_of(git)
    look_again(git)
    finished = git.ask(*STATUS)
    if finished.code:
        raise WorkspaceError(f"`git status` failed: {complaint(finished)}")
    return changes_of(parse_status(finished, Own(git)))

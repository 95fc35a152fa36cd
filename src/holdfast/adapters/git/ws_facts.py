"""What the last snapshot of a work tree knew, so that the next one need not find it out again. Trusts only what a ref keeps.

Two files in our folder: `last.json`, and the private index it names. Either may be missing, torn or stale; then they
count as not there, and the next snapshot is merely slower.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from contextlib import suppress

from holdfast.adapters.git.ws_convert import attribute_files
from holdfast.adapters.git.ws_desk import Desk, IndexFile, make_file, stamp_of
from holdfast.adapters.git.ws_touched import touched
from holdfast.adapters.ledger import read_all
from holdfast.adapters.probes.git_place import Repository
from holdfast.adapters.probes.git_runner import Git
from holdfast.core.named import NamedTuple

REFS = "refs/holdfast/checkpoints/"
LAST = "last.json"
VERSION = 4
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Facts(NamedTuple):
    """All of the last snapshot. `key` is what must still hold for any of it to be of use."""

    key: str
    checkpoint_id: str
    sha: str
    tree: str
    head: str | None
    branch: str | None
    beside: str  # the commit that holds what is not in the work tree
    held: dict[str, list[str]]  # what its tree holds: name -> kind and id
    left_out: list[str]
    gitlinks: list[str]
    raw: dict[str, list[str]]  # path -> mode and id of its bytes as they are on disk
    modes: dict[str, int]  # path -> permissions narrower than usual
    rules: dict[str, list[int] | None]  # the .gitignore files around new files: one may itself be ignored
    saved: str  # the file name of the private index, and its digest
    saved_sha256: str
    synced_ns: int


def key_of(git: Git, place: Repository, index: IndexFile, largest: int) -> str:
    """The user's index, what is ignored or converted, what is ours, and how large a file may be."""
    excludes = [stamp_at(path) for path in (*exclude_files(git, place), *attribute_files(git, place))]
    said = json.dumps([VERSION, place.top, largest, excludes, sorted(git.settings), git.own]).encode()
    return hashlib.sha256(said + hashlib.sha256(index.data).digest() + bytes([index.stamp is not None])).hexdigest()


def exclude_files(git: Git, place: Repository) -> list[str]:
    home = git.given.get("HOME", "")
    default = os.path.join(git.given.get("XDG_CONFIG_HOME") or os.path.join(home, ".config"), "git", "ignore")
    named = [value for _, name, value in git.settings if name == "core.excludesfile"]
    path = named[-1].replace("~", home, 1) if named and named[-1].startswith("~/") else (named or [default])[-1]
    return [os.path.join(place.common, "info", "exclude"), os.path.join(place.top, path)]


def rules_around(place: Repository, paths: Iterable[bytes]) -> dict[str, list[int] | None]:
    """The stamps of all files that may say of these paths whether they are ignored."""
    folders = {b""}
    for path in paths:
        while (path := os.path.dirname(path)) and path not in folders:
            folders.add(path)
    names = (os.fsdecode(os.path.join(folder, b".gitignore")) for folder in folders)
    return {name: stamp_at(os.path.join(place.top, name)) for name in names}


def stamp_at(path: str) -> list[int] | None:
    try:
        return list(stamp_of(os.stat(path)))
    except OSError:
        return None


def load(desk: Desk, key: str) -> Facts | None:
    """The facts, if they are of this index and their snapshot is kept; then its private index lies on the desk."""
    try:
        values = json.loads(_read(os.path.join(desk.home, LAST)))
        facts = Facts(**values)
        if facts.key != key or not is_kept(desk, facts):
            return None
        return facts if _take_over(desk, facts) else None
    except (OSError, ValueError, TypeError):
        return None


def is_kept(desk: Desk, facts: Facts) -> bool:
    """Whether a ref still holds all those objects. A loose ref is read as it is; git is only asked for a packed one."""
    ref = REFS + facts.checkpoint_id
    with suppress(OSError):
        return _read(os.path.join(desk.place.common, ref)) == f"{facts.sha}\n".encode()
    return desk.git.value_of(ref) == facts.sha


def _take_over(desk: Desk, facts: Facts) -> bool:
    """Git replaces an index and never writes into it, so a second name is as good as a copy, and keeps its age."""
    path = desk.path("index")
    os.link(os.path.join(desk.home, os.path.basename(facts.saved)), path)
    if hashlib.sha256(_read(path)).hexdigest() == facts.saved_sha256:
        return True
    os.unlink(path)
    return False


def save(desk: Desk, facts: Facts) -> None:
    """Put the desk's private index and what is known of it in the place of those before."""
    name = f"index-{os.path.basename(desk.folder)}"
    said = json.dumps(facts._replace(saved=name)._asdict()).encode()
    make_file(desk.path(LAST), said)
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(desk.home, name))
    os.link(desk.path("index"), os.path.join(desk.home, name))
    os.rename(desk.path(LAST), os.path.join(desk.home, LAST))
    for other in os.listdir(desk.home):
        if other.startswith("index-") and other != name:
            with suppress(FileNotFoundError):  # another snapshot of this work tree was quicker
                os.unlink(os.path.join(desk.home, other))


def touched_since(desk: Desk, facts: Facts) -> list[bytes] | None:
    """Which files git noted something of in the private index by looking; None if that cannot be told."""
    saved = os.path.join(desk.home, os.path.basename(facts.saved))
    try:
        old, new = (_read(path) for path in (saved, desk.path("index")))
    except FileNotFoundError:  # another snapshot of this work tree was quicker
        return None
    return touched(old, new, object_format(desk.git))


def refresh(desk: Desk, facts: Facts) -> None:
    """If git noted something in the private index, let the next snapshot have it noted."""
    path, saved = desk.path("index"), os.path.join(desk.home, os.path.basename(facts.saved))
    with suppress(FileNotFoundError):
        if not os.path.samefile(path, saved):
            save(desk, facts._replace(saved_sha256=digest_of_file(path)))


def object_format(git: Git) -> str:
    return next((value for _, name, value in git.settings if name == "extensions.objectformat"), "sha1")


def digest_of_file(path: str) -> str:
    return hashlib.sha256(_read(path)).hexdigest()


def _read(path: str) -> bytes:
    fd = os.open(path, _READ)
    try:
        return read_all(fd)
    finally:
        os.close(fd)

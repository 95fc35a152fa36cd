"""Brings a private index to what the work tree holds now, and says what it could not hold. Never touches the user's index.

The way: lay a copy of the user's index (or the private one of the last snapshot) on the desk, look at the work tree
once, put in what differs. Every path that cannot be put in is named with the reason; nothing is left out silently.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence

from holdfast.adapters.git.ws_closed import closed_folders
from holdfast.adapters.git.ws_convert import Conversion
from holdfast.adapters.git.ws_desk import Desk, IndexFile, WorkspaceError, other_top, read_index
from holdfast.adapters.git.ws_facts import Facts, key_of, load, rules_around, touched_since
from holdfast.adapters.git.ws_modes import Modes, narrow_modes
from holdfast.adapters.git.ws_scan import (
    ABSENT,
    GITLINK,
    IGNORED,
    LIST,
    STATUS,
    Entry,
    Flags,
    Own,
    Scan,
    joined,
    parse_flags,
    parse_status,
    shown,
)
from holdfast.adapters.git.ws_submodules import strangers
from holdfast.adapters.probes.git_config import filters_of_repository
from holdfast.adapters.probes.git_runner import complaint
from holdfast.adapters.remembering import Few
from holdfast.core.guards import matches
from holdfast.core.named import NamedTuple

ATTEMPTS = 3  # files come and go while they are read
_LISTED = Few[bytes, bytes](8)  # what git listed of the last few indexes, unless they are large
_LARGEST_LISTED = 1 << 20
_KINDS = {
    stat.S_IFIFO: "it is a pipe",
    stat.S_IFSOCK: "it is a socket",
    stat.S_IFCHR: "it is a device",
    stat.S_IFBLK: "it is a device",
    stat.S_IFDIR: "it is a folder now",
}


def why_no_file(mode: int) -> str:
    """What something is that is neither a file nor a link."""
    return _KINDS.get(stat.S_IFMT(mode), "it is not a file")


class Policy(NamedTuple):
    """What belongs to a snapshot: ignored files by patterns as for a scope, or by name, and how large one file may be.

    `every_mode`: who may read it is kept of files that are as HEAD has them, too.
    """

    ignored: tuple[str, ...] = ()
    largest: int = 100 * 1024 * 1024
    named: frozenset[bytes] = frozenset()
    every_mode: bool = False

    def wants(self, path: bytes) -> bool:
        """Whether an ignored file is to be kept."""
        return path in self.named or any(matches(pattern, os.fsdecode(path)) for pattern in self.ignored)

    @property
    def is_plain(self) -> bool:
        return not self.ignored and not self.named


class Plan(NamedTuple):
    """What to do to the private index."""

    put: tuple[bytes, ...]
    remove: tuple[bytes, ...]
    left_out: tuple[str, ...]
    ignored: tuple[bytes, ...]  # to put in as well, but apart


class Gathered(NamedTuple):
    """The work tree as a tree, and all that is to be kept beside it."""

    tree: str
    plain_tree: str  # without ignored files
    ignored: tuple[bytes, ...]  # those that are in the tree
    head: str | None
    branch: str | None
    users: IndexFile  # the index of the user
    key: str
    facts: Facts | None  # of the last snapshot, if they were of use
    scan: Scan
    left_out: tuple[str, ...]
    gitlinks: tuple[bytes, ...]
    present: tuple[bytes, ...]  # on disk although the index says they need not be
    modes: Modes  # permissions narrower than usual
    rules: dict[str, list[int] | None]  # the stamps of what may ignore its new files
    raw: dict[bytes, tuple[bytes, str]]  # path -> mode and id of the bytes on disk, where git converts
    reusable: bool  # whether the private index may serve the next snapshot


def gather(desk: Desk, policy: Policy) -> Gathered:
    for left in reversed(range(ATTEMPTS)):
        try:
            return _Gatherer(desk, policy).go()
        except (WorkspaceError, FileNotFoundError, NotADirectoryError):  # a file may go while it is looked at
            if not left:
                raise
            desk.clear()
    raise AssertionError


class _Gatherer:
    def __init__(self, desk: Desk, policy: Policy) -> None:
        self.desk, self.policy = desk, policy
        self.private = desk.path("index")
        self.filters = filters_of_repository(desk.git.settings)
        self.own = Own(desk.git)
        self.listing = b""  # of the private index, where every file is to be looked at for conversion
        self.touched: list[bytes] | None = []  # since the last snapshot, though git calls them unchanged

    def go(self) -> Gathered:
        index = read_index(self.desk.place)
        key = key_of(self.desk.git, self.desk.place, index, self.policy.largest)
        facts = load(self.desk, key) if self.policy.is_plain and not self.filters else None
        present: tuple[bytes, ...] = ()
        self.conversion = Conversion(self.desk, self.policy.largest, index.data)
        if facts is not None:
            flags = Flags((), (), tuple(map(os.fsencode, facts.gitlinks)))
            scan = self.scan()
            plan = self.plan(scan)
            self.touched = touched_since(self.desk, facts) if self.conversion.is_configured() else []
            if self._is_stale(facts, scan, plan):
                os.unlink(self.private)
                facts = None
        if facts is None:
            index, flags, present = self._begin(index)
            scan = self.scan()
            plan = self.plan(scan)
        return self._finish(index, key, facts, flags, present, scan, plan)

    def _finish(
        self,
        index: IndexFile,
        key: str,
        facts: Facts | None,
        flags: Flags,
        present: tuple[bytes, ...],
        scan: Scan,
        plan: Plan,
    ) -> Gathered:
        refused = self._apply(plan)
        plain = facts.tree if facts and not plan.put and not plan.remove else self._tree()
        refused += self._put(plan.ignored)
        strange = self.conversion.strange(self.filters)
        raw = self._raw(facts, scan, plan, strange)
        filtered = self.conversion.kept(strange, raw)
        left_out = (*plan.left_out, *refused, *strangers(self.desk.git, flags.gitlinks), *filtered, *self._elsewhere())
        return Gathered(
            self._tree() if plan.ignored else plain,
            plain,
            plan.ignored,
            scan.head,
            self._branch(scan),
            index,
            key,
            facts,
            scan,
            tuple(sorted(left_out)),
            flags.gitlinks,
            present,
            narrow_modes(self.desk.place.top, self._looked_at(scan, plan)),
            rules_around(self.desk.place, (*plan.put, *_new(scan))),
            raw,
            self.policy.is_plain and not flags.skipped and not strange,
        )

    def _is_stale(self, facts: Facts, scan: Scan, plan: Plan) -> bool:
        """Whether what the last snapshot knew is of no use: it stood elsewhere, or other rules held."""
        rules = rules_around(self.desk.place, _new(scan))
        return (
            self.touched is None
            or scan.head != facts.head
            or any(is_rule(path) for path in plan.put + plan.remove)
            or any(facts.rules.get(name) != stamp for name, stamp in rules.items())
        )

    def _looked_at(self, scan: Scan, plan: Plan) -> set[bytes]:
        """The files of which it is kept who may read them."""
        every = self.desk.run("ls-files", "-z", index=self.private).split(b"\0") if self.policy.every_mode else ()
        return {*plan.put, *plan.ignored, *_there(scan), *filter(None, every)}

    # --- the beginning

    def _begin(self, index: IndexFile) -> tuple[IndexFile, Flags, tuple[bytes, ...]]:
        """Lay out a copy of the user's index in which git makes no promises about what it need not look at."""
        self.desk.lay("index", index)
        if _is_split(self.desk.place.git_dir):
            index = self._whole(index)
        self.listing = self._listed(index.data) if index.stamp else b""
        flags = parse_flags(self.listing)
        present = tuple(path for path in flags.skipped if os.path.lexists(self._at(path)))
        self._unmark("--no-assume-unchanged", flags.assumed)
        self._unmark("--no-skip-worktree", present)
        return index, flags, present

    def _listed(self, data: bytes) -> bytes:
        """What the private index lists, as long as it holds just these bytes: they say all of it."""
        listing = _LISTED.get(data)
        if listing is None:
            listing = self.desk.run(*LIST, index=self.private)
            if len(data) <= _LARGEST_LISTED:
                _LISTED[data] = listing
        return listing

    def _whole(self, index: IndexFile) -> IndexFile:
        """An index that is split in two, in one piece, and as old."""
        if not index.stamp:
            return index
        self.desk.run("update-index", "--no-split-index", "--force-write-index", index=self.private)
        os.utime(self.private, ns=(index.stamp.mtime_ns, index.stamp.mtime_ns))
        with open(self.private, "rb") as file:
            return IndexFile(file.read(), index.stamp)

    def _unmark(self, option: str, paths: Sequence[bytes]) -> None:
        if paths:
            age = os.stat(self.private).st_mtime_ns
            self.desk.run("update-index", option, "-z", "--stdin", stdin=joined(paths), index=self.private)
            os.utime(self.private, ns=(age, age))

    # --- looking

    def scan(self) -> Scan:
        argv = STATUS if self.policy.is_plain else (*STATUS, IGNORED)
        finished = self.desk.ask(*argv, index=self.private)
        if finished.code:
            raise WorkspaceError(f"`git status` failed: {complaint(finished)}")
        return parse_status(finished, self.own)

    def _elsewhere(self) -> list[str]:
        top = other_top(self.desk.git)
        return [f"{top}: git takes it for the work tree, as core.worktree says, and it is not kept"] if top else []

    def _branch(self, scan: Scan) -> str | None:
        """The full name. Git's short one does not tell a branch called `(detached)` from none, nor names what is no branch."""
        if scan.branch is None or scan.branch.startswith(("(", "refs/")):
            return self.desk.git.head_ref()
        return f"refs/heads/{scan.branch}"

    def plan(self, scan: Scan) -> Plan:
        put: list[bytes] = []
        remove: list[bytes] = []
        ignored: list[bytes] = []
        closed = closed_folders(self.desk.git) if scan.is_closed else {}
        left_out = [
            shown(path, f"it could not be opened ({why})") for path, why in closed.items() if path not in self.own
        ]
        for entry in scan.entries:
            if entry.on_disk == ".":
                continue
            why = self._why_not_entry(entry)
            if why is None:
                put.append(entry.path)
                continue
            remove += [entry.path] if self._is_gone(entry, why) else []
            left_out += [shown(entry.path, why)] if why else []
        wanted = [path for path in scan.ignored if self.policy.wants(path)]
        for paths, kept in ((scan.untracked, put), (wanted, ignored)):
            for path in paths:
                why = "it is a repository of its own" if path.endswith(b"/") else self._why_not(path)
                if why is None:
                    kept.append(path)
                elif why:
                    left_out.append(shown(path, why))
        return Plan(tuple(put), tuple(remove), tuple(left_out), tuple(ignored))

    def _why_not_entry(self, entry: Entry) -> str | None:
        """None: put it in. Else why it is left out; nothing to say if it is simply not there any more."""
        if entry.now == ABSENT or entry.on_disk == "D":
            return ""
        if entry.now == GITLINK:
            return None if entry.staged == entry.now else "it is a repository of its own"
        return self._why_not(entry.path)

    def _is_gone(self, entry: Entry, why: str) -> bool:
        """Whether the index must lose it: what is left out keeps what the index had, if that is one plain file."""
        return not why or entry.in_index == "U" or entry.now == GITLINK or why in _KINDS.values()

    def _why_not(self, path: bytes) -> str | None:
        try:
            found = os.lstat(self._at(path))
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"it cannot be looked at ({error.strerror})"
        if stat.S_ISLNK(found.st_mode):
            return None
        if not stat.S_ISREG(found.st_mode):
            return why_no_file(found.st_mode)
        if found.st_size > self.policy.largest:
            return f"it is {found.st_size:,} bytes, and the limit is {self.policy.largest:,}"
        return None if os.access(self._at(path), os.R_OK, effective_ids=True) else "it cannot be read"

    def _at(self, path: bytes) -> bytes:
        return os.path.join(os.fsencode(self.desk.place.top), path)

    # --- putting in

    def _apply(self, plan: Plan) -> list[str]:
        """Do what is planned; returns what git would not take, by its name."""
        if plan.remove:
            paths = joined(plan.remove)
            self.desk.run("update-index", "--force-remove", "-z", "--stdin", stdin=paths, index=self.private)
        return self._put(plan.put)

    def _put(self, paths: Sequence[bytes]) -> list[str]:
        if not paths:
            return []
        argv = ("update-index", "--add", "--remove", "--replace", "-z", "--stdin")
        finished = self.desk.ask(*argv, stdin=joined(paths), index=self.private)
        if finished.code:
            raise WorkspaceError(f"`git update-index` failed: {complaint(finished)}")
        if b"Ignoring path " not in finished.err:
            return []
        held = {
            *self.desk.run("ls-files", "-z", index=self.private).split(b"\0")
        }  # complaints are cut if there are many
        refused = (path for path in paths if path not in held and os.path.lexists(self._at(path)))
        return [shown(path, "git does not take such a name") for path in refused]

    def _raw(
        self, facts: Facts | None, scan: Scan, plan: Plan, strange: Iterable[bytes]
    ) -> dict[bytes, tuple[bytes, str]]:
        """The bytes on disk of files that git converts; those of the last snapshot stand if nothing was touched since."""
        asked = {*plan.put, *plan.ignored, *strange}
        asked |= {entry.path for entry in scan.staged if entry.now not in (ABSENT, GITLINK)} if facts is None else set()
        rows = (facts.raw if facts else {}).items()
        known = {os.fsencode(path): (mode.encode(), name) for path, (mode, name) in rows}
        asked |= {*(self.touched or ())} - {*plan.remove}
        asked |= {path for path in known if facts and self._is_later(path, facts.synced_ns)}
        kept = {path: row for path, row in known.items() if path not in {*asked, *plan.remove}}
        more = self.conversion.unlike(self.listing, asked) if facts is None else {}
        return kept | more | self.conversion.raw(asked)

    def _is_later(self, path: bytes, since_ns: int) -> bool:
        """Whether a file was written since then. Git looks at whole seconds only, and at the bytes as it converts them."""
        try:
            return os.lstat(self._at(path)).st_ctime_ns >= since_ns
        except OSError:
            return False

    def _tree(self) -> str:
        """A clone that lacks some objects on purpose lacks them in the tree, too."""
        partial = any(name == "extensions.partialclone" for _, name, _ in self.desk.git.settings)
        return self.desk.line("write-tree", *(["--missing-ok"] if partial else []), index=self.private)


def _there(scan: Scan) -> Iterator[bytes]:
    return (entry.path for entry in scan.entries if entry.now not in (ABSENT, GITLINK))


def _new(scan: Scan) -> list[bytes]:
    return [entry.path for entry in scan.entries if entry.in_index == "A"]


def is_rule(path: bytes) -> bool:
    """Whether it says what is ignored or converted: then what was known of other files may hold no more."""
    return re.search(rb"(\A|/)\.git(ignore|attributes)\Z", path) is not None


def _is_split(git_dir: str) -> bool:
    return any(name.startswith("sharedindex.") for name in os.listdir(git_dir))

"""Finds the files that git changes on their way in or out, and keeps their bytes as they are on disk. Converts nothing itself.

Line endings, filters, keywords and encodings: what git makes of such a file may not turn back into what it was.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence

from holdfast.adapters.git.ws_desk import Desk
from holdfast.adapters.git.ws_scan import KEPT_AS_IT_IS, NOT_KEPT, joined, shown
from holdfast.adapters.paths import real_path
from holdfast.adapters.probes.git_place import Repository
from holdfast.adapters.probes.git_runner import Git

ATTRIBUTES = ("text", "eol", "crlf", "filter", "ident", "working-tree-encoding")
SOURCE = b".gitattributes"
FILES = (b"100644", b"100755")
_FAITHFUL = (b"lfs", b"git-crypt", b"annex")  # filters that give back just what they took
_WORDS = (b"text", b"eol", b"crlf", b"filter", b"ident", b"encoding")
_LOUD = {b"crlf", b"filter", b"ident", b"encoding"}  # that may change a file on its way out
_LARGEST_SOURCE = 1 << 20
FEW = 500  # paths whose folders are looked at for attributes; for more, git is asked at once
_SILENT = (b"unspecified", b"unset")
_OFF = ("false", "no", "off", "0", "")

Said = dict[bytes, bytes]


def attribute_files(git: Git, place: Repository) -> list[str]:
    """The files outside of the work tree in which attributes may stand."""
    home = git.given.get("HOME", "")
    config = git.given.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    named = [value for _, name, value in git.settings if name == "core.attributesfile"]
    users = named[-1] if named else os.path.join(config, "git", "attributes")
    users = os.path.join(home, users[2:]) if users.startswith("~/") else os.path.join(place.top, users)
    prefix = os.path.dirname(os.path.dirname(real_path(git.program)))
    system = ("/etc/gitattributes", os.path.join(prefix, "etc", "gitattributes"))
    return [*system, users, os.path.join(place.common, "info", "attributes")]


class Conversion:
    """What the attributes and settings of one work tree say. `index` are the bytes of the user's index."""

    def __init__(self, desk: Desk, largest: int, index: bytes) -> None:
        self.desk, self.largest, self.index = desk, largest, index
        self.top = os.fsencode(desk.place.top)

    def strange(self, filters: Collection[str]) -> dict[bytes, str]:
        """Paths that go through a filter which only the repository defines, with a row for each: it is not run."""
        if not filters:
            return {}
        listing = self.desk.run("ls-files", "-z", index=self.desk.path("index"))
        paths = [path for path in listing.split(b"\0") if path]
        return {
            path: shown(
                path, f"its filter {os.fsdecode(said[b'filter'])!r:.80} is the repository's own and was not run"
            )
            for path, said in self._attributes(paths).items()
            if os.fsdecode(said[b"filter"]) in filters
        }

    def kept(self, strange: dict[bytes, str], raw: Collection[bytes]) -> list[str]:
        """The rows of such files, each with what became of its bytes. What is no file of its own is never converted."""
        return [
            row + (KEPT_AS_IT_IS if path in raw or not self._is_file(path) else NOT_KEPT)
            for path, row in strange.items()
        ]

    def _is_file(self, path: bytes) -> bool:
        return os.path.isfile(self._at(path)) and not os.path.islink(self._at(path))

    def raw(self, paths: Iterable[bytes]) -> dict[bytes, tuple[bytes, str]]:
        """Mode and id of the bytes on disk, for those of the paths that git converts."""
        plain = sorted(path for path in paths if self._is_plain(path))
        if not plain or not self._may_convert(plain):
            return {}
        return self._hashed([path for path, said in self._attributes(plain).items() if self._converts(said)])

    def _attributes(self, paths: Iterable[bytes]) -> dict[bytes, Said]:
        said = self.desk.run("check-attr", "-z", "--stdin", *ATTRIBUTES, stdin=joined(paths)).split(b"\0")
        found: dict[bytes, Said] = {}
        for path, name, value in zip(said[0::3], said[1::3], said[2::3], strict=False):
            found.setdefault(path, {})[name] = value
        return found

    def _is_plain(self, path: bytes) -> bool:
        try:
            found = os.lstat(self._at(path))
        except OSError:
            return False
        return stat.S_ISREG(found.st_mode) and found.st_size <= self.largest

    def is_configured(self) -> bool:
        """Whether anything may say so, as far as the index and the settings tell."""
        is_compressed = self.index[7:8] > b"\x03"  # then names stand in the index in pieces
        is_set = any(name == "core.autocrlf" for _, name, _ in self.desk.git.settings)  # be it off: it may have been on
        return is_set or is_compressed or SOURCE in self.index or any(map(os.path.lexists, self._sources(())))

    def _may_convert(self, paths: Sequence[bytes]) -> bool:
        """Whether anything says so; asking git costs a process."""
        return len(paths) > FEW or self.is_configured() or any(map(os.path.lexists, self._sources(paths)))

    def _sources(self, paths: Iterable[bytes]) -> set[bytes]:
        """Every file in which attributes of these paths may stand."""
        folders = {b""}
        for path in paths:
            while (path := path.rpartition(b"/")[0]) and path not in folders:
                folders.add(path)
        own = attribute_files(self.desk.git, self.desk.place)
        return {*map(os.fsencode, own), *(os.path.join(self.top, folder, SOURCE) for folder in folders)}

    # --- files that git calls unchanged

    def unlike(self, listing: bytes, known: Collection[bytes]) -> dict[bytes, tuple[bytes, str]]:
        """Mode and id of the bytes on disk, for those of the other files in a listing that a checkout may write otherwise."""
        rows = [row.split(b"\t", 1) for row in listing.split(b"\0") if row]
        entries = {path: facts.split(b" ") for facts, path in rows}
        said = self._words(entries)
        if not said and not self.is_configured():
            return {}
        blobs = {
            path: facts[2]
            for path, facts in entries.items()
            if path not in known and facts[1] in FILES and facts[3] == b"0" and self._is_readable(path)
        }
        other = self._of_other_size(blobs)
        asked = blobs if said & _LOUD or self.writes_crlf() else other
        found = self._attributes(asked) if asked else {}
        return self._hashed([path for path, how in found.items() if self._may_differ(how, path in other)])

    def _words(self, tracked: Collection[bytes]) -> set[bytes]:
        """Which attributes that convert stand in any file of attributes around tracked files, be it tracked itself or not."""
        inside = {self._at(path) for path in tracked if path.endswith(SOURCE) and os.path.basename(path) == SOURCE}
        return {word for path in {*self._sources(tracked), *inside} for word in _words_in(path, path in inside)}

    def _of_other_size(self, blobs: dict[bytes, bytes]) -> set[bytes]:
        """Where no line end is added on the way out, the same size means the same bytes."""
        if not blobs:
            return set()
        listing = b"".join(name + b"\n" for name in blobs.values())
        sizes = self.desk.run("cat-file", "--batch-check=%(objectsize)", stdin=listing).split(b"\n")
        pairs = zip(blobs, sizes, strict=False)
        return {path for path, size in pairs if size != b"%d" % os.lstat(self._at(path)).st_size}

    def _may_differ(self, said: Said, is_other_size: bool) -> bool:
        if said[b"filter"] in _FAITHFUL:
            return False
        if is_other_size or not self._converts(said):
            return is_other_size  # git converted it once, and has not looked at it since the rules changed
        is_loud = any(said[name] not in _SILENT for name in (b"filter", b"ident", b"working-tree-encoding"))
        return is_loud or said[b"eol"] == b"crlf" or self.writes_crlf()

    def _is_readable(self, path: bytes) -> bool:
        return self._is_plain(path) and os.access(self._at(path), os.R_OK)

    def writes_crlf(self) -> bool:
        chosen = {name: value.lower() for _, name, value in self.desk.git.settings}
        is_input = chosen.get("core.autocrlf") == "input"
        return (self._is_autocrlf() and not is_input) or chosen.get("core.eol") == "crlf"

    def _is_autocrlf(self) -> bool:
        chosen = [value.lower() for _, name, value in self.desk.git.settings if name == "core.autocrlf"]
        return bool(chosen) and chosen[-1] not in _OFF

    def _converts(self, said: Said) -> bool:
        if any(said[name.encode()] not in _SILENT for name in ATTRIBUTES):
            return True
        return said[b"text"] != b"unset" and self._is_autocrlf()

    def _hashed(self, paths: Sequence[bytes]) -> dict[bytes, tuple[bytes, str]]:
        plain = [path for path in paths if b"\n" not in path and not path.startswith(b'"')]
        argv = ("hash-object", "-w", "--no-filters")
        listing = b"".join(path + b"\n" for path in plain)
        ids = self.desk.run(*argv, "--stdin-paths", stdin=listing).decode().split() if plain else []
        found = dict(zip(plain, ids, strict=True))
        for path in paths:
            if path not in found:
                found[path] = self.desk.line(*argv, "--end-of-options", os.fsdecode(path))
        return {path: (self._mode(path), name) for path, name in found.items()}

    def _mode(self, path: bytes) -> bytes:
        return b"100755" if os.lstat(self._at(path)).st_mode & stat.S_IXUSR else b"100644"

    def _at(self, path: bytes) -> bytes:
        return os.path.join(self.top, path)


def _words_in(path: bytes, is_tracked: bool) -> Iterator[bytes]:
    """What cannot be read may say anything; git reads one that is gone in the index."""
    data = b" ".join(_WORDS)
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            data = file.read(_LARGEST_SOURCE)
    except FileNotFoundError:
        data = data if is_tracked else b""
    except OSError:
        return iter(_WORDS)
    return (word for word in _WORDS if word in data)

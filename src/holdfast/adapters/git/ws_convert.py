"""Finds the files that git changes on their way in or out, and keeps their bytes as they are on disk. Converts nothing itself.

Line endings, filters, keywords and encodings: what git makes of such a file may not turn back into what it was.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Sequence

from holdfast.adapters.git.ws_desk import Desk
from holdfast.adapters.git.ws_scan import KEPT_AS_IT_IS, NOT_KEPT, joined, shown

ATTRIBUTES = ("text", "eol", "crlf", "filter", "ident", "working-tree-encoding")
SOURCE = b".gitattributes"
FEW = 500  # paths whose folders are looked at for attributes; for more, git is asked at once
_SILENT = (b"unspecified", b"unset")
_OFF = ("false", "no", "off", "0", "")

Said = dict[bytes, bytes]


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

    def _may_convert(self, paths: Sequence[bytes]) -> bool:
        """Whether anything says so; asking git costs a process."""
        is_compressed = self.index[7:8] > b"\x03"  # then names stand in the index in pieces
        return (
            len(paths) > FEW
            or self._is_autocrlf()
            or is_compressed
            or SOURCE in self.index
            or any(map(os.path.lexists, self._sources(paths)))
        )

    def _sources(self, paths: Iterable[bytes]) -> set[bytes]:
        """Every file in which attributes of these paths may stand."""
        git = self.desk.git
        home = git.given.get("HOME", "")
        config = git.given.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
        named = [value for _, name, value in git.settings if name == "core.attributesfile"]
        prefix = os.path.dirname(os.path.dirname(os.path.realpath(git.program)))
        system = ("/etc/gitattributes", os.path.join(prefix, "etc", "gitattributes"))
        own = (os.path.join(config, "git", "attributes"), os.path.join(self.desk.place.common, "info", "attributes"))
        found = {os.fsencode(path) for path in (*system, *own)} | ({b"/"} if named else set())
        folders = {b""}
        for path in paths:
            while path := os.path.dirname(path):
                folders.add(path)
        return found | {os.path.join(self.top, folder, SOURCE) for folder in folders}

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

"""Which files of which repository this user lets name commands: kept by content and real path in the user's own folder.

What cannot be read, is not ours, or could have been written by a repository trusts nothing, and that is said.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Literal

from holdfast.adapters.git.plain_files import Folder, opened
from holdfast.adapters.ledger import write_all
from holdfast.adapters.paths import real_path
from holdfast.adapters.probes.common import wait_for
from holdfast.core.acts import Act, acts
from holdfast.core.errors import BadFile, HoldfastError, NewerSchema, UsageError
from holdfast.core.named import NamedTuple

FILE = "trusted.json"
SCHEMA_VERSION = 1
LISTED = 20
PATIENCE = 10.0
State = Literal["trusted", "changed", "unknown"]
Known = dict[str, dict[str, Any]]
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Verdict(NamedTuple):
    """Whether files may name commands. `what`: the files that may not; `before`: what these named when they were trusted."""

    state: State
    what: tuple[str, ...] = ()
    acts: tuple[Act, ...] = ()
    before: tuple[Act, ...] = ()
    problem: str = ""


class Untrusted(HoldfastError):
    """Files of a repository name commands that this user has not accepted."""

    reason = "untrusted"
    advice = "Nothing was started. `holdfast trust` in this repository shows them and asks; `holdfast trust --yes` accepts them."

    def __init__(self, top: str, verdict: Verdict) -> None:
        listed = [" ".join(filter(None, (act.where or act.file, act.text))) for act in verdict.acts[:LISTED]]
        more = f"; and {len(verdict.acts) - LISTED} more" if len(verdict.acts) > LISTED else ""
        since = "that has changed since you trusted it" if verdict.state == "changed" else "that is not trusted yet"
        said = f" {verdict.problem}" if verdict.problem else ""
        super().__init__(
            f"What {', '.join(verdict.what)} of {top} would have run: {'; '.join(listed).rstrip('.')}{more}; {since}.{said}"
        )
        self.verdict = verdict


class Trust:
    """The user's own list of what is trusted, in `folder`."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def check(self, top: str, files: Mapping[str, bytes]) -> Verdict:
        """Whether every file that names something to run is as it was trusted. Only looks."""
        naming = {name: found for name, data in files.items() if (found := acts({name: data}))}
        known, problem = self._known(top)
        doubted = [name for name in naming if known.get(name, {}).get("digest") != digest(top, name, files[name])]
        if not doubted:
            return Verdict("trusted")
        return Verdict(
            "changed" if any(name in known for name in doubted) else "unknown",
            tuple(doubted),
            tuple(act for name in doubted for act in naming[name]),
            tuple(Act(name, *pair) for name in doubted for pair in known.get(name, {}).get("acts", ())),
            problem,
        )

    def require(self, top: str, files: Mapping[str, bytes]) -> None:
        """Raise Untrusted unless everything that these files would have run is trusted."""
        verdict = self.check(top, files)
        if verdict.state != "trusted":
            raise Untrusted(top, verdict)

    def trust(self, top: str, files: Mapping[str, bytes]) -> None:
        """Remember exactly these bytes; other files of the same repository stay as they are."""
        self._refuse_inside(top)
        with self._changing() as repositories:
            ours = repositories.setdefault(real_path(top), {})
            for name, data in files.items():
                shown = [act[1:] for act in acts({name: data})]
                ours[name] = {"digest": digest(top, name, data), "acts": shown}

    def forget(self, top: str) -> bool:
        """Trust nothing of this repository any more. False: nothing was trusted."""
        if not self._known(top)[0]:
            return False
        with self._changing() as repositories:
            return repositories.pop(real_path(top), None) is not None

    # --- the file

    def _known(self, top: str) -> tuple[dict[str, dict[str, Any]], str]:
        """What is trusted of a repository, and what is wrong with the list if something is."""
        try:
            self._refuse_inside(top)
            if not os.path.isdir(self.folder):
                return {}, ""
            with opened(self.folder) as folder:
                return _read(folder).get(real_path(top), {}), ""
        except HoldfastError as error:
            return {}, f"So nothing is trusted: {error}"

    def _refuse_inside(self, top: str) -> None:
        """A list inside the repository could have come with it."""
        real = real_path(top)
        if os.path.commonpath((real, real_path(self.folder))) == real:
            raise UsageError(
                f"The folder for what is trusted, {self.folder}, lies inside the repository.",
                advice="Set XDG_STATE_HOME to a folder outside of it.",
            )

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Known]]:
        """The list under a lock, written back whole when the block ends well. A damaged one is set aside."""
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        with opened(self.folder) as folder:
            if not wait_for(folder.fd, fcntl.LOCK_EX, PATIENCE):
                raise BadFile(folder.path_of(FILE), None, "another process is writing it", advice="Try again.")
            try:
                repositories = _read(folder)
            except NewerSchema:
                raise
            except HoldfastError:
                folder.move(FILE, FILE + ".damaged")
                repositories = {}
            yield repositories
            _write(folder, repositories)


def digest(top: str, name: str, data: bytes) -> str:
    """One repository's one file with this content; each part is led by its length, so none can pose as another."""
    parts = (os.fsencode(real_path(top)), name.encode("utf-8", "surrogatepass"), data)
    framed = b"".join(b"%d\n%b" % (len(part), part) for part in parts)
    return hashlib.sha256(b"holdfast/trust/1\n" + framed).hexdigest()


def _read(folder: Folder) -> dict[str, Known]:
    found = folder.read(FILE)
    if found is None:
        return {}
    if found.found.st_uid != os.geteuid() or stat.S_IMODE(found.found.st_mode) & 0o022:
        raise BadFile(
            folder.path_of(FILE), None, "somebody else may write it", advice="Make it yours alone: chmod 600."
        )
    try:
        document = json.loads(found.data)
        version, repositories = document["schema_version"], document["repositories"]
    except (ValueError, TypeError, LookupError, RecursionError):
        raise BadFile(folder.path_of(FILE), None, "it is damaged") from None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise NewerSchema(folder.path_of(FILE), version, SCHEMA_VERSION)
    if not _is_sound(repositories):
        raise BadFile(folder.path_of(FILE), None, "it is damaged")
    sound: dict[str, Known] = repositories
    return sound


def _is_sound(repositories: object) -> bool:
    """Whether it has the shape that we write, all the way down."""
    if not isinstance(repositories, dict) or not all(isinstance(files, dict) for files in repositories.values()):
        return False
    entries = [entry for files in repositories.values() for entry in files.values()]
    return all(isinstance(entry, dict) and _is_entry(entry) for entry in entries)


def _is_entry(entry: dict[str, Any]) -> bool:
    listed = entry.get("acts")
    return isinstance(listed, list) and isinstance(entry.get("digest"), str) and all(map(_is_pair, listed))


def _is_pair(pair: object) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and all(isinstance(text, str) for text in pair)


def _write(folder: Folder, repositories: dict[str, Known]) -> None:
    document = {"schema_version": SCHEMA_VERSION, "repositories": repositories}
    draft = FILE + ".new"
    with suppress(FileNotFoundError):
        os.unlink(draft, dir_fd=folder.fd)  # a killed process left it
    fd = os.open(draft, _MAKE, 0o600, dir_fd=folder.fd)
    try:
        write_all(fd, json.dumps(document, indent=1, sort_keys=True).encode(), 0)
        os.fsync(fd)
    finally:
        os.close(fd)
    folder.move(draft, FILE)

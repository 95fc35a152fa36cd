"""Where a repository is, and what its files say without git: its folders, where HEAD stands, the bytes of its settings.

Refuses what is not a whole, plain repository. Whatever these files do not say outright, git is to be asked for.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping

from holdfast.adapters.paths import real_path
from holdfast.adapters.probes.common import EffectError
from holdfast.core.named import NamedTuple

ID = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_MOST = 4096
_LARGEST_CONFIG = 64 * 1024


class Repository(NamedTuple):
    """Where a repository keeps what: its work tree, the git folder of that work tree, and what all its work trees share."""

    top: str
    git_dir: str
    common: str

    @property
    def objects(self) -> str:
        return os.path.join(self.common, "objects")

    @property
    def index_file(self) -> str:
        return os.path.join(self.git_dir, "index")

    def locks(self, ref: str) -> list[str]:
        """Lock files that a killed git may have left and that keep the next one from writing."""
        places = [os.path.join(self.git_dir, name) for name in ("index.lock", "HEAD.lock")]
        places += [os.path.join(self.common, name) for name in (f"{ref}.lock", "packed-refs.lock")]
        return [place for place in places if os.path.lexists(place)]


def find_repository(path: str) -> Repository:
    """The repository whose work tree has its top at `path`. One that points elsewhere must be pointed back at."""
    top = real_path(path)
    git = os.path.join(top, ".git")
    mode = os.lstat(git).st_mode if os.path.lexists(git) else 0
    if not mode or stat.S_ISLNK(mode):
        raise EffectError(f"{top} is not the top of a git work tree.", advice="Name the folder that holds .git.")
    if stat.S_ISREG(mode):
        return _linked(top, git)
    if os.path.lexists(os.path.join(git, "commondir")):
        raise EffectError(f"{git} says that it belongs to another repository.", advice="Remove its file `commondir`.")
    return Repository(top, git, git)


def _linked(top: str, git: str) -> Repository:
    line = _text(git)
    git_dir = real_path(os.path.join(top, line.removeprefix("gitdir: ")))
    common = os.path.dirname(os.path.dirname(git_dir))
    names_back = real_path(os.path.join(git_dir, _text(os.path.join(git_dir, "gitdir"))))
    named = real_path(os.path.join(git_dir, _text(os.path.join(git_dir, "commondir"))))
    if not line.startswith("gitdir: ") or names_back != git or named != common:
        raise EffectError(
            f"{git} names a git folder that does not name it back.",
            advice="Use the main work tree, or one made by `git worktree add`. Submodules are not supported.",
        )
    return Repository(top, git_dir, common)


def stands(place: Repository) -> bool:
    """Whether this is still where the repository of this work tree is: its files can point git elsewhere at any time."""
    try:
        return find_repository(place.top) == place
    except (EffectError, OSError):
        return False


def plain_head(place: Repository) -> tuple[str, str] | None:
    """Commit and branch of HEAD where its files say both outright; None where git has to be asked."""
    line = _first_line(os.path.join(place.git_dir, "HEAD"))
    ref = line.removeprefix("ref: ")
    if ref == line or not ref.startswith("refs/heads/") or ".." in ref:
        return None
    value = _first_line(os.path.join(place.common, ref))
    return (value, ref) if ID.fullmatch(value) else None


def is_detached(place: Repository) -> bool:
    """Whether the file of HEAD says outright that it stands on no branch; otherwise git has to be asked."""
    path = os.path.join(place.git_dir, "HEAD")
    return not os.path.islink(path) and ID.fullmatch(_first_line(path)) is not None


def read_configs(place: Repository | None, environment: Mapping[str, str]) -> tuple[bytes, ...] | None:
    """The files that git reads its settings from; None if one of them is no small ordinary file, and git is to see to it."""
    home = environment.get("HOME", "")
    users = os.path.join(environment.get("XDG_CONFIG_HOME") or os.path.join(home, ".config"), "git", "config")
    paths = ["/etc/gitconfig", users, os.path.join(home, ".gitconfig")]
    if place is not None:
        paths += [os.path.join(place.common, "config"), os.path.join(place.git_dir, "config.worktree")]
    found = [_config(path) if os.path.isabs(path) else None for path in paths]
    return None if None in found else tuple(data for data in found if data is not None)


def _config(path: str) -> bytes | None:
    try:
        data = _beginning(path, _LARGEST_CONFIG + 1)
    except (FileNotFoundError, NotADirectoryError):
        return b""
    except OSError:
        return None
    return b"+" + data if data is not None and len(data) <= _LARGEST_CONFIG else None


def _first_line(path: str) -> str:
    return _text(path).replace("\r", "\n").partition("\n")[0]


def _text(path: str) -> str:
    """Of an ordinary file; what is none has none. Without the ends of its last line, as git reads a path."""
    try:
        data = _beginning(path, _MOST) or b""
    except FileNotFoundError:
        return ""
    except OSError:
        if os.path.isfile(path):
            raise
        return ""
    return data.rstrip(b"\r\n").replace(b"\0", b"").decode("utf-8", "surrogateescape")


def _beginning(path: str, most: int) -> bytes | None:
    """What an ordinary file begins with; None if it is something else."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(fd, most) if stat.S_ISREG(os.fstat(fd).st_mode) else None
    finally:
        os.close(fd)

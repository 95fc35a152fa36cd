"""Reads `holdfast.toml` at the top of a repository and the user's own `config.toml`, each once -> one frozen Loaded.

Reads no more than a settings file can need, and follows no link that leads out of the repository.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping

from holdfast.adapters.system import USER_FILE, user_folder
from holdfast.core.errors import BadFile, TooLarge
from holdfast.core.named import NamedTuple
from holdfast.core.settings import FILE, Given, Settings, combine, read

MOST = 64 * 1024


class Loaded(NamedTuple):
    """The settings, the bytes they were made from, and what a repository asked for and did not get."""

    settings: Settings = Settings()
    sources: Mapping[str, bytes] = {}
    notes: tuple[str, ...] = ()
    files: Mapping[str, bytes] = {}
    """The files of the repository among the sources, by name: what has to be trusted."""


def load(top: str | None, environ: Mapping[str, str]) -> Loaded:
    """The settings for a repository, or without one for this user. Raises BadFile where a file cannot be used."""
    own_path = os.path.join(user_folder(environ, "XDG_CONFIG_HOME"), USER_FILE)
    own, found = _bytes_of(own_path), _repository_file(top)
    settings, notes = combine(_given(own, own_path), _given(found, FILE))
    files = {} if found is None else {FILE: found}
    sources = {os.path.join(top or "", name): data for name, data in files.items()}
    return Loaded(settings, sources | ({} if own is None else {own_path: own}), notes, files)


def _given(data: bytes | None, source: str) -> Given:
    return Given(source, {}) if data is None else read(data, source)


def _repository_file(top: str | None) -> bytes | None:
    if top is None:
        return None
    base = os.path.realpath(top)
    path = os.path.realpath(os.path.join(base, FILE))
    if os.path.dirname(path) != base and not path.startswith(base.rstrip("/") + "/"):
        raise BadFile(FILE, None, "it is a link that leads out of the repository", advice="Put the file itself there.")
    return _bytes_of(path)


def _bytes_of(path: str) -> bytes | None:
    """The content of a plain file; None if there is none. A pipe or a device is not waited for."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        problem = "it is a link to itself" if error.errno == errno.ELOOP else f"it cannot be read ({error.strerror})"
        raise BadFile(path, None, problem) from None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise BadFile(path, None, "it is not a plain file")
        data = os.read(fd, MOST + 1)
        if len(data) > MOST:
            raise TooLarge(f"The settings file {path}", os.fstat(fd).st_size, MOST)
    finally:
        os.close(fd)
    return data

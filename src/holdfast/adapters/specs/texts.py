"""The files of one spec as texts: read within bounds, replaced whole or not at all. Refuses links that leave the repository.

A file knows its bytes as they are: byte order mark, line ends and all. Writing the same bytes again touches nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from holdfast.adapters.git.plain_files import opened
from holdfast.adapters.paths import real_path
from holdfast.adapters.specs.yaml_text import MAX_BYTES, BadYaml, Node, compose, plain
from holdfast.core.errors import BadFile, BadInput
from holdfast.core.named import NamedTuple
from holdfast.core.spec import SpecError
from holdfast.core.spec_shapes import merged

_BOM = "\ufeff"


class Text(NamedTuple):
    """A file's text without its byte order mark, and the documents in it."""

    path: str
    text: str
    documents: Sequence[Node]
    mark: str = ""

    @property
    def whole(self) -> str:
        return self.mark + self.text

    @property
    def data(self) -> dict[str, Any]:
        return data_of(self.text)


def data_of(text: str) -> dict[str, Any]:
    return merged([plain(document) for document in compose(text)])


def top_of(folder: str) -> str:
    """The repository around a folder: the nearest one above that has `.git`, else the folder itself."""
    real = real_path(folder)
    place = real
    while not os.path.lexists(os.path.join(place, ".git")):
        if place == os.path.dirname(place):
            return real
        place = os.path.dirname(place)
    return place


def within(path: str, top: str) -> bool:
    return _is_in(real_path(path), real_path(top))


def _is_in(real: str, base: str) -> bool:
    return real == base or real.startswith(os.path.join(base, ""))


def load(folder: str, name: str, top: str) -> Text | None:
    """The file of that name, or None. Raises BadFile with the path, and the line where there is one."""
    data = fetch(folder, name, real_path(top))
    return None if data is None else parse(os.path.join(folder, name), data)


def fetch(folder: str, name: str, base: str) -> bytes | None:
    """The bytes of the file of that name, or None. `base` is the real path of the repository."""
    path = os.path.join(folder, name)
    if not os.path.lexists(path):
        return None
    real = real_path(path)
    if not _is_in(real, base):
        raise BadFile(path, None, "it is a link that leaves the repository", advice="Put the file itself there.")
    with opened(os.path.dirname(real)) as place:
        found = place.read(os.path.basename(real), MAX_BYTES)
    return None if found is None else found.data


def parse(path: str, data: bytes) -> Text:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise BadFile(path, data.count(b"\n", 0, error.start) + 1, "it is not UTF-8") from None
    mark = _BOM if text.startswith(_BOM) else ""
    bare = text[len(mark) :]
    try:
        return Text(path, bare, compose(bare), mark)
    except BadYaml as error:
        raise BadFile(path, error.line, error.problem) from None


def store(folder: str, name: str, text: str, before: str | None) -> None:
    """Put a text in the place of the one that was read, durably. The same again touches nothing."""
    data = text.encode()
    with opened(real_path(folder)) as place:
        found = place.read(name, MAX_BYTES)
        if found is not None and found.data == data:
            return
        if (None if found is None else found.data.decode("utf-8", "replace")) != before:
            raise refused(place.path_of(name), "it was changed meanwhile")
        place.replace(name, data, None if found is None else found.found)


def put_back(folder: str, name: str, data: bytes) -> None:
    """Put bytes in the place of whatever the file says now."""
    with opened(real_path(folder)) as place:
        found = place.read(name, MAX_BYTES)
        place.replace(name, data, None if found is None else found.found)


def refused(path: str, why: str) -> SpecError:
    return SpecError(f"{path} was not changed: {why}.", advice="Change it by hand, and try again.")


def problem_of(error: BadInput) -> tuple[int | None, str]:
    """The line and the sentence of what is wrong with a file."""
    if isinstance(error, BadFile):
        return error.line, f"{error.problem[:1].upper()}{error.problem[1:]}."
    return None, str(error)

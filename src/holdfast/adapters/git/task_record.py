"""What is known of the work tree of one task, in a small file of ours below the common git folder. Written whole or not at all.

making    its folder may be there in part, and nobody has worked in it yet
open      it was given to somebody, and their edits are in it
closing   all that was in it is collected, and it may be gone in part
"""

from __future__ import annotations

import os
import re
from typing import Literal

import msgspec

from holdfast.adapters.git.plain_files import Folder
from holdfast.core.errors import BadFile, InvalidId

State = Literal["making", "open"]
END = ".json"
_NAME = re.compile(r"(?!.*(\.\.|\.lock$|\.$))[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`links` are the links into another work tree, by path. Names of places are bytes, as the disk has them."""

    run_id: str
    name: str
    base: str
    path: bytes
    state: State
    links: dict[str, bytes] = {}


def check_name(value: str, what: str) -> str:
    """A name that can be that of a folder, of a file and of a ref."""
    if not _NAME.fullmatch(value):
        raise InvalidId(what, value)
    return value


def read(folder: Folder, name: str) -> Record | None:
    found = folder.read(name + END)
    if found is None:
        return None
    try:
        record = msgspec.json.decode(found.data, type=Record)
    except msgspec.DecodeError as error:
        raise _bad(folder, name) from error
    if record.name != name:
        raise _bad(folder, name)
    return record


def _bad(folder: Folder, name: str) -> BadFile:
    path = folder.path_of(name + END)
    return BadFile(path, None, "it is not the record of a work tree", advice="Look at it, and move it away.")


def write(folder: Folder, record: Record) -> None:
    name = record.name + END
    folder.replace(name, msgspec.json.encode(record) + b"\n", folder.look(name))


def names(folder: Folder) -> list[str]:
    return sorted(name.removesuffix(END) for name in os.listdir(folder.fd) if name.endswith(END))

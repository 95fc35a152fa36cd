"""The work tree of a task that went along when its repository was moved: our record and git are told of its new place.

Nothing is told while something is at the old place, which may be the repository that this one is a copy of.
"""

from __future__ import annotations

import os
import shutil

import msgspec

from holdfast.adapters.git import task_record
from holdfast.adapters.git.plain_files import Folder
from holdfast.adapters.git.task_place import registered
from holdfast.adapters.git.task_record import Record
from holdfast.adapters.probes.git_runner import Git


def read(records: Folder, name: str, path: str, git: Git) -> Record | None:
    """The record of the task whose work tree belongs at `path`."""
    record = task_record.read(records, name)
    if record is None or record.path == os.fsencode(path) or os.path.lexists(record.path):
        return record
    if os.path.isdir(path) and not os.path.islink(path):
        _unlink(record, path)
        git.ask("worktree", "repair", path)  # whether it is one of ours now is checked by whoever uses it
    else:
        _forget(git, os.fsdecode(record.path))
    record = msgspec.structs.replace(record, path=os.fsencode(path), links={})
    task_record.write(records, record)
    return record


def _forget(git: Git, path: str) -> None:
    """What git knows of a tree that is gone would be looked for at its new place only."""
    assert git.place is not None
    for folder in registered(git.place.common, path):
        shutil.rmtree(folder)


def _unlink(record: Record, path: str) -> None:
    """Our links lead to where the main work tree was."""
    for name, target in record.links.items():
        place = os.path.join(path, name)
        if os.path.islink(place) and os.fsencode(os.readlink(place)) == target:
            os.unlink(place)

"""Changes one of our refs, durably and all or nothing. Clears away a lock of ours that a killed git left, and nobody else's."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable

from holdfast.adapters.git.ws_desk import PATIENCE, WorkspaceError, holding, own_folder, place_of, turn
from holdfast.adapters.probes.common import EffectError, wait_for
from holdfast.adapters.probes.git_runner import Git
from holdfast.adapters.syncing import sync_folders


def change_ref(git: Git, ref: str, act: Callable[[Git], object], wanted: str | None) -> None:
    """Change a ref, durably. If git will not, that is right when it is as wanted; a lock that a killed git left goes."""
    common = place_of(git).common
    with turn(own_folder(common), fcntl.LOCK_SH) as lock:
        held = holding(git, lock)
        try:
            act(held)
        except EffectError as error:
            _again(held, ref, act, wanted, lock, error)
        _sync_ref(common, ref)


def _again(git: Git, ref: str, act: Callable[[Git], object], wanted: str | None, lock: int, error: EffectError) -> None:
    found = git.value_of(ref)
    if found == wanted:
        return
    if wanted is not None and found is not None:
        raise WorkspaceError(f"{ref} already points at {found}, not at {wanted}.", advice="Take a new checkpoint.")
    stale = os.path.join(place_of(git).common, ref + ".lock")
    if not os.path.lexists(stale) or not wait_for(lock, fcntl.LOCK_EX, PATIENCE):
        raise WorkspaceError(f"{ref} cannot be changed: {error}") from error
    if os.path.lexists(stale):  # nobody of ours is at work any more, and nobody else has business there
        os.unlink(stale)
    try:
        act(git)
    except EffectError as again:
        if git.value_of(ref) != wanted:
            raise WorkspaceError(f"{ref} cannot be changed: {again}") from again


def _sync_ref(common: str, ref: str) -> None:
    """Make the name of a ref durable, from the inside out; git syncs what it says."""
    folders, folder = list[str](), os.path.dirname(os.path.join(common, ref))
    while folder.startswith(os.path.join(common, "refs")):
        folders.append(folder)
        folder = os.path.dirname(folder)
    sync_folders(folders)  # one that became empty, git removes

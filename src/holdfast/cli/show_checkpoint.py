"""One checkpoint of the repository around us: what it holds, where it is now, and its changes. Writes nothing."""

from __future__ import annotations

import sys
from typing import Any

from holdfast.adapters.git import workspace
from holdfast.adapters.git.repo import GitWorkspace
from holdfast.cli import repo
from holdfast.cli.output import emit, escape, say
from holdfast.cli.render import on_terminal, pairs
from holdfast.core.errors import HoldfastError


def is_there(text: str) -> bool:
    """Whether this names a checkpoint that is kept here. Outside of a repository there is none."""
    try:
        repo.find_checkpoint(repo.here(), text)
    except HoldfastError as error:
        return error.reason == repo.AmbiguousCheckpoint.reason
    return True


def show(text: str, diff: bool, as_json: bool) -> None:
    place = repo.here()
    checkpoint_id = repo.find_checkpoint(place, text)
    if diff:
        show_diff(workspace.diff(place.git, checkpoint_id), checkpoint_id, as_json)
        return
    data = facts(place, checkpoint_id)
    if as_json:
        emit(data)
        return
    pairs([(name, escape(value)) for name, value in data.items() if value not in (None, (), [])])
    say(f"  holdfast show {checkpoint_id} --diff")
    say(f"  holdfast restore {checkpoint_id}")


def facts(place: GitWorkspace, checkpoint_id: str) -> dict[str, Any]:
    made = workspace.read(place.git, checkpoint_id)
    found = repo.logged(checkpoint_id)
    known = {} if found is None else {"run_id": found[0].run_id, "title": found[1].title, "index": found[1].index}
    commit = None if found is None else found[1].commit
    position = repo.find(place, found[0], checkpoint_id) if found is not None and commit else None
    return {
        "checkpoint_id": checkpoint_id,
        **known,
        "snapshot": made.sha,
        "tree": made.tree,
        "head": made.head,
        "branch": made.branch,
        "left_out": list(made.left_out),
        "ignored": list(made.ignored),
        "commit": commit,
        "now_at": None if position is None else position.sha,
        "source": None if position is None else position.source,
        "confidence": None if position is None else position.confidence,
        "why": None if position is None else position.why,
    }


def show_diff(patch: bytes, checkpoint_id: str, as_json: bool) -> None:
    if as_json:
        emit({"checkpoint_id": checkpoint_id, "diff": patch.decode("utf-8", "backslashreplace")})
    elif on_terminal():
        for line in patch.decode("utf-8", "backslashreplace").splitlines():
            say(escape(line.replace("\t", "    ")))
    else:
        sys.stdout.buffer.write(patch)
        sys.stdout.buffer.flush()

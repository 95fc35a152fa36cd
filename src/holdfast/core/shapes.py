"""What a folded log holds: the state of a run and of its parts. Shapes only; `core/rules.py` changes them.

It is also the snapshot, as JSON; a snapshot without a version is legacy and readable.
"""

from __future__ import annotations

from typing import Any

import holdfast.core.lean  # noqa: F401 - before msgspec
from holdfast.core.events import Policy

import msgspec  # isort: skip

SCHEMA_VERSION = "1.0.0"
LEGACY = "0.0.0"

READY, RUNNING, STOPPED, FINISHED = "ready", "running", "stopped", "finished"
STATUSES = (READY, RUNNING, STOPPED, FINISHED)

# Effect states that leave the key free to be started again, and those that are still open.
FREE = frozenset({"failed", "not_done"})
OPEN = frozenset({"started", "unknown"})
HARMLESS = ("pure", "read")  # policies of what leaves no trace


class StepState(msgspec.Struct, gc=False):
    """`seq` is the event that says what it was given; steps between `since` and `ended` may have been its own."""

    status: str = "started"
    attempt: int = 1
    phase: str | None = None
    input_hash: str | None = None
    output: Any = None
    artifact: str | None = None
    error: str | None = None
    code_hash: str | None = None
    retry_at: str | None = None
    seq: int = 0
    since: int = 0
    ended: int = 0


class EffectState(msgspec.Struct, gc=False):
    status: str
    step_id: str
    policy: Policy = "once"
    arguments_hash: str = ""
    receipt: Any = None
    evidence: str = ""
    artifact: str | None = None
    code_hash: str | None = None
    seq: int = 0


class CheckpointState(msgspec.Struct, gc=False):
    checkpoint_id: str
    cursor: str
    input_hash: str
    retry_token: str
    strictness: str
    seq: int
    used: bool = False


class WorkspaceState(msgspec.Struct, gc=False):
    """A checkpoint of a repository: begun with what it will be, complete with what was made. `seq`: its last event."""

    repo: str
    index: int | None = None
    title: str = ""
    branch: str | None = None
    parent: str | None = None
    base: str | None = None
    snapshot: str | None = None
    commit: str | None = None
    tree: str | None = None
    patch_id: str | None = None
    sidecar_written: bool | None = None
    seq: int = 0
    complete: bool = False
    created_at: str | None = None
    tier: str | None = None
    verification_commands: tuple[str, ...] = ()
    body: str = ""


class RepositoryState(msgspec.Struct, gc=False):
    """What the run found when it first came to a repository, and the scope it has there."""

    artifact: str
    head: str | None = None
    branch: str | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    touched_before: str | None = None
    scope_since: str | None = None


class QuestionState(msgspec.Struct, gc=False):
    """`answer` is None while nobody has answered; `accepted` names another question that it was accepted for."""

    text: str
    choices: tuple[str, ...] = ()
    deadline: str | None = None
    answer: str | None = None
    expired: bool = False
    accepted: str | None = None


class Spent(msgspec.Struct, gc=False):
    """What the log counts, over all restarts."""

    attempts: int = 0
    tokens: int = 0
    money: float = 0.0


class RunState(msgspec.Struct, omit_defaults=False):
    """The fold of one log. Also its snapshot, as JSON; a snapshot without a version is legacy and readable."""

    schema_version: str = SCHEMA_VERSION
    run_id: str = ""
    mission_id: str = ""
    title: str = ""
    status: str = READY
    seq: int = 0
    plan: tuple[str, ...] = ()
    input_hash: str | None = None
    steps: dict[str, StepState] = {}
    steps_done: int = 0
    steps_open: dict[str, int] = {}
    effects: dict[str, EffectState] = {}
    effects_open: dict[str, str] = {}
    checkpoint_id: str | None = None
    cursor: str | None = None
    stop_reason: str | None = None
    diagnosis: str = ""
    resumes: int = 0
    notes: int = 0
    inputs: str | None = None
    strictness: str | None = None
    forked_from: str | None = None
    checkpoints: dict[str, CheckpointState] = {}
    questions: dict[str, QuestionState] = {}
    sleeps: dict[str, str | None] = {}
    spent: Spent = msgspec.field(default_factory=Spent)
    cancelling: bool = False
    heard: int = 0
    workspaces: dict[str, WorkspaceState] = {}
    checkpoint_open: str | None = None
    kept_aside: dict[str, str] = {}
    given_up: dict[str, str] = {}
    repositories: dict[str, RepositoryState] = {}

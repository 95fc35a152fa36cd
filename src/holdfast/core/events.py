"""The facts a log can hold. Each class is one event; its wire tag is its name in snake_case. No rules here, only shapes.

An event is for ever: a change of its fields is a new `version`, and `core/wire.py` lifts the old ones. Its annotations are types,
not text: msgspec would have to compile them before it can read the first event.
"""

from typing import Any, ClassVar, Literal

import holdfast.core.lean  # noqa: F401 - before msgspec, so that it loads without what it does not need

import msgspec  # isort: skip

SettledAs = Literal["done", "not_done", "unknown", "abandoned"]
Drift = Literal["inputs", "arguments", "code", "vanished", "plan", "commit", "branch", "tree", "base", "environment"]
Verdict = Literal["go", "ask", "refuse"]
Policy = Literal["pure", "read", "idempotent", "keyed", "transactional", "probed", "once"]


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """A fact, past tense, appended once."""

    version: ClassVar[int] = 1
    data_fields: ClassVar[tuple[str, ...]] = ()


class RunStarted(Event, frozen=True):
    """`inputs` came with version 2: the artifact that holds the canonical, redacted inputs. A fork names where it is from."""

    version: ClassVar[int] = 2

    mission_id: str
    title: str = ""
    plan: tuple[str, ...] = ()
    input_hash: str | None = None
    inputs: str | None = None
    strictness: str | None = None
    forked_from: str | None = None
    forked_at: int | None = None


class RunResumed(Event, frozen=True):
    source: str = "log"
    epoch: int = 0
    was: str = ""


class RunStopped(Event, frozen=True):
    reason: str
    diagnosis: str = ""
    evidence: tuple[str, ...] = ()


class RunFinished(Event, frozen=True):
    outcome: str = "complete"


class StepStarted(Event, frozen=True):
    """What it was given and by which code came with version 2; before that both are unknown. `since`: as for its end."""

    version: ClassVar[int] = 2
    data_fields: ClassVar[tuple[str, ...]] = ("arguments",)

    step_id: str
    attempt: int = 1
    phase: str | None = None
    input_hash: str | None = None
    code_hash: str | None = None
    arguments: Any = None
    since: int = 0


class StepFinished(Event, frozen=True):
    """Since version 2 it may stand alone: a short step is not announced, and its end says what it was given.

    `since` is the event after which it began, where others came between: the steps among them may be its own.
    """

    version: ClassVar[int] = 2
    data_fields: ClassVar[tuple[str, ...]] = ("output", "arguments")

    step_id: str
    attempt: int = 1
    output: Any = None
    artifact: str | None = None
    input_hash: str | None = None
    code_hash: str | None = None
    arguments: Any = None
    since: int = 0


class StepFailed(Event, frozen=True):
    """`retry_at` came with version 2: the time of the next attempt, if there is one."""

    version: ClassVar[int] = 2

    step_id: str
    attempt: int = 1
    error: str = ""
    retry_at: str | None = None


class EffectStarted(Event, frozen=True):
    """What it was given and by which code came with version 2; before that both are unknown."""

    version: ClassVar[int] = 2
    data_fields: ClassVar[tuple[str, ...]] = ("arguments",)

    effect_key: str
    step_id: str
    policy: Policy = "once"
    arguments_hash: str = ""
    code_hash: str | None = None
    arguments: Any = None


class EffectFinished(Event, frozen=True):
    """`artifact` came with version 2: a receipt too large to stand in an event."""

    version: ClassVar[int] = 2
    data_fields: ClassVar[tuple[str, ...]] = ("receipt",)

    effect_key: str
    receipt: Any = None
    artifact: str | None = None


class EffectFailed(Event, frozen=True):
    effect_key: str
    error: str = ""


class EffectSettled(Event, frozen=True):
    """`receipt` came with version 2: what the probe found. Since version 3 a person may say another one of what is done."""

    version: ClassVar[int] = 3
    data_fields: ClassVar[tuple[str, ...]] = ("receipt",)

    effect_key: str
    settled_as: SettledAs
    evidence: str = ""
    by: str = "probe"
    receipt: Any = None


class CheckpointStarted(Event, frozen=True):
    """A checkpoint of a repository is about to be made. With an `index` it is a milestone: a commit with title and `body`."""

    version: ClassVar[int] = 2
    checkpoint_id: str
    repo: str
    index: int | None = None
    title: str = ""
    branch: str | None = None
    parent: str | None = None
    base: str | None = None
    created_at: str | None = None
    tier: str | None = None
    verification_commands: tuple[str, ...] = ()
    body: str = ""


class CheckpointComplete(Event, frozen=True):
    """Up to here everything is recorded. `sidecar_written` came with version 2; before that it is unknown.

    Version 3 came with repositories: `snapshot` is the commit that holds the workspace, `commit` that of the milestone.
    """

    version: ClassVar[int] = 3

    checkpoint_id: str
    step_id: str | None = None
    cursor: str | None = None
    sidecar_written: bool | None = None
    snapshot: str | None = None
    commit: str | None = None
    tree: str | None = None
    patch_id: str | None = None
    left_out: tuple[str, ...] = ()


class CheckpointAbandoned(Event, frozen=True):
    """A checkpoint that was begun is not there, and will not be."""

    checkpoint_id: str
    why: str = ""


class CheckpointSidecarWriteFailed(Event, frozen=True):
    """A mirror could not be written; the checkpoint stands without it. `path` is absolute."""

    checkpoint_id: str
    path: str
    error: str


class ResumeCheckpointSelected(Event, frozen=True):
    """Where the last milestone of the run was found, by which evidence, and how sure that is."""

    source: str
    confidence: str = ""
    sha: str | None = None
    index: int | None = None
    checkpoint_id: str | None = None
    was: str | None = None
    why: str = ""


class MilestoneIndexCorrected(Event, frozen=True):
    """The log and the repository disagree about the last milestone; the repository is where the work is."""

    previous: int | None
    corrected_to: int | None
    reason: str
    checkpoint_id: str | None = None
    sha: str | None = None
    source: str = ""


class SnapshotKept(Event, frozen=True):
    """What was in the work tree when the run went on, kept aside; shown as pending until somebody deals with it."""

    checkpoint_id: str
    snapshot: str
    repo: str
    paths: int = 0


class SnapshotSettled(Event, frozen=True):
    """What became of work that was kept aside: restored, or dropped."""

    checkpoint_id: str
    settled_as: Literal["restored", "dropped"]


class EnvironmentSeen(Event, frozen=True):
    """What a run found in a repository: its commit, its branch, and the fingerprint of what surrounds it, an artifact.

    `formerly` is the folder under which the log knew this repository before.
    """

    artifact: str
    repo: str
    head: str | None = None
    branch: str | None = None
    formerly: str | None = None


class ScopeDeclared(Event, frozen=True):
    """The files that the run may touch: `deny` beats `allow`, and an empty `allow` means all.

    `before` is the artifact that lists what had been touched when the first scope was declared: that is not the run's
    doing. `since` is the commit of HEAD at that time; what was committed after it is, in whichever process.
    """

    version: ClassVar[int] = 2
    repo: str
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    before: str | None = None
    since: str | None = None


class StepCheckpointed(Event, frozen=True):
    """Where a step stands before a gate, and the token that resumes it. Under 1 KB: what is large is an artifact."""

    checkpoint_id: str
    mission_id: str
    step_id: str
    strictness: str
    cursor: str
    input_hash: str
    retry_token: str
    timestamp: str
    scope_refs: tuple[tuple[str, str], ...] = ()
    inputs: str | None = None
    refs: str | None = None
    expires_at: str | None = None


class GateBlocked(Event, frozen=True):
    step_id: str
    strictness: str
    conflicts: int
    checkpoint_id: str | None = None
    resumable: bool = True


class CheckpointResumed(Event, frozen=True):
    """A retry token was used, once. `accepted`: the inputs had changed, and that was accepted."""

    checkpoint_id: str
    retry_token: str
    accepted: bool = False


class DriftFound(Event, frozen=True):
    """The world is not what the log knew, and what was decided about it. `by`: the policy, or who was asked."""

    drift: Drift
    subject: str
    verdict: Verdict
    was: str = ""
    now: str = ""
    by: str = "policy"


class QuestionAsked(Event, frozen=True):
    question_id: str
    text: str
    choices: tuple[str, ...] = ()
    deadline: str | None = None


class QuestionAnswered(Event, frozen=True):
    question_id: str
    answer: str
    by: str = ""
    message_id: int = 0


class QuestionExpired(Event, frozen=True):
    question_id: str


class SleepStarted(Event, frozen=True):
    sleep_id: str
    until: str


class SleepEnded(Event, frozen=True):
    sleep_id: str


class CancelRequested(Event, frozen=True):
    by: str = ""
    message_id: int = 0


class BudgetSpent(Event, frozen=True):
    """What was used up beside attempts and time, which the log counts by itself.

    One of nothing is written beside long work whose time is limited: the run was still running then.
    """

    tokens: int = 0
    money: float = 0.0
    step_id: str | None = None


class NoteRecorded(Event, frozen=True):
    """`step_id` came with version 2: the step or effect whose code said it, if one did; before that it is unknown."""

    version: ClassVar[int] = 2

    text: str
    author: str = ""
    step_id: str | None = None


class Extension(Event, frozen=True):
    """An event of a kind that begins with `x_`: kept, shown, exported, and without meaning for the state."""

    data_fields: ClassVar[tuple[str, ...]] = ("data",)

    kind: str
    data: dict[str, Any]
    tagged: int = 1


def snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


EVENTS: tuple[type[Event], ...] = tuple(kind for kind in Event.__subclasses__() if kind is not Extension)
KINDS: dict[str, type[Event]] = {snake(event.__name__): event for event in EVENTS}
KIND_OF: dict[type[Event], str] = {event: kind for kind, event in KINDS.items()}

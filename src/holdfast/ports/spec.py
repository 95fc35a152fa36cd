"""What running a spec needs from the world: its files, agents, checks, and the repository that it is worked in."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from holdfast.core.named import NamedTuple, Protocol

if TYPE_CHECKING:
    from holdfast.core.reports import Kind, Report
    from holdfast.core.review import Finding
    from holdfast.core.spec import Checkpoint, Spec, Status


class Specs(Protocol):
    """The files of one spec. What is written is written whole or not at all, and only where it changes something."""

    @property
    def path(self) -> str:
        """Its folder, as the log names it."""

    def read(self) -> Spec:
        """All that the files say. Raises SpecError if there is nothing to work by."""

    def mirrors(self) -> Mapping[str, bytes]:
        """The checkpoint and the review as they are, by their names, if they are there."""

    def lost(self, name: str, before: bytes) -> list[str]:
        """What one of these said besides what a run writes, and does not say any more."""

    def put_back(self, name: str, data: bytes) -> None:
        """Write one of these as it was."""

    def mark(self, statuses: Mapping[str, Status], *, today: str | None = None) -> None:
        """Set the status of tasks, in the words of the file; and the date of the change, if it has one."""

    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Write the mirror, and keep what it does not know."""

    def write_review(self, batch: str, findings: Sequence[Finding]) -> None:
        """Note what reviewers found in a batch."""


class Ask(NamedTuple):
    """One piece of work for one agent. `key` is that of the effect; `session` the conversation to go on with."""

    key: str
    kind: Kind
    agent: str
    prompt: str
    cwd: str
    task: str = ""
    session: str | None = None
    timeout: float = 2700.0
    stall_after: float = 900.0
    whole: str = ""  # the prompt for a new conversation, if the session is gone


class Answered(NamedTuple):
    """How it went: a report, or why there is none. `trouble` is what the agent itself complained of, by its kind.

    `files`: what it wrote without a report that counts, by name: its report file, its own record. Redacted, like `output`.
    """

    agent: str
    report: Report | None = None
    why: str = ""
    trouble: str | None = None
    resets_at: str | None = None
    ended_by: str = "exit"
    session: str | None = None
    tokens: int = 0
    money: float = 0.0
    seconds: float = 0.0
    output: bytes = b""
    files: tuple[tuple[str, bytes], ...] = ()


class Left(NamedTuple):
    """What a dead process left of a piece of work. `unsure`: why nobody can say whether somebody still works on it.

    `output` is all that it said, redacted; `tail` the end of that; `files` as in an answer.
    """

    report: Report | None = None
    session: str | None = None
    unsure: str | None = None
    evidence: tuple[str, ...] = ()
    tail: str = ""
    agent: str = ""
    output: bytes = b""
    files: tuple[tuple[str, bytes], ...] = ()


class Agents(Protocol):
    """Agents, started as commands. One at a time for each key."""

    def report_instructions(self, kind: Kind, key: str) -> str:
        """How an agent is to answer for this key."""

    def ask(self, ask: Ask, tell: Callable[[str], None], should_stop: Callable[[], bool]) -> Answered:
        """Start it, wait for its end, and read its report. Nothing of its process tree is left on return."""

    def left(self, key: str, kind: Kind) -> Left:
        """What became of work whose process died. Ends what is left of its process tree, if that is surely ours."""


class Ran(NamedTuple):
    """A command that was run to its end, or until its time was up."""

    command: tuple[str, ...]
    exit_code: int | None
    seconds: float = 0.0
    timed_out: bool = False
    output: bytes = b""


class Checks(Protocol):
    """Runs the commands of a verification, without a shell."""

    def run(
        self, key: str, command: Sequence[str], cwd: str, timeout: float, should_stop: Callable[[], bool]
    ) -> Ran: ...


class Ground(Protocol):
    """The repository that tasks are worked in: the main work tree, and one more for each task of a parallel batch."""

    @property
    def top(self) -> str: ...

    def where(self) -> tuple[str | None, str | None]:
        """The commit and the branch that are checked out in the main work tree."""

    def open(self, name: str, base: str) -> str:
        """A work tree of its own for a task, at commit `base`; the same one, with its edits, if it is there already."""

    def path(self, name: str) -> str:
        """Where that work tree is, or would be."""

    def standing(self, name: str) -> Literal["open", "gone", "none"]:
        """Whether it was made, and something is still in its place."""

    def collect(self, name: str) -> str:
        """A commit that holds what is in that work tree, but for what git ignores."""

    def ignored(self, name: str) -> list[str]:
        """What git ignores in that work tree, without what programs make anew whenever they run."""

    @property
    def aside(self) -> str:
        """The folder that such files are moved to when their work tree is removed."""

    def content(self, cwd: str, paths: Sequence[str]) -> dict[str, str]:
        """What is in those of these files that are there, by ids as `committed` has them; no filter of git's is applied."""

    def uncommitted(self, cwd: str) -> list[str]:
        """The files of a work tree that are not as in its last commit; of a renamed one, both names."""

    def committed(self, commit: str, paths: Sequence[str]) -> dict[str, str]:
        """What a commit holds of these files."""

    def present(self, cwd: str, paths: Sequence[str]) -> list[str]:
        """Those of these paths in a work tree at which something is."""

    def ignores(self, cwd: str, paths: Sequence[str]) -> list[str]:
        """Those of these paths in a work tree at which something is that git ignores."""

    def bring_in(
        self,
        base: str,
        ours: str,
        theirs: Sequence[tuple[str, str]],
        kept: Collection[str],
        own: Collection[str],
    ) -> tuple[list[str], list[tuple[str, str]]]:
        """Merge what tasks collected into the main work tree, in order. Raises before anything changes if it cannot be.

        Gives the paths that changed, and tasks with what stays as it is: those of the `kept` paths on which what they made
        does not fit, and those of the `own` ones that they changed.
        """

    def close(self, name: str) -> str | None:
        """Remove a work tree whose work was brought in. A sentence, if something of it is still there."""

    def refs(self) -> Mapping[str, str]:
        """Where branches, tags and HEAD are."""

    def moved(self, before: Mapping[str, str]) -> list[str]:
        """A sentence for each of them that is elsewhere now."""

    def last_commit(self, text: str, file: str) -> str:
        """What the commit that a checkpoint file names is for this branch, in a sentence."""

    def changed(self, cwd: str, since: str) -> list[str]:
        """The paths in a work tree that differ from a commit or snapshot."""

    def diff(self, cwd: str, since: str, limit: int) -> str:
        """Those differences as text, untracked files included, up to about so many characters."""

    def undo(self, before: str) -> tuple[list[str], str]:
        """Bring back what differs from a snapshot that was taken before: the paths, and the checkpoint with what was there."""

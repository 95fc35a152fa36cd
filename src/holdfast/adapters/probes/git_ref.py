"""What the effects on one ref of a repository share: their lock, their order of looking and acting, the words of a message."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from holdfast.adapters.probes.common import PATIENCE, EffectError, at_rest, check_key, hold, sure
from holdfast.adapters.probes.git_place import Repository, find_repository
from holdfast.adapters.probes.git_runner import Git, check_ref
from holdfast.core.errors import UsageError
from holdfast.core.values import Answer

TRAILER = "Holdfast-Effect"
_TRAILER_LINE = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*: \S.*")
_UNFINISHED = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply")
Environ = Mapping[str, str] | None


def with_trailer(message: str, key: str) -> bytes:
    """The message with the line that names the effect, in the block of trailers if there is one."""
    body = message.strip()
    last = body.split("\n\n")[-1]
    is_block = last != body and all(_TRAILER_LINE.fullmatch(line) for line in last.splitlines())
    return f"{body}{'' if is_block else chr(10)}\n{TRAILER}: {key}\n".encode()


def check_message(message: str) -> None:
    if not message.strip() or "\0" in message or message.encode("utf-8", "replace").decode() != message:
        raise UsageError("The message is empty or holds characters that git does not keep.")
    if f"{TRAILER.lower()}:" in message.lower():
        raise UsageError(f"The message already has a line {TRAILER}.", advice="Leave it out; it is added.")


def waiting_for(place: Repository, ref: str) -> str:
    """A few words about the lock files that a killed git left, for the end of a sentence."""
    locks = place.locks(ref)
    return f"; {', '.join(locks)} is left by a git that runs or was killed" if locks else ""


def refuse_unfinished(place: Repository) -> None:
    """Raise while a merge, rebase, pick or revert is going on: a commit now would become a part of it."""
    unfinished = [name for name in _UNFINISHED if os.path.lexists(os.path.join(place.git_dir, name))]
    if unfinished:
        raise EffectError(f"A merge or rebase is not finished ({unfinished[0]}).", advice="Finish or abort it.")


class RefEffect(ABC):
    """What the effects on one ref of a repository share."""

    repo: str
    environ: Environ
    seconds: float

    @property
    @abstractmethod
    def ref(self) -> str: ...

    @abstractmethod
    def _act(self, git: Git, key: str) -> dict[str, Any]: ...

    @abstractmethod
    def _look(self, git: Git, key: str) -> Answer: ...

    def _git(self) -> Git:
        git = Git(find_repository(self.repo), self.environ, self.seconds)
        check_ref(git, self.ref)
        return git

    def act(self, key: str) -> dict[str, Any]:
        """Do it, unless it is done. Refuses to begin where anything is not as it was when it was planned."""
        check_key(key)
        git = self._git()
        assert git.place is not None
        with hold(git.place.common, PATIENCE) as lock:
            git.held = (lock,)
            receipt = self._act(git, key)
            git.sync(self.ref)
        return receipt

    def probe(self, key: str) -> Answer:
        return sure(lambda: self._answer(key))

    def _answer(self, key: str) -> Answer:
        check_key(key)
        git = self._git()
        assert git.place is not None
        if not at_rest(git.place.common):
            return Answer("unknown", "a git process of this or another effect is still at work in the repository")
        answer = self._look(git, key)
        if answer.settled_as == "done":
            git.sync(self.ref)
            return answer
        return answer._replace(evidence=answer.evidence + waiting_for(git.place, self.ref))

    def _refuse(self, answer: Answer) -> EffectError:
        return EffectError(f"{self.ref} is not what it was when this was planned: {answer.evidence}.")

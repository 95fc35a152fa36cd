"""Between the work of a batch and its commit: review, verification, and what has to be put right first.

Each round ends with a decision that is written down: through, fix, or halt. A round whose halt somebody resumed after is
followed by a fresh look. The same findings after a fix, or too many rounds, are a loop and stop the run.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count, pairwise
from typing import Any

import msgspec

from holdfast.core.briefs import Work
from holdfast.core.canonical import digest
from holdfast.core.errors import HoldfastError
from holdfast.core.named import NamedTuple
from holdfast.core.reports import ReviewerReport
from holdfast.core.review import Finding, Judgement, fingerprint, judge
from holdfast.engine.pipeline import aside, stage
from holdfast.engine.pipeline.batches import FINAL
from holdfast.engine.pipeline.desk import CutShort, Desk, Halt, Moment, first_of, label
from holdfast.engine.pipeline.stage import Order
from holdfast.engine.pipeline.tasks import together

_DIFF = 60_000
_OUTPUT = 6_000


GUARDS: tuple[Callable[[Desk], Any], ...] = (
    lambda desk: desk.repo.check_scope(),
)  # each stops the run, or lets it pass


class Passed(NamedTuple):
    """What came through: all that was found on the way, the highest tier with the commands that were run, and who reviewed:
    None if an earlier version did not record it."""

    found: tuple[Finding, ...] = ()
    tier: str | None = None
    commands: tuple[str, ...] = ()
    fixes: int = 0
    reviewed_by: tuple[str, ...] | None = None


class Gate:
    """The gate of one batch. `since` is the commit that it was built on; `taken` are ids of earlier findings."""

    def __init__(
        self, desk: Desk, batch: Mapping[str, Any], since: str, tiers: Sequence[str], taken: Sequence[str]
    ) -> None:
        self._desk = desk
        self._batch = batch
        self._since = since
        self._tiers = tiers
        self._taken = list(taken)
        self._seen: list[Finding] = []  # in the rounds before

    def go_through(self) -> Passed:
        reviewers = self._reviewers()
        todo, seen, fixes = reviewers, list[str](), 0
        every: dict[str, Finding] = {}
        by: set[str] | None = set()
        for number in count(1):
            decided = self._round(number, todo, seen)
            every |= {one.id: one for one in decided["findings"]}
            self._seen += decided["findings"]
            self._taken += [one.id for one in decided["findings"]]
            by = by | {*decided["reviewers"]} if by is not None and "reviewers" in decided else None
            if decided["verdict"] == "through":
                named = None if by is None else tuple(sorted(by))
                return Passed(tuple(every.values()), decided["tier"], tuple(decided["commands"]), fixes, named)
            if decided["verdict"] == "halt":
                if not self._desk.decided_before(self._name("gate", number)):
                    raise Halt(decided["reason"], *decided["evidence"])
                seen.clear()
                todo = reviewers
                continue
            seen.append(decided["print"])
            self._fix(number, decided)
            fixes += 1
            todo = reviewers if decided["trouble"] else tuple(decided["objectors"])
        raise AssertionError

    def _name(self, what: str, number: int) -> str:
        return f"{label(self._batch)}/{what}-{number}"

    def _reviewers(self) -> tuple[str, ...]:
        run = self._desk.settings.run
        return tuple(dict.fromkeys(run.agents_for("review"))) if "review" in self._batch["phases"] else ()

    # --- one round

    def _round(self, number: int, todo: Sequence[str], seen: Sequence[str]) -> dict[str, Any]:
        decide = partial(self._decide, number, tuple(todo), tuple(seen))
        decided: dict[str, Any] = self._desk.run.step(self._name("gate", number), decide)
        return {**decided, "findings": msgspec.convert(decided["findings"], list[Finding])}

    def _decide(self, number: int, todo: Sequence[str], seen: Sequence[str]) -> dict[str, Any]:
        """Review and verify, and say what follows. What no guard lets pass is not even reviewed."""
        self._check_commits(number)
        for guard in GUARDS:
            guard(self._desk)
        judged, reviewers = self._reviewed(number, todo)
        trouble, tier, ran = "", None, list[str]()
        if not judged.to_fix and not judged.rejected:
            trouble, tier, ran = self._verified(number, bool(todo))
        mark = fingerprint(judged.to_fix) if judged.to_fix else digest(trouble.encode())[:16] if trouble else ""
        verdict, reason, evidence = self._verdict(judged, trouble, mark, seen)
        objectors = dict.fromkeys(name for one in judged.to_fix for name in one.reviewers)
        return {
            "verdict": verdict,
            "reason": reason,
            "evidence": evidence,
            "findings": msgspec.to_builtins(judged.findings),
            "objectors": list(objectors),
            "reviewers": reviewers,
            "trouble": trouble,
            "print": mark,
            "tier": tier,
            "commands": ran,
        }

    def _check_commits(self, number: int) -> None:
        """What an agent committed itself is in the scope too. A person who resumes after that stop has seen it."""
        desk = self._desk
        lines = desk.repo.outside(self._since)
        if not lines or self._batch["number"] == FINAL:
            return
        told, name = desk.told(f"{self._name('gate', number)}/outside", "guard_violation")
        if lines not in told:
            desk.run.step(name, lambda: lines)
            raise Halt("guard_violation", *lines)

    def _verdict(
        self, judged: Judgement, trouble: str, mark: str, seen: Sequence[str]
    ) -> tuple[str, str | None, list[str]]:
        lines = [f"{one.id} {one.severity} {one.location}: {one.description}" for one in judged.to_fix]
        if judged.rejected:
            return "halt", "review_rejected", [f"rejected by {', '.join(judged.rejected)}", *lines]
        if not judged.to_fix and not trouble:
            return "through", None, []
        reason = "review_loop_detected" if judged.to_fix else "verification_failed"
        said = lines or trouble.splitlines()[-8:]
        if mark in seen:
            return "halt", reason, [*said, f"a fix did not change that ({mark})"]
        if len(seen) >= self._desk.settings.run.max_fix_rounds:
            return "halt", reason, [*said, f"not put right after {len(seen)} fixes"]
        return "fix", None, []

    # --- reviewing

    def _reviewed(self, number: int, todo: Sequence[str]) -> tuple[Judgement, list[str]]:
        """What was found, and by whom it was looked for."""
        self._leave_others(number, todo)
        if not todo:
            return Judgement(), []
        desk = self._desk
        life = desk.run.state.resumes  # what a person changed since an earlier one is no reviewer's doing
        before = desk.snapshot(self._before("review", number, life))
        self._tell_of_the_dead(number, todo, life)
        reports: dict[str, ReviewerReport] = {}
        watched = desk.watching(self._name("review", number))
        with watched:
            jobs = [partial(self._review, number, name, reports) for name in todo]
            failures = together(desk, jobs, "holdfast-review", len(todo))
        self._undo_edits(before, number)
        self._enough(todo, reports, failures)
        earlier = [one for _, one in self._desk.found.values()] + self._seen
        return judge(reports, self._taken, earlier), sorted(reports)

    def _before(self, what: str, number: int, life: int) -> str:
        return f"before {self._name(what, number)}, start {life + 1}"

    def _tell_of_the_dead(self, number: int, todo: Sequence[str], life: int) -> None:
        """What changed since reviewers began who were cut off may be theirs or a person's: it stays, and is told."""
        was = self._desk.taken(self._before("review", number, life - 1))
        if was is None or not any(self._desk.was_open(f"{self._name('review', number)}/{name}") for name in todo):
            return
        if paths := self._desk.parts.ground.changed(self._desk.parts.ground.top, was.snapshot or ""):
            said = (
                f"{', '.join(paths[:8])} changed since reviewers began who were cut off; it is reviewed with the rest"
            )
            self._desk.note(f"{self._name('review', number)}: {said}")

    def _leave_others(self, number: int, todo: Sequence[str]) -> None:
        """Those who were cut off while they reviewed, and are no reviewers any more since the settings changed."""
        home, state = f"{self._name('review', number)}/", self._desk.run.state
        for name in [state.effects[key].step_id for key in state.effects_open]:
            who = name.removeprefix(home)
            if who != name and who.partition(" (")[0] not in todo:
                aside.leave_review(self._desk, self._order(number, who))

    def _review(self, number: int, reviewer: str, into: dict[str, ReviewerReport]) -> None:
        report = stage.done(self._desk, self._order(number, reviewer))
        assert isinstance(report, ReviewerReport)
        into[reviewer] = report

    def _order(self, number: int, reviewer: str) -> Order:
        return Order(
            name=f"{self._name('review', number)}/{reviewer}",
            kind="review",
            batch=str(self._batch["number"]),
            task=f"{label(self._batch)}/{number}",
            agents=(reviewer,),
            cwd=lambda: self._desk.parts.ground.top,
            since=lambda: self._since,
            work=self._to_review,
        )

    def _to_review(self) -> Work:
        changes = self._desk.parts.ground.diff(self._desk.parts.ground.top, self._since, _DIFF)
        return Work("review", self._batch["spec"], self._tasks(), changes=changes or "(no file differs)")

    def _tasks(self) -> list[tuple[str, str, str]]:
        return [(task["id"], task["title"], task["text"]) for task in self._batch["tasks"]]

    def _undo_edits(self, before: str, number: int) -> None:
        """A reviewer only reads. What one changed all the same is kept aside and put back."""
        paths, kept = self._desk.parts.ground.undo(before)
        if paths:
            where = f"what was there is kept: `holdfast restore {kept}`"
            said = f"{', '.join(paths[:8])} changed while reviewers were at work, and was put back; {where}"
            self._desk.note(f"{self._name('review', number)}: {said}")

    def _enough(
        self, todo: Sequence[str], reports: Mapping[str, Any], failures: Sequence[BaseException | None]
    ) -> None:
        """One reviewer is enough. None is not, and a run that is to stop stops."""
        for failure in failures:
            if isinstance(failure, CutShort):
                raise failure
        for name, failure in zip(todo, failures, strict=True):
            if failure is not None and not isinstance(failure, Halt):
                raise failure
            if failure is not None and reports:
                self._desk.note(f"{name} did not review: {failure}")
        if not reports:
            raise first_of(failures) or Halt("worker_failed", "nobody reviewed")

    # --- verifying

    def _verified(self, number: int, was_reviewed: bool) -> tuple[str, str | None, list[str]]:
        """The output of the first check that fails, else nothing; the highest tier, and what was run."""
        ran: list[str] = []
        highest = None
        again = self._again(number, was_reviewed)
        for tier in self._tiers:
            for place, command in enumerate(getattr(self._desk.settings.verify, tier)):
                name = f"{self._name('verify', number)}{again}/{tier}-{place + 1}"
                found = self._checked(name, list(command))
                ran.append(shlex.join(command))
                if found["exit_code"] != 0:
                    output = self._desk.kept(found["output"]).decode("utf-8", "replace") if found["output"] else ""
                    return f"$ {ran[-1]}\nexit code {found['exit_code']}\n{output[-_OUTPUT:]}", highest, ran
            highest = tier if getattr(self._desk.settings.verify, tier) else highest
        return "", highest, ran

    def _again(self, number: int, was_reviewed: bool) -> str:
        """A word for the names of checks that are made anew, because files were others at an earlier start."""
        desk, life, what = self._desk, self._desk.run.state.resumes, "review" if was_reviewed else "verify"
        if not was_reviewed:
            desk.snapshot(self._before(what, number, life))
        taken = [(start, desk.taken(self._before(what, number, start))) for start in range(life + 1)]
        there = [(start, one.tree) for start, one in taken if one is not None]
        changed = [start for (_, was), (start, tree) in pairwise(there) if tree != was]
        return f" (start {changed[-1] + 1})" if changed else ""

    def _checked(self, name: str, command: list[str]) -> dict[str, Any]:
        """What came out of a check. One that somebody settled by hand is run all the same: it only looks."""
        for attempt in count(1):
            this = name if attempt == 1 else f"{name} ({attempt})"
            found: dict[str, Any] | None = self._desk.run.effect(
                this, partial(self._check, this), command, policy="read"
            )
            if found is not None:
                return found
        raise AssertionError

    def _check(self, name: str, command: list[str], *, key: str) -> dict[str, Any]:
        desk = self._desk
        desk.tell(Moment("start", name, shlex.join(command), {"phase": "verify"}))
        limit = desk.settings.verify.timeout
        try:
            ran = desk.parts.checks.run(key, command, desk.parts.ground.top, limit, desk.is_stopping)
        except HoldfastError as error:  # what cannot be run has not passed; whose program it is, no agent can mend
            raise Halt("verification_failed", str(error), *filter(None, (error.advice,))) from error
        if ran.timed_out:
            raise Halt("verification_timeout", f"{shlex.join(command)} took longer than {limit:.0f} seconds")
        if ran.exit_code is None:
            raise CutShort("interrupted", f"{name} was ended before it was through")
        desk.tell(
            Moment("end", name, "" if ran.exit_code == 0 else f"exit code {ran.exit_code}", {"seconds": ran.seconds})
        )
        return {
            "exit_code": ran.exit_code,
            "seconds": round(ran.seconds, 1),
            "output": desk.keep(ran.output) if ran.output else None,
        }

    # --- putting right

    def _fix(self, number: int, decided: Mapping[str, Any]) -> None:
        desk, name = self._desk, self._name("fix", number)
        before = partial(desk.snapshot, f"before {name}")
        if not desk.knew(name):
            before()
        to_fix = Judgement(tuple(decided["findings"])).to_fix
        order = Order(
            name=name,
            kind="fix",
            batch=str(self._batch["number"]),
            task=f"{label(self._batch)}/{number}",
            agents=desk.settings.run.agents_for("fix"),
            cwd=lambda: desk.parts.ground.top,
            since=before,
            work=lambda: Work("fix", self._batch["spec"], self._tasks(), findings=to_fix, trouble=decided["trouble"]),
        )
        if desk.knew(name):
            stage.done(desk, order)
            return
        with desk.watching(name):
            stage.done(desk, order)


def recalled(desk: Desk, batch: Mapping[str, Any]) -> list[Finding]:
    """What reviewers found in a batch that is over, from the log. Whatever the settings say now, it is not done again."""
    found: list[Finding] = []
    for number in count(1):
        name = f"{label(batch)}/gate-{number}"
        if not desk.decided_before(name):
            return found
        found += msgspec.convert(desk.run.step(name, _never)["findings"], list[Finding])
    raise AssertionError


def _never() -> dict[str, Any]:
    raise AssertionError("it is on record")

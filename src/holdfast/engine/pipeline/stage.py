"""One piece of work by an agent, as an effect: the intent is in the log before the agent starts, its report is the receipt.

After a crash nobody guesses. A report that was delivered counts. Without one the work is not done, whatever edits are
there: they are kept, and whoever goes on is told of them. Nothing is rolled back and nothing is blindly repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count, takewhile
from types import MappingProxyType
from typing import Any

import msgspec

from holdfast.core.briefs import Brief, Work, joined, prompt, unreadable_report
from holdfast.core.errors import HoldfastError
from holdfast.core.events import Policy
from holdfast.core.named import NamedTuple
from holdfast.core.reports import FixReport, ImplementerReport, Kind, Report, ReviewerReport, TesterReport
from holdfast.core.retry import seconds_until
from holdfast.core.values import Answer
from holdfast.engine.pipeline.desk import CutShort, Desk, Halt, Moment
from holdfast.engine.pipeline.trees import own_files
from holdfast.engine.pipeline.tries import Tries, is_only_unreadable, keep_cut_off
from holdfast.ports.spec import Answered, Ask, Left

REPORTS: dict[Kind, type[Report]] = {
    "test": TesterReport,
    "implement": ImplementerReport,
    "review": ReviewerReport,
    "fix": FixReport,
}
VOUCHED: dict[Kind, Report] = {  # where a person said that it was done; the review looks at it all the same
    "test": TesterReport(status="success"),
    "implement": ImplementerReport(status="success"),
    "fix": FixReport(status="success"),
}
PAUSES = (30.0, 120.0, 300.0, 900.0, 1800.0)  # where nobody says how long a limit lasts
WAITS = frozenset({"quota", "rate_limit", "network"})
WAITING = {"limit": "quota_wait", "pause": "sleeping"}  # what a run stops for that does not stay for such a wait
ENDED: dict[str, tuple[type[Halt], str]] = {
    "timeout": (Halt, "worker_timeout"),
    "stalled": (Halt, "stalled"),
    "stopped": (CutShort, "interrupted"),
}
_SHOWN = 8
_TAIL = 1200
_FOREVER = 10.0 * 365 * 86400


class Order(NamedTuple):
    """A stage to be done. `cwd`, `since` and `work` are only asked when it really has to be."""

    name: str
    kind: Kind
    batch: str
    task: str
    agents: Sequence[str]
    cwd: Callable[[], str]
    since: Callable[[], str]  # the commit or snapshot that shows the work tree as it was before
    work: Callable[[], Work]
    besides: Mapping[str, str] = MappingProxyType(
        {}
    )  # files that the phase before it left since then, and what was in them

    @property
    def mutates(self) -> bool:
        return self.kind != "review"


def done(desk: Desk, order: Order) -> Report:
    """Have it done, once. What a person resumed the run for, after an agent was blocked, is another attempt.

    A claim without evidence is a stop, and who goes on after it lets an agent look once more: what that one says counts.
    """
    before: list[str] = []
    is_told = False
    for attempt in count(1):
        this = order._replace(work=partial(_told_of, order.work, tuple(before))) if before else order
        this = this if attempt == 1 else this._replace(name=f"{order.name} ({attempt})")
        report = _once(desk, this)
        if not desk.knew(this.name):
            desk.check_branch()
        refusal = _refusal(report)
        if report is not None and refusal is None:
            return report
        is_claim = isinstance(report, ImplementerReport) and report.status == "no_changes_needed"
        if report is not None and refusal is not None and is_claim and is_told:
            desk.note(f"{this.name}: {refusal[1]}; the run stopped for that and was let go on, so it counts")
            return report
        if refusal is not None and not desk.knew(this.name):
            more = ("a resumed run lets an agent look once more, and what it says then counts",) if is_claim else ()
            raise Halt(refusal[0], f"{this.name}: {refusal[1] or 'no reason was given'}", *more)
        if refusal is not None:
            is_told = is_told or (
                is_claim and desk.stopped_after(desk.run.state.effects[_key_of(desk, this)].seq, refusal[0])
            )
            before.append(f"an earlier attempt does not count ({refusal[1]}); since then a person let the run go on")
    raise AssertionError


def _told_of(work: Callable[[], Work], before: Sequence[str]) -> Work:
    made = work()
    return made._replace(before=(*made.before, *before))


def _once(desk: Desk, order: Order) -> Report | None:
    if desk.settings.run.on_interrupted == "ask" and order.mutates and desk.was_open(order.name):
        _ask_first(desk, order)
    if not order.mutates and desk.was_open(order.name):
        keep_output(desk, order)
    receipt: dict[str, Any] | None = desk.run.effect(order.name, Dispatch(desk, order))
    if receipt is None:
        return _settled(desk, order)
    report = msgspec.json.decode(desk.kept(receipt["report"]), type=REPORTS[order.kind])
    return _unchanged(report) if receipt.get("unchanged") else report


def _unchanged(report: Report) -> Report:
    """A success without a change is a claim that nothing had to be changed, and has to show as much for it."""
    said = "it reports success, changed no file, and its report shows no evidence that none had to be"
    return msgspec.structs.replace(report, status="no_changes_needed", blocked_reason=said)


def keep_output(desk: Desk, order: Order) -> None:
    """What a reviewer had said when it was cut off; of those who change files, the probe keeps it."""
    left = desk.parts.agents.left(_key_of(desk, order), order.kind)
    if left.report is None:
        keep_cut_off(desk, order.name, left)


def _key_of(desk: Desk, order: Order) -> str:
    return next(key for key, known in desk.run.state.effects.items() if known.step_id == order.name)


def _settled(desk: Desk, order: Order) -> Report | None:
    """A person settled it: said to be done, it counts and is reviewed; given up, another attempt is made."""
    key = _key_of(desk, order)
    desk.parts.agents.left(key, order.kind)  # whoever is still at it is ended
    return VOUCHED.get(order.kind) if desk.run.state.effects[key].status == "done" else None


def _ask_first(desk: Desk, order: Order) -> None:
    """Ask a person about work that was cut off, each time anew. Whoever may still be at it is ended before that."""
    key = _key_of(desk, order)
    if desk.parts.agents.left(key, order.kind).report is not None:
        return  # it is done, and nobody has to go on with it
    name = next(name for name in _questions(order) if not _is_past(desk, key, f"{name}/taken"))
    question = f"{order.name} was interrupted. Let an agent go on with what is in the work tree?"
    said = desk.run.ask(question, ["continue", "stop"], name=name)
    desk.run.step(f"{name}/taken", lambda: said)
    if said == "stop":
        raise Halt("user_stopped", f"{order.name}: a person chose to stop")


def _questions(order: Order) -> Iterator[str]:
    """The names that the questions about interruptions of a stage have, one after the other."""
    name = f"{order.name}/interrupted"
    return (name if number == 1 else f"{name} ({number})" for number in count(1))


def _is_past(desk: Desk, key: str, taken: str) -> bool:
    """Whether what a person answered was done: the work was begun again since then, or the run stopped for it."""
    known = desk.run.state.steps.get(taken)
    if known is None or known.status != "finished":
        return False
    return desk.run.state.effects[key].seq > known.ended or desk.stopped_after(known.ended, "user_stopped")


def _refusal(report: Report | None) -> tuple[str, str] | None:
    """Why a report is no success: the reason to stop for, and what the agent says."""
    if isinstance(report, (TesterReport, ImplementerReport, FixReport)) and report.status == "blocked":
        return "worker_blocked", report.blocked_reason
    if isinstance(report, ImplementerReport) and report.status == "no_changes_needed" and not _has_evidence(report):
        said = report.blocked_reason or "it reports that nothing had to be changed, and shows nothing for it"
        return "insufficient_evidence", said
    return None


def _has_evidence(report: ImplementerReport) -> bool:
    shown = report.evidence
    ran = bool(shown.commands_run) and all(one.exit_code == 0 for one in shown.commands_run)
    return bool(shown.files_checked) or bool(shown.output.strip()) or bool(report.test_output.strip()) or ran


class Dispatch:
    """The effect itself, in the form that the gate to the world takes."""

    def __init__(self, desk: Desk, order: Order) -> None:
        self._desk = desk
        self._order = order
        self._left: Left | None = None
        self._tries = Tries(desk, order.name)
        self._used = {"seconds": 0.0, "tokens": 0, "money": 0.0}

    @property
    def policy(self) -> Policy:
        return "probed" if self._order.mutates else "idempotent"

    @property
    def arguments(self) -> dict[str, str]:
        return {"batch": self._order.batch, "task": self._order.task, "phase": self._order.kind}

    # --- doing it

    def act(self, key: str) -> dict[str, Any]:
        desk, order = self._desk, self._order
        left = self._left or desk.parts.agents.left(key, order.kind)
        if left.report is not None and not order.mutates:
            return self._receipt(Answered(left.agent, left.report, session=left.session, output=left.output))
        self._wait_out(left.agent)
        problem = Halt("worker_failed", f"{order.name}: there is no agent")
        for agent in order.agents:
            answered = self._by(agent, key, left)
            if answered.report is not None:
                return self._receipt(answered)
            problem = self._problem(answered)
            if not self._may_pass_on(answered):
                break
        desk.tell(Moment("fail", order.name, str(problem), self._used))
        raise problem

    def _by(self, agent: str, key: str, left: Left) -> Answered:
        """One agent, asked again while only its report cannot be read."""
        desk, order = self._desk, self._order
        how = desk.parts.agents.report_instructions(order.kind, key)
        session = left.session if left.agent == agent else None
        text = whole = prompt(self._work(left), how, desk.settings.run.brief_tokens)
        for _ in range(desk.settings.run.report_retries + 1):
            answered = self._asked(Ask(key, order.kind, agent, text, order.cwd(), order.task, session, whole=whole))
            if answered.report is not None or not is_only_unreadable(answered):
                return answered
            session = answered.session
            text = unreadable_report(answered.why, how)
            if session is None:
                now = desk.parts.agents.left(key, order.kind)
                text = prompt(self._work(now), text, desk.settings.run.brief_tokens)
        return answered

    def _asked(self, ask: Ask) -> Answered:
        """An answer that is not about a limit: those are waited out, however often the process ends meanwhile."""
        desk, order, run = self._desk, self._order, self._desk.settings.run
        for patience in count():
            desk.tell(Moment("start", order.name, ask.agent, {"task": ask.task, "phase": ask.kind}))
            answered = desk.parts.agents.ask(
                ask._replace(timeout=run.timeout, stall_after=run.stall_after),
                lambda line: desk.tell(Moment("line", order.name, line)),
                desk.is_stopping,
            )
            self._count(answered)
            if answered.report is not None:
                return answered
            self._tries.add(answered)
            if answered.trouble not in WAITS or (answered.trouble == "network" and patience == len(PAUSES)):
                return answered
            self._wait_for(answered, patience)
            ask = ask._replace(session=answered.session or ask.session)
        raise AssertionError

    def _work(self, left: Left) -> Work:
        work = self._order.work()
        return work if left == Left() else work._replace(brief=joined(self._brief(left), work.brief))

    def _brief(self, left: Left) -> Brief:
        desk, order = self._desk, self._order
        changed = desk.parts.ground.changed(order.cwd(), order.since()) if order.mutates else []
        done = [f"{path} was changed since this work began" for path in changed[: _SHOWN * 4]]
        unknown = [
            *filter(None, (left.unsure,)),
            *left.evidence,
            "commands that your predecessor ran outside of this folder may have had effects",
        ]
        return Brief(
            done=done or ["no file was changed since this work began"],
            not_done=[f"no report of {order.name} was delivered, so it does not count as done"],
            unknown=unknown,
            evidence="\n".join(filter(None, (self._evidence(changed), left.tail[-_TAIL:]))),
        )

    def _evidence(self, changed: Sequence[str]) -> str:
        order, limit = self._order, self._desk.settings.run.brief_tokens * 3
        return self._desk.parts.ground.diff(order.cwd(), order.since(), limit) if changed else ""

    def _receipt(self, answered: Answered) -> dict[str, Any]:
        desk, order = self._desk, self._order
        desk.tell(Moment("end", order.name, "", {"agent": answered.agent, **self._used}))
        return {
            "report": desk.keep_value(answered.report),
            "agent": answered.agent,
            "session": answered.session,
            **self._used,
            "seconds": round(self._used["seconds"], 1),
            "output": desk.keep(answered.output) if answered.output else None,
            "tries": self._tries.said,
            **({"unchanged": True} if self._changed_nothing(answered.report) else {}),
        }

    def _changed_nothing(self, report: Report | None) -> bool:
        """Whether it claims to have implemented something, and every file is as it was. What the run writes does not count.

        The files that it names are looked at first, which is cheap and mostly enough. Of a file that git ignores nobody knows
        what it was: one that is named and there counts as changed.
        """
        if not isinstance(report, ImplementerReport) or report.status != "success":
            return False
        try:
            return not self._changed(self._order.cwd(), report.implementation_files)
        except HoldfastError:  # its folder is no work tree any more, which stops the run when its work is collected
            return False

    def _changed(self, cwd: str, named: Sequence[str]) -> bool:
        ground, since, before = self._desk.parts.ground, self._order.since(), self._order.besides
        not_its = {
            *own_files(self._desk),
            *(path for path, one in ground.content(cwd, [*before]).items() if one == before[path]),
        }
        found = {path: one for path, one in ground.content(cwd, named).items() if path not in not_its}
        if found != ground.committed(since, [*found]):
            return True
        return bool({*ground.changed(cwd, since)} - not_its)

    def _count(self, answered: Answered) -> None:
        """What this try cost belongs to the stage, whether it delivers or not."""
        self._used = {name: used + getattr(answered, name) for name, used in self._used.items()}
        if answered.tokens or answered.money:
            self._desk.run.spend(tokens=answered.tokens, money=answered.money, step_id=self._order.name)

    # --- when it does not work

    def _may_pass_on(self, answered: Answered) -> bool:
        """Whether another agent may try: not if this one may have left the work half done in a way nobody saw."""
        if answered.ended_by in ENDED:
            return False
        return answered.trouble in ("auth", "network") or is_only_unreadable(answered) or not self._order.mutates

    def _problem(self, answered: Answered) -> Halt:
        refused = (Halt, "auth_expired" if answered.trouble == "auth" else "worker_failed")
        kind, reason = ENDED.get(answered.ended_by, refused)
        return kind(reason, f"{self._order.name}: {answered.agent}: {answered.why}", *self._tries.evidence())

    # --- limits

    def _wait_for(self, answered: Answered, patience: int) -> None:
        seconds = PAUSES[min(patience, len(PAUSES) - 1)]
        if answered.resets_at is not None:
            seconds = max(1.0, seconds_until(self._desk.now(), answered.resets_at))
        kind, sleeps = "pause" if answered.trouble == "network" else "limit", self._desk.run.state.sleeps
        self._sleep(kind, next(name for name in self._waits(kind) if name not in sleeps), seconds)

    def _wait_out(self, agent: str) -> None:
        """A wait that a process before this one began, and did not see the end of. The limit of an agent who is not asked any
        more is nobody's."""
        sleeps, is_asked = self._desk.run.state.sleeps, agent in ("", *self._order.agents)
        for kind in WAITING:
            for name in takewhile(sleeps.__contains__, self._waits(kind)):
                if sleeps[name] is not None and is_asked:
                    self._sleep(kind, name, _FOREVER)
                elif sleeps[name] is not None:
                    self._desk.run.sleep(0.0, name=name)

    def _waits(self, kind: str) -> Iterator[str]:
        """The names that waits of a kind have, one after the other."""
        return (f"{self._order.name}/{kind}-{number}" for number in count(1))

    def _sleep(self, kind: str, name: str, seconds: float) -> None:
        until = self._desk.run.state.sleeps.get(name)
        self._desk.tell(Moment("wait", self._order.name, "", {"seconds": seconds, "until": until}))
        self._desk.run.sleep(seconds, name=name, stay=self._desk.stay, reason=WAITING[kind])

    # --- finding out

    def probe(self, key: str) -> Answer:
        """What became of it, after a crash: a delivered report, or edits without one, or nobody can say."""
        desk, order = self._desk, self._order
        left = self._left = desk.parts.agents.left(key, order.kind)
        if left.unsure is not None:
            return Answer("unknown", left.unsure)
        if left.report is not None:
            answered = Answered(left.agent, left.report, session=left.session, output=left.output)
            return Answer("done", "its report was delivered", self._receipt(answered))
        edits, kept = self.edits(), self._tries.note_left(left)
        return Answer("not_done", "; ".join(("no report was delivered", edits, *left.evidence, *kept)))

    def edits(self) -> str:
        changed = self._desk.parts.ground.changed(self._order.cwd(), self._order.since())
        more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
        return f"{', '.join(changed[:_SHOWN])}{more} changed and are kept" if changed else "no file changed"

"""The live run of the laboratory with bugs planted in its engine: the judge must find every one of them."""

from __future__ import annotations

from functools import partial

from holdfast.core.events import EffectFinished, NoteRecorded
from holdfast.core.values import Answer
from holdfast.engine import effects
from holdfast.engine.effects import Effects
from tests.crash.live_work import LiveWork

GENUINE = {name: getattr(Effects, name) for name in ("_act", "_ask", "_begin", "_key")}
RECEIPTS = {"charge": "paid", "bare": "line", "send": "sent", "ship": "shipped"}


def swap(owner: object, **planted: object) -> None:
    for name, value in planted.items():
        setattr(owner, name, value)


class OutcomeFirst(LiveWork):
    """The outcome is written down before the act."""

    name = "planted: outcome before act"

    def plant(self) -> None:
        swap(Effects, _act=outcome_first)


def outcome_first(self, deed):
    word = RECEIPTS.get(deed.act.func.__name__)
    if word is None:
        return (yield from GENUINE["_act"](self, deed))
    receipt = {word: deed.arguments["label"]}
    yield partial(self._book.record, EffectFinished(effect_key=deed.key, receipt=receipt))
    yield deed.act
    return receipt


class NoIntent(LiveWork):
    """The act comes first, and then the intent with the outcome, which saves a commit."""

    name = "planted: act before intent"

    def plant(self) -> None:
        swap(Effects, _begin=act_first)


def act_first(self, deed):
    if deed.policy == "transactional":
        return (yield from GENUINE["_begin"](self, deed))
    value = yield deed.act
    receipt, artifact = self._stored(deed, value)
    finished = EffectFinished(effect_key=deed.key, receipt=receipt, artifact=artifact)
    yield partial(self._book.record, self._intent(deed), finished)
    return value


class ProbeIgnored(LiveWork):
    """A probe is there, and nobody asks it: nothing was done, it is said."""

    name = "planted: probe ignored"

    def plant(self) -> None:
        swap(Effects, _ask=nothing_done)


def nothing_done(self, deed):
    if deed.probe is None:
        return (yield from GENUINE["_ask"](self, deed))
    return Answer("not_done", "nobody looked")


class ProbeBelieved(LiveWork):
    """An effect that nobody can look at is called done."""

    name = "planted: unknown called done"

    def plant(self) -> None:
        swap(Effects, _ask=surely_done)


def surely_done(self, deed):
    yield from ()
    return Answer("done", "it usually works", {"line": deed.arguments["label"]})


class OnceRepeated(LiveWork):
    """Whatever was started is started again."""

    name = "planted: once repeated"

    def plant(self) -> None:
        swap(effects, remedy=lambda recorded, present, has_probe: "again")


class FreshKeys(LiveWork):
    """After a resume an effect has another key than before."""

    name = "planted: a key for each process"

    def plant(self) -> None:
        swap(Effects, _key=fresh_key, _given_otherwise=lambda self, deed: iter(()))


def fresh_key(self, name, key, arguments, given):
    return GENUINE["_key"](self, name, None, arguments, given) + str(self._book.state.resumes)


class TwoCommits(LiveWork):
    """The statements are committed, and then the events."""

    name = "planted: statements and events in two commits"

    def plant(self) -> None:
        swap(Effects, _transact=in_two_commits)


def in_two_commits(self, deed):
    seen = []

    def statements(sql):
        seen.append(deed.act.func(sql, *deed.act.args, **deed.act.keywords))
        return [NoteRecorded(text="committed")]

    yield partial(self._book.alone, partial(self._book.log.transact, statements))
    yield partial(self._book.record, self._intent(deed), EffectFinished(effect_key=deed.key, receipt=seen[0]))
    return seen[0]


PLANTED = (OutcomeFirst, NoIntent, ProbeIgnored, ProbeBelieved, OnceRepeated, FreshKeys, TwoCommits)

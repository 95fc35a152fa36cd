"""The gate between a run and the world: intent, act, outcome. Never guesses what became of an effect.

The table of `core.moves.REMEDIES` says what happens to an effect that was started and has no outcome; an effect without a
declared policy counts as `once`. Nothing is reported as done or not done unless that is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol, get_args, runtime_checkable

import msgspec

from holdfast.core.canonical import canonical, digest
from holdfast.core.errors import TooLarge, UsageError, shown
from holdfast.core.events import EffectFailed, EffectFinished, EffectSettled, EffectStarted, Policy
from holdfast.core.keys import business_key
from holdfast.core.moves import REMEDIES, remedy
from holdfast.core.named import NamedTuple
from holdfast.core.plain import check_plain
from holdfast.core.plan import replace_command
from holdfast.core.shapes import FREE, HARMLESS, OPEN, EffectState
from holdfast.core.values import Answer, SettledByProbe
from holdfast.engine import forms
from holdfast.engine.book import Book, Part, Within
from holdfast.engine.budgets import Budgets
from holdfast.engine.drifting import Drifting

KEY_LENGTH = 40
_TURN = 0.005


@runtime_checkable
class Ready(Protocol):
    """An effect that brings its own act, probe and arguments, such as those in `holdfast.adapters.probes`."""

    @property
    def policy(self) -> Policy: ...
    @property
    def arguments(self) -> Any: ...
    def act(self, key: str) -> Any: ...
    def probe(self, key: str) -> Answer: ...


class Deed(NamedTuple):
    """An effect as it is called now."""

    name: str
    key: str
    policy: Policy
    act: partial[Any]
    probe: partial[Any] | None
    arguments: Any
    arguments_hash: str
    declared: Any
    code_hash: str | None


class Effects:
    """The effects of one run."""

    def __init__(self, book: Book, budgets: Budgets, drifting: Drifting, recalled: Callable[[int], None]) -> None:
        self._book, self._recalled = book, recalled
        self._budgets = budgets
        self._drifting = drifting
        self._doing: dict[str, Deed] = {}
        self._last = {known.step_id: key for key, known in book.state.effects.items()}

    def run(
        self,
        name: str,
        act: Callable[..., Any] | Ready,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        policy: Policy | None = None,
        key: str | None = None,
        probe: Callable[..., Any] | None = None,
    ) -> Part:
        book = self._book
        yield from book.boundary()
        book.claim(name, act)
        if self._budgets.limited:
            yield from self._budgets.check()
        deed = self._deed(name, act, args, kwargs, policy, key, probe)
        while (other := self._doing.setdefault(deed.key, deed)) is not deed:
            # somebody else in this process is at the same effect, or an earlier try of the step around it still is
            if book.executes(other.name):
                told = f"Effect {name} has the key of effect {other.name} around it: it would wait for itself."
                raise UsageError(told, advice="Give it another key.")
            yield partial(book.sleep, _TURN)
            yield from book.boundary()
        try:
            return (yield from self._perform(deed))
        finally:
            del self._doing[deed.key]

    # --- what is asked for

    def _deed(
        self,
        name: str,
        act: Callable[..., Any] | Ready,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        policy: Policy | None,
        key: str | None,
        probe: Callable[..., Any] | None,
    ) -> Deed:
        what, lent = f"effect {name}", policy == "transactional"  # its act is lent a way to run SQL
        if not isinstance(act, Ready):
            arguments = forms.given(what, act, args, kwargs, lent)
            work, look, declared = act, probe, forms.declared_result(what, act)
        elif args or kwargs or probe is not None:
            raise UsageError(f"The {what} brings its own arguments and probe.", advice="Give it no others.")
        else:
            arguments = act.arguments
            check_plain(arguments)
            work, look, declared = act.act, act.probe, None
        for part, called in (("act", work), ("probe", look)):  # before an intent of which nobody could say more
            forms.check_begun(f"the {part} of {what}", called, self._book.awaits)
        clean = self._book.log.redact.body(canonical(arguments))
        given = self._hash(name, arguments, clean)
        if lent and not isinstance(act, Ready):
            given = self._as_named_before(name, forms.given(what, act, args, kwargs), given)
        chosen = policy or getattr(act, "policy", None) or "once"
        _check_policy(what, chosen, look is not None)
        if chosen == "once" and look is not None:
            chosen = "probed"  # the log says that there is somebody to ask, for whoever looks at what comes next
        whole = self._key(name, key, arguments, given)
        if isinstance(act, Ready):
            call, see = partial(work, whole), None if look is None else partial(look, whole)
        else:
            call = _bound(f"The act of {what}", work, args, kwargs, whole, lent)
            see = None if look is None else _bound(f"The probe of {what}", look, *forms.copied(args, kwargs), whole)
        return Deed(
            name,
            whole,
            chosen,
            call,
            see,
            forms.again(arguments) if len(clean) <= forms.MAX_ARGUMENTS else None,
            given,
            declared,
            forms.code_hash(work),
        )

    def _hash(self, name: str, arguments: Any, clean: bytes) -> str:
        """What stands for the arguments: what the log has for them, also if more of them is known as a secret since."""
        given = digest(clean)
        known = self._book.state.effects.get(self._last.get(name, ""))
        if known is None or known.arguments_hash == given or not self._drifting.was_given(known.seq, arguments):
            return given
        return known.arguments_hash

    def _as_named_before(self, name: str, arguments: Any, given: str) -> str:
        """Logs of earlier versions have these one name off, the first by that of what is lent. They were given the same."""
        known = self._book.state.effects.get(self._last.get(name, ""))
        before = digest(self._book.log.redact.body(canonical(arguments)))
        return before if known is not None and known.arguments_hash == before else given

    def _key(self, name: str, key: str | None, arguments: Any, given: str) -> str:
        if key is not None:
            whole = business_key(key, arguments)
            self._book.check_plain("The key of an effect", whole)
            return whole
        return self._begun_before(name, given) or digest(canonical([self._book.log.run_id, name, given]))[:KEY_LENGTH]

    def _begun_before(self, name: str, given: str) -> str | None:
        """In a fork: the key under which the original began this effect, so that it is not begun a second time."""
        state = self._book.state
        if state.forked_from is None:
            return None
        same = (name, given)
        return next(
            (key for key, known in state.effects.items() if (known.step_id, known.arguments_hash) == same), None
        )

    # --- doing it

    def _perform(self, deed: Deed) -> Part:
        known = self._book.state.effects.get(deed.key)
        if known is None:
            yield from self._given_otherwise(deed)
        self._last[deed.name] = deed.key
        if known is None or known.status in FREE:
            if known is not None:
                yield from self._same(deed, known)
            return (yield from self._begin(deed))
        yield from self._same(deed, known)
        if known.status == "done":
            yield from self._drifting.of_act(deed, known)
            self._recalled(known.seq - 1)
            return self._receipt(deed, known)
        return None if known.status == "abandoned" else (yield from self._settle(deed, known))

    def _given_otherwise(self, deed: Deed) -> Part:
        """An effect of this name was given something else: it is settled, or accepted, before this one begins."""
        key = self._last.get(deed.name, "")
        known = self._book.state.effects.get(key)
        if known is None or known.status in FREE:
            return
        if known.status not in OPEN:
            yield from self._drifting.of_effect(deed, known, key)
        elif known.policy in HARMLESS:
            evidence = "it is given something else now, and leaves no trace"
            settled = EffectSettled(effect_key=key, settled_as="abandoned", evidence=evidence, by="policy")
            yield partial(self._book.record, settled)
        else:
            same = known.arguments_hash == deed.arguments_hash
            evidence = f"its key is {deed.key} now" if same else "it is given something else now"
            raise (yield from self._book.stop("effect_unknown", *evidence_of(key, known), evidence))

    def _same(self, deed: Deed, known: EffectState) -> Part:
        """One key is one effect: the same arguments, and the same act even if it is called by another name."""
        acts = {known.code_hash, deed.code_hash}
        other = known.step_id != deed.name and None not in acts and len(acts) > 1
        if other or known.arguments_hash != deed.arguments_hash:
            way_out = "give it the arguments that it had, or another key"
            raise (yield from self._book.stop("effect_key_reused", *evidence_of(deed.key, known), way_out))

    def _begin(self, deed: Deed) -> Part:
        self._book.must_go_on()
        if deed.policy == "transactional":
            return (yield from self._transact(deed))
        yield partial(self._book.record, self._intent(deed))
        return (yield from self._act(deed))

    def _intent(self, deed: Deed) -> EffectStarted:
        return EffectStarted(
            effect_key=deed.key,
            step_id=deed.name,
            policy=deed.policy,
            arguments_hash=deed.arguments_hash,
            code_hash=deed.code_hash,
            arguments=deed.arguments,
        )

    def _act(self, deed: Deed) -> Part:
        """The intent is on record, and so will be the outcome, as far as it is known."""
        self._book.guard()
        self._observed("begin", deed)
        try:
            with Within(self._book, deed.name):
                value = yield deed.act
            self._observed("end", deed)
        except Exception as error:
            if self._book.is_lost(error):
                raise
            found = yield from self._after_error(deed, error)
            if found is None:
                raise
            return self._receipt(deed, found)
        form = forms.result(f"effect {deed.name}", value, deed.declared)
        receipt, artifact = self._stored(deed, form.stored)
        yield partial(self._book.record, EffectFinished(effect_key=deed.key, receipt=receipt, artifact=artifact))
        return form.seen

    def _observed(self, moment: str, deed: Deed) -> None:
        if self._book.options.observe is not None:
            self._book.options.observe(moment, deed.key, deed.policy)

    def _transact(self, deed: Deed) -> Part:
        """User SQL, intent and outcome in one transaction: there is no moment in which its outcome is unknown."""
        self._book.guard()
        intent = self._intent(deed)
        seen: list[Any] = []

        def work(sql: Any) -> list[Any]:
            value = deed.act.func(sql, *deed.act.args, **deed.act.keywords)
            form = forms.result(f"effect {deed.name}", value, deed.declared)
            _check_inline(f"The result of transactional effect {deed.name}", form.stored)
            seen.append(form.seen)
            return [intent, EffectFinished(effect_key=deed.key, receipt=form.stored)]

        yield partial(self._book.alone, partial(self._book.log.transact, work))
        return seen[-1]

    def _stored(self, deed: Deed, value: Any) -> tuple[Any, str | None]:
        body = msgspec.json.encode(value)
        if len(body) <= forms.MAX_INLINE:
            return value, None
        forms.check_size(f"effect {deed.name}", body)
        return None, self._book.log.store.put_artifact(self._book.log.redact.body(body))

    def _receipt(self, deed: Deed, known: EffectState) -> Any:
        """What it gave; None if it was settled without a receipt, whatever its act declares."""
        stored = forms.again(known.receipt)
        if known.artifact is not None:
            stored = msgspec.json.decode(self._book.log.store.get_artifact(known.artifact))
        if stored is None:
            return None
        try:
            return forms.read(f"effect {deed.name}", stored, deed.declared)
        except forms.Unstorable as error:
            replace = replace_command(self._book.log.run_id, deed.key)
            raise forms.BadReceipt(deed.name, stored, error.problem, replace) from None

    # --- finding out

    def _settle(self, deed: Deed, known: EffectState) -> Part:
        """It was started, and its outcome is not on record."""
        way = remedy(known.policy, deed.policy, deed.probe is not None)
        if way == "again":
            return (yield from self._act(deed))
        answer = yield from self._ask(deed)
        if answer.settled_as == "not_done":
            yield partial(self._book.record, self._settled(deed, answer))
            return (yield from self._begin(deed))
        return self._receipt(deed, (yield from self._decided(deed, answer)))

    def _after_error(self, deed: Deed, error: Exception) -> Part:
        """The act raised, which does not say that nothing was done. None: it is known not to be done."""
        known = self._book.state.effects[deed.key]
        if remedy(known.policy, deed.policy, deed.probe is not None) == "again":
            yield partial(self._book.record, EffectFailed(effect_key=deed.key, error=self._book.said(error)))
            return None
        answer = yield from self._ask(deed)
        said = answer._replace(evidence=f"{self._book.said(error)}; {answer.evidence}")
        if answer.settled_as == "not_done":
            yield partial(self._book.record, self._settled(deed, said))
            return None
        return (yield from self._decided(deed, said))

    def _ask(self, deed: Deed) -> Part:
        if deed.probe is None:
            return Answer("unknown", "there is no probe that could look")
        try:
            answer = as_answer((yield deed.probe))
            check_plain(answer.receipt)
            _check_inline("The receipt of a probe", answer.receipt)
        except Exception as error:  # noqa: BLE001 - whatever a probe raises, the outcome is unknown and is recorded as such
            return Answer("unknown", f"the probe failed: {self._book.said(error)}")
        return answer

    def _decided(self, deed: Deed, answer: Answer) -> Part:
        """Done: the state of the effect. Unknown: the run stops here."""
        settled = self._settled(deed, answer)
        if answer.settled_as == "unknown":
            known = self._book.state.effects[deed.key]
            evidence = (*evidence_of(deed.key, known), settled.evidence)
            raise (yield from self._book.stop("effect_unknown", *evidence, first=(settled,)))
        state = yield partial(self._book.record, settled)
        return state.effects[deed.key]

    def _settled(self, deed: Deed, answer: Answer) -> EffectSettled:
        evidence = self._book.short(answer.evidence)
        receipt = answer.receipt if answer.settled_as == "done" else None
        return EffectSettled(effect_key=deed.key, settled_as=answer.settled_as, evidence=evidence, receipt=receipt)


def as_answer(seen: Any) -> Answer:
    """A probe may say it in one word: True is done, False is not done, None is unknown."""
    if isinstance(seen, Answer):
        if seen.settled_as not in get_args(SettledByProbe):
            raise UsageError(
                f"A probe answers {', '.join(get_args(SettledByProbe))}, not {shown(seen.settled_as, 40)}."
            )
        return seen._replace(evidence=str(seen.evidence))
    words = {True: Answer("done", "the probe said so"), False: Answer("not_done", "the probe said so")}
    if seen is None or isinstance(seen, bool):
        return Answer("unknown", "the probe could not say") if seen is None else words[seen]
    raise UsageError(f"A probe answers True, False, None or an Answer, not {type(seen).__name__}.")


def evidence_of(key: str, known: EffectState) -> tuple[str, ...]:
    return f"effect {key}", f"of step {known.step_id}", f"with policy {known.policy}, {known.status}"


def _check_inline(what: str, value: Any) -> None:
    body = msgspec.json.encode(value)
    if len(body) > forms.MAX_INLINE:
        raise TooLarge(what, len(body), forms.MAX_INLINE, advice="It has to stand in the event; give back less.")


def _bound(
    what: str, work: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], key: str, lent: bool = False
) -> partial[Any]:
    """The call to be made, with the key if it is wanted. Refuses one that cannot be made."""
    wants_key = "key" not in kwargs and forms.takes_key(work, lent + len(args))
    call = partial(work, *args, **kwargs, **({"key": key} if wants_key else {}))
    forms.check_call(what, partial(work, *(None,) * lent, *args, **call.keywords))
    return call


def _check_policy(what: str, policy: Policy, probed: bool) -> None:
    if policy not in REMEDIES:
        raise UsageError(
            f"There is no effect policy {policy!r:.40}.", advice=f"The policies are {', '.join(REMEDIES)}."
        )
    if policy == "probed" and not probed:
        raise UsageError(f"The {what} is declared as probed but has no probe.")

"""Why a run is at rest: the registry's answer, made more exact by signals. Signals are data: searched, shown, never obeyed.

The registry comes first. A signal can name the cause behind a reason, but never another reason, exit code or permission.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from string import ascii_lowercase, ascii_uppercase

from holdfast.core.named import NamedTuple
from holdfast.core.plan import resume_plan
from holdfast.core.shapes import RunState
from holdfast.core.signal_table import CATEGORIES, SIGNS, Sign
from holdfast.core.stops import CONFIDENCE_BY_EVIDENCE, SNIPPET, is_known, lookup, snippet

GUESSED, UNKNOWN = 0.7, 0.5
LOOSE = frozenset({"output"})  # sources in which an agent may write anything
MOST_SIGNALS = 50
MOST_TEXT = 200_000
SHOWN = 5
BEFORE = SNIPPET // 4
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)  # keeps every place where it is; `lower` does not


class Signal(NamedTuple):
    """Something that was seen, and where: `stop`, `step`, `effect`, `verification`, `report`, `output`, ..."""

    source: str
    text: str


class Evidence(NamedTuple):
    """What of a signal was found to matter: the phrase, and the line around it. No phrase: the signal as a whole."""

    source: str
    pattern: str
    snippet: str


class Diagnosis(NamedTuple):
    """Why, in one word and in a sentence, how sure that is, and what it rests on."""

    code: str
    category: str
    family: str
    confidence: float
    sentence: str
    evidence: tuple[Evidence, ...]


def diagnose(state: RunState, evidence: Iterable[str] = (), signals: Iterable[Signal] = ()) -> Diagnosis:
    """The diagnosis of a run. `evidence` is what the stop itself said; `signals` are what was seen besides."""
    seen = [*(Signal("stop", text) for text in evidence), *signals_of(state), *signals]
    return diagnose_reason(resume_plan(state).stop_reason, _once_each(seen)[:MOST_SIGNALS])


def _once_each(signals: Iterable[Signal]) -> list[Signal]:
    """What is told again makes nothing surer."""
    seen: dict[str, Signal] = {}
    for signal in signals:
        seen.setdefault(signal.text.strip(), signal)
    return list(seen.values())


def signals_of(state: RunState) -> Iterator[Signal]:
    """What the log itself knows: what the stop said, the errors of steps, and effects that nobody can account for."""
    if state.diagnosis:
        yield Signal("stop", state.diagnosis)
    errors = (step.error for step in reversed(state.steps.values()) if step.status == "failed" and step.error)
    yield from (Signal("step", error) for error in islice(errors, SHOWN))
    open_ones = (state.effects[key] for key in state.effects_open)
    yield from (Signal("effect", effect.evidence) for effect in islice(open_ones, SHOWN) if effect.evidence)


def diagnose_reason(code: str, signals: Sequence[Signal]) -> Diagnosis:
    stop = lookup(code)
    if not is_known(code):
        return Diagnosis(code, "unknown", stop.family, UNKNOWN, stop.sentence, _whole(signals))
    best = max(_found(stop.code, signals), key=lambda found: found[0], default=None)
    if best is None:
        told = _without_sentences(signals)
        confidence = CONFIDENCE_BY_EVIDENCE[min(len(told), 2)]
        category = CATEGORIES.get(stop.code, stop.code)
        return Diagnosis(stop.code, category, stop.family, confidence, stop.sentence, _whole(told))
    confidence, sign, evidence = best
    text = f"{stop.sentence} {sign.sentence}"
    return Diagnosis(stop.code, sign.category, stop.family, confidence, text, evidence)


def _without_sentences(signals: Sequence[Signal]) -> list[Signal]:
    """The sentence of a stop, and the error of the step that raised it, repeat its evidence: they say nothing more."""
    said = [signal.text for signal in signals if signal.source == "stop"]
    repeats = {("stop", text) for text in said if any(part in text for part in said if part and part != text)}
    raised = {("step", "; ".join(said[: place + 1])) for place in range(len(said))}
    return [one for one in signals if one not in repeats and (one.source, _of_error(one.text)) not in raised]


def _of_error(text: str) -> str:
    """What an error says, without its kind before that."""
    return text.partition(": ")[2]


def _found(code: str, signals: Sequence[Signal]) -> Iterator[tuple[float, Sign, tuple[Evidence, ...]]]:
    """Each row that fits, how sure it is, and what it rests on. What only an agent's own words say is a guess."""
    texts = [(signal, signal.text[-MOST_TEXT:]) for signal in signals]
    lowered = [(signal.source, text, text.translate(_LOWER)) for signal, text in texts]
    for sign in SIGNS:
        if code in sign.after:
            evidence = tuple(islice(_evidence(sign, lowered), SHOWN))
            if evidence:
                loose = all(one.source in LOOSE for one in evidence)
                yield min(sign.confidence, GUESSED) if loose else sign.confidence, sign, evidence


def _evidence(sign: Sign, texts: Iterable[tuple[str, str, str]]) -> Iterator[Evidence]:
    for source, text, lowered in texts:
        for phrase in sign.phrases:
            at = lowered.find(phrase)
            if at >= 0:
                yield Evidence(source, phrase, _around(text, at))
                break


def _around(text: str, at: int) -> str:
    """The line at a place, as far as it is near, with dots where it goes on."""
    middle = min(at, BEFORE)
    near = text[at - middle : at - middle + SNIPPET]
    start = near.rfind("\n", 0, middle) + 1
    end = near.find("\n", middle)
    cut = "... " if start == 0 and at > middle else ""
    if cut:
        start = near.find(" ", 0, middle) + 1
    if end >= 0:
        return snippet(cut + near[start:end])
    return snippet(cut + near[start:] + ("..." if at - middle + SNIPPET < len(text) else ""))


def _whole(signals: Iterable[Signal]) -> tuple[Evidence, ...]:
    return tuple(Evidence(signal.source, "", snippet(signal.text)) for signal in islice(signals, SHOWN))

"""What the store of a trial holds, in a form that can be compared with that of another trial. Proves what it reads.

Only reads. What is another in every trial by its nature (run ids, keys made from them, its folder) gets a fixed name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from holdfast.core.events import DriftFound, Event, StepFinished
from holdfast.core.named import NamedTuple
from holdfast.core.shapes import FINISHED, EffectState, RunState
from holdfast.core.state import fold
from holdfast.core.wire import GENESIS, check_chain, decode
from holdfast.ports import Head, Store

_HASHED = 40  # characters of a key that was made from the run id, and so is another in every run


class Effect(NamedTuple):
    """An effect as the log has it in the end."""

    key: str
    status: str
    policy: str
    text: str


class Left(NamedTuple):
    """What a store holds. Names begin with the mission; `runs` say status and reason, texts what a step or effect gave."""

    runs: Mapping[str, tuple[str, str | None]] = {}
    run_ids: Sequence[str] = ()
    steps: Mapping[str, str] = {}
    effects: Mapping[str, Sequence[Effect]] = {}
    steps_again: Sequence[str] = ()
    names: Mapping[str, str] = {}
    hashes: frozenset[bytes] = frozenset()

    @property
    def finished(self) -> bool:
        """Whether there is a run, and none that is not finished."""
        return {status for status, _ in self.runs.values()} == {FINISHED}

    @property
    def texts(self) -> dict[str, str]:
        return {**self.steps, **{name: tries[-1].text for name, tries in self.effects.items()}}


class _Run(NamedTuple):
    label: str
    run_id: str
    events: Sequence[Event]
    hashes: Sequence[bytes]
    state: RunState


def look(store: Store, folder: str) -> Left:
    """Read and prove every run of a trial that happened in this folder."""
    runs = [_read(store, label, run_id) for label, run_id in _labelled(store.heads())]
    texts = _Texts(store, {folder: "(folder)", **_words(runs)})
    return Left(
        runs={run.label: (run.state.status, run.state.stop_reason) for run in runs},
        run_ids=[run.run_id for run in runs],
        steps=_steps(runs, texts),
        effects=_effects(runs, texts),
        steps_again=[f"{run.label}: step {name}" for run in runs for name in _finished_again(run.events)],
        names={key: effect.step_id for run in runs for key, effect in run.state.effects.items()},
        hashes=frozenset(digest for run in runs for digest in run.hashes),
    )


def _labelled(heads: Iterable[Head]) -> Iterator[tuple[str, str]]:
    """Each run under its mission; a second run of the same mission under mission#2."""
    seen: Counter[str] = Counter()
    for head in sorted(heads, key=lambda head: head.run_id):
        mission = head.projection.mission_id
        seen[mission] += 1
        yield mission if seen[mission] == 1 else f"{mission}#{seen[mission]}", head.run_id


def _read(store: Store, label: str, run_id: str) -> _Run:
    events, hashes, previous = [], [], GENESIS
    for number, record in enumerate(store.read(run_id), 1):
        previous = check_chain(record, previous, number)
        hashes.append(previous)
        events.append(decode(record))
    return _Run(label, run_id, events, hashes, fold(events, RunState(run_id=run_id)))


def _words(runs: Sequence[_Run]) -> dict[str, str]:
    words = {run.run_id: f"(run {run.label})" for run in runs}
    for run in runs:
        words |= {key: f"(key of {one.step_id})" for key, one in run.state.effects.items() if len(key) == _HASHED}
    return words


class _Texts:
    """What a step or an effect gave, as a text that can be compared with that of another trial."""

    def __init__(self, store: Store, words: Mapping[str, str]) -> None:
        self._store = store
        self._words = words

    def of(self, status: str, value: object, artifact: str | None) -> str:
        whole = msgspec.json.encode(value) if artifact is None else self._store.get_artifact(artifact)
        text = whole.decode("utf-8", "backslashreplace")
        for word, name in self._words.items():
            text = text.replace(word, name)
        return f"{status} {text}"


def _steps(runs: Sequence[_Run], texts: _Texts) -> dict[str, str]:
    return {
        f"{run.label}: step {name}": texts.of(step.status, step.output, step.artifact)
        for run in runs
        for name, step in run.state.steps.items()
    }


def _effects(runs: Sequence[_Run], texts: _Texts) -> dict[str, list[Effect]]:
    """By name. One name has more than one key if what it was given was another after a restart."""
    effects: dict[str, list[Effect]] = {}
    for run in runs:
        for key, effect in sorted(run.state.effects.items(), key=_place):
            text = texts.of(effect.status, effect.receipt, effect.artifact)
            named = effects.setdefault(f"{run.label}: effect {effect.step_id}", [])
            named.append(Effect(key, effect.status, effect.policy, text))
    return effects


def _place(item: tuple[str, EffectState]) -> int:
    return item[1].seq


def _finished_again(events: Iterable[Event]) -> Iterator[str]:
    """Steps that ended although they had ended before, and nobody had accepted that they were given something else."""
    done: set[str] = set()
    for event in events:
        if isinstance(event, DriftFound):
            done.discard(event.subject)
        elif isinstance(event, StepFinished):
            if event.step_id in done:
                yield event.step_id
            done.add(event.step_id)

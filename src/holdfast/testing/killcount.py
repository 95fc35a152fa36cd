"""What is wrong with a program that was killed and started again: repeated, lost, different. And the table of it all.

Believes the notes and the proven log, never the program's own word. Decides on values; starts nothing, reads nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from holdfast.core import stops
from holdfast.core.named import NamedTuple
from holdfast.testing.killlook import Effect, Left
from holdfast.testing.killpoints import BEGIN, COMMIT, END, KILL, Note

BLOCKED = "effect_unknown"
AT_MOST_ONCE = frozenset({"once", "probed", "transactional"})
HARMLESS = frozenset({"pure", "read"})
STILL_OPEN = ("started ", "unknown ")
SHOWN = 80

Kind: TypeAlias = Literal[
    "effect_repeated", "step_repeated", "effect_lost", "step_lost", "event_lost", "differs", "stuck", "check_failed"
]


class Baseline(NamedTuple):
    """An undisturbed run, and what was otherwise in a second one: texts (`unstable`) and names (`shifting`)."""

    left: Left
    code: int
    unstable: frozenset[str] = frozenset()
    shifting: frozenset[str] = frozenset()

    @property
    def single(self) -> bool:
        return len(self.left.runs) == 1

    def shown(self, name: str) -> str:
        """A name without its mission, if there is only one."""
        return name.removeprefix(next(iter(self.left.runs)) + ": ") if self.single else name


class Trial(NamedTuple):
    """A program that was killed at a point and started again until it came to rest. A code of None: it did not end in time.

    `said` is the last line of its last life, `complaint` what the check found in the world.
    """

    point: str
    codes: Sequence[int | None]
    looks: Sequence[Left]
    notes: Sequence[Note]
    rested: bool = True
    said: str = ""
    complaint: str = ""

    @property
    def left(self) -> Left:
        return self.looks[-1]

    @property
    def kill(self) -> Note | None:
        return next((note for note in self.notes if note.what == KILL), None)


class Fault(NamedTuple):
    """Something that must not be."""

    kind: Kind
    text: str


class Verdict(NamedTuple):
    """What became of one trial. `again`: acts that ran again as declared; `trusted`: acts that only a probe calls done."""

    point: str
    where: str
    reached: bool
    lives: int
    ended: Literal["as the baseline", "blocked", "otherwise", "not at rest"]
    faults: Sequence[Fault] = ()
    again: int = 0
    trusted: int = 0


class Acts(NamedTuple):
    """How often the act of one key really began, and how often it ended."""

    policy: str
    begun: int
    ended: int


def acts_of(notes: Sequence[Note]) -> dict[str, Acts]:
    """A process that was killed at the door of an act had not begun it."""
    at_the_door = {(note.life, note.about) for note in notes if note.what == KILL and note.policy.startswith(BEGIN)}
    acts: dict[str, Acts] = {}
    for note in notes:
        if note.what not in (BEGIN, END, COMMIT):
            continue
        known = acts.get(note.about, Acts(note.policy, 0, 0))
        begun = note.what == BEGIN and (note.life, note.about) not in at_the_door
        acts[note.about] = Acts(note.policy, known.begun + begun, known.ended + (note.what != BEGIN))
    return acts


def judge(base: Baseline, trial: Trial) -> Verdict:
    acts, left = acts_of(trial.notes), trial.left
    ended = _ended(base, trial)
    faults = [
        *_repeated(base, left, acts),
        *_lost(base, trial, acts, ended),
        *_different(base, trial, ended),
        *([Fault("check_failed", f"the check failed with {trial.complaint}")] if trial.complaint else []),
    ]
    return Verdict(
        point=trial.point,
        where=_where(trial),
        reached=trial.kill is not None,
        lives=len(trial.codes),
        ended=ended,
        faults=faults,
        again=sum(act.begun > 1 and act.policy not in AT_MOST_ONCE for act in acts.values()),
        trusted=sum(1 for _, effect in _unended(left, acts) if _began(effect, acts)),
    )


def _ended(base: Baseline, trial: Trial) -> Literal["as the baseline", "blocked", "otherwise", "not at rest"]:
    if not trial.rested:
        return "not at rest"
    if trial.left.runs == base.left.runs:
        return "as the baseline"
    return "blocked" if is_blocked(base.left, trial.left) else "otherwise"


def is_blocked(base: Left, left: Left) -> bool:
    """At most once kept its word: a run waits for somebody to say what became of an effect."""
    return any(
        _is_unsettled(reason) and not _is_unsettled(_reason(base, run)) for run, (_, reason) in left.runs.items()
    )


def _reason(left: Left, run: str) -> str | None:
    return left.runs.get(run, ("", None))[1]


def _is_unsettled(reason: str | None) -> bool:
    return reason is not None and stops.exit_code(reason) == stops.exit_code(BLOCKED)


def _repeated(base: Baseline, left: Left, acts: Mapping[str, Acts]) -> Iterator[Fault]:
    for key, act in acts.items():
        if act.policy in AT_MOST_ONCE and act.ended > 1:
            name = left.names.get(key, key)
            yield Fault("effect_repeated", f"effect {name} ({act.policy}) was done {act.ended} times under one key")
    for name, tries in left.effects.items():
        done = [effect for effect in tries if effect.status == "done" and effect.policy not in HARMLESS]
        if len(done) > max(1, len(base.left.effects.get(name, ()))):
            text = f"{base.shown(name)} was done under {len(done)} keys: what it is given was another after a restart"
            yield Fault("effect_repeated", text)
    for name in left.steps_again:
        yield Fault("step_repeated", f"{base.shown(name)} ended twice")


def _lost(base: Baseline, trial: Trial, acts: Mapping[str, Acts], ended: str) -> Iterator[Fault]:
    left = trial.left
    for name, effect in _unended(left, acts):
        if not _began(effect, acts):
            yield Fault("effect_lost", f"{base.shown(name)} is recorded as done, and was never begun")
    for seen in trial.looks[:-1]:
        if gone := len(seen.hashes - left.hashes):
            yield Fault("event_lost", f"{gone} events of the log are gone")
    if ended == "as the baseline":
        for name in base.left.texts.keys() - left.texts.keys() - base.shifting:
            kind: Kind = "step_lost" if name in base.left.steps else "effect_lost"
            yield Fault(kind, f"{base.shown(name)} is missing")


def _unended(left: Left, acts: Mapping[str, Acts]) -> Iterator[tuple[str, Effect]]:
    """Effects that the log calls done, and whose act never ended."""
    for name, tries in left.effects.items():
        for effect in tries:
            act = acts.get(effect.key)
            if effect.status == "done" and effect.policy != "transactional" and (act is None or not act.ended):
                yield name, effect


def _began(effect: Effect, acts: Mapping[str, Acts]) -> bool:
    return effect.key in acts and acts[effect.key].begun > 0


def _different(base: Baseline, trial: Trial, ended: str) -> Iterator[Fault]:
    left, said = trial.left, _last_words(trial)
    if ended == "not at rest":
        yield Fault("stuck", f"it did not come to rest in {len(trial.codes)} lives: {_endings(left)}. {said}")
        return
    if ended == "otherwise":
        yield Fault("differs", f"it ended as {_endings(left)}, undisturbed as {_endings(base.left)}. {said}")
    elif ended != "blocked" and trial.codes[-1] != base.code:
        yield Fault("differs", f"its exit code is {trial.codes[-1]}, undisturbed {base.code}. {said}")
    yield from _other_results(base, left)


def _last_words(trial: Trial) -> str:
    """Without the run id, which would make the same fault another at every point."""
    said = trial.said
    for run_id in trial.left.run_ids:
        said = said.replace(run_id, "RUN")
    return f"{said:.{2 * SHOWN}}"


def _other_results(base: Baseline, left: Left) -> Iterator[Fault]:
    was = base.left.texts
    for name, text in left.texts.items():
        if _run_of(name) not in base.left.runs or name in base.unstable or text.startswith(STILL_OPEN):
            continue
        if name not in was:
            shown = "a step or effect" if base.shifting else base.shown(name)
            yield Fault("differs", f"{shown} is not there undisturbed")
        elif was[name] != text:
            yield Fault("differs", f"{base.shown(name)} gave {text:.{SHOWN}}, undisturbed {was[name]:.{SHOWN}}")


def _run_of(name: str) -> str:
    return name.partition(": ")[0]


def _endings(left: Left) -> str:
    shown = [f"{run} {status}" + (f" ({reason})" if reason else "") for run, (status, reason) in left.runs.items()]
    return ", ".join(shown) or "no run at all"


_PLACES = {
    "before": "before append {number} ({about})",
    "after": "after append {number} ({about})",
    "inside": "in a transaction, before its commit ({about})",
    "begin": "as the act of effect {about} was about to begin",
    "middle": "in the middle of the act of effect {about}",
    "end": "after the act of effect {about}, before its outcome was recorded",
}


def _where(trial: Trial) -> str:
    kill = trial.kill
    if kill is None:
        return "never reached"
    about = kill.about
    for key, name in trial.left.names.items():
        about = about.replace(key, name)
    return _PLACES[kill.policy.partition(":")[0]].format(number=kill.number, about=about)


def compare(first: Left, second: Left) -> tuple[frozenset[str], frozenset[str]]:
    """What two undisturbed runs do not agree about: texts, and names."""
    one, other = first.texts, second.texts
    return frozenset(name for name in one if other.get(name, one[name]) != one[name]), frozenset(
        one.keys() ^ other.keys()
    )


# --- the table


class Tally(NamedTuple):
    """The counts of a kill test. Everything from `effects_repeated` on must be zero."""

    points: int
    tried: int
    reached: int
    finished: int
    blocked: int
    again: int
    trusted: int
    effects_repeated: int
    steps_repeated: int
    effects_lost: int
    steps_lost: int
    events_lost: int
    differ: int
    stuck: int
    checks_failed: int

    @property
    def sound(self) -> bool:
        return not any(self[self._fields.index("effects_repeated") :])


def is_sound(base: Baseline, counts: Tally, exact: bool) -> bool:
    """Nothing bad was counted, and names were the same undisturbed; if it is to be exact, results too."""
    return counts.sound and not base.shifting and not (exact and base.unstable)


def tally(verdicts: Sequence[Verdict], points: int) -> Tally:
    kinds = Counter(fault.kind for verdict in verdicts for fault in verdict.faults)
    return Tally(
        points=points,
        tried=len(verdicts),
        reached=sum(verdict.reached for verdict in verdicts),
        finished=sum(verdict.ended == "as the baseline" for verdict in verdicts),
        blocked=sum(verdict.ended == "blocked" for verdict in verdicts),
        again=sum(verdict.again for verdict in verdicts),
        trusted=sum(verdict.trusted for verdict in verdicts),
        effects_repeated=kinds["effect_repeated"],
        steps_repeated=kinds["step_repeated"],
        effects_lost=kinds["effect_lost"],
        steps_lost=kinds["step_lost"],
        events_lost=kinds["event_lost"],
        differ=kinds["differs"],
        stuck=kinds["stuck"],
        checks_failed=kinds["check_failed"],
    )

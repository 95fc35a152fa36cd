"""Every error is a sentence with its data, a stop reason of the registry and, where somebody can act, advice."""

from __future__ import annotations

import inspect
import pickle
import re
from collections.abc import Callable

import pytest

from holdfast.core import errors, stops

MADE: dict[str, Callable[[], errors.HoldfastError]] = {
    "Something.": lambda: errors.HoldfastError("Something."),
    "The id 'A' is not a valid id.": lambda: errors.InvalidId("The id", "A"),
    "The value at $.a has no canonical JSON form: no.": lambda: errors.NotCanonical("$.a", "no"),
    "It is 2,000 bytes; the limit is 1,000.": lambda: errors.TooLarge("It", 2000, 1000),
    "Event 1 cannot be read as an event: no.": lambda: errors.BadRecord("Event 1", "no"),
    "a.txt, line 3: no.": lambda: errors.BadFile("a.txt", 3, "no"),
    "a.txt: no.": lambda: errors.BadFile("a.txt", None, "no"),
    "There is no run 'r' here.": lambda: errors.NotFound("run", "r"),
    "It was written by a newer Holdfast (version 3; this one knows up to 2).": lambda: errors.NewerSchema("It", 3, 2),
    "The event step_started cannot be recorded now: no.": lambda: errors.IllegalEvent("step_started", "no"),
    "Event 4 of run r does not follow from the event before it.": lambda: errors.ChainBroken("r", 4),
    "Run r should go on with event 2, but has 3.": lambda: errors.SequenceGap("r", 2, 3),
    "The log has lost the end of its log: 2 events.": lambda: errors.TailLost("The log", "2 events"),
    "The stored bytes of artifact ab no longer have that hash.": lambda: errors.ArtifactDamaged("ab"),
    "Run r is being written by process 1 on h.": lambda: errors.LeaseHeld("r", "process 1 on h"),
    "The lease on run r (epoch 5) was lost.": lambda: errors.LeaseLost("r", 5),
    "Run r is at event 3, not at 2; nothing was written.": lambda: errors.SequenceConflict("r", 2, 3),
    "Operation o has been used for another append; nothing was written.": lambda: errors.OperationReused("o"),
    "db: it is full.": lambda: errors.StoreFull("db", "it is full"),
}
DATA: list[tuple[Callable[[], errors.HoldfastError], dict[str, object]]] = [
    (lambda: errors.InvalidId("The id", "A"), {"value": "A"}),
    (lambda: errors.NotCanonical("$.a", "no"), {"path": "$.a", "problem": "no"}),
    (lambda: errors.TooLarge("It", 2, 1), {"size": 2, "limit": 1}),
    (lambda: errors.BadRecord("Event 1", "no"), {"place": "Event 1", "problem": "no"}),
    (lambda: errors.BadFile("f", 3, "no"), {"path": "f", "line": 3, "problem": "no"}),
    (lambda: errors.NotFound("run", "r"), {"name": "r"}),
    (lambda: errors.NewerSchema("It", 3, 2), {"found": 3, "known": 2}),
    (lambda: errors.IllegalEvent("k", "no"), {"kind": "k", "problem": "no"}),
    (lambda: errors.ChainBroken("r", 4), {"run_id": "r", "seq": 4}),
    (lambda: errors.SequenceGap("r", 2, 3), {"run_id": "r", "expected": 2, "found": 3}),
    (lambda: errors.TailLost("p", "d"), {"place": "p"}),
    (lambda: errors.ArtifactDamaged("ab"), {"digest": "ab"}),
    (lambda: errors.LeaseHeld("r", "h"), {"run_id": "r", "holder": "h"}),
    (lambda: errors.LeaseLost("r", 5), {"run_id": "r", "epoch": 5}),
    (lambda: errors.SequenceConflict("r", 2, 3), {"run_id": "r", "expected": 2, "found": 3}),
    (lambda: errors.OperationReused("o"), {"op": "o"}),
    (lambda: errors.StoreBusy("db", "no turn"), {"place": "db", "problem": "no turn"}),
]
CLASSES = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.HoldfastError)]


@pytest.mark.parametrize("sentence", MADE)
def test_an_error_is_one_sentence(sentence):
    assert str(MADE[sentence]()) == sentence


@pytest.mark.parametrize(("make", "data"), DATA)
def test_an_error_carries_its_data(make, data):
    error = make()
    assert {name: getattr(error, name) for name in data} == data


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_error_names_a_reason_of_the_registry(kind):
    assert stops.is_known(kind.reason)
    assert stops.lookup(kind.reason).code == kind.reason


@pytest.mark.parametrize("kind", [errors.IllegalEvent, errors.SequenceConflict, errors.OperationReused])
def test_what_was_refused_for_what_is_there_already_says_what_to_do(kind):
    assert kind.advice


def test_advice_of_a_call_comes_before_the_advice_of_the_class():
    assert errors.UsageError("No.").advice == ""
    assert errors.UsageError("No.", advice="Do.").advice == "Do."
    assert errors.StoreFull("db", "full").advice == errors.StoreFull.advice != ""
    for made in (
        errors.StoreFull("db", "full", advice="Do."),
        errors.TooLarge("It", 2, 1, advice="Do."),
        errors.BadFile("f", 1, "no", advice="Do."),
        errors.NewerSchema("It", 3, 2, advice="Do."),
    ):
        assert made.advice == "Do."
    assert errors.StoreFull.advice != "Do."


def test_the_tree_on_top_of_the_file_is_the_tree():
    drawn = re.findall(r"^( *)([A-Z]\w+)(?: {2,}.*)?$", errors.__doc__ or "", re.MULTILINE)
    parents: list[str] = []
    for indent, name in drawn:
        parents[len(indent) // 2 :] = [name]
        kind = getattr(errors, name)
        assert [one.__name__ for one in kind.__mro__ if one in CLASSES] == parents[::-1]
    assert {name for _, name in drawn} == {kind.__name__ for kind in CLASSES}


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def test_a_foreign_value_is_shown_short_and_never_raises():
    assert errors.shown("a") == "'a'"
    assert errors.shown("x" * 500) == "'" + "x" * 119
    assert errors.shown("x" * 500, 10) == "'" + "x" * 9
    assert errors.shown(Hostile()) == "(Hostile)"
    assert errors.shown(10**5000) == "(int)"


@pytest.mark.parametrize("make", [*MADE.values(), *(make for make, _ in DATA)])
def test_an_error_passes_from_one_process_to_another_with_its_data(make):
    error = make()
    error.advice = "Another one."
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.args, vars(again)) == (type(error), str(error), error.args, vars(error))

"""The simulation over the memory store and the real log writer: nothing breaks, and every planted bug is found."""

from __future__ import annotations

import itertools

import pytest

from holdfast.core.errors import StoreUnavailable
from holdfast.core.events import Event
from holdfast.core.state import RunState
from holdfast.engine.log import RunLog
from holdfast.testing.simulation import simulate
from holdfast.testing.simulation_link import FAULTS
from tests.simulate import BUGS, REAL, main, make_log, replay, tally

SEEDS = 5000
CHUNK = 500
WITHIN = 500

TELLS = {
    "no-fence": "not as LeaseLost",
    "no-memory-of-operations": "ended as SequenceConflict, not as done",
    "doubles": "and should end at",
    "ack-before-write": "and should end at",
    "no-sequence-check": "not as SequenceConflict",
    "wall-clock-leases": "lease",
    "same-epoch-again": "got epoch",
    "half-appends": "holds other events",
    "shows-the-unwritten": "believes in an event",
    "retries-anew": "holds a note twice",
    "acts-without-looking": "was done 2 times",
}


@pytest.mark.parametrize("start", range(0, SEEDS, CHUNK))
def test_no_seed_breaks_a_promise(start, tries):
    result = tally(tries.part(range(start, start + CHUNK), 100), REAL)
    assert not result.failed, "\n".join(replay(outcome) for outcome in result.failed[:10])
    assert result.seeds == (CHUNK if tries.whole else 100)


def test_the_seeds_meet_every_kind_of_fault_and_every_refusal():
    result = tally(range(CHUNK), REAL)
    never = set(itertools.chain(*FAULTS.values())) - set(result.faults)
    assert not never
    assert result.faults.total() > 5 * CHUNK
    for fact in ("take-overs", "writers fenced out", "conflicts refused", "repeats ignored", "events acknowledged"):
        assert result.facts[fact] > 10, fact


def test_the_same_seed_is_the_same_story():
    first = [simulate(seed, REAL).digest for seed in range(60)]
    assert [simulate(seed, REAL).digest for seed in range(60)] == first
    assert len(set(first)) == 60


def test_jumps_of_the_wall_clock_change_nothing():
    outcomes = [simulate(seed, REAL) for seed in range(100)]
    jumped = [outcome for outcome in outcomes if outcome.faults["clock jump"]]
    assert len(jumped) > 20
    for outcome in jumped:
        assert simulate(outcome.seed, REAL, jumps=False).digest == outcome.digest, outcome.seed


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug):
    outcomes = (simulate(seed, BUGS[bug]) for seed in range(WITHIN))
    found = next((outcome for outcome in outcomes if TELLS[bug] in (outcome.violation or "")), None)
    assert found is not None, f"no seed below {WITHIN} finds {bug}"
    assert simulate(found.seed, REAL).violation is None


class NeverWrites(RunLog):
    def record(self, *events: Event) -> RunState:
        raise StoreUnavailable("The store", "it never answers")


class Stumbles(RunLog):
    def renew(self) -> None:
        raise KeyError(self.run_id)


def test_a_run_that_does_not_end_is_a_violation():
    outcome = simulate(0, REAL._replace(open_log=make_log(NeverWrites)))
    assert "not ended" in (outcome.violation or "")


def test_an_error_that_nobody_declared_is_a_violation():
    outcomes = [simulate(seed, REAL._replace(open_log=make_log(Stumbles))) for seed in range(20)]
    assert any((outcome.violation or "").startswith("KeyError") for outcome in outcomes)


def test_a_failing_seed_prints_one_line_that_replays_it(capsys):
    assert main(["--bug", "doubles", "--seeds", "30"]) == 1
    line = capsys.readouterr().out.splitlines()[-1]
    command = line.partition("Replay: python -m tests.simulate ")[2].split()
    assert command[0] == "--seed"
    assert main(command) == 1
    assert capsys.readouterr().out.splitlines()[-1] == line


def test_the_table_counts_every_kind_of_fault(capsys):
    assert main(["--seeds", "20", "--start", "100"]) == 0
    shown = capsys.readouterr().out
    for kind in itertools.chain(*FAULTS.values()):
        assert f"\n{kind} " in shown
    assert "seeds                               20" in shown

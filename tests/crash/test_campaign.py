"""A part of the campaign: no technique may find a broken promise. `make test` tries a little of it, `make crash-ci` all."""

import os

import pytest

from tests.crash.alone import alone
from tests.crash.campaign import CAMPAIGN

SEED = int(os.environ.get("HOLDFAST_CRASH_SEED", "20261116"))
PART = float(os.environ.get("HOLDFAST_CAMPAIGN", "0.01"))
FEW = 3  # points that are tried in any case
MAY_REFUSE = ("bit flips", "zeroed")


@pytest.mark.crash
@pytest.mark.sweep
@pytest.mark.parametrize("entry", CAMPAIGN, ids=lambda entry: entry.name.replace(" ", "-"))
def test_every_acknowledged_event_survives(entry, record_property, skip_or_fail):
    skip_or_fail(entry.available())
    points = max(int(entry.points * PART), min(entry.points, FEW))
    found = alone(entry._replace(points=points), SEED)
    record_property("crash", (entry.name, found.points, found.counts, found.violations))
    assert found.violations == 0, found.told
    assert found.points > 0
    if not entry.name.startswith(MAY_REFUSE):
        assert found.counts["refused"] == 0, found.told

"""Each planted bug is found: a simulation that lets one live would prove little."""

import pytest

from simulation import planted
from simulation.world import Schedule, failure_of

SCHEDULES = 150
RARE = {planted.marks_pruned_too_early: 600}
"""A mark must be gone, and its record come back, within one schedule: that takes kills, hours and several shards."""


@pytest.mark.parametrize("bug", planted.BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(bug, monkeypatch, record_property):
    """The bug makes schedules go wrong; how many do is told at the end of the run."""
    bug(monkeypatch)
    schedules = RARE.get(bug, SCHEDULES)
    found = sum(failure_of(Schedule.from_seed(seed)) is not None for seed in range(schedules))
    record_property("planted bug found", f"{bug.__name__}: in {found} of {schedules} schedules")
    assert found > 0


def test_the_same_schedules_go_right_without_a_bug():
    """What finds the bugs are the bugs."""
    assert not [seed for seed in range(SCHEDULES) if failure_of(Schedule.from_seed(seed))]

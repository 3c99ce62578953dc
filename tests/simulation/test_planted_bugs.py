"""Each planted bug is found: a simulation that lets one live would prove little."""

import pytest

from simulation.planted import BUGS
from simulation.world import Schedule, failure_of

SCHEDULES = 150


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(bug, monkeypatch, record_property):
    """The bug makes at least one of 150 schedules go wrong; how many do is told."""
    bug(monkeypatch)
    found = sum(failure_of(Schedule.from_seed(seed)) is not None for seed in range(SCHEDULES))
    record_property(
        "found", f"{bug.__name__}: {bug.__doc__.splitlines()[0]} Found in {found} of {SCHEDULES} schedules."
    )
    assert found > 0


def test_the_same_schedules_go_right_without_a_bug():
    """What finds the bugs are the bugs."""
    assert not [seed for seed in range(SCHEDULES) if failure_of(Schedule.from_seed(seed))]

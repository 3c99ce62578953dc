"""The lab in small: `make lab` runs it in full."""

import pytest

from lab.lab import KILLED_SHARE, exit_code, run, table_of


@pytest.fixture(scope="module")
def played():
    """Play two bursts."""
    return run(seed=7, bursts=2, records=1_000, parents=10)


def test_the_handler_is_exact_after_each_burst_and_the_blind_counter_is_not(played):
    """The same faults leave the handler's tallies exact and the blind counter's wrong."""
    assert [real.error for real, _ in played] == [0, 0]
    assert played[-1][1].error > 0
    assert exit_code(played) == 0


def test_each_burst_meets_what_it_is_said_to_meet(played):
    """Invocations are killed, batches are bisected and cut, records are replayed, and duplicates are in every batch."""
    both = [real for real, _ in played]
    killed = sum(real.killed_before + real.killed_after for real in both)
    low, high = KILLED_SHARE
    assert low * 0.8 <= killed / sum(real.invocations for real in both) <= high * 1.2
    for name in ("bisected", "cut", "replayed"):
        assert sum(getattr(real, name) for real in both) > 0, name
    assert all(real.duplicates >= 5 * (real.invocations - real.killed_before - real.killed_after) / 2 for real in both)


def test_an_error_is_shown_and_fails_the_run(played):
    """A counter that was wrong once fails the run, and so does a run that could not have found that."""
    swapped = [(blind, real) for real, blind in played]
    assert exit_code(swapped) == 1
    assert exit_code([(real, real) for real, _ in played]) == 2
    assert "blind ADD" in {cell for column in table_of(played).columns for cell in column.cells}


def test_a_seed_plays_the_same_each_time(played):
    """Two runs with one seed come to the same figures, so that a failure can be looked into."""
    assert run(seed=7, bursts=2, records=1_000, parents=10) == played

"""Thousands of seeded histories through the real handler: each tally equals its children at the end."""

import os
from collections import Counter

import pytest

from simulation.world import FEATURES, INVOCATION_FAULTS, SDK_FAULTS, Schedule, World, failure_of, run, shortest, story

SCHEDULES = 2400
GROUPS = 12
FIRST_SEED = int(os.environ.get("FIRST_SEED", "0"))


@pytest.mark.parametrize("group", range(GROUPS))
def test_every_tally_is_exact_after_any_schedule(group, record_property):
    """Whatever was lost, repeated, cut, killed or late: tally plus failure queue is what the children say."""
    seeds = range(FIRST_SEED + group, FIRST_SEED + SCHEDULES, GROUPS)
    for seed in seeds:
        schedule = Schedule.from_seed(seed)
        if failure_of(schedule):
            pytest.fail(f"seed {seed}; the shortest schedule found:\n{story(shortest(schedule))}")
    record_property("schedules", len(seeds))


def test_a_schedule_always_plays_the_same():
    """A seed is a bug report: what it did once, it does again, sleeping invocations included."""
    for seed in range(40):
        schedule = Schedule.from_seed(seed)
        assert run(schedule).trace == run(schedule).trace


@pytest.fixture(scope="module")
def worlds() -> list[World]:
    """Some worlds at rest."""
    return [run(Schedule.from_seed(seed)) for seed in range(200)]


def test_the_schedules_hold_everything_that_may_happen(worlds):
    """A simulation in which nothing goes wrong proves nothing."""
    seen = Counter(name for world in worlds for line in world.trace for name in line.replace(":", " ").split())
    for sign in ("asleep", "killed", "woke", "denied", "discarded", "like", "unlike", *FEATURES):
        if sign not in {"scatter", "no_window", "hours", "cap", "cold"}:  # no event of their own: settings
            assert seen[sign], sign
    for name in (*SDK_FAULTS, *INVOCATION_FAULTS, *FEATURES):
        parts = (
            world.schedule.sdk_faults + world.schedule.invocation_faults + world.schedule.features for world in worlds
        )
        assert sum(name in part for part in parts) > 20, name


def test_marks_drop_what_comes_twice_and_the_queue_takes_what_cannot_be_counted(worlds):
    """Refused updates, poison parents and discarded batches all occur, or the checks above would be idle."""
    calls = sum(world.table.writes() for world in worlds)
    assert calls > 3000
    assert sum("parent" in message for world in worlds for message in world.queue.messages) > 20
    assert sum("DDBStreamBatchInfo" in message for world in worlds for message in world.queue.messages) > 5
    assert sum(bool(world.recreated) for world in worlds) > 10


def test_a_failing_schedule_is_made_short(monkeypatch):
    """What a person reads is the smallest history that still fails, not the one that was found."""
    monkeypatch.setattr("tallystream.counters._reached", lambda *_: "")
    seed = next(seed for seed in range(400) if failure_of(Schedule.from_seed(seed)))
    short = shortest(Schedule.from_seed(seed))
    assert failure_of(short)
    assert short.steps <= Schedule.from_seed(seed).steps
    assert story(short).startswith(repr(short))
